/* Calls on memory that the host cannot touch: a memory kind whose work is recorded and launched,
 * and streams whose work is enqueued by the thread that begins, as those of CUDA, played by the
 * host. What the host must not do block by block is not there (NULL). */
#include "backend/cuda/device_pointer.h"
#include "capture.h"
#include "layouts.h"
#include "runtime/context/context.h"
#include "runtime/execute/stream.h"
#include "tasks.h"
#include "unit/expect.h"
#include "unit/plan_case.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <string.h>

enum { ROWS = 4, WIDTH = 2, GHOSTS = 3 };

static char on_host[64]; /* the fake's host memory; everything else counts as the device's */
static char stream_a, stream_b, captured;
static int begun, finished, fences, programs;
static void *last_stream;

static lierne_status check_buffer(const void *buffer, size_t align, int device, const char *name) {
    cr_assert_eq(device, 7, "of another device than the context's");
    bool host = (const char *)buffer >= on_host && (const char *)buffer < on_host + sizeof on_host;
    return host || (uintptr_t)buffer % align
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%s is no device memory", name)
               : LIERNE_OK;
}

static lierne_status check_stream(const void *stream, int device, bool *captures) {
    cr_assert_eq(device, 7);
    *captures = false;
    return stream == &captured ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "captured") : LIERNE_OK;
}

static lierne_status fence_create(void **fence) {
    fences++;
    *fence = &fences;
    return LIERNE_OK;
}

static void fence_destroy(void *fence) {
    cr_assert_eq(fence, &fences);
    fences--;
}

static lierne_status begin(void *stream, void *fence) {
    cr_assert_eq(fence, &fences);
    cr_assert_eq(begun, finished);
    begun++;
    last_stream = stream;
    return LIERNE_OK;
}

static lierne_status finish(void *stream, void *fence) {
    cr_assert_eq(fence, &fences);
    cr_assert_eq(stream, last_stream);
    finished++;
    return LIERNE_OK;
}

static lierne_status prepare(lierne_program *program, void *stream) {
    (void)program, (void)stream;
    programs++;
    return LIERNE_OK;
}

static void discard(lierne_program *program, void *stream) {
    (void)program, (void)stream;
    programs--;
}

static const lierne_stream_driver driver = {.name = "fake",
                                            .required = true,
                                            .check = check_stream,
                                            .fence_create = fence_create,
                                            .fence_destroy = fence_destroy,
                                            .begin = begin,
                                            .finish = finish};
static lierne_memory memory;

static lierne_context *open_context(void) {
    lierne_context *context;
    memory = test_task_memory;
    memory.name = "fake";
    memory.check = check_buffer;
    memory.copy = NULL;
    memory.copy_blocks = NULL;
    memory.zero = NULL;
    memory.reduce = NULL;
    memory.prepare = prepare;
    memory.discard = discard;
    begun = finished = programs = 0;
    assert_ok(lierne_context_create_self(&context, NULL));
    context->memory = &memory;
    context->device = 7;
    context->stream_driver = &driver;
    return context;
}

/* Ghosts 0 and 2 are copies of one row. */
static lierne_plan *make_plan(lierne_context *context) {
    static const int32_t rank[GHOSTS] = {0};
    static const int64_t row[GHOSTS] = {2, 0, 2};
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan;
    spec.nowned = ROWS;
    spec.nghosts = GHOSTS;
    spec.rank = rank;
    spec.row = row;
    spec.width = WIDTH;
    spec.dtype = LIERNE_DTYPE_F32;
    assert_ok(lierne_plan_create_references(&plan, context, &spec));
    return plan;
}

static const float rows[ROWS * WIDTH] = {1, 2, 3, 4, 5, 6, 7, 8};
static const float ghosts[GHOSTS * WIDTH] = {5, 6, 1, 2, 5, 6};
static const float sums[ROWS * WIDTH] = {1, 2, 0, 0, 10, 12, 0, 0};

Test(device, calls_launch_what_was_recorded) {
    size_t live = lierne_mem_live(), before = test_task_launches();
    lierne_context *context = open_context();
    lierne_plan *plan = make_plan(context);
    float out[GHOSTS * WIDTH], gradient[ROWS * WIDTH];
    cr_assert_str_eq(lierne_plan_get_memory_kind(plan), "fake");
    cr_assert_eq(fences, 2);
    cr_assert_eq(programs, 2);
    for (int i = 0; i < 3; i++) {
        memset(out, 0xa5, sizeof out);
        memset(gradient, 0xa5, sizeof gradient);
        assert_ok(lierne_plan_forward(plan, out, rows, i % 2 ? &stream_b : &stream_a));
        assert_ok(lierne_plan_adjoint(plan, gradient, out, &stream_a));
        cr_assert_arr_eq(out, ghosts, sizeof out);
        cr_assert_arr_eq(gradient, sums, sizeof sums);
    }
    cr_assert_eq(begun, 6);
    cr_assert_eq(finished, 6);
    cr_assert_gt(test_task_launches() - before, 5u);
    assert_ok(lierne_plan_destroy(plan));
    cr_assert_eq(fences, 0);
    cr_assert_eq(programs, 0);
    assert_ok(lierne_context_destroy(context));
    cr_assert_eq(lierne_mem_live(), live);
}

