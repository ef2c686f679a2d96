/* Waiting for collective calls of MPI, until a deadline.
 *
 * MPI detects no failure and its blocking calls wait for ever, so every collective is the
 * nonblocking one, tested until it is done or the time is up. MPI cannot cancel a collective: one
 * that missed its deadline still owns its buffers and may write them whenever the process calls
 * MPI again. Such a state is therefore abandoned, communicator and memory (one allocation).
 *
 * Waiting yields at once: with more ranks than cores the rank waited for needs the core. */
#include "control/mpi/state.h"

#include <sched.h>

#define LOOK_EVERY 0.02 /* seconds between looks whether all peers live */

void lierne_mpi_start_deadline(lierne_mpi_state *m) {
    lierne_deadline_start(&m->deadline, m->timeout, lierne_now());
}

/* All peers, now and then: a collective needs every one of them. */
static lierne_status look_around(lierne_mpi_state *m) {
    double now = lierne_now();
    if (!m->watches || now < m->next_look) {
        return LIERNE_OK;
    }
    m->next_look = now + LOOK_EVERY;
    for (int r = 0; r < m->world; r++) {
        LIERNE_TRY(lierne_mpi_alive(m, r));
    }
    return LIERNE_OK;
}

static lierne_status look_at_clock(lierne_mpi_state *m, const char *what) {
    if (lierne_deadline_passed(&m->deadline, lierne_now())) {
        return LIERNE_FAIL(LIERNE_TIMEOUT, "rank %d of %d: %s: not all ranks came within %g s",
                           m->rank, m->world, what, m->timeout);
    }
    return LIERNE_OK;
}

lierne_status lierne_mpi_pause(lierne_mpi_state *m, const char *what) {
    if (m->hook.progress) {
        m->hook.progress(m->hook.user); /* what a rank may wait for before it comes here */
    }
    lierne_status status = lierne_mpi_check_given_up(m);
    if (status == LIERNE_OK) {
        status = look_around(m);
    }
    if (status == LIERNE_OK) {
        status = look_at_clock(m, what);
    }
    m->abandoned |= status != LIERNE_OK;
    sched_yield();
    return status;
}

lierne_status lierne_mpi_wait(lierne_mpi_state *m, int started, MPI_Request *request,
                              const char *what) {
    int code = started, done = 0;
    for (;;) {
        if (code == MPI_SUCCESS) {
            code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        }
        if (code != MPI_SUCCESS) {
            return lierne_mpi_failed(m, code, what);
        }
        if (done) {
            return lierne_mpi_check_given_up(
                m); /* of ranks that gave up, some may have missed it */
        }
        LIERNE_TRY(lierne_mpi_pause(m, what));
    }
}
