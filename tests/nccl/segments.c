/* Samples, and segments of packed sequences, that change over NCCL without NCCL and without a GPU:
 * 4 threads are the ranks of a node, on a device and over a NCCL that are played (device_streams.h,
 * fake.h). Random steps of samples against an oracle; many updates and calls that streams have not
 * begun when the last one is made; ranks whose segments, or whose calls before an update, differ:
 * all get MISMATCH, and go on. Last line: N passed, N failed. */
#include "device_streams.h"
#include "fake.h"
#include "layouts.h"
#include "lierne/nccl.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "tasks.h"
#include "unit/sample_steps.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FEW = 6, MOST = 3000, WIDTH = 3, MOST_ROWS = 8 * MOST, ROUNDS = 40 };
enum { ITEMS = MOST_ROWS * WIDTH };

static lierne_memory memory;
static lierne_stream_driver driver;
static char stream;
static bool over_nccl; /* else over sockets, with slots in memory of the host */

static lierne_context *open_context(const char *name, int rank) {
    lierne_context *context = (over_nccl ? open_nccl : open_device)(name, rank, 60);
    if (!over_nccl) {
        context->stream_driver = &test_device_driver; /* which the host may poll */
    }
    return context;
}

static void *steps(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *context = open_context("steps", rank);
    for (uint64_t seed = 34; seed < 36; seed++) { /* 35: without a capacity */
        sample_steps t = {.seed = seed, .steps = 100, .stream = &stream};
        sample_steps_run(&t, context);
        check(t.wrong == 0, t.what);
        check(t.moved > 20 && t.rejected > 3, "steps that move rows, and that have an error");
    }
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    return NULL;
}

/* cp ranks by zigzag to ranks that have whole segments. */
typedef struct description {
    int64_t cu[MOST + 1];
    int32_t owner[MOST];
    lierne_segments segments;
    lierne_packing src, dst;
} description;

/* more: tokens that segment 1 has more, which padding hides. */
static void describe(description *d, int round, int n, int more) {
    *d = (description){.src = {.size = sizeof d->src, .align = 2 * RANKS}};
    for (int i = 0; i < n; i++) {
        d->cu[i + 1] = d->cu[i] + (round * 7 + i * 5) % (n > FEW ? 5 : 23) + (i == 1 ? more : 0);
        d->owner[i] = (i + round) % RANKS;
    }
    d->segments =
        (lierne_segments){.size = sizeof d->segments, .nsegments = n, .cu_seqlens = d->cu};
    d->dst = (lierne_packing){.size = sizeof d->dst, .owner = d->owner};
}

static lierne_layout *layout_of(const description *d, bool dst) {
    static const char *const name = "cp";
    const int64_t size = RANKS;
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = &name, .sizes = &size, .world_size = RANKS};
    lierne_grid *grid = NULL;
    check(lierne_grid_create(&grid, &spec) == LIERNE_OK, "a grid");
    lierne_layout *layout =
        layout_packed(grid, &d->segments, dst ? &d->dst : &d->src,
                      dst ? LIERNE_PLACEMENT_SHARD_SEGMENTS : LIERNE_PLACEMENT_SEGMENT_ZIGZAG,
                      WIDTH);
    check(layout != NULL, "a layout");
    lierne_grid_destroy(grid);
    return layout;
}

/* Writes the rows of a rank's tokens, or says whether they are there. */
static bool visit_rows(const description *d, bool dst, int rank, int64_t *buffer, bool write) {
    static _Thread_local lierne_box boxes[MOST_ROWS];
    size_t count = 0;
    bool right = true;
    lierne_layout *layout = layout_of(d, dst);
    lierne_layout_get_boxes(boxes, MOST_ROWS, &count, layout, rank);
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < boxes[b].size[0] * WIDTH; i++) {
            int64_t *at = &buffer[boxes[b].local[0] * WIDTH + i];
            int64_t value = 100 * (boxes[b].start[0] + i / WIDTH) + i % WIDTH + 1;
            right &= write || *at == value;
            *at = write ? value : *at;
        }
    }
    lierne_layout_destroy(layout);
    return right;
}

static lierne_status update(lierne_plan *plan, const description *d) {
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = &d->segments,
                                      .src = &d->src,
                                      .dst = &d->dst};
    return lierne_plan_update_segments(plan, &u);
}

static lierne_plan *plan_of(lierne_context *context) {
    description d;
    lierne_plan *plan = NULL;
    describe(&d, 0, FEW, 0);
    lierne_layout *src = layout_of(&d, false), *dst = layout_of(&d, true);
    const lierne_redistribute_spec spec = {
        .size = sizeof spec, .src = src, .dst = dst, .max_segments = MOST, .max_rows = MOST_ROWS};
    check(lierne_plan_create_redistribute(&plan, context, &spec) == LIERNE_OK, "planning");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return plan;
}

/* A call of a round; its buffers stay. */
typedef struct call {
    description d;
    bool forward;
    int64_t in[ITEMS], out[ITEMS];
} call;

static lierne_status begin_call(call *c, lierne_plan *plan, int rank, void *on) {
    memset(c->in, 0x3c, sizeof c->in);
    memset(c->out, 0x5a, sizeof c->out);
    visit_rows(&c->d, !c->forward, rank, c->in, true);
    return (c->forward ? lierne_plan_forward : lierne_plan_adjoint)(plan, c->out, c->in, on);
}

static void keep_shut(void *gate) {
    while (!atomic_load(*(atomic_bool **)gate)) {
        usleep(100);
    }
}

