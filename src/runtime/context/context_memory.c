/* Memory of a context: that of a transport whose peers can read it in place, else ordinary memory.
 */
#include "runtime/context/context.h"

#include <string.h>

#define PAGE 4096

/* The transport that memory comes from, or NULL. */
static const lierne_carrier *provider(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport->memory) {
            return &context->carriers[i];
        }
    }
    return NULL;
}

static lierne_status alloc_ordinary(lierne_context_memory *memory, size_t bytes) {
    if (bytes > SIZE_MAX - PAGE) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "%zu bytes", bytes);
    }
    LIERNE_TRY(lierne_alloc(&memory->block, bytes + PAGE, 1));
    memory->data = (void *)(((uintptr_t)memory->block + PAGE - 1) / PAGE * PAGE);
    return LIERNE_OK;
}

static lierne_status alloc_memory(lierne_context *context, lierne_context_memory *memory,
                                  size_t bytes) {
    const lierne_carrier *carrier = provider(context);
    LIERNE_TRY(lierne_vec_grow(&context->memories.at, context->memories.count,
                               &context->memories.capacity, sizeof *context->memories.at));
    return carrier ? carrier->transport->memory->alloc(carrier->self, &memory->data, bytes)
                   : alloc_ordinary(memory, bytes);
}

/* What was allocated and freed leaves nothing. */
static void forget_empty(lierne_context *context) {
    if (context->memories.count == 0) {
        lierne_mem_free(context->memories.at);
        memset(&context->memories, 0, sizeof context->memories);
    }
}

lierne_status lierne_context_alloc(void **out, lierne_context *context, size_t bytes) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_context_memory memory = {0};
    if (!out || !context) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", out ? "context" : "out");
    }
    lierne_context_enter(context);
    lierne_status status = alloc_memory(context, &memory, bytes);
    if (status == LIERNE_OK) {
        context->memories.at[context->memories.count++] = memory;
        *out = memory.data;
    }
    forget_empty(context);
    lierne_context_leave(context);
    return status;
}

lierne_status lierne_context_alloc_shown(void **out, bool *window, lierne_context *context,
                                         int64_t bytes) {
    const lierne_carrier *carrier = provider(context);
    lierne_context_enter(context);
    *window = carrier &&
              carrier->transport->memory->alloc(carrier->self, out, (size_t)bytes) == LIERNE_OK;
    lierne_context_leave(context);
    return *window ? LIERNE_OK : lierne_context_alloc_scratch(out, context, bytes);
}

/* What a peer may still read is the window's, and ends with it. */
void lierne_context_free_shown(lierne_context *context, void *memory, bool window, bool quiet) {
    if (!window) {
        lierne_context_free_scratch(context, memory, quiet);
    } else if (lierne_lifetime_find(NULL, quiet) == LIERNE_LIFETIME_USE) {
        const lierne_carrier *carrier = provider(context);
        lierne_context_enter(context);
        carrier->transport->memory->free(carrier->self, memory);
        lierne_context_leave(context);
    }
}

static bool release_memory(lierne_context *context, void *data) {
    size_t i = 0;
    while (i < context->memories.count && context->memories.at[i].data != data) {
        i++;
    }
    if (i == context->memories.count) {
        return false;
    }
    if (context->memories.at[i].block) {
        lierne_mem_free(context->memories.at[i].block);
    } else {
        const lierne_carrier *carrier = provider(context);
        carrier->transport->memory->free(carrier->self, data);
    }
    context->memories.at[i] = context->memories.at[--context->memories.count];
    forget_empty(context);
    return true;
}

lierne_status lierne_context_dealloc(lierne_context *context, void *memory) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(context, "context"));
    lierne_context_enter(context);
    bool found = !memory || release_memory(context, memory);
    lierne_context_leave(context);
    return found ? LIERNE_OK
                 : LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "no memory that lierne_context_alloc returned for this context, and "
                               "that is not yet freed, begins at %p",
                               memory);
}

lierne_status lierne_context_check_memory(const lierne_context *context) {
    size_t n = context->memories.count;
    if (context->nwindows > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%zu windows of rank %d are alive, must be 0: destroy them first "
                           "(lierne_window_destroy)",
                           context->nwindows, context->rank);
    }
    return n == 0 ? LIERNE_OK
                  : LIERNE_FAIL(LIERNE_ERR_INVALID,
                                "%zu buffers of lierne_context_alloc of rank %d are alive, must be "
                                "0: free them first (lierne_context_dealloc)",
                                n, context->rank);
}

void lierne_context_drop_memory(lierne_context *context) {
    bool now = lierne_lifetime_find(NULL, !context->borrows) == LIERNE_LIFETIME_USE;
    for (size_t i = 0; now && i < context->memories.count; i++) {
        lierne_mem_free(context->memories.at[i].block);
    }
    context->memories.count = 0;
    forget_empty(context);
}
