/* The graph planner: from edges and owners to references.
 *
 * One pass over the edges marks their sources, a byte per row of the graph, and a second one writes
 * the local row of each end, which is looked up by row. Neither branches on what it reads, but for
 * errors. Rows of the graph are counted owner by owner, so that ghosts come in order of their
 * owners without being sorted. */
#include "plan/sparse/sparse_saved_spec.h"

typedef struct marks {
    uint64_t *at;
    int64_t count;
} marks;

/* Set bits of a word. The compiler's builtin calls a function unless the processor is known to have
 * the instruction. */
static int64_t ones(uint64_t x) {
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (int64_t)(x * 0x0101010101010101u >> 56);
}

static size_t words_of(int64_t nrows) {
    return (size_t)nrows / 64 + 1;
}

static lierne_status marks_take(marks *m, lierne_workspace *workspace, int slot, int64_t nrows) {
    size_t n = words_of(nrows);
    LIERNE_TRY(lierne_workspace_take(workspace, slot, &m->at, n, sizeof *m->at));
    memset(m->at, 0, n * sizeof *m->at);
    return LIERNE_OK;
}

static inline bool marked(const marks *m, int64_t row) {
    return m->at[(uint64_t)row / 64] >> (uint64_t)row % 64 & 1;
}

static void list_marks(const marks *m, int64_t nrows, int64_t *rows) {
    for (size_t w = 0, n = 0; w < words_of(nrows); w++) {
        for (uint64_t bits = m->at[w]; bits; bits &= bits - 1) {
            rows[n++] = (int64_t)w * 64 + __builtin_ctzll(bits);
        }
    }
}

