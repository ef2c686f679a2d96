/* Schedules over the NCCL that is played, on streams that are threads, without any buffering: an
 * isolated all-to-all passes an all-gather that a rank withholds until it has seen the all-to-all
 * complete, and does not where both are in one queue; what depends on an operation of another queue
 * waits for it; queues whose messages have one order are rejected, and those whose plans are in a
 * group of lierne_group_create are not. Last line: N passed, N failed. */
#include "collectives.h"
#include "device_streams.h"
#include "fake.h"
#include "node_ranks.h"
#include "runtime/context/context.h"
#include "step/schedule_run.h"
#include "tasks.h"

#include "lierne.h"
#include "lierne/nccl.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 700, ALL = RANKS * COUNT, WITHHOLDS = 1, OPERATIONS = 4, LATE_US = 200000 };

static lierne_memory memory;
static lierne_stream_driver driver;

/* Operation 0 gathers; 1 is an all-to-all; 2 is another one, of what operation 0 gathered; in 3
 * only rank 0 does something. */
typedef struct rank_state {
    int rank;
    test_device_stream *own;
    lierne_context *context;
    lierne_group *group;
    lierne_plan *plans[OPERATIONS];
    float in[2][ALL], out[OPERATIONS][ALL];
} rank_state;

static const int all_ranks[RANKS] = {0, 1, 2, 3};

static bool gathers(int i) {
    return i == 0 || i == 3;
}

static lierne_status make_plan(rank_state *s, int i, lierne_group *group) {
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_F32);
    const lierne_all_to_all_spec exchange = {.size = sizeof exchange,
                                             .count = COUNT,
                                             .dtype = LIERNE_DTYPE_F32,
                                             .group = group};
    lierne_all_gather_spec alone = gather;
    alone.ranks = all_ranks, alone.nranks = 1;
    return gathers(i)
               ? lierne_plan_create_all_gather(&s->plans[i], s->context, i ? &alone : &gather)
               : lierne_plan_create_all_to_all(&s->plans[i], s->context, &exchange);
}

/* last: the plans of operations 1 to last are of a group of their own; 0: none. */
static void open_state(rank_state *s, int rank, const char *name, double timeout, int last) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    const lierne_group_spec group = {.size = sizeof group,
                                     .purpose = "ep",
                                     .ngroups = 1,
                                     .group_size = RANKS,
                                     .ranks = all_ranks};
    memset(s, 0, sizeof *s);
    s->rank = rank;
    s->own = test_device_stream_create();
    s->context = open_rank(name, rank, RANKS, &spec);
    s->context->memory = &memory;
    s->context->stream_driver = &driver;
    s->context->own_stream = s->own;
    check(lierne_context_use_nccl(s->context, NULL) == LIERNE_OK, "lierne_context_use_nccl");
    check(last == 0 || lierne_group_create(&s->group, s->context, &group) == LIERNE_OK, "a group");
    for (int i = 0; i < OPERATIONS; i++) {
        check(make_plan(s, i, i > 0 && i <= last ? s->group : NULL) == LIERNE_OK, "planning");
    }
    for (int i = 0; i < ALL; i++) {
        s->in[0][i] = (float)(rank * ALL + i);
        s->in[1][i] = (float)(-rank * ALL - i);
    }
    memset(s->out, 0xa5, sizeof s->out);
}

static void close_state(rank_state *s) {
    for (int i = 0; i < OPERATIONS; i++) {
        lierne_plan_destroy(s->plans[i]);
    }
    lierne_group_destroy(s->group);
    lierne_context_destroy(s->context);
    test_device_stream_destroy(s->own);
}

static int add_group(lierne_schedule *s, const char *name, int64_t uid) {
    const lierne_schedule_group_spec spec = {
        .size = sizeof spec, .name = name, .uid = uid, .ranks = all_ranks, .nranks = RANKS};
    int index = -1;
    check(lierne_schedule_add_group(&index, s, &spec) == LIERNE_OK, "a group of a schedule");
    return index;
}

/* Exchanges are in the queue of `uid`, gathers in that of uid 100. */
static lierne_schedule *record(const rank_state *s, int64_t uid) {
    static const int first = 0;
    lierne_schedule *schedule;
    int groups[2], index;
    check(lierne_schedule_create(&schedule, s->rank) == LIERNE_OK, "a schedule");
    groups[0] = add_group(schedule, "llm", 100);
    groups[1] = uid == 100 ? groups[0] : add_group(schedule, "experts", uid);
    for (int i = 0; i < OPERATIONS; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        o.kind = gathers(i) ? LIERNE_OPERATION_ALL_GATHER : LIERNE_OPERATION_ALL_TO_ALL;
        o.group = groups[!gathers(i)];
        o.tag = gathers(i) ? "fsdp" : "ep";
        o.plan = s->plans[i];
        o.held = i == 0 && s->rank == WITHHOLDS;
        o.after = &first;
        o.nafter = i == 2;
        check(lierne_schedule_add_operation(&index, schedule, &o) == LIERNE_OK, "an operation");
    }
    check(lierne_schedule_freeze(schedule) == LIERNE_OK, "freeze");
    return schedule;
}

