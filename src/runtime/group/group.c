/* The groups of a context and their budget. A context has few, so a linear search is enough. */
#include "runtime/group/group.h"

#include <stdio.h>
#include <string.h>

#define HOLDERS_TEXT 640

static bool equal_kind(const lierne_group *a, const lierne_group *b) {
    return a->n == b->n && strcmp(a->purpose, b->purpose) == 0;
}

/* Writes purpose, size and number of the groups alive, as far as they fit. */
static void list_holders(char text[HOLDERS_TEXT], const lierne_context *context) {
    lierne_group *const *groups = context->groups.at;
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < context->groups.count && used < HOLDERS_TEXT; i++) {
        size_t before = 0, same = 1;
        while (before < i && !equal_kind(groups[before], groups[i])) {
            before++;
        }
        for (size_t k = i + 1; before == i && k < context->groups.count; k++) {
            same += equal_kind(groups[k], groups[i]);
        }
        if (before == i) {
            used +=
                (size_t)snprintf(text + used, HOLDERS_TEXT - used, "%s%zu of '%s' with %d ranks",
                                 i ? ", " : "", same, groups[i]->purpose, groups[i]->n);
        }
    }
}

static lierne_status check_budget(const lierne_context *context, const char *purpose, int n) {
    char holders[HOLDERS_TEXT];
    if (context->groups.count < (size_t)context->max_groups) {
        return LIERNE_OK;
    }
    list_holders(holders, context);
    return LIERNE_FAIL(LIERNE_ERR_NO_RESOURCE,
                       "rank %d: no group left for '%s' with %d ranks: max_groups is %d (%s): "
                       "destroy groups, or create the context with a larger max_groups",
                       context->rank, purpose, n, context->max_groups, holders);
}

static void free_group(lierne_group *group) {
    lierne_mem_free(group->ranks);
    lierne_mem_free(group->indices);
    lierne_mem_free(group);
}

static void fill_group(lierne_group *group, const char *purpose, const int *ranks, int n) {
    snprintf(group->purpose, sizeof group->purpose, "%s", purpose);
    group->n = n;
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    group->rank = -1;
    group->smallest = ranks[0];
    for (int i = 0; i < n; i++) {
        group->rank = ranks[i] == group->context->rank ? i : group->rank;
        group->smallest = ranks[i] < group->smallest ? ranks[i] : group->smallest;
        group->indices[i] = lierne_context_index(group->context, ranks[i]);
    }
}

lierne_status lierne_group_add(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n) {
    lierne_group *group;
    LIERNE_TRY(check_budget(context, purpose, n));
    LIERNE_TRY(lierne_alloc(&group, 1, sizeof *group));
    lierne_status status = lierne_alloc(&group->ranks, (size_t)n, sizeof *ranks);
    if (status == LIERNE_OK) {
        status = lierne_alloc(&group->indices, (size_t)n, sizeof *group->indices);
    }
    if (status == LIERNE_OK) {
        status = LIERNE_VEC_PUSH(&context->groups, group);
    }
    if (status != LIERNE_OK) {
        free_group(group);
        return status;
    }
    group->context = context;
    fill_group(group, purpose, ranks, n);
    *out = group;
    return LIERNE_OK;
}

void lierne_group_remove(lierne_context *context, lierne_group *group) {
    for (size_t i = 0; group && i < context->groups.count; i++) {
        if (context->groups.at[i] == group) {
            context->groups.at[i] = context->groups.at[--context->groups.count];
            free_group(group);
            return;
        }
    }
}

lierne_status lierne_group_check(const lierne_context *context, const lierne_group *group) {
    for (size_t i = 0; i < context->groups.count; i++) {
        if (context->groups.at[i] == group && group->uid > 0) {
            return LIERNE_OK;
        }
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID,
                       "rank %d: group is of another context, or was destroyed: give one of "
                       "lierne_group_create",
                       context->rank);
}

bool lierne_group_has(const lierne_group *group, int rank) {
    int i = 0;
    while (i < group->n && group->ranks[i] != rank) {
        i++;
    }
    return i < group->n;
}

static lierne_group *find_group(const lierne_context *context, const char *purpose,
                                const int *ranks, int n) {
    for (size_t i = 0; i < context->groups.count; i++) {
        lierne_group *g = context->groups.at[i];
        if (g->uid == 0 && g->n == n && strcmp(g->purpose, purpose) == 0 &&
            memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks) == 0) {
            return g;
        }
    }
    return NULL;
}

lierne_status lierne_group_get(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n) {
    *out = find_group(context, purpose, ranks, n);
    if (!*out) {
        LIERNE_TRY(lierne_group_add(out, context, purpose, ranks, n));
    }
    (*out)->references++;
    return LIERNE_OK;
}

void lierne_group_release(lierne_context *context, lierne_group *group) {
    if (group && --group->references == 0) {
        lierne_group_remove(context, group);
    }
}

int lierne_group_get_size(const lierne_group *group) {
    return group ? group->n : -1;
}

int lierne_group_get_rank(const lierne_group *group) {
    return group ? group->rank : -1;
}

const int *lierne_group_get_ranks(const lierne_group *group) {
    return group ? group->ranks : NULL;
}

const char *lierne_group_get_purpose(const lierne_group *group) {
    return group ? group->purpose : NULL;
}

lierne_priority lierne_group_get_priority(const lierne_group *group) {
    return group ? group->priority : LIERNE_PRIORITY_NORMAL;
}

int64_t lierne_group_get_uid(const lierne_group *group) {
    return group ? group->uid : -1;
}
