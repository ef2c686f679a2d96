/* The groups of a context. A context has few, so a linear search is enough. */
#include "group/group.h"

#include <stdio.h>
#include <string.h>

static lierne_group *find(const lierne_context *context, const char *purpose, const int *ranks,
                          int n) {
    for (size_t i = 0; i < context->groups.count; i++) {
        lierne_group *g = context->groups.at[i];
        if (g->n == n && strcmp(g->purpose, purpose) == 0 &&
            memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks) == 0) {
            return g;
        }
    }
    return NULL;
}

static void free_group(lierne_group *group) {
    lierne_mem_free(group->ranks);
    lierne_mem_free(group);
}

lierne_status lierne_group_get(lierne_group **out, lierne_context *context, const char *purpose,
                               const int *ranks, int n) {
    lierne_group *g = find(context, purpose, ranks, n);
    *out = NULL;
    if (!g) {
        LIERNE_TRY(lierne_alloc(&g, 1, sizeof *g));
        lierne_status status = lierne_alloc(&g->ranks, (size_t)n, sizeof *ranks);
        if (status == LIERNE_OK) {
            status = LIERNE_VEC_PUSH(&context->groups, g);
        }
        if (status != LIERNE_OK) {
            free_group(g);
            return status;
        }
        snprintf(g->purpose, sizeof g->purpose, "%s", purpose);
        g->n = n;
        memcpy(g->ranks, ranks, (size_t)n * sizeof *ranks);
    }
    g->references++;
    *out = g;
    return LIERNE_OK;
}

void lierne_group_release(lierne_context *context, lierne_group *group) {
    if (!group || --group->references > 0) {
        return;
    }
    for (size_t i = 0; i < context->groups.count; i++) {
        if (context->groups.at[i] == group) {
            context->groups.at[i] = context->groups.at[--context->groups.count];
            break;
        }
    }
    free_group(group);
}
