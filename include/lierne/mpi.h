/* Contexts over MPI. Library liblierne_mpi; the only public header that needs mpi.h. */
#ifndef LIERNE_MPI_H
#define LIERNE_MPI_H

#include "lierne/context.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MPI 5 has a standard ABI (mpicc_abi of MPICH 5 and of Open MPI 6): one build serves every MPI
 * that has it. lierne is built for it where mpicc_abi is found. Another mpi.h has other handles, so
 * that a program and a library of different kinds do not link: lierne_context_create_mpi, or the
 * same with _abi, is undefined. */
#ifdef MPI_ABI_VERSION
#define lierne_context_create_mpi lierne_context_create_mpi_abi
#endif

/* Creates a context over the ranks of comm. Collective over comm. comm stays the caller's: lierne
 * duplicates it and uses only duplicates, which return errors instead of aborting. One duplicate
 * carries messages. If not all ranks share memory, as between nodes, a second one carries the
 * notices of ranks that give up. Destroy the context with lierne_context_destroy. *out is NULL on
 * failure.
 *
 * MPI must be initialised before, and not be finalised before lierne_context_destroy has returned.
 *
 * spec may be NULL. spec->nodes must be the same on every rank. If spec->members is set, comm has
 * exactly the members, and its rank i is members[i]; MPI_Comm_create_group over a group with
 * ascending ranks makes such a communicator, and only its members call. Ranks with equal
 * spec->nodes, or with equal LIERNE_NODE where it is set, are on one node; without either, ranks
 * with the same host name are.
 *
 * Threads. lierne calls MPI only from threads that call lierne. MPI needs
 *   MPI_THREAD_FUNNELED    if the process has threads and MPI's main thread calls lierne,
 *   MPI_THREAD_SERIALIZED  if another thread calls lierne, as PyTorch's backward pass does, and the
 *                          program orders the calls of each context,
 *   MPI_THREAD_MULTIPLE    if threads call at the same time, each with its own context, or MPI
 *                          beside lierne.
 *
 * Tags. A plan, or coalesced plans, have tags of the duplicate for themselves: 2, or 128 where
 * max_inflight is above 1; an update needs others beside them. MPI_TAG_UB of the duplicate bounds
 * how many plans can be alive at once. Where the duplicate does not have it (in Open MPI 4.1 only
 * duplicates of MPI_COMM_WORLD do) it is taken to be 32767, which every MPI has: 16,383 plans. One
 * more is NO_MEMORY on every rank.
 *
 * Errors that all ranks get alike: INVALID (out NULL, the spec, LIERNE_TIMEOUT_MS, LIERNE_CHECK,
 * LIERNE_SUMMARY, LIERNE_NODE, LIERNE_ADDRESS or LIERNE_LOG), TRANSPORT (no port at LIERNE_ADDRESS:
 * lierne_context_shrink, lierne/node.h), MISMATCH (spec->nodes, members, world_size, check,
 * name or LIERNE_SUMMARY), IO (no file can be made in LIERNE_DUMP_DIR or LIERNE_METRICS, or for
 * LIERNE_LOG_FILE), NO_MEMORY. Their messages name ranks of comm,
 * because members are not agreed yet. Errors of one rank that are not propagated, so that the other
 * ranks see TIMEOUT: INVALID (comm is MPI_COMM_NULL or an intercommunicator, MPI is not initialised
 * or is finalised), NO_MEMORY of the first allocation, TRANSPORT (MPI's own), TIMEOUT. After such
 * an error, every further lierne_context_create_mpi on comm ends in TIMEOUT, because MPI matches
 * collective calls by their order and cannot cancel one: use another communicator.
 *
 * MPICH raises the errors of pending messages on MPI_COMM_WORLD. Its default handler ends the
 * process, so that TRANSPORT cannot be returned: set MPI_ERRORS_RETURN on MPI_COMM_WORLD.
 *
 * lierne_context_destroy of a context that is not dead waits for all ranks, at most the timeout; a
 * rank that plans at that time gets MISMATCH, or PEER_FAILED where it finds that this rank has left
 * before it has all messages of planning, and its context is dead. The communicators of a dead
 * context are never freed, nor are those of a context that not all ranks destroyed in time. If a
 * context died in a collective call of MPI, which cannot be cancelled, or sent notices to other
 * nodes, one allocation of about a megabyte is never freed either (two if
 * lierne_context_create_mpi failed); only pages of it that were used take memory. */
LIERNE_API lierne_status lierne_context_create_mpi(lierne_context **out, MPI_Comm comm,
                                                   const lierne_context_spec *spec);

/* The same for a communicator as an integer, which bindings of languages without mpi.h can hold: a
 * Fortran handle (MPI_Comm_c2f; mpi4py's Comm.py2f()), or, where mpi.h is that of the standard MPI
 * ABI, what MPI_Comm_toint gives. Errors: as lierne_context_create_mpi. A number that is no handle
 * has the effect that MPI_Comm_f2c or MPI_Comm_fromint gives it. */
LIERNE_API lierne_status lierne_context_create_mpi_fortran(lierne_context **out, int comm,
                                                           const lierne_context_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