static lierne_context *open_on_streams(const char *name, int rank, test_device_stream *own) {
    lierne_context *context = open_timed(name, rank, RANKS, 60);
    context->memory = &memory;
    context->stream_driver = &driver;
    context->own_stream = own;
    check(lierne_context_use_nccl(context, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    return context;
}

/* Nothing that a call needs may be what a later update makes of it. */
static void *run_ahead(void *argument) {
    int rank = (int)(intptr_t)argument;
    test_device_stream *own = test_device_stream_create(), *on = test_device_stream_create();
    lierne_context *context = open_on_streams("ahead", rank, own);
    static atomic_bool open[RANKS];
    atomic_bool *gate = &open[rank];
    lierne_plan *plan = plan_of(context);
    call *calls = calloc(ROUNDS, sizeof *calls);
    for (int i = 0; i < ROUNDS; i++) {
        int n = i / 2 == 3 ? MOST : FEW; /* more than is reserved, which is waited for */
        describe(&calls[i].d, i / 2, n, 0);
        if (i == ROUNDS / 4) {
            test_device_stream_add(on, keep_shut, &gate, sizeof(atomic_bool *));
        }
        calls[i].forward = i % 3;
        check(i % 2 || update(plan, &calls[i].d) == LIERNE_OK, "update");
        check(begin_call(&calls[i], plan, rank, on) == LIERNE_OK, lierne_last_error());
    }
    atomic_store(gate, true);
    test_device_stream_destroy(on);
    for (int i = 0; i < ROUNDS; i++) {
        check(visit_rows(&calls[i].d, calls[i].forward, rank, calls[i].out, false), "rows");
    }
    free(calls);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    test_device_stream_destroy(own);
    return NULL;
}

/* Rank 2 has other segments of the same lengths with padding, or makes one update more. */
static void *mismatches(void *argument) {
    int rank = (int)(intptr_t)argument;
    lierne_context *context = open_context("mismatches", rank);
    lierne_plan *plan = plan_of(context);
    call *c = calloc(1, sizeof *c);
    c->forward = true;
    for (int round = 1; round < 5; round++) {
        describe(&c->d, round, FEW, rank == 2 && round % 2);
        check(update(plan, &c->d) == LIERNE_OK, "update");
        check(rank != 2 || round % 2 || update(plan, &c->d) == LIERNE_OK, "one update more");
        check(begin_call(c, plan, rank, &stream) == LIERNE_ERR_MISMATCH, "ranks that differ");
        check(strstr(lierne_last_error(),
                     round % 2 ? "tokens of segments" : "updates of segments") != NULL,
              lierne_last_error());
        check(begin_call(c, plan, rank, &stream) == LIERNE_ERR_MISMATCH, "still");
        describe(&c->d, round, FEW, 0);
        check(round % 2 == 0 || update(plan, &c->d) == LIERNE_OK, "the right update");
        check(round % 2 || rank == 2 || update(plan, &c->d) == LIERNE_OK, "the update left out");
        check(begin_call(c, plan, rank, &stream) == LIERNE_OK, lierne_last_error());
        check(visit_rows(&c->d, true, rank, c->out, false), "rows after a mismatch");
        int64_t controls = context->recorder.controls;
        check(begin_call(c, plan, rank, &stream) == LIERNE_OK, "a second call");
        check(context->recorder.controls == controls, "without a word");
    }
    free(c);
    check(lierne_plan_destroy(plan) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    return NULL;
}

static lierne_status update_samples(lierne_samples *samples, int rank) {
    const int64_t cost[2] = {5 + 9 * (rank == 0), 3};
    const lierne_items items = {.size = sizeof items, .nitems = 2, .ncosts = 1, .cost = cost};
    const lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
    return lierne_samples_update(samples, &items, &balance, NULL);
}

/* Rank 1 makes a call before an update, the others after it. */
static void *calls_in_another_order(void *argument) {
    int rank = (int)(intptr_t)argument;
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 1};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = 2,
                                      .ncosts = 1,
                                      .max_rows = 40,
                                      .ntensors = 1,
                                      .tensors = &tensor};
    test_device_stream *own = test_device_stream_create(), *on = test_device_stream_create();
    lierne_context *context = open_on_streams("order", rank, own);
    lierne_samples *samples = NULL;
    lierne_plan *plan = NULL;
    int64_t in[40] = {0}, out[40];
    check(lierne_samples_create(&samples, context, &spec) == LIERNE_OK, "create");
    check(lierne_samples_get_plan(&plan, samples, 0) == LIERNE_OK, "get_plan");
    check(update_samples(samples, rank) == LIERNE_OK, lierne_last_error());
    check(rank != 1 || lierne_plan_forward(plan, out, in, on) == LIERNE_OK, "a call");
    check(update_samples(samples, rank) == LIERNE_ERR_MISMATCH, "a call in another order");
    check(strstr(lierne_last_error(), "calls of forward") != NULL, lierne_last_error());
    check(rank == 1 || lierne_plan_forward(plan, out, in, on) == LIERNE_OK, "a call");
    check(update_samples(samples, rank) == LIERNE_OK, lierne_last_error());
    check(lierne_samples_destroy(samples) == LIERNE_OK, "destroy");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    test_device_stream_destroy(on);
    test_device_stream_destroy(own);
    return NULL;
}

int main(void) {
    for (int i = 0; i < 2; i++) {
        over_nccl = i > 0;
        run_ranks(steps);
        check(lierne_mem_live() == 0, "nothing leaks");
        run_ranks(mismatches);
        check(lierne_mem_live() == 0, "nothing leaks after a mismatch");
    }
    memory = test_device_stream_memory();
    memory.name = "cuda";
    driver = test_device_stream_driver;
    driver.name = "cuda";
    fake_nccl_use_streams(true);
    run_ranks(run_ahead);
    run_ranks(calls_in_another_order);
    check(lierne_mem_live() == 0, "nothing leaks after streams");
    return print_checks();
}
