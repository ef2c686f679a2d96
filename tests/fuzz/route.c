/* Fuzzing of routes, a libFuzzer target. The input chooses a random bridge and changes of its
 * routes: an offset, a count, a row, a peer, two operations that change places and so on, on any
 * rank. lierne_plan_check must find the changed routes bad; or they are executed, and lierne and
 * the executor of tests/support, which does exactly what include/lierne/route.h says, must come to
 * the same bits. A sanitizer sees whether they stay inside the buffers. replay.c runs the same
 * target over files. */
#include "route/route.h"
#include "bridge_plan.h"
#include "fuzz/must.h"
#include "lierne/sim.h"
#include "plan/object.h"
#include "route_executor.h"
#include "unit/random_case.h"

#include <string.h>

#define MOST_RANKS    6
#define MOST_ELEMENTS 4096

/* Bytes of the input; zeros behind its end. */
typedef struct bytes {
    const uint8_t *at;
    size_t left;
} bytes;

static unsigned take(bytes *b) {
    if (b->left == 0) {
        return 0;
    }
    b->left--;
    return *b->at++;
}

static size_t pick(bytes *b, size_t n) {
    return n ? take(b) % n : 0;
}

static int64_t change_by(bytes *b) {
    static const int64_t by[] = {1, -1, 2, -2, 3, 7, 16, -16};
    return by[pick(b, sizeof by / sizeof *by)];
}

static void change_block(lierne_block *block, bytes *b) {
    size_t d = pick(b, (size_t)block->ndims);
    switch (pick(b, 5)) {
    case 0:
        block->offset += change_by(b);
        break;
    case 1:
        block->count[d] += change_by(b);
        break;
    case 2:
        block->stride[d] += change_by(b);
        break;
    case 3:
        block->ndims -= block->ndims > 1 && !block->rows;
        break;
    case 4:
        if (block->rows && block->count[0] > 0) {
            ((int64_t *)block->rows)[pick(b, (size_t)block->count[0])] += change_by(b);
        }
        break;
    }
    block->count[d] = block->count[d] < 0 ? 0 : block->count[d];
}

static void change_message(lierne_messages *messages, bytes *b, int world) {
    lierne_message *m = messages->count ? &messages->at[pick(b, messages->count)] : NULL;
    if (!m) {
        return;
    }
    lierne_message *other = &messages->at[pick(b, messages->count)], kept = *m;
    switch (pick(b, 6)) {
    case 0:
        m->peer = (int)pick(b, (size_t)world);
        break;
    case 1:
        m->buffer = (lierne_buffer)pick(b, LIERNE_BUFFER_COUNT);
        break;
    case 2:
        m->elements += change_by(b);
        break;
    case 3:
        *m = *other, *other = kept;
        break;
    case 4:
        lierne_mem_free(m->blocks.at);
        *m = messages->at[--messages->count];
        break;
    case 5:
        if (m->blocks.count > 0) {
            lierne_block *block = &m->blocks.at[pick(b, m->blocks.count)];
            int64_t was = lierne_block_elements(block);
            change_block(block, b);
            m->elements += take(b) % 2 ? lierne_block_elements(block) - was : 0;
        }
        break;
    }
}

static void change_op(lierne_ops *ops, bytes *b) {
    lierne_op *op = ops->count ? &ops->at[pick(b, ops->count)] : NULL;
    if (!op) {
        return;
    }
    lierne_op *other = &ops->at[pick(b, ops->count)], kept = *op;
    lierne_place *place =
        op->from.count && take(b) % 2 ? &op->from.at[pick(b, op->from.count)] : &op->to;
    switch (pick(b, 6)) {
    case 0:
        place->buffer = (lierne_buffer)pick(b, LIERNE_BUFFER_COUNT);
        break;
    case 1:
        change_block(&place->block, b);
        break;
    case 2:
        *op = *other, *other = kept;
        break;
    case 3:
        op->from.count -= op->from.count > 1;
        break;
    case 4:
        op->reduction = (lierne_reduction)pick(b, 2) ? LIERNE_REDUCTION_MAX : LIERNE_REDUCTION_MIN;
        break;
    case 5:
        lierne_mem_free(op->from.at);
        *op = ops->at[--ops->count];
        break;
    }
}

static void change_route(lierne_route *route, bytes *b, int world) {
    if (route->stages.count == 0 || take(b) % 32 == 0) {
        int64_t *elements = &route->elements[pick(b, LIERNE_BUFFER_COUNT)];
        *elements += change_by(b);
        *elements = *elements < 0 ? 0 : *elements;
        return;
    }
    lierne_stage *stage = &route->stages.at[pick(b, route->stages.count)];
    lierne_stage *other = &route->stages.at[pick(b, route->stages.count)], kept = *stage;
    switch (pick(b, 9)) {
    case 0:
        *stage = *other, *other = kept;
        break;
    case 1:
    case 2:
        change_message(&stage->sends, b, world);
        break;
    case 3:
    case 4:
        change_message(&stage->recvs, b, world);
        break;
    case 5:
    case 6:
        change_op(&stage->copies, b);
        break;
    default:
        change_op(&stage->sums, b);
        break;
    }
}

