/* dense_halo.json, cases: a tensor moves into a layout with halos, or out of one, and gradients
 * back. Element g is g + 1, times k + 1 in contribution k; what an input holds elsewhere, and every
 * output before the call, is -9999. */
#include "dense_halo.h"
#include "routing.h"
#include "row_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = -9999, TIMES = 7 };

typedef struct move {
    golden_side sides[2];
    lierne_layout *layouts[2];
    const cJSON *ranks;
    golden_world *world;
    bool in_place;
    bool equal; /* both sides cut alike */
} move;

static int64_t elements_of(const move *m, int side, int rank) {
    int64_t n = 0;
    lierne_layout_get_elements(&n, NULL, m->layouts[side], rank);
    return n;
}

/* The number of an element of a box, counted row by row in it, and its place in the buffer. */
static int64_t locate(const move *m, const lierne_box *box, const int64_t *buffer, int64_t i,
                      int64_t *place) {
    const lierne_layout_spec *spec = &m->sides[0].spec;
    int64_t element = 0, stride = 1, step = 1;
    *place = 0;
    for (int a = spec->naxes - 1; a >= 0; a--) {
        int64_t k = i % box->size[a];
        element += (box->start[a] + k) * stride;
        *place += (box->local[a] + k) * step;
        stride *= spec->shape[a];
        step *= buffer[a];
        i /= box->size[a];
    }
    return element;
}

static int64_t *create_source(golden_case *c, const move *m, int rank) {
    int64_t n = elements_of(m, 0, rank), shape[LIERNE_MAX_AXES], contributions, place;
    int64_t *buffer = golden_alloc(n, sizeof *buffer);
    int64_t k = golden_side_partial(&m->sides[0], rank, &contributions);
    size_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = BEFORE;
    }
    lierne_layout_get_shape(shape, m->layouts[0], rank);
    lierne_layout_get_boxes(NULL, 0, &count, m->layouts[0], rank);
    lierne_box *boxes = golden_alloc((int64_t)count, sizeof *boxes);
    golden_expect_status(c, "lierne_layout_get_boxes",
                         lierne_layout_get_boxes(boxes, count, &count, m->layouts[0], rank),
                         LIERNE_OK);
    for (size_t b = 0; b < count; b++) {
        int64_t size = 1;
        for (int a = 0; a < m->sides[0].spec.naxes; a++) {
            size *= boxes[b].size[a];
        }
        for (int64_t i = 0; i < size; i++) {
            int64_t element = locate(m, &boxes[b], shape, i, &place);
            buffer[place] = (element + 1) * (k + 1);
        }
    }
    free(boxes);
    return buffer;
}

static int64_t *create_gradient(const move *m, int rank) {
    int64_t n = elements_of(m, 1, rank), first = golden_side_first(&m->sides[1], rank);
    int64_t *buffer = golden_alloc(n, sizeof *buffer);
    for (int64_t p = 0; p < n; p++) {
        buffer[p] = (53 * first + 29 * p + 13) % 127 - 63;
    }
    return buffer;
}

static void expect_output(golden_case *c, const char *what, const cJSON *wanted,
                          const int64_t *values, int64_t n) {
    if (!cJSON_IsObject(wanted)) {
        golden_expect_ints(c, what, wanted, values, n);
        return;
    }
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a over little-endian int64 */
    char text[20];
    for (int64_t i = 0; i < n; i++) {
        for (int byte = 0; byte < 8; byte++) {
            hash = (hash ^ ((uint64_t)values[i] >> (8 * byte) & 0xff)) * 0x100000001b3u;
        }
    }
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    golden_expect(c,
                  golden_int(wanted, "count", -1) == n &&
                      strcmp(text, golden_string(wanted, "fnv1a64")) == 0,
                  "%s: %lld elements with hash %s", what, (long long)n, text);
}

