/* The model: see bridge_case.h. */
#include "bridge_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char why[512];
#define WRONG(...) (snprintf(why, sizeof why, __VA_ARGS__), why)

int64_t case_size(const case_grid *grid, const char *name) {
    for (int d = 0; d < grid->ndims; d++) {
        if (strcmp(grid->names[d], name) == 0) {
            return grid->sizes[d];
        }
    }
    return 1;
}

static int64_t total(const case_grid *grid) {
    int64_t n = 1;
    for (int d = 0; d < grid->ndims; d++) {
        n *= grid->sizes[d];
    }
    return n;
}

static int on(const case_grid *grid, int rank) {
    return rank >= grid->offset && rank < grid->offset + total(grid);
}

int case_coord(const case_grid *grid, int rank, const char *name) {
    int64_t rest = rank - grid->offset;
    for (int d = 0; d < grid->ndims; d++) {
        if (strcmp(grid->names[d], name) == 0) {
            return (int)(rest % grid->sizes[d]);
        }
        rest /= grid->sizes[d];
    }
    return 0;
}

/* Samples [*from, *to) of a rank's lane; none for a rank that holds nothing. */
static void lane(const bridge_case *c, const case_grid *grid, int rank, int64_t *from,
                 int64_t *to) {
    const int64_t *counts = grid == &c->src ? c->src_counts : c->dst_counts;
    int64_t lanes = case_size(grid, "dp"), mine = case_coord(grid, rank, "dp");
    int64_t stage = grid == &c->src ? case_size(grid, "pp") - 1 : 0;
    *from = *to = 0;
    if (!on(grid, rank) || case_coord(grid, rank, "pp") != stage) {
        return;
    }
    for (int64_t i = 0; i <= mine; i++) {
        int64_t n = counts ? counts[i] : c->batch / lanes + (i < c->batch % lanes);
        *from = *to;
        *to += n;
    }
}

/* Whether a rank's gradient has the value of row (g, s). */
static int owns(const bridge_case *c, int rank, int64_t g, int64_t s) {
    int64_t cp = case_size(&c->dst, "cp"), mine = case_coord(&c->dst, rank, "cp");
    switch (c->owner) {
    case LIERNE_GRADIENT_ZIGZAG:
        return cp == 1 || s / (c->sequence / (2 * cp)) == mine ||
               s / (c->sequence / (2 * cp)) == 2 * cp - 1 - mine;
    case LIERNE_GRADIENT_CONTIGUOUS: {
        int64_t base = c->sequence / cp, rest = c->sequence % cp;
        int64_t from = base * mine + (mine < rest ? mine : rest);
        return s >= from && s < from + base + (mine < rest);
    }
    case LIERNE_GRADIENT_ROWS:
        return c->rows[g * c->sequence + s] == mine;
    default:
        return 1;
    }
}

static double mix(int64_t a, int64_t b, int64_t d, int64_t e) {
    uint64_t h = (uint64_t)(a * 1000003 + b * 10007 + d * 101 + e + 12345) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return (double)(h >> 11) * 0x1p-53 * 2 - 1;
}

static double value_x(const bridge_case *c, int64_t g, int64_t s, int64_t h) {
    if (c->data == RANDOM) {
        return mix(g, s, h, -1);
    }
    return (double)((37 * g + 11 * s + 5 * h) % 101 - 50);
}

/* The summand (partial) or the value (owned) that a cp coordinate has. */
static double value_y(const bridge_case *c, int64_t g, int64_t s, int64_t h, int cp) {
    if (c->data == RANDOM) {
        return mix(g, s, h, cp);
    }
    return (double)((53 * g + 29 * s + 13 * h + 7 * cp) % 13 - 6);
}

static double sum_y(const bridge_case *c, int64_t g, int64_t s, int64_t h) {
    double sum = 0;
    for (int cp = 0; cp < case_size(&c->dst, "cp"); cp++) {
        int64_t rank = c->dst.offset, stride = 1;
        for (int d = 0; d < c->dst.ndims; d++) {
            rank += strcmp(c->dst.names[d], "cp") == 0 ? cp * stride : 0;
            stride *= c->dst.sizes[d];
        }
        sum += owns(c, (int)rank, g, s) ? value_y(c, g, s, h, cp) : 0;
    }
    return sum;
}

