/* Schedules between processes on a device. The gate: an all-to-all passes an all-gather that rank 1
 * withholds until it has seen the all-to-all complete, where a pass has isolated it, and does not
 * where both are in one queue. A step of sharded data parallelism (all-gathers of parameters,
 * reduce-scatters of gradients) with all-to-alls to experts and back, again and again: with and
 * without isolation the losses have the same bits, and with isolation the all-to-alls begin before
 * the all-gather ends that rank 1 withholds until then. With the argument "shut", the gate without
 * isolation. */
#include "collectives.h"
#include "common.h"

#include "lierne/schedule.h"

#include <string.h>
#include <unistd.h>

enum { COUNT = 96, STEPS = 3, WITHHOLDS = 1, MOST_RANKS = 8 };
/* Operations of a step: the all-gather of the next layer, tokens to experts, tokens back, and the
 * reduce-scatter of gradients. */
enum { GATHER, TO_EXPERTS, BACK, SCATTER, OPERATIONS };

typedef struct step {
    lierne_plan *plans[OPERATIONS];
    float *in[OPERATIONS], *out[OPERATIONS]; /* on the device */
    size_t bytes[OPERATIONS][2];
    cudaStream_t stream;
} step;

static void open_plans(step *s, lierne_context *device) {
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_F32);
    const lierne_all_to_all_spec tokens = all_to_all_of(COUNT, LIERNE_DTYPE_F32);
    const lierne_reduce_scatter_spec scatter = reduce_scatter_of(COUNT, LIERNE_DTYPE_F32);
    must(lierne_plan_create_all_gather(&s->plans[GATHER], device, &gather) == LIERNE_OK &&
             lierne_plan_create_all_to_all(&s->plans[TO_EXPERTS], device, &tokens) == LIERNE_OK &&
             lierne_plan_create_all_to_all(&s->plans[BACK], device, &tokens) == LIERNE_OK &&
             lierne_plan_create_reduce_scatter(&s->plans[SCATTER], device, &scatter) == LIERNE_OK,
         "planning");
}

static float *device_memory(size_t bytes) {
    void *memory = NULL;
    must(cudaMalloc(&memory, bytes) == cudaSuccess, "cudaMalloc");
    return memory;
}

static void open_step(step *s, lierne_context *device) {
    open_plans(s, device);
    must(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking) == cudaSuccess, "a stream");
    for (int i = 0; i < OPERATIONS; i++) {
        s->bytes[i][0] = ranks_bytes(s->plans[i], 0, 0);
        s->bytes[i][1] = ranks_bytes(s->plans[i], 0, 1);
        s->in[i] = device_memory(s->bytes[i][0]);
        s->out[i] = device_memory(s->bytes[i][1]);
    }
}

static void close_step(step *s) {
    for (int i = 0; i < OPERATIONS; i++) {
        lierne_plan_destroy(s->plans[i]);
        cudaFree(s->in[i]);
        cudaFree(s->out[i]);
    }
    cudaStreamDestroy(s->stream);
}

/* Tokens go back after they have come, and gradients are reduced behind them. */
static lierne_schedule *record(const step *s) {
    static const char *const tags[] = {"fsdp", "ep", "ep", "fsdp"};
    static const lierne_operation_kind kinds[] = {LIERNE_OPERATION_ALL_GATHER,
                                                  LIERNE_OPERATION_ALL_TO_ALL,
                                                  LIERNE_OPERATION_ALL_TO_ALL,
                                                  LIERNE_OPERATION_REDUCE_SCATTER};
    static const int before[] = {BACK};
    int ranks[MOST_RANKS], index = -1;
    lierne_schedule *schedule;
    for (int r = 0; r < world; r++) {
        ranks[r] = r;
    }
    const lierne_schedule_group_spec llm = {
        .size = sizeof llm, .name = "llm", .uid = 1, .ranks = ranks, .nranks = world};
    must(lierne_schedule_create(&schedule, rank) == LIERNE_OK &&
             lierne_schedule_add_group(&index, schedule, &llm) == LIERNE_OK,
         "a schedule");
    for (int i = 0; i < OPERATIONS; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        o.kind = kinds[i];
        o.group = 0;
        o.tag = tags[i];
        o.plan = s->plans[i];
        o.held = i == GATHER && rank == WITHHOLDS;
        o.after = before;
        o.nafter = i == SCATTER;
        must(lierne_schedule_add_operation(&index, schedule, &o) == LIERNE_OK, "an operation");
    }
    must(lierne_schedule_freeze(schedule) == LIERNE_OK, "freeze");
    return schedule;
}

static lierne_run *make_run(const step *s, lierne_context *device, bool isolates) {
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    const lierne_run_spec spec = {.size = sizeof spec, .stream = s->stream};
    lierne_schedule *recorded = record(s), *isolated = NULL;
    lierne_run *run = NULL;
    must(lierne_schedule_isolate(&isolated, recorded, &ep) == LIERNE_OK, "isolate");
    must(lierne_run_create(&run, device, isolates ? isolated : recorded, &spec) == LIERNE_OK,
         "a run");
    lierne_schedule_destroy(isolated);
    lierne_schedule_destroy(recorded);
    return run;
}

static lierne_run_event event_of(const lierne_run *run, int operation) {
    lierne_run_event event = {.size = sizeof event};
    if (lierne_run_get_event(&event, run, operation) != LIERNE_OK) {
        must(false, "an event");
    }
    return event;
}

