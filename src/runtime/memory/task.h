/* Copies, zeros and sums as data, and the arithmetic that carries them out: where an element lies,
 * and what becomes of it. The kernels (kernels/) are this header in CUDA's loops; the same
 * functions, compiled by the host's compiler, run every test case without a GPU.
 *
 * The elements of a task follow one another in the order of its loops. Their bytes are cut into
 * tiles, one per block of threads, and tiles into pieces of up to 16 bytes, one per thread at a
 * time. A piece never depends on another piece of its launch. */
#ifndef LIERNE_TASK_H
#define LIERNE_TASK_H

#include "lierne/layout.h"
#include "lierne/plan.h"
#include "runtime/memory/half.h"

#include <stdbool.h>

#define LIERNE_TILE  16384 /* bytes */
#define LIERNE_BASES (3 * LIERNE_MAX_COALESCED + 3)

/* A block of a buffer, in bytes. */
typedef struct lierne_task_block {
    int32_t base; /* index of the buffer among the bases of a call */
    int64_t offset;
    int64_t stride[LIERNE_MAX_AXES];
    int64_t rows; /* the first entry of its index list in the lists; -1: it has none */
} lierne_task_block;

typedef enum lierne_task_kind {
    LIERNE_TASK_COPY = 0,
    LIERNE_TASK_ZERO = 1,
    LIERNE_TASK_REDUCE = 2
} lierne_task_kind;

#define LIERNE_NO_SUMS (-1)

typedef struct lierne_task {
    int32_t kind;
    int32_t ndims;
    int32_t size; /* bytes of an element */
    int32_t reduction;
    int32_t unit; /* bytes of a piece where every base is aligned to 16 */
    int64_t divisor;
    int64_t count[LIERNE_MAX_AXES];
    int64_t elements; /* of all mentions; where mentions are ordered, of the distinct rows */
    int64_t block;    /* in the blocks: the target, then the sources */
    int64_t nfrom;
    /* Where the target's list mentions a row twice, or sources overlap the target: entry d of
     * `starts` and the next one bound the mentions of distinct row d, which one thread works on in
     * their order. Both index the lists; -1: every row is mentioned once. */
    int64_t starts;
    int64_t mentions;
    int64_t first_tile; /* in its launch */
} lierne_task;

/* All tasks of a program, in memory of the host or of the device. */
typedef struct lierne_task_table {
    const lierne_task *tasks;
    const lierne_task_block *blocks;
    const int64_t *lists;
} lierne_task_table;

/* What changes from call to call. A task whose target has no base is left out. */
typedef struct lierne_task_call {
    char *bases[LIERNE_BASES];
    int32_t reduction; /* replaces every sum */
    int32_t align;     /* the largest power of two up to 16 that divides all bases */
} lierne_task_call;

/* Accesses of 1 to 16 bytes, each one instruction. */
#define LIERNE_ALIASES __attribute__((may_alias))
typedef uint8_t LIERNE_ALIASES lierne_piece1;
typedef uint16_t LIERNE_ALIASES lierne_piece2;
typedef uint32_t LIERNE_ALIASES lierne_piece4;
typedef uint64_t LIERNE_ALIASES lierne_piece8;
typedef struct lierne_piece16 {
    uint64_t low, high;
} __attribute__((aligned(16), may_alias)) lierne_piece16;

typedef union lierne_piece {
    lierne_piece16 bits;
    double f64[2];
    float f32[4];
    uint16_t u16[8];
    uint64_t u64[2];
    uint32_t u32[4];
    uint8_t u8[16];
} lierne_piece;

LIERNE_INLINE void lierne_piece_load(lierne_piece *piece, const void *from, int unit) {
    switch (unit) {
    case 16:
        piece->bits = *(const lierne_piece16 *)from;
        return;
    case 8:
        piece->u64[0] = *(const lierne_piece8 *)from;
        return;
    case 4:
        piece->u32[0] = *(const lierne_piece4 *)from;
        return;
    case 2:
        piece->u16[0] = *(const lierne_piece2 *)from;
        return;
    default:
        piece->u8[0] = *(const lierne_piece1 *)from;
    }
}

