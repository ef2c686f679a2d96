/* Making a plan whose segments change. */
#include "plan/redistribute/varying_plan.h"

#include "plan/redistribute/redistribute.h"
#include "runtime/context/context.h"

static bool has_counts(const lierne_layout *layout, int axis) {
    bool found = false;
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        found |= p->axis == axis && p->kind == LIERNE_PLACEMENT_SHARD && p->counts;
    }
    return found;
}

static lierne_status check_spec(const lierne_varying_plan *v, const lierne_varying_spec *spec) {
    if (v->axis < 0 || has_counts(spec->layouts[0], v->axis) ||
        has_counts(spec->layouts[1], v->axis)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "max_segments is above 0: neither counts nor rows may divide the packed "
                           "axis");
    }
    return LIERNE_OK;
}

static lierne_status check_most(const char *name, int64_t n, const char *bound, int64_t most) {
    return n <= most ? LIERNE_OK
                     : LIERNE_FAIL(LIERNE_ERR_CAPACITY, "%s is %lld, must be at most %lld (%s)",
                                   name, (long long)n, (long long)most, bound);
}

static lierne_status create_layouts(lierne_varying_plan *v, lierne_varying_state *state,
                                    const lierne_varying_spec *spec) {
    for (int s = 0; s < 2; s++) {
        const lierne_layout *given = spec->layouts[s];
        const lierne_packed *p = given->packed;
        LIERNE_TRY(p ? check_most(v->joined && s == 0 ? "nsegments of images" : "nsegments", p->n,
                                  "max_segments", v->max_segments)
                     : LIERNE_OK);
        LIERNE_TRY(lierne_layout_reshape(&state->layouts[s], given, given->shape));
        if (p) {
            LIERNE_TRY(lierne_packing_reserve(state->layouts[s]->packed, v->max_segments));
        }
        LIERNE_TRY(lierne_locator_create(&state->locators[s], state->layouts[s], v->axis));
    }
    return LIERNE_OK;
}

static lierne_status create_state(lierne_varying_plan *v, lierne_varying_state *state,
                                  const lierne_varying_spec *spec) {
    LIERNE_TRY(create_layouts(v, state, spec));
    if (v->joined) {
        LIERNE_TRY(lierne_joints_create(&state->joints, v->max_runs));
        LIERNE_TRY(check_most("nruns", spec->nruns, "max_runs", v->max_runs));
        LIERNE_TRY(lierne_joints_take(&state->joints, spec->runs, spec->nruns,
                                      state->layouts[0]->packed, state->layouts[1]->packed,
                                      &v->rules));
        for (int s = 0; s < 2; s++) {
            state->layouts[s]->joints = &state->joints;
            state->layouts[s]->joint_side = s;
        }
    }
    return LIERNE_OK;
}

static int64_t most_rows(const lierne_varying_plan *v, lierne_varying_state *state, int s) {
    const lierne_layout *layout = state->layouts[s];
    const lierne_packed *p = state->locators[s].packed;
    lierne_cell cell = {{0}};
    int64_t most = 0;
    if (p && (p->store == LIERNE_PACKING_STORE_UNPADDED || layout->full_axes >> v->axis & 1)) {
        return lierne_locator_most_rows(&state->locators[s], v->spare.counts);
    }
    for (size_t part = 0; part < state->locators[s].nparts; part++) {
        lierne_locator_cell(&state->locators[s], part, &cell);
        int64_t rows = lierne_tokens_rows(layout, v->axis, &cell);
        most = rows > most ? rows : most;
    }
    return most;
}

/* The most tokens that the rows of any part of the source go to. */
static int64_t most_tokens(const lierne_varying_plan *v, lierne_varying_state *state) {
    lierne_locator *l = &state->locators[0];
    int64_t *counts = v->spare.counts, most = 0;
    lierne_locator_fill(l);
    for (size_t part = 0; part < l->nparts; part++) {
        counts[part] = 0;
    }
    for (int64_t i = 0; i < state->joints.n; i++) {
        const lierne_joint *at = &state->joints.at[i];
        int64_t end = at->index[0] + at->size, next;
        for (int64_t row = at->index[0]; row < end; row = next) {
            next = end;
            size_t part = lierne_locate(l, at->segment[0], row, &next);
            counts[part] += next - row;
            most = counts[part] > most ? counts[part] : most;
        }
    }
    return most;
}

