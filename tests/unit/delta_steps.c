/* See delta_steps.h. Which elements change follows from their values, so that replicas agree. */
#include "unit/delta_steps.h"

#include "runtime/context/context.h"
#include "runtime/execute/stream.h"
#include "tasks.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12 };

static void note(delta_steps *t, bool ok, int step, const char *what) {
    if (!ok && t->wrong++ == 0) {
        snprintf(t->what, sizeof t->what, "seed %d, step %d: %s: %s", (int)t->seed, step, what,
                 lierne_last_error());
    }
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The values of set_open, of which a share (of 1000) changes in a step: by the value, which is that
 * of an element of a tensor, so that replicas agree. */
static void change(const set_buffers *b, const int64_t *first, int64_t *in, uint64_t seed,
                   int step) {
    static const int shares[] = {0, 1, 20, 300, 1000};
    int share = shares[mix(seed * 31 + (uint64_t)step) % 5];
    for (int64_t k = 0; k < b->elements[0]; k++) {
        uint64_t drawn = mix((uint64_t)first[k] * 0x9e3779b97f4a7c15u + (uint64_t)step);
        if ((int)(drawn % 1000) < share) {
            in[k] = first[k] ^ (int64_t)(drawn >> 12);
        }
    }
}

/* Whether a rank's output was overwritten before a step: another one each time, or all. */
static bool is_spoiled(const delta_steps *t, int world, int rank, int step) {
    uint64_t drawn = mix(t->seed * 977 + (uint64_t)step);
    return step > 1 && drawn % 3 == 0 && (drawn >> 8) % (uint64_t)(world + 1) == (uint64_t)rank;
}

static void take_report(delta_steps *t, const lierne_delta *delta, int step) {
    lierne_delta_report report = {.size = sizeof report};
    note(t, lierne_delta_get_report(&report, delta) == LIERNE_OK, step, "report");
    note(t, report.version == step + 1, step, "version");
    if (step > 0) {
        t->sent += report.sent_bytes;
        t->dense += report.dense_bytes;
        t->whole += report.whole_messages;
    }
}

/* Every other step in two parts: what is given may change, and a second call is BUSY, in between.
 */
static bool move(delta_steps *t, lierne_delta *delta, const set_buffers *b, int64_t *out,
                 int step) {
    if (step % 2 == 0) {
        return lierne_delta_forward(delta, out, b->in) == LIERNE_OK;
    }
    bool ok = lierne_delta_forward_begin(delta, out, b->in) == LIERNE_OK;
    if (ok) {
        note(t, lierne_delta_forward_begin(delta, out, b->in) == LIERNE_ERR_BUSY, step,
             "two calls");
        note(t, lierne_delta_invalidate(delta) == LIERNE_ERR_BUSY, step, "invalidate in flight");
        note(t, lierne_delta_set_previous(delta, NULL) == LIERNE_ERR_BUSY, step,
             "previous in flight");
        note(t, lierne_delta_destroy(delta) == LIERNE_ERR_BUSY, step, "destroy in flight");
        for (int64_t k = 0; k < b->elements[0]; k++) {
            b->in[k] ^= 0x55;
        }
    }
    ok = ok && lierne_delta_forward_end(delta) == LIERNE_OK;
    for (int64_t k = 0; k < b->elements[0]; k++) {
        b->in[k] ^= 0x55;
    }
    return ok && lierne_delta_forward_end(delta) == LIERNE_ERR_INVALID;
}

/* A delta that keeps no copy, in step with one that does: it gets what the input was in the step
 * before, sometimes nothing, sometimes something else, and then sends more. */
typedef struct shadow {
    lierne_plan *plan;
    lierne_delta *delta;
    int64_t *before; /* what b.in held */
    int64_t *out;
} shadow;

static lierne_delta_report report_of(const lierne_delta *delta) {
    lierne_delta_report report = {.size = sizeof report};
    (void)lierne_delta_get_report(&report, delta);
    return report;
}

static void follow(delta_steps *t, shadow *s, const lierne_delta *delta, const set_buffers *b,
                   int step) {
    enum { FIRST = 2, NONE = 4, SILENT = 6, WRONG = 8 };
    size_t bytes[2] = {(size_t)b->elements[0] * sizeof *b->in,
                       (size_t)b->elements[1] * sizeof *b->out};
    const int64_t *previous = step == NONE ? NULL : s->before;
    if (step == WRONG) {
        memcpy(s->before, b->in, bytes[0]);
    }
    if (step >= FIRST && step != SILENT) {
        note(t, lierne_delta_set_previous(s->delta, previous) == LIERNE_OK, step, "previous");
    }
    note(t, lierne_delta_forward(s->delta, s->out, b->in) == LIERNE_OK, step, "from previous");
    note(t, memcmp(s->out, b->out, bytes[1]) == 0, step, "other bits from previous");
    int64_t sent = report_of(s->delta).sent_bytes, least = report_of(delta).sent_bytes;
    bool all = step == NONE || step == SILENT;
    note(t,
         all             ? sent >= report_of(delta).dense_bytes
         : step == WRONG ? sent >= least
                         : sent == least,
         step, "other bytes from previous");
    memcpy(s->before, b->in, bytes[0]);
}

/* What a delta says that it keeps has what it sends at each step only while it has a copy. */
static void close_shadow(delta_steps *t, shadow *s, const lierne_delta *delta) {
    lierne_delta_report copy = report_of(delta), none = report_of(s->delta);
    note(t,
         t->seed % DELTA_PATHS == DELTA_DEVICE || /* the other is not, and keeps less */
             none.memory_bytes == copy.memory_bytes - copy.dense_bytes,
         STEPS, "memory of a copy");
    note(t, lierne_delta_destroy(s->delta) == LIERNE_OK, STEPS, "destroy without a copy");
    note(t, lierne_plan_destroy(s->plan) == LIERNE_OK, STEPS, "destroy another set");
    free(s->before);
    free(s->out);
}

static void open_shadow(delta_steps *t, shadow *s, const set_case *set, lierne_context *context,
                        const size_t *bytes) {
    note(t, set_plan(&s->plan, set, context, lierne_context_get_rank(context)) == LIERNE_OK, -1,
         "another set");
    delta_path path = t->seed % DELTA_PATHS;
    note(t,
         delta_create(&s->delta, s->plan, context, path == DELTA_DEVICE ? DELTA_DIRECT : path) ==
             LIERNE_OK,
         -1, "create another");
    s->before = malloc(bytes[0] + 1);
    s->out = malloc(bytes[1] + 1);
    memset(s->out, 0xa5, bytes[1] + 1);
}

static void run_steps(delta_steps *t, const set_case *set, lierne_context *context,
                      lierne_plan *plan, lierne_delta *delta) {
    int rank = lierne_context_get_rank(context);
    set_buffers b;
    note(t, set_open(&b, set, plan, rank, LIERNE_DIRECTION_FORWARD), -1, "sizes");
    size_t bytes[2] = {(size_t)b.elements[0] * sizeof *b.in, (size_t)b.elements[1] * sizeof *b.out};
    int64_t *first = malloc(bytes[0] + 1), *out = malloc(bytes[1] + 1);
    memcpy(first, b.in, bytes[0]);
    memset(out, 0xa5, bytes[1] + 1);
    shadow s;
    open_shadow(t, &s, set, context, bytes);
    for (int step = 0; step < STEPS && !t->wrong; step++) {
        change(&b, first, b.in, t->seed, step);
        if (is_spoiled(t, set->world, rank, step)) {
            memset(out, 0xa5, bytes[1]);
            note(t, lierne_delta_invalidate(delta) == LIERNE_OK, step, "invalidate");
            note(t, lierne_delta_invalidate(s.delta) == LIERNE_OK, step, "invalidate");
        }
        set_poison(&b);
        note(t, lierne_plan_forward(plan, b.out, b.in, NULL) == LIERNE_OK, step, "plan");
        note(t, move(t, delta, &b, out, step), step, "delta");
        note(t, memcmp(out, b.out, bytes[1]) == 0, step, "other bits than the plan's");
        take_report(t, delta, step);
        follow(t, &s, delta, &b, step);
    }
    close_shadow(t, &s, delta);
    free(first);
    free(out);
    set_close(&b);
}

static lierne_status event_create(void **event) {
    *event = NULL;
    return LIERNE_OK;
}

lierne_status delta_create(lierne_delta **delta, lierne_plan *plan, lierne_context *context,
                           delta_path path) {
    static const lierne_stream_driver driver = {.name = "none", .event_create = event_create};
    const lierne_memory *host = context->memory;
    lierne_memory played = *host;
    played.change = test_task_change;
    context->stream_driver = path == DELTA_DIRECT ? NULL : &driver;
    context->memory = path == DELTA_DEVICE ? &played : host;
    lierne_status status = lierne_delta_create(delta, plan);
    context->stream_driver = NULL;
    context->memory = host;
    return status;
}

void delta_steps_run(delta_steps *t, const set_case *set, lierne_context *context) {
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan = NULL;
    lierne_delta *delta = NULL;
    note(t, set_plan(&plan, set, context, rank) == LIERNE_OK, -1, "set");
    note(t, delta_create(&delta, plan, context, t->seed % DELTA_PATHS) == LIERNE_OK, -1, "create");
    if (delta) {
        run_steps(t, set, context, plan, delta);
        note(t, lierne_plan_destroy(plan) == LIERNE_ERR_BUSY, STEPS, "the plan is held");
    }
    note(t, lierne_delta_destroy(delta) == LIERNE_OK, STEPS, "destroy");
    note(t, lierne_plan_destroy(plan) == LIERNE_OK, STEPS, "destroy the plan");
}
