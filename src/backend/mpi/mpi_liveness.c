/* Liveness of peers: runtime/control/processes.h for those that this process can see. */
#include "backend/mpi/mpi_state.h"

/* m->ranks must be in the order of ranks. A peer that cannot be watched is not an error: the
 * deadline covers it. */
void lierne_mpi_watch(lierne_mpi_state *m) {
    m->crowded = lierne_processes_watch(m->watches, m->ranks, m->world, m->rank);
}

void lierne_mpi_unwatch(lierne_mpi_state *m) {
    lierne_processes_unwatch(m->watches, m->world);
    lierne_mem_free(m->watches);
    m->watches = NULL;
}

lierne_status lierne_mpi_alive(void *state, int peer) {
    const lierne_mpi_state *m = state;
    if (m->flags && m->flag[peer] >= 0 && lierne_abort_flags_left(m->flags, m->flag[peer])) {
        return lierne_control_left(lierne_mpi_name(m, m->rank), lierne_mpi_name(m, peer));
    }
    if (m->watches && lierne_process_ended(m->watches[peer])) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "rank %d: the process of rank %d has ended",
                           lierne_mpi_name(m, m->rank), lierne_mpi_name(m, peer));
    }
    return LIERNE_OK;
}
