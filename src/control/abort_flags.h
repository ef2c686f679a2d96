/* Abort flags: memory that the ranks of a node share, a flag per rank.
 *
 * A rank that gives up raises its flag before it returns to its caller, who may then reuse buffers
 * that a peer has yet to read. A rank that looks at the flag of a sender after it has received, and
 * finds it down, has read the buffers as they were. */
#ifndef LIERNE_ABORT_FLAGS_H
#define LIERNE_ABORT_FLAGS_H

#include "base/base.h"

typedef struct lierne_abort_flags lierne_abort_flags;

/* Shared memory for n flags, all down: a descriptor, to be closed; -1 where the system refuses. */
LIERNE_PRIVATE int lierne_abort_flags_open(int n);
/* Maps the flags that another process, or this one, opened for n ranks, and reserves memory for
 * the one at index; NULL where the system refuses. */
LIERNE_PRIVATE lierne_abort_flags *lierne_abort_flags_map(uint64_t process, int descriptor, int n,
                                                          int index);
/* NULL is allowed. Flags that were raised stay raised for the others. */
LIERNE_PRIVATE void lierne_abort_flags_unmap(lierne_abort_flags *flags);

/* Raises a flag: status is not OK. */
LIERNE_PRIVATE void lierne_abort_flags_raise(lierne_abort_flags *flags, int index,
                                             lierne_status status, const char *message);
/* Whether any flag is raised, as seen after everything that this thread has read so far. */
LIERNE_PRIVATE bool lierne_abort_flags_any(const lierne_abort_flags *flags);
/* The status that a flag was raised with, OK if it is down; *message stays valid until unmap. */
LIERNE_PRIVATE lierne_status lierne_abort_flags_get(const lierne_abort_flags *flags, int index,
                                                    const char **message);

#endif