static uint16_t half_bits(double v, int bf16) {
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, 4);
    if (bf16) { /* truncation: exact for the small integers, any bits do for the random ones */
        return (uint16_t)(u >> 16);
    }
    if (f == 0) {
        return 0;
    }
    int e;
    double m = frexp(fabs(v), &e);
    if (e < -12) {
        return 0;
    }
    return (uint16_t)((v < 0 ? 0x8000 : 0) | (e + 14) << 10 | ((int)(m * 2048) & 0x3ff));
}

static void put(lierne_dtype dtype, void *base, int64_t i, double v) {
    switch (dtype) {
    case LIERNE_F64:
        ((double *)base)[i] = v;
        break;
    case LIERNE_F32:
        ((float *)base)[i] = (float)v;
        break;
    case LIERNE_BF16:
    case LIERNE_F16:
        ((uint16_t *)base)[i] = half_bits(v, dtype == LIERNE_BF16);
        break;
    case LIERNE_I64:
        ((int64_t *)base)[i] = (int64_t)v;
        break;
    case LIERNE_I32:
        ((int32_t *)base)[i] = (int32_t)v;
        break;
    default:
        ((int8_t *)base)[i] = (int8_t)v;
    }
}

static double get(lierne_dtype dtype, const void *base, int64_t i) {
    uint32_t u;
    float f;
    switch (dtype) {
    case LIERNE_F64:
        return ((const double *)base)[i];
    case LIERNE_F32:
        return (double)((const float *)base)[i];
    case LIERNE_BF16:
        u = (uint32_t)((const uint16_t *)base)[i] << 16;
        memcpy(&f, &u, 4);
        return (double)f;
    case LIERNE_F16:
        u = ((const uint16_t *)base)[i];
        f = (float)ldexp((u & 0x3ff) + (u & 0x7c00 ? 1024 : 0), (int)(u >> 10 & 31) - 25);
        return (double)(u & 0x8000 ? -f : f);
    case LIERNE_I64:
        return (double)((const int64_t *)base)[i];
    case LIERNE_I32:
        return ((const int32_t *)base)[i];
    case LIERNE_I8:
        return ((const int8_t *)base)[i];
    default:
        return (int8_t)((const uint8_t *)base)[i];
    }
}

int same_bits(lierne_dtype dtype, const unsigned char *a, const unsigned char *b, size_t bytes) {
    size_t size = lierne_dtype_size(dtype);
    for (size_t i = 0; i < bytes; i += size) {
        if (memcmp(a + i, b + i, size) != 0 &&
            (get(dtype, a + i, 0) != 0 || get(dtype, b + i, 0) != 0)) {
            return 0;
        }
    }
    return 1;
}

typedef enum what { INPUT, OUTPUT, GRADIENT } what; /* GRADIENT: of the output */

/* A rank's buffer, element by element: calls visit(index in buffer, g, s, h). */
typedef struct walk {
    const bridge_case *c;
    what kind;
    int rank;
    int64_t from, to;
    int64_t rows[2]; /* extents of compact rows */
    int64_t elements;
} walk;

static int compact(const bridge_case *c) {
    return c->owner != LIERNE_GRADIENT_PARTIAL && c->storage == LIERNE_COMPACT &&
           case_size(&c->dst, "cp") > 0;
}

/* Shape of the buffer by axis. */
static void shape_of(const walk *w, int64_t *shape) {
    const bridge_case *c = w->c;
    int64_t own_s = 0, own_rows = 0;
    shape[c->axis_b] = w->to - w->from;
    if (c->axis_s >= 0) {
        shape[c->axis_s] = w->to > w->from || on(&c->src, w->rank) ? c->sequence : 0;
    }
    shape[c->axis_h] = c->hidden;
    if (w->kind != GRADIENT || !compact(c) || w->to == w->from) {
        return;
    }
    for (int64_t s = 0; s < c->sequence; s++) {
        own_s += owns(c, w->rank, w->from, s);
    }
    for (int64_t g = w->from; g < w->to; g++) {
        for (int64_t s = 0; s < c->sequence; s++) {
            own_rows += owns(c, w->rank, g, s);
        }
    }
    if (c->owner == LIERNE_GRADIENT_ROWS) {
        int low = c->axis_b < c->axis_s ? c->axis_b : c->axis_s;
        shape[low] = own_rows;
        shape[c->axis_b + c->axis_s - low] = 1;
    } else {
        shape[c->axis_s] = own_s;
    }
}

