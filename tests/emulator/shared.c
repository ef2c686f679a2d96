/* Memory that the threads of a block share. Between two barriers each thread runs alone here, in an
 * order drawn at random, so that a missing barrier would show by chance only. So each byte
 * remembers between which barriers, and by which thread, it was last stored and loaded. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = UINT32_MAX }; /* threads */

typedef struct marks {
    uint32_t stored_in, stored_by; /* a time between barriers, from 1 on; a thread */
    uint32_t loaded_in, loaded_by;
} marks;

struct emulator_shared {
    uint32_t now;
    size_t bytes;
    unsigned char *at;
    marks *marks;
};

emulator_shared *emulator_shared_create(size_t bytes) {
    emulator_shared *s = malloc(sizeof *s);
    *s = (emulator_shared){0, bytes, malloc(bytes + 1), calloc(bytes + 1, sizeof(marks))};
    return s;
}

void emulator_shared_destroy(emulator_shared *s) {
    free(s->at);
    free(s->marks);
    free(s);
}

void emulator_shared_clear(emulator_shared *s) {
    s->now = 0;
    memset(s->at, 0xcd, s->bytes);
    memset(s->marks, 0, s->bytes * sizeof(marks));
}

void emulator_shared_pass(emulator_shared *s) {
    s->now++;
}

static const char *load_byte(marks *m, uint32_t now, uint32_t thread) {
    bool again = m->loaded_in == now && m->loaded_by != thread;
    m->loaded_by = again ? MANY : thread;
    m->loaded_in = now;
    return m->stored_in == 0 ? "load of shared memory that the block has not written"
           : m->stored_in == now && m->stored_by != thread
               ? "load of shared memory without a barrier after a store"
               : NULL;
}

static const char *store_byte(marks *m, uint32_t now, uint32_t thread) {
    bool races = (m->stored_in == now && m->stored_by != thread) ||
                 (m->loaded_in == now && m->loaded_by != thread);
    m->stored_in = now;
    m->stored_by = thread;
    return races ? "store to shared memory without a barrier after another access" : NULL;
}

void *emulator_shared_at(emulator_thread *t, uint64_t address, size_t bytes, bool store) {
    emulator_shared *s = t->shared;
    if (address > s->bytes || bytes > s->bytes - address || address % bytes) {
        emulator_fault(t, "access outside of shared memory, or misaligned", address, bytes);
    }
    for (size_t i = address; i < address + bytes; i++) {
        const char *wrong = store ? store_byte(&s->marks[i], s->now, t->thread)
                                  : load_byte(&s->marks[i], s->now, t->thread);
        if (wrong) {
            emulator_fault(t, wrong, address, bytes);
        }
    }
    return s->at + address;
}
