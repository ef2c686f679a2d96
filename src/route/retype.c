/* A route for rows of another type: the same rows between the same ranks, each of another number of
 * elements and as far apart as the new buffers have them.
 *
 * A block of whole rows is some loops over rows and one over the elements of a row; joined blocks
 * count rows times elements in their last loop. So every block is taken apart, its row loops get
 * the new stride, and what now follows on one another is joined again. Index lists name rows, not
 * elements: both routes have the same ones. */
#include "route/route.h"

typedef struct retyping {
    const lierne_row_shape *was;
    const lierne_row_shape *now;
    int rank;
    int64_t size; /* bytes of an element */
} retyping;

static lierne_status fail(const retyping *r) {
    return LIERNE_FAIL(LIERNE_ERR_INVALID,
                       "rank %d: the route of the plan cuts rows of %lld elements: their type "
                       "cannot change",
                       r->rank, (long long)r->was[LIERNE_BUFFER_IN].width);
}

/* Stride of a row loop; that of a loop of one row says nothing. */
static bool restride(int64_t *stride, int64_t count, const lierne_row_shape *was,
                     const lierne_row_shape *now) {
    bool whole = count == 1 || *stride % was->stride == 0;
    *stride = count == 1 ? now->stride : *stride / was->stride * now->stride;
    return whole;
}

/* One loop over rows, one over their elements: what blocks are where one of an operation has a
 * list.
 */
static bool retype_listed(lierne_block *b, const lierne_row_shape *was,
                          const lierne_row_shape *now) {
    bool whole = b->ndims == 2 && b->count[1] == was->width && b->stride[1] == 1 &&
                 b->offset % was->stride == 0 && restride(&b->stride[0], b->count[0], was, now);
    b->offset = b->offset / was->stride * now->stride;
    b->count[1] = now->width;
    return whole;
}

static void add_loop(lierne_block *b, int64_t count, int64_t stride) {
    b->count[b->ndims] = count;
    b->stride[b->ndims++] = stride;
}

static bool retype_block(lierne_block *b, const lierne_row_shape *was,
                         const lierne_row_shape *now) {
    lierne_block next = {.offset = b->offset / was->stride * now->stride};
    int last = b->ndims - 1;
    int64_t rows = b->count[last] / was->width;
    bool whole = b->offset % was->stride == 0;
    for (int d = 0; d < b->ndims - (was->width > 1) && whole; d++) {
        int64_t stride = b->stride[d];
        whole = restride(&stride, b->count[d], was, now);
        if (b->count[d] != 1) {
            add_loop(&next, b->count[d], stride);
        }
    }
    if (was->width > 1 && whole) {
        whole = b->stride[last] == 1 && b->count[last] % was->width == 0 &&
                (rows <= 1 || was->stride == was->width);
        if (rows != 1) {
            add_loop(&next, rows, now->stride);
        }
    }
    whole = whole && next.ndims < LIERNE_MAX_AXES;
    if (whole) {
        add_loop(&next, now->width, 1);
    }
    *b = next;
    return whole;
}

static lierne_status retype(const retyping *r, lierne_buffer buffer, lierne_block *block,
                            bool listed) {
    const lierne_row_shape *was = &r->was[buffer], *now = &r->now[buffer];
    return (listed ? retype_listed : retype_block)(block, was, now) ? LIERNE_OK : fail(r);
}

static lierne_status add_messages(lierne_messages *to, const lierne_messages *from,
                                  const retyping *r) {
    for (size_t m = 0; m < from->count; m++) {
        const lierne_message *message = &from->at[m];
        lierne_message *copy;
        LIERNE_TRY(lierne_messages_add(to, message->peer, message->buffer, &copy));
        for (size_t b = 0; b < message->blocks.count; b++) {
            lierne_block block = message->blocks.at[b];
            LIERNE_TRY(retype(r, message->buffer, &block, block.rows != NULL));
            LIERNE_TRY(lierne_message_add(copy, block));
        }
    }
    return LIERNE_OK;
}

