/* Copies and sums over blocks.
 *
 * The innermost loop of a block is its run, and all work is done run by run. Copies use memcpy if
 * the run is contiguous at both ends. Sums use a small accumulator that stays in the first-level
 * cache: each contribution is read once and the result written once, however many contributions
 * there are, and 16-bit types are rounded once. */
#include "memory/host.h"
#include "memory/half.h"

#include <math.h>
#include <string.h>

#define NONTEMPORAL_TOTAL ((size_t)4 << 20) /* least bytes of a copy that bypasses the cache */
#define NONTEMPORAL_RUN   1024              /* least bytes of its runs */

/* Position in the loops outside the run. */
typedef struct cursor {
    int64_t at[LIERNE_MAX_AXES];
} cursor;

static int64_t offset_of(const lierne_block *block, const cursor *c) {
    int64_t offset = block->offset;
    if (block->rows) {
        return offset + block->rows[c->at[0]] * block->stride[0];
    }
    for (int d = 0; d < block->ndims - 1; d++) {
        offset += c->at[d] * block->stride[d];
    }
    return offset;
}

static bool next_run(const lierne_block *block, cursor *c) {
    for (int d = block->ndims - 2; d >= 0; d--) {
        if (++c->at[d] < block->count[d]) {
            return true;
        }
        c->at[d] = 0;
    }
    return false;
}

static bool empty(const lierne_block *block) {
    return lierne_block_elements(block) == 0;
}

static int64_t run_count(const lierne_block *block) {
    return block->ndims ? block->count[block->ndims - 1] : 1;
}

static int64_t run_stride(const lierne_block *block) {
    return block->ndims ? block->stride[block->ndims - 1] : 1;
}

static void copy_run(size_t size, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t n) {
    size_t to_step = (size_t)to_stride * size, from_step = (size_t)from_stride * size;
    if (to_stride == 1 && from_stride == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) {
        switch (size) { /* constant sizes become one load and one store */
        case 1:
            *to = *from;
            break;
        case 2:
            memcpy(to, from, 2);
            break;
        case 4:
            memcpy(to, from, 4);
            break;
        default:
            memcpy(to, from, 8);
        }
    }
}

/* Whether a copy should bypass the cache; see nontemporal.c. */
static bool is_nontemporal(size_t size, const lierne_block *to, const lierne_block *from) {
    return run_stride(to) == 1 && run_stride(from) == 1 &&
           (size_t)run_count(to) * size >= NONTEMPORAL_RUN &&
           (size_t)lierne_block_elements(to) * size >= NONTEMPORAL_TOTAL;
}

void lierne_host_copy(size_t size, void *to, const lierne_block *to_block, const void *from,
                      const lierne_block *from_block) {
    cursor c = {0};
    int64_t n = run_count(to_block);
    bool nontemporal = is_nontemporal(size, to_block, from_block);
    lierne_rows t_rows, f_rows;
    if (empty(to_block)) {
        return;
    }
    if ((to_block->rows || from_block->rows) && lierne_rows_of(&t_rows, to, to_block, size) &&
        lierne_rows_of(&f_rows, from, from_block, size)) {
        lierne_rows_copy(&t_rows, &f_rows, to_block->count[0], (size_t)n * size);
        return;
    }
    do {
        char *t = (char *)to + (size_t)offset_of(to_block, &c) * size;
        const char *f = (const char *)from + (size_t)offset_of(from_block, &c) * size;
        if (nontemporal) {
            lierne_nontemporal_copy(t, f, (size_t)n * size);
        } else {
            copy_run(size, t, run_stride(to_block), f, run_stride(from_block), n);
        }
    } while (next_run(to_block, &c));
    if (nontemporal) {
        lierne_nontemporal_fence();
    }
}

void lierne_host_zero(size_t size, void *to, const lierne_block *block) {
    cursor c = {0};
    if (empty(block)) {
        return;
    }
    do {
        char *run = (char *)to + (size_t)offset_of(block, &c) * size;
        size_t step = (size_t)run_stride(block) * size, n = (size_t)run_count(block);
        if (step == size) {
            memset(run, 0, n * size);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            memset(run + i * step, 0, size);
        }
    } while (next_run(block, &c));
}

#define CHUNK 512 /* elements */
typedef union accumulator {
    double f64[CHUNK];
    float f32[CHUNK];
    uint64_t u64[CHUNK];
    uint32_t u32[CHUNK];
    uint8_t u8[CHUNK];
} accumulator;

/* Per type: sets the accumulator from n elements at a stride, combines n elements with it, and
 * stores it into n elements. Stride 1 has loops of its own, which compilers vectorise. */
typedef void combine(accumulator *sum, const void *from, int64_t stride, int64_t n);
typedef struct arithmetic {
    combine *set;
    combine *with[3]; /* per reduction */
    void (*store)(const accumulator *sum, void *to, int64_t stride, int64_t n);
} arithmetic;

