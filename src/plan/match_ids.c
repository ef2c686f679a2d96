/* Match ids of calls.
 *
 * Each plan, and each set of coalesced plans, has series of match ids of its own, so that no
 * message of a call is taken for one of another plan, in whatever order ranks begin their calls. A
 * context has as many series as its transports can tell apart (MPI may have 32,768 tags). Those of
 * a plan follow from the number of the agreement on it. After some agreements a plan may still be
 * alive that has them: then ranks ask each other for series that are free on all. */
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

/* The first of the series that plans of this rank have, in ascending order, that ends behind
 * `first`. */
static size_t find_taken(const lierne_context *context, int64_t first) {
    size_t from = 0, to = context->series.count;
    while (from < to) {
        size_t middle = (from + to) / 2;
        const lierne_series *taken = &context->series.at[middle];
        if (taken->first + taken->count > first) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

/* Whether no plan of this rank has one of the n series from `first` on. */
static bool is_free(const lierne_context *context, int64_t first, int n) {
    size_t i = find_taken(context, first);
    return i == context->series.count || context->series.at[i].first >= first + n;
}

static void insert_series(lierne_context *context, lierne_series taken) {
    size_t i = find_taken(context, taken.first);
    lierne_series *at = context->series.at + i;
    memmove(at + 1, at, (context->series.count - i) * sizeof *at);
    *at = taken;
    context->series.count++;
}

/* How many plans with several requests find series in the upper half. */
static unsigned blocks_of(int all) {
    return (unsigned)(all - all / 2) / LIERNE_MAX_INFLIGHT;
}

/* An agreement tries all places of n series among `all`, from one of its own on. Single series come
 * from the lower half first and many from the upper one: otherwise a few plans with one request,
 * all over the place, would leave no place for one with several. */
static int64_t place_of(int all, unsigned decision, int n, int64_t attempt) {
    const int64_t half = all / 2, places = all - n + 1, upper = places - half;
    if (n == 1) {
        return attempt < half ? (decision + attempt) % half : attempt;
    }
    return attempt < upper ? half + (decision % blocks_of(all) * (int64_t)n + attempt) % upper
                           : places - 1 - attempt;
}

lierne_status lierne_plan_take_series(int *series, lierne_context *context, int decision,
                                      int max_inflight, bool waits) {
    const int n = series_for(max_inflight), all = context->match_ids / (2 * LIERNE_CALL_IDS);
    const unsigned number = (unsigned)decision;
    const int64_t places = all - n + 1;
    /* Planning on several ranks by one thread asks nobody: each has had the same plans. */
    bool asks = number >= blocks_of(all) && (waits || !context->control->pending);
    int64_t agreed = -1, attempt = 0;
    while (attempt != agreed && attempt < places) {
        agreed = attempt;
        while (attempt < places && !is_free(context, place_of(all, number, n, attempt), n)) {
            attempt++;
        }
        if (asks) {
            LIERNE_TRY(lierne_context_allreduce_max(context, &attempt, 1));
        }
    }
    if (attempt >= places) {
        return LIERNE_FAIL(
            LIERNE_ERR_NO_MEMORY,
            "no tags for another plan: %d calls at once can be told apart over these "
            "transports, and plans that are alive leave too few: destroy some of them",
            all);
    }
    *series = (int)place_of(all, number, n, attempt);
    insert_series(context, (lierne_series){*series, n});
    return LIERNE_OK;
}

void lierne_plan_drop_series(lierne_context *context, int series) {
    size_t i = series >= 0 ? find_taken(context, series) : context->series.count;
    if (i < context->series.count && context->series.at[i].first == series) {
        lierne_series *at = context->series.at + i;
        memmove(at, at + 1, (--context->series.count - i) * sizeof *at);
    }
    if (context->series.count == 0) {
        lierne_mem_free(context->series.at);
        memset(&context->series, 0, sizeof context->series);
    }
}
