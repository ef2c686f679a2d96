/* The kernels' loops: blocks of threads over the tiles of a launch. */
#include "tasks.h"

#include <stdatomic.h>

#define THREADS 7 /* of a block; an odd number, so that pieces of one tile meet in many ways */

static atomic_size_t launches;

size_t test_task_launches(void) {
    return atomic_load(&launches);
}

static lierne_status alloc(void **out, size_t bytes) {
    return lierne_host_memory.alloc(out, bytes);
}

static void release(void *memory) {
    lierne_host_memory.free(memory);
}

static lierne_status prepare(lierne_program *program) {
    (void)program;
    return LIERNE_OK;
}

static void discard(lierne_program *program) {
    (void)program;
}

static lierne_status launch(const lierne_program *program, size_t number,
                            const lierne_task_call *call, void *stream) {
    const lierne_task_launch *l = &program->launches.at[number];
    const lierne_task_table table = {program->tasks.at, program->blocks.at, program->lists.at};
    (void)stream;
    atomic_fetch_add(&launches, 1);
    for (int64_t tile = l->tiles; tile-- > 0;) {
        for (int thread = THREADS; thread-- > 0;) {
            lierne_task_tile(&table, call, l->first, l->end, tile, thread, THREADS, l->dtype);
        }
    }
    return LIERNE_OK;
}

const lierne_memory test_task_memory = {
    .name = "tasks",
    .alloc = alloc,
    .free = release,
    .copy = lierne_host_copy,
    .copy_blocks = lierne_host_copy_blocks,
    .zero = lierne_host_zero,
    .reduce = lierne_host_reduce,
    .prepare = prepare,
    .discard = discard,
    .launch = launch,
};
