/* Runs of schedules and what a caller has on two emulated devices: a default stream of the
 * context's device while another one is current, a thread of the run, which begins on the first
 * device, and a stream that is being captured when a run begins or goes on. Last line: N passed,
 * N failed. */
#include "lierne/collective.h"
#include "lierne/cuda.h"
#include "lierne/schedule.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "runtime/execute/stream.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLERS, OWN, COUNT = 64, BYTES = COUNT * sizeof(float) }; /* devices */

static lierne_context *context;
static lierne_plan *plan;
static float *in, *out;
static lierne_stream_driver driver;
static atomic_int entered;

static int current_device(void) {
    int device = -1;
    cudaGetDevice(&device);
    return device;
}

static void enter_thread(int device) {
    driver.enter_thread(device);
    entered += current_device() == OWN;
}

static void open_plan(void) {
    static lierne_stream_driver counted;
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    context = open_rank("runs", 0, 1, NULL);
    check(cudaMalloc((void **)&in, BYTES) == cudaSuccess &&
              cudaMalloc((void **)&out, BYTES) == cudaSuccess,
          "memory");
    check(lierne_context_use_cuda(context) == LIERNE_OK &&
              lierne_plan_create_all_reduce(&plan, context, &spec) == LIERNE_OK,
          "a plan");
    counted = driver = *context->stream_driver;
    counted.enter_thread = enter_thread;
    context->stream_driver = &counted;
}

static lierne_run *make_run(void *stream, bool held, bool threaded) {
    static const int ranks[1] = {0};
    const lierne_schedule_group_spec all = {
        .size = sizeof all, .name = "all", .uid = 1, .ranks = ranks, .nranks = 1};
    const lierne_run_spec spec = {.size = sizeof spec,
                                  .stream = stream,
                                  .progress_thread = threaded};
    lierne_operation_spec operation = LIERNE_OPERATION_SPEC_INIT;
    lierne_schedule *schedule = NULL;
    lierne_run *run = NULL;
    int index;
    operation.kind = LIERNE_OPERATION_ALL_REDUCE;
    operation.group = 0;
    operation.plan = plan;
    operation.held = held;
    check(lierne_schedule_create(&schedule, 0) == LIERNE_OK &&
              lierne_schedule_add_group(&index, schedule, &all) == LIERNE_OK &&
              lierne_schedule_add_operation(&index, schedule, &operation) == LIERNE_OK &&
              lierne_schedule_freeze(schedule) == LIERNE_OK,
          "a schedule");
    check(lierne_run_create(&run, context, schedule, &spec) == LIERNE_OK, "a run");
    lierne_schedule_destroy(schedule);
    return run;
}

static lierne_status begin(lierne_run *run) {
    void *const outs[1] = {out};
    const void *const ins[1] = {in};
    return lierne_run_begin(run, outs, ins);
}

static void fill(cudaStream_t stream, int byte) {
    cudaSetDevice(OWN);
    check(cudaMemsetAsync(in, byte, BYTES, stream) == cudaSuccess, "input");
    cudaSetDevice(CALLERS);
}

static void check_output(int byte) {
    unsigned char got[BYTES], expected[BYTES];
    memset(expected, byte, BYTES);
    cudaSetDevice(OWN);
    check(cudaMemcpy(got, out, BYTES, cudaMemcpyDefault) == cudaSuccess &&
              memcmp(got, expected, BYTES) == 0,
          "the output of a run");
}

static void use_default(cudaStream_t stream, bool threaded) {
    cudaSetDevice(OWN);
    lierne_run *run = make_run(stream, true, threaded);
    fill(stream, 3);
    check(begin(run) == LIERNE_OK && current_device() == CALLERS, "begin");
    check(lierne_run_resume(run, 0) == LIERNE_OK && current_device() == CALLERS, "resume");
    check(lierne_run_end(run) == LIERNE_OK && current_device() == CALLERS, "end");
    check_output(3);
    check(lierne_run_destroy(run) == LIERNE_OK, "destroy"); /* waits for a thread that began late */
    check(entered == threaded, "the run's thread is on the context's device");
}

static void capture(cudaStream_t stream, bool end) {
    cudaGraph_t graph = NULL;
    if (!end) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess, "begin");
        return;
    }
    check(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the capture is as it was");
    cudaGraphDestroy(graph);
}

static bool says_captured(lierne_status status) {
    return status == LIERNE_ERR_UNSUPPORTED &&
           strstr(lierne_last_error(), "spec->stream is being captured into a graph") != NULL;
}

static void use_captured(void) {
    cudaStream_t stream;
    cudaSetDevice(OWN);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    lierne_run *run = make_run(stream, true, false);
    fill(stream, 5);
    capture(stream, false);
    check(says_captured(begin(run)), "a run begins within a capture");
    capture(stream, true);
    check(begin(run) == LIERNE_OK, "begin");
    capture(stream, false);
    check(says_captured(lierne_run_resume(run, 0)), "a run goes on within a capture");
    capture(stream, true);
    check(lierne_run_resume(run, 0) == LIERNE_OK && lierne_run_end(run) == LIERNE_OK, "end");
    check_output(5);
    check(lierne_run_destroy(run) == LIERNE_OK, "destroy");
    cudaStreamDestroy(stream);
}

/* Groups that are there before windows would share one order over these. */
static void reject_groups(void) {
    static const int ranks[1] = {0};
    const lierne_group_spec spec = {
        .size = sizeof spec, .purpose = "ep", .ngroups = 1, .group_size = 1, .ranks = ranks};
    lierne_group *group = NULL;
    lierne_context *late = open_rank("late", 0, 1, NULL);
    check(lierne_group_create(&group, late, &spec) == LIERNE_OK, "a group");
    check(lierne_context_use_cuda(late) == LIERNE_ERR_INVALID &&
              strstr(lierne_last_error(), "groups were created before") != NULL,
          "groups come after memory");
    lierne_group_destroy(group);
    lierne_context_destroy(late);
    check(lierne_group_create(&group, context, &spec) == LIERNE_OK &&
              lierne_context_use_cuda(context) == LIERNE_OK &&
              lierne_group_destroy(group) == LIERNE_OK,
          "a second call");
}

int main(int argc, char **argv) {
    (void)argc;
    if (!getenv("EMULATOR_DEVICES")) {
        setenv("EMULATOR_DEVICES", "2", 1);
        execv("/proc/self/exe", argv);
    }
    cudaSetDevice(OWN);
    open_plan();
    use_default(cudaStreamLegacy, false);
    use_captured();
    use_default(cudaStreamLegacy, true);
    cudaSetDevice(OWN);
    lierne_plan_destroy(plan);
    reject_groups();
    lierne_context_destroy(context);
    cudaFree(in);
    cudaFree(out);
    return print_checks();
}
