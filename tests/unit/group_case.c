#include "unit/group_case.h"

#include "runtime/context/context.h"

#include <criterion/criterion.h>

#include "unit/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void group_keep(group_state *s, const lierne_context *context, lierne_status status) {
    s->kept[context->rank] = status;
    snprintf(s->message[context->rank], LIERNE_MESSAGE_SIZE, "%s",
             status == LIERNE_OK ? "" : lierne_last_error());
}

void group_run(int world, const lierne_context_spec *spec,
               void (*work)(lierne_context *context, void *shared), group_state *s) {
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    ranks_run(world, spec, work, s);
    cr_assert_eq(s->faults.wrong, 0, "%d wrong, the first: %s", s->faults.wrong, s->faults.message);
    cr_assert_eq(s->communicators, 0, "%d communicators are left", s->communicators);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
}

void group_check_alike(const group_state *s, int world, lierne_status status, const char *text) {
    for (int r = 0; r < world; r++) {
        cr_assert_eq(s->kept[r], status, "rank %d: %s: %s", r, lierne_status_name(s->kept[r]),
                     s->message[r]);
        cr_assert_str_eq(s->message[r], s->message[0], "rank %d", r);
    }
    cr_assert(strstr(s->message[0], text), "'%s' has no '%s'", s->message[0], text);
}

lierne_group_spec group_spec_of(const char *purpose, int ngroups, int size, const int *ranks) {
    return (lierne_group_spec){.size = sizeof(lierne_group_spec),
                               .purpose = purpose,
                               .ngroups = ngroups,
                               .group_size = size,
                               .ranks = ranks};
}

typedef struct communicator {
    group_rank *rank;
    int64_t uid;
    int n;
} communicator;

/* Counts a member and waits, with the lock, until all have come. */
static bool meet(group_state *s, group_meeting *meetings, int64_t uid, int n, double timeout) {
    group_meeting *m = &meetings[uid % GROUP_AT_ONCE];
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t end = until.tv_nsec + (int64_t)(timeout * 1e9);
    until.tv_sec += end / 1000000000;
    until.tv_nsec = end % 1000000000;
    *m = m->uid == uid ? *m : (group_meeting){.uid = uid};
    m->count++;
    pthread_cond_broadcast(&s->changed);
    while (m->count < n) {
        if (pthread_cond_timedwait(&s->changed, &s->lock, &until) == ETIMEDOUT) {
            return m->count >= n;
        }
    }
    return true;
}

static lierne_status create(group_rank *r, const lierne_transport_group *group, double timeout) {
    group_state *s = r->shared;
    if (r->ncreated < GROUP_LOG) {
        r->created[r->ncreated++] = group->uid;
    }
    NOTE(s, group->uid > 0 && group->rank >= 0 && group->rank < group->n &&
                group->ranks[group->rank] == r->rank && group->purpose && timeout > 0);
    bool faulty = r->rank == s->fault_rank;
    if (faulty && s->fault == STAYS_AWAY) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT, "rank %d stays away", r->rank);
    }
    if (!meet(s, s->creations, group->uid, group->n, timeout)) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT, "rank %d waited for its group", r->rank);
    }
    return faulty && s->fault == FAILS
               ? LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "rank %d has no communicator left", r->rank)
               : LIERNE_OK;
}

static lierne_status group_create(void *self, const lierne_transport_group *group, double timeout,
                                  void **out) {
    group_rank *r = self;
    pthread_mutex_lock(&r->shared->lock);
    lierne_status status = create(r, group, timeout);
    if (status == LIERNE_OK) {
        communicator *made = malloc(sizeof *made);
        *made = (communicator){r, group->uid, group->n};
        r->shared->communicators++;
        *out = made;
    }
    pthread_mutex_unlock(&r->shared->lock);
    return status;
}

static lierne_status group_destroy(void *made, double timeout, bool alone) {
    communicator old = *(communicator *)made;
    group_state *s = old.rank->shared;
    pthread_mutex_lock(&s->lock);
    bool met = alone || meet(s, s->destructions, old.uid, old.n, timeout);
    s->communicators--;
    s->alone += alone && old.uid == 1;
    pthread_mutex_unlock(&s->lock);
    free(made);
    return met ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_TIMEOUT, "rank %d destroys its group alone",
                             old.rank->rank);
}

static bool reaches_none(void *self, int peer) {
    (void)self, (void)peer;
    return false;
}

static const lierne_transport_groups groups = {.create = group_create, .destroy = group_destroy};
static const lierne_transport transport = {.name = "communicators",
                                           .close = lierne_transport_close_nothing,
                                           .print = lierne_transport_print_nothing,
                                           .reaches = reaches_none,
                                           .groups = &groups};

void group_attach(group_state *s, lierne_context *context) {
    group_rank *r = &s->ranks[context->rank];
    r->shared = s;
    r->rank = context->rank;
    lierne_context_add_transport(context, &transport, r, NULL);
}
