/* Abort flags: memory shared by the ranks of a node, with one flag per rank.
 *
 * A rank that gives up raises its flag before it returns to its caller, who may then reuse buffers
 * that a peer has not read yet. A rank that reads the flag of a sender after it has received, and
 * finds it lowered, has read unchanged buffers. */
#ifndef LIERNE_ABORT_FLAGS_H
#define LIERNE_ABORT_FLAGS_H

#include "base/base.h"

typedef struct lierne_abort_flags lierne_abort_flags;

/* What the ranks of a dead context agree with on who is left (survivors.h), beside the flags,
 * because it must outlive every rank as they do: words of all ranks, and of each. */
typedef struct lierne_common_words {
    _Atomic uint64_t key;    /* that no other context has; 0: none yet */
    _Atomic int64_t outcome; /* of the last attempt that has one */
} lierne_common_words;
typedef struct lierne_rank_words {
    _Atomic int64_t arrived; /* the last attempt that the rank takes part in */
    _Atomic int64_t result;  /* how that went on the rank */
} lierne_rank_words;

/* Creates shared memory for n lowered flags, and for a board of so many bytes for each rank, all
 * zero, which its owner uses as it likes. Returns a descriptor, which the caller closes, or -1 if
 * the system does not allow it. */
LIERNE_PRIVATE int lierne_abort_flags_open(int n, size_t board);
/* Maps the flags that another process, or this one, opened for n ranks, and reserves memory for
 * the one at index and its board. Returns NULL if the system does not allow it. */
lierne_abort_flags *lierne_abort_flags_map(uint64_t process, int descriptor, int n, size_t board,
                                           int index);
/* NULL is allowed. Raised flags stay raised for the other ranks. */
LIERNE_PRIVATE void lierne_abort_flags_unmap(lierne_abort_flags *flags);

/* Raises a flag. status is an error. */
LIERNE_PRIVATE void lierne_abort_flags_raise(lierne_abort_flags *flags, int index,
                                             lierne_status status, const char *message);
/* Marks the rank of a flag as one that has destroyed its context alone: what it sent is there, and
 * nothing else will come. */
LIERNE_PRIVATE void lierne_abort_flags_leave(lierne_abort_flags *flags, int index);
LIERNE_PRIVATE bool lierne_abort_flags_left(const lierne_abort_flags *flags, int index);
/* Whether any flag is raised. Ordered after everything that this thread has read so far. */
LIERNE_PRIVATE bool lierne_abort_flags_any(const lierne_abort_flags *flags);
/* The status that a flag was raised with; OK if it is lowered. *message is valid until unmap. */
LIERNE_PRIVATE lierne_status lierne_abort_flags_get(const lierne_abort_flags *flags, int index,
                                                    const char **message);

lierne_common_words *lierne_abort_flags_common(const lierne_abort_flags *flags);
lierne_rank_words *lierne_abort_flags_rank(const lierne_abort_flags *flags, int index);
LIERNE_PRIVATE void *lierne_abort_flags_board(const lierne_abort_flags *flags, int index);

#endif
