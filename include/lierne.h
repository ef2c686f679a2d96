/* lierne: moves tensors between parallel layouts that share the same ranks, forward and backward,
 * exactly.
 *
 * This is the front page: what to read, from the simplest to the hardest, and what all headers have
 * in common. It includes all headers that need no other library and create no context:
 * lierne/mpi.h, lierne/node.h, lierne/oob.h, lierne/sim.h, lierne/cuda.h, lierne/nccl.h and
 * lierne/torch.h are included one by one.
 *
 * Simple. Describe two grids, plan the bridge between them once, then call it every step. Seven
 * functions: lierne_grid_create, lierne_context_create_mpi, lierne_plan_create_bridge,
 * lierne_plan_forward, lierne_plan_adjoint, lierne_plan_destroy, lierne_context_destroy. All other
 * fields of their specs may stay zero.
 *
 *   lierne/status.h        statuses, and the message of the last error
 *   lierne/grid.h          a process mesh: named dims, sizes, rank order
 *   lierne/context.h       this rank among the others
 *   lierne/mpi.h           contexts over MPI; lierne/node.h: of one node, without MPI
 *   lierne/bridge.h        the plan between an encoder's layout and an LLM's
 *   lierne/plan.h          executing a plan, and asking it for shapes and costs
 *
 * For remote rows (ghosts, halos) read lierne/sparse.h instead of lierne/bridge.h.
 *
 * Full. Any layout to any layout, overlap with computation, changes from step to step.
 *
 *   lierne/layout.h        placements in DTensor's words
 *   lierne/dense_halo.h    parts that overlap, for stencils, convolutions and sliding windows
 *   lierne/packing.h       packed sequences: segments cut over context-parallel ranks
 *   lierne/redistribute.h  the central operation: from one layout to another
 *   lierne/packed_bridge.h  rows of images to their tokens in a packed sequence
 *   lierne/segments.h      segments that no rank has whole, gathered
 *   lierne/plan.h          requests in flight, coalesced plans, lierne_plan_update_shape
 *   lierne/sparse.h        graphs, (rank, row) references, partitions
 *   lierne/samples.h       sample routing: which rank computes which sample
 *   lierne/halo.h          swaps as LAMMPS has them, and bricks
 *   lierne/collective.h    all-gather, reduce-scatter, all-reduce, all-to-all and others as plans
 *   lierne/config.h        layouts from a checked JSON file
 *   lierne/digest.h        whether a tensor arrived as it was sent
 *
 * Expert. What lierne does, as data, and what it is compared with.
 *
 *   lierne/route.h         what a rank does in a plan, for executing it elsewhere
 *   lierne/group.h         communicators by identity and purpose, within a budget
 *   lierne/schedule.h      the operations of a step, isolated by purpose, checked and run
 *   lierne/window.h        memory of the node's ranks and a barrier, for kernels of your own
 *   lierne/hang.h          which rank a hung job waits for, from the records of all ranks
 *   lierne/summary.h       how often plans were called, what that took, and how long ranks waited
 *   lierne/megatron.h      Megatron-LM's algorithms, mapping and rejections
 *   lierne/oob.h           contexts over functions of your own
 *   lierne/cuda.h          plans on memory of CUDA devices, on streams; lierne/nccl.h: over NCCL
 *   lierne/torch.h         deepmd-kit's operators for programs without Python
 *   lierne/sim.h           all ranks of a world in one process
 *
 * What holds everywhere.
 *
 * Names. lierne_<noun>_create and _destroy create and free; lierne_plan_create_<kind> creates a
 * plan; _get_ asks without communicating. Outputs come first, specs last. Destroying takes the
 * handle; NULL is allowed. It returns a status where other ranks take part (contexts, plans,
 * coalesced plans, groups, windows, runs, simulated worlds), and nothing for pure data.
 *
 * Structs with a size. A spec begins with its size. Initialise it with its macro
 * LIERNE_..._SPEC_INIT if there is one, otherwise with {.size = sizeof spec}; fields that are not
 * set are zero. New versions add fields at the end only. Fields that a smaller struct does not have
 * count as zero. If a larger struct has a nonzero field that the library does not know, the call
 * returns INVALID, and the message has both sizes. lierne fills a struct up to its size. Structs
 * without a size never change (docs/conventions.md lists them).
 *
 * Errors. A function that can fail returns a lierne_status. A failed call keeps nothing. After
 * every error, also if the context, the plan or the spec is NULL, each output that is a pointer to
 * a handle, a text or a list is NULL (lierne/config.h has the one exception). lierne_last_error
 * returns one line: the function that was called, the value, the bound and what to do. Calls that
 * create or change a plan return the same error on all ranks. lierne never prints, exits or
 * aborts. */
#ifndef LIERNE_LIERNE_H
#define LIERNE_LIERNE_H

#include "lierne/bridge.h"
#include "lierne/collective.h"
#include "lierne/config.h"
#include "lierne/context.h"
#include "lierne/delta.h"
#include "lierne/digest.h"
#include "lierne/grid.h"
#include "lierne/group.h"
#include "lierne/halo.h"
#include "lierne/hang.h"
#include "lierne/layout.h"
#include "lierne/megatron.h"
#include "lierne/packed_bridge.h"
#include "lierne/packing.h"
#include "lierne/plan.h"
#include "lierne/redistribute.h"
#include "lierne/route.h"
#include "lierne/samples.h"
#include "lierne/schedule.h"
#include "lierne/segments.h"
#include "lierne/sparse.h"
#include "lierne/status.h"
#include "lierne/summary.h"
#include "lierne/window.h"

#endif
