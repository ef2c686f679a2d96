/* Several plans in one exchange: an audio and a vision encoder that both feed one LLM need not send
 * two rounds of messages. An exchange executes plans together, between one begin and one end;
 * messages of theirs that go to the same rank travel as one.
 *
 * The plans are those of one context, in the same order on every rank. They stay the caller's, and
 * may be executed on their own too; while an exchange holds them they can neither be freed nor
 * given another row map (BUSY). Numbers are those of the plans executed one by one, bit for bit. */
#ifndef LIERNE_EXCHANGE_H
#define LIERNE_EXCHANGE_H

#include "lierne/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LIERNE_MAX_COALESCED 64 /* plans in an exchange */

typedef struct lierne_coalesced lierne_coalesced;

/* Makes an exchange of n plans. Collective over their context; on any rank's failure every rank
 * gets the same error, and *out is NULL. Errors: INVALID (NULL, n not in 1 to LIERNE_MAX_COALESCED,
 * plans of different contexts), MISMATCH (the ranks' plans differ, or their order), NO_MEMORY,
 * TIMEOUT, PEER_FAILED, TRANSPORT. The first plan that is not NULL gives the context: a rank whose
 * plans are all NULL gets INVALID alone, and the others wait for it until their deadline. */
LIERNE_API lierne_status lierne_coalesced_create(lierne_coalesced **out, lierne_plan *const *plans,
                                                 int n);

/* Frees an exchange, not its plans; not collective. NULL is allowed. Errors: BUSY (in flight, and
 * the context is not dead). */
LIERNE_API lierne_status lierne_coalesced_destroy(lierne_coalesced *exchange);

/* Starts all plans in one direction. in[i] and out[i] are the buffers of plan i, under the rules of
 * lierne_forward; all of them stay borrowed until lierne_coalesced_end. One call per direction may
 * be in flight, and both directions at once. Collective. stream must be NULL. Errors as
 * lierne_forward_begin; INVALID also for a direction that is none. */
LIERNE_API lierne_status lierne_coalesced_begin(lierne_coalesced *exchange,
                                                lierne_direction direction, void *const *out,
                                                const void *const *in, void *stream);
/* Waits for what lierne_coalesced_begin started. Errors: INVALID (NULL, the direction, nothing is
 * in flight: this rank's alone, which may call again), and those of lierne_end. */
LIERNE_API lierne_status lierne_coalesced_end(lierne_coalesced *exchange,
                                              lierne_direction direction);

/* Messages of one execution on this rank; either may be NULL. Errors: INVALID. */
LIERNE_API lierne_status lierne_coalesced_get_messages(int64_t *sent, int64_t *received,
                                                       const lierne_coalesced *exchange,
                                                       lierne_direction direction);

#ifdef __cplusplus
}
#endif
#endif
