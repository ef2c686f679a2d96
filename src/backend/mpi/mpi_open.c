/* Opens and closes MPI's control.
 *
 * It duplicates the caller's communicator and uses only the duplicate. The duplicate of a dead
 * context is never freed, because MPI_Comm_free is collective and may wait for ever. */
#include "backend/mpi/mpi_state.h"

#include "runtime/memory/memory.h"

#include <limits.h>

#define LEAST_TAG_BOUND 32767 /* guaranteed by the MPI standard */

/* Some MPIs set the attribute on MPI_COMM_WORLD only, which lierne does not touch. */
static int tag_bound(MPI_Comm comm) {
    int *bound, found = 0;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &found);
    if (!found) {
        return LEAST_TAG_BOUND;
    }
    return *bound < INT_MAX ? *bound : INT_MAX - 1;
}

/* Errors of duplicating are raised on comm, whose error handler may abort: it is replaced for the
 * duration of the call. */
lierne_status lierne_mpi_open(lierne_mpi_state *m, MPI_Comm comm) {
    MPI_Errhandler handler;
    MPI_Request request;
    lierne_mpi_start_deadline(m);
    int code = MPI_Comm_get_errhandler(comm, &handler);
    if (code != MPI_SUCCESS) {
        return lierne_mpi_failed(m, code, "MPI_Comm_get_errhandler");
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    lierne_status status = lierne_mpi_wait(m, MPI_Comm_idup(comm, &m->comm, &request), &request,
                                           "duplicating the communicator");
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    if (status == LIERNE_OK) {
        MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
        m->tags = tag_bound(m->comm) + 1 - LIERNE_MPI_CONTROL_TAGS;
    }
    return status;
}

static lierne_status open_notices(lierne_mpi_state *m) {
    MPI_Request request;
    LIERNE_TRY(lierne_mpi_wait(m, MPI_Comm_idup(m->comm, &m->notices, &request), &request,
                               "duplicating the communicator"));
    MPI_Comm_set_errhandler(m->notices, MPI_ERRORS_RETURN);
    return lierne_mpi_listen(m);
}

/* The descriptor stays open until every rank has mapped it. */
lierne_status lierne_mpi_share_flags(lierne_mpi_state *m, bool reached, bool *answers, int n) {
    for (int i = 0; i < n; i++) {
        m->reduce_in[i] = answers[i];
    }
    m->reduce_in[n] = reached;
    lierne_mpi_start_deadline(m);
    LIERNE_TRY(lierne_mpi_minimum(m, n + 1));
    lierne_mpi_close_descriptor(m);
    for (int i = 0; i < n; i++) {
        answers[i] = m->reduce_out[i];
    }
    m->boards = m->reduce_out[n] && lierne_mpi_board_bytes(m->world) > 0;
    if (!m->reduce_out[n]) {
        LIERNE_TRY(open_notices(m));
    }
    if (m->notices == MPI_COMM_NULL) {
        lierne_ports_close(&m->ports);
    }
    m->ready = true;
    return LIERNE_OK;
}

/* MPI_Comm_free has no deadline, so the communicators are freed only if all ranks do so. A rank
 * that calls after this one has left alone must not wait for it until its deadline. */
static void free_comms(lierne_mpi_state *m) {
    if (m->comm == MPI_COMM_NULL) {
        return;
    }
    if (lierne_mpi_all_close(m)) {
        lierne_mpi_stop_listening(m);
        if (m->notices != MPI_COMM_NULL) {
            MPI_Comm_free(&m->notices);
        }
        MPI_Comm_free(&m->comm);
    } else if (m->flags) {
        lierne_abort_flags_leave(m->flags, m->flag[m->rank]);
    }
}

void lierne_mpi_close(void *state, bool dead) {
    lierne_mpi_state *m = state;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!dead && !finalized) {
        free_comms(m);
    }
    if (!finalized) {
        lierne_mpi_stop_listening(m);
    }
    lierne_mpi_unwatch(m);
    lierne_mpi_drop_flags(m);
    lierne_ports_close(&m->ports);
    if (lierne_lifetime_find(NULL, !m->abandoned) == LIERNE_LIFETIME_USE) {
        lierne_mem_free(m->ranks);
        lierne_mem_free(m);
    }
}
