/* Plans of swaps from their texts. */
#include "plan/halo/halo.h"
#include "plan/reader.h"

#include <limits.h>

typedef struct contents {
    lierne_halo_spec spec;
    int *procs[2];
    int64_t *nums[2];
    int64_t *rows; /* of all swaps */
    const int64_t **lists;
} contents;

static void destroy(void *spec) {
    contents *s = spec;
    if (!s) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        lierne_mem_free(s->procs[i]);
        lierne_mem_free(s->nums[i]);
    }
    lierne_mem_free(s->rows);
    lierne_mem_free(s->lists);
    lierne_mem_free(s);
}

static lierne_status read_procs(const lierne_plan_reader *r, const char *key, int nswap,
                                int **out) {
    int64_t *values = NULL;
    lierne_status status = lierne_plan_reader_get_list(r, key, nswap, &values);
    if (status == LIERNE_OK) {
        status = lierne_alloc(out, (size_t)nswap, sizeof **out);
    }
    for (int s = 0; s < nswap && status == LIERNE_OK; s++) {
        /* A number that does not fit an int is no rank, and neither is -1. */
        (*out)[s] = values[s] < 0 || values[s] > INT_MAX ? -1 : (int)values[s];
    }
    lierne_mem_free(values);
    return status;
}

static lierne_status read_lists(contents *c, const lierne_plan_reader *r) {
    const lierne_json_node *lists;
    size_t total = 0;
    LIERNE_TRY(lierne_plan_reader_find(r, "sendlist", LIERNE_JSON_ARRAY, &lists));
    if (lists->count != c->spec.nswap) {
        return lierne_plan_reader_reject(lists, "sendlist", "an array of nswap lists");
    }
    LIERNE_TRY(lierne_alloc(&c->lists, (size_t)lists->count, sizeof *c->lists));
    LIERNE_TRY(lierne_alloc(&c->rows, (size_t)(lists->end - (int)(lists - r->doc.nodes.at)),
                            sizeof *c->rows));
    const lierne_json_node *node = lierne_json_first(lists);
    for (int s = 0; node; s++, node = lierne_json_next(&r->doc, node)) {
        if (node->type != LIERNE_JSON_ARRAY || node->count != c->nums[0][s]) {
            return lierne_plan_reader_reject(node, "sendlist", "an array of sendnum rows");
        }
        LIERNE_TRY(lierne_plan_reader_integers(r, node, "sendlist", c->rows + total));
        c->lists[s] = c->rows + total;
        total += (size_t)node->count;
    }
    return LIERNE_OK;
}

static lierne_status read_swaps(contents *s, const lierne_plan_reader *r) {
    lierne_halo_spec *h = &s->spec;
    LIERNE_TRY(read_procs(r, "sendproc", h->nswap, &s->procs[0]));
    LIERNE_TRY(read_procs(r, "recvproc", h->nswap, &s->procs[1]));
    LIERNE_TRY(lierne_plan_reader_get_list(r, "sendnum", h->nswap, &s->nums[0]));
    LIERNE_TRY(lierne_plan_reader_get_list(r, "recvnum", h->nswap, &s->nums[1]));
    LIERNE_TRY(read_lists(s, r));
    h->sendproc = s->procs[0];
    h->recvproc = s->procs[1];
    h->sendnum = s->nums[0];
    h->recvnum = s->nums[1];
    h->sendlist = s->lists;
    return LIERNE_OK;
}

/* The rows that messages contain. That every rank receives as many as are sent, planning checks. */
static lierne_status check_rows(const lierne_halo_spec *h, const lierne_plan_reader *r) {
    int64_t rows = h->nghost;
    for (int s = 0; s < h->nswap; s++) {
        rows = lierne_add_i64(rows, h->sendnum[s], &rows) ? rows : INT64_MAX;
    }
    return lierne_plan_reader_check_rows(r, rows, h->width, h->dtype, h->max_inflight);
}

static lierne_status read(void **spec, const lierne_plan_reader *r) {
    contents *s;
    LIERNE_TRY(lierne_alloc(&s, 1, sizeof *s));
    *spec = s;
    lierne_halo_spec *h = &s->spec;
    h->size = sizeof *h;
    LIERNE_TRY(lierne_spec_table_read(&lierne_halo_table, h, r));
    LIERNE_TRY(read_swaps(s, r));
    return check_rows(h, r);
}

static lierne_status create_halo(lierne_plan **out, lierne_context *context, void *spec) {
    return lierne_plan_create_halo(out, context, &((contents *)spec)->spec);
}

const lierne_plan_format lierne_halo_format = {"halo", read, create_halo, destroy};
