/* A reader that is late, over windows: 2, 3 and 4 ranks call a plan 50 times with other data each
 * time, and ranks nap when they have seen that a mailbox is full, or empty, before they copy, pack
 * or unpack. On streams of a device that is played and that the callers run ahead of; with one
 * request and with three; all plans on two streams, and each one on one and on two. Every output is
 * checked.
 * Last line: N passed, N failed. */
#include "device_streams.h"
#include "ipc.h"
#include "lierne.h"
#include "node_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 257, CALLS = 50, PLANS = 3, MOST = RANKS * COUNT };
enum { DEEP = 4, WIDE = 12 }; /* the lengths of a tensor: DEEP, WIDE and WIDE */

/* What a run does; a rank is late if its bit is set. */
typedef struct shape {
    int world, requests, streams;
    int first, end; /* plans */
    unsigned late;
} shape;

static shape now;
static _Thread_local int this_rank;

static void nap(void *rank) {
    static _Thread_local unsigned turn;
    if (now.late >> *(const int *)rank & 1 && turn++ % 3 == 0) {
        usleep(700);
    }
}

static void enqueue_nap(void *stream, int rank) {
    test_device_stream_add(stream, nap, &rank, sizeof rank);
}

static lierne_status copy_late(void *to, const void *from, size_t bytes, void *stream, int device) {
    enqueue_nap(stream, device);
    return test_ipc_stream_driver.copy(to, from, bytes, stream, device);
}

static lierne_memory memory;
static lierne_ipc_driver driver;

static lierne_status launch_late(const lierne_program *program, size_t number,
                                 const lierne_task_call *call, void *stream) {
    enqueue_nap(stream, this_rank);
    return test_device_stream_memory().launch(program, number, call, stream);
}

static lierne_context *open_windows(int rank) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 30};
    lierne_context *context = open_rank("late", rank, now.world, &spec);
    context->device = rank;
    context->memory = &memory;
    context->stream_driver = &test_device_stream_driver;
    check(lierne_context_open_ipc(context, &driver) == LIERNE_OK, "windows");
    return context;
}

static lierne_layout *shard(const lierne_grid *grid, int axis) {
    const int64_t lengths[] = {DEEP, WIDE, WIDE};
    const lierne_placement placement = {.kind = LIERNE_PLACEMENT_SHARD, .axis = axis};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 3,
                                     .shape = lengths,
                                     .dtype = LIERNE_DTYPE_I32,
                                     .placements = &placement};
    lierne_layout *layout = NULL;
    check(lierne_layout_create(&layout, &spec) == LIERNE_OK, "layout");
    return layout;
}

/* From shards of axis 1 to shards of axis 2: scattered at both ends. */
static lierne_status plan_scattered(lierne_plan **plan, lierne_context *context) {
    const char *const names[] = {"dp"};
    const int64_t sizes[] = {now.world};
    const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                        .ndims = 1,
                                        .names = names,
                                        .sizes = sizes,
                                        .world_size = now.world};
    lierne_grid *grid = NULL;
    check(lierne_grid_create(&grid, &grid_spec) == LIERNE_OK, "grid");
    lierne_layout *src = shard(grid, 1), *dst = shard(grid, 2);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = src,
                                           .dst = dst,
                                           .max_inflight = now.requests};
    lierne_status status = lierne_plan_create_redistribute(plan, context, &spec);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    return status;
}