lierne_status lierne_varying_check_rows(const lierne_varying_plan *v, lierne_varying_state *state) {
    static const char *const names[2] = {"src", "dst"};
    for (int s = 0; s < 2; s++) {
        int64_t rows = most_rows(v, state, s);
        if (rows > v->max_rows) {
            return LIERNE_FAIL(LIERNE_ERR_CAPACITY,
                               "%s: the buffer of a rank has %lld rows, must be at most %lld "
                               "(max_rows)",
                               names[s], (long long)rows, (long long)v->max_rows);
        }
    }
    int64_t tokens = v->rules.repeat ? most_tokens(v, state) : 0;
    return tokens <= v->max_rows
               ? LIERNE_OK
               : LIERNE_FAIL(
                     LIERNE_ERR_CAPACITY,
                     "the rows of a rank go to %lld tokens, must be at most %lld (max_rows)",
                     (long long)tokens, (long long)v->max_rows);
}

/* Of a plan that stays, the capacity is what it needs. */
static void take_rows(lierne_varying_plan *v) {
    int64_t most[3] = {most_rows(v, &v->states[0], 0), most_rows(v, &v->states[0], 1),
                       most_tokens(v, &v->states[0])};
    v->max_rows = 1;
    for (int i = 0; i < 3; i++) {
        v->max_rows = most[i] > v->max_rows ? most[i] : v->max_rows;
    }
}

static bool has_part(const lierne_varying_plan *v, int rank) {
    return lierne_layout_index(v->states[0].layouts[0], rank) >= 0 ||
           lierne_layout_index(v->states[0].layouts[1], rank) >= 0;
}

/* The next rank that has a part, upwards or downwards; -1: none. */
static int find_next(const lierne_varying_plan *v, int rank, int world, int step) {
    int next = rank;
    do {
        next = (next + step + world) % world;
    } while (!has_part(v, next));
    return next == rank ? -1 : next;
}

/* The ring goes along rows and columns, too. */
static void join_tour(const lierne_varying_plan *v, lierne_varying *e) {
    const lierne_square *s = &v->square;
    int own = lierne_square_place(s, v->rank), before = own;
    e->successor = s->ranks[lierne_square_next(s, own)];
    for (int i = 1; i < s->n; i++) {
        before = lierne_square_next(s, before);
    }
    e->predecessor = s->ranks[before];
}

static void join_ring(lierne_varying_plan *v, lierne_varying *e) {
    e->predecessor = e->successor = -1;
    for (int s = 0; s < 2; s++) {
        const lierne_layout *layout = v->states[0].layouts[s];
        int last = lierne_layout_rank(layout, layout->nranks - 1);
        e->first[s] = lierne_layout_rank(layout, 0);
        e->count[s] = last - e->first[s] + 1;
    }
    if (v->relayed) {
        join_tour(v, e);
    } else if (has_part(v, v->rank)) {
        int world = v->states[0].layouts[0]->world;
        e->predecessor = find_next(v, v->rank, world, -1);
        e->successor = find_next(v, v->rank, world, 1);
    }
}

/* Whether messages stop over, so that no rank has more than max_peers; as its peers may change,
 * any rank may have all others. */
static lierne_status limit_peers(lierne_varying_plan *v, lierne_plan_parts *parts, int max_peers) {
    const lierne_layout *const *layouts = (const lierne_layout *const *)v->states[0].layouts;
    if (max_peers == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&v->ranks, (size_t)layouts[0]->world + 1, sizeof *v->ranks));
    int n = lierne_redistribute_ranks(v->ranks, layouts[0], layouts[1]);
    v->square = lierne_square_of(v->ranks, n);
    int most = n - 1 <= max_peers ? n - 1 : lierne_square_peers(&v->square);
    if (most > max_peers) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "max_peers is %d, must be at least %d for these %d ranks", max_peers,
                           most, n);
    }
    v->relayed = n - 1 > max_peers && lierne_square_place(&v->square, v->rank) >= 0;
    parts->side[0].relayed.most_peers = parts->side[1].relayed.most_peers = most;
    return LIERNE_OK;
}

static lierne_status create_states(lierne_varying_plan *v, const lierne_varying_spec *spec) {
    LIERNE_TRY(lierne_alloc(&v->states, 2, sizeof *v->states));
    LIERNE_TRY(create_state(v, &v->states[0], spec));
    size_t counts[2] = {lierne_locator_counts(&v->states[0].locators[0]),
                        lierne_locator_counts(&v->states[0].locators[1])};
    LIERNE_TRY(
        lierne_alloc(&v->spare.counts, counts[counts[1] > counts[0]], sizeof *v->spare.counts));
    if (v->fixed) {
        take_rows(v);
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_varying_check_rows(v, &v->states[0]));
    return create_state(v, &v->states[1], spec);
}

