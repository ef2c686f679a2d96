/* Small collectives round after round, in memory that the ranks share: no rank may read another
 * round's data. First the race itself, with windows of MPI: a barrier whose flags are never reset,
 * which the published examples have, is right once; then ranks read what their peers have written
 * for another round, and this program must see it. Beside it the barrier with epochs and two
 * buffers, which must never do so. Then the collectives of lierne, in shared and ordinary memory.
 *
 *   windows [ROUNDS] */
#include "collectives.h"
#include "lierne/collective.h"
#include "mpi/common.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { RACES = 2000, WORDS = 256, MOST = 16 };

/* --- the race --- */

typedef struct window {
    _Alignas(64) atomic_uint flags[MOST]; /* by the rank that writes it */
    int data[2][WORDS];
} window;

static MPI_Win open_windows(window **at) {
    MPI_Win win;
    window *own;
    MPI_Aint bytes;
    int unit;
    MPI_Win_allocate_shared(sizeof *own + 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &win);
    memset(own, 0, sizeof *own + 64);
    for (int r = 0; r < test_world; r++) {
        char *base;
        MPI_Win_shared_query(win, r, &bytes, &unit, &base);
        at[r] = (window *)(void *)(base + 63 - ((uintptr_t)base + 63) % 64);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return win;
}

/* epoch 0: the barrier that is right once. */
static void meet(window *const *at, unsigned epoch) {
    for (int r = 0; r < test_world; r++) {
        if (epoch > 0) {
            atomic_store_explicit(&at[r]->flags[test_rank], epoch, memory_order_release);
        } else {
            atomic_fetch_add(&at[r]->flags[test_rank], 1);
        }
    }
    for (int r = 0; r < test_world; r++) {
        const atomic_uint *flag = &at[test_rank]->flags[r];
        unsigned least = epoch > 0 ? epoch : 1;
        while (atomic_load_explicit(flag, memory_order_acquire) - least > 0x7fffffff) {
            sched_yield();
        }
    }
}

/* The rounds in which this rank read another round's data. The first epoch is one that wraps. */
static long race(bool epochs) {
    window *at[MOST];
    long wrong = 0;
    MPI_Win win = open_windows(at);
    unsigned epoch = 0xfffffff0;
    for (int r = 0; r < test_world && epochs; r++) {
        atomic_store(&at[test_rank]->flags[r], epoch);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 1; round <= RACES; round++) {
        int buffer = epochs ? round % 2 : 0;
        for (int i = 0; i < WORDS; i++) {
            at[test_rank]->data[buffer][i] = round;
        }
        epoch += epoch == UINT_MAX ? 2 : 1; /* 0 means another barrier here */
        meet(at, epochs ? epoch : 0);
        bool right = true;
        for (int r = 0; r < test_world; r++) {
            for (int i = 0; i < WORDS; i++) {
                right = right && ((const volatile window *)at[r])->data[buffer][i] == round;
            }
        }
        wrong += !right;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

/* --- the collectives --- */

static int32_t value(int rank, int round, int i) {
    return (int32_t)(mix((uint64_t)((rank * 100000 + round) * 1000 + i)) % 10007);
}

typedef struct collectives {
    lierne_context *context;
    bool shared; /* memory */
    int count;
    lierne_plan *gather, *scatter, *reduce, *exchange, *broadcast;
    int32_t *in, *out;
    long wrong;
} collectives;

static void open_collectives(collectives *c) {
    lierne_all_gather_spec gather = all_gather_of(c->count, LIERNE_DTYPE_I32);
    lierne_reduce_scatter_spec scatter = reduce_scatter_of(c->count, LIERNE_DTYPE_I32);
    lierne_all_reduce_spec reduce =
        all_reduce_of(c->count * test_world, LIERNE_DTYPE_I32, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
    lierne_all_to_all_spec exchange = all_to_all_of(c->count, LIERNE_DTYPE_I32);
    lierne_broadcast_spec broadcast = broadcast_of(c->count, LIERNE_DTYPE_I32);
    size_t bytes = sizeof *c->in * (size_t)(c->count * test_world);
    CHECK(lierne_plan_create_all_gather(&c->gather, c->context, &gather) == LIERNE_OK &&
              lierne_plan_create_reduce_scatter(&c->scatter, c->context, &scatter) == LIERNE_OK &&
              lierne_plan_create_all_reduce(&c->reduce, c->context, &reduce) == LIERNE_OK &&
              lierne_plan_create_all_to_all(&c->exchange, c->context, &exchange) == LIERNE_OK &&
              lierne_plan_create_broadcast(&c->broadcast, c->context, &broadcast) == LIERNE_OK,
          "%s", lierne_last_error());
    void *in = malloc(bytes), *out = malloc(bytes);
    if (c->shared) {
        free(in), free(out);
        CHECK(lierne_context_alloc(&in, c->context, bytes) == LIERNE_OK &&
                  lierne_context_alloc(&out, c->context, bytes) == LIERNE_OK,
              "%s", lierne_last_error());
    }
    c->in = in;
    c->out = out;
}

static void close_collectives(collectives *c) {
    CHECK(lierne_plan_destroy(c->gather) == LIERNE_OK &&
              lierne_plan_destroy(c->scatter) == LIERNE_OK &&
              lierne_plan_destroy(c->reduce) == LIERNE_OK &&
              lierne_plan_destroy(c->exchange) == LIERNE_OK &&
              lierne_plan_destroy(c->broadcast) == LIERNE_OK,
          "%s", lierne_last_error());
    if (c->shared) {
        CHECK(lierne_context_dealloc(c->context, c->in) == LIERNE_OK &&
                  lierne_context_dealloc(c->context, c->out) == LIERNE_OK,
              "%s", lierne_last_error());
    } else {
        free(c->in), free(c->out);
    }
}

/* in anew, out poisoned: what a slower rank still reads of the last round is overwritten. */
static void move(collectives *c, lierne_plan *plan, int round) {
    int n = c->count * test_world;
    for (int i = 0; i < n; i++) {
        c->in[i] = value(test_rank, round, i);
        c->out[i] = -1;
    }
    if (!CHECK_OK(lierne_plan_forward(plan, c->out, c->in, NULL))) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static int32_t sum(int round, int i) {
    int32_t s = 0;
    for (int r = 0; r < test_world; r++) {
        s += value(r, round, i);
    }
    return s;
}

static void play(collectives *c, int round) {
    int n = c->count;
    move(c, c->gather, round);
    for (int i = 0; i < n * test_world; i++) {
        c->wrong += c->out[i] != value(i / n, round, i % n);
    }
    move(c, c->scatter, round);
    for (int i = 0; i < n; i++) {
        c->wrong += c->out[i] != sum(round, test_rank * n + i);
    }
    move(c, c->reduce, round);
    for (int i = 0; i < n * test_world; i++) {
        c->wrong += c->out[i] != sum(round, i);
    }
    move(c, c->exchange, round);
    for (int i = 0; i < n * test_world; i++) {
        c->wrong += c->out[i] != value(i / n, round, test_rank * n + i % n);
    }
    /* The root waits for nobody, as long as its slots are free. */
    for (int k = 0; k < 4; k++) {
        move(c, c->broadcast, round + k);
        for (int i = 0; i < n; i++) {
            c->wrong += c->out[i] != value(0, round + k, i);
        }
    }
}

/* Ranks are late at random, or the scheduler would always let them meet in the same way. */
static void rounds_of(lierne_context *context, bool shared, int count, int rounds) {
    collectives c = {.context = context, .shared = shared, .count = count};
    open_collectives(&c);
    for (int round = 0; round < rounds; round++) {
        if (mix((uint64_t)(round * 31 + test_rank)) % 8 == 0) {
            sched_yield();
        }
        play(&c, round);
    }
    CHECK(c.wrong == 0, "%ld elements of %d rounds of %d are wrong", c.wrong, rounds, count);
    close_collectives(&c);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    if (test_world > 1 && test_world <= MOST) {
        long naive = race(false), epochs = race(true);
        CHECK(naive > 0, "the barrier that is right once was right %d times", RACES);
        CHECK(epochs == 0, "the barrier with epochs: %ld wrong rounds", epochs);
    }
    lierne_context *context = test_context(PATIENT);
    rounds_of(context, true, 16, rounds);
    rounds_of(context, false, 16, rounds);
    rounds_of(context, true, 4096 / test_world, rounds / 4);
    CHECK_OK(lierne_context_destroy(context));
    return test_finish();
}
