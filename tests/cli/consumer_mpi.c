/* What a user of the installed libraries writes with MPI: a context, and an error that crosses from
 * liblierne_mpi into liblierne and back. */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    lierne_context *context = NULL;
    lierne_context_spec late;
    int ranks = 0, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    memset(&late, 0, sizeof late);
    late.size = sizeof late;
    late.timeout = -1;
    wrong += lierne_context_create_mpi(&context, MPI_COMM_WORLD, &late) != LIERNE_ERR_INVALID;
    wrong += strstr(lierne_last_error(), "-1") == NULL;
    wrong += lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) != LIERNE_OK;
    wrong += lierne_context_get_world_size(context) != ranks;
    wrong += lierne_context_destroy(context) != LIERNE_OK;
    printf("%d ranks, %d wrong\n", ranks, wrong);
    MPI_Finalize();
    return wrong != 0;
}
