#include "backend/shm/pull.h"

#include "backend/shm/shm_cursor.h"

#include <errno.h>
#include <sys/uio.h>

#define PIECES 64        /* of one call */
#define MOST   (1 << 30) /* bytes of a piece: a call takes at most 2 GiB in all */

/* The stretches of one side that a call has not yet taken. */
typedef struct side {
    lierne_cursor cursor;
    struct iovec pieces[PIECES];
    size_t n;
} side;

static void fill(side *s) {
    char *at;
    while (s->n < PIECES) {
        size_t bytes = lierne_cursor_next(&s->cursor, &at, MOST);
        if (bytes == 0) {
            return;
        }
        s->pieces[s->n++] = (struct iovec){at, bytes};
    }
}

/* Removes the first bytes, which a call has copied. */
static void drop(side *s, size_t bytes) {
    size_t gone = 0;
    while (gone < s->n && bytes >= s->pieces[gone].iov_len) {
        bytes -= s->pieces[gone++].iov_len;
    }
    if (gone < s->n) {
        s->pieces[gone].iov_base = (char *)s->pieces[gone].iov_base + bytes;
        s->pieces[gone].iov_len -= bytes;
    }
    for (size_t i = gone; i < s->n; i++) {
        s->pieces[i - gone] = s->pieces[i];
    }
    s->n -= gone;
}

int lierne_pull(pid_t process, const lierne_part *to, size_t nto, const lierne_part *from,
                size_t nfrom) {
    side own = {.cursor = lierne_cursor_at(to, nto)};
    side other = {.cursor = lierne_cursor_at(from, nfrom)};
    for (;;) {
        fill(&own);
        fill(&other);
        if (own.n == 0 || other.n == 0) {
            return 0;
        }
        ssize_t bytes = process_vm_readv(process, own.pieces, own.n, other.pieces, other.n, 0);
        if (bytes <= 0) {
            return bytes < 0 ? errno : EFAULT;
        }
        drop(&own, (size_t)bytes);
        drop(&other, (size_t)bytes);
    }
}
