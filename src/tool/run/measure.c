/* The methods run interleaved in the same processes, in a random order per round, so that no method
 * always finds the caches as the same other method left them. A round lasts from the first start to
 * the last end over all ranks. On one machine all ranks share a clock, which measures that exactly;
 * over several machines the longest of the ranks' own times is taken. */
#include "run.h"

#include "lierne/mpi.h"
#include <stdlib.h>
#include <time.h>

static lierne_status execute(const run_state *run, const run_method *method,
                             lierne_direction direction) {
    lierne_request *request;
    lierne_status status = verify_rank_begin(&run->buffers, &request, method->plan, direction);
    return status == LIERNE_OK ? lierne_end(request) : status;
}

/* Adds up the counts of all ranks; the first wrong element is that of the lowest rank. */
static void gather_count(const run_state *run, verify_count *count) {
    int64_t mine[2] = {count->checked, count->wrong};
    int64_t sums[2];
    int rank = count->wrong ? run->rank : run->ranks;
    int first;
    MPI_Allreduce(mine, sums, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first < run->ranks) {
        MPI_Bcast(count, (int)sizeof *count, MPI_BYTE, first, MPI_COMM_WORLD);
    }
    count->checked = sums[0];
    count->wrong = sums[1];
}

static void gather_bytes(run_method *method) {
    for (int d = LIERNE_FORWARD; d <= LIERNE_ADJOINT; d++) {
        lierne_report report = {.size = sizeof report};
        lierne_plan_get_report(&report, method->plan, (lierne_direction)d);
        MPI_Allreduce(&report.received_bytes, &method->max_rank_bytes[d], 1, MPI_INT64_T, MPI_MAX,
                      MPI_COMM_WORLD);
    }
}

static bool verify_method(run_state *run, run_method *method) {
    int64_t mine[2];
    int64_t sums[2];
    for (int d = LIERNE_FORWARD; d <= LIERNE_ADJOINT; d++) {
        lierne_direction direction = (lierne_direction)d;
        verify_rank_poison(&run->buffers, direction);
        if (!run_all_ok(run, execute(run, method, direction))) {
            return false;
        }
        verify_rank_check(&run->buffers, method->plan, direction, &method->count[d]);
        gather_count(run, &method->count[d]);
    }
    verify_rank_dot(&run->buffers, &mine[0], &mine[1]);
    MPI_Allreduce(mine, sums, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    method->lhs = sums[0];
    method->rhs = sums[1];
    gather_bytes(method);
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

/* Not MPI_Wtime, which may count from each process's own start. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_one_machine(const run_state *run) {
    MPI_Comm machine;
    int size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &size);
    MPI_Comm_free(&machine);
    return run_worst(size == run->ranks ? 0 : 1) == 0;
}

static bool time_once(const run_state *run, run_method *method, int direction, int round,
                      bool one_clock) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    lierne_status status = execute(run, method, (lierne_direction)direction);
    double end = now();
    double mine[2] = {one_clock ? end : end - start, one_clock ? -start : 0};
    double most[2];
    MPI_Allreduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    method->seconds[direction][round] = most[0] + most[1];
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
        for (int d = LIERNE_FORWARD; method->plan && d <= LIERNE_ADJOINT; d++) {
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
        for (int d = LIERNE_FORWARD; d <= LIERNE_ADJOINT; d++) {
            double *seconds = calloc((size_t)run->rounds, sizeof *seconds);
            run->methods[a].seconds[d] = seconds;
            ok = ok && seconds;
        }
    }
    return ok;
}

int run_measure(run_state *run) {
    bool one_clock = is_one_machine(run);
    int order[RUN_ALGORITHMS] = {0};
    uint64_t state = 0;
    if (run_worst(open_seconds(run) ? -1 : TOOL_INVALID) >= 0) {
        return TOOL_INVALID;
    }
    for (int round = 0; round < run->rounds; round++) {
        draw_order(&state, order);
        if (!time_round(run, round, order, one_clock)) {
            return TOOL_INVALID;
        }
    }
    for (int a = 0; a < RUN_ALGORITHMS; a++) {
        for (int d = LIERNE_FORWARD; d <= LIERNE_ADJOINT; d++) {
            run->methods[a].times[d] = summarise(run->methods[a].seconds[d], run->rounds);
        }
    }
    return -1;
}
