/* Waits for collective calls of MPI until a deadline.
 *
 * MPI detects no failure and its blocking calls wait for ever, so every collective is the
 * nonblocking one, tested until it completes or the deadline passes. MPI cannot cancel a
 * collective: one that missed its deadline still owns its buffers and may write them whenever the
 * process calls MPI again. So the communicator and the state (one allocation) are then abandoned.
 *
 * A wait yields, because with more ranks than cores another rank needs the core, but only in one of
 * LIERNE_MPI_POLLS_PER_YIELD steps: a yield waits for every busy process of the machine, and a
 * collective takes many steps. Yielding in every step made creating a context several times slower
 * beside 20 busy processes, and could use up its timeout. Where each rank has a core of its own,
 * only programs of others wait for it: it yields that much more seldom, because a yield may take a
 * whole time slice. */
#include "backend/mpi/mpi_state.h"

#include <sched.h>

#define CHECK_EVERY 0.02 /* seconds between checks whether all peers live */
#define OWN_CORE    64   /* as many more polls per yield of a rank with a core of its own */

void lierne_mpi_start_deadline(lierne_mpi_state *m) {
    lierne_deadline_start(&m->deadline, m->timeout, lierne_now());
}

/* A collective needs every rank, so all of them are checked. */
static lierne_status check_peers(lierne_mpi_state *m) {
    double now = lierne_now();
    if ((!m->watches && !m->flags) || now < m->next_check) {
        return LIERNE_OK;
    }
    m->next_check = now + CHECK_EVERY;
    for (int r = 0; r < m->world; r++) {
        LIERNE_TRY(lierne_mpi_alive(m, r));
    }
    return LIERNE_OK;
}

static lierne_status check_deadline(lierne_mpi_state *m, const char *what) {
    if (lierne_deadline_passed(&m->deadline, lierne_now())) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d of %d: %s: not all ranks called within %g s",
                           lierne_mpi_name(m, m->rank),
                           m->members.count ? m->members.world : m->world, what, m->timeout);
    }
    return LIERNE_OK;
}

lierne_status lierne_mpi_pause(lierne_mpi_state *m, const char *what) {
    if (m->hook.progress) {
        m->hook.progress(m->hook.user); /* other ranks may wait for these before they call */
    }
    lierne_status status = lierne_mpi_check_given_up(m);
    if (status == LIERNE_OK) {
        status = check_peers(m);
    }
    if (status == LIERNE_OK) {
        status = check_deadline(m, what);
    }
    m->abandoned |= status != LIERNE_OK;
    unsigned polls = LIERNE_MPI_POLLS_PER_YIELD * (m->crowded ? 1 : OWN_CORE);
    if (++m->idle_polls % polls == 0) {
        sched_yield();
    }
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
            /* Ranks that gave up took part before: other ranks have failed, so must this one. */
            return lierne_mpi_check_given_up(m);
        }
        LIERNE_TRY(lierne_mpi_pause(m, what));
    }
}
