/* Follows every index of an axis through the cuts of the dims, one after the other: slow, and
 * independent of the overlap of boxes that it tests. */
#include "bridge_model.h"

#include <stdlib.h>
#include <string.h>

/* A rank's buffer. */
typedef struct walk {
    const bridge_case *c;
    case_side which;
    int rank;
    int cp; /* its coordinate at the destination */
} walk;

static const mesh *mesh_of_walk(const walk *w) {
    return w->which == SIDE_SRC ? &w->c->src : &w->c->dst;
}

/* Whether the buffer has cp ownership: the gradient has, and an output that delivers own rows. */
static bool has_owners(const walk *w) {
    return w->which == SIDE_GRADIENT ||
           (w->which == SIDE_DST && w->c->output == LIERNE_BRIDGE_OUTPUT_SHARDED);
}

static bool owner_is_chunks(const bridge_case *c) {
    return c->owner == LIERNE_GRADIENT_OWNER_ZIGZAG || c->owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS;
}

/* How dim d cuts: REPLICATE, SHARD or SHARD_ZIGZAG of the axis (0 b, 1 s, 2 h) that it names. */
static lierne_placement cut_of(const walk *w, int d) {
    const bridge_case *c = w->c;
    const char *name = mesh_of_walk(w)->names[d];
    bool source = w->which == SIDE_SRC;
    if (strcmp(name, "dp") == 0) {
        return (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD,
                                  .axis = 0,
                                  .counts = source ? c->src_counts : c->dst_counts};
    }
    if (strcmp(name, "cp") == 0 && !source && has_owners(w) && owner_is_chunks(c)) {
        bool zigzag = c->owner == LIERNE_GRADIENT_OWNER_ZIGZAG;
        return (lierne_placement){.kind = zigzag ? LIERNE_PLACEMENT_SHARD_ZIGZAG
                                                 : LIERNE_PLACEMENT_SHARD,
                                  .axis = 1};
    }
    if (!c->placed || strcmp(name, "pp") == 0 || (strcmp(name, "cp") == 0 && !source)) {
        return (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE};
    }
    return source ? c->src_placed[d] : c->dst_placed[d];
}

/* Length and start of a part: given, or balanced, where the first parts have one more. */
static int64_t share_of(const lierne_placement *p, int64_t parts, int64_t mine, int64_t n,
                        int64_t *start) {
    int64_t more = n % parts;
    if (!p->counts) {
        *start = mine * (n / parts) + (mine < more ? mine : more);
        return n / parts + (mine < more);
    }
    *start = 0;
    for (int64_t k = 0; k < mine; k++) {
        *start += p->counts[k];
    }
    return p->counts[mine];
}

/* Follows position *i of an axis of length *n through one cut; false if part `mine` does not have
 * it. Afterwards *i is its position in the part, *n the length of the part. */
static bool follow(const lierne_placement *p, int64_t parts, int64_t mine, int64_t *i, int64_t *n) {
    if (p->kind == LIERNE_PLACEMENT_SHARD_ZIGZAG && parts > 1) {
        int64_t chunk = *n / (2 * parts), at = *i / chunk;
        *n = 2 * chunk;
        if (at != mine && at != 2 * parts - 1 - mine) {
            return false;
        }
        *i = *i % chunk + (at == mine ? 0 : chunk);
    } else if (p->kind == LIERNE_PLACEMENT_SHARD) {
        int64_t from, size = share_of(p, parts, mine, *n, &from);
        int64_t at = *i - from;
        *n = size;
        if (at < 0 || at >= size) {
            return false;
        }
        *i = at;
    }
    return true;
}

static int64_t size_of(const bridge_case *c, int axis) {
    const int64_t size[3] = {c->batch, c->sequence, c->hidden};
    return size[axis];
}

/* The cuts of one axis, the slowest dim's first, which is the order of cutting. */
typedef struct cuts {
    int n;
    lierne_placement how[MESH_DIMS];
    int64_t parts[MESH_DIMS];
    int64_t mine[MESH_DIMS];
    bool cp[MESH_DIMS];
} cuts;

static cuts cuts_of(const walk *w, int axis) {
    const mesh *m = mesh_of_walk(w);
    cuts all = {0};
    for (int d = m->ndims - 1; d >= 0; d--) {
        lierne_placement p = cut_of(w, d);
        if (p.kind != LIERNE_PLACEMENT_REPLICATE && p.axis == axis) {
            all.how[all.n] = p;
            all.parts[all.n] = m->sizes[d];
            all.mine[all.n] = mesh_coord(m, w->rank, m->names[d]);
            all.cp[all.n++] = strcmp(m->names[d], "cp") == 0;
        }
    }
    return all;
}

