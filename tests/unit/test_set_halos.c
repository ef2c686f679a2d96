/* Tensor sets with dense halos: random ones, bit for bit against the redistribution of each tensor
 * alone, which test_dense_halo.c holds against an oracle; how many messages they share; in place;
 * what is rejected. */
#include "unit/dense_halo_case.h"
#include "unit/expect.h"

#include "base/base.h"
#include "lierne/sim.h"
#include "seeds.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 300, TENSORS = 5, GAP = 3, BEFORE = 0x5a, UNREAD = 1 << 20 };

typedef struct set_world {
    uint64_t seed;
    int world, n;
    lierne_dtype dtype;
    size_t size;
    bool equal;     /* both layouts of each tensor are the same */
    bool scattered; /* tensors lie in descending order with gaps between them */
    bool margins;   /* of a destination */
    halo_case c[TENSORS];
    lierne_layout *layouts[2][TENSORS];
    halo_buffer b[2][TENSORS][HALO_WORLD];
    int64_t offsets[2][HALO_WORLD][TENSORS];
    int64_t elements[2][HALO_WORLD];
} set_world;

static bool sums(const halo_case *c) {
    for (int d = 0; d < c->sides[0].ndims; d++) {
        if (c->sides[0].placements[d].kind == LIERNE_PLACEMENT_PARTIAL) {
            return true;
        }
    }
    return false;
}

static void draw_tensor(set_world *w, int i, uint64_t *next) {
    do {
        halo_random(&w->c[i], (*next)++);
    } while ((i > 0 && w->c[i].world != w->world) || sums(&w->c[i]) ||
             (w->equal && !w->c[i].equal));
    w->world = w->c[i].world;
    w->dtype = i ? w->dtype : w->c[i].dtype;
    w->c[i].dtype = w->dtype;
}

/* Tensor 0 again at the end, so that a class has two. */
static void draw_set(set_world *w, uint64_t seed) {
    uint64_t next = seed * 1000;
    *w = (set_world){.seed = seed,
                     .n = 2 + (int)(seed % (TENSORS - 1)),
                     .equal = seed % 4 == 0,
                     .scattered = seed / 4 % 2};
    for (int i = 0; i + 1 < w->n; i++) {
        draw_tensor(w, i, &next);
    }
    next = seed * 1000;
    draw_tensor(w, w->n - 1, &next);
    while (w->c[w->n - 1].world != w->world) {
        draw_tensor(w, w->n - 1, &next);
    }
    w->size = lierne_dtype_size(w->dtype);
}

/* Offsets of a tensor of which the rank holds nothing are not read. */
static void place_tensors(set_world *w, int side, int rank) {
    int64_t end = 0;
    for (int k = 0; k < w->n; k++) {
        int i = w->scattered ? w->n - 1 - k : k;
        int64_t n = w->b[side][i][rank].n;
        w->offsets[side][rank][i] = n ? end + (w->scattered ? GAP + rank : 0) : UNREAD << side;
        end = n ? w->offsets[side][rank][i] + n : end;
    }
    w->elements[side][rank] = end;
}

static void open_set(set_world *w) {
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < w->n; i++) {
            assert_ok(halo_layout(&w->layouts[side][i], &w->c[i], side));
            for (int r = 0; r < w->world; r++) {
                halo_fill(&w->b[side][i][r], &w->c[i], side, r);
            }
        }
        for (int r = 0; r < w->world; r++) {
            place_tensors(w, side, r);
        }
    }
    for (int i = 0; i < w->n; i++) {
        w->margins = w->margins || w->c[i].sides[1].nhalos > 0;
    }
}

static void close_set(set_world *w) {
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < w->n; i++) {
            lierne_layout_destroy(w->layouts[side][i]);
            for (int r = 0; r < w->world; r++) {
                halo_free(&w->b[side][i][r]);
            }
        }
    }
}

static lierne_set_spec spec_of(const set_world *w, int rank) {
    return (lierne_set_spec){.size = sizeof(lierne_set_spec),
                             .ntensors = w->n,
                             .src = (const lierne_layout *const *)w->layouts[0],
                             .dst = (const lierne_layout *const *)w->layouts[1],
                             .src_offsets = w->scattered ? w->offsets[0][rank] : NULL,
                             .dst_offsets = w->scattered ? w->offsets[1][rank] : NULL};
}

