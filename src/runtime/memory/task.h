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
#include "runtime/memory/piece.h"

#include <stdbool.h>

#define LIERNE_TILE        16384 /* bytes */
#define LIERNE_TILE_BLOCKS 17    /* most blocks of a task that the threads of a tile share */
#define LIERNE_AHEAD       4     /* pieces that a thread loads before it stores one */
#define LIERNE_SUM_AHEAD   3     /* sources that it loads before it adds one */
#define LIERNE_BASES       (3 * LIERNE_MAX_COALESCED + 3)

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
    int32_t unit;  /* bytes of a piece where every base is aligned to 16 */
    int32_t keeps; /* 1: the first source is the target, whose sum is neither stored nor loaded
                      between the mentions of a row */
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

/* A block in a call. */
typedef struct lierne_tile_block {
    char *at; /* its first element; NULL: its buffer is none of the call's */
    int64_t stride[LIERNE_MAX_AXES];
    int64_t rows;
} lierne_tile_block;

/* What the threads of a tile share: its task, the first blocks of that, and where it begins. A
 * device has it in the memory of a block of threads: the table is read once per tile, not once per
 * piece. */
typedef struct lierne_tile {
    lierne_task task;
    lierne_tile_block blocks[LIERNE_TILE_BLOCKS];
    int64_t start[LIERNE_MAX_AXES];    /* the place of its first element in the loops */
    uint32_t inverse[LIERNE_MAX_AXES]; /* of the counts: lierne_task_inverse */
    uint32_t shift;                    /* elements have 1 << shift bytes */
    uint32_t skipped;                  /* bytes of that element that are in the tile before */
    uint32_t bytes;
} lierne_tile;

/* Position of an element in the loops of a task. */
typedef struct lierne_task_index {
    int64_t at[LIERNE_MAX_AXES];
} lierne_task_index;

/* Stands for a division by count of numbers n below count + LIERNE_TILE: 2^32 / count, rounded up,
 * by which n / count is exact where count * n < 2^32; 0 for longer ones, whose quotient is 0 or 1.
 */
#define LIERNE_SHORT_COUNT 32768
LIERNE_INLINE uint32_t lierne_task_inverse(int64_t count) {
    return count > LIERNE_SHORT_COUNT || count < 2 ? 0 : UINT32_MAX / (uint32_t)count + 1;
}

/* *at becomes what is left of start + more, without whole counts, whose number is returned; start
 * is below count, and more at most a tile's elements. So nothing is divided, which takes a GPU
 * twenty instructions, and a hundred for numbers of 64 bits. */
LIERNE_INLINE uint32_t lierne_task_carry(int64_t *at, int64_t start, uint32_t more, int64_t count,
                                         uint32_t inverse) {
    if (inverse > 0) {
        uint32_t n = (uint32_t)start + more, whole = (uint32_t)((uint64_t)n * inverse >> 32);
        *at = n - whole * (uint32_t)count;
        return whole;
    }
    int64_t n = start + more;
    bool once = n >= count;
    *at = count == 1 ? 0 : n - (once ? count : 0);
    return count == 1 ? more : once;
}

/* The element that a byte of the tile is in; returns the byte's place within it. */
LIERNE_INLINE uint32_t lierne_tile_locate(lierne_task_index *index, const lierne_tile *tile,
                                          uint32_t byte) {
    const lierne_task *t = &tile->task;
    uint32_t from = byte + tile->skipped, more = from >> tile->shift;
    LIERNE_UNROLL
    for (int d = LIERNE_MAX_AXES - 1; d > 0; d--) {
        if (d < t->ndims) {
            LIERNE_BRANCH();
            more = lierne_task_carry(&index->at[d], tile->start[d], more, t->count[d],
                                     tile->inverse[d]);
        }
    }
    index->at[0] = tile->start[0] + more;
    return from & ((1u << tile->shift) - 1);
}

/* The address of an element in a block. */
LIERNE_INLINE char *lierne_tile_address(const lierne_tile *tile, const lierne_task_table *table,
                                        const lierne_tile_block *b,
                                        const lierne_task_index *index) {
    int64_t first =
        b->rows >= 0 ? LIERNE_CONSTANT(&table->lists[b->rows + index->at[0]]) : index->at[0];
    int64_t offset = first * b->stride[0];
    LIERNE_UNROLL
    for (int d = 1; d < LIERNE_MAX_AXES; d++) {
        if (d >= tile->task.ndims) {
            break;
        }
        LIERNE_BRANCH();
        offset += index->at[d] * b->stride[d];
    }
    return b->at + offset;
}

