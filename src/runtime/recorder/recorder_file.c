/* Where the ring lies: in a file of LIERNE_DUMP_DIR, or in memory of this process alone.
 *
 * Both are mapped, not allocated: a context is made at its first use in simulated worlds, where no
 * error can be returned, and then simply records nothing. The file's blocks are reserved, because a
 * full disk would otherwise end the process at the first write to a page. */
#include "runtime/recorder/recorder_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_FILES 10000 /* of one rank and process in one folder */
#define PATH_SIZE  4096

const char *lierne_recorder_folder(void) {
    const char *folder = getenv("LIERNE_DUMP_DIR");
    return folder && *folder ? folder : NULL;
}

static lierne_status fail(const char *folder, int code) {
    return LIERNE_FAIL(LIERNE_ERR_IO, "LIERNE_DUMP_DIR is '%s', where no file can be made: %s",
                       folder, strerror(code));
}

/* A new file: never one that is there, nor where a link leads. */
static lierne_status create_file(int *file, char path[PATH_SIZE], const char *folder,
                                 const lierne_recorder_spec *spec) {
    for (int i = 0; i < MOST_FILES; i++) {
        int n = snprintf(path, PATH_SIZE, "%s/rank%d-%llu-%d.lierne", folder, spec->rank,
                         (unsigned long long)spec->process, i);
        if (n < 0 || (size_t)n >= PATH_SIZE) {
            return fail(folder, ENAMETOOLONG);
        }
        *file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*file >= 0 || errno != EEXIST) {
            break;
        }
    }
    return *file >= 0 ? LIERNE_OK : fail(folder, errno);
}

static lierne_status map(lierne_recorder *r, int file, int flags) {
    void *memory = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for %zu bytes", r->bytes);
    }
    r->header = memory;
    return LIERNE_OK;
}

static lierne_status map_file(lierne_recorder *r, const char *folder,
                              const lierne_recorder_spec *spec) {
    char path[PATH_SIZE];
    int file = -1;
    LIERNE_TRY(create_file(&file, path, folder, spec));
    int code = lierne_file_may_have(r->bytes) ? posix_fallocate(file, 0, (off_t)r->bytes) : EFBIG;
    lierne_status status = code ? fail(folder, code) : map(r, file, MAP_SHARED);
    if (status != LIERNE_OK) {
        unlink(path);
    }
    close(file);
    return status;
}

lierne_status lierne_recorder_open(lierne_recorder *r, const lierne_recorder_spec *spec) {
    const char *folder = lierne_recorder_folder();
    size_t listed = spec->ranks ? (size_t)spec->members * sizeof *spec->ranks : 0;
    size_t header = (sizeof *r->header + listed + 63) / 64 * 64;
    *r = (lierne_recorder){.bytes = header + spec->capacity * 4 * sizeof(uint64_t)};
    LIERNE_TRY(folder ? map_file(r, folder, spec) : map(r, -1, MAP_PRIVATE | MAP_ANONYMOUS));
    r->header->header_bytes = (uint32_t)header;
    gethostname(r->header->host, sizeof r->header->host - 1);
    lierne_recorder_begin(r, spec);
    return LIERNE_OK;
}

void lierne_recorder_close(lierne_recorder *r) {
    if (r->header) {
        lierne_recorder_beat(r);
        if (atomic_load(&r->header->state) != LIERNE_RECORDER_DEAD) {
            atomic_store(&r->header->state, LIERNE_RECORDER_DESTROYED);
        }
        munmap(r->header, r->bytes);
        *r = (lierne_recorder){0};
    }
}
