/* Opening windows: every rank makes its own, tells the ranks of its node where, maps theirs, and
 * all ranks of the context agree. It is there on all of them or on none, because a plan connects
 * the ends of its messages on all ranks. */
#include "backend/cuda/ipc_context.h"

#include <stdio.h>
#include <string.h>

/* What a rank tells the others of its node. */
typedef struct offer {
    lierne_ipc_handle handle;
    int64_t bytes;
    int64_t device;
    lierne_rank_info info;
} offer;
#define OFFER_WORDS (sizeof(offer) / sizeof(int64_t))
_Static_assert(sizeof(offer) % sizeof(int64_t) == 0, "an offer is whole words");

static bool is_neighbour(const lierne_context *context, int index) {
    return index != context->index &&
           (!context->nodes || context->nodes[index] == context->nodes[context->index]);
}

static offer own_offer(const lierne_context *context, const lierne_ipc *ipc) {
    offer own = {.handle = ipc->head.handles[0],
                 .bytes = ipc->head.bytes[0],
                 .device = context->device};
    lierne_rank_info_fill(&own.info, context->index, -1);
    return own;
}

/* Sends own to every neighbour; list has space for all members. */
static lierne_status exchange_offers(lierne_context *context, offer *own,
                                     lierne_control_message *list,
                                     lierne_control_messages *received) {
    size_t n = 0;
    for (int r = 0; r < context->members.count; r++) {
        if (is_neighbour(context, r)) {
            list[n++] = (lierne_control_message){lierne_members_rank(&context->members, r),
                                                 OFFER_WORDS, (int64_t *)own};
        }
    }
    return lierne_context_sparse_exchange(context, list, n, received);
}

static bool shares_device(const offer *a, const offer *b) {
    return a->device == b->device && a->info.space == b->info.space &&
           a->info.process == b->info.process && a->info.start == b->info.start;
}

/* A rank needs a queue for its calls, and one for what lierne enqueues: a call waits on the device
 * for other ranks, and what is behind it in its queue waits with it, also if it is another rank's.
 */
static lierne_status check_queues(const lierne_context *context, const lierne_ipc *ipc,
                                  int sharing) {
    int queues = ipc->driver->count_queues ? ipc->driver->count_queues() : 2 * sharing;
    return sharing == 1 || queues >= 2 * sharing
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                             "rank %d: %d ranks of this process share device %d, whose streams "
                             "share %d hardware queues, must be at least %d: set "
                             "CUDA_DEVICE_MAX_CONNECTIONS, at most 32, before the process uses "
                             "CUDA, or have a process for each rank",
                             context->rank, sharing, context->device, queues, 2 * sharing);
}

static lierne_status map_peers(lierne_context *context, lierne_ipc *ipc,
                               const lierne_control_messages *received, lierne_rank_info *infos,
                               int *watches) {
    const offer own = {.device = context->device, .info = infos[context->index]};
    int sharing = 1;
    for (size_t i = 0; i < received->count; i++) {
        const lierne_control_message *m = &received->at[i];
        offer theirs;
        if (m->count != OFFER_WORDS) {
            return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "rank %d has no window", m->peer);
        }
        memcpy(&theirs, m->words, sizeof theirs);
        int index = lierne_context_index(context, m->peer);
        infos[index] = theirs.info;
        sharing += shares_device(&own, &theirs);
        LIERNE_TRY(lierne_ipc_add_peer(ipc, index, &theirs.handle, theirs.bytes));
    }
    LIERNE_TRY(check_queues(context, ipc, sharing));
    lierne_processes_watch(watches, infos, context->members.count, context->index);
    for (int r = 0; r < context->members.count; r++) {
        ipc->peers[r].watch = r == context->index ? LIERNE_NO_WATCH : watches[r];
    }
    return LIERNE_OK;
}

typedef struct lists {
    lierne_control_message *messages;
    lierne_rank_info *infos;
    int *watches;
} lists;

