/* Finding the coordinates of a token by the formulas of the cuts.
 *
 * Of a padded segment the cut gives a chunk to a coordinate. Where shares cut the rows that it
 * leaves, the row decides whose the token is: bands of rows that one combination of shares has. */
#include "layout/locator.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool cuts_rows(const lierne_locator *l, int d) {
    const lierne_placement *p = &l->layout->placements[d];
    return p->axis == l->axis && lierne_cuts_in_shares(p->kind);
}

bool lierne_locator_serves(const lierne_layout *layout, int axis) {
    for (int i = 0; i < layout->ncuts; i++) {
        const lierne_placement *p = &layout->placements[layout->cuts[i]];
        bool two = p->kind == LIERNE_PLACEMENT_SHARD_ROWS && p->axis2 == axis;
        if (two || (p->kind == LIERNE_PLACEMENT_SHARD_ROWS && p->axis == axis)) {
            return false;
        }
    }
    return true;
}

static bool cuts_unequally(const lierne_packed *p) {
    return p->ncuts > 1 && !p->zigzag && p->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR;
}

lierne_status lierne_locator_create(lierne_locator *l, const lierne_layout *layout, int axis) {
    const lierne_packed *p = lierne_is_packed(layout, axis) ? layout->packed : NULL;
    *l = (lierne_locator){.layout = layout, .packed = p, .axis = axis, .nshares = 1, .width = 1};
    l->ngroups = p ? (size_t)p->nowners * (size_t)p->ncuts : 1;
    for (int i = 0; i < layout->ncuts; i++) {
        l->nshares *= cuts_rows(l, layout->cuts[i]) ? (size_t)layout->sizes[layout->cuts[i]] : 1;
    }
    l->nparts = l->ngroups * l->nshares;
    if (l->nshares == 1) {
        return LIERNE_OK;
    }
    size_t most = l->nparts * LIERNE_MAX_PIECES;
    LIERNE_TRY(lierne_alloc(&l->bands, most, sizeof *l->bands));
    LIERNE_TRY(lierne_alloc(&l->first, l->ngroups + 1, sizeof *l->first));
    LIERNE_TRY(lierne_alloc(&l->found, l->ngroups, sizeof *l->found));
    if (p) {
        l->width = cuts_unequally(p) ? (size_t)p->ncuts : 1;
        size_t counts = (size_t)p->nowners * l->width;
        LIERNE_TRY(lierne_alloc(&l->counts, counts, sizeof *l->counts));
        LIERNE_TRY(lierne_alloc(&l->rows, (size_t)p->capacity * l->width + 1, sizeof *l->rows));
    }
    return LIERNE_OK;
}

void lierne_locator_destroy(lierne_locator *l) {
    lierne_mem_free(l->bands);
    lierne_mem_free(l->first);
    lierne_mem_free(l->found);
    lierne_mem_free(l->counts);
    lierne_mem_free(l->rows);
}

/* Inserts bands of a share into those of a group, which ascend. */
static size_t add_bands(lierne_band *bands, size_t n, const lierne_pieces *pieces, size_t share) {
    for (int i = 0; i < pieces->count; i++) {
        int64_t start = pieces->at[i].start;
        size_t at = n++;
        for (; at > 0 && bands[at - 1].start > start; at--) {
            bands[at] = bands[at - 1];
        }
        bands[at] =
            (lierne_band){.start = start, .end = start + pieces->at[i].size, .share = share};
    }
    return n;
}

/* What a combination of shares has of the rows. */
static lierne_pieces cut_rows(const lierne_locator *l, int64_t rows, size_t share) {
    lierne_pieces pieces = {.count = rows > 0, .at = {{.size = rows}}};
    size_t radix = l->nshares;
    for (int i = 0; i < l->layout->ncuts; i++) {
        int d = l->layout->cuts[i];
        if (cuts_rows(l, d)) {
            radix /= (size_t)l->layout->sizes[d];
            lierne_axis_cut(l->layout, d, (int)(share / radix % (size_t)l->layout->sizes[d]),
                            &pieces);
        }
    }
    return pieces;
}

