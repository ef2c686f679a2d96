/* Plans whose samples have another number of rows every step.
 *
 * Where a sample goes does not change from step to step, only its length does. So the bridge is
 * planned once in samples (a tensor of one element per sample), and that route is kept as a model;
 * the route that runs is the same lists with every block measured anew: sample k of a rank begins
 * at the running sum of the rows before it. Nothing is planned or allocated per step. The counts
 * reach the other side by one more bridge, of one number per sample, which is on the device where
 * the context is: then they lie in memory that the host and the device share. */
#include "plan/bridge/bridge.h"

#include <string.h>

static lierne_status alloc_rows(const lierne_bridge_counts *c, int64_t samples, int64_t **rows) {
    void *memory = NULL;
    if (!c->context->memory->alloc_host) {
        return lierne_alloc(rows, (size_t)samples, sizeof **rows);
    }
    LIERNE_TRY(lierne_context_alloc_kept(&memory, c->context, (size_t)(samples + 1) * sizeof **rows,
                                         true));
    *rows = memory;
    return LIERNE_OK;
}

static void free_rows(const lierne_bridge_counts *c, int64_t *rows, bool quiet) {
    if (rows && c->context->memory->alloc_host) {
        lierne_context_free_kept(c->context, rows, true, quiet);
    } else {
        lierne_mem_free(rows);
    }
}

void lierne_bridge_counts_destroy(lierne_bridge_counts *c) {
    if (!c) {
        return;
    }
    bool quiet = lierne_plan_drain(c->exchange) == LIERNE_OK; /* else a device may use the rows */
    lierne_plan_destroy(c->exchange);
    for (int i = 0; i < 2; i++) {
        lierne_route_destroy(c->model[i]);
        free_rows(c, c->rows[i], quiet);
        lierne_mem_free(c->first[i]);
    }
    lierne_mem_free(c);
}

/* The side that a buffer belongs to: the source for forward's in and adjoint's out. */
static int side_of(lierne_direction d, lierne_buffer buffer) {
    return (d == LIERNE_DIRECTION_FORWARD) == (buffer == LIERNE_BUFFER_IN) ? 0 : 1;
}

static void add_up(lierne_bridge_counts *c) {
    for (int side = 0; side < 2; side++) {
        for (int64_t k = 0; k < c->samples[side]; k++) {
            c->first[side][k + 1] = c->first[side][k] + c->rows[side][k];
        }
    }
}

/* A block of samples as the elements that they have now; of scratch, whose samples have places of
 * their own, only the place: the operation that reads it knows how long it is. */
static lierne_block measure(const lierne_bridge_counts *c, lierne_direction d, lierne_buffer buffer,
                            const lierne_block *samples) {
    int64_t at = samples->offset, n = lierne_block_elements(samples);
    if (buffer == LIERNE_BUFFER_SCRATCH) {
        return lierne_block_range(at * c->most * c->width, n * c->most * c->width);
    }
    const int64_t *first = c->first[side_of(d, buffer)];
    return lierne_block_range(first[at] * c->width, (first[at + n] - first[at]) * c->width);
}

static void measure_messages(const lierne_bridge_counts *c, lierne_direction d,
                             const lierne_messages *model, lierne_messages *live) {
    for (size_t m = 0; m < model->count; m++) {
        live->at[m].elements = 0;
        for (size_t b = 0; b < model->at[m].blocks.count; b++) {
            lierne_block block = measure(c, d, model->at[m].buffer, &model->at[m].blocks.at[b]);
            live->at[m].blocks.at[b] = block;
            live->at[m].elements += block.count[0];
        }
    }
}

/* The message that lands where an operation reads from scratch is as long as the operation. */
static void set_landing(lierne_messages *recvs, int64_t offset, int64_t count) {
    for (size_t m = 0; m < recvs->count; m++) {
        lierne_message *r = &recvs->at[m];
        if (r->buffer == LIERNE_BUFFER_SCRATCH && r->blocks.at[0].offset == offset) {
            r->blocks.at[0].count[0] = r->elements = count;
        }
    }
}

static void measure_ops(const lierne_bridge_counts *c, lierne_direction d, const lierne_ops *model,
                        lierne_ops *live, lierne_messages *recvs) {
    for (size_t o = 0; o < model->count; o++) {
        const lierne_op *from = &model->at[o];
        lierne_op *to = &live->at[o];
        to->to.block = measure(c, d, from->to.buffer, &from->to.block);
        for (size_t s = 0; s < from->from.count; s++) {
            lierne_place *place = &to->from.at[s];
            place->block = measure(c, d, place->buffer, &from->from.at[s].block);
            if (place->buffer == LIERNE_BUFFER_SCRATCH) {
                place->block.count[0] = to->to.block.count[0];
                set_landing(recvs, place->block.offset, place->block.count[0]);
            }
        }
    }
}

