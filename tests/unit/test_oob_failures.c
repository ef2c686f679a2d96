/* Contexts over the caller's functions and over sockets that do not come about, or whose ranks or
 * functions fail: threads that each do their own. */
#include "collectives.h"
#include "control_messages.h"
#include "oob_ranks.h"
#include "unit/expect.h"

#include "backend/node/mesh.h"
#include "backend/oob/oob_state.h"
#include "runtime/context/context.h"
#include "runtime/control/processes.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, ELEMENTS = 5 };

typedef struct actor {
    pthread_t thread;
    int rank, n;
    oob_way way;
    oob_world *world;
    const char *name;
    double timeout;
    int fail_at; /* call of a function of this rank; 0: none */
    lierne_status status, destroyed;
    long gathers;
    double seconds;
    char message[1024];
    lierne_context *context;
} actor;

static void finish(actor *a, lierne_status status, double start) {
    a->status = status;
    a->seconds = lierne_now() - start;
    a->gathers = oob_world_gathers(a->world, a->rank);
    snprintf(a->message, sizeof a->message, "%s", lierne_last_error());
}

static lierne_status create(actor *a) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = a->timeout};
    return oob_context(&a->context, a->way, a->world, a->name, a->rank, a->n, &spec);
}

/* Waits for the other ranks, which therefore do the same at once. */
static void *destroy(void *argument) {
    actor *a = argument;
    a->destroyed = lierne_context_destroy(a->context);
    return NULL;
}

