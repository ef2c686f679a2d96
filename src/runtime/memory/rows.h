/* What the loops over rows share: where a row is, and prefetching. */
#ifndef LIERNE_ROWS_H
#define LIERNE_ROWS_H

#include "runtime/memory/host.h"

#define LIERNE_LINE    64  /* bytes */
#define LIERNE_AHEAD   6   /* rows between the prefetched and the current one */
#define LIERNE_FETCHED 512 /* bytes of a row; hardware prefetches the rest */

static inline char *lierne_rows_at(const lierne_rows *rows, int64_t i) {
    return rows->base + (rows->list ? rows->list[i] : i) * rows->step;
}

/* Prefetches a later row of an index list, at most LIERNE_FETCHED bytes of it. */
static inline void lierne_rows_prefetch(const lierne_rows *rows, int64_t i, int64_t n,
                                        size_t bytes) {
    if (rows->list && i + LIERNE_AHEAD < n) {
        const char *row = lierne_rows_at(rows, i + LIERNE_AHEAD);
        for (size_t at = 0; at < bytes && at < LIERNE_FETCHED; at += LIERNE_LINE) {
            __builtin_prefetch(row + at);
        }
    }
}

#endif
