/* What a plan of a star forest keeps: its lists for the user, and its text. */
#include "plan/sparse/sparse_saved_spec.h"

void lierne_star_forest_memory_destroy(lierne_star_forest_memory *memory) {
    if (memory) {
        lierne_workspace_destroy(&memory->work);
        lierne_workspace_destroy(&memory->lists);
        lierne_mem_free(memory);
    }
}

static void destroy_saved_spec(lierne_saved_spec *base) {
    lierne_star_forest_saved_spec *r = (lierne_star_forest_saved_spec *)base;
    lierne_star_forest_destroy(&r->forest);
    if (r->next_owner) {
        r->next_owner->lists = r->graph.workspace;
    } else {
        lierne_workspace_destroy(&r->graph.workspace);
    }
    lierne_star_forest_memory_destroy(r->memory);
    lierne_mem_free(r->sender_ranks);
    lierne_mem_free(r->sender_counts);
    lierne_mem_free(r->receiver_ranks);
    lierne_mem_free(r->receiver_counts);
    lierne_mem_free(r);
}

const char *const lierne_graph_algorithm_names[3] = {"auto", "direct", "all_gather"};

static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_references_spec, dtype, DTYPE, BOTH),
    LIERNE_SPEC_NUMBER(lierne_references_spec, width, I64, BOTH),
    LIERNE_SPEC_NUMBER(lierne_references_spec, stride, I64, SAVED),
    LIERNE_SPEC_WORDS(lierne_references_spec, algorithm, BOTH, lierne_graph_algorithm_names),
    LIERNE_SPEC_NUMBER(lierne_references_spec, accumulate, BOOL, BOTH),
    LIERNE_SPEC_NUMBER(lierne_references_spec, max_inflight, INFLIGHT, BOTH),
    LIERNE_SPEC_NUMBER(lierne_references_spec, combined, BOOL, BOTH),
    LIERNE_SPEC_NUMBER(lierne_references_spec, keep_ghosts, BOOL, BOTH),
    LIERNE_SPEC_NUMBER(lierne_references_spec, nowned, I64, SAVED),
};
const lierne_spec_table lierne_references_table = LIERNE_SPEC_TABLE(numbers);

static void write_ints(lierne_text *text, const char *name, const int64_t *values, int64_t n) {
    lierne_text_add(text, ",\n \"%s\": ", name);
    lierne_text_numbers(text, values, n);
}

static void write_roots(lierne_text *text, const lierne_star_forest *f) {
    lierne_text_add(text, ",\n \"root\": [");
    for (int64_t k = 0; k < f->nghosts; k++) {
        size_t s = 0;
        int64_t root = lierne_star_forest_root(f, k);
        while (root >= f->senders.at[s].first + f->senders.at[s].count) {
            s++;
        }
        lierne_text_add(text, k ? ",[%d,%lld]" : "[%d,%lld]", f->senders.at[s].rank,
                        (long long)f->row[root]);
    }
    lierne_text_add(text, "]");
}

/* A count for every member, 0 for those that are not peers. */
static void write_counts(lierne_text *text, const char *name, const lierne_peers *peers,
                         const lierne_members *members, int self) {
    size_t at = 0;
    lierne_text_add(text, ",\n \"%s\": [", name);
    for (int i = 0; i < members->count; i++) {
        int rank = lierne_members_rank(members, i);
        bool here = at < peers->count && peers->at[at].rank == rank;
        long long count = here && rank != self ? (long long)peers->at[at].count : 0;
        lierne_text_add(text, i ? ",%lld" : "%lld", count);
        at += here;
    }
    lierne_text_add(text, "]");
}

static void write_graph(lierne_text *text, const lierne_star_forest_saved_spec *r) {
    const lierne_star_forest_graph *g = &r->graph;
    lierne_text_add(text, ",\n \"nrows\": %lld", (long long)r->nrows);
    write_ints(text, "owned", g->owned, r->forest.nowned);
    write_ints(text, "needed", g->ghosts, r->forest.nghosts);
    lierne_text_add(text, ",\n \"edge_index_local\": [");
    lierne_text_numbers(text, g->edge_source, g->nedges);
    lierne_text_add(text, ",");
    lierne_text_numbers(text, g->edge_target, g->nedges);
    lierne_text_add(text, "]");
    write_ints(text, "local_edge_idx", g->local_edges, g->nlocal_edges);
    write_ints(text, "remote_edge_idx", g->remote_edges, g->nremote_edges);
}

static void write_saved_spec(const lierne_saved_spec *base, lierne_text *text) {
    const lierne_star_forest_saved_spec *r = (const lierne_star_forest_saved_spec *)base;
    const lierne_star_forest *f = &r->forest;
    lierne_text_add(text, "{\"kind\": \"%s\", ", r->nrows < 0 ? "references" : "graph");
    lierne_spec_table_write(&lierne_references_table, &r->spec, text);
    lierne_text_add(text, ",\n \"nghosts\": %lld", (long long)f->nghosts);
    write_roots(text, f);
    write_counts(text, "recv_counts", &f->senders, r->members, f->rank);
    write_counts(text, "send_counts", &f->receivers, r->members, f->rank);
    write_ints(text, "send_indices", f->sent, f->nsent);
    if (r->nrows >= 0) {
        write_graph(text, r);
    }
    lierne_text_add(text, "}\n");
}

