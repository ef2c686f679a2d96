/* Sums, maxima and minima over blocks.
 *
 * Work is done run by run. Sums of floats over contiguous runs have kernels for the processors that
 * people use (simd.c). Everything else uses a small accumulator that stays in the first-level
 * cache: each contribution is read once and the result written once, however many contributions
 * there are, and 16-bit types are rounded once. Both add in the same order, with the same bits. */
#include "runtime/memory/cursor.h"
#include "runtime/memory/half.h"
#include "runtime/memory/host.h"

#include <math.h>

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
    combine *with[4]; /* per reduction, but for AVG: a sum with a divisor */
    void (*divide)(accumulator *sum, int64_t divisor, int64_t n); /* NULL of integers */
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

ARITHMETIC(f64, double, f64, , lierne_f64_canonical)
ARITHMETIC(f32, float, f32, , lierne_f32_canonical)
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

#define PRODUCT(name, type, field, LOAD)                                                           \
    static void name(accumulator *sum, const void *from, int64_t stride, int64_t n) {              \
        const type *x = from;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            sum->field[i] = (__typeof__(sum->field[0]))(sum->field[i] * LOAD(x[i * stride]));      \
        }                                                                                          \
    }

PRODUCT(mul_f64, double, f64, )
PRODUCT(mul_f32, float, f32, )
PRODUCT(mul_bf16, uint16_t, f32, lierne_bf16_to_float)
PRODUCT(mul_f16, uint16_t, f32, lierne_f16_to_float)
PRODUCT(mul_i64, uint64_t, u64, )
PRODUCT(mul_i32, uint32_t, u32, )
PRODUCT(mul_i8, uint8_t, u8, )

static void divide_f64(accumulator *sum, int64_t divisor, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        sum->f64[i] /= (double)divisor;
    }
}

static void divide_f32(accumulator *sum, int64_t divisor, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        sum->f32[i] /= (float)divisor;
    }
}

static const arithmetic arithmetics[] = {
    [LIERNE_DTYPE_F64] = {set_f64, {add_f64, max_f64, min_f64, mul_f64}, divide_f64, store_f64},
    [LIERNE_DTYPE_F32] = {set_f32, {add_f32, max_f32, min_f32, mul_f32}, divide_f32, store_f32},
    [LIERNE_DTYPE_BF16] = {set_bf16,
                           {add_bf16, max_bf16, min_bf16, mul_bf16},
                           divide_f32,
                           store_bf16},
    [LIERNE_DTYPE_F16] = {set_f16, {add_f16, max_f16, min_f16, mul_f16}, divide_f32, store_f16},
    [LIERNE_DTYPE_I64] = {set_i64, {add_i64, max_i64, min_i64, mul_i64}, NULL, store_i64},
    [LIERNE_DTYPE_I32] = {set_i32, {add_i32, max_i32, min_i32, mul_i32}, NULL, store_i32},
    [LIERNE_DTYPE_I8] = {set_i8, {add_i8, max_i8, min_i8, mul_i8}, NULL, store_i8},
    [LIERNE_DTYPE_U8] = {set_i8, {add_i8, max_u8, min_u8, mul_i8}, NULL, store_i8},
};

static const char *at(const lierne_contribution *s, const cursor *c, int64_t i, size_t size) {
    int64_t element = offset_of(s->block, c) + i * run_stride(s->block);
    return (const char *)s->base + (size_t)element * size;
}

#define MOST 16 /* contributions that are looked up together */

/* Whether a sum is to += from[1]. */
static bool is_in_place(const void *to, const lierne_block *to_block,
                        const lierne_contribution *from, size_t n) {
    return n == 2 && from[0].base == to && from[0].block == to_block;
}

/* Whether a sum is one of rows: to += from[1], or with short rows and without lists any. */
static bool has_rows(const void *to, const lierne_block *to_block, const lierne_contribution *from,
                     size_t n, bool converts, bool *listed) {
    bool contiguous = n >= 2 && n <= MOST && run_stride(to_block) == 1;
    *listed = to_block->rows != NULL;
    for (size_t k = 0; k < n; k++) {
        contiguous = contiguous && run_stride(from[k].block) == 1;
        *listed = *listed || from[k].block->rows;
    }
    return contiguous && (is_in_place(to, to_block, from, n) ||
                          (run_count(to_block) <= LIERNE_SHORT_ROW && !*listed && !converts));
}

/* The same sum with more rows at once. */
static const lierne_block *with_rows_of(lierne_block *blocks, const lierne_block *to_block,
                                        const lierne_contribution **from, lierne_contribution *more,
                                        size_t n) {
    blocks[0] = with_more_rows(to_block);
    for (size_t k = 0; k < n; k++) {
        blocks[k + 1] = with_more_rows((*from)[k].block);
        more[k] = (lierne_contribution){(*from)[k].base, &blocks[k + 1]};
    }
    *from = more;
    return blocks;
}

