/* The segment of this process: creating it, and memory in it.
 *
 * Memory is reserved when it is allocated, so that a write cannot fail later, and given back when
 * it is freed; the offsets are used again, so that what others have mapped stays valid. */
#include "backend/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define FIRST_CHUNK ((uint64_t)1 << 20)
#define LAST_CHUNK  ((uint64_t)1 << 36) /* of those that double */

_Static_assert(sizeof(lierne_segment_head) <= LIERNE_PAGE, "the head is one page");

static int create_file(void) {
    if (!lierne_file_may_have(LIERNE_PAGE + FIRST_CHUNK)) {
        errno = EFBIG;
        return -1;
    }
    int descriptor = memfd_create("lierne", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return -1;
    }
    /* Without the seal, a process that shortens the file kills the others with SIGBUS. */
    if (posix_fallocate(descriptor, 0, LIERNE_PAGE) != 0 ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        close(descriptor);
        return -1;
    }
    return descriptor;
}

static lierne_status open_file(lierne_segment *s) {
    int descriptor = create_file();
    void *head = descriptor < 0
                     ? MAP_FAILED
                     : mmap(NULL, LIERNE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    uint64_t token = 0;
    if (head == MAP_FAILED || getrandom(&token, sizeof token, 0) != sizeof token) {
        int code = errno;
        if (descriptor >= 0) {
            close(descriptor);
        }
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the system refuses shared memory without a name (memfd): %s",
                           strerror(code));
    }
    s->head = head;
    s->own = true;
    s->name = (lierne_segment_name){(uint64_t)getpid(), (uint64_t)descriptor, token};
    s->head->token = token;
    s->head->address = (uint64_t)(uintptr_t)head;
    return LIERNE_OK;
}

/* The list exists as long as the segment, so that memory that is freed after its owner, the plan,
 * has gone leaves nothing on the heap. */
lierne_status lierne_segment_open(lierne_segment *s) {
    *s = (lierne_segment){0};
    LIERNE_TRY(lierne_extents_reserve(&s->used));
    lierne_status status = open_file(s);
    if (status != LIERNE_OK) {
        lierne_mem_free(s->used.at);
        s->used.at = NULL;
    }
    return status;
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + LIERNE_PAGE - 1) / LIERNE_PAGE * LIERNE_PAGE;
}

static lierne_status no_memory(uint64_t bytes, const char *reason) {
    return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY,
                       "%llu bytes of memory that the ranks of the node share: %s",
                       (unsigned long long)bytes, reason);
}

/* memfds are not limited by anything but the machine's memory, so that is checked first: reserving
 * more would have processes killed. */
static lierne_status check_size(uint64_t bytes) {
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);
    return bytes / page < pages ? LIERNE_OK
                                : no_memory(bytes, "more than the memory of the machine");
}

static unsigned chunks_of(const lierne_segment *s) {
    return atomic_load_explicit(&s->head->nchunks, memory_order_relaxed);
}

static lierne_status add_chunk(lierne_segment *s, uint64_t bytes) {
    unsigned n = chunks_of(s);
    const lierne_extent *last = n ? &s->head->chunks[n - 1] : NULL;
    uint64_t offset = last ? last->offset + last->bytes : LIERNE_PAGE;
    uint64_t size = !last ? FIRST_CHUNK : last->bytes < LAST_CHUNK ? 2 * last->bytes : LAST_CHUNK;
    size = size > bytes ? size : bytes;
    if (n == LIERNE_SEGMENT_CHUNKS) {
        return no_memory(bytes, "its table of chunks is full");
    }
    if (!lierne_file_may_have(offset + size)) {
        return no_memory(bytes, "more than a file may have (RLIMIT_FSIZE)");
    }
    if (ftruncate((int)s->name.descriptor, (off_t)(offset + size)) != 0) {
        return no_memory(bytes, strerror(errno));
    }
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, (int)s->name.descriptor,
                    (off_t)offset);
    if (at == MAP_FAILED) {
        return no_memory(bytes, strerror(errno));
    }
    s->at[n] = at;
    s->head->chunks[n] = (lierne_extent){offset, size};
    atomic_store_explicit(&s->head->nchunks, n + 1, memory_order_release);
    return LIERNE_OK;
}

static lierne_status reserve_extent(lierne_segment *s, lierne_extent extent) {
    int code = posix_fallocate((int)s->name.descriptor, (off_t)extent.offset, (off_t)extent.bytes);
    if (code == 0) {
        return LIERNE_OK;
    }
    fallocate((int)s->name.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)extent.offset, (off_t)extent.bytes);
    return no_memory(extent.bytes, strerror(code));
}

/* In the chunks, the newest first, in which there is most space. */
static bool take_place(lierne_segment *s, uint64_t bytes, uint64_t *offset) {
    bool found = false;
    for (unsigned c = chunks_of(s); c-- > 0 && !found;) {
        found = lierne_extents_take(&s->used, s->head->chunks[c], bytes, offset);
    }
    return found;
}

/* Takes whole pages; *out is where. */
static lierne_status take_pages(lierne_segment *s, uint64_t bytes, uint64_t *out) {
    LIERNE_TRY(lierne_extents_reserve(&s->used));
    if (!take_place(s, bytes, out)) {
        LIERNE_TRY(add_chunk(s, bytes));
        take_place(s, bytes, out);
    }
    lierne_status status = reserve_extent(s, (lierne_extent){*out, bytes});
    if (status != LIERNE_OK) {
        lierne_extents_give(&s->used, *out, NULL);
    }
    return status;
}

lierne_status lierne_segment_alloc(void **out, uint64_t *offset, lierne_segment *s, size_t size) {
    uint64_t bytes = round_up(size ? size : 1), place;
    LIERNE_TRY(check_size(size));
    LIERNE_TRY(take_pages(s, bytes, &place));
    *out = lierne_segment_address(s, place, bytes);
    if (offset) {
        *offset = place;
    }
    return LIERNE_OK;
}

bool lierne_segment_free(lierne_segment *s, const void *memory) {
    uint64_t offset;
    lierne_extent given;
    if (!lierne_segment_find(s, memory, 1, &offset) ||
        !lierne_extents_give(&s->used, offset, &given)) {
        return false;
    }
    fallocate((int)s->name.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              (off_t)given.offset, (off_t)given.bytes);
    return true;
}

bool lierne_segment_find(const lierne_segment *s, const void *memory, size_t bytes,
                         uint64_t *offset) {
    for (unsigned c = 0; c < LIERNE_SEGMENT_CHUNKS && s->at[c]; c++) {
        const lierne_extent *chunk = &s->head->chunks[c];
        uint64_t distance = (uint64_t)((uintptr_t)memory - (uintptr_t)s->at[c]);
        if (distance < chunk->bytes && bytes <= chunk->bytes - distance) {
            *offset = chunk->offset + distance;
            return true;
        }
    }
    return false;
}
