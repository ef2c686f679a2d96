/* The transport of MPI; its state is that of MPI's control. */
#ifndef LIERNE_MPI_TRANSPORT_H
#define LIERNE_MPI_TRANSPORT_H

#include "backend/mpi/mpi_state.h"
#include "runtime/transport/transport.h"

extern const lierne_transport lierne_mpi_transport;
/* What MPI takes beside host memory: the takes of its lierne_carrier. */
const char *lierne_mpi_takes(void);

#endif
