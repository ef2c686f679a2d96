/* Rows: the inner loops of graph and halo exchanges, by index list, and of all blocks with short
 * runs.
 *
 * To find a row costs more than to move it if it has a few words only. So the common row sizes are
 * constants, and listed rows are prefetched: hardware cannot predict where a list goes next. */
#include "runtime/memory/half.h"
#include "runtime/memory/rows.h"

#include <string.h>

/* Rows of a line or less are prefetched a group ahead, and only where the list jumps: elsewhere
 * hardware prefetches, and the instructions would cost more than they save. */
#define GROUP 16   /* rows */
#define JUMP  1024 /* bytes per row, on average */

static void prefetch_group(const lierne_rows *rows, int64_t i) {
    const int64_t *list = rows->list + i;
    int64_t jump = (list[GROUP - 1] - list[0]) * rows->step;
    for (int k = 0; k < GROUP && (jump > GROUP * JUMP || jump < -GROUP * JUMP); k++) {
        __builtin_prefetch(rows->base + list[k] * rows->step);
    }
}

/* For short rows, the case is decided once outside of the loop. */
#define EACH_ROW(listed, n, DO)                                                                    \
    int64_t i = 0;                                                                                 \
    while (i + 2 * GROUP <= n) {                                                                   \
        prefetch_group(listed, i + GROUP);                                                         \
        for (int64_t end = i + GROUP; i < end; i++) {                                              \
            DO;                                                                                    \
        }                                                                                          \
    }                                                                                              \
    for (; i < n; i++) {                                                                           \
        DO;                                                                                        \
    }
#define COPY_AS(size)                                                                              \
    static void copy_##size(const lierne_rows *to, const lierne_rows *from, int64_t n) {           \
        const int64_t *rows = from->list, *places = to->list;                                      \
        if (!places && rows && to->step == size) { /* packing */                                   \
            EACH_ROW(from, n,                                                                      \
                     memcpy(to->base + (size_t)i * size, from->base + rows[i] * from->step, size)) \
        } else if (places && !rows && from->step == size) { /* unpacking */                        \
            EACH_ROW(to, n,                                                                        \
                     memcpy(to->base + places[i] * to->step, from->base + (size_t)i * size, size)) \
        } else if (!places && !rows) {                                                             \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(to->base + i * to->step, from->base + i * from->step, size);                \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(lierne_rows_at(to, i), lierne_rows_at(from, i), size);                      \
            }                                                                                      \
        }                                                                                          \
    }
COPY_AS(1)
COPY_AS(2)
COPY_AS(4)
COPY_AS(8)
COPY_AS(16)
COPY_AS(32)
COPY_AS(64)

static void copy_any(const lierne_rows *to, const lierne_rows *from, int64_t n, size_t bytes) {
    for (int64_t i = 0; i < n; i++) {
        lierne_rows_prefetch(from, i, n, bytes);
        memcpy(lierne_rows_at(to, i), lierne_rows_at(from, i), bytes);
    }
}

void lierne_rows_copy(const lierne_rows *to, const lierne_rows *from, int64_t n, size_t bytes) {
    switch (n > 1 ? bytes : 0) {
    case 1:
        copy_1(to, from, n);
        break;
    case 2:
        copy_2(to, from, n);
        break;
    case 4:
        copy_4(to, from, n);
        break;
    case 8:
        copy_8(to, from, n);
        break;
    case 16:
        copy_16(to, from, n);
        break;
    case 32:
        copy_32(to, from, n);
        break;
    case 64:
        copy_64(to, from, n);
        break;
    default:
        copy_any(to, from, n, bytes);
    }
}

