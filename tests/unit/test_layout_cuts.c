/* Share rules, the order of cuts and maps of one axis: by hand, errors, and random layouts against
 * a model that knows the owner of every position and no ranges. */
#include "layout/layout.h"
#include "lierne.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZE = 24, MAX_DIMS = 3, WORLD = 80 };

static lierne_grid *grid_of(int n, const int64_t *sizes, int offset) {
    static const char *const names[MAX_DIMS] = {"x", "y", "z"};
    lierne_grid *g;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = n,
                             .names = names,
                             .sizes = sizes,
                             .rank_offset = offset,
                             .world_size = WORLD};
    cr_assert_eq(lierne_grid_create(&g, &spec), LIERNE_OK, "%s", lierne_last_error());
    return g;
}

/* One axis of `size` over dims of `sizes`. */
static lierne_status create(lierne_layout **out, int n, const int64_t *sizes, int64_t size,
                            const lierne_placement *placements) {
    lierne_grid *g = grid_of(n, sizes, 0);
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = 1,
                               .shape = &size,
                               .dtype = LIERNE_F32,
                               .placements = placements};
    lierne_status status = lierne_layout_create(out, &spec);
    lierne_grid_destroy(g); /* a layout does without */
    return status;
}

/* The indices that each rank holds, as text: "012 34 - 5". */
static void expect(int n, const int64_t *sizes, int64_t size, const lierne_placement *placements,
                   const char *want) {
    lierne_layout *l;
    char got[256] = "";
    cr_assert_eq(create(&l, n, sizes, size, placements), LIERNE_OK, "%s", lierne_last_error());
    int nranks = 1;
    for (int d = 0; d < n; d++) {
        nranks *= (int)sizes[d];
    }
    for (int r = 0; r < nranks; r++) {
        lierne_box boxes[MAX_SIZE];
        size_t count;
        cr_assert_eq(lierne_layout_get_boxes(boxes, MAX_SIZE, &count, l, r), LIERNE_OK);
        for (size_t b = 0; b < count; b++) {
            for (int64_t i = 0; i < boxes[b].size[0]; i++) {
                sprintf(got + strlen(got), "%d", (int)(boxes[b].start[0] + i));
            }
        }
        strcat(got, count ? r + 1 < nranks ? " " : "" : r + 1 < nranks ? "- " : "-");
    }
    cr_assert_str_eq(got, want);
    lierne_layout_destroy(l);
}

#define CHUNK .kind = LIERNE_SHARD, .share = LIERNE_SHARE_CHUNK
#define EQUAL .kind = LIERNE_SHARD

Test(layout_cuts, share_rules) {
    const int64_t four[] = {4};
    expect(1, four, 5, &(lierne_placement){EQUAL}, "01 2 3 4");
    expect(1, four, 5, &(lierne_placement){CHUNK}, "01 23 4 -");
    expect(1, four, 9, &(lierne_placement){CHUNK}, "012 345 678 -");
    expect(1, four, 8, &(lierne_placement){CHUNK}, "01 23 45 67");
    expect(1, four, 0, &(lierne_placement){CHUNK}, "- - - -");
}

Test(layout_cuts, order_of_cuts) {
    const int64_t sizes[] = {2, 3}; /* x is the faster dim */
    expect(2, sizes, 7, (lierne_placement[]){{CHUNK}, {CHUNK}}, "01 2 34 5 6 -");
    expect(2, sizes, 7, (lierne_placement[]){{CHUNK}, {CHUNK, .cut_order = 1}}, "01 4 23 5 - 6");
    expect(2, sizes, 7, (lierne_placement[]){{CHUNK, .cut_order = 2}, {CHUNK, .cut_order = 1}},
           "01 2 34 5 6 -");
    expect(2, sizes, 7, (lierne_placement[]){{EQUAL}, {EQUAL, .cut_order = 1}}, "01 4 2 5 3 6");
    const int64_t counts[] = {5, 2};
    expect(2, sizes, 7, (lierne_placement[]){{EQUAL, .counts = counts}, {EQUAL, .cut_order = 1}},
           "01 5 23 6 4 -");
    /* Zigzag over x in four chunks of 2; what an x has is then cut over y. */
    expect(2, sizes, 8,
           (lierne_placement[]){{.kind = LIERNE_SHARD_ZIGZAG}, {EQUAL, .cut_order = 1}},
           "01 23 6 4 7 5");
}

