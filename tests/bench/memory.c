/* What the host's memory table reaches: ordered sums with and without the processor's own
 * instructions, copies past the cache, and short runs, each beside a memcpy of as many bytes.
 *
 *   memory [quick]
 *
 * Times are the thread's own, the best of many rounds, so that a busy machine changes them little.
 * quick is one round. Results are compared before they are timed. */
#include "bench/checks.h"
#include "diagnose/digest.h"
#include "runtime/memory/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 31
#define AMOUNT ((size_t)16 << 20) /* least bytes that a round writes */
#define INPUTS 4

static int rounds = ROUNDS;

static double now(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

/* Memory with values in it; normal numbers in every float type. */
static char *take(size_t bytes) {
    char *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = i % 2 ? (char)(0x3c + i / 2 % 4) : (char)(i * 7);
    }
    return memory;
}

/* What is timed: one of several ways to write `bytes` bytes to `to`. */
typedef struct work {
    void (*run)(const struct work *w);
    char *to;
    size_t bytes;
    const void *from[INPUTS];
    size_t n;
    size_t size;
    lierne_dtype dtype;
    bool simd;
    lierne_block to_block, from_block;
    bool pages;
} work;

static void run_memcpy(const work *w) {
    memcpy(w->to, w->from[0], w->bytes);
}

static void run_sum(const work *w) {
    lierne_contribution from[INPUTS];
    for (size_t k = 0; k < w->n; k++) {
        from[k] = (lierne_contribution){w->from[k], &w->from_block};
    }
    lierne_host_reduce_by(w->simd, w->dtype, LIERNE_REDUCTION_SUM, 0, w->to, &w->to_block, from,
                          w->n);
}

static void run_nontemporal(const work *w) {
    lierne_nontemporal_copy_by(w->pages, w->to, w->from[0], w->bytes, NULL);
    lierne_nontemporal_fence();
}

static void run_blocks(const work *w) {
    lierne_host_copy(w->size, w->to, &w->to_block, w->from[0], &w->from_block);
}

/* The best rates of n ways in turns, in GB/s of what is written. */
static void rates(double *rate, const work *ways, int n) {
    for (int i = 0; i < n; i++) {
        rate[i] = 0;
    }
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < n; i++) {
            size_t times = ways[i].bytes < AMOUNT ? AMOUNT / ways[i].bytes : 1;
            double start = now(), gb = 1e-9 * (double)(times * ways[i].bytes);
            for (size_t k = 0; k < times; k++) {
                ways[i].run(&ways[i]);
            }
            double reached = gb / (now() - start);
            rate[i] = reached > rate[i] ? reached : rate[i];
        }
    }
}

static void time_sum(lierne_dtype dtype, const char *name, size_t n, size_t bytes, char *to,
                     char *const *from) {
    work w = {.run = run_sum, .to = to, .bytes = bytes, .n = n, .dtype = dtype};
    w.to_block = w.from_block = lierne_block_range(0, (int64_t)(bytes / lierne_dtype_size(dtype)));
    for (size_t k = 0; k < n; k++) {
        w.from[k] = from[k];
    }
    work ways[3] = {w, w, w};
    ways[1].simd = true;
    ways[2].run = run_memcpy;
    char *plain = take(bytes);
    ways[0].to = plain;
    run_sum(&ways[0]);
    run_sum(&ways[1]);
    check(memcmp(plain, to, bytes) == 0, "the same sum");
    free(plain);
    ways[0].to = to;
    double rate[3];
    rates(rate, ways, 3);
    printf("%-5s %2zu %8zu KiB %10.2f %10.2f %10.2f %8.1f\n", name, n, bytes >> 10, rate[0],
           rate[1], rate[2], rate[1] / rate[0]);
}

static void time_sums(void) {
    static const struct {
        lierne_dtype dtype;
        const char *name;
    } types[] = {{LIERNE_DTYPE_F32, "f32"}, {LIERNE_DTYPE_BF16, "bf16"}, {LIERNE_DTYPE_F16, "f16"}};
    static const size_t sizes[] = {32 << 10, 8 << 20};
    char *to = take(sizes[1]), *from[INPUTS];
    for (int k = 0; k < INPUTS; k++) {
        from[k] = take(sizes[1]);
    }
    printf("sums, GB/s of output\n%-5s %2s %12s %10s %10s %10s %8s\n", "type", "of", "output",
           "in C", "lierne", "memcpy", "ratio");
    for (int t = 0; t < 3; t++) {
        for (size_t n = 2; n <= INPUTS; n += 2) {
            for (int s = 0; s < 2; s++) {
                time_sum(types[t].dtype, types[t].name, n, sizes[s], to, from);
            }
        }
    }
    for (int k = 0; k < INPUTS; k++) {
        free(from[k]);
    }
    free(to);
}

