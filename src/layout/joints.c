/* Runs as pieces of a joined axis.
 *
 * Runs are given in any order. Sorted by row and by token, neighbours show what overlaps, and equal
 * descriptions are equal lists, which ranks compare. Only once something overlaps is it searched
 * which run of the list is the first to do so. */
#include "layout/joints.h"

#include <string.h>

lierne_status lierne_image_runs_check(const lierne_image_run *runs, int64_t n) {
    if (n < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nruns is %lld, must be at least 0", (long long)n);
    }
    return runs || n == 0
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "runs is NULL, and nruns is %lld", (long long)n);
}

lierne_status lierne_joints_create(lierne_joints *j, int64_t capacity) {
    size_t n = (size_t)capacity;
    *j = (lierne_joints){.capacity = capacity};
    LIERNE_TRY(lierne_alloc(&j->at, n, sizeof *j->at));
    LIERNE_TRY(lierne_alloc(&j->spare, n, sizeof *j->spare));
    LIERNE_TRY(lierne_alloc(&j->keys, n, sizeof *j->keys));
    return lierne_alloc(&j->spare_keys, n, sizeof *j->spare_keys);
}

void lierne_joints_destroy(lierne_joints *j) {
    lierne_mem_free(j->at);
    lierne_mem_free(j->spare);
    lierne_mem_free(j->keys);
    lierne_mem_free(j->spare_keys);
}

static lierne_status check_field(int64_t run, const char *field, int64_t value, int64_t least,
                                 int64_t most) {
    return value >= least && value <= most
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE,
                             "runs[%lld].%s is %lld, must be in %lld to %lld", (long long)run,
                             field, (long long)value, (long long)least, (long long)most);
}

/* The rest of an image or segment bounds the length; compared without a sum, which may overflow. */
static lierne_status take_run(lierne_joint *joint, int64_t i, const lierne_image_run *run,
                              const lierne_packed *images, const lierne_packed *segments) {
    LIERNE_TRY(check_field(i, "image", run->image, 0, images->n - 1));
    LIERNE_TRY(check_field(i, "segment", run->segment, 0, segments->n - 1));
    int64_t rows = images->cu[run->image + 1] - images->cu[run->image];
    int64_t tokens = segments->cu[run->segment + 1] - segments->cu[run->segment];
    LIERNE_TRY(check_field(i, "row", run->row, 0, rows - 1));
    LIERNE_TRY(check_field(i, "position", run->position, 0, tokens - 1));
    rows -= run->row;
    tokens -= run->position;
    LIERNE_TRY(check_field(i, "length", run->length, 1, rows < tokens ? rows : tokens));
    *joint = (lierne_joint){.size = run->length,
                            .segment = {run->image, run->segment},
                            .index = {images->cu[run->image] + run->row,
                                      segments->cu[run->segment] + run->position}};
    return LIERNE_OK;
}

/* Sorts keys of the first n joints, which are in the order of the list, by an index. */
static void sort_by(lierne_joints *j, int64_t n, int side) {
    uint64_t most = 0;
    bool sorted = true;
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = (uint64_t)j->at[i].index[side];
        sorted = sorted && (i == 0 || j->keys[i - 1].key <= key);
        j->keys[i] = (lierne_keyed){.key = key, .value = i};
        most = key > most ? key : most;
    }
    if (!sorted) {
        lierne_sort_keyed(j->keys, j->spare_keys, (size_t)n, most);
    }
}

/* Whether two of the first n joints have an index of a side in common. */
static bool overlaps(lierne_joints *j, int64_t n, int side) {
    sort_by(j, n, side);
    for (int64_t i = 1; i < n; i++) {
        const lierne_joint *last = &j->at[j->keys[i - 1].value], *next = &j->at[j->keys[i].value];
        if (next->index[side] - last->index[side] < last->size) {
            return true;
        }
    }
    return false;
}

/* The first joint of the list that overlaps one before it, where some do. */
static int64_t find_overlapping(lierne_joints *j, int side) {
    int64_t low = 1, high = j->n; /* so many do not, so many do */
    while (low + 1 < high) {
        int64_t middle = low + (high - low) / 2;
        bool found = overlaps(j, middle, side);
        low = found ? low : middle;
        high = found ? middle : high;
    }
    return high - 1;
}

static lierne_status check_tokens(lierne_joints *j) {
    if (!overlaps(j, j->n, 1)) {
        return LIERNE_OK;
    }
    int64_t i = find_overlapping(j, 1);
    return LIERNE_FAIL(LIERNE_ERR_OVERLAP,
                       "runs[%lld]: of its %lld tokens from token %lld on, a run before it has "
                       "some: runs must not overlap",
                       (long long)i, (long long)j->at[i].size, (long long)j->at[i].index[1]);
}