static bool any_list(const lierne_op *op) {
    bool listed = op->to.block.rows != NULL;
    for (size_t s = 0; s < op->from.count; s++) {
        listed |= op->from.at[s].block.rows != NULL;
    }
    return listed;
}

static lierne_status add_ops(lierne_ops *to, const lierne_ops *from, const retyping *r) {
    for (size_t o = 0; o < from->count; o++) {
        const lierne_op *op = &from->at[o];
        lierne_op *copy;
        bool listed = any_list(op);
        LIERNE_TRY(lierne_ops_add(to, op->to, &copy));
        LIERNE_TRY(retype(r, copy->to.buffer, &copy->to.block, listed));
        copy->accumulate = op->accumulate;
        copy->reduction = op->reduction;
        copy->divisor = op->divisor;
        for (size_t s = 0; s < op->from.count; s++) {
            lierne_place place = op->from.at[s];
            LIERNE_TRY(retype(r, place.buffer, &place.block, listed));
            LIERNE_TRY(lierne_op_add(copy, place));
        }
        LIERNE_TRY(lierne_op_join(copy));
    }
    return LIERNE_OK;
}

/* Elements of a buffer of as many rows. */
static lierne_status resize(int64_t *elements, const lierne_row_shape *was,
                            const lierne_row_shape *now, const retyping *r) {
    int64_t rows = *elements > 0 ? (*elements - was->width) / was->stride + 1 : 0, bytes;
    if (!lierne_mul_i64(rows, now->stride, elements) ||
        !lierne_mul_i64(*elements, r->size, &bytes)) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                           "rank %d: bytes of %lld rows, %lld elements apart, do not fit", r->rank,
                           (long long)rows, (long long)now->stride);
    }
    *elements -= rows > 0 ? now->stride - now->width : 0;
    return LIERNE_OK;
}

static lierne_status fill(lierne_route *route, const lierne_route *from, const retyping *r) {
    for (int b = 0; b < LIERNE_BUFFER_COUNT; b++) {
        route->elements[b] = from->elements[b];
        LIERNE_TRY(resize(&route->elements[b], &r->was[b], &r->now[b], r));
    }
    for (size_t i = 0; i < from->stages.count; i++) {
        const lierne_stage *stage = &from->stages.at[i];
        lierne_stage *to;
        LIERNE_TRY(lierne_route_add_stage(route, &to));
        to->group = stage->group;
        LIERNE_TRY(add_messages(&to->sends, &stage->sends, r));
        LIERNE_TRY(add_messages(&to->recvs, &stage->recvs, r));
        LIERNE_TRY(add_ops(&to->copies, &stage->copies, r));
        LIERNE_TRY(add_ops(&to->sums, &stage->sums, r));
    }
    return LIERNE_OK;
}

lierne_status lierne_block_retype(lierne_block *block, int rank, const lierne_row_shape *was,
                                  const lierne_row_shape *now) {
    const retyping r = {.was = was, .now = now, .rank = rank};
    return retype(&r, LIERNE_BUFFER_IN, block, block->rows != NULL);
}

lierne_status lierne_route_retype(lierne_route **out, const lierne_route *from, lierne_dtype dtype,
                                  const lierne_row_shape *was, const lierne_row_shape *now) {
    const retyping r = {.was = was,
                        .now = now,
                        .rank = from->rank,
                        .size = (int64_t)lierne_dtype_size(dtype)};
    lierne_route *route;
    LIERNE_TRY(lierne_route_create(&route, from->rank, 0, 0));
    lierne_status status = fill(route, from, &r);
    if (status != LIERNE_OK) {
        lierne_route_destroy(route);
        return status;
    }
    lierne_route_share_lists(route, from);
    *out = route;
    return LIERNE_OK;
}
