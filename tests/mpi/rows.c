/* The oracle of exchanges of rows. A dtype is a rule of rounding, written with scaling and rounding
 * to an integer, so that nothing here resembles the bit operations that it checks. Swaps are
 * executed for the whole world at once, on arrays of numbers. */
#include "mpi/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, POISON = 0xa5, MAX_GHOSTS = 25 };

uint64_t draw(uint64_t *seed, uint64_t below) {
    *seed += 0x9e3779b97f4a7c15u;
    return mix(*seed) % below;
}

shape shape_random(uint64_t seed, bool exact) {
    uint64_t m = mix(seed * 7919 + 5);
    shape s = {.dtype = (lierne_dtype)(LIERNE_DTYPE_F64 + m % 8),
               .width = 1 + (int64_t)(m >> 8) % 5,
               .exact = exact};
    s.stride = s.width + (m >> 16 & 1 ? (int64_t)(m >> 20) % 4 : 0);
    s.seed = m;
    if (exact) {
        s.dtype = m & 8 ? LIERNE_DTYPE_F64 : LIERNE_DTYPE_I64;
    }
    return s;
}

/* To a float with `digits` binary digits and no exponent below `lowest`; ties to even. */
static double float_round(double x, int digits, int lowest, double largest) {
    int exponent;
    if (x == 0 || !isfinite(x)) {
        return x;
    }
    frexp(x, &exponent);
    int unit = (exponent - 1 < lowest ? lowest : exponent - 1) - (digits - 1);
    double r = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(r) > largest ? copysign(INFINITY, x) : r;
}

static double wrap(double x, double range, bool is_signed) {
    double r = fmod(x, range);
    r = r < 0 ? r + range : r;
    return is_signed && r >= range / 2 ? r - range : r;
}

static bool is_half(lierne_dtype dtype) {
    return dtype == LIERNE_DTYPE_BF16 || dtype == LIERNE_DTYPE_F16;
}

/* What an element of the dtype keeps of a number. */
static double stored(lierne_dtype dtype, double x) {
    switch (dtype) {
    case LIERNE_DTYPE_F64:
    case LIERNE_DTYPE_I64:
        return x;
    case LIERNE_DTYPE_F32:
        return (double)(float)x;
    case LIERNE_DTYPE_BF16:
        return float_round(x, 8, -126, 0x1.fep127);
    case LIERNE_DTYPE_F16:
        return float_round(x, 11, -14, 65504);
    case LIERNE_DTYPE_I32:
        return wrap(x, 0x1p32, true);
    case LIERNE_DTYPE_I8:
        return wrap(x, 256, true);
    case LIERNE_DTYPE_U8:
        return wrap(x, 256, false);
    default: /* opaque dtypes have no values */
        abort();
    }
}

/* What an accumulator keeps: float32 for 16 bits. */
static double fold(lierne_dtype dtype, lierne_reduction op, double a, double b) {
    if (op == LIERNE_REDUCTION_SUM) {
        return stored(is_half(dtype) ? LIERNE_DTYPE_F32 : dtype, a + b);
    }
    if (isnan(a) || isnan(b)) {
        return NAN;
    }
    return (op == LIERNE_REDUCTION_MAX) == (a > b) ? a : b;
}

double shape_cell(const shape *s, array a, int rank, int64_t row, int64_t col) {
    uint64_t m = mix(mix(s->seed + (uint64_t)a * 1000003 + (uint64_t)rank * 10007) +
                     (uint64_t)row * 131 + (uint64_t)col);
    if (s->exact) {
        return (double)(m % 31) - 15;
    }
    double x = (double)(m >> 20) * 0x1p-43 - 1; /* in [-1, 1) */
    switch (s->dtype) {
    case LIERNE_DTYPE_I64:
    case LIERNE_DTYPE_I32:
        return floor(x * 0x1p31);
    case LIERNE_DTYPE_I8:
        return floor(x * 128);
    case LIERNE_DTYPE_U8:
        return floor(x * 128) + 128;
    default:
        return stored(s->dtype, ldexp(x, (int)(m % 9) - 4));
    }
}

static size_t bytes_of(const shape *s, int64_t nrows) {
    return (size_t)(nrows * s->stride) * lierne_dtype_size(s->dtype);
}

buffer buffer_new(const shape *s, int64_t nrows) {
    buffer b = {.nrows = nrows, .bytes = bytes_of(s, nrows)};
    b.at = malloc(b.bytes + GUARD);
    memset(b.at, POISON, b.bytes + GUARD);
    return b;
}

void buffer_free(buffer *b) {
    free(b->at);
    b->at = NULL;
}

void buffer_put(const shape *s, const buffer *b, int64_t row, int64_t col, double value) {
    number_put(s->dtype, b->at, row * s->stride + col, value);
}

double buffer_get(const shape *s, const buffer *b, int64_t row, int64_t col) {
    return number_get(s->dtype, b->at, row * s->stride + col);
}