lierne_status lierne_star_forest_saved_spec_create(lierne_star_forest_saved_spec **out,
                                                   const lierne_star_forest_spec *spec,
                                                   const lierne_context *context) {
    const lierne_references_spec *references = &spec->references;
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    lierne_star_forest_saved_spec *r = *out;
    r->base = (lierne_saved_spec){.free = destroy_saved_spec, .write = write_saved_spec};
    r->members = &context->members;
    r->spec = *references;
    r->spec.name = NULL;
    r->spec.rank = NULL;
    r->spec.row = NULL;
    r->spec.stride = references->stride ? references->stride : references->width;
    r->forest =
        (lierne_star_forest){.rank = context->rank,
                             .nowned = references->nowned,
                             .nghosts = references->nghosts,
                             .width = references->width,
                             .stride = references->stride ? references->stride : references->width,
                             .combined = references->combined != 0,
                             .keep_ghosts = references->keep_ghosts != 0,
                             .accumulate = references->accumulate != 0,
                             .migrates = spec->migrates};
    r->nrows = -1;
    if (spec->graph) {
        r->nrows = spec->nrows;
        r->graph = *spec->graph;
        *spec->graph = (lierne_star_forest_graph){0};
    }
    return LIERNE_OK;
}

/* Ranks and counts of peers without this rank. */
static lierne_status list_peers(const lierne_peers *peers, int self, int32_t **ranks,
                                int64_t **counts, int64_t *n) {
    LIERNE_TRY(lierne_alloc(ranks, peers->count, sizeof **ranks));
    LIERNE_TRY(lierne_alloc(counts, peers->count, sizeof **counts));
    *n = 0;
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->at[i].rank != self) {
            (*ranks)[*n] = peers->at[i].rank;
            (*counts)[(*n)++] = peers->at[i].count;
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_star_forest_saved_spec_list(lierne_star_forest_saved_spec *r) {
    int64_t nreceivers;
    LIERNE_TRY(list_peers(&r->forest.senders, r->forest.rank, &r->sender_ranks, &r->sender_counts,
                          &r->nsenders));
    return list_peers(&r->forest.receivers, r->forest.rank, &r->receiver_ranks, &r->receiver_counts,
                      &nreceivers);
}

lierne_star_forest_saved_spec *lierne_star_forest_saved_spec_of(const lierne_plan *plan) {
    return plan ? (lierne_star_forest_saved_spec *)lierne_plan_saved_spec(plan, destroy_saved_spec)
                : NULL;
}

lierne_status lierne_star_forest_check_type(const lierne_star_forest_saved_spec *r,
                                            lierne_dtype dtype, int64_t width, int max_inflight) {
    int inflight = max_inflight ? max_inflight : 1;
    if (dtype != r->spec.dtype || width != r->spec.width || inflight != r->spec.max_inflight) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: dtype %d, width %lld and max_inflight %d differ from "
                           "the plan's %d, %lld, %d",
                           r->forest.rank, (int)dtype, (long long)width, inflight,
                           (int)r->spec.dtype, (long long)r->spec.width, r->spec.max_inflight);
    }
    return LIERNE_OK;
}

lierne_status lierne_plan_get_graph_lists(lierne_graph_lists *lists, const lierne_plan *plan) {
    LIERNE_PUBLIC_CALL();
    const lierne_star_forest_saved_spec *r = lierne_star_forest_saved_spec_of(plan);
    if (!r) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "plan is %s",
                           plan ? "not one of a graph, of references or of a migration" : "NULL");
    }
    const lierne_star_forest *f = &r->forest;
    const lierne_star_forest_graph *g = &r->graph;
    const lierne_graph_lists all = {.size = sizeof all,
                                    .nowned = f->nowned,
                                    .owned = g->owned,
                                    .nghosts = f->nghosts,
                                    .ghosts = g->ghosts,
                                    .nsenders = r->nsenders,
                                    .sender_ranks = r->sender_ranks,
                                    .sender_counts = r->sender_counts,
                                    .nreceivers = (int64_t)f->receivers.count,
                                    .receiver_ranks = r->receiver_ranks,
                                    .receiver_counts = r->receiver_counts,
                                    .receiver_rows = f->sent,
                                    .nedges = g->nedges,
                                    .edge_source = g->edge_source,
                                    .edge_target = g->edge_target,
                                    .nlocal_edges = g->nlocal_edges,
                                    .local_edges = g->local_edges,
                                    .nremote_edges = g->nremote_edges,
                                    .remote_edges = g->remote_edges};
    return lierne_spec_give(lists, &all, sizeof all, "lists");
}