/* The rows of an output that a check must find written. */
static lierne_status add_owned(lierne_owned_blocks *owned, const lierne_varying_plan *v, int side,
                               const lierne_span_list *rows) {
    const lierne_boxes *columns = &v->sides[side].columns;
    for (size_t i = 0; i < rows->count; i++) {
        for (size_t c = 0; c < columns->count; c++) {
            lierne_block block;
            lierne_varying_rows(&block, v, side, rows->at[i].local, rows->at[i].size,
                                &columns->at[c]);
            LIERNE_TRY(LIERNE_VEC_PUSH(owned, block));
        }
    }
    return LIERNE_OK;
}

static lierne_status find_owned(const lierne_varying *engine, lierne_owned_blocks *owned) {
    const lierne_varying_plan *v = engine->owner;
    int to = engine == &v->ways[LIERNE_DIRECTION_FORWARD].engine;
    LIERNE_TRY(add_owned(owned, v, to, &v->sides[to].tokens));
    return add_owned(owned, v, to, &v->sides[to].zeros);
}

/* Messages without elements are no messages of an ordinary route. */
static void drop_empty(lierne_messages *messages) {
    size_t n = 0;
    for (size_t m = 0; m < messages->count; m++) {
        if (messages->at[m].elements > 0) {
            messages->at[n++] = messages->at[m];
        }
    }
    messages->count = n;
}

static lierne_status make_ordinary(lierne_varying_plan *v, lierne_plan_parts *parts) {
    for (int d = 0; d < 2; d++) {
        drop_empty(&parts->side[d].route->stages.at[0].sends);
        drop_empty(&parts->side[d].route->stages.at[0].recvs);
        LIERNE_TRY(find_owned(&v->ways[d].engine, &parts->side[d].owned));
    }
    return LIERNE_OK;
}

lierne_status lierne_varying_plan_create(lierne_varying_plan **out, lierne_plan_parts *parts,
                                         const lierne_context *context,
                                         const lierne_varying_spec *spec) {
    lierne_varying_plan *v;
    lierne_planner planner = {.nodes = context->nodes,
                              .members = context->members,
                              .rank = spec->rank,
                              .alone = true,
                              .routing = LIERNE_ROUTING_DIRECT};
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    v = *out;
    v->axis = lierne_tokens_axis(spec->layouts[0], spec->layouts[1]);
    v->rank = spec->rank;
    v->max_segments = spec->max_segments;
    v->max_rows = spec->max_rows;
    v->max_runs = spec->max_runs;
    v->joined = spec->joined;
    v->fixed = spec->fixed;
    v->rules = spec->rules;
    v->partials[0] = spec->layouts[0]->partials;
    v->partials[1] = spec->layouts[1]->partials;
    LIERNE_TRY(check_spec(v, spec));
    LIERNE_TRY(create_states(v, spec));
    LIERNE_TRY(limit_peers(v, parts, spec->max_peers));
    LIERNE_TRY(lierne_varying_tables_create(v, parts, &planner));
    LIERNE_TRY(v->relayed ? lierne_varying_relay_create(v, parts, &planner) : LIERNE_OK);
    for (int d = 0; d < 2; d++) {
        join_ring(v, &v->ways[d].engine);
        v->ways[d].engine.owner = v;
        v->ways[d].engine.most_tasks = lierne_varying_most_tasks(v, d);
        parts->side[d].varying = v->fixed ? NULL : &v->ways[d].engine;
        parts->side[d].find_owned = v->fixed ? NULL : find_owned;
    }
    lierne_varying_fill(v, (lierne_plan_side *const[]){&parts->side[0], &parts->side[1]});
    return v->fixed ? make_ordinary(v, parts) : LIERNE_OK;
}

lierne_varying_plan *lierne_varying_plan_of(lierne_plan *plan) {
    const lierne_varying *engine = lierne_plan_side_of(plan, LIERNE_DIRECTION_FORWARD)->varying;
    return engine ? engine->owner : NULL;
}

void lierne_varying_plan_destroy(lierne_varying_plan *v) {
    if (!v) {
        return;
    }
    lierne_varying_relay_destroy(v);
    lierne_varying_tables_destroy(v);
    for (int k = 0; v->states && k < 2; k++) {
        for (int s = 0; s < 2; s++) {
            lierne_locator_destroy(&v->states[k].locators[s]);
            lierne_layout_destroy(v->states[k].layouts[s]);
        }
        lierne_joints_destroy(&v->states[k].joints);
    }
    lierne_mem_free(v->states);
    lierne_mem_free(v->ranks);
    lierne_mem_free(v);
}
