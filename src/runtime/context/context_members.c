/* The members of a context. Ranks become indices here, and for the messages of planners in
 * context_agree.c; src/execute asks for those that transports get. */
#include "lierne/grid.h"
#include "runtime/context/context.h"

#include <string.h>

static lierne_status take_all(lierne_context *context, const lierne_context_spec *spec) {
    lierne_members *m = &context->members;
    m->count = m->count ? m->count : m->world;
    m->world = m->count;
    if (spec->nmembers != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "spec->nmembers is %d, but spec->members NULL",
                           spec->nmembers);
    }
    if (spec->world_size != 0 && spec->world_size != m->count) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "spec->world_size is %d, must be 0 or %d, the number of ranks: without "
                           "spec->members all of them are members",
                           spec->world_size, m->count);
    }
    return LIERNE_OK;
}

static lierne_status check_sizes(const lierne_members *m, const lierne_context_spec *spec) {
    if (m->world && spec->world_size && spec->world_size != m->world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "spec->world_size is %d, must be 0 or nranks, %d",
                           spec->world_size, m->world);
    }
    int world = m->world ? m->world : spec->world_size;
    if (world < 1 || world > LIERNE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "spec->world_size is %d, must be 1 to %d where spec->members is set",
                           world, LIERNE_MAX_RANKS);
    }
    if (m->count && spec->nmembers != m->count) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "spec->nmembers is %d, must be %d: a member for each rank of the "
                           "communicator",
                           spec->nmembers, m->count);
    }
    if (spec->nmembers < 1 || spec->nmembers > world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "spec->nmembers is %d, must be 1 to the world's %d ranks",
                           spec->nmembers, world);
    }
    return LIERNE_OK;
}

static lierne_status take_list(lierne_context *context, const lierne_context_spec *spec) {
    lierne_members *m = &context->members;
    LIERNE_TRY(check_sizes(m, spec));
    m->world = m->world ? m->world : spec->world_size;
    m->count = spec->nmembers;
    for (int i = 0; i < m->count; i++) {
        int low = i ? spec->members[i - 1] + 1 : 0;
        if (spec->members[i] < low || spec->members[i] >= m->world) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "spec->members[%d] is %d, must be in %d to %d: members ascend and "
                               "are ranks of a world of %d",
                               i, spec->members[i], low, m->world - 1, m->world);
        }
    }
    if (m->count < m->world) {
        LIERNE_TRY(lierne_alloc(&m->ranks, (size_t)m->count, sizeof *m->ranks));
        memcpy(m->ranks, spec->members, (size_t)m->count * sizeof *m->ranks);
    }
    return LIERNE_OK;
}

lierne_status lierne_context_take_members(lierne_context *context,
                                          const lierne_context_spec *spec) {
    LIERNE_TRY(spec->members ? take_list(context, spec) : take_all(context, spec));
    context->rank = lierne_members_rank(&context->members, context->index);
    return LIERNE_OK;
}

int lierne_context_index(const lierne_context *context, int rank) {
    return lierne_members_index(&context->members, rank);
}

lierne_status lierne_context_check_ranks(const lierne_context *context, const char *name, int first,
                                         int n) {
    const lierne_members *m = &context->members;
    char members[LIERNE_MEMBERS_TEXT];
    int index = lierne_members_index(m, first), rank = first;
    if (index >= 0 && index + n <= m->count &&
        lierne_members_rank(m, index + n - 1) == first + n - 1) {
        return LIERNE_OK;
    }
    while (lierne_members_index(m, rank) >= 0) {
        rank++;
    }
    lierne_members_print(members, sizeof members, m);
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d of %s (ranks %d to %d) must be %s", rank, name,
                       first, first + n - 1, members);
}

lierne_status lierne_context_gave_up(const lierne_context *context, int rank) {
    return context->control->failures
               ? context->control->failures->gave_up(context->control_self,
                                                     lierne_context_index(context, rank))
               : LIERNE_OK;
}

lierne_status lierne_context_peer_alive(const lierne_context *context, int rank) {
    return context->control->processes
               ? context->control->processes->alive(context->control_self,
                                                    lierne_context_index(context, rank))
               : LIERNE_OK;
}

int lierne_context_get_nmembers(const lierne_context *context) {
    return context ? context->members.count : -1;
}

int lierne_context_get_member(const lierne_context *context, int i) {
    return context && i >= 0 && i < context->members.count
               ? lierne_members_rank(&context->members, i)
               : -1;
}

int lierne_context_find_member(const lierne_context *context, int rank) {
    return context ? lierne_context_index(context, rank) : -1;
}

int lierne_context_get_former_rank(const lierne_context *context, int rank) {
    return context && context->former && rank >= 0 && rank < context->members.count
               ? context->former[rank]
               : -1;
}
