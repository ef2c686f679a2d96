/* The routes of collectives.
 *
 * Each rank sends directly to each other one. Contributions to a reduction land in scratch, ordered
 * by place; the own one stays where it is, in in. One operation then reduces all of them in the
 * order of the places, so that the bits depend neither on the rank that reduces nor on the
 * algorithm. Large all-reduces and broadcasts take two such steps, each with a part of the data. */
#include "plan/collective/collective.h"

static lierne_block part_of(const int64_t *parts, int i) {
    return lierne_block_range(parts[i], parts[i + 1] - parts[i]);
}

/* The k-th rank after this one: ranks begin with different ones, so that none gets all messages at
 * once. */
static int after(const lierne_team *team, int k) {
    return (int)(((int64_t)team->me + k) % team->n);
}

static lierne_status send(lierne_stage *stage, const lierne_team *team, int i, lierne_buffer buffer,
                          lierne_block block) {
    return block.count[0] > 0
               ? lierne_messages_put(&stage->sends, lierne_team_rank(team, i), buffer, block)
               : LIERNE_OK;
}

static lierne_status receive(lierne_stage *stage, const lierne_team *team, int i,
                             lierne_buffer buffer, lierne_block block) {
    return block.count[0] > 0
               ? lierne_messages_put(&stage->recvs, lierne_team_rank(team, i), buffer, block)
               : LIERNE_OK;
}

static lierne_status copy_block(lierne_stage *stage, lierne_block to, lierne_block from) {
    lierne_place place = lierne_place_at(LIERNE_BUFFER_IN, from);
    return from.count[0] > 0
               ? lierne_ops_put(&stage->copies, lierne_place_at(LIERNE_BUFFER_OUT, to), false,
                                &place, 1)
               : LIERNE_OK;
}

/* Of n contributions; an average is a sum with a divisor. */
static void set_reduction(lierne_op *op, lierne_reduction reduction, int n) {
    bool average = reduction == LIERNE_REDUCTION_AVG;
    op->reduction = average ? LIERNE_REDUCTION_SUM : reduction;
    op->divisor = average ? n : 0;
}

/* Receives this rank's contributions, as many elements as own, from all others, and reduces them
 * and its own ones to a place. */
static lierne_status reduce(lierne_route *route, lierne_stage *stage, const lierne_team *team,
                            lierne_block own, lierne_place to, lierne_reduction reduction) {
    int64_t count = own.count[0], at;
    lierne_op *op;
    if (count == 0) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_route_scratch(route, count * (team->n - 1), &at));
    LIERNE_TRY(lierne_ops_add(team->n > 1 ? &stage->sums : &stage->copies, to, &op));
    if (team->n > 1) {
        set_reduction(op, reduction, team->n);
    }
    for (int i = 0; i < team->n; i++) {
        lierne_place from = lierne_place_at(LIERNE_BUFFER_IN, own);
        if (i != team->me) {
            from = lierne_place_at(LIERNE_BUFFER_SCRATCH, lierne_block_range(at, count));
            LIERNE_TRY(receive(stage, team, i, LIERNE_BUFFER_SCRATCH, from.block));
            at += count;
        }
        LIERNE_TRY(lierne_op_add(op, from));
    }
    return LIERNE_OK;
}

/* Sends each rank its part of in, and reduces this rank's own part of all in. */
static lierne_status reduce_parts(lierne_route *route, const lierne_team *team,
                                  const int64_t *parts, lierne_place to,
                                  lierne_reduction reduction) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    for (int k = 1; k < team->n; k++) {
        int i = after(team, k);
        LIERNE_TRY(send(stage, team, i, LIERNE_BUFFER_IN, part_of(parts, i)));
    }
    return reduce(route, stage, team, part_of(parts, team->me), to, reduction);
}

/* Sends a rank's own part from a place to all others but skip, and receives theirs in out. skip has
 * all parts already; -1: none. */
static lierne_status gather_parts(lierne_stage *stage, const lierne_team *team,
                                  const int64_t *parts, lierne_place own, int skip) {
    for (int k = 1; k < team->n; k++) {
        int i = after(team, k);
        if (i != skip) {
            LIERNE_TRY(send(stage, team, i, own.buffer, own.block));
        }
        if (team->me != skip) {
            LIERNE_TRY(receive(stage, team, i, LIERNE_BUFFER_OUT, part_of(parts, i)));
        }
    }
    return LIERNE_OK;
}

static lierne_place own_part(const lierne_team *team, const int64_t *parts, lierne_buffer buffer) {
    return lierne_place_at(buffer, part_of(parts, team->me));
}

/* scratch = in / divisor; *own becomes that place. */
static lierne_status divide(lierne_route *route, lierne_place *own, int64_t divisor) {
    lierne_place from = *own;
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(lierne_route_scratch(route, own->block.count[0], &own->block.offset));
    own->buffer = LIERNE_BUFFER_SCRATCH;
    if (own->block.count[0] > 0) {
        LIERNE_TRY(lierne_ops_put(&stage->sums, *own, false, &from, 1));
        stage->sums.at[0].divisor = divisor;
    }
    return LIERNE_OK;
}

lierne_status lierne_route_all_gather(lierne_route *route, const lierne_team *team,
                                      const int64_t *parts, int64_t divisor) {
    lierne_block mine = part_of(parts, team->me);
    lierne_place own = lierne_place_at(LIERNE_BUFFER_IN, lierne_block_range(0, mine.count[0]));
    lierne_stage *stage;
    if (divisor > 1) {
        LIERNE_TRY(divide(route, &own, divisor));
    }
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(gather_parts(stage, team, parts, own, -1));
    return mine.count[0] > 0
               ? lierne_ops_put(&stage->copies, lierne_place_at(LIERNE_BUFFER_OUT, mine), false,
                                &own, 1)
               : LIERNE_OK;
}

