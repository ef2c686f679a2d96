/* Match ids of calls.
 *
 * Each plan, and each set of coalesced plans, has series of match ids of its own, so that no
 * message of a call is taken for one of another plan, in whatever order ranks begin their calls. A
 * context has as many series as its transports can tell apart (MPI may have 32,768 tags), and a
 * plan begins with one that follows from the number of the agreement on it. Once agreements have
 * used all, a plan may still be alive that has it: then ranks ask each other for series that are
 * free on all. */
#include "plan/object.h"

#include <string.h>

_Static_assert(LIERNE_CALL_IDS == 4 * LIERNE_MAX_INFLIGHT, "ids of calls");

/* Calls in flight have a series each: there is one, or up to LIERNE_MAX_INFLIGHT calls lie between
 * them (call.c). */
static int series_for(int max_inflight) {
    return max_inflight > 1 ? LIERNE_MAX_INFLIGHT : 1;
}

int lierne_plan_match_id(int series, int max_inflight, int direction, size_t call) {
    int of_call = series + (int)(call % (size_t)series_for(max_inflight));
    return (of_call * 2 + direction) * LIERNE_CALL_IDS + (int)(call % LIERNE_CALL_IDS);
}

lierne_status lierne_plan_reserve_series(lierne_context *context) {
    return lierne_vec_grow(&context->series.at, context->series.count, &context->series.capacity,
                           sizeof *context->series.at);
}

/* The end of what a plan of this rank has of the n series from `first` on; 0: they are free. */
static int64_t taken_to(const lierne_context *context, int64_t first, int n) {
    for (size_t i = 0; i < context->series.count; i++) {
        const lierne_series *taken = &context->series.at[i];
        if (first < taken->first + taken->count && taken->first < first + n) {
            return taken->first + taken->count;
        }
    }
    return 0;
}

/* The first offset from `offset` on at which n series are free here; `places` if there is none. At
 * an offset they are those from (start + offset) % places on. */
static int64_t find_free(const lierne_context *context, int64_t start, int64_t places, int n,
                         int64_t offset) {
    while (offset < places) {
        int64_t first = (start + offset) % places, behind = taken_to(context, first, n);
        if (behind == 0) {
            return offset;
        }
        offset += (behind < places ? behind : places) - first;
    }
    return places;
}

lierne_status lierne_plan_take_series(int *series, lierne_context *context, int decision,
                                      int max_inflight, bool waits) {
    const int n = series_for(max_inflight), all = context->match_ids / (2 * LIERNE_CALL_IDS);
    const int64_t places = all - n + 1, begin = (int64_t)decision * LIERNE_MAX_INFLIGHT;
    /* Planning on several ranks by one thread asks nobody. */
    bool asks = begin + LIERNE_MAX_INFLIGHT > all && (waits || !context->control->pending);
    int64_t agreed = asks ? -1 : 0, offset = 0;
    while (offset != agreed && offset < places) {
        agreed = offset;
        offset = find_free(context, begin % places, places, n, offset);
        LIERNE_TRY(lierne_context_allreduce_max(context, &offset, 1));
    }
    if (offset >= places) {
        return LIERNE_FAIL(
            LIERNE_ERR_NO_MEMORY,
            "no tags for another plan: %d calls at once can be told apart over these "
            "transports, and plans that are alive have all: destroy some of them",
            all);
    }
    *series = (int)((begin + offset) % places);
    context->series.at[context->series.count++] = (lierne_series){*series, n};
    return LIERNE_OK;
}

void lierne_plan_drop_series(lierne_context *context, int series) {
    for (size_t i = 0; series >= 0 && i < context->series.count; i++) {
        if (context->series.at[i].first == series) {
            context->series.at[i] = context->series.at[--context->series.count];
            break;
        }
    }
    if (context->series.count == 0) {
        lierne_mem_free(context->series.at);
        memset(&context->series, 0, sizeof context->series);
    }
}