static void fill_bands(lierne_locator *l) {
    const lierne_packed *p = l->packed;
    size_t n = 0;
    for (size_t g = 0; g < l->ngroups; g++) {
        size_t owner = p ? g / (size_t)p->ncuts : 0;
        int64_t rows = p ? p->rows[g + owner] : l->layout->shape[l->axis];
        size_t count = 0;
        for (size_t s = 0; s < l->nshares; s++) {
            const lierne_pieces pieces = cut_rows(l, rows, s);
            count = add_bands(l->bands + n, count, &pieces, s);
        }
        l->first[g] = l->found[g] = n;
        n += count;
    }
    l->first[l->ngroups] = n;
}

static int64_t share_size(const lierne_packed *p, int64_t length, int c) {
    return lierne_packed_share(p, length, c + 1) - lierne_packed_share(p, length, c);
}

/* Rows of a coordinate of the cut in a segment; sequence-major, these are numbered among the
 * segments of the owner. */
static inline int64_t count_rows(const lierne_packed *p, int64_t segment, int c) {
    int64_t length = p->padded[segment];
    return p->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR ? 1
           : p->ncuts == 1                                 ? length
           : p->zigzag                                     ? lierne_quotient(length, p->ncuts)
                                                           : share_size(p, length, c);
}

/* The first rows of each segment. */
static void fill_rows(lierne_locator *l) {
    const lierne_packed *p = l->packed;
    const int64_t n = p->n, *order = p->order;
    int64_t *rows = l->rows, *counts = l->counts;
    const size_t width = l->width;
    memset(counts, 0, (size_t)p->nowners * width * sizeof *counts);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = order[k], *count = counts + (size_t)p->owner[i] * width;
        rows[(size_t)i * width] = *count;
        *count += count_rows(p, i, 0);
        for (size_t c = 1; c < width; c++) {
            rows[(size_t)i * width + c] = count[c];
            count[c] += count_rows(p, i, (int)c);
        }
    }
}

void lierne_locator_fill(lierne_locator *l) {
    if (l->nshares == 1) {
        return;
    }
    fill_bands(l);
    if (l->packed) {
        fill_rows(l);
    }
}

size_t lierne_locator_part(const lierne_locator *l, const lierne_cell *cell) {
    const lierne_packed *p = l->packed;
    size_t part = 0;
    if (p && p->owner_dim >= 0) {
        part = (size_t)cell->coords[p->owner_dim];
    }
    if (p && p->segment_dim >= 0) {
        part = part * (size_t)p->ncuts + (size_t)cell->coords[p->segment_dim];
    }
    for (int i = 0; i < l->layout->ncuts; i++) {
        int d = l->layout->cuts[i];
        if (cuts_rows(l, d)) {
            part = part * (size_t)l->layout->sizes[d] + (size_t)cell->coords[d];
        }
    }
    return part;
}

void lierne_locator_cell(const lierne_locator *l, size_t part, lierne_cell *cell) {
    const lierne_packed *p = l->packed;
    for (int i = l->layout->ncuts - 1; i >= 0; i--) {
        int d = l->layout->cuts[i];
        if (cuts_rows(l, d)) {
            cell->coords[d] = (int)(part % (size_t)l->layout->sizes[d]);
            part /= (size_t)l->layout->sizes[d];
        }
    }
    if (p && p->segment_dim >= 0) {
        cell->coords[p->segment_dim] = (int)(part % (size_t)p->ncuts);
        part /= (size_t)p->ncuts;
    }
    if (p && p->owner_dim >= 0) {
        cell->coords[p->owner_dim] = (int)part;
    }
}

