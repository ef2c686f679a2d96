/* Memory of a device that a context keeps because freeing it waits (context_kept.c). */
#include "runtime/context/context.h"
#include "tasks.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

static int live;

static lierne_status alloc_counted(void **out, size_t bytes) {
    live++;
    return lierne_host_memory.alloc(out, bytes);
}

static void free_counted(void *memory) {
    live--;
    lierne_host_memory.free(memory);
}

static lierne_context open_kept(lierne_memory *memory, bool waits) {
    *memory = test_device_memory;
    memory->alloc = memory->alloc_host = alloc_counted;
    memory->free = memory->free_host = free_counted;
    memory->free_waits = waits;
    return (lierne_context){.memory = memory};
}

static void *take(lierne_context *context, size_t bytes, bool host) {
    void *memory = NULL;
    assert_ok(lierne_context_alloc_kept(&memory, context, bytes, host));
    return memory;
}

Test(kept, blocks_are_used_again_and_freed_with_the_context) {
    lierne_memory memory;
    lierne_context context = open_kept(&memory, true);
    void *large = take(&context, 100000, true), *small = take(&context, 10, true);
    void *other = take(&context, 100000, false);
    cr_assert_eq(live, 3);
    void *second = take(&context, 100000, true);
    cr_assert_neq(second, large, "one that is taken");
    lierne_context_free_kept(&context, large, true, true);
    lierne_context_free_kept(&context, small, true, true);
    lierne_context_free_kept(&context, other, false, true);
    cr_assert_eq(live, 4, "nothing is freed before the end");
    cr_assert_eq(take(&context, 9, true), small, "the smallest that has space");
    cr_assert_eq(take(&context, 99000, true), large);
    cr_assert_eq(take(&context, 100000, false), other, "of its kind");
    lierne_context_free_kept(&context, large, true, true);
    void *little = take(&context, 11, true), *longer = take(&context, 100001, true);
    cr_assert(little != large && longer != large, "none that is much too large, or too small");
    void *given[] = {second, other, little, longer};
    for (int i = 0; i < 4; i++) {
        lierne_context_free_kept(&context, given[i], given[i] != other, true);
    }
    lierne_context_drop_kept(&context);
    cr_assert_eq(live, 1, "what is still used stays");
    free_counted(small);
}

Test(kept, nothing_is_kept_where_freeing_does_not_wait) {
    lierne_memory memory;
    lierne_context context = open_kept(&memory, false);
    void *block = take(&context, 10, true);
    lierne_context_free_kept(&context, block, true, false);
    cr_assert_eq(live, 1, "a peer may still write there");
    lierne_context_free_kept(&context, block, true, true);
    cr_assert_eq(live, 0);
}
