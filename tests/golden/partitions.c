/* The list `partitions` of graph_a2a.json: owners of rows by index and along a Morton curve. The
 * expected order along the curve must ascend by lierne's codes and, among equals, by index, and
 * lierne's owners must be the expected ones. */
#include "golden.h"

#include <stdlib.h>
#include <string.h>

typedef struct partition {
    int n;
    int world;
    lierne_dtype dtype;
    void *positions;
    uint32_t *codes;
    int32_t *owner;
} partition;

static bool read_positions(golden_case *c, partition *p, const cJSON *rows) {
    const cJSON *row, *one;
    int64_t at = 0;
    cJSON_ArrayForEach(row, rows) {
        if (!golden_expect(c, cJSON_GetArraySize(row) == 3, "a position is no three numbers")) {
            return false;
        }
        cJSON_ArrayForEach(one, row) {
            number_put(p->dtype, p->positions, at++, golden_to_double(one));
        }
    }
    return true;
}

static bool read_partition(golden_case *c, partition *p) {
    const cJSON *rows = golden_get(c->item, "pos");
    const char *dtype = golden_string(c->item, "dtype");
    p->n = cJSON_GetArraySize(rows);
    p->world = (int)golden_int(c->item, "world", 0);
    p->dtype = strcmp(dtype, "float32") == 0 ? LIERNE_DTYPE_F32 : LIERNE_DTYPE_F64;
    size_t n = (size_t)p->n;
    p->positions = calloc(n + 1, 3 * sizeof(double));
    p->codes = calloc(n + 1, sizeof *p->codes);
    p->owner = calloc(n + 1, sizeof *p->owner);
    return golden_expect(c, p->dtype == LIERNE_DTYPE_F32 || strcmp(dtype, "float64") == 0,
                         "dtype '%s'", dtype) &&
           golden_expect(c, p->n > 0, "no positions") &&
           golden_expect(c, p->positions && p->codes && p->owner, "no memory") &&
           read_positions(c, p, rows);
}

static void expect_owners(golden_case *c, partition *p) {
    lierne_status status = lierne_partition_split(p->owner, p->n, p->world);
    golden_expect_status(c, "lierne_partition_split", status, LIERNE_OK);
    golden_expect(c, golden_same_ranks(golden_get(c->item, "index_split"), p->owner, p->n),
                  "other owners by index");
    status = lierne_partition_morton(p->owner, p->positions, p->dtype, p->n, p->world);
    golden_expect_status(c, "lierne_partition_morton", status, LIERNE_OK);
    golden_expect(c, golden_same_ranks(golden_get(c->item, "assignment"), p->owner, p->n),
                  "other owners along the curve");
}

/* The cell of a code along an axis: every third bit. */
static int64_t cell(uint32_t code, int axis) {
    int64_t out = 0;
    for (int bit = 0; bit < 10; bit++) {
        out |= (int64_t)(code >> (3 * bit + axis) & 1) << bit;
    }
    return out;
}

static void expect_codes(golden_case *c, const partition *p) {
    const cJSON *code = golden_get(c->item, "morton"), *row;
    golden_expect(c, cJSON_GetArraySize(code) == p->n, "%d codes", cJSON_GetArraySize(code));
    golden_expect(c, cJSON_GetArraySize(golden_get(c->item, "cell")) == p->n, "too few cells");
    code = code ? code->child : NULL;
    int i = 0;
    cJSON_ArrayForEach(row, golden_get(c->item, "cell")) {
        const int64_t cells[3] = {cell(p->codes[i], 0), cell(p->codes[i], 1), cell(p->codes[i], 2)};
        golden_expect(c, golden_same_ints(row, cells, 3), "row %d: cell %lld, %lld, %lld", i,
                      (long long)cells[0], (long long)cells[1], (long long)cells[2]);
        golden_expect(c, golden_to_int(code, -1) == p->codes[i], "row %d: code %u", i, p->codes[i]);
        code = code ? code->next : NULL;
        if (++i == p->n) {
            return;
        }
    }
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the codes, which are no longer by row then. */
static void expect_ties(golden_case *c, partition *p) {
    int64_t ties = 0;
    qsort(p->codes, (size_t)p->n, sizeof *p->codes, by_value);
    for (int i = 1; i < p->n; i++) {
        ties += p->codes[i] == p->codes[i - 1];
    }
    golden_expect(c, ties == golden_int(c->item, "ties", -1), "%lld ties", (long long)ties);
}

static void expect_order(golden_case *c, const partition *p) {
    const cJSON *order = golden_get(c->item, "order"), *one;
    bool curve = p->world > 1 && p->world < p->n;
    int64_t before = -1;
    golden_expect(c, cJSON_GetArraySize(order) == (curve ? p->n : 0), "an order of %d rows",
                  cJSON_GetArraySize(order));
    cJSON_ArrayForEach(one, order) {
        int64_t row = golden_to_int(one, -1);
        if (!golden_expect(c, row >= 0 && row < p->n, "row %lld in the order", (long long)row)) {
            return;
        }
        int64_t key = (int64_t)p->codes[row] << 32 | row;
        golden_expect(c, key > before, "row %lld stands too late in the order", (long long)row);
        before = key;
    }
}

void golden_partition(golden_case *c) {
    partition p;
    if (read_partition(c, &p)) {
        lierne_status status = lierne_partition_morton_codes(p.codes, p.positions, p.dtype, p.n);
        golden_expect_status(c, "lierne_partition_morton_codes", status, LIERNE_OK);
        expect_owners(c, &p);
        expect_codes(c, &p);
        expect_order(c, &p);
        expect_ties(c, &p);
    }
    free(p.positions);
    free(p.codes);
    free(p.owner);
}
