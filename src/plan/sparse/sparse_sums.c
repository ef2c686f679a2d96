/* Sums of rows by index lists.
 *
 * Rows have different numbers of contributions, but an operation adds the same number of sources to
 * each of its rows. So there is one operation per number of contributions, whose j-th source lists
 * the j-th contribution of each of its rows. All contributions to a row are added by one operation:
 * in their order, whatever order they arrive in, and 16-bit types are rounded once.
 *
 * Where contributions are many beside the rows, they are counted by row, and written to where the
 * operation of this count lists them. Else nearly all shared rows have one contribution. They are
 * found with a byte per row or, if there are few contributions per row, by sorting the
 * contributions, so that planning needs no time or memory for rows that no other rank has; those to
 * rows with several are sorted by row and then by the number that each row has, both stable. The
 * lists are the same. */
#include "plan/sparse/star_forest.h"

enum { NONE, ONE, MORE };
#define SPARSE 32 /* rows per contribution from which on sorting costs less than a byte per row */
#define COUNTS 4  /* rows per contribution up to which counting costs less than both */

/* A row of `to`: its contributions, and where the next of them is listed. */
typedef struct row_count {
    uint32_t count;
    uint32_t next;
} row_count;

typedef struct table {
    const lierne_row_sums *sums;
    lierne_route *route;
    lierne_ops *ops;
    const int64_t *to; /* the rows of n contributions, and the contributions */
    const int64_t *from;
    int64_t n;
    row_count *rows;     /* where contributions are counted, with the next two */
    uint32_t *nrows_of;  /* of each number of contributions, the rows that have so many, */
    uint32_t *ends;      /* and where their list ends */
    uint8_t *seen;       /* NONE, ONE or MORE for each row of `to`; NULL if these are sparse */
    uint8_t *once;       /* of each contribution: its row has no other */
    lierne_keyed *items; /* contributions to rows with several */
    lierne_keyed *spare;
    size_t nitems;
    int64_t *lists;
} table;

static lierne_status list_place(const table *t, lierne_place *out, const lierne_row_place *of,
                                const int64_t *rows, int64_t n) {
    *out = (lierne_place){.buffer = of->buffer};
    LIERNE_TRY(lierne_route_rows(t->route, &out->block, rows, n, t->sums->width, of->stride));
    out->block.offset += of->offset;
    return LIERNE_OK;
}

/* The same rows of another buffer. It shares the list, which shows that the rows are the same. */
static lierne_place same_rows(const lierne_place *place, const lierne_row_place *was,
                              const lierne_row_place *of) {
    lierne_place other = *place;
    int64_t first = (place->block.offset - was->offset) / was->stride;
    other.buffer = of->buffer;
    other.block.offset = of->offset + first * of->stride;
    other.block.stride[0] = of->stride;
    return other;
}

/* An operation on n rows of `to`, the first list, from as many sources, the lists after it. */
static lierne_status add_class(const table *t, const int64_t *lists, int64_t n, int64_t sources) {
    const lierne_row_sums *sums = t->sums;
    lierne_place to, from;
    lierne_op *op;
    LIERNE_TRY(list_place(t, &to, &sums->to, lists, n));
    LIERNE_TRY(lierne_ops_add(t->ops, to, &op));
    op->accumulate = sums->accumulate;
    if (sums->base) {
        LIERNE_TRY(lierne_op_add(op, same_rows(&to, &sums->to, sums->base)));
    }
    for (int64_t j = 1; j <= sources; j++) {
        LIERNE_TRY(list_place(t, &from, &sums->from, lists + j * n, n));
        LIERNE_TRY(lierne_op_add(op, from));
    }
    return lierne_op_join(op);
}

/* An operation on rows without a contribution. */
static lierne_status put_rest(const table *t, lierne_place to) {
    const lierne_row_sums *sums = t->sums;
    bool copies = sums->rest == LIERNE_REST_COPY;
    lierne_place from;
    if (copies) {
        from = same_rows(&to, &sums->to, sums->base);
    }
    return lierne_ops_put(t->ops, to, sums->accumulate, &from, copies);
}

