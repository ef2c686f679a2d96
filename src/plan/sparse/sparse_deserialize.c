/* Plans of references and graphs from their texts. The lists of a graph are as long as its edges,
 * and so go straight into the workspace that the plan keeps. */
#include "plan/reader.h"
#include "plan/sparse/star_forest.h"

typedef struct contents {
    lierne_star_forest_spec forest;
    lierne_star_forest_graph graph;
    int32_t *ranks;
    int64_t *rows;
} contents;

static void destroy(void *spec) {
    contents *s = spec;
    if (s) {
        lierne_workspace_destroy(&s->graph.workspace);
        lierne_mem_free(s->ranks);
        lierne_mem_free(s->rows);
        lierne_mem_free(s);
    }
}

/* Into a slot of the graph's workspace. */
static lierne_status take_list(contents *s, const lierne_plan_reader *r,
                               const lierne_json_node *list, const char *key, int slot,
                               int64_t **out, int64_t *n) {
    *n = list->count;
    LIERNE_TRY(lierne_workspace_take(&s->graph.workspace, slot, out, (size_t)*n, sizeof **out));
    return lierne_plan_reader_integers(r, list, key, *out);
}

static lierne_status get_list(contents *s, const lierne_plan_reader *r, const char *key, int slot,
                              int64_t **out, int64_t *n) {
    const lierne_json_node *list;
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_ARRAY, &list));
    return take_list(s, r, list, key, slot, out, n);
}

/* The same, of n entries. */
static lierne_status get_exactly(contents *s, const lierne_plan_reader *r, const char *key,
                                 int slot, int64_t n, int64_t **out) {
    const lierne_json_node *list;
    int64_t count;
    LIERNE_TRY(lierne_plan_reader_find_list(r, key, n, &list));
    return take_list(s, r, list, key, slot, out, &count);
}

static lierne_status read_roots(contents *s, const lierne_plan_reader *r) {
    const lierne_json_node *list;
    LIERNE_TRY(lierne_plan_reader_find(r, "root", LIERNE_JSON_ARRAY, &list));
    size_t n = (size_t)list->count;
    LIERNE_TRY(lierne_alloc(&s->ranks, n, sizeof *s->ranks));
    LIERNE_TRY(lierne_alloc(&s->rows, n, sizeof *s->rows));
    const lierne_json_node *node = lierne_json_first(list);
    for (size_t k = 0; k < n; k++, node = lierne_json_next(&r->doc, node)) {
        if (node->type != LIERNE_JSON_ARRAY || node->count != 2) {
            return lierne_plan_reader_reject(node, "root", "an array of [rank, row]");
        }
        const lierne_json_node *rank = lierne_json_first(node);
        LIERNE_TRY(lierne_plan_reader_int(rank, "rank", &s->ranks[k]));
        LIERNE_TRY(lierne_plan_reader_integer(lierne_json_next(&r->doc, rank), "row", &s->rows[k]));
    }
    s->forest.references.nghosts = (int64_t)n;
    s->forest.references.rank = s->ranks;
    s->forest.references.row = s->rows;
    return LIERNE_OK;
}

static lierne_status read_edges(contents *s, const lierne_plan_reader *r) {
    static const char key[] = "edge_index_local";
    const lierne_json_node *both;
    lierne_star_forest_graph *g = &s->graph;
    int64_t ntargets;
    LIERNE_TRY(lierne_plan_reader_find(r, key, LIERNE_JSON_ARRAY, &both));
    const lierne_json_node *source = lierne_json_first(both);
    const lierne_json_node *target = source ? lierne_json_next(&r->doc, source) : NULL;
    if (both->count != 2 || source->type != LIERNE_JSON_ARRAY ||
        target->type != LIERNE_JSON_ARRAY || source->count != target->count) {
        return lierne_plan_reader_reject(both, key, "an array of two lists of one length");
    }
    LIERNE_TRY(take_list(s, r, source, key, LIERNE_WORKSPACE_SOURCE, &g->edge_source, &g->nedges));
    LIERNE_TRY(take_list(s, r, target, key, LIERNE_WORKSPACE_TARGET, &g->edge_target, &ntargets));
    LIERNE_TRY(get_list(s, r, "local_edge_idx", LIERNE_WORKSPACE_LOCAL, &g->local_edges,
                        &g->nlocal_edges));
    return get_list(s, r, "remote_edge_idx", LIERNE_WORKSPACE_REMOTE, &g->remote_edges,
                    &g->nremote_edges);
}

