/* lierne: moves tensors between parallel layouts that share the same ranks, forward and backward,
 * exactly. This is the front page: what to read, from the simplest to the hardest, and what all
 * headers have in common. It includes every other header but those of single ways to create a
 * context: lierne/mpi.h, which needs mpi.h, lierne/node.h, lierne/oob.h, and lierne/sim.h, the
 * simulated world; and those of the libraries for GPUs, lierne/cuda.h and lierne/nccl.h.
 *
 * Simple. Describe two grids, plan the bridge between them once, then call it every step. Seven
 * functions: lierne_grid_create, lierne_context_create_mpi, lierne_plan_create_bridge,
 * lierne_plan_forward, lierne_plan_adjoint, lierne_plan_destroy, lierne_context_destroy. Everything
 * else of their specs may stay zero. lierne/status.h        statuses, and the message of the last
 * error lierne/grid.h          a process mesh: named dims, sizes, rank order lierne/context.h this
 * rank among the others; lierne/mpi.h makes one over MPI, lierne/node.h one of a node without MPI
 *   lierne/bridge.h        the plan between an encoder's layout and an LLM's
 *   lierne/plan.h          executing a plan, and asking it for shapes and costs
 * For remote rows (ghosts, halos) read lierne/sparse.h instead of lierne/bridge.h.
 *
 * Full. Any layout to any layout, overlap with computation, changes from step to step.
 *   lierne/layout.h        placements in DTensor's words
 *   lierne/redistribute.h  the central operation: from one layout to another
 *   lierne/plan.h          requests in flight, coalesced plans, lierne_plan_update_shape
 *   lierne/sparse.h        graphs, (rank, row) references, partitions
 *   lierne/halo.h          swaps as LAMMPS has them, and bricks
 *   lierne/collective.h    all-gather, reduce-scatter, all-reduce, all-to-all and others as plans
 *   lierne/config.h        layouts from a checked JSON file
 *   lierne/digest.h        whether what was moved has arrived as it was sent
 *
 * Expert. What lierne does, as data, and what it is compared with.
 *   lierne/route.h         what a rank does in a plan, to execute it elsewhere
 *   lierne/group.h         communicators by identity and purpose, within a budget
 *   lierne/schedule.h      the operations of a step, isolated by purpose, checked and run
 *   lierne/hang.h          the rank that the others wait for, from what every rank recorded
 *   lierne/megatron.h      Megatron-LM's algorithms, mapping and rejections
 *   lierne/oob.h           contexts over functions of your own
 *   lierne/cuda.h          plans on memory of CUDA devices, on streams; lierne/nccl.h: over NCCL
 *   lierne/sim.h           all ranks of a world in one process
 *
 * What holds everywhere.
 *
 * Names. lierne_<noun>_create and _destroy make and free; lierne_plan_create_<kind> makes a plan;
 * _get_ asks without communicating. Outputs come first, specs last.
 *
 * Structs with a size. A spec begins with its size; everything that is not set is zero. Begin with
 * its macro LIERNE_..._SPEC_INIT where there is one, else with {.size = sizeof spec}. So a program
 * and a library of different versions understand each other: fields are only added at the end; what
 * a smaller struct does not have is zero; of a larger one, what the library does not know must be
 * zero (INVALID otherwise, and the message has both sizes). A struct that lierne fills is filled as
 * far as it goes. Structs without a size never change (docs/conventions.md lists them).
 *
 * Errors. A function that can fail returns a lierne_status. On failure nothing is kept. What it
 * would return through a pointer to a pointer (a handle, a text, a list) is NULL after every error,
 * also where the context, the plan or the spec is NULL (lierne/config.h has the one exception).
 * lierne_last_error has one line: the function that was called, the value, the bound and what to
 * do. Making or changing a plan fails on all ranks alike. lierne never prints, exits or aborts. */
#ifndef LIERNE_LIERNE_H
#define LIERNE_LIERNE_H

#include "lierne/bridge.h"
#include "lierne/collective.h"
#include "lierne/config.h"
#include "lierne/context.h"
#include "lierne/digest.h"
#include "lierne/grid.h"
#include "lierne/group.h"
#include "lierne/halo.h"
#include "lierne/hang.h"
#include "lierne/layout.h"
#include "lierne/megatron.h"
#include "lierne/plan.h"
#include "lierne/redistribute.h"
#include "lierne/route.h"
#include "lierne/schedule.h"
#include "lierne/sparse.h"
#include "lierne/status.h"

#endif
