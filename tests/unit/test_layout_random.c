/* Random layouts against the model: boxes, the search for cells that overlap, and redistribution.
 */
#include "layout/layout.h"
#include "lierne/sim.h"
#include "unit/expect.h"
#include "unit/layout_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Marks [index][index] of the layout_case with the place in the buffer, counted from 1. */
static void mark(const layout_case *t, const lierne_box *box, const int64_t *shape,
                 int (*places)[LAYOUT_CASE_SIZE]) {
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

static int64_t stored(const layout_case *t, const layout_indices *own, int axis) {
    return t->full >> axis & 1 ? t->shape[axis] : own->n;
}

static void check_rank(const layout_case *t, const lierne_layout *l, int rank) {
    static lierne_box boxes[LAYOUT_CASE_SIZE * LAYOUT_CASE_SIZE];
    int places[LAYOUT_CASE_SIZE][LAYOUT_CASE_SIZE] = {0};
    layout_indices own[2] = {{.n = 1}, {.n = 1}};
    int64_t shape[2];
    size_t count;
    bool has = layout_case_holds(t, rank);
    assert_ok(lierne_layout_get_shape(shape, l, t->offset + rank));
    assert_ok(lierne_layout_get_boxes(boxes, LAYOUT_CASE_SIZE * LAYOUT_CASE_SIZE, &count, l,
                                      t->offset + rank));
    for (int a = 0; a < t->naxes; a++) {
        own[a] = has ? layout_case_part(t, rank, a) : (layout_indices){0};
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
    for (int i = 0; i < LAYOUT_CASE_SIZE * LAYOUT_CASE_SIZE; i++) {
        cr_assert_eq(places[i / LAYOUT_CASE_SIZE][i % LAYOUT_CASE_SIZE], 0, "rank %d owns too much",
                     rank);
    }
}

static bool overlap(const layout_indices *a, const layout_indices *b) {
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
static void check_search(const layout_case *from, const lierne_layout *l, const layout_case *to,
                         const lierne_layout *other) {
    for (int r = 0; r < from->nranks; r++) {
        lierne_cells cells = {0};
        lierne_cell cell;
        if (!layout_case_holds(from, r)) {
            continue;
        }
        cr_assert(lierne_layout_cell(l, from->offset + r, &cell));
        assert_ok(lierne_layout_overlapping(&cells, other, l, &cell));
        for (int q = 0; q < to->nranks; q++) {
            bool wanted = layout_case_holds(to, q);
            for (int a = 0; a < from->naxes && wanted; a++) {
                layout_indices mine = layout_case_part(from, r, a),
                               theirs = layout_case_part(to, q, a);
                wanted = overlap(&mine, &theirs);
            }
            cr_assert(!layout_case_holds(to, q) || found(other, &cells, to->offset + q) == wanted,
                      "rank %d and rank %d", r, q);
        }
        lierne_mem_free(cells.at);
    }
}

Test(layout_random, parts_and_overlaps, .timeout = 120) {
    size_t before = lierne_mem_live();
    for (unsigned seed = 0; seed < 3000; seed++) {
        srand(seed);
        int naxes = 1 + layout_case_any(2);
        const int64_t shape[2] = {layout_case_any(LAYOUT_CASE_SIZE),
                                  layout_case_any(LAYOUT_CASE_SIZE)};
        layout_case a = layout_case_random(naxes, shape), b = layout_case_random(naxes, shape);
        lierne_layout *la = layout_case_create(&a), *lb = layout_case_create(&b);
        for (int r = -1; r <= a.nranks; r++) {
            check_rank(&a, la, r);
        }
        check_search(&a, la, &b, lb);
        check_search(&b, lb, &a, la);
        lierne_layout_destroy(la), lierne_layout_destroy(lb);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* --- redistribution ------------------------------------------------------------------------ */

/* Element (row, column) of the tensor; never 0. */
static int32_t value(int row, int column) {
    return 1 + row * LAYOUT_CASE_SIZE + column;
}

enum { POISON = -7 };

/* A rank's buffer, its own elements as in the tensor, the others poisoned; *n of them. */
static int32_t *buffer_of(const layout_case *t, int rank, int64_t *n) {
    bool has = layout_case_holds(t, rank);
    layout_indices own[2] = {{.n = 1}, {.n = 1}};
    int64_t shape[2] = {1, 1};
    for (int a = 0; a < t->naxes; a++) {
        own[a] = has ? layout_case_part(t, rank, a) : (layout_indices){0};
        shape[a] = has ? stored(t, &own[a], a) : 0;
    }
    *n = shape[0] * shape[1];
    int32_t *buffer = malloc((size_t)(*n + 1) * sizeof *buffer);
    for (int64_t i = 0; i < *n; i++) {
        buffer[i] = POISON;
    }
    for (int i = 0; i < own[0].n; i++) {
        for (int j = 0; j < own[1].n; j++) {
            int row = own[0].at[i], column = own[1].at[j];
            int64_t at = t->full & 1 ? row : i, local = t->full & 2 ? column : j;
            buffer[at * shape[1] + local] = value(row, column);
        }
    }
    return buffer;
}

typedef struct rank_state {
    lierne_plan *plan;
    lierne_request *request;
    int32_t *in, *out;
} rank_state;

/* Moves the tensor from one layout to the other, forward or as the adjoint of the way back. */
static void move(rank_state *ranks, const layout_case *from, const layout_case *to,
                 lierne_direction direction) {
    for (int r = 0; r < LAYOUT_CASE_WORLD; r++) {
        int64_t nin, nout, in = -1, out = -1;
        rank_state *s = &ranks[r];
        s->in = buffer_of(from, r - from->offset, &nin);
        free(buffer_of(to, r - to->offset, &nout));
        assert_ok(lierne_plan_get_elements(&in, &out, s->plan, direction));
        cr_assert(in == nin && out == nout);
        s->out = malloc((size_t)(nout + 1) * sizeof *s->out);
        for (int64_t i = 0; i < nout; i++) {
            s->out[i] = POISON;
        }
        cr_assert_eq(direction == LIERNE_DIRECTION_FORWARD
                         ? lierne_plan_forward_begin(&s->request, s->plan, s->out, s->in, NULL)
                         : lierne_plan_adjoint_begin(&s->request, s->plan, s->out, s->in, NULL),
                     LIERNE_OK);
    }
    for (int r = 0; r < LAYOUT_CASE_WORLD; r++) {
        int64_t n;
        rank_state *s = &ranks[r];
        int32_t *want = buffer_of(to, r - to->offset, &n);
        assert_ok(lierne_request_end(s->request));
        cr_assert_eq(memcmp(s->out, want, (size_t)n * sizeof *want), 0, "rank %d", r);
        free(want), free(s->in), free(s->out);
    }
}

static void redistribute(const layout_case *a, const lierne_layout *la, const layout_case *b,
                         const lierne_layout *lb) {
    static rank_state ranks[LAYOUT_CASE_WORLD];
    lierne_sim *sim;
    lierne_redistribute_spec spec = {.size = sizeof spec, .src = la, .dst = lb};
    assert_ok(lierne_sim_create(&sim, LAYOUT_CASE_WORLD, NULL));
    for (int r = 0; r < LAYOUT_CASE_WORLD; r++) {
        lierne_context *context = lierne_sim_get_context(sim, r);
        assert_ok(lierne_plan_create_redistribute(&ranks[r].plan, context, &spec));
    }
    move(ranks, a, b, LIERNE_DIRECTION_FORWARD);
    move(ranks, b, a, LIERNE_DIRECTION_ADJOINT);
    for (int r = 0; r < LAYOUT_CASE_WORLD; r++) {
        assert_ok(lierne_plan_destroy(ranks[r].plan));
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(layout_random, redistributions, .timeout = 120) {
    for (unsigned seed = 0; seed < 200; seed++) {
        srand(seed);
        int naxes = 1 + layout_case_any(2);
        const int64_t shape[2] = {layout_case_any(LAYOUT_CASE_SIZE),
                                  layout_case_any(LAYOUT_CASE_SIZE)};
        layout_case a = layout_case_random(naxes, shape), b = layout_case_random(naxes, shape);
        lierne_layout *la = layout_case_create(&a), *lb = layout_case_create(&b);
        redistribute(&a, la, &b, lb);
        lierne_layout_destroy(la), lierne_layout_destroy(lb);
    }
}