Test(layout_cuts, maps_of_one_axis) {
    const int64_t sizes[] = {2, 3};
    const int32_t x[] = {0, 1, 0, 0, 1, 1, 0}, y[] = {0, 0, 2, 2, 2, 0, 0};
    lierne_placement by_x = {.kind = LIERNE_SHARD_ROWS, .axis2 = -1, .rows = x};
    lierne_placement by_y = {.kind = LIERNE_SHARD_ROWS, .axis2 = -1, .rows = y};
    expect(2, sizes, 7, (lierne_placement[]){by_x, {.kind = LIERNE_AT}}, "0236 145 - - - -");
    expect(2, sizes, 7, (lierne_placement[]){by_x, by_y}, "06 15 - - 23 4");
    /* An index goes to the rank that the map and the cut name: the cut is of the whole axis. */
    expect(2, sizes, 7, (lierne_placement[]){by_x, {CHUNK}}, "02 1 3 45 6 -");
}

static void reject(const lierne_placement *placements, lierne_status status, const char *part) {
    const int64_t sizes[] = {2, 3};
    lierne_layout *l = (lierne_layout *)&sizes;
    size_t before = lierne_mem_live();
    cr_assert_eq(create(&l, 2, sizes, 6, placements), status, "%s", lierne_last_error());
    cr_assert(strstr(lierne_last_error(), "lierne_layout_create: "), "%s", lierne_last_error());
    cr_assert(strstr(lierne_last_error(), part), "%s", lierne_last_error());
    cr_assert_null(l);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(layout_cuts, errors_name_value_and_bound) {
    const int64_t three[] = {3, 3}, four[] = {2, 2, 2};
    const int32_t rows[] = {0, 0, 1, 1, 2, 0};
    reject((lierne_placement[]){{EQUAL, .share = (lierne_share_rule)2}, {0}}, LIERNE_INVALID,
           "share rule 2, must be 0 or 1");
    reject((lierne_placement[]){{CHUNK, .counts = three}, {0}}, LIERNE_INVALID,
           "has counts and share rule 1");
    reject((lierne_placement[]){{EQUAL, .cut_order = -1}, {0}}, LIERNE_INVALID,
           "cut_order -1, must be in 0 to 15");
    reject((lierne_placement[]){{EQUAL, .cut_order = 16}, {0}}, LIERNE_INVALID, "cut_order 16");
    reject((lierne_placement[]){{EQUAL, .counts = three}, {EQUAL}}, LIERNE_INVALID,
           "dim 0 has counts, but dim 1 cuts axis 0 before it");
    reject((lierne_placement[]){{EQUAL}, {EQUAL, .counts = four, .cut_order = 1}}, LIERNE_INVALID,
           "dim 1 has counts, but dim 0 cuts axis 0 before it");
    reject((lierne_placement[]){{EQUAL, .counts = three},
                                {.kind = LIERNE_SHARD_ZIGZAG, .cut_order = 1}},
           LIERNE_INVALID, "dims 1 and 0 both cut axis 0");
    reject((lierne_placement[]){{CHUNK}, {.kind = LIERNE_SHARD_ZIGZAG, .cut_order = 1}},
           LIERNE_INDIVISIBLE, "divisible by 12");
    reject((lierne_placement[]){{.kind = LIERNE_SHARD_ROWS, .axis2 = -2, .rows = rows}, {0}},
           LIERNE_INVALID, "axis2 -2");
    reject((lierne_placement[]){{.kind = LIERNE_SHARD_ROWS, .axis2 = -1}, {0}}, LIERNE_INVALID,
           "needs rows");
    reject((lierne_placement[]){{.kind = LIERNE_SHARD_ROWS, .rows = rows}, {0}}, LIERNE_INVALID,
           "for one axis, set axis2 to -1");
    reject((lierne_placement[]){{.kind = LIERNE_SHARD_ROWS, .axis2 = -1, .rows = rows}, {0}},
           LIERNE_INVALID, "row 4 has owner 2, must be in 0 to 1");
}

/* Every failed allocation is an error that leaves nothing behind. */
Test(layout_cuts, without_memory) {
    const int64_t sizes[] = {2, 3}, counts[] = {2, 1, 3};
    const int32_t rows[] = {0, 1, 1, 0, 0, 1};
    lierne_placement p[] = {{.kind = LIERNE_SHARD_ROWS, .axis2 = -1, .rows = rows},
                            {EQUAL, .counts = counts}};
    lierne_layout *l;
    lierne_box box;
    size_t n, before = lierne_mem_live();
    lierne_status status = LIERNE_NO_MEMORY;
    for (size_t k = 6; status == LIERNE_NO_MEMORY; k++) {
        lierne_grid *g = grid_of(2, sizes, 0);
        lierne_layout_spec spec = {.size = sizeof spec,
                                   .grid = g,
                                   .naxes = 1,
                                   .shape = (int64_t[]){6},
                                   .dtype = LIERNE_F32,
                                   .placements = p};
        lierne_mem_fail_at(k - 5);
        status = lierne_layout_create(&l, &spec);
        if (status == LIERNE_OK) {
            status = lierne_layout_get_boxes(&box, 1, &n, l, 0);
        }
        lierne_mem_fail_at(0);
        lierne_layout_destroy(l);
        lierne_grid_destroy(g);
        cr_assert_eq(lierne_mem_live(), before);
        cr_assert_lt(k, 20);
    }
    cr_assert_eq(status, LIERNE_OK);
}

/* --- the model ----------------------------------------------------------------------------- */

typedef struct tensor {
    int ndims, naxes, offset, nranks;
    int64_t sizes[MAX_DIMS], shape[2];
    lierne_placement placements[MAX_DIMS];
    int64_t counts[MAX_DIMS][4];
    int32_t rows[MAX_DIMS][MAX_SIZE];
    uint32_t full;
} tensor;

typedef struct indices {
    int n;
    int at[MAX_SIZE];
} indices;

static int coord(const tensor *t, int rank, int d) {
    for (int e = 0; e < d; e++) {
        rank /= (int)t->sizes[e];
    }
    return rank % (int)t->sizes[d];
}

/* The coordinate that has position k of `total` after the cut of dim d; index: what is there. */
static int owner(const tensor *t, int d, int total, int k, int index) {
    const lierne_placement *p = &t->placements[d];
    int n = (int)t->sizes[d], c = 0;
    if (p->kind == LIERNE_SHARD_ROWS) {
        return p->rows[index];
    }
    if (p->kind == LIERNE_SHARD_ZIGZAG) {
        int chunk = n > 1 ? k / (total / (2 * n)) : 0;
        return chunk < n ? chunk : 2 * n - 1 - chunk;
    }
    if (p->counts) {
        for (int64_t end = p->counts[0]; k >= end; end += p->counts[++c]) {
        }
        return c;
    }
    if (p->share == LIERNE_SHARE_CHUNK) {
        return k / ((total + n - 1) / n);
    }
    int size = total / n, longer = total % n;
    return k < longer * (size + 1) ? k / (size + 1) : longer + (k - longer * (size + 1)) / size;
}

static void keep(const tensor *t, int d, int rank, indices *list) {
    indices out = {0};
    for (int k = 0; k < list->n; k++) {
        if (owner(t, d, list->n, k, list->at[k]) == coord(t, rank, d)) {
            out.at[out.n++] = list->at[k];
        }
    }
    *list = out;
}

static bool is_cut(lierne_placement_kind kind) {
    return kind == LIERNE_SHARD || kind == LIERNE_SHARD_ZIGZAG;
}

/* What a rank has of an axis: cuts by cut_order and then from the slowest dim, and maps. */
static indices model(const tensor *t, int rank, int axis) {
    indices list = {.n = (int)t->shape[axis]};
    for (int i = 0; i < list.n; i++) {
        list.at[i] = i;
    }
    for (int order = 0; order < 3; order++) {
        for (int d = t->ndims - 1; d >= 0; d--) {
            const lierne_placement *p = &t->placements[d];
            if (is_cut(p->kind) && p->axis == axis && p->cut_order == order) {
                keep(t, d, rank, &list);
            }
        }
    }
    for (int d = 0; d < t->ndims; d++) {
        if (t->placements[d].kind == LIERNE_SHARD_ROWS && t->placements[d].axis == axis) {
            keep(t, d, rank, &list);
        }
    }
    return list;
}

static bool holds(const tensor *t, int rank) {
    bool all = rank >= 0 && rank < t->nranks;
    for (int d = 0; d < t->ndims && all; d++) {
        all = t->placements[d].kind != LIERNE_AT || coord(t, rank, d) == t->placements[d].at;
    }
    return all;
}

/* --- random layouts ------------------------------------------------------------------------ */

static int any(int n) {
    return rand() % n;
}

/* Counts and zigzag have conditions; they are given to axes that no other dim cuts. */
static bool is_alone(const tensor *t, int d) {
    for (int e = 0; e < t->ndims; e++) {
        if (e != d && is_cut(t->placements[e].kind) &&
            t->placements[e].axis == t->placements[d].axis) {
            return false;
        }
    }
    return true;
}

static void choose_counts(tensor *t, int d) {
    int64_t left = t->shape[t->placements[d].axis];
    for (int c = 0; c < t->sizes[d]; c++) {
        t->counts[d][c] = c + 1 < t->sizes[d] ? any((int)left + 1) : left;
        left -= t->counts[d][c];
    }
    t->placements[d].counts = t->counts[d];
    t->placements[d].share = LIERNE_SHARE_BALANCED;
}

static void choose_special(tensor *t, int d) {
    lierne_placement *p = &t->placements[d];
    if (p->kind == LIERNE_SHARD && is_alone(t, d) && any(3) == 0) {
        if (t->shape[p->axis] % (2 * t->sizes[d]) == 0 && any(2) == 0) {
            p->kind = LIERNE_SHARD_ZIGZAG;
        } else {
            choose_counts(t, d);
        }
    }
}

static void choose_placement(tensor *t, int d) {
    static const lierne_placement_kind kinds[] = {LIERNE_REPLICATE, LIERNE_AT,    LIERNE_SHARD_ROWS,
                                                  LIERNE_SHARD,     LIERNE_SHARD, LIERNE_SHARD};
    t->placements[d] = (lierne_placement){.kind = kinds[any(6)],
                                          .axis = any(t->naxes),
                                          .at = any((int)t->sizes[d]),
                                          .axis2 = -1,
                                          .rows = t->rows[d],
                                          .share = (lierne_share_rule)any(2),
                                          .cut_order = any(3)};
    for (int i = 0; i < MAX_SIZE; i++) {
        t->rows[d][i] = any((int)t->sizes[d]);
    }
}

static tensor random_tensor(int naxes, const int64_t *shape) {
    tensor t = {.ndims = 1 + any(MAX_DIMS),
                .naxes = naxes,
                .offset = any(5),
                .nranks = 1,
                .shape = {shape[0], shape[1]},
                .full = (uint32_t)any(1 << naxes)};
    for (int d = 0; d < t.ndims; d++) {
        t.sizes[d] = 1 + any(4);
        t.nranks *= (int)t.sizes[d];
    }
    return t;
}

/* The placements point into *t, which must stay where it is. */
static lierne_layout *random_layout(tensor *t) {
    for (int d = 0; d < t->ndims; d++) {
        choose_placement(t, d);
    }
    for (int d = 0; d < t->ndims; d++) {
        choose_special(t, d);
    }
    lierne_layout *l;
    lierne_grid *g = grid_of(t->ndims, t->sizes, t->offset);
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = g,
                               .naxes = t->naxes,
                               .shape = t->shape,
                               .dtype = LIERNE_I32,
                               .placements = t->placements,
                               .full_axes = t->full};
    cr_assert_eq(lierne_layout_create(&l, &spec), LIERNE_OK, "%s", lierne_last_error());
    lierne_grid_destroy(g);
    return l;
}

