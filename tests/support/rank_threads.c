/* Threads rather than processes, so that one debugger sees a failure and one count has all
 * allocations. */
#include "rank_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct worker {
    pthread_t thread;
    lierne_context *context;
    void (*work)(lierne_context *context, void *shared);
    void *shared;
} worker;

static void *run(void *argument) {
    const worker *w = argument;
    w->work(w->context, w->shared);
    return NULL;
}

void rank_threads(lierne_sim *sim, int world, void (*work)(lierne_context *context, void *shared),
                  void *shared) {
    worker *workers = calloc((size_t)world + 1, sizeof *workers);
    for (int r = 0; r < world; r++) {
        bool started = false;
        if (workers) {
            workers[r] =
                (worker){.context = lierne_sim_get_context(sim, r), .work = work, .shared = shared};
            started = !workers[r].context ||
                      pthread_create(&workers[r].thread, NULL, run, &workers[r]) == 0;
        }
        if (!started) {
            fprintf(stderr, "no thread for rank %d\n", r);
            exit(2);
        }
    }
    for (int r = 0; r < world; r++) {
        if (workers[r].context) {
            pthread_join(workers[r].thread, NULL);
        }
    }
    free(workers);
}

void rank_note(rank_faults *faults, bool ok, int line, const char *condition) {
    if (!ok && atomic_fetch_add(&faults->wrong, 1) == 0) {
        snprintf(faults->message, sizeof faults->message, "line %d: %s (%s)", line, condition,
                 lierne_last_error());
    }
}
