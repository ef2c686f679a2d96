/* Tensor sets with boxes: random ones against a model, elements in no box and in two, and every
 * rejection. */
#include "layouts.h"
#include "seeds.h"
#include "unit/boxes_case.h"
#include "unit/expect.h"

#include "base/base.h"
#include "lierne/sim.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, SEEDS = 700, MOST_EQUAL = 33 };

typedef struct rank_state {
    boxes_spec spec;
    lierne_plan *plan;
    int64_t *in, *out, *expected;
} rank_state;

static int64_t *buffer_of(int64_t elements) {
    return malloc(((size_t)elements + 1) * sizeof(int64_t));
}

static void open_rank(rank_state *r, const boxes_case *c, lierne_direction d, int rank) {
    int from = d == LIERNE_DIRECTION_ADJOINT;
    int64_t in, out;
    assert_ok(lierne_plan_get_elements(&in, &out, r->plan, d));
    cr_assert_eq(in, r->spec.elements[from]);
    cr_assert_eq(out, r->spec.elements[!from]);
    r->in = buffer_of(in);
    r->out = buffer_of(out);
    r->expected = buffer_of(out);
    boxes_fill(r->in, &r->spec, c, from, rank);
    boxes_expect(r->expected, &r->spec, c, !from, rank);
}

/* Twice: the first call's output must not be what makes the second one right. */
static void run(const boxes_case *c, rank_state *ranks, lierne_direction d, uint64_t seed) {
    for (int r = 0; r < c->world; r++) {
        open_rank(&ranks[r], c, d, r);
    }
    for (int round = 0; round < 2; round++) {
        lierne_request *requests[MOST];
        for (int r = 0; r < c->world; r++) {
            memset(ranks[r].out, 0xa5, (size_t)ranks[r].spec.elements[!d] * sizeof(int64_t));
            assert_ok((d ? lierne_plan_adjoint_begin
                         : lierne_plan_forward_begin)(&requests[r], ranks[r].plan, ranks[r].out,
                                                      ranks[r].in, NULL));
        }
        for (int r = 0; r < c->world; r++) {
            assert_ok(lierne_request_end(requests[r]));
        }
        for (int r = 0; r < c->world; r++) {
            for (int64_t i = 0; i < ranks[r].spec.elements[!d]; i++) {
                cr_assert_eq(ranks[r].out[i], ranks[r].expected[i],
                             "seed %d, direction %d, rank %d, element %d: %lld, not %lld",
                             (int)seed, (int)d, r, (int)i, (long long)ranks[r].out[i],
                             (long long)ranks[r].expected[i]);
            }
        }
    }
    for (int r = 0; r < c->world; r++) {
        free(ranks[r].in);
        free(ranks[r].out);
        free(ranks[r].expected);
    }
}

static void expect_fewest_bytes(rank_state *ranks, int world, lierne_direction d, uint64_t seed) {
    for (int r = 0; r < world; r++) {
        lierne_report report = {.size = sizeof report};
        assert_ok(lierne_plan_get_report(&report, ranks[r].plan, d));
        cr_assert_eq(report.received_bytes, report.min_bytes, "seed %d, rank %d", (int)seed, r);
    }
}

/* Whether an element of a source is in two boxes. */
static bool repeats(const boxes_case *c) {
    for (int64_t i = 0; i < c->nboxes; i++) {
        for (int64_t j = 0; j < i; j++) {
            const lierne_set_box *p = &c->boxes[i], *q = &c->boxes[j];
            bool meet = p->src == q->src;
            for (int a = 0; meet && a < c->tensors[0][p->src].naxes; a++) {
                int64_t sizes[2] = {1, 1};
                for (int b = 0; b < LIERNE_MAX_AXES; b++) {
                    bool has = b < c->tensors[1][p->dst].naxes && c->axes[i][b] == a;
                    sizes[0] = has ? p->sizes[b] : sizes[0];
                    has = b < c->tensors[1][q->dst].naxes && c->axes[j][b] == a;
                    sizes[1] = has ? q->sizes[b] : sizes[1];
                }
                meet = p->src_start[a] < q->src_start[a] + sizes[1] &&
                       q->src_start[a] < p->src_start[a] + sizes[0];
            }
            if (meet) {
                return true;
            }
        }
    }
    return false;
}

