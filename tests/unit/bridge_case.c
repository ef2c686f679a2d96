/* The model: see bridge_case.h. */
#include "unit/bridge_case.h"

#include "routing.h"

#include "route_executor.h"
#include "streams.h"
#include "transports.h"

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

typedef enum what { INPUT, OUTPUT, GRADIENT } what; /* GRADIENT: of the output */

/* A rank's buffer. */
typedef struct walk {
    const bridge_case *c;
    what kind;
    int rank;
} walk;

static const case_grid *grid_of_walk(const walk *w) {
    return w->kind == INPUT ? &w->c->src : &w->c->dst;
}

/* Whether the buffer has cp ownership: the gradient has, and an output that delivers own rows. */
static int owned_kind(const walk *w) {
    return w->kind == GRADIENT || (w->kind == OUTPUT && w->c->output == LIERNE_OUTPUT_SHARDED);
}

/* How dim d cuts: REPLICATE, SHARD or SHARD_ZIGZAG of the axis (0 b, 1 s, 2 h) that it names. */
static lierne_placement cut_of(const walk *w, int d) {
    const bridge_case *c = w->c;
    const char *name = grid_of_walk(w)->names[d];
    lierne_placement none = {.kind = LIERNE_REPLICATE};
    if (strcmp(name, "dp") == 0) {
        return (lierne_placement){.kind = LIERNE_SHARD,
                                  .axis = 0,
                                  .counts = w->kind == INPUT ? c->src_counts : c->dst_counts};
    }
    if (strcmp(name, "cp") == 0 && w->kind != INPUT) {
        if (owned_kind(w) && c->owner == LIERNE_GRADIENT_ZIGZAG) {
            return (lierne_placement){.kind = LIERNE_SHARD_ZIGZAG, .axis = 1};
        }
        if (owned_kind(w) && c->owner == LIERNE_GRADIENT_CONTIGUOUS) {
            return (lierne_placement){.kind = LIERNE_SHARD, .axis = 1};
        }
        return none;
    }
    if (!c->placed || strcmp(name, "pp") == 0) {
        return none;
    }
    return w->kind == INPUT ? c->src_placed[d] : c->dst_placed[d];
}

/* Follows position *i of an axis of length *n through one cut; false if the rank does not have it.
 * Afterwards *i is its position in the rank's part, *n the length of the part. */
static int follow(const lierne_placement *p, int64_t parts, int64_t mine, int64_t *i, int64_t *n) {
    if (p->kind == LIERNE_SHARD_ZIGZAG && parts > 1) {
        int64_t chunk = *n / (2 * parts), at = *i / chunk;
        *n = 2 * chunk;
        if (at != mine && at != 2 * parts - 1 - mine) {
            return 0;
        }
        *i = *i % chunk + (at == mine ? 0 : chunk);
    } else if (p->kind == LIERNE_SHARD) {
        int64_t from = 0, size = 0;
        for (int64_t k = 0; k <= mine; k++) {
            from += size;
            size = p->counts ? p->counts[k] : *n / parts + (k < *n % parts);
        }
        int64_t at = *i - from;
        *n = size;
        if (at < 0 || at >= size) {
            return 0;
        }
        *i = at;
    }
    return 1;
}

/* Position of index i of an axis in the rank's part, or -1; the part's length in *n. The slowest
 * dim cuts first. */
static int64_t locate(const walk *w, int axis, int64_t i, int64_t *n) {
    const case_grid *g = grid_of_walk(w);
    const int64_t size[3] = {w->c->batch, w->c->sequence, w->c->hidden};
    int has = 1;
    *n = size[axis];
    for (int d = g->ndims - 1; d >= 0; d--) {
        lierne_placement p = cut_of(w, d);
        if (p.kind != LIERNE_REPLICATE && p.axis == axis) {
            int64_t keep = i;
            int mine = case_coord(g, w->rank, g->names[d]);
            has &= follow(&p, g->sizes[d], mine, &i, n);
            i = has ? i : keep;
        }
    }
    return has ? i : -1;
}