static lierne_status check_repeats(lierne_joints *j, const lierne_joints_rules *rules) {
    j->repeats = overlaps(j, j->n, 0);
    if (rules->repeat || !j->repeats) {
        return LIERNE_OK;
    }
    int64_t i = find_overlapping(j, 0);
    return LIERNE_FAIL(LIERNE_ERR_COUNT,
                       "runs[%lld]: of its %lld rows of image %lld, a run before it delivers some: "
                       "each row goes to one token unless allow_repeat is set",
                       (long long)i, (long long)j->at[i].size, (long long)j->at[i].segment[0]);
}

/* Puts the joints into their order. Tokens come first, because equal rows keep their order. */
static void sort_joints(lierne_joints *j) {
    for (int side = 1; side >= 0; side--) {
        sort_by(j, j->n, side);
        for (int64_t i = 0; i < j->n; i++) {
            j->spare[i] = j->at[j->keys[i].value];
        }
        lierne_joint *swap = j->at;
        j->at = j->spare;
        j->spare = swap;
    }
    j->total = 0;
    for (int64_t i = 0; i < j->n; i++) {
        j->at[i].start = j->total;
        j->total += j->at[i].size;
    }
}

static lierne_status check_left(const lierne_joints *j, const lierne_joints_rules *rules) {
    int64_t delivered = 0, end = 0;
    for (int64_t i = 0; i < j->n; i++) {
        int64_t start = j->at[i].index[0], last = start + j->at[i].size;
        delivered += last > end ? last - (start > end ? start : end) : 0;
        end = last > end ? last : end;
    }
    return rules->unused || delivered == j->rows
               ? LIERNE_OK
               : LIERNE_FAIL(
                     LIERNE_ERR_COUNT,
                     "runs deliver %lld of %lld image rows, must deliver all of them unless "
                     "allow_unused is set",
                     (long long)delivered, (long long)j->rows);
}

lierne_status lierne_joints_take(lierne_joints *j, const lierne_image_run *runs, int64_t n,
                                 const lierne_packed *images, const lierne_packed *segments,
                                 const lierne_joints_rules *rules) {
    j->n = n;
    j->rows = images->cu[images->n];
    for (int64_t i = 0; i < n; i++) {
        LIERNE_TRY(take_run(&j->at[i], i, &runs[i], images, segments));
    }
    LIERNE_TRY(check_tokens(j));
    LIERNE_TRY(check_repeats(j, rules));
    sort_joints(j);
    return check_left(j, rules);
}

/* The first span that ends beyond an index, near the one of the last question where indices ascend.
 */
static size_t find_span(const lierne_span_list *own, size_t near, int64_t index) {
    size_t low = 0, high = own->count;
    for (size_t k = near; k < own->count && k < near + 2; k++) {
        bool here = own->at[k].start + own->at[k].size > index;
        if (here && (k == 0 || own->at[k - 1].start + own->at[k - 1].size <= index)) {
            return k;
        }
    }
    while (low < high) {
        size_t middle = (low + high) / 2;
        bool beyond = own->at[middle].start + own->at[middle].size > index;
        high = beyond ? middle : high;
        low = beyond ? low : middle + 1;
    }
    return low;
}

static lierne_status push_span(lierne_span_list *list, lierne_span span) {
    lierne_span *last = list->count ? &list->at[list->count - 1] : NULL;
    if (last && last->start + last->size == span.start && last->local + last->size == span.local) {
        last->size += span.size;
        return LIERNE_OK;
    }
    return LIERNE_VEC_PUSH(list, span);
}

lierne_status lierne_joints_spans(lierne_span_list *list, const lierne_joints *j, int side,
                                  const lierne_span_list *own) {
    size_t at = 0;
    for (int64_t i = 0; i < j->n; i++) {
        int64_t first = j->at[i].index[side], end = first + j->at[i].size;
        at = find_span(own, at, first);
        for (; at < own->count && own->at[at].start < end; at++) {
            const lierne_span *span = &own->at[at];
            int64_t from = span->start > first ? span->start : first;
            int64_t to = span->start + span->size < end ? span->start + span->size : end;
            LIERNE_TRY(push_span(list, (lierne_span){.start = j->at[i].start + from - first,
                                                     .size = to - from,
                                                     .local = span->local + from - span->start}));
            if (to == end) {
                break;
            }
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_joints_left(lierne_span_list *list, const lierne_joints *j,
                                 const lierne_span_list *own) {
    int64_t i = 0, end = 0; /* rows before end are delivered, or come before the span */
    for (size_t k = 0; k < own->count; k++) {
        const lierne_span *span = &own->at[k];
        int64_t last = span->start + span->size;
        end = span->start > end ? span->start : end;
        while (end < last) {
            for (; i < j->n && j->at[i].index[0] <= end; i++) {
                int64_t to = j->at[i].index[0] + j->at[i].size;
                end = to > end ? to : end;
            }
            int64_t next = i < j->n && j->at[i].index[0] < last ? j->at[i].index[0] : last;
            if (end < next) {
                LIERNE_TRY(LIERNE_VEC_PUSH(list, ((lierne_span){.size = next - end,
                                                                .local = span->local + end -
                                                                         span->start})));
                end = next;
            }
        }
    }
    return LIERNE_OK;
}