const lierne_band *lierne_find_band(lierne_locator *l, size_t group, int64_t row) {
    size_t low = l->first[group], high = l->first[group + 1], at = l->found[group];
    if (row >= l->bands[at].end && at + 1 < high) {
        at++; /* mostly, tokens ascend */
    }
    if (row < l->bands[at].start || row >= l->bands[at].end) {
        while (low + 1 < high) {
            size_t middle = (low + high) / 2;
            low = l->bands[middle].start <= row ? middle : low;
            high = l->bands[middle].start <= row ? high : middle;
        }
        at = low;
    }
    l->found[group] = at;
    return &l->bands[at];
}

/* A chunk of a padded segment. */
typedef struct chunk {
    int coord;
    int64_t start; /* padded offset */
    int64_t end;
    int64_t before; /* rows of the coordinate's in the segment, before the chunk */
} chunk;

static chunk find_chunk(const lierne_packed *p, int64_t length, int64_t offset) {
    int64_t n = p->ncuts;
    if (n == 1) {
        return (chunk){.end = length};
    }
    if (p->zigzag) {
        int64_t size = lierne_quotient(length, 2 * n), k = lierne_quotient(offset, size);
        return (chunk){.coord = (int)(k < n ? k : 2 * n - 1 - k),
                       .start = k * size,
                       .end = (k + 1) * size,
                       .before = k < n ? 0 : size};
    }
    int64_t size = length / n, more = length % n, large = more * (size + 1);
    bool chunked = p->share == LIERNE_SHARE_RULE_CHUNK;
    int c = (int)(chunked || offset < large ? offset / (size + (more > 0))
                                            : more + (offset - large) / size);
    return (chunk){.coord = c,
                   .start = lierne_packed_share(p, length, c),
                   .end = lierne_packed_share(p, length, c + 1)};
}

/* Rows of a coordinate of the cut that follow one another in the segment are this far apart. */
static int64_t step_of(const lierne_packed *p, size_t group, int64_t length) {
    if (p->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR) {
        return 1;
    }
    int64_t c = (int64_t)group % p->ncuts, own = length / p->ncuts;
    own = p->zigzag || p->ncuts == 1 ? own : share_size(p, length, (int)c);
    return p->rows[group + group / (size_t)p->ncuts] / own;
}

lierne_locator_form lierne_locator_form_of(const lierne_locator *l) {
    const lierne_packed *p = l->packed;
    bool follow = p && p->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR;
    if (follow && p->zigzag && p->ncuts > 1 && l->nshares == 1) {
        return LIERNE_LOCATOR_CHUNKS;
    }
    return follow && p->ncuts == 1 && l->nshares > 1 ? LIERNE_LOCATOR_BANDS : LIERNE_LOCATOR_ANY;
}

size_t lierne_locate(lierne_locator *l, int64_t segment, int64_t token, int64_t *end) {
    const lierne_packed *p = l->packed;
    size_t group = 0;
    int64_t row = token, step = 1;
    if (p) { /* rows that do not follow one another are found one by one */
        int64_t q = p->lead[segment] + token - p->cu[segment];
        const chunk at = find_chunk(p, p->padded[segment], q);
        group = (size_t)p->owner[segment] * (size_t)p->ncuts + (size_t)at.coord;
        step = step_of(p, group, p->padded[segment]);
        *end = smaller(*end, token + (step > 1 ? 1 : at.end - q));
        if (l->nshares > 1) {
            size_t c = l->width > 1 ? (size_t)at.coord : 0;
            row = l->rows[(size_t)segment * l->width + c] + (at.before + q - at.start) * step;
        }
    }
    if (l->nshares == 1) {
        return group;
    }
    const lierne_band *band = lierne_find_band(l, group, row);
    *end = smaller(*end, token + (step > 1 ? 1 : band->end - row));
    return group * l->nshares + band->share;
}

/* ---- the rows of all parts ---- */

