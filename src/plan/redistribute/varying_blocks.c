/* From pieces of tokens to blocks of this rank's buffers. Lists have space, so that nothing grows.
 */
#include "plan/redistribute/varying_plan.h"

lierne_block lierne_varying_box(const lierne_varying_plan *v, const int64_t *shape, int64_t most,
                                int64_t row, int64_t rows, const int64_t *local,
                                const int64_t *size) {
    int naxes = v->states[0].layouts[0]->naxes;
    int64_t of[LIERNE_MAX_AXES], at[LIERNE_MAX_AXES], n[LIERNE_MAX_AXES];
    for (int a = 0; a < naxes; a++) {
        of[a] = a == v->axis ? most : shape[a];
        at[a] = a == v->axis ? row : local[a];
        n[a] = a == v->axis ? rows : size[a];
    }
    return lierne_block_box(naxes, of, at, n);
}

lierne_block lierne_varying_block(const lierne_varying_plan *v, int side, int64_t row, int64_t rows,
                                  const int64_t *local, const int64_t *size) {
    const int64_t *shape = v->sides[side].shape;
    return lierne_varying_box(v, shape, shape[v->axis], row, rows, local, size);
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

/* Rows of whole columns are one run where the axis is the first one. */
static bool is_run(const lierne_varying_plan *v, int side, const int64_t *size) {
    int naxes = v->states[0].layouts[0]->naxes;
    bool whole = v->axis == 0;
    for (int a = 1; a < naxes; a++) {
        whole = whole && size[a] == v->sides[side].shape[a];
    }
    return whole;
}

static lierne_block run_of(const lierne_varying_plan *v, int side, int64_t row, int64_t rows) {
    int64_t width = v->sides[side].width;
    return (
        lierne_block){.offset = row * width, .ndims = 1, .count = {rows * width}, .stride = {1}};
}

lierne_block lierne_varying_rows(const lierne_varying_plan *v, int side, int64_t row, int64_t rows,
                                 const lierne_box *box) {
    if (is_run(v, side, box->size)) {
        return run_of(v, side, row, rows);
    }
    lierne_block block = lierne_varying_block(v, side, row, rows, box->local, box->size);
    lierne_blocks_join((lierne_block *const[]){&block}, 1);
    return block;
}

void lierne_varying_add_copy(lierne_varying_plan *v, int d, lierne_ops *copies,
                             const lierne_token_piece *piece, const lierne_overlap *column) {
    lierne_varying_way *way = &v->ways[d];
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    lierne_block to, source;
    if (is_run(v, 0, column->size) && is_run(v, 1, column->size)) {
        to = run_of(v, !from, piece->local[!from], piece->size);
        source = run_of(v, from, piece->local[from], piece->size);
    } else {
        to = lierne_varying_piece_block(v, !from, from, piece, column);
        source = lierne_varying_piece_block(v, from, from, piece, column);
        lierne_blocks_join((lierne_block *const[]){&to, &source}, 2);
    }
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

/* A run at the end of a message, without what blocks of several loops need. */
static void add_run(lierne_message *message, const lierne_block *run) {
    lierne_block *last = &message->blocks.at[message->blocks.count];
    message->elements += run->count[0];
    if (message->blocks.count > 0 && follows(run, last - 1)) {
        last[-1].count[0] += run->count[0];
    } else {
        *last = *run;
        message->blocks.count++;
    }
}

void lierne_varying_add_piece(const lierne_varying_plan *v, int side, int from,
                              lierne_message *message, const lierne_token_piece *piece,
                              const lierne_overlap *column) {
    if (is_run(v, side, column->size)) {
        const lierne_block run = run_of(v, side, piece->local[side], piece->size);
        add_run(message, &run);
    } else {
        lierne_varying_add_block(message, lierne_varying_piece_block(v, side, from, piece, column));
    }
}

void lierne_varying_add_block(lierne_message *message, lierne_block block) {
    if (!lierne_message_extend(message, &block)) {
        message->blocks.at[message->blocks.count++] = block;
    }
}

lierne_status lierne_varying_count(int64_t *elements, const lierne_varying_plan *v,
                                   int64_t row_elements) {
    const int64_t most = (int64_t)1 << 56; /* as many may pass */
    if (lierne_mul_i64(row_elements, v->max_rows, elements) && *elements <= most) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY,
                       "max_rows is %lld, of %lld elements each, must be at most %lld in all",
                       (long long)v->max_rows, (long long)row_elements, (long long)most);
}
