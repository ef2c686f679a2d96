/* A memory kind is one table: where scratch and staging slots come from, and how blocks are copied,
 * cleared and summed there. Execution calls nothing else on data, so that all it does on the host
 * it does on a device that has such a table. */
#ifndef LIERNE_MEMORY_H
#define LIERNE_MEMORY_H

#include "runtime/memory/change.h"
#include "runtime/memory/host.h"
#include "runtime/memory/program.h"

typedef struct lierne_memory {
    const char *name;
    /* Memory for scratch and staging slots; its contents do not matter. */
    lierne_status (*alloc)(void **out, size_t bytes);
    void (*free)(void *memory);
    /* NULL, or the same for memory that no peer maps and no transport registers. stream: the
     * context's own. free_ordered takes effect in the order of the stream, and does not wait. */
    lierne_status (*alloc_ordered)(void **out, size_t bytes, void *stream);
    void (*free_ordered)(void *memory, void *stream);
    /* free and free_host wait for everything on the device, also for calls of other ranks in this
     * process, which may wait for this rank: lierne_context_free_kept calls neither. */
    bool free_waits;
    /* NULL, or where the host cannot read and write this kind: memory that both the host and the
     * device can, for messages of transports that read only the host's. */
    lierne_status (*alloc_host)(void **out, size_t bytes);
    void (*free_host)(void *memory);
    /* As the functions of the same names in host.h. */
    void (*copy)(size_t size, void *to, const lierne_block *to_block, const void *from,
                 const lierne_block *from_block);
    void (*copy_blocks)(size_t whole, size_t size, void *to, const lierne_block *to_blocks,
                        size_t nto, const void *from, const lierne_block *from_blocks,
                        size_t nfrom);
    void (*zero)(size_t size, void *to, const lierne_block *block);
    void (*reduce)(lierne_dtype dtype, lierne_reduction reduction, int64_t divisor, void *to,
                   const lierne_block *to_block, const lierne_contribution *from, size_t n);
    /* NULL, or UNSUPPORTED for a buffer of a call that a device of this kind cannot read and write,
     * or whose address is no multiple of `align` bytes. name: of the buffer. */
    lierne_status (*check)(const void *buffer, size_t align, int device, const char *name);

    /* NULL unless work is recorded while planning. Then calls on streams use these in place of
     * copy, zero and reduce. prepare: the program is recorded; may set its `device`, which discard
     * frees, and wait for the stream, which is the context's own. It is called again when another
     * program has been recorded in its place, and no call uses the last one any more. stage
     * and renew: the same of a program that fits what it has reserved, while earlier calls may
     * still read the last one. stage keeps what is recorded, and waits only where a stream has not
     * taken what was kept before the last time; renew, before the first launch, enqueues that the
     * stream takes it. launch: enqueues the tasks of one of its launches. */
    lierne_status (*prepare)(lierne_program *program, void *stream);
    lierne_status (*stage)(lierne_program *program);
    lierne_status (*renew)(lierne_program *program, void *stream);
    void (*discard)(lierne_program *program, void *stream);
    lierne_status (*launch)(const lierne_program *program, size_t launch,
                            const lierne_task_call *call, void *stream);
    /* NULL, which a kind with alloc_host never has, or enqueues what deltas do with pieces: finding
     * what changed, or making it. */
    lierne_status (*change)(const lierne_change_call *call, bool make, void *stream);
} lierne_memory;

extern const lierne_memory lierne_host_memory;

/* When memory that peers or streams reach is freed. */
typedef enum lierne_lifetime {
    LIERNE_LIFETIME_USE,     /* with its last use */
    LIERNE_LIFETIME_CONTEXT, /* with the context, which uses it again until then */
    LIERNE_LIFETIME_PROCESS, /* never */
} lierne_lifetime;
/* All that the library allocates and peers or streams reach is freed as this says. quiet: none of
 * them may still read or write it; unset after an error, and of a dead context whose peers have not
 * said that they left. kind: whose free would be called; NULL: one that does not wait. */
LIERNE_PRIVATE lierne_lifetime lierne_lifetime_find(const lierne_memory *kind, bool quiet);

#endif
