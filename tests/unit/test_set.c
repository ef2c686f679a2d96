/* Tensor sets: random ones against a model, the balance of what holders send, messages that are
 * shared, and every rejection. */
#include "layouts.h"
#include "seeds.h"
#include "unit/expect.h"
#include "unit/set_case.h"

#include "base/base.h"
#include "layout/layout.h"
#include "lierne/sim.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, SEEDS = 150 };

/* Runs a direction twice; returns the dot product of its output. */
static int64_t run(const set_case *c, lierne_plan **plans, lierne_direction d, uint64_t seed) {
    set_buffers b[MOST];
    int64_t dots[2] = {0, 0};
    for (int r = 0; r < c->world; r++) {
        cr_assert(set_open(&b[r], c, plans[r], r, d), "seed %d: sizes of buffers", (int)seed);
    }
    for (int round = 0; round < 2; round++) {
        lierne_request *requests[MOST];
        for (int r = 0; r < c->world; r++) {
            set_poison(&b[r]);
            cr_assert_eq((d ? lierne_plan_adjoint_begin
                            : lierne_plan_forward_begin)(&requests[r], plans[r], b[r].out, b[r].in,
                                                         NULL),
                         LIERNE_OK, "%s", lierne_last_error());
        }
        for (int r = 0; r < c->world; r++) {
            assert_ok(lierne_request_end(requests[r]));
        }
        for (int r = 0; r < c->world; r++) {
            const char *wrong = set_check(&b[r], c, r, d, &dots[round]);
            cr_assert(!wrong, "seed %d, rank %d, direction %d: %s", (int)seed, r, (int)d, wrong);
        }
    }
    for (int r = 0; r < c->world; r++) {
        set_close(&b[r]);
    }
    cr_assert_eq(dots[0], dots[1], "seed %d: a repeat differs", (int)seed);
    return dots[0];
}

static void expect_fewest_bytes(const set_case *c, lierne_plan **plans, uint64_t seed) {
    for (int d = 0; d < 2; d++) {
        for (int r = 0; r < c->world; r++) {
            lierne_report report = {.size = sizeof report};
            assert_ok(lierne_plan_get_report(&report, plans[r], (lierne_direction)d));
            cr_assert_eq(report.received_bytes, report.min_bytes, "seed %d, rank %d", (int)seed, r);
        }
    }
}

static void run_seed(uint64_t seed) {
    set_case c;
    lierne_plan *plans[MOST];
    lierne_sim *sim;
    random_set(&c, seed, 1 + (int)(seed % MOST));
    assert_ok(lierne_sim_create(&sim, c.world, NULL));
    for (int r = 0; r < c.world; r++) {
        cr_assert_eq(set_plan(&plans[r], &c, lierne_sim_get_context(sim, r), r), LIERNE_OK,
                     "seed %d: %s", (int)seed, lierne_last_error());
    }
    cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, c.world), LIERNE_OK,
                 "seed %d: %s", (int)seed, lierne_last_error());
    expect_fewest_bytes(&c, plans, seed);
    int64_t forward = run(&c, plans, LIERNE_DIRECTION_FORWARD, seed);
    int64_t adjoint = run(&c, plans, LIERNE_DIRECTION_ADJOINT, seed);
    cr_assert_eq(forward, adjoint, "seed %d: <Fx, y> is %lld, <x, F*y> is %lld", (int)seed,
                 (long long)forward, (long long)adjoint);
    for (int r = 0; r < c.world; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
}