/* Marks [index][index] of the tensor with the place in the buffer, counted from 1. */
static void mark(const tensor *t, const lierne_box *box, const int64_t *shape,
                 int (*places)[MAX_SIZE]) {
    int64_t columns = t->naxes > 1 ? box->size[1] : 1, width = t->naxes > 1 ? shape[1] : 1;
    for (int64_t i = 0; i < box->size[0]; i++) {
        for (int64_t j = 0; j < columns; j++) {
            int64_t row = box->start[0] + i, column = (t->naxes > 1 ? box->start[1] : 0) + j;
            int64_t local = (t->naxes > 1 ? box->local[1] : 0) + j;
            cr_assert_eq(places[row][column], 0, "boxes overlap");
            places[row][column] = (int)(1 + (box->local[0] + i) * width + local);
        }
    }
}

static int64_t stored(const tensor *t, const indices *own, int axis) {
    return t->full >> axis & 1 ? t->shape[axis] : own->n;
}

static void check_rank(const tensor *t, const lierne_layout *l, int rank) {
    static lierne_box boxes[MAX_SIZE * MAX_SIZE];
    int places[MAX_SIZE][MAX_SIZE] = {0};
    indices own[2] = {{.n = 1}, {.n = 1}};
    int64_t shape[2];
    size_t count;
    bool has = holds(t, rank);
    cr_assert_eq(lierne_layout_get_shape(shape, l, t->offset + rank), LIERNE_OK);
    cr_assert_eq(lierne_layout_get_boxes(boxes, MAX_SIZE * MAX_SIZE, &count, l, t->offset + rank),
                 LIERNE_OK);
    for (int a = 0; a < t->naxes; a++) {
        own[a] = has ? model(t, rank, a) : (indices){0};
        cr_assert_eq(shape[a], has ? stored(t, &own[a], a) : 0);
    }
    for (size_t b = 0; b < count; b++) {
        mark(t, &boxes[b], shape, places);
    }
    int64_t width = t->naxes > 1 ? shape[1] : 1;
    for (int i = 0; i < own[0].n; i++) {
        for (int j = 0; j < own[1].n; j++) {
            int row = own[0].at[i], column = own[1].at[j];
            int64_t at = t->full & 1 ? row : i, local = t->full & 2 ? column : j;
            cr_assert_eq(places[row][column], 1 + at * width + local, "rank %d, %d %d", rank, row,
                         column);
            places[row][column] = 0;
        }
    }
    for (int i = 0; i < MAX_SIZE * MAX_SIZE; i++) {
        cr_assert_eq(places[i / MAX_SIZE][i % MAX_SIZE], 0, "rank %d owns too much", rank);
    }
}

