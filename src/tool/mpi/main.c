/* lierne-run: lierne run on the ranks of mpirun. */
#include "tool/run.h"
#include "tool/tool.h"

#include "lierne/mpi.h"

static void gather_mpi(void *all, const void *mine, size_t bytes, void *user) {
    (void)user;
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static lierne_status create_mpi(lierne_context **out, const lierne_context_spec *spec, void *user) {
    (void)user;
    return lierne_context_create_mpi(out, MPI_COMM_WORLD, spec);
}

int main(int argc, char **argv) {
    char name[] = "lierne run";
    run_ranks together = {.gather = gather_mpi, .create = create_mpi};
    argv[0] = name;
    tool_color_always(
        false); /* Open MPI gives ranks a terminal where mpirun itself writes to a file */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &together.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &together.n);
    int status = run_main(argc, argv, &together);
    MPI_Finalize();
    return status;
}