static void execute(golden_case *c, const move *m, lierne_plan *plan, int rank, bool adjoint,
                    bool in_place) {
    const cJSON *expect = cJSON_GetArrayItem(m->ranks, rank);
    const char *what = adjoint ? "adjoint" : "forward";
    int64_t n = elements_of(m, !adjoint, rank);
    int64_t *in = adjoint ? create_gradient(m, rank) : create_source(c, m, rank);
    int64_t *out = in_place ? in : golden_alloc(n, sizeof *out);
    for (int64_t i = 0; i < n && !in_place; i++) {
        out[i] = BEFORE;
    }
    golden_expect_status(c, what,
                         (adjoint ? lierne_plan_adjoint : lierne_plan_forward)(plan, out, in, NULL),
                         LIERNE_OK);
    if (golden_side_holds(&m->sides[!adjoint], rank)) {
        expect_output(c, in_place ? "in place" : what, golden_get(expect, what), out, n);
    }
    free(in_place ? NULL : out);
    free(in);
}

/* Ranks from which a route receives; they ascend. */
static void expect_senders(golden_case *c, const lierne_plan *plan, const cJSON *wanted) {
    const lierne_route *route;
    int64_t senders[64], n = 0;
    golden_expect_status(c, "lierne_plan_get_route",
                         lierne_plan_get_route(&route, plan, LIERNE_DIRECTION_FORWARD), LIERNE_OK);
    for (int peer = 0; peer < 64 && !c->failed; peer++) {
        for (size_t i = 0; i < route->stages.count * (route->stages.count > 0); i++) {
            const lierne_messages *recvs = &route->stages.at[i].recvs;
            int64_t messages = 0;
            for (size_t k = 0; k < recvs->count; k++) {
                messages += recvs->at[k].peer == peer;
            }
            golden_expect(c, messages <= 1, "%lld messages from %d", (long long)messages, peer);
            senders[n] = peer;
            n += messages > 0;
        }
    }
    golden_expect(c, golden_same_ints(wanted, senders, n), "it receives from %lld ranks",
                  (long long)n);
}

/* A rank that has the core of an element and images of it sends both, because their places in the
 * order of sums differ; the file counts one element. Where the sides differ, that may happen. */
static void expect_bytes(golden_case *c, const lierne_plan *plan, lierne_direction direction,
                         const cJSON *wanted, bool exact) {
    lierne_report report = {.size = sizeof report};
    int64_t elements = golden_to_int(wanted, 0);
    golden_expect_status(c, "lierne_plan_get_report",
                         lierne_plan_get_report(&report, plan, direction), LIERNE_OK);
    golden_expect(c,
                  report.min_bytes == report.received_bytes &&
                      (exact ? report.received_bytes == elements * 8
                             : report.received_bytes >= elements * 8),
                  "direction %d: it receives %lld bytes, at least %lld, expected %lld",
                  (int)direction, (long long)report.received_bytes, (long long)report.min_bytes,
                  (long long)elements * 8);
}

static void expect_windows(golden_case *c, const lierne_layout *layout, int rank,
                           const cJSON *windows) {
    const cJSON *axis, *one;
    cJSON_ArrayForEach(axis, windows) {
        lierne_halo_window list[16];
        size_t count = 0, i = 0;
        golden_expect_status(c, "lierne_layout_get_windows",
                             lierne_layout_get_windows(list, 16, &count, layout, rank,
                                                       atoi(axis->string)),
                             LIERNE_OK);
        golden_expect(c, count == (size_t)cJSON_GetArraySize(axis), "%zu windows", count);
        cJSON_ArrayForEach(one, axis) {
            const int64_t own[3] = {list[i].start, list[i].size, list[i].local};
            golden_expect(c, golden_same_ints(one, own, 3), "window %zu is [%lld, +%lld) at %lld",
                          i, (long long)own[0], (long long)own[1], (long long)own[2]);
            i++;
        }
    }
}

