#include "backend/shm/shm_context.h"

#include "backend/shm/shm_transport.h"

#include <stdio.h>
#include <string.h>

static lierne_carrier *find_carrier(lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport == &lierne_shm_transport) {
            return &context->carriers[i];
        }
    }
    return NULL;
}

/* Why this rank cannot use it: the first reason stays. */
static void note(lierne_context *context, const char *reason) {
    if (!lierne_context_is_unused(context, &lierne_shm_transport)) {
        lierne_context_note_unused(context, &lierne_shm_transport, reason);
    }
}

void lierne_context_open_shm(lierne_context *context, lierne_rank_info *own) {
    lierne_carrier *carrier = find_carrier(context);
    lierne_shm *shm;
    if (!carrier) {
        return;
    }
    if (lierne_shm_create(&shm) != LIERNE_OK) {
        note(context, lierne_error_text());
        return;
    }
    carrier->self = shm;
    own->segment = shm->own.name.descriptor;
    own->token = shm->own.name.token;
}

static bool add_peer(lierne_context *context, lierne_shm *shm, const lierne_shm_ranks *ranks,
                     int r) {
    const lierne_rank_info *peer = &ranks->infos[r];
    if (peer->segment == LIERNE_NO_SEGMENT || !ranks->flags) { /* flags tell in time who gave up */
        return false;
    }
    if (lierne_shm_add_peer(shm, r,
                            (lierne_segment_name){peer->process, peer->segment, peer->token}) !=
        LIERNE_OK) {
        note(context, lierne_error_text());
        return false;
    }
    return true;
}

void lierne_context_map_shm(lierne_context *context, const lierne_shm_ranks *ranks,
                            bool answers[LIERNE_SHM_ANSWERS]) {
    const lierne_carrier *carrier = find_carrier(context);
    lierne_shm *shm = carrier ? carrier->self : NULL;
    bool shared = shm, alone = true;
    for (int r = 0; r < ranks->n; r++) {
        if (r != context->index && ranks->flag[r] >= 0) {
            alone = false;
            shared = shared && add_peer(context, shm, ranks, r);
        }
    }
    answers[LIERNE_SHM_SHARED] = shared;
    answers[LIERNE_SHM_PULLS] = shared && lierne_shm_can_pull(shm);
    answers[LIERNE_SHM_ALONE] = alone;
}

static void take_out(lierne_context *context, lierne_carrier *carrier) {
    lierne_shm_destroy(carrier->self);
    context->ncarriers--;
    memmove(carrier, carrier + 1,
            (size_t)(&context->carriers[context->ncarriers] - carrier) * sizeof *carrier);
}

lierne_status lierne_context_start_shm(lierne_context *context,
                                       const bool answers[LIERNE_SHM_ANSWERS], bool crowded) {
    lierne_carrier *carrier = find_carrier(context);
    bool only = context->ncarriers == 1;
    if (!carrier) {
        return LIERNE_OK;
    }
    if (answers[LIERNE_SHM_SHARED] && (only || !answers[LIERNE_SHM_ALONE])) {
        lierne_shm_start(carrier->self, answers[LIERNE_SHM_PULLS], crowded, context->control,
                         context->control_self, &context->members);
        return LIERNE_OK;
    }
    note(context, answers[LIERNE_SHM_SHARED] ? "no two ranks are on one node"
                                             : "the system refuses it to another rank");
    if (only) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "LIERNE_TRANSPORTS names shm alone, but on some rank the system does "
                           "not allow shared memory (memfd, /proc): add another transport");
    }
    take_out(context, carrier);
    return LIERNE_OK;
}
