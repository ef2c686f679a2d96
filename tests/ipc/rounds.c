/* Windows of lierne/window.h in the memory of a device that is played (ipc.h): 4 ranks of a node,
 * each with a stream that is a thread, and hosts that run ahead of them. What must not be waited
 * for, a late rank, one that gives up and one whose process ends; a stream that is NULL; and their
 * steps one by one. Last line: N passed, N failed. */
#include "device_streams.h"
#include "ipc.h"
#include "lierne.h"
#include "node_ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 300, ROUNDS = 2000 };

static lierne_context *open_device(int rank, const char *name, int world, double timeout,
                                   lierne_status (*use)(lierne_context *)) {
    lierne_context *context = open_timed(name, rank, world, timeout);
    check(use(context) == LIERNE_OK, "windows of the transport");
    return context;
}

static lierne_window *open_window(lierne_context *context, int64_t bytes) {
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = bytes};
    lierne_window *w = NULL;
    check(lierne_window_create(&w, context, &spec) == LIERNE_OK, "a window");
    return w;
}

/* Kernels of a program: word i of rank r in round k is 3 i + 101 r + 7 k. */
typedef struct kernel {
    int *own;
    const int *theirs[RANKS];
    int n, rank, round;
    atomic_long *wrong;
} kernel;

static void write_own(void *data) {
    const kernel *k = data;
    for (int i = 0; i < WORDS; i++) {
        k->own[i] = 3 * i + 101 * k->rank + 7 * k->round;
    }
}

static void read_all(void *data) {
    const kernel *k = data;
    for (int r = 0; r < k->n; r++) {
        for (int i = 0; i < WORDS; i++) {
            atomic_fetch_add(k->wrong, k->theirs[r][i] != 3 * i + 101 * r + 7 * k->round);
        }
    }
}

static bool enqueue_round(lierne_window *w, test_device_stream *stream, int round,
                          atomic_long *wrong) {
    kernel k = {.n = lierne_window_get_size(w),
                .rank = lierne_window_get_rank(w),
                .round = round,
                .wrong = wrong};
    k.own = lierne_window_get_writable(w, k.rank);
    test_device_stream_add(stream, write_own, &k, sizeof k);
    if (lierne_window_notify(w, stream) != LIERNE_OK ||
        lierne_window_wait(w, stream) != LIERNE_OK) {
        return false;
    }
    for (int r = 0; r < k.n; r++) {
        k.theirs[r] = lierne_window_get_readable(w, r);
    }
    test_device_stream_add(stream, read_all, &k, sizeof k);
    return true;
}

static void *runs_ahead(void *argument) {
    static atomic_long wrong;
    int rank = (int)(intptr_t)argument;
    lierne_context *context = open_device(rank, "ahead", RANKS, 20, test_ipc_use_streams);
    test_device_stream *stream = test_device_stream_create();
    for (int time = 0; time < 2; time++) { /* the second window has space that was used before */
        lierne_window *w = open_window(context, (int64_t)sizeof(int) * WORDS);
        check((uintptr_t)lierne_window_get_writable(w, 0) % 256 == 0, "aligned");
        check(lierne_window_notify(w, NULL) == LIERNE_ERR_UNSUPPORTED, "a stream that is NULL");
        if (time == 1 && rank == 0) {
            usleep(50000); /* flags of the first window must not stand for it */
        }
        for (int round = 0; round < (time == 0 ? 1 : ROUNDS); round++) {
            check(enqueue_round(w, stream, round + 3 * time, &wrong), "a round");
        }
        check(lierne_window_destroy(w) == LIERNE_OK, "a window waits for its stream");
        check(lierne_context_get_status(context) == LIERNE_OK, "status");
    }
    test_device_stream_destroy(stream);
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    check(atomic_load(&wrong) == 0, "words are those of the round");
    return NULL;
}

/* Streams that work at once; a rank on its own; without the transport. */
static void *at_once(void *argument) {
    static char any;
    int rank = (int)(intptr_t)argument;
    lierne_context *context = open_device(rank, "once", RANKS, 20, test_ipc_use);
    lierne_window *w = open_window(context, 10000);
    for (int round = 0; round < 50; round++) {
        int *own = lierne_window_get_writable(w, rank);
        own[0] = own[2499] = rank + round;
        check(lierne_window_notify(w, &any) == LIERNE_OK, "notify");
        check(lierne_window_wait(w, &any) == LIERNE_OK, "wait");
        for (int r = 0; r < RANKS; r++) {
            const int *theirs = lierne_window_get_readable(w, r);
            check(theirs[0] == r + round && theirs[2499] == r + round, "what was written");
        }
    }
    check(lierne_context_destroy_all(context) == LIERNE_OK, "destroy all");
    return NULL;
}

static void *is_left_out(void *argument) {
    int rank = (int)(intptr_t)argument;
    const lierne_window_spec spec = {.size = sizeof spec, .bytes = 64};
    lierne_context *context = open_device(rank, "out", RANKS, 20, test_ipc_use);
    lierne_window *w;
    check(lierne_window_create(&w, context, &spec) == LIERNE_ERR_UNSUPPORTED && !w &&
              strstr(lierne_last_error(), "share no memory of devices") != NULL,
          "a context without ipc has no window");
    check(lierne_context_destroy(context) == LIERNE_OK, "destroy");
    return NULL;
}