static int64_t flat(const bridge_case *c, const int64_t *shape, int64_t b, int64_t s, int64_t h) {
    int naxes = c->axis_s < 0 ? 2 : 3;
    int64_t at[3] = {0}, index = 0;
    at[c->axis_b] = b;
    if (c->axis_s >= 0) {
        at[c->axis_s] = s;
    }
    at[c->axis_h] = h;
    for (int a = 0; a < naxes; a++) {
        index = index * shape[a] + at[a];
    }
    return index;
}

/* Index in the buffer of (g, s, h), or -1 if the rank has no value there. before: own rows of the
 * lane before this one; own_s: own positions of the sample before s. */
static int64_t index_of(const walk *w, const int64_t *shape, int64_t g, int64_t s, int64_t h,
                        int64_t before, int64_t own_s) {
    const bridge_case *c = w->c;
    if (w->kind == GRADIENT && !owns(c, w->rank, g, s)) {
        return -1;
    }
    if (w->kind != GRADIENT || !compact(c)) {
        return flat(c, shape, g - w->from, s, h);
    }
    if (c->owner != LIERNE_GRADIENT_ROWS) {
        return flat(c, shape, g - w->from, own_s, h);
    }
    return c->axis_b < c->axis_s ? flat(c, shape, before, 0, h) : flat(c, shape, 0, before, h);
}

/* Fills a buffer (fill) or compares it with the model. Adds products with the other vector of the
 * dot test to *dot. */
static const char *visit(const walk *w, const int64_t *shape, void *base, int fill, double *dot) {
    const bridge_case *c = w->c;
    int cp = case_coord(&c->dst, w->rank, "cp");
    int64_t before = 0;
    for (int64_t g = w->from; g < w->to; g++) {
        int64_t own_s = 0;
        for (int64_t s = 0; s < c->sequence; s++) {
            int own = w->kind != GRADIENT || owns(c, w->rank, g, s);
            for (int64_t h = 0; h < c->hidden && own; h++) {
                int64_t i = index_of(w, shape, g, s, h, before, own_s);
                double x = value_x(c, g, s, h), y = value_y(c, g, s, h, cp);
                if (fill) {
                    put(c->dtype, base, i, w->kind == GRADIENT ? y : x);
                    continue;
                }
                double got = get(c->dtype, base, i);
                double want = w->kind == OUTPUT ? x : sum_y(c, g, s, h);
                if (c->data == SMALL_INTEGERS && got != want) {
                    return WRONG("rank %d %s (%lld,%lld,%lld): expected %g, got %g", w->rank,
                                 w->kind == OUTPUT ? "forward" : "adjoint", (long long)g,
                                 (long long)s, (long long)h, want, got);
                }
                if (w->kind == OUTPUT) {
                    *dot += owns(c, w->rank, g, s) ? got * y : 0;
                } else {
                    *dot += got * x;
                }
            }
            before += own;
            own_s += own;
        }
    }
    return NULL;
}

typedef struct buffers {
    unsigned char **in;
    unsigned char **out;
    size_t *in_bytes;
    size_t *out_bytes;
    int n;
} buffers;

static void free_buffers(buffers *b) {
    for (int r = 0; r < b->n; r++) {
        free(b->in[r]);
        free(b->out[r]);
    }
    free(b->in);
    free(b->out);
    free(b->in_bytes);
    free(b->out_bytes);
}

static walk walk_of(const bridge_case *c, what kind, int rank) {
    walk w = {.c = c, .kind = kind, .rank = rank};
    int at_src = kind == INPUT;
    lane(c, at_src ? &c->src : &c->dst, rank, &w.from, &w.to);
    return w;
}

