#include "context/mpi/shm.h"

#include "transport/shm/shm.h"

#include <string.h>

static lierne_carrier *find(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport == &lierne_shm_transport) {
            return (lierne_carrier *)&context->carriers[i];
        }
    }
    return NULL;
}

void lierne_mpi_open_shm(lierne_context *context, lierne_mpi_state *m) {
    lierne_carrier *carrier = find(context);
    lierne_shm *shm;
    if (carrier && lierne_shm_create(&shm) == LIERNE_OK) {
        carrier->self = shm;
        m->ranks[m->rank].segment = shm->own.name.descriptor;
        m->ranks[m->rank].token = shm->own.name.token;
    }
}

void lierne_mpi_map_shm(const lierne_context *context, const lierne_mpi_state *m, bool *shared,
                        bool *pulls) {
    const lierne_carrier *carrier = find(context);
    *shared = carrier && carrier->self;
    for (int r = 0; r < m->world && *shared; r++) {
        const lierne_rank_info *peer = &m->ranks[r];
        if (r != m->rank && m->flag[r] >= 0) {
            const lierne_segment_name name = {peer->process, peer->segment, peer->token};
            /* Only flags tell a peer in time that this rank gave up. */
            *shared = m->flags && peer->segment != LIERNE_NO_SEGMENT &&
                      lierne_shm_add_peer(carrier->self, r, name) == LIERNE_OK;
        }
    }
    *pulls = *shared && lierne_shm_can_pull(carrier->self);
}

lierne_status lierne_mpi_start_shm(lierne_context *context, lierne_mpi_state *m, bool shared,
                                   bool pulls) {
    lierne_carrier *carrier = find(context);
    if (!carrier) {
        return LIERNE_OK;
    }
    if (shared) {
        lierne_shm_start(carrier->self, pulls, m->crowded, &lierne_mpi_control, m,
                         &context->members);
        return LIERNE_OK;
    }
    if (context->ncarriers == 1) {
        return LIERNE_FAIL(LIERNE_UNSUPPORTED,
                           "LIERNE_TRANSPORTS names shm alone, but on some rank the system does "
                           "not allow shared memory (memfd, /proc): add mpi");
    }
    lierne_shm_destroy(carrier->self);
    context->ncarriers--;
    memmove(carrier, carrier + 1,
            (size_t)(&context->carriers[context->ncarriers] - carrier) * sizeof *carrier);
    return LIERNE_OK;
}
