/* The graph planner: from edges and owners to references.
 *
 * One pass over the edges marks their sources, a byte per row of the graph, and a second one checks
 * targets and writes the local row of each end, which is looked up by row. Neither branches on
 * whose a source is. Rows of the graph are counted owner by owner, so that ghosts come in order of
 * their owners without being sorted. */
#include "plan/sparse/sparse_saved_spec.h"

/* Planning one spec. Its arrays are in the slots of a workspace that outlives it. */
enum { SEEN, PLACE, NEXT, RANK, ROW, ASCENDING };
typedef struct planning {
    const lierne_graph_spec *spec;
    lierne_star_forest_memory *memory;
    int rank;
    const lierne_members *members;
    int64_t nowned;
    int64_t nneeded;
    uint8_t *seen;  /* of each row of the graph, in eights: whether it is needed */
    int64_t *place; /* of each row of the graph: the local row; without one, -1 - its owner's */
    int64_t *next;  /* of each member: the ghost that its next needed row becomes */
    int32_t *rank_of_ghost;
    int64_t *row_of_ghost;
    int64_t *ascending; /* needed rows, and space for one more */
    bool took_lists;
    lierne_star_forest_graph graph;
} planning;

static lierne_status check_spec(const planning *w) {
    const lierne_graph_spec *s = w->spec;
    if (s->nrows < 0 || s->nedges < 0 || s->nedges > INT64_MAX / 16 || s->nrows > INT64_MAX / 16) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: nrows is %lld and nedges %lld, must be in 0 to %lld", w->rank,
                           (long long)s->nrows, (long long)s->nedges, (long long)(INT64_MAX / 16));
    }
    if (s->nrows > 0 && !s->owner) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: owner is NULL, must have %lld entries",
                           w->rank, (long long)s->nrows);
    }
    if (s->nedges > 0 && (!s->source || !s->target)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s is NULL, must have %lld entries",
                           w->rank, s->source ? "target" : "source", (long long)s->nedges);
    }
    return LIERNE_OK;
}

static lierne_status reject_owner(const planning *w, int64_t row) {
    char members[LIERNE_MEMBERS_TEXT];
    lierne_members_print(members, sizeof members, w->members);
    return LIERNE_FAIL(LIERNE_ERR_OWNER_RANGE, "rank %d: row %lld has owner %d, must be %s",
                       w->rank, (long long)row, (int)w->spec->owner[row], members);
}

static void count_owned(planning *w) {
    const int32_t *owner = w->spec->owner, rank = w->rank;
    int64_t count = 0;
    for (int64_t i = 0; i < w->spec->nrows; i++) {
        count += owner[i] == rank;
    }
    w->nowned = count;
}

/* A local row is the position of a row among the rows of its owner. Consecutive rows mostly have
 * the same owner. */
static lierne_status number_rows(planning *w) {
    const int32_t *owner = w->spec->owner;
    int64_t *restrict owned = w->graph.owned, *restrict place = w->place;
    int64_t row = 0;
    int last = 0;
    for (int64_t i = 0, n = 0; i < w->spec->nrows; i++, row++) {
        int at = lierne_members_index(w->members, owner[i]);
        if (at != last) {
            if (at < 0) {
                return reject_owner(w, i);
            }
            w->next[last] = row;
            row = w->next[at];
            last = at;
        }
        bool own = owner[i] == w->rank;
        owned[n] = i;
        place[i] = own ? n : -1 - row;
        n += own;
    }
    return LIERNE_OK;
}

static bool in_graph(const planning *w, int64_t row) {
    return (uint64_t)row < (uint64_t)w->spec->nrows;
}

