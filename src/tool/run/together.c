/* What the ranks of `lierne run` decide together. */
#include "run.h"

#include <mpi.h>

int run_worst(int status) {
    int worst;
    MPI_Allreduce(&status, &worst, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return worst;
}

bool run_all_ok(const run_state *run, lierne_status status) {
    int mine = status == LIERNE_OK ? run->ranks : run->rank;
    int first;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (first == run->rank) {
        tool_say(run->argv, "rank %d: %s", run->rank, tool_reason());
    }
    return first == run->ranks;
}
