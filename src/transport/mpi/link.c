/* A private communicator whose collective calls end at a deadline.
 *
 * MPI detects no failure and its blocking calls wait for ever, so every collective is the
 * nonblocking one, tested until it is done or the time is up. MPI cannot cancel a collective: one
 * that missed its deadline still owns its buffers and may write them whenever the process calls
 * MPI again. Such a link is therefore left behind, communicator and memory (one allocation), and
 * so is the communicator of every dead context, as MPI_Comm_free is collective and may wait.
 *
 * Waiting yields at once: with more ranks than cores the rank waited for needs the core. */
#include "transport/mpi/link.h"

#include <limits.h>
#include <sched.h>

#define LEAST_TAG_BOUND 32767 /* what every MPI must offer */
#define LOOK_EVERY      0.02  /* seconds between looks whether all peers live */

lierne_status lierne_link_failed(const lierne_link *l, int code, const char *what) {
    char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
    int length;
    MPI_Error_string(code, text, &length);
    return LIERNE_FAIL(LIERNE_TRANSPORT, "rank %d: %s: %s", l->rank, what, text);
}

void lierne_link_arm(lierne_link *l) {
    lierne_deadline_start(&l->deadline, l->timeout, lierne_now());
}

/* All peers, now and then: a collective needs every one of them. */
static lierne_status look_around(lierne_link *l) {
    double now = lierne_now();
    if (!l->watches || now < l->next_look) {
        return LIERNE_OK;
    }
    l->next_look = now + LOOK_EVERY;
    for (int r = 0; r < l->world; r++) {
        LIERNE_TRY(lierne_link_alive(l, r));
    }
    return LIERNE_OK;
}

static lierne_status look_at_clock(lierne_link *l, const char *what) {
    if (lierne_deadline_passed(&l->deadline, lierne_now())) {
        return LIERNE_FAIL(LIERNE_TIMEOUT, "rank %d of %d: %s: not all ranks came within %g s",
                           l->rank, l->world, what, l->timeout);
    }
    return LIERNE_OK;
}

lierne_status lierne_link_pause(lierne_link *l, const char *what) {
    if (l->context) {
        lierne_jobs_progress(l->context); /* what a rank may wait for before it comes here */
    }
    lierne_status status = lierne_link_check_all(l);
    if (status == LIERNE_OK) {
        status = look_around(l);
    }
    if (status == LIERNE_OK) {
        status = look_at_clock(l, what);
    }
    l->abandoned |= status != LIERNE_OK;
    sched_yield();
    return status;
}

lierne_status lierne_link_wait(lierne_link *l, int started, MPI_Request *request,
                               const char *what) {
    int code = started, done = 0;
    for (;;) {
        if (code == MPI_SUCCESS) {
            code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        }
        if (code != MPI_SUCCESS) {
            return lierne_link_failed(l, code, what);
        }
        if (done) {
            return lierne_link_check_all(l); /* of ranks that gave up, some may have missed it */
        }
        LIERNE_TRY(lierne_link_pause(l, what));
    }
}

/* The bound is asked of the duplicate; where an MPI keeps it elsewhere the least one serves. */
static int tag_bound(MPI_Comm comm) {
    int *bound, found = 0;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &found);
    if (!found) {
        return LEAST_TAG_BOUND;
    }
    return *bound < INT_MAX ? *bound : INT_MAX - 1;
}

/* comm's own error handler may abort, and errors of duplicating are raised on comm: it returns
 * them meanwhile. */
lierne_status lierne_link_open(lierne_link *l, MPI_Comm comm) {
    MPI_Errhandler handler;
    MPI_Request request;
    lierne_link_arm(l);
    int code = MPI_Comm_get_errhandler(comm, &handler);
    if (code != MPI_SUCCESS) {
        return lierne_link_failed(l, code, "MPI_Comm_get_errhandler");
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    lierne_status status = lierne_link_wait(l, MPI_Comm_idup(comm, &l->comm, &request), &request,
                                            "duplicating the communicator");
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    if (status == LIERNE_OK) {
        MPI_Comm_set_errhandler(l->comm, MPI_ERRORS_RETURN);
        l->tags = tag_bound(l->comm) + 1 - LIERNE_LINK_POST_TAGS;
    }
    return status;
}

/* Frees the communicators if all ranks come to do so: MPI_Comm_free has no deadline. */
static void free_comms(lierne_link *l) {
    if (l->comm != MPI_COMM_NULL && lierne_link_all_close(l)) {
        lierne_link_stop_listening(l);
        if (l->notices != MPI_COMM_NULL) {
            MPI_Comm_free(&l->notices);
        }
        MPI_Comm_free(&l->comm);
    }
}

void lierne_link_close(lierne_link *l, bool dead) {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!dead && !finalized) {
        free_comms(l);
    }
    if (!finalized) {
        lierne_link_stop_listening(l);
    }
    lierne_link_unwatch(l);
    lierne_link_drop_flags(l);
    if (!l->abandoned) {
        lierne_mem_free(l->seats);
        lierne_mem_free(l);
    }
}

uint64_t lierne_link_hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    hash = hash ? hash : 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}
