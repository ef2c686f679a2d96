/* Ranks of a simulated world that decide or meet.
 *
 * A decision cannot wait for ranks that the same thread has yet to call: a rank is compared with
 * the ranks that came before it, and those get the failure of a later one when they begin. Planning
 * that takes messages has to wait, so there ranks have threads; lierne_sim_settled and meetings are
 * for them.
 *
 * At a meeting each rank shows what it brought, without a copy, looks at what the others show when
 * all have come, and leaves when all have looked. Counts of those who came and looked only grow,
 * over all meetings: a rank that leaves can come to the next one at once, and nobody has to clear
 * them. When the time of a rank is up, what it showed is its caller's again and there can be no
 * meeting any more: whoever waits or comes then is told at once. */
#include "transport/sim.h"

#include <sched.h>
#include <string.h>

static lierne_status compare(const lierne_sim_decision *d, int rank, const lierne_field *fields,
                             size_t n) {
    for (size_t i = 0; i < n || i < d->nfields; i++) {
        bool both = i < n && i < d->nfields;
        if (!both || strcmp(fields[i].name, d->fields[i].name) != 0 ||
            fields[i].value != d->fields[i].value) {
            return LIERNE_FAIL(LIERNE_MISMATCH,
                               "%s differs between ranks: %lld on rank %d, %lld "
                               "on rank %d",
                               i < n ? fields[i].name : d->fields[i].name,
                               (long long)(i < d->nfields ? d->fields[i].value : 0), d->first,
                               (long long)(i < n ? fields[i].value : 0), rank);
        }
    }
    return LIERNE_OK;
}

/* Notes the first rank of a decision. */
static lierne_status open_decision(lierne_sim *sim, int rank, const lierne_field *fields,
                                   size_t n) {
    lierne_sim_decision first = {.first = rank, .nfields = n};
    LIERNE_TRY(lierne_alloc(&first.fields, n, sizeof *fields));
    if (n) {
        memcpy(first.fields, fields, n * sizeof *fields);
    }
    lierne_status status = LIERNE_VEC_PUSH(&sim->decisions, first);
    if (status != LIERNE_OK) {
        lierne_mem_free(first.fields);
    }
    return status;
}

static lierne_status decide(lierne_sim_seat *s, lierne_status mine, const lierne_field *fields,
                            size_t n, int id) {
    lierne_sim *sim = s->sim;
    if ((size_t)id == sim->decisions.count && !sim->full) {
        sim->full = open_decision(sim, s->context->rank, fields, n) != LIERNE_OK;
    }
    if ((size_t)id >= sim->decisions.count) {
        return LIERNE_FAIL(LIERNE_NO_MEMORY, "there was no memory to note decision %d of the world",
                           id);
    }
    lierne_sim_decision *d = &sim->decisions.at[id];
    d->taken++;
    if (d->status != LIERNE_OK) {
        lierne_set_error(d->message);
        return d->status;
    }
    d->status = mine != LIERNE_OK ? mine : compare(d, s->context->rank, fields, n);
    if (d->status != LIERNE_OK) {
        memcpy(d->message, lierne_last_error(), sizeof d->message);
    }
    return d->status;
}

lierne_status lierne_sim_agree(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                               int *id) {
    lierne_sim_seat *s = self;
    *id = s->decisions++;
    lierne_sim_enter(s);
    lierne_status status = decide(s, mine, fields, n, *id);
    lierne_sim_leave(s);
    return status;
}

lierne_status lierne_sim_agreed(void *self, int id) {
    lierne_sim_seat *s = self;
    lierne_sim_enter(s);
    const lierne_sim_decision *d = &s->sim->decisions.at[id];
    lierne_status status = d->status;
    if (status != LIERNE_OK) {
        lierne_set_error(d->message);
    }
    lierne_sim_leave(s);
    return status;
}

static lierne_status check_gone(lierne_sim_seat *s) {
    if (s->sim->gone >= 0) {
        return LIERNE_FAIL(LIERNE_TIMEOUT,
                           "rank %d of %d: planning: rank %d gave up waiting for other ranks",
                           s->context->rank, s->sim->nranks, s->sim->gone);
    }
    for (int r = 0; lierne_sim_any_gave_up(s) && r < s->sim->nranks; r++) {
        LIERNE_TRY(lierne_sim_gave_up(s, r));
    }
    return LIERNE_OK;
}

