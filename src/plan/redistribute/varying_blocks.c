/* From pieces of tokens to blocks of this rank's buffers. Lists have space, so that nothing grows.
 * Runs are written where they stay: copying a block that was just put together waits for its parts.
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

/* The copies of a direction, as they are filled in. */
typedef struct copy_list {
    lierne_ops *ops;
    lierne_place *sources;
} copy_list;

/* The next copy, whose blocks are still to be set. */
static lierne_place *add_copy(const copy_list *list) {
    lierne_place *source = &list->sources[list->ops->count];
    lierne_varying_set_op(&list->ops->at[list->ops->count++], source);
    source->buffer = LIERNE_BUFFER_IN;
    source->index = 0;
    return source;
}

/* Segments that follow one another on both sides are one copy: a long one bypasses the cache. */
static void add_run_copy(const copy_list *list, int64_t to, int64_t from, int64_t count) {
    size_t n = list->ops->count;
    lierne_block *last = n > 0 ? &list->ops->at[n - 1].to.block : NULL;
    if (n > 0 && lierne_varying_follows(to, last) &&
        lierne_varying_follows(from, &list->sources[n - 1].block)) {
        last->count[0] += count;
        list->sources[n - 1].block.count[0] += count;
    } else {
        lierne_place *source = add_copy(list);
        lierne_varying_set_run(&list->ops->at[n].to.block, to, count);
        lierne_varying_set_run(&source->block, from, count);
    }
}

bool lierne_varying_is_run(const lierne_varying_plan *v, int side, const int64_t *size) {
    int naxes = v->states[0].layouts[0]->naxes;
    bool whole = v->axis == 0;
    for (int a = 1; a < naxes; a++) {
        whole = whole && size[a] == v->sides[side].shape[a];
    }
    return whole;
}

void lierne_varying_rows(lierne_block *out, const lierne_varying_plan *v, int side, int64_t row,
                         int64_t rows, const lierne_box *box) {
    if (lierne_varying_is_run(v, side, box->size)) {
        int64_t width = v->sides[side].width;
        lierne_varying_set_run(out, row * width, rows * width);
    } else {
        *out = lierne_varying_block(v, side, row, rows, box->local, box->size);
        lierne_blocks_join((lierne_block *const[]){out}, 1);
    }
}

void lierne_varying_add_copy(lierne_varying_plan *v, int d, lierne_ops *copies,
                             const lierne_token_piece *piece, const lierne_overlap *column) {
    const copy_list list = {copies, v->ways[d].sources};
    int from = d == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    int64_t width = v->sides[from].width;
    if (lierne_varying_is_run(v, 0, column->size) && lierne_varying_is_run(v, 1, column->size)) {
        add_run_copy(&list, piece->local[!from] * width, piece->local[from] * width,
                     piece->size * width);
        return;
    }
    lierne_block to = lierne_varying_piece_block(v, !from, from, piece, column),
                 source = lierne_varying_piece_block(v, from, from, piece, column);
    lierne_blocks_join((lierne_block *const[]){&to, &source}, 2);
    if (lierne_block_contiguous(&to) && lierne_block_contiguous(&source)) {
        add_run_copy(&list, to.offset, source.offset, to.count[0]);
    } else {
        add_copy(&list)->block = source;
        copies->at[copies->count - 1].to.block = to;
    }
}

void lierne_varying_add_piece(const lierne_varying_plan *v, int side, int from,
                              lierne_message *message, lierne_varying_cursor *cursor,
                              const lierne_token_piece *piece, const lierne_overlap *column) {
    if (lierne_varying_is_run(v, side, column->size)) {
        int64_t width = v->sides[side].width;
        lierne_varying_add_run(cursor, piece->local[side] * width, piece->size * width);
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
