/* A copy of the swaps that lives as long as their plan: for queries, restricting, flattening and
 * serializing. The caller's lists usually end with the next neighbor list. */
#include "plan/halo/halo.h"

#include <string.h>

static int64_t rows_sent(const lierne_halo_spec *spec) {
    int64_t n = 0;
    for (int s = 0; s < spec->nswap; s++) {
        n += spec->sendnum[s];
    }
    return n;
}

static lierne_status reserve_spec(lierne_halo_saved_spec *r) {
    size_t n = (size_t)r->spec.nswap;
    LIERNE_TRY(lierne_alloc(&r->procs, 2 * n, sizeof *r->procs));
    LIERNE_TRY(lierne_alloc(&r->nums, 3 * n, sizeof *r->nums));
    LIERNE_TRY(lierne_alloc(&r->lists, n, sizeof *r->lists));
    LIERNE_TRY(lierne_alloc(&r->rows, (size_t)rows_sent(&r->spec), sizeof *r->rows));
    if (n > 0) {
        LIERNE_TRY(lierne_alloc(&r->root_rank, (size_t)r->spec.nghost, sizeof *r->root_rank));
        LIERNE_TRY(lierne_alloc(&r->root_row, (size_t)r->spec.nghost, sizeof *r->root_row));
    }
    return LIERNE_OK;
}

/* Copies the caller's arrays that r->spec points to, and lets it point to the copies. */
static void take_arrays(lierne_halo_saved_spec *r) {
    lierne_halo_spec *spec = &r->spec;
    int64_t *rows = r->rows, ghost = spec->nlocal;
    int n = spec->nswap;
    for (int s = 0; s < n; s++) {
        r->procs[s] = spec->sendproc[s];
        r->procs[n + s] = spec->recvproc[s];
        r->nums[s] = spec->sendnum[s];
        r->nums[n + s] = spec->recvnum[s];
        r->nums[2 * n + s] = ghost;
        r->lists[s] = rows;
        if (r->nums[s] > 0) {
            memcpy(rows, spec->sendlist[s], (size_t)r->nums[s] * sizeof *rows);
        }
        rows += r->nums[s];
        ghost += r->nums[n + s];
    }
    spec->sendproc = r->procs;
    spec->recvproc = r->procs + n;
    spec->sendnum = r->nums;
    spec->recvnum = r->nums + n;
    spec->sendlist = r->lists;
    r->first = r->nums + 2 * n;
}

static void write_ranks(lierne_text *text, const char *key, const int *ranks, int n) {
    lierne_text_add(text, ",\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        lierne_text_add(text, i ? ",%d" : "%d", ranks[i]);
    }
    lierne_text_add(text, "]");
}

static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_halo_spec, dtype, DTYPE, BOTH),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, width, I64, BOTH),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, stride, I64, SAVED),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, keep_ghosts, BOOL, BOTH),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, max_inflight, INFLIGHT, BOTH),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, nlocal, I64, SAVED),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, nghost, I64, SAVED),
    LIERNE_SPEC_NUMBER(lierne_halo_spec, nswap, INT, SAVED),
};
const lierne_spec_table lierne_halo_table = LIERNE_SPEC_TABLE(numbers);

static void write_spec(const lierne_saved_spec *saved, lierne_text *text) {
    static const char *const counts[] = {"sendnum", "recvnum", "firstrecv"};
    const lierne_halo_saved_spec *r = (const lierne_halo_saved_spec *)saved;
    const lierne_halo_spec *spec = &r->spec;
    lierne_text_add(text, "{\"kind\":\"halo\",");
    lierne_spec_table_write(&lierne_halo_table, spec, text);
    write_ranks(text, "sendproc", spec->sendproc, spec->nswap);
    write_ranks(text, "recvproc", spec->recvproc, spec->nswap);
    for (int i = 0; i < 3; i++) {
        lierne_text_add(text, ",\"%s\":", counts[i]);
        lierne_text_numbers(text, r->nums + i * spec->nswap, spec->nswap);
    }
    lierne_text_add(text, ",\"sendlist\":[");
    for (int s = 0; s < spec->nswap; s++) {
        lierne_text_add(text, s ? "," : "");
        lierne_text_numbers(text, spec->sendlist[s], spec->sendnum[s]);
    }
    lierne_text_add(text, "]}");
}

lierne_status lierne_halo_saved_spec_create(lierne_halo_saved_spec **out,
                                            const lierne_halo_spec *spec) {
    lierne_halo_saved_spec *r;
    LIERNE_TRY(lierne_alloc(&r, 1, sizeof *r));
    r->base = (lierne_saved_spec){.free = lierne_halo_saved_spec_destroy, .write = write_spec};
    r->spec = *spec;
    r->spec.name = NULL;
    r->spec.stride = spec->stride ? spec->stride : spec->width;
    r->spec.max_inflight = spec->max_inflight ? spec->max_inflight : 1;
    r->spec.keep_ghosts = spec->keep_ghosts != 0;
    lierne_status status = reserve_spec(r);
    if (status != LIERNE_OK) {
        lierne_halo_saved_spec_destroy(&r->base);
        return status;
    }
    take_arrays(r);
    *out = r;
    return LIERNE_OK;
}

void lierne_halo_saved_spec_destroy(lierne_saved_spec *saved) {
    lierne_halo_saved_spec *r = (lierne_halo_saved_spec *)saved;
    lierne_mem_free(r->procs);
    lierne_mem_free(r->nums);
    lierne_mem_free(r->lists);
    lierne_mem_free(r->rows);
    lierne_mem_free(r->root_rank);
    lierne_mem_free(r->root_row);
    lierne_mem_free(r);
}