/* Boxes as [first output, size] of each axis. */
static void expect_boxes(golden_case *c, const cJSON *wanted, const lierne_split_box *boxes,
                         size_t n, bool interior, int naxes) {
    int i = 0;
    for (size_t b = 0; b < n; b++) {
        const cJSON *box = boxes[b].interior == interior ? cJSON_GetArrayItem(wanted, i++) : NULL;
        for (int a = 0; boxes[b].interior == interior && a < naxes; a++) {
            const int64_t own[2] = {boxes[b].start[a], boxes[b].size[a]};
            golden_expect(c, golden_same_ints(cJSON_GetArrayItem(box, a), own, 2),
                          "%s box %d has [%lld, +%lld) of axis %d",
                          interior ? "interior" : "border", i - 1, (long long)own[0],
                          (long long)own[1], a);
        }
    }
    golden_expect(c, i == cJSON_GetArraySize(wanted), "%d %s boxes", i,
                  interior ? "interior" : "border");
}

/* The file counts what a rank has of a sum as held, although it is no element before the others'
 * contributions have come: there nothing is interior. */
static void expect_split(golden_case *c, const move *m, int rank, const cJSON *split) {
    lierne_split_box boxes[64];
    size_t count = 0;
    int64_t contributions;
    int naxes = m->sides[1].spec.naxes;
    golden_expect_status(c, "lierne_halo_get_split",
                         lierne_halo_get_split(boxes, sizeof boxes / sizeof *boxes, &count,
                                               m->layouts[0], m->layouts[1], rank),
                         LIERNE_OK);
    golden_expect(c, count <= sizeof boxes / sizeof *boxes, "%zu boxes", count);
    (void)golden_side_partial(&m->sides[0], rank, &contributions);
    if (contributions > 1) {
        expect_boxes(c, NULL, boxes, count, true, naxes);
        return;
    }
    expect_boxes(c, golden_get(split, "interior"), boxes, count, true, naxes);
    expect_boxes(c, golden_get(split, "border"), boxes, count, false, naxes);
}

static void expect_layout(golden_case *c, const move *m, int rank) {
    const cJSON *expect = cJSON_GetArrayItem(m->ranks, rank);
    int64_t shape[LIERNE_MAX_AXES];
    if (!golden_side_holds(&m->sides[1], rank)) {
        return;
    }
    golden_expect_status(c, "lierne_layout_get_shape",
                         lierne_layout_get_shape(shape, m->layouts[1], rank), LIERNE_OK);
    golden_expect(c, golden_same_ints(golden_get(expect, "shape"), shape, m->sides[1].spec.naxes),
                  "rank %d: shape %lld ...", rank, (long long)shape[0]);
    if (m->sides[1].spec.nhalos > 0) {
        expect_windows(c, m->layouts[1], rank, golden_get(expect, "windows"));
    }
    if (golden_get(expect, "split")) {
        expect_split(c, m, rank, golden_get(expect, "split"));
    }
}

static void expect_moved(golden_case *c, const move *m, const lierne_plan *plan,
                         const cJSON *expect) {
    if (golden_get(expect, "received")) {
        expect_bytes(c, plan, LIERNE_DIRECTION_FORWARD, golden_get(expect, "received"), true);
    }
    if (golden_get(expect, "received_adjoint")) {
        expect_bytes(c, plan, LIERNE_DIRECTION_ADJOINT, golden_get(expect, "received_adjoint"),
                     m->equal);
    }
    if (golden_get(expect, "senders")) {
        expect_senders(c, plan, golden_get(expect, "senders"));
    }
}

/* A buffer of two tensors, of which the second has TIMES the elements of the first. */
static int64_t *twice(int64_t *once, int64_t n) {
    int64_t *both = golden_alloc(2 * n, sizeof *both);
    for (int64_t i = 0; i < n; i++) {
        both[i] = once[i];
        both[n + i] = TIMES * once[i];
    }
    free(once);
    return both;
}

static void divide(int64_t *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        values[i] /= values[i] == BEFORE ? 1 : TIMES;
    }
}

