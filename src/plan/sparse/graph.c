/* The graph planner: from edges and owners to references.
 *
 * Every rank has the owners of all rows, so that there are at most INT32_MAX: the table by which
 * local rows are looked up is half as long then. One pass over the edges checks them, marks the
 * rows that are needed, a byte per row of the graph, and writes the local row of each end that the
 * rank owns, which is looked up by row. It does not branch on whose a source is, but for a few
 * edges together. Edges with other sources are few in most graphs: they are listed, and get the
 * rows of the ghosts once these have their places. Rows of the graph are counted owner by owner, so
 * that ghosts come in order of their owners without being sorted. */
#include "plan/sparse/sparse_saved_spec.h"

#define EDGES  16 /* of one step: mostly, the rank owns the sources of all */
#define ROWS   8  /* looked at together */
#define PART   (1 << 20)
#define NO_ROW INT32_MIN /* the place of a number outside of the graph */

/* Planning one spec. Its arrays are in the slots of a workspace that outlives it. */
enum { SEEN, PLACE, NEXT, RANK, ROW, ASCENDING };
typedef struct planning {
    const lierne_graph_spec *spec;
    lierne_star_forest_memory *memory;
    int rank;
    const lierne_members *members;
    int64_t nowned;
    int64_t nneeded;
    int64_t npadded; /* entries of the next two: a power of two, at least the rows of the graph */
    uint8_t *seen;   /* of each row: whether it is needed */
    int32_t *place;  /* of each row: the local row; without one, -1 - its owner's */
    int64_t *next;   /* of each member: the ghost that its next needed row becomes */
    int32_t *rank_of_ghost;
    int64_t *row_of_ghost;
    int64_t *ascending; /* needed rows, and space for one more */
    bool took_lists;
    lierne_star_forest_graph graph;
} planning;

static lierne_status check_spec(const planning *w) {
    const lierne_graph_spec *s = w->spec;
    if (s->nrows < 0 || s->nrows > INT32_MAX || s->nedges < 0 || s->nedges > INT64_MAX / 16) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: nrows is %lld, must be in 0 to %lld, and nedges %lld, in 0 to "
                           "%lld",
                           w->rank, (long long)s->nrows, (long long)INT32_MAX, (long long)s->nedges,
                           (long long)(INT64_MAX / 16));
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
    const int64_t n = w->spec->nrows;
    int64_t all = 0;
    for (int64_t i = 0, end; i < n; i = end) {
        int32_t count = 0; /* of a part: narrow, so that the compiler counts several at once */
        end = n - i < PART ? n : i + PART;
        for (; i < end; i++) {
            count += owner[i] == rank;
        }
        all += count;
    }
    w->nowned = all;
}

/* Rows first to end - 1 of the graph are rows `row` on of a member. */
static void number_run(const planning *w, int64_t first, int64_t end, int64_t row) {
    int32_t *restrict place = w->place + first, at = (int32_t)row;
    const int64_t n = end - first;
    if (w->spec->owner[first] != w->rank) {
        for (int64_t i = 0; i < n; i++) {
            place[i] = -1 - at - (int32_t)i;
        }
        return;
    }
    int64_t *restrict owned = w->graph.owned + row;
    for (int64_t i = 0; i < n; i++) {
        place[i] = at + (int32_t)i;
        owned[i] = first + i;
    }
}

static bool same_owner(const int32_t *owner, int32_t of) {
    int32_t differs = 0;
    for (int k = 0; k < ROWS; k++) {
        differs |= owner[k] ^ of;
    }
    return differs == 0;
}

/* Consecutive rows mostly have the same owner. */
static int64_t run_end(const int32_t *owner, int64_t first, int64_t n) {
    const int32_t of = owner[first];
    int64_t end = first + 1;
    if (end < n && owner[end] != of) {
        return end;
    }
    while (n - end >= ROWS && same_owner(owner + end, of)) {
        end += ROWS;
    }
    while (end < n && owner[end] == of) {
        end++;
    }
    return end;
}

