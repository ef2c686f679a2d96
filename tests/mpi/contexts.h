/* Contexts of the programs in this folder: of MPI, or of what the environment asks for. */
#ifndef LIERNE_TESTS_MPI_CONTEXTS_H
#define LIERNE_TESTS_MPI_CONTEXTS_H

#include "lierne/mpi.h"

/* lierne_context_create_mpi, or instead of it what contexts.c says, or launched/mpi.c without MPI.
 */
lierne_status test_context_create(lierne_context **out, MPI_Comm comm,
                                  const lierne_context_spec *spec);

#endif
