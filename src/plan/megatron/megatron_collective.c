/* The bridge between two grids on the same ranks as Megatron-LM does it (#4368; destination cp > 1
 * as in #7435).
 *
 * Forward: fan-in all-gathers whole inputs over the gather group, fan-out narrows, equal copies.
 * Adjoint: the gradient is first summed over the cp group, into scratch (the caller's is never
 * written), then narrowed or gathered. The sum is a reduce-scatter in ascending cp order followed
 * by an all-gather: each member sums one part, so that every rank gets the same bits.
 *
 * The wide buffer is that of the side with the smaller dp: it has the samples of several dp ranks
 * of the other side, a share each. Ranks find their groups from their own coordinates: the members
 * of a gather group differ only in which share they have, those of a cp group in cp. */
#include "plan/megatron/megatron.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 100 }; /* misaligned ranks, more than fit a message */

typedef struct collective {
    lierne_context *context;
    lierne_plan_parts *parts;
    lierne_megatron_kind kind;
    int naxes;
    int batch_axis;
    int dp_ratio;
    int share; /* of this rank in the wide buffer */
    int cp_coord;
    const lierne_group *gather; /* NULL for equal */
    const lierne_group *cp;     /* NULL for cp 1 */
} collective;

static lierne_status check_dims(const lierne_megatron_grids *grids) {
    static const char *const whose[2] = {"COLLECTIVE: source", "COLLECTIVE: destination"};
    const lierne_grid *sides[2] = {grids->src, grids->dst};
    for (int i = 0; i < 2; i++) {
        for (int d = 0; d < lierne_grid_get_ndims(sides[i], NULL); d++) {
            const char *name = lierne_grid_get_dim_name(sides[i], NULL, d);
            bool known = strcmp(name, "tp") == 0 || strcmp(name, "dp") == 0 ||
                         (i == 1 && strcmp(name, "cp") == 0);
            if (!known) {
                LIERNE_TRY(lierne_megatron_check_one(sides[i], whose[i], name, ""));
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status check_spans(const lierne_megatron_grids *grids) {
    if (lierne_grid_get_size(grids->src) != lierne_grid_get_size(grids->dst) ||
        lierne_grid_get_rank_offset(grids->src) != lierne_grid_get_rank_offset(grids->dst)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "COLLECTIVE: the source grid has %d ranks from %d "
                           "on, the destination grid %d from %d on",
                           lierne_grid_get_size(grids->src),
                           lierne_grid_get_rank_offset(grids->src),
                           lierne_grid_get_size(grids->dst),
                           lierne_grid_get_rank_offset(grids->dst));
    }
    return LIERNE_OK;
}

static lierne_status check_aligned(const lierne_megatron_grids *grids) {
    int ranks[SHOWN];
    char list[256];
    size_t length = 0;
    int count = lierne_megatron_misaligned(grids, ranks, SHOWN);
    if (count == 0) {
        return LIERNE_OK;
    }
    for (int i = 0; i < count && i < SHOWN && length < sizeof list - 16; i++) {
        length +=
            (size_t)snprintf(list + length, sizeof list - length, i ? ", %d" : "%d", ranks[i]);
    }
    return LIERNE_FAIL(
        LIERNE_ERR_MISALIGNED,
        "COLLECTIVE: source and destination dp rank have no samples in common on %d ranks: "
        "%s%s",
        count, list, length < sizeof list - 16 ? "" : ", ...");
}

lierne_status lierne_megatron_check_collective(const lierne_megatron_bridge *bridge) {
    LIERNE_TRY(check_spans(&bridge->grids));
    LIERNE_TRY(check_dims(&bridge->grids));
    LIERNE_TRY(lierne_megatron_check_regular(bridge, "COLLECTIVE"));
    return check_aligned(&bridge->grids);
}

/* The group of ranks that differ from this one in `count` coordinates of a dim from `first` on. */
static lierne_status line_group(const collective *c, const lierne_grid *grid, const char *purpose,
                                const char *dim, int first, int count, lierne_group **group) {
    int coords[LIERNE_MAX_DIMS], d = lierne_grid_find_dim(grid, dim), *ranks;
    LIERNE_TRY(lierne_grid_get_coords(coords, grid, NULL, c->context->rank));
    LIERNE_TRY(lierne_alloc(&ranks, (size_t)count, sizeof *ranks));
    lierne_status status = LIERNE_OK;
    for (int i = 0; i < count && status == LIERNE_OK; i++) {
        coords[d] = first + i;
        status = lierne_grid_get_rank(&ranks[i], grid, NULL, coords);
    }
    if (status == LIERNE_OK) {
        status = lierne_group_get(group, c->context, purpose, ranks, count);
    }
    lierne_mem_free(ranks);
    return status;
}

static lierne_status find_groups(const lierne_megatron_grids *grids, collective *c) {
    int coords[LIERNE_MAX_DIMS], cp = lierne_grid_find_dim(grids->dst, "cp");
    const lierne_grid *many = c->kind == LIERNE_MEGATRON_FAN_IN ? grids->src : grids->dst;
    if (c->kind != LIERNE_MEGATRON_EQUAL) {
        LIERNE_TRY(lierne_grid_get_coords(coords, many, NULL, c->context->rank));
        int dp = coords[lierne_grid_find_dim(many, "dp")];
        c->share = dp % c->dp_ratio;
        LIERNE_TRY(
            line_group(c, many, "gather", "dp", dp - c->share, c->dp_ratio, &c->parts->groups[0]));
        c->gather = c->parts->groups[0];
    }
    if (cp >= 0 && lierne_grid_find_dim_size(grids->dst, NULL, "cp") > 1) {
        LIERNE_TRY(lierne_grid_get_coords(coords, grids->dst, NULL, c->context->rank));
        c->cp_coord = coords[cp];
        LIERNE_TRY(line_group(c, grids->dst, "cp", "cp", 0,
                              lierne_grid_find_dim_size(grids->dst, NULL, "cp"),
                              &c->parts->groups[1]));
        c->cp = c->parts->groups[1];
    }
    return LIERNE_OK;
}

/* Share i of a wide buffer of this shape. */
static lierne_block slice(const collective *c, const int64_t *shape, int i) {
    return lierne_megatron_slice(c->naxes, shape, c->batch_axis, i, c->dp_ratio);
}

static lierne_status copy_place(lierne_ops *ops, lierne_place to, lierne_place from) {
    lierne_op *op;
    lierne_blocks_join((lierne_block *const[]){&to.block, &from.block}, 2);
    LIERNE_TRY(lierne_ops_add(ops, to, &op));
    return lierne_op_add(op, from);
}

/* out = the rank's share of the wide buffer. */
static lierne_status narrow(const collective *c, lierne_ops *ops, const int64_t *wide,
                            lierne_buffer buffer) {
    lierne_block from = slice(c, wide, c->share);
    lierne_place to = lierne_place_at(LIERNE_BUFFER_OUT, lierne_block_packed(&from, 0));
    return copy_place(ops, to, lierne_place_at(buffer, from));
}

/* out (wide) = the members' whole buffers, share by share. */
static lierne_status gather_parts(const collective *c, lierne_route *route, const int64_t *wide,
                                  lierne_buffer buffer, int64_t elements) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    stage->group = 0;
    for (int i = 0; i < c->dp_ratio; i++) {
        lierne_place to = lierne_place_at(LIERNE_BUFFER_OUT, slice(c, wide, i));
        if (i == c->share) {
            lierne_place from = lierne_place_at(buffer, lierne_block_packed(&to.block, 0));
            LIERNE_TRY(copy_place(&stage->copies, to, from));
            continue;
        }
        LIERNE_TRY(
            lierne_messages_put(&stage->recvs, c->gather->ranks[i], LIERNE_BUFFER_OUT, to.block));
        LIERNE_TRY(lierne_messages_put(&stage->sends, c->gather->ranks[i], buffer,
                                       lierne_block_range(0, elements)));
    }
    return LIERNE_OK;
}

static lierne_block piece(const collective *c, int64_t elements, int member) {
    int64_t start = lierne_share(elements, c->cp->n, member);
    return lierne_block_range(start, lierne_share(elements, c->cp->n, member + 1) - start);
}

/* scratch[0, elements) = the sum of the members' in. Ends with the stage that completes it. */
static lierne_status sum_over_cp(const collective *c, lierne_route *route, int64_t elements) {
    lierne_stage *stage;
    lierne_op *op;
    int64_t landing;
    lierne_block mine = piece(c, elements, c->cp_coord);
    LIERNE_TRY(lierne_route_scratch(route, elements, &landing));
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(lierne_ops_add(&stage->sums, lierne_place_at(LIERNE_BUFFER_SCRATCH, mine), &op));
    for (int i = 0; i < c->cp->n; i++) {
        if (i == c->cp_coord) {
            LIERNE_TRY(lierne_op_add(op, lierne_place_at(LIERNE_BUFFER_IN, mine)));
            continue;
        }
        LIERNE_TRY(lierne_route_scratch(route, mine.count[0], &landing));
        lierne_place arrival =
            lierne_place_at(LIERNE_BUFFER_SCRATCH, lierne_block_range(landing, mine.count[0]));
        LIERNE_TRY(lierne_op_add(op, arrival));
        LIERNE_TRY(lierne_messages_put(&stage->recvs, c->cp->ranks[i], LIERNE_BUFFER_SCRATCH,
                                       arrival.block));
        LIERNE_TRY(lierne_messages_put(&stage->sends, c->cp->ranks[i], LIERNE_BUFFER_IN,
                                       piece(c, elements, i)));
    }
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    stage->group = 1;
    for (int i = 0; i < c->cp->n; i++) {
        if (i != c->cp_coord) {
            LIERNE_TRY(
                lierne_messages_put(&stage->sends, c->cp->ranks[i], LIERNE_BUFFER_SCRATCH, mine));
            LIERNE_TRY(lierne_messages_put(&stage->recvs, c->cp->ranks[i], LIERNE_BUFFER_SCRATCH,
                                           piece(c, elements, i)));
        }
    }
    return LIERNE_OK;
}

/* Gathers, or narrows; equal dp sizes narrow to the whole. */
static lierne_status move(const collective *c, lierne_route *route, bool gathers,
                          const int64_t *wide, lierne_buffer buffer, int64_t elements) {
    lierne_stage *stage;
    if (gathers) {
        return gather_parts(c, route, wide, buffer, elements);
    }
    if (buffer == LIERNE_BUFFER_IN) {
        LIERNE_TRY(lierne_route_add_stage(route, &stage));
        return narrow(c, &stage->copies, wide, buffer);
    }
    stage = &route->stages.at[route->stages.count - 1];
    return narrow(c, &stage->sums, wide, buffer);
}

static lierne_status fill_collective(const collective *c) {
    lierne_plan_side *forward = &c->parts->side[LIERNE_DIRECTION_FORWARD];
    lierne_plan_side *adjoint = &c->parts->side[LIERNE_DIRECTION_ADJOINT];
    int64_t in = forward->route->elements[LIERNE_BUFFER_IN],
            out = forward->route->elements[LIERNE_BUFFER_OUT];
    bool fan_in = c->kind == LIERNE_MEGATRON_FAN_IN, fan_out = c->kind == LIERNE_MEGATRON_FAN_OUT;
    const int64_t *wide = fan_in ? forward->out : forward->in;
    lierne_buffer gradient = LIERNE_BUFFER_IN;
    LIERNE_TRY(move(c, forward->route, fan_in, wide, LIERNE_BUFFER_IN, in));
    if (c->cp) {
        LIERNE_TRY(sum_over_cp(c, adjoint->route, out));
        gradient = LIERNE_BUFFER_SCRATCH;
    }
    return move(c, adjoint->route, fan_out, wide, gradient, out);
}

lierne_status lierne_megatron_plan_collective(lierne_context *context,
                                              const lierne_megatron_bridge *bridge,
                                              lierne_plan_parts *parts) {
    const lierne_megatron_grids *grids = &bridge->grids;
    int src = lierne_grid_find_dim_size(grids->src, NULL, "dp");
    int dst = lierne_grid_find_dim_size(grids->dst, NULL, "dp");
    int first = lierne_grid_get_rank_offset(grids->src);
    collective c = {.context = context,
                    .parts = parts,
                    .kind = src > dst   ? LIERNE_MEGATRON_FAN_IN
                            : src < dst ? LIERNE_MEGATRON_FAN_OUT
                                        : LIERNE_MEGATRON_EQUAL,
                    .dp_ratio = src > dst ? src / dst : dst / src,
                    .naxes = bridge->src->naxes,
                    .batch_axis = bridge->batch_axis};
    if (context->rank < first || context->rank >= first + lierne_grid_get_size(grids->src)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(find_groups(grids, &c));
    return fill_collective(&c);
}