static void execute_set(golden_case *c, const move *m, lierne_plan *plan, int rank, bool adjoint) {
    const char *what = adjoint ? "adjoint" : "forward";
    const cJSON *expect = golden_get(cJSON_GetArrayItem(m->ranks, rank), what);
    int64_t n = elements_of(m, !adjoint, rank), read = elements_of(m, adjoint, rank);
    int64_t *in = twice(adjoint ? create_gradient(m, rank) : create_source(c, m, rank), read);
    int64_t *out = golden_alloc(2 * n, sizeof *out);
    for (int64_t i = 0; i < 2 * n; i++) {
        out[i] = BEFORE;
    }
    golden_expect_status(c, what,
                         (adjoint ? lierne_plan_adjoint : lierne_plan_forward)(plan, out, in, NULL),
                         LIERNE_OK);
    if (golden_side_holds(&m->sides[!adjoint], rank)) {
        expect_output(c, "the first of a set", expect, out, n);
        divide(out + n, n);
        expect_output(c, "the second of a set", expect, out + n, n);
    }
    free(out);
    free(in);
}

/* The same tensor twice, as a set; sets do not sum contributions. */
static void move_set(golden_case *c, const move *m, lierne_context *context, int rank) {
    const lierne_layout *src[2] = {m->layouts[0], m->layouts[0]},
                        *dst[2] = {m->layouts[1], m->layouts[1]};
    const lierne_set_spec spec = {.size = sizeof spec, .ntensors = 2, .src = src, .dst = dst};
    lierne_plan *plan = NULL;
    int64_t contributions;
    (void)golden_side_partial(&m->sides[0], rank, &contributions);
    if (contributions > 1 ||
        !golden_expect_status(c, "lierne_plan_create_set",
                              lierne_plan_create_set(&plan, context, &spec), LIERNE_OK)) {
        return;
    }
    execute_set(c, m, plan, rank, false);
    execute_set(c, m, plan, rank, true);
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(plan), LIERNE_OK);
}

static void work(lierne_context *context, void *shared) {
    const move *m = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &m->world->cases[rank];
    const cJSON *expect = cJSON_GetArrayItem(m->ranks, rank);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = m->layouts[0],
                                           .dst = m->layouts[1],
                                           .max_peers = test_max_peers(m->world->n)};
    lierne_plan **plan = &m->world->plans[rank];
    expect_layout(c, m, rank);
    if (!golden_expect_status(c, "lierne_plan_create_redistribute",
                              lierne_plan_create_redistribute(plan, context, &spec), LIERNE_OK)) {
        return;
    }
    if (spec.max_peers == 0) {
        expect_moved(c, m, *plan, expect);
    }
    for (int i = 0; i < 2 + 2 * m->in_place; i++) {
        execute(c, m, *plan, rank, i % 2, i >= 2);
    }
    move_set(c, m, context, rank);
}

static void run(golden_case *c, move *m, int n) {
    golden_world world = golden_world_new(c, n);
    m->world = &world;
    if (!c->failed && golden_world_run(&world, work, m)) {
        golden_world_check(c, &world);
    }
    golden_world_end(c, &world, "dense halo");
}

void golden_dense_halo(golden_case *c) {
    static const char *const names[] = {"src", "dst"};
    move m = {.ranks = golden_get(golden_get(c->item, "expect"), "ranks"),
              .in_place = strcmp(golden_string(c->item, "category"), "in_place") == 0};
    m.equal = cJSON_Compare(golden_get(golden_get(c->item, "src"), "placements"),
                            golden_get(golden_get(c->item, "dst"), "placements"), 1) &&
              cJSON_Compare(golden_get(golden_get(c->item, "src"), "grid"),
                            golden_get(golden_get(c->item, "dst"), "grid"), 1);
    for (int s = 0; s < 2; s++) {
        if (golden_side_read(c, &m.sides[s], names[s], LIERNE_DTYPE_I64)) {
            golden_expect_status(c, "lierne_layout_create",
                                 lierne_layout_create(&m.layouts[s], &m.sides[s].spec), LIERNE_OK);
        }
    }
    if (!c->failed) {
        run(c, &m, (int)golden_int(c->item, "world", 0));
    }
    for (int s = 0; s < 2; s++) {
        lierne_layout_destroy(m.layouts[s]);
        golden_side_free(&m.sides[s]);
    }
}
