/* Scratch and staging slots of executions: blocks of the heap of a transport that has one, else
 * memory of the kind of buffers.
 *
 * Ranks add a chunk together, while planning. Whatever fails on one of them, all drop the chunk and
 * go on with what they have; only a registration that failed takes the transport with it. */
#include "runtime/context/context.h"
#include "runtime/transport/heap.h"

/* What became of a chunk on the rank that is worst off. */
enum { KEPT = 0, REFUSED = 1, BROKEN = 2 };

static const lierne_carrier *provider(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport->registers) {
            return &context->carriers[i];
        }
    }
    return NULL;
}

lierne_heap *lierne_context_heap(const lierne_context *context) {
    const lierne_carrier *carrier = provider(context);
    return carrier ? carrier->transport->registers->heap(carrier->self) : NULL;
}

/* Whether a library that a transport calls may map the memory, or register it. */
static bool is_shared(const lierne_context *context) {
    bool shared = provider(context) != NULL;
    for (int i = 0; i < context->ncarriers; i++) {
        shared |= context->carriers[i].takes != NULL;
    }
    return shared;
}

static lierne_status alloc_outside(void **out, lierne_context *context, int64_t bytes) {
    return context->memory->alloc_ordered && !is_shared(context)
               ? context->memory->alloc_ordered(out, (size_t)bytes, context->own_stream)
               : lierne_context_alloc_kept(out, context, (size_t)bytes, false);
}

static void free_outside(lierne_context *context, void *memory) {
    if (context->memory->free_ordered && !is_shared(context)) {
        context->memory->free_ordered(memory, context->own_stream);
    } else {
        lierne_context_free_kept(context, memory, false, true);
    }
}

lierne_status lierne_context_alloc_scratch(void **out, lierne_context *context, int64_t bytes) {
    lierne_heap *heap = lierne_context_heap(context);
    *out = heap && bytes > 0 ? lierne_heap_take(heap, bytes) : NULL;
    return *out ? LIERNE_OK : alloc_outside(out, context, bytes);
}

void lierne_context_free_scratch(lierne_context *context, void *memory, bool quiet) {
    lierne_heap *heap = lierne_context_heap(context);
    if (lierne_lifetime_find(NULL, quiet) == LIERNE_LIFETIME_PROCESS) {
        return;
    }
    if (!heap || !lierne_heap_give(heap, memory)) {
        free_outside(context, memory);
    }
}

static int64_t outcome(lierne_status enlisted) {
    return enlisted == LIERNE_OK ? KEPT : enlisted == LIERNE_ERR_UNSUPPORTED ? REFUSED : BROKEN;
}

lierne_status lierne_context_grow_heap(lierne_context *context, const lierne_carrier *carrier,
                                       int64_t bytes) {
    const lierne_field field = {.name = "registered memory"};
    const lierne_transport_registers *t = carrier->transport->registers;
    int64_t most = bytes;
    if (!t->heap(carrier->self)->grows) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_context_allreduce_max(context, &most, 1));
    if (most == 0) {
        return LIERNE_OK;
    }
    int64_t worst = t->reserve(carrier->self, most) == LIERNE_OK ? KEPT : REFUSED;
    lierne_status enlisted = LIERNE_OK;
    LIERNE_TRY(lierne_context_allreduce_max(context, &worst, 1));
    if (worst == KEPT) {
        enlisted = t->enlist(carrier->self);
        worst = outcome(enlisted);
        LIERNE_TRY(lierne_context_allreduce_max(context, &worst, 1));
    }
    if (worst == BROKEN) {
        carrier->transport->watched->abort(carrier->self);
    }
    t->decide(carrier->self, worst == KEPT);
    enlisted = outcome(enlisted) == BROKEN ? enlisted : LIERNE_OK;
    return worst == BROKEN ? lierne_context_agree_all(context, enlisted, &field, 1, NULL)
                           : LIERNE_OK;
}

lierne_status lierne_context_add_to_heap(lierne_context *context, int64_t bytes) {
    const lierne_carrier *carrier = provider(context);
    lierne_status status = carrier ? lierne_context_grow_heap(context, carrier, bytes) : LIERNE_OK;
    return status == LIERNE_OK ? LIERNE_OK : lierne_context_kill(context, status);
}
