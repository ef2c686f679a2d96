/* What ranks tell each other in an update: blocks of one size, whatever a rank has, so that the
 * all-gather is planned once; without a capacity, blocks of what each rank has.
 *
 * Costs travel as they are and are checked by every rank alike, with the number of the item among
 * all. Rows travel as 32 bits, so their own rank checks them. */
#include "plan/samples/sample_routing.h"

#include <stdio.h>
#include <string.h>

#define MOST_ROWS ((int64_t)1 << 31)

/* Whether blocks say how many segments each item has. */
static bool lists_segments(const lierne_samples_spec *spec) {
    return spec->max_local_segments > 0 || spec->max_local_items == 0;
}

lierne_sample_size lierne_sample_size_most(const lierne_samples_spec *spec) {
    if (spec->max_local_items == 0) {
        return (lierne_sample_size){INT32_MAX, INT32_MAX};
    }
    return (lierne_sample_size){spec->max_local_items, spec->max_local_segments
                                                           ? spec->max_local_segments
                                                           : spec->max_local_items};
}

/* 32 bits per segment and array of rows, per item and list. */
int64_t lierne_sample_block_words(const lierne_samples_spec *spec, lierne_sample_size size) {
    int64_t lists = lists_segments(spec) + (spec->caller ? 2 : 0);
    return LIERNE_SAMPLE_HEAD + size.items * spec->ncosts +
           (2 * size.segments + lists * size.items + 1) / 2;
}

static lierne_sample_block block_at(const lierne_samples *s, int64_t *words,
                                    lierne_sample_size size) {
    lierne_sample_block b = {.head = words, .cost = words + LIERNE_SAMPLE_HEAD};
    void *halves = b.cost + size.items * s->spec.ncosts;
    int32_t *at = halves;
    for (int k = 0; k < 2; k++, at += size.segments) {
        b.rows[k] = (uint32_t *)at;
    }
    if (lists_segments(&s->spec)) {
        b.segments = at;
        at += size.items;
    }
    for (int k = 0; s->spec.caller && k < 2; k++, at += size.items) {
        b.given[k] = at;
    }
    return b;
}

lierne_sample_block lierne_sample_block_of(const lierne_samples *s, int p) {
    return block_at(s, s->gather.blocks + s->first_word[p], s->sizes[p]);
}

static int64_t count_segments(const lierne_items *items, int64_t item) {
    return items->segments ? items->segments[item] : 1;
}

static int64_t rows_of(const lierne_items *items, int which, int64_t segment) {
    return which && items->returned_rows ? items->returned_rows[segment]
           : items->rows                 ? items->rows[segment]
                                         : items->cost[segment * items->ncosts];
}

static lierne_status check_rows(const lierne_samples *s, const lierne_items *items, int64_t item,
                                int64_t segment, int which) {
    static const char *const names[] = {"rows", "returned rows"};
    int64_t sum = 0;
    for (int64_t k = 0; k < count_segments(items, item); k++) {
        int64_t rows = rows_of(items, which, segment + k);
        sum = rows < 0 || rows >= MOST_ROWS ? rows : sum + rows;
        if (sum < 0 || sum >= MOST_ROWS) {
            return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                               "rank %d: item %lld of its own: %s%s is %lld, must be 0 to %lld",
                               s->context->rank, (long long)item, rows < 0 ? "" : "the sum of its ",
                               names[which], (long long)sum, (long long)MOST_ROWS - 1);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_capacity(const lierne_samples *s, const char *what, int64_t count,
                                    int64_t most, const char *field) {
    return count <= most
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_CAPACITY,
                             "rank %d: it has %lld %s, must be at most %lld (%s)", s->context->rank,
                             (long long)count, what, (long long)most, field);
}

static lierne_status check_each(const lierne_samples *s, const lierne_items *items) {
    int64_t segment = 0;
    for (int64_t i = 0; i < items->nitems; i++) {
        int64_t n = count_segments(items, i);
        if (n < 0) {
            return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                               "rank %d: item %lld of its own: its number of segments is %lld, "
                               "must be at least 0",
                               s->context->rank, (long long)i, (long long)n);
        }
        LIERNE_TRY(check_capacity(s, "segments", segment + n,
                                  lierne_sample_size_most(&s->spec).segments,
                                  "max_local_segments"));
        LIERNE_TRY(check_rows(s, items, i, segment, 0));
        LIERNE_TRY(check_rows(s, items, i, segment, 1));
        segment += n;
    }
    return LIERNE_OK;
}

