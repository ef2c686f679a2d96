/* packed.json, redistribute: packed rows move from one layout to another, and their gradients back.
 * Token t has 100 (t + 1) + column, its gradient 7 (t + 1) + 1000 column + 3. Padding of an input
 * is another number, which must not be read; an output is -(1000 (rank + 1) + 10 row + column)
 * before a call. */
#include "packed.h"
#include "routing.h"
#include "row_case.h"

#include <stdlib.h>
#include <string.h>

enum { GARBAGE = 999999, MOST_SEGMENTS = 64, MOST_ROWS = 512 };

typedef struct move {
    golden_packed sides[2];
    lierne_layout *layouts[2];
    int64_t width;
    const cJSON *expect;
    golden_world *world;
    bool changes; /* its segments may be updated */
    lierne_segments segments;
} move;

static int64_t rows_of(const move *m, int side, int rank) {
    int64_t shape[2] = {0};
    lierne_layout_get_shape(shape, m->layouts[side], rank);
    return shape[0];
}

/* What a direction reads on a rank. */
static int64_t *create_input(golden_case *c, const move *m, int side, int rank) {
    int64_t n = rows_of(m, side, rank) * m->width;
    int64_t *buffer = golden_alloc(n, sizeof *buffer);
    size_t count = 0;
    lierne_layout_get_boxes(NULL, 0, &count, m->layouts[side], rank);
    lierne_box *boxes = golden_alloc((int64_t)count, sizeof *boxes);
    golden_expect_status(c, "lierne_layout_get_boxes",
                         lierne_layout_get_boxes(boxes, count, &count, m->layouts[side], rank),
                         LIERNE_OK);
    for (int64_t i = 0; i < n; i++) {
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
    return buffer;
}

static int64_t *create_output(const move *m, int side, int rank) {
    int64_t n = rows_of(m, side, rank) * m->width;
    int64_t *buffer = golden_alloc(n, sizeof *buffer);
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = -(1000 * (rank + 1) + 10 * (i / m->width) + i % m->width);
    }
    return buffer;
}

static void execute(golden_case *c, const move *m, lierne_plan *plan, int rank,
                    lierne_direction direction) {
    int in = direction == LIERNE_DIRECTION_ADJOINT;
    const char *what = in ? "adjoint" : "forward";
    int64_t *x = create_input(c, m, in, rank), *y = create_output(m, !in, rank);
    golden_expect_status(c, what,
                         (in ? lierne_plan_adjoint : lierne_plan_forward)(plan, y, x, NULL),
                         LIERNE_OK);
    golden_expect_ints(c, what, cJSON_GetArrayItem(golden_get(m->expect, what), rank), y,
                       rows_of(m, !in, rank) * m->width);
    free(x);
    free(y);
}

/* The rank receives what it needs and does not hold. */
static void expect_bytes(golden_case *c, const move *m, const lierne_plan *plan, int rank) {
    lierne_report report = {.size = sizeof report};
    const cJSON *rows = cJSON_GetArrayItem(golden_get(m->expect, "receive_rows"), rank);
    int64_t wanted = golden_to_int(rows, -1) * m->width * 8;
    lierne_status status = lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD);
    golden_expect_status(c, "lierne_plan_get_report", status, LIERNE_OK);
    golden_expect(c,
                  report.received_bytes - report.forwarded_bytes == wanted &&
                      report.min_bytes == wanted,
                  "it receives %lld bytes, of which %lld for others, at least %lld, expected %lld",
                  (long long)report.received_bytes, (long long)report.forwarded_bytes,
                  (long long)report.min_bytes, (long long)wanted);
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
static void expect_moved(golden_case *c, const move *m, const lierne_plan *plan, int rank) {
    const lierne_route *route;
    const cJSON *one;
    golden_expect_status(c, "lierne_plan_get_route",
                         lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD), LIERNE_OK);
    cJSON_ArrayForEach(one, golden_get(m->expect, "moved")) {
        int from = (int)golden_to_int(cJSON_GetArrayItem(one, 0), -1);
        int to = (int)golden_to_int(cJSON_GetArrayItem(one, 1), -1);
        int64_t rows = golden_to_int(cJSON_GetArrayItem(one, 2), -1);
        golden_expect(c,
                      to != rank || from == rank || received_from(route, from) == rows * m->width,
                      "it receives %lld elements from %d", (long long)received_from(route, from),
                      from);
    }
}

