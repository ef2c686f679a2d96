/* Contexts over MPI. In liblierne_mpi; the only public header that needs mpi.h. */
#ifndef LIERNE_MPI_H
#define LIERNE_MPI_H

#include "lierne/context.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A context over the ranks of comm. Collective over comm. lierne duplicates comm and talks on the
 * duplicate only, which returns errors instead of aborting; comm stays the caller's. MPI must be
 * initialised, with MPI_THREAD_FUNNELED or more if the process has other threads, and must not be
 * finalised before lierne_context_destroy. spec may be NULL; spec->nodes must be the same on every
 * rank. Ranks on one node: those with the same spec->nodes, or LIERNE_NODE where it is set; without
 * either, those on a host of the same name.
 * Errors, the same on every rank: INVALID (out NULL, the spec, LIERNE_TIMEOUT_MS or LIERNE_NODE),
 * MISMATCH (spec->nodes), NO_MEMORY. Errors of one rank, which the others cannot be told and meet
 * as TIMEOUT: INVALID (comm MPI_COMM_NULL or an intercommunicator, MPI not initialised or
 * finalised), NO_MEMORY of the first allocation, TRANSPORT (MPI's own), TIMEOUT. MPI matches
 * collective calls by their order and cannot take one back, so after an error of one rank alone
 * comm serves no further lierne_context_create_mpi: it ends in TIMEOUT. Use another communicator.
 *
 * MPICH raises the errors of messages that were under way on MPI_COMM_WORLD: with its default
 * handler, which ends the process, TRANSPORT cannot be returned for them. Set MPI_ERRORS_RETURN
 * there.
 *
 * Ranks of one node share a few kilobytes of memory without a name (memfd), where a rank that gives
 * up says so; nothing is left of it when processes end. Where the system refuses that, and between
 * nodes, a second duplicate of comm carries such messages.
 *
 * lierne_context_destroy of a context that is not dead waits for all ranks, at most the timeout; a
 * rank that plans meanwhile gets MISMATCH and its context is dead. A dead context, and one whose
 * ranks did not all come to lierne_context_destroy, leaves its communicators behind. So does, with
 * its memory (one allocation of about a megabyte, of which what was used is real; two in
 * lierne_context_create_mpi), a context that died in a collective call of MPI, which cannot be
 * cancelled, or that sent such messages. */
LIERNE_API lierne_status lierne_context_create_mpi(lierne_context **out, MPI_Comm comm,
                                                   const lierne_context_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
