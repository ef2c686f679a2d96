/* Plans of rows from their texts.
 *
 * A text has what was given to the builder, and lists that follow from it; the latter are for other
 * readers and are not read back. A rank whose text is bad tells the others before any of them
 * plans. */
#include "lierne/halo.h"
#include "plan/sparse/star_forest.h"
#include "json/json.h"

#include <limits.h>
#include <string.h>

typedef enum kind { PAIRS = 1, GRAPH = 2, HALO = 3 } kind;

typedef struct reader {
    lierne_json doc;
    const lierne_json_node *root;
    kind kind;
    /* Of pairs and graphs. */
    lierne_star_forest_spec forest;
    lierne_star_forest_graph graph;
    int32_t *ranks;
    int64_t *rows;
    /* Of halos. */
    lierne_halo_spec halo;
    int *procs[2];
    int64_t *nums[2];
    int64_t *list; /* entries of all swaps */
    const int64_t **lists;
} reader;

static void free_reader(reader *r) {
    lierne_json_destroy(&r->doc);
    lierne_workspace_destroy(&r->graph.shelf);
    lierne_mem_free(r->ranks);
    lierne_mem_free(r->rows);
    for (int i = 0; i < 2; i++) {
        lierne_mem_free(r->procs[i]);
        lierne_mem_free(r->nums[i]);
    }
    lierne_mem_free(r->list);
    lierne_mem_free(r->lists);
}

static lierne_status wrong(const lierne_json_node *node, const char *key, const char *wanted) {
    return LIERNE_FAIL(LIERNE_INVALID, "%d:%d: %s must be %s", node->place.line, node->place.column,
                       key, wanted);
}

static lierne_status find(const reader *r, const char *key, lierne_json_type type,
                          const lierne_json_node **out) {
    const lierne_json_node *node = lierne_json_first(r->root);
    while (node && strcmp(lierne_json_key(node), key) != 0) {
        node = lierne_json_next(&r->doc, node);
    }
    *out = node;
    if (!node) {
        return LIERNE_FAIL(LIERNE_INVALID, "%d:%d: there is no '%s'", r->root->place.line,
                           r->root->place.column, key);
    }
    return node->type == type ? LIERNE_OK : wrong(node, key, lierne_json_type_name(type));
}

static lierne_status integer(const lierne_json_node *node, const char *key, int64_t *out) {
    if (node->type != LIERNE_JSON_NUMBER || !node->integer) {
        return wrong(node, key, "an integer");
    }
    *out = node->value;
    return LIERNE_OK;
}

static lierne_status get_integer(const reader *r, const char *key, int64_t *out) {
    const lierne_json_node *node;
    LIERNE_TRY(find(r, key, LIERNE_JSON_NUMBER, &node));
    return integer(node, key, out);
}

static lierne_status narrow(const lierne_json_node *node, const char *key, int *out) {
    int64_t value = 0;
    LIERNE_TRY(integer(node, key, &value));
    if (value < INT_MIN || value > INT_MAX) {
        return wrong(node, key, "a number that fits 32 bits");
    }
    *out = (int)value;
    return LIERNE_OK;
}

static lierne_status get_int(const reader *r, const char *key, int *out) {
    const lierne_json_node *node;
    LIERNE_TRY(find(r, key, LIERNE_JSON_NUMBER, &node));
    return narrow(node, key, out);
}

static lierne_status get_truth(const reader *r, const char *key, bool *out) {
    const lierne_json_node *node;
    LIERNE_TRY(find(r, key, LIERNE_JSON_BOOLEAN, &node));
    *out = node->value != 0;
    return LIERNE_OK;
}

/* One of a few words: its number. */
static lierne_status get_word(const reader *r, const char *key, const char *const *words, int n,
                              int *out) {
    const lierne_json_node *node;
    LIERNE_TRY(find(r, key, LIERNE_JSON_STRING, &node));
    for (int i = 0; i < n; i++) {
        if (strcmp(lierne_json_string(node), words[i]) == 0) {
            *out = i;
            return LIERNE_OK;
        }
    }
    return LIERNE_FAIL(LIERNE_INVALID, "%d:%d: %s is '%s'", node->place.line, node->place.column,
                       key, lierne_json_string(node));
}

static lierne_status fill(const reader *r, const lierne_json_node *list, const char *key,
                          int64_t *out) {
    const lierne_json_node *node = lierne_json_first(list);
    for (int i = 0; node; i++, node = lierne_json_next(&r->doc, node)) {
        LIERNE_TRY(integer(node, key, &out[i]));
    }
    return LIERNE_OK;
}

