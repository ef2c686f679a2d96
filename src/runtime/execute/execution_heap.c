/* Executions move into the heap of the context, where it has one and had no space for them.
 *
 * How much they need is known on each rank when they are created; that all ranks could create them,
 * only when they have agreed. So the heap grows afterwards, and no call has used the memory yet. */
#include "runtime/execute/execution.h"
#include "runtime/transport/heap.h"

static bool is_outside(const lierne_execution *e, const lierne_heap *heap) {
    return e->memory.reserved > 0 && !e->memory.window && lierne_heap_place(heap, e->memory.at) < 0;
}

static void move(lierne_execution *e, lierne_heap *heap) {
    void *memory = is_outside(e, heap) ? lierne_heap_take(heap, e->memory.reserved) : NULL;
    if (memory) {
        lierne_context_free_scratch(e->context, e->memory.at, true);
        e->memory.at = memory;
        e->memory.capacity = e->memory.reserved;
        lierne_execution_place_slots(e);
    }
}

lierne_status lierne_execution_use_heap(lierne_context *context,
                                        lierne_execution *const *executions, size_t n) {
    lierne_heap *heap = lierne_context_heap(context);
    int64_t bytes = 0;
    if (!heap) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < n; i++) {
        bytes +=
            is_outside(executions[i], heap) ? lierne_heap_align(executions[i]->memory.reserved) : 0;
    }
    LIERNE_TRY(lierne_context_add_to_heap(context, bytes));
    for (size_t i = 0; i < n; i++) {
        move(executions[i], heap);
    }
    return LIERNE_OK;
}