static lierne_status reject_edge(const planning *w, int64_t e) {
    const lierne_graph_spec *s = w->spec;
    int64_t source = s->source[e], target = s->target[e];
    if (!in_graph(w, source) || !in_graph(w, target)) {
        return LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE,
                           "rank %d: edge %lld is %lld -> %lld, rows must be in 0 to "
                           "%lld",
                           w->rank, (long long)e, (long long)source, (long long)target,
                           (long long)s->nrows - 1);
    }
    return LIERNE_FAIL(LIERNE_ERR_EDGE_TARGET_NOT_OWNED,
                       "rank %d: edge %lld has target %lld, which rank "
                       "%d owns%s",
                       w->rank, (long long)e, (long long)target, (int)s->owner[target],
                       s->remote_targets ? " and no edge has as its source" : "");
}

static int64_t eights(const planning *w) {
    return w->spec->nrows / 8 + 1;
}

static uint64_t seen_of(const planning *w, int64_t eight) {
    uint64_t bytes;
    memcpy(&bytes, w->seen + 8 * eight, sizeof bytes);
    return bytes;
}

/* Whether an edge is wrong; placed: ghosts have their places. */
static bool is_wrong(const planning *w, int64_t e, bool placed) {
    int64_t target = w->spec->target[e];
    if (!in_graph(w, w->spec->source[e]) || !in_graph(w, target)) {
        return true;
    }
    bool owned = w->place[target] >= 0 && w->place[target] < w->nowned;
    return !owned && (!w->spec->remote_targets || (placed && w->place[target] < 0));
}

/* Numbers outside of the graph come first. */
static lierne_status reject_first_edge(const planning *w) {
    for (int placed = 0; placed < 2; placed++) {
        for (int64_t e = 0; e < w->spec->nedges; e++) {
            if (is_wrong(w, e, placed)) {
                return reject_edge(w, e);
            }
        }
    }
    return LIERNE_OK;
}

/* Sources of edges that the rank does not own. */
static lierne_status mark_needed(planning *w) {
    const int64_t *source = w->spec->source;
    const uint64_t nrows = (uint64_t)w->spec->nrows;
    uint8_t *restrict seen = w->seen;
    memset(seen, 0, 8 * (size_t)eights(w));
    for (int64_t e = 0; e < w->spec->nedges; e++) {
        if ((uint64_t)source[e] >= nrows) {
            return reject_first_edge(w);
        }
        seen[source[e]] = 1;
    }
    for (int64_t i = 0; i < w->nowned; i++) {
        seen[w->graph.owned[i]] = 0;
    }
    for (int64_t k = 0; k < eights(w); k++) {
        w->nneeded += (int64_t)(seen_of(w, k) * 0x0101010101010101u >> 56);
    }
    return LIERNE_OK;
}

static void list_needed(const planning *w) {
    for (int64_t k = 0, n = 0; k < eights(w); k++) {
        for (int64_t i = 8 * k; seen_of(w, k) && i < 8 * k + 8; i++) {
            w->ascending[n] = i;
            n += w->seen[i];
        }
    }
}

/* next: where the ghosts of each member begin. */
static void count_ghosts(planning *w) {
    int64_t n = 0;
    memset(w->next, 0, (size_t)w->members->count * sizeof *w->next);
    for (int64_t k = 0; k < w->nneeded; k++) {
        w->next[lierne_members_index(w->members, w->spec->owner[w->ascending[k]])]++;
    }
    for (int m = 0; m < w->members->count; m++) {
        int64_t count = w->next[m];
        w->next[m] = n;
        n += count;
    }
}

static void place_ghosts(planning *w) {
    count_ghosts(w);
    for (int64_t n = 0; n < w->nneeded; n++) {
        int64_t row = w->ascending[n];
        int32_t owner = w->spec->owner[row];
        int64_t k = w->next[lierne_members_index(w->members, owner)]++;
        w->rank_of_ghost[k] = owner;
        w->row_of_ghost[k] = -1 - w->place[row];
        w->graph.ghosts[k] = row;
        w->place[row] = w->nowned + k;
    }
}

