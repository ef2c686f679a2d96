/* Random packed layouts and the oracle by token: see packed_case.h. */
#include "unit/packed_case.h"

#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>

int64_t packed_draw(packed_random *random, int64_t n) { /* xorshift64* */
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return (int64_t)((random->state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

void packed_random_tokens(packed_random *random, packed_tokens *tokens) {
    tokens->n = packed_draw(random, 7);
    tokens->width = 1 + packed_draw(random, 3);
    for (int64_t i = 0; i < tokens->n; i++) {
        int64_t length = packed_draw(random, 4) ? packed_draw(random, 11) : 0;
        tokens->cu[i + 1] = tokens->cu[i] + length;
    }
}

/* ---- sides ---- */

static lierne_placement random_cut(packed_random *random, bool *segment, bool *zigzag,
                                   bool *owners) {
    static const lierne_placement_kind kinds[] = {
        LIERNE_PLACEMENT_SEGMENT_ZIGZAG, LIERNE_PLACEMENT_SEGMENT_SHARD,  LIERNE_PLACEMENT_SHARD,
        LIERNE_PLACEMENT_SHARD_ZIGZAG,   LIERNE_PLACEMENT_SHARD_SEGMENTS, LIERNE_PLACEMENT_SHARD,
        LIERNE_PLACEMENT_REPLICATE};
    lierne_placement p = {.kind = kinds[packed_draw(random, 7)],
                          .share = (lierne_share_rule)packed_draw(random, 2),
                          .cut_order = (int)packed_draw(random, 2)};
    bool cuts =
        p.kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG || p.kind == LIERNE_PLACEMENT_SEGMENT_SHARD;
    bool *used = cuts                                        ? segment
                 : p.kind == LIERNE_PLACEMENT_SHARD_ZIGZAG   ? zigzag
                 : p.kind == LIERNE_PLACEMENT_SHARD_SEGMENTS ? owners
                                                             : NULL;
    if (used && *used) {
        return (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE};
    }
    if (used) {
        *used = true;
    }
    return p;
}

void packed_random_side(packed_random *random, packed_side *side, int world, bool destination) {
    static const int64_t sizes[] = {1, 2, 2, 3, 4, 8};
    bool segment = false, zigzag = false, owners = false;
    int64_t ranks = 1;
    *side = (packed_side){.ndims = 1 + (int)packed_draw(random, PACKED_DIMS),
                          .full = packed_draw(random, 5) == 0};
    for (int d = 0; d < side->ndims; d++) {
        int64_t size = sizes[packed_draw(random, 6)];
        side->sizes[d] = ranks * size <= world ? size : 1;
        ranks *= side->sizes[d];
        side->placements[d] = random_cut(random, &segment, &zigzag, &owners);
        if (side->placements[d].kind == LIERNE_PLACEMENT_SHARD && packed_draw(random, 4) == 0) {
            side->placements[d].axis = 1;
        }
        if (side->placements[d].kind == LIERNE_PLACEMENT_REPLICATE && !destination &&
            packed_draw(random, 3) == 0) {
            side->placements[d].kind = LIERNE_PLACEMENT_PARTIAL;
        }
    }
    side->plain = !segment && !owners && !zigzag && packed_draw(random, 2);
    side->offset = (int)packed_draw(random, world - ranks + 1);
}

static int64_t least_common(int64_t a, int64_t b) {
    int64_t m = a;
    while (m % b != 0) {
        m += a;
    }
    return m;
}

/* A length by which the zigzags of a side divide, mostly. */
static int64_t grain_of(packed_random *random, const packed_side *side) {
    int64_t grain = 1;
    for (int d = 0; d < side->ndims; d++) {
        lierne_placement_kind kind = side->placements[d].kind;
        bool zigzag =
            kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG || kind == LIERNE_PLACEMENT_SHARD_ZIGZAG;
        int64_t n = side->sizes[d];
        grain = zigzag && n > 1          ? least_common(grain, 2 * n)
                : packed_draw(random, 8) ? grain
                                         : least_common(grain, n);
    }
    return packed_draw(random, 10) ? grain : 1;
}

/* An ordinary axis, for the oracle: the tokens and nothing else. */
static void plain_packing(packed_side *side, const packed_tokens *tokens) {
    side->store = LIERNE_PACKING_STORE_PADDED;
    side->row_order = LIERNE_ROW_ORDER_SAMPLE_MAJOR;
    side->aligned = false;
    side->align = 0;
    for (int64_t i = 0; i < tokens->n; i++) {
        side->padded[i + 1] = tokens->cu[i + 1];
        side->lead[i] = side->owner[i] = 0;
        side->order[i] = i;
    }
}

void packed_random_packing(packed_random *random, packed_side *side, const packed_tokens *tokens) {
    side->store = (lierne_packing_store)(packed_draw(random, 4) == 0);
    side->padding = (lierne_padding)(packed_draw(random, 3) == 0);
    side->row_order = (lierne_row_order)(side->store == LIERNE_PACKING_STORE_PADDED &&
                                         packed_draw(random, 4) == 0);
    packed_random_lengths(random, side, tokens);
}

void packed_random_lengths(packed_random *random, packed_side *side, const packed_tokens *tokens) {
    if (side->plain) {
        plain_packing(side, tokens);
        return;
    }
    int64_t grain = grain_of(random, side), most = 0;
    bool lead = packed_draw(random, 3) == 0, permute = packed_draw(random, 3) == 0;
    side->aligned = packed_draw(random, 2);
    side->align = side->aligned ? grain : 0;
    side->no_lead = !lead && packed_draw(random, 2);
    side->no_order = !permute && packed_draw(random, 2);
    for (int64_t i = 0; i < tokens->n; i++) {
        int64_t a = tokens->cu[i + 1] - tokens->cu[i];
        side->lead[i] = lead ? packed_draw(random, 4) : 0;
        int64_t need = (side->lead[i] + a + grain - 1) / grain * grain;
        need += side->aligned ? 0 : grain * (packed_draw(random, 3) == 0);
        side->padded[i + 1] = need;
        most = need > most ? need : most;
        side->owner[i] = 0;
        side->order[i] = i;
    }
    for (int64_t i = 0; i < tokens->n; i++) {
        bool equal = side->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR;
        side->aligned = side->aligned && !equal;
        side->padded[i + 1] = side->padded[i] + (equal ? most : side->padded[i + 1]);
        int64_t j = permute ? packed_draw(random, i + 1) : i, swap = side->order[i];
        side->order[i] = side->order[j];
        side->order[j] = swap;
        for (int d = 0; d < side->ndims; d++) {
            if (side->placements[d].kind == LIERNE_PLACEMENT_SHARD_SEGMENTS) {
                side->owner[i] = (int32_t)packed_draw(random, side->sizes[d]);
            }
        }
    }
}

/* ---- the oracle ---- */

/* Rows of a buffer: their segments and offsets. */
typedef struct rows {
    int64_t n;
    struct {
        int64_t segment;
        int64_t offset;
    } at[PACKED_ROWS];
} rows;

static int64_t coord_of(const packed_side *side, int rank, int d) {
    int64_t below = 1;
    for (int e = 0; e < d; e++) {
        below *= side->sizes[e];
    }
    return (rank - side->offset) / below % side->sizes[d];
}

/* Position k of n things dealt to `shares` by the rule: whose it is. */
static int64_t share_of(lierne_share_rule rule, int64_t n, int64_t shares, int64_t k) {
    if (rule == LIERNE_SHARE_RULE_CHUNK) {
        return k / ((n + shares - 1) / shares);
    }
    int64_t c = 0;
    for (int64_t end = n / shares + (n % shares > 0); k >= end; c++) {
        end += n / shares + (c + 1 < n % shares);
    }
    return c;
}

/* Whose position k of n is in a zigzag. */
static int64_t zigzag_of(int64_t n, int64_t ranks, int64_t k) {
    int64_t chunk = ranks == 1 ? 0 : k / (n / (2 * ranks));
    return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

static int64_t padded_of(const packed_side *side, int64_t i) {
    return side->padded[i + 1] - side->padded[i];
}

static rows owned_segments(const packed_side *side, const packed_tokens *tokens, int rank) {
    rows all = {0};
    for (int64_t k = 0; k < tokens->n; k++) {
        int64_t i = side->order[k];
        bool mine = true;
        for (int d = 0; d < side->ndims; d++) {
            mine = mine && (side->placements[d].kind != LIERNE_PLACEMENT_SHARD_SEGMENTS ||
                            coord_of(side, rank, d) == side->owner[i]);
        }
        for (int64_t q = 0; mine && q < padded_of(side, i); q++, all.n++) {
            all.at[all.n].segment = i;
            all.at[all.n].offset = q;
        }
    }
    return all;
}

static void cut_segments(rows *all, const packed_side *side, int rank, int d) {
    const lierne_placement *p = &side->placements[d];
    int64_t n = 0;
    for (int64_t k = 0; k < all->n; k++) {
        int64_t length = padded_of(side, all->at[k].segment), q = all->at[k].offset;
        int64_t whose = p->kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG
                            ? zigzag_of(length, side->sizes[d], q)
                            : share_of(p->share, length, side->sizes[d], q);
        if (whose == coord_of(side, rank, d)) {
            all->at[n++] = all->at[k];
        }
    }
    all->n = n;
}

/* Sorts rows by their place in their segment, segments second. */
static void interleave(rows *all) {
    static rows sorted;
    sorted.n = 0;
    for (int64_t place = 0; sorted.n < all->n; place++) {
        int64_t count = 0;
        for (int64_t k = 0; k < all->n; k++) {
            count = k > 0 && all->at[k].segment == all->at[k - 1].segment ? count + 1 : 0;
            if (count == place) {
                sorted.at[sorted.n++] = all->at[k];
            }
        }
    }
    *all = sorted;
}

static void cut_rows(rows *all, const packed_side *side, int rank, int d) {
    const lierne_placement *p = &side->placements[d];
    int64_t n = 0, total = all->n;
    for (int64_t k = 0; k < total; k++) {
        int64_t whose = p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG
                            ? zigzag_of(total, side->sizes[d], k)
                            : share_of(p->share, total, side->sizes[d], k);
        if (whose == coord_of(side, rank, d)) {
            all->at[n++] = all->at[k];
        }
    }
    all->n = n;
}

/* The next dim that cuts rows: by cut_order, then the slower one; -1 after the last. */
static int next_cut(const packed_side *side, bool *done) {
    int best = -1;
    for (int d = side->ndims - 1; d >= 0; d--) {
        const lierne_placement *p = &side->placements[d];
        bool cuts = p->axis == 0 &&
                    (p->kind == LIERNE_PLACEMENT_SHARD || p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG);
        if (cuts && !done[d] && (best < 0 || p->cut_order < side->placements[best].cut_order)) {
            best = d;
        }
    }
    if (best >= 0) {
        done[best] = true;
    }
    return best;
}

/* The rows of a rank; *divides: whether all zigzags do. */
static rows rank_rows(const packed_side *side, const packed_tokens *tokens, int rank,
                      bool *divides) {
    rows all = owned_segments(side, tokens, rank);
    bool done[PACKED_DIMS] = {false};
    *divides = true;
    for (int d = 0; d < side->ndims; d++) {
        lierne_placement_kind kind = side->placements[d].kind;
        for (int64_t i = 0; kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG && i < tokens->n; i++) {
            *divides =
                *divides && (side->sizes[d] == 1 || padded_of(side, i) % (2 * side->sizes[d]) == 0);
        }
        if (*divides &&
            (kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG || kind == LIERNE_PLACEMENT_SEGMENT_SHARD)) {
            cut_segments(&all, side, rank, d);
        }
    }
    if (side->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR) {
        interleave(&all);
    }
    for (int d = next_cut(side, done); d >= 0 && *divides; d = next_cut(side, done)) {
        *divides = side->placements[d].kind != LIERNE_PLACEMENT_SHARD_ZIGZAG ||
                   side->sizes[d] == 1 || all.n % (2 * side->sizes[d]) == 0;
        if (*divides) {
            cut_rows(&all, side, rank, d);
        }
    }
    return all;
}

static int64_t ranks_of(const packed_side *side) {
    int64_t n = 1;
    for (int d = 0; d < side->ndims; d++) {
        n *= side->sizes[d];
    }
    return n;
}

bool packed_divides(const packed_side *side, const packed_tokens *tokens) {
    bool divides = true;
    for (int64_t r = 0; r < ranks_of(side) && divides; r++) {
        (void)rank_rows(side, tokens, side->offset + (int)r, &divides);
    }
    return divides;
}

static bool has_row(const rows *all, int64_t segment, int64_t offset) {
    for (int64_t k = 0; k < all->n; k++) {
        if (all->at[k].segment == segment && all->at[k].offset == offset) {
            return true;
        }
    }
    return false;
}

/* Rows become tokens, padding, or rows of others. */
static void list_rows(packed_buffer *buffer, const packed_side *side, const packed_tokens *tokens,
                      const rows *own, const rows *all) {
    for (int64_t k = 0; k < all->n; k++) {
        int64_t i = all->at[k].segment, j = all->at[k].offset - side->lead[i];
        bool token = j >= 0 && j < tokens->cu[i + 1] - tokens->cu[i];
        if (!token && side->store == LIERNE_PACKING_STORE_UNPADDED) {
            continue;
        }
        bool mine = !side->full || has_row(own, i, all->at[k].offset);
        buffer->rows[buffer->nrows++] = !mine   ? PACKED_FOREIGN
                                        : token ? tokens->cu[i] + j
                                                : PACKED_PADDING;
    }
}

static void cut_columns(packed_buffer *buffer, const packed_side *side, int rank) {
    bool done[PACKED_DIMS] = {false};
    for (int k = 0; k < side->ndims; k++) {
        int best = -1;
        for (int d = side->ndims - 1; d >= 0; d--) {
            const lierne_placement *p = &side->placements[d];
            if (p->axis == 1 && p->kind == LIERNE_PLACEMENT_SHARD && !done[d] &&
                (best < 0 || p->cut_order < side->placements[best].cut_order)) {
                best = d;
            }
        }
        if (best < 0) {
            return;
        }
        int64_t first = 0, n = 0;
        for (int64_t k2 = buffer->ncolumns - 1; k2 >= 0; k2--) {
            if (share_of(side->placements[best].share, buffer->ncolumns, side->sizes[best], k2) ==
                coord_of(side, rank, best)) {
                first = k2;
                n++;
            }
        }
        buffer->first_column += first;
        buffer->ncolumns = n;
        done[best] = true;
    }
}

void packed_fill_buffer(packed_buffer *buffer, const packed_side *side, const packed_tokens *tokens,
                        int rank) {
    bool divides;
    *buffer = (packed_buffer){.ncolumns = tokens->width, .contributions = 1};
    if (rank < side->offset || rank >= side->offset + ranks_of(side)) {
        buffer->ncolumns = 0;
        return;
    }
    rows own = rank_rows(side, tokens, rank, &divides);
    rows all = side->full ? owned_segments(side, tokens, rank) : own;
    if (side->full && side->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR) {
        interleave(&all);
    }
    list_rows(buffer, side, tokens, &own, &all);
    cut_columns(buffer, side, rank);
    for (int d = 0; d < side->ndims; d++) {
        if (side->placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            buffer->contribution += coord_of(side, rank, d) * buffer->contributions;
            buffer->contributions *= side->sizes[d];
        }
    }
}

/* ---- lierne's structs ---- */

lierne_segments packed_segments(const packed_tokens *tokens) {
    return (lierne_segments){.size = sizeof(lierne_segments),
                             .nsegments = tokens->n,
                             .cu_seqlens = tokens->cu};
}

lierne_packing packed_packing(const packed_side *side) {
    bool owners = false;
    for (int d = 0; d < side->ndims; d++) {
        owners = owners || side->placements[d].kind == LIERNE_PLACEMENT_SHARD_SEGMENTS;
    }
    return (lierne_packing){.size = sizeof(lierne_packing),
                            .cu_seqlens_padded = side->aligned ? NULL : side->padded,
                            .align = side->aligned ? side->align : 0,
                            .lead = side->no_lead ? NULL : side->lead,
                            .owner = owners ? side->owner : NULL,
                            .order = side->no_order ? NULL : side->order,
                            .store = side->store,
                            .padding = side->padding,
                            .row_order = side->row_order};
}

lierne_status packed_layout(lierne_layout **layout, const packed_side *side,
                            const packed_tokens *tokens, int world) {
    static const char *const names[PACKED_DIMS] = {"a", "b", "c"};
    const lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                        .ndims = side->ndims,
                                        .names = names,
                                        .sizes = side->sizes,
                                        .rank_offset = side->offset,
                                        .world_size = world};
    const lierne_segments segments = packed_segments(tokens);
    const lierne_packing packing = packed_packing(side);
    const int64_t shape[2] = {tokens->cu[tokens->n], tokens->width};
    lierne_grid *grid = NULL;
    lierne_status status = lierne_grid_create(&grid, &grid_spec);
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_I64,
                                     .placements = side->placements,
                                     .full_axes = side->full ? 1 : 0,
                                     .segments = side->plain ? NULL : &segments,
                                     .packing = side->plain ? NULL : &packing};
    if (status == LIERNE_OK) {
        status = lierne_layout_create(layout, &spec);
    }
    lierne_grid_destroy(grid);
    return status;
}

int64_t packed_elements(const packed_buffer *buffer) {
    return buffer->nrows * buffer->ncolumns;
}

int64_t packed_before(int64_t rank, int64_t i) {
    return -(1000 * (rank + 1) + i);
}

void packed_execute(lierne_plan **plans, lierne_direction d, int64_t **out, int64_t **in, int world,
                    uint64_t seed) {
    lierne_request *requests[PACKED_WORLD];
    for (int r = 0; r < world; r++) {
        cr_assert_eq((d == LIERNE_DIRECTION_ADJOINT
                          ? lierne_plan_adjoint_begin
                          : lierne_plan_forward_begin)(&requests[r], plans[r], out[r], in[r], NULL),
                     LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
    }
    for (int r = 0; r < world; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}
