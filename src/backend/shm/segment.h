/* Memory of a rank that other processes of its node map: a memfd, which has no name, so that
 * nothing is left in the system when processes are killed, and which no other user can open.
 *
 * Its first page is the head. Behind it, the segment grows in chunks, each mapped by itself and as
 * long as the segment lives, so an offset means the same memory to all processes at all times. */
#ifndef LIERNE_SEGMENT_H
#define LIERNE_SEGMENT_H

#include "runtime/transport/extents.h"

#include <stdatomic.h>

#define LIERNE_PAGE       4096
#define LIERNE_CACHE_LINE 64

/* Chunks double in size, so a few are enough. */
#define LIERNE_SEGMENT_CHUNKS 40

typedef struct lierne_segment_head {
    uint64_t token;   /* what the owner announced: a process that took over its pid has another */
    uint64_t address; /* of the head in the owner's process */
    _Alignas(LIERNE_CACHE_LINE) atomic_uint bell; /* changes when the owner is woken */
    atomic_uint asleep;                           /* whether the owner may be asleep */
    _Alignas(LIERNE_CACHE_LINE) atomic_uint nchunks;
    lierne_extent chunks[LIERNE_SEGMENT_CHUNKS]; /* by offset */
} lierne_segment_head;

/* What other processes need to map a segment. */
typedef struct lierne_segment_name {
    uint64_t process;
    uint64_t descriptor;
    uint64_t token;
} lierne_segment_name;

/* A segment in the address space of its owner, or of another process. Zero-initialise. */
typedef struct lierne_segment {
    lierne_segment_name name;
    lierne_segment_head *head; /* NULL: not open */
    bool own;
    char *at[LIERNE_SEGMENT_CHUNKS]; /* of each chunk; NULL: not mapped */
    lierne_extents used;             /* of the owner */
} lierne_segment;

/* Creates the segment of this process. Errors: NO_MEMORY, UNSUPPORTED (the system refuses a memfd);
 * nothing is left to close then. */
lierne_status lierne_segment_open(lierne_segment *segment);
/* Maps the head of a segment that another process, or this one, opened. Errors: UNSUPPORTED (the
 * system refuses it, or it is another process's now); nothing is left to close then. */
lierne_status lierne_segment_attach(lierne_segment *segment, lierne_segment_name name);
/* Unmaps it. The memory lives on in the processes that have mapped it. */
void lierne_segment_close(lierne_segment *segment);

/* Zeroed memory, at the start of a page, in whole pages. *offset is where it is in the segment;
 * NULL is allowed. Errors: NO_MEMORY. */
lierne_status lierne_segment_alloc(void **out, uint64_t *offset, lierne_segment *segment,
                                   size_t bytes);
/* Returns memory to the system; false if nothing that is allocated begins there. */
bool lierne_segment_free(lierne_segment *segment, const void *memory);
/* Whether all of some memory lies in one chunk; *offset is where. */
bool lierne_segment_find(const lierne_segment *segment, const void *memory, size_t bytes,
                         uint64_t *offset);

/* The address of an offset; maps its chunk at the first use. NULL if there is no such chunk or it
 * cannot be mapped, with the message. */
void *lierne_segment_address(lierne_segment *segment, uint64_t offset, size_t bytes);

#endif
