/* Deltas of random sets while things go wrong: outputs that are overwritten, ranks that give bad
 * arguments, bytes that cannot be decoded in mid-call, deltas made anew, and ranks that die, after
 * which all begin again with the outputs that they had, the next time by control messages,
 * without or with what kernels do, or without. A call that returns OK has left the bits of the
 * plan's own forward; an error is one that was provoked. */
#include "base/base.h"
#include "lierne.h"
#include "plan/redistribute/delta_plans.h"
#include "unit/delta_steps.h"
#include "unit/ranks.h"
#include "unit/set_case.h"

#include "seeds.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 6, STEPS = 20, LIVES = 2, KINDS = 8 };
typedef enum event { BAD_ARGUMENTS, UNDECODABLE, OVERWRITTEN, ANEW, DEATH, NOTHING } event;

typedef struct trial {
    uint64_t seed;
    int life;
    set_case set;
    int64_t *out[MOST]; /* of each rank; they outlive a life */
    int wrong[MOST];
    char what[MOST][600];
    int counts[NOTHING + 1]; /* of rank 0 */
    int undecoded[MOST][DELTA_PATHS];
} trial;

/* A rank at work. */
typedef struct worker {
    trial *t;
    int rank;
    lierne_context *context;
    lierne_plan *plan;
    lierne_delta *delta;
    set_buffers b;
    int64_t *first;
} worker;

