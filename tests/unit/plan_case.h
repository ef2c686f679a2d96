/* What the tests of plans share: a bridge of [b, s, h] = [8, 4, 2] in f32, which a test changes. */
#ifndef PLAN_CASE_H
#define PLAN_CASE_H

#include "algorithm.h"
#include "base/base.h"
#include "bridge_plan.h"
#include "lierne/sim.h"
#include "mesh.h"

/* A grid of tp x cp x dp, the first fastest. */
static inline lierne_grid *grid(int world, int64_t tp, int64_t cp, int64_t dp) {
    const mesh m = mesh_of("tcd", (int)tp, (int)cp, (int)dp);
    return mesh_grid(&m, world);
}

static inline lierne_bridge_spec spec_of(const lierne_grid *src, const lierne_grid *dst) {
    static const int64_t shape[3] = {8, 4, 2};
    return bridge_spec_of(src, dst, shape);
}

/* A simulated world whose waits have this deadline, in seconds. */
static inline lierne_sim *sim_of(int n, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    lierne_sim *sim = NULL;
    lierne_sim_create(&sim, n, &spec);
    return sim;
}

#endif