static const char *make_buffers(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                                buffers *b) {
    size_t size = lierne_dtype_size(c->dtype), n = (size_t)c->world;
    *b = (buffers){calloc(n, sizeof(void *)), calloc(n, sizeof(void *)), calloc(n, sizeof(size_t)),
                   calloc(n, sizeof(size_t)), c->world};
    for (int r = 0; r < c->world; r++) {
        int64_t in, out, shape[3] = {0}, want[3] = {0}, product = 1;
        walk w = walk_of(c, d == LIERNE_FORWARD ? INPUT : GRADIENT, r);
        int naxes = c->axis_s < 0 ? 2 : 3;
        lierne_plan_elements(plans[r], d, &in, &out);
        lierne_plan_shape(plans[r], d, NULL, shape, NULL);
        shape_of(&w, want);
        for (int a = 0; a < naxes; a++) {
            product *= shape[a];
        }
        if (product != in || (w.to > w.from && memcmp(shape, want, (size_t)naxes * 8) != 0)) {
            return WRONG("rank %d: shape %lld,%lld,%lld instead of %lld,%lld,%lld", r,
                         (long long)shape[0], (long long)shape[1], (long long)shape[2],
                         (long long)want[0], (long long)want[1], (long long)want[2]);
        }
        b->in_bytes[r] = (size_t)in * size;
        b->out_bytes[r] = (size_t)out * size;
        b->in[r] = malloc(b->in_bytes[r] + 1);
        b->out[r] = malloc(b->out_bytes[r] + 1);
        /* What the rank does not own must not be read. */
        memset(b->in[r], 0x7b, b->in_bytes[r]);
        visit(&w, shape, b->in[r], 1, NULL);
    }
    return NULL;
}

static const char *execute(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                           buffers *b) {
    lierne_request **requests = calloc((size_t)c->world, sizeof *requests);
    const char *wrong = NULL;
    for (int r = 0; r < c->world; r++) {
        memset(b->out[r], 0xa5, b->out_bytes[r]);
    }
    for (int r = 0; r < c->world && !wrong; r++) {
        lierne_status status =
            (d == LIERNE_FORWARD ? lierne_forward_begin : lierne_adjoint_begin)(
                &requests[r], plans[r], b->out[r], b->in[r], NULL);
        if (status != LIERNE_OK) {
            wrong = WRONG("begin on rank %d: %s", r, lierne_last_error());
        }
    }
    for (int r = 0; r < c->world; r++) {
        if (lierne_end(requests[r]) != LIERNE_OK && !wrong) {
            wrong = WRONG("end on rank %d: %s", r, lierne_last_error());
        }
    }
    free(requests);
    return wrong;
}

/* Replicas count once: of the ranks that differ in tp and unknown dims only, the first. */
static int first_replica(const case_grid *grid, int rank) {
    for (int d = 0; d < grid->ndims; d++) {
        const char *name = grid->names[d];
        if (strcmp(name, "dp") != 0 && strcmp(name, "cp") != 0 && strcmp(name, "pp") != 0 &&
            case_coord(grid, rank, name) != 0) {
            return 0;
        }
    }
    return 1;
}

static const char *compare(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                           buffers *b, double *dot) {
    for (int r = 0; r < c->world; r++) {
        int forward = d == LIERNE_FORWARD;
        walk w = walk_of(c, forward ? OUTPUT : INPUT, r);
        int64_t shape[3] = {0};
        double products = 0;
        lierne_plan_shape(plans[r], d, NULL, NULL, shape);
        const char *wrong = visit(&w, shape, b->out[r], 0, &products);
        if (wrong) {
            return wrong;
        }
        if (first_replica(forward ? &c->dst : &c->src, r)) {
            *dot += products;
        }
    }
    return NULL;
}

static unsigned char *keep(const buffers *b, size_t *bytes) {
    size_t n = 0;
    for (int r = 0; r < b->n; r++) {
        n += b->out_bytes[r];
    }
    unsigned char *all = malloc(n + 1), *at = all;
    for (int r = 0; r < b->n; r++) {
        memcpy(at, b->out[r], b->out_bytes[r]);
        at += b->out_bytes[r];
    }
    *bytes = n;
    return all;
}

static const char *run_direction(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                                 unsigned char **kept, size_t *bytes, double *dot) {
    buffers b;
    double again = 0;
    size_t bytes_again;
    const char *wrong = make_buffers(c, plans, d, &b);
    for (int round = 0; round < 2 && !wrong; round++) {
        wrong = execute(c, plans, d, &b);
        if (!wrong) {
            wrong = compare(c, plans, d, &b, round ? &again : dot);
        }
        if (!wrong && round == 0) {
            *kept = keep(&b, bytes);
        } else if (!wrong) {
            unsigned char *second = keep(&b, &bytes_again);
            wrong = memcmp(second, *kept, *bytes) ? WRONG("a repeat has other bits") : NULL;
            free(second);
        }
    }
    free_buffers(&b);
    return wrong;
}