static lierne_status create_run(lierne_run **run, const rank_state *s, int64_t uid, bool isolates) {
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    lierne_schedule *recorded = record(s, uid), *isolated = NULL;
    check(!isolates || lierne_schedule_isolate(&isolated, recorded, &ep) == LIERNE_OK, "isolate");
    lierne_status status = lierne_run_create(run, s->context, isolates ? isolated : recorded, NULL);
    lierne_schedule_destroy(isolated);
    lierne_schedule_destroy(recorded);
    return status;
}

/* The other ranks would wait for ever. */
static void must(bool good, const char *what) {
    if (!good) {
        check(false, what);
        exit(print_checks());
    }
}

static lierne_run_event event_of(const lierne_run *run, int operation) {
    lierne_run_event event = {.size = sizeof event};
    must(lierne_run_get_event(&event, run, operation) == LIERNE_OK, "an event");
    return event;
}

/* The rank that withholds lets its gather go on when it has seen the exchange complete; whether it
 * has. */
static bool pass_gate(rank_state *s, lierne_run *run) {
    void *out[] = {s->out[0], s->out[1], s->out[2], s->out[3]};
    const void *in[] = {s->in[0], s->in[1], s->out[0], s->in[0]};
    int done = 0;
    if (lierne_run_begin(run, out, in) != LIERNE_OK) {
        return false;
    }
    while (s->rank == WITHHOLDS && event_of(run, 1).ended == 0) {
        if (lierne_run_test(&done, run) != LIERNE_OK) {
            return false;
        }
        usleep(100);
    }
    if (s->rank == WITHHOLDS) {
        check(event_of(run, 0).ended == 0, "the gather is held");
        usleep(LATE_US); /* who does not wait for it reads poison */
        check(lierne_run_resume(run, 0) == LIERNE_OK, "resume");
    }
    return true;
}

static void check_results(const rank_state *s) {
    int wrong[OPERATIONS] = {0};
    for (int i = 0; i < ALL; i++) {
        int from = i / COUNT, at = i % COUNT;
        wrong[0] += s->out[0][i] != (float)(from * ALL + at);
        wrong[1] += s->out[1][i] != (float)(-from * ALL - s->rank * COUNT - at);
        wrong[2] += s->out[2][i] != (float)(s->rank * ALL + at);
    }
    check(wrong[0] == 0, "what was gathered");
    check(s->rank > 0 || memcmp(s->out[3], s->in[0], COUNT * sizeof(float)) == 0,
          "what one rank copied");
    check(wrong[1] == 0, "what was exchanged");
    check(wrong[2] == 0, "what was exchanged of what was gathered");
}

/* Times are those at which the host saw it. */
static void check_order(const lierne_run *run, int rank) {
    const lierne_run_event x = event_of(run, 0), y = event_of(run, 1), z = event_of(run, 2);
    check(y.ended < x.ended && x.queue != y.queue && y.queue == z.queue, "the exchange is first");
    check(rank != WITHHOLDS || y.ended <= x.resumed, "before the gather goes on");
    check(x.ended <= z.begun && z.begun <= z.ended, "what depends on it waits");
}

static void open_gate(rank_state *s, int64_t uid, bool isolates) {
    lierne_run *run = NULL;
    meet_ranks();
    int urgent = test_device_urgent_streams();
    meet_ranks();
    must(create_run(&run, s, uid, isolates) == LIERNE_OK, "a run");
    check(run->ncopies == (isolates ? 2 : 0), "a copy of each plan that is isolated");
    meet_ranks();
    check(test_device_urgent_streams() - urgent == (isolates ? RANKS : 0), "urgent streams");
    for (int round = 0; round < 2; round++) {
        memset(s->out, 0xa5, sizeof s->out);
        check(pass_gate(s, run) && lierne_run_end(run) == LIERNE_OK, "the gate opens");
        check_results(s);
        check_order(run, s->rank);
    }
    check(lierne_run_destroy(run) == LIERNE_OK, "destroy");
}

static void *opens(void *argument) {
    static rank_state states[RANKS];
    rank_state *s = &states[(intptr_t)argument];
    open_state(s, (int)(intptr_t)argument, "opens", 10, 2);
    open_gate(s, lierne_group_get_uid(s->group), false);
    open_gate(s, 100, true);
    close_state(s);
    return NULL;
}