/* Consecutive edges mostly have the same target. */
static lierne_status localise_edges(planning *w) {
    const int64_t *source = w->spec->source, *target = w->spec->target, *place = w->place;
    const uint64_t nrows = (uint64_t)w->spec->nrows;
    const int64_t n = w->spec->nedges, nowned = w->nowned;
    lierne_star_forest_graph *g = &w->graph;
    int64_t *restrict sources = g->edge_source, *restrict targets = g->edge_target;
    int64_t *restrict local = g->local_edges, *restrict remote = g->remote_edges;
    const int64_t end = w->spec->remote_targets ? INT64_MAX : nowned;
    int64_t nlocal = 0, nremote = 0, last = 0, to = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t at = place[source[e]];
        if (e == 0 || target[e] != last) {
            last = target[e];
            to = (uint64_t)last < nrows ? place[last] : -1;
            if (to < 0 || to >= end) {
                return reject_first_edge(w);
            }
        }
        sources[e] = at;
        targets[e] = to;
        local[nlocal] = e;
        remote[nremote] = e;
        nlocal += at < nowned;
        nremote += at >= nowned;
    }
    g->nedges = n;
    g->nlocal_edges = nlocal;
    g->nremote_edges = nremote;
    return LIERNE_OK;
}

static lierne_status take_list(lierne_star_forest_graph *g, int slot, int64_t **out, int64_t n) {
    return lierne_workspace_take(&g->workspace, slot, out, (size_t)n, sizeof **out);
}

static lierne_status reserve_ghosts(planning *w) {
    size_t n = (size_t)w->nneeded;
    lierne_workspace *workspace = &w->memory->work;
    LIERNE_TRY(
        lierne_workspace_take(workspace, RANK, &w->rank_of_ghost, n, sizeof *w->rank_of_ghost));
    LIERNE_TRY(lierne_workspace_take(workspace, ROW, &w->row_of_ghost, n, sizeof *w->row_of_ghost));
    LIERNE_TRY(
        lierne_workspace_take(workspace, ASCENDING, &w->ascending, n + 1, sizeof *w->ascending));
    return take_list(&w->graph, LIERNE_WORKSPACE_GHOSTS, &w->graph.ghosts, w->nneeded);
}

/* Reuses the lists of the graph before the last one; number_rows writes one row too many. */
static lierne_status reserve_lists(planning *w) {
    lierne_star_forest_graph *g = &w->graph;
    int64_t n = w->spec->nedges;
    g->workspace = w->memory->lists;
    w->memory->lists = (lierne_workspace){0};
    w->took_lists = true;
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_OWNED, &g->owned, w->nowned + 1));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_SOURCE, &g->edge_source, n));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_TARGET, &g->edge_target, n));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_LOCAL, &g->local_edges, n));
    return take_list(g, LIERNE_WORKSPACE_REMOTE, &g->remote_edges, n);
}

static lierne_status reserve_rows(planning *w) {
    lierne_workspace *workspace = &w->memory->work;
    size_t n = (size_t)w->spec->nrows, members = (size_t)w->members->count;
    LIERNE_TRY(lierne_workspace_take(workspace, NEXT, &w->next, members, sizeof *w->next));
    memset(w->next, 0, members * sizeof *w->next);
    LIERNE_TRY(lierne_workspace_take(workspace, SEEN, &w->seen, (size_t)eights(w), 8));
    return lierne_workspace_take(workspace, PLACE, &w->place, n, sizeof *w->place);
}

static lierne_status prepare_graph(planning *w) {
    LIERNE_TRY(check_spec(w));
    LIERNE_TRY(reserve_rows(w));
    count_owned(w);
    LIERNE_TRY(reserve_lists(w));
    LIERNE_TRY(number_rows(w));
    LIERNE_TRY(mark_needed(w));
    LIERNE_TRY(reserve_ghosts(w));
    list_needed(w);
    place_ghosts(w);
    return localise_edges(w);
}

