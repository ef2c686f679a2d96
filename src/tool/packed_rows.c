/* Rows are counted out as a reader of lierne/packing.h would: the padded segments are written down
 * row by row, and each dim crosses out what it does not leave. */
#include "packed_rows.h"
#include "cuts.h"
#include "redistribution_rows.h"

#include "lierne/packed_bridge.h"

#include <stdlib.h>
#include <string.h>

bool packed_find(tool_packed *packed, const lierne_config *config, const char *name) {
    *packed = (tool_packed){.images = lierne_config_get_packed_bridge(config, name),
                            .move = lierne_config_get_packed_move(config, name)};
    const lierne_redistribute_spec *spec = lierne_config_get_redistribution(config, name);
    packed->redistribution = spec != NULL;
    packed->move = spec ? spec : packed->move;
    for (int side = 0; side < 2; side++) {
        packed->given[side] = spec ? lierne_config_get_redistribution_layout(config, name, side)
                                   : lierne_config_get_packed_layout(config, name, side);
    }
    if (!packed->images && !packed->move) {
        return false;
    }
    packed->elements = 1;
    for (int a = 0; spec && a < packed->given[0]->naxes; a++) {
        packed->elements *= packed->given[0]->shape[a];
    }
    packed->world = lierne_config_get_world_size(config);
    packed->max_peers = packed->images ? packed->images->max_peers : packed->move->max_peers;
    return true;
}

const char *packed_word(const tool_packed *packed) {
    return packed->redistribution ? "redistribution" : "packed bridge";
}

int packed_axis(const tool_packed *packed) {
    return packed->given[0]->packed_axis; /* 0 of a redistribution: its one list of places */
}

const char *packed_axis_name(const tool_packed *packed, int axis) {
    return axis == packed_axis(packed) ? "s" : "h";
}

int64_t packed_given_hidden(const tool_packed *packed) {
    bool columns = packed->given[0]->naxes == 2 && !packed->redistribution;
    return columns ? packed->given[0]->shape[!packed_axis(packed)] : 1;
}

int64_t packed_hidden(const tool_packed *packed) {
    bool columns = packed->specs[0].naxes == 2 && !packed->redistribution;
    return columns ? packed->shape[0][!packed_axis(packed)] : 1;
}

int64_t packed_tokens(const tool_packed *packed, int side) {
    if (packed->redistribution) {
        return side ? packed->places : packed->elements;
    }
    return packed->given[side]->shape[packed_axis(packed)];
}

int64_t packed_least_hidden(const tool_packed *packed) {
    int64_t parts = 1, hidden = packed_given_hidden(packed);
    for (int side = 0; side < 2; side++) {
        const lierne_layout_spec *spec = packed->given[side];
        for (int d = 0; !packed->redistribution && spec->naxes == 2 && d < cut_ndims(spec); d++) {
            bool cut = cut_is_of(&spec->placements[d], !packed_axis(packed));
            parts *= cut ? 2 * cut_size(spec, d) : 1;
        }
    }
    return parts < hidden && hidden % parts == 0 ? parts : hidden;
}

/* --- layouts ------------------------------------------------------------------------------ */

static bool is_here(const lierne_layout_spec *spec, const int *coords) {
    bool here = true;
    for (int d = 0; d < cut_ndims(spec); d++) {
        const lierne_placement *p = &spec->placements[d];
        here = here && (p->kind != LIERNE_PLACEMENT_AT || p->at == coords[d]);
    }
    return here;
}

/* The coordinates of a rank that holds something, and the first rank of its replicas. */
static bool find_rank(const lierne_layout_spec *spec, int rank, int *coords, int *first) {
    int zeroed[LIERNE_MAX_DIMS];
    if (lierne_grid_get_coords(coords, spec->grid, spec->view, rank) != LIERNE_OK ||
        !is_here(spec, coords)) {
        return false;
    }
    for (int d = 0; d < cut_ndims(spec); d++) {
        bool replica = spec->placements[d].kind == LIERNE_PLACEMENT_REPLICATE;
        zeroed[d] = replica ? 0 : coords[d];
    }
    return lierne_grid_get_rank(first, spec->grid, spec->view, zeroed) == LIERNE_OK;
}

static int64_t stored_by(const tool_packed *p, int rank) {
    int64_t stored = 0;
    lierne_layout_get_elements(&stored, NULL, p->layouts[1], rank);
    return stored;
}