/* A message in two phases, and in one; contiguous, and scattered. */
static lierne_status make_plan(lierne_plan **plan, lierne_context *context, int p) {
    const lierne_all_to_all_spec all = {.size = sizeof all,
                                        .count = COUNT,
                                        .dtype = LIERNE_DTYPE_I32,
                                        .max_inflight = now.requests};
    const lierne_all_reduce_spec sum = {.size = sizeof sum,
                                        .count = COUNT,
                                        .dtype = LIERNE_DTYPE_I32,
                                        .max_inflight = now.requests,
                                        .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    return p == 0   ? lierne_plan_create_all_to_all(plan, context, &all)
           : p == 1 ? lierne_plan_create_all_reduce(plan, context, &sum)
                    : plan_scattered(plan, context);
}

static int32_t input_of(int rank, int call, int i) {
    return rank * 1000003 + call * 8191 + i * 7 + 1;
}

static bool is_adjoint(int call) {
    return call % 4 == 3;
}

/* Forward, element (a, b, c) comes from the rank that has b, else from the one that has c. */
static int32_t scattered_output_of(int rank, int call, int i) {
    int share = WIDE / now.world;
    int row = is_adjoint(call) ? WIDE : share, other = is_adjoint(call) ? share : WIDE;
    int a = i / (share * WIDE), b = i / row % other, c = i % row;
    int from = is_adjoint(call) ? c / share : b / share;
    int at = is_adjoint(call) ? (a * WIDE + rank * share + b) * share + c % share
                              : (a * share + b % share) * WIDE + rank * share + c;
    return input_of(from, call, at);
}

static int elements_of(int p) {
    return p == 0 ? now.world * COUNT : p == 1 ? COUNT : DEEP * WIDE * (WIDE / now.world);
}

/* The other plans are their own adjoints. */
static int32_t output_of(int p, int rank, int call, int i) {
    int32_t sum = 0;
    if (p == 2) {
        return scattered_output_of(rank, call, i);
    }
    if (p == 0) {
        return input_of(i / COUNT, call, rank * COUNT + i % COUNT);
    }
    for (int r = 0; r < now.world; r++) {
        sum += input_of(r, call, i);
    }
    return sum;
}

typedef struct data {
    int32_t in[PLANS][CALLS][MOST], out[PLANS][CALLS][MOST];
} data;

/* Ends of calls are delayed as far as the requests allow it. */
static void call_plans(lierne_plan **plans, test_device_stream **streams, data *d) {
    lierne_request *open[PLANS][CALLS] = {{NULL}};
    for (int call = 0; call < CALLS + now.requests - 1; call++) {
        for (int p = now.first; p < now.end; p++) {
            void *stream = streams[(p + (now.end - now.first == 1) * call) % now.streams];
            int first = call - now.requests + 1;
            if (call < CALLS) {
                check((is_adjoint(call)
                           ? lierne_plan_adjoint_begin
                           : lierne_plan_forward_begin)(&open[p][call], plans[p], d->out[p][call],
                                                        d->in[p][call], stream) == LIERNE_OK,
                      "begin");
            }
            check(first < 0 || lierne_request_end(open[p][first]) == LIERNE_OK, "end");
        }
    }
}

static void fill_inputs(data *d, int rank) {
    for (int p = 0; p < PLANS; p++) {
        for (int call = 0; call < CALLS; call++) {
            for (int i = 0; i < MOST; i++) {
                d->in[p][call][i] = input_of(rank, call, i);
            }
        }
    }
}

static void check_outputs(const data *d, int rank) {
    static const char *const names[PLANS] = {"all-to-all", "all-reduce", "scattered"};
    for (int p = now.first; p < now.end; p++) {
        for (int call = 0; call < CALLS; call++) {
            int wrong = 0;
            for (int i = 0; i < elements_of(p); i++) {
                wrong += d->out[p][call][i] != output_of(p, rank, call, i);
            }
            check(wrong == 0, names[p]);
        }
    }
}

static void *read_late(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_plan *plans[PLANS] = {NULL};
    test_device_stream *streams[2] = {test_device_stream_create(), test_device_stream_create()};
    this_rank = rank;
    data *d = malloc(sizeof *d);
    memset(d->out, 0xa5, sizeof d->out);
    fill_inputs(d, rank);
    lierne_context *context = open_windows(rank);
    for (int p = 0; p < PLANS; p++) {
        check(make_plan(&plans[p], context, p) == LIERNE_OK, "planning");
    }
    call_plans(plans, streams, d);
    for (int p = 0; p < PLANS; p++) {
        check(lierne_plan_destroy(plans[p]) == LIERNE_OK, "plan"); /* waits for the streams */
    }
    check_outputs(d, rank);
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    test_device_stream_destroy(streams[0]);
    test_device_stream_destroy(streams[1]);
    free(d);
    return NULL;
}

/* After a failure the others would only wait for their deadlines, too. */
static void run_shape(int world, int requests, int first, int end, int streams) {
    now = (shape){.world = world,
                  .requests = requests,
                  .first = first,
                  .end = end,
                  .streams = streams,
                  .late = 2 + (unsigned)(end - first > 1) * 4}; /* rank 1, and rank 2 */
    memory = test_device_stream_memory();
    memory.launch = launch_late;
    driver = test_ipc_stream_driver;
    driver.copy = copy_late;
    if (failed_checks() == 0) {
        run_n_ranks(world, read_late);
    }
}

int main(void) {
    for (int world = 2; world <= RANKS; world++) {
        for (int p = 0; p < PLANS; p++) {
            run_shape(world, 1, p, p + 1, 1);
            run_shape(world, 3, p, p + 1, 1);
            run_shape(world, 1, p, p + 1, 2);
        }
        run_shape(world, 1, 0, PLANS, 2);
        run_shape(world, 3, 0, PLANS, 2);
    }
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks");
    return print_checks();
}
