/* Checking specs, and what ranks compare before a plan exists. */
#include "layout/layout.h"
#include "plan/collective/collective.h"

#include <stdio.h>
#include <string.h>

int lierne_team_rank(const lierne_team *team, int i) {
    return team->ranks ? team->ranks[i] : lierne_members_rank(team->members, i);
}

int lierne_team_find(const lierne_team *team, int rank) {
    if (!team->ranks) {
        return lierne_members_index(team->members, rank);
    }
    for (int i = 0; i < team->n; i++) {
        if (team->ranks[i] == rank) {
            return i;
        }
    }
    return -1;
}

/* A list of all members in their order is the same as none. */
static bool lists_all(const lierne_team *team) {
    bool all = team->n == team->members->count;
    for (int i = 0; i < team->n && all; i++) {
        all = team->ranks[i] == lierne_members_rank(team->members, i);
    }
    return all;
}

static lierne_status check_ranks(const lierne_team *team, int rank) {
    unsigned char *seen;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(lierne_alloc(&seen, (size_t)team->members->count, 1));
    for (int i = 0; i < team->n && status == LIERNE_OK; i++) {
        int index = lierne_members_index(team->members, team->ranks[i]);
        if (index < 0) {
            char members[LIERNE_MEMBERS_TEXT];
            lierne_members_print(members, sizeof members, team->members);
            status = LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: ranks[%d] is %d, must be %s", rank,
                                 i, team->ranks[i], members);
        } else if (seen[index]++) {
            status = LIERNE_FAIL(LIERNE_ERR_INVALID,
                                 "rank %d: ranks[%d] is %d again: list every rank once", rank, i,
                                 team->ranks[i]);
        }
    }
    lierne_mem_free(seen);
    return status;
}

static lierne_status find_team(lierne_team *team, const lierne_context *context,
                               const lierne_collective *spec) {
    int count = context->members.count;
    *team = (lierne_team){&context->members, spec->ranks, spec->ranks ? spec->nranks : count, -1};
    if (spec->ranks ? spec->nranks < 1 || spec->nranks > count : spec->nranks != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           spec->ranks ? "rank %d: nranks is %d, must be 1 to %d, the ranks of the "
                                         "context"
                                       : "rank %d: nranks is %d, must be 0 without ranks: all %d "
                                         "ranks of the context take part then",
                           context->rank, spec->nranks, count);
    }
    if (team->ranks) {
        LIERNE_TRY(check_ranks(team, context->rank));
        team->ranks = lists_all(team) ? NULL : team->ranks;
    }
    team->me = lierne_team_find(team, context->rank);
    return LIERNE_OK;
}

/* No size that follows from counts overflows, because n of the largest fit. */
lierne_status lierne_collective_check_counts(const lierne_team *team, int rank, const char *name,
                                             int64_t count, const int64_t *counts,
                                             lierne_dtype dtype) {
    int64_t most = INT64_MAX / (int64_t)lierne_dtype_size(dtype) / team->n;
    for (int i = 0; i < (counts ? team->n : 1); i++) {
        int64_t value = counts ? counts[i] : count;
        char entry[32] = "count";
        if (counts) {
            snprintf(entry, sizeof entry, "%s[%d]", name, i);
        }
        if (value < 0 || value > most) {
            return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE, "rank %d: %s is %lld, must be 0 to %lld",
                               rank, entry, (long long)value, (long long)most);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_reduction(const lierne_collective *spec, int rank) {
    bool floating = spec->dtype == LIERNE_DTYPE_F64 || spec->dtype == LIERNE_DTYPE_F32 ||
                    spec->dtype == LIERNE_DTYPE_BF16 || spec->dtype == LIERNE_DTYPE_F16;
    if (spec->reduction < LIERNE_REDUCTION_SUM || spec->reduction > LIERNE_REDUCTION_AVG) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "rank %d: reduction is %d, must be LIERNE_REDUCTION_SUM, _MAX, _MIN, _PROD or "
            "_AVG",
            rank, (int)spec->reduction);
    }
    if (spec->reduction == LIERNE_REDUCTION_AVG && !floating) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "rank %d: reduction is LIERNE_REDUCTION_AVG and dtype %s: averages need f64, f32, "
            "bf16 or f16; take LIERNE_REDUCTION_SUM and divide",
            rank, lierne_dtype_name(spec->dtype));
    }
    return LIERNE_OK;
}

static lierne_status check_values(const lierne_team *team, const lierne_collective *spec,
                                  int rank) {
    LIERNE_TRY(lierne_check_dtype(spec->dtype, rank));
    if (spec->max_inflight < 0 || spec->max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: max_inflight is %d, must be in 0 to %d",
                           rank, spec->max_inflight, LIERNE_MAX_INFLIGHT);
    }
    if (spec->algorithm < LIERNE_COLLECTIVE_ALGORITHM_AUTO ||
        spec->algorithm > LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "rank %d: algorithm is %d, must be LIERNE_COLLECTIVE_ALGORITHM_AUTO, _ONE_SHOT or "
            "_TWO_SHOT",
            rank, (int)spec->algorithm);
    }
    if (spec->root && lierne_team_find(team, *spec->root) < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: root is %d, must be one of the %d ranks that take part", rank,
                           *spec->root, team->n);
    }
    return check_reduction(spec, rank);
}

lierne_status lierne_collective_check(lierne_team *team, const lierne_context *context,
                                      const lierne_collective *spec) {
    LIERNE_TRY(find_team(team, context, spec));
    LIERNE_TRY(check_values(team, spec, context->rank));
    return lierne_collective_check_counts(team, context->rank, "counts", spec->count, spec->counts,
                                          spec->dtype);
}

static const char *const reductions[] = {"sum", "max", "min", "prod", "avg"};
static const char *const algorithms[] = {"auto", "one_shot", "two_shot"};
static const lierne_spec_entry numbers[] = {
    LIERNE_SPEC_NUMBER(lierne_collective, dtype, DTYPE, COMPARED),
    LIERNE_SPEC_WORDS(lierne_collective, reduction, COMPARED, reductions),
    LIERNE_SPEC_WORDS(lierne_collective, algorithm, COMPARED, algorithms),
    LIERNE_SPEC_NUMBER(lierne_collective, max_inflight, INFLIGHT, COMPARED),
};
static const lierne_spec_table table = LIERNE_SPEC_TABLE(numbers);

/* The first field names the call. */
void lierne_collective_compare(lierne_plan_fields *fields, const lierne_team *team,
                               const lierne_collective *spec) {
    static const char *const calls[] = {"planning of an all-gather", "planning of a reduce-scatter",
                                        "planning of an all-reduce", "planning of a broadcast",
                                        "planning of an all-to-all", "planning of a barrier"};
    lierne_plan_fields_add(fields, calls[spec->kind], 0);
    lierne_plan_fields_add(fields, "nranks", team->n);
    lierne_plan_fields_add_list(fields, "ranks", LIERNE_ITEM_I32, team->ranks, (size_t)team->n);
    lierne_spec_table_compare(&table, spec, fields);
    lierne_plan_fields_add(fields, "root", spec->root ? *spec->root : 0);
    lierne_plan_fields_add_list(fields, "counts", LIERNE_ITEM_I64, spec->counts, (size_t)team->n);
    fields->at[fields->count++] =
        lierne_field_text("send_counts", spec->own_counts ? "given" : NULL);
    lierne_plan_fields_add(fields, "count", spec->counts ? 0 : spec->count);
}