void buffer_fill(const shape *s, const buffer *b, int64_t first, int64_t n, array a, int rank) {
    for (int64_t i = 0; i < n * s->width; i++) {
        int64_t row = i / s->width, col = i % s->width;
        buffer_put(s, b, first + row, col, shape_cell(s, a, rank, row, col));
    }
}

void buffer_set(const shape *s, const buffer *b, int64_t first, int64_t nrows,
                const double *cells) {
    for (int64_t i = 0; i < nrows * s->width; i++) {
        buffer_put(s, b, first + i / s->width, i % s->width, cells[i]);
    }
}

void buffer_check(lierne_plan *plan, lierne_direction direction, const buffer *in,
                  const buffer *before, const buffer *wanted, const char *what) {
    static const char *const hows[] = {"blocking", "begun and ended", "again"};
    unsigned char *out = malloc(wanted->bytes + GUARD), *kept = malloc(in->bytes + GUARD);
    memcpy(kept, in->at, in->bytes + GUARD);
    for (int how = 0; how < 3; how++) {
        lierne_request *request = NULL;
        lierne_status status;
        memcpy(out, before->at, wanted->bytes + GUARD);
        if (how == 1) {
            status = (direction ? lierne_plan_adjoint_begin
                                : lierne_plan_forward_begin)(&request, plan, out, in->at, NULL);
            status = status ? status : lierne_request_end(request);
        } else {
            status =
                (direction ? lierne_plan_adjoint : lierne_plan_forward)(plan, out, in->at, NULL);
        }
        CHECK(status == LIERNE_OK, "%s, %s %s: %s", what, direction ? "adjoint" : "forward",
              hows[how], lierne_last_error());
        CHECK(memcmp(out, wanted->at, wanted->bytes + GUARD) == 0, "%s, %s %s: wrong bits", what,
              direction ? "adjoint" : "forward", hows[how]);
        CHECK(memcmp(kept, in->at, in->bytes + GUARD) == 0, "%s, %s %s: the input changed", what,
              direction ? "adjoint" : "forward", hows[how]);
    }
    free(out), free(kept);
}

void forest_free(forest *f) {
    for (int r = 0; r < f->world; r++) {
        free(f->ghosts[r]);
    }
}

void forest_random(forest *f, uint64_t seed, const int64_t *nowned) {
    *f = (forest){.world = test_world};
    int64_t total = 0;
    for (int r = 0; r < test_world; r++) {
        f->nowned[r] = nowned ? nowned[r] : draw(&seed, 3) ? (int64_t)draw(&seed, 9) : 0;
        total += f->nowned[r];
    }
    for (int r = 0; r < test_world; r++) {
        f->nghosts[r] = total && draw(&seed, 4) ? (int64_t)draw(&seed, MAX_GHOSTS) : 0;
        f->ghosts[r] = malloc((size_t)(f->nghosts[r] + 1) * sizeof(root));
        for (int64_t k = 0; k < f->nghosts[r];) {
            int rank = (int)draw(&seed, (uint64_t)test_world);
            if (f->nowned[rank]) {
                f->ghosts[r][k++] = (root){rank, (int64_t)draw(&seed, (uint64_t)f->nowned[rank])};
            }
        }
    }
}

lierne_status forest_plan(lierne_plan **plan, lierne_context *context, const forest *f,
                          const shape *s, lierne_graph_algorithm algorithm, bool accumulate) {
    int32_t rank[MAX_GHOSTS];
    int64_t row[MAX_GHOSTS];
    for (int64_t k = 0; k < f->nghosts[test_rank]; k++) {
        rank[k] = f->ghosts[test_rank][k].rank;
        row[k] = f->ghosts[test_rank][k].row;
    }
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = f->nowned[test_rank],
                                   .nghosts = f->nghosts[test_rank],
                                   .rank = rank,
                                   .row = row,
                                   .dtype = s->dtype,
                                   .width = s->width,
                                   .stride = s->stride,
                                   .algorithm = algorithm,
                                   .accumulate = accumulate};
    return lierne_plan_create_references(plan, context, &spec);
}

void forest_forward(const forest *f, const shape *s, int rank, double *ghosts) {
    for (int64_t i = 0; i < f->nghosts[rank] * s->width; i++) {
        const root *g = &f->ghosts[rank][i / s->width];
        ghosts[i] = shape_cell(s, VALUES, g->rank, g->row, i % s->width);
    }
}

/* A number that may not be there yet. */
typedef struct contribution {
    bool there;
    double value;
} contribution;

static void contribution_add(contribution *to, lierne_dtype dtype, lierne_reduction op,
                             double value) {
    to->value = to->there ? fold(dtype, op, to->value, value) : value;
    to->there = true;
}