/* lierne_plan_reduce takes what out holds into account, which the adjoint does not. */
Test(device, reductions_launch_what_was_recorded_for_them) {
    lierne_context *context = open_context();
    lierne_plan *plan = make_plan(context);
    const float gradient[GHOSTS * WIDTH] = {9, -1, 5, 5, 2, 7};
    const float expected[ROWS * WIDTH] = {5, 5, 4, 4, 9, 7, 4, 4};
    float out[ROWS * WIDTH] = {3, 3, 4, 4, 3, 3, 4, 4};
    assert_ok(lierne_plan_reduce(plan, LIERNE_REDUCTION_MAX, out, gradient, &stream_a));
    cr_assert_arr_eq(out, expected, sizeof out);
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}

static lierne_status failing_launch(const lierne_program *program, size_t launch,
                                    const lierne_task_call *call, void *stream) {
    (void)program, (void)launch, (void)call, (void)stream;
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "the device is gone");
}

/* A launch that fails is the error of the begin, ends the call on the stream, and kills. */
Test(device, a_launch_that_fails_kills_the_context) {
    size_t live = lierne_mem_live();
    lierne_context *context = open_context();
    lierne_plan *plan = make_plan(context);
    float out[GHOSTS * WIDTH];
    memory.launch = failing_launch;
    assert_error(lierne_plan_forward(plan, out, rows, &stream_a), LIERNE_ERR_TRANSPORT,
                 "the device is gone");
    cr_assert_eq(begun, finished);
    cr_assert_eq(lierne_plan_forward(plan, out, rows, &stream_a), LIERNE_ERR_TRANSPORT);
    cr_assert_eq(begun, 1);
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
    cr_assert_eq(lierne_mem_live(), live);
}

static void rejects(lierne_plan *plan, void *out, const void *in, void *stream, const char *word) {
    assert_error(lierne_plan_forward(plan, out, in, stream), LIERNE_ERR_UNSUPPORTED, word);
    cr_assert_eq(begun, 0, "a call that was rejected has begun");
}

Test(device, wrong_memory_and_streams_are_rejected_at_begin) {
    lierne_context *context = open_context();
    lierne_plan *plan = make_plan(context);
    float out[GHOSTS * WIDTH];
    rejects(plan, out, rows, NULL, "stream is NULL");
    rejects(plan, out, rows, &captured, "captured");
    rejects(plan, out, on_host, &stream_a, "forward: in is no device");
    rejects(plan, on_host, rows, &stream_a, "forward: out is no device");
    rejects(plan, (char *)out + 1, rows, &stream_a, "forward: out is no device");
    assert_ok(lierne_plan_forward(plan, out, rows, &stream_a));
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}

/* Nothing is written to an output without elements. */
Test(device, the_memory_of_an_empty_output_does_not_matter) {
    lierne_context *context = open_context();
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = ROWS,
                                         .width = WIDTH,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_plan *plan;
    assert_ok(lierne_plan_create_references(&plan, context, &spec));
    assert_ok(lierne_plan_forward(plan, on_host, rows, &stream_a));
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}

/* A replay has the sizes of its capture. With one rank, a first call may be captured. */
Test(device, a_plan_with_a_captured_call_keeps_its_shape) {
    size_t live = lierne_mem_live();
    lierne_context *context = open_context();
    context->stream_driver = &test_capture_driver;
    lierne_grid *one = grid(1, 1, 1, 1);
    lierne_bridge_spec spec = spec_of(one, one);
    lierne_plan *plan;
    assert_ok(lierne_plan_create_bridge(&plan, context, &spec));
    const int64_t *shape = spec.shape;
    float in[256] = {1, 2, 3}, out[256] = {0};
    assert_ok(lierne_plan_update_shape(plan, shape));
    test_capture_begin(&stream_a);
    assert_ok(lierne_plan_forward(plan, out, in, &stream_a));
    test_graph *graph = test_capture_end();
    cr_assert_eq(out[1], 0);
    assert_error(lierne_plan_update_shape(plan, shape), LIERNE_ERR_BUSY,
                 "a forward call of the plan was captured");
    for (int i = 0; i < 3; i++) {
        in[1] = (float)(i + 7);
        cr_assert_eq(test_graph_launch(graph), LIERNE_OK);
        cr_assert_eq(out[1], in[1]);
    }
    test_graph_destroy(graph);
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
    lierne_grid_destroy(one);
    cr_assert_eq(lierne_mem_live(), live);
}

