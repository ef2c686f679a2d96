/* Routes made of other routes: run one after the other, the second reading what the first wrote.
 *
 * Buffers are renamed and shifted; a stage otherwise stays as it is. Messages of two routes cannot
 * be confused, because those between two ranks arrive in the order in which they were started. */
#include "route/route.h"

typedef struct naming {
    const lierne_buffer *buffers;
    const int64_t *offset;
} naming;

static lierne_place rename_place(const naming *n, lierne_buffer buffer, lierne_block block) {
    block.offset += n->offset[buffer];
    return lierne_place_at(n->buffers[buffer], block);
}

static lierne_status add_messages(lierne_messages *to, const lierne_messages *from,
                                  const naming *n) {
    for (size_t m = 0; m < from->count; m++) {
        const lierne_message *message = &from->at[m];
        lierne_message *copy;
        LIERNE_TRY(lierne_messages_add(to, message->peer, n->buffers[message->buffer], &copy));
        for (size_t b = 0; b < message->blocks.count; b++) {
            lierne_place place = rename_place(n, message->buffer, message->blocks.at[b]);
            LIERNE_TRY(lierne_message_add(copy, place.block));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_ops(lierne_ops *to, const lierne_ops *from, const naming *n) {
    for (size_t o = 0; o < from->count; o++) {
        const lierne_op *op = &from->at[o];
        lierne_op *copy;
        LIERNE_TRY(lierne_ops_add(to, rename_place(n, op->to.buffer, op->to.block), &copy));
        copy->accumulate = op->accumulate;
        copy->reduction = op->reduction;
        copy->divisor = op->divisor;
        for (size_t s = 0; s < op->from.count; s++) {
            const lierne_place *place = &op->from.at[s];
            LIERNE_TRY(lierne_op_add(copy, rename_place(n, place->buffer, place->block)));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_ops_append_at(lierne_ops *to, const lierne_ops *from, const int64_t *offset) {
    static const lierne_buffer same[LIERNE_BUFFER_COUNT] = {LIERNE_BUFFER_IN, LIERNE_BUFFER_OUT,
                                                            LIERNE_BUFFER_SCRATCH};
    const naming n = {same, offset};
    return add_ops(to, from, &n);
}

lierne_status lierne_ops_append(lierne_ops *to, const lierne_ops *from) {
    return lierne_ops_append_at(to, from, (const int64_t[LIERNE_BUFFER_COUNT]){0});
}

lierne_status lierne_route_append(lierne_route *route, const lierne_route *other,
                                  const lierne_buffer *buffers, const int64_t *offset) {
    const naming n = {buffers, offset};
    for (size_t i = 0; i < other->stages.count; i++) {
        const lierne_stage *from = &other->stages.at[i];
        lierne_stage *to;
        LIERNE_TRY(lierne_route_add_stage(route, &to));
        LIERNE_TRY(add_messages(&to->sends, &from->sends, &n));
        LIERNE_TRY(add_messages(&to->recvs, &from->recvs, &n));
        LIERNE_TRY(add_ops(&to->copies, &from->copies, &n));
        LIERNE_TRY(add_ops(&to->sums, &from->sums, &n));
    }
    return LIERNE_OK;
}

static lierne_status keep(lierne_route *route, lierne_block *block) {
    return block->rows ? lierne_route_list(route, &block->rows, block->count[0]) : LIERNE_OK;
}

static lierne_status keep_messages(lierne_route *route, lierne_messages *messages) {
    for (size_t m = 0; m < messages->count; m++) {
        for (size_t b = 0; b < messages->at[m].blocks.count; b++) {
            LIERNE_TRY(keep(route, &messages->at[m].blocks.at[b]));
        }
    }
    return LIERNE_OK;
}

static lierne_status keep_ops(lierne_route *route, lierne_ops *ops) {
    for (size_t o = 0; o < ops->count; o++) {
        lierne_op *op = &ops->at[o];
        LIERNE_TRY(keep(route, &op->to.block));
        for (size_t s = 0; s < op->from.count; s++) {
            LIERNE_TRY(keep(route, &op->from.at[s].block));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_route_keep_lists(lierne_route *route) {
    for (size_t i = 0; i < route->stages.count; i++) {
        lierne_stage *stage = &route->stages.at[i];
        LIERNE_TRY(keep_messages(route, &stage->sends));
        LIERNE_TRY(keep_messages(route, &stage->recvs));
        LIERNE_TRY(keep_ops(route, &stage->copies));
        LIERNE_TRY(keep_ops(route, &stage->sums));
    }
    return LIERNE_OK;
}
