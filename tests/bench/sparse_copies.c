/* What bounds rows over windows: the copies by hand. All buffers are in memory that the ranks
 * share. Forward every rank copies its ghosts from where their owners have the rows; adjoint every
 * owner adds what it needs from where the others have the gradients, in order of rank. A rank waits
 * until its peers are ready, and at the end until they have read. */
#include "bench/sparse.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LOOKS = 200, LINE = 64, MOST = 64, COUNTS = 2 * LINE }; /* looks before a yield */

/* A rank's part of the shared memory: two counts of calls, owned rows, ghosts, per direction. */
typedef struct copies {
    method base;
    MPI_Win window;
    char *memory[MOST];
    int64_t owned_rows[MOST], ghost_rows[MOST];
    unsigned calls;
} copies;

static size_t lines(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

static char *owned_of(const copies *c, int rank, int direction) {
    size_t owned = lines((size_t)c->owned_rows[rank] * ((const sparse *)c->base.workload)->row);
    size_t ghosts = lines((size_t)c->ghost_rows[rank] * ((const sparse *)c->base.workload)->row);
    return c->memory[rank] + COUNTS + (size_t)direction * (owned + ghosts);
}

static char *ghosts_of(const copies *c, int rank, int direction) {
    size_t row = ((const sparse *)c->base.workload)->row;
    return owned_of(c, rank, direction) + lines((size_t)c->owned_rows[rank] * row);
}

static atomic_uint *count_of(const copies *c, int rank, bool read) {
    return (atomic_uint *)(void *)(c->memory[rank] + (read ? LINE : 0));
}

static void await(const copies *c, int rank, bool read) {
    atomic_uint *count = count_of(c, rank, read);
    for (int i = 0; (int)(atomic_load_explicit(count, memory_order_acquire) - c->calls) < 0; i++) {
        if (i >= LOOKS) {
            sched_yield();
        }
    }
}

static void copy_ghosts(const copies *c, const sparse *w, const lot *l) {
    const char *from = owned_of(c, l->rank, FORWARD);
    char *to = ghosts_of(c, test_rank, FORWARD) + (size_t)l->first * w->row;
    rows_pack(w, to, from, w->root + l->first, l->n);
}

/* The ghosts of a rank in a graph are in the order in which its owner lists them. */
static void add_gradients(const copies *c, const sparse *w, const lot *l) {
    const char *from = ghosts_of(c, l->rank, ADJOINT);
    from += (size_t)w->given_ghosts[l->first] * w->row;
    rows_add(w, owned_of(c, test_rank, ADJOINT), from, w->given_rows + l->first, l->n);
}

static bool run_copies(method *m, int direction) {
    copies *c = (copies *)m;
    const sparse *w = m->workload;
    const lot *readers = direction == FORWARD ? w->gives : w->takes;
    const lot *sources = direction == FORWARD ? w->takes : w->gives;
    int nreaders = direction == FORWARD ? w->ngives : w->ntakes;
    int nsources = direction == FORWARD ? w->ntakes : w->ngives;
    c->calls++;
    atomic_store_explicit(count_of(c, test_rank, false), c->calls, memory_order_release);
    for (int i = 0; i < nsources; i++) {
        await(c, sources[i].rank, false);
        (direction == FORWARD ? copy_ghosts : add_gradients)(c, w, &sources[i]);
    }
    atomic_store_explicit(count_of(c, test_rank, true), c->calls, memory_order_release);
    for (int i = 0; i < nreaders; i++) {
        await(c, readers[i].rank, true);
    }
    return true;
}

/* An input that has not changed is not written: its cache lines stay where they are. */
static void take_over(char *own, const char *from, size_t bytes) {
    if (memcmp(own, from, bytes) != 0) {
        memcpy(own, from, bytes);
    }
}

static void before_copies(method *m, int direction) {
    const copies *c = (const copies *)m;
    const sparse *w = m->workload;
    char *owned = owned_of(c, test_rank, direction), *ghosts = ghosts_of(c, test_rank, direction);
    take_over(owned, w->owned[direction], w->owned_bytes);
    take_over(ghosts, w->ghosts[direction], w->ghost_bytes);
    if (m->dirty) {
        rewrite(direction == FORWARD ? owned : ghosts,
                direction == FORWARD ? w->owned_bytes : w->ghost_bytes);
    }
}

static void after_copies(method *m, int direction) {
    const copies *c = (const copies *)m;
    const sparse *w = m->workload;
    if (direction == FORWARD) {
        memcpy(w->ghosts[FORWARD], ghosts_of(c, test_rank, FORWARD), w->ghost_bytes);
    } else {
        memcpy(w->owned[ADJOINT], owned_of(c, test_rank, ADJOINT), w->owned_bytes);
    }
}

static void close_copies(method *m) {
    MPI_Win_free(&((copies *)m)->window);
    free(m);
}

static method *open_copies(const void *of) {
    const sparse *w = of;
    copies *c = (copies *)(void *)take(sizeof *c);
    size_t bytes = COUNTS + 2 * (lines(w->owned_bytes) + lines(w->ghost_bytes));
    char *mine;
    MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &c->window);
    memset(mine, 0, bytes);
    for (int r = 0; r < test_world; r++) {
        MPI_Aint size;
        int unit;
        MPI_Win_shared_query(c->window, r, &size, &unit, (void *)&c->memory[r]);
    }
    MPI_Allgather(&w->nowned, 1, MPI_INT64_T, c->owned_rows, 1, MPI_INT64_T, MPI_COMM_WORLD);
    MPI_Allgather(&w->nghosts, 1, MPI_INT64_T, c->ghost_rows, 1, MPI_INT64_T, MPI_COMM_WORLD);
    c->base = (method){.workload = w,
                       .run = run_copies,
                       .before = before_copies,
                       .after = after_copies,
                       .owns_inputs = true,
                       .checked = true};
    MPI_Barrier(MPI_COMM_WORLD);
    return &c->base;
}

const method_kind copies_hand = {"window by hand", open_copies, close_copies};
