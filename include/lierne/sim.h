/* A simulated world: the contexts of all ranks in one process. For tests, for planning offline and
 * for tools. lierne.h does not include this header.
 *
 * Every function that takes a context takes one of a simulated world. Plans, calls and reports are
 * the same, and results have the same bits as over any other transport. A rank whose context is
 * never used takes almost no memory, so worlds may be large.
 *
 * Executing. One thread may call for all ranks: lierne_plan_forward_begin (or another begin) on
 * every rank, then lierne_request_end on every rank. Blocking calls wait for other ranks and need a
 * thread per rank.
 *
 * Planning. Redistributions and bridges need no messages to plan, so one thread may plan rank after
 * rank. Each call compares its spec with those of the ranks that planned before it. On a difference
 * or an error this rank and all later ones get the error from the planning call, and the earlier
 * ranks get it when they execute. Planning that exchanges messages (graphs, references, halos,
 * bricks) waits for all ranks and needs a thread per rank: from one thread it ends in TIMEOUT.
 *
 * Checked calls (lierne_context_spec.check). If a later rank differs, earlier ranks have already
 * begun: they get the error from lierne_request_end or lierne_coalesced_end, which wait until all
 * ranks have called, and their contexts are dead.
 *
 * Death. When a context dies (lierne/context.h), ranks that wait for that rank get the same status.
 * Buffers belong to the caller again when the call, or lierne_request_end, has returned, also with
 * an error.
 *
 * Thread safety: each context of a world may be used by one thread at a time, different contexts by
 * different threads at once. */
#ifndef LIERNE_SIM_H
#define LIERNE_SIM_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_sim lierne_sim;

/* Creates a world of nranks ranks, 1 to LIERNE_MAX_RANKS (lierne/grid.h). Not collective. spec
 * applies to all ranks; NULL means all zeros. spec->nodes has nranks entries and is copied. If
 * spec->members is set, only these ranks have contexts, spec->nodes has nmembers entries, and
 * world_size is 0 or nranks. LIERNE_NODE is not read. Destroy the world with lierne_sim_destroy.
 * *out is NULL on failure. Errors: INVALID (out NULL, nranks, spec->size,
 * timeout, max_groups, links, members, name, log or log_level, LIERNE_TIMEOUT_MS not a number,
 * LIERNE_CHECK or LIERNE_SUMMARY not 0 or 1, LIERNE_LOG or LIERNE_LOG_FILE), IO (LIERNE_LOG_FILE
 * cannot be written), NO_MEMORY.
 * Contexts are created when they are first used, where no error can be returned: a context that
 * cannot create its file in LIERNE_DUMP_DIR records nothing, and one that cannot in LIERNE_METRICS
 * has no metrics. */
LIERNE_API lierne_status lierne_sim_create(lierne_sim **out, int nranks,
                                           const lierne_context_spec *spec);

/* Returns the context of a rank: the same pointer in each call, owned by the world, valid until
 * lierne_sim_destroy. NULL if sim is NULL, or the rank does not exist or is no member. Any thread
 * may call it at any time. */
LIERNE_API lierne_context *lierne_sim_get_context(lierne_sim *sim, int rank);

/* Destroys a world with all its contexts, dead or not. Not collective; no thread may use the world
 * during the call. NULL is allowed. Errors: INVALID (plans or groups of one of its ranks are alive;
 * nothing is destroyed). */
LIERNE_API lierne_status lierne_sim_destroy(lierne_sim *sim);

/* Destroys a world with all its contexts and everything that was made from them and is alive, as
 * lierne_context_destroy_all does. Not collective; no thread may use the world during the call.
 * NULL is allowed. Errors: BUSY (a request of a context that is not dead is in flight; nothing is
 * destroyed). */
LIERNE_API lierne_status lierne_sim_destroy_all(lierne_sim *sim);

#ifdef __cplusplus
}
#endif
#endif
