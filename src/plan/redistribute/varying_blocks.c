/* From pieces of tokens to blocks of this rank's buffers. Lists have space, so that nothing grows.
 */
#include "plan/redistribute/varying_plan.h"

lierne_block lierne_varying_block(const lierne_varying_plan *v, int side, int64_t row, int64_t rows,
                                  const int64_t *local, const int64_t *size) {
    const lierne_varying_side *own = &v->sides[side];
    int naxes = v->states[0].layouts[0]->naxes;
    int64_t at[LIERNE_MAX_AXES], n[LIERNE_MAX_AXES];
    for (int a = 0; a < naxes; a++) {
        at[a] = a == v->axis ? row : local[a];
        n[a] = a == v->axis ? rows : size[a];
    }
    return lierne_block_box(naxes, own->shape, at, n);
}

lierne_block lierne_varying_piece_block(const lierne_varying_plan *v, int side, int from,
                                        const lierne_token_piece *piece,
                                        const lierne_overlap *column) {
    return lierne_varying_block(v, side, piece->local[side], piece->size,
                                side == from ? column->local_a : column->local_b, column->size);
}

/* Whether a block begins where another one, of one run too, ends. */
static bool follows(const lierne_block *next, const lierne_block *block) {
    return lierne_block_contiguous(block) && lierne_block_contiguous(next) &&
           block->offset + block->count[0] == next->offset;
}

/* Segments that follow one another on both sides are one copy: a long one bypasses the cache. */
static bool extend_copy(lierne_op *last, lierne_place *source, const lierne_block *to,
                        const lierne_block *from) {
    if (!follows(to, &last->to.block) || !follows(from, &source->block)) {
        return false;
    }
    last->to.block.count[0] += to->count[0];
    source->block.count[0] += from->count[0];
    return true;
}

void lierne_varying_add_copy(lierne_varying_plan *v, int d, lierne_ops *copies,
                             const lierne_token_piece *piece, const lierne_overlap *column) {
    lierne_varying_way *way = &v->ways[d];
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    lierne_block to = lierne_varying_piece_block(v, !from, from, piece, column),
                 source = lierne_varying_piece_block(v, from, from, piece, column);
    lierne_blocks_join((lierne_block *const[]){&to, &source}, 2);
    if (copies->count > 0 && extend_copy(&copies->at[copies->count - 1],
                                         &way->sources[copies->count - 1], &to, &source)) {
        return;
    }
    way->sources[copies->count] = lierne_place_at(LIERNE_BUFFER_IN, source);
    copies->at[copies->count] =
        (lierne_op){.to = lierne_place_at(LIERNE_BUFFER_OUT, to),
                    .from = {.at = &way->sources[copies->count], .count = 1}};
    copies->count++;
}

void lierne_varying_add_block(lierne_message *message, lierne_block block) {
    if (!lierne_message_extend(message, &block)) {
        message->blocks.at[message->blocks.count++] = block;
    }
}
