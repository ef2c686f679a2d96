/* A trial of halo_trial.h on the rank of a context, whatever its transport. */
#include "unit/halo_trial.h"

#include "base/base.h"
#include "lierne/context.h"
#include "lierne/plan.h"
#include "numbers.h"

#include <string.h>

enum { POISON = 0x5a, ROOM = HALO_ROWS * 8 * 8, HALO_VALUES = HALO_WORLD * HALO_ROWS * HALO_WIDTH };

void halo_trial_note(halo_trial *t, int rank, bool good, const char *why) {
    if (!good && !t->bad[rank]) {
        t->bad[rank] = 1;
        t->why[rank] = why;
    }
}

/* The rows of a rank in its buffer, with poison between and after them. */
static void lay(const halo_trial *t, int rank, const halo_values values, void *buffer) {
    int64_t stride = t->stride ? t->stride : HALO_WIDTH;
    memset(buffer, POISON, ROOM);
    for (int64_t i = 0; i < halo_case_rows(&t->swaps, rank); i++) {
        for (int64_t e = 0; e < HALO_WIDTH; e++) {
            number_put(t->dtype, buffer, i * stride + e, values[rank][i][e]);
        }
    }
}

lierne_status halo_trial_run(lierne_plan *plan, int d, void *out, const void *in) {
    return d == LIERNE_DIRECTION_FORWARD ? lierne_plan_forward(plan, out, in, NULL)
                                         : lierne_plan_adjoint(plan, out, in, NULL);
}

static void check_direction(halo_trial *t, int rank, lierne_plan *plan, int d) {
    static _Thread_local unsigned char in[ROOM], copy[ROOM], out[ROOM], wanted[ROOM];
    lay(t, rank, t->input[d], in);
    lay(t, rank, t->expected[d], wanted);
    memcpy(copy, in, ROOM);
    for (int again = 0; again < 2; again++) {
        memset(out, POISON, ROOM);
        halo_trial_note(t, rank, halo_trial_run(plan, d, out, in) == LIERNE_OK, "it fails");
        halo_trial_note(t, rank, memcmp(out, wanted, ROOM) == 0, d ? "adjoint" : "forward");
        halo_trial_note(t, rank, memcmp(in, copy, ROOM) == 0, "in is written");
    }
    halo_trial_note(t, rank, halo_trial_run(plan, d, in, in) == LIERNE_OK, "it fails in place");
    halo_trial_note(t, rank, memcmp(in, wanted, ROOM) == 0,
                    d ? "adjoint in place" : "forward in place");
}

static lierne_halo_spec spec_of(const halo_trial *t, int rank) {
    lierne_halo_spec spec = t->swaps.spec[rank];
    spec.dtype = t->dtype;
    spec.stride = t->stride;
    spec.keep_ghosts = t->keep;
    return spec;
}

static lierne_status plan_of(const halo_trial *t, lierne_context *context, lierne_plan **plan) {
    lierne_halo_spec spec = spec_of(t, lierne_context_get_rank(context));
    lierne_plan *flat;
    LIERNE_TRY(lierne_plan_create_halo(plan, context, &spec));
    if (t->flat) {
        lierne_status status = lierne_plan_create_flattened(&flat, *plan, 0);
        lierne_plan_destroy(*plan);
        *plan = flat;
        return status;
    }
    return LIERNE_OK;
}

void halo_trial_fill(halo_trial *t, uint64_t seed, uint64_t most) {
    for (uint64_t d = 0; d < 2; d++) {
        double *values = &t->input[d][0][0][0];
        for (uint64_t i = 0; i < HALO_VALUES; i++) {
            double x = (double)halo_case_pick(seed, 1000 + d, i, 2 * most + 1);
            values[i] = t->dtype == LIERNE_DTYPE_U8 ? x : x - (double)most;
        }
    }
}

void halo_trial_work_out(halo_trial *t) {
    memcpy(t->expected, t->input, sizeof t->expected);
    halo_model_forward(&t->swaps, t->expected[LIERNE_DIRECTION_FORWARD]);
    halo_model_adjoint(&t->swaps, t->expected[LIERNE_DIRECTION_ADJOINT], t->dtype, t->keep);
}

void halo_trial_check(halo_trial *t, lierne_context *context) {
    int rank = lierne_context_get_rank(context);
    lierne_plan *plan;
    lierne_status status = plan_of(t, context, &plan);
    halo_trial_note(t, rank, status == LIERNE_OK, "no plan");
    if (status == LIERNE_OK) {
        halo_trial_note(t, rank,
                        lierne_plan_check((const lierne_plan *const *)&plan, 1) == LIERNE_OK,
                        "check");
        check_direction(t, rank, plan, LIERNE_DIRECTION_FORWARD);
        check_direction(t, rank, plan, LIERNE_DIRECTION_ADJOINT);
        lierne_plan_destroy(plan);
    }
}

void halo_trial_overlap(halo_trial *t, lierne_context *context) {
    static _Thread_local unsigned char in[2][ROOM], out[2][ROOM], wanted[ROOM];
    int rank = lierne_context_get_rank(context);
    lierne_halo_spec spec = spec_of(t, rank);
    lierne_request *requests[2], *third;
    lierne_plan *plan;
    spec.max_inflight = 2;
    if (lierne_plan_create_halo(&plan, context, &spec) != LIERNE_OK) {
        halo_trial_note(t, rank, false, "no plan");
        return;
    }
    lay(t, rank, t->expected[LIERNE_DIRECTION_FORWARD], wanted);
    for (int i = 0; i < 2; i++) {
        lay(t, rank, t->input[LIERNE_DIRECTION_FORWARD], in[i]);
        memset(out[i], POISON, ROOM);
        halo_trial_note(t, rank,
                        lierne_plan_forward_begin(&requests[i], plan, out[i], in[i], NULL) ==
                            LIERNE_OK,
                        "begin");
    }
    halo_trial_note(t, rank,
                    lierne_plan_forward_begin(&third, plan, out[0], in[0], NULL) == LIERNE_ERR_BUSY,
                    "busy");
    for (int i = 1; i >= 0; i--) {
        halo_trial_note(t, rank, lierne_request_end(requests[i]) == LIERNE_OK, "end");
        halo_trial_note(t, rank, memcmp(out[i], wanted, ROOM) == 0, "forward");
    }
    lierne_plan_destroy(plan);
}
