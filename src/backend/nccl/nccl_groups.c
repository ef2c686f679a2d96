/* A communicator per group: NCCL runs the operations of one communicator one after another, on
 * whatever streams they are.
 *
 * It is split from that of the context, of which all ranks call. Its ranks are in the order of the
 * context's, because only its messages, and gathers of all ranks, have to know that order. NCCL
 * writes the communicator when the split has ended, or is aborted, so never to a stack: a state
 * whose split failed stays with the context's. */
#include "backend/nccl/nccl_transport.h"

#include <stdlib.h>

#define SHARES "NCCL_COMM_SPLIT_SHARE_RESOURCES"

/* Operations of a communicator that shares its parent's resources wait for the parent's. NCCL has
 * written what its files say to the environment. */
static lierne_status check_library(const lierne_nccl *n) {
    const char *shares = getenv(SHARES);
    if (!n->call.ncclCommSplit) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "rank %d: "
                           "this NCCL has no ncclCommSplit, which groups need: it must "
                           "be 2.18 or later",
                           n->rank);
    }
    return shares && strtol(shares, NULL, 0) != 0
               ? LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: " SHARES
                             " is %s: the communicator of a group would wait for "
                             "that of the context: unset it",
                             n->rank, shares)
               : LIERNE_OK;
}

static lierne_status fill_places(lierne_nccl *g, const lierne_transport_group *group) {
    LIERNE_TRY(lierne_alloc(&g->places, (size_t)g->world, sizeof *g->places));
    LIERNE_TRY(lierne_alloc(&g->met, (size_t)g->world, sizeof *g->met));
    for (int i = 0; i < group->n; i++) {
        for (int k = 0; k < group->n; k++) {
            g->places[group->ranks[i]] += group->ranks[k] < group->ranks[i];
        }
    }
    return LIERNE_OK;
}

/* Everything that can fail on this rank alone; *out stays NULL where it is in no group. */
static lierne_status prepare_group(lierne_nccl **out, lierne_nccl *n,
                                   const lierne_transport_group *group) {
    lierne_nccl *g;
    LIERNE_TRY(check_library(n));
    if (group->n == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&g, 1, sizeof *g));
    *g = (lierne_nccl){.call = n->call,
                       .owned = true,
                       .broken = true, /* until it is complete */
                       .rank = n->rank,
                       .world = n->world,
                       .timeout = n->timeout,
                       .parent = n};
    pthread_mutex_init(&g->lock, NULL);
    lierne_status status = fill_places(g, group);
    if (status != LIERNE_OK) {
        lierne_nccl_end(g);
        lierne_mem_free(g);
        return status;
    }
    pthread_mutex_lock(&n->lock);
    g->next = n->groups;
    n->groups = g;
    pthread_mutex_unlock(&n->lock);
    *out = g;
    return LIERNE_OK;
}

static lierne_status split(lierne_nccl *n, lierne_nccl *g, int64_t uid, double timeout) {
    static const char *const what = "ncclCommSplit";
    ncclConfig_t config = lierne_nccl_configuration();
    int color = g ? (int)(uid % INT32_MAX) : NCCL_SPLIT_NOCOLOR;
    double start = lierne_now();
    LIERNE_TRY(lierne_nccl_enter(n));
    ncclResult_t result =
        n->call.ncclCommSplit(n->comm, color, n->rank, g ? &g->comm : &n->none, &config);
    lierne_status status = lierne_nccl_check(n, result, what);
    lierne_nccl_leave(n);
    LIERNE_TRY(status);
    LIERNE_TRY(lierne_nccl_wait_within(n, what, timeout));
    return g ? lierne_nccl_wait_within(g, what, timeout - (lierne_now() - start)) : LIERNE_OK;
}

/* A rank that cannot take part splits without a group, so that the others do not wait for it. */
lierne_status lierne_nccl_group_create(void *self, const lierne_transport_group *group,
                                       double timeout, void **out) {
    lierne_nccl *n = self, *g = NULL;
    lierne_status status = prepare_group(&g, n, group);
    LIERNE_TRY(n->call.ncclCommSplit ? LIERNE_OK : status);
    lierne_status made = split(n, g, group->uid, timeout);
    status = made == LIERNE_OK ? status : made;
    if (status == LIERNE_OK && g) {
        g->broken = false;
        *out = g;
    }
    return status;
}

static void leave_parent(lierne_nccl *g) {
    lierne_nccl *n = g->parent, **at = &n->groups;
    pthread_mutex_lock(&n->lock);
    while (*at != g) {
        at = &(*at)->next;
    }
    *at = g->next;
    pthread_mutex_unlock(&n->lock);
}

lierne_status lierne_nccl_group_destroy(void *self, double timeout, bool alone) {
    lierne_nccl *g = self;
    leave_parent(g);
    g->timeout = timeout;
    g->broken |= alone;
    lierne_status status = lierne_nccl_end(g);
    lierne_mem_free(g);
    return status;
}