/* Rank 0 does not come, or gives up. The hosts of the others are told afterwards. */
static void *fails(void *argument, bool gives_up) {
    static atomic_long wrong;
    int rank = (int)(intptr_t)argument;
    lierne_context *context =
        open_device(rank, gives_up ? "gives" : "late", RANKS, 1, test_ipc_use_streams);
    test_device_stream *stream = test_device_stream_create();
    lierne_window *w = open_window(context, (int64_t)sizeof(int) * WORDS);
    check(enqueue_round(w, stream, 0, &wrong), "a round");
    meet_ranks();
    if (rank == 0 && gives_up) {
        lierne_context_abort(context, LIERNE_ERR_NO_RESOURCE, "out of pencils");
    } else if (rank > 0) {
        enqueue_round(w, stream, 1, &wrong);
        lierne_status status = await_failure(context);
        check(status != LIERNE_OK && strstr(lierne_last_error(), "rank 0") != NULL,
              "a failure is found, and names the rank");
        check(gives_up || status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED,
              "the status of a failure");
        check(lierne_window_notify(w, stream) == status, "the context is dead");
    }
    meet_ranks();
    lierne_window_destroy(w);
    test_device_stream_destroy(stream);
    lierne_context_destroy(context);
    return NULL;
}

static void *comes_late(void *argument) {
    return fails(argument, false);
}

static void *gives_up(void *argument) {
    return fails(argument, true);
}

/* Two processes; the second one ends without a word while the first one's stream waits for it. */
static int run_process(int rank) {
    static atomic_long wrong;
    lierne_context *context = open_device(rank, "ends", 2, 30, test_ipc_use_streams);
    test_device_stream *stream = test_device_stream_create();
    lierne_window *w = open_window(context, (int64_t)sizeof(int) * WORDS);
    check(enqueue_round(w, stream, 0, &wrong), "between processes");
    if (rank == 1) {
        usleep(300000);
        _exit(0);
    }
    double start = lierne_now();
    check(enqueue_round(w, stream, 1, &wrong), "a round");
    lierne_status status = await_failure(context);
    check(status == LIERNE_ERR_PEER_FAILED && strstr(lierne_last_error(), "rank 1") != NULL,
          "a process that ended");
    check(lierne_window_destroy(w) == LIERNE_OK, "after a death");
    check(lierne_now() - start < 10, "long before the deadline");
    lierne_context_destroy(context);
    test_device_stream_destroy(stream);
    return failed_checks() > 0;
}

/* Steps by themselves. */
static void steps(void) {
    uint32_t flag = 7, theirs = 0, own = 0;
    lierne_ipc_words words = {0, 0};
    lierne_ipc_step step = {.broken = &own, .words = &words, .nanoseconds = 1000000, .n = 1};
    step.flags[0] = (lierne_ipc_flag){.at = &flag, .broken = &theirs, .value = 7, .peer = 5};
    step.waits = 1;
    lierne_ipc_run(&step, 0);
    check(words.failure == 0 && own == 0 && flag == 7, "a flag that is there is not waited for");
    step.waits = 0;
    step.flags[0].value = 9;
    lierne_ipc_run(&step, 0);
    check(words.failure == 0 && flag == 9, "a flag is set");
    step.waits = 1;
    step.flags[0].value = 8;
    lierne_ipc_run(&step, 0);
    check(words.failure == LIERNE_IPC_LATE + 4 * 5 && own == 1,
          "a wait ends, and the window is broken before it does");
    step.waits = 0;
    lierne_ipc_run(&step, 0);
    check(flag == 9, "after a failure no flag is set");
    words.failure = own = 0;
    theirs = 1;
    lierne_ipc_run(&step, 0);
    check(flag == 9 && own == 1 && words.failure == LIERNE_IPC_GAVE_UP + 4 * 5,
          "what was copied from a window that broke meanwhile is not taken for whole");
    words.failure = own = 0;
    step.waits = 1;
    lierne_ipc_run(&step, 0);
    check(words.failure == LIERNE_IPC_GAVE_UP + 4 * 5, "a wait for a peer that gave up ends");
    words.failure = theirs = 0;
    step.nanoseconds = UINT64_MAX;
    words.abort = 1;
    lierne_ipc_run(&step, 0);
    check(words.failure == LIERNE_IPC_ABORTED + 4 * 5, "the host ends a wait");
}

/* What is behind the list of a peer's chunks is none of them. */
static void leave(void) {
    lierne_ipc_peer peer = {.watch = LIERNE_NO_WATCH};
    lierne_ipc ipc = {.driver = &test_ipc_driver, .peers = &peer, .world = 1};
    int before = test_ipc_live();
    void *memory;
    check(lierne_alloc(&peer.chunks, LIERNE_IPC_CHUNKS + 1, sizeof *peer.chunks) == LIERNE_OK,
          "memory");
    lierne_ipc_mapped *last = &peer.chunks[LIERNE_IPC_CHUNKS - 1];
    check(test_ipc_driver.alloc(&memory, &last->handle, 8192, NULL) == LIERNE_OK, "a chunk");
    int descriptor = (int)last->handle.words[1];
    last[0].at = last[1].at = memory;
    lierne_ipc_leave(&ipc);
    check(test_ipc_live() == before, "the last chunk alone is closed");
    close(descriptor);
}

int main(void) {
    run_processes(2, run_process);
    steps();
    leave();
    run_ranks(runs_ahead);
    run_ranks(at_once);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks");
    check(test_ipc_unquiet() == 0, "memory was freed that a peer had mapped");
    setenv("LIERNE_TRANSPORTS", "shm,socket", 1);
    run_ranks(is_left_out);
    unsetenv("LIERNE_TRANSPORTS");
    run_ranks(comes_late);
    run_ranks(gives_up);
    check(lierne_mem_live() == 0 && test_ipc_live() == 0, "nothing leaks after errors");
    return print_checks();
}
