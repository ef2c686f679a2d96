/* How fast changes are encoded and decoded, beside memcpy of the same elements, and how many bits a
 * changed element takes, beside the entropy of the positions and its own bits.
 *
 *   delta [quick]
 *
 * 32 MiB of elements, random ones of which changed; CSV. Times are the thread's own, medians of
 * rounds in which the three take turns; quick is one round. Rates are printed and not judged; what
 * is decoded is compared, and bits are judged. */
#include "bench/checks.h"
#include "plan/redistribute/changes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BYTES  (32 << 20)
#define ROUNDS 15

static int rounds = ROUNDS;
static unsigned char *last, *now, *out, *encoded;
static size_t encoded_bytes;

static uint64_t draw(void) {
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    return x ^= x << 17;
}

static void copy(size_t size) {
    (void)size;
    memcpy(out, now, BYTES);
}

static void encode(size_t size) {
    encoded_bytes = lierne_changes_encode(encoded, now, last, BYTES / size, size);
}

static void decode(size_t size) {
    check(lierne_changes_decode(out, BYTES / size, size, encoded, encoded_bytes) == LIERNE_OK,
          "decoding");
}

static double seconds(void (*run)(size_t), size_t size) {
    double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    run(size);
    return seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
}

static double median(double *of) {
    qsort(of, (size_t)rounds, sizeof *of, ascending);
    return of[rounds / 2];
}

/* memcpy, encoding and decoding in turns: the rate of memcpy in GB of elements per second, and how
 * many times as fast the others are. */
static void rates(double medians[3], size_t size) {
    double all[3][ROUNDS];
    for (int i = 0; i < rounds; i++) {
        double copied = seconds(copy, size);
        all[0][i] = BYTES / copied * 1e-9;
        all[1][i] = copied / seconds(encode, size);
        all[2][i] = copied / seconds(decode, size);
    }
    for (int k = 0; k < 3; k++) {
        medians[k] = median(all[k]);
    }
}

/* Returns how many elements changed. */
static size_t change(double p, size_t size) {
    size_t changed = 0;
    memcpy(now, last, BYTES);
    for (size_t i = 0; i < BYTES / size; i++) {
        if ((double)(draw() >> 11) < p * 0x1p53) {
            now[i * size + draw() % size] ^= 1;
            changed++;
        }
    }
    return changed;
}

static void measure(double percent, size_t size) {
    double p = percent / 100, changed = (double)change(p, size);
    double least = -(p * log2(p) + (1 - p) * log2(1 - p)) / p + 8.0 * (double)size;
    double medians[3];
    encode(size);
    memcpy(out, last, BYTES);
    decode(size);
    double bits = 8 * (double)encoded_bytes / changed;
    check(memcmp(out, now, BYTES) == 0, "what was decoded");
    check(bits <= 1.1 * least, "bits per changed element");
    rates(medians, size);
    printf("%g,%zu,%.2f,%.2f,%.2f,%.2f,%.2f\n", percent, size, bits, least, medians[0], medians[1],
           medians[2]);
}

int main(int argc, char **argv) {
    static const double percents[] = {0.05, 0.5, 2, 10, 30};
    rounds = argc > 1 && strcmp(argv[1], "quick") == 0 ? 1 : ROUNDS;
    last = malloc(BYTES);
    now = malloc(BYTES);
    out = malloc(BYTES);
    encoded = malloc(lierne_changes_bound(BYTES, 1));
    check(last && now && out && encoded, "memory");
    for (size_t i = 0; counts[0] == 0 && i < BYTES; i++) {
        last[i] = (unsigned char)draw();
    }
    printf("changed %%,element bytes,bits per change,entropy bits,memcpy GB/s,encode times as fast,"
           "decode times as fast\n");
    for (size_t i = 0; counts[0] == 0 && i < 5; i++) {
        for (size_t size = 1; size <= 8; size *= 2) {
            measure(percents[i], size);
        }
    }
    free(last);
    free(now);
    free(out);
    free(encoded);
    return close_counts();
}