LIERNE_INLINE void lierne_piece_store(void *to, const lierne_piece *piece, int unit) {
    switch (unit) {
    case 16:
        *(lierne_piece16 *)to = piece->bits;
        return;
    case 8:
        *(lierne_piece8 *)to = piece->u64[0];
        return;
    case 4:
        *(lierne_piece4 *)to = piece->u32[0];
        return;
    case 2:
        *(lierne_piece2 *)to = piece->u16[0];
        return;
    default:
        *(lierne_piece1 *)to = piece->u8[0];
    }
}

/* Position of an element in the loops of a task. Numbers below 2^32 are divided as such, which is
 * several times faster on a GPU. */
typedef struct lierne_task_index {
    int64_t at[LIERNE_MAX_AXES];
} lierne_task_index;

LIERNE_INLINE void lierne_task_divide(uint64_t *quotient, int64_t *rest, uint64_t count) {
    uint64_t n = *quotient;
    if ((n | count) >> 32 == 0) {
        uint32_t q = (uint32_t)n / (uint32_t)count;
        *rest = (int64_t)((uint32_t)n - q * (uint32_t)count);
        *quotient = q;
    } else {
        *quotient = n / count;
        *rest = (int64_t)(n - *quotient * count);
    }
}

LIERNE_INLINE void lierne_task_locate(lierne_task_index *index, const lierne_task *t,
                                      uint64_t element) {
    for (int d = t->ndims - 1; d > 0; d--) {
        lierne_task_divide(&element, &index->at[d], (uint64_t)t->count[d]);
    }
    index->at[0] = (int64_t)element;
}

/* The address of an element in a block. */
LIERNE_INLINE char *lierne_task_address(const lierne_task_table *table,
                                        const lierne_task_call *call, const lierne_task *t,
                                        const lierne_task_block *b,
                                        const lierne_task_index *index) {
    int64_t offset = b->offset;
    for (int d = 0; d < t->ndims; d++) {
        bool listed = d == 0 && b->rows >= 0;
        offset += (listed ? table->lists[b->rows + index->at[0]] : index->at[d]) * b->stride[d];
    }
    return call->bases[b->base] + offset;
}

/* held and other combined. Integers are combined as unsigned ones, which wrap, and compared as what
 * they are. */
#define LIERNE_COMBINE(name, type, compared, IS_NAN)                                               \
    LIERNE_INLINE type lierne_combine_##name(int reduction, type held, type other) {               \
        compared a = (compared)held, b = (compared)other;                                          \
        switch (reduction) {                                                                       \
        case LIERNE_REDUCTION_MAX:                                                                 \
            return a > b || IS_NAN(a) ? held : other;                                              \
        case LIERNE_REDUCTION_MIN:                                                                 \
            return a < b || IS_NAN(a) ? held : other;                                              \
        case LIERNE_REDUCTION_PROD:                                                                \
            return (type)(held * other);                                                           \
        default:                                                                                   \
            return (type)(held + other);                                                           \
        }                                                                                          \
    }
#define LIERNE_IS_NAN(x) ((x) != (x))
#define LIERNE_NEVER(x)  false
LIERNE_COMBINE(f64, double, double, LIERNE_IS_NAN)
LIERNE_COMBINE(f32, float, float, LIERNE_IS_NAN)
LIERNE_COMBINE(i64, uint64_t, int64_t, LIERNE_NEVER)
LIERNE_COMBINE(i32, uint32_t, int32_t, LIERNE_NEVER)
LIERNE_COMBINE(i8, uint8_t, int8_t, LIERNE_NEVER)
LIERNE_COMBINE(u8, uint8_t, uint8_t, LIERNE_NEVER)

/* Elements that a thread sums at a time: in registers of a device only if loops over them are
 * unrolled. */
#define LIERNE_LANES 8
#ifdef __CUDA_ARCH__
#define LIERNE_UNROLL _Pragma("unroll")
#else
#define LIERNE_UNROLL
#endif

#define LIERNE_SAME(x)         (x)
#define LIERNE_DIVIDE(sum, by) ((sum) / (__typeof__(sum))(by))
#define LIERNE_KEEP(sum, by)   (sum)

