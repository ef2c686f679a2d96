/* The bridge between disjoint grids as Megatron-LM does it: only leaders send to the other grid,
 * then they broadcast.
 *
 * Forward and adjoint are one construction with the sides exchanged: leaders of the sending side
 * send slices or whole buffers to leaders of the receiving side, and each of these broadcasts what
 * it has to the group of its dp rank. The adjoint takes the gradient of one leader for that of its
 * dp rank, which is right because destination cp is 1 and the gradients of tp replicas are equal.
 *
 * The broadcast is a binomial tree: in round r the 2^r ranks that have the data send it to as many
 * more. The bytes are those of a leader that sends to every member itself, but the leader sends
 * log2(n) times and not n - 1 times. NCCL, which Megatron-LM uses, broadcasts in a tree or a chain
 * too: comparisons with lierne_plan_create_bridge are fair. */
#include "plan/megatron/megatron.h"

typedef struct lead {
    lierne_plan_side *side; /* of the direction at work */
    int batch_axis;
    const int *senders; /* leaders that this rank receives from, if it is a leader */
    int nsenders;
    const int *receivers; /* leaders that it sends to */
    int nreceivers;
    const int *group; /* of its dp rank on the receiving side; NULL: none */
    int size;
    int root; /* index of the leader in the group */
} lead;

/* Piece i of n of a buffer, along the batch. */
static lierne_block piece(const lead *l, const int64_t *shape, int i, int n) {
    return lierne_megatron_slice(l->side->naxes, shape, l->batch_axis, i, n);
}

static lierne_status exchange_leaders(const lead *l) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(l->side->route, &stage));
    for (int i = 0; i < l->nreceivers; i++) {
        lierne_block part = piece(l, l->side->in, i, l->nreceivers);
        LIERNE_TRY(lierne_messages_put(&stage->sends, l->receivers[i], LIERNE_BUFFER_IN, part));
    }
    for (int i = 0; i < l->nsenders; i++) {
        lierne_block part = piece(l, l->side->out, i, l->nsenders);
        LIERNE_TRY(lierne_messages_put(&stage->recvs, l->senders[i], LIERNE_BUFFER_OUT, part));
    }
    return LIERNE_OK;
}

/* Counted from the root on, rank i of the group sends to i + reach while i < reach. */
static lierne_status broadcast_round(const lead *l, int reach) {
    lierne_stage *stage;
    lierne_block whole = lierne_block_range(0, l->side->route->elements[LIERNE_BUFFER_OUT]);
    int me = 0;
    LIERNE_TRY(lierne_route_add_stage(l->side->route, &stage));
    while (l->group[me] != l->side->route->rank) {
        me++;
    }
    me = (me - l->root + l->size) % l->size;
    if (me < reach && me + reach < l->size) {
        int peer = l->group[(me + reach + l->root) % l->size];
        return lierne_messages_put(&stage->sends, peer, LIERNE_BUFFER_OUT, whole);
    }
    if (me >= reach && me < 2 * reach) {
        int peer = l->group[(me - reach + l->root) % l->size];
        return lierne_messages_put(&stage->recvs, peer, LIERNE_BUFFER_OUT, whole);
    }
    return LIERNE_OK;
}

static lierne_status fill_route(const lead *l) {
    if (l->nsenders + l->nreceivers == 0 && !l->group) {
        return LIERNE_OK;
    }
    LIERNE_TRY(exchange_leaders(l));
    for (int reach = 1; l->group && reach < l->size; reach *= 2) {
        LIERNE_TRY(broadcast_round(l, reach));
    }
    return LIERNE_OK;
}

/* The group of the rank's dp rank on a side, NULL if it is in none. */
static lierne_status find_group(const lierne_megatron_leaders *leaders, lierne_megatron_side which,
                                int rank, const int **group, int *size) {
    const int *ranks;
    int ngroups;
    LIERNE_TRY(lierne_megatron_leaders_get_groups(&ranks, &ngroups, size, leaders, which));
    *group = NULL;
    for (int i = 0; i < ngroups * *size; i++) {
        if (ranks[i] == rank) {
            *group = ranks + i / *size * *size;
        }
    }
    return LIERNE_OK;
}