/* All in one queue, behind what is held. */
static void *stays_shut(void *argument) {
    static rank_state states[RANKS];
    rank_state *s = &states[(intptr_t)argument];
    lierne_run *run = NULL;
    open_state(s, (int)(intptr_t)argument, "shut", 1, 0);
    must(create_run(&run, s, 100, false) == LIERNE_OK, "a run");
    check(pass_gate(s, run) == (s->rank != WITHHOLDS), "the gate stays shut");
    lierne_status status = lierne_run_end(run);
    const char *text = lierne_last_error();
    check(event_of(run, 1).ended == 0, "nothing passes what is held");
    check((status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED) &&
              (strstr(text, "operation 0 (all_gather of group 'llm') is held") ||
               strstr(text, "forward 0 of plan ")),
          "the error names the operation, or its call");
    check(s->rank != WITHHOLDS || status != LIERNE_ERR_TIMEOUT ||
              strstr(text, "operation 1 waits behind it in the same queue") != NULL,
          "and what is behind it");
    meet_ranks();
    lierne_run_destroy(run);
    close_state(s);
    return NULL;
}

static void *rejects(void *argument) {
    static rank_state states[RANKS];
    static lierne_transport plain;
    rank_state *s = &states[(intptr_t)argument];
    lierne_run *run = NULL;
    for (int last = 1; last >= 0; last--) { /* the next operation is in the domain of the first */
        char text[200];
        open_state(s, (int)(intptr_t)argument, last ? "apart" : "rejects", 20, last);
        snprintf(text, sizeof text,
                 "the plans of operations 0 (group 'llm') and %d (group 'experts') have one order "
                 "of messages, that of the context",
                 last + 1);
        check(create_run(&run, s, last ? lierne_group_get_uid(s->group) : 7, false) ==
                      LIERNE_ERR_INVALID &&
                  !run && strstr(lierne_last_error(), text),
              "two queues in one domain");
        meet_ranks();
        if (last) {
            close_state(s);
        }
    }
    check(create_run(&run, s, 100, true) == LIERNE_OK && lierne_run_destroy(run) == LIERNE_OK,
          "a queue whose groups the run creates");
    run = NULL;
    const lierne_transport *nccl = s->context->carriers[0].transport;
    meet_ranks();
    plain = *nccl;
    plain.groups = NULL;
    s->context->carriers[0].transport = &plain;
    check(create_run(&run, s, 100, true) == LIERNE_ERR_UNSUPPORTED && !run &&
              strstr(lierne_last_error(), "transport nccl matches messages in the order of all "
                                          "calls"),
          "a transport without groups");
    s->context->carriers[0].transport = nccl;
    meet_ranks();
    close_state(s);
    return NULL;
}

/* Allocation k of the process fails while a run is created, on whatever rank that is: all ranks get
 * that error, until there are fewer. The first 400 reach as far as its copies of plans. */
static void *lacks_memory(void *argument) {
    static rank_state states[RANKS];
    static lierne_status got[RANKS];
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    rank_state *s = &states[(intptr_t)argument];
    lierne_schedule *isolated = NULL;
    open_state(s, (int)(intptr_t)argument, "memory", 20, 0);
    lierne_schedule *recorded = record(s, 100);
    check(lierne_schedule_isolate(&isolated, recorded, &ep) == LIERNE_OK, "isolate");
    size_t k = 1;
    for (bool fails = true; fails; k += k < 400 ? 1 : 16) {
        lierne_run *run = NULL;
        meet_ranks();
        lierne_mem_fail_at(k);
        meet_ranks();
        got[s->rank] = lierne_run_create(&run, s->context, isolated, NULL);
        meet_ranks();
        lierne_mem_fail_at(0);
        fails = got[0] != LIERNE_OK && k < 4000;
        must(got[s->rank] == (fails ? LIERNE_ERR_NO_MEMORY : LIERNE_OK) && !run == fails,
             "a run without memory");
        check(lierne_run_destroy(run) == LIERNE_OK, "destroy");
    }
    check(k > 400 && k < 4000, "allocations fail");
    lierne_schedule_destroy(isolated);
    lierne_schedule_destroy(recorded);
    meet_ranks();
    close_state(s);
    return NULL;
}

int main(void) {
    memory = test_device_stream_memory();
    memory.name = "cuda";
    driver = test_device_stream_driver;
    driver.name = "cuda";
    fake_nccl_use_streams(true);
    run_ranks(opens);
    check(lierne_mem_live() == 0, "nothing leaks");
    run_ranks(rejects);
    check(lierne_mem_live() == 0, "nothing leaks after a rejection");
    run_ranks(lacks_memory);
    check(lierne_mem_live() == 0, "nothing leaks without memory");
    run_ranks(stays_shut);
    return print_checks();
}
