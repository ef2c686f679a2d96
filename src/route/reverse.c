/* The adjoint of a route by reading it backwards.
 *
 * Every step of a route is linear in its buffers, so its transpose can be written down step by
 * step: `to = sum of from` becomes `from += to` for each, then `to = 0`; a received block is sent
 * back and cleared; a sent block receives what comes back and adds it. The gradient of out changes
 * on the way (it is cleared, and grows where a later stage had read out), and `in` of a route is
 * read only; so the gradient is first copied to scratch and worked on there.
 *
 * Scratch of the new route: [gradient of out | gradient of scratch | arrivals]. */
#include "route/route.h"

/* A place of the forward route, as the place of its gradient. */
static lierne_place gradient(const lierne_route *forward, lierne_buffer buffer,
                             lierne_block block) {
    if (buffer == LIERNE_IN) {
        return lierne_place_at(LIERNE_OUT, block);
    }
    if (buffer == LIERNE_SCRATCH) {
        block.offset += forward->elements[LIERNE_OUT];
    }
    return lierne_place_at(LIERNE_SCRATCH, block);
}

static lierne_status add_op(lierne_ops *ops, lierne_place to, const lierne_place *a,
                            const lierne_place *b) {
    lierne_op *op;
    LIERNE_TRY(lierne_ops_add(ops, to, &op));
    if (a) {
        LIERNE_TRY(lierne_op_add(op, *a));
    }
    if (b) {
        LIERNE_TRY(lierne_op_add(op, *b));
    }
    return LIERNE_OK;
}

/* Work areas start as: gradient of out = in, all else zero. */
static lierne_status start(const lierne_route *forward, lierne_route *adjoint) {
    lierne_stage *stage;
    int64_t n_out = forward->elements[LIERNE_OUT], n_in = forward->elements[LIERNE_IN];
    int64_t n_scratch = forward->elements[LIERNE_SCRATCH], offset;
    LIERNE_TRY(lierne_route_scratch(adjoint, n_out + n_scratch, &offset));
    LIERNE_TRY(lierne_route_add_stage(adjoint, &stage));
    lierne_place given = lierne_place_at(LIERNE_IN, lierne_block_range(0, n_out));
    lierne_place work = lierne_place_at(LIERNE_SCRATCH, lierne_block_range(0, n_out));
    lierne_place rest = lierne_place_at(LIERNE_SCRATCH, lierne_block_range(n_out, n_scratch));
    lierne_place result = lierne_place_at(LIERNE_OUT, lierne_block_range(0, n_in));
    LIERNE_TRY(add_op(&stage->copies, work, &given, NULL));
    LIERNE_TRY(add_op(&stage->copies, rest, NULL, NULL));
    return add_op(&stage->copies, result, NULL, NULL);
}

/* from += to for each source, then to = 0; an operation that adds to its own place keeps it. */
static lierne_status reverse_ops(const lierne_route *forward, const lierne_ops *ops,
                                 lierne_stage *stage) {
    for (size_t o = ops->count; o-- > 0;) {
        const lierne_op *op = &ops->at[o];
        lierne_place to = gradient(forward, op->to.buffer, op->to.block);
        bool keeps = false;
        for (size_t s = 0; s < op->from.count; s++) {
            const lierne_place *f = &op->from.at[s];
            if (lierne_place_same(f, &op->to)) {
                keeps = true;
                continue;
            }
            lierne_place from = gradient(forward, f->buffer, f->block);
            LIERNE_TRY(add_op(&stage->sums, from, &from, &to));
        }
        if (!keeps) {
            LIERNE_TRY(add_op(&stage->sums, to, NULL, NULL));
        }
    }
    return LIERNE_OK;
}

static lierne_status send_back(const lierne_route *forward, const lierne_message *received,
                               lierne_stage *stage) {
    lierne_message *send;
    LIERNE_TRY(lierne_messages_add(&stage->sends, received->peer, LIERNE_SCRATCH, &send));
    for (size_t b = 0; b < received->blocks.count; b++) {
        lierne_place place = gradient(forward, received->buffer, received->blocks.at[b]);
        LIERNE_TRY(lierne_message_add(send, place.block));
        LIERNE_TRY(add_op(&stage->sums, place, NULL, NULL));
    }
    return LIERNE_OK;
}

static lierne_status take_back(const lierne_route *forward, lierne_route *adjoint,
                               const lierne_message *sent, lierne_stage *stage) {
    lierne_message *recv;
    int64_t arrival;
    LIERNE_TRY(lierne_route_scratch(adjoint, sent->elements, &arrival));
    LIERNE_TRY(lierne_messages_add(&stage->recvs, sent->peer, LIERNE_SCRATCH, &recv));
    LIERNE_TRY(lierne_message_add(recv, lierne_block_range(arrival, sent->elements)));
    for (size_t b = 0; b < sent->blocks.count; b++) {
        lierne_block packed = lierne_block_packed(&sent->blocks.at[b], arrival);
        arrival += lierne_block_elements(&packed);
        lierne_place place = gradient(forward, sent->buffer, sent->blocks.at[b]);
        lierne_place from = lierne_place_at(LIERNE_SCRATCH, packed);
        LIERNE_TRY(add_op(&stage->sums, place, &place, &from));
    }
    return LIERNE_OK;
}

static lierne_status reverse_stage(const lierne_route *forward, const lierne_stage *stage,
                                   lierne_route *adjoint) {
    lierne_stage *undone;
    LIERNE_TRY(lierne_route_add_stage(adjoint, &undone));
    LIERNE_TRY(reverse_ops(forward, &stage->sums, undone));
    LIERNE_TRY(lierne_route_add_stage(adjoint, &undone));
    for (size_t m = 0; m < stage->recvs.count; m++) {
        LIERNE_TRY(send_back(forward, &stage->recvs.at[m], undone));
    }
    for (size_t m = 0; m < stage->sends.count; m++) {
        LIERNE_TRY(take_back(forward, adjoint, &stage->sends.at[m], undone));
    }
    return reverse_ops(forward, &stage->copies, undone);
}

lierne_status lierne_route_reverse(lierne_route **out, const lierne_route *route) {
    lierne_route *adjoint = NULL;
    LIERNE_TRY(lierne_route_create(&adjoint, route->rank, route->elements[LIERNE_OUT],
                                   route->elements[LIERNE_IN]));
    lierne_status status = start(route, adjoint);
    for (size_t i = route->stages.count; status == LIERNE_OK && i-- > 0;) {
        status = reverse_stage(route, &route->stages.at[i], adjoint);
    }
    if (status == LIERNE_OK) {
        status = lierne_route_keep_lists(adjoint);
    }
    if (status != LIERNE_OK) {
        lierne_route_destroy(adjoint);
        adjoint = NULL;
    }
    *out = adjoint;
    return status;
}
