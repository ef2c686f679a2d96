/* From a description of segments to a packing.
 *
 * All forms of a description become one: padded lengths whether boundaries or align were given,
 * and every list written out. So equal descriptions are equal numbers, which ranks compare, and
 * what reads a packing has no case for what was left out. Filling allocates nothing and looks at
 * each segment a fixed number of times. */
#include "layout/packed.h"

#include <string.h>

#define MAX_TOKENS ((int64_t)1 << 60)

static lierne_status check_boundaries(const lierne_segments *segments) {
    const int64_t *cu = segments->cu_seqlens;
    int64_t n = segments->nsegments;
    if (cu[0] != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "cu_seqlens[0] is %lld, must be 0",
                           (long long)cu[0]);
    }
    for (int64_t i = 0; i < n; i++) {
        if (cu[i + 1] < cu[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "cu_seqlens[%lld] is %lld, must be at least %lld, the boundary "
                               "before it",
                               (long long)i + 1, (long long)cu[i + 1], (long long)cu[i]);
        }
    }
    if (cu[n] > MAX_TOKENS) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "cu_seqlens[%lld] is %lld, must be at most %lld",
                           (long long)n, (long long)cu[n], (long long)MAX_TOKENS);
    }
    return LIERNE_OK;
}

lierne_status lierne_segments_check(const lierne_segments *segments) {
    if (segments->nsegments < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nsegments is %lld, must be at least 0",
                           (long long)segments->nsegments);
    }
    LIERNE_TRY(lierne_check_set(segments->cu_seqlens, "cu_seqlens"));
    return check_boundaries(segments);
}

static lierne_status check_align(const lierne_packing *packing) {
    if (packing->align < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "align is %lld, must be at least 0",
                           (long long)packing->align);
    }
    if (packing->align > 0 && packing->cu_seqlens_padded) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "align is %lld, and cu_seqlens_padded is given: give one of them",
                           (long long)packing->align);
    }
    return LIERNE_OK;
}

static lierne_status check_padded(const int64_t *padded, int64_t n) {
    if (padded && padded[0] != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "cu_seqlens_padded[0] is %lld, must be 0",
                           (long long)padded[0]);
    }
    for (int64_t i = 0; padded && i < n; i++) {
        if (padded[i + 1] < padded[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "cu_seqlens_padded[%lld] is %lld, must be at least %lld, the "
                               "boundary before it",
                               (long long)i + 1, (long long)padded[i + 1], (long long)padded[i]);
        }
    }
    return LIERNE_OK;
}

static lierne_status take_lead(lierne_packed *p, const int64_t *lead) {
    for (int64_t i = 0; lead && i < p->n; i++) {
        p->lead[i] = lead[i];
        p->leads = p->leads || p->lead[i] != 0;
        if (p->lead[i] < 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "lead[%lld] is %lld, must be at least 0",
                               (long long)i, (long long)p->lead[i]);
        }
    }
    return LIERNE_OK;
}

/* The padded length of a segment with need rows of lead and tokens. */
static lierne_status take_length(lierne_packed *p, const lierne_packing *packing, int64_t i,
                                 int64_t need) {
    const int64_t *cu = packing->cu_seqlens_padded;
    int64_t align = packing->align ? packing->align : 1;
    if (!cu) {
        int64_t n = lierne_quotient(need, align);
        return lierne_mul_i64(n + (n * align < need), align, &p->padded[i])
                   ? LIERNE_OK
                   : LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                                 "align is %lld, and segment %lld has %lld rows of lead and "
                                 "tokens: padded, must have at most %lld",
                                 (long long)align, (long long)i, (long long)need,
                                 (long long)MAX_TOKENS);
    }
    p->padded[i] = cu[i + 1] - cu[i];
    return p->padded[i] >= need
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "cu_seqlens_padded[%lld] is %lld, which leaves %lld rows to segment "
                             "%lld, must leave at least %lld for its lead and tokens",
                             (long long)i + 1, (long long)cu[i + 1], (long long)p->padded[i],
                             (long long)i, (long long)need);
}

/* Segments without lead, whose lengths are rounded up; false: they are others, or something is
 * wrong, which the general way finds. */
