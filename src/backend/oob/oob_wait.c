/* Waits for all-gathers of the caller's until a deadline.
 *
 * A function that lierne cannot take back may still write to the state, which is then never freed.
 */
#include "backend/oob/oob_state.h"

#include <sched.h>

#define CHECK_EVERY 0.02 /* seconds between checks whether all peers live */
#define POLLS_PER_SLEEP                                                                            \
    64 /* polls without progress before a rank with a core of its own sleeps                       \
        */

void lierne_oob_start_deadline(lierne_oob_state *s) {
    lierne_deadline_start(&s->deadline, s->timeout, lierne_now());
}

/* Where ranks outnumber the cores, a peer may need this core in order to send. */
bool lierne_oob_idle(void *state) {
    lierne_oob_state *s = state;
    if (++s->idle_polls % POLLS_PER_SLEEP != 0 && !s->crowded) {
        return false;
    }
    if (s->hooks && s->hooks->sleep) {
        s->hooks->sleep(s->calls.user);
        return true;
    }
    sched_yield();
    return false;
}

/* A collective needs every rank, so all of them are checked. */
static lierne_status check_peers(lierne_oob_state *s) {
    double now = lierne_now();
    if (now < s->next_check) {
        return LIERNE_OK;
    }
    s->next_check = now + CHECK_EVERY;
    for (int r = 0; r < s->world; r++) {
        if (r != s->rank) {
            LIERNE_TRY(lierne_oob_alive(s, r));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_oob_pause(lierne_oob_state *s, const char *what) {
    if (s->hook.progress) {
        s->hook.progress(s->hook.user); /* other ranks may wait for these before they call */
    }
    LIERNE_TRY(lierne_oob_check_given_up(s));
    LIERNE_TRY(check_peers(s));
    if (lierne_deadline_passed(&s->deadline, lierne_now())) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d of %d: %s: not all ranks called within %g s",
                           lierne_oob_name(s, s->rank),
                           s->members.count ? s->members.world : s->world, what, s->timeout);
    }
    lierne_oob_idle(s);
    return LIERNE_OK;
}

static lierne_status await(lierne_oob_state *s, void *request, const char *what, bool *completed) {
    *completed = !request;
    while (!*completed) {
        if (s->hooks) {
            s->hooks->progress(s->calls.user);
        }
        int code = s->calls.test(request, s->calls.user);
        if (code != 0 && code != 1) {
            return lierne_oob_failed(s, code, what);
        }
        *completed = code == 0;
        if (code == 1) {
            LIERNE_TRY(lierne_oob_pause(s, what));
        }
    }
    /* Ranks that gave up took part before: other ranks have failed, so must this one. */
    return lierne_oob_check_given_up(s);
}

lierne_status lierne_oob_gather(lierne_oob_state *s, const void *mine, void *all, size_t bytes,
                                const char *what) {
    void *request = NULL;
    bool completed;
    int code = s->calls.allgather(&request, mine, all, bytes, s->calls.user);
    if (code != 0) {
        return lierne_oob_failed(s, code, what);
    }
    lierne_status status = await(s, request, what, &completed);
    s->abandoned |= !lierne_oob_end(s, request, completed);
    return status;
}
