/* Recursive bisection against a model that sorts each part anew along every axis, and by hand. */
#include "base/base.h"
#include "lierne.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300 };

static const double *at; /* of the rows that by_coordinate compares */
static int axis_of;

static int by_coordinate(const void *x, const void *y) {
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    double p = at[3 * a + axis_of], q = at[3 * b + axis_of];
    return p != q ? (p > q) - (p < q) : (a > b) - (a < b);
}

static void sort_rows(int64_t *rows, int64_t n, int axis) {
    axis_of = axis;
    qsort(rows, (size_t)n, sizeof *rows, by_coordinate);
}

/* Contiguous shares: the first ranks have one row more. */
static int64_t rows_of(int64_t nrows, int world, int lo, int n) {
    int64_t rows = 0;
    for (int r = lo; r < lo + n; r++) {
        rows += nrows / world + (r < nrows % world);
    }
    return rows;
}

/* The owners without costs. */
static void model(int32_t *owner, int64_t *rows, int64_t n, int lo, int ranks, int64_t nrows,
                  int world) {
    int64_t lower = rows_of(nrows, world, lo, ranks / 2), best = -1;
    double widest = -1;
    for (int64_t i = 0; i < n; i++) {
        owner[rows[i]] = lo;
    }
    for (int axis = 0; axis < 3 && ranks > 1 && n > 0; axis++) {
        sort_rows(rows, n, axis);
        int64_t from = lower - 1 - n / 16, to = lower + n / 16;
        double width =
            at[3 * rows[to < n ? to : n - 1] + axis] - at[3 * rows[from > 0 ? from : 0] + axis];
        if (width > widest) {
            widest = width;
            best = axis;
        }
    }
    if (best >= 0) {
        int64_t own[MOST];
        sort_rows(rows, n, (int)best);
        memcpy(own, rows, (size_t)n * sizeof *own);
        model(owner, own, lower, lo, ranks / 2, nrows, world);
        model(owner, own + lower, n - lower, lo + ranks / 2, ranks - ranks / 2, nrows, world);
    }
}

static void draw(double *p, int64_t n, int kind) {
    for (int64_t i = 0; i < 3 * n; i++) {
        p[i] = kind == 0   ? (double)(rand() % 2000003 - 1000000) / 997
               : kind == 1 ? rand() % 5 - 2
                           : (double)(rand() % 3) * 100 + (double)(rand() % 1000) / 1000;
    }
}

Test(bisect, random_rows_are_where_the_model_has_them) {
    srand(41);
    for (int run = 0; run < 400; run++) {
        double p[3 * MOST];
        float f[3 * MOST];
        int64_t n = rand() % MOST, rows[MOST];
        int32_t got[MOST], want[MOST];
        int world = 1 + rand() % (run % 10 == 0 ? 1000 : 20);
        draw(p, n, run % 3);
        for (int64_t i = 0; i < 3 * n; i++) {
            f[i] = (float)p[i];
            p[i] = run % 2 ? p[i] : (double)f[i];
        }
        for (int64_t i = 0; i < n; i++) {
            rows[i] = i;
        }
        at = p;
        model(want, rows, n, 0, world, n, world);
        assert_ok(run % 2 ? lierne_partition_bisect(got, p, LIERNE_DTYPE_F64, NULL, n, world)
                          : lierne_partition_bisect(got, f, LIERNE_DTYPE_F32, NULL, n, world));
        for (int64_t i = 0; i < n; i++) {
            cr_assert_eq(got[i], want[i], "run %d, row %d of %d on %d ranks: %d, not %d", run,
                         (int)i, (int)n, world, got[i], want[i]);
        }
    }
}

/* Whether the rows of the lower ranks are those before the others along some axis, and no row more
 * or fewer brings their costs nearer to their fraction. */
static bool nearest(const int32_t *owner, int64_t *rows, int64_t n, const int64_t *costs,
                    int middle, int left, int ranks) {
    int64_t total = 0, lower = 0;
    for (int64_t i = 0; i < n; i++) {
        total += costs[rows[i]];
        lower += owner[rows[i]] < middle ? costs[rows[i]] : 0;
    }
    for (int axis = 0; axis < 3; axis++) {
        int64_t k = 0, rest = 0;
        sort_rows(rows, n, axis);
        while (k < n && owner[rows[k]] < middle) {
            k++;
        }
        for (int64_t i = k; i < n; i++) {
            rest += owner[rows[i]] < middle;
        }
        double target = (double)total * left / ranks, off = (double)lower - target;
        double more = k < n ? (double)costs[rows[k]] + off : DBL_MAX;
        double less = k > 0 ? off - (double)costs[rows[k - 1]] : -DBL_MAX;
        /* The fraction is rounded down. */
        double is = off < 0 ? -off : off;
        if (rest == 0 && is <= (more < 0 ? -more : more) + 2 &&
            is <= (less < 0 ? -less : less) + 2) {
            return true;
        }
    }
    return false;
}

static void check_costs(const int32_t *owner, const int64_t *rows, int64_t n, const int64_t *costs,
                        int lo, int ranks, int run) {
    int64_t lower[MOST], upper[MOST], all[MOST], nlower = 0, nupper = 0, total = 0;
    int middle = lo + ranks / 2;
    if (ranks == 1 || n == 0) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        bool below = owner[rows[i]] < middle;
        *(below ? &lower[nlower++] : &upper[nupper++]) = all[i] = rows[i];
        total += costs[rows[i]];
    }
    cr_assert(total == 0 || nearest(owner, all, n, costs, middle, ranks / 2, ranks),
              "run %d: ranks %d to %d", run, lo, lo + ranks - 1);
    check_costs(owner, lower, nlower, costs, lo, ranks / 2, run);
    check_costs(owner, upper, nupper, costs, middle, ranks - ranks / 2, run);
}

