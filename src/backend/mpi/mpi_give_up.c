/* Tells the other ranks that this one gives up.
 *
 * MPI cannot take back a message that was started. A late rank still receives what its peer sent,
 * although the peer's caller got an error and may have reused the buffer. So the late rank must
 * learn of it. Inside a node an abort flag guarantees that (runtime/control/abort_flags.h): the
 * peer raises it before its call returns, and the late rank reads it after its last receive.
 *
 * Between nodes a notice is sent, on a communicator of its own so that it does not queue behind
 * other messages. MPI orders how messages match, not when they arrive, so the notice may come too
 * late; the data is correct nevertheless if the caller keeps the buffers, as lierne/context.h
 * requires. The notice goes to the ranks that this one has exchanged messages with and to the ranks
 * at distances of a power of two. These receive it while they wait in a collective call and give up
 * too, so all ranks learn of it although none sends to every rank of a large world. Of several
 * notices the first one has the message, with the rank that sent it: the others follow from it, and
 * memory for one of each rank would be as long as the world. */
#include "backend/mpi/mpi_state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* m->ranks must be in the order of ranks. */
bool lierne_mpi_map_flags(lierne_mpi_state *m) {
    return lierne_processes_map_flags(&m->flags, m->flag, m->ranks, m->world, m->rank,
                                      lierne_mpi_board_bytes(m->world));
}

lierne_status lierne_mpi_listen(lierne_mpi_state *m) {
    int code = MPI_Irecv(&m->notice, sizeof m->notice, MPI_BYTE, MPI_ANY_SOURCE, 0, m->notices,
                         &m->listening);
    return code == MPI_SUCCESS ? LIERNE_OK : lierne_mpi_failed(m, code, "MPI_Irecv");
}

/* Records the senders of notices that arrived. */
static void receive_notices(lierne_mpi_state *m) {
    MPI_Status status;
    int arrived = 1;
    while (m->listening != MPI_REQUEST_NULL &&
           MPI_Test(&m->listening, &arrived, &status) == MPI_SUCCESS && arrived) {
        if (!m->any_notice) {
            m->first_notice = m->notice;
            m->first_source = status.MPI_SOURCE;
        }
        m->any_notice = true;
        m->gave_up[status.MPI_SOURCE] = m->notice.status;
        if (lierne_mpi_listen(m) != LIERNE_OK) {
            return;
        }
    }
}

bool lierne_mpi_any_gave_up(void *state) {
    lierne_mpi_state *m = state;
    receive_notices(m);
    return m->any_notice || (m->flags && lierne_abort_flags_any(m->flags));
}

lierne_status lierne_mpi_gave_up(void *state, int peer) {
    const lierne_mpi_state *m = state;
    lierne_status status = LIERNE_OK;
    const char *message = "";
    if (m->flags && m->flag[peer] >= 0) {
        status = lierne_abort_flags_get(m->flags, m->flag[peer], &message);
    }
    if (status == LIERNE_OK && m->any_notice && m->gave_up[peer] != LIERNE_OK) {
        status = (lierne_status)m->first_notice.status;
        message = m->first_notice.message;
        peer = m->first_source;
    }
    return status == LIERNE_OK ? LIERNE_OK
                               : lierne_control_gave_up(status, lierne_mpi_name(m, peer), message);
}

lierne_status lierne_mpi_check_given_up(lierne_mpi_state *m) {
    if (!m->ready || !lierne_mpi_any_gave_up(m)) {
        return LIERNE_OK;
    }
    for (int r = 0; r < m->world; r++) {
        if (r != m->rank) {
            LIERNE_TRY(lierne_mpi_gave_up(m, r));
        }
    }
    return LIERNE_OK;
}

/* No rank waits until the notice is sent, so the state that holds it is abandoned. */
static void send_notices(lierne_mpi_state *m) {
    MPI_Request request;
    for (int64_t distance = 1; distance < m->world; distance *= 2) {
        m->contacted[(m->rank + distance) % m->world] = true;
        m->contacted[(m->rank + m->world - distance) % m->world] = true;
    }
    for (int r = 0; r < m->world; r++) {
        if (m->contacted[r] && r != m->rank &&
            MPI_Isend(&m->own_notice, sizeof m->own_notice, MPI_BYTE, r, 0, m->notices, &request) ==
                MPI_SUCCESS) {
            MPI_Request_free(&request);
            m->abandoned = true;
        }
    }
}

void lierne_mpi_give_up(void *state, lierne_status status) {
    lierne_mpi_state *m = state;
    int finalized = 0;
    if (m->flags) {
        lierne_abort_flags_raise(m->flags, m->flag[m->rank], status, lierne_last_error());
    }
    MPI_Finalized(&finalized);
    if (m->notices != MPI_COMM_NULL && !finalized) {
        m->own_notice.status = (int)status;
        snprintf(m->own_notice.message, sizeof m->own_notice.message, "%s", lierne_last_error());
        send_notices(m);
    }
}

void lierne_mpi_stop_listening(lierne_mpi_state *m) {
    int ended = 0;
    if (m->listening == MPI_REQUEST_NULL) {
        return;
    }
    MPI_Cancel(&m->listening);
    if (MPI_Test(&m->listening, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || !ended) {
        MPI_Request_free(&m->listening);
        m->abandoned = true;
    }
}

void lierne_mpi_close_descriptor(lierne_mpi_state *m) {
    if (m->opened >= 0) {
        close(m->opened);
        m->opened = -1;
    }
}

void lierne_mpi_drop_flags(lierne_mpi_state *m) {
    lierne_mpi_close_descriptor(m);
    lierne_abort_flags_unmap(m->flags);
    lierne_mem_free(m->flag);
    lierne_mem_free(m->gave_up);
    lierne_mem_free(m->contacted);
    m->flags = NULL;
    m->flag = m->gave_up = NULL;
    m->contacted = NULL;
}