/* Handles rows; false if the operation is another one. */
static bool add_rows(bool simd, lierne_dtype dtype, void *to, const lierne_block *to_block,
                     const lierne_contribution *from, size_t n) {
    lierne_block blocks[MOST + 1];
    lierne_contribution more[MOST];
    size_t size = lierne_dtype_size(dtype);
    int64_t width = run_count(to_block);
    bool adds = simd && is_in_place(to, to_block, from, n), listed;
    lierne_sum_kernel *kernel = simd && size == 2 ? lierne_simd_sum(dtype) : NULL;
    lierne_rows_kernel *add = adds ? lierne_simd_add_rows(dtype, width) : NULL;
    bool fits = has_rows(to, to_block, from, n, kernel != NULL, &listed);
    if (fits && has_few_rows(to_block)) {
        to_block = with_rows_of(blocks, to_block, &from, more, n);
    }
    int64_t rows = to_block->ndims > 1 ? to_block->count[to_block->ndims - 2] : 1;
    cursor c = {0};
    for (bool left = true; fits && left; left = next(to_block, &c, to_block->ndims - 3)) {
        lierne_rows t = runs_at(to, to_block, &c, size), f[MOST];
        for (size_t k = 0; k < n; k++) {
            f[k] = runs_at(from[k].base, from[k].block, &c, size);
        }
        if (add) {
            add(&t, &f[1], rows, width);
        } else if (kernel) {
            lierne_rows_add_by(kernel, size, &t, &f[1], rows, width);
        } else {
            fits = listed ? lierne_rows_add(dtype, &t, &f[1], rows, width)
                          : lierne_rows_sum(dtype, &t, f, n, rows, width);
        }
    }
    return fits;
}

/* One run, in pieces that are stored past the cache. */
static void sum_past_cache(lierne_sum_kernel *kernel, size_t size, char *to,
                           const void *const *runs, size_t n, size_t count) {
    char piece[4096];
    const void *pieces[MOST];
    for (size_t i = 0; i < count; i += sizeof piece / size) {
        size_t m = count - i < sizeof piece / size ? count - i : sizeof piece / size;
        for (size_t k = 0; k < n; k++) {
            pieces[k] = (const char *)runs[k] + i * size;
        }
        kernel(piece, pieces, n, m);
        lierne_nontemporal_copy(to + i * size, piece, m * size, NULL);
    }
}

/* Sums contiguous runs with a kernel; false if there are others, or too many contributions. Stores
 * past the cache save nothing where a contribution has already brought the line. */
static bool sum_runs(lierne_sum_kernel *kernel, size_t size, void *to, const lierne_block *to_block,
                     const lierne_contribution *from, size_t n) {
    const void *runs[MOST];
    cursor c = {0};
    bool contiguous = n <= MOST && run_stride(to_block) == 1;
    bool past_cache = lierne_nontemporal_pays((size_t)run_count(to_block) * size,
                                              (size_t)lierne_block_elements(to_block) * size);
    for (size_t k = 0; contiguous && k < n; k++) {
        contiguous = run_stride(from[k].block) == 1;
        past_cache = past_cache && from[k].base != to;
    }
    if (!contiguous) {
        return false;
    }
    do {
        char *run = (char *)to + (size_t)offset_of(to_block, &c) * size;
        for (size_t k = 0; k < n; k++) {
            runs[k] = at(&from[k], &c, 0, size);
        }
        if (past_cache) {
            sum_past_cache(kernel, size, run, runs, n, (size_t)run_count(to_block));
        } else {
            kernel(run, runs, n, (size_t)run_count(to_block));
        }
    } while (next_run(to_block, &c));
    if (past_cache) {
        lierne_nontemporal_fence();
    }
    return true;
}

/* Sums that need no accumulator; false if this is another one. */
static bool sum_directly(bool simd, lierne_dtype dtype, void *to, const lierne_block *to_block,
                         const lierne_contribution *from, size_t n) {
    if (add_rows(simd, dtype, to, to_block, from, n)) {
        return true;
    }
    lierne_sum_kernel *kernel = simd ? lierne_simd_sum(dtype) : NULL;
    return kernel && sum_runs(kernel, lierne_dtype_size(dtype), to, to_block, from, n);
}

void lierne_host_reduce_by(bool simd, lierne_dtype dtype, lierne_reduction reduction,
                           int64_t divisor, void *to, const lierne_block *to_block,
                           const lierne_contribution *from, size_t n) {
    bool plain = reduction == LIERNE_REDUCTION_SUM && divisor <= 1;
    if (block_empty(to_block) || (plain && sum_directly(simd, dtype, to, to_block, from, n))) {
        return;
    }
    const arithmetic *a = &arithmetics[dtype];
    size_t size = lierne_dtype_size(dtype);
    accumulator sum;
    cursor c = {0};
    do {
        int64_t run = run_count(to_block);
        for (int64_t i = 0; i < run; i += CHUNK) {
            int64_t m = run - i < CHUNK ? run - i : CHUNK;
            int64_t out = offset_of(to_block, &c) + i * run_stride(to_block);
            a->set(&sum, at(&from[0], &c, i, size), run_stride(from[0].block), m);
            for (size_t k = 1; k < n; k++) {
                a->with[reduction](&sum, at(&from[k], &c, i, size), run_stride(from[k].block), m);
            }
            if (divisor > 1) {
                a->divide(&sum, divisor, m);
            }
            a->store(&sum, (char *)to + (size_t)out * size, run_stride(to_block), m);
        }
    } while (next_run(to_block, &c));
}

void lierne_host_reduce(lierne_dtype dtype, lierne_reduction reduction, int64_t divisor, void *to,
                        const lierne_block *to_block, const lierne_contribution *from, size_t n) {
    lierne_host_reduce_by(true, dtype, reduction, divisor, to, to_block, from, n);
}