/* A list that must have n entries. */
static lierne_status find_list(const reader *r, const char *key, int64_t n,
                               const lierne_json_node **list) {
    LIERNE_TRY(find(r, key, LIERNE_JSON_ARRAY, list));
    if ((*list)->count != n) {
        return LIERNE_FAIL(LIERNE_INVALID, "%d:%d: %s has %d entries, must have %lld",
                           (*list)->place.line, (*list)->place.column, key, (*list)->count,
                           (long long)n);
    }
    return LIERNE_OK;
}

static lierne_status get_exactly(const reader *r, const char *key, int64_t **out, int64_t n) {
    const lierne_json_node *list;
    LIERNE_TRY(find_list(r, key, n, &list));
    LIERNE_TRY(lierne_alloc_unset(out, (size_t)n, sizeof **out));
    return fill(r, list, key, *out);
}

/* Into a place of the graph's shelf. */
static lierne_status shelve(reader *r, const lierne_json_node *list, const char *key, int place,
                            int64_t **out, int64_t *n) {
    *n = list->count;
    LIERNE_TRY(lierne_workspace_take(&r->graph.shelf, place, out, (size_t)*n, sizeof **out));
    return fill(r, list, key, *out);
}

static lierne_status get_shelved(reader *r, const char *key, int place, int64_t **out, int64_t *n) {
    const lierne_json_node *list;
    LIERNE_TRY(find(r, key, LIERNE_JSON_ARRAY, &list));
    return shelve(r, list, key, place, out, n);
}

static lierne_status get_dtype(const reader *r, lierne_dtype *out) {
    const lierne_json_node *node;
    LIERNE_TRY(find(r, "dtype", LIERNE_JSON_STRING, &node));
    return lierne_dtype_parse(out, lierne_json_string(node));
}

static lierne_status read_roots(reader *r) {
    const lierne_json_node *list;
    LIERNE_TRY(find(r, "root", LIERNE_JSON_ARRAY, &list));
    size_t n = (size_t)list->count;
    LIERNE_TRY(lierne_alloc(&r->ranks, n, sizeof *r->ranks));
    LIERNE_TRY(lierne_alloc(&r->rows, n, sizeof *r->rows));
    const lierne_json_node *node = lierne_json_first(list);
    for (size_t k = 0; k < n; k++, node = lierne_json_next(&r->doc, node)) {
        if (node->type != LIERNE_JSON_ARRAY || node->count != 2) {
            return wrong(node, "root", "an array of [rank, row]");
        }
        const lierne_json_node *rank = lierne_json_first(node);
        LIERNE_TRY(narrow(rank, "rank", &r->ranks[k]));
        LIERNE_TRY(integer(lierne_json_next(&r->doc, rank), "row", &r->rows[k]));
    }
    r->forest.pairs.nghosts = (int64_t)n;
    r->forest.pairs.rank = r->ranks;
    r->forest.pairs.row = r->rows;
    return LIERNE_OK;
}

static lierne_status read_edges(reader *r) {
    const lierne_json_node *both;
    lierne_star_forest_graph *g = &r->graph;
    int64_t ntargets;
    LIERNE_TRY(find(r, "edge_index_local", LIERNE_JSON_ARRAY, &both));
    const lierne_json_node *source = lierne_json_first(both);
    const lierne_json_node *target = source ? lierne_json_next(&r->doc, source) : NULL;
    if (both->count != 2 || source->type != LIERNE_JSON_ARRAY ||
        target->type != LIERNE_JSON_ARRAY || source->count != target->count) {
        return wrong(both, "edge_index_local", "an array of two lists of one length");
    }
    LIERNE_TRY(shelve(r, source, "edge_index_local", LIERNE_WORKSPACE_SOURCE, &g->edge_source,
                      &g->nedges));
    LIERNE_TRY(
        shelve(r, target, "edge_index_local", LIERNE_WORKSPACE_TARGET, &g->edge_target, &ntargets));
    LIERNE_TRY(get_shelved(r, "local_edge_idx", LIERNE_WORKSPACE_LOCAL, &g->local_edges,
                           &g->nlocal_edges));
    return get_shelved(r, "remote_edge_idx", LIERNE_WORKSPACE_REMOTE, &g->remote_edges,
                       &g->nremote_edges);
}

