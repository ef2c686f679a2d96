/* The table of MPI's control. */
#include "control/mpi/state.h"

#include <sched.h>
#include <string.h>

#define POLLS_PER_YIELD 64

/* A rank that is waited for may need the core; where each has its own, giving it up costs more than
 * the message. Open MPI gives it up by itself, in every poll, when it knows of more ranks than
 * cores: doing so again after each made small messages a fifth slower, so it is done after a few.
 */
static bool idle(void *state) {
    lierne_mpi_state *m = state;
    if (m->crowded && ++m->idle_polls % POLLS_PER_YIELD == 0) {
        sched_yield();
    }
    return false;
}

static lierne_status allreduce_max(void *state, int64_t *values, size_t n) {
    lierne_mpi_state *m = state;
    lierne_mpi_start_deadline(m);
    memcpy(m->reduce_in, values, n * sizeof *values);
    LIERNE_TRY(lierne_mpi_allreduce(m, (int)n, MPI_MAX));
    memcpy(values, m->reduce_out, n * sizeof *values);
    return LIERNE_OK;
}

static bool reads_messages(void *state) {
    return ((const lierne_mpi_state *)state)->reads_messages;
}

const lierne_control lierne_mpi_control = {
    .name = "mpi",
    .agree = lierne_mpi_agree,
    .sparse_exchange = lierne_mpi_sparse_exchange,
    .reads_messages = reads_messages,
    .allreduce_max = allreduce_max,
    .alive = lierne_mpi_alive,
    .give_up = lierne_mpi_give_up,
    .any_gave_up = lierne_mpi_any_gave_up,
    .gave_up = lierne_mpi_gave_up,
    .idle = idle,
    .close = lierne_mpi_close,
};
