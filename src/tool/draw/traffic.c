/* Messages are read from the receivers' routes, one rank after the other in a simulated world, so
 * that thousands of ranks fit in memory. */
#include "draw.h"

#include <stdlib.h>
#include <string.h>

static bool add_message(draw_traffic *t, draw_message message) {
    if (t->count == t->room) {
        size_t room = t->room ? 2 * t->room : 1024;
        draw_message *at = realloc(t->at, room * sizeof *at);
        if (!at) {
            return false;
        }
        t->at = at;
        t->room = room;
    }
    t->at[t->count++] = message;
    return true;
}

static bool need_stages(draw_traffic *t, int n) {
    if (n <= t->nstages) {
        return true;
    }
    draw_stage *stages = realloc(t->stages, (size_t)n * sizeof *stages);
    if (!stages) {
        return false;
    }
    memset(stages + t->nstages, 0, (size_t)(n - t->nstages) * sizeof *stages);
    t->stages = stages;
    t->nstages = n;
    return true;
}

static int64_t elements_of(const lierne_block *block) {
    int64_t n = 1;
    for (int d = 0; d < block->ndims; d++) {
        n *= block->count[d];
    }
    return n;
}

static void add_operations(draw_traffic *t, const lierne_route *route, const lierne_stage *stage,
                           draw_stage *sum) {
    int64_t size = (int64_t)lierne_dtype_size(route->dtype);
    for (size_t i = 0; i < stage->copies.count; i++) {
        const lierne_op *op = &stage->copies.at[i];
        if (op->from.count == 1 && op->from.at[0].buffer == LIERNE_BUFFER_IN &&
            op->to.buffer == LIERNE_BUFFER_OUT) {
            t->kept[route->rank] += elements_of(&op->to.block) * size;
        }
    }
    for (size_t i = 0; i < stage->sums.count; i++) {
        if (stage->sums.at[i].from.count > 1) {
            sum->summed += elements_of(&stage->sums.at[i].to.block) * size;
        }
    }
}

static bool add_route(draw_traffic *t, const lierne_route *route) {
    int64_t size = (int64_t)lierne_dtype_size(route->dtype);
    bool ok = need_stages(t, (int)route->stages.count);
    for (size_t i = 0; ok && i < route->stages.count; i++) {
        const lierne_messages *recvs = &route->stages.at[i].recvs;
        draw_stage *stage = &t->stages[i];
        for (size_t m = 0; ok && m < recvs->count; m++) {
            int64_t bytes = recvs->at[m].elements * size;
            ok = add_message(t, (draw_message){recvs->at[m].peer, route->rank, (int)i, bytes});
            stage->messages++;
            stage->bytes += bytes;
        }
        add_operations(t, route, &route->stages.at[i], stage);
    }
    return ok;
}

static int add_rank(draw_task *task, lierne_sim *sim, int rank) {
    const tool_bridge *bridge = &task->bridge;
    const lierne_route *route;
    lierne_plan *plan;
    int end = -1;
    lierne_context *context = lierne_sim_get_context(sim, rank);
    lierne_status status =
        tool_bridge_plan(&plan, context, bridge->packed, &bridge->spec, bridge->method);
    if (status == LIERNE_OK) {
        status = lierne_plan_get_route(&route, plan, task->direction);
    }
    if (status != LIERNE_OK) {
        tool_failed(task->argv);
        end = TOOL_INVALID;
    } else if (!add_route(&task->traffic, route)) {
        end = tool_usage(task->argv, "no memory for the messages of %d ranks", bridge->world);
    }
    lierne_plan_destroy(plan);
    return end;
}

int draw_traffic_open(draw_task *task) {
    int status = -1;
    lierne_sim *sim = tool_bridge_sim(&task->bridge, task->argv);
    if (!sim) {
        return TOOL_USAGE;
    }
    task->traffic.kept = calloc((size_t)task->bridge.world, sizeof *task->traffic.kept);
    if (!task->traffic.kept) {
        status = tool_usage(task->argv, "no memory for %d ranks", task->bridge.world);
    }
    for (int rank = 0; status < 0 && rank < task->bridge.world; rank++) {
        tool_progress(task->argv, "planning", rank, task->bridge.world);
        status = add_rank(task, sim, rank);
    }
    tool_progress_end();
    lierne_sim_destroy(sim);
    return status;
}

void draw_traffic_close(draw_task *task) {
    free(task->traffic.at);
    free(task->traffic.kept);
    free(task->traffic.stages);
}