static lierne_status check_items(const lierne_samples *s, const lierne_items *items) {
    int rank = s->context->rank;
    if (items->nitems < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: nitems is %lld, must be at least 0", rank,
                           (long long)items->nitems);
    }
    LIERNE_TRY(check_capacity(s, "items", items->nitems, lierne_sample_size_most(&s->spec).items,
                              "max_local_items"));
    if (items->nitems == 0) {
        return LIERNE_OK;
    }
    if (items->ncosts != s->spec.ncosts) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: ncosts is %d, must be %d as when the samples were created",
                           rank, items->ncosts, s->spec.ncosts);
    }
    LIERNE_TRY(lierne_check_set(items->cost, "cost"));
    if (items->segments && !items->rows) {
        return lierne_check_set(items->rows, "rows");
    }
    if (items->segments && !lists_segments(&s->spec)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: segments is set, and max_local_segments is 0", rank);
    }
    return check_each(s, items);
}

static lierne_status take_balance(lierne_sample_step *step, const lierne_samples *s, int which,
                                  const lierne_balance_spec *given) {
    lierne_balance_spec *b = &step->balance[which];
    const char *name = which ? "destination" : "balance";
    LIERNE_TRY(lierne_spec_take(b, sizeof *b, given, name));
    if (b->mode == LIERNE_BALANCE_CALLER && !s->spec.caller) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: %s->mode is %d (CALLER), and the samples were created with "
                           "caller 0",
                           s->context->rank, name, (int)b->mode);
    }
    bool calls = b->mode == LIERNE_BALANCE_CALLER;
    if (b->assignment ? !calls : calls && step->items.nitems > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: %s->assignment is %s in mode %d",
                           s->context->rank, name, b->assignment ? "set" : "NULL", (int)b->mode);
    }
    return LIERNE_OK;
}

static void add_field(lierne_sample_step *step, const char *name, int64_t value) {
    lierne_field *f = &step->fields[step->nfields++];
    *f = (lierne_field){.value = value};
    snprintf(f->name, sizeof f->name, "%s", name);
}

/* A rank that made a call before the update and one that makes it after would move other rows. */
static int64_t count_calls(const lierne_samples *s, lierne_direction direction) {
    int64_t calls = 0;
    for (int i = 0; i < s->ntensors; i++) {
        calls += lierne_plan_calls(s->plans[i], direction);
    }
    return calls;
}

static void add_fields(lierne_sample_step *step, const lierne_samples *s) {
    static const char *const names[2][8] = {
        {"balance->mode", "balance->cost", "balance->tolerance", "balance->max_items",
         "balance->max_rows", "balance->min_items", "balance->equal_items", "balance->nodes"},
        {"destination->mode", "destination->cost", "destination->tolerance",
         "destination->max_items", "destination->max_rows", "destination->min_items",
         "destination->equal_items", "destination->nodes"}};
    add_field(step, "lierne_samples_update", 0);
    add_field(step, "samples", lierne_plan_get_number(s->plans[0]));
    add_field(step, "destination is NULL", step->returns_home);
    add_field(step, "calls of forward", count_calls(s, LIERNE_DIRECTION_FORWARD));
    add_field(step, "calls of adjoint", count_calls(s, LIERNE_DIRECTION_ADJOINT));
    for (int k = 0; k < 2; k++) {
        const lierne_balance_spec *b = &step->balance[k];
        const int64_t values[] = {(int64_t)b->mode, b->cost,      b->tolerance,       b->max_items,
                                  b->max_rows,      b->min_items, b->equal_items != 0};
        for (int i = 0; i < 7; i++) {
            add_field(step, names[k][i], values[i]);
        }
        step->fields[step->nfields++] = lierne_field_list(names[k][7], LIERNE_ITEM_I32, b->nodes,
                                                          b->nodes ? (size_t)s->nranks : 0);
    }
}

