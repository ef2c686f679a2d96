/* Smaller sizes for a simulation, with which the same things happen. */
#ifndef LIERNE_TOOL_REDUCE_H
#define LIERNE_TOOL_REDUCE_H

#include "lierne/bridge.h"

/* Reduces the global shape of spec, whose shape is in shape from then on, and its rows per sample.
 * Writes why per axis; NULL for an axis that was not reduced. */
void tool_reduce(lierne_bridge_spec *spec, int64_t *shape, const char **reasons);

#endif
