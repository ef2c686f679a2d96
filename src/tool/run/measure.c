/* The methods run interleaved in the same processes, in a random order per round, so that no method
 * always finds the caches as the same other method left them. A round lasts from the first start to
 * the last end over all ranks. On one machine all ranks share a clock, which measures that exactly;
 * over several machines the longest of the ranks' own times is taken. */
#include "tool/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lierne_status execute(const run_state *run, const run_method *method,
                             lierne_direction direction) {
    lierne_request *request;
    lierne_status status = verify_rank_begin(&run->buffers, &request, method->plan, direction);
    return status == LIERNE_OK ? lierne_request_end(request) : status;
}

/* Adds up the counts of all ranks; the first wrong element is that of the lowest rank. */
static void gather_count(const run_state *run, verify_count *count) {
    const verify_count *all = run->together->all;
    verify_count sum = {0};
    _Static_assert(sizeof sum <= RUN_MOST_BYTES, "a count is gathered");
    run->together->gather(run->together->all, count, sizeof *count, run->together->user);
    for (int r = run->ranks - 1; r >= 0; r--) {
        int64_t checked = sum.checked + all[r].checked;
        int64_t wrong = sum.wrong + all[r].wrong;
        sum = all[r].wrong ? all[r] : sum;
        sum.checked = checked;
        sum.wrong = wrong;
    }
    *count = sum;
}

static void gather_bytes(const run_state *run, run_method *method) {
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        lierne_report report = {.size = sizeof report};
        lierne_plan_get_report(&report, method->plan, (lierne_direction)d);
        double most[2] = {(double)report.received_bytes, (double)report.sent_bytes};
        run_max(run, most, 2);
        method->max_rank_bytes[d] = (int64_t)most[0];
        method->busiest_bytes[d] = (int64_t)(most[0] > most[1] ? most[0] : most[1]);
    }
}

static bool verify_method(run_state *run, run_method *method) {
    int64_t sums[2];
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        lierne_direction direction = (lierne_direction)d;
        verify_rank_poison(&run->buffers, direction);
        if (!run_all_ok(run, execute(run, method, direction))) {
            return false;
        }
        verify_rank_check(&run->buffers, method->plan, direction, &method->count[d]);
        gather_count(run, &method->count[d]);
    }
    verify_rank_dot(&run->buffers, &sums[0], &sums[1]);
    run_sum(run, sums, 2);
    method->lhs = sums[0];
    method->rhs = sums[1];
    gather_bytes(run, method);
    return true;
}

int run_verify(run_state *run) {
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        if (run->methods[a].plan && !verify_method(run, &run->methods[a])) {
            return TOOL_INVALID;
        }
    }
    return -1;
}

static bool is_one_machine(const run_state *run) {
    char host[RUN_MOST_BYTES] = "";
    const char *all = run->together->all;
    bool one = true;
    gethostname(host, sizeof host - 1);
    run->together->gather(run->together->all, host, sizeof host, run->together->user);
    for (int r = 1; r < run->ranks; r++) {
        one = one && strcmp(all, all + (size_t)r * sizeof host) == 0;
    }
    return one;
}

static bool time_once(const run_state *run, run_method *method, int direction, int round,
                      bool one_clock) {
    run_worst(run, -1); /* a barrier */
    double start = tool_now();
    lierne_status status = execute(run, method, (lierne_direction)direction);
    double end = tool_now();
    double most[2] = {one_clock ? end : end - start, one_clock ? -start : 0};
    run_max(run, most, 2);
    if (round >= 0) {
        method->seconds[direction][round] = most[0] + most[1];
    }
    return run_all_ok(run, status);
}

/* The next number of splitmix64, below n. */
static int draw(uint64_t *state, int n) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (unsigned)n);
}

/* Shuffles the methods (Fisher and Yates). All ranks hold the same state, so they draw the same. */
static void draw_order(uint64_t *state, int order[RUN_ALGORITHMS]) {
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        int other = draw(state, a + 1);
        order[a] = order[other];
        order[other] = a;
    }
}

static bool time_round(run_state *run, int round, const int order[RUN_ALGORITHMS], bool one_clock) {
    for (int i = 0; i < RUN_ALGORITHMS; i++) {
        run_method *method = &run->methods[order[i]];
        for (int d = LIERNE_DIRECTION_FORWARD; method->plan && d <= LIERNE_DIRECTION_ADJOINT; d++) {
            if (!time_once(run, method, d, round, one_clock)) {
                return false;
            }
        }
    }
    return true;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static run_times summarise(double *seconds, int n) {
    qsort(seconds, (size_t)n, sizeof *seconds, ascending);
    return (
        run_times){.median = seconds[n / 2], .low = seconds[n / 4], .high = seconds[(3 * n) / 4]};
}

static bool open_seconds(run_state *run) {
    bool ok = true;
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            double *seconds = calloc((size_t)run->rounds, sizeof *seconds);
            run->methods[a].seconds[d] = seconds;
            ok = ok && seconds;
        }
    }
    if (!ok) {
        tool_say(run->argv, "rank %d: no memory for the times of the rounds", run->rank);
    }
    return ok;
}

int run_measure(run_state *run) {
    bool one_clock = is_one_machine(run);
    int order[RUN_ALGORITHMS] = {0};
    uint64_t state = 0;
    if (run_worst(run, open_seconds(run) ? -1 : TOOL_INVALID) >= 0) {
        return TOOL_INVALID;
    }
    for (int round = -run->warmup; round < run->rounds; round++) { /* below 0: not counted */
        draw_order(&state, order);
        if (!time_round(run, round, order, one_clock)) {
            return TOOL_INVALID;
        }
    }
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
            run->methods[a].times[d] = summarise(run->methods[a].seconds[d], run->rounds);
        }
    }
    return -1;
}