static void time_large(void) {
    static const size_t sizes[] = {4, 16, 64};
    char *to = take(sizes[2] << 20), *from = take(sizes[2] << 20);
    printf("copies, GB/s\n%6s %10s %15s %15s\n", "MiB", "memcpy", "line by line", "four pages");
    for (int s = 0; s < 3; s++) {
        work w = {.run = run_nontemporal, .to = to, .bytes = sizes[s] << 20, .from = {from}};
        work ways[3] = {w, w, w};
        ways[0].run = run_memcpy;
        ways[2].pages = true;
        for (int i = 0; i < 3; i++) {
            memset(to, 0xee, w.bytes);
            ways[i].run(&ways[i]);
            check(memcmp(to, from, w.bytes) == 0, "the same copy");
        }
        double rate[3];
        rates(rate, ways, 3);
        printf("%6zu %10.2f %15.2f %15.2f\n", sizes[s], rate[0], rate[1], rate[2]);
    }
    free(to);
    free(from);
}

/* Packs runs of every length out of memory four times as wide: in order, then by a list that jumps.
 */
static void time_runs(void) {
    static const int64_t lengths[] = {1, 2, 4, 8, 16, 24, 64}; /* of 4 bytes */
    enum { N = 8192, WIDEST = 64 };
    char *to = take((size_t)N * WIDEST * 4), *from = take((size_t)4 * N * WIDEST * 4);
    int64_t *list = malloc(N * sizeof *list);
    for (int64_t i = 0; list && i < N; i++) {
        list[i] = i * 2741 % N;
    }
    printf("%d runs packed, GB/s\n%6s %10s %10s %10s\n", N, "bytes", "in order", "by list",
           "memcpy");
    for (size_t k = 0; list && k < sizeof lengths / sizeof *lengths; k++) {
        int64_t n = lengths[k];
        work w = {.run = run_blocks, .to = to, .from = {from}, .size = 4};
        w.bytes = (size_t)(N * n) * 4;
        w.to_block = lierne_block_rows(0, N, n, n);
        w.from_block = lierne_block_rows(0, N, n, 4 * n);
        work ways[3] = {w, w, w};
        ways[1].from_block.rows = list;
        ways[2].run = run_memcpy;
        for (int i = 0; i < 2; i++) {
            bool right = true;
            ways[i].run(&ways[i]);
            for (int64_t row = 0; row < N; row++) {
                size_t at = (size_t)((i ? list[row] : row) * 4 * n) * 4;
                right &= !memcmp(to + row * n * 4, from + at, (size_t)n * 4);
            }
            check(right, "the same runs");
        }
        double rate[3];
        rates(rate, ways, 3);
        printf("%6zu %10.2f %10.2f %10.2f\n", (size_t)n * 4, rate[0], rate[1], rate[2]);
    }
    free(list);
    free(to);
    free(from);
}

static uint64_t digest; /* kept, so that it is computed */

static void run_digest(const work *w) {
    static lierne_digest_factors factors;
    lierne_digest_factors_set(&factors, 1, 2);
    digest += lierne_digest_bytes(&factors, w->from[0], 0, w->bytes);
}

/* The digest of a buffer takes at most the time of a copy of it. */
static void time_digests(void) {
    static const size_t sizes[] = {4, 32, 1024, 8192, 65536};
    printf("digests, GB/s\n%6s %10s %10s %10s\n", "KiB", "digest", "memcpy", "ratio");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t bytes = sizes[s] << 10;
        char *to = take(bytes), *from = take(bytes);
        work ways[2] = {{.run = run_digest, .to = to, .bytes = bytes, .from = {from}}};
        ways[1] = ways[0];
        ways[1].run = run_memcpy;
        double rate[2];
        rates(rate, ways, 2);
        printf("%6zu %10.2f %10.2f %10.2f\n", sizes[s], rate[0], rate[1], rate[0] / rate[1]);
        check(digest != 0, "a digest");
        free(to);
        free(from);
    }
}

int main(int argc, char **argv) {
    rounds = argc > 1 && strcmp(argv[1], "quick") == 0 ? 1 : ROUNDS;
    time_sums();
    time_large();
    time_runs();
    time_digests();
    return close_counts();
}
