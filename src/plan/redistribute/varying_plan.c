/* Making a plan whose segments change. */
#include "plan/redistribute/varying_plan.h"

#include "runtime/context/context.h"

static lierne_status reject(const char *what) {
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "max_segments is above 0: %s", what);
}

static bool has_counts(const lierne_layout *layout, int axis) {
    bool found = false;
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        found |= p->axis == axis && p->kind == LIERNE_PLACEMENT_SHARD && p->counts;
    }
    return found;
}

static lierne_status check_spec(const lierne_redistribute_spec *spec, int *axis) {
    if (!spec->src->packed && !spec->dst->packed) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "max_segments is %lld, but neither src nor dst has a packing",
                           (long long)spec->max_segments);
    }
    *axis = lierne_tokens_axis(spec->src, spec->dst);
    if (*axis < 0 || has_counts(spec->src, *axis) || has_counts(spec->dst, *axis)) {
        return reject("neither counts nor rows may divide the packed axis");
    }
    if (spec->src->partials > 1) {
        return reject("src may not be PARTIAL");
    }
    if (spec->adjoint_src) {
        return reject("adjoint_src and adjoint_dst must be NULL");
    }
    return spec->routing == LIERNE_ROUTING_BALANCED ? reject("routing may not be BALANCED")
           : spec->shared_output                    ? reject("shared_output must be 0")
                                                    : LIERNE_OK;
}

static lierne_status create_state(lierne_varying_plan *v, lierne_varying_state *state,
                                  const lierne_redistribute_spec *spec) {
    const lierne_layout *const given[2] = {spec->src, spec->dst};
    for (int s = 0; s < 2; s++) {
        const lierne_packed *p = given[s]->packed;
        if (p && p->n > v->max_segments) {
            return LIERNE_FAIL(LIERNE_ERR_CAPACITY,
                               "nsegments is %lld, must be at most %lld (max_segments)",
                               (long long)p->n, (long long)v->max_segments);
        }
        LIERNE_TRY(lierne_layout_reshape(&state->layouts[s], given[s], given[s]->shape));
        if (p) {
            LIERNE_TRY(lierne_packing_reserve(state->layouts[s]->packed, v->max_segments));
        }
        LIERNE_TRY(lierne_locator_create(&state->locators[s], state->layouts[s], v->axis));
    }
    return lierne_varying_check_rows(v, state);
}

lierne_status lierne_varying_check_rows(const lierne_varying_plan *v,
                                        const lierne_varying_state *state) {
    for (int s = 0; s < 2; s++) {
        const lierne_layout *layout = state->layouts[s];
        lierne_cell cell = {{0}};
        for (size_t part = 0; part < state->locators[s].nparts; part++) {
            int64_t rows;
            lierne_locator_cell(&state->locators[s], part, &cell);
            rows = lierne_tokens_rows(layout, v->axis, &cell);
            if (rows > v->max_rows) {
                return LIERNE_FAIL(LIERNE_ERR_CAPACITY,
                                   "%s: the buffer of a rank has %lld rows, must be at most %lld "
                                   "(max_rows)",
                                   s ? "dst" : "src", (long long)rows, (long long)v->max_rows);
            }
        }
    }
    return LIERNE_OK;
}

static bool has_part(const lierne_varying *e, int rank) {
    return (rank >= e->first[0] && rank < e->first[0] + e->count[0]) ||
           (rank >= e->first[1] && rank < e->first[1] + e->count[1]);
}

/* The next rank that has a part, upwards or downwards; -1: none. */
static int find_next(const lierne_varying *e, int rank, int world, int step) {
    int next = rank;
    do {
        next = (next + step + world) % world;
    } while (!has_part(e, next));
    return next == rank ? -1 : next;
}

static void join_ring(lierne_varying_plan *v, lierne_varying *e) {
    e->predecessor = e->successor = -1;
    for (int s = 0; s < 2; s++) {
        const lierne_layout *layout = v->states[0].layouts[s];
        e->first[s] = layout->offset;
        e->count[s] = layout->nranks;
    }
    if (has_part(e, v->rank)) {
        int world = v->states[0].layouts[0]->world;
        e->predecessor = find_next(e, v->rank, world, -1);
        e->successor = find_next(e, v->rank, world, 1);
    }
}

lierne_status lierne_varying_plan_create(lierne_varying_plan **out, lierne_plan_parts *parts,
                                         const lierne_context *context,
                                         const lierne_redistribute_spec *spec) {
    lierne_varying_plan *v;
    lierne_planner planner = {.nodes = context->nodes,
                              .members = context->members,
                              .rank = context->rank,
                              .routing = LIERNE_ROUTING_DIRECT};
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    v = *out;
    LIERNE_TRY(check_spec(spec, &v->axis));
    LIERNE_TRY(lierne_execution_can_vary(context));
    v->rank = context->rank;
    v->max_segments = spec->max_segments;
    v->max_rows = spec->max_rows;
    LIERNE_TRY(create_state(v, &v->states[0], spec));
    LIERNE_TRY(create_state(v, &v->states[1], spec));
    LIERNE_TRY(lierne_varying_tables_create(v, parts, &planner));
    for (int d = 0; d < 2; d++) {
        join_ring(v, &v->ways[d].engine);
        parts->side[d].varying = &v->ways[d].engine;
    }
    lierne_varying_fill(v, (lierne_plan_side *const[]){&parts->side[0], &parts->side[1]});
    return LIERNE_OK;
}

void lierne_varying_plan_destroy(lierne_varying_plan *v) {
    if (!v) {
        return;
    }
    lierne_varying_tables_destroy(v);
    for (int k = 0; k < 2; k++) {
        for (int s = 0; s < 2; s++) {
            lierne_locator_destroy(&v->states[k].locators[s]);
            lierne_layout_destroy(v->states[k].layouts[s]);
        }
    }
    lierne_mem_free(v);
}
