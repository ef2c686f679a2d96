/* The methods run interleaved in the same processes, in a random order per round. Before each timed
 * call the same method runs untimed, because some methods share their buffers and others have
 * buffers of their own: otherwise the first find theirs in the cache and the others do not. A time
 * lasts from the first start to the last end over the ranks, which share a clock: it is for ranks
 * of one machine. Forward and adjoint are timed one after the other; a round's sum of both is a
 * third time. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

char *take(size_t bytes) {
    size_t page = 4096;
    char *memory = aligned_alloc(page, (bytes / page + 1) * page);
    if (!memory) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(memory, 0, bytes);
    return memory;
}

void rewrite(char *memory, size_t bytes) {
    volatile char *at = memory;
    for (size_t i = 0; i < bytes; i += 64) {
        at[i] = at[i];
    }
}

static bool all(bool mine) {
    int ok = mine, every;
    MPI_Allreduce(&ok, &every, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return every;
}

static void prepare(method *m, int direction) {
    if (m->before) {
        m->before(m, direction);
    }
}

static bool agrees(const bench *b, method *m) {
    bool right = true;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        b->reset(b->workload, d);
        prepare(m, d);
        bool ran = all(m->run(m, d));
        if (ran && m->after) {
            m->after(m, d);
        }
        right = all(ran && (!m->checked || b->right(m, d))) && right;
    }
    CHECK(right, "%s: %s is wrong", b->text(b->workload), m->kind->name);
    return right;
}

/* Not MPI_Wtime, which may count from each process's own start. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_once(const bench *b, method *m, int direction, bool dirty) {
    double most[2];
    m->dirty = false;
    prepare(m, direction);
    bool ok = m->run(m, direction);
    m->dirty = dirty;
    if (dirty && !m->owns_inputs) {
        b->rewrite(b->workload, direction);
    }
    prepare(m, direction);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now();
    ok = m->run(m, direction) && ok;
    double mine[2] = {now(), -start};
    m->agrees = m->agrees && ok;
    MPI_Allreduce(mine, most, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most[0] + most[1];
}

static void shuffle(int *order, int n, int round) {
    for (int i = 0; i < n; i++) {
        order[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(mix((uint64_t)(round * METHODS + i)) % (uint64_t)(i + 1));
        int k = order[i];
        order[i] = order[j];
        order[j] = k;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static times summarise(double *seconds, int n) {
    qsort(seconds, (size_t)n, sizeof *seconds, ascending);
    return (times){.low = seconds[n / 4], .median = seconds[n / 2], .high = seconds[3 * n / 4]};
}

static void time_all(const bench *b, method *const *methods, int n, bool dirty, int rounds,
                     outcome *results) {
    double *seconds = (double *)take((size_t)(METHODS * 3 * rounds) * sizeof *seconds);
    int order[METHODS];
    for (int r = 0; r < rounds; r++) {
        shuffle(order, n, r);
        for (int i = 0; i < n; i++) {
            double *to = seconds + (size_t)(order[i] * 3 * rounds + r), sum = 0;
            for (int d = FORWARD; d <= ADJOINT && methods[order[i]]->agrees; d++) {
                sum += to[d * rounds] = time_once(b, methods[order[i]], d, dirty);
            }
            to[BOTH * rounds] = sum;
        }
    }
    for (int i = 0; i < n; i++) {
        for (int d = FORWARD; d <= BOTH; d++) {
            results[i].t[d] = summarise(seconds + (size_t)((i * 3 + d) * rounds), rounds);
        }
        results[i].agrees = all(methods[i]->agrees);
    }
    free(seconds);
}

int measure(const bench *b, bool dirty, int rounds, outcome *results) {
    method *methods[METHODS];
    int n = 0;
    for (int k = 0; k < b->nkinds; k++) {
        method *m = b->kinds[k]->open(b->workload);
        if (m) {
            m->kind = b->kinds[k];
            m->agrees = agrees(b, m);
            results[n] = (outcome){.kind = b->kinds[k], .agrees = m->agrees};
            methods[n++] = m;
        }
    }
    if (rounds > 0) {
        time_all(b, methods, n, dirty, rounds, results);
    }
    for (int i = 0; i < n; i++) {
        methods[i]->kind->close(methods[i]);
    }
    return n;
}
