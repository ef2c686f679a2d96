/* Memory of a device that is freed with the context only. Freeing it waits for all streams of the
 * device: if ranks are threads of one process, also for the call of another rank that waits for a
 * call which this rank has yet to make. What is given back is used again. */
#include "runtime/context/context.h"

#define LITTLE 4096 /* bytes that may be left over in any block */

lierne_status lierne_context_reserve_kept(lierne_context *context) {
    return lierne_vec_grow(&context->kept.at, context->kept.count + 1, &context->kept.capacity,
                           sizeof *context->kept.at);
}

/* The smallest block that is free and has space, without half of it left over. */
static lierne_kept *find_block(const lierne_context *context, size_t bytes, bool host) {
    lierne_kept *found = NULL;
    for (size_t i = 0; i < context->kept.count; i++) {
        lierne_kept *k = &context->kept.at[i];
        if (!k->taken && k->host == host && k->bytes >= bytes && k->bytes / 2 <= bytes + LITTLE &&
            (!found || k->bytes < found->bytes)) {
            found = k;
        }
    }
    return found;
}

lierne_status lierne_context_alloc_kept(void **out, lierne_context *context, size_t bytes,
                                        bool host) {
    const lierne_memory *memory = context->memory;
    lierne_status (*alloc)(void **, size_t) = host ? memory->alloc_host : memory->alloc;
    if (!memory->free_waits) {
        return alloc(out, bytes);
    }
    lierne_kept *block = find_block(context, bytes, host);
    if (!block) {
        LIERNE_TRY(lierne_context_reserve_kept(context));
        block = &context->kept.at[context->kept.count];
        LIERNE_TRY(alloc(&block->memory, bytes));
        block->bytes = bytes;
        block->host = host;
        context->kept.count++;
    }
    block->taken = true;
    *out = block->memory;
    return LIERNE_OK;
}

void lierne_context_free_kept(lierne_context *context, void *memory, bool host, bool quiet) {
    lierne_lifetime lifetime = lierne_lifetime_find(context->memory, quiet);
    if (lifetime == LIERNE_LIFETIME_USE) {
        (host ? context->memory->free_host : context->memory->free)(memory);
    }
    if (lifetime != LIERNE_LIFETIME_CONTEXT) {
        return;
    }
    for (size_t i = 0; i < context->kept.count; i++) {
        lierne_kept *k = &context->kept.at[i];
        k->taken &= k->memory != memory;
    }
}

void lierne_context_drop_kept(lierne_context *context) {
    for (size_t i = 0; i < context->kept.count; i++) {
        const lierne_kept *k = &context->kept.at[i];
        if (lierne_lifetime_find(NULL, !k->taken) == LIERNE_LIFETIME_USE) {
            (k->host ? context->memory->free_host : context->memory->free)(k->memory);
        }
    }
    lierne_mem_free(context->kept.at);
}