Test(set, random_tensors_of_any_layouts) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_seed(seed);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(set, blocking_equals_begin_and_end) {
    lierne_context *self;
    assert_ok(lierne_context_create_self(&self, NULL));
    for (uint64_t seed = 0; seed < 40; seed++) {
        set_case c;
        lierne_plan *plan;
        random_set(&c, seed, 1);
        cr_assert_eq(set_plan(&plan, &c, self, 0), LIERNE_OK, "%s", lierne_last_error());
        for (int d = 0; d < 2; d++) {
            set_buffers b;
            int64_t dot = 0;
            cr_assert(set_open(&b, &c, plan, 0, (lierne_direction)d));
            set_poison(&b);
            cr_assert_eq((d ? lierne_plan_adjoint : lierne_plan_forward)(plan, b.out, b.in, NULL),
                         LIERNE_OK);
            const char *wrong = set_check(&b, &c, 0, (lierne_direction)d, &dot);
            cr_assert(!wrong, "seed %d: %s", (int)seed, wrong);
            set_close(&b);
        }
        lierne_plan_destroy(plan);
    }
    lierne_context_destroy(self);
}

/* --- sets by hand ------------------------------------------------------------------------------
 */

enum { HOLDERS = 4, WORLD = 7, TENSORS = 602 };

/* [rows, 64] i64 on `ranks` ranks from rank `offset` on. */
static lierne_layout *layout_of(int64_t rows, int64_t ranks, int offset, lierne_placement p,
                                lierne_dtype dtype) {
    const mesh x = {.ndims = 1, .names = {"x"}, .sizes = {ranks}, .offset = offset};
    const int64_t shape[2] = {rows, 64};
    return layout_over(&x, WORLD, dtype, 2, shape, &p);
}

static const lierne_placement replicate = {.kind = LIERNE_PLACEMENT_REPLICATE};
static const lierne_placement shard = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 0};

/* Tensors of 2 sizes by turns, replicated on ranks 0 to 3, to ranks 4 to 6, where those of `rows`
 * rows are sharded and those of 2 rows replicated. */
typedef struct by_hand {
    lierne_layout *own[4];
    const lierne_layout *src[TENSORS];
    const lierne_layout *dst[TENSORS];
    lierne_set_spec spec;
} by_hand;

static void open_set(by_hand *h, int64_t n, int64_t rows) {
    h->own[0] = layout_of(rows, HOLDERS, 0, replicate, LIERNE_DTYPE_I64);
    h->own[1] = layout_of(rows, WORLD - HOLDERS, HOLDERS, shard, LIERNE_DTYPE_I64);
    h->own[2] = layout_of(2, HOLDERS, 0, replicate, LIERNE_DTYPE_I64);
    h->own[3] = layout_of(2, WORLD - HOLDERS, HOLDERS, replicate, LIERNE_DTYPE_I64);
    for (int i = 0; i < n; i++) {
        h->src[i] = h->own[i % 2 * 2];
        h->dst[i] = h->own[i % 2 * 2 + 1];
    }
    h->spec =
        (lierne_set_spec){.size = sizeof h->spec, .ntensors = n, .src = h->src, .dst = h->dst};
}

static void close_set(by_hand *h) {
    for (int i = 0; i < 4; i++) {
        lierne_layout_destroy(h->own[i]);
    }
}

/* What every rank sends, in elements, and with how many messages; their sum must fit together. */
static void count_routes(const lierne_set_spec *spec, int64_t *sent, int64_t *messages) {
    int64_t received = 0, least = 0, all = 0;
    for (int r = 0; r < WORLD; r++) {
        lierne_route *route;
        int64_t min;
        sent[r] = messages[r] = 0;
        assert_ok(lierne_route_create_set(&route, &min, spec, r));
        cr_assert_eq(route->stages.count, 1u);
        const lierne_stage *stage = &route->stages.at[0];
        for (size_t m = 0; m < stage->sends.count; m++) {
            sent[r] += stage->sends.at[m].elements;
        }
        messages[r] = (int64_t)stage->sends.count;
        for (size_t m = 0; m < stage->recvs.count; m++) {
            received += stage->recvs.at[m].elements;
        }
        all += sent[r];
        least += min;
        lierne_route_destroy(route);
    }
    cr_assert_eq(received, least);
    cr_assert_eq(all, least);
}