/* Differences between neighbouring chunks of an owner, one of which may begin where they end. */
static size_t chunk_width(const lierne_packed *p) {
    return 2 * (size_t)p->ncuts + 2;
}

size_t lierne_locator_counts(const lierne_locator *l) {
    size_t chunks = l->packed ? (size_t)l->packed->nowners * chunk_width(l->packed) : 0;
    return chunks > l->nparts ? chunks : l->nparts;
}

static int64_t count_chunks(const lierne_packed *p) {
    return (p->zigzag ? 2 : 1) * (int64_t)p->ncuts;
}

/* Adds offsets [0, offset) of a padded segment, which are whole chunks and a part of the next one,
 * to those of their owner: as differences, of which there are four. */
static void add_offsets(const lierne_packed *p, int64_t length, int64_t offset, int64_t sign,
                        int64_t *chunks) {
    int64_t n = count_chunks(p), size = lierne_quotient(length, n), larger = length - size * n;
    if (larger > 0 && (p->zigzag || p->share == LIERNE_SHARE_RULE_CHUNK)) {
        size++;
        larger = 0;
    }
    int64_t large = larger * (size + 1), k = larger;
    if (offset < large) {
        k = lierne_quotient(offset, size + 1);
    } else if (size > 0) {
        k += lierne_quotient(offset - large, size);
    }
    int64_t whole = smaller(k, larger), part = offset - k * size - whole;
    chunks[0] += sign * (size + 1);
    chunks[whole] -= sign;
    chunks[k] += sign * (part - size);
    chunks[k + 1] -= sign * part;
}

static int64_t most_tokens_of_chunks(const lierne_packed *p, int64_t *counts) {
    int64_t n = count_chunks(p), most = 0;
    for (int64_t i = 0; i < p->n; i++) {
        int64_t *chunks = counts + (size_t)p->owner[i] * chunk_width(p);
        int64_t tokens = p->cu[i + 1] - p->cu[i];
        if (tokens > 0) {
            add_offsets(p, p->padded[i], p->lead[i] + tokens, 1, chunks);
            add_offsets(p, p->padded[i], p->lead[i], -1, chunks);
        }
    }
    for (int o = 0; o < p->nowners; o++, counts += chunk_width(p)) {
        for (int64_t k = 1; k < n; k++) {
            counts[k] += counts[k - 1];
        }
        for (int64_t c = 0; c < p->ncuts; c++) {
            int64_t tokens = counts[c] + (p->zigzag ? counts[n - 1 - c] : 0);
            most = tokens > most ? tokens : most;
        }
    }
    return most;
}

/* What a segment adds to its owner or, by shares of rows, to the parts that have its tokens. */
static void add_segment(lierne_locator *l, int64_t i, bool full, int64_t *counts) {
    const lierne_packed *p = l->packed;
    int64_t end = p->cu[i + 1], next;
    if (full) {
        bool padded = p->store == LIERNE_PACKING_STORE_PADDED;
        counts[p->owner[i]] += padded ? p->padded[i] : end - p->cu[i];
        return;
    }
    for (int64_t token = p->cu[i]; token < end; token = next) {
        next = end;
        size_t part = lierne_locate(l, i, token, &next);
        counts[part] += next - token;
    }
}

int64_t lierne_locator_most_rows(lierne_locator *l, int64_t *counts) {
    bool full = l->layout->full_axes >> l->axis & 1;
    int64_t most = 0;
    memset(counts, 0, lierne_locator_counts(l) * sizeof *counts);
    if (!full && l->nshares == 1) {
        return most_tokens_of_chunks(l->packed, counts);
    }
    lierne_locator_fill(l);
    for (int64_t i = 0; i < l->packed->n; i++) {
        add_segment(l, i, full, counts);
    }
    for (size_t part = 0; part < l->nparts; part++) {
        most = counts[part] > most ? counts[part] : most;
    }
    return most;
}
