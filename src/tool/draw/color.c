/* Colours that pictures share: a dim has the same one in all of them, and so have the same samples.
 * They are readable on white, which every picture has as its ground. */
#include "draw.h"

#include <string.h>

int draw_dim_color(const char *dim, int coordinate, int size) {
    static const struct {
        const char *name;
        int color;
    } known[] = {
        {"tp", 0x2563eb}, {"cp", 0xea580c}, {"dp", 0x15803d}, {"pp", 0x9333ea}, {"ep", 0xdb2777}};
    static const int others[] = {0x0d9488, 0x92400e, 0x475569, 0xca8a04};
    unsigned sum = 0;
    int color = -1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        color = strcmp(dim, known[i].name) == 0 ? known[i].color : color;
    }
    for (const char *c = dim; *c; c++) {
        sum += (unsigned char)*c;
    }
    color = color < 0 ? others[sum % 4] : color;
    return svg_mix(SVG_GROUND, color, size < 2 ? 150 : 150 + 850 * coordinate / (size - 1));
}

int draw_sample_color(int64_t start, int64_t end, int64_t all) {
    static const int keys[] = {0xfde68a, 0xbbf7d0, 0xa5e3f5, 0xc7c9fd, 0xfbc4e4};
    enum { STEPS = sizeof keys / sizeof *keys - 1 };
    int thousandth = all > 0 ? (int)((start + end) * 500 / all * STEPS) : 0;
    int key = thousandth / 1000 < STEPS ? thousandth / 1000 : STEPS - 1;
    return svg_mix(keys[key], keys[key + 1], thousandth - 1000 * key);
}

int draw_choose(int n, int most, int *list) {
    int used = 0, before = n <= most ? n : most / 2;
    for (int i = 0; i < before; i++) {
        list[used++] = i;
    }
    if (n > most) {
        list[used++] = -1;
        for (int i = n - (most - before - 1); i < n; i++) {
            list[used++] = i;
        }
    }
    return used;
}
