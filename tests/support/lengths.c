#include "support/lengths.h"

#include <string.h>

uint64_t draw_number(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static int64_t draw_bell(uint64_t *x) {
    uint64_t s = 0;
    for (int i = 0; i < 8; i++) {
        s += draw_number(x) % 8;
    }
    uint64_t b = (uint64_t)16 << (s / 8);
    return (int64_t)(b + b * (s % 8) / 8 + draw_number(x) % (b / 8));
}

static int64_t draw_octave(uint64_t *x) {
    int k = 0;
    while (k < 9 && draw_number(x) % 2 == 1) {
        k++;
    }
    return (int64_t)(((uint64_t)64 << k) + draw_number(x) % ((uint64_t)64 << k));
}

int64_t draw_length(const char *kind, uint64_t *x) {
    switch (kind[0] == 'b' ? kind[1] : kind[0]) {
    case 'e':
        return strcmp(kind, "bell") == 0 ? draw_bell(x) : 1024;
    case 'i':
        return (int64_t)(draw_number(x) % 20 == 0 ? 4000 + draw_number(x) % 16001
                                                  : 32 + draw_number(x) % 569);
    case 'o':
        return draw_octave(x);
    default:
        return (int64_t)(1 + draw_number(x) % 1000);
    }
}
