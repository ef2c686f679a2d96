/* Order: a radix sort, and a search.
 *
 * Radix sort: digit by digit from the lowest. Each pass is stable, so that items with equal keys
 * keep their order. Linear, without a comparison function. */
#include "base/base.h"

#include <string.h>

#define DIGIT_BITS 11
#define DIGITS     (1 << DIGIT_BITS)

static void pass(lierne_keyed *to, const lierne_keyed *from, size_t n, int shift) {
    size_t start[DIGITS + 1] = {0};
    for (size_t i = 0; i < n; i++) {
        start[(from[i].key >> shift & (DIGITS - 1)) + 1]++;
    }
    for (int d = 0; d < DIGITS; d++) {
        start[d + 1] += start[d];
    }
    for (size_t i = 0; i < n; i++) {
        to[start[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
    }
}

void lierne_sort_keyed(lierne_keyed *items, lierne_keyed *spare, size_t n, uint64_t most) {
    lierne_keyed *from = items, *to = spare;
    for (int shift = 0; shift < 64 && most >> shift > 0; shift += DIGIT_BITS) {
        pass(to, from, n, shift);
        lierne_keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != items && n > 0) {
        memcpy(items, from, n * sizeof *items);
    }
}

int lierne_search_int(const int *list, int n, int number) {
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (list[middle] < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && list[low] == number ? low : -1;
}