static void note(worker *w, bool ok, int step, const char *what) {
    if (!ok && w->t->wrong[w->rank]++ == 0) {
        snprintf(w->t->what[w->rank], sizeof w->t->what[0], "seed %d, life %d, step %d: %s: %s",
                 (int)w->t->seed, w->t->life, step, what, lierne_last_error());
    }
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t draw(const trial *t, int step, int what) {
    return mix(t->seed * 0x9e3779b97f4a7c15u + (uint64_t)(t->life * 1000 + step * 10 + what));
}

/* What happens in a step, and to which rank: the same on all ranks. A life ends with a death. */
static event event_of(const trial *t, int step, int *victim) {
    uint64_t kind = draw(t, step, 1) % KINDS;
    *victim = (int)(draw(t, step, 2) % (uint64_t)t->set.world);
    return step == STEPS - 1 && t->life + 1 < LIVES ? DEATH
           : step > 0 && kind < DEATH               ? (event)kind
                                                    : NOTHING;
}

/* Whether a rank that is done with a step may die while others are at work on it. */
static bool may_fail(const trial *t, int step) {
    return step >= STEPS - 2 && t->life + 1 < LIVES;
}

static void change(worker *w, int step) {
    static const int shares[] = {0, 1, 20, 300, 1000};
    int share = shares[draw(w->t, step, 3) % 5];
    for (int64_t k = 0; k < w->b.elements[0]; k++) {
        uint64_t drawn = mix((uint64_t)w->first[k] ^ draw(w->t, step, 4));
        if ((int)(drawn % 1000) < share) {
            w->b.in[k] = w->first[k] ^ (int64_t)(drawn >> 12);
        }
    }
}

static size_t out_bytes(const worker *w) {
    return (size_t)w->b.elements[1] * sizeof(int64_t);
}

/* Whether a rank needs an output: from the model, as other ranks must know it. */
static bool has_output(const worker *w, int rank) {
    set_buffers b;
    (void)set_open(&b, &w->t->set, w->plan, rank, LIERNE_DIRECTION_FORWARD);
    bool has = b.elements[1] > 0;
    set_close(&b);
    return has;
}

static delta_path path_of(const trial *t) {
    return (delta_path)((t->seed + (uint64_t)t->life) % DELTA_PATHS);
}

static void make_delta(worker *w, int step) {
    note(w, lierne_delta_destroy(w->delta) == LIERNE_OK, step, "destroy");
    w->delta = NULL;
    note(w, delta_create(&w->delta, w->plan, w->context, path_of(w->t)) == LIERNE_OK, step,
         "create");
}

/* A rank that only receives takes elements of half their size: what it gets is no encoding then,
 * unless nothing changed. Others are not concerned. */
static lierne_status decode_wrongly(worker *w, void *out) {
    bool fails = w->delta->sends.n == 0 && w->delta->recvs.n > 0;
    w->delta->element /= fails ? 2 : 1;
    lierne_status status = lierne_delta_forward(w->delta, out, w->b.in);
    w->delta->element *= fails ? 2 : 1;
    w->t->undecoded[w->rank][path_of(w->t)] += fails && status == LIERNE_ERR_MISMATCH;
    return fails && status == LIERNE_ERR_MISMATCH ? LIERNE_ERR_MISMATCH : status;
}

/* The victim's context dies instead of the call; whoever calls gets an error. */
static void die(worker *w, int victim, int step) {
    if (w->rank == victim) {
        note(w, lierne_context_abort(w->context, LIERNE_ERR_TRANSPORT, "a death") == LIERNE_OK,
             step, "abort");
        return;
    }
    note(w, lierne_delta_forward(w->delta, w->t->out[w->rank], w->b.in) != LIERNE_OK, step,
         "a call without a rank that died");
    note(w, lierne_delta_forward(w->delta, w->t->out[w->rank], w->b.in) != LIERNE_OK, step,
         "a call after a death");
}

/* Everything but what lies between tensors, which no call writes. */
static void overwrite(const worker *w, int64_t *out) {
    int64_t poison;
    memset(&poison, 0xa5, sizeof poison);
    for (int64_t k = 0; k < w->b.elements[1]; k++) {
        out[k] = w->b.out[k] == poison ? poison : ~w->b.out[k];
    }
}

static void run_step(worker *w, int step) {
    int victim;
    event e = event_of(w->t, step, &victim);
    bool mine = victim == w->rank;
    int64_t *out = w->t->out[w->rank];
    w->t->counts[e] += w->rank == 0;
    change(w, step);
    set_poison(&w->b);
    lierne_status status = lierne_plan_forward(w->plan, w->b.out, w->b.in, NULL);
    note(w, status == LIERNE_OK || may_fail(w->t, step), step, "plan");
    if (e == DEATH) {
        die(w, victim, step);
        return;
    }
    if (e == BAD_ARGUMENTS && has_output(w, victim)) {
        status = lierne_delta_forward(w->delta, mine ? NULL : out, w->b.in);
        note(w, status == LIERNE_ERR_INVALID || may_fail(w->t, step), step, "bad arguments");
    }
    if (e == OVERWRITTEN && mine) {
        overwrite(w, out);
        note(w, lierne_delta_invalidate(w->delta) == LIERNE_OK, step, "invalidate");
    }
    if (e == ANEW && !may_fail(w->t, step)) {
        make_delta(w, step);
    }
    status = e == UNDECODABLE && mine ? decode_wrongly(w, out)
                                      : lierne_delta_forward(w->delta, out, w->b.in);
    note(w, status == LIERNE_OK || (e == UNDECODABLE && mine) || may_fail(w->t, step), step,
         "forward");
    note(w, status != LIERNE_OK || memcmp(out, w->b.out, out_bytes(w)) == 0, step,
         "OK, and other bits than the plan's");
}

static void live(lierne_context *context, void *shared) {
    worker w = {.t = shared, .context = context, .rank = lierne_context_get_rank(context)};
    trial *t = w.t;
    note(&w, set_plan(&w.plan, &t->set, context, w.rank) == LIERNE_OK, -1, "set");
    make_delta(&w, -1);
    if (w.delta) {
        note(&w, set_open(&w.b, &t->set, w.plan, w.rank, LIERNE_DIRECTION_FORWARD), -1, "sizes");
        size_t in_bytes = (size_t)w.b.elements[0] * sizeof *w.b.in;
        w.first = malloc(in_bytes + 1);
        memcpy(w.first, w.b.in, in_bytes);
        if (!t->out[w.rank]) {
            t->out[w.rank] = malloc(out_bytes(&w) + 1);
            memset(t->out[w.rank], 0xa5, out_bytes(&w) + 1);
        }
        for (int step = 0; step < STEPS && !t->wrong[w.rank]; step++) {
            run_step(&w, step);
        }
        free(w.first);
        set_close(&w.b);
    }
    (void)lierne_delta_destroy(w.delta);
    (void)lierne_plan_destroy(w.plan);
}

Test(delta_faults, ok_means_the_bits_of_the_plan, .timeout = 3600) {
    static trial t;
    seed_range seeds = test_seeds(6);
    int counts[NOTHING + 1] = {0}, undecoded[DELTA_PATHS] = {0};
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        memset(&t, 0, sizeof t);
        t.seed = seed;
        random_set(&t.set, seed + 1, 2 + (int)(seed % (MOST - 1)));
        for (t.life = 0; t.life < LIVES; t.life++) {
            ranks_run(t.set.world, NULL, live, &t);
        }
        for (int r = 0; r < t.set.world; r++) {
            cr_expect_eq(t.wrong[r], 0, "rank %d: %s", r, t.what[r]);
            for (int path = 0; path < DELTA_PATHS; path++) {
                undecoded[path] += t.undecoded[r][path];
            }
            free(t.out[r]);
        }
        for (int e = 0; e <= NOTHING; e++) {
            counts[e] += t.counts[e];
        }
    }
    for (int e = 0; e <= NOTHING; e++) {
        cr_expect(seeds.end - seeds.first < 6 || counts[e] > 0, "event %d never happened", e);
    }
    for (int path = 0; path < DELTA_PATHS; path++) {
        cr_expect(seeds.end - seeds.first < 6 || undecoded[path] > 0, "path %d decoded everything",
                  path);
    }
}
