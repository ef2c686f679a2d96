/* A step: one all-gather, then every rank computes the same assignment and the same segments, and
 * changes its plans without a message.
 *
 * All that a rank may find alone is in the head of its block, so that every rank sees that another
 * one failed, or has other settings. Only then they agree, which gives all of them its error. What
 * is checked after the gather is checked by all ranks on the same numbers. */
#include "plan/samples/sample_routing.h"

#include "lierne/redistribute.h"

#include <string.h>

/* The error of a rank, while its call goes on. */
typedef struct kept_error {
    lierne_status status;
    char text[LIERNE_MESSAGE_SIZE];
} kept_error;

static void keep_error(kept_error *kept, lierne_status status) {
    kept->status = status;
    if (status != LIERNE_OK) {
        memcpy(kept->text, lierne_error_text(), strlen(lierne_error_text()) + 1);
    }
}

/* Collective: that of the lowest rank that has one, or MISMATCH. */
static lierne_status agree(const lierne_samples *s, const kept_error *kept,
                           const lierne_field *fields, size_t n) {
    if (kept->status != LIERNE_OK) {
        lierne_set_error(kept->text);
    }
    return lierne_context_agree_all(s->context, kept->status, fields, n, NULL);
}

/* Whether some rank failed, or has other settings than rank 0: the same on every rank. */
static bool disagree(const lierne_samples *s) {
    int64_t settings = lierne_sample_block_of(s, 0).head[LIERNE_SAMPLE_SETTINGS];
    bool other = false;
    for (int p = 0; p < s->nranks; p++) {
        const int64_t *head = lierne_sample_block_of(s, p).head;
        other |=
            head[LIERNE_SAMPLE_STATUS] != LIERNE_OK || head[LIERNE_SAMPLE_SETTINGS] != settings;
    }
    return other;
}

static lierne_status balance(lierne_samples *s, lierne_sample_routing *r, lierne_sample_step *step,
                             int which) {
    const lierne_items items = {.size = sizeof items,
                                .nitems = r->n,
                                .ncosts = s->spec.ncosts,
                                .cost = s->cost,
                                .rows = s->rows};
    lierne_balance_spec *spec = &step->balance[which];
    lierne_assignment_report report;
    spec->assignment = spec->mode == LIERNE_BALANCE_CALLER ? s->given[which] : NULL;
    return lierne_balance(r->owner[1 + which], r->load[1 + which], which ? &report : &r->report,
                          &s->memory, &items, s->counts, s->nranks, spec);
}

/* Loads of a cost where items are. */
static void add_loads(const lierne_samples *s, lierne_sample_routing *r, int owner, int cost) {
    memset(r->load[owner], 0, (size_t)s->nranks * sizeof *r->load[owner]);
    for (int64_t i = 0; i < r->n; i++) {
        r->load[owner][r->owner[owner][i]] += s->cost[i * s->spec.ncosts + cost];
    }
}

static lierne_status assign(lierne_samples *s, lierne_sample_routing *r, lierne_sample_step *step) {
    LIERNE_TRY(balance(s, r, step, 0));
    add_loads(s, r, 0, step->balance[0].cost);
    if (!step->returns_home) {
        return balance(s, r, step, 1);
    }
    memcpy(r->owner[2], r->owner[0], (size_t)r->n * sizeof *r->owner[2]);
    memcpy(r->load[2], r->load[0], (size_t)s->nranks * sizeof *r->load[2]);
    return LIERNE_OK;
}

/* Ranks have had as much memory until now, so all of them outgrow it in the same step. */
static lierne_status agree_on_memory(lierne_samples *s, lierne_status status) {
    const lierne_field field = {.name = "lierne_samples_update"};
    lierne_balance_memory larger = {0};
    kept_error kept;
    if (status == LIERNE_OK) {
        status = lierne_balance_reserve(&larger, s->memory.used);
    }
    keep_error(&kept, status);
    status = agree(s, &kept, &field, 1);
    if (status == LIERNE_OK) {
        lierne_balance_clear(&s->memory);
        s->memory = larger;
    } else {
        lierne_balance_clear(&larger);
    }
    return status;
}

static lierne_status assign_in_memory(lierne_samples *s, lierne_sample_routing *r,
                                      lierne_sample_step *step) {
    lierne_status status = assign(s, r, step);
    if (lierne_balance_outgrown(&s->memory)) {
        status = agree_on_memory(s, status);
    }
    lierne_balance_reset(&s->memory);
    return status;
}