/* As Megatron-LM has them: a communicator of all leaders, and one of the rank's group. */
static lierne_status hold_groups(lierne_context *context, const lierne_megatron_leaders *leaders,
                                 const lead *forward, const lead *adjoint,
                                 lierne_plan_parts *parts) {
    const lead *own = forward->group ? forward : adjoint;
    const int *p2p;
    int n;
    if (forward->nsenders + forward->nreceivers > 0) {
        LIERNE_TRY(lierne_megatron_leaders_get_p2p_ranks(&p2p, &n, leaders));
        LIERNE_TRY(lierne_group_get(&parts->groups[0], context, "leaders", p2p, n));
    }
    if (own->group && own->size > 1) {
        return lierne_group_get(&parts->groups[1], context, "broadcast", own->group, own->size);
    }
    return LIERNE_OK;
}

static lierne_status fill_plan(lierne_context *context, const lierne_megatron_leaders *leaders,
                               int batch_axis, lierne_plan_parts *parts) {
    lead forward = {.side = &parts->side[LIERNE_DIRECTION_FORWARD], .batch_axis = batch_axis};
    lead adjoint = {.side = &parts->side[LIERNE_DIRECTION_ADJOINT], .batch_axis = batch_axis};
    LIERNE_TRY(lierne_megatron_leaders_get_peers(&forward.receivers, &forward.nreceivers,
                                                 &forward.senders, &forward.nsenders, leaders,
                                                 context->rank));
    adjoint.senders = forward.receivers;
    adjoint.nsenders = forward.nreceivers;
    adjoint.receivers = forward.senders;
    adjoint.nreceivers = forward.nsenders;
    LIERNE_TRY(find_group(leaders, LIERNE_MEGATRON_SIDE_DST, context->rank, &forward.group,
                          &forward.size));
    LIERNE_TRY(find_group(leaders, LIERNE_MEGATRON_SIDE_SRC, context->rank, &adjoint.group,
                          &adjoint.size));
    adjoint.root = adjoint.size - 1;
    LIERNE_TRY(fill_route(&forward));
    LIERNE_TRY(fill_route(&adjoint));
    return hold_groups(context, leaders, &forward, &adjoint, parts);
}

static lierne_status check_overlap(const lierne_megatron_grids *grids) {
    int src = lierne_grid_get_rank_offset(grids->src),
        dst = lierne_grid_get_rank_offset(grids->dst);
    int src_end = src + lierne_grid_get_size(grids->src),
        dst_end = dst + lierne_grid_get_size(grids->dst);
    if (src < dst_end && dst < src_end) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "LEADER: source and destination grid share ranks %d to %d, must share "
                           "none",
                           src > dst ? src : dst, (src_end < dst_end ? src_end : dst_end) - 1);
    }
    return LIERNE_OK;
}

lierne_status lierne_megatron_check_leader(const lierne_megatron_bridge *bridge) {
    const lierne_megatron_grids *grids = &bridge->grids;
    LIERNE_TRY(check_overlap(grids));
    LIERNE_TRY(lierne_megatron_check_one(grids->src, "LEADER: source", "cp", ""));
    LIERNE_TRY(lierne_megatron_check_one(grids->dst, "LEADER: destination", "cp", ""));
    /* Megatron-LM counts gtp_remat as part of dp, the layouts of a bridge as replicas. */
    static const char hint[] = ": give a view in which dp includes it";
    LIERNE_TRY(lierne_megatron_check_one(grids->src, "LEADER: source", "gtp_remat", hint));
    LIERNE_TRY(lierne_megatron_check_one(grids->dst, "LEADER: destination", "gtp_remat", hint));
    return lierne_megatron_check_regular(bridge, "LEADER");
}

lierne_status lierne_megatron_plan_leader(lierne_context *context,
                                          const lierne_megatron_bridge *bridge,
                                          lierne_plan_parts *parts) {
    lierne_megatron_leaders *leaders;
    LIERNE_TRY(lierne_megatron_leaders_create(&leaders, bridge->spec));
    lierne_status status = fill_plan(context, leaders, bridge->batch_axis, parts);
    lierne_megatron_leaders_destroy(leaders);
    return status;
}
