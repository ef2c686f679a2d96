/* See changes.h.
 *
 * Bytes come from another process and may be anything: every length is compared with what is left,
 * and every position with the piece, before it is used. Functions return what is wrong, or NULL. */
#include "plan/redistribute/changes_code.h"

/* What is left of the bytes. */
typedef struct input {
    const unsigned char *at;
    const unsigned char *end;
} input;

static const char cut_short[] = "the bytes end within it";

static size_t left(const input *in) {
    return (size_t)(in->end - in->at);
}

static const char *get_number(size_t *number, input *in) {
    *number = 0;
    for (int i = 0; i < HEAD; i++) {
        if (left(in) == 0) {
            return cut_short;
        }
        *number |= (size_t)(*in->at & 127) << 7 * i;
        if (*in->at++ < 128) {
            return NULL;
        }
    }
    return "its head has no end";
}

/* Bits of whole bytes that were taken from in; those from n on are zero. */
typedef struct bit_reader {
    input *in;
    uint64_t bits;
    int n;
} bit_reader;

static inline void fill(bit_reader *r) {
    for (; r->n <= WORD - 8 && r->in->at < r->in->end; r->n += 8) {
        r->bits |= (uint64_t)*r->in->at++ << r->n;
    }
}

static inline uint64_t take(bit_reader *r, int n) {
    uint64_t bits = n < WORD ? r->bits & (((uint64_t)1 << n) - 1) : r->bits;
    r->bits = n < WORD ? r->bits >> n : 0;
    r->n -= n;
    return bits;
}

/* The next gap; one that is longer than n ends soon. */
static inline const char *get_gap(size_t *gap, bit_reader *r, int k, size_t n) {
    size_t ones = 0;
    for (bool found = false; !found && ones <= n;) {
        fill(r);
        int run = ~r->bits ? __builtin_ctzll(~r->bits) : WORD;
        if (r->n == 0) {
            return cut_short;
        }
        found = run < r->n;
        ones += (size_t)run;
        take(r, found ? run + 1 : run);
    }
    fill(r);
    if (r->n < k) {
        return cut_short;
    }
    *gap = ones << k | (size_t)take(r, k);
    return NULL;
}

/* A piece of n elements, count of them changed, whose values are the next count. data: its
 * elements; or NULL, and places or a map are written instead. */
typedef struct piece {
    unsigned char *data;
    uint16_t *places;
    unsigned char *map;
    const unsigned char *values;
    size_t n;
    size_t count;
    size_t size;
} piece;

/* Change i is at element `at`. */
static inline void take_change(const piece *p, size_t i, size_t at) {
    if (p->data) {
        copy(p->data + at * p->size, p->values + i * p->size, p->size);
    } else if (p->places) {
        p->places[i] = (uint16_t)at;
    } else {
        p->map[at / 8] |= (unsigned char)(1 << at % 8);
    }
}

static const char *get_gaps(const piece *p, input *in) {
    int k = p->count > 0 ? parameter(p->n, p->count) : 0;
    bit_reader r = {.in = in};
    for (size_t i = 0, start = 0, gap; i < p->count; i++, start += gap + 1) {
        const char *wrong = get_gap(&gap, &r, k, p->n);
        if (wrong || gap >= p->n - start) {
            return wrong ? wrong : "a gap is longer than the piece";
        }
        take_change(p, i, start + gap);
    }
    in->at -= r.n / 8;
    return take(&r, r.n % 8) ? "bits behind the last gap are not zero" : NULL;
}

static const char *get_map(const piece *p, input *in) {
    size_t found = 0;
    if (left(in) < (p->n + 7) / 8) {
        return cut_short;
    }
    for (size_t i = 0; i < p->n; i += 8) {
        for (unsigned byte = *in->at++; byte; byte &= byte - 1, found++) {
            size_t at = i + (size_t)__builtin_ctz(byte);
            if (at >= p->n || found == p->count) {
                return "its map has other changes than it says";
            }
            take_change(p, found, at);
        }
    }
    return found == p->count ? NULL : "its map has other changes than it says";
}