/* Values of any size, whose sums depend on their order. */
static void put(const set_world *w, char *buffer, int64_t i, uint64_t key) {
    uint64_t x = mix(key);
    if (w->dtype >= LIERNE_DTYPE_F64 && w->dtype <= LIERNE_DTYPE_F16) {
        number_put(w->dtype, buffer, i, (double)(x >> 40) * (x & 1 ? 1e-4 : x & 2 ? -1e-6 : 1e-5));
    } else {
        memcpy(buffer + (size_t)i * w->size, &x, w->size);
    }
}

/* What a rank reads: replicas hold the same. */
static void fill_input(const set_world *w, char *in, int rank, bool adjoint) {
    for (int i = 0; i < w->n; i++) {
        const halo_buffer *b = &w->b[adjoint][i][rank];
        for (int64_t k = 0; k < b->n; k++) {
            int64_t at = adjoint ? b->first * 4096 + k : b->at[k];
            put(w, in, w->offsets[adjoint][rank][i] + k,
                (uint64_t)(at + 8) * TENSORS + (uint64_t)i);
        }
    }
}

static char *buffer_of(const set_world *w, int side, int rank) {
    size_t bytes = (size_t)w->elements[side][rank] * w->size;
    char *buffer = malloc(bytes + 1);
    memset(buffer, BEFORE, bytes + 1);
    return buffer;
}

typedef struct call {
    lierne_plan *plan;
    char *out, *in;
} call;