static void copy(const step *s, void *to, const void *from, size_t bytes) {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s->stream) == cudaSuccess, "a copy");
}

/* Parameters, tokens and gradients of a step, enqueued on the caller's stream: the run waits for
 * them. */
static void fill(const step *s, int number) {
    static float values[OPERATIONS][MOST_RANKS * COUNT];
    must(cudaStreamSynchronize(s->stream) == cudaSuccess, "the last copies");
    for (int i = 0; i < OPERATIONS; i++) {
        for (int k = 0; k < world * COUNT; k++) {
            values[i][k] = (float)((k * 37 + rank * 11 + i * 5 + number * 3) % 101) / 7;
        }
        copy(s, s->in[i], values[i], s->bytes[i][0]);
        must(cudaMemsetAsync(s->out[i], 0xa5, s->bytes[i][1], s->stream) == cudaSuccess, "poison");
    }
}

/* What all outputs have, in one number, with the bits of each. */
static uint64_t take_loss(const step *s) {
    static float values[MOST_RANKS * COUNT];
    uint64_t loss = 1469598103934665603u;
    for (int i = 0; i < OPERATIONS; i++) {
        copy(s, values, s->out[i], s->bytes[i][1]);
        must(cudaStreamSynchronize(s->stream) == cudaSuccess, "a copy");
        for (size_t k = 0; k < s->bytes[i][1]; k++) {
            loss = (loss ^ ((unsigned char *)values)[k]) * 1099511628211u;
        }
    }
    return loss;
}

/* The tokens that came are those that go back. */
static lierne_status begin(const step *s, lierne_run *run) {
    void *out[OPERATIONS];
    const void *in[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        out[i] = s->out[i];
        in[i] = i == BACK ? s->out[TO_EXPERTS] : s->in[i];
    }
    return lierne_run_begin(run, out, in);
}

/* Rank 1 lets the all-gather go on when it has seen tokens come back, or at once. */
static lierne_status pass(const step *s, lierne_run *run, bool withholds) {
    lierne_status status = begin(s, run);
    int done = 0;
    while (status == LIERNE_OK && withholds && rank == WITHHOLDS &&
           event_of(run, BACK).ended == 0) {
        usleep(100);
        status = lierne_run_test(&done, run);
    }
    if (status == LIERNE_OK && rank == WITHHOLDS) {
        check(lierne_run_resume(run, GATHER) == LIERNE_OK, "resume");
    }
    lierne_status ended = lierne_run_end(run);
    return status == LIERNE_OK ? ended : status;
}

/* One look of another rank may find both. */
static void check_overlap(const lierne_run *run) {
    const lierne_run_event gather = event_of(run, GATHER), to = event_of(run, TO_EXPERTS),
                           back = event_of(run, BACK), scatter = event_of(run, SCATTER);
    check(gather.queue == scatter.queue && to.queue == back.queue && to.queue != gather.queue,
          "two queues");
    check(to.begun <= gather.ended && back.begun <= gather.ended,
          "the all-to-alls begin before the end of the all-gather");
    check(rank != WITHHOLDS || (back.ended <= gather.resumed && gather.resumed < gather.ended),
          "and end before it goes on");
    check(gather.ended <= scatter.begun && to.ended <= back.begun, "a queue keeps its order");
}

static void run_steps(lierne_context *device) {
    uint64_t losses[2][STEPS];
    step s;
    open_step(&s, device);
    for (int isolates = 0; isolates < 2; isolates++) {
        lierne_run *run = make_run(&s, device, isolates);
        for (int i = 0; i < STEPS; i++) {
            fill(&s, i);
            check(pass(&s, run, isolates) == LIERNE_OK, "a step");
            losses[isolates][i] = take_loss(&s);
            if (isolates) {
                check_overlap(run);
            }
        }
        check(lierne_run_destroy(run) == LIERNE_OK, "destroy");
    }
    check(memcmp(losses[0], losses[1], sizeof losses[0]) == 0, "the same losses, bit by bit");
    check(losses[0][0] != losses[0][1], "of other data");
    close_step(&s);
}

/* All in one queue: nothing passes what is held, and the run ends with an error. */
static void stay_shut(lierne_context *device) {
    step s;
    open_step(&s, device);
    lierne_run *run = make_run(&s, device, false);
    fill(&s, 0);
    lierne_status status = pass(&s, run, true);
    check(status != LIERNE_OK, "the gate stays shut");
    check(
        rank != WITHHOLDS || status != LIERNE_ERR_TIMEOUT ||
            strstr(lierne_last_error(),
                   "operation 0 (all_gather of group 'llm') is held: lierne_run_resume; operation "
                   "1 waits behind it in the same queue") != NULL,
        "the error names what is held, and what waits");
    check(event_of(run, BACK).ended == 0, "nothing passes what is held");
    lierne_run_destroy(run);
    close_step(&s);
}

int main(int argc, char **argv) {
    lierne_context *host = NULL, *device = NULL;
    bool shut = argc > 1 && strcmp(argv[1], "shut") == 0;
    ranks_open(&host, &device, shut ? 2 : 60);
    must(world <= MOST_RANKS, "as many ranks as there is space for");
    (shut ? stay_shut : run_steps)(device);
    lierne_context_destroy(device);
    lierne_context_destroy(host);
    return ranks_end();
}
