/* Whether the dp ranks of two grids on the same ranks hold common samples, and what Megatron-LM
 * would do with the pair, by formulas: the time of checking a configuration does not grow with its
 * ranks.
 *
 * The dp sizes are d and k x d. Rank r, counted from the grids' first, has dp coordinate r / b % d
 * in the grid with the smaller dp. In the other grid its dp rank has a share of the batch of dp
 * rank r / a % d. Here b is the stride of the smaller dp, and a the stride of the larger one times
 * k. The rank is aligned where both are equal. */
#include "plan/megatron/megatron.h"

#include <stdio.h>

typedef struct alignment {
    int64_t a;
    int64_t b;
    int64_t d;
    int64_t nranks; /* a multiple of a x d and of b x d */
} alignment;

static int64_t stride_of(const lierne_grid *grid, int dim) {
    int64_t stride = 1;
    for (int d = 0; d < dim; d++) {
        stride *= lierne_grid_get_dim_size(grid, NULL, d);
    }
    return stride;
}

static alignment compare_dp(const lierne_grid *wide, const lierne_grid *narrow) {
    int64_t d = lierne_grid_find_dim_size(narrow, NULL, "dp"),
            k = lierne_grid_find_dim_size(wide, NULL, "dp") / d;
    return (alignment){.a = stride_of(wide, lierne_grid_find_dim(wide, "dp")) * k,
                       .b = stride_of(narrow, lierne_grid_find_dim(narrow, "dp")),
                       .d = d,
                       .nranks = lierne_grid_get_size(narrow)};
}

static int64_t gcd(int64_t a, int64_t b) {
    return b == 0 ? a : gcd(b, a % b);
}

/* Pairs u < a, v < b with u = v modulo e. */
static int64_t count_congruent(int64_t a, int64_t b, int64_t e) {
    int64_t rest = a % e < b % e ? a % e : b % e;
    return e * (a / e) * (b / e) + a / e * (b % e) + b / e * (a % e) + rest;
}

/* Let g = gcd(a, b). Over d x lcm(a, b) ranks each pair (r modulo a x d, r modulo b x d) whose
 * parts are congruent modulo g x d occurs once. A rank is aligned at dp rank y if the pair is (y a
 * + u, y b + v) with u < a and v < b. So g divides u - v, and after division of a, b, u and v by g
 * it holds that u - v = y (b - a) modulo d. For y from 0 to d - 1 the right side takes each
 * multiple of e = gcd(b - a, d) e times. It remains to count the pairs u, v that are congruent
 * modulo e, for each of the g remainders. */
static int64_t count_aligned(const alignment *l) {
    int64_t g = gcd(l->a, l->b), a = l->a / g, b = l->b / g;
    int64_t e = gcd(a > b ? a - b : b - a, l->d);
    return l->nranks / (l->d * g * a * b) * g * e * count_congruent(a, b, e);
}

/* Writes the first ranks that are not aligned. Skips aligned ranks up to the next one whose
 * coordinates differ; at most two such skips follow each other. */
static void find_misaligned(const alignment *l, int offset, int *ranks, int count) {
    int64_t r = 0;
    for (int n = 0; n < count && r < l->nranks;) {
        if (r / l->a % l->d != r / l->b % l->d) {
            ranks[n++] = offset + (int)r++;
        } else {
            int64_t next_a = (r / l->a + 1) * l->a, next_b = (r / l->b + 1) * l->b;
            r = next_a < next_b ? next_a : next_b;
        }
    }
}

static bool same_span(const lierne_megatron_grids *grids) {
    return lierne_grid_get_size(grids->src) == lierne_grid_get_size(grids->dst) &&
           lierne_grid_get_rank_offset(grids->src) == lierne_grid_get_rank_offset(grids->dst);
}

int lierne_megatron_misaligned(const lierne_megatron_grids *grids, int *ranks, int most) {
    int src = lierne_grid_find_dim_size(grids->src, NULL, "dp"),
        dst = lierne_grid_find_dim_size(grids->dst, NULL, "dp");
    if (!same_span(grids) || (src % dst != 0 && dst % src != 0)) {
        return 0;
    }
    alignment l =
        src > dst ? compare_dp(grids->src, grids->dst) : compare_dp(grids->dst, grids->src);
    int count = (int)(l.nranks - count_aligned(&l));
    find_misaligned(&l, lierne_grid_get_rank_offset(grids->src), ranks,
                    count < most ? count : most);
    return count;
}

/* In the order of Megatron-LM's checks. */
lierne_megatron_rejection lierne_megatron_reject(const lierne_megatron_grids *grids, char *text,
                                                 size_t size) {
    const lierne_grid *src = grids->src, *dst = grids->dst;
    int sizes[] = {lierne_grid_get_size(src), lierne_grid_get_size(dst)};
    int offsets[] = {lierne_grid_get_rank_offset(src), lierne_grid_get_rank_offset(dst)};
    int dps[] = {lierne_grid_find_dim_size(src, NULL, "dp"),
                 lierne_grid_find_dim_size(dst, NULL, "dp")};
    int pps[] = {lierne_grid_find_dim_size(src, NULL, "pp"),
                 lierne_grid_find_dim_size(dst, NULL, "pp")};
    int cp = lierne_grid_find_dim_size(src, NULL, "cp");
    text[0] = '\0';
    if (sizes[0] != sizes[1]) {
        snprintf(text, size, "the source grid has %d ranks, the destination grid %d", sizes[0],
                 sizes[1]);
        return LIERNE_MEGATRON_REJECTION_GRID_SIZES;
    }
    if (offsets[0] != offsets[1]) {
        snprintf(text, size, "the source grid begins at rank %d, the destination grid at rank %d",
                 offsets[0], offsets[1]);
        return LIERNE_MEGATRON_REJECTION_RANK_OFFSETS;
    }
    if (pps[0] != 1 || pps[1] != 1) {
        snprintf(text, size, "pp of the %s grid is %d, must be 1",
                 pps[0] != 1 ? "source" : "destination", pps[0] != 1 ? pps[0] : pps[1]);
        return pps[0] != 1 ? LIERNE_MEGATRON_REJECTION_SRC_PP : LIERNE_MEGATRON_REJECTION_DST_PP;
    }
    if (cp != 1) {
        snprintf(text, size, "cp of the source grid is %d, must be 1", cp);
        return LIERNE_MEGATRON_REJECTION_SRC_CP;
    }
    if (lierne_grid_find_dim(dst, "cp") > lierne_grid_find_dim(dst, "dp")) {
        snprintf(text, size, "cp stands after dp in the destination grid");
        return LIERNE_MEGATRON_REJECTION_CP_AFTER_DP;
    }
    if (dps[0] % dps[1] != 0 && dps[1] % dps[0] != 0) {
        snprintf(text, size,
                 "dp of the source grid is %d, that of the destination %d: neither divides the "
                 "other",
                 dps[0], dps[1]);
        return LIERNE_MEGATRON_REJECTION_DP_INDIVISIBLE;
    }
    return LIERNE_MEGATRON_REJECTION_ACCEPTED;
}

lierne_status lierne_megatron_compare(lierne_megatron_comparison *out,
                                      const lierne_bridge_spec *spec) {
    lierne_megatron_grids grids;
    lierne_status status = lierne_megatron_grids_create(&grids, spec);
    if (status == LIERNE_OK) {
        lierne_megatron_reject(&grids, out->rejection, sizeof out->rejection);
        out->nmisaligned =
            lierne_megatron_misaligned(&grids, out->misaligned, LIERNE_MEGATRON_SHOWN);
    }
    lierne_megatron_grids_destroy(&grids);
    return status;
}