/* Numbers the places of all destination buffers, of replicas once. */
static bool number_places(tool_packed *p) {
    p->first_place = calloc((size_t)p->world + 1, sizeof *p->first_place);
    for (int rank = 0; p->first_place && rank < p->world; rank++) {
        int coords[LIERNE_MAX_DIMS], first;
        p->first_place[rank] = p->places;
        if (find_rank(&p->specs[1], rank, coords, &first)) {
            p->first_place[rank] = p->first_place[first];
            p->places += first == rank ? stored_by(p, rank) : 0;
        }
    }
    return p->first_place != NULL;
}

/* The element of every place. */
static bool fill_places(const tool_packed *p) {
    for (int rank = 0; rank < p->world; rank++) {
        int coords[LIERNE_MAX_DIMS], first;
        int64_t *places, n;
        if (!find_rank(&p->specs[1], rank, coords, &first) || first != rank) {
            continue;
        }
        if (!redistribution_places(&places, &n, &p->specs[1], coords, false)) {
            return false;
        }
        n = n < stored_by(p, rank) ? n : stored_by(p, rank);
        memcpy(p->rows + p->first_place[rank], places, (size_t)n * sizeof *places);
        free(places);
    }
    return true;
}

static void fill_rows(const tool_packed *p) {
    const lierne_packed_bridge_spec *images = p->images;
    for (int64_t t = 0; !p->redistribution && t < packed_tokens(p, 1); t++) {
        p->rows[t] = images ? -1 : t;
    }
    for (int64_t i = 0; images && i < images->nruns; i++) {
        const lierne_image_run *run = &images->runs[i];
        int64_t row = p->given[0]->segments->cu_seqlens[run->image] + run->row;
        int64_t token = p->given[1]->segments->cu_seqlens[run->segment] + run->position;
        for (int64_t k = 0; k < run->length; k++) {
            p->rows[token + k] = row + k;
        }
    }
}

/* Tokens sorted by their rows: counted two places on, so that filling leaves where each begins. */
static void fill_uses(tool_packed *p) {
    int64_t rows = packed_tokens(p, 0), tokens = packed_tokens(p, 1);
    for (int64_t t = 0; t < tokens; t++) {
        p->first_use[p->rows[t] + 2] += p->rows[t] >= 0;
    }
    p->most_uses = 1;
    for (int64_t i = 0; i < rows; i++) {
        int64_t uses = p->first_use[i + 2];
        p->most_uses = uses > p->most_uses ? uses : p->most_uses;
        p->first_use[i + 2] += p->first_use[i + 1];
    }
    for (int64_t t = 0; t < tokens; t++) {
        if (p->rows[t] >= 0) {
            p->used_by[p->first_use[p->rows[t] + 1]++] = t;
        }
    }
}

static lierne_status fill_tables(tool_packed *p) {
    int64_t tokens = packed_tokens(p, 1);
    p->first_use = calloc((size_t)packed_tokens(p, 0) + 3, sizeof *p->first_use);
    p->rows = malloc(((size_t)tokens + 1) * sizeof *p->rows);
    p->used_by = malloc(((size_t)tokens + 1) * sizeof *p->used_by);
    if (!p->first_use || !p->rows || !p->used_by) {
        return LIERNE_ERR_NO_MEMORY;
    }
    if (p->redistribution && !fill_places(p)) {
        return LIERNE_ERR_NO_MEMORY;
    }
    fill_rows(p);
    fill_uses(p);
    return LIERNE_OK;
}

static bool is_partial(const tool_packed *packed, int side, int d) {
    return side == 1 && packed->images && packed->images->partial_dims >> d & 1;
}

static lierne_status open_redistribution(tool_packed *packed, bool tables) {
    lierne_status status = LIERNE_OK;
    for (int side = 0; side < 2 && status == LIERNE_OK; side++) {
        packed->specs[side] = *packed->given[side];
        packed->specs[side].size = sizeof packed->specs[side];
        status = lierne_layout_create(&packed->layouts[side], &packed->specs[side]);
    }
    if (status == LIERNE_OK && tables) {
        return number_places(packed) ? fill_tables(packed) : LIERNE_ERR_NO_MEMORY;
    }
    return status;
}

