/* A communicator per group: NCCL runs the operations of one communicator one after another, on
 * whatever streams they are.
 *
 * It is split from that of the context, of which all ranks call. Where that is refused, by an old
 * NCCL, or because its operations would wait for those of the context, the group's first rank makes
 * an id and sends it to the others. Its ranks are in the order of the context's, because only its
 * messages, and gathers of all ranks, have to know that order. NCCL writes the communicator when
 * the call has ended, or is aborted, so never to a stack: a state whose communicator failed stays
 * with the context's. */
#include "backend/nccl/nccl_transport.h"
#include "runtime/context/context.h"

#include <stdlib.h>
#include <string.h>

/* NCCL before 2.18 has no split. A communicator that shares its parent's resources waits for the
 * parent; NCCL has written what its files say of that to the environment. */
static bool refuses_split(const lierne_nccl *n) {
    const char *shares = getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
    return !n->call.ncclCommSplit || (shares && strtol(shares, NULL, 0) != 0);
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

static void join_parent(lierne_nccl *g) {
    lierne_nccl *n = g->parent;
    pthread_mutex_lock(&n->lock);
    g->next = n->groups;
    n->groups = g;
    pthread_mutex_unlock(&n->lock);
}

/* Everything that can fail on this rank alone; *out stays NULL where it is in no group. */
static lierne_status prepare_group(lierne_nccl **out, lierne_nccl *n,
                                   const lierne_transport_group *group) {
    lierne_nccl *g;
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
    join_parent(g);
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
    status = lierne_nccl_wait_within(n, what, timeout);
    n->splits = status != LIERNE_OK;
    n->broken |= n->splits;
    LIERNE_TRY(status);
    return g ? lierne_nccl_wait_within(g, what, timeout - (lierne_now() - start)) : LIERNE_OK;
}

/* An id, as a message to the other ranks of a group. */
typedef struct id_messages {
    int64_t words[sizeof(ncclUniqueId) / sizeof(int64_t)];
    lierne_control_message at[];
} id_messages;

static lierne_status make_id(id_messages **out, ncclUniqueId *id, const lierne_nccl *n,
                             const lierne_transport_group *group) {
    size_t bytes = sizeof **out + (size_t)group->n * sizeof *(*out)->at;
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclGetUniqueId(id), "ncclGetUniqueId"));
    LIERNE_TRY(lierne_alloc(out, 1, bytes));
    memcpy((*out)->words, id, sizeof *id);
    for (int i = 1; i < group->n; i++) {
        int rank = lierne_members_rank(&n->context->members, group->ranks[i]);
        (*out)->at[i - 1] =
            (lierne_control_message){rank, sizeof *id / sizeof(int64_t), (*out)->words};
    }
    return LIERNE_OK;
}

/* Gives the ranks of each group the id of its first one. */
static lierne_status share_ids(ncclUniqueId *id, const lierne_nccl *n,
                               const lierne_transport_group *group) {
    lierne_control_messages received = {0};
    id_messages *own = NULL;
    lierne_status status = group->rank == 0 ? make_id(&own, id, n, group) : LIERNE_OK;
    lierne_status sent = lierne_context_sparse_exchange(n->context, own ? own->at : NULL,
                                                        own ? (size_t)group->n - 1 : 0, &received);
    if (received.count > 0) {
        memcpy(id, received.at[0].words, sizeof *id);
    }
    lierne_control_messages_destroy(&received);
    lierne_context_free_message_memory(n->context, own);
    return lierne_context_agree_all(n->context, status == LIERNE_OK ? sent : status, NULL, 0, NULL);
}

static lierne_status join_group(lierne_nccl *n, lierne_nccl *g, const lierne_transport_group *group,
                                double timeout) {
    ncclUniqueId id;
    double start = lierne_now();
    memset(&id, 0, sizeof id);
    LIERNE_TRY(share_ids(&id, n, group));
    return g ? lierne_nccl_init(g, id, g->places[n->rank], group->n,
                                timeout - (lierne_now() - start))
             : LIERNE_OK;
}

/* If a rank has failed already, none calls NCCL. */
lierne_status lierne_nccl_group_create(void *self, const lierne_transport_group *group,
                                       double timeout, void **out) {
    enum { FAILED, REFUSES };
    lierne_nccl *n = self, *g = NULL;
    lierne_status status = prepare_group(&g, n, group);
    int64_t any[] = {[FAILED] = status != LIERNE_OK, [REFUSES] = refuses_split(n)};
    LIERNE_TRY(lierne_context_allreduce_max(n->context, any, 2));
    if (!any[FAILED]) {
        status = any[REFUSES] ? join_group(n, g, group, timeout) : split(n, g, group->uid, timeout);
    }
    if (g && status == LIERNE_OK) {
        g->broken = any[FAILED];
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

/* Calls that failed outlive their plans, and so the group: they withdraw what they have begun when
 * the context ends. */
lierne_status lierne_nccl_group_destroy(void *self, double timeout, bool alone) {
    lierne_nccl *g = self;
    leave_parent(g);
    g->timeout = timeout;
    g->broken |= alone;
    lierne_status status = lierne_nccl_end_comm(g);
    if (g->batches > 0) {
        join_parent(g);
        return status;
    }
    lierne_nccl_end(g);
    lierne_mem_free(g);
    return status;
}
