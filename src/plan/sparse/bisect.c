/* Partition by recursive coordinate bisection: two halves of the ranks share the rows on the two
 * sides of a plane, and each half again.
 *
 * Rows are sorted along each axis once; a cut then parts the lists of the other axes and keeps
 * their order, so that a level takes time linear in the rows. A plane costs the rows near it, which
 * have neighbors beyond: the axis is the one along which the sixteenth of the rows on either side
 * of the plane is widest. Where rows are equally dense that is the longest extent; between clusters
 * it is the gap, which the extent alone does not see. Rows of equal coordinates are in row order,
 * so that every rank finds the same. */
#include "layout/layout.h"
#include "plan/sparse/cloud.h"

#include <string.h>

enum { AXES = LIERNE_CLOUD_AXES, NEAR = 16 };

typedef struct bisection {
    lierne_cloud cloud;
    const int64_t *costs; /* or NULL */
    int world;
    int64_t *order[AXES]; /* rows, sorted along each axis within the part of each half */
    int64_t *spare;
    int32_t *owner;
} bisection;

/* The rows [first, end) of each list, for n ranks from lo on. */
typedef struct part {
    int64_t first, end;
    int32_t lo, n;
} part;

static lierne_status check_costs(const int64_t *costs, int64_t nrows) {
    int64_t sum = 0;
    for (int64_t i = 0; costs && i < nrows; i++) {
        if (costs[i] < 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "cost of row %lld is %lld, must be at least 0",
                               (long long)i, (long long)costs[i]);
        }
        if (!lierne_add_i64(sum, costs[i], &sum)) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "the costs of rows 0 to %lld do not fit",
                               (long long)i);
        }
    }
    return LIERNE_OK;
}

/* Keys in the order of the coordinates; both zeros are one. */
static uint64_t key_of(double value) {
    uint64_t bits;
    value += 0.0;
    memcpy(&bits, &value, sizeof bits);
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static void sort_axis(bisection *b, int axis, lierne_keyed *items, lierne_keyed *spare) {
    size_t n = (size_t)b->cloud.nrows;
    for (size_t i = 0; i < n; i++) {
        items[i] = (lierne_keyed){key_of(lierne_cloud_coordinate(&b->cloud, (int64_t)i, axis)),
                                  (int64_t)i};
    }
    lierne_sort_keyed(items, spare, n, UINT64_MAX);
    for (size_t i = 0; i < n; i++) {
        b->order[axis][i] = items[i].value;
    }
}

/* total * left / n without the product. */
static int64_t fraction(int64_t total, int64_t left, int64_t n) {
    return total / n * left + total % n * left / n;
}

/* Where the first `left` ranks' part of a list ends: as many rows as lierne_partition_split gives
 * them, or rows whose costs are nearest to their fraction. */
static int64_t find_cut(const bisection *b, const part *p, int axis, int32_t left) {
    const int64_t *order = b->order[axis];
    int64_t total = 0, before = 0, at = p->first;
    if (!b->costs) {
        int64_t nrows = b->cloud.nrows;
        return p->first + lierne_share(nrows, b->world, (int64_t)p->lo + left) -
               lierne_share(nrows, b->world, p->lo);
    }
    for (int64_t i = p->first; i < p->end; i++) {
        total += b->costs[order[i]];
    }
    if (total == 0) {
        return p->first + fraction(p->end - p->first, left, p->n);
    }
    for (int64_t target = fraction(total, left, p->n); at < p->end; at++) {
        int64_t with = before + b->costs[order[at]];
        if (with >= target && with - target > target - before) {
            break;
        }
        before = with;
        if (with >= target) {
            return at + 1;
        }
    }
    return at;
}

/* How far the rows near a cut extend. */
static double width_at(const bisection *b, const part *p, int axis, int64_t cut) {
    int64_t near = (p->end - p->first) / NEAR;
    int64_t from = cut - 1 - near > p->first ? cut - 1 - near : p->first,
            to = cut + near < p->end ? cut + near : p->end - 1;
    return lierne_cloud_coordinate(&b->cloud, b->order[axis][to], axis) -
           lierne_cloud_coordinate(&b->cloud, b->order[axis][from], axis);
}

/* Rows of the upper half behind those of the lower one. */
static void part_list(bisection *b, const part *p, int64_t *order, int32_t upper) {
    int64_t at = p->first, n = 0;
    for (int64_t i = p->first; i < p->end; i++) {
        if (b->owner[order[i]] < upper) {
            order[at++] = order[i];
        } else {
            b->spare[n++] = order[i];
        }
    }
    memcpy(order + at, b->spare, (size_t)n * sizeof *order);
}

static void bisect(bisection *b, part p) {
    int32_t left = p.n / 2;
    int best = 0;
    int64_t cut = 0;
    double widest = -1;
    if (p.n == 1 || p.first == p.end) {
        return;
    }
    for (int axis = 0; axis < AXES; axis++) {
        int64_t at = find_cut(b, &p, axis, left);
        double width = width_at(b, &p, axis, at);
        if (width > widest) {
            best = axis, cut = at, widest = width;
        }
    }
    for (int64_t i = cut; i < p.end; i++) {
        b->owner[b->order[best][i]] = p.lo + left;
    }
    for (int axis = 0; axis < AXES; axis++) {
        if (axis != best) {
            part_list(b, &p, b->order[axis], p.lo + left);
        }
    }
    bisect(b, (part){p.first, cut, p.lo, left});
    bisect(b, (part){cut, p.end, p.lo + left, p.n - left});
}

static lierne_status prepare(bisection *b) {
    size_t n = (size_t)b->cloud.nrows;
    lierne_keyed *items = NULL, *spare = NULL;
    lierne_status status = lierne_alloc_unset(&items, n, sizeof *items);
    status = status == LIERNE_OK ? lierne_alloc_unset(&spare, n, sizeof *spare) : status;
    status = status == LIERNE_OK ? lierne_alloc_unset(&b->spare, n, sizeof *b->spare) : status;
    for (int axis = 0; axis < AXES && status == LIERNE_OK; axis++) {
        status = lierne_alloc_unset(&b->order[axis], n, sizeof *b->order[axis]);
        if (status == LIERNE_OK) {
            sort_axis(b, axis, items, spare);
        }
    }
    lierne_mem_free(items);
    lierne_mem_free(spare);
    return status;
}

lierne_status lierne_partition_bisect(int32_t *owner, const void *positions, lierne_dtype dtype,
                                      const int64_t *costs, int64_t nrows, int world) {
    LIERNE_PUBLIC_CALL();
    bisection b = {.costs = costs, .world = world, .owner = owner};
    LIERNE_TRY(lierne_partition_check_rows(owner, positions, nrows));
    LIERNE_TRY(lierne_partition_check_world(world));
    LIERNE_TRY(lierne_cloud_open(&b.cloud, positions, dtype, nrows));
    LIERNE_TRY(check_costs(costs, nrows));
    lierne_status status = prepare(&b);
    if (status == LIERNE_OK && nrows > 0) {
        memset(owner, 0, (size_t)nrows * sizeof *owner);
        bisect(&b, (part){0, nrows, 0, world});
    }
    lierne_mem_free(b.spare);
    for (int axis = 0; axis < AXES; axis++) {
        lierne_mem_free(b.order[axis]);
    }
    return status;
}
