/* Telling the other ranks that this one gives up.
 *
 * MPI cannot take back a message that was started: a rank that comes late still receives what its
 * peer sent, though the peer's caller was told of a failure and may have reused the buffer. So the
 * late rank must hear of it. Inside a node an abort flag tells it for certain (abort_flags.h):
 * raised before the peer's call returns, looked at behind the last receive.
 *
 * Between nodes a message tells it, on a communicator of its own, so that nothing stands in front
 * of it. MPI orders how messages match, not when they arrive, so this one may come too late: the
 * data is right all the same as long as the caller keeps the buffers, as lierne/context.h asks. The
 * message goes to the ranks that this one has exchanged messages with, and to those at distances of
 * a power of two: they hear of it while they wait in a collective call, give up in turn, and so all
 * ranks learn of it, though none sends to every rank of a large world. */
#include "transport/mpi/link.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool same_node(const lierne_seat *a, const lierne_seat *b) {
    return a->space != 0 && a->space == b->space && a->node == b->node;
}

/* Called before the seats are put in another order. */
bool lierne_link_map_flags(lierne_link *l) {
    const lierne_seat *own = &l->seats[l->rank], *first = NULL;
    int count = 0;
    for (int r = 0; r < l->world; r++) {
        l->flag[r] = same_node(own, &l->seats[r]) ? count++ : -1;
        if (l->flag[r] == 0) {
            first = &l->seats[r];
        }
    }
    if (first && first->flags != LIERNE_NO_FLAGS) {
        l->flags =
            lierne_abort_flags_map(first->process, (int)first->flags, l->world, l->flag[l->rank]);
    }
    return l->flags && count == l->world;
}

static lierne_status listen(lierne_link *l) {
    int code =
        MPI_Irecv(&l->heard, sizeof l->heard, MPI_BYTE, MPI_ANY_SOURCE, 0, l->notices, &l->hearing);
    return code == MPI_SUCCESS ? LIERNE_OK : lierne_link_failed(l, code, "MPI_Irecv");
}

static lierne_status open_notices(lierne_link *l) {
    MPI_Request request;
    LIERNE_TRY(lierne_link_wait(l, MPI_Comm_idup(l->comm, &l->notices, &request), &request,
                                "duplicating the communicator"));
    MPI_Comm_set_errhandler(l->notices, MPI_ERRORS_RETURN);
    return listen(l);
}

static void close_flags(lierne_link *l) {
    if (l->opened >= 0) {
        close(l->opened);
        l->opened = -1;
    }
}

/* The descriptor must stay open until every rank has mapped it. */
lierne_status lierne_link_share_flags(lierne_link *l, bool reached) {
    l->ballot[0] = reached;
    lierne_link_arm(l);
    LIERNE_TRY(lierne_link_reduce(l, 1, MPI_MIN));
    close_flags(l);
    if (!l->tally[0]) {
        LIERNE_TRY(open_notices(l));
    }
    l->ready = true;
    return LIERNE_OK;
}

/* Notes who sent notices that came. */
static void hear(lierne_link *l) {
    MPI_Status status;
    int came = 1;
    while (l->hearing != MPI_REQUEST_NULL && MPI_Test(&l->hearing, &came, &status) == MPI_SUCCESS &&
           came) {
        if (!l->gave_up) {
            l->first = l->heard;
        }
        l->gave_up = true;
        l->gone[status.MPI_SOURCE] = l->heard.status;
        if (listen(l) != LIERNE_OK) {
            return;
        }
    }
}

bool lierne_link_any_gave_up(void *link) {
    lierne_link *l = link;
    hear(l);
    return l->gave_up || (l->flags && lierne_abort_flags_any(l->flags));
}

lierne_status lierne_link_gave_up(void *link, int peer) {
    const lierne_link *l = link;
    lierne_status status = LIERNE_OK;
    const char *message = l->first.message;
    if (l->flags && l->flag[peer] >= 0) {
        status = lierne_abort_flags_get(l->flags, l->flag[peer], &message);
    }
    if (status == LIERNE_OK && l->gave_up) {
        status = (lierne_status)l->gone[peer];
        message = l->first.message;
    }
    return status == LIERNE_OK ? LIERNE_OK
                               : LIERNE_FAIL(status, "rank %d gave up: %s", peer, message);
}

lierne_status lierne_link_check_all(lierne_link *l) {
    if (!l->ready || !lierne_link_any_gave_up(l)) {
        return LIERNE_OK;
    }
    for (int r = 0; r < l->world; r++) {
        if (r != l->rank) {
            LIERNE_TRY(lierne_link_gave_up(l, r));
        }
    }
    return LIERNE_OK;
}

/* The notice must stay until it was sent, which nobody waits for: the link is left behind. */
static void send_notices(lierne_link *l) {
    MPI_Request request;
    for (int64_t distance = 1; distance < l->world; distance *= 2) {
        l->met[(l->rank + distance) % l->world] = true;
        l->met[(l->rank + l->world - distance) % l->world] = true;
    }
    for (int r = 0; r < l->world; r++) {
        if (l->met[r] && r != l->rank &&
            MPI_Isend(&l->farewell, sizeof l->farewell, MPI_BYTE, r, 0, l->notices, &request) ==
                MPI_SUCCESS) {
            MPI_Request_free(&request);
            l->abandoned = true;
        }
    }
}

void lierne_link_give_up(void *link, lierne_status status) {
    lierne_link *l = link;
    int finalized = 0;
    if (l->flags) {
        lierne_abort_flags_raise(l->flags, l->flag[l->rank], status, lierne_last_error());
    }
    MPI_Finalized(&finalized);
    if (l->notices != MPI_COMM_NULL && !finalized) {
        l->farewell.status = (int)status;
        snprintf(l->farewell.message, sizeof l->farewell.message, "%s", lierne_last_error());
        send_notices(l);
    }
}

void lierne_link_stop_listening(lierne_link *l) {
    int ended = 0;
    if (l->hearing == MPI_REQUEST_NULL) {
        return;
    }
    MPI_Cancel(&l->hearing);
    if (MPI_Test(&l->hearing, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || !ended) {
        MPI_Request_free(&l->hearing);
        l->abandoned = true;
    }
}

void lierne_link_drop_flags(lierne_link *l) {
    close_flags(l);
    lierne_abort_flags_unmap(l->flags);
    lierne_mem_free(l->flag);
    lierne_mem_free(l->gone);
    lierne_mem_free(l->met);
    l->flags = NULL;
    l->flag = l->gone = NULL;
    l->met = NULL;
}
