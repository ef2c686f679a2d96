/* Changes of a run of elements since its last version, as bytes. Pure.
 *
 * The run is cut into pieces of LIERNE_CHANGE_BYTES bytes; the last one has the rest. A piece
 * begins with the number count * 4 + form, 7 bits per byte from the lowest on, the high bit set in
 * all but the last byte. count changed elements follow, as they are, and where they are, by form:
 *
 *   0 gaps    the unchanged elements before each as a Rice code: gap >> k ones, a zero, the low k
 *             bits of gap; k is the largest with count << k <= elements of the piece
 *   1 map     a bit per element of the piece
 *   2 dense   count is 0, and all elements follow
 *
 * Bits go from the lowest of each byte on, and zeros fill the last one. The encoder takes the
 * shortest form, up to a few percent; a piece without changes has 0 gaps and is a zero byte.
 * Elements are compared as bits: -0.0 and the payloads of NaN count. */
#ifndef LIERNE_CHANGES_H
#define LIERNE_CHANGES_H

#include "base/base.h"
#include "runtime/memory/change.h"

/* The most bytes that n elements of size bytes become: theirs, and a byte per piece. size: 1, 2, 4,
 * 8. */
size_t lierne_changes_bound(size_t n, size_t size);

/* Writes what differs between last and now into `to`, which has space for lierne_changes_bound
 * bytes, and returns how many bytes that are. last NULL: all elements, dense. No pointer needs to
 * be aligned. */
size_t lierne_changes_encode(unsigned char *to, const void *now, const void *last, size_t n,
                             size_t size);

/* Turns the last version of n elements in data into the one that was encoded. Neither reads behind
 * from + bytes nor writes outside of data, whatever the bytes are. Errors: MISMATCH (no encoding of
 * n elements of this size, with the piece and the reason; data is then undefined). */
lierne_status lierne_changes_decode(void *data, size_t n, size_t size, const unsigned char *from,
                                    size_t bytes);

/* The same of pieces that a device has found or is to make, by their slots. put: writes one, from
 * `to` on, and returns where the next one goes. get: fills the slots of a message's pieces, whose
 * form and count it sets. Errors: as of lierne_changes_decode; the slots then mean nothing. */
unsigned char *lierne_changes_put(unsigned char *to, const lierne_change_piece *piece,
                                  const char *slots, size_t size);
lierne_status lierne_changes_get(lierne_change_piece *pieces, size_t npieces, char *slots,
                                 size_t size, const unsigned char *from, size_t bytes);

#endif