static void execute(const call *calls, int n, bool adjoint) {
    lierne_request *requests[HALO_WORLD];
    for (int r = 0; r < n; r++) {
        assert_ok((adjoint ? lierne_plan_adjoint_begin
                           : lierne_plan_forward_begin)(&requests[r], calls[r].plan, calls[r].out,
                                                        calls[r].in, NULL));
    }
    for (int r = 0; r < n; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

/* The output of tensor after tensor, each by a plan of its own. */
static void run_alone(const set_world *w, lierne_sim *sim, char **out, char **in, bool adjoint) {
    for (int i = 0; i < w->n; i++) {
        call calls[HALO_WORLD];
        for (int r = 0; r < w->world; r++) {
            const lierne_redistribute_spec spec = {.size = sizeof spec,
                                                   .src = w->layouts[0][i],
                                                   .dst = w->layouts[1][i]};
            calls[r] = (call){NULL, out[r] + (size_t)w->offsets[!adjoint][r][i] * w->size,
                              in[r] + (size_t)w->offsets[adjoint][r][i] * w->size};
            assert_ok(lierne_plan_create_redistribute(&calls[r].plan,
                                                      lierne_sim_get_context(sim, r), &spec));
        }
        execute(calls, w->world, adjoint);
        for (int r = 0; r < w->world; r++) {
            assert_ok(lierne_plan_destroy(calls[r].plan));
        }
    }
}

/* Runs a set twice, or in place, and each tensor alone: the same bytes. */
static void compare(const set_world *w, lierne_sim *sim, lierne_plan *const *plans, bool adjoint,
                    bool in_place) {
    char *in[HALO_WORLD], *out[HALO_WORLD], *alone[HALO_WORLD];
    call calls[HALO_WORLD];
    for (int r = 0; r < w->world; r++) {
        in[r] = buffer_of(w, adjoint, r);
        fill_input(w, in[r], r, adjoint);
        out[r] = in_place ? in[r] : buffer_of(w, !adjoint, r);
        alone[r] = buffer_of(w, !adjoint, r);
        if (in_place) {
            memcpy(alone[r], in[r], (size_t)w->elements[0][r] * w->size);
        }
        calls[r] = (call){plans[r], out[r], in[r]};
    }
    run_alone(w, sim, alone, in, adjoint);
    for (int round = 0; round < (in_place ? 1 : 2); round++) {
        execute(calls, w->world, adjoint);
        for (int r = 0; r < w->world; r++) {
            size_t bytes = (size_t)w->elements[!adjoint][r] * w->size;
            cr_assert_arr_eq(out[r], alone[r], bytes, "seed %d, rank %d, adjoint %d, in place %d",
                             (int)w->seed, r, adjoint, in_place);
            memset(in_place ? alone[r] : out[r], BEFORE, bytes);
        }
    }
    for (int r = 0; r < w->world; r++) {
        free(in_place ? NULL : in[r]), free(out[r]), free(alone[r]);
    }
}

/* Forward one message from every rank that has something; a gradient has values, terms and sums. */
static void expect_messages(const set_world *w, lierne_plan *const *plans, bool adjoint) {
    for (int r = 0; r < w->world; r++) {
        lierne_report report = {.size = sizeof report};
        assert_ok(lierne_plan_get_report(&report, plans[r], (lierne_direction)adjoint));
        cr_assert_leq(report.received_messages, report.received_peers * (adjoint ? 3 : 1),
                      "seed %d, rank %d", (int)w->seed, r);
        if (!adjoint) {
            cr_assert_eq(report.received_bytes, report.min_bytes, "seed %d, rank %d", (int)w->seed,
                         r);
            cr_assert_leq(report.stages, 1);
        }
    }
}

static void run_case(uint64_t seed) {
    set_world w;
    lierne_plan *plans[HALO_WORLD];
    lierne_sim *sim;
    draw_set(&w, seed);
    open_set(&w);
    assert_ok(lierne_sim_create(&sim, w.world, NULL));
    for (int r = 0; r < w.world; r++) {
        const lierne_set_spec spec = spec_of(&w, r);
        cr_assert_eq(lierne_plan_create_set(&plans[r], lierne_sim_get_context(sim, r), &spec),
                     LIERNE_OK, "seed %d: %s", (int)seed, lierne_last_error());
    }
    bool opaque = w.margins && w.dtype >= LIERNE_DTYPE_BITS8;
    cr_assert_eq(lierne_plan_check((const lierne_plan *const *)plans, w.world), LIERNE_OK,
                 "seed %d: %s", (int)seed, lierne_last_error());
    for (int adjoint = 0; adjoint < 2 - opaque; adjoint++) {
        expect_messages(&w, plans, adjoint);
        compare(&w, sim, plans, adjoint, false);
        if (w.equal && w.margins) {
            compare(&w, sim, plans, adjoint, true);
        }
    }
    if (opaque) {
        assert_error(lierne_plan_adjoint(plans[0], NULL, NULL, NULL), LIERNE_ERR_INVALID, "opaque");
    }
    for (int r = 0; r < w.world; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    close_set(&w);
}

Test(set_halos, random_sets_move_as_their_tensors_alone, .timeout = 600) {
    size_t before = lierne_mem_live();
    seed_range seeds = test_seeds(SEEDS);
    for (uint64_t seed = seeds.first; seed < seeds.end; seed++) {
        run_case(seed);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* --- sets by hand ------------------------------------------------------------------------------
 */

enum { RANKS = 4, LIKE = 3 };

/* 8 elements over 4 ranks, with margins or without. */
static lierne_layout *layout_of(bool halo, int64_t lo, lierne_dtype dtype) {
    halo_case c = {.world = RANKS, .naxes = 1, .shape = {8}, .dtype = dtype};
    lierne_layout *layout;
    c.sides[0] = (halo_side){.ndims = 1,
                             .sizes = {RANKS},
                             .placements = {{.kind = LIERNE_PLACEMENT_SHARD, .axis2 = -1}},
                             .nhalos = halo};
    c.sides[0].halos[0] = (lierne_dense_halo){.boundary = LIERNE_BOUNDARY_ZERO, .lo = lo, .hi = 1};
    assert_ok(halo_layout(&layout, &c, 0));
    return layout;
}

/* Two tensors with halos and one without, which stays where it is. */
typedef struct by_hand {
    lierne_layout *plain, *halo;
    const lierne_layout *src[LIKE], *dst[LIKE];
    lierne_set_spec spec;
} by_hand;

static void open_hand(by_hand *h) {
    *h = (by_hand){.plain = layout_of(false, 0, LIERNE_DTYPE_I64),
                   .halo = layout_of(true, 1, LIERNE_DTYPE_I64)};
    for (int i = 0; i < LIKE; i++) {
        h->src[i] = h->plain;
        h->dst[i] = i == 1 ? h->plain : h->halo;
    }
    h->spec =
        (lierne_set_spec){.size = sizeof h->spec, .ntensors = LIKE, .src = h->src, .dst = h->dst};
}

static void close_hand(by_hand *h) {
    lierne_layout_destroy(h->plain);
    lierne_layout_destroy(h->halo);
}

Test(set_halos, halos_of_all_tensors_share_messages) {
    lierne_plan *plans[RANKS];
    lierne_sim *sim;
    by_hand h;
    open_hand(&h);
    assert_ok(lierne_sim_create(&sim, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_create_set(&plans[r], lierne_sim_get_context(sim, r), &h.spec));
    }
    for (int i = 0; i < 2 * RANKS; i++) {
        lierne_report report = {.size = sizeof report};
        int neighbours = i / 2 == 0 || i / 2 == RANKS - 1 ? 1 : 2;
        assert_ok(lierne_plan_get_report(&report, plans[i / 2], (lierne_direction)(i % 2)));
        cr_assert_eq(report.received_messages, neighbours);
        cr_assert_eq(report.sent_messages, neighbours);
        cr_assert_eq(report.received_bytes, 2 * neighbours * 8);
        cr_assert_eq(report.min_bytes, 2 * neighbours * 8);
        cr_assert_eq(report.stages, 1);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_destroy(plans[r]));
    }
    assert_ok(lierne_sim_destroy(sim));
    close_hand(&h);
}

static void reject(const lierne_set_spec *spec, lierne_status status, const char *words) {
    assert_error(lierne_set_check(spec), status, words);
}

Test(set_halos, what_a_set_cannot_do_is_named) {
    by_hand h;
    open_hand(&h);
    halo_case c = {.world = RANKS, .naxes = 1, .shape = {8}, .dtype = LIERNE_DTYPE_I64};
    lierne_layout *margins;
    c.sides[0] = (halo_side){.ndims = 1,
                             .sizes = {RANKS},
                             .placements = {{.kind = LIERNE_PLACEMENT_SHARD, .axis2 = -1}},
                             .nhalos = 1,
                             .storage = LIERNE_HALO_STORAGE_MARGINS};
    c.sides[0].halos[0] = (lierne_dense_halo){.boundary = LIERNE_BOUNDARY_ZERO, .lo = 1};
    assert_ok(halo_layout(&margins, &c, 0));
    h.src[2] = margins;
    reject(&h.spec, LIERNE_ERR_UNSUPPORTED,
           "src[2] has margin storage: a source must hold its cores");
    h.src[2] = h.plain;
    const lierne_set_box box = {.sizes = {8}};
    h.spec.boxes = &box;
    h.spec.nboxes = h.spec.ndst = 1;
    reject(&h.spec, LIERNE_ERR_UNSUPPORTED,
           "dst[0] has a halo on axis 0: tensors of a set with boxes have none");
    h.src[1] = h.halo;
    reject(&h.spec, LIERNE_ERR_UNSUPPORTED, "src[1] has a halo on axis 0");
    lierne_layout_destroy(margins);
    close_hand(&h);
}

Test(set_halos, ranks_that_disagree_on_a_halo_learn_which) {
    for (int odd = 0; odd < RANKS; odd++) {
        by_hand h, other;
        lierne_plan *plans[RANKS];
        lierne_sim *sim;
        size_t before = lierne_mem_live();
        open_hand(&h), open_hand(&other);
        lierne_layout *wider = layout_of(true, 2, LIERNE_DTYPE_I64);
        other.dst[2] = wider;
        assert_ok(lierne_sim_create(&sim, RANKS, NULL));
        lierne_status last = LIERNE_OK;
        int made = 0;
        while (made < RANKS && last == LIERNE_OK) {
            last = lierne_plan_create_set(&plans[made], lierne_sim_get_context(sim, made),
                                          made == odd ? &other.spec : &h.spec);
            made += last == LIERNE_OK;
        }
        assert_says("hash of dst[2]");
        cr_assert_eq(last, LIERNE_ERR_MISMATCH, "rank %d", odd);
        while (made > 0) {
            lierne_plan_destroy(plans[--made]);
        }
        assert_ok(lierne_sim_destroy(sim));
        lierne_layout_destroy(wider);
        close_hand(&h), close_hand(&other);
        cr_assert_eq(lierne_mem_live(), before);
    }
}