/* Position of index i of an axis in the rank's part, or -1. *n: the length of the axis, then that
 * of the part. */
static int64_t locate(const cuts *all, int64_t i, int64_t *n) {
    bool has = true;
    for (int k = 0; k < all->n; k++) {
        int64_t at = i;
        has &= follow(&all->how[k], all->parts[k], all->mine[k], &at, n);
        i = has ? at : i;
    }
    return has ? i : -1;
}

static bool holds_anything(const walk *w) {
    const mesh *m = mesh_of_walk(w);
    int stage = w->which == SIDE_SRC ? mesh_size(m, "pp") - 1 : 0;
    return mesh_has(m, w->rank) && mesh_coord(m, w->rank, "pp") == stage;
}

/* Stored whole along the sequence, or in parts. A row map cuts nothing out of it: it is as long as
 * the other dims leave it. */
static bool stores_sequence(const walk *w) {
    return has_owners(w) && owner_is_chunks(w->c) && w->c->storage == LIERNE_STORAGE_FULL;
}

/* Own rows, one after the other in one axis. Without a cp dim there is nobody to leave rows to. */
static bool stores_rows(const walk *w) {
    return has_owners(w) && w->c->owner == LIERNE_GRADIENT_OWNER_ROWS &&
           w->c->storage == LIERNE_STORAGE_COMPACT && mesh_has_dim(&w->c->dst, "cp");
}

case_axis case_axis_open(const bridge_case *c, case_side which, int rank, int axis) {
    const walk w = {c, which, rank, 0}, gradient = {c, SIDE_GRADIENT, rank, 0};
    const cuts own = cuts_of(&w, axis), of_gradient = cuts_of(&gradient, axis);
    int64_t size = size_of(c, axis);
    case_axis a = {.index = calloc((size_t)size + 1, sizeof *a.index),
                   .owned = calloc((size_t)size + 1, sizeof *a.owned)};
    bool whole = axis == 1 && stores_sequence(&w);
    for (int64_t i = 0; i < size && holds_anything(&w); i++) {
        int64_t length = size, at = whole ? i : locate(&own, i, &length);
        a.n = length;
        if (at >= 0) {
            a.index[at] = i;
            length = size;
            a.owned[at] = which == SIDE_SRC || locate(&of_gradient, i, &length) >= 0;
        }
    }
    return a;
}

void case_axis_close(case_axis *a) {
    free(a->index);
    free(a->owned);
}

/* The axes of a buffer, slowest first. Rows of a row map go sample by sample, whichever of the two
 * axes is the slower one. */
static void order_of(const walk *w, int *order) {
    const bridge_case *c = w->c;
    bool together = c->axis_s < 0 || stores_rows(w); /* b and s share an axis */
    bool h_first = c->axis_h < c->axis_b;
    int outer = !stores_rows(w) && c->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR ? 1 : 0;
    order[together ? h_first : c->axis_b] = together ? outer : 0;
    order[together ? h_first + 1 : c->axis_s] = together ? 1 - outer : 1;
    order[together ? (h_first ? 0 : 2) : c->axis_h] = 2;
}

/* The cp coordinate whose chunk has position s. */
static int chunk_owner(const bridge_case *c, const cuts *gradient, int64_t s) {
    int64_t n = c->sequence;
    int owner = 0;
    for (int k = 0; k < gradient->n; k++) {
        for (int64_t part = 0; part < gradient->parts[k]; part++) {
            int64_t i = s, length = n;
            if (follow(&gradient->how[k], gradient->parts[k], part, &i, &length)) {
                s = i, n = length; /* go along with who has it */
                owner = gradient->cp[k] ? (int)part : owner;
                break;
            }
        }
    }
    return owner;
}

/* The owner of each position by its chunk; -1: contributions. To be freed. */
static int *chunk_owners(const walk *w) {
    const walk gradient = {w->c, SIDE_GRADIENT, w->rank, 0};
    const cuts of_sequence = cuts_of(&gradient, 1);
    int *owners = malloc((size_t)(w->c->sequence + 1) * sizeof *owners);
    for (int64_t s = 0; s < w->c->sequence; s++) {
        owners[s] = owner_is_chunks(w->c) ? chunk_owner(w->c, &of_sequence, s) : -1;
    }
    return owners;
}

