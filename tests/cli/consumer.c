/* What a user of the installed library writes: a bridge on a simulated world of two ranks. In the
 * words that C11 and C++17 share, because it is compiled as both. */
#include <lierne.h>
#include <lierne/sim.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, SAMPLES = 4, WIDTH = 3, SOURCE = SAMPLES / RANKS * WIDTH, ALL = SAMPLES * WIDTH };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        exit(1);
    }
}

static lierne_grid *grid(int64_t tp, int64_t dp) {
    static const char *const names[] = {"tp", "dp"};
    const int64_t sizes[] = {tp, dp};
    lierne_grid_spec spec;
    lierne_grid *g;
    memset(&spec, 0, sizeof spec);
    spec.size = sizeof spec;
    spec.ndims = 2;
    spec.names = names;
    spec.sizes = sizes;
    spec.world_size = RANKS;
    must(lierne_grid_create(&g, &spec));
    return g;
}

static void plan(lierne_plan **plans, lierne_sim *sim) {
    const int64_t shape[] = {SAMPLES, WIDTH};
    lierne_grid *src = grid(1, 2), *dst = grid(2, 1);
    lierne_bridge_spec spec;
    memset(&spec, 0, sizeof spec);
    spec.size = sizeof spec;
    spec.src = src;
    spec.dst = dst;
    spec.naxes = 2;
    spec.shape = shape;
    spec.dtype = LIERNE_DTYPE_F32;
    spec.sequence_axis = -1;
    for (int r = 0; r < RANKS; r++) {
        must(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* Rank r's samples are elements r * SOURCE and up of the batch; element i is i + 1, and its
 * gradient 10 (i + 1). */
int main(void) {
    float x[RANKS][SOURCE], y[RANKS][ALL], g[RANKS][ALL], gx[RANKS][SOURCE];
    lierne_plan *plans[RANKS];
    lierne_request *requests[RANKS];
    lierne_sim *sim;
    int wrong = strcmp(lierne_version(), LIERNE_VERSION_STRING) != 0;

    must(lierne_sim_create(&sim, RANKS, NULL));
    plan(plans, sim);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < SOURCE; i++) {
            x[r][i] = (float)(r * SOURCE + i + 1);
        }
        must(lierne_plan_forward_begin(&requests[r], plans[r], y[r], x[r], NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        must(lierne_request_end(requests[r]));
        for (int i = 0; i < ALL; i++) {
            wrong += y[r][i] != (float)(i + 1);
            g[r][i] = 10 * y[r][i];
        }
    }
    for (int r = 0; r < RANKS; r++) {
        must(lierne_plan_adjoint_begin(&requests[r], plans[r], gx[r], g[r], NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        must(lierne_request_end(requests[r]));
        for (int i = 0; i < SOURCE; i++) {
            wrong += gx[r][i] != (float)(10 * (r * SOURCE + i + 1));
        }
        must(lierne_plan_destroy(plans[r]));
    }
    must(lierne_sim_destroy(sim));
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