void forest_reduce(const forest *f, const shape *s, lierne_reduction op, array before,
                   const int64_t *ghosts_at, int rank, double *owned) {
    size_t n = (size_t)(f->nowned[rank] * s->width), size = (n + 1) * sizeof(contribution);
    contribution *sum = malloc(size), *part = malloc(size);
    for (size_t i = 0; i < n; i++) {
        int64_t row = (int64_t)i / s->width, col = (int64_t)i % s->width;
        bool there = before != NOTHING;
        sum[i] = (contribution){there, there ? shape_cell(s, before, rank, row, col) : 0};
    }
    for (int q = 0; q < f->world; q++) {
        memset(part, 0, size);
        for (int64_t k = 0; k < f->nghosts[q]; k++) {
            const root *g = &f->ghosts[q][k];
            for (int64_t c = 0; c < s->width && g->rank == rank; c++) {
                int64_t row = (ghosts_at ? ghosts_at[q] : 0) + k;
                contribution_add(&part[g->row * s->width + c], s->dtype, op,
                                 shape_cell(s, GRADIENTS, q, row, c));
            }
        }
        for (size_t i = 0; i < n; i++) {
            if (part[i].there) {
                contribution_add(&sum[i], s->dtype, op, stored(s->dtype, part[i].value));
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        owned[i] = stored(s->dtype, sum[i].value);
    }
    free(sum), free(part);
}

/* The sum of what the first n ghosts of a rank add to a row; each rounds where `each`, else the sum
 * does. */
static contribution sum_of_ghosts(const forest *f, const shape *s, int rank, int64_t n,
                                  const root *of, int64_t col, bool each) {
    contribution sum = {0};
    for (int64_t k = 0; k < n; k++) {
        const root *g = &f->ghosts[rank][k];
        if (g->rank == of->rank && g->row == of->row) {
            contribution_add(&sum, s->dtype, LIERNE_REDUCTION_SUM,
                             shape_cell(s, GRADIENTS, rank, k, col));
            sum.value = each ? stored(s->dtype, sum.value) : sum.value;
        }
    }
    sum.value = stored(s->dtype, sum.value);
    return sum;
}

static void fetch_add(contribution *to, lierne_dtype dtype, contribution by) {
    if (by.there) {
        contribution_add(to, dtype, LIERNE_REDUCTION_SUM, by.value);
        to->value = stored(dtype, to->value);
    }
}

void forest_fetch(const forest *f, const shape *s, int rank, double *cells) {
    forest_reduce(f, s, LIERNE_REDUCTION_SUM, BEFORE, NULL, rank, cells);
    cells += f->nowned[rank] * s->width;
    for (int64_t i = 0; i < f->nghosts[rank] * s->width; i++) {
        int64_t k = i / s->width, col = i % s->width;
        const root *g = &f->ghosts[rank][k];
        contribution at = {true, shape_cell(s, BEFORE, g->rank, g->row, col)};
        for (int q = 0; q < rank; q++) {
            fetch_add(&at, s->dtype, sum_of_ghosts(f, s, q, f->nghosts[q], g, col, false));
        }
        fetch_add(&at, s->dtype, sum_of_ghosts(f, s, rank, k, g, col, true));
        cells[i] = at.value;
    }
}

void forest_check(lierne_plan *plan, const forest *f, const shape *s, bool accumulate,
                  bool transposed, const char *what) {
    int64_t nowned = f->nowned[test_rank], nghosts = f->nghosts[test_rank], sizes[2];
    lierne_direction there = transposed ? LIERNE_DIRECTION_ADJOINT : LIERNE_DIRECTION_FORWARD;
    lierne_direction back = transposed ? LIERNE_DIRECTION_FORWARD : LIERNE_DIRECTION_ADJOINT;
    buffer x = buffer_new(s, nowned), y = buffer_new(s, nghosts), fx = buffer_new(s, nghosts);
    buffer fy = buffer_new(s, nowned), empty = buffer_new(s, nghosts);
    buffer before = buffer_new(s, nowned);
    double *cells = malloc((size_t)((nowned + nghosts) * s->width + 1) * sizeof *cells);
    buffer_fill(s, &x, 0, nowned, VALUES, test_rank);
    buffer_fill(s, &y, 0, nghosts, GRADIENTS, test_rank);
    forest_forward(f, s, test_rank, cells);
    buffer_set(s, &fx, 0, nghosts, cells);
    forest_reduce(f, s, LIERNE_REDUCTION_SUM, accumulate ? BEFORE : NOTHING, NULL, test_rank,
                  cells);
    buffer_set(s, &fy, 0, nowned, cells);
    if (accumulate) {
        buffer_fill(s, &before, 0, nowned, BEFORE, test_rank);
    }
    lierne_plan_get_elements(&sizes[0], &sizes[1], plan, there);
    CHECK(sizes[0] <= nowned * s->stride && sizes[1] <= nghosts * s->stride,
          "%s: %lld to %lld elements", what, (long long)sizes[0], (long long)sizes[1]);
    buffer_check(plan, there, &x, &empty, &fx, what);
    buffer_check(plan, back, &y, &before, &fy, what);
    free(cells);
    buffer_free(&x), buffer_free(&y), buffer_free(&fx);
    buffer_free(&fy), buffer_free(&empty), buffer_free(&before);
}
