/* Calls that are captured, and replayed, on a device that is played (capture.h): a two-stage sum,
 * an all-to-all, rows, and a bridge, with inputs that change, and calls between that are not
 * captured. All against the same plans on host memory, bit by bit. */
#ifndef LIERNE_TESTS_REPLAY_CASE_H
#define LIERNE_TESTS_REPLAY_CASE_H

#include "lierne/plan.h"

enum { REPLAY_KINDS = 4, REPLAY_COUNT = 53, REPLAY_BYTES = 4 * REPLAY_COUNT * 4 };

/* Of a world of RANKS (node_ranks.h). Forward the bridge, kind 3, sends nothing. No input has more
 * than REPLAY_BYTES. inflight: of sums and all-to-alls. */
lierne_status replay_plan(lierne_plan **plan, lierne_context *context, int kind, int inflight);
/* Captures the first call of either direction of a plan, and replays them. */
void replay_calls(lierne_plan *host, lierne_plan *device, int rank, void *stream, int times);

#endif
