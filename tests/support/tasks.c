/* The kernels' loops: blocks of threads over the tiles of a launch; and a device that is played. */
#include "tasks.h"
#include "capture.h"

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

static lierne_status prepare(lierne_program *program, void *stream) {
    (void)program, (void)stream;
    return LIERNE_OK;
}

static lierne_status stage(lierne_program *program) {
    (void)program;
    return LIERNE_OK;
}

static void discard(lierne_program *program, void *stream) {
    (void)program, (void)stream;
}

void test_task_run(const lierne_task_table *table, const lierne_task_launch *l,
                   const lierne_task_call *call) {
    atomic_fetch_add(&launches, 1);
    for (int64_t number = l->tiles; number-- > 0;) {
        lierne_tile tile;
        for (int part = THREADS; part-- > 0;) {
            lierne_tile_fill(&tile, table, call, l->first, l->end, number, part, THREADS);
        }
        for (int thread = THREADS; thread-- > 0;) {
            lierne_tile_run(&tile, table, call, thread, THREADS, l->dtype);
        }
    }
}

/* The arguments of a launch, as a device has them: the addresses by value. */
typedef struct arguments {
    const lierne_program *program;
    size_t number;
    lierne_task_call call;
} arguments;

static lierne_status run_launch(void *data) {
    const arguments *a = data;
    const lierne_program *p = a->program;
    const lierne_task_table table = {p->tasks.at, p->blocks.at, p->lists.at};
    test_task_run(&table, &p->launches.at[a->number], &a->call);
    return LIERNE_OK;
}

static lierne_status launch(const lierne_program *program, size_t number,
                            const lierne_task_call *call, void *stream) {
    arguments a = {program, number, *call};
    return test_capture_add(stream, run_launch, &a, sizeof a) ? LIERNE_OK : run_launch(&a);
}

#define PIECE_THREADS 37 /* more than LIERNE_CHANGE_GROUP */

static void run_piece(const lierne_change_call *call, int64_t number, bool make) {
    const lierne_change_piece piece = call->pieces[number];
    lierne_change_counts counts;
    for (int thread = PIECE_THREADS; thread-- > 0;) {
        (make ? lierne_change_count_map : lierne_change_count)(&counts, call, &piece, thread,
                                                               PIECE_THREADS);
    }
    for (int thread = PIECE_THREADS; thread-- > 0;) {
        lierne_change_add_up(&counts, thread, PIECE_THREADS);
    }
    for (int thread = PIECE_THREADS; thread-- > 0;) {
        if (make) {
            lierne_change_make(&counts, call, &piece, thread, PIECE_THREADS);
        } else {
            lierne_change_list(&counts, call, &piece, thread, PIECE_THREADS, &call->pieces[number]);
        }
    }
}

lierne_status test_task_change(const lierne_change_call *call, bool make, void *stream) {
    (void)stream;
    atomic_fetch_add(&launches, 1);
    for (int64_t number = call->npieces; number-- > 0;) {
        run_piece(call, number, make);
    }
    return LIERNE_OK;
}

#define PLAYED                                                                                     \
    .alloc = alloc, .free = release, .copy = lierne_host_copy,                                     \
    .copy_blocks = lierne_host_copy_blocks, .zero = lierne_host_zero,                              \
    .reduce = lierne_host_reduce, .prepare = prepare, .stage = stage, .renew = prepare,            \
    .discard = discard, .launch = launch, .change = test_task_change
const lierne_memory test_task_memory = {.name = "tasks", PLAYED};
const lierne_memory test_device_memory = {.name = "device",
                                          PLAYED,
                                          .alloc_host = alloc,
                                          .free_host = release};

lierne_memory test_untouched_memory(const char *name) {
    lierne_memory memory = test_device_memory;
    memory.name = name;
    memory.copy = NULL;
    memory.copy_blocks = NULL;
    memory.zero = NULL;
    memory.reduce = NULL;
    return memory;
}

#define QUERIES 3

static lierne_status event_create(void **event) {
    atomic_int *left = NULL;
    lierne_status status = lierne_alloc(&left, 1, sizeof *left);
    *event = left;
    return status;
}

static lierne_status event_record(void *stream, void *event) {
    (void)stream;
    atomic_store((atomic_int *)event, QUERIES);
    return LIERNE_OK;
}

static lierne_status event_query(void *event, bool *passed) {
    *passed = atomic_fetch_sub((atomic_int *)event, 1) <= 0;
    return LIERNE_OK;
}

static lierne_status begin(void *stream, void *fence) {
    (void)stream, (void)fence;
    return LIERNE_OK;
}

lierne_status test_epochs_create(lierne_epochs **epochs, lierne_context *context, size_t n) {
    (void)context;
    return lierne_alloc(epochs, n, sizeof **epochs);
}

void test_epochs_destroy(lierne_epochs *epochs, lierne_context *context) {
    (void)context;
    lierne_mem_free(epochs);
}

lierne_status test_advance(void *stream, uint64_t *epoch) {
    (void)stream;
    __atomic_fetch_add(epoch, 1, __ATOMIC_RELEASE);
    return LIERNE_OK;
}

const lierne_stream_driver test_device_driver = {
    .name = "device",
    .fence_create = event_create,
    .fence_destroy = lierne_mem_free,
    .begin = begin,
    .finish = event_record,
    .event_create = event_create,
    .event_destroy = lierne_mem_free,
    .event_record = event_record,
    .event_query = event_query,
    .epochs_create = test_epochs_create,
    .epochs_destroy = test_epochs_destroy,
    .advance = test_advance,
};
