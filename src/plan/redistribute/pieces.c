/* Parts of an overlap, and the messages that move them.
 *
 * What one rank sends to another is one message, unless it consists of long pieces. A piece that is
 * contiguous at one end need not be packed there, and packing costs more than a message. Sender and
 * receiver cut alike, because each knows the other's buffer. */
#include "plan/redistribute/chunk.h"
#include "plan/redistribute/merge.h"
#include "plan/redistribute/planner.h"

/* Bytes of a piece that is worth a message of its own, and that the cache keeps until unpacked. */
enum { LEAST_PIECE = 256 << 10 };

lierne_place lierne_place_patch(const lierne_layout *layout, const lierne_patch *patch,
                                lierne_buffer buffer) {
    return lierne_place_at(buffer, lierne_plan_block_of(layout, patch));
}

/* Place i of a box of two cells in the buffer of a layout with a halo. */
static lierne_patch image_of(const lierne_planner *p, const lierne_overlap *o, size_t i) {
    return lierne_need_patch(p->needs, &p->needs->at.at[o->index_b], i, p->to->naxes, o->start,
                             o->size);
}

static lierne_status list_images(const lierne_planner *p, const lierne_overlap *o, bool own,
                                 lierne_moves *moves) {
    const lierne_need *need = &p->needs->at.at[o->index_b];
    for (size_t i = 0; i < need->count; i++) {
        lierne_move move = {.box = *o, .to = image_of(p, o, i)};
        move.from = own ? move.to : image_of(p, o, need->primary);
        LIERNE_TRY(i != need->primary ? LIERNE_VEC_PUSH(moves, move) : LIERNE_OK);
    }
    return LIERNE_OK;
}

static lierne_status put_images(const lierne_planner *p, const lierne_moves *moves, lierne_ops *ops,
                                lierne_buffer from) {
    for (size_t i = 0; i < moves->count; i++) {
        const lierne_move *m = &moves->at[i];
        const lierne_place at = lierne_place_box(p, &m->box, from),
                           to = lierne_place_patch(p->to, &m->to, LIERNE_BUFFER_OUT);
        LIERNE_TRY(lierne_ops_put(ops, to, false, &at, 1));
    }
    return LIERNE_OK;
}

lierne_status lierne_add_images(const lierne_planner *p, const lierne_overlaps *boxes,
                                lierne_stage *stage, bool own) {
    lierne_moves moves = {0};
    lierne_status status = LIERNE_OK;
    for (size_t b = 0; p->needs && b < boxes->count && status == LIERNE_OK; b++) {
        status = list_images(p, &boxes->at[b], own, &moves);
    }
    lierne_moves_merge(&moves, p->to->naxes);
    if (status == LIERNE_OK) {
        status = put_images(p, &moves, own ? &stage->copies : &stage->sums,
                            own ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT);
    }
    lierne_mem_free(moves.at);
    return status;
}

lierne_place lierne_place_box(const lierne_planner *p, const lierne_overlap *o,
                              lierne_buffer buffer) {
    bool in = buffer == LIERNE_BUFFER_IN;
    if (p->needs && !in) {
        const lierne_patch patch = image_of(p, o, p->needs->at.at[o->index_b].primary);
        return lierne_place_patch(p->to, &patch, buffer);
    }
    if (p->frame) {
        return lierne_place_at(buffer,
                               lierne_frame_block(p->frame, !in, in ? p->in_shape : p->out_shape,
                                                  in ? o->local_a : o->local_b, o->size));
    }
    return lierne_place_at(buffer, lierne_block_box(p->from->naxes, in ? p->in_shape : p->out_shape,
                                                    in ? o->local_a : o->local_b, o->size));
}

static int64_t least_piece(const lierne_planner *p) {
    return LEAST_PIECE / (int64_t)lierne_dtype_size(p->from->dtype);
}

static lierne_chunking cut_of(const lierne_planner *p, const lierne_overlap *box,
                              const int64_t *mine, const int64_t *theirs) {
    return lierne_chunking_of(p->from->naxes, box->size, mine, theirs, least_piece(p));
}

