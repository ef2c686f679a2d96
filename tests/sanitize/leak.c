/* Leaks on purpose, from inside the library, in a process that uses MPI: sanitize.sh must find the
 * leak despite all suppressions. */
#include "base/base.h"
#include "lierne/mpi.h"

int main(int argc, char **argv) {
    lierne_context *context;
    void *lost;
    MPI_Init(&argc, &argv);
    lierne_status status = lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL);
    if (status == LIERNE_OK) {
        status = lierne_alloc(&lost, 1, 77);
        lost = NULL;
        lierne_context_destroy(context);
    }
    MPI_Finalize();
    return status != LIERNE_OK;
}
