/* Where the environment variable LIERNE_TEST_CONTEXTS is "oob", the contexts of a program are over
 * functions of the caller (lierne/oob.h), which are made here from MPI; else they are MPI's. In
 * programs that are linked with a device (staging.h), LIERNE_TEST_EXECUTOR makes them contexts for
 * its memory. */
#include "mpi/contexts.h"
#include "lierne/oob.h"
#include "staging.h"

#include <stdlib.h>
#include <string.h>

extern __typeof__(test_staging_use_asked) test_staging_use_asked __attribute__((weak));

typedef struct request {
    MPI_Request mpi;
    int ended;
} request;

static request *begin(void **out) {
    request *r = calloc(1, sizeof *r);
    *out = r;
    return r;
}

static int allgather(void **out, const void *mine, void *all, size_t bytes, void *user) {
    return MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm *)user,
                          &begin(out)->mpi);
}

static int send_message(void **out, const void *data, size_t bytes, int to, int tag, void *user) {
    return MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag % 32768, *(MPI_Comm *)user,
                     &begin(out)->mpi);
}

static int receive(void **out, void *data, size_t bytes, int from, int tag, void *user) {
    return MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag % 32768, *(MPI_Comm *)user,
                     &begin(out)->mpi);
}

static int test(void *of, void *user) {
    request *r = of;
    (void)user;
    int code = MPI_Test(&r->mpi, &r->ended, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? -code : !r->ended;
}

static int free_request(void *of, void *user) {
    request *r = of;
    int ended = r->ended;
    (void)user;
    free(r);
    return !ended;
}

/* The duplicate stays: a context does not tell when it ends. */
lierne_status test_context_create(lierne_context **out, MPI_Comm comm,
                                  const lierne_context_spec *spec) {
    const char *contexts = getenv("LIERNE_TEST_CONTEXTS");
    if (!contexts || strcmp(contexts, "oob") != 0 || comm == MPI_COMM_NULL) {
        lierne_status status = lierne_context_create_mpi(out, comm, spec);
        return status == LIERNE_OK && test_staging_use_asked ? test_staging_use_asked(*out)
                                                             : status;
    }
    MPI_Comm *own = malloc(sizeof *own);
    MPI_Comm_dup(comm, own);
    lierne_oob_spec oob = {.size = sizeof oob,
                           .calls = {.user = own,
                                     .allgather = allgather,
                                     .send = send_message,
                                     .receive = receive,
                                     .test = test,
                                     .free_request = free_request},
                           .context = spec};
    MPI_Comm_rank(*own, &oob.rank);
    MPI_Comm_size(*own, &oob.nranks);
    return lierne_context_create_oob(out, &oob);
}
