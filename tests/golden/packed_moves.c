/* packed.json, redistribute: packed rows move from one layout to another, and their gradients back.
 * Token t has 100 (t + 1) + column, its gradient 7 (t + 1) + 1000 column + 3. Padding of an input
 * is another number, which must not be read; an output is -(1000 (rank + 1) + 10 row + column)
 * before a call. */
#include "lierne/sim.h"
#include "packed.h"
#include "routing.h"

#include <stdlib.h>

enum { GARBAGE = 999999 };

typedef struct move {
    golden_packed sides[2];
    lierne_layout *layouts[2];
    int world;
    int64_t width;
    lierne_sim *sim;
    lierne_plan **plans;
    lierne_request **requests;
    int64_t **buffers[2]; /* per rank, under the layout of either side */
} move;

static int64_t rows_of(const move *m, int side, int rank) {
    int64_t shape[2] = {0};
    lierne_layout_get_shape(shape, m->layouts[side], rank);
    return shape[0];
}

/* Writes what a direction reads on a rank. */
static void fill_input(golden_case *c, const move *m, int side, int rank) {
    int64_t rows = rows_of(m, side, rank);
    int64_t *buffer = m->buffers[side][rank];
    size_t count = 0;
    lierne_layout_get_boxes(NULL, 0, &count, m->layouts[side], rank);
    lierne_box *boxes = golden_alloc((int64_t)count, sizeof *boxes);
    golden_expect_status(c, "lierne_layout_get_boxes",
                         lierne_layout_get_boxes(boxes, count, &count, m->layouts[side], rank),
                         LIERNE_OK);
    for (int64_t i = 0; i < rows * m->width; i++) {
        buffer[i] = GARBAGE;
    }
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < boxes[b].size[0] * m->width; i++) {
            int64_t h = i % m->width, t = boxes[b].start[0] + i / m->width;
            buffer[boxes[b].local[0] * m->width + i] =
                side == 0 ? 100 * (t + 1) + h : 7 * (t + 1) + 1000 * h + 3;
        }
    }
    free(boxes);
}

static void poison_output(const move *m, int side, int rank) {
    int64_t n = rows_of(m, side, rank) * m->width;
    for (int64_t i = 0; i < n; i++) {
        m->buffers[side][rank][i] = -(1000 * (rank + 1) + 10 * (i / m->width) + i % m->width);
    }
}

static void execute(golden_case *c, move *m, lierne_direction direction, const cJSON *expect) {
    int in = direction == LIERNE_DIRECTION_ADJOINT;
    for (int r = 0; r < m->world && !c->failed; r++) {
        fill_input(c, m, in, r);
        poison_output(m, !in, r);
        lierne_status status =
            (in ? lierne_plan_adjoint_begin
                : lierne_plan_forward_begin)(&m->requests[r], m->plans[r], m->buffers[!in][r],
                                             m->buffers[in][r], NULL);
        golden_expect_status(c, "begin", status, LIERNE_OK);
    }
    for (int r = 0; r < m->world; r++) {
        golden_expect_status(c, "lierne_request_end", lierne_request_end(m->requests[r]),
                             LIERNE_OK);
        m->requests[r] = NULL;
    }
    for (int r = 0; r < m->world && !c->failed; r++) {
        golden_expect_ints(c, in ? "adjoint" : "forward", cJSON_GetArrayItem(expect, r),
                           m->buffers[!in][r], rows_of(m, !in, r) * m->width);
    }
}

/* Each rank receives what it needs and does not hold. */
static void expect_bytes(golden_case *c, const move *m, const cJSON *rows) {
    for (int r = 0; r < m->world && !c->failed; r++) {
        lierne_report report = {.size = sizeof report};
        int64_t wanted = golden_to_int(cJSON_GetArrayItem(rows, r), -1) * m->width * 8;
        golden_expect_status(c, "lierne_plan_get_report",
                             lierne_plan_get_report(&report, m->plans[r], LIERNE_DIRECTION_FORWARD),
                             LIERNE_OK);
        golden_expect(c, report.received_bytes == wanted && report.min_bytes == wanted,
                      "rank %d receives %lld bytes, at least %lld, expected %lld", r,
                      (long long)report.received_bytes, (long long)report.min_bytes,
                      (long long)wanted);
    }
}

static int64_t received_from(const lierne_route *route, int peer) {
    int64_t elements = 0;
    for (size_t s = 0; s < route->stages.count; s++) {
        const lierne_stage *stage = &route->stages.at[s];
        for (size_t i = 0; i < stage->recvs.count; i++) {
            elements += stage->recvs.at[i].peer == peer ? stage->recvs.at[i].elements : 0;
        }
    }
    return elements;
}

