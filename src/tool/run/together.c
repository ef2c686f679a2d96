/* What the ranks of `lierne run` decide together, from gathered numbers. */
#include "tool/run.h"

enum { MOST = 8 };

static void gather_ranks(const run_state *run, const void *mine, size_t bytes) {
    run->together->gather(run->together->all, mine, bytes, run->together->user);
}

int run_worst(const run_state *run, int status) {
    const int *all = run->together->all;
    gather_ranks(run, &status, sizeof status);
    for (int r = 0; r < run->ranks; r++) {
        status = all[r] > status ? all[r] : status;
    }
    return status;
}

bool run_all_ok(const run_state *run, lierne_status status) {
    const int *all = run->together->all;
    int mine = status;
    int first = 0;
    gather_ranks(run, &mine, sizeof mine);
    while (first < run->ranks && all[first] == LIERNE_OK) {
        first++;
    }
    if (first == run->rank) {
        tool_say(run->argv, "rank %d: %s", run->rank, tool_reason());
    }
    return first == run->ranks;
}

void run_sum(const run_state *run, int64_t *numbers, int n) {
    const int64_t *all = run->together->all;
    int64_t sums[MOST] = {0};
    gather_ranks(run, numbers, (size_t)n * sizeof *numbers);
    for (int i = 0; i < n * run->ranks; i++) {
        sums[i % n] += all[i];
    }
    for (int i = 0; i < n; i++) {
        numbers[i] = sums[i];
    }
}

void run_max(const run_state *run, double *numbers, int n) {
    const double *all = run->together->all;
    gather_ranks(run, numbers, (size_t)n * sizeof *numbers);
    for (int i = 0; i < n * run->ranks; i++) {
        numbers[i % n] = all[i] > numbers[i % n] ? all[i] : numbers[i % n];
    }
}