lierne_status packed_open(tool_packed *packed, int64_t hidden, bool tables) {
    int axis = packed_axis(packed);
    packed->ncontributions = 1;
    if (packed->redistribution) {
        return open_redistribution(packed, tables);
    }
    for (int side = 0; side < 2; side++) {
        lierne_layout_spec *spec = &packed->specs[side];
        *spec = *packed->given[side];
        packed->shape[side][axis] = packed_tokens(packed, side);
        packed->shape[side][!axis] = hidden;
        spec->size = sizeof *spec;
        spec->shape = packed->shape[side];
        lierne_status status = lierne_layout_create(&packed->layouts[side], spec);
        if (status != LIERNE_OK) {
            return status;
        }
    }
    for (int d = 0; d < cut_ndims(&packed->specs[1]); d++) {
        packed->ncontributions *= is_partial(packed, 1, d) ? cut_size(&packed->specs[1], d) : 1;
    }
    return fill_tables(packed);
}

void packed_close(tool_packed *packed) {
    for (int side = 0; side < 2; side++) {
        lierne_layout_destroy(packed->layouts[side]);
        packed->layouts[side] = NULL;
    }
    free(packed->first_use);
    free(packed->used_by);
    free(packed->rows);
    free(packed->first_place);
    packed->first_use = packed->used_by = packed->rows = packed->first_place = NULL;
    packed->places = 0;
}

lierne_status packed_plan(lierne_plan **out, lierne_context *context, const tool_packed *packed) {
    if (packed->images) {
        lierne_packed_bridge_spec spec = *packed->images;
        spec.size = sizeof spec;
        spec.src = packed->layouts[0];
        spec.dst = packed->layouts[1];
        spec.max_peers = packed->max_peers;
        return lierne_plan_create_packed_bridge(out, context, &spec);
    }
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = packed->layouts[0],
                                           .dst = packed->layouts[1],
                                           .max_peers = packed->max_peers};
    return lierne_plan_create_redistribute(out, context, &spec);
}

/* --- rows --------------------------------------------------------------------------------- */

/* A row of the padded sequence that is not crossed out yet. */
typedef struct row {
    int64_t segment;
    int64_t offset; /* in its padded segment */
} row;

typedef struct rows {
    row *at;
    int64_t n;
} rows;

static int64_t padded_length(const lierne_layout_spec *spec, int64_t i) {
    const lierne_packing *p = spec->packing;
    const int64_t *cu = spec->segments->cu_seqlens;
    int64_t need = (p->lead ? p->lead[i] : 0) + cu[i + 1] - cu[i];
    int64_t align = p->align > 0 ? p->align : 1;
    return p->cu_seqlens_padded ? p->cu_seqlens_padded[i + 1] - p->cu_seqlens_padded[i]
                                : (need + align - 1) / align * align;
}

int64_t packed_padded_rows(const tool_packed *packed, int side) {
    const lierne_layout_spec *spec = packed->given[side];
    int64_t total = 0;
    for (int64_t i = 0; i < spec->segments->nsegments; i++) {
        total += padded_length(spec, i);
    }
    return total;
}

static bool has_segment(const lierne_layout_spec *spec, const int *coords, int64_t i) {
    for (int d = 0; d < cut_ndims(spec); d++) {
        if (spec->placements[d].kind == LIERNE_PLACEMENT_SHARD_SEGMENTS &&
            spec->packing->owner[i] != coords[d]) {
            return false;
        }
    }
    return true;
}

static void write_segments(rows *all, const lierne_layout_spec *spec, const int *coords) {
    for (int64_t k = 0; k < spec->segments->nsegments; k++) {
        int64_t i = spec->packing->order ? spec->packing->order[k] : k;
        int64_t length = has_segment(spec, coords, i) ? padded_length(spec, i) : 0;
        for (int64_t q = 0; q < length; q++) {
            all->at[all->n++] = (row){i, q};
        }
    }
}

/* Crosses out what a dim that cuts every segment does not leave. */
static void cut_segments(rows *all, const lierne_layout_spec *spec, const int *coords) {
    for (int d = 0; d < cut_ndims(spec); d++) {
        lierne_placement_kind kind = spec->placements[d].kind;
        int64_t n = 0, size = cut_size(spec, d);
        bool zigzag = kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG;
        if (!zigzag && kind != LIERNE_PLACEMENT_SEGMENT_SHARD) {
            continue;
        }
        for (int64_t k = 0; k < all->n; k++) {
            int64_t length = padded_length(spec, all->at[k].segment), q = all->at[k].offset;
            if ((zigzag ? cut_zigzag_of : cut_share_of)(length, size, q) == coords[d]) {
                all->at[n++] = all->at[k];
            }
        }
        all->n = n;
    }
}

