/* Summaries: how often the plans of a context were called, and what that took. Counting is always
 * on. Plans of one name and kind have one row, plans without a name one per kind, so name what you
 * want to see by itself (lierne/plan.h, Names). Coalesced plans have a row of their own. Only calls
 * that ended well count; rounds of windows and calls that a graph replays are not seen.
 *
 * With LIERNE_SUMMARY=1 in the environment, the same on every rank, the table of all ranks is
 * written when a context is destroyed: by its lowest rank, to LIERNE_LOG_FILE, or to the standard
 * error. A context that dies writes its own rank's then. Each context of a simulated world writes
 * its own.
 *
 * Time is from the begin of a call to its end, also where the caller computes between them. `wait`
 * is the share of it in which a rank polled in lierne_request_end, or in a blocking call, and
 * nothing progressed; short calls poll for a moment before they count as waiting. On a stream both
 * are those of the host.
 *
 * Thread safety: that of the context (lierne/context.h). */
#ifndef LIERNE_SUMMARY_H
#define LIERNE_SUMMARY_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's table: lines of at most 80 characters (a longer name has a line of its own), with
 * calls, MiB sent and received, seconds and the share of waiting of each row and direction.
 * lierne_text_destroy (lierne/hang.h) frees *text, which is NULL on failure. Not collective.
 * Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_get_summary(char **text, const lierne_context *context);

/* The same as one line of JSON:
 * {"name":"training","rank":0,"world":8,"seconds":12.5,"plans":[...]}, seconds since the context
 * was created, and of each row {"name","kind","plans", how many were made, "forward","adjoint"},
 * each of these {"calls","bytes","seconds","longest" (of one call, in seconds),"waiting"
 * (seconds)}. "name" is "" without one. Errors: as lierne_context_get_summary. */
LIERNE_API lierne_status lierne_context_get_summary_json(char **text,
                                                         const lierne_context *context);

/* The table over all ranks, the same on each: calls and MiB of the rank that has most, the least
 * and the most seconds of a rank and their ratio, and the share of waiting of all ranks together.
 * Collective over the context, waits for all ranks (in a simulated world: a thread per rank). *text
 * as above. Errors: INVALID (this rank's alone where context is NULL, else of all ranks),
 * NO_MEMORY, TIMEOUT, PEER_FAILED, TRANSPORT, and the error of a dead context. */
LIERNE_API lierne_status lierne_context_reduce_summary(char **text, lierne_context *context);

#ifdef __cplusplus
}
#endif
#endif