static int holds_anything(const walk *w) {
    const case_grid *g = grid_of_walk(w);
    int64_t stage = w->kind == INPUT ? case_size(g, "pp") - 1 : 0;
    return on(g, w->rank) && case_coord(g, w->rank, "pp") == stage;
}

/* Whether a row map leaves row (g, s) to this rank. */
static int mapped(const walk *w, int64_t g, int64_t s) {
    const bridge_case *c = w->c;
    return !owned_kind(w) || c->owner != LIERNE_GRADIENT_ROWS ||
           c->rows[g * c->sequence + s] == case_coord(&c->dst, w->rank, "cp");
}

/* Stored whole along the sequence, or in parts. A row map cuts nothing out of it: it is as long as
 * the other dims leave it. */
static int full(const walk *w) {
    return owned_kind(w) && w->c->owner != LIERNE_GRADIENT_PARTIAL &&
           w->c->owner != LIERNE_GRADIENT_ROWS && w->c->storage == LIERNE_FULL;
}

static int merged_rows(const walk *w) {
    return owned_kind(w) && w->c->owner == LIERNE_GRADIENT_ROWS && w->c->storage == LIERNE_COMPACT;
}

/* Index in a buffer of this shape by axis b, s, h. */
static int64_t flat(const bridge_case *c, const int64_t *extent, int64_t b, int64_t s, int64_t h) {
    const int64_t at[3] = {b, s, h};
    int order[3], n = 0;
    int64_t index = 0;
    if (c->axis_s < 0) { /* rows: b and s share an axis */
        int first = c->row_order == LIERNE_SAMPLE_MAJOR ? 0 : 1;
        int h_first = c->axis_h == 0;
        order[n++] = h_first ? 2 : first;
        order[n++] = h_first ? first : 1 - first;
        order[n++] = h_first ? 1 - first : 2;
    } else {
        order[c->axis_b] = 0;
        order[c->axis_s] = 1;
        order[c->axis_h] = 2;
    }
    for (int a = 0; a < 3; a++) {
        index = index * extent[order[a]] + at[order[a]];
    }
    return index;
}

