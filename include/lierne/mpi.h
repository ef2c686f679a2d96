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
 * finalised before lierne_free. spec may be NULL.
 * Errors, the same on every rank: INVALID (out NULL, comm MPI_COMM_NULL or an intercommunicator,
 * MPI not initialised or finalised, the spec), NO_MEMORY, TRANSPORT (MPI's own), TIMEOUT. */
LIERNE_API lierne_status lierne_init_mpi(lierne_context **out, MPI_Comm comm,
                                         const lierne_context_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