static void measure_route(const lierne_bridge_counts *c, lierne_direction d, lierne_route *live) {
    const lierne_route *model = c->model[d];
    for (size_t i = 0; i < model->stages.count; i++) {
        const lierne_stage *from = &model->stages.at[i];
        lierne_stage *to = &live->stages.at[i];
        measure_messages(c, d, &from->sends, &to->sends);
        measure_messages(c, d, &from->recvs, &to->recvs);
        measure_ops(c, d, &from->copies, &to->copies, &to->recvs);
        measure_ops(c, d, &from->sums, &to->sums, &to->recvs);
    }
}

static void set_shape(const lierne_bridge_counts *c, int side, int64_t *shape) {
    shape[0] = c->first[side][c->samples[side]];
    shape[1] = 1;
    shape[2] = c->width;
}

static void measure_side(const lierne_bridge_counts *c, lierne_direction d,
                         lierne_plan_side *side) {
    int in = side_of(d, LIERNE_BUFFER_IN), out = side_of(d, LIERNE_BUFFER_OUT);
    measure_route(c, d, side->route);
    set_shape(c, in, side->in);
    set_shape(c, out, side->out);
    side->naxes = 3;
    side->route->elements[LIERNE_BUFFER_IN] = side->in[0] * c->width;
    side->route->elements[LIERNE_BUFFER_OUT] = side->out[0] * c->width;
    if (side->owned.count) {
        side->owned.at[0] = lierne_block_range(0, side->route->elements[LIERNE_BUFFER_OUT]);
        side->owned.count = 1;
    }
    /* Whatever the counts, each overlap moves what it must; see
     * plan/redistribute/redistribute_route.c. */
    side->min_elements = lierne_route_count(side->route).received;
}

void lierne_bridge_counts_measure(lierne_bridge_counts *c, lierne_plan_side *forward,
                                  lierne_plan_side *adjoint) {
    add_up(c);
    measure_side(c, LIERNE_DIRECTION_FORWARD, forward);
    measure_side(c, LIERNE_DIRECTION_ADJOINT, adjoint);
}

static lierne_status fill_counts(lierne_bridge_counts *c, const lierne_bridge_spec *spec,
                                 const lierne_plan_parts *model, lierne_plan_parts *parts) {
    c->most = spec->shape[1];
    c->width = spec->shape[2];
    for (int d = 0; d < 2; d++) {
        const lierne_route *route = model->side[d].route;
        /* Forward's in belongs to the source, adjoint's in to the destination. */
        c->samples[d] = route->elements[LIERNE_BUFFER_IN];
        LIERNE_TRY(alloc_rows(c, c->samples[d], &c->rows[d]));
        LIERNE_TRY(lierne_alloc(&c->first[d], (size_t)c->samples[d] + 1, sizeof *c->first[d]));
        for (int64_t k = 0; k < c->samples[d]; k++) {
            c->rows[d][k] = c->most;
        }
    }
    for (int d = 0; d < 2; d++) {
        parts->side[d].route->elements[LIERNE_BUFFER_SCRATCH] *= c->most * c->width;
    }
    lierne_bridge_counts_measure(c, &parts->side[LIERNE_DIRECTION_FORWARD],
                                 &parts->side[LIERNE_DIRECTION_ADJOINT]);
    return LIERNE_OK;
}

/* Takes the routes of model; those of parts, equal to them, become the ones that run. */
lierne_status lierne_bridge_counts_create(lierne_bridge_counts **out, lierne_context *context,
                                          const lierne_bridge_spec *spec,
                                          const lierne_plan_parts *model,
                                          lierne_plan_parts *parts) {
    lierne_bridge_counts *c;
    LIERNE_TRY(lierne_alloc(&c, 1, sizeof *c));
    c->context = context;
    c->model[0] = model->side[0].route;
    c->model[1] = model->side[1].route;
    lierne_status status = fill_counts(c, spec, model, parts);
    if (status != LIERNE_OK) {
        c->model[0] = c->model[1] = NULL;
        lierne_bridge_counts_destroy(c);
        return status;
    }
    *out = c;
    return LIERNE_OK;
}
