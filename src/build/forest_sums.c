/* Sums of rows by lists.
 *
 * Rows have different numbers of contributions. An operation adds as many sources to each of its rows;
 * so there is one per number, whose j-th source lists the j-th contribution of each of its rows. All
 * contributions of a row are added in one go: in their order, whatever the order of arrival, and
 * 16-bit types are rounded once. */
#include "build/forest.h"

/* Work arrays: of each row of `to`, how many contributions it has, how many were placed, and where it
 * stands among the rows with as many; of each number, where its lists begin and how many rows it has. */
typedef struct table {
    int64_t most;
    int64_t *degree;
    int64_t *placed;
    int64_t *slot;
    int64_t *rows;
    int64_t *used;
    int64_t *start;
    int64_t *pool; /* per number: its rows, then the list of each source */
} table;

static void free_table(table *t) {
    int64_t *const all[] = {t->degree, t->placed, t->slot, t->rows, t->used, t->start, t->pool};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        lierne_mem_free(all[i]);
    }
}

static lierne_status count(table *t, int64_t nrows, const int64_t *to, int64_t n) {
    LIERNE_TRY(lierne_alloc(&t->degree, (size_t)nrows, sizeof *t->degree));
    LIERNE_TRY(lierne_alloc(&t->placed, (size_t)nrows, sizeof *t->placed));
    LIERNE_TRY(lierne_alloc(&t->slot, (size_t)nrows, sizeof *t->slot));
    for (int64_t i = 0; i < n; i++) {
        int64_t d = ++t->degree[to[i]];
        t->most = d > t->most ? d : t->most;
    }
    size_t classes = (size_t)t->most + 2;
    LIERNE_TRY(lierne_alloc(&t->rows, classes, sizeof *t->rows));
    LIERNE_TRY(lierne_alloc(&t->used, classes, sizeof *t->used));
    LIERNE_TRY(lierne_alloc(&t->start, classes, sizeof *t->start));
    for (int64_t r = 0; r < nrows; r++) {
        t->rows[t->degree[r]]++;
    }
    for (int64_t d = 1; d <= t->most; d++) {
        t->start[d + 1] = t->start[d] + t->rows[d] * (d + 1);
    }
    return lierne_alloc(&t->pool, (size_t)t->start[t->most + 1], sizeof *t->pool);
}

static void place(table *t, const int64_t *to, const int64_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t row = to[i], d = t->degree[row];
        int64_t *lists = t->pool + t->start[d];
        if (t->placed[row]++ == 0) {
            t->slot[row] = t->used[d]++;
            lists[t->slot[row]] = row;
        }
        lists[t->placed[row] * t->rows[d] + t->slot[row]] = from[i];
    }
}

static lierne_status list_place(lierne_route *route, lierne_place *out, const lierne_row_place *of,
                                const int64_t *rows, int64_t n, int64_t width) {
    out->buffer = of->buffer;
    LIERNE_TRY(lierne_route_rows(route, &out->block, rows, n, width, of->stride));
    out->block.offset += of->offset;
    return LIERNE_OK;
}

/* The same rows of another array; its list is shared, so that the two are seen to be the same rows. */
static lierne_place same_rows(const lierne_place *place, const lierne_row_place *was,
                              const lierne_row_place *of) {
    lierne_place other = *place;
    int64_t first = (place->block.offset - was->offset) / was->stride;
    other.buffer = of->buffer;
    other.block.offset = of->offset + first * of->stride;
    other.block.stride[0] = of->stride;
    return other;
}

static lierne_status add_class(lierne_route *route, lierne_ops *ops, const lierne_row_sums *sums,
                               const table *t, int64_t d) {
    const int64_t *lists = t->pool + t->start[d];
    int64_t n = t->rows[d];
    lierne_place to, from;
    lierne_op *op;
    LIERNE_TRY(list_place(route, &to, &sums->to, lists, n, sums->width));
    LIERNE_TRY(lierne_ops_add(ops, to, &op));
    op->onto = sums->onto;
    if (sums->base) {
        LIERNE_TRY(lierne_op_add(op, same_rows(&to, &sums->to, sums->base)));
    }
    for (int64_t j = 1; j <= d; j++) {
        LIERNE_TRY(list_place(route, &from, &sums->from, lists + j * n, n, sums->width));
        LIERNE_TRY(lierne_op_add(op, from));
    }
    return lierne_op_join(op);
}

static lierne_status add_rest(lierne_route *route, lierne_ops *ops, const lierne_row_sums *sums,
                              const table *t) {
    int64_t *rows, n = 0;
    lierne_place to, from;
    bool copies = sums->rest == LIERNE_REST_COPY;
    if (sums->rest == LIERNE_REST_NONE || t->rows[0] == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&rows, (size_t)t->rows[0], sizeof *rows));
    for (int64_t r = 0; r < sums->nrows; r++) {
        if (t->degree[r] == 0) {
            rows[n++] = r;
        }
    }
    lierne_status status = list_place(route, &to, &sums->to, rows, n, sums->width);
    lierne_mem_free(rows);
    LIERNE_TRY(status);
    if (copies) {
        from = same_rows(&to, &sums->to, sums->base);
    }
    return lierne_ops_put(ops, to, sums->onto, &from, copies);
}

lierne_status lierne_forest_sums(lierne_route *route, lierne_ops *ops, const lierne_row_sums *sums,
                                 const int64_t *to, const int64_t *from, int64_t n) {
    table t = {0};
    lierne_status status = count(&t, sums->nrows, to, n);
    if (status == LIERNE_OK) {
        place(&t, to, from, n);
        status = add_rest(route, ops, sums, &t);
    }
    for (int64_t d = 1; d <= t.most && status == LIERNE_OK; d++) {
        status = t.rows[d] ? add_class(route, ops, sums, &t, d) : LIERNE_OK;
    }
    free_table(&t);
    return status;
}
