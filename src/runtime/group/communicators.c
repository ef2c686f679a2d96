/* Communicators of groups, for transports that need them. One that waits for all of its members may
 * only be created in an order in which all members create theirs: smallest rank, size, uid. Every
 * rank goes through the groups of a call in this order, one after the other. Where all ranks of the
 * context must call, they go through the specs, which they gave in one order.
 *
 * A member that fails takes part in the groups that follow, so that nobody waits for it, and all
 * ranks agree at the end. An error that kills the context is told to the others at once. */
#include "runtime/group/group.h"

#include <stdio.h>
#include <string.h>

static bool needs_communicators(const lierne_carrier *carrier) {
    return carrier->transport->groups != NULL;
}

int lierne_groups_count_transports(const lierne_context *context) {
    int count = 0;
    for (int i = 0; i < context->ncarriers; i++) {
        count += needs_communicators(&context->carriers[i]);
    }
    return count;
}

static bool precedes(const lierne_group *a, const lierne_group *b) {
    if (a->smallest != b->smallest) {
        return a->smallest < b->smallest;
    }
    return a->n != b->n ? a->n < b->n : a->uid < b->uid;
}

/* The next group after one, NULL: the first. There are few, and sorting them would need memory,
 * which must not be missing once the ranks have agreed. */
static lierne_group *next_group(lierne_group *const *groups, int n, const lierne_group *after) {
    lierne_group *found = NULL;
    for (int i = 0; i < n; i++) {
        lierne_group *g = groups[i];
        if (g && (!after || precedes(after, g)) && (!found || precedes(g, found))) {
            found = g;
        }
    }
    return found;
}

static bool kills(lierne_status status) {
    return status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED ||
           status == LIERNE_ERR_TRANSPORT;
}

/* How the creation went on this rank so far. */
typedef struct creation {
    lierne_deadline deadline;
    lierne_status status; /* the first error, or the one that kills the context */
    char message[LIERNE_MESSAGE_SIZE];
} creation;

/* group: NULL where this rank is in no group of a spec. */
static lierne_status create_one(const lierne_context *context, lierne_group *group, int i,
                                creation *c) {
    lierne_transport_group shown = {.purpose = "", .rank = -1};
    void *none = NULL;
    double now = lierne_now();
    if (group) {
        shown = (lierne_transport_group){group->uid,     group->purpose, (int)group->priority,
                                         group->indices, group->n,       group->rank};
    }
    if (lierne_deadline_passed(&c->deadline, now)) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d: the communicators of '%s' with %d ranks were not created "
                           "within %g s",
                           context->rank, shown.purpose, shown.n, context->timeout);
    }
    return context->carriers[i].transport->groups->create(context->carriers[i].self, &shown,
                                                          c->deadline.at - now,
                                                          group ? &group->domain.states[i] : &none);
}

static void create_all(const lierne_context *context, lierne_group *group, creation *c,
                       bool by_all) {
    for (int i = 0; i < context->ncarriers && !kills(c->status); i++) {
        const lierne_carrier *carrier = &context->carriers[i];
        bool needs = needs_communicators(carrier) && carrier->transport->groups->by_all == by_all;
        lierne_status status = needs ? create_one(context, group, i, c) : LIERNE_OK;
        if (status != LIERNE_OK && (c->status == LIERNE_OK || kills(status))) {
            c->status = status;
            snprintf(c->message, sizeof c->message, "%s", lierne_error_text());
        }
    }
}

static lierne_status destroy_all(lierne_group *group, bool alone) {
    lierne_status first = LIERNE_OK;
    for (int i = group->context->ncarriers - 1; i >= 0; i--) {
        if (group->domain.states[i]) {
            lierne_status status =
                group->context->carriers[i].transport->groups->destroy(group->domain.states[i],
                                                                       group->context->timeout,
                                                                       alone || first != LIERNE_OK);
            first = first == LIERNE_OK ? status : first;
            group->domain.states[i] = NULL;
        }
    }
    return first;
}

lierne_status lierne_groups_create_communicators(lierne_context *context,
                                                 lierne_group *const *groups, int n) {
    creation c = {.status = LIERNE_OK};
    if (lierne_groups_count_transports(context) == 0) {
        return LIERNE_OK;
    }
    lierne_deadline_start(&c.deadline, context->timeout, lierne_now());
    for (lierne_group *g = next_group(groups, n, NULL); g; g = next_group(groups, n, g)) {
        create_all(context, g, &c, false);
    }
    for (int i = 0; i < n; i++) {
        create_all(context, groups[i], &c, true);
    }
    if (c.status != LIERNE_OK) {
        lierne_set_error(c.message);
    }
    lierne_status status = kills(c.status)
                               ? lierne_context_kill(context, c.status)
                               : lierne_context_agree_all(context, c.status, NULL, 0, NULL);
    for (int i = 0; i < n && status != LIERNE_OK; i++) {
        if (groups[i]) {
            destroy_all(groups[i], true);
        }
    }
    return status;
}

lierne_status lierne_group_destroy_communicators(lierne_group *group) {
    lierne_context *context = group->context;
    lierne_status status = destroy_all(group, context->dead != LIERNE_OK);
    return status == LIERNE_OK || context->dead != LIERNE_OK ? LIERNE_OK
                                                             : lierne_context_kill(context, status);
}
