/* What ranks know of each other without the caller's functions, which may have failed: flags in
 * shared memory and the ends of processes (runtime/control/processes.h), and the ends of
 * connections where the functions are lierne's own. */
#include "backend/oob/oob_state.h"

void lierne_oob_give_up(void *state, lierne_status status) {
    lierne_oob_state *s = state;
    if (s->flags) {
        lierne_abort_flags_raise(s->flags, s->flag[s->rank], status, lierne_last_error());
    }
    if (s->hooks && s->hooks->cut && !s->flags_reach_all) {
        s->hooks->cut(s->calls.user);
    }
}

bool lierne_oob_any_gave_up(void *state) {
    const lierne_oob_state *s = state;
    return s->flags && lierne_abort_flags_any(s->flags);
}

lierne_status lierne_oob_gave_up(void *state, int peer) {
    const lierne_oob_state *s = state;
    const char *message = "";
    lierne_status status = s->flags && s->flag[peer] >= 0
                               ? lierne_abort_flags_get(s->flags, s->flag[peer], &message)
                               : LIERNE_OK;
    return status == LIERNE_OK ? LIERNE_OK
                               : lierne_control_gave_up(status, lierne_oob_name(s, peer), message);
}

lierne_status lierne_oob_check_given_up(lierne_oob_state *s) {
    for (int r = 0; s->ready && lierne_oob_any_gave_up(s) && r < s->world; r++) {
        if (r != s->rank) {
            LIERNE_TRY(lierne_oob_gave_up(s, r));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_oob_alive(void *state, int peer) {
    const lierne_oob_state *s = state;
    if (s->flags && s->flag[peer] >= 0 && lierne_abort_flags_left(s->flags, s->flag[peer])) {
        return lierne_control_left(lierne_oob_name(s, s->rank), lierne_oob_name(s, peer));
    }
    if (s->watches && lierne_process_ended(s->watches[peer])) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "rank %d: the process of rank %d has ended",
                           lierne_oob_name(s, s->rank), lierne_oob_name(s, peer));
    }
    if (s->hooks && s->hooks->ended && s->hooks->ended(s->calls.user, peer)) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED,
                           "rank %d: the connection to rank %d has ended: its process has ended, "
                           "or destroyed its context",
                           lierne_oob_name(s, s->rank), lierne_oob_name(s, peer));
    }
    return LIERNE_OK;
}