/* Reads the head and finds the values; *form: how they are placed. */
static const char *get_head(piece *p, size_t *form, input *in) {
    size_t number;
    const char *wrong = get_number(&number, in);
    if (wrong) {
        return wrong;
    }
    *form = number % 4;
    p->count = number / 4;
    if (*form == FORMS || p->count > p->n || (*form == DENSE && p->count > 0)) {
        return "its head is none that is written";
    }
    size_t bytes = (*form == DENSE ? p->n : p->count) * p->size;
    if (left(in) < bytes) {
        return cut_short;
    }
    p->values = in->at;
    in->at += bytes;
    return NULL;
}

static const char *get_changes(const piece *p, size_t form, input *in) {
    return form == GAPS ? get_gaps(p, in) : get_map(p, in);
}

static const char *get_piece(piece *p, input *in) {
    size_t form = 0;
    const char *wrong = get_head(p, &form, in);
    if (wrong || form != DENSE) {
        return wrong ? wrong : get_changes(p, form, in);
    }
    memcpy(p->data, p->values, p->n * p->size);
    return NULL;
}

static lierne_status fail_piece(size_t number, size_t n, size_t bytes, const char *wrong) {
    return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                       "piece %zu of the changes of %zu elements, in %zu bytes: %s", number, n,
                       bytes, wrong);
}

static lierne_status check_end(const input *in, size_t n, size_t bytes) {
    return in->at == in->end
               ? LIERNE_OK
               : LIERNE_FAIL(
                     LIERNE_ERR_MISMATCH,
                     "the changes of %zu elements have %zu bytes, %zu more than their pieces", n,
                     bytes, left(in));
}

lierne_status lierne_changes_decode(void *data, size_t n, size_t size, const unsigned char *from,
                                    size_t bytes) {
    input in = {.at = from, .end = from + bytes};
    for (size_t i = 0, number = 0; i < n; number++) {
        piece p = {.data = (unsigned char *)data + i * size,
                   .n = piece_of(n - i, size),
                   .size = size};
        const char *wrong = get_piece(&p, &in);
        if (wrong) {
            return fail_piece(number, n, bytes, wrong);
        }
        i += p.n;
    }
    return check_end(&in, n, bytes);
}

/* Into the slot of a piece, which has space for what an encoder would send so. */
static const char *get_slot(lierne_change_piece *to, char *slots, size_t size, input *in) {
    unsigned char *slot = (unsigned char *)slots + to->slot;
    piece p = {.n = (size_t)to->n, .size = size};
    size_t form = 0;
    const char *wrong = get_head(&p, &form, in);
    if (wrong) {
        return wrong;
    }
    to->form = (int32_t)form;
    to->count = (int32_t)p.count;
    memcpy(slot, p.values, (form == DENSE ? p.n : p.count) * size);
    unsigned char *behind = slot + lierne_change_behind(to->count, (int32_t)size);
    if (form == DENSE) {
        return NULL;
    }
    if (lierne_change_has_places(to->n, to->count)) {
        p.places = (uint16_t *)(void *)behind;
    } else {
        p.map = behind;
        memset(p.map, 0, (p.n + 7) / 8);
    }
    return get_changes(&p, form, in);
}

lierne_status lierne_changes_get(lierne_change_piece *pieces, size_t npieces, char *slots,
                                 size_t size, const unsigned char *from, size_t bytes) {
    input in = {.at = from, .end = from + bytes};
    size_t n = 0;
    for (size_t i = 0; i < npieces; i++) {
        n += (size_t)pieces[i].n;
    }
    for (size_t i = 0; i < npieces; i++) {
        const char *wrong = get_slot(&pieces[i], slots, size, &in);
        if (wrong) {
            return fail_piece(i, n, bytes, wrong);
        }
    }
    return check_end(&in, n, bytes);
}