/* No holder sends more than 1.05 of what they send on average. */
static void expect_equal(const int64_t *sent) {
    int64_t sum = 0;
    for (int r = 0; r < HOLDERS; r++) {
        sum += sent[r];
    }
    for (int r = 0; r < HOLDERS; r++) {
        cr_assert_leq(sent[r] * HOLDERS * 100, sum * 105, "rank %d sends %lld of %lld", r,
                      (long long)sent[r], (long long)sum);
    }
}

/* unit: elements that are not divided. */
static void expect_balance(int64_t n, int64_t rows, int64_t most_messages, int64_t unit) {
    by_hand h;
    int64_t sent[WORLD], messages[WORLD];
    open_set(&h, n, rows);
    count_routes(&h.spec, sent, messages);
    expect_equal(sent);
    for (int r = 0; r < HOLDERS; r++) {
        cr_assert_eq(sent[r] % unit, 0, "rank %d sends %lld", r, (long long)sent[r]);
        cr_assert_leq(messages[r], most_messages, "rank %d sends %lld messages", r,
                      (long long)messages[r]);
    }
    close_set(&h);
}

Test(set, holders_send_equally_much) {
    expect_balance(TENSORS, 6, 4, 2 * 64); /* small tensors are whole, and share messages */
    expect_balance(1, 3000, 4, 64);        /* one large tensor is cut between rows */
    expect_balance(TENSORS, 1000, 1000, 64);
}

/* 40 tensors of as many sizes, each to 3 receivers: one of the 4 holders has nothing to send. */
Test(set, small_classes_take_turns) {
    enum { N = 40 };
    lierne_layout *src[N], *dst[N];
    int64_t sent[WORLD], messages[WORLD];
    for (int i = 0; i < N; i++) {
        src[i] = layout_of(60 + i, HOLDERS, 0, replicate, LIERNE_DTYPE_I64);
        dst[i] = layout_of(60 + i, WORLD - HOLDERS, HOLDERS, replicate, LIERNE_DTYPE_I64);
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = N,
                                  .src = (const lierne_layout *const *)src,
                                  .dst = (const lierne_layout *const *)dst};
    count_routes(&spec, sent, messages);
    expect_equal(sent);
    for (int i = 0; i < N; i++) {
        lierne_layout_destroy(src[i]);
        lierne_layout_destroy(dst[i]);
    }
}

/* A large tensor that 4 ranks hold comes in parts, each from another one, and in the right order.
 */
Test(set, large_tensors_are_divided) {
    enum { N = 3, ROWS = 2000 };
    by_hand h;
    lierne_sim *sim;
    lierne_plan *plans[WORLD];
    lierne_request *requests[WORLD];
    int64_t *in[WORLD], *out[WORLD], sizes[2];
    open_set(&h, N, ROWS);
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_plan_create_set(&plans[r], lierne_sim_get_context(sim, r), &h.spec));
        lierne_plan_get_elements(&sizes[0], &sizes[1], plans[r], LIERNE_DIRECTION_FORWARD);
        in[r] = malloc((size_t)sizes[0] * sizeof(int64_t) + 1);
        out[r] = malloc((size_t)sizes[1] * sizeof(int64_t) + 1);
        memset(out[r], 0xa5, (size_t)sizes[1] * sizeof(int64_t));
        for (int64_t k = 0; k < sizes[0]; k++) {
            in[r][k] = 7 * k + 1;
        }
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    for (int r = HOLDERS; r < WORLD; r++) {
        int64_t first = (r - HOLDERS) * 667, rows = r < WORLD - 1 ? 667 : 666, at = 0;
        for (int i = 0; i < N; i++) {
            int64_t begins = (i + 1) / 2 * ROWS * 64 + i / 2 * 2 * 64 + (i % 2 ? 0 : first * 64);
            for (int64_t k = 0; k < (i % 2 ? 2 : rows) * 64; k++, at++) {
                cr_assert_eq(out[r][at], 7 * (begins + k) + 1, "rank %d, tensor %d, element %d", r,
                             i, (int)k);
            }
        }
    }
    for (int r = 0; r < WORLD; r++) {
        free(in[r]);
        free(out[r]);
        lierne_plan_destroy(plans[r]);
    }
    lierne_sim_destroy(sim);
    close_set(&h);
}