lierne_status lierne_sample_step_take(lierne_sample_step *step, const lierne_samples *s,
                                      const lierne_items *items, const lierne_balance_spec *balance,
                                      const lierne_balance_spec *destination) {
    *step = (lierne_sample_step){.returns_home = !destination};
    LIERNE_TRY(lierne_spec_take(&step->items, sizeof step->items, items, "items"));
    LIERNE_TRY(check_items(s, &step->items));
    LIERNE_TRY(take_balance(step, s, 0, balance));
    if (destination) {
        LIERNE_TRY(take_balance(step, s, 1, destination));
    }
    add_fields(step, s);
    return LIERNE_OK;
}

lierne_sample_size lierne_sample_step_size(const lierne_sample_step *step) {
    const lierne_items *items = &step->items;
    lierne_sample_size size = {items->nitems, 0};
    for (int64_t i = 0; i < items->nitems; i++) {
        size.segments += count_segments(items, i);
    }
    return size;
}

void lierne_sample_block_write(const lierne_samples *s, const lierne_sample_step *step,
                               lierne_status status) {
    const lierne_items *items = &step->items;
    lierne_sample_block b = block_at(s, s->gather.own, s->sizes[s->context->index]);
    int64_t n = status == LIERNE_OK ? items->nitems : 0, segment = 0;
    b.head[LIERNE_SAMPLE_STATUS] = status;
    b.head[LIERNE_SAMPLE_ITEMS] = n;
    b.head[LIERNE_SAMPLE_SETTINGS] = (int64_t)lierne_fields_hash(step->fields, step->nfields);
    if (n > 0) {
        memcpy(b.cost, items->cost, (size_t)(n * items->ncosts) * sizeof *b.cost);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t end = segment + count_segments(items, i);
        if (b.segments) {
            b.segments[i] = (int32_t)(end - segment);
        }
        for (; segment < end; segment++) {
            b.rows[0][segment] = (uint32_t)rows_of(items, 0, segment);
            b.rows[1][segment] = (uint32_t)rows_of(items, 1, segment);
        }
        for (int k = 0; b.given[0] && k < 2; k++) {
            const int32_t *given = step->balance[k].assignment;
            b.given[k][i] = given ? given[i] : 0;
        }
    }
}

void lierne_sample_blocks_read(lierne_samples *s, lierne_sample_routing *r) {
    int64_t at = 0;
    for (int p = 0; p < s->nranks; p++) {
        lierne_sample_block b = lierne_sample_block_of(s, p);
        int64_t n = s->counts[p] = b.head[LIERNE_SAMPLE_ITEMS], segment = 0;
        memcpy(s->cost + at * s->spec.ncosts, b.cost,
               (size_t)(n * s->spec.ncosts) * sizeof *b.cost);
        for (int64_t i = 0; i < n; i++, at++) {
            int64_t sums[3] = {0, 0, b.segments ? b.segments[i] : 1}, end = segment + sums[2];
            for (; segment < end; segment++) {
                sums[0] += b.rows[0][segment];
                sums[1] += b.rows[1][segment];
            }
            s->rows[at] = sums[0];
            r->owner[0][at] = p;
            for (int k = 0; k < 3; k++) {
                r->boundaries[k][at + 1] = r->boundaries[k][at] + sums[k];
            }
            for (int k = 0; b.given[0] && k < 2; k++) {
                s->given[k][at] = b.given[k][i];
            }
        }
    }
    r->n = at;
}
