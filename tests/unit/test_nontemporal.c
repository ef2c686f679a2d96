/* Copies past the cache at every alignment and length, alone and as parts of larger ones: all
 * bytes, and no byte beside them. */
#include "runtime/memory/host.h"

#include <criterion/criterion.h>
#include <string.h>

#define ROOM 512

Test(nontemporal, copies_every_length_at_every_alignment) {
    unsigned char from[ROOM], to[ROOM];
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (unsigned char)(i * 37 + 1);
    }
    for (size_t start = 0; start < 17; start++) {
        for (size_t offset = 0; offset < 5; offset++) {
            for (size_t bytes = 0; bytes < 300; bytes++) {
                memset(to, 0xee, sizeof to);
                lierne_nontemporal_copy(to + 32 + start, from + offset, bytes, NULL);
                lierne_nontemporal_fence();
                size_t wrong = memcmp(to + 32 + start, from + offset, bytes) != 0;
                for (size_t i = 0; i < ROOM; i++) {
                    bool inside = i >= 32 + start && i < 32 + start + bytes;
                    wrong += !inside && to[i] != 0xee;
                }
                cr_assert_eq(wrong, 0, "%zu bytes from %zu to %zu", bytes, offset, start);
            }
        }
    }
}

/* Around groups of four pages, with either order of lines. */
Test(nontemporal, either_order_copies_every_line) {
    enum { GROUP = 4 * 4096, MOST = 2 * GROUP + 3000, MARGIN = 128 };
    static unsigned char from[MOST + 2 * MARGIN], to[MOST + 2 * MARGIN], want[MOST + 2 * MARGIN];
    static const size_t lengths[] = {
        64,         127,        128,       129,       1088,      1100,           GROUP - 1, GROUP,
        GROUP + 63, GROUP + 64, GROUP + 5, 2 * GROUP, MOST - 60, 2 * GROUP + 70, MOST};
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (unsigned char)(i * 31 + i / 251 + 1);
    }
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        for (size_t start = 0; start < MARGIN; start += 13) {
            for (int pages = 0; pages < 2; pages++) {
                memset(to, 0xee, sizeof to);
                memset(want, 0xee, sizeof want);
                memcpy(want + start, from + start % 5, lengths[k]);
                lierne_nontemporal_copy_by(pages, to + start, from + start % 5, lengths[k], NULL);
                lierne_nontemporal_fence();
                cr_assert_eq(memcmp(to, want, sizeof to), 0, "%zu bytes to %zu, pages %d",
                             lengths[k], start, pages);
            }
        }
    }
}

/* Large enough to go past the cache: 5 MB, of a buffer with wider rows. */
Test(nontemporal, large_strided_copies) {
    enum { rows = 1000, wide = 1500, narrow = 1300 };
    static int32_t from[rows * wide], to[rows * narrow];
    const lierne_block in = {.offset = 7, .ndims = 2, .count = {rows, narrow}, .stride = {wide, 1}};
    const lierne_block out = {.ndims = 2, .count = {rows, narrow}, .stride = {narrow, 1}};
    int64_t wrong = 0;
    for (int32_t i = 0; i < rows * wide; i++) {
        from[i] = i;
    }
    lierne_host_copy(4, to, &out, from, &in);
    for (int32_t i = 0; i < rows * narrow; i++) {
        wrong += to[i] != i / narrow * wide + 7 + i % narrow;
    }
    cr_expect_eq(wrong, 0);
}

enum { RUNS = 37, RUN = 1300, WIDE = 1500, PACKED = RUNS * RUN, SPREAD = RUNS * WIDE };

/* The elements in blocks that end within runs of the other side; one has none. */
static size_t cut(lierne_block *blocks) {
    static const int64_t lengths[] = {700, 0, 1300, 5 * RUN + 11, 1, 31 * RUN - 712};
    size_t n = sizeof lengths / sizeof *lengths;
    int64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        blocks[i] = lierne_block_range(at, lengths[i]);
        at += lengths[i];
    }
    return n;
}

/* Parts of a copy that bypasses the cache altogether: runs with gaps beside the same elements in
 * one block or cut otherwise, either way, and in a block of the same form. */
Test(nontemporal, parts_of_a_large_copy) {
    static int32_t spread[SPREAD], packed[PACKED], want[SPREAD], again[SPREAD];
    const lierne_block runs = {.offset = 9, .ndims = 2, .count = {RUNS, RUN}, .stride = {WIDE, 1}};
    lierne_block whole = lierne_block_range(0, PACKED), other = runs, blocks[8];
    other.offset = 50;
    for (int32_t i = 0; i < SPREAD; i++) {
        spread[i] = 5 * i + 3;
    }
    size_t n = cut(blocks);
    for (int k = 0; k < 2; k++) {
        memset(packed, 0xee, sizeof packed);
        memset(again, 0xee, sizeof again);
        memset(want, 0xee, sizeof want);
        lierne_host_copy_blocks(LIERNE_PAST_CACHE, 4, packed, k ? blocks : &whole, k ? n : 1,
                                spread, &runs, 1);
        lierne_host_copy_blocks(LIERNE_PAST_CACHE, 4, again, &other, 1, packed, k ? blocks : &whole,
                                k ? n : 1);
        int64_t wrong = 0;
        for (int32_t i = 0; i < PACKED; i++) {
            wrong += packed[i] != spread[9 + i / RUN * WIDE + i % RUN];
            want[50 + i / RUN * WIDE + i % RUN] = packed[i];
        }
        cr_expect_eq(wrong, 0);
        cr_expect_eq(memcmp(again, want, sizeof want), 0);
        memset(again, 0xee, sizeof again);
        lierne_host_copy_of(LIERNE_PAST_CACHE, 4, again, &other, spread, &runs);
        cr_expect_eq(memcmp(again, want, sizeof want), 0);
    }
}
