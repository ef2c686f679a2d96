/* The transport of MPI; its state is that of MPI's control. */
#ifndef LIERNE_MPI_TRANSPORT_H
#define LIERNE_MPI_TRANSPORT_H

#include "control/mpi/state.h"
#include "transport/transport.h"

extern const lierne_transport lierne_mpi_transport;

#endif