/* --- rejections --------------------------------------------------------------------------------
 */

static void rejected(lierne_set_spec spec, lierne_status wanted, const char *words) {
    lierne_sim *sim;
    lierne_plan *plan = (lierne_plan *)&spec;
    lierne_route *route = (lierne_route *)&spec;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    cr_assert_eq(lierne_plan_create_set(&plan, lierne_sim_get_context(sim, 1), &spec), wanted, "%s",
                 words);
    cr_assert_null(plan);
    assert_says(words);
    assert_ok(lierne_sim_destroy(sim));
    if (!strstr(words, "max_inflight")) {
        cr_assert_eq(lierne_route_create_set(&route, NULL, &spec, 1), wanted, "%s", words);
        cr_assert_null(route);
        assert_says(words);
    }
}

Test(set, specs_that_are_rejected) {
    by_hand h;
    open_set(&h, 4, 6);
    lierne_layout *f32 = layout_of(2, HOLDERS, 0, replicate, LIERNE_DTYPE_F32);
    lierne_layout *partial =
        layout_of(2, HOLDERS, 0, (lierne_placement){.kind = LIERNE_PLACEMENT_PARTIAL},
                  LIERNE_DTYPE_I64);
    int64_t offsets[4] = {0, 1000, 383, 2000};
    const lierne_layout *dst0 = h.dst[0], *src3 = h.src[3], *dst3 = h.dst[3];
    lierne_set_spec s = h.spec;
    s.size = 1, rejected(s, LIERNE_ERR_INVALID, "spec->size");
    s = h.spec, s.ntensors = 0, rejected(s, LIERNE_ERR_INVALID, "ntensors is 0, must be in 1");
    s = h.spec, s.src = NULL, rejected(s, LIERNE_ERR_INVALID, "src is NULL");
    s = h.spec, s.dst = NULL, rejected(s, LIERNE_ERR_INVALID, "dst is NULL");
    s = h.spec, s.max_inflight = -1, rejected(s, LIERNE_ERR_INVALID, "max_inflight is -1");
    s = h.spec, s.src_offsets = offsets;
    rejected(s, LIERNE_ERR_INVALID,
             "tensor 0 ends at element 384 of src's buffer, tensor 2 begins at");
    offsets[2] = -5, rejected(s, LIERNE_ERR_INVALID, "src_offsets[2] is -5, must be at least 0");
    offsets[2] = (1LL << 57) - 383, rejected(s, LIERNE_ERR_OVERFLOW, "ends beyond 2^60 bytes");
    offsets[2] = INT64_MAX - 3, rejected(s, LIERNE_ERR_OVERFLOW, "tensor 2 of 384 elements");
    s = h.spec;
    h.src[3] = NULL, rejected(s, LIERNE_ERR_INVALID, "src[3] is NULL");
    h.src[3] = src3, h.dst[3] = NULL, rejected(s, LIERNE_ERR_INVALID, "dst[3] is NULL");
    h.dst[3] = dst0, rejected(s, LIERNE_ERR_INVALID, "axis 0 has size 2 in src[3] and 6 in dst[3]");
    h.src[3] = partial, h.dst[3] = dst3;
    rejected(s, LIERNE_ERR_UNSUPPORTED, "dim 0 of src[3] is PARTIAL");
    h.src[3] = f32, rejected(s, LIERNE_ERR_INVALID, "src[3] has dtype f32, src[0] has i64");
    h.src[3] = src3, h.dst[3] = f32;
    rejected(s, LIERNE_ERR_INVALID, "src[3] has dtype i64, dst[3] has f32");
    h.dst[3] = dst3;
    lierne_route *route;
    assert_error(lierne_route_create_set(&route, NULL, &h.spec, WORLD), LIERNE_ERR_INVALID,
                 "rank is 7, must be in 0 to 6");
    cr_assert_eq(lierne_route_create_set(NULL, NULL, &h.spec, 0), LIERNE_ERR_INVALID);
    lierne_layout_destroy(f32);
    lierne_layout_destroy(partial);
    close_set(&h);
}