/* An operation on the rows without a contribution, counted or seen. */
static lierne_status add_rest(const table *t) {
    int64_t n = 0;
    lierne_place to;
    for (int64_t r = 0; t->sums->rest != LIERNE_REST_NONE && r < t->sums->nrows; r++) {
        t->lists[n] = r;
        n += t->rows ? t->rows[r].count == 0 : t->seen[r] == NONE;
    }
    if (n == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(list_place(t, &to, &t->sums->to, t->lists, n));
    return put_rest(t, to);
}

/* An operation on rows first to end - 1, which have no contribution. */
static lierne_status add_gap(const table *t, int64_t first, int64_t end) {
    const lierne_row_place *of = &t->sums->to;
    if (first == end || t->sums->rest == LIERNE_REST_NONE) {
        return LIERNE_OK;
    }
    lierne_place to = lierne_place_at(of->buffer, lierne_block_rows(first, end - first,
                                                                    t->sums->width, of->stride));
    to.block.offset += of->offset;
    return put_rest(t, to);
}

/* Finds the contributions that are the only one of their row, and adds operations for rows without
 * any: with a byte per row, or from the sorted contributions. */
static lierne_status mark_seen(const table *t) {
    const int64_t *to = t->to;
    for (int64_t i = 0; i < t->n; i++) {
        t->seen[to[i]] = t->seen[to[i]] == NONE ? ONE : MORE;
    }
    for (int64_t i = 0; i < t->n; i++) {
        t->once[i] = t->seen[to[i]] == ONE;
    }
    return add_rest(t);
}

static lierne_status mark_sorted(const table *t) {
    int64_t next = 0, n = t->n;
    for (int64_t i = 0; i < n; i++) {
        t->items[i] = (lierne_keyed){(uint64_t)t->to[i], i};
    }
    lierne_sort_keyed(t->items, t->spare, (size_t)n, (uint64_t)t->sums->nrows);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && t->items[end].key == t->items[i].key; end++) {
        }
        for (int64_t k = i; k < end; k++) {
            t->once[t->items[k].value] = end == i + 1;
        }
        LIERNE_TRY(add_gap(t, next, (int64_t)t->items[i].key));
        next = (int64_t)t->items[i].key + 1;
    }
    return add_gap(t, next, t->sums->nrows);
}

static lierne_status add_ones(table *t) {
    int64_t ones = 0, at = 0, n = t->n;
    for (int64_t i = 0; i < n; i++) {
        ones += t->once[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (t->once[i]) {
            t->lists[at] = t->to[i];
            t->lists[ones + at++] = t->from[i];
        } else {
            t->items[t->nitems++] = (lierne_keyed){(uint64_t)t->to[i], t->from[i]};
        }
    }
    return ones ? add_class(t, t->lists, ones, 1) : LIERNE_OK;
}

/* From contributions sorted by row to runs: runs[k] is the first item of the k-th row, its key the
 * number of items of that row. Returns the number of rows. */
static size_t find_runs(table *t, lierne_keyed *runs) {
    size_t nrows = 0;
    for (size_t i = 0, end; i < t->nitems; i = end) {
        for (end = i + 1; end < t->nitems && t->items[end].key == t->items[i].key; end++) {
        }
        runs[nrows++] = (lierne_keyed){end - i, (int64_t)i};
    }
    return nrows;
}

/* n rows with equally many contributions. */
static lierne_status add_runs(table *t, const lierne_keyed *runs, size_t n) {
    size_t sources = runs[0].key;
    for (size_t k = 0; k < n; k++) {
        const lierne_keyed *items = t->items + runs[k].value;
        t->lists[k] = (int64_t)items->key;
        for (size_t j = 0; j < sources; j++) {
            t->lists[(j + 1) * n + k] = items[j].value;
        }
    }
    return add_class(t, t->lists, (int64_t)n, (int64_t)sources);
}

static lierne_status add_more(table *t, uint64_t nrows, lierne_keyed *runs, lierne_keyed *spare) {
    lierne_sort_keyed(t->items, t->spare, t->nitems, nrows);
    size_t n = find_runs(t, runs);
    lierne_sort_keyed(runs, spare, n, t->nitems);
    for (size_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && runs[end].key == runs[k].key; end++) {
        }
        LIERNE_TRY(add_runs(t, runs + k, end - k));
    }
    return LIERNE_OK;
}

static lierne_status add_several(table *t) {
    lierne_keyed *runs = NULL;
    if (t->nitems == 0) {
        return LIERNE_OK;
    }
    size_t n = t->nitems / 2; /* rows have two items at least */
    LIERNE_TRY(lierne_alloc_unset(&runs, 2 * n, sizeof *runs));
    lierne_status status = add_more(t, (uint64_t)t->sums->nrows, runs, runs + n);
    lierne_mem_free(runs);
    return status;
}