/* 6 tokens of one segment, on one rank. */
static lierne_plan *plan_that_varies(lierne_context *context, const lierne_segments *segments,
                                     const lierne_packing *packing) {
    const mesh dims = {.ndims = 1, .names = {"cp"}, .sizes = {1}};
    lierne_grid *one = mesh_grid(&dims, 1);
    lierne_layout *layout =
        layout_packed(one, segments, packing, LIERNE_PLACEMENT_SEGMENT_ZIGZAG, WIDTH);
    const lierne_redistribute_spec spec = {
        .size = sizeof spec, .src = layout, .dst = layout, .max_segments = 1, .max_rows = 6};
    lierne_plan *plan;
    assert_ok(lierne_plan_create_redistribute(&plan, context, &spec));
    lierne_layout_destroy(layout);
    lierne_grid_destroy(one);
    return plan;
}

/* Replays keep the sizes of coalesced plans until these are destroyed. */
Test(device, plans_of_a_captured_coalesced_call_keep_their_segments) {
    static const int64_t cu[] = {0, 6};
    const lierne_segments segments = {.size = sizeof segments, .nsegments = 1, .cu_seqlens = cu};
    const lierne_packing packing = {.size = sizeof packing};
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = &packing,
                                           .dst = &packing};
    lierne_context *context = open_context();
    context->stream_driver = &test_capture_driver;
    lierne_plan *plan = plan_that_varies(context, &segments, &packing);
    lierne_coalesced *all;
    int64_t in[6 * WIDTH] = {1, 2, 3}, out[6 * WIDTH] = {0};
    assert_ok(lierne_coalesced_create(&all, &plan, 1));
    assert_ok(lierne_plan_update_segments(plan, &update));
    test_capture_begin(&stream_a);
    assert_ok(lierne_coalesced_begin(all, LIERNE_DIRECTION_FORWARD, (void *[]){out},
                                     (const void *[]){in}, &stream_a));
    assert_ok(lierne_coalesced_end(all, LIERNE_DIRECTION_FORWARD));
    test_graph *graph = test_capture_end();
    assert_error(lierne_plan_update_segments(plan, &update), LIERNE_ERR_BUSY, "coalesced plans");
    cr_assert_eq(test_graph_launch(graph), LIERNE_OK);
    cr_assert_arr_eq(out, in, sizeof in);
    test_graph_destroy(graph);
    assert_ok(lierne_coalesced_destroy(all));
    assert_ok(lierne_plan_update_segments(plan, &update));
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}

/* The driver's answers about memory, as cuPointerGetAttribute gives them: on_host plays the device,
 * its second half managed memory. */
static int query(void *data, int attribute, unsigned long long pointer) {
    unsigned long long first = (unsigned long long)(uintptr_t)on_host;
    if (pointer < first || pointer >= first + sizeof on_host) {
        return 1;
    }
    bool managed = pointer >= first + sizeof on_host / 2;
    *(unsigned *)data = attribute == 2 ? 2 : attribute == 8 ? managed : 0;
    return 0;
}

Test(device, device_memory_in_a_host_context_is_an_error) {
    lierne_context *context;
    float out[GHOSTS * WIDTH], *managed = (float *)(void *)(on_host + sizeof on_host / 2);
    assert_ok(lierne_context_create_self(&context, NULL));
    lierne_plan *plan = make_plan(context);
    int (*ask)(void *, int, unsigned long long) = query;
    cr_assert_str_eq(lierne_plan_get_memory_kind(plan), "host");
    memcpy(managed, rows, sizeof rows);
    *(void **)&context->device_driver = *(void **)&ask;
    context->device_memory = &lierne_cuda_pointers;
    assert_error(lierne_plan_forward(plan, out, on_host, NULL), LIERNE_ERR_UNSUPPORTED,
                 "forward: in is memory of a CUDA device");
    cr_assert_eq(lierne_plan_forward(plan, on_host, rows, NULL), LIERNE_ERR_UNSUPPORTED);
    assert_ok(lierne_plan_forward(plan, out, managed, NULL));
    cr_assert_arr_eq(out, ghosts, sizeof out);
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_context_destroy(context));
}