/* Rank 1 gives another set than rank 0. */
static void disagree(const lierne_set_spec *first, const lierne_set_spec *second,
                     const char *words) {
    lierne_plan *plans[2];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    assert_ok(lierne_plan_create_set(&plans[0], lierne_sim_get_context(sim, 0), first));
    cr_assert_eq(lierne_plan_create_set(&plans[1], lierne_sim_get_context(sim, 1), second),
                 LIERNE_ERR_MISMATCH, "%s", words);
    assert_says(words);
    cr_assert_null(plans[1]);
    lierne_plan_destroy(plans[0]);
    lierne_sim_destroy(sim);
}

Test(set, ranks_that_disagree) {
    by_hand h, other;
    open_set(&h, 6, 6);
    open_set(&other, 6, 6);
    lierne_layout *changed = layout_of(2, WORLD - HOLDERS, HOLDERS, shard, LIERNE_DTYPE_I64);
    lierne_set_spec s = h.spec;
    s.ntensors = 5, disagree(&h.spec, &s, "ntensors differs between ranks: 6 on rank 0, 5");
    s = h.spec, s.max_inflight = 2, disagree(&h.spec, &s, "max_inflight differs");
    other.dst[3] = changed, disagree(&h.spec, &other.spec, "hash of dst[3] differs");
    other.dst[3] = h.dst[3], other.src[5] = other.dst[5];
    disagree(&h.spec, &other.spec, "hash of src[5] differs");
    lierne_layout_destroy(changed);
    close_set(&h);
    close_set(&other);
}

/* Layouts are told apart by their hashes: each of these differs from the others in one thing. */
Test(set, different_layouts_have_different_hashes) {
    enum { N = 14 };
    static const int64_t counts[2][3] = {{2, 1, 61}, {1, 2, 61}};
    int32_t owners[2][64] = {{0, 1, 1}, {1, 0, 1}};
    const lierne_placement zigzag = {.kind = LIERNE_PLACEMENT_SHARD_ZIGZAG};
    lierne_placement p[8] = {shard, shard, shard, shard, shard, shard, shard, shard};
    p[0].axis = 1;
    p[1].share = LIERNE_SHARE_RULE_CHUNK;
    p[2].counts = counts[0];
    p[3].counts = counts[1];
    p[4] = (lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = 1};
    p[5] = (lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = 2};
    p[6] = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = owners[0]};
    p[7] = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD_ROWS, .axis2 = -1, .rows = owners[1]};
    uint64_t hashes[2][N];
    for (int again = 0; again < 2; again++) {
        lierne_layout *l[N] = {layout_of(64, 3, 0, shard, LIERNE_DTYPE_I64),
                               layout_of(64, 3, 1, shard, LIERNE_DTYPE_I64),
                               layout_of(63, 3, 0, shard, LIERNE_DTYPE_I64),
                               layout_of(64, 3, 0, shard, LIERNE_DTYPE_F64),
                               layout_of(64, 2, 0, shard, LIERNE_DTYPE_I64),
                               layout_of(64, 2, 0, zigzag, LIERNE_DTYPE_I64)};
        for (int i = 6; i < N; i++) {
            l[i] = layout_of(64, 3, 0, p[i - 6], LIERNE_DTYPE_I64);
        }
        for (int i = 0; i < N; i++) {
            hashes[again][i] = lierne_layout_hash(l[i]);
            lierne_layout_destroy(l[i]);
        }
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            cr_assert_eq(hashes[0][i] == hashes[1][j], i == j, "layouts %d and %d", i, j);
        }
    }
}