static lierne_grid *make_grid(const bridge_case *c, const case_grid *g) {
    lierne_grid *grid = NULL;
    lierne_grid_spec spec = {.size = sizeof spec, .ndims = g->ndims, .names = g->names,
                             .sizes = g->sizes, .rank_offset = g->offset, .world_size = c->world};
    lierne_grid_create(&grid, &spec);
    return grid;
}

static lierne_status make_plans(const bridge_case *c, lierne_sim *sim, lierne_plan **plans,
                                case_result *result) {
    lierne_grid *src = make_grid(c, &c->src), *dst = make_grid(c, &c->dst);
    int64_t shape[3];
    shape[c->axis_b] = c->batch;
    if (c->axis_s >= 0) {
        shape[c->axis_s] = c->sequence;
    }
    shape[c->axis_h] = c->hidden;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst,
                               .naxes = c->axis_s < 0 ? 2 : 3, .shape = shape, .dtype = c->dtype,
                               .batch_axis = c->axis_b, .sequence_axis = c->axis_s,
                               .src_counts = c->src_counts, .dst_counts = c->dst_counts,
                               .algorithm = c->algorithm, .gradient_owner = c->owner,
                               .gradient_storage = c->storage, .row_owner = c->rows};
    for (int r = 0; r < c->world && result->status == LIERNE_OK; r++) {
        result->status = lierne_plan_bridge(&plans[r], lierne_sim_context(sim, r), &spec);
    }
    if (result->status != LIERNE_OK) {
        snprintf(result->message, sizeof result->message, "%s", lierne_last_error());
    }
    lierne_grid_free(src);
    lierne_grid_free(dst);
    return result->status;
}

static void count(const bridge_case *c, lierne_plan **plans, case_result *result) {
    int64_t size = (int64_t)lierne_dtype_size(c->dtype);
    for (int r = 0; r < c->world; r++) {
        lierne_report forward = {.size = sizeof forward}, adjoint = {.size = sizeof adjoint};
        lierne_plan_report(plans[r], LIERNE_FORWARD, &forward);
        lierne_plan_report(plans[r], LIERNE_ADJOINT, &adjoint);
        result->received += forward.received_bytes / size;
        result->minimum += forward.min_bytes / size;
        result->adjoint_received += adjoint.received_bytes / size;
        result->adjoint_minimum += adjoint.min_bytes / size;
    }
}

static const char *run_plans(const bridge_case *c, lierne_plan **plans, case_result *result) {
    double forward_dot = 0, adjoint_dot = 0;
    if (lierne_plan_check((const lierne_plan *const *)plans, c->world) != LIERNE_OK) {
        return WRONG("%s", lierne_last_error());
    }
    count(c, plans, result);
    const char *wrong = run_direction(c, plans, LIERNE_FORWARD, &result->forward,
                                      &result->forward_bytes, &forward_dot);
    if (!wrong) {
        wrong = run_direction(c, plans, LIERNE_ADJOINT, &result->adjoint, &result->adjoint_bytes,
                              &adjoint_dot);
    }
    if (!wrong && c->data == SMALL_INTEGERS && forward_dot != adjoint_dot) {
        return WRONG("dot test: <Fx,y> = %.17g, <x,F*y> = %.17g", forward_dot, adjoint_dot);
    }
    return wrong;
}

const char *run_case(const bridge_case *c, case_result *result) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 20, .nodes = c->nodes};
    lierne_plan **plans = calloc((size_t)c->world, sizeof *plans);
    lierne_sim *sim = NULL;
    const char *wrong = NULL;
    *result = (case_result){0};
    if (lierne_sim_create(&sim, c->world, &context) != LIERNE_OK) {
        wrong = WRONG("%s", lierne_last_error());
    } else if (make_plans(c, sim, plans, result) == LIERNE_OK) {
        wrong = run_plans(c, plans, result);
    }
    for (int r = 0; r < c->world; r++) {
        lierne_plan_free(plans[r]);
    }
    if (lierne_sim_free(sim) != LIERNE_OK && !wrong) {
        wrong = WRONG("%s", lierne_last_error());
    }
    free(plans);
    return wrong;
}

void free_result(case_result *result) {
    free(result->forward);
    free(result->adjoint);
    *result = (case_result){0};
}