static bool overlap(const indices *a, const indices *b) {
    for (int i = 0; i < a->n; i++) {
        for (int j = 0; j < b->n; j++) {
            if (a->at[i] == b->at[j]) {
                return true;
            }
        }
    }
    return false;
}

/* Whether the ranks that hold a cell are among the cells found, and how many of them are. */
static bool found(const lierne_layout *l, const lierne_cells *cells, int rank) {
    lierne_cell cell;
    int hits = 0;
    cr_assert(lierne_layout_cell(l, rank, &cell));
    for (size_t i = 0; i < cells->count; i++) {
        bool same = true;
        for (int k = 0; k < l->ncuts; k++) {
            same = same && cells->at[i].coords[l->cuts[k]] == cell.coords[l->cuts[k]];
        }
        hits += same;
    }
    cr_assert_leq(hits, 1);
    return hits == 1;
}

/* Exactly the cells of `to` are found that have something in common with each rank's of `from`. */
static void check_search(const tensor *from, const lierne_layout *l, const tensor *to,
                         const lierne_layout *other) {
    for (int r = 0; r < from->nranks; r++) {
        lierne_cells cells = {0};
        lierne_cell cell;
        if (!holds(from, r)) {
            continue;
        }
        cr_assert(lierne_layout_cell(l, from->offset + r, &cell));
        cr_assert_eq(lierne_layout_overlapping(&cells, other, l, &cell), LIERNE_OK);
        for (int q = 0; q < to->nranks; q++) {
            bool wanted = holds(to, q);
            for (int a = 0; a < from->naxes && wanted; a++) {
                indices mine = model(from, r, a), theirs = model(to, q, a);
                wanted = overlap(&mine, &theirs);
            }
            cr_assert(!holds(to, q) || found(other, &cells, to->offset + q) == wanted,
                      "rank %d and rank %d", r, q);
        }
        lierne_mem_free(cells.at);
    }
}

Test(layout_cuts, random_layouts_are_those_of_the_model, .timeout = 120) {
    size_t before = lierne_mem_live();
    for (unsigned seed = 0; seed < 3000; seed++) {
        srand(seed);
        int naxes = 1 + any(2);
        const int64_t shape[2] = {any(MAX_SIZE), any(MAX_SIZE)};
        tensor a = random_tensor(naxes, shape), b = random_tensor(naxes, shape);
        lierne_layout *la = random_layout(&a), *lb = random_layout(&b);
        for (int r = -1; r <= a.nranks; r++) {
            check_rank(&a, la, r);
        }
        check_search(&a, la, &b, lb);
        check_search(&b, lb, &a, la);
        lierne_layout_destroy(la), lierne_layout_destroy(lb);
    }
    cr_assert_eq(lierne_mem_live(), before);
}