static void run_plan(golden_case *c, const move *m, lierne_plan *plan, int rank) {
    expect_bytes(c, m, plan, rank);
    if (test_routing() != LIERNE_ROUTING_BALANCED && test_max_peers(m->world->n) == 0) {
        expect_moved(c, m, plan, rank);
    }
    execute(c, m, plan, rank, LIERNE_DIRECTION_FORWARD);
    execute(c, m, plan, rank, LIERNE_DIRECTION_ADJOINT);
}

static void update(golden_case *c, const move *m, lierne_plan *plan, bool tokens) {
    const int64_t no_cu[1] = {0};
    const lierne_segments none = {.size = sizeof none, .cu_seqlens = no_cu};
    lierne_segments_update u = {.size = sizeof u, .segments = tokens ? &m->segments : &none};
    lierne_packing packings[2] = {m->sides[0].packing, m->sides[1].packing};
    for (int side = 0; side < 2; side++) {
        packings[side].cu_seqlens_padded = tokens ? packings[side].cu_seqlens_padded : NULL;
        packings[side].lead = tokens ? packings[side].lead : NULL;
        packings[side].order = tokens ? packings[side].order : NULL;
    }
    u.src = m->sides[0].has_packing ? &packings[0] : NULL;
    u.dst = m->sides[1].has_packing ? &packings[1] : NULL;
    golden_expect_status(c, "lierne_plan_update_segments", lierne_plan_update_segments(plan, &u),
                         LIERNE_OK);
}

/* Cases of one family have one plan: it begins without tokens, and loses them in between. */
static void run_updates(golden_case *c, const move *m, lierne_plan *plan, int rank) {
    for (int i = 0; i < 2; i++) {
        update(c, m, plan, false);
        update(c, m, plan, true);
        golden_expect_status(c, "lierne_plan_check",
                             lierne_plan_check((const lierne_plan *const *)&plan, 1), LIERNE_OK);
        run_plan(c, m, plan, rank);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
}

static void work(lierne_context *context, void *shared) {
    const move *m = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &m->world->cases[rank];
    lierne_redistribute_spec spec = {.size = sizeof spec,
                                     .src = m->layouts[0],
                                     .dst = m->layouts[1],
                                     .routing = test_routing(),
                                     .max_peers = test_max_peers(m->world->n)};
    lierne_plan **plan = &m->world->plans[rank], *changing;
    if (!golden_expect_status(c, "lierne_plan_create_redistribute",
                              lierne_plan_create_redistribute(plan, context, &spec), LIERNE_OK)) {
        return;
    }
    run_plan(c, m, *plan, rank);
    if (!m->changes) {
        return;
    }
    spec.max_segments = MOST_SEGMENTS;
    spec.max_rows = MOST_ROWS;
    if (golden_expect_status(c, "lierne_plan_create_redistribute",
                             lierne_plan_create_redistribute(&changing, context, &spec),
                             LIERNE_OK)) {
        run_updates(c, m, changing, rank);
    }
}

static void run(golden_case *c, move *m, int n) {
    golden_world world = golden_world_new(c, n);
    m->world = &world;
    if (!c->failed && golden_world_run(&world, work, m)) {
        golden_world_check(c, &world);
    }
    golden_world_end(c, &world, "packed");
}

void golden_packed_move(golden_case *c) {
    static const char *const names[] = {"src", "dst"};
    int n = (int)golden_int(c->item, "world_size", 0);
    move m = {.width = golden_int(c->item, "width", 0), .expect = golden_get(c->item, "expect")};
    for (int side = 0; side < 2; side++) {
        if (golden_packed_read(c, &m.sides[side], golden_get(c->item, names[side]),
                               golden_get(c->item, "cu_seqlens"), m.width, n)) {
            golden_expect_status(c, "lierne_layout_create",
                                 lierne_layout_create(&m.layouts[side], &m.sides[side].spec),
                                 LIERNE_OK);
        }
    }
    m.changes = (m.sides[0].has_packing || m.sides[1].has_packing) &&
                test_routing() != LIERNE_ROUTING_BALANCED;
    m.segments = m.sides[0].segments;
    if (!c->failed) {
        run(c, &m, n);
    }
    for (int side = 0; side < 2; side++) {
        lierne_layout_destroy(m.layouts[side]);
        golden_packed_free(&m.sides[side]);
    }
}
