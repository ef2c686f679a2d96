/* Cutting an axis.
 *
 * What dims leave of an axis is at most two pieces, found by cutting the whole axis once per dim
 * that cuts it, in the layout's order; each cut takes a range of what the cut before left. Fan-in,
 * fan-out, uneven data-parallel sizes and disjoint grids are intersections of such pieces. Cells
 * are enumerated by descending through the cuts. Of the shares of a dim only those are looked at
 * that have something of the region, so the cost follows the number of cells found. */
#include "layout/layout.h"

#include <string.h>

/* Appends indices [from, to) of the concatenation of `have` to `out`. */
static void take_pieces(const lierne_pieces *have, int64_t from, int64_t to, lierne_pieces *out) {
    int64_t before = 0;
    for (int i = 0; i < have->count; i++) {
        int64_t lo = from > before ? from - before : 0;
        int64_t hi = to - before < have->at[i].size ? to - before : have->at[i].size;
        if (lo < hi) {
            int64_t start = have->at[i].start + lo;
            lierne_span *last = out->count ? &out->at[out->count - 1] : NULL;
            if (last && last->start + last->size == start) {
                last->size += hi - lo;
            } else {
                out->at[out->count++] = (lierne_span){.start = start, .size = hi - lo};
            }
        }
        before += have->at[i].size;
    }
}

int64_t lierne_pieces_length(const lierne_pieces *pieces) {
    int64_t sum = 0;
    for (int i = 0; i < pieces->count; i++) {
        sum += pieces->at[i].size;
    }
    return sum;
}

int64_t lierne_share(int64_t total, int64_t n, int64_t c) {
    int64_t rest = total % n;
    return total / n * c + (c < rest ? c : rest);
}

/* First index of the c-th of n shares of ceil(total / n). */
static int64_t chunk_start(int64_t total, int64_t n, int64_t c) {
    int64_t start = (total / n + (total % n > 0)) * c;
    return start < total ? start : total;
}

int64_t lierne_share_start(const lierne_placement *p, int64_t total, int n, int c) {
    if (p->counts) {
        return p->counts[c];
    }
    return p->share == LIERNE_SHARE_RULE_CHUNK ? chunk_start(total, n, c)
                                               : lierne_share(total, n, c);
}

void lierne_axis_cut(const lierne_layout *layout, int d, int coord, lierne_pieces *pieces) {
    const lierne_placement *p = &layout->placements[d];
    lierne_pieces out = {0};
    int n = layout->sizes[d];
    if (p->kind == LIERNE_PLACEMENT_SHARD_ROWS || n == 1) {
        return;
    }
    int64_t total = lierne_pieces_length(pieces);
    if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
        int64_t chunk = total / (2 * (int64_t)n);
        take_pieces(pieces, coord * chunk, (coord + 1) * chunk, &out);
        take_pieces(pieces, (2 * (int64_t)n - 1 - coord) * chunk, (2 * (int64_t)n - coord) * chunk,
                    &out);
    } else {
        int64_t start = lierne_share_start(p, total, n, coord);
        take_pieces(pieces, start, lierne_share_start(p, total, n, coord + 1), &out);
    }
    *pieces = out;
}