static bool take_rounded(lierne_packed *p, const int64_t *given, const lierne_packing *packing) {
    const int64_t n = p->n, align = packing->align ? packing->align : 1;
    int64_t *cu = p->cu, *padded = p->padded, total = 0, start = 0;
    bool plain = !packing->lead && !packing->cu_seqlens_padded;
    if (!plain || align < 0 || align > MAX_TOKENS || given[0] != 0) {
        return false;
    }
    const int64_t mask = (align & (align - 1)) == 0 ? align - 1 : -1;
    cu[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t end = given[i + 1], more;
        if ((uint64_t)end - (uint64_t)start > MAX_TOKENS) { /* descending, too */
            return false;
        }
        more = end - start + align - 1;
        start = cu[i + 1] = end;
        padded[i] = mask < 0 ? lierne_quotient(more, align) * align : more & ~mask;
        total += padded[i];
        if (total > MAX_TOKENS) {
            return false;
        }
    }
    p->total = total;
    return true;
}

static lierne_status take_lengths(lierne_packed *p, const lierne_packing *packing) {
    int64_t need;
    LIERNE_TRY(check_padded(packing->cu_seqlens_padded, p->n));
    LIERNE_TRY(take_lead(p, packing->lead));
    p->total = 0;
    for (int64_t i = 0; i < p->n; i++) {
        if (!lierne_add_i64(p->lead[i], p->cu[i + 1] - p->cu[i], &need)) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "lead[%lld] is %lld, must be at most %lld",
                               (long long)i, (long long)p->lead[i], (long long)MAX_TOKENS);
        }
        LIERNE_TRY(take_length(p, packing, i, need));
        if (!lierne_add_i64(p->total, p->padded[i], &p->total) || p->total > MAX_TOKENS) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "cu_seqlens_padded[%lld] is more than %lld rows", (long long)i + 1,
                               (long long)MAX_TOKENS);
        }
    }
    return LIERNE_OK;
}

static lierne_status take_order(lierne_packed *p, const int64_t *order) {
    p->ascending = true;
    for (; !order && p->numbered < p->n; p->numbered++) {
        p->order[p->numbered] = p->numbered;
    }
    if (!order) {
        return LIERNE_OK;
    }
    p->numbered = 0;
    memset(p->spare, 0, (size_t)p->n * sizeof *p->spare);
    for (int64_t k = 0; k < p->n; k++) {
        int64_t i = order[k];
        if (i < 0 || i >= p->n) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "order[%lld] is %lld, must be in 0 to %lld",
                               (long long)k, (long long)i, (long long)p->n - 1);
        }
        if (p->spare[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "order[%lld] is %lld, as order[%lld] is: it must be a permutation",
                               (long long)k, (long long)i, (long long)p->spare[i] - 1);
        }
        p->spare[i] = k + 1;
        p->order[k] = i;
        p->ascending = p->ascending && i == k;
    }
    return LIERNE_OK;
}

static lierne_status take_words(lierne_packed *p, const lierne_packing *packing) {
    if ((int)packing->store < 0 || packing->store > LIERNE_PACKING_STORE_UNPADDED) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "store is %d, must be 0 or 1", (int)packing->store);
    }
    if ((int)packing->padding < 0 || packing->padding > LIERNE_PADDING_KEEP) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "padding is %d, must be 0 or 1",
                           (int)packing->padding);
    }
    if ((int)packing->row_order < 0 || packing->row_order > LIERNE_ROW_ORDER_SEQUENCE_MAJOR) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "row_order is %d, must be 0 or 1",
                           (int)packing->row_order);
    }
    p->store = packing->store;
    p->padding = packing->padding;
    p->row_order = packing->row_order;
    return LIERNE_OK;
}

static lierne_status take_owners(lierne_packed *p, const int32_t *owner) {
    if (owner && p->owner_dim < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "owner is given, but no dim is SHARD_SEGMENTS: it must be NULL");
    }
    if (!owner && p->owner_dim >= 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "owner is NULL, but dim %d is SHARD_SEGMENTS: it needs a coordinate of "
                           "every segment",
                           p->owner_dim);
    }
    for (int64_t i = 0; owner && i < p->n; i++) {
        p->owner[i] = owner[i];
        if (p->owner[i] < 0 || p->owner[i] >= p->nowners) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "owner[%lld] is %d, must be in 0 to %d",
                               (long long)i, (int)p->owner[i], p->nowners - 1);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_row_order(const lierne_packed *p) {
    if (p->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR) {
        return LIERNE_OK;
    }
    if (p->store == LIERNE_PACKING_STORE_UNPADDED) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "row_order is sequence-major, and store is unpadded: it must be padded");
    }
    for (int64_t i = 1; i < p->n; i++) {
        if (p->padded[i] != p->padded[0]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "row_order is sequence-major, and segment %lld is padded to %lld, "
                               "segment 0 to %lld: padded lengths must be equal",
                               (long long)i, (long long)p->padded[i], (long long)p->padded[0]);
        }
    }
    return LIERNE_OK;
}