static lierne_star_forest_spec forest_of(planning *w) {
    const lierne_graph_spec *s = w->spec;
    return (lierne_star_forest_spec){.references = {.size = sizeof(lierne_references_spec),
                                                    .nowned = w->nowned,
                                                    .nghosts = w->nneeded,
                                                    .rank = w->rank_of_ghost,
                                                    .row = w->row_of_ghost,
                                                    .dtype = s->dtype,
                                                    .width = s->width,
                                                    .stride = s->stride,
                                                    .algorithm = s->algorithm,
                                                    .accumulate = s->accumulate,
                                                    .combined = s->combined,
                                                    .keep_ghosts = s->keep_ghosts,
                                                    .max_inflight = s->max_inflight,
                                                    .group = s->group,
                                                    .name = s->name},
                                     .graph = &w->graph,
                                     .nrows = s->nrows,
                                     .owner = s->owner};
}

lierne_status lierne_plan_create_graph(lierne_plan **out, lierne_context *context,
                                       const lierne_graph_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_graph_spec spec = {0};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    planning w = {.spec = &spec, .rank = context->rank, .members = &context->members};
    lierne_status status =
        out ? lierne_alloc(&w.memory, 1, sizeof *w.memory)
            : LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    if (status == LIERNE_OK) {
        status = lierne_spec_take_at(&spec, sizeof spec, given, context->rank);
    }
    if (status == LIERNE_OK) {
        status = prepare_graph(&w);
    }
    const lierne_star_forest_spec forest = forest_of(&w);
    status = lierne_plan_star_forest(out, context, status, &forest);
    if (status == LIERNE_OK) {
        lierne_star_forest_saved_spec_of(*out)->memory = w.memory;
        return LIERNE_OK;
    }
    lierne_workspace_destroy(&w.graph.workspace);
    lierne_star_forest_memory_destroy(w.memory);
    return status;
}

lierne_status lierne_plan_create_references(lierne_plan **out, lierne_context *context,
                                            const lierne_references_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_star_forest_spec forest = {.nrows = -1};
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    if (!out) {
        status = LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: out is NULL", context->rank);
    } else {
        status =
            lierne_spec_take_at(&forest.references, sizeof forest.references, spec, context->rank);
    }
    return lierne_plan_star_forest(out, context, status, &forest);
}

/* Whether a plan may get another graph. */
static lierne_status check_update(const lierne_plan *plan, lierne_graph_spec *spec,
                                  const lierne_graph_spec *given) {
    const lierne_star_forest_saved_spec *r = lierne_star_forest_saved_spec_of(plan);
    if (!r || r->nrows < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: the plan is not one of a graph",
                           lierne_plan_context(plan)->rank);
    }
    LIERNE_TRY(lierne_plan_check_changeable(plan));
    LIERNE_TRY(lierne_spec_take_at(spec, sizeof *spec, given, lierne_plan_context(plan)->rank));
    return lierne_star_forest_check_type(r, spec->dtype, spec->width, spec->max_inflight);
}

lierne_status lierne_plan_update_graph(lierne_plan *plan, const lierne_graph_spec *given) {
    LIERNE_PUBLIC_CALL();
    lierne_graph_spec spec = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    lierne_context *context = lierne_plan_context(plan);
    LIERNE_TRY(lierne_context_alive(context));
    planning w = {.spec = &spec, .rank = context->rank, .members = &context->members};
    lierne_star_forest_saved_spec *old = lierne_star_forest_saved_spec_of(plan);
    lierne_status status = check_update(plan, &spec, given);
    if (status == LIERNE_OK && !old->memory) { /* of a deserialized plan */
        status = lierne_alloc(&old->memory, 1, sizeof *old->memory);
    }
    if (status == LIERNE_OK) {
        w.memory = old->memory;
        old->memory = NULL;
        old->next_owner = w.memory;
        status = prepare_graph(&w);
    }
    const lierne_star_forest_spec forest = forest_of(&w);
    status = lierne_plan_update_star_forest(plan, status, &forest);
    if (w.memory) {
        lierne_star_forest_saved_spec *now = lierne_star_forest_saved_spec_of(plan);
        now->memory = w.memory;
        now->next_owner = NULL;
        if (status != LIERNE_OK && w.took_lists) {
            w.memory->lists = w.graph.workspace; /* unless they were freed with the failed plan */
        }
    }
    return status;
}