/* Every entry of a list at least 0 and below the bound. */
static lierne_status check_range(const char *key, const int64_t *list, int64_t n, int64_t bound) {
    for (int64_t i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= bound) {
            return LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE,
                               "entry %lld of %s is %lld, must be in 0 to %lld", (long long)i, key,
                               (long long)list[i], (long long)bound - 1);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_graph(const contents *s) {
    const lierne_references_spec *p = &s->forest.references;
    const lierne_star_forest_graph *g = &s->graph;
    int64_t nrows = s->forest.nrows, rows = 0;
    if (nrows < 0) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE, "nrows is %lld, must be at least 0",
                           (long long)nrows);
    }
    if (!lierne_add_i64(p->nowned, p->nghosts, &rows)) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "%lld owned rows and %lld ghosts: their sum does not fit",
                           (long long)p->nowned, (long long)p->nghosts);
    }
    LIERNE_TRY(check_range("owned", g->owned, p->nowned, nrows));
    LIERNE_TRY(check_range("needed", g->ghosts, p->nghosts, nrows));
    LIERNE_TRY(check_range("edge_index_local", g->edge_source, g->nedges, rows));
    LIERNE_TRY(check_range("edge_index_local", g->edge_target, g->nedges, p->nowned));
    LIERNE_TRY(check_range("local_edge_idx", g->local_edges, g->nlocal_edges, g->nedges));
    return check_range("remote_edge_idx", g->remote_edges, g->nremote_edges, g->nedges);
}

/* Where all owned rows are gathered, they are received; AUTO gathers no more than it needs. */
static lierne_status check_rows(const lierne_references_spec *p, const lierne_plan_reader *r) {
    int64_t rows = p->nghosts;
    if (p->algorithm == LIERNE_GRAPH_ALGORITHM_ALL_GATHER &&
        !lierne_add_i64(rows, p->nowned, &rows)) {
        rows = INT64_MAX;
    }
    return lierne_plan_reader_check_rows(r, rows, p->width, p->dtype, p->max_inflight);
}

static lierne_status fill_references(contents *s, const lierne_plan_reader *r) {
    lierne_references_spec *p = &s->forest.references;
    p->size = sizeof *p;
    s->forest.nrows = -1;
    LIERNE_TRY(lierne_spec_table_read(&lierne_references_table, p, r));
    LIERNE_TRY(read_roots(s, r));
    return check_rows(p, r);
}

static lierne_status read_references(void **spec, const lierne_plan_reader *r) {
    contents *s;
    LIERNE_TRY(lierne_alloc(&s, 1, sizeof *s));
    *spec = s;
    return fill_references(s, r);
}

static lierne_status read_graph(void **spec, const lierne_plan_reader *r) {
    LIERNE_TRY(read_references(spec, r));
    contents *s = *spec;
    lierne_star_forest_graph *g = &s->graph;
    s->forest.graph = g;
    LIERNE_TRY(lierne_plan_reader_get_integer(r, "nrows", &s->forest.nrows));
    LIERNE_TRY(
        get_exactly(s, r, "owned", LIERNE_WORKSPACE_OWNED, s->forest.references.nowned, &g->owned));
    LIERNE_TRY(get_exactly(s, r, "needed", LIERNE_WORKSPACE_GHOSTS, s->forest.references.nghosts,
                           &g->ghosts));
    LIERNE_TRY(read_edges(s, r));
    return check_graph(s);
}

static lierne_status create_sparse(lierne_plan **out, lierne_context *context, void *spec) {
    return lierne_plan_star_forest(out, context, LIERNE_OK, &((contents *)spec)->forest);
}

const lierne_plan_format lierne_references_format = {"references", read_references, create_sparse,
                                                     destroy};
const lierne_plan_format lierne_graph_format = {"graph", read_graph, create_sparse, destroy};
