/* Groups over windows, on two nodes between which sockets move messages that the host polls: a call
 * in a group passes one outside of it that a rank withholds, and the same call without a group does
 * not; calls of two groups on one stream keep the order of their begins. On a device that is played
 * (ipc.h), whose streams are threads. Last line: N passed, N failed. */
#include "device_streams.h"
#include "ipc.h"
#include "node_ranks.h"

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 300, WITHHOLDS = 1, LATE = 0, LATE_MS = 300 };

static const int nodes[RANKS] = {0, 1, 0, 1};

/* A rank, its two plans and their streams: x is a sum in two stages, the second of which is not
 * posted before the first is complete; y an all-to-all. */
typedef struct rank_state {
    int rank;
    lierne_context *context;
    lierne_group *groups[2]; /* of x and y */
    lierne_plan *x, *y;
    test_device_stream *streams[2];
    int32_t in[RANKS * COUNT], sums[COUNT], parts[RANKS * COUNT];
} rank_state;

static lierne_group *make_group(lierne_context *context, const char *purpose) {
    static const int ranks[RANKS] = {0, 1, 2, 3};
    const lierne_group_spec spec = {
        .size = sizeof spec, .purpose = purpose, .ngroups = 1, .group_size = RANKS, .ranks = ranks};
    lierne_group *group = NULL;
    check(lierne_group_create(&group, context, &spec) == LIERNE_OK, "a group");
    return group;
}

static void open_state(rank_state *s, int rank, const char *name, double timeout, bool grouped) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout, .nodes = nodes};
    *s = (rank_state){.rank = rank, .context = open_rank(name, rank, RANKS, &spec)};
    check(test_ipc_use_streams(s->context) == LIERNE_OK, "windows");
    s->groups[0] = grouped ? make_group(s->context, "fsdp") : NULL;
    s->groups[1] = grouped ? make_group(s->context, "ep") : NULL;
    const lierne_all_reduce_spec x = {.size = sizeof x,
                                      .count = COUNT,
                                      .dtype = LIERNE_DTYPE_I32,
                                      .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT,
                                      .group = s->groups[0]};
    const lierne_all_to_all_spec y = {.size = sizeof y,
                                      .count = COUNT,
                                      .dtype = LIERNE_DTYPE_I32,
                                      .group = s->groups[1]};
    check(lierne_plan_create_all_reduce(&s->x, s->context, &x) == LIERNE_OK, "planning");
    check(lierne_plan_create_all_to_all(&s->y, s->context, &y) == LIERNE_OK, "planning");
    for (int i = 0; i < 2; i++) {
        s->streams[i] = test_device_stream_create();
    }
    for (int i = 0; i < RANKS * COUNT; i++) {
        s->in[i] = rank * 10000 + i;
    }
}

static void set_flag(void *flag) {
    atomic_store(*(atomic_bool **)flag, true);
}

static void await_stream(test_device_stream *stream) {
    atomic_bool passed = false, *flag = &passed;
    test_device_stream_add(stream, set_flag, &flag, sizeof(atomic_bool *));
    while (!atomic_load(&passed)) {
        usleep(100);
    }
}

/* After a failure, too, steps end. */
static void close_state(rank_state *s) {
    await_stream(s->streams[0]);
    await_stream(s->streams[1]);
    lierne_plan_destroy(s->x);
    lierne_plan_destroy(s->y);
    lierne_group_destroy(s->groups[1]);
    lierne_group_destroy(s->groups[0]);
    lierne_context_destroy(s->context);
    test_device_stream_destroy(s->streams[0]);
    test_device_stream_destroy(s->streams[1]);
}

static void check_results(const rank_state *s) {
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += s->sums[i] != 10000 * (0 + 1 + 2 + 3) + RANKS * i;
    }
    for (int i = 0; i < RANKS * COUNT; i++) {
        wrong += s->parts[i] != i / COUNT * 10000 + s->rank * COUNT + i % COUNT;
    }
    check(wrong == 0, "the sums, and the parts of all ranks");
}

static lierne_status begin_x(rank_state *s, lierne_request **request) {
    return lierne_plan_forward_begin(request, s->x, s->sums, s->in, s->streams[0]);
}

static lierne_status begin_y(rank_state *s, lierne_request **request, int stream) {
    return lierne_plan_forward_begin(request, s->y, s->parts, s->in, s->streams[stream]);
}

/* One rank begins x when it has seen y complete. */
static lierne_status pass_gate(rank_state *s) {
    lierne_request *x, *y;
    if (s->rank != WITHHOLDS) {
        lierne_status status = begin_x(s, &x);
        status = status == LIERNE_OK ? begin_y(s, &y, 1) : status;
        status = status == LIERNE_OK ? lierne_request_end(y) : status;
        return status == LIERNE_OK ? lierne_request_end(x) : status;
    }
    lierne_status status = begin_y(s, &y, 1);
    status = status == LIERNE_OK ? lierne_request_end(y) : status;
    if (status == LIERNE_OK) {
        await_stream(s->streams[1]);
        status = begin_x(s, &x);
    }
    return status == LIERNE_OK ? lierne_request_end(x) : status;
}

static void *opens(void *argument) {
    rank_state s;
    open_state(&s, (int)(intptr_t)argument, "opens", 10, true);
    check(pass_gate(&s) == LIERNE_OK, "y passes x, which is in another group");
    close_state(&s);
    check_results(&s);
    return NULL;
}

static void *stays_shut(void *argument) {
    rank_state s;
    open_state(&s, (int)(intptr_t)argument, "shut", 1, false);
    lierne_status status = pass_gate(&s);
    check(status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED,
          "without groups y is behind x");
    meet_ranks();
    close_state(&s);
    return NULL;
}

/* x of one rank is late, so that it begins y when x has not posted all: the other rank of its node
 * has, and its stream awaits x first. */
static void *keeps_order(void *argument) {
    const struct timespec nap = {.tv_nsec = 1000000};
    rank_state s;
    lierne_request *x, *y;
    int done;
    open_state(&s, (int)(intptr_t)argument, "order", 5, true);
    for (int i = 0; s.rank == LATE && i < LATE_MS; i++) {
        nanosleep(&nap, NULL);
    }
    check(begin_x(&s, &x) == LIERNE_OK, "x");
    for (int i = 0; s.rank != LATE && i < 2 * LATE_MS; i++) {
        lierne_request_test(&done, x);
        nanosleep(&nap, NULL);
    }
    check(begin_y(&s, &y, 0) == LIERNE_OK, "y");
    check(lierne_request_end(x) == LIERNE_OK && lierne_request_end(y) == LIERNE_OK, "end");
    close_state(&s);
    check_results(&s);
    return NULL;
}

int main(void) {
    run_ranks(opens);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks");
    run_ranks(keeps_order);
    run_ranks(stays_shut);
    return print_checks();
}