/* The rank's extents by b, s, h; merged rows: all of them under b or s, whichever is outer. */
static void extents(const walk *w, int64_t *extent) {
    const bridge_case *c = w->c;
    for (int a = 0; a < 3; a++) {
        locate(w, a, 0, &extent[a]);
    }
    if (full(w)) {
        extent[1] = c->sequence;
    }
    if (merged_rows(w)) {
        int64_t own = 0, ignored;
        for (int64_t g = 0; g < c->batch; g++) {
            for (int64_t s = 0; s < c->sequence && locate(w, 0, g, &ignored) >= 0; s++) {
                own += mapped(w, g, s) && locate(w, 1, s, &ignored) >= 0;
            }
        }
        int outer = c->axis_b < c->axis_s ? 0 : 1;
        extent[outer] = own;
        extent[1 - outer] = 1;
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

/* The contribution (partial) or the value (owned) that a cp coordinate has. */
static double value_y(const bridge_case *c, int64_t g, int64_t s, int64_t h, int cp) {
    if (c->data == RANDOM) {
        return mix(g, s, h, cp);
    }
    return (double)((53 * g + 29 * s + 13 * h + 7 * cp) % 13 - 6);
}

/* The complete gradient of an element: of contributions their sum, else the owner's value. */
static double sum_y(const bridge_case *c, int64_t g, int64_t s, int64_t h) {
    double sum = 0;
    for (int cp = 0; cp < case_size(&c->dst, "cp"); cp++) {
        int64_t rank = c->dst.offset, stride = 1, n, keep = s;
        for (int d = 0; d < c->dst.ndims; d++) {
            rank += strcmp(c->dst.names[d], "cp") == 0 ? cp * stride : 0;
            stride *= c->dst.sizes[d];
        }
        walk w = {.c = c, .kind = GRADIENT, .rank = (int)rank};
        /* Ownership over cp alone: whatever other dims cut, one of their ranks has it. */
        int owns = mapped(&w, g, s);
        n = c->sequence;
        for (int d = c->dst.ndims - 1; d >= 0; d--) {
            lierne_placement p = cut_of(&w, d);
            if (p.kind == LIERNE_REPLICATE || p.axis != 1) {
                continue;
            }
            if (strcmp(c->dst.names[d], "cp") == 0) {
                owns &= follow(&p, c->dst.sizes[d], cp, &keep, &n);
            } else { /* go along with the rank that has it */
                for (int64_t k = 0; k < c->dst.sizes[d]; k++) {
                    int64_t i = keep, m = n;
                    if (follow(&p, c->dst.sizes[d], k, &i, &m)) {
                        keep = i, n = m;
                        break;
                    }
                }
            }
        }
        sum += owns ? value_y(c, g, s, h, cp) : 0;
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

/* Whether a dst rank's gradient covers (g, s, h), for the dot test of an output buffer. */
static int covers(const bridge_case *c, int rank, int64_t g, int64_t s, int64_t h) {
    walk w = {.c = c, .kind = GRADIENT, .rank = rank};
    int64_t n;
    return mapped(&w, g, s) && locate(&w, 0, g, &n) >= 0 && locate(&w, 1, s, &n) >= 0 &&
           locate(&w, 2, h, &n) >= 0;
}

static const char *check_element(const walk *w, double got, int64_t g, int64_t s, int64_t h,
                                 double *dot) {
    const bridge_case *c = w->c;
    double x = value_x(c, g, s, h);
    double want = w->kind == OUTPUT ? x : sum_y(c, g, s, h);
    if (c->data == SMALL_INTEGERS && got != want) {
        return WRONG("rank %d %s (%lld,%lld,%lld): expected %g, got %g", w->rank,
                     w->kind == OUTPUT ? "forward" : "adjoint", (long long)g, (long long)s,
                     (long long)h, want, got);
    }
    if (w->kind == INPUT) {
        *dot += got * x;
    } else if (covers(c, w->rank, g, s, h)) {
        *dot += got * value_y(c, g, s, h, case_coord(&c->dst, w->rank, "cp"));
    }
    return NULL;
}

/* Fills a buffer (fill) or compares it with the model. Adds products with the other vector of the
 * dot test to *dot. */
static const char *visit(const walk *w, void *base, int fill, double *dot) {
    const bridge_case *c = w->c;
    int cp = case_coord(&c->dst, w->rank, "cp");
    int64_t extent[3], n, rows = 0;
    if (!holds_anything(w)) {
        return NULL;
    }
    extents(w, extent);
    for (int64_t g = 0; g < c->batch; g++) {
        int64_t b = locate(w, 0, g, &n);
        for (int64_t s = 0; s < c->sequence && b >= 0; s++) {
            int64_t at_s = locate(w, 1, s, &n);
            if (at_s < 0 || !mapped(w, g, s)) {
                continue;
            }
            at_s = full(w) ? s : at_s;
            for (int64_t h = 0; h < c->hidden; h++) {
                int64_t at_h = locate(w, 2, h, &n);
                if (at_h < 0) {
                    continue;
                }
                int outer_b = c->axis_b < c->axis_s;
                int64_t i = !merged_rows(w) ? flat(c, extent, b, at_s, at_h)
                            : outer_b       ? flat(c, extent, rows, 0, at_h)
                                            : flat(c, extent, 0, rows, at_h);
                if (fill) {
                    put(c->dtype, base, i,
                        w->kind == GRADIENT ? value_y(c, g, s, h, cp) : value_x(c, g, s, h));
                    continue;
                }
                const char *wrong = check_element(w, get(c->dtype, base, i), g, s, h, dot);
                if (wrong) {
                    return wrong;
                }
            }
            rows++;
        }
    }
    return NULL;
}

void case_fill(const bridge_case *c, int rank, lierne_direction d, void *in) {
    walk w = {.c = c, .kind = d == LIERNE_FORWARD ? INPUT : GRADIENT, .rank = rank};
    visit(&w, in, 1, NULL);
}

static int first_replica(const walk *w);
const char *case_check(const bridge_case *c, int rank, lierne_direction d, void *out, double *dot) {
    walk w = {.c = c, .kind = d == LIERNE_FORWARD ? OUTPUT : INPUT, .rank = rank};
    double products = 0;
    const char *wrong = visit(&w, out, 0, &products);
    *dot += first_replica(&w) ? products : 0;
    return wrong;
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

/* A buffer's shape and number of elements must be those of the model. */
static const char *check_shape(const walk *w, const char *name, const int64_t *shape, int naxes,
                               int64_t elements) {
    const bridge_case *c = w->c;
    int64_t extent[3] = {0}, product = 1;
    if (holds_anything(w)) {
        extents(w, extent);
    }
    for (int a = 0; a < naxes; a++) {
        product *= shape[a];
    }
    int wrong = elements != extent[0] * extent[1] * extent[2] || elements != product;
    if (c->axis_s >= 0 && elements > 0) {
        wrong |= shape[c->axis_b] != extent[0] || shape[c->axis_s] != extent[1] ||
                 shape[c->axis_h] != extent[2];
    }
    return !wrong ? NULL
                  : WRONG("rank %d: %s has %lld elements, shape %lld,%lld,%lld, instead of %lld x "
                          "%lld x %lld",
                          w->rank, name, (long long)elements, (long long)shape[0],
                          (long long)shape[1], (long long)shape[2], (long long)extent[0],
                          (long long)extent[1], (long long)extent[2]);
}

static const char *check_shapes(const bridge_case *c, const lierne_plan *plan, int r,
                                lierne_direction d) {
    int64_t in, out, in_shape[4] = {0}, out_shape[4] = {0};
    int naxes = 0;
    walk from = {.c = c, .kind = d == LIERNE_FORWARD ? INPUT : GRADIENT, .rank = r};
    walk to = {.c = c, .kind = d == LIERNE_FORWARD ? OUTPUT : INPUT, .rank = r};
    lierne_plan_get_elements(&in, &out, plan, d);
    lierne_plan_get_shape(&naxes, in_shape, out_shape, plan, d);
    const char *wrong = check_shape(&from, d ? "the gradient" : "the input", in_shape, naxes, in);
    return wrong
               ? wrong
               : check_shape(&to, d ? "the input's gradient" : "the output", out_shape, naxes, out);
}

/* A gradient that is not compact has the shape of the output. */
static const char *compare_shapes(const bridge_case *c, const lierne_plan *plan, int r) {
    int64_t output[4] = {0}, gradient[4] = {0}, elements, of_gradient;
    lierne_plan_get_shape(NULL, NULL, output, plan, LIERNE_FORWARD);
    lierne_plan_get_shape(NULL, gradient, NULL, plan, LIERNE_ADJOINT);
    lierne_plan_get_elements(NULL, &elements, plan, LIERNE_FORWARD);
    lierne_plan_get_elements(&of_gradient, NULL, plan, LIERNE_ADJOINT);
    int same = memcmp(output, gradient, sizeof output) == 0 && elements == of_gradient;
    int must = c->storage == LIERNE_FULL || c->output == LIERNE_OUTPUT_SHARDED;
    return same || !must
               ? NULL
               : WRONG("rank %d: the output has shape %lld,%lld,%lld, its gradient "
                       "%lld,%lld,%lld",
                       r, (long long)output[0], (long long)output[1], (long long)output[2],
                       (long long)gradient[0], (long long)gradient[1], (long long)gradient[2]);
}

static const char *make_buffers(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                                buffers *b) {
    size_t size = lierne_dtype_size(c->dtype), n = (size_t)c->world;
    *b = (buffers){calloc(n, sizeof(void *)), calloc(n, sizeof(void *)), calloc(n, sizeof(size_t)),
                   calloc(n, sizeof(size_t)), c->world};
    for (int r = 0; r < c->world; r++) {
        int64_t in, out;
        const char *wrong = compare_shapes(c, plans[r], r);
        wrong = wrong ? wrong : check_shapes(c, plans[r], r, d);
        if (wrong) {
            return wrong;
        }
        lierne_plan_get_elements(&in, &out, plans[r], d);
        b->in_bytes[r] = (size_t)in * size;
        b->out_bytes[r] = (size_t)out * size;
        b->in[r] = malloc(b->in_bytes[r] + 1);
        b->out[r] = malloc(b->out_bytes[r] + 1);
        /* What the rank does not own must not be read. */
        memset(b->in[r], 0x7b, b->in_bytes[r]);
        case_fill(c, r, d, b->in[r]);
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
            (d == LIERNE_FORWARD ? lierne_forward_begin : lierne_adjoint_begin)(&requests[r],
                                                                                plans[r], b->out[r],
                                                                                b->in[r], NULL);
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

/* Replicas count once: of the ranks that differ in dims that cut nothing, the first. A destination
 * cp rank is never a replica: its gradient is a contribution, or its own rows. */
static int first_replica(const walk *w) {
    const case_grid *grid = grid_of_walk(w);
    for (int d = 0; d < grid->ndims; d++) {
        const char *name = grid->names[d];
        int counts = cut_of(w, d).kind != LIERNE_REPLICATE || strcmp(name, "pp") == 0 ||
                     (w->kind != INPUT && strcmp(name, "cp") == 0);
        if (!counts && case_coord(grid, w->rank, name) != 0) {
            return 0;
        }
    }
    return 1;
}

static const char *compare(const bridge_case *c, lierne_direction d, buffers *b, double *dot) {
    for (int r = 0; r < c->world; r++) {
        const char *wrong = case_check(c, r, d, b->out[r], dot);
        if (wrong) {
            return wrong;
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
            wrong = compare(c, d, &b, round ? &again : dot);
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
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = g->ndims,
                             .names = g->names,
                             .sizes = g->sizes,
                             .rank_offset = g->offset,
                             .world_size = c->world};
    lierne_grid_create(&grid, &spec);
    return grid;
}

/* Where the model's axes are in the tensor: a 2-D tensor of rows is planned as 3-D. */
static void set_placements(const bridge_case *c, const lierne_placement *from,
                           lierne_placement *to) {
    int where[3] = {c->axis_b, c->axis_s, c->axis_h};
    for (int d = 0; d < 6; d++) {
        to[d] = from[d];
        to[d].axis = where[from[d].axis];
    }
}

/* A spec of the case, and what it points to. */
typedef struct case_spec {
    lierne_bridge_spec spec;
    lierne_grid *src;
    lierne_grid *dst;
    lierne_placement src_placed[6];
    lierne_placement dst_placed[6];
    int64_t shape[3];
} case_spec;

static void open_spec(const bridge_case *c, case_spec *s) {
    int rows = c->axis_s < 0 && c->sequence > 1;
    s->src = make_grid(c, &c->src);
    s->dst = make_grid(c, &c->dst);
    s->shape[c->axis_b] = rows ? c->batch * c->sequence : c->batch;
    if (c->axis_s >= 0) {
        s->shape[c->axis_s] = c->sequence;
        set_placements(c, c->src_placed, s->src_placed);
        set_placements(c, c->dst_placed, s->dst_placed);
    }
    s->shape[c->axis_h] = c->hidden;
    s->spec = (lierne_bridge_spec){.size = sizeof s->spec,
                                   .src = s->src,
                                   .dst = s->dst,
                                   .naxes = c->axis_s < 0 ? 2 : 3,
                                   .shape = s->shape,
                                   .dtype = c->dtype,
                                   .batch_axis = c->axis_b,
                                   .sequence_axis = c->axis_s,
                                   .src_counts = c->src_counts,
                                   .dst_counts = c->dst_counts,
                                   .gradient_owner = c->owner,
                                   .gradient_storage = c->storage,
                                   .row_owner = c->rows,
                                   .src_placements = c->placed ? s->src_placed : NULL,
                                   .dst_placements = c->placed ? s->dst_placed : NULL,
                                   .output = c->output,
                                   .rows_per_sample = rows ? c->sequence : 0,
                                   .row_order = c->row_order,
                                   .routing = c->routing ? c->routing : test_routing()};
}

static void close_spec(case_spec *s) {
    lierne_grid_destroy(s->src);
    lierne_grid_destroy(s->dst);
}

lierne_status case_plan_rank(const bridge_case *c, lierne_context *context, lierne_plan **plan) {
    case_spec s;
    open_spec(c, &s);
    lierne_status status = test_plan_bridge(plan, context, &s.spec, c->algorithm);
    close_spec(&s);
    return status;
}

lierne_status case_bound(const bridge_case *c, lierne_direction d, int64_t *received,
                         int64_t *sent) {
    case_spec s;
    lierne_layout *src, *dst, *gradient;
    open_spec(c, &s);
    lierne_status status = lierne_bridge_layouts_create(&src, &dst, &gradient, &s.spec);
    if (status == LIERNE_OK) {
        status = lierne_redistribute_get_bound(received, sent, d ? gradient : src, d ? src : dst);
    }
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_layout_destroy(gradient);
    close_spec(&s);
    return status;
}

static lierne_status make_plans(const bridge_case *c, lierne_sim *sim, lierne_plan **plans,
                                case_result *result) {
    for (int r = 0; r < c->world && result->status == LIERNE_OK; r++) {
        result->status = case_plan_rank(c, lierne_sim_get_context(sim, r), &plans[r]);
    }
    if (result->status != LIERNE_OK) {
        snprintf(result->message, sizeof result->message, "%s", lierne_last_error());
    }
    return result->status;
}

static void count(const bridge_case *c, lierne_plan **plans, case_result *result) {
    int64_t size = (int64_t)lierne_dtype_size(c->dtype);
    for (int r = 0; r < c->world; r++) {
        lierne_report forward = {.size = sizeof forward}, adjoint = {.size = sizeof adjoint};
        lierne_plan_get_report(&forward, plans[r], LIERNE_FORWARD);
        lierne_plan_get_report(&adjoint, plans[r], LIERNE_ADJOINT);
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
    return wrong ? wrong : route_compare(plans, c->world);
}

const char *run_case(const bridge_case *c, case_result *result) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 120, .nodes = c->nodes};
    lierne_plan **plans = calloc((size_t)c->world, sizeof *plans);
    lierne_sim *sim = NULL;
    const char *wrong = NULL;
    test_transports *transports = NULL;
    test_streams *streams = NULL;
    *result = (case_result){0};
    if (lierne_sim_create(&sim, c->world, &context) == LIERNE_OK) {
        transports = test_transports_attach_asked(sim, c->world);
        streams = test_streams_attach_asked(sim, c->world);
    }
    if (!sim) {
        wrong = WRONG("%s", lierne_last_error());
    } else if (make_plans(c, sim, plans, result) == LIERNE_OK) {
        wrong = run_plans(c, plans, result);
    }
    for (int r = 0; r < c->world; r++) {
        lierne_plan_destroy(plans[r]);
    }
    if (lierne_sim_destroy(sim) != LIERNE_OK && !wrong) {
        wrong = WRONG("%s", lierne_last_error());
    }
    test_streams_destroy(streams);
    if (!test_transports_destroy(transports) && !wrong) {
        wrong = WRONG("messages are left");
    }
    free(plans);
    return wrong;
}

void free_result(case_result *result) {
    free(result->forward);
    free(result->adjoint);
    *result = (case_result){0};
}