/* Planning one spec. Its arrays are in the slots of a workspace that outlives it. */
enum { OWNED, NEEDED, SEEN, PLACE, NEXT, ROW_OF, RANK, ROW, ASCENDING };
typedef struct planning {
    const lierne_graph_spec *spec;
    lierne_star_forest_memory *memory;
    int rank;
    const lierne_members *members;
    marks owned;
    marks needed;
    uint8_t *seen;   /* of each row of the graph: whether it is the source of an edge */
    int64_t *place;  /* of those, and of owned rows: the local row */
    int64_t *next;   /* of each member: the ghost that its next needed row becomes */
    int64_t *row_of; /* of each needed row, ascending: its local row at its owner */
    int32_t *rank_of_ghost;
    int64_t *row_of_ghost;
    int64_t *ascending; /* needed rows */
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

/* A bit for each byte, which is 0 or 1. */
static void marks_set(marks *m, const uint8_t *bytes, int64_t n) {
    for (int64_t first = 0; first < n; first += 8) {
        uint64_t eight = 0;
        for (int64_t i = 0; i < 8 && first + i < n; i++) {
            eight |= (uint64_t)bytes[first + i] << 8 * i;
        }
        m->at[first / 64] |= (eight * 0x0102040810204080u >> 56) << first % 64;
    }
}

static void count_marks(marks *m, int64_t nrows) {
    for (size_t w = 0; w < words_of(nrows); w++) {
        m->count += ones(m->at[w]);
    }
}

static bool is_member(const lierne_members *members, int32_t owner) {
    return lierne_members_index(members, owner) >= 0;
}

/* Without a branch for each row; seen is not in use yet. */
static lierne_status mark_owned(planning *w) {
    const int32_t *owner = w->spec->owner, rank = w->rank;
    const lierne_members members = *w->members;
    int64_t n = w->spec->nrows, first = 0;
    uint8_t *restrict own = w->seen;
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        own[i] = owner[i] == rank;
        bad |= !is_member(&members, owner[i]);
    }
    while (bad && is_member(&members, owner[first])) {
        first++;
    }
    if (bad) {
        return reject_owner(w, first);
    }
    marks_set(&w->owned, own, n);
    count_marks(&w->owned, n);
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

/* Needed rows are the sources that the rank does not own. */
static void find_needed(planning *w) {
    marks_set(&w->needed, w->seen, w->spec->nrows);
    for (size_t k = 0; k < words_of(w->spec->nrows); k++) {
        w->needed.at[k] &= ~w->owned.at[k];
    }
    count_marks(&w->needed, w->spec->nrows);
}

/* Consecutive edges mostly have the same target. */
static lierne_status mark_needed(planning *w) {
    const lierne_graph_spec *s = w->spec;
    const planning read = *w;
    const int64_t *sources = s->source, *targets = s->target;
    const bool remote_targets = s->remote_targets != 0;
    const uint64_t nrows = (uint64_t)s->nrows;
    int64_t last = 0;
    if (nrows > 0) {
        memset(read.seen, 0, nrows);
    }
    for (int64_t e = 0, n = s->nedges; e < n; e++) {
        int64_t source = sources[e], target = targets[e];
        if ((uint64_t)source >= nrows ||
            ((e == 0 || target != last) &&
             ((uint64_t)target >= nrows || (!remote_targets && !marked(&read.owned, target))))) {
            return reject_edge(w, e);
        }
        last = target;
        read.seen[source] = 1;
    }
    find_needed(w);
    for (int64_t e = 0; remote_targets && e < s->nedges; e++) {
        if (!marked(&w->owned, targets[e]) && !marked(&w->needed, targets[e])) {
            return reject_edge(w, e);
        }
    }
    return LIERNE_OK;
}

/* A local row is the position of a row among the rows of its owner. Consecutive rows mostly have
 * the same owner. */
static void number_rows(planning *w) {
    const lierne_graph_spec *s = w->spec;
    int64_t row = 0;
    int last = 0;
    for (int64_t i = 0, n = 0; n < w->needed.count; i++, row++) {
        int at = lierne_members_index(w->members, s->owner[i]);
        if (at != last) {
            w->next[last] = row;
            row = w->next[at];
            last = at;
        }
        if (marked(&w->needed, i)) {
            w->row_of[n++] = row;
        }
    }
}

/* next: where the ghosts of each member begin. */
static void count_ghosts(planning *w) {
    int64_t n = 0;
    memset(w->next, 0, (size_t)w->members->count * sizeof *w->next);
    for (int64_t k = 0; k < w->needed.count; k++) {
        w->next[lierne_members_index(w->members, w->spec->owner[w->ascending[k]])]++;
    }
    for (int m = 0; m < w->members->count; m++) {
        int64_t count = w->next[m];
        w->next[m] = n;
        n += count;
    }
}

static void place_rows(planning *w) {
    list_marks(&w->needed, w->spec->nrows, w->ascending);
    count_ghosts(w);
    for (int64_t i = 0; i < w->owned.count; i++) {
        w->place[w->graph.owned[i]] = i;
    }
    for (int64_t n = 0; n < w->needed.count; n++) {
        int64_t row = w->ascending[n];
        int32_t owner = w->spec->owner[row];
        int64_t k = w->next[lierne_members_index(w->members, owner)]++;
        w->rank_of_ghost[k] = owner;
        w->row_of_ghost[k] = w->row_of[n];
        w->graph.ghosts[k] = row;
        w->place[row] = w->owned.count + k;
    }
}

static void localise_edges(planning *w) {
    const int64_t *source = w->spec->source, *target = w->spec->target, *place = w->place;
    const int64_t n = w->spec->nedges, nowned = w->owned.count;
    int64_t *restrict sources = w->graph.edge_source, *restrict targets = w->graph.edge_target;
    int64_t *restrict local = w->graph.local_edges, *restrict remote = w->graph.remote_edges;
    int64_t nlocal = 0, nremote = 0;
    for (int64_t e = 0; e < n; e++) {
        int64_t at = place[source[e]];
        sources[e] = at;
        targets[e] = place[target[e]];
        local[nlocal] = e;
        remote[nremote] = e;
        nlocal += at < nowned;
        nremote += at >= nowned;
    }
    w->graph.nedges = n;
    w->graph.nlocal_edges = nlocal;
    w->graph.nremote_edges = nremote;
}

static lierne_status reserve_ghosts(planning *w) {
    size_t n = (size_t)w->needed.count, members = (size_t)w->members->count;
    lierne_workspace *workspace = &w->memory->work;
    LIERNE_TRY(lierne_workspace_take(workspace, NEXT, &w->next, members, sizeof *w->next));
    memset(w->next, 0, members * sizeof *w->next);
    LIERNE_TRY(lierne_workspace_take(workspace, ROW_OF, &w->row_of, n, sizeof *w->row_of));
    LIERNE_TRY(
        lierne_workspace_take(workspace, RANK, &w->rank_of_ghost, n, sizeof *w->rank_of_ghost));
    LIERNE_TRY(lierne_workspace_take(workspace, ROW, &w->row_of_ghost, n, sizeof *w->row_of_ghost));
    return lierne_workspace_take(workspace, ASCENDING, &w->ascending, n, sizeof *w->ascending);
}

static lierne_status take_list(lierne_star_forest_graph *g, int slot, int64_t **out, int64_t n) {
    return lierne_workspace_take(&g->workspace, slot, out, (size_t)n, sizeof **out);
}

/* Reuses the lists of the graph before the last one. */
static lierne_status reserve_lists(planning *w) {
    lierne_star_forest_graph *g = &w->graph;
    int64_t n = w->spec->nedges;
    g->workspace = w->memory->lists;
    w->memory->lists = (lierne_workspace){0};
    w->took_lists = true;
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_OWNED, &g->owned, w->owned.count));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_GHOSTS, &g->ghosts, w->needed.count));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_SOURCE, &g->edge_source, n));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_TARGET, &g->edge_target, n));
    LIERNE_TRY(take_list(g, LIERNE_WORKSPACE_LOCAL, &g->local_edges, n));
    return take_list(g, LIERNE_WORKSPACE_REMOTE, &g->remote_edges, n);
}

static lierne_status reserve_rows(planning *w) {
    lierne_workspace *workspace = &w->memory->work;
    size_t n = (size_t)w->spec->nrows;
    LIERNE_TRY(marks_take(&w->owned, workspace, OWNED, w->spec->nrows));
    LIERNE_TRY(marks_take(&w->needed, workspace, NEEDED, w->spec->nrows));
    LIERNE_TRY(lierne_workspace_take(workspace, SEEN, &w->seen, n, sizeof *w->seen));
    return lierne_workspace_take(workspace, PLACE, &w->place, n, sizeof *w->place);
}

static lierne_status prepare_graph(planning *w) {
    LIERNE_TRY(check_spec(w));
    LIERNE_TRY(reserve_rows(w));
    LIERNE_TRY(mark_owned(w));
    LIERNE_TRY(mark_needed(w));
    LIERNE_TRY(reserve_ghosts(w));
    LIERNE_TRY(reserve_lists(w));
    list_marks(&w->owned, w->spec->nrows, w->graph.owned);
    number_rows(w);
    place_rows(w);
    localise_edges(w);
    return LIERNE_OK;
}

static lierne_star_forest_spec forest_of(planning *w) {
    const lierne_graph_spec *s = w->spec;
    return (lierne_star_forest_spec){.references = {.size = sizeof(lierne_references_spec),
                                                    .nowned = w->owned.count,
                                                    .nghosts = w->needed.count,
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
