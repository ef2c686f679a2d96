/* Shared memory of a context over MPI: what its ranks must tell each other to use it. */
#ifndef LIERNE_CONTEXT_MPI_SHM_H
#define LIERNE_CONTEXT_MPI_SHM_H

#include "context/context.h"
#include "control/mpi/state.h"

/* Opens this rank's segment, where the context has the transport, and writes its name into the
 * rank info that is gathered next. A rank that the system refuses it says so there. */
void lierne_mpi_open_shm(lierne_context *context, lierne_mpi_state *m);
/* Maps the segments of the ranks of the node; m->ranks are those that were gathered, in the order
 * of ranks. Writes whether all could be mapped, and whether their memory can be read. */
void lierne_mpi_map_shm(const lierne_context *context, const lierne_mpi_state *m, bool *shared,
                        bool *pulls);
/* Starts the transport, or takes it out of the context where some rank could not map everything.
 * Errors: UNSUPPORTED (the context has no other transport), on every rank. */
lierne_status lierne_mpi_start_shm(lierne_context *context, lierne_mpi_state *m, bool shared,
                                   bool pulls);

#endif
