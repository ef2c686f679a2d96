/* Writing the ring.
 *
 * An entry is four words. Its place comes from one atomic addition, so that threads that progress
 * the same context write to different entries. The low bits of the last word are those of the
 * entry's number: a reader sees an entry that was cut off, because its process was killed in it, or
 * one that is being overwritten.
 *
 * The memory is mapped, not allocated: a context is made at its first use in simulated worlds,
 * where no error can be returned, and then simply records nothing. */
#include "runtime/recorder/recorder_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RELAXED          memory_order_relaxed
#define ENTRIES_PER_NAME 8 /* of the ring: as many plans as its entries may be of */

static void start_clock(lierne_recorder *r) {
    lierne_recorder_header *h = r->header;
    r->own_clock = lierne_recorder_has_counter();
    h->epoch = lierne_recorder_calendar();
    h->first_time = lierne_recorder_nanoseconds();
    h->first_ticks = lierne_recorder_now(r);
    lierne_recorder_beat(r);
}

/* Fills in the header, whose memory is zero but for header_bytes and host. */
static void fill_header(lierne_recorder *r, const lierne_recorder_spec *spec) {
    lierne_recorder_header *h = r->header;
    h->version = LIERNE_RECORDER_VERSION;
    h->entry_bytes = 4 * sizeof(uint64_t);
    h->capacity = spec->capacity;
    h->rank = spec->rank;
    h->world = spec->world;
    h->members = spec->members;
    h->listed = spec->ranks ? spec->members : 0;
    h->space = spec->space;
    h->process = spec->process;
    h->process_start = spec->process_start;
    h->timeout = (int64_t)(spec->timeout * 1e9);
    if (spec->ranks) {
        memcpy(h + 1, spec->ranks, (size_t)spec->members * sizeof *spec->ranks);
    }
    r->entries = (_Atomic uint64_t *)(void *)((char *)h + h->header_bytes);
    r->mask = spec->capacity - 1;
    start_clock(r);
    /* Last, because a file without it is none yet. */
    memcpy(h->magic, LIERNE_RECORDER_MAGIC, sizeof h->magic);
}

void lierne_recorder_meet(lierne_recorder *r, uint64_t context, int64_t created) {
    r->created = created;
    r->begin = lierne_recorder_nanoseconds() - (lierne_recorder_calendar() - created);
    if (r->header) {
        r->header->context = context ? context : 1;
        atomic_store_explicit(&r->header->state, LIERNE_RECORDER_OPEN, RELAXED);
        lierne_recorder_beat(r);
    }
}

void lierne_recorder_die(lierne_recorder *r, int status, const char *message) {
    if (!r->header) {
        return;
    }
    lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_GAVE_UP, .bytes = status});
    snprintf(r->header->message, sizeof r->header->message, "%s", message);
    atomic_store_explicit(&r->header->status, status, RELAXED);
    atomic_store_explicit(&r->header->state, LIERNE_RECORDER_DEAD, RELAXED);
    lierne_recorder_beat(r);
}

void lierne_recorder_beat(const lierne_recorder *r) {
    if (r->header) {
        lierne_recorder_set_clock(r);
        atomic_store_explicit(&r->header->alive, lierne_recorder_now(r), RELAXED);
    }
    if (r->file) {
        lierne_recorder_file_set_header(r);
    }
}

void lierne_call_print(char text[LIERNE_CALL_TEXT], const char *name, int64_t number, int plan,
                       const char *label) {
    char counted[24] = "", of[24] = "";
    if (number >= 0) {
        snprintf(counted, sizeof counted, " %lld", (long long)number);
    }
    if (plan >= 0) {
        snprintf(of, sizeof of, " of plan %d", plan);
    }
    const char *quote = plan >= 0 && label ? "'" : "";
    snprintf(text, LIERNE_CALL_TEXT, "%s%s%s%s%s%s%s", name, counted, of, *quote ? " " : "", quote,
             *quote ? label : "", quote);
}

/* The slot is marked last: the watchdog's thread may look for a name meanwhile. */
void lierne_recorder_set_name(lierne_recorder *r, int plan, const char *name) {
    if (!r->header || !name || r->nnames == 0) {
        return;
    }
    lierne_recorded_name *slot = &r->names[r->named++ % r->nnames];
    atomic_store(&slot->used, 0);
    slot->plan = plan;
    snprintf(slot->name, sizeof slot->name, "%s", name);
    atomic_store(&slot->used, 1);
    if (r->file) {
        lierne_recorder_file_set_name(r, slot);
    }
}

