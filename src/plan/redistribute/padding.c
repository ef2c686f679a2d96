/* Padding of an output, rows of a gradient that nothing is delivered from, and what is zero in and
 * around windows. They are no part of what moves: operations without a source set them to zero
 * while messages are in flight. Margins of a gradient are the exception: in place they are the
 * input, and so become zero last. */
#include "layout/packed.h"
#include "plan/redistribute/planner.h"

static bool is_written_here(const lierne_planner *p, const lierne_cell *own) {
    return own && p->to->packed && (!p->shared || p->side->sharers.at[0] == p->rank);
}

static lierne_status add_zeros(lierne_planner *p, const lierne_boxes *boxes) {
    for (size_t b = 0; b < boxes->count; b++) {
        const lierne_box *box = &boxes->at[b];
        const lierne_place to =
            lierne_place_at(LIERNE_BUFFER_OUT,
                            lierne_block_box(p->to->naxes, p->out_shape, box->local, box->size));
        LIERNE_TRY(lierne_ops_put(&p->route->stages.at[0].copies, to, false, NULL, 0));
    }
    return LIERNE_OK;
}

static lierne_status add_borders(lierne_planner *p, const lierne_cell *own) {
    lierne_patches elements = {0}, zeros = {0};
    lierne_stage *last = &p->route->stages.at[p->route->stages.count - 1];
    lierne_ops *ops = p->to->cores_only ? &last->sums : &p->route->stages.at[0].copies;
    lierne_status status = lierne_halo_patches(&elements, &zeros, NULL, p->to, own);
    for (size_t i = 0; i < zeros.count && status == LIERNE_OK; i++) {
        const lierne_place to = lierne_place_patch(p->to, &zeros.at[i], LIERNE_BUFFER_OUT);
        status = lierne_ops_put(ops, to, false, NULL, 0);
    }
    lierne_mem_free(elements.at);
    lierne_mem_free(zeros.at);
    return status;
}

lierne_status lierne_add_padding(lierne_planner *p, const lierne_cell *own) {
    lierne_boxes boxes = {0};
    if (own && p->to->halos) {
        return add_borders(p, own);
    }
    if (!is_written_here(p, own)) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_layout_cell_rest(p->to, own, &boxes, NULL);
    if (status == LIERNE_OK) {
        status = add_zeros(p, &boxes);
    }
    lierne_mem_free(boxes.at);
    return status;
}
