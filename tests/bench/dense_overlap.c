/* An average of seven points over what a rank has of a field in f32, its margins filled in place:
 * all of it after the exchange, or the interior of lierne_halo_get_split between begin and end,
 * then the border. There is no adjoint: that direction does nothing. */
#include "bench/dense.h"

#include <stdlib.h>
#include <string.h>

enum { BOXES = 7 }; /* of one window on three axes */

typedef struct overlap {
    method base;
    lierne_plan *plan;
    bool between;
    lierne_split_box boxes[BOXES];
    size_t nboxes;
    float *out;
} overlap;

static void compute_box(const overlap *v, const lierne_split_box *box) {
    const dense *w = v->base.workload;
    const int64_t *shape = w->shapes[test_rank];
    int64_t step = shape[2], plane = shape[1] * shape[2], low[AXES];
    for (int k = 0; k < 3; k++) { /* outputs are counted from the core */
        low[k] = w->lines[k].core[0] + box->start[k];
    }
    for (int64_t i = low[0]; i < low[0] + box->size[0]; i++) {
        for (int64_t j = low[1]; j < low[1] + box->size[1]; j++) {
            const float *in = (const float *)(const void *)w->place + i * plane + j * step;
            float *restrict out = v->out + i * plane + j * step;
            for (int64_t k = low[2]; k < low[2] + box->size[2]; k++) {
                out[k] = (in[k] + in[k - plane] + in[k + plane] + in[k - step] + in[k + step] +
                          in[k - 1] + in[k + 1]) *
                         (1.0F / 7);
            }
        }
    }
}

static void compute(const overlap *v, bool interior) {
    for (size_t b = 0; b < v->nboxes; b++) {
        if (v->boxes[b].interior == interior) {
            compute_box(v, &v->boxes[b]);
        }
    }
}

static bool run_overlap(method *m, int direction) {
    overlap *v = (overlap *)m;
    char *place = ((const dense *)m->workload)->place;
    lierne_request *request;
    if (direction != FORWARD) {
        return true;
    }
    if (!v->between) {
        bool ok = lierne_plan_forward(v->plan, place, place, NULL) == LIERNE_OK;
        compute(v, true);
        compute(v, false);
        return ok;
    }
    if (lierne_plan_forward_begin(&request, v->plan, place, place, NULL) != LIERNE_OK) {
        return false;
    }
    compute(v, true);
    bool ok = lierne_request_end(request) == LIERNE_OK;
    compute(v, false);
    return ok;
}

/* Now that the margins are filled, everything again has the same result. */
static void check_overlap(method *m, int direction) {
    overlap *v = (overlap *)m;
    const dense *w = m->workload;
    float *before = v->out;
    if (direction != FORWARD) {
        return;
    }
    v->out = (float *)(void *)take(w->bytes[2]);
    compute(v, true);
    compute(v, false);
    CHECK(memcmp(v->out, before, w->bytes[2]) == 0, "%s: %s differs", w->name, m->kind->name);
    free(v->out);
    v->out = before;
}

static void close_overlap(method *m) {
    overlap *v = (overlap *)m;
    CHECK_OK(lierne_plan_destroy(v->plan));
    free(v->out);
    free(v);
}

/* Only where every position of the kernel is there. */
static method *open_overlap(const dense *w, bool between) {
    bool all = w->dtype == LIERNE_DTYPE_F32 && w->naxes == 3;
    for (int k = 0; k < w->naxes; k++) {
        all = all && w->axes[k].periodic;
    }
    if (!all) {
        return NULL;
    }
    overlap *v = (overlap *)(void *)take(sizeof *v);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = w->halo, .dst = w->halo};
    CHECK_OK(lierne_plan_create_redistribute(&v->plan, w->context, &spec));
    CHECK_OK(lierne_halo_get_split(v->boxes, BOXES, &v->nboxes, w->halo, w->halo, test_rank));
    CHECK(v->nboxes <= BOXES, "%zu boxes", v->nboxes);
    v->between = between;
    v->out = (float *)(void *)take(w->bytes[2]);
    v->base = (method){.workload = w,
                       .run = run_overlap,
                       .before = dense_rewrite,
                       .after = check_overlap,
                       .owns_inputs = true,
                       .result = {w->place, w->place}};
    return &v->base;
}

static method *open_after(const void *w) {
    return open_overlap(w, false);
}

static method *open_between(const void *w) {
    return open_overlap(w, true);
}

const method_kind dense_after = {"stencil after the end", open_after, close_overlap};
const method_kind dense_between = {"interior before the end", open_between, close_overlap};