/* Whether all pieces of the part at work are long. */
static bool is_worth_cutting(const lierne_planner *p, const lierne_cell_overlap *x,
                             const int64_t *mine, const int64_t *theirs) {
    for (size_t b = 0; b < x->part.count; b++) {
        if (cut_of(p, &x->part.at[b], mine, theirs).elements < least_piece(p)) {
            return false;
        }
    }
    return true;
}

static lierne_status add_whole(const lierne_planner *p, const lierne_cell_overlap *x,
                               lierne_messages *messages, int peer, lierne_buffer buffer) {
    lierne_message *message;
    LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
    for (size_t b = 0; b < x->part.count; b++) {
        LIERNE_TRY(lierne_message_add(message, lierne_place_box(p, &x->part.at[b], buffer).block));
    }
    return LIERNE_OK;
}

static lierne_status add_pieces(const lierne_planner *p, const lierne_overlap *box,
                                const lierne_chunking *cut, lierne_messages *messages, int peer,
                                lierne_buffer buffer) {
    lierne_overlap piece = lierne_chunking_first(box, cut);
    do {
        lierne_message *message;
        LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
        LIERNE_TRY(lierne_message_add(message, lierne_place_box(p, &piece, buffer).block));
    } while (lierne_chunking_next(&piece, box, cut));
    return LIERNE_OK;
}

lierne_status lierne_add_part(const lierne_planner *p, const lierne_cell_overlap *x,
                              lierne_messages *messages, int peer, lierne_buffer buffer,
                              lierne_buffer at_peer) {
    const int64_t *mine = buffer == LIERNE_BUFFER_IN ? p->in_shape : p->out_shape;
    int64_t theirs[LIERNE_MAX_AXES];
    if (x->part_elements == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(
        lierne_layout_get_shape(theirs, at_peer == LIERNE_BUFFER_IN ? p->from : p->to, peer));
    if (at_peer == LIERNE_BUFFER_SCRATCH || lierne_has_margins(p->to) || p->frame ||
        !is_worth_cutting(p, x, mine, theirs)) {
        return add_whole(p, x, messages, peer, buffer);
    }
    for (size_t b = 0; b < x->part.count; b++) {
        const lierne_overlap *box = &x->part.at[b];
        const lierne_chunking cut = cut_of(p, box, mine, theirs);
        LIERNE_TRY(add_pieces(p, box, &cut, messages, peer, buffer));
    }
    return LIERNE_OK;
}

/* Appends elements [start, start + size) of a box. What is not whole in the axes from `axis` on is
 * the end of one slice of this axis, whole slices, and the beginning of one. */
static lierne_status take_range(int naxes, const lierne_overlap *box, int axis, int64_t start,
                                int64_t size, lierne_overlaps *out) {
    int64_t slice = 1;
    for (int a = axis + 1; a < naxes; a++) {
        slice *= box->size[a];
    }
    while (size > 0) {
        lierne_overlap part = *box;
        int64_t at = start / slice, into = start % slice, n = size / slice;
        bool whole = into == 0 && n > 0;
        int64_t taken = whole ? n * slice : size < slice - into ? size : slice - into;
        part.start[axis] += at;
        part.local_a[axis] += at;
        part.local_b[axis] += at;
        part.size[axis] = whole ? n : 1;
        LIERNE_TRY(whole ? LIERNE_VEC_PUSH(out, part)
                         : take_range(naxes, &part, axis + 1, into, taken, out));
        start += taken;
        size -= taken;
    }
    return LIERNE_OK;
}

lierne_status lierne_cell_overlap_take(const lierne_planner *p, lierne_cell_overlap *x,
                                       int64_t start, int64_t size) {
    x->part.count = 0;
    x->part_elements = size;
    for (size_t b = 0; b < x->boxes.count && size > 0; b++) {
        const lierne_overlap *box = &x->boxes.at[b];
        int64_t elements = lierne_overlap_elements(lierne_planner_axes(p), box);
        if (start < elements) {
            int64_t n = size < elements - start ? size : elements - start;
            LIERNE_TRY(take_range(lierne_planner_axes(p), box, 0, start, n, &x->part));
            size -= n;
            start += n;
        }
        start -= elements;
    }
    return LIERNE_OK;
}