lierne_status lierne_route_reduce_scatter(lierne_route *route, const lierne_team *team,
                                          const int64_t *parts, lierne_reduction reduction) {
    lierne_block mine = part_of(parts, team->me);
    lierne_place out = lierne_place_at(LIERNE_BUFFER_OUT, lierne_block_range(0, mine.count[0]));
    return reduce_parts(route, team, parts, out, reduction);
}

lierne_status lierne_route_one_shot(lierne_route *route, const lierne_team *team,
                                    const int64_t *parts, lierne_reduction reduction) {
    lierne_block all = lierne_block_range(0, parts[team->n]);
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    for (int k = 1; k < team->n; k++) {
        LIERNE_TRY(send(stage, team, after(team, k), LIERNE_BUFFER_IN, all));
    }
    return reduce(route, stage, team, all, lierne_place_at(LIERNE_BUFFER_OUT, all), reduction);
}

lierne_status lierne_route_two_shot(lierne_route *route, const lierne_team *team,
                                    const int64_t *parts, lierne_reduction reduction) {
    lierne_place own = own_part(team, parts, LIERNE_BUFFER_OUT);
    lierne_stage *stage;
    LIERNE_TRY(reduce_parts(route, team, parts, own, reduction));
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    return gather_parts(stage, team, parts, own, -1);
}

/* The first stage of a broadcast: each rank's part, from the root. */
static lierne_status scatter(lierne_route *route, const lierne_team *team, const int64_t *parts,
                             int root) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    if (team->me != root) {
        return receive(stage, team, root, LIERNE_BUFFER_OUT, part_of(parts, team->me));
    }
    for (int k = 1; k < team->n; k++) {
        int i = after(team, k);
        LIERNE_TRY(send(stage, team, i, LIERNE_BUFFER_IN, part_of(parts, i)));
    }
    return LIERNE_OK;
}

/* Whether a part is another rank's than the root's. */
static bool divided(const lierne_team *team, const int64_t *parts, int root) {
    return parts[root + 1] - parts[root] != parts[team->n];
}

lierne_status lierne_route_broadcast(lierne_route *route, const lierne_team *team,
                                     const int64_t *parts, int root) {
    lierne_block all = lierne_block_range(0, parts[team->n]);
    bool at_root = team->me == root;
    lierne_stage *stage;
    if (divided(team, parts, root)) {
        LIERNE_TRY(scatter(route, team, parts, root));
    }
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    lierne_place own = own_part(team, parts, at_root ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT);
    LIERNE_TRY(gather_parts(stage, team, parts, own, root));
    return at_root ? copy_block(stage, all, all) : LIERNE_OK;
}

/* The second stage of a sum at the root: all parts, to the root. */
static lierne_status collect_parts(lierne_route *route, const lierne_team *team,
                                   const int64_t *parts, lierne_place own, int root) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    if (team->me != root) {
        return send(stage, team, root, own.buffer, own.block);
    }
    for (int k = 1; k < team->n; k++) {
        int i = after(team, k);
        LIERNE_TRY(receive(stage, team, i, LIERNE_BUFFER_OUT, part_of(parts, i)));
    }
    return LIERNE_OK;
}

lierne_status lierne_route_reduce_to(lierne_route *route, const lierne_team *team,
                                     const int64_t *parts, int root) {
    lierne_place own = own_part(team, parts, LIERNE_BUFFER_OUT);
    if (team->me != root) {
        own.buffer = LIERNE_BUFFER_SCRATCH;
        LIERNE_TRY(lierne_route_scratch(route, own.block.count[0], &own.block.offset));
    }
    LIERNE_TRY(reduce_parts(route, team, parts, own, LIERNE_REDUCTION_SUM));
    return divided(team, parts, root) ? collect_parts(route, team, parts, own, root) : LIERNE_OK;
}

lierne_status lierne_route_all_to_all(lierne_route *route, const lierne_team *team,
                                      const int64_t *sent, const int64_t *received) {
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    for (int k = 1; k < team->n; k++) {
        int i = after(team, k);
        LIERNE_TRY(send(stage, team, i, LIERNE_BUFFER_IN, part_of(sent, i)));
        LIERNE_TRY(receive(stage, team, i, LIERNE_BUFFER_OUT, part_of(received, i)));
    }
    return copy_block(stage, part_of(received, team->me), part_of(sent, team->me));
}

/* Dissemination: in round k a rank tells the one 2^k places further on that it and the 2^k - 1
 * before it have come. What travels is one element that means nothing. */
lierne_status lierne_route_barrier(lierne_route *route, const lierne_team *team) {
    const lierne_block sent = lierne_block_range(0, 1);
    int64_t at;
    lierne_stage *stage;
    LIERNE_TRY(lierne_route_add_stage(route, &stage));
    LIERNE_TRY(lierne_route_scratch(route, 1, &at));
    LIERNE_TRY(
        lierne_ops_put(&stage->sums, lierne_place_at(LIERNE_BUFFER_SCRATCH, sent), false, NULL, 0));
    for (int step = 1; step < team->n; step *= 2) {
        LIERNE_TRY(lierne_route_scratch(route, 1, &at));
        LIERNE_TRY(lierne_route_add_stage(route, &stage));
        LIERNE_TRY(send(stage, team, after(team, step), LIERNE_BUFFER_SCRATCH, sent));
        LIERNE_TRY(receive(stage, team, after(team, team->n - step), LIERNE_BUFFER_SCRATCH,
                           lierne_block_range(at, 1)));
    }
    return LIERNE_OK;
}
