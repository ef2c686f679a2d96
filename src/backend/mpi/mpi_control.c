/* The table of MPI's control. */
#include "backend/mpi/mpi_state.h"
#include "runtime/control/survivors.h"

#include <sched.h>

/* Another rank may need this core in order to send. If each rank has a core of its own, yielding
 * costs more than a message. Open MPI yields in every poll by itself when it knows of more ranks
 * than cores, and a second yield in every poll made small messages a fifth slower. So only one in
 * LIERNE_MPI_POLLS_PER_YIELD polls yields. */
static bool idle(void *state) {
    lierne_mpi_state *m = state;
    if (m->crowded && ++m->idle_polls % LIERNE_MPI_POLLS_PER_YIELD == 0) {
        sched_yield();
    }
    return false;
}

static void progress_mpi(void *state) {
    const lierne_mpi_state *m = state;
    int arrived;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, m->comm, &arrived, MPI_STATUS_IGNORE);
}

static lierne_status allreduce_max(void *state, int64_t *values, size_t n) {
    lierne_mpi_state *m = state;
    lierne_status memory;
    for (size_t i = 0; i < n; i++) { /* the complement of the maximum is the least complement */
        m->reduce_in[i] = ~values[i];
    }
    LIERNE_TRY(lierne_mpi_exchange(m, (int)n, NULL, 0, NULL, &memory));
    for (size_t i = 0; i < n; i++) {
        values[i] = ~m->reduce_out[i];
    }
    return LIERNE_OK;
}

static bool has_pending_buffers(void *state) {
    return ((const lierne_mpi_state *)state)->pending_buffers;
}

static const lierne_control_failures failures = {.give_up = lierne_mpi_give_up,
                                                 .any_gave_up = lierne_mpi_any_gave_up,
                                                 .gave_up = lierne_mpi_gave_up};
static const lierne_control_processes processes = {.alive = lierne_mpi_alive,
                                                   .has_pending_buffers = has_pending_buffers};

/* A communicator of notices is there just if the flags do not reach all ranks. */
static bool find_survivors(void *state, lierne_survivors *survivors) {
    const lierne_mpi_state *m = state;
    *survivors = (lierne_survivors){.flags = m->notices == MPI_COMM_NULL ? m->flags : NULL,
                                    .flag = m->flag,
                                    .watches = m->watches,
                                    .ports = &m->ports,
                                    .rank = m->rank,
                                    .world = m->world};
    return survivors->flags || m->ports.addresses;
}

static const lierne_control_survivors survivors = {.find = find_survivors};

const lierne_control lierne_mpi_control = {
    .name = "mpi",
    .agree = lierne_mpi_agree,
    .sparse_exchange = lierne_mpi_sparse_exchange,
    .allreduce_max = allreduce_max,
    .idle = idle,
    .close = lierne_mpi_close,
    .progress = progress_mpi,
    .agree_exchange = lierne_mpi_agree_exchange,
    .failures = &failures,
    .processes = &processes,
    .survivors = &survivors,
};