const char *lierne_recorder_find_name(const lierne_recorder *r, int plan) {
    size_t n = r->named < r->nnames ? r->named : r->nnames;
    for (size_t i = 0; r->header && i < n; i++) {
        const lierne_recorded_name *slot = &r->names[i];
        if (atomic_load(&slot->used) && slot->plan == plan) {
            return slot->name;
        }
    }
    return NULL;
}

size_t lierne_recorder_names_at(size_t listed) {
    return (sizeof(lierne_recorder_header) + listed * sizeof(int32_t) + 63) / 64 * 64;
}

/* docs/hangs.md has the places of the fields. */
void lierne_recorder_add(const lierne_recorder *r, const lierne_entry *record) {
    lierne_recorder_header *h = r->header;
    if (!h) {
        return;
    }
    int64_t ticks = record->time ? record->time : lierne_recorder_now(r);
    uint64_t index = atomic_fetch_add_explicit(&h->written, 1, RELAXED);
    _Atomic uint64_t *entry = &r->entries[(index & r->mask) * 4];
    atomic_store_explicit(&entry[0], (uint64_t)ticks, RELAXED);
    atomic_store_explicit(&entry[1],
                          (uint64_t)(uint8_t)record->kind | (uint64_t)(uint8_t)record->what << 8 |
                              (uint64_t)(uint16_t)record->stage << 16 |
                              (uint64_t)(uint32_t)record->plan << 32,
                          RELAXED);
    atomic_store_explicit(&entry[2],
                          (uint32_t)record->number | (uint64_t)(uint32_t)record->peer << 32,
                          RELAXED);
    atomic_store_explicit(&entry[3], (uint64_t)record->bytes << 16 | (index & 0xFFFF),
                          memory_order_release);
    atomic_store_explicit(&h->alive, ticks, RELAXED);
    if (r->file) {
        lierne_recorder_file_add(r, index, record);
    }
}

/* The memory of the ring, and behind it that of the file's state. */
static size_t mapped_bytes(const lierne_recorder *r) {
    return r->bytes + sizeof *r->file;
}

static lierne_status map_recorder(lierne_recorder *r) {
    void *memory =
        mmap(NULL, mapped_bytes(r), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for %zu bytes", mapped_bytes(r));
    }
    r->header = memory;
    return LIERNE_OK;
}

static void unmap(lierne_recorder *r) {
    munmap(r->header, mapped_bytes(r));
    *r = (lierne_recorder){0};
}

lierne_status lierne_recorder_open(lierne_recorder *r, const lierne_recorder_spec *spec) {
    const char *folder = lierne_recorder_folder();
    size_t names = lierne_recorder_names_at(spec->ranks ? (size_t)spec->members : 0);
    size_t nnames = spec->capacity / ENTRIES_PER_NAME;
    size_t header = (names + nnames * sizeof *r->names + 63) / 64 * 64;
    *r = (lierne_recorder){.bytes = header + spec->capacity * 4 * sizeof(uint64_t),
                           .nnames = nnames};
    LIERNE_TRY(map_recorder(r));
    lierne_status status = folder ? lierne_recorder_file_open(r, folder, spec) : LIERNE_OK;
    if (status != LIERNE_OK) {
        unmap(r);
        return status;
    }
    r->header->header_bytes = (uint32_t)header;
    r->names = (lierne_recorded_name *)(void *)((char *)r->header + names);
    gethostname(r->header->host, sizeof r->header->host - 1);
    fill_header(r, spec);
    if (r->file) {
        lierne_recorder_file_set_header(r);
    }
    return LIERNE_OK;
}

void lierne_recorder_close(lierne_recorder *r) {
    if (r->header) {
        if (atomic_load(&r->header->state) != LIERNE_RECORDER_DEAD) {
            atomic_store(&r->header->state, LIERNE_RECORDER_DESTROYED);
        }
        lierne_recorder_beat(r);
        if (r->file) {
            close(r->file->file);
        }
        unmap(r);
    }
}
