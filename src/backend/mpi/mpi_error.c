/* Turns an error of MPI into one of lierne. */
#include "backend/mpi/mpi_state.h"

int lierne_mpi_name(const lierne_mpi_state *m, int rank) {
    return lierne_members_rank(&m->members, rank);
}

lierne_status lierne_mpi_failed(const lierne_mpi_state *m, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: %s: %s", lierne_mpi_name(m, m->rank), what,
                       text);
}
