/* Rows by index list: the inner loop of graph and halo exchanges.
 *
 * The general loops of host.c compute the start of every run and call through a table; for rows of
 * a few words that costs more than moving them. Here the common row sizes are constants, and rows
 * are prefetched, because hardware cannot predict where an index list goes next. */
#include "memory/host.h"

#include <string.h>

#define LINE    64  /* bytes */
#define AHEAD   6   /* rows between the prefetched and the current one */
#define FETCHED 512 /* bytes of a row; hardware prefetches the rest */

bool lierne_rows_of(lierne_rows *rows, const void *base, const lierne_block *block, size_t size) {
    int run = block->ndims - 1;
    if (run < 0 || run > 1 || block->stride[run] != 1) {
        return false;
    }
    *rows = (lierne_rows){.base = (char *)base + (size_t)block->offset * size,
                          .list = block->rows,
                          .step = run ? (size_t)block->stride[0] * size : 0};
    return true;
}

static char *row_at(const lierne_rows *rows, int64_t i) {
    return rows->base + (size_t)(rows->list ? rows->list[i] : i) * rows->step;
}

/* Prefetches a later row of an index list, at most FETCHED bytes of it. */
static void prefetch(const lierne_rows *rows, int64_t i, int64_t n, size_t bytes) {
    if (rows->list && i + AHEAD < n) {
        const char *row = row_at(rows, i + AHEAD);
        for (size_t at = 0; at < bytes && at < FETCHED; at += LINE) {
            __builtin_prefetch(row + at);
        }
    }
}

/* For short rows, the case is decided once outside of the loop. */
#define COPY_AS(type)                                                                              \
    static void copy_##type(const lierne_rows *to, const lierne_rows *from, int64_t n) {           \
        const int64_t *rows = from->list, *places = to->list;                                      \
        if (!places && rows && to->step == sizeof(type)) { /* packing */                           \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(to->base + (size_t)i * sizeof(type),                                        \
                       from->base + (size_t)rows[i] * from->step, sizeof(type));                   \
            }                                                                                      \
        } else if (places && !rows && from->step == sizeof(type)) { /* unpacking */                \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(to->base + (size_t)places[i] * to->step,                                    \
                       from->base + (size_t)i * sizeof(type), sizeof(type));                       \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                memcpy(row_at(to, i), row_at(from, i), sizeof(type));                              \
            }                                                                                      \
        }                                                                                          \
    }
COPY_AS(uint32_t)
COPY_AS(uint64_t)

void lierne_rows_copy(const lierne_rows *to, const lierne_rows *from, int64_t n, size_t bytes) {
    if (bytes == 4) {
        copy_uint32_t(to, from, n);
    } else if (bytes == 8) {
        copy_uint64_t(to, from, n);
    } else {
        for (int64_t i = 0; i < n; i++) {
            prefetch(from, i, n, bytes);
            memcpy(row_at(to, i), row_at(from, i), bytes);
        }
    }
}

#define ADD(name, type)                                                                            \
    static void add_##name(const lierne_rows *to, const lierne_rows *from, int64_t n,              \
                           int64_t width) {                                                        \
        for (int64_t i = 0; width == 1 && i < n; i++) {                                            \
            type *t = (type *)(void *)row_at(to, i);                                               \
            *t = (type)(*t + *(const type *)(const void *)row_at(from, i));                        \
        }                                                                                          \
        for (int64_t i = 0; width > 1 && i < n; i++) {                                             \
            type *t = (type *)(void *)row_at(to, i);                                               \
            const type *f = (const type *)(const void *)row_at(from, i);                           \
            prefetch(to, i, n, (size_t)width * sizeof(type));                                      \
            for (int64_t k = 0; k < width; k++) {                                                  \
                t[k] = (type)(t[k] + f[k]);                                                        \
            }                                                                                      \
        }                                                                                          \
    }

/* Unsigned types for signed integers: the same bits, and overflow wraps by definition. */
ADD(f64, double)
ADD(f32, float)
ADD(i64, uint64_t)
ADD(i32, uint32_t)

bool lierne_rows_add(lierne_dtype dtype, const lierne_rows *to, const lierne_rows *from, int64_t n,
                     int64_t width) {
    switch (dtype) {
    case LIERNE_F64:
        add_f64(to, from, n, width);
        return true;
    case LIERNE_F32:
        add_f32(to, from, n, width);
        return true;
    case LIERNE_I64:
        add_i64(to, from, n, width);
        return true;
    case LIERNE_I32:
        add_i32(to, from, n, width);
        return true;
    default:
        return false;
    }
}
