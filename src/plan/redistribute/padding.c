/* Padding of an output, and rows of a gradient that nothing is delivered from. They are no part of
 * what moves: operations without a source set them to zero while messages are in flight. */
#include "layout/packed.h"
#include "plan/redistribute/planner.h"

static bool is_written_here(const lierne_planner *p, const lierne_cell *own) {
    return own && p->to->packed && (!p->shared || p->side->sharers.at[0] == p->rank);
}

static lierne_status add_zeros(lierne_planner *p, const lierne_boxes *boxes) {
    lierne_stage *stage;
    if (boxes->count > 0 && p->route->stages.count == 0) {
        LIERNE_TRY(lierne_route_add_stage(p->route, &stage));
    }
    for (size_t b = 0; b < boxes->count; b++) {
        const lierne_box *box = &boxes->at[b];
        const lierne_place to =
            lierne_place_at(LIERNE_BUFFER_OUT,
                            lierne_block_box(p->to->naxes, p->out_shape, box->local, box->size));
        LIERNE_TRY(lierne_ops_put(&p->route->stages.at[0].copies, to, false, NULL, 0));
    }
    return LIERNE_OK;
}

lierne_status lierne_add_padding(lierne_planner *p, const lierne_cell *own) {
    lierne_boxes boxes = {0};
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