/* Rows of a rank in a place, ascending ranks. */
static lierne_status check_place(const lierne_samples *s, const lierne_sample_routing *r,
                                 int place) {
    static const char *const names[] = {"HOME", "DISPATCHED", "COMPUTED", "RETURNED"};
    int owner = lierne_sample_place_owner(place), which = lierne_sample_place_rows(place);
    int64_t most = which ? s->spec.max_returned_rows : s->spec.max_rows;
    for (int p = 0; p < s->nranks; p++) {
        int64_t rows = 0;
        for (int64_t k = r->first[owner][p]; k < r->first[owner][p + 1]; k++) {
            int64_t i = r->permutation[owner][k];
            rows += r->boundaries[which][i + 1] - r->boundaries[which][i];
        }
        if (rows > most) {
            return LIERNE_FAIL(LIERNE_ERR_CAPACITY,
                               "rank %d of the assignment has %lld rows %s, must be at most %lld "
                               "(%s)",
                               p, (long long)rows, names[place], (long long)most,
                               which ? "max_returned_rows" : "max_rows");
        }
    }
    return LIERNE_OK;
}

/* From the blocks of all ranks to the routing that is not in use. */
static lierne_status find_routing(lierne_samples *s, lierne_sample_step *step) {
    lierne_sample_routing *r = &s->routings[!s->current];
    lierne_sample_blocks_read(s, r);
    LIERNE_TRY(assign_in_memory(s, r, step));
    lierne_sample_lists_fill(s, r);
    for (int place = 0; place < LIERNE_PLACES; place++) {
        LIERNE_TRY(check_place(s, r, place));
    }
    return LIERNE_OK;
}

/* Of a rank that failed: -1. */
static lierne_status gather_sizes(lierne_samples *s, const lierne_sample_step *step,
                                  const kept_error *kept) {
    bool failed = false;
    if (kept->status == LIERNE_OK) {
        const lierne_sample_size own = lierne_sample_step_size(step);
        s->counter.own[0] = own.items << 32 | own.segments;
    } else {
        s->counter.own[0] = -1;
    }
    LIERNE_TRY(lierne_host_gather_run(&s->counter));
    for (int p = 0; p < s->nranks; p++) {
        int64_t word = s->counter.blocks[p];
        s->sizes[p] = (lierne_sample_size){word >> 32, word & UINT32_MAX};
        failed |= word < 0;
    }
    return failed ? agree(s, kept, step->fields, step->nfields) : lierne_samples_grow_lists(s);
}

static lierne_status gather_blocks(lierne_samples *s) {
    int64_t words = lierne_sample_block_words(&s->spec, s->sizes[s->context->index]);
    return lierne_samples_count_first(s) ? lierne_host_gather_exchange(&s->gather, (size_t)words)
                                         : lierne_host_gather_run(&s->gather);
}

lierne_status lierne_samples_update(lierne_samples *samples, const lierne_items *items,
                                    const lierne_balance_spec *balance_spec,
                                    const lierne_balance_spec *destination) {
    LIERNE_PUBLIC_CALL();
    lierne_sample_step step = {.nfields = 0};
    kept_error kept;
    LIERNE_TRY(lierne_check_set(samples, "samples"));
    LIERNE_TRY(lierne_context_alive(samples->context));
    lierne_status status = lierne_samples_check_changeable(samples);
    if (status == LIERNE_OK) {
        status = lierne_sample_step_take(&step, samples, items, balance_spec, destination);
    }
    keep_error(&kept, status);
    if (lierne_samples_count_first(samples)) {
        LIERNE_TRY(gather_sizes(samples, &step, &kept));
    }
    lierne_sample_block_write(samples, &step, status);
    LIERNE_TRY(gather_blocks(samples));
    if (disagree(samples)) {
        return agree(samples, &kept, step.fields, step.nfields);
    }
    LIERNE_TRY(find_routing(samples, &step));
    LIERNE_TRY(lierne_samples_grow_plans(samples));
    for (int i = 0; i < samples->ntensors; i++) {
        LIERNE_TRY(lierne_samples_update_plan(samples, &samples->routings[!samples->current], i));
    }
    samples->current = !samples->current;
    return LIERNE_OK;
}