/* Where the source has no replicas, one route is possible. */
static void expect_moved(golden_case *c, const move *m, const cJSON *moved) {
    const cJSON *one;
    cJSON_ArrayForEach(one, moved) {
        int from = (int)golden_to_int(cJSON_GetArrayItem(one, 0), -1);
        int to = (int)golden_to_int(cJSON_GetArrayItem(one, 1), -1);
        int64_t rows = golden_to_int(cJSON_GetArrayItem(one, 2), -1);
        const lierne_route *route;
        golden_expect_status(c, "lierne_plan_get_route",
                             lierne_plan_get_route(&route, m->plans[to], LIERNE_DIRECTION_FORWARD),
                             LIERNE_OK);
        golden_expect(c, from == to || received_from(route, from) == rows * m->width,
                      "rank %d receives %lld elements from %d", to,
                      (long long)received_from(route, from), from);
    }
}

static void open_move(golden_case *c, move *m) {
    m->plans = golden_alloc(m->world, sizeof *m->plans);
    m->requests = golden_alloc(m->world, sizeof *m->requests);
    golden_expect_status(c, "lierne_sim_create", lierne_sim_create(&m->sim, m->world, NULL),
                         LIERNE_OK);
    for (int side = 0; side < 2; side++) {
        lierne_status status = lierne_layout_create(&m->layouts[side], &m->sides[side].spec);
        golden_expect_status(c, "lierne_layout_create", status, LIERNE_OK);
        m->buffers[side] = golden_alloc(m->world, sizeof *m->buffers[side]);
        for (int r = 0; r < m->world && !c->failed; r++) {
            m->buffers[side][r] =
                golden_alloc(rows_of(m, side, r) * m->width, sizeof *m->buffers[side][r]);
        }
    }
}

static void close_move(golden_case *c, move *m) {
    for (int r = 0; r < m->world; r++) {
        golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(m->plans[r]), LIERNE_OK);
        free(m->buffers[0][r]);
        free(m->buffers[1][r]);
    }
    for (int side = 0; side < 2; side++) {
        free(m->buffers[side]);
        lierne_layout_destroy(m->layouts[side]);
    }
    free(m->plans);
    free(m->requests);
    golden_expect_status(c, "lierne_sim_destroy", lierne_sim_destroy(m->sim), LIERNE_OK);
}

static void plan(golden_case *c, move *m) {
    lierne_redistribute_spec spec = {.size = sizeof spec,
                                     .src = m->layouts[0],
                                     .dst = m->layouts[1],
                                     .routing = test_routing()};
    for (int r = 0; r < m->world && !c->failed; r++) {
        lierne_context *context = lierne_sim_get_context(m->sim, r);
        golden_expect_status(c, "lierne_plan_create_redistribute",
                             lierne_plan_create_redistribute(&m->plans[r], context, &spec),
                             LIERNE_OK);
    }
    if (!c->failed) {
        golden_expect_status(c, "lierne_plan_check",
                             lierne_plan_check((const lierne_plan *const *)m->plans, m->world),
                             LIERNE_OK);
    }
}

void golden_packed_move(golden_case *c) {
    const cJSON *expect = golden_get(c->item, "expect"), *cu = golden_get(c->item, "cu_seqlens");
    move m = {.world = (int)golden_int(c->item, "world_size", 0),
              .width = golden_int(c->item, "width", 0)};
    static const char *const names[] = {"src", "dst"};
    for (int side = 0; side < 2; side++) {
        golden_packed_read(c, &m.sides[side], golden_get(c->item, names[side]), cu, m.width,
                           m.world);
    }
    if (!c->failed) {
        open_move(c, &m);
        plan(c, &m);
    }
    if (!c->failed) {
        expect_bytes(c, &m, golden_get(expect, "receive_rows"));
        if (test_routing() != LIERNE_ROUTING_BALANCED) {
            expect_moved(c, &m, golden_get(expect, "moved"));
        }
        execute(c, &m, LIERNE_DIRECTION_FORWARD, golden_get(expect, "forward"));
        execute(c, &m, LIERNE_DIRECTION_ADJOINT, golden_get(expect, "adjoint"));
    }
    if (m.sim) {
        close_move(c, &m);
    }
    golden_packed_free(&m.sides[0]);
    golden_packed_free(&m.sides[1]);
}