/* With the lock held, which others get for a moment. */
static lierne_status linger(lierne_sim_seat *s, lierne_deadline *deadline, size_t missing) {
    LIERNE_TRY(check_gone(s));
    if (lierne_deadline_passed(deadline, lierne_now())) {
        s->sim->gone = s->context->rank;
        return LIERNE_FAIL(LIERNE_TIMEOUT,
                           "rank %d of %d: planning: %zu ranks did not come within %g s",
                           s->context->rank, s->sim->nranks, missing, s->context->timeout);
    }
    lierne_sim_move(s->sim);
    lierne_sim_leave(s);
    sched_yield();
    lierne_sim_enter(s);
    return LIERNE_OK;
}

/* Returns whether a decision was taken; *status is it. */
static lierne_status await_decision(lierne_sim_seat *s, int id, lierne_status *status) {
    lierne_deadline deadline;
    lierne_deadline_start(&deadline, s->context->timeout, lierne_now());
    for (;;) {
        const lierne_sim_decision *d = &s->sim->decisions.at[id];
        *status = d->status;
        if (d->status != LIERNE_OK) {
            lierne_set_error(d->message);
        }
        if (d->status != LIERNE_OK || d->taken == s->sim->nranks) {
            return LIERNE_OK;
        }
        LIERNE_TRY(linger(s, &deadline, (size_t)(s->sim->nranks - d->taken)));
    }
}

lierne_status lierne_sim_settled(void *self, int id) {
    lierne_sim_seat *s = self;
    lierne_status decision;
    lierne_sim_enter(s);
    lierne_status status = await_decision(s, id, &decision);
    lierne_sim_leave(s);
    return status == LIERNE_OK ? decision : lierne_context_kill(s->context, status);
}

static lierne_status await_count(lierne_sim_seat *s, const size_t *count, size_t all,
                                 lierne_deadline *deadline) {
    while (*count < all) {
        LIERNE_TRY(linger(s, deadline, all - *count));
    }
    return check_gone(s);
}

/* A meeting: look finds the result in what all ranks show. */
static lierne_status meet(lierne_sim_seat *s, const void *offer, size_t n,
                          lierne_status (*look)(const lierne_sim_seat *s, void *result),
                          void *result) {
    lierne_sim *sim = s->sim;
    size_t all = ++s->meetings * (size_t)sim->nranks;
    lierne_deadline deadline;
    lierne_status outcome = LIERNE_OK;
    lierne_deadline_start(&deadline, s->context->timeout, lierne_now());
    lierne_sim_enter(s);
    s->offer = offer;
    s->noffer = n;
    sim->came++;
    lierne_status status = await_count(s, &sim->came, all, &deadline);
    if (status == LIERNE_OK) {
        outcome = look(s, result);
        sim->looked++;
        status = await_count(s, &sim->looked, all, &deadline);
    }
    lierne_sim_leave(s);
    return status != LIERNE_OK ? status : outcome;
}

static lierne_status collect(const lierne_sim_seat *s, void *result) {
    for (int r = 0; r < s->sim->nranks; r++) {
        const lierne_letter *letters = s->sim->seats[r].offer;
        for (size_t i = 0; i < s->sim->seats[r].noffer; i++) {
            if (letters[i].peer == s->context->rank) {
                LIERNE_TRY(lierne_letters_copy(result, r, &letters[i]));
            }
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_sim_post(void *self, const lierne_letter *letters, size_t n,
                              lierne_letters *received) {
    lierne_status status = meet(self, letters, n, collect, received);
    if (status != LIERNE_OK) {
        lierne_letters_free(received);
    }
    return status;
}

static lierne_status find_largest(const lierne_sim_seat *s, void *result) {
    int64_t *largest = result;
    for (int r = 0; r < s->sim->nranks; r++) {
        const int64_t *values = s->sim->seats[r].offer;
        for (size_t i = 0; i < s->sim->seats[r].noffer; i++) {
            largest[i] = values[i] > largest[i] ? values[i] : largest[i];
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_sim_largest(void *self, int64_t *values, size_t n) {
    int64_t largest[LIERNE_LARGEST];
    memcpy(largest, values, n * sizeof *values);
    LIERNE_TRY(meet(self, values, n, find_largest, largest));
    memcpy(values, largest, n * sizeof *values);
    return LIERNE_OK;
}
