/* The transport of MPI; its state is that of MPI's control. */
#ifndef LIERNE_MPI_TRANSPORT_H
#define LIERNE_MPI_TRANSPORT_H

#include "control/mpi/state.h"
#include "transport/transport.h"

extern const lierne_transport lierne_mpi_transport;

/* For tests: cuts messages into pieces of at most `bytes`, the same on every rank, from the next
 * message on. */
void lierne_mpi_set_piece_bytes(lierne_mpi_state *m, size_t bytes);

#endif