#define ADD(name, type, STORE)                                                                     \
    static void add_at_##name(const lierne_rows *to, const lierne_rows *from, int64_t i) {         \
        type *t = (type *)(void *)lierne_rows_at(to, i);                                           \
        *t = STORE((type)(*t + *(const type *)(const void *)lierne_rows_at(from, i)));             \
    }                                                                                              \
    static void add_single_##name(const lierne_rows *to, const lierne_rows *from, int64_t n) {     \
        if (to->list) {                                                                            \
            EACH_ROW(to, n, add_at_##name(to, from, i))                                            \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                add_at_##name(to, from, i);                                                        \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void add_##name(const lierne_rows *to, const lierne_rows *from, int64_t n,              \
                           int64_t width) {                                                        \
        if (width == 1) {                                                                          \
            add_single_##name(to, from, n);                                                        \
        }                                                                                          \
        for (int64_t i = 0; width > 1 && i < n; i++) {                                             \
            type *t = (type *)(void *)lierne_rows_at(to, i);                                       \
            const type *f = (const type *)(const void *)lierne_rows_at(from, i);                   \
            lierne_rows_prefetch(to, i, n, (size_t)width * sizeof(type));                          \
            for (int64_t k = 0; k < width; k++) {                                                  \
                t[k] = STORE((type)(t[k] + f[k]));                                                 \
            }                                                                                      \
        }                                                                                          \
    }

/* Unsigned types for signed integers: the same bits, and overflow wraps by definition. */
ADD(f64, double, lierne_f64_canonical)
ADD(f32, float, lierne_f32_canonical)
ADD(i64, uint64_t, )
ADD(i32, uint32_t, )

void lierne_rows_add_by(lierne_sum_kernel *kernel, size_t size, const lierne_rows *to,
                        const lierne_rows *from, int64_t n, int64_t width) {
    for (int64_t i = 0; i < n; i++) {
        const void *rows[2] = {lierne_rows_at(to, i), lierne_rows_at(from, i)};
        lierne_rows_prefetch(to, i, n, (size_t)width * size);
        kernel(lierne_rows_at(to, i), rows, 2, (size_t)width);
    }
}

/* own: the first source is the target. Compilers vectorise additions to it, but not those of a
 * source that may overlap it. A sum of many has an accumulator. */
#define SUM(name, type, STORE)                                                                     \
    static inline void sum_as_##name(const lierne_rows *to, const lierne_rows *from, size_t n,     \
                                     int64_t rows, int64_t width, bool own) {                      \
        for (int64_t i = 0; i < rows; i++) {                                                       \
            type *t = (type *)(void *)(to->base + i * to->step);                                   \
            const type *first =                                                                    \
                own ? t : (const type *)(const void *)(from->base + i * from->step);               \
            for (int64_t k = 0; k < width; k++) {                                                  \
                type sum = first[k];                                                               \
                for (size_t s = 1; s < n; s++) {                                                   \
                    const char *row = from[s].base + i * from[s].step;                             \
                    sum = (type)(sum + ((const type *)(const void *)row)[k]);                      \
                }                                                                                  \
                t[k] = STORE(sum);                                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static inline void sum_n_##name(const lierne_rows *to, const lierne_rows *from, size_t n,      \
                                    int64_t rows, int64_t width, bool own) {                       \
        if (width == 2) {                                                                          \
            sum_as_##name(to, from, n, rows, 2, own);                                              \
        } else {                                                                                   \
            sum_as_##name(to, from, n, rows, width, own);                                          \
        }                                                                                          \
    }                                                                                              \
    static inline void sum_many_##name(const lierne_rows *to, const lierne_rows *from, size_t n,   \
                                       int64_t rows, int64_t width) {                              \
        type sum[LIERNE_SHORT_ROW];                                                                \
        for (int64_t i = 0; i < rows; i++) {                                                       \
            const type *row = (const type *)(const void *)(from->base + i * from->step);           \
            type *t = (type *)(void *)(to->base + i * to->step);                                   \
            for (int64_t k = 0; k < width; k++) {                                                  \
                sum[k] = row[k];                                                                   \
            }                                                                                      \
            for (size_t s = 1; s < n; s++) {                                                       \
                row = (const type *)(const void *)(from[s].base + i * from[s].step);               \
                for (int64_t k = 0; k < width; k++) {                                              \
                    sum[k] = (type)(sum[k] + row[k]);                                              \
                }                                                                                  \
            }                                                                                      \
            for (int64_t k = 0; k < width; k++) {                                                  \
                t[k] = STORE(sum[k]);                                                              \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void sum_##name(const lierne_rows *to, const lierne_rows *from, size_t n, int64_t rows, \
                           int64_t width) {                                                        \
        bool own = from->base == to->base && from->step == to->step;                               \
        if (own && n == 2) {                                                                       \
            sum_n_##name(to, from, 2, rows, width, true);                                          \
        } else if (own && n == 3) {                                                                \
            sum_n_##name(to, from, 3, rows, width, true);                                          \
        } else if (n == 2) {                                                                       \
            sum_n_##name(to, from, 2, rows, width, false);                                         \
        } else if (width == 2) {                                                                   \
            sum_many_##name(to, from, n, rows, 2);                                                 \
        } else {                                                                                   \
            sum_many_##name(to, from, n, rows, width);                                             \
        }                                                                                          \
    }

SUM(f64, double, lierne_f64_canonical)
SUM(f32, float, lierne_f32_canonical)
SUM(i64, uint64_t, )
SUM(i32, uint32_t, )

bool lierne_rows_sum(lierne_dtype dtype, const lierne_rows *to, const lierne_rows *from, size_t n,
                     int64_t rows, int64_t width) {
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        sum_f64(to, from, n, rows, width);
        return true;
    case LIERNE_DTYPE_F32:
        sum_f32(to, from, n, rows, width);
        return true;
    case LIERNE_DTYPE_I64:
        sum_i64(to, from, n, rows, width);
        return true;
    case LIERNE_DTYPE_I32:
        sum_i32(to, from, n, rows, width);
        return true;
    default:
        return false;
    }
}

bool lierne_rows_add(lierne_dtype dtype, const lierne_rows *to, const lierne_rows *from, int64_t n,
                     int64_t width) {
    switch (dtype) {
    case LIERNE_DTYPE_F64:
        add_f64(to, from, n, width);
        return true;
    case LIERNE_DTYPE_F32:
        add_f32(to, from, n, width);
        return true;
    case LIERNE_DTYPE_I64:
        add_i64(to, from, n, width);
        return true;
    case LIERNE_DTYPE_I32:
        add_i32(to, from, n, width);
        return true;
    default:
        return false;
    }
}