static void start_all(actor *actors, int n, void *(*act)(void *)) {
    for (int r = 0; r < n; r++) {
        cr_assert_eq(pthread_create(&actors[r].thread, NULL, act, &actors[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(actors[r].thread, NULL);
    }
}

static void act_all(actor *actors, int n, oob_way way, double timeout, void *(*act)(void *)) {
    static int number;
    char name[64];
    oob_world *world = actors[0].world ? actors[0].world : oob_world_create(n);
    snprintf(name, sizeof name, "actors-%d-%d", (int)getpid(), number++);
    for (int r = 0; r < n; r++) {
        actors[r].rank = r;
        actors[r].n = n;
        actors[r].way = way;
        actors[r].world = world;
        actors[r].name = name;
        actors[r].timeout = timeout;
    }
    start_all(actors, n, act);
    start_all(actors, n, destroy);
    for (int r = 0; r < n; r++) {
        cr_assert_eq(actors[r].destroyed, LIERNE_OK);
    }
    oob_world_destroy(world);
}

static void *stay_away(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    lierne_status status = create(a);
    if (status == LIERNE_OK && a->rank != 1) {
        int64_t value = 1;
        start = lierne_now();
        status = lierne_context_allreduce_max(a->context, &value, 1);
    }
    finish(a, status, start);
    return NULL;
}

/* The second to notice may learn it from the first. */
Test(oob, a_rank_that_stays_away_is_a_timeout) {
    for (int way = 0; way < OOB_WAYS; way++) {
        actor actors[3] = {0};
        act_all(actors, 3, (oob_way)way, 2, stay_away);
        for (int r = 0; r < 3; r += 2) {
            cr_assert_eq(actors[r].status, LIERNE_ERR_TIMEOUT, "%s", actors[r].message);
            cr_assert(strstr(actors[r].message, "not all ranks called within 2 s"), "%s",
                      actors[r].message);
            cr_assert_lt(actors[r].seconds, 20);
        }
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

static void *never_come(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    finish(a, a->rank == 1 ? LIERNE_OK : create(a), start);
    return NULL;
}

Test(oob, a_rank_that_never_comes_is_named) {
    actor actors[3] = {0};
    act_all(actors, 3, OOB_NODE, 0.5, never_come);
    for (int r = 0; r < 3; r += 2) {
        bool says = actors[r].status == LIERNE_ERR_TIMEOUT &&
                    strstr(actors[r].message, "no connection to rank 1 of job 'actors-");
        /* The first that gives up ends its connection to the other one. */
        cr_assert(says || actors[r].status == LIERNE_ERR_PEER_FAILED, "%s", actors[r].message);
        cr_assert(!actors[r].context);
    }
    cr_assert(actors[0].status == LIERNE_ERR_TIMEOUT || actors[2].status == LIERNE_ERR_TIMEOUT);
    cr_assert_eq(lierne_mem_live(), 0);
}

static void *destroy_while_others_plan(void *argument) {
    actor *a = argument;
    int64_t value = 1;
    double start = lierne_now();
    lierne_status status = create(a);
    if (status == LIERNE_OK && a->rank == 2) {
        status = lierne_context_destroy(a->context);
        a->context = NULL;
    } else if (status == LIERNE_OK) {
        status = lierne_context_allreduce_max(a->context, &value, 1);
    }
    finish(a, status, start);
    return NULL;
}

Test(oob, destroying_while_others_plan) {
    for (int way = 0; way < OOB_WAYS; way++) {
        actor actors[3] = {0};
        act_all(actors, 3, (oob_way)way, 30, destroy_while_others_plan);
        for (int r = 0; r < 2; r++) {
            cr_assert_eq(actors[r].status, LIERNE_ERR_MISMATCH, "%s", actors[r].message);
            cr_assert(strstr(actors[r].message, "rank 2 destroys its context while rank 0"), "%s",
                      actors[r].message);
        }
        cr_assert_eq(actors[2].status, LIERNE_OK);
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

static void *only_create(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    finish(a, create(a), start);
    return NULL;
}

static lierne_status exchange(actor *a) {
    lierne_control_message messages[RANKS];
    lierne_control_messages received = {0};
    size_t n = messages_create(messages, ALL_TO_ALL, 0, a->rank, a->n, 20);
    lierne_status status = lierne_context_sparse_exchange(a->context, messages, n, &received);
    lierne_control_messages_destroy(&received);
    messages_destroy(messages, n);
    return status;
}

/* Plans and executes; a function of rank 1 fails, after the context was created. */
static void *do_everything(void *argument) {
    actor *a = argument;
    double start = lierne_now();
    lierne_plan *plan = NULL;
    int64_t in[ELEMENTS] = {0}, out[ELEMENTS * RANKS];
    const lierne_all_gather_spec spec = all_gather_of(ELEMENTS, LIERNE_DTYPE_I64);
    lierne_status status = create(a);
    if (a->rank == 1) {
        oob_world_fail(a->world, 1, a->fail_at, 77);
    }
    if (status == LIERNE_OK) {
        status = exchange(a);
    }
    if (status == LIERNE_OK) {
        status = lierne_plan_create_all_gather(&plan, a->context, &spec);
    }
    if (status == LIERNE_OK) {
        status = lierne_plan_forward(plan, out, in, NULL);
    }
    finish(a, status, start);
    lierne_plan_destroy(plan);
    return NULL;
}

/* That rank gets its code. The others learn it; nobody waits for the deadline. */
Test(oob, a_function_that_fails) {
    int failures = 0;
    setenv("LIERNE_TRANSPORTS", "oob", 1);
    for (int k = 1; k < 300; k += k < 40 ? 1 : 29) {
        actor actors[3] = {{0}, {.fail_at = k}};
        act_all(actors, 3, OOB_CALLS, 5, do_everything);
        if (actors[1].status == LIERNE_OK) {
            continue;
        }
        failures++;
        cr_assert_eq(actors[1].status, LIERNE_ERR_TRANSPORT, "call %d: %s", k, actors[1].message);
        cr_assert(strstr(actors[1].message, "function returned 77"), "%s", actors[1].message);
        for (int r = 0; r < 3; r += 2) {
            cr_assert(actors[r].status == LIERNE_OK || strstr(actors[r].message, "gave up"),
                      "call %d: %s", k, actors[r].message);
        }
    }
    cr_assert_gt(failures, 10);
    cr_assert_eq(lierne_mem_live(), 0, "%zu", lierne_mem_live());
}

static int count_descriptors(void) {
    int n = 0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory)) {
        n++;
    }
    closedir(directory);
    return n;
}

/* Before the ranks have met, the others can only miss it; they have met where it failed after all
 * that it had to give them. How many calls a rank makes depends on how long it waits. */
Test(oob, a_function_that_fails_while_creating) {
    int failures = 0, descriptors = count_descriptors();
    for (int k = 1; k < 12; k++) {
        actor actors[3] = {{.world = oob_world_create(3)}};
        oob_world_fail(actors[0].world, 1, k, -5);
        act_all(actors, 3, OOB_CALLS, 0.3, only_create);
        if (actors[1].status == LIERNE_OK) {
            continue;
        }
        failures++;
        cr_assert_eq(actors[1].status, LIERNE_ERR_TRANSPORT, "call %d: %s", k, actors[1].message);
        cr_assert(strstr(actors[1].message, "function returned -5"), "%s", actors[1].message);
        bool met = actors[0].gathers == actors[1].gathers;
        cr_assert(actors[0].status == LIERNE_ERR_TIMEOUT ||
                      actors[0].status == LIERNE_ERR_TRANSPORT ||
                      (met && actors[0].status == LIERNE_OK),
                  "call %d: %d, %s", k, actors[0].status, actors[0].message);
    }
    cr_assert_gt(failures, 4);
    cr_assert_eq(count_descriptors(), descriptors);
    cr_assert_eq(lierne_mem_live(), 0, "%zu", lierne_mem_live());
}

static bool count_looks(void *user, int peer) {
    (void)peer;
    ++*(int *)user;
    return false;
}

/* 0.02 seconds apart, however often a rank polls. */
Test(oob, peers_are_looked_at_now_and_then) {
    int looks = 0;
    const lierne_oob_hooks hooks = {.ended = count_looks};
    lierne_oob_state state = {.world = 2, .timeout = 60, .hooks = &hooks, .calls.user = &looks};
    double start = lierne_now();
    lierne_oob_start_deadline(&state);
    for (int i = 0; i < 1000; i++) {
        assert_ok(lierne_oob_pause(&state, "waiting"));
    }
    cr_expect(looks > 0 && looks <= 2 + (lierne_now() - start) / 0.02, "%d looks", looks);
}

/* The process that a rank had may have ended, and another one have its id. */
Test(oob, a_process_id_that_was_given_away) {
    lierne_rank_info infos[3] = {0};
    int watches[3] = {LIERNE_NO_WATCH, LIERNE_NO_WATCH, LIERNE_NO_WATCH};
    for (int r = 0; r < 3; r++) {
        lierne_rank_info_fill(&infos[r], r, -1);
    }
    cr_assert(infos[0].start != 0 && infos[0].space != 0);
    infos[1].start++;
    lierne_processes_watch(watches, infos, 3, 0);
    cr_assert_eq(watches[0], LIERNE_NO_WATCH);
    cr_assert(lierne_process_ended(watches[1]));
    cr_assert(watches[2] >= 0 && !lierne_process_ended(watches[2]));
    lierne_processes_unwatch(watches, 3);
}

/* What cannot be taken back is never freed. */
Test(oob, requests_that_cannot_be_taken_back) {
    actor actors[3] = {{.world = oob_world_create(3)}};
    oob_world_take_back(actors[0].world, false);
    act_all(actors, 3, OOB_CALLS, 0.5, stay_away);
    cr_assert_eq(actors[0].status, LIERNE_ERR_TIMEOUT);
    cr_assert_gt(lierne_mem_live(), 0);
}

static lierne_status create_with(lierne_oob_spec spec) {
    lierne_context *context;
    lierne_status status = lierne_context_create_oob(&context, &spec);
    cr_assert(!context);
    return status;
}

Test(oob, invalid_specs) {
    oob_world *world = oob_world_create(1);
    const lierne_oob_spec good = {.size = sizeof good,
                                  .nranks = 1,
                                  .calls = oob_world_calls(world, 0, true)};
    lierne_context *context = (lierne_context *)world;
    lierne_oob_spec bad = good;
    cr_assert_eq(lierne_context_create_oob(&context, NULL), LIERNE_ERR_INVALID);
    cr_assert(!context);
    assert_error(lierne_context_create_oob(NULL, &good), LIERNE_ERR_INVALID, "out is NULL");
    bad.size = 3;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.nranks = 0;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.rank = 1;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    assert_says("rank is 1, must be 0 to 0");
    bad = good, bad.calls.test = NULL;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.calls.allgather = NULL;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    bad = good, bad.calls.send = NULL;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    assert_says("calls.send is NULL");
    lierne_context_spec spec = {.size = sizeof spec, .timeout = -1};
    bad = good, bad.context = &spec;
    cr_assert_eq(create_with(bad), LIERNE_ERR_INVALID);
    assert_says("timeout is -1");
    const lierne_node_spec node = {.size = sizeof node, .rank = 1, .name = "without a world"};
    assert_error(lierne_context_create_node(&context, &node), LIERNE_ERR_INVALID,
                 "rank is 1 and world is 0: world must be at least 1, or both 0");
    oob_world_destroy(world);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* Every allocation of creating fails once, on some rank: all ranks get an error. Over sockets the
 * rank may be missed. */
Test(oob, creating_without_memory) {
    for (int way = 0; way < OOB_WAYS; way++) {
        int failed = 1;
        for (size_t k = 1; failed > 0; k++) {
            actor actors[3] = {0};
            lierne_mem_fail_at(k);
            act_all(actors, 3, (oob_way)way, way == OOB_NODE ? 0.2 : 20, only_create);
            lierne_mem_fail_at(0);
            failed = 0;
            for (int r = 0; r < 3; r++) {
                failed += actors[r].status != LIERNE_OK;
                cr_assert_lt(actors[r].seconds, 15, "allocation %zu: %s", k, actors[r].message);
            }
            cr_assert(failed == 0 || failed == 3, "way %d, allocation %zu: %d ranks failed: %s",
                      way, k, failed, actors[0].message);
            cr_assert_eq(lierne_mem_live(), 0);
        }
    }
}

/* A peer has sent half of its part: the rest must not be written once the caller has its memory
 * back. */
Test(oob_failures, a_gather_that_is_given_up_writes_nothing_more) {
    enum { BYTES = 16, HALF = BYTES / 2 };
    const struct {
        lierne_mesh_header header;
        char part[HALF];
    } first = {{.tag = -1, .bytes = BYTES}, "1234567"};
    char all[2 * BYTES], before[sizeof all], mine[BYTES] = "own";
    int ends[2];
    void *request;
    lierne_mesh *mesh;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_ok(lierne_mesh_open(&mesh, 0, 2));
    mesh->sockets[1] = ends[0];
    const lierne_oob_calls calls = lierne_mesh_calls(mesh);
    cr_assert_eq(calls.allgather(&request, mine, all, BYTES, mesh), 0);
    cr_assert_eq(send(ends[1], &first, sizeof first, 0), (ssize_t)sizeof first);
    lierne_mesh_hooks.progress(mesh);
    cr_assert_str_eq(all + BYTES, "1234567");
    cr_assert_eq(calls.free_request(request, mesh), 0);
    memset(all, 'x', sizeof all);
    memcpy(before, all, sizeof all);
    cr_assert_eq(send(ends[1], mine, HALF, MSG_NOSIGNAL) > 0 || errno == EPIPE, 1);
    lierne_mesh_hooks.progress(mesh);
    cr_expect_eq(memcmp(all, before, sizeof all), 0, "bytes of the gather that was given up");
    lierne_mesh_close(mesh);
    close(ends[1]);
    cr_expect_eq(lierne_mem_live(), 0);
}
