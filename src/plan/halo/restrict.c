/* Swaps without some of their rows.
 *
 * Each rank filters its own lists with its own mask. Both ends of a swap then match only if they
 * keep the same rows, which the reference does not check. Here the mask is sent through the swaps
 * like rows, and compared with the receiver's. */
#include "plan/halo/halo.h"

/* Swaps that are filtered. */
typedef struct filter {
    const lierne_halo_saved_spec *saved;
    const lierne_halo_spec *old;
    int64_t *keep;  /* of each row, 0 or 1 */
    int64_t *moved; /* its new number */
    int64_t *buffer;
    int64_t *nums; /* sent and received by each swap */
    int64_t *rows; /* new lists, one after the other */
    const int64_t **lists;
    lierne_halo_spec spec;
} filter;

static void free_filter(const lierne_context *context, filter *c) {
    lierne_mem_free(c->keep);
    lierne_mem_free(c->moved);
    lierne_context_free_message_memory(context, c->buffer); /* messages point into it */
    lierne_mem_free(c->nums);
    lierne_mem_free(c->rows);
    lierne_mem_free(c->lists);
}

static lierne_status fill_filter(filter *c, const uint8_t *keep, int rank) {
    const lierne_halo_spec *old = c->old;
    size_t rows = (size_t)(old->nlocal + old->nghost), swaps = (size_t)old->nswap, sent = 0;
    if (!keep && rows > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: keep is NULL, must have %zu entries", rank,
                           rows);
    }
    for (size_t s = 0; s < swaps; s++) {
        sent += (size_t)old->sendnum[s];
    }
    LIERNE_TRY(lierne_alloc(&c->keep, rows, sizeof *c->keep));
    LIERNE_TRY(lierne_alloc(&c->moved, rows, sizeof *c->moved));
    LIERNE_TRY(lierne_alloc(&c->nums, 2 * swaps, sizeof *c->nums));
    LIERNE_TRY(lierne_alloc(&c->rows, sent, sizeof *c->rows));
    LIERNE_TRY(lierne_alloc(&c->lists, swaps, sizeof *c->lists));
    LIERNE_TRY(lierne_halo_reserve_labels(&c->buffer, old, 1));
    for (size_t i = 0; i < rows; i++) {
        c->keep[i] = keep[i] != 0;
    }
    return LIERNE_OK;
}

/* Ghosts of swap s: whether its sender keeps the same ones. keep has what senders said, mask what
 * this rank was given. */
static lierne_status compare_swap(const filter *c, const uint8_t *mask, int rank, int s) {
    int64_t first = c->saved->first[s];
    for (int64_t i = first; i < first + c->old->recvnum[s]; i++) {
        if (c->keep[i] != (mask[i] != 0)) {
            return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                               "swap %d: rank %d %s its ghost row %lld, which rank %d %s", s, rank,
                               mask[i] ? "keeps" : "drops", (long long)i, c->old->recvproc[s],
                               mask[i] ? "drops" : "keeps");
        }
    }
    return LIERNE_OK;
}

static lierne_status compare_mask(const filter *c, const uint8_t *mask, int rank) {
    for (int s = 0; s < c->old->nswap; s++) {
        LIERNE_TRY(compare_swap(c, mask, rank, s));
    }
    return LIERNE_OK;
}

/* Numbers the kept rows among n rows from first on: next, next + 1, ... Returns how many. */
static int64_t number(filter *c, int64_t first, int64_t n, int64_t next) {
    int64_t kept = 0;
    for (int64_t i = first; i < first + n; i++) {
        c->moved[i] = next + kept;
        kept += c->keep[i];
    }
    return kept;
}

static void apply(filter *c) {
    const lierne_halo_spec *old = c->old;
    int64_t *rows = c->rows;
    c->spec = *old;
    c->spec.nlocal = number(c, 0, old->nlocal, 0);
    c->spec.nghost = number(c, old->nlocal, old->nghost, c->spec.nlocal);
    for (int s = 0; s < old->nswap; s++) {
        int64_t first = c->saved->first[s];
        c->lists[s] = rows;
        for (int64_t i = 0; i < old->sendnum[s]; i++) {
            if (c->keep[old->sendlist[s][i]]) {
                *rows++ = c->moved[old->sendlist[s][i]];
                c->nums[s]++;
            }
        }
        for (int64_t i = first; i < first + old->recvnum[s]; i++) {
            c->nums[old->nswap + s] += c->keep[i];
        }
    }
    c->spec.sendnum = c->nums;
    c->spec.recvnum = c->nums + old->nswap;
    c->spec.sendlist = c->lists;
}

/* What this rank can check alone, and the memory. */
static lierne_status prepare_filter(filter *c, const lierne_halo_saved_spec *r, const void *out,
                                    const uint8_t *keep, int rank) {
    if (!r || !out) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s", rank,
                           r ? "out is NULL" : "the plan is not one of swaps");
    }
    c->saved = r;
    c->old = &r->spec;
    return fill_filter(c, keep, rank);
}

lierne_status lierne_plan_create_restricted(lierne_plan **out, const lierne_plan *plan,
                                            const uint8_t *keep) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    const lierne_halo_saved_spec *r = lierne_halo_saved_spec_of(plan);
    filter c = {0};
    LIERNE_TRY(lierne_check_set(plan, "plan"));
    lierne_context *context = lierne_plan_context(plan);
    LIERNE_TRY(lierne_context_alive(context));
    const lierne_field fields[] = {{.name = "lierne_plan_create_restricted"},
                                   {.name = "plan", .value = lierne_plan_get_number(plan)}};
    lierne_status status = prepare_filter(&c, r, out, keep, context->rank);
    status = lierne_context_agree_all(context, status, fields, 2, NULL);
    if (status == LIERNE_OK) {
        const lierne_halo_labels labels = {.n = 1,
                                           .owned = c.keep,
                                           .ghosts = c.keep + c.old->nlocal,
                                           .buffer = c.buffer};
        status = lierne_halo_propagate(context, &r->spec, &labels);
        if (status == LIERNE_OK) {
            status = compare_mask(&c, keep, context->rank);
        }
        if (status == LIERNE_OK) {
            apply(&c);
        }
        if (context->dead == LIERNE_OK) {
            c.spec.name = lierne_plan_get_name(plan);
            status = lierne_halo_plan(out, context, status, &c.spec);
        }
    }
    free_filter(context, &c);
    return status;
}
