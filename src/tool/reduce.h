/* Smaller sizes for a simulation, with which the same things happen. */
#ifndef LIERNE_TOOL_REDUCE_H
#define LIERNE_TOOL_REDUCE_H

#include "lierne/bridge.h"

/* Writes the reduced global shape, and per axis why it was reduced; NULL where it was not. */
void tool_reduce(const lierne_bridge_spec *spec, int64_t *shape, const char **reasons);

#endif
