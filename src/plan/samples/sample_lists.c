/* The lists of a step: written in one walk over the items of all ranks, whose blocks are still
 * there, so that getters only give pointers. */
#include "plan/samples/sample_routing.h"

#include <limits.h>
#include <string.h>

int lierne_sample_place_owner(int place) {
    return place == LIERNE_SAMPLES_HOME ? 0 : place == LIERNE_SAMPLES_RETURNED ? 2 : 1;
}

int lierne_sample_place_rows(int place) {
    return place == LIERNE_SAMPLES_COMPUTED || place == LIERNE_SAMPLES_RETURNED;
}

/* Counting sort by rank: stable, so the items of a rank ascend. */
static void sort_items(const lierne_samples *s, lierne_sample_routing *r, int owner) {
    int64_t *first = r->first[owner];
    const int32_t *ranks = r->owner[owner];
    memset(first, 0, ((size_t)s->nranks + 2) * sizeof *first);
    for (int64_t i = 0; i < r->n; i++) {
        first[ranks[i] + 2]++;
    }
    for (int p = 0; p < s->nranks; p++) {
        first[p + 2] += first[p + 1];
    }
    for (int64_t i = 0; i < r->n; i++) {
        r->permutation[owner][first[ranks[i] + 1]++] = i;
    }
}

static void add_segment(lierne_sample_routing *r, int place, int64_t rows) {
    int64_t at = r->nsegments[place]++;
    int64_t sum = r->cu_seqlens[place][at] + rows;
    r->cu_seqlens[place][at + 1] = sum;
    r->cu_seqlens_i32[place][at + 1] = (int32_t)(sum < INT_MAX ? sum : INT_MAX);
}

static void add_item(const lierne_samples *s, lierne_sample_routing *r, int64_t item,
                     const lierne_sample_block *b, int64_t first, int64_t end) {
    for (int place = 0; place < LIERNE_PLACES; place++) {
        if (r->owner[lierne_sample_place_owner(place)][item] != s->context->index) {
            continue;
        }
        for (int64_t k = first; k < end; k++) {
            add_segment(r, place, b->rows[lierne_sample_place_rows(place)][k]);
        }
    }
}

void lierne_sample_lists_fill(const lierne_samples *s, lierne_sample_routing *r) {
    int64_t item = 0;
    for (int owner = 0; owner < LIERNE_OWNERS; owner++) {
        sort_items(s, r, owner);
    }
    memset(r->nsegments, 0, sizeof r->nsegments);
    for (int p = 0; p < s->nranks; p++) {
        const lierne_sample_block b = lierne_sample_block_of(s, p);
        int64_t first = 0;
        for (int64_t i = 0; i < b.head[LIERNE_SAMPLE_ITEMS]; i++, item++) {
            int64_t end = first + (b.segments ? b.segments[i] : 1);
            add_item(s, r, item, &b, first, end);
            first = end;
        }
    }
}

static lierne_status check_place(const lierne_samples *s, lierne_samples_place place) {
    LIERNE_TRY(lierne_check_set(s, "samples"));
    return place >= LIERNE_SAMPLES_HOME && place <= LIERNE_SAMPLES_RETURNED
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "place is %d, must be 0 to %d", (int)place,
                             LIERNE_SAMPLES_RETURNED);
}

lierne_status lierne_samples_get_lists(lierne_samples_lists *lists, const lierne_samples *s,
                                       lierne_samples_place place) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(check_place(s, place));
    const lierne_sample_routing *r = &s->routings[s->current];
    int owner = lierne_sample_place_owner((int)place), own = s->context->index;
    const int64_t *first = r->first[owner];
    const lierne_samples_lists known = {.size = sizeof known,
                                        .nitems = first[own + 1] - first[own],
                                        .items = r->permutation[owner] + first[own],
                                        .nsegments = r->nsegments[place],
                                        .cu_seqlens = r->cu_seqlens[place],
                                        .nitems_all = r->n,
                                        .ranks = r->owner[owner],
                                        .permutation = r->permutation[owner],
                                        .first = first,
                                        .loads = r->load[owner]};
    return lierne_spec_give(lists, &known, sizeof known, "lists");
}

lierne_status lierne_samples_get_cu_seqlens_i32(const int32_t **cu_seqlens, const lierne_samples *s,
                                                lierne_samples_place place) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(cu_seqlens);
    LIERNE_TRY(check_place(s, place));
    LIERNE_TRY(lierne_check_set(cu_seqlens, "cu_seqlens"));
    const lierne_sample_routing *r = &s->routings[s->current];
    int64_t last = r->cu_seqlens[place][r->nsegments[place]];
    if (last > INT_MAX) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "cu_seqlens[%lld] is %lld, must be at most %d",
                           (long long)r->nsegments[place], (long long)last, INT_MAX);
    }
    *cu_seqlens = r->cu_seqlens_i32[place];
    return LIERNE_OK;
}

lierne_status lierne_samples_get_report(lierne_assignment_report *report, const lierne_samples *s) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(s, "samples"));
    return lierne_spec_give(report, &s->routings[s->current].report, sizeof *report, "report");
}