static lierne_status reserve_lists(lists *l, size_t n) {
    LIERNE_TRY(lierne_alloc(&l->messages, n, sizeof *l->messages));
    LIERNE_TRY(lierne_alloc(&l->infos, n, sizeof *l->infos));
    LIERNE_TRY(lierne_alloc(&l->watches, n, sizeof *l->watches));
    for (size_t r = 0; r < n; r++) {
        l->watches[r] = LIERNE_NO_WATCH;
    }
    return LIERNE_OK;
}

static void free_lists(lists *l) {
    lierne_mem_free(l->messages);
    lierne_mem_free(l->infos);
    lierne_mem_free(l->watches);
}

static lierne_status meet(lierne_context *context, lierne_ipc *ipc, lists *l) {
    lierne_control_messages received = {0};
    offer own = own_offer(context, ipc);
    l->infos[context->index] = own.info;
    LIERNE_TRY(exchange_offers(context, &own, l->messages, &received));
    lierne_status status = map_peers(context, ipc, &received, l->infos, l->watches);
    lierne_control_messages_destroy(&received);
    return status;
}

/* Whether the ranks go on without it after an error. */
static bool is_refusal(const lierne_context *context, lierne_status status) {
    return context->dead == LIERNE_OK &&
           (status == LIERNE_ERR_UNSUPPORTED || status == LIERNE_ERR_TRANSPORT);
}

static lierne_status give_up(lierne_context *context, lierne_ipc *ipc, lierne_status status) {
    const lierne_field fields[1] = {{.name = "ipc is not used"}};
    char why[LIERNE_MESSAGE_SIZE];
    snprintf(why, sizeof why, "%s", lierne_error_text());
    if (ipc) {
        lierne_ipc_leave(ipc);
    }
    bool left = context->dead == LIERNE_OK &&
                lierne_context_agree_all(context, LIERNE_OK, fields, 1, NULL) == LIERNE_OK;
    if (ipc) {
        ipc->left = left; /* nobody has a window of this rank mapped now */
        lierne_ipc_destroy(ipc);
    }
    lierne_set_error(why);
    if (!is_refusal(context, status)) {
        return status;
    }
    lierne_context_note_unused(context, &lierne_ipc_transport, why);
    return LIERNE_OK;
}

static lierne_status open_windows(lierne_context *context, const lierne_ipc_driver *driver) {
    const lierne_field fields[1] = {{.name = "ipc"}};
    lierne_ipc *ipc = NULL;
    lists l = {0};
    lierne_status mine = reserve_lists(&l, (size_t)context->members.count);
    if (mine == LIERNE_OK) {
        mine = lierne_ipc_create(&ipc, driver, context->device, context->own_stream,
                                 context->timeout, &context->members, context->index);
    }
    lierne_status status = lierne_context_agree_all(context, mine, fields, 1, NULL);
    if (status == LIERNE_OK) {
        mine = meet(context, ipc, &l);
        status = lierne_context_agree_all(context, mine, fields, 1, NULL);
    }
    free_lists(&l);
    if (status == LIERNE_OK) {
        status = lierne_context_place_transport(context, &lierne_ipc_transport, ipc);
    }
    return status == LIERNE_OK ? LIERNE_OK : give_up(context, ipc, status);
}

/* Whether no two members are on one node. */
static bool is_alone(const lierne_context *context) {
    int n = context->members.count;
    for (int r = 1; r < n; r++) {
        for (int s = 0; s < r; s++) {
            if (!context->nodes || context->nodes[r] == context->nodes[s]) {
                return false;
            }
        }
    }
    return true;
}

/* What every rank finds alike: windows are opened by all of them, or by none. A simulated world may
 * have more ranks than a device has queues for streams that wait for each other. */
lierne_status lierne_context_open_ipc(lierne_context *context, const lierne_ipc_driver *driver) {
    bool there = false;
    for (int i = 0; i < context->ncarriers; i++) {
        there |= context->carriers[i].transport == &lierne_ipc_transport;
    }
    if (there || context->owner || is_alone(context) ||
        context->ncarriers == LIERNE_MAX_TRANSPORTS ||
        !lierne_context_allows_transport(lierne_ipc_transport.name)) {
        return LIERNE_OK;
    }
    return open_windows(context, driver);
}
