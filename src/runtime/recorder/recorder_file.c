/* How a file of LIERNE_DUMP_DIR gets the ring.
 *
 * The file is written, not mapped: whoever truncates a file ends all processes that touch a mapping
 * of it by SIGBUS, and nothing can be mapped that survives its process and cannot be truncated. A
 * write costs more than a call may, so there is one where another process could otherwise see too
 * little: when a call ends, returns or has begun to wait, and when something else than calls is
 * recorded. In between are microseconds. It writes new entries only: a reader finds those that the
 * header does not count by their numbers, and the header follows twice in a round of the ring, and
 * with every sign of life. A write that fails is made again by the next header, which also makes a
 * file whole that was truncated. */
#include "runtime/recorder/recorder_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILES  10000 /* of one rank and process in one folder */
#define PATH_SIZE   4096
#define MOST_WORDS  128 /* of one write */
#define ENTRY_BYTES (4 * sizeof(uint64_t))
/* Since the last write, until the begin of a call is written at once: 20 us of a counter of 3 GHz,
 * 65 of one of nanoseconds. */
#define TICKS_TO_WAIT (1 << 16)

const char *lierne_recorder_folder(void) {
    const char *folder = getenv("LIERNE_DUMP_DIR");
    return folder && *folder ? folder : NULL;
}

static lierne_status reject_folder(const char *folder, int code) {
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
            return reject_folder(folder, ENAMETOOLONG);
        }
        *file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*file >= 0 || errno != EEXIST) {
            break;
        }
    }
    return *file >= 0 ? LIERNE_OK : reject_folder(folder, errno);
}

/* Its blocks are reserved: a full disk is an error here, and no file without its last entries. */
lierne_status lierne_recorder_file_open(lierne_recorder *r, const char *folder,
                                        const lierne_recorder_spec *spec) {
    char path[PATH_SIZE];
    int file = -1;
    LIERNE_TRY(create_file(&file, path, folder, spec));
    int code = lierne_file_may_have(r->bytes) ? posix_fallocate(file, 0, (off_t)r->bytes) : EFBIG;
    if (code) {
        unlink(path);
        close(file);
        return reject_folder(folder, code);
    }
    r->file = (lierne_recorder_file *)(void *)((char *)r->header + r->bytes);
    r->file->file = file;
    return LIERNE_OK;
}

/* Bytes of the ring that other threads may write at the same time. Of an entry the last word is
 * read first, because it was written last: then the others are not older. */
static void write_bytes(const lierne_recorder *r, size_t from, size_t to) {
    const _Atomic uint64_t *words = (const void *)r->header;
    uint64_t copy[MOST_WORDS];
    for (size_t at = from / sizeof *copy, n; at < to / sizeof *copy; at += n) {
        n = to / sizeof *copy - at < MOST_WORDS ? to / sizeof *copy - at : MOST_WORDS;
        for (size_t i = n; i-- > 0;) {
            copy[i] = atomic_load_explicit(&words[at + i], memory_order_acquire);
        }
        if (pwrite(r->file->file, copy, n * sizeof *copy, (off_t)(at * sizeof *copy)) < 0) {
            return;
        }
    }
}

void lierne_recorder_file_set_header(const lierne_recorder *r) {
    struct stat info;
    bool whole = fstat(r->file->file, &info) == 0 && info.st_size >= (off_t)r->bytes;
    atomic_store(&r->file->header, atomic_load(&r->header->written));
    size_t names = (size_t)((const char *)r->names - (const char *)r->header);
    write_bytes(r, 0, whole ? names : r->bytes);
    lierne_recorder_flush(r);
}

void lierne_recorder_file_set_name(const lierne_recorder *r, const lierne_recorded_name *slot) {
    size_t at = (size_t)((const char *)slot - (const char *)r->header);
    write_bytes(r, at, at + sizeof *slot);
}

/* Entries up to the end of the ring, and those that continue at its begin. */
static void write_entries(const lierne_recorder *r, uint64_t from, uint64_t to) {
    size_t header = r->header->header_bytes, capacity = (size_t)r->mask + 1;
    size_t first = (size_t)(from & r->mask),
           n = to - from < capacity ? (size_t)(to - from) : capacity;
    size_t end = first + n < capacity ? first + n : capacity;
    write_bytes(r, header + first * ENTRY_BYTES, header + end * ENTRY_BYTES);
    write_bytes(r, header, header + (first + n - end) * ENTRY_BYTES);
}

void lierne_recorder_flush(const lierne_recorder *r) {
    if (!r->file) {
        return;
    }
    uint64_t to = atomic_load(&r->header->written), from = atomic_exchange(&r->file->first, to);
    if (from < to) {
        write_entries(r, from, to);
        atomic_store(&r->file->time, lierne_recorder_now(r));
    }
    if (to - atomic_load(&r->file->header) > r->mask / 2) {
        lierne_recorder_file_set_header(r);
    }
}

static bool is_late(const lierne_recorder *r, int64_t now) {
    return now - atomic_load_explicit(&r->file->time, memory_order_relaxed) > TICKS_TO_WAIT;
}

void lierne_recorder_flush_late(const lierne_recorder *r) {
    if (r->file && atomic_load(&r->file->first) < atomic_load(&r->header->written) &&
        is_late(r, lierne_recorder_now(r))) {
        lierne_recorder_flush(r);
    }
}

/* An entry that another thread's flush met unfinished is written again. */
void lierne_recorder_file_add(const lierne_recorder *r, uint64_t index,
                              const lierne_entry *record) {
    uint64_t first = atomic_load(&r->file->first);
    while (index < first && !atomic_compare_exchange_weak(&r->file->first, &first, index)) {
    }
    bool more = record->kind == LIERNE_RECORD_CALL || record->kind == LIERNE_RECORD_STAGE;
    if (!more || is_late(r, lierne_recorder_now(r))) {
        lierne_recorder_flush(r);
    }
}
