/* A rank that destroys its context while the others do not: it gives up at its deadline. A rank
 * that calls later must not wait for it until its own deadline, and gets what was sent before. */
#include "backend/oob/oob_state.h"
#include "collectives.h"
#include "lierne.h"
#include "oob_ranks.h"
#include "rank_threads.h"
#include "runtime/context/context.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { N = 2, COUNT = 64 };

typedef struct departure {
    oob_way way;
    oob_world *world;
    char name[64];
    rank_faults faults;
    bool sends;      /* the rank that leaves has made its call */
    atomic_int gone; /* it has left */
    lierne_status status;
    double seconds;
    float out[COUNT];
    char message[1024];
} departure;

typedef struct actor {
    departure *d;
    int rank;
} actor;

/* Rank 0 leaves after 0.3 seconds. */
static void leave(departure *d, lierne_context *context, lierne_plan *plan) {
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)i + 1;
    }
    if (d->sends) {
        NOTE(d, lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK);
    }
    context->timeout = ((lierne_oob_state *)context->control_self)->timeout = 0.3;
    NOTE(d, lierne_context_destroy_all(context) == LIERNE_OK);
    atomic_store(&d->gone, 1);
}

static void call_late(departure *d, lierne_context *context, lierne_plan *plan) {
    while (!atomic_load(&d->gone)) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    double start = lierne_now();
    d->status = lierne_plan_forward(plan, d->out, NULL, NULL);
    d->seconds = lierne_now() - start;
    snprintf(d->message, sizeof d->message, "%s", lierne_last_error());
    NOTE(d, lierne_context_destroy_all(context) == LIERNE_OK);
}

/* A broadcast from rank 0: it waits for nobody. */
static void *run(void *argument) {
    const actor *a = argument;
    departure *d = a->d;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    const lierne_broadcast_spec broadcast = broadcast_of(COUNT, LIERNE_DTYPE_F32);
    lierne_context *context;
    lierne_plan *plan;
    if (oob_context(&context, d->way, d->world, d->name, a->rank, N, &spec) == LIERNE_OK &&
        lierne_plan_create_broadcast(&plan, context, &broadcast) == LIERNE_OK) {
        a->rank == 0 ? leave(d, context, plan) : call_late(d, context, plan);
    } else {
        NOTE(d, false);
    }
    return NULL;
}

static void depart(departure *d, oob_way way, bool sends) {
    actor actors[N] = {{d, 0}, {d, 1}};
    pthread_t threads[N];
    *d = (departure){.way = way, .sends = sends, .world = oob_world_create(N)};
    snprintf(d->name, sizeof d->name, "departure-%d-%d-%d", (int)getpid(), (int)way, sends);
    for (int r = 0; r < N; r++) {
        cr_assert_eq(pthread_create(&threads[r], NULL, run, &actors[r]), 0);
    }
    for (int r = 0; r < N; r++) {
        pthread_join(threads[r], NULL);
    }
    oob_world_destroy(d->world);
    cr_assert_eq(d->faults.wrong, 0, "way %d: %s", (int)way, d->faults.message);
    cr_assert_lt(d->seconds, 20, "way %d: %s after %g s", (int)way, d->message, d->seconds);
}

Test(departure, a_late_call_learns_that_its_peer_has_left) {
    for (int way = 0; way < OOB_WAYS; way++) {
        departure d;
        depart(&d, (oob_way)way, false);
        cr_assert_eq(d.status, LIERNE_ERR_PEER_FAILED, "%s", d.message);
        cr_assert(strstr(d.message, "rank 0 has destroyed its context") ||
                      strstr(d.message, "the connection to rank 0 has ended"),
                  "%s", d.message);
    }
}

Test(departure, what_was_sent_before_arrives) {
    for (int way = 0; way < OOB_WAYS; way++) {
        departure d;
        depart(&d, (oob_way)way, true);
        cr_assert_eq(d.status, LIERNE_OK, "way %d: %s", way, d.message);
        for (int i = 0; i < COUNT; i++) {
            cr_assert_eq(d.out[i], (float)i + 1);
        }
    }
}
