/* A program: the copies and sums of an execution, recorded when it is planned, so that a device
 * carries out all of a stage in one launch and a call sends it nothing but addresses. */
#ifndef LIERNE_PROGRAM_H
#define LIERNE_PROGRAM_H

#include "base/base.h"
#include "route/route.h"
#include "runtime/memory/task.h"

/* Tasks that run at the same time. Launches run one after another. */
typedef struct lierne_task_launch {
    int64_t first; /* task */
    int64_t end;
    int64_t tiles;
    int dtype;       /* of the sums among them; LIERNE_NO_SUMS: there are none */
    bool contiguous; /* nothing but copies from one range to another */
} lierne_task_launch;

/* An index list that was recorded. */
typedef struct lierne_program_list {
    const int64_t *rows;
    int64_t n;
    int64_t at; /* in the lists */
} lierne_program_list;

/* Elements first to end - 1 of a buffer, in bytes; of a launch that is open. */
typedef struct lierne_program_span {
    int region;
    int64_t first;
    int64_t end;
} lierne_program_span;

typedef struct lierne_program {
    LIERNE_VEC(lierne_task_launch) launches;
    LIERNE_VEC(lierne_task) tasks;
    LIERNE_VEC(lierne_task_block) blocks;
    LIERNE_VEC(int64_t) lists;
    LIERNE_VEC(lierne_program_list) known;
    LIERNE_VEC(lierne_program_span) written, read; /* by the launch that is open */
    /* Of a program that changes between calls: bytes of its tables up to which nothing more is
     * allocated; else 0. */
    size_t reserved;
    char *copies[2]; /* NULL, or as long: memory that both the host and the device reach */
    void *device;    /* the memory kind's own */
} lierne_program;

/* A block of a buffer. base: see lierne_task_block; region: equal for buffers that may be the same
 * in a call; shift: bytes from the base to the buffer. */
typedef struct lierne_operand {
    int base;
    int region;
    int64_t shift;
    const lierne_block *block;
} lierne_operand;

/* What is recorded: to = from[0] + from[1] + ... as lierne_host_reduce, a copy (nfrom is 1), or
 * zeros. All blocks have the same counts. */
typedef struct lierne_work {
    lierne_task_kind kind;
    size_t size; /* of an element */
    lierne_dtype dtype;
    lierne_reduction reduction;
    int64_t divisor;
    lierne_operand to;
    const lierne_operand *from;
    size_t nfrom;
} lierne_work;

/* Opens a launch, if the last one has tasks; adds work to it. ordered: work that needs, or
 * overwrites, what work before it read or wrote begins another launch; without it, all work of a
 * launch is known to be independent. Errors of both: NO_MEMORY. */
lierne_status lierne_program_open(lierne_program *program);
lierne_status lierne_program_add(lierne_program *program, const lierne_work *work, bool ordered);
/* Makes it one that changes: reserves space for so many copies. fits: what was recorded needs no
 * more than is reserved. Errors: NO_MEMORY. */
lierne_status lierne_program_reserve(lierne_program *program, size_t copies);
bool lierne_program_fits(const lierne_program *program);
/* Bytes of its tables. */
static inline size_t lierne_program_bytes(const lierne_program *p) {
    return p->tasks.count * sizeof *p->tasks.at + p->blocks.count * sizeof *p->blocks.at +
           p->lists.count * sizeof *p->lists.at;
}
/* Forgets what was recorded, and keeps memory; destroy frees that, too. Both leave `device` alone.
 */
void lierne_program_clear(lierne_program *program);
void lierne_program_destroy(lierne_program *program);

/* Sets call->align from the bases. */
void lierne_task_call_align(lierne_task_call *call, size_t nbases);

#endif
