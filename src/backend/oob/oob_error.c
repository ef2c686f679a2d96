/* Errors of the caller's functions, and the end of their requests. */
#include "backend/oob/oob_state.h"

int lierne_oob_name(const lierne_oob_state *s, int rank) {
    return lierne_members_rank(&s->members, rank);
}

lierne_status lierne_oob_failed(const lierne_oob_state *s, int code, const char *what) {
    if (s->hooks) {
        /* Lierne's own functions have set the message. Without memory for a message that arrives, a
         * call cannot go on, unlike one of a planner without memory. */
        return code == LIERNE_ERR_NO_MEMORY ? LIERNE_ERR_TRANSPORT : (lierne_status)code;
    }
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: %s: the caller's function returned %d",
                       lierne_oob_name(s, s->rank), what, code);
}

bool lierne_oob_end(const lierne_oob_state *s, void *request, bool completed) {
    if (!request || !s->calls.free_request) {
        return !request || completed;
    }
    return s->calls.free_request(request, s->calls.user) == 0 || completed;
}