/* One piece of a sum: each source is read once, in its order, and the result rounded once. */
#define LIERNE_REDUCE(name, field, type, sum_type, combine, LOAD, STORE, DIVIDED)                  \
    LIERNE_INLINE void lierne_reduce_##name(const lierne_task_table *table,                        \
                                            const lierne_task_call *call, const lierne_task *t,    \
                                            const lierne_task_index *index, int unit,              \
                                            int reduction) {                                       \
        const lierne_task_block *blocks = &table->blocks[t->block];                                \
        enum { LANES = 16 / sizeof(type) < LIERNE_LANES ? 16 / sizeof(type) : LIERNE_LANES };      \
        sum_type sum[LANES];                                                                       \
        lierne_piece piece;                                                                        \
        int n = unit / (int)sizeof(type);                                                          \
        for (int64_t s = 1; s <= t->nfrom; s++) {                                                  \
            lierne_piece_load(&piece, lierne_task_address(table, call, t, &blocks[s], index),      \
                              unit);                                                               \
            LIERNE_UNROLL                                                                          \
            for (int i = 0; i < LANES; i++) {                                                      \
                if (i < n) {                                                                       \
                    sum_type x = LOAD(piece.field[i]);                                             \
                    sum[i] = s == 1 ? x : lierne_combine_##combine(reduction, sum[i], x);          \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        LIERNE_UNROLL                                                                              \
        for (int i = 0; i < LANES; i++) {                                                          \
            if (i < n) {                                                                           \
                piece.field[i] = STORE(t->divisor > 1 ? DIVIDED(sum[i], t->divisor) : sum[i]);     \
            }                                                                                      \
        }                                                                                          \
        lierne_piece_store(lierne_task_address(table, call, t, &blocks[0], index), &piece, unit);  \
    }
LIERNE_REDUCE(f64, f64, double, double, f64, LIERNE_SAME, lierne_f64_canonical, LIERNE_DIVIDE)
LIERNE_REDUCE(f32, f32, float, float, f32, LIERNE_SAME, lierne_f32_canonical, LIERNE_DIVIDE)
LIERNE_REDUCE(bf16, u16, uint16_t, float, f32, lierne_bf16_to_float, lierne_bf16_from_float,
              LIERNE_DIVIDE)
LIERNE_REDUCE(f16, u16, uint16_t, float, f32, lierne_f16_to_float, lierne_f16_from_float,
              LIERNE_DIVIDE)
LIERNE_REDUCE(i64, u64, uint64_t, uint64_t, i64, LIERNE_SAME, LIERNE_SAME, LIERNE_KEEP)
LIERNE_REDUCE(i32, u32, uint32_t, uint32_t, i32, LIERNE_SAME, LIERNE_SAME, LIERNE_KEEP)
LIERNE_REDUCE(i8, u8, uint8_t, uint8_t, i8, LIERNE_SAME, LIERNE_SAME, LIERNE_KEEP)
LIERNE_REDUCE(u8, u8, uint8_t, uint8_t, u8, LIERNE_SAME, LIERNE_SAME, LIERNE_KEEP)

LIERNE_INLINE void lierne_task_reduce(const lierne_task_table *table, const lierne_task_call *call,
                                      const lierne_task *t, const lierne_task_index *index,
                                      int unit, int dtype) {
    int reduction = call->reduction == LIERNE_REDUCTION_SUM ? t->reduction : call->reduction;
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        lierne_reduce_f64(table, call, t, index, unit, reduction);
        return;
    case LIERNE_DTYPE_F32:
        lierne_reduce_f32(table, call, t, index, unit, reduction);
        return;
    case LIERNE_DTYPE_BF16:
        lierne_reduce_bf16(table, call, t, index, unit, reduction);
        return;
    case LIERNE_DTYPE_F16:
        lierne_reduce_f16(table, call, t, index, unit, reduction);
        return;
    case LIERNE_DTYPE_I64:
        lierne_reduce_i64(table, call, t, index, unit, reduction);
        return;
    case LIERNE_DTYPE_I32:
        lierne_reduce_i32(table, call, t, index, unit, reduction);
        return;
    case LIERNE_DTYPE_I8:
        lierne_reduce_i8(table, call, t, index, unit, reduction);
        return;
    default:
        lierne_reduce_u8(table, call, t, index, unit, reduction);
    }
}

/* inner: bytes from the element at index on, where a piece is less than an element. dtype: of
 * all sums of the launch, or LIERNE_NO_SUMS; where it is a constant, a kernel has one dtype's code.
 */
LIERNE_INLINE void lierne_task_apply(const lierne_task_table *table, const lierne_task_call *call,
                                     const lierne_task *t, const lierne_task_index *index, int unit,
                                     int inner, int dtype) {
    const lierne_task_block *blocks = &table->blocks[t->block];
    lierne_piece piece;
    if (dtype != LIERNE_NO_SUMS && t->kind == LIERNE_TASK_REDUCE) {
        lierne_task_reduce(table, call, t, index, unit, dtype);
        return;
    }
    char *to = lierne_task_address(table, call, t, &blocks[0], index) + inner;
    piece.bits.low = piece.bits.high = 0;
    if (t->kind == LIERNE_TASK_COPY) {
        const char *from = lierne_task_address(table, call, t, &blocks[1], index) + inner;
        if (from == to) { /* in place, where other tasks of the launch may read it */
            return;
        }
        lierne_piece_load(&piece, from, unit);
    }
    lierne_piece_store(to, &piece, unit);
}

/* Bytes of a piece in a call. */
LIERNE_INLINE int lierne_task_unit(const lierne_task_call *call, const lierne_task *t) {
    int unit = call->align < t->unit ? call->align : t->unit;
    return t->kind == LIERNE_TASK_REDUCE && unit < t->size ? t->size : unit;
}

/* The piece that begins at a byte of the task. */
LIERNE_INLINE void lierne_task_piece(const lierne_task_table *table, const lierne_task_call *call,
                                     const lierne_task *t, int unit, uint64_t byte, int dtype) {
    lierne_task_index index;
    uint64_t element = byte;
    int64_t inner = 0;
    lierne_task_divide(&element, &inner, (uint64_t)t->size);
    lierne_task_locate(&index, t, element);
    const int64_t *mentions = NULL;
    int64_t first = 0, end = 1;
    if (t->starts >= 0) {
        mentions = table->lists + t->mentions;
        first = table->lists[t->starts + index.at[0]];
        end = table->lists[t->starts + index.at[0] + 1];
    }
    for (int64_t m = first; m < end; m++) {
        index.at[0] = mentions ? mentions[m] : index.at[0];
        lierne_task_apply(table, call, t, &index, unit, (int)inner, dtype);
    }
}

/* The task of a launch, whose tasks are first to end - 1, that a tile belongs to. */
LIERNE_INLINE const lierne_task *lierne_task_of_tile(const lierne_task_table *table, int64_t first,
                                                     int64_t end, int64_t tile) {
    while (end - first > 1) {
        int64_t middle = first + (end - first) / 2;
        if (table->tasks[middle].first_tile <= tile) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return &table->tasks[first];
}

/* What thread number `thread` of `nthreads` does for a tile of a launch. */
LIERNE_INLINE void lierne_task_tile(const lierne_task_table *table, const lierne_task_call *call,
                                    int64_t first, int64_t end, int64_t tile, int thread,
                                    int nthreads, int dtype) {
    const lierne_task *t = lierne_task_of_tile(table, first, end, tile);
    if (!call->bases[table->blocks[t->block].base]) {
        return;
    }
    int unit = lierne_task_unit(call, t);
    uint64_t byte = (uint64_t)(tile - t->first_tile) * LIERNE_TILE;
    uint64_t bytes = (uint64_t)t->elements * (uint64_t)t->size;
    uint64_t last = bytes - byte < LIERNE_TILE ? bytes : byte + LIERNE_TILE;
    for (byte += (uint64_t)thread * (uint64_t)unit; byte < last;
         byte += (uint64_t)nthreads * (uint64_t)unit) {
        lierne_task_piece(table, call, t, unit, byte, dtype);
    }
}

#endif
