/* Segments of other processes, mapped chunk by chunk when they are first used. */
#include "backend/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The kernel opens the file only for who may trace the process, which is the same user's. */
static int open_file(const lierne_segment_name *name) {
    char path[64];
    struct stat file;
    snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)name->process,
             (unsigned long long)name->descriptor);
    int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (descriptor >= 0 && (fstat(descriptor, &file) != 0 || !S_ISREG(file.st_mode) ||
                            file.st_uid != geteuid() || file.st_size < LIERNE_PAGE)) {
        close(descriptor);
        errno = EACCES;
        return -1;
    }
    return descriptor;
}

/* Maps part of the file that a process has under this name; NULL if it is another file. */
static void *map_extent(const lierne_segment_name *name, lierne_extent extent) {
    int descriptor = open_file(name);
    if (descriptor < 0) {
        return NULL;
    }
    const lierne_segment_head *head = mmap(NULL, LIERNE_PAGE, PROT_READ, MAP_SHARED, descriptor, 0);
    bool same = head != MAP_FAILED && head->token == name->token;
    if (head != MAP_FAILED) {
        munmap((void *)head, LIERNE_PAGE);
    }
    void *at = same ? mmap(NULL, extent.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                           (off_t)extent.offset)
                    : MAP_FAILED;
    int code = same ? errno : EPERM;
    close(descriptor);
    errno = code;
    return at == MAP_FAILED ? NULL : at;
}

static lierne_status refused(const lierne_segment_name *name) {
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "the system refuses to map the shared memory of process %llu: %s",
                       (unsigned long long)name->process, strerror(errno));
}

lierne_status lierne_segment_attach(lierne_segment *s, lierne_segment_name name) {
    *s = (lierne_segment){.name = name};
    s->head = map_extent(&name, (lierne_extent){0, LIERNE_PAGE});
    return s->head ? LIERNE_OK : refused(&name);
}

void lierne_segment_close(lierne_segment *s) {
    for (unsigned c = 0; c < LIERNE_SEGMENT_CHUNKS; c++) {
        if (s->at[c]) {
            munmap(s->at[c], s->head->chunks[c].bytes);
        }
    }
    if (s->own) {
        close((int)s->name.descriptor);
    }
    if (s->head) {
        munmap(s->head, LIERNE_PAGE);
    }
    lierne_mem_free(s->used.at);
    *s = (lierne_segment){0};
}

/* The chunk of an offset, as an index of the head's table; -1: none. */
static int chunk_of(const lierne_segment *s, uint64_t offset, size_t bytes) {
    unsigned n = atomic_load_explicit(&s->head->nchunks, memory_order_acquire);
    for (unsigned c = 0; c < n && c < LIERNE_SEGMENT_CHUNKS; c++) {
        const lierne_extent *chunk = &s->head->chunks[c];
        uint64_t distance = offset - chunk->offset;
        if (distance < chunk->bytes && bytes <= chunk->bytes - distance) {
            return (int)c;
        }
    }
    return -1;
}

void *lierne_segment_address(lierne_segment *s, uint64_t offset, size_t bytes) {
    int c = chunk_of(s, offset, bytes);
    if (c < 0) {
        LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "process %llu has no shared memory at offset %llu",
                    (unsigned long long)s->name.process, (unsigned long long)offset);
        return NULL;
    }
    if (!s->at[c]) {
        s->at[c] = map_extent(&s->name, s->head->chunks[c]);
    }
    if (!s->at[c]) {
        refused(&s->name);
        return NULL;
    }
    return s->at[c] + (offset - s->head->chunks[c].offset);
}
