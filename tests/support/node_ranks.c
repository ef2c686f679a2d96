/* Threads rather than processes: one debugger sees a failure, and one count has all allocations. */
#include "node_ranks.h"

#include "lierne/node.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64 };

static atomic_int passed, failed;
static pthread_barrier_t together;

/* The same in children of the process, which are ranks of the same job. */
static int job;
static __attribute__((constructor)) void start_job(void) {
    job = (int)getpid();
}

void run_n_ranks(int n, void *(*rank)(void *)) {
    pthread_t threads[MOST_RANKS];
    pthread_barrier_init(&together, NULL, (unsigned)n);
    for (int r = 0; r < n; r++) {
        if (pthread_create(&threads[r], NULL, rank, (void *)(intptr_t)r) != 0) {
            fprintf(stderr, "no thread for rank %d\n", r);
            exit(2); /* the others would wait for it */
        }
    }
    for (int r = 0; r < n; r++) {
        pthread_join(threads[r], NULL);
    }
    pthread_barrier_destroy(&together);
}

void run_ranks(void *(*rank)(void *)) {
    run_n_ranks(RANKS, rank);
}

void meet_ranks(void) {
    pthread_barrier_wait(&together);
}

void check(bool good, const char *what) {
    atomic_fetch_add(good ? &passed : &failed, 1);
    if (!good) {
        printf("FAIL %s: %s\n", what, lierne_last_error());
    }
}

int failed_checks(void) {
    return atomic_load(&failed);
}

int print_checks(void) {
    printf("%d passed, %d failed\n", atomic_load(&passed), atomic_load(&failed));
    return atomic_load(&failed) > 0;
}

lierne_context *open_rank(const char *name, int rank, int world, const lierne_context_spec *spec) {
    char text[64];
    lierne_context *context = NULL;
    snprintf(text, sizeof text, "%s-%d", name, job);
    const lierne_node_spec node = {
        .size = sizeof node, .rank = rank, .world = world, .name = text, .context = spec};
    check(lierne_context_create_node(&context, &node) == LIERNE_OK, "context");
    return context;
}

lierne_context *open_timed(const char *name, int rank, int world, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    return open_rank(name, rank, world, &spec);
}

lierne_status await_failure(lierne_context *context) {
    const struct timespec nap = {.tv_nsec = 1000000};
    lierne_status status = LIERNE_OK;
    for (int i = 0; status == LIERNE_OK && i < 20000; i++) {
        nanosleep(&nap, NULL);
        status = lierne_context_get_status(context);
    }
    return status;
}

void run_processes(int n, int (*process)(int rank)) {
    pid_t pids[MOST_RANKS];
    for (int r = 0; r < n; r++) {
        fflush(stdout);
        pids[r] = fork();
        if (pids[r] == 0) {
            int status = process(r);
            fflush(stdout);
            _exit(status);
        }
    }
    for (int r = 0; r < n; r++) {
        int status = -1;
        waitpid(pids[r], &status, 0);
        check(status == 0, "a process that ended");
    }
}

/* The spec is read while planning only. */
lierne_status plan_rows(lierne_plan **plan, lierne_context *context, int nowned, int nghosts) {
    int32_t *rank = malloc(((size_t)nghosts + 1) * sizeof *rank);
    int64_t *row = malloc(((size_t)nghosts + 1) * sizeof *row);
    lierne_references_spec rows = LIERNE_REFERENCES_SPEC_INIT;
    rows.nowned = nowned;
    rows.nghosts = nghosts;
    rows.rank = rank;
    rows.row = row;
    rows.algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT; /* ranks without ghosts wait for nobody */
    rows.width = 3;
    rows.dtype = LIERNE_DTYPE_F16;
    for (int i = 0; i < nghosts; i++) { /* the same on every rank */
        rank[i] = i * 7 % RANKS;
        row[i] = i * 13 % nowned;
    }
    lierne_status status = lierne_plan_create_references(plan, context, &rows);
    free(rank);
    free(row);
    return status;
}