/* A local row is the position of a row among the rows of its owner. */
static lierne_status number_rows(planning *w) {
    const int32_t *owner = w->spec->owner;
    const int64_t n = w->spec->nrows;
    for (int64_t i = 0, end; i < n; i = end) {
        int at = lierne_members_index(w->members, owner[i]);
        if (at < 0) {
            return reject_owner(w, i);
        }
        end = run_end(owner, i, n);
        number_run(w, i, end, w->next[at]);
        w->next[at] += end - i;
    }
    for (int64_t i = n; i < w->npadded; i++) {
        w->place[i] = NO_ROW;
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

static void count_needed(planning *w) {
    w->nneeded = 0;
    for (int64_t k = 0; k < w->npadded / ROWS; k++) {
        w->nneeded += (int64_t)(seen_of(w, k) * 0x0101010101010101u >> 56);
    }
}

static void list_needed(const planning *w) {
    int64_t *ascending = w->ascending;
    for (int64_t k = 0; k < w->npadded / ROWS; k++) {
        if (seen_of(w, k) == 0) {
            continue;
        }
        for (int64_t i = ROWS * k; i < ROWS * k + ROWS; i++) {
            *ascending = i;
            ascending += w->seen[i];
        }
    }
}

/* next: where the ghosts of each member begin. Consecutive ghosts mostly have the same owner. */
static void count_ghosts(planning *w) {
    const int32_t *owner = w->spec->owner;
    int64_t n = 0;
    memset(w->next, 0, (size_t)w->members->count * sizeof *w->next);
    for (int64_t k = 0, end; k < w->nneeded; k = end) {
        int32_t of = owner[w->ascending[k]];
        for (end = k + 1; end < w->nneeded && owner[w->ascending[end]] == of; end++) {
        }
        w->next[lierne_members_index(w->members, of)] += end - k;
    }
    for (int m = 0; m < w->members->count; m++) {
        int64_t count = w->next[m];
        w->next[m] = n;
        n += count;
    }
}

static void place_ghosts(planning *w) {
    const int32_t *owner = w->spec->owner;
    int64_t *next = w->next, k = 0;
    int32_t last = -1;
    count_ghosts(w);
    for (int64_t n = 0; n < w->nneeded; n++, k++) {
        int64_t row = w->ascending[n];
        if (owner[row] != last) {
            if (n > 0) {
                *next = k;
            }
            last = owner[row];
            next = &w->next[lierne_members_index(w->members, last)];
            k = *next;
        }
        w->rank_of_ghost[k] = last;
        w->row_of_ghost[k] = -1 - w->place[row];
        w->graph.ghosts[k] = row;
        w->place[row] = (int32_t)(w->nowned + k);
    }
}

/* Edges first to first + n - 1 by their sources. Rows of others are needed. */
static void split_edges(planning *w, int64_t first, int64_t n, bool owned) {
    lierne_star_forest_graph *g = &w->graph;
    int64_t *restrict local = g->local_edges + g->nlocal_edges;
    int64_t *restrict remote = g->remote_edges + g->nremote_edges;
    int64_t nlocal = owned ? n : 0, nremote = 0;
    for (int64_t k = 0; owned && k < n; k++) {
        local[k] = first + k;
    }
    for (int64_t e = first; !owned && e < first + n; e++) {
        bool needed = g->edge_source[e] < 0;
        w->seen[w->spec->source[e]] = needed;
        local[nlocal] = e;
        remote[nremote] = e;
        nlocal += !needed;
        nremote += needed;
    }
    g->nlocal_edges += nlocal;
    g->nremote_edges += nremote;
}

/* Local rows of both ends of n edges; rows of others are negative so far. Returns whether the edges
 * are right, but for sources outside of the graph that have an entry. */
static inline bool localise_some(planning *w, int64_t first, int64_t n) {
    const int64_t *source = w->spec->source + first, *target = w->spec->target + first;
    const int32_t *place = w->place;
    int64_t *restrict sources = w->graph.edge_source + first;
    int64_t *restrict targets = w->graph.edge_target + first;
    int64_t source_signs = 0, target_signs = 0, bits = 0; /* signs: negative if any row is */
    for (int64_t k = 0; k < n; k++) {
        bits |= source[k] | target[k];
    }
    if (bits & -w->npadded) {
        return false;
    }
    for (int64_t k = 0; k < n; k++) {
        sources[k] = place[source[k]];
        targets[k] = place[target[k]];
        source_signs |= sources[k];
        target_signs |= targets[k];
    }
    split_edges(w, first, n, source_signs >= 0);
    return target_signs >= 0 || w->spec->remote_targets;
}

static bool seen_outside(const planning *w) {
    uint8_t seen = 0;
    for (int64_t i = w->spec->nrows; i < w->npadded; i++) {
        seen |= w->seen[i];
    }
    return seen;
}

static lierne_status localise_owned(planning *w) {
    const int64_t n = w->spec->nedges, whole = n - n % EDGES;
    memset(w->seen, 0, (size_t)w->npadded);
    for (int64_t e = 0; e < whole; e += EDGES) {
        if (!localise_some(w, e, EDGES)) {
            return reject_first_edge(w);
        }
    }
    if ((whole < n && !localise_some(w, whole, n - whole)) || seen_outside(w)) {
        return reject_first_edge(w);
    }
    w->graph.nedges = n;
    return LIERNE_OK;
}

/* Once ghosts have their places. */
static lierne_status localise_ghosts(const planning *w) {
    const lierne_graph_spec *s = w->spec;
    const lierne_star_forest_graph *g = &w->graph;
    for (int64_t k = 0; k < g->nremote_edges; k++) {
        int64_t e = g->remote_edges[k];
        g->edge_source[e] = w->place[s->source[e]];
    }
    for (int64_t e = 0; s->remote_targets && e < g->nedges; e++) {
        g->edge_target[e] = w->place[s->target[e]];
        if (g->edge_target[e] < 0) {
            return reject_first_edge(w);
        }
    }
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

/* Reuses the lists of the graph before the last one. */
static lierne_status reserve_lists(planning *w) {
    lierne_star_forest_graph *g = &w->graph;
    int64_t n = w->spec->nedges;
    g->workspace = w->memory->lists;
    w->memory->lists = (lierne_workspace){0};
    w->took_lists = true;
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_OWNED, &g->owned, w->nowned));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_SOURCE, &g->edge_source, n));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_TARGET, &g->edge_target, n));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_LOCAL, &g->local_edges, n));
    return take_list(g, LIERNE_WORKSPACE_REMOTE, &g->remote_edges, n);
}

static lierne_status reserve_rows(planning *w) {
    lierne_workspace *workspace = &w->memory->work;
    size_t members = (size_t)w->members->count;
    LIERNE_TRY(lierne_workspace_take(workspace, NEXT, &w->next, members, sizeof *w->next));
    memset(w->next, 0, members * sizeof *w->next);
    for (w->npadded = 8; w->npadded < w->spec->nrows; w->npadded *= 2) {
    }
    LIERNE_TRY(lierne_workspace_take(workspace, SEEN, &w->seen, (size_t)w->npadded, 1));
    return lierne_workspace_take(workspace, PLACE, &w->place, (size_t)w->npadded, sizeof *w->place);
}

static lierne_status prepare_graph(planning *w) {
    LIERNE_TRY(check_spec(w));
    LIERNE_TRY(reserve_rows(w));
    count_owned(w);
    LIERNE_TRY(reserve_lists(w));
    LIERNE_TRY(number_rows(w));
    LIERNE_TRY(localise_owned(w));
    count_needed(w);
    LIERNE_TRY(reserve_ghosts(w));
    list_needed(w);
    place_ghosts(w);
    return localise_ghosts(w);
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