/* Block number s of a task. */
LIERNE_INLINE lierne_tile_block lierne_tile_read_block(const lierne_task_table *table,
                                                       const lierne_task_call *call, int64_t s) {
    const lierne_task_block *from = &table->blocks[s];
    lierne_tile_block b;
    char *base = call->bases[LIERNE_CONSTANT(&from->base)];
    b.at = base ? base + LIERNE_CONSTANT(&from->offset) : NULL;
    b.rows = LIERNE_CONSTANT(&from->rows);
    LIERNE_UNROLL
    for (int d = 0; d < LIERNE_MAX_AXES; d++) {
        b.stride[d] = LIERNE_CONSTANT(&from->stride[d]);
    }
    return b;
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

/* Elements that a thread sums at a time. */
#define LIERNE_LANES 8

/* On a device all are computed: those behind a piece are registers that nobody stores. */
#ifdef __CUDA_ARCH__
#define LIERNE_HAS_LANE(i, n) true
#define LIERNE_CLEARED
#else
#define LIERNE_HAS_LANE(i, n) ((i) < (n))
#define LIERNE_CLEARED        = {0}
#endif

#define LIERNE_SAME(x)         (x)
#define LIERNE_DIVIDE(sum, by) ((sum) / (__typeof__(sum))(by))
#define LIERNE_KEEP(sum, by)   (sum)

/* One piece of a sum: each source is read once, in its order, and the result rounded once, which
 * pieces[0] is afterwards. The reduction is the same for all lanes, and looked at once. The tile
 * has the blocks of the first sources, which are most often all. With more sources loaded together,
 * some sums would need more registers than half of a processor's threads can have. */
#define LIERNE_REDUCE(name, field, type, sum_type, combine, LOAD, STORE, DIVIDED)                  \
    enum {                                                                                         \
        LIERNE_LANES_##name = 16 / sizeof(type) < LIERNE_LANES ? 16 / sizeof(type) : LIERNE_LANES  \
    };                                                                                             \
    LIERNE_INLINE void lierne_combine_lanes_##name(sum_type *sum, const lierne_piece *piece,       \
                                                   int n, int reduction) {                         \
        LIERNE_UNROLL                                                                              \
        for (int i = 0; i < LIERNE_LANES_##name; i++) {                                            \
            if (LIERNE_HAS_LANE(i, n)) {                                                           \
                sum[i] = lierne_combine_##combine(reduction, sum[i], LOAD(piece->field[i]));       \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    LIERNE_INLINE void lierne_combine_piece_##name(sum_type *sum, const lierne_piece *piece,       \
                                                   int n, int reduction) {                         \
        switch (reduction) {                                                                       \
        case LIERNE_REDUCTION_MAX:                                                                 \
            lierne_combine_lanes_##name(sum, piece, n, LIERNE_REDUCTION_MAX);                      \
            return;                                                                                \
        case LIERNE_REDUCTION_MIN:                                                                 \
            lierne_combine_lanes_##name(sum, piece, n, LIERNE_REDUCTION_MIN);                      \
            return;                                                                                \
        case LIERNE_REDUCTION_PROD:                                                                \
            lierne_combine_lanes_##name(sum, piece, n, LIERNE_REDUCTION_PROD);                     \
            return;                                                                                \
        default:                                                                                   \
            LIERNE_BRANCH();                                                                       \
            lierne_combine_lanes_##name(sum, piece, n, LIERNE_REDUCTION_SUM);                      \
        }                                                                                          \
    }                                                                                              \
    LIERNE_INLINE void lierne_reduce_##name(const lierne_tile *tile,                               \
                                            const lierne_task_table *table,                        \
                                            const lierne_task_call *call,                          \
                                            const lierne_task_index *index, int unit,              \
                                            int reduction, lierne_piece *pieces) {                 \
        const lierne_task *t = &tile->task;                                                        \
        sum_type sum[LIERNE_LANES_##name] LIERNE_CLEARED;                                          \
        int n = unit / (int)sizeof(type);                                                          \
        int near = t->nfrom < LIERNE_TILE_BLOCKS ? (int)t->nfrom : LIERNE_TILE_BLOCKS - 1;         \
        LIERNE_ROLLED                                                                              \
        for (int s = 1; s <= near; s += LIERNE_SUM_AHEAD) {                                        \
            LIERNE_UNROLL                                                                          \
            for (int k = 0; k < LIERNE_SUM_AHEAD; k++) {                                           \
                if (s + k <= near && !(k == 0 && s == 1 && t->keeps)) {                            \
                    lierne_piece_load(&pieces[k],                                                  \
                                      lierne_tile_address(tile, table, &tile->blocks[s + k],       \
                                                          index),                                  \
                                      unit);                                                       \
                }                                                                                  \
            }                                                                                      \
            LIERNE_UNROLL                                                                          \
            for (int k = 0; k < LIERNE_SUM_AHEAD; k++) {                                           \
                if (k == 0 && s == 1) {                                                            \
                    LIERNE_UNROLL                                                                  \
                    for (int i = 0; i < LIERNE_LANES_##name; i++) {                                \
                        if (LIERNE_HAS_LANE(i, n)) {                                               \
                            sum[i] = LOAD(pieces[0].field[i]);                                     \
                        }                                                                          \
                    }                                                                              \
                } else if (s + k <= near) {                                                        \
                    lierne_combine_piece_##name(sum, &pieces[k], n, reduction);                    \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        LIERNE_ROLLED                                                                              \
        for (int s = LIERNE_TILE_BLOCKS; s <= (int)t->nfrom; s++) {                                \
            lierne_tile_block b = lierne_tile_read_block(table, call, t->block + s);               \
            lierne_piece_load(&pieces[0], lierne_tile_address(tile, table, &b, index), unit);      \
            lierne_combine_piece_##name(sum, &pieces[0], n, reduction);                            \
        }                                                                                          \
        LIERNE_UNROLL                                                                              \
        for (int i = 0; i < LIERNE_LANES_##name && t->divisor > 1; i++) {                          \
            if (LIERNE_HAS_LANE(i, n)) {                                                           \
                sum[i] = DIVIDED(sum[i], t->divisor);                                              \
            }                                                                                      \
        }                                                                                          \
        LIERNE_UNROLL                                                                              \
        for (int i = 0; i < LIERNE_LANES_##name; i++) {                                            \
            if (LIERNE_HAS_LANE(i, n)) {                                                           \
                pieces[0].field[i] = STORE(sum[i]);                                                \
            }                                                                                      \
        }                                                                                          \
        if (!t->keeps) {                                                                           \
            lierne_piece_store(lierne_tile_address(tile, table, &tile->blocks[0], index),          \
                               &pieces[0], unit);                                                  \
        }                                                                                          \
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

LIERNE_INLINE void lierne_tile_reduce(const lierne_tile *tile, const lierne_task_table *table,
                                      const lierne_task_call *call, const lierne_task_index *index,
                                      int unit, int dtype, lierne_piece *pieces) {
    int reduction =
        call->reduction == LIERNE_REDUCTION_SUM ? tile->task.reduction : call->reduction;
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        lierne_reduce_f64(tile, table, call, index, unit, reduction, pieces);
        return;
    case LIERNE_DTYPE_F32:
        lierne_reduce_f32(tile, table, call, index, unit, reduction, pieces);
        return;
    case LIERNE_DTYPE_BF16:
        lierne_reduce_bf16(tile, table, call, index, unit, reduction, pieces);
        return;
    case LIERNE_DTYPE_F16:
        lierne_reduce_f16(tile, table, call, index, unit, reduction, pieces);
        return;
    case LIERNE_DTYPE_I64:
        lierne_reduce_i64(tile, table, call, index, unit, reduction, pieces);
        return;
    case LIERNE_DTYPE_I32:
        lierne_reduce_i32(tile, table, call, index, unit, reduction, pieces);
        return;
    case LIERNE_DTYPE_I8:
        lierne_reduce_i8(tile, table, call, index, unit, reduction, pieces);
        return;
    default:
        lierne_reduce_u8(tile, table, call, index, unit, reduction, pieces);
    }
}

/* Loads a piece of a copy, or zeros, and returns where it is stored; NULL: it is there, in place,
 * and other tasks of the launch may read it. inner: bytes from the element at index on, where a
 * piece is less than an element. */
LIERNE_INLINE char *lierne_tile_load(lierne_piece *piece, const lierne_tile *tile,
                                     const lierne_task_table *table, const lierne_task_index *index,
                                     int unit, uint32_t inner) {
    char *to = lierne_tile_address(tile, table, &tile->blocks[0], index) + inner;
    piece->bits.low = piece->bits.high = 0;
    if (tile->task.kind == LIERNE_TASK_COPY) {
        const char *from = lierne_tile_address(tile, table, &tile->blocks[1], index) + inner;
        if (from == to) {
            return NULL;
        }
        lierne_piece_load(piece, from, unit);
    }
    return to;
}

/* Bytes of a piece in a call. */
LIERNE_INLINE int lierne_task_unit(const lierne_task_call *call, const lierne_task *t) {
    int unit = call->align < t->unit ? call->align : t->unit;
    return t->kind == LIERNE_TASK_REDUCE && unit < t->size ? t->size : unit;
}

/* A sum, or all mentions of a row in their order, of the piece that begins at a byte of the task.
 * dtype: of all sums of the launch, or LIERNE_NO_SUMS; where it is a constant, a kernel has one
 * dtype's code. */
LIERNE_INLINE void lierne_tile_piece(const lierne_tile *tile, const lierne_task_table *table,
                                     const lierne_task_call *call, int unit, uint32_t byte,
                                     int dtype) {
    const lierne_task *t = &tile->task;
    lierne_task_index index;
    uint32_t inner = lierne_tile_locate(&index, tile, byte);
    const int64_t *mentions = NULL;
    uint32_t left = 1;
    if (t->starts >= 0) {
        int64_t first = LIERNE_CONSTANT(&table->lists[t->starts + index.at[0]]);
        left = (uint32_t)(LIERNE_CONSTANT(&table->lists[t->starts + index.at[0] + 1]) - first);
        mentions = &table->lists[t->mentions + first];
    }
    lierne_piece pieces[LIERNE_SUM_AHEAD];
    if (dtype != LIERNE_NO_SUMS && t->keeps) {
        index.at[0] = LIERNE_CONSTANT(mentions);
        lierne_piece_load(&pieces[0], lierne_tile_address(tile, table, &tile->blocks[0], &index),
                          unit);
    }
    LIERNE_ROLLED
    for (; left > 0; left--) {
        index.at[0] = mentions ? LIERNE_CONSTANT(mentions++) : index.at[0];
        if (dtype != LIERNE_NO_SUMS && t->kind == LIERNE_TASK_REDUCE) {
            lierne_tile_reduce(tile, table, call, &index, unit, dtype, pieces);
        } else {
            char *to = lierne_tile_load(&pieces[0], tile, table, &index, unit, inner);
            if (to) {
                lierne_piece_store(to, &pieces[0], unit);
            }
        }
    }
    if (dtype != LIERNE_NO_SUMS && t->keeps) {
        lierne_piece_store(lierne_tile_address(tile, table, &tile->blocks[0], &index), &pieces[0],
                           unit);
    }
}

/* Copies, or zeros, pieces of a thread, `step` bytes apart: several are loaded before one is
 * stored, so that their loads are under way together. */
LIERNE_INLINE void lierne_tile_copy(const lierne_tile *tile, const lierne_task_table *table,
                                    int unit, uint32_t byte, uint32_t step) {
    lierne_piece pieces[LIERNE_AHEAD];
    char *to[LIERNE_AHEAD];
    LIERNE_UNROLL
    for (int i = 0; i < LIERNE_AHEAD; i++) {
        lierne_task_index index;
        uint32_t at = byte + (uint32_t)i * step;
        to[i] = NULL;
        if (at < tile->bytes) {
            uint32_t inner = lierne_tile_locate(&index, tile, at);
            to[i] = lierne_tile_load(&pieces[i], tile, table, &index, unit, inner);
        }
    }
    LIERNE_UNROLL
    for (int i = 0; i < LIERNE_AHEAD; i++) {
        if (to[i]) {
            lierne_piece_store(to[i], &pieces[i], unit);
        }
    }
}

/* The task of a launch, whose tasks are first to end - 1, that a tile belongs to. */
LIERNE_INLINE const lierne_task *lierne_task_of_tile(const lierne_task_table *table, int64_t first,
                                                     int64_t end, int64_t number) {
    while (end - first > 1) {
        int64_t middle = first + (end - first) / 2;
        if (LIERNE_CONSTANT(&table->tasks[middle].first_tile) <= number) {
            first = middle;
        } else {
            end = middle;
        }
    }
    return &table->tasks[first];
}

/* Words part, part + parts, and so on, of constant memory. */
LIERNE_INLINE void lierne_task_read(void *to, const void *from, size_t bytes, int part, int parts) {
    for (size_t i = (size_t)part; i < bytes / sizeof(lierne_piece8); i += (size_t)parts) {
        ((lierne_piece8 *)to)[i] = LIERNE_CONSTANT((const lierne_piece8 *)from + i);
    }
}

/* Where a tile begins in its task. */
LIERNE_INLINE void lierne_tile_begin(lierne_tile *tile, const lierne_task *t, int64_t number) {
    uint64_t begin = (uint64_t)(number - LIERNE_CONSTANT(&t->first_tile)) * LIERNE_TILE;
    uint64_t size = (uint64_t)LIERNE_CONSTANT(&t->size), element = begin / size;
    uint64_t bytes = (uint64_t)LIERNE_CONSTANT(&t->elements) * size - begin;
    tile->skipped = (uint32_t)(begin - element * size);
    tile->bytes = (uint32_t)(bytes < LIERNE_TILE ? bytes : LIERNE_TILE);
    tile->shift = 0;
    while (1u << tile->shift < size) {
        tile->shift++;
    }
    for (int d = LIERNE_CONSTANT(&t->ndims) - 1; d > 0; d--) {
        uint64_t count = (uint64_t)LIERNE_CONSTANT(&t->count[d]), quotient = element / count;
        tile->inverse[d] = lierne_task_inverse((int64_t)count);
        tile->start[d] = (int64_t)(element - quotient * count);
        element = quotient;
    }
    tile->start[0] = (int64_t)element;
}

/* Part number `part` of `parts` of tile `number` of a launch, whose tasks are first to end - 1. */
LIERNE_INLINE void lierne_tile_fill(lierne_tile *tile, const lierne_task_table *table,
                                    const lierne_task_call *call, int64_t first, int64_t end,
                                    int64_t number, int part, int parts) {
    const lierne_task *t = lierne_task_of_tile(table, first, end, number);
    int64_t n = LIERNE_CONSTANT(&t->nfrom) + 1;
    n = n < LIERNE_TILE_BLOCKS ? n : LIERNE_TILE_BLOCKS;
    lierne_task_read(&tile->task, t, sizeof tile->task, part, parts);
    for (int64_t i = part; i < n; i += parts) {
        tile->blocks[i] = lierne_tile_read_block(table, call, LIERNE_CONSTANT(&t->block) + i);
    }
    if (part == 0) {
        lierne_tile_begin(tile, t, number);
    }
}

/* What thread number `thread` of `nthreads` does for a tile that is filled. */
LIERNE_INLINE void lierne_tile_run(const lierne_tile *tile, const lierne_task_table *table,
                                   const lierne_task_call *call, int thread, int nthreads,
                                   int dtype) {
    const lierne_task *t = &tile->task;
    if (!tile->blocks[0].at) {
        return;
    }
    int unit = lierne_task_unit(call, t);
    uint32_t step = (uint32_t)(nthreads * unit), byte = (uint32_t)(thread * unit);
    if (dtype != LIERNE_NO_SUMS || t->starts >= 0) { /* no registers for copies together, too */
        LIERNE_ROLLED
        for (; byte < tile->bytes; byte += step) {
            lierne_tile_piece(tile, table, call, unit, byte, dtype);
        }
    } else {
        LIERNE_ROLLED
        for (; byte < tile->bytes; byte += LIERNE_AHEAD * step) {
            lierne_tile_copy(tile, table, unit, byte, step);
        }
    }
}

#endif