/* From one segment after the other to all first rows before all second ones. */
static bool interleave(rows *all) {
    int64_t segments = all->n > 0;
    for (int64_t k = 1; k < all->n; k++) {
        segments += all->at[k].segment != all->at[k - 1].segment;
    }
    row *sorted = malloc(((size_t)all->n + 1) * sizeof *sorted);
    for (int64_t k = 0; sorted && k < all->n; k++) {
        int64_t each = all->n / segments;
        sorted[k % each * segments + k / each] = all->at[k];
    }
    memcpy(all->at, sorted ? sorted : all->at, (size_t)all->n * sizeof *sorted);
    free(sorted);
    return sorted != NULL;
}

/* From rows of segments to ids; store UNPADDED drops padding. */
static int64_t id_of(const lierne_layout_spec *spec, row at) {
    const int64_t *cu = spec->segments->cu_seqlens;
    int64_t j = at.offset - (spec->packing->lead ? spec->packing->lead[at.segment] : 0);
    bool token = j >= 0 && j < cu[at.segment + 1] - cu[at.segment];
    return token ? cu[at.segment] + j : PACKED_PADDING;
}

static bool list_rows(packed_rows *out, const lierne_layout_spec *spec, const int *coords,
                      rows *all) {
    write_segments(all, spec, coords);
    cut_segments(all, spec, coords);
    if (spec->packing->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR && !interleave(all)) {
        return false;
    }
    int64_t n = cut_positions(out->ids, all->n, spec, coords, spec->packed_axis);
    for (int64_t k = 0; k < n; k++) {
        int64_t id = id_of(spec, all->at[out->ids[k]]);
        out->ids[out->nrows] = id;
        out->nrows += id != PACKED_PADDING || spec->packing->store == LIERNE_PACKING_STORE_PADDED;
    }
    return true;
}

static void find_replica(packed_rows *out, const tool_packed *packed, int side, const int *coords) {
    const lierne_layout_spec *spec = &packed->specs[side];
    out->first = true;
    for (int d = 0; d < cut_ndims(spec); d++) {
        if (is_partial(packed, side, d)) {
            out->contribution = out->contribution * cut_size(spec, d) + coords[d];
        } else if (spec->placements[d].kind == LIERNE_PLACEMENT_REPLICATE) {
            out->first = out->first && coords[d] == 0;
        }
    }
}

static bool places_of(packed_rows *out, const tool_packed *packed, int side, int rank) {
    const lierne_layout_spec *spec = &packed->specs[side];
    int coords[LIERNE_MAX_DIMS], first;
    *out = (packed_rows){.columns = calloc(1, sizeof *out->columns)};
    if (!find_rank(spec, rank, coords, &first)) {
        out->ids = calloc(1, sizeof *out->ids);
    } else if (redistribution_places(&out->ids, &out->nrows, spec, coords, side == 0)) {
        for (int64_t k = 0; side == 1 && k < out->nrows; k++) {
            out->ids[k] = out->ids[k] < 0 ? PACKED_PADDING : packed->first_place[rank] + k;
        }
        out->ncolumns = 1;
        find_replica(out, packed, side, coords);
    }
    if (!out->ids || !out->columns) {
        free(out->ids);
        free(out->columns);
    }
    return out->ids && out->columns;
}

bool packed_rows_of(packed_rows *out, const tool_packed *packed, int side, int rank) {
    if (packed->redistribution) {
        return places_of(out, packed, side, rank);
    }
    const lierne_layout_spec *spec = &packed->specs[side];
    size_t most = (size_t)packed_padded_rows(packed, side) + 1;
    int coords[LIERNE_MAX_DIMS];
    *out = (packed_rows){.ids = malloc(most * sizeof *out->ids),
                         .columns =
                             malloc(((size_t)packed_hidden(packed) + 1) * sizeof *out->columns)};
    rows all = {.at = malloc(most * sizeof *all.at)};
    bool ok = out->ids && out->columns && all.at;
    if (ok && lierne_grid_get_coords(coords, spec->grid, spec->view, rank) == LIERNE_OK &&
        is_here(spec, coords)) {
        int64_t hidden = packed_hidden(packed);
        ok = list_rows(out, spec, coords, &all);
        out->ncolumns = spec->naxes == 2
                            ? cut_positions(out->columns, hidden, spec, coords, !spec->packed_axis)
                            : 1;
        out->columns[0] = spec->naxes == 2 ? out->columns[0] : 0;
        find_replica(out, packed, side, coords);
    }
    free(all.at);
    if (!ok) {
        free(out->ids);
        free(out->columns);
    }
    return ok;
}
