/* A shared output is divided among the ranks of a node that need it: each writes a part, so that
 * every byte is written once per node and no rank writes more than its share. In a last stage they
 * tell one another that they have written: what travels is one element that means nothing. With it
 * a rank also says that it has begun the call, and so no longer reads the result of the call before
 * (runtime/execute/shared_output.c). */
#include "plan/redistribute/redistribute_shared.h"

lierne_status lierne_shared_begin(lierne_planner *p, const lierne_cell *own) {
    lierne_ranks all = {0};
    p->side->owned.count = 0;
    if (!own) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_members(p->to, own, -1, &all);
    for (size_t i = 0; i < all.count && status == LIERNE_OK; i++) {
        if (!p->nodes || lierne_planner_node(p, all.at[i]) == lierne_planner_node(p, p->rank)) {
            status = LIERNE_VEC_PUSH(&p->side->sharers, all.at[i]);
        }
    }
    lierne_mem_free(all.at);
    return status;
}

lierne_status lierne_shared_add_part(const lierne_planner *p, const lierne_cell_overlap *x) {
    for (size_t b = 0; b < x->part.count; b++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&p->side->owned,
                                   lierne_place_box(p, &x->part.at[b], LIERNE_BUFFER_OUT).block));
    }
    return LIERNE_OK;
}

lierne_status lierne_shared_end(const lierne_planner *p) {
    lierne_stage *stage = &p->route->stages.at[p->route->stages.count - 1];
    size_t n = p->side->sharers.count;
    int64_t sent, received;
    if (n < 2) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_route_scratch(p->route, 1, &sent));
    LIERNE_TRY(lierne_ops_put(&stage->sums,
                              lierne_place_at(LIERNE_BUFFER_SCRATCH, lierne_block_range(sent, 1)),
                              false, NULL, 0));
    LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    for (size_t i = 0; i < n; i++) {
        int peer = p->side->sharers.at[i];
        if (peer != p->rank) {
            LIERNE_TRY(lierne_route_scratch(p->route, 1, &received));
            LIERNE_TRY(lierne_messages_put(&stage->sends, peer, LIERNE_BUFFER_SCRATCH,
                                           lierne_block_range(sent, 1)));
            LIERNE_TRY(lierne_messages_put(&stage->recvs, peer, LIERNE_BUFFER_SCRATCH,
                                           lierne_block_range(received, 1)));
        }
    }
    return LIERNE_OK;
}