/* Every entry of a list at least 0 and below the bound. */
static lierne_status check_range(const char *key, const int64_t *list, int64_t n, int64_t bound) {
    for (int64_t i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= bound) {
            return LIERNE_FAIL(LIERNE_INDEX_RANGE, "entry %lld of %s is %lld, must be in 0 to %lld",
                               (long long)i, key, (long long)list[i], (long long)bound - 1);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_graph(const reader *r) {
    const lierne_references_spec *p = &r->forest.pairs;
    const lierne_star_forest_graph *g = &r->graph;
    int64_t rows = 0;
    if (r->forest.nrows < 0 || !lierne_add_i64(p->nowned, p->nghosts, &rows)) {
        return LIERNE_FAIL(LIERNE_COUNT_RANGE, "nrows is %lld, or there are too many",
                           (long long)r->forest.nrows);
    }
    LIERNE_TRY(check_range("owned", g->owned, p->nowned, r->forest.nrows));
    LIERNE_TRY(check_range("needed", g->ghosts, p->nghosts, r->forest.nrows));
    LIERNE_TRY(check_range("edge_index_local", g->edge_source, g->nedges, rows));
    LIERNE_TRY(check_range("edge_index_local", g->edge_target, g->nedges, p->nowned));
    LIERNE_TRY(check_range("local_edge_idx", g->local_edges, g->nlocal_edges, g->nedges));
    return check_range("remote_edge_idx", g->remote_edges, g->nremote_edges, g->nedges);
}

static lierne_status read_graph(reader *r) {
    const lierne_references_spec *p = &r->forest.pairs;
    r->forest.graph = &r->graph;
    LIERNE_TRY(get_integer(r, "nrows", &r->forest.nrows));
    const lierne_json_node *list;
    int64_t n;
    LIERNE_TRY(find_list(r, "owned", p->nowned, &list));
    LIERNE_TRY(shelve(r, list, "owned", LIERNE_WORKSPACE_OWNED, &r->graph.owned, &n));
    LIERNE_TRY(find_list(r, "needed", p->nghosts, &list));
    LIERNE_TRY(shelve(r, list, "needed", LIERNE_WORKSPACE_GHOSTS, &r->graph.ghosts, &n));
    LIERNE_TRY(read_edges(r));
    return check_graph(r);
}

static lierne_status read_pairs(reader *r) {
    static const char *const algorithms[] = {"auto", "direct", "gather"};
    lierne_references_spec *p = &r->forest.pairs;
    bool accumulate;
    int algorithm;
    p->size = sizeof *p;
    r->forest.nrows = -1;
    LIERNE_TRY(get_dtype(r, &p->dtype));
    LIERNE_TRY(get_integer(r, "width", &p->width));
    LIERNE_TRY(get_integer(r, "stride", &p->stride));
    LIERNE_TRY(get_word(r, "algorithm", algorithms, 3, &algorithm));
    LIERNE_TRY(get_truth(r, "accumulate", &accumulate));
    LIERNE_TRY(get_truth(r, "whole", &r->forest.whole));
    LIERNE_TRY(get_truth(r, "keep_ghosts", &r->forest.keep_ghosts));
    LIERNE_TRY(get_int(r, "max_inflight", &p->max_inflight));
    LIERNE_TRY(get_integer(r, "nowned", &p->nowned));
    p->algorithm = (lierne_graph_algorithm)algorithm;
    p->accumulate = accumulate;
    LIERNE_TRY(read_roots(r));
    return r->kind == GRAPH ? read_graph(r) : LIERNE_OK;
}

static lierne_status read_procs(reader *r, const char *key, int **out) {
    int64_t *values = NULL, n = r->halo.nswap;
    lierne_status status = get_exactly(r, key, &values, n);
    if (status == LIERNE_OK) {
        status = lierne_alloc(out, (size_t)n, sizeof **out);
    }
    for (int64_t s = 0; s < n && status == LIERNE_OK; s++) {
        /* What does not fit is no rank either, and stays one that is none. */
        (*out)[s] = values[s] < 0 || values[s] > INT_MAX ? -1 : (int)values[s];
    }
    lierne_mem_free(values);
    return status;
}

static lierne_status read_lists(reader *r) {
    const lierne_json_node *lists;
    size_t total = 0;
    LIERNE_TRY(find(r, "sendlist", LIERNE_JSON_ARRAY, &lists));
    if (lists->count != r->halo.nswap) {
        return wrong(lists, "sendlist", "an array of nswap lists");
    }
    LIERNE_TRY(lierne_alloc(&r->lists, (size_t)lists->count, sizeof *r->lists));
    LIERNE_TRY(lierne_alloc(&r->list, (size_t)(lists->end - (int)(lists - r->doc.nodes.at)),
                            sizeof *r->list));
    const lierne_json_node *node = lierne_json_first(lists);
    for (int s = 0; node; s++, node = lierne_json_next(&r->doc, node)) {
        if (node->type != LIERNE_JSON_ARRAY || node->count != r->nums[0][s]) {
            return wrong(node, "sendlist", "an array of sendnum rows");
        }
        LIERNE_TRY(fill(r, node, "sendlist", r->list + total));
        r->lists[s] = r->list + total;
        total += (size_t)node->count;
    }
    return LIERNE_OK;
}

static lierne_status read_halo(reader *r) {
    lierne_halo_spec *h = &r->halo;
    bool keep;
    h->size = sizeof *h;
    LIERNE_TRY(get_dtype(r, &h->dtype));
    LIERNE_TRY(get_integer(r, "width", &h->width));
    LIERNE_TRY(get_integer(r, "stride", &h->stride));
    LIERNE_TRY(get_truth(r, "keep_ghosts", &keep));
    LIERNE_TRY(get_int(r, "max_inflight", &h->max_inflight));
    LIERNE_TRY(get_integer(r, "nlocal", &h->nlocal));
    LIERNE_TRY(get_integer(r, "nghost", &h->nghost));
    LIERNE_TRY(get_int(r, "nswap", &h->nswap));
    LIERNE_TRY(read_procs(r, "sendproc", &r->procs[0]));
    LIERNE_TRY(read_procs(r, "recvproc", &r->procs[1]));
    LIERNE_TRY(get_exactly(r, "sendnum", &r->nums[0], h->nswap));
    LIERNE_TRY(get_exactly(r, "recvnum", &r->nums[1], h->nswap));
    LIERNE_TRY(read_lists(r));
    h->keep_ghosts = keep;
    h->sendproc = r->procs[0];
    h->recvproc = r->procs[1];
    h->sendnum = r->nums[0];
    h->recvnum = r->nums[1];
    h->sendlist = r->lists;
    return LIERNE_OK;
}

static lierne_status read_text(reader *r, const char *text, size_t length) {
    static const char *const kinds[] = {"pairs", "graph", "halo"};
    int word;
    if (!text) {
        return LIERNE_FAIL(LIERNE_INVALID, "text is NULL");
    }
    lierne_status status = lierne_json_parse(&r->doc, text, length);
    if (status == LIERNE_SYNTAX) {
        const lierne_json_fault *fault = &r->doc.fault;
        return LIERNE_FAIL(LIERNE_SYNTAX, "%d:%d: %s", fault->place.line, fault->place.column,
                           fault->number ? fault->message : "a key stands twice");
    }
    LIERNE_TRY(status);
    r->root = r->doc.nodes.at;
    if (r->root->type != LIERNE_JSON_OBJECT) {
        return wrong(r->root, "a plan", "an object");
    }
    LIERNE_TRY(get_word(r, "kind", kinds, 3, &word));
    r->kind = (kind)(PAIRS + word);
    return r->kind == HALO ? read_halo(r) : read_pairs(r);
}

lierne_status lierne_plan_deserialize(lierne_plan **out, lierne_context *context, const char *text,
                                      size_t length) {
    reader r = {0};
    if (!context) {
        return LIERNE_FAIL(LIERNE_INVALID, "context is NULL");
    }
    if (out) {
        *out = NULL;
    }
    LIERNE_TRY(lierne_context_alive(context));
    lierne_status status =
        out ? read_text(&r, text, length) : LIERNE_FAIL(LIERNE_INVALID, "out is NULL");
    if (status != LIERNE_OK) {
        status = LIERNE_FAIL(status, "rank %d: %s", context->rank, lierne_last_error());
    }
    const lierne_field fields[] = {{"call", LIERNE_CALL_READ}, {"kind", (int64_t)r.kind}};
    status = lierne_context_agree_all(context, status, fields, 2, NULL);
    if (status == LIERNE_OK) {
        status = r.kind == HALO ? lierne_plan_create_halo(out, context, &r.halo)
                                : lierne_plan_star_forest(out, context, LIERNE_OK, &r.forest);
    }
    free_reader(&r);
    return status;
}
