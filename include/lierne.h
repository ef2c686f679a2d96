/* lierne: moves tensors between parallel layouts that share the same ranks, forward and backward,
 * exactly. This header includes every other one but lierne/mpi.h, which needs mpi.h, and
 * lierne/sim.h, the simulated world. */
#ifndef LIERNE_LIERNE_H
#define LIERNE_LIERNE_H

#include "lierne/bridge.h"
#include "lierne/config.h"
#include "lierne/context.h"
#include "lierne/grid.h"
#include "lierne/group.h"
#include "lierne/halo.h"
#include "lierne/layout.h"
#include "lierne/megatron.h"
#include "lierne/plan.h"
#include "lierne/redistribute.h"
#include "lierne/route.h"
#include "lierne/sparse.h"
#include "lierne/status.h"

#endif