/* Whether all lengths divide by a power of two: their bits together do. */
static bool all_divide(const lierne_packed *p, int64_t power) {
    const int64_t *padded = p->padded, n = p->n;
    int64_t bits = 0;
    for (int64_t i = 0; i < n; i++) {
        bits |= padded[i];
    }
    return (bits & (power - 1)) == 0;
}

static lierne_status check_zigzag(const lierne_packed *p) {
    int64_t chunks = 2 * (int64_t)p->ncuts;
    bool power = (chunks & (chunks - 1)) == 0;
    if (!p->zigzag || p->ncuts == 1 || (power && all_divide(p, chunks))) {
        return LIERNE_OK;
    }
    for (int64_t i = 0, end = 0; i < p->n; i++) {
        end += p->padded[i];
        if (lierne_quotient(p->padded[i], chunks) * chunks != p->padded[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                               "cu_seqlens_padded[%lld] is %lld: segment %lld is padded to %lld, "
                               "must be divisible by %lld for a zigzag over %d",
                               (long long)i + 1, (long long)end, (long long)i,
                               (long long)p->padded[i], (long long)chunks, p->ncuts);
        }
    }
    return LIERNE_OK;
}

int64_t lierne_packed_share(const lierne_packed *p, int64_t length, int c) {
    const lierne_placement rule = {.kind = LIERNE_PLACEMENT_SHARD, .share = p->share};
    return lierne_share_start(&rule, length, p->ncuts, c);
}

/* Adds the shares of a padded length: as differences between neighbours, of which there are three
 * at most. */
static void add_shares(const lierne_packed *p, int64_t length, int64_t *rows) {
    int64_t n = p->ncuts, share = length / n, rest = length % n;
    if (p->share == LIERNE_SHARE_RULE_BALANCED || rest == 0) {
        rows[0] += share + (rest > 0);
        rows[rest] -= rest > 0;
        return;
    }
    share += 1;
    int64_t full = length / share, part = length % share;
    rows[0] += share;
    rows[full] += part - share;
    rows[full + (part > 0)] -= part;
}

/* Equal cuts leave each coordinate as many rows of all segments together. */
static void count_rows(lierne_packed *p) {
    int64_t width = p->ncuts + 1;
    bool equal = p->ncuts == 1 || p->zigzag;
    memset(p->rows, 0, (size_t)(p->nowners * width) * sizeof *p->rows);
    p->rows[0] = equal && p->nowners == 1 ? p->total : 0;
    for (int64_t i = 0; i < p->n && !(equal && p->nowners == 1); i++) {
        int64_t *rows = &p->rows[p->owner[i] * width];
        if (equal) {
            rows[0] += p->padded[i];
        } else {
            add_shares(p, p->padded[i], rows);
        }
    }
    for (int k = 0; equal && k < p->nowners; k++) {
        p->rows[k * width] /= p->ncuts;
    }
    for (int64_t k = 0; k < p->nowners * width; k++) {
        p->rows[k] += k % width > 0 ? p->rows[k - 1] : 0;
    }
}

lierne_status lierne_packed_take(lierne_packed *p, const lierne_segments *segments,
                                 const lierne_packing *packing) {
    p->n = segments->nsegments;
    if (p->leads) {
        memset(p->lead, 0, (size_t)p->capacity * sizeof *p->lead);
        p->leads = false;
    }
    if (!take_rounded(p, segments->cu_seqlens, packing)) {
        LIERNE_TRY(check_boundaries(segments));
        memcpy(p->cu, segments->cu_seqlens, ((size_t)p->n + 1) * sizeof *p->cu);
        LIERNE_TRY(check_align(packing));
        LIERNE_TRY(take_lengths(p, packing));
    }
    return take_order(p, packing->order);
}

lierne_status lierne_packed_cut(lierne_packed *p, const lierne_packing *packing) {
    LIERNE_TRY(take_words(p, packing));
    LIERNE_TRY(take_owners(p, packing->owner));
    LIERNE_TRY(check_row_order(p));
    LIERNE_TRY(check_zigzag(p));
    count_rows(p);
    return LIERNE_OK;
}