/* Unsigned types for signed integers: the same bits, and overflow wraps by definition. */
#define ARITHMETIC(name, type, field, LOAD, STORE)                                                 \
    static void set_##name(accumulator *sum, const void *from, int64_t stride, int64_t n) {        \
        const type *x = from;                                                                      \
        if (stride == 1) {                                                                         \
            for (int64_t i = 0; i < n; i++) {                                                      \
                sum->field[i] = LOAD(x[i]);                                                        \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            sum->field[i] = LOAD(x[i * stride]);                                                   \
        }                                                                                          \
    }                                                                                              \
    static void add_##name(accumulator *sum, const void *from, int64_t stride, int64_t n) {        \
        const type *x = from;                                                                      \
        if (stride == 1) {                                                                         \
            for (int64_t i = 0; i < n; i++) {                                                      \
                sum->field[i] = (__typeof__(sum->field[0]))(sum->field[i] + LOAD(x[i]));           \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            sum->field[i] = (__typeof__(sum->field[0]))(sum->field[i] + LOAD(x[i * stride]));      \
        }                                                                                          \
    }                                                                                              \
    static void store_##name(const accumulator *sum, void *to, int64_t stride, int64_t n) {        \
        type *x = to;                                                                              \
        if (stride == 1) {                                                                         \
            for (int64_t i = 0; i < n; i++) {                                                      \
                x[i] = STORE(sum->field[i]);                                                       \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            x[i * stride] = STORE(sum->field[i]);                                                  \
        }                                                                                          \
    }

ARITHMETIC(f64, double, f64, , )
ARITHMETIC(f32, float, f32, , )
ARITHMETIC(bf16, uint16_t, f32, lierne_bf16_to_float, lierne_bf16_from_float)
ARITHMETIC(f16, uint16_t, f32, lierne_f16_to_float, lierne_f16_from_float)
ARITHMETIC(i64, uint64_t, u64, , )
ARITHMETIC(i32, uint32_t, u32, , )
ARITHMETIC(i8, uint8_t, u8, , )

#define EXTREME(name, type, field, ctype, LOAD, beats, IS_NAN)                                     \
    static void name(accumulator *sum, const void *from, int64_t stride, int64_t n) {              \
        const type *x = from;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            ctype held = (ctype)sum->field[i], other = (ctype)LOAD(x[i * stride]);                 \
            if (!(held beats other) && !IS_NAN(held)) {                                            \
                sum->field[i] = (__typeof__(sum->field[0]))other;                                  \
            }                                                                                      \
        }                                                                                          \
    }
#define EXTREMES(name, type, field, ctype, LOAD, IS_NAN)                                           \
    EXTREME(max_##name, type, field, ctype, LOAD, >, IS_NAN)                                       \
    EXTREME(min_##name, type, field, ctype, LOAD, <, IS_NAN)
#define NEVER(x) false

EXTREMES(f64, double, f64, double, , isnan)
EXTREMES(f32, float, f32, float, , isnan)
EXTREMES(bf16, uint16_t, f32, float, lierne_bf16_to_float, isnan)
EXTREMES(f16, uint16_t, f32, float, lierne_f16_to_float, isnan)
EXTREMES(i64, uint64_t, u64, int64_t, , NEVER)
EXTREMES(i32, uint32_t, u32, int32_t, , NEVER)
EXTREMES(i8, uint8_t, u8, int8_t, , NEVER)
EXTREMES(u8, uint8_t, u8, uint8_t, , NEVER)

static const arithmetic arithmetics[] = {
    [LIERNE_F64] = {set_f64, {add_f64, max_f64, min_f64}, store_f64},
    [LIERNE_F32] = {set_f32, {add_f32, max_f32, min_f32}, store_f32},
    [LIERNE_BF16] = {set_bf16, {add_bf16, max_bf16, min_bf16}, store_bf16},
    [LIERNE_F16] = {set_f16, {add_f16, max_f16, min_f16}, store_f16},
    [LIERNE_I64] = {set_i64, {add_i64, max_i64, min_i64}, store_i64},
    [LIERNE_I32] = {set_i32, {add_i32, max_i32, min_i32}, store_i32},
    [LIERNE_I8] = {set_i8, {add_i8, max_i8, min_i8}, store_i8},
    [LIERNE_U8] = {set_i8, {add_i8, max_u8, min_u8}, store_i8},
};

static const char *at(const lierne_contribution *s, const cursor *c, int64_t i, size_t size) {
    int64_t element = offset_of(s->block, c) + i * run_stride(s->block);
    return (const char *)s->base + (size_t)element * size;
}

/* Handles to += from with the row loops; false if the operation is another one. */
static bool add_rows(lierne_dtype dtype, void *to, const lierne_block *to_block,
                     const lierne_contribution *from, size_t n) {
    lierne_rows t, f;
    size_t size = lierne_dtype_size(dtype);
    return n == 2 && from[0].base == to && from[0].block == to_block &&
           lierne_rows_of(&t, to, to_block, size) &&
           lierne_rows_of(&f, from[1].base, from[1].block, size) &&
           lierne_rows_add(dtype, &t, &f, to_block->ndims == 2 ? to_block->count[0] : 1,
                           run_count(to_block));
}

void lierne_host_reduce(lierne_dtype dtype, lierne_reduction reduction, void *to,
                        const lierne_block *to_block, const lierne_contribution *from, size_t n) {
    const arithmetic *a = &arithmetics[dtype];
    size_t size = lierne_dtype_size(dtype);
    accumulator sum;
    cursor c = {0};
    if (empty(to_block) || (reduction == LIERNE_SUM && add_rows(dtype, to, to_block, from, n))) {
        return;
    }
    do {
        int64_t run = run_count(to_block);
        for (int64_t i = 0; i < run; i += CHUNK) {
            int64_t m = run - i < CHUNK ? run - i : CHUNK;
            int64_t out = offset_of(to_block, &c) + i * run_stride(to_block);
            a->set(&sum, at(&from[0], &c, i, size), run_stride(from[0].block), m);
            for (size_t k = 1; k < n; k++) {
                a->with[reduction](&sum, at(&from[k], &c, i, size), run_stride(from[k].block), m);
            }
            a->store(&sum, (char *)to + (size_t)out * size, run_stride(to_block), m);
        }
    } while (next_run(to_block, &c));
}
