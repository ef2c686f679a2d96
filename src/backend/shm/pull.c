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

static void fill_side(side *s) {
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
static void drop_bytes(side *s, size_t bytes) {
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
        fill_side(&own);
        fill_side(&other);
        if (own.n == 0 || other.n == 0) {
            return 0;
        }
        ssize_t bytes = process_vm_readv(process, own.pieces, own.n, other.pieces, other.n, 0);
        if (bytes <= 0) {
            return bytes < 0 ? errno : EFAULT;
        }
        drop_bytes(&own, (size_t)bytes);
        drop_bytes(&other, (size_t)bytes);
    }
}
