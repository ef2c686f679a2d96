/* Contexts over MPI. Library liblierne_mpi; the only public header that needs mpi.h. */
#ifndef LIERNE_MPI_H
#define LIERNE_MPI_H

#include "lierne/context.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a context over the ranks of comm. Collective over comm. lierne duplicates comm and uses
 * only the duplicate, which returns errors instead of aborting; comm stays the caller's. MPI must
 * be initialised, with MPI_THREAD_FUNNELED or more if the process has other threads, and must not
 * be finalised before lierne_context_destroy. Threads. lierne calls MPI from the threads that call
 * lierne, and no other. Where another thread than MPI's main thread does so, as PyTorch's backward
 * pass, which runs in a thread of its own, MPI_THREAD_SERIALIZED is needed, and the program orders
 * the calls of one context; where threads call at the same time, with contexts of their own or with
 * MPI beside lierne, MPI_THREAD_MULTIPLE. A plan made and executed in one thread may then be
 * executed in another: its thread-local message is that of the thread that called. spec may be
 * NULL; spec->nodes must be the same on every rank. Where spec->members is set, comm has exactly
 * the members: its rank i is members[i]. MPI_Comm_create_group makes such a communicator without a
 * call on other ranks; a group with its ranks ascending gives this order. Ranks are on one node if
 * they have the same spec->nodes, or the same LIERNE_NODE where it is set; without either, if their
 * hosts have the same name. Destroy the context with lierne_context_destroy; *out is NULL on
 * failure.
 *
 * Errors that all ranks get alike: INVALID (out NULL, the spec, LIERNE_TIMEOUT_MS, LIERNE_CHECK or
 * LIERNE_NODE), MISMATCH (spec->nodes, members, world_size or check), IO (no file can be made in
 * LIERNE_DUMP_DIR), NO_MEMORY. Their messages name ranks of comm, because members are not agreed
 * yet. Errors of one rank that are not propagated, so that the other ranks see TIMEOUT: INVALID
 * (comm is MPI_COMM_NULL or an intercommunicator, MPI is not initialised or is finalised),
 * NO_MEMORY of the first allocation, TRANSPORT (MPI's own), TIMEOUT. After such an error, every
 * further lierne_context_create_mpi on comm ends in TIMEOUT, because MPI matches collective calls
 * by their order and cannot cancel one: use another communicator.
 *
 * MPICH raises the errors of pending messages on MPI_COMM_WORLD. Its default handler ends the
 * process, so that TRANSPORT cannot be returned: set MPI_ERRORS_RETURN on MPI_COMM_WORLD.
 *
 * Ranks of one node share a few kilobytes of anonymous memory (memfd), in which a rank that gives
 * up tells the others; it disappears with the processes. If the system does not allow that, and
 * between nodes, a second duplicate of comm is used for it.
 *
 * lierne_context_destroy of a context that is not dead waits for all ranks, at most the timeout; a
 * rank that plans meanwhile gets MISMATCH and its context is dead. The communicators of a dead
 * context are never freed, nor are those of a context that not all ranks destroyed in time. If a
 * context died in a collective call of MPI, which cannot be cancelled, or sent notices to other
 * nodes, one allocation of about a megabyte is never freed either (two if
 * lierne_context_create_mpi failed); only pages of it that were used take memory. */
LIERNE_API lierne_status lierne_context_create_mpi(lierne_context **out, MPI_Comm comm,
                                                   const lierne_context_spec *spec);

/* The same for a communicator as a Fortran handle (MPI_Comm_c2f): a number, which bindings of
 * languages without mpi.h can hold; mpi4py's Comm.py2f() gives one. Errors: as
 * lierne_context_create_mpi; a number that is no handle is what MPI makes of it. */
LIERNE_API lierne_status lierne_context_create_mpi_fortran(lierne_context **out, MPI_Fint comm,
                                                           const lierne_context_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
