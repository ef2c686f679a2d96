/* Reading a ring. A file may be anything: every number is checked before it is used, and an entry
 * that is damaged is left out. The process that writes it may run, or may have been killed in the
 * middle of an entry. */
#include "runtime/recorder/dump.h"
#include "lierne/grid.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_CAPACITY = 1 << 20, MOST_BYTES = 64 << 20 };

static lierne_status damaged(const char *name, const char *field, long long value) {
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is not the dump of a rank: %s is %lld", name, field,
                       value);
}

/* Sizes, so that nothing is read past the end. */
static lierne_status check_sizes(const lierne_recorder_header *h, size_t bytes, const char *name) {
    if (h->version != LIERNE_RECORDER_VERSION) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s has version %u, this library reads version %d",
                           name, h->version, LIERNE_RECORDER_VERSION);
    }
    if (h->entry_bytes != 4 * sizeof(uint64_t)) {
        return damaged(name, "entry_bytes", h->entry_bytes);
    }
    if (h->capacity == 0 || h->capacity > MOST_CAPACITY || (h->capacity & (h->capacity - 1))) {
        return damaged(name, "capacity", h->capacity);
    }
    if (h->header_bytes < sizeof *h || h->header_bytes % 64 != 0 || h->header_bytes > bytes ||
        bytes - h->header_bytes < (size_t)h->capacity * h->entry_bytes) {
        return damaged(name, "header_bytes", h->header_bytes);
    }
    return LIERNE_OK;
}

static lierne_status check_ranks(const lierne_recorder_header *h, const char *name) {
    if (h->world < 1 || h->world > LIERNE_MAX_RANKS) {
        return damaged(name, "world", h->world);
    }
    if (h->members < 1 || h->members > h->world) {
        return damaged(name, "members", h->members);
    }
    if ((h->listed != 0 && h->listed != h->members) || (h->listed == 0 && h->members != h->world) ||
        (size_t)h->listed > (h->header_bytes - sizeof *h) / sizeof(int32_t)) {
        return damaged(name, "listed", h->listed);
    }
    return h->rank < 0 || h->rank >= h->world ? damaged(name, "rank", h->rank) : LIERNE_OK;
}

static lierne_status copy_ranks(lierne_dump *dump, const lierne_recorder_header *h,
                                const char *name) {
    const int32_t *ranks = (const int32_t *)(h + 1);
    if (h->listed == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&dump->ranks, (size_t)h->listed, sizeof *dump->ranks));
    for (int i = 0; i < h->listed; i++) {
        if (ranks[i] < 0 || ranks[i] >= h->world || (i > 0 && ranks[i] <= ranks[i - 1])) {
            return damaged(name, "a rank", ranks[i]);
        }
        dump->ranks[i] = ranks[i];
    }
    return lierne_dump_find(dump, h->rank) < 0 ? damaged(name, "rank", h->rank) : LIERNE_OK;
}

static void copy_text(char *to, const char *from, size_t size) {
    memcpy(to, from, size);
    to[size - 1] = '\0';
}

/* Ticks per second follow from the two times; a context that was hardly there has only one. */
static void read_clock(lierne_dump *dump, const lierne_recorder_header *h) {
    int64_t ticks = atomic_load(&h->last_ticks), time = atomic_load(&h->last_time);
    double elapsed = (double)time - (double)h->first_time;
    double counted = (double)ticks - (double)h->first_ticks;
    bool known = elapsed > 0 && counted > 0;
    dump->first = h->first_ticks;
    dump->first_time = h->first_time;
    dump->created = (double)h->epoch * 1e-9;
    dump->ticks = known ? elapsed / counted * 1e-9 : 1e-9;
    dump->alive = lierne_dump_time(dump, &(lierne_entry){.time = atomic_load(&h->alive)});
}

static lierne_status read_header(lierne_dump *dump, const lierne_recorder_header *h,
                                 const char *name) {
    LIERNE_TRY(check_ranks(h, name));
    dump->context = h->context;
    dump->rank = h->rank;
    dump->world = h->world;
    dump->members = h->members;
    dump->space = h->space;
    dump->process = h->process;
    dump->process_start = h->process_start;
    dump->timeout = (double)h->timeout * 1e-9;
    dump->state = atomic_load(&h->state);
    dump->status = atomic_load(&h->status);
    if (dump->state < LIERNE_RECORDER_CREATING || dump->state > LIERNE_RECORDER_DESTROYED) {
        return damaged(name, "state", dump->state);
    }
    copy_text(dump->host, h->host, sizeof dump->host);
    copy_text(dump->doing, h->doing, sizeof dump->doing);
    copy_text(dump->message, h->message, sizeof dump->message);
    read_clock(dump, h);
    return copy_ranks(dump, h, name);
}

/* None where a file was written before there were names. What is no name is left out. */
static lierne_status read_names(lierne_dump *dump, const lierne_recorder_header *h) {
    size_t at = lierne_recorder_names_at((size_t)h->listed);
    size_t n = h->header_bytes > at ? (h->header_bytes - at) / sizeof(lierne_recorded_name) : 0;
    const lierne_recorded_name *slots = (const void *)((const char *)h + at);
    for (size_t i = 0; i < n; i++) {
        lierne_recorded_name name = {.used = atomic_load(&slots[i].used), .plan = slots[i].plan};
        copy_text(name.name, slots[i].name, sizeof name.name);
        if (name.used && lierne_check_name(name.name) == LIERNE_OK) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&dump->names, name));
        }
    }
    return LIERNE_OK;
}

