/* The executor follows include/lierne/route.h to the letter and takes the worst order that it
 * allows: a rank's copies come before anything arrives, messages arrive last to first. Scratch and
 * output start as poison. */
#include "route_executor.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char problem[300];

static const char *wrong(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    return problem;
}

/* One rank while its route runs. */
typedef struct rank_memory {
    const lierne_route *route;
    size_t size;
    unsigned char *buffer[LIERNE_BUFFER_COUNT]; /* LIERNE_BUFFER_IN is never written */
} rank_memory;

int64_t route_block_elements(const lierne_block *block) {
    int64_t n = 1;
    for (int d = 0; d < block->ndims; d++) {
        n *= block->count[d];
    }
    return n;
}

int64_t route_block_element(const lierne_block *block, int64_t i) {
    int64_t at = block->offset;
    for (int d = block->ndims - 1; d >= 0; d--) {
        int64_t index = i % block->count[d];
        at += (d == 0 && block->rows ? block->rows[index] : index) * block->stride[d];
        i /= block->count[d];
    }
    return at;
}

static unsigned char *address(const rank_memory *r, const lierne_place *place, int64_t i) {
    return r->buffer[place->buffer] + (size_t)route_block_element(&place->block, i) * r->size;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float read_16(lierne_dtype dtype, const unsigned char *at) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    if (dtype == LIERNE_DTYPE_BF16) {
        return float_of_bits((uint32_t)bits << 16);
    }
    float magnitude = (bits >> 10 & 31) == 0
                          ? ldexpf((float)(bits & 1023), -24)
                          : ldexpf((float)(1024 + (bits & 1023)), (bits >> 10 & 31) - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* To nearest, ties to even: values of this test are neither subnormal nor too large in bf16. */
static void write_16(lierne_dtype dtype, unsigned char *at, float value) {
    int exponent;
    uint16_t bits;
    if (dtype == LIERNE_DTYPE_BF16) {
        uint32_t whole;
        memcpy(&whole, &value, sizeof whole);
        bits = (uint16_t)((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
    } else {
        frexpf(value, &exponent);
        int step = value == 0 || exponent - 11 < -24 ? -24 : exponent - 11;
        float units = nearbyintf(ldexpf(fabsf(value), -step)); /* 2048 carries into the exponent */
        uint32_t base = step == -24 ? 0 : (uint32_t)(step + 24) << 10;
        bits = (uint16_t)((signbit(value) ? 0x8000u : 0) | (base + (uint32_t)units));
    }
    memcpy(at, &bits, sizeof bits);
}

/* One combination per reduction of an operation. */
#define COMBINE(r, a, b)                                                                           \
    ((r) == LIERNE_REDUCTION_SUM    ? (a) + (b)                                                    \
     : (r) == LIERNE_REDUCTION_PROD ? (a) * (b)                                                    \
     : (r) == LIERNE_REDUCTION_MAX  ? ((a) > (b) ? (a) : (b))                                      \
                                    : ((a) < (b) ? (a) : (b)))

/* bits: the type in which the sum wraps, unsigned for integers; compared: the one that has order.
 */
#define COMBINE_AS(bits, compared)                                                                 \
    do {                                                                                           \
        bits a, b;                                                                                 \
        memcpy(&a, sum, sizeof a);                                                                 \
        memcpy(&b, value, sizeof b);                                                               \
        bool extreme =                                                                             \
            op->reduction == LIERNE_REDUCTION_MAX || op->reduction == LIERNE_REDUCTION_MIN;        \
        a = extreme ? (bits)COMBINE(op->reduction, (compared)a, (compared)b)                       \
                    : (bits)COMBINE(op->reduction, a, b);                                          \
        memcpy(sum, &a, sizeof a);                                                                 \
    } while (0)

/* sum = sum and value, of types that are combined as they are. */
static void combine(const lierne_op *op, lierne_dtype dtype, unsigned char *sum,
                    const unsigned char *value) {
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        COMBINE_AS(double, double);
        break;
    case LIERNE_DTYPE_F32:
        COMBINE_AS(float, float);
        break;
    case LIERNE_DTYPE_I64:
        COMBINE_AS(uint64_t, int64_t);
        break;
    case LIERNE_DTYPE_I32:
        COMBINE_AS(uint32_t, int32_t);
        break;
    case LIERNE_DTYPE_I8:
        COMBINE_AS(uint8_t, int8_t);
        break;
    default:
        COMBINE_AS(uint8_t, uint8_t);
        break;
    }
}

static void divide(lierne_dtype dtype, unsigned char *sum, int64_t divisor) {
    double d;
    float f;
    if (dtype == LIERNE_DTYPE_F64) {
        memcpy(&d, sum, sizeof d);
        d /= (double)divisor;
        memcpy(sum, &d, sizeof d);
    } else {
        memcpy(&f, sum, sizeof f);
        f /= (float)divisor;
        memcpy(sum, &f, sizeof f);
    }
}

/* One element of an operation: n sources, at least one. */
static void combine_sources(const lierne_op *op, lierne_dtype dtype, size_t size, unsigned char *to,
                            const unsigned char *const *from, size_t n) {
    unsigned char sum[8];
    if ((n == 1 && op->divisor <= 1) || (dtype != LIERNE_DTYPE_BF16 && dtype != LIERNE_DTYPE_F16)) {
        memcpy(sum, from[0], size);
        for (size_t s = 1; s < n; s++) {
            combine(op, dtype, sum, from[s]);
        }
        if (op->divisor > 1) {
            divide(dtype, sum, op->divisor);
        }
        memcpy(to, sum, size);
        return;
    }
    float total = read_16(dtype, from[0]);
    for (size_t s = 1; s < n; s++) {
        float value = read_16(dtype, from[s]);
        total = COMBINE(op->reduction, total, value);
    }
    write_16(dtype, to, op->divisor > 1 ? total / (float)op->divisor : total);
}

static void run_op(const rank_memory *r, const lierne_op *op) {
    const unsigned char **from = calloc(op->from.count + 1, sizeof *from);
    for (int64_t i = 0; i < route_block_elements(&op->to.block); i++) {
        unsigned char *to = address(r, &op->to, i);
        size_t n = 0;
        if (op->accumulate && r->route->accumulates) {
            from[n++] = to;
        }
        for (size_t s = 0; s < op->from.count; s++) {
            from[n++] = address(r, &op->from.at[s], i);
        }
        if (n == 0) {
            memset(to, 0, r->size);
        } else {
            combine_sources(op, r->route->dtype, r->size, to, from, n);
        }
    }
    free(from);
}

static void run_ops(const rank_memory *r, const lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        run_op(r, &ops->at[o]);
    }
}

/* Between a message's blocks and the bytes that travel. */
static void move(const rank_memory *r, const lierne_message *m, unsigned char *bytes,
                 bool arrives) {
    for (size_t b = 0; b < m->blocks.count; b++) {
        const lierne_block *block = &m->blocks.at[b];
        for (int64_t i = 0; i < route_block_elements(block); i++, bytes += r->size) {
            unsigned char *at =
                r->buffer[m->buffer] + (size_t)route_block_element(block, i) * r->size;
            memcpy(arrives ? at : bytes, arrives ? bytes : at, r->size);
        }
    }
}

/* The counterpart of a received message: as many messages between the two come before it. */
static const lierne_message *find_send(const lierne_stage *sender, const lierne_stage *receiver,
                                       const lierne_message *m, int to) {
    size_t before = 0;
    for (const lierne_message *other = receiver->recvs.at; other < m; other++) {
        before += other->peer == m->peer;
    }
    for (size_t i = 0; i < sender->sends.count; i++) {
        if (sender->sends.at[i].peer == to && before-- == 0) {
            return &sender->sends.at[i];
        }
    }
    return NULL;
}

/* Everything that travels in a stage, read before anything is written. */
static const char *read_messages(const rank_memory *ranks, int n, int to, size_t stage,
                                 unsigned char **bytes) {
    const lierne_stage *s = &ranks[to].route->stages.at[stage];
    for (size_t i = 0; i < s->recvs.count; i++) {
        const lierne_message *m = &s->recvs.at[i];
        const lierne_route *peer = m->peer >= 0 && m->peer < n ? ranks[m->peer].route : NULL;
        const lierne_message *send = peer && stage < peer->stages.count
                                         ? find_send(&peer->stages.at[stage], s, m, to)
                                         : NULL;
        if (!send || send->elements != m->elements) {
            return wrong("rank %d, stage %zu: nothing from rank %d", to, stage, m->peer);
        }
        bytes[i] = malloc((size_t)m->elements * ranks[to].size + 1);
        move(&ranks[m->peer], send, bytes[i], false);
    }
    return NULL;
}

static void end_stage(const rank_memory *r, size_t stage, unsigned char **bytes) {
    const lierne_stage *s = &r->route->stages.at[stage];
    run_ops(r, &s->copies);
    for (size_t i = s->recvs.count; i-- > 0;) {
        move(r, &s->recvs.at[i], bytes[i], true);
    }
    run_ops(r, &s->sums);
}

static size_t count_recvs(const rank_memory *r, size_t stage) {
    return stage < r->route->stages.count ? r->route->stages.at[stage].recvs.count : 0;
}

/* Stage i of all ranks. */
static const char *run_stage(const rank_memory *ranks, int n, size_t stage) {
    unsigned char ***bytes = calloc((size_t)n, sizeof *bytes);
    const char *fault = NULL;
    for (int r = 0; r < n; r++) {
        bytes[r] = calloc(count_recvs(&ranks[r], stage) + 1, sizeof **bytes);
        if (!fault && stage < ranks[r].route->stages.count) {
            fault = read_messages(ranks, n, r, stage, bytes[r]);
        }
    }
    for (int r = 0; r < n; r++) {
        if (!fault && stage < ranks[r].route->stages.count) {
            end_stage(&ranks[r], stage, bytes[r]);
        }
        for (size_t i = 0; i < count_recvs(&ranks[r], stage); i++) {
            free(bytes[r][i]);
        }
        free(bytes[r]);
    }
    free(bytes);
    return fault;
}

const char *route_execute(const lierne_route *const *routes, int n, unsigned char *const *out,
                          const unsigned char *const *in) {
    rank_memory *ranks = calloc((size_t)n, sizeof *ranks);
    const char *fault = NULL;
    size_t stages = 0;
    for (int r = 0; r < n; r++) {
        size_t size = lierne_dtype_size(routes[r]->dtype);
        size_t scratch = (size_t)routes[r]->elements[LIERNE_BUFFER_SCRATCH] * size;
        ranks[r] =
            (rank_memory){routes[r], size, {(unsigned char *)in[r], out[r], malloc(scratch + 1)}};
        memset(ranks[r].buffer[LIERNE_BUFFER_SCRATCH], 0xa5, scratch);
        stages = routes[r]->stages.count > stages ? routes[r]->stages.count : stages;
    }
    for (size_t s = 0; s < stages && !fault; s++) {
        fault = run_stage(ranks, n, s);
    }
    for (int r = 0; r < n; r++) {
        free(ranks[r].buffer[LIERNE_BUFFER_SCRATCH]);
    }
    free(ranks);
    return fault;
}

/* Random numbers around 1 of any floating-point type, so that the order of additions shows. */
static void fill(unsigned char *at, int64_t n, lierne_dtype dtype, uint64_t seed) {
    static const int mantissas[] = {[LIERNE_DTYPE_F64] = 52, 23, 7, 10},
                     biases[] = {[LIERNE_DTYPE_F64] = 1023, 127, 127, 15};
    size_t size = lierne_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = seed >> 8 ^ seed << 40;
        if (dtype <= LIERNE_DTYPE_F16) {
            int m = mantissas[dtype];
            uint64_t exponent = (uint64_t)(biases[dtype] - 3 + (int)(seed >> 33 & 3));
            bits = (bits & ((1ull << m) - 1)) | exponent << m | (seed >> 60 & 1) << (8 * size - 1);
        }
        memcpy(at + (size_t)i * size, &bits, size);
    }
}

/* Buffers of a direction, of all ranks: what lierne makes of in, and what its routes make of it. */
typedef struct comparison {
    const lierne_route **routes;
    unsigned char **in, **kept, **out, **routed;
    lierne_request **requests;
    int n;
} comparison;

static unsigned char *buffer_of(const lierne_route *route, lierne_buffer buffer, uint64_t seed) {
    int64_t n = route->elements[buffer];
    unsigned char *memory = malloc((size_t)n * lierne_dtype_size(route->dtype) + 1);
    fill(memory, n, route->dtype, seed);
    return memory;
}

static const char *start(comparison *c, lierne_plan *const *plans, lierne_direction d) {
    for (int r = 0; r < c->n; r++) {
        if (lierne_plan_get_route(&c->routes[r], plans[r], d) != LIERNE_OK) {
            return wrong("rank %d has no route: %s", r, lierne_last_error());
        }
        uint64_t seed = (uint64_t)(2 * r + (d == LIERNE_DIRECTION_ADJOINT)) * 7919 + 1;
        c->in[r] = buffer_of(c->routes[r], LIERNE_BUFFER_IN, seed);
        c->kept[r] = buffer_of(c->routes[r], LIERNE_BUFFER_IN, seed);
        c->out[r] = buffer_of(c->routes[r], LIERNE_BUFFER_OUT, seed + 17);
        c->routed[r] = buffer_of(c->routes[r], LIERNE_BUFFER_OUT, seed + 17);
    }
    return NULL;
}

static const char *execute(comparison *c, lierne_plan *const *plans, lierne_direction d) {
    const char *fault = NULL;
    for (int r = 0; r < c->n; r++) {
        lierne_status status =
            (d == LIERNE_DIRECTION_FORWARD
                 ? lierne_plan_forward_begin
                 : lierne_plan_adjoint_begin)(&c->requests[r], plans[r], c->out[r], c->in[r], NULL);
        fault = status == LIERNE_OK ? fault : wrong("rank %d: %s", r, lierne_last_error());
    }
    for (int r = 0; r < c->n; r++) {
        if (lierne_request_end(c->requests[r]) != LIERNE_OK) {
            fault = wrong("rank %d: %s", r, lierne_last_error());
        }
    }
    return fault;
}

static const char *compare(const comparison *c, lierne_direction d) {
    for (int r = 0; r < c->n; r++) {
        size_t size = lierne_dtype_size(c->routes[r]->dtype);
        size_t in = (size_t)c->routes[r]->elements[LIERNE_BUFFER_IN] * size;
        size_t out = (size_t)c->routes[r]->elements[LIERNE_BUFFER_OUT] * size;
        if (memcmp(c->in[r], c->kept[r], in) != 0) {
            return wrong("rank %d, direction %d: in was written", r, (int)d);
        }
        for (size_t i = 0; i < out; i++) {
            if (c->out[r][i] != c->routed[r][i]) {
                return wrong("rank %d, direction %d: element %zu of %zu is not what the route says",
                             r, (int)d, i / size, out / size);
            }
        }
    }
    return NULL;
}

static void end(comparison *c) {
    for (int r = 0; r < c->n; r++) {
        free(c->in[r]);
        free(c->kept[r]);
        free(c->out[r]);
        free(c->routed[r]);
    }
    free(c->in);
    free(c->kept);
    free(c->out);
    free(c->routed);
    free(c->requests);
    free(c->routes);
}

static const char *compare_direction(lierne_plan *const *plans, int n, lierne_direction d) {
    size_t count = (size_t)n, size = sizeof(unsigned char *);
    comparison c = {calloc(count, sizeof(lierne_route *)),
                    calloc(count, size),
                    calloc(count, size),
                    calloc(count, size),
                    calloc(count, size),
                    calloc(count, sizeof(lierne_request *)),
                    n};
    const char *fault = start(&c, plans, d);
    fault = fault ? fault : execute(&c, plans, d);
    fault =
        fault ? fault : route_execute(c.routes, n, c.routed, (const unsigned char *const *)c.in);
    fault = fault ? fault : compare(&c, d);
    end(&c);
    return fault;
}

const char *route_compare(lierne_plan *const *plans, int n) {
    const char *fault = compare_direction(plans, n, LIERNE_DIRECTION_FORWARD);
    return fault ? fault : compare_direction(plans, n, LIERNE_DIRECTION_ADJOINT);
}

const char *route_compare_forward(lierne_plan *const *plans, int n) {
    return compare_direction(plans, n, LIERNE_DIRECTION_FORWARD);
}