Test(bisect, costs_are_as_near_as_a_row_allows) {
    srand(43);
    for (int run = 0; run < 300; run++) {
        double p[3 * MOST];
        int64_t n = 1 + rand() % (MOST - 1), costs[MOST], rows[MOST];
        int32_t owner[MOST];
        int world = 1 + rand() % 12;
        draw(p, n, run % 3);
        for (int64_t i = 0; i < n; i++) {
            costs[i] = run % 4 == 0 ? 7 : rand() % 3 == 0 ? 0 : rand() % 1000;
            rows[i] = i;
        }
        at = p;
        assert_ok(lierne_partition_bisect(owner, p, LIERNE_DTYPE_F64, costs, n, world));
        check_costs(owner, rows, n, costs, 0, world, run);
    }
}

Test(bisect, the_gap_between_clusters_is_cut_although_it_is_no_longest_extent) {
    /* Two pairs of rows far apart along y, each long along x. */
    const double p[] = {0, 0, 0, 90, 1, 0, 1, 60, 0, 89, 61, 0};
    const int64_t heavy[] = {1, 1, 1, 3}, large[] = {INT64_MAX / 2, INT64_MAX / 2, 0, 0};
    int32_t owner[4];
    assert_ok(lierne_partition_bisect(owner, p, LIERNE_DTYPE_F64, NULL, 4, 2));
    cr_expect(owner[0] == 0 && owner[1] == 1 && owner[2] == 0 && owner[3] == 1,
              "the wider gap, of 88");
    const double q[] = {0, 0, 0,  9,  0, 0, 0,  80, 0, 9, 80, 0,  1, 1,  0,  8,
                        1, 0, 1,  81, 0, 8, 81, 0,  2, 2, 0,  7,  2, 0,  2,  82,
                        0, 7, 82, 0,  3, 3, 0,  90, 3, 0, 3,  83, 0, 90, 83, 0};
    int32_t many[16];
    assert_ok(lierne_partition_bisect(many, q, LIERNE_DTYPE_F64, NULL, 16, 2));
    for (int i = 0; i < 16; i++) {
        cr_expect_eq(many[i], i % 4 / 2, "row %d", i);
    }
    assert_ok(lierne_partition_bisect(owner, p, LIERNE_DTYPE_F64, heavy, 4, 2));
    cr_expect(owner[0] == 0 && owner[1] == 1 && owner[2] == 0 && owner[3] == 1, "costs");
    assert_ok(lierne_partition_bisect(owner, p, LIERNE_DTYPE_F64, large, 4, 2));
    cr_expect(owner[0] != owner[1], "costs beyond 2^62");
    assert_ok(lierne_partition_bisect(NULL, NULL, LIERNE_DTYPE_F32, NULL, 0, 3));
    assert_ok(lierne_partition_bisect(owner, p, LIERNE_DTYPE_F64, NULL, 2, INT32_MAX));
    cr_expect(owner[0] != owner[1]);
}

Test(bisect, both_zeros_are_one_coordinate) {
    const float p[] = {-0.0F, 0, 0, 0.0F, 0, 0, -0.0F, 0, 0, 0.0F, 0, 0};
    int32_t owner[4];
    assert_ok(lierne_partition_bisect(owner, p, LIERNE_DTYPE_F32, NULL, 4, 2));
    cr_expect(owner[0] == 0 && owner[1] == 0 && owner[2] == 1 && owner[3] == 1);
}

static void rejected(lierne_status got, lierne_status want, const char *says) {
    cr_expect_eq(got, want, "%s, not %s", lierne_status_name(got), lierne_status_name(want));
    expect_says(says);
}

Test(bisect, bad_arguments) {
    int32_t o[3];
    const float p[9] = {0};
    const int64_t negative[] = {1, 0, -4}, much[] = {INT64_MAX, 0, 1};
    size_t before = lierne_mem_live();
    rejected(lierne_partition_bisect(NULL, p, LIERNE_DTYPE_F32, NULL, 3, 2), LIERNE_ERR_INVALID,
             "NULL");
    rejected(lierne_partition_bisect(o, p, LIERNE_DTYPE_F32, NULL, 3, 0), LIERNE_ERR_INVALID,
             "world is 0");
    rejected(lierne_partition_bisect(o, p, LIERNE_DTYPE_I32, NULL, 3, 2), LIERNE_ERR_INVALID,
             "i32");
    rejected(lierne_partition_bisect(o, p, LIERNE_DTYPE_F32, negative, 3, 2), LIERNE_ERR_INVALID,
             "cost of row 2 is -4, must be at least 0");
    rejected(lierne_partition_bisect(o, p, LIERNE_DTYPE_F32, much, 3, 2), LIERNE_ERR_OVERFLOW,
             "the costs of rows 0 to 2 do not fit");
    cr_expect_eq(lierne_mem_live(), before);
}

Test(bisect, without_memory) {
    const float p[9] = {3, 1, 2};
    int32_t o[3];
    size_t before = lierne_mem_live();
    for (int i = 0; i < 6; i++) {
        lierne_mem_fail_at((size_t)i + 1);
        cr_expect_eq(lierne_partition_bisect(o, p, LIERNE_DTYPE_F32, NULL, 3, 2),
                     LIERNE_ERR_NO_MEMORY, "allocation %d", i);
        lierne_mem_fail_at(0);
        cr_expect_eq(lierne_mem_live(), before);
    }
}
