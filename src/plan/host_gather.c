/* A plan where plans move host memory in any order: it allocates nothing in a call. Elsewhere a
 * plan would copy the blocks to a device and wait for its stream, or for calls that were begun
 * before; control messages do neither. */
#include "plan/host_gather.h"

#include "lierne/collective.h"
#include "runtime/context/context.h"
#include "runtime/execute/execute.h"

#include <string.h>

lierne_status lierne_host_gather_open(lierne_host_gather *g, lierne_context *context,
                                      size_t words) {
    *g = (lierne_host_gather){.context = context,
                              .words = words,
                              .nranks = (size_t)context->members.count};
    LIERNE_TRY(lierne_alloc(&g->messages, g->nranks, sizeof *g->messages));
    return lierne_host_gather_grow(g, words, words * g->nranks);
}

static void drop_blocks(lierne_host_gather *g) {
    if (g->own) {
        lierne_context_free_message_memory(g->context, g->own);
    }
    lierne_mem_free(g->blocks);
    g->own = g->blocks = NULL;
}

lierne_status lierne_host_gather_grow(lierne_host_gather *g, size_t words, size_t all) {
    drop_blocks(g);
    g->words = words;
    g->all = all;
    LIERNE_TRY(lierne_alloc(&g->own, words, sizeof *g->own));
    return lierne_alloc(&g->blocks, all, sizeof *g->blocks);
}

lierne_status lierne_host_gather_plan(lierne_host_gather *g, const char *name) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = (int64_t)g->words,
                                         .name = name,
                                         .dtype = LIERNE_DTYPE_BITS64};
    if (!lierne_execution_stamps(g->context)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_plan_create_all_gather(&g->plan, g->context, &spec));
    lierne_plan_own(g->plan);
    return LIERNE_OK;
}

lierne_status lierne_host_gather_exchange(lierne_host_gather *g, size_t words) {
    lierne_control_messages received = {0};
    int64_t *block = g->blocks;
    for (size_t i = 0; i < g->nranks; i++) {
        g->messages[i] =
            (lierne_control_message){.peer = lierne_members_rank(&g->context->members, (int)i),
                                     .count = words,
                                     .words = g->own};
    }
    lierne_status status =
        lierne_context_sparse_exchange(g->context, g->messages, g->nranks, &received);
    for (size_t i = 0; i < received.count && status == LIERNE_OK; i++) {
        memcpy(block, received.at[i].words, received.at[i].count * sizeof *block);
        block += received.at[i].count;
    }
    lierne_control_messages_destroy(&received);
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(g->context, status);
}

lierne_status lierne_host_gather_run(lierne_host_gather *g) {
    return g->plan ? lierne_plan_forward(g->plan, g->blocks, g->own, NULL)
                   : lierne_host_gather_exchange(g, g->words);
}

lierne_status lierne_host_gather_close(lierne_host_gather *g) {
    lierne_status status = lierne_plan_destroy(g->plan);
    drop_blocks(g);
    lierne_mem_free(g->messages);
    *g = (lierne_host_gather){0};
    return status;
}