static item item_at(const walk *w, const case_axis *axes, const int *owners, const int64_t *at) {
    item e = {.b = axes[0].index[at[0]], .s = axes[1].index[at[1]], .h = axes[2].index[at[2]]};
    e.owned = axes[0].owned[at[0]] && axes[1].owned[at[1]] && axes[2].owned[at[2]];
    e.owner = owners[e.s];
    if (w->c->owner == LIERNE_GRADIENT_OWNER_ROWS) {
        e.owner = w->c->rows[e.b * w->c->sequence + e.s];
        e.owned = e.owned && (w->which == SIDE_SRC || e.owner == w->cp);
    }
    e.held = e.owned || !has_owners(w);
    return e;
}

static void set_extent(const walk *w, const case_axis *axes, int64_t count, int64_t *extent) {
    for (int axis = 0; axis < 3; axis++) {
        extent[axis] = axes[axis].n;
    }
    if (stores_rows(w) && holds_anything(w)) {
        int outer = w->c->axis_b < w->c->axis_s ? 0 : 1;
        extent[outer] = axes[2].n > 0 ? count / axes[2].n : 0;
        extent[1 - outer] = 1;
    }
}

item *case_items(const bridge_case *c, case_side which, int rank, int64_t *count, int64_t *extent) {
    const walk w = {c, which, rank, mesh_coord(&c->dst, rank, "cp")};
    case_axis axes[3];
    int order[3];
    int64_t all = 1;
    for (int axis = 0; axis < 3; axis++) {
        axes[axis] = case_axis_open(c, which, rank, axis);
        all *= axes[axis].n;
    }
    item *items = malloc((size_t)(all + 1) * sizeof *items);
    int *owners = chunk_owners(&w);
    bool rows = stores_rows(&w);
    order_of(&w, order);
    *count = 0;
    for (int64_t i = 0; i < all; i++) {
        int64_t at[3], middle = axes[order[1]].n, inner = axes[order[2]].n;
        at[order[0]] = i / (middle * inner);
        at[order[1]] = i / inner % middle;
        at[order[2]] = i % inner;
        items[*count] = item_at(&w, axes, owners, at);
        *count += items[*count].owned || !rows;
    }
    if (extent) {
        set_extent(&w, axes, *count, extent);
    }
    for (int axis = 0; axis < 3; axis++) {
        case_axis_close(&axes[axis]);
    }
    free(owners);
    return items;
}

bool case_first_replica(const bridge_case *c, case_side which, int rank) {
    const walk w = {c, which, rank, 0};
    const mesh *m = mesh_of_walk(&w);
    for (int d = 0; d < m->ndims; d++) {
        const char *name = m->names[d];
        bool counts = cut_of(&w, d).kind != LIERNE_PLACEMENT_REPLICATE || strcmp(name, "pp") == 0 ||
                      (which != SIDE_SRC && strcmp(name, "cp") == 0);
        if (!counts && mesh_coord(m, rank, name) != 0) {
            return false;
        }
    }
    return true;
}

bool case_aligned(const bridge_case *c) {
    int src = mesh_size(&c->src, "dp"), dst = mesh_size(&c->dst, "dp");
    bool aligned = src % dst == 0 || dst % src == 0;
    for (int r = 0; r < c->world && aligned; r++) {
        int s = mesh_coord(&c->src, r, "dp"), d = mesh_coord(&c->dst, r, "dp");
        aligned = src >= dst ? s / (src / dst) == d : d / (dst / src) == s;
    }
    return aligned;
}

static uint64_t hash_of(const item *i, int cp) {
    return mix(mix((uint64_t)(i->b * 1000003 + i->s * 1009 + i->h + 1)) + (uint64_t)(cp + 1));
}

/* An integer of magnitude `most` at most, of a dtype without signs from 0 to 2 * most. */
static double number_of(const bridge_case *c, uint64_t hash, int most) {
    if (c->data == FRACTIONS) {
        return (double)(hash >> 11) * 0x1p-52 - 1;
    }
    int n = (int)(hash % (uint64_t)(2 * most + 1));
    return c->dtype == LIERNE_DTYPE_U8 ? n : n - most;
}

double case_value(const bridge_case *c, const item *i) {
    return number_of(c, hash_of(i, -1), 50);
}

double case_contribution(const bridge_case *c, const item *i, int cp) {
    return number_of(c, hash_of(i, cp), 6);
}

double case_gradient(const bridge_case *c, const item *i) {
    int cp = i->owner < 0 ? mesh_size(&c->dst, "cp") : 1;
    double sum = 0;
    for (int k = 0; k < cp; k++) {
        sum += case_contribution(c, i, i->owner < 0 ? k : i->owner);
    }
    return sum;
}