Test(set, running_out_of_memory_leaves_nothing) {
    by_hand h;
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    int64_t offsets[6] = {0, 400, 600, 1000, 1200, 1600};
    open_set(&h, 6, 6);
    h.spec.src_offsets = offsets;
    size_t k;
    for (k = 1; status != LIERNE_OK; k++) {
        lierne_sim *sim;
        lierne_plan *plan = NULL;
        size_t before = lierne_mem_live();
        cr_assert_lt(k, 10000);
        assert_ok(lierne_sim_create(&sim, WORLD, NULL));
        lierne_mem_fail_at(k);
        status = lierne_plan_create_set(&plan, lierne_sim_get_context(sim, 2), &h.spec);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !plan), "%s",
                  lierne_last_error());
        lierne_plan_destroy(plan);
        lierne_sim_destroy(sim);
        cr_assert_eq(lierne_mem_live(), before, "k = %zu: leaked", k);
    }
    cr_assert_gt(k, 10);
    close_set(&h);
}

/* Pieces of 256 KiB and more have messages of their own: several with one peer, in two sets. */
enum { PIECE = 65536, LARGE = 3 };
static float large_value(int set, int i) {
    return (float)(1 + set * LARGE * PIECE + i);
}

static void run_coalesced(lierne_coalesced **both, float *from, float *to) {
    const size_t n = (size_t)LARGE * PIECE;
    for (int i = 0; i < 2 * LARGE * PIECE; i++) {
        from[i] = large_value(i / (LARGE * PIECE), i % (LARGE * PIECE));
        to[i] = -1;
    }
    for (int r = 0; r < WORLD; r++) {
        void *const out[2] = {r == 1 ? to : NULL, r == 1 ? to + n : NULL};
        const void *const in[2] = {r ? NULL : from, r ? NULL : from + n};
        assert_ok(lierne_coalesced_begin(both[r], LIERNE_DIRECTION_FORWARD, out, in, NULL));
    }
    for (int r = 0; r < WORLD; r++) {
        assert_ok(lierne_coalesced_end(both[r], LIERNE_DIRECTION_FORWARD));
    }
    cr_assert_eq(memcmp(from, to, 2 * n * sizeof *to), 0, "what arrived differs");
}

Test(set, several_messages_with_one_peer_are_coalesced) {
    const lierne_placement first = {.kind = LIERNE_PLACEMENT_AT},
                           second = {.kind = LIERNE_PLACEMENT_AT, .at = 1};
    lierne_layout *src = layout_of(PIECE / 64, 2, 0, first, LIERNE_DTYPE_F32);
    lierne_layout *dst = layout_of(PIECE / 64, 2, 0, second, LIERNE_DTYPE_F32);
    const lierne_layout *srcs[LARGE] = {src, src, src}, *dsts[LARGE] = {dst, dst, dst};
    const lierne_set_spec spec = {.size = sizeof spec, .ntensors = LARGE, .src = srcs, .dst = dsts};
    float *from = malloc(2 * LARGE * PIECE * sizeof *from),
          *to = malloc(2 * LARGE * PIECE * sizeof *to);
    lierne_plan *plans[WORLD][2];
    lierne_coalesced *both[WORLD];
    lierne_sim *sim;
    cr_assert(from && to);
    assert_ok(lierne_sim_create(&sim, WORLD, NULL));
    for (int r = 0; r < WORLD; r++) {
        for (int p = 0; p < 2; p++) {
            assert_ok(lierne_plan_create_set(&plans[r][p], lierne_sim_get_context(sim, r), &spec));
        }
        assert_ok(lierne_coalesced_create(&both[r], plans[r], 2));
    }
    lierne_report report = {.size = sizeof report};
    assert_ok(lierne_plan_get_report(&report, plans[0][0], LIERNE_DIRECTION_FORWARD));
    cr_assert_eq(report.sent_messages, LARGE);
    run_coalesced(both, from, to);
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    free(from);
    free(to);
}