/* A route of the same, whose messages go from rank to rank also where they are an all-gather. */
static lierne_route *copy_route(const lierne_route *route) {
    static const lierne_buffer same[] = {LIERNE_BUFFER_IN, LIERNE_BUFFER_OUT,
                                         LIERNE_BUFFER_SCRATCH};
    const int64_t offset[LIERNE_BUFFER_COUNT] = {0};
    lierne_route *copy;
    MUST(lierne_route_create(&copy, route->rank, route->elements[LIERNE_BUFFER_IN],
                             route->elements[LIERNE_BUFFER_OUT]) == LIERNE_OK &&
             lierne_route_append(copy, route, same, offset) == LIERNE_OK &&
             lierne_route_keep_lists(copy) == LIERNE_OK,
         "copying a route");
    copy->elements[LIERNE_BUFFER_SCRATCH] = route->elements[LIERNE_BUFFER_SCRATCH];
    for (size_t s = 0; s < copy->stages.count; s++) {
        copy->stages.at[s].group = -1;
    }
    return copy;
}

/* The same plan of a copy of its routes, with changes of both. */
static lierne_plan *change_plan(lierne_plan *plan, int world, lierne_dtype dtype, bytes *changes) {
    lierne_plan_parts parts = {.dtype = dtype, .max_inflight = 1, .kind = "fuzz"};
    lierne_plan *changed;
    for (int d = 0; d < 2; d++) {
        const lierne_plan_side *side = lierne_plan_side_of(plan, (lierne_direction)d);
        parts.side[d].route = copy_route(side->route);
        parts.side[d].naxes = 1;
        parts.algorithm[d] = "direct";
        for (size_t i = 0; i < side->owned.count; i++) {
            MUST(LIERNE_VEC_PUSH(&parts.side[d].owned, side->owned.at[i]) == LIERNE_OK, "memory");
        }
        if (changes) {
            change_route(parts.side[d].route, changes, world);
        }
    }
    MUST(lierne_plan_new(&changed, lierne_plan_context(plan), LIERNE_OK, &parts, NULL, 0) ==
             LIERNE_OK,
         "a plan of routes");
    return changed;
}

static bool small(lierne_plan *plan) {
    int64_t most = 0;
    for (int d = 0; d < 2; d++) {
        for (int b = 0; b < LIERNE_BUFFER_COUNT; b++) {
            int64_t n = lierne_plan_route(plan, (lierne_direction)d)->elements[b];
            most = n > most ? n : most;
        }
    }
    return most <= MOST_ELEMENTS;
}

static void run_plans(lierne_plan **plans, int world, lierne_dtype dtype, bytes *b) {
    lierne_plan *changed[MOST_RANKS];
    size_t victim = pick(b, (size_t)world);
    for (int r = 0; r < world; r++) {
        changed[r] =
            change_plan(plans[r], world, dtype, (size_t)r == victim || take(b) % 4 == 0 ? b : NULL);
    }
    lierne_status status = lierne_plan_check((const lierne_plan *const *)changed, world);
    MUST(status == LIERNE_OK || status == LIERNE_ERR_INVALID, "checking a plan");
    if (status == LIERNE_OK) {
        const char *fault = route_compare(changed, world);
        MUST(!fault, fault);
    }
    for (int r = 0; r < world; r++) {
        MUST(lierne_plan_destroy(changed[r]) == LIERNE_OK, "freeing a plan");
    }
}

static void run(const uint8_t *data, size_t size) {
    static case_arrays arrays;
    bytes b = {data, size};
    bridge_case c;
    size_t before = lierne_mem_live();
    int world = 2 + (int)pick(&b, MOST_RANKS - 1);
    random_case(1 + take(&b) + 256 * take(&b), world, &c, &arrays);
    const lierne_context_spec spec = {.size = sizeof spec, .nodes = c.nodes, .timeout = 60};
    lierne_plan *plans[MOST_RANKS] = {NULL};
    lierne_sim *sim;
    bool good = true;
    MUST(lierne_sim_create(&sim, world, &spec) == LIERNE_OK, "sim");
    for (int r = 0; r < world; r++) {
        good = case_plan(&plans[r], lierne_sim_get_context(sim, r), &c) == LIERNE_OK && good;
    }
    for (int r = 0; r < world && good; r++) {
        good = small(plans[r]);
    }
    if (good) {
        run_plans(plans, world, c.dtype, &b);
    }
    for (int r = 0; r < world; r++) {
        MUST(lierne_plan_destroy(plans[r]) == LIERNE_OK, "freeing a plan");
    }
    MUST(lierne_sim_destroy(sim) == LIERNE_OK, "freeing the sim");
    MUST(lierne_mem_live() == before, "memory left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    run_timed(run, data, size);
    return 0;
}