const char *lierne_dump_find_name(const lierne_dump *dump, int plan) {
    for (size_t i = 0; i < dump->names.count; i++) {
        if (dump->names.at[i].plan == plan) {
            return dump->names.at[i].name;
        }
    }
    return NULL;
}

/* False: it is damaged, or being written. */
static bool read_entry(lierne_entry *record, const _Atomic uint64_t *entry, uint64_t index) {
    uint64_t words[4];
    words[3] = atomic_load_explicit(&entry[3], memory_order_acquire);
    for (int i = 0; i < 3; i++) {
        words[i] = atomic_load_explicit(&entry[i], memory_order_relaxed);
    }
    *record = (lierne_entry){.kind = (int)(words[1] & 0xFF),
                             .what = (int)(words[1] >> 8 & 0xFF),
                             .stage = (int)(words[1] >> 16 & 0xFFFF),
                             .plan = (int)(uint32_t)(words[1] >> 32),
                             .number = (int64_t)(words[2] & UINT32_MAX),
                             .peer = (int)(uint32_t)(words[2] >> 32),
                             .bytes = (int64_t)words[3] >> 16,
                             .time = (int64_t)words[0]};
    return (words[3] & 0xFFFF) == (index & 0xFFFF) && record->kind >= 1 &&
           record->kind <= LIERNE_RECORD_KINDS;
}

/* Entries so far: those that the header counts, and those of the round after it. An entry of
 * another round has other low bits, unless the ring is longer than they count. */
static uint64_t find_end(const lierne_recorder_header *h, const _Atomic uint64_t *entries) {
    uint64_t written = atomic_load(&h->written), end = written;
    lierne_entry record;
    for (uint64_t i = written; h->capacity <= 1 << 15 && i - written < h->capacity; i++) {
        end = read_entry(&record, &entries[(i & (h->capacity - 1)) * 4], i) ? i + 1 : end;
    }
    return end;
}

lierne_status lierne_dump_parse(lierne_dump *dump, const void *data, size_t bytes,
                                const char *name) {
    const lierne_recorder_header *h = data;
    *dump = (lierne_dump){0};
    if (bytes < sizeof *h || memcmp(h->magic, LIERNE_RECORDER_MAGIC, sizeof h->magic) != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is not the dump of a rank: it does not begin as one", name);
    }
    LIERNE_TRY(check_sizes(h, bytes, name));
    LIERNE_TRY(read_header(dump, h, name));
    LIERNE_TRY(read_names(dump, h));
    const _Atomic uint64_t *entries = (const void *)((const char *)data + h->header_bytes);
    uint64_t written = find_end(h, entries);
    dump->written = (int64_t)(written & INT64_MAX);
    for (uint64_t i = written > h->capacity ? written - h->capacity : 0; i < written; i++) {
        lierne_entry record;
        if (read_entry(&record, &entries[(i & (h->capacity - 1)) * 4], i)) {
            record.index = (int64_t)i;
            LIERNE_TRY(LIERNE_VEC_PUSH(&dump->records, record));
        }
    }
    if (dump->records.count > 0) { /* a sign of life, too, that the header may not have */
        double last = lierne_dump_time(dump, &dump->records.at[dump->records.count - 1]);
        dump->alive = last > dump->alive ? last : dump->alive;
    }
    return LIERNE_OK;
}

static lierne_status read_bytes(void **data, size_t *bytes, int file, const char *path) {
    struct stat info;
    if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MOST_BYTES) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is not the dump of a rank: no file of 1 to %d bytes", path,
                           MOST_BYTES);
    }
    LIERNE_TRY(lierne_alloc(data, (size_t)info.st_size + 1, 1));
    ssize_t n = read(file, *data, (size_t)info.st_size);
    *bytes = n < 0 ? 0 : (size_t)n;
    return n < 0 ? LIERNE_FAIL(LIERNE_ERR_IO, "%s: %s", path, strerror(errno)) : LIERNE_OK;
}

lierne_status lierne_dump_read(lierne_dump *dump, const char *path) {
    void *data = NULL;
    size_t bytes = 0;
    *dump = (lierne_dump){0};
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return LIERNE_FAIL(LIERNE_ERR_IO, "%s: %s", path, strerror(errno));
    }
    lierne_status status = read_bytes(&data, &bytes, file, path);
    status = status == LIERNE_OK ? lierne_dump_parse(dump, data, bytes, path) : status;
    lierne_mem_free(data);
    close(file);
    return status;
}

void lierne_dump_clear(lierne_dump *dump) {
    lierne_mem_free(dump->ranks);
    lierne_mem_free(dump->records.at);
    lierne_mem_free(dump->names.at);
    *dump = (lierne_dump){0};
}

double lierne_dump_time(const lierne_dump *dump, const lierne_entry *record) {
    return dump->created + ((double)record->time - (double)dump->first) * dump->ticks;
}

int64_t lierne_dump_nanoseconds(const lierne_dump *dump, const lierne_entry *record) {
    return dump->first_time + llround((double)(record->time - dump->first) * (dump->ticks * 1e9));
}

int lierne_dump_member(const lierne_dump *dump, int index) {
    return dump->ranks ? dump->ranks[index] : index;
}

int lierne_dump_find(const lierne_dump *dump, int rank) {
    if (!dump->ranks) {
        return rank >= 0 && rank < dump->members ? rank : -1;
    }
    int low = 0, high = dump->members;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (dump->ranks[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < dump->members && dump->ranks[low] == rank ? low : -1;
}