static void run_seed(uint64_t seed) {
    static boxes_case c;
    static rank_state ranks[MOST];
    lierne_sim *sim;
    random_boxes(&c, seed, 1 + (int)(seed % MOST));
    assert_ok(lierne_sim_create(&sim, c.world, NULL));
    const lierne_plan *plans[MOST];
    for (int r = 0; r < c.world; r++) {
        boxes_open(&ranks[r].spec, &c, r);
        assert_ok(lierne_set_check(&ranks[r].spec.spec));
        cr_assert_eq(lierne_plan_create_set(&ranks[r].plan, lierne_sim_get_context(sim, r),
                                            &ranks[r].spec.spec),
                     LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
        plans[r] = ranks[r].plan;
    }
    bool adjoint = !repeats(&c);
    cr_assert(adjoint || c.kind == BOXES_ANY);
    assert_ok(lierne_plan_check(plans, c.world));
    run(&c, ranks, LIERNE_DIRECTION_FORWARD, seed);
    expect_fewest_bytes(ranks, c.world, LIERNE_DIRECTION_FORWARD, seed);
    if (adjoint) {
        run(&c, ranks, LIERNE_DIRECTION_ADJOINT, seed);
        expect_fewest_bytes(ranks, c.world, LIERNE_DIRECTION_ADJOINT, seed);
    } else {
        int64_t none[1] = {0};
        assert_error(lierne_plan_adjoint(ranks[0].plan, none, none, NULL), LIERNE_ERR_INVALID,
                     "no adjoint: an element of a source is in several boxes");
    }
    for (int r = 0; r < c.world; r++) {
        assert_ok(lierne_plan_destroy(ranks[r].plan));
        boxes_close(&ranks[r].spec, &c);
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(set_boxes, random_boxes_of_any_layouts) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* A box that is left out or given twice is found, whichever it is. */
Test(set_boxes, every_element_is_in_one_box) {
    static boxes_case c;
    boxes_spec s;
    for (uint64_t seed = 0; seed < 60; seed++) {
        random_boxes(&c, seed, 3);
        boxes_open(&s, &c, 0);
        lierne_set_box boxes[BOXES_MOST + 1];
        for (int64_t i = 0; i < c.nboxes; i++) {
            lierne_set_spec spec = s.spec;
            char words[64];
            memcpy(boxes, spec.boxes, (size_t)c.nboxes * sizeof *boxes);
            spec.boxes = boxes;
            boxes[c.nboxes] = boxes[i];
            spec.nboxes = c.nboxes + 1;
            snprintf(words, sizeof words, "is in boxes[%d] and boxes[%d]", (int)i, (int)c.nboxes);
            assert_error(lierne_set_check(&spec), LIERNE_ERR_INVALID, words);
            boxes[i] = boxes[c.nboxes - 1];
            spec.nboxes = c.nboxes - 1;
            snprintf(words, sizeof words, "dst[%d]: ", (int)boxes[c.nboxes].dst);
            assert_error(lierne_set_check(&spec), LIERNE_ERR_INVALID,
                         c.nboxes > 1 ? words : "nboxes is 0");
        }
        boxes_close(&s, &c);
    }
}

/* --- by hand -----------------------------------------------------------------------------------
 */

enum { WORLD = 3 };

/* A fused [6, 4] of two [4, 3], each transposed without its last row, which is in no box; and the
 * first of them again, as another destination. */
typedef struct by_hand {
    lierne_layout *own[3];
    const lierne_layout *src[2], *dst[2];
    lierne_set_box boxes[3];
    lierne_set_spec spec;
} by_hand;

static const int transposed[2] = {1, 0};

static lierne_layout *layout_of(int64_t rows, int64_t columns, lierne_placement p,
                                lierne_dtype dtype) {
    const mesh x = {.ndims = 1, .names = {"x"}, .sizes = {2}, .offset = 0};
    const int64_t shape[2] = {rows, columns};
    return layout_over(&x, WORLD, dtype, 2, shape, &p);
}

static void open_set(by_hand *h) {
    const lierne_placement rows = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0};
    memset(h, 0, sizeof *h);
    h->own[0] = layout_of(4, 3, rows, LIERNE_DTYPE_I64);
    h->own[1] = layout_of(6, 3, rows, LIERNE_DTYPE_I64);
    h->src[0] = h->src[1] = h->dst[1] = h->own[0];
    h->dst[0] = h->own[1];
    h->boxes[0] = (lierne_set_box){.sizes = {3, 3}, .axes = transposed};
    h->boxes[1] =
        (lierne_set_box){.src = 1, .dst_start = {3, 0}, .sizes = {3, 3}, .axes = transposed};
    h->boxes[2] = (lierne_set_box){.src = 1, .dst = 1, .sizes = {4, 3}};
    h->spec = (lierne_set_spec){.size = sizeof h->spec,
                                .ntensors = 2,
                                .src = h->src,
                                .dst = h->dst,
                                .boxes = h->boxes,
                                .nboxes = 3,
                                .ndst = 2};
}

static void close_set(by_hand *h) {
    for (int i = 0; i < 3; i++) {
        lierne_layout_destroy(h->own[i]);
    }
}

static void rejected(const by_hand *h, lierne_status status, const char *words) {
    assert_error(lierne_set_check(&h->spec), status, words);
    lierne_route *route;
    assert_error(lierne_route_create_set(&route, NULL, &h->spec, 0), status, words);
    cr_assert_null(route);
}

Test(set_boxes, bad_boxes_are_named) {
    by_hand h;
    open_set(&h);
    assert_ok(lierne_set_check(&h.spec));
#define BAD(change, words)                                                                         \
    do {                                                                                           \
        by_hand kept = h;                                                                          \
        change;                                                                                    \
        rejected(&h, LIERNE_ERR_INVALID, words);                                                   \
        h = kept;                                                                                  \
        h.spec.boxes = h.boxes, h.spec.src = h.src, h.spec.dst = h.dst;                            \
    } while (0)
    static const int other[2] = {2, 0}, twice[2] = {1, 1}, first[2] = {0, 0}, none[2] = {-1, 0},
                     low[2] = {-2, 0};
    BAD(h.spec.nboxes = 0, "nboxes is 0, must be in 1 to");
    BAD(h.spec.ndst = 0, "ndst is 0, must be in 1 to");
    BAD(h.boxes[1].src = 2, "boxes[1].src is 2, must be in 0 to 1");
    BAD(h.boxes[1].dst = -1, "boxes[1].dst is -1, must be in 0 to 1");
    BAD(h.boxes[0].sizes[1] = 0, "boxes[0].sizes[1] is 0, must be at least 1");
    BAD(h.boxes[1].dst_start[0] = 4,
        "boxes[1]: on axis 0 of dst[0] 3 indices from 4 on are not in 0 to 5");
    BAD(h.boxes[1].dst_start[1] = -1,
        "boxes[1]: on axis 1 of dst[0] 3 indices from -1 on are not in 0 to 2");
    BAD(h.boxes[1].src_start[0] = 2,
        "boxes[1]: on axis 0 of src[1] 3 indices from 2 on are not in 0 to 3");
    BAD(h.boxes[1].axes = other, "boxes[1]: axis 0 of dst[0] is axis 2 of src[1]; it must be -1");
    BAD(h.boxes[1].axes = low, "boxes[1]: axis 0 of dst[0] is axis -2 of src[1]; it must be -1");
    BAD(h.boxes[1].axes = twice, "boxes[1]: axis 1 of dst[0] is axis 1 of src[1]");
    BAD(h.boxes[1].axes = first, "boxes[1]: axis 1 of dst[0] is axis 0 of src[1]");
    BAD(h.boxes[1].axes = none, "boxes[1].sizes[0] is 3, must be 1");
    BAD((h.boxes[1].axes = none, h.boxes[1].sizes[0] = 1, h.boxes[1].src_start[1] = 3),
        "boxes[1]: on axis 1 of src[1] 1 indices from 3 on are not in 0 to 2");
    BAD(h.boxes[1].dst_start[0] = 2, "dst[0]: [2:3, 0:3] is in boxes[0] and boxes[1]");
    BAD((h.boxes[1].sizes[1] = 2), "dst[0]: [3:6, 2:3] is in no box");
    BAD(h.spec.nboxes = 2, "dst[1]: [0:4, 0:3] is in no box");
    BAD(h.src[1] = NULL, "src[1] is NULL");
    h.own[2] =
        layout_of(4, 3, (lierne_placement){.kind = LIERNE_PLACEMENT_PARTIAL}, LIERNE_DTYPE_I64);
    h.dst[1] = h.own[2];
    rejected(&h, LIERNE_ERR_UNSUPPORTED, "dim 0 of dst[1] is PARTIAL");
    lierne_layout_destroy(h.own[2]);
    h.own[2] =
        layout_of(4, 3, (lierne_placement){.kind = LIERNE_PLACEMENT_REPLICATE}, LIERNE_DTYPE_F32);
    h.dst[1] = h.own[2];
    rejected(&h, LIERNE_ERR_INVALID, "dst[1] has dtype f32, src[0] has i64");
    close_set(&h);
}

Test(set_boxes, too_many_axes_together) {
    const mesh x = {.ndims = 1, .names = {"x"}, .sizes = {2}, .offset = 0};
    const int64_t shape[3] = {1, 1, 1};
    const lierne_placement p = {.kind = LIERNE_PLACEMENT_REPLICATE};
    static const int axes[3] = {-1, -1, 0};
    lierne_layout *layout = layout_over(&x, WORLD, LIERNE_DTYPE_F32, 3, shape, &p);
    const lierne_layout *one[1] = {layout};
    const lierne_set_box box = {.sizes = {1, 1, 1}, .axes = axes};
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = 1,
                                  .src = one,
                                  .dst = one,
                                  .boxes = &box,
                                  .nboxes = 1,
                                  .ndst = 1};
    assert_error(lierne_set_check(&spec), LIERNE_ERR_UNSUPPORTED,
                 "boxes[0] has 5 axes of dst[0] and src[0] together, at most 4");
    lierne_layout_destroy(layout);
}

/* Rank 1 gives other boxes than rank 0. */
static void disagree(const by_hand *first, const by_hand *second, const char *words) {
    lierne_plan *plans[2];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    assert_ok(lierne_plan_create_set(&plans[0], lierne_sim_get_context(sim, 0), &first->spec));
    assert_error(lierne_plan_create_set(&plans[1], lierne_sim_get_context(sim, 1), &second->spec),
                 LIERNE_ERR_MISMATCH, words);
    lierne_plan_destroy(plans[0]);
    lierne_sim_destroy(sim);
}

Test(set_boxes, ranks_that_disagree) {
    by_hand h, other;
    open_set(&h);
    open_set(&other);
    other.boxes[0].src_start[0] = 1;
    disagree(&h, &other, "hash of boxes[0] differs");
    other.boxes[0] = h.boxes[0], other.boxes[1].src = 0;
    disagree(&h, &other, "hash of boxes[1] differs");
    other.boxes[1] = h.boxes[1], other.boxes[1].axes = NULL;
    disagree(&h, &other, "hash of boxes[1] differs");
    other.boxes[1] = h.boxes[0], other.boxes[0] = h.boxes[1];
    disagree(&h, &other, "hash of boxes[0] differs");
    other.spec.nboxes = 1, other.spec.ndst = 1, other.boxes[0] = h.boxes[2];
    other.boxes[0].dst = 0, other.dst[0] = other.dst[1];
    disagree(&h, &other, "nboxes differs between ranks: 3 on rank 0, 1");
    close_set(&h);
    close_set(&other);
}

/* Boxes that are the same in tensors of the same layouts are one class: their pieces share
 * messages, however many layers there are. */
Test(set_boxes, layers_share_messages) {
    enum { LAYERS = 20 };
    by_hand h;
    const lierne_layout *src[2 * LAYERS], *dst[LAYERS];
    lierne_set_box boxes[2 * LAYERS];
    open_set(&h);
    for (int i = 0; i < 2 * LAYERS; i++) {
        src[i] = h.own[0];
        dst[i / 2] = h.own[1];
        boxes[i] = h.boxes[i % 2];
        boxes[i].src = i;
        boxes[i].dst = i / 2;
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = 2 * LAYERS,
                                  .src = src,
                                  .dst = dst,
                                  .boxes = boxes,
                                  .nboxes = 2 * LAYERS,
                                  .ndst = LAYERS};
    for (int r = 0; r < 2; r++) {
        lierne_route *route;
        assert_ok(lierne_route_create_set(&route, NULL, &spec, r));
        cr_assert_eq(route->stages.at[0].sends.count, 1u);
        lierne_route_destroy(route);
    }
    close_set(&h);
}

/* What rank 0 sends to rank 1, of n tensors with so many elements. */
static size_t count_messages(int n, int64_t size) {
    const lierne_placement whole = {.kind = LIERNE_PLACEMENT_SHARD};
    lierne_layout *own[2];
    const lierne_layout *layouts[2][MOST_EQUAL];
    lierne_set_box boxes[MOST_EQUAL];
    lierne_route *route;
    for (int s = 0; s < 2; s++) {
        const mesh one = {.ndims = 1, .names = {"x"}, .sizes = {1}, .offset = s};
        own[s] = layout_over(&one, 2, LIERNE_DTYPE_I64, 1, &size, &whole);
    }
    for (int i = 0; i < n; i++) {
        layouts[0][i] = own[0];
        layouts[1][i] = own[1];
        boxes[i] = (lierne_set_box){.src = i, .dst = i, .sizes = {size}};
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = n,
                                  .src = layouts[0],
                                  .dst = layouts[1],
                                  .boxes = boxes,
                                  .nboxes = n,
                                  .ndst = n};
    assert_ok(lierne_route_create_set(&route, NULL, &spec, 0));
    size_t count = route->stages.at[0].sends.count;
    lierne_route_destroy(route);
    lierne_layout_destroy(own[0]);
    lierne_layout_destroy(own[1]);
    return count;
}

/* 32 pieces of 128 KiB fill a message; one of 256 KiB has its own. */
Test(set_boxes, full_messages_and_large_pieces) {
    cr_expect_eq(count_messages(32, 1 << 14), 1u);
    cr_expect_eq(count_messages(33, 1 << 14), 2u);
    cr_expect_eq(count_messages(3, (1 << 15) - 1), 1u);
    cr_expect_eq(count_messages(3, 1 << 15), 3u);
}

Test(set_boxes, running_out_of_memory_leaves_nothing) {
    static boxes_case c;
    boxes_spec s;
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    random_boxes(&c, 4, WORLD);
    boxes_open(&s, &c, 2);
    size_t k;
    for (k = 1; status != LIERNE_OK; k++) {
        lierne_sim *sim;
        lierne_plan *plan = NULL;
        size_t before = lierne_mem_live();
        cr_assert_lt(k, 10000);
        assert_ok(lierne_sim_create(&sim, WORLD, NULL));
        lierne_mem_fail_at(k);
        status = lierne_plan_create_set(&plan, lierne_sim_get_context(sim, 2), &s.spec);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !plan), "%s",
                  lierne_last_error());
        lierne_plan_destroy(plan);
        lierne_sim_destroy(sim);
        cr_assert_eq(lierne_mem_live(), before, "k = %zu: leaked", k);
    }
    cr_assert_gt(k, 10);
    boxes_close(&s, &c);
}