/* Rows with one contribution are listed in the order of the contributions. */
static void list_counted(const table *t) {
    const uint32_t *nrows_of = t->nrows_of;
    row_count *rows = t->rows;
    uint32_t *ends = t->ends;
    for (int64_t r = 0; r < t->sums->nrows; r++) {
        if (rows[r].count > 1) {
            uint32_t at = ends[rows[r].count]++;
            t->lists[at] = r;
            rows[r].next = at + nrows_of[rows[r].count];
        }
    }
    for (int64_t i = 0; i < t->n; i++) {
        row_count *row = &rows[t->to[i]];
        if (row->count == 1) {
            t->lists[ends[1]] = t->to[i];
            row->next = nrows_of[1] + ends[1]++;
        }
        t->lists[row->next] = t->from[i];
        row->next += nrows_of[row->count];
    }
}

static lierne_status add_classes(const table *t, uint32_t most) {
    LIERNE_TRY(add_rest(t));
    for (uint32_t c = 1, at = 0; c <= most; c++) {
        t->ends[c] = at;
        at += t->nrows_of[c] * (c + 1);
    }
    list_counted(t);
    for (uint32_t c = 1; c <= most; c++) {
        int64_t nrows = t->nrows_of[c];
        if (nrows > 0) {
            LIERNE_TRY(add_class(t, t->lists + t->ends[c] - nrows, nrows, c));
        }
    }
    return LIERNE_OK;
}

static bool is_counted(const table *t) {
    return t->sums->nrows / COUNTS <= t->n && t->n <= INT32_MAX;
}

static lierne_status add_counted(table *t) {
    size_t nrows = (size_t)t->sums->nrows, twice = 2 * (size_t)t->n;
    uint32_t most = 0;
    LIERNE_TRY(lierne_alloc(&t->rows, nrows, sizeof *t->rows));
    LIERNE_TRY(
        lierne_alloc_unset(&t->lists, (nrows > twice ? nrows : twice) + 1, sizeof *t->lists));
    for (int64_t i = 0; i < t->n; i++) {
        uint32_t count = ++t->rows[t->to[i]].count;
        most = count > most ? count : most;
    }
    LIERNE_TRY(lierne_alloc(&t->nrows_of, 2 * ((size_t)most + 1), sizeof *t->nrows_of));
    t->ends = t->nrows_of + most + 1;
    for (size_t r = 0; r < nrows; r++) {
        t->nrows_of[t->rows[r].count]++;
    }
    return add_classes(t, most);
}

static lierne_status reserve_table(table *t) {
    size_t nrows = (size_t)t->sums->nrows, n = (size_t)t->n, most = 2 * n;
    if (nrows / SPARSE <= n) {
        most = nrows > most ? nrows : most;
        LIERNE_TRY(lierne_alloc(&t->seen, nrows, 1));
    }
    LIERNE_TRY(lierne_alloc_unset(&t->once, n, 1));
    LIERNE_TRY(lierne_alloc_unset(&t->items, n, sizeof *t->items));
    LIERNE_TRY(lierne_alloc_unset(&t->spare, n, sizeof *t->spare));
    return lierne_alloc_unset(&t->lists, most + 1, sizeof *t->lists);
}

/* Whether to and from are lists as add_class takes them: distinct rows, and their contributions. */
static bool is_class(const table *t) {
    int64_t k = 1;
    while (k < t->n && t->to[k] > t->to[k - 1]) {
        k++;
    }
    return t->n > 0 && t->from == t->to + t->n && k == t->n;
}

static lierne_status fill_table(table *t) {
    if (t->sums->rest == LIERNE_REST_NONE && is_class(t)) {
        return add_class(t, t->to, t->n, 1);
    }
    if (is_counted(t)) {
        return add_counted(t);
    }
    LIERNE_TRY(reserve_table(t));
    LIERNE_TRY(t->seen ? mark_seen(t) : mark_sorted(t));
    LIERNE_TRY(add_ones(t));
    return add_several(t);
}

lierne_status lierne_star_forest_sums(lierne_route *route, lierne_ops *ops,
                                      const lierne_row_sums *sums, const int64_t *to,
                                      const int64_t *from, int64_t n) {
    table t = {.sums = sums, .route = route, .ops = ops, .to = to, .from = from, .n = n};
    lierne_status status = fill_table(&t);
    lierne_mem_free(t.rows);
    lierne_mem_free(t.nrows_of);
    lierne_mem_free(t.seen);
    lierne_mem_free(t.once);
    lierne_mem_free(t.items);
    lierne_mem_free(t.spare);
    lierne_mem_free(t.lists);
    return status;
}
