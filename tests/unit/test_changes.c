/* Changes of elements as bytes: what was encoded arrives bit for bit, at most a byte per piece
 * longer than dense and near the entropy; bytes that no encoder writes are an error, and nothing
 * is read or written out of bounds (buffers end where the heap's do, for the address sanitizer). */
#include "unit/expect.h"

#include "base/base.h"
#include "plan/redistribute/changes.h"
#include "tasks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIALS = 400, HOSTILE = 20000, GUARD = 32, LARGE = 1 << 20 };

static uint64_t draw(uint64_t *seed) {
    *seed += 0x9e3779b97f4a7c15u;
    uint64_t x = (*seed ^ *seed >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Two versions of n elements, and what was encoded. */
typedef struct run {
    size_t n, size, changed, bytes;
    unsigned char *last, *now, *encoded;
} run;

static unsigned char *bytes_of(size_t n) {
    unsigned char *bytes = malloc(n + !n);
    cr_assert_not_null(bytes);
    return bytes;
}

/* A change is one of any bit, of each with the same probability. */
static run open_run(size_t n, size_t size, double p, uint64_t *seed) {
    run r = {.n = n, .size = size, .last = bytes_of(n * size), .now = bytes_of(n * size)};
    r.encoded = bytes_of(lierne_changes_bound(n, size));
    for (size_t i = 0; i < n * size; i++) {
        r.last[i] = r.now[i] = (unsigned char)draw(seed);
    }
    for (size_t i = 0; i < n; i++) {
        if ((double)(draw(seed) >> 11) < p * 0x1p53) {
            uint64_t bit = draw(seed) % (8 * size);
            r.now[i * size + bit / 8] ^= (unsigned char)(1u << bit % 8);
            r.changed++;
        }
    }
    r.bytes = lierne_changes_encode(r.encoded, r.now, r.last, n, size);
    return r;
}

static void close_run(run *r) {
    free(r->last);
    free(r->now);
    free(r->encoded);
}

/* Decodes bytes in a buffer of just their length. */
static lierne_status decode(run *r, const unsigned char *from, size_t bytes) {
    unsigned char *exact = bytes_of(bytes);
    memcpy(exact, from, bytes);
    lierne_status status = lierne_changes_decode(r->last, r->n, r->size, exact, bytes);
    free(exact);
    return status;
}

static const double shares[] = {0, 0.0005, 0.005, 0.02, 0.1, 0.3, 0.7, 0.97, 1};
#define NSHARES (sizeof shares / sizeof *shares)

Test(delta, arrives_bit_for_bit) {
    uint64_t seed = 37;
    for (int trial = 0; trial < TRIALS; trial++) {
        size_t size = (size_t)1 << trial % 4, piece = LIERNE_CHANGE_BYTES / size;
        size_t n = trial % 3 ? draw(&seed) % 300 : 2 * piece - 70 + draw(&seed) % 140;
        run r = open_run(n, size, shares[draw(&seed) % NSHARES], &seed);
        cr_assert_leq(r.bytes, lierne_changes_bound(n, size));
        assert_ok(decode(&r, r.encoded, r.bytes));
        cr_assert_arr_eq(r.last, r.now, n * size, "trial %d: %zu elements of %zu", trial, n, size);
        close_run(&r);
    }
}

Test(delta, whole_without_a_last_version) {
    uint64_t seed = 5;
    run r = open_run(70001, 2, 0.01, &seed);
    size_t bytes = lierne_changes_encode(r.encoded, r.now, NULL, r.n, r.size);
    cr_assert_eq(bytes, lierne_changes_bound(r.n, r.size));
    cr_assert_eq(bytes, 2 * 70001 + 3);
    memset(r.last, 0x5a, r.n * r.size);
    assert_ok(decode(&r, r.encoded, bytes));
    cr_assert_arr_eq(r.last, r.now, r.n * r.size);
    close_run(&r);
}

Test(delta, signs_of_zero_and_payloads_of_nan_are_changes) {
    const uint32_t last[] = {0, 0x7fc00001u, 0x3f800000u},
                   now[] = {0x80000000u, 0x7fc00002u, last[2]};
    uint32_t data[3];
    unsigned char encoded[16];
    memcpy(data, last, sizeof data);
    size_t bytes = lierne_changes_encode(encoded, now, last, 3, 4);
    assert_ok(lierne_changes_decode(data, 3, 4, encoded, bytes));
    cr_assert_arr_eq(data, now, sizeof data);
}

/* The format: 16 elements, 3 and 5 changed; k is 3. */
Test(delta, known_bytes) {
    unsigned char last[16] = {0}, now[16] = {0}, encoded[17];
    now[3] = 0xab;
    now[5] = 0xcd;
    /* gaps 3 and 1: 0 110 0 100, of which the first is the lowest bit. */
    const unsigned char expected[] = {2 * 4, 0xab, 0xcd, 0x26};
    cr_assert_eq(lierne_changes_encode(encoded, now, last, 16, 1), sizeof expected);
    cr_assert_arr_eq(encoded, expected, sizeof expected);
    cr_assert_eq(lierne_changes_encode(encoded, last, last, 16, 1), 1);
    cr_assert_eq(encoded[0], 0);
}

/* Bits per changed element, heads included, beside H(p)/p + those of the element. */
Test(delta, near_the_entropy) {
    uint64_t seed = 11;
    for (size_t s = 1; s <= 5; s++) {
        for (size_t size = 1; size <= 8; size *= 2) {
            double p = shares[s], entropy = -(p * log2(p) + (1 - p) * log2(1 - p)) / p;
            run r = open_run(LARGE, size, p, &seed);
            double bits = 8.0 * (double)r.bytes / (double)r.changed;
            double least = entropy + 8.0 * (double)size;
            cr_expect_leq(bits, 1.1 * least, "p %g, size %zu: %.2f bits, entropy %.2f", p, size,
                          bits, least);
            cr_log_info("p %g, size %zu: %.2f bits, entropy %.2f", p, size, bits, least);
            close_run(&r);
        }
    }
}

/* --- bytes that are wrong ------------------------------------------------------------------- */

static void rejects(size_t n, const char *words, size_t bytes, const unsigned char *from) {
    unsigned char data[64] = {0};
    assert_error(lierne_changes_decode(data, n, 1, from, bytes), LIERNE_ERR_MISMATCH, words);
}
#define REJECTS(n, words, ...)                                                                     \
    rejects(n, words, sizeof((unsigned char[]){__VA_ARGS__}), (unsigned char[]){__VA_ARGS__})

Test(delta, rejects_what_no_encoder_writes) {
    REJECTS(16, "piece 0 of the changes of 16 elements, in 1 bytes: the bytes end within it", 4);
    REJECTS(16, "the bytes end within it", 4, 7);
    REJECTS(16, "the bytes end within it", 2, 1, 2, 3);
    REJECTS(16, "the bytes end within it", 5, 7, 1);
    REJECTS(17, "the bytes end within it", 5, 7, 1, 0);
    REJECTS(16, "the bytes end within it", 128);
    REJECTS(16, "its head has no end", 128, 128, 128, 0);
    REJECTS(16, "its head is none that is written", 3);
    REJECTS(16, "its head is none that is written", 6);
    REJECTS(16, "its head is none that is written", 17 * 4);
    REJECTS(16, "a gap is longer than the piece", 4, 7, 1);
    REJECTS(16, "a gap is longer than the piece", 8, 7, 7, 0xff, 0xff, 0xff, 0xff, 0);
    REJECTS(16, "bits behind the last gap are not zero", 4, 7, 0x40);
    REJECTS(16, "its map has other changes than it says", 5, 7, 1, 1);
    REJECTS(16, "its map has other changes than it says", 5, 7, 0, 0);
    REJECTS(12, "its map has other changes than it says", 5, 7, 0, 16);
    REJECTS(16, "1 more than their pieces", 0, 0);
}

/* --- what kernels do ------------------------------------------------------------------------ */

enum { PIECES = 4 };

/* The pieces of a run; their slots end where the heap's memory does. */
typedef struct launch {
    lierne_change_piece pieces[PIECES];
    lierne_change_call call;
} launch;

static void open_launch(launch *l, const run *r) {
    size_t most = LIERNE_CHANGE_BYTES / r->size;
    int64_t bytes = 0;
    l->call = (lierne_change_call){.pieces = l->pieces, .size = (int32_t)r->size};
    for (size_t i = 0; i < r->n; i += most) {
        int32_t n = (int32_t)(r->n - i < most ? r->n - i : most);
        cr_assert_lt(l->call.npieces, PIECES);
        l->pieces[l->call.npieces++] =
            (lierne_change_piece){.first = (int64_t)(i * r->size), .slot = bytes, .n = n};
        bytes += lierne_change_slot(n, (int32_t)r->size);
    }
    l->call.slots = (char *)bytes_of((size_t)bytes);
    l->call.now = (char *)bytes_of(r->n * r->size);
}

static void close_launch(launch *l) {
    free(l->call.slots);
    free(l->call.now);
}

/* The bytes of a run, from its last version on or whole. */
static size_t put_launch(launch *l, const run *r, unsigned char *to, bool whole) {
    unsigned char *start = to;
    memcpy(l->call.now, r->now, r->n * r->size);
    l->call.last = whole ? NULL : (const char *)r->last;
    for (int64_t i = 0; i < l->call.npieces; i++) {
        l->pieces[i].form = whole ? LIERNE_CHANGE_DENSE : LIERNE_CHANGE_GAPS;
    }
    assert_ok(test_task_change(&l->call, false, NULL));
    for (int64_t i = 0; i < l->call.npieces; i++) {
        to = lierne_changes_put(to, &l->pieces[i], l->call.slots, r->size);
    }
    return (size_t)(to - start);
}

static lierne_status get_launch(launch *l, const run *r, const unsigned char *from, size_t bytes) {
    lierne_status status =
        lierne_changes_get(l->pieces, (size_t)l->call.npieces, l->call.slots, r->size, from, bytes);
    return status == LIERNE_OK ? test_task_change(&l->call, true, NULL) : status;
}

Test(delta, kernels_write_and_read_what_the_host_does) {
    uint64_t seed = 73;
    for (int trial = 0; trial < TRIALS; trial++) {
        size_t size = (size_t)1 << trial % 4, piece = LIERNE_CHANGE_BYTES / size;
        size_t n = trial % 3 ? draw(&seed) % 300 : 2 * piece - 70 + draw(&seed) % 140;
        run r = open_run(n, size, shares[draw(&seed) % NSHARES], &seed);
        unsigned char *bytes = bytes_of(lierne_changes_bound(n, size));
        bool whole = trial % 7 == 0;
        launch l;
        open_launch(&l, &r);
        size_t expected = whole ? lierne_changes_encode(r.encoded, r.now, NULL, n, size) : r.bytes;
        cr_assert_eq(put_launch(&l, &r, bytes, whole), expected, "trial %d", trial);
        cr_assert_arr_eq(bytes, r.encoded, expected, "trial %d: %zu of %zu", trial, n, size);
        memcpy(l.call.now, r.last, n * size);
        assert_ok(get_launch(&l, &r, bytes, expected));
        cr_assert_arr_eq(l.call.now, r.now, n * size, "trial %d: %zu of %zu", trial, n, size);
        free(bytes);
        close_launch(&l);
        close_run(&r);
    }
}

/* Bytes of an encoding with some changed, cut off, or random ones. */
static size_t spoil(const run *r, unsigned char *bytes, uint64_t *seed) {
    size_t kind = draw(seed) % 3, n = kind == 1 ? draw(seed) % (r->bytes + 1) : r->bytes;
    for (size_t i = 0; i < n; i++) {
        bytes[i] = kind == 2 ? (unsigned char)draw(seed) : r->encoded[i];
    }
    for (size_t i = 0; n > 0 && i <= draw(seed) % 4; i++) {
        bytes[draw(seed) % n] = (unsigned char)draw(seed);
    }
    return n;
}

/* The guards behind data show what is written out of bounds also without a sanitizer. */
Test(delta, hostile_bytes_stay_in_bounds) {
    uint64_t seed = 99;
    int rejected = 0;
    for (int trial = 0; trial < HOSTILE; trial++) {
        size_t size = (size_t)1 << trial % 4, n = draw(&seed) % 200;
        run r = open_run(n, size, shares[draw(&seed) % NSHARES], &seed);
        unsigned char *bytes = bytes_of(r.bytes), *data = bytes_of(n * size + GUARD);
        memset(data, 0xee, n * size + GUARD);
        size_t given = spoil(&r, bytes, &seed);
        lierne_status status = decode(&r, bytes, given);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_MISMATCH);
        cr_assert_eq(lierne_changes_decode(data, n, size, bytes, given), status);
        launch l;
        open_launch(&l, &r);
        memset(l.call.now, 0xee, n * size);
        cr_assert_eq(get_launch(&l, &r, bytes, given), status);
        if (status == LIERNE_OK) {
            cr_assert_arr_eq(l.call.now, data, n * size, "trial %d", trial);
        }
        close_launch(&l);
        for (size_t i = 0; i < GUARD; i++) {
            cr_assert_eq(data[n * size + i], 0xee, "trial %d wrote behind its data", trial);
        }
        rejected += status != LIERNE_OK;
        free(bytes);
        free(data);
        close_run(&r);
    }
    cr_assert_gt(rejected, HOSTILE / 4);
}
