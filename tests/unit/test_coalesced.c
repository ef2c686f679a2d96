/* Coalesced plans: the results of a model that uses nothing of the library, one by one and
 * coalesced, in both directions at once, with fewer messages. */
#include "base/base.h"
#include "bridge_plan.h"
#include "collectives.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "mesh.h"
#include "numbers.h"
#include "plan/plan.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS = 8, PLANS = 3 };

/* Vision tp2 dp4 in f32, audio tp1 dp8 in bf16, and a third one with a second stage, to one LLM. */
typedef struct world {
    lierne_sim *sim;
    lierne_plan *plans[RANKS][PLANS];
    lierne_coalesced *coalesced[RANKS];
    unsigned char *in[2][RANKS][PLANS], *out[2][RANKS][PLANS];
    size_t out_bytes[2][RANKS][PLANS];
} world;

static const int64_t shapes[PLANS][3] = {{8, 4, 6}, {16, 2, 10}, {8, 8, 3}};
static const lierne_dtype dtypes[PLANS] = {LIERNE_DTYPE_F32, LIERNE_DTYPE_BF16, LIERNE_DTYPE_I32};

static void plan_all(world *w, int check) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 120, .check = check};
    lierne_grid *src[PLANS] = {grid_of(2, 1, 4, RANKS), grid_of(1, 1, 8, RANKS),
                               grid_of(8, 1, 1, RANKS)};
    lierne_grid *dst = grid_of(2, 4, 1, RANKS);
    memset(w, 0, sizeof *w);
    assert_ok(lierne_sim_create(&w->sim, RANKS, &context));
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < PLANS; p++) {
            lierne_bridge_spec spec = bridge_spec_of(src[p], dst, shapes[p]);
            spec.dtype = dtypes[p];
            spec.batch_axis = p % 2;
            spec.sequence_axis = 1 - p % 2;
            assert_ok(lierne_plan_create_bridge(&w->plans[r][p], lierne_sim_get_context(w->sim, r),
                                                &spec));
        }
        assert_ok(lierne_coalesced_create(&w->coalesced[r], w->plans[r], PLANS));
    }
    for (int p = 0; p < PLANS; p++) {
        lierne_grid_destroy(src[p]);
    }
    lierne_grid_destroy(dst);
}

/* The model, from the definition of a bridge: element (g, s, h) of plan p, the contribution to it
 * that a cp rank has, and which elements a rank's buffer holds, in order. Small integers, no two
 * neighbours the same: exact in every dtype, also when four are added. */
static int value(int p, const int64_t *e) {
    return (int)((37 * e[0] + 11 * e[1] + 5 * e[2] + 17 * p) % 101) - 50;
}

static int contribution(int p, const int64_t *e, int cp) {
    return (int)((53 * e[0] + 29 * e[1] + 13 * e[2] + 31 * cp + 7 * p) % 61) - 30;
}

static int total(int p, const int64_t *e) {
    return contribution(p, e, 0) + contribution(p, e, 1) + contribution(p, e, 2) +
           contribution(p, e, 3);
}

enum { MOST = 16 * 2 * 10 };
typedef enum side { SOURCE, DESTINATION } side;

/* Ranks of a source dp rank; the destination has one dp rank, of all ranks. */
static const int src_tp[PLANS] = {2, 1, 8};

static int64_t list(int p, side where, int r, int64_t (*e)[3]) {
    int batch = p % 2, parts = where == SOURCE ? RANKS / src_tp[p] : 1;
    int mine = where == SOURCE ? r / src_tp[p] : 0;
    int64_t size = shapes[p][batch], rest = size % parts, n = 0;
    int64_t from = size / parts * mine + (mine < rest ? mine : rest);
    int64_t to = from + size / parts + (mine < rest);
    int64_t begin[2] = {batch == 0 ? from : 0, batch == 1 ? from : 0};
    int64_t end[2] = {batch == 0 ? to : shapes[p][0], batch == 1 ? to : shapes[p][1]};
    for (int64_t i = begin[0]; i < end[0]; i++) {
        for (int64_t j = begin[1]; j < end[1]; j++) {
            for (int64_t h = 0; h < shapes[p][2]; h++, n++) {
                e[n][0] = batch == 0 ? i : j, e[n][1] = batch == 0 ? j : i, e[n][2] = h;
            }
        }
    }
    return n;
}

static void make_buffers(world *w) {
    static int64_t e[MOST][3];
    for (int i = 0; i < 2 * RANKS * PLANS; i++) {
        int d = i % 2, r = i / 2 % RANKS, p = i / 2 / RANKS;
        int64_t n = list(p, d ? DESTINATION : SOURCE, r, e), n_in, n_out;
        lierne_plan_get_elements(&n_in, &n_out, w->plans[r][p], (lierne_direction)d);
        cr_assert_eq(n_in, n, "direction %d plan %d rank %d: %d elements", d, p, r, (int)n_in);
        size_t size = lierne_dtype_size(dtypes[p]);
        w->in[d][r][p] = malloc((size_t)n * size + 1);
        for (int64_t k = 0; k < n; k++) {
            number_put(dtypes[p], w->in[d][r][p], k,
                       d ? contribution(p, e[k], r / 2 % 4) : value(p, e[k]));
        }
        n = list(p, d ? SOURCE : DESTINATION, r, e);
        cr_assert_eq(n_out, n, "direction %d plan %d rank %d: %d elements", d, p, r, (int)n_out);
        w->out_bytes[d][r][p] = (size_t)n * size;
        w->out[d][r][p] = malloc(w->out_bytes[d][r][p] + 1);
    }
}

/* Every output of a direction is what the model says. */
static void check_values(const world *w, int d) {
    static int64_t e[MOST][3];
    for (int i = 0; i < RANKS * PLANS; i++) {
        int r = i % RANKS, p = i / RANKS;
        int64_t n = list(p, d ? SOURCE : DESTINATION, r, e);
        for (int64_t k = 0; k < n; k++) {
            int got = (int)number_get(dtypes[p], w->out[d][r][p], k),
                want = d ? total(p, e[k]) : value(p, e[k]);
            cr_assert_eq(got, want, "direction %d rank %d plan %d element %d is %d, must be %d", d,
                         r, p, (int)k, got, want);
        }
    }
}

static void poison(world *w, int d) {
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < PLANS; p++) {
            memset(w->out[d][r][p], 0xa5, w->out_bytes[d][r][p]);
        }
    }
}

static void run_apart(world *w, lierne_direction d) {
    for (int p = 0; p < PLANS; p++) {
        lierne_request *q[RANKS];
        for (int r = 0; r < RANKS; r++) {
            cr_assert_eq((d ? lierne_plan_adjoint_begin
                            : lierne_plan_forward_begin)(&q[r], w->plans[r][p], w->out[d][r][p],
                                                         w->in[d][r][p], NULL),
                         0);
        }
        for (int r = 0; r < RANKS; r++) {
            assert_ok(lierne_request_end(q[r]));
        }
    }
}

static void begin_coalesced(world *w, int r, lierne_direction d) {
    assert_ok(lierne_coalesced_begin(w->coalesced[r], d, (void *const *)w->out[d][r],
                                     (const void *const *)w->in[d][r], NULL));
}

static void end_coalesced(world *w, int r, lierne_direction d) {
    assert_ok(lierne_coalesced_end(w->coalesced[r], d));
}

static void run_together(world *w, lierne_direction d) {
    for (int r = 0; r < RANKS; r++) {
        begin_coalesced(w, r, d);
    }
    for (int r = 0; r < RANKS; r++) {
        end_coalesced(w, r, d);
    }
}

static void close_all(world *w) {
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_coalesced_destroy(w->coalesced[r]));
        for (int p = 0; p < PLANS; p++) {
            assert_ok(lierne_plan_destroy(w->plans[r][p]));
            for (int d = 0; d < 2; d++) {
                free(w->in[d][r][p]);
                free(w->out[d][r][p]);
            }
        }
    }
    assert_ok(lierne_sim_destroy(w->sim));
}

/* Messages that a rank sends: of its plans one by one, and coalesced. */
static void count_messages(const world *w, int d, int64_t *apart, int64_t *together) {
    for (int r = 0; r < RANKS; r++) {
        int64_t sent;
        assert_ok(lierne_coalesced_get_messages(&sent, NULL, w->coalesced[r], (lierne_direction)d));
        *together += sent;
        for (int p = 0; p < PLANS; p++) {
            lierne_report report = {.size = sizeof report};
            lierne_plan_get_report(&report, w->plans[r][p], (lierne_direction)d);
            *apart += report.sent_messages;
        }
    }
}

Test(coalesced, same_bits_as_one_by_one_and_fewer_messages) {
    size_t before = lierne_mem_live();
    for (int check = 0; check < 2; check++) {
        world w;
        plan_all(&w, check);
        make_buffers(&w);
        for (int d = 0; d < 2; d++) {
            int64_t apart = 0, together = 0;
            poison(&w, d);
            run_apart(&w, (lierne_direction)d);
            check_values(&w, d);
            for (int round = 0; round < 2; round++) {
                poison(&w, d);
                run_together(&w, (lierne_direction)d);
                check_values(&w, d);
            }
            cr_assert_eq(lierne_plan_calls(w.plans[0][0], (lierne_direction)d), 3);
            count_messages(&w, d, &apart, &together);
            cr_assert_lt(together, apart, "direction %d: %d messages together, %d apart", d,
                         (int)together, (int)apart);
        }
        close_all(&w);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

/* Both directions in flight: their messages must not be taken for one another's, whichever a rank
 * begins or ends first. A context that checks wants one order of calls. */
Test(coalesced, both_directions_at_once) {
    world w;
    plan_all(&w, 0);
    make_buffers(&w);
    for (int round = 0; round < 8; round++) {
        poison(&w, LIERNE_DIRECTION_FORWARD), poison(&w, LIERNE_DIRECTION_ADJOINT);
        for (int r = 0; r < RANKS; r++) {
            lierne_direction first = (lierne_direction)((r ^ r / 2 ^ round) % 2);
            begin_coalesced(&w, r, first);
            begin_coalesced(&w, r, (lierne_direction)(1 - first));
        }
        for (int r = 0; r < RANKS; r++) {
            lierne_direction first = (lierne_direction)((r ^ round / 2) % 2);
            end_coalesced(&w, r, first);
            end_coalesced(&w, r, (lierne_direction)(1 - first));
        }
        check_values(&w, LIERNE_DIRECTION_FORWARD);
        check_values(&w, LIERNE_DIRECTION_ADJOINT);
    }
    close_all(&w);
}

/* Two plans of one spec: only the comparison of their order shows that ranks would mix up their
 * data.
 */
Test(coalesced, plans_in_another_order_on_one_rank) {
    lierne_grid *src = grid_of(2, 1, 4, RANKS), *dst = grid_of(2, 4, 1, RANKS);
    lierne_bridge_spec spec = bridge_spec_of(src, dst, shapes[0]);
    for (int odd = 0; odd < RANKS; odd++) {
        lierne_sim *sim;
        lierne_plan *plans[RANKS][3];
        assert_ok(lierne_sim_create(&sim, RANKS, NULL));
        for (int i = 0; i < RANKS * 3; i++) {
            assert_ok(lierne_plan_create_bridge(&plans[i % RANKS][i / RANKS],
                                                lierne_sim_get_context(sim, i % RANKS), &spec));
        }
        for (int r = 0; r < RANKS; r++) {
            lierne_plan *order[3] = {plans[r][0], plans[r][r == odd ? 2 : 1],
                                     plans[r][r == odd ? 1 : 2]};
            lierne_coalesced *x;
            lierne_status status = lierne_coalesced_create(&x, order, 3);
            /* In a simulated world a rank is compared with those before it, here with rank 0. */
            bool told = odd == 0 ? r > 0 : r >= odd;
            cr_assert_eq(status, told ? LIERNE_ERR_MISMATCH : LIERNE_OK, "%d differs, rank %d: %s",
                         odd, r, lierne_last_error());
            cr_assert(!told || strstr(lierne_last_error(), "plans[1] differs between ranks: "),
                      "%s", lierne_last_error());
            assert_ok(lierne_coalesced_destroy(x));
        }
        for (int i = 0; i < RANKS * 3; i++) {
            assert_ok(lierne_plan_destroy(plans[i % RANKS][i / RANKS]));
        }
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
}

Test(coalesced, holds_its_plans_and_rejects_bad_arguments) {
    world w, other;
    lierne_coalesced *x;
    void *out[PLANS] = {0};
    const void *in[PLANS] = {0};
    plan_all(&w, 0);
    plan_all(&other, 0);
    make_buffers(&w);
    make_buffers(&other);
    assert_error(lierne_plan_destroy(w.plans[0][1]), LIERNE_ERR_BUSY,
                 "coalesced plans, deltas or runs (1 of them) hold the plan");
    cr_assert_eq(lierne_coalesced_create(NULL, w.plans[0], PLANS), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_coalesced_create(&x, NULL, PLANS), LIERNE_ERR_INVALID);
    lierne_plan *mixed[2] = {w.plans[0][0], other.plans[0][0]};
    assert_error(lierne_coalesced_create(&x, mixed, 2), LIERNE_ERR_INVALID,
                 "plan 1 is of another context");
    cr_assert_null(x);
    cr_assert_eq(lierne_coalesced_begin(NULL, LIERNE_DIRECTION_FORWARD, out, in, NULL),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_coalesced_begin(w.coalesced[0], LIERNE_DIRECTION_FORWARD, NULL, in, NULL),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_coalesced_begin(w.coalesced[0], LIERNE_DIRECTION_FORWARD, out, in, NULL),
                 LIERNE_ERR_INVALID, "in is NULL");
    cr_assert_eq(lierne_coalesced_end(w.coalesced[0], LIERNE_DIRECTION_FORWARD),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_coalesced_end(w.coalesced[0], (lierne_direction)7), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_coalesced_get_messages(NULL, NULL, NULL, LIERNE_DIRECTION_FORWARD),
                 LIERNE_ERR_INVALID);
    assert_ok(lierne_coalesced_destroy(NULL));
    assert_ok(lierne_coalesced_begin(w.coalesced[0], LIERNE_DIRECTION_FORWARD,
                                     (void *const *)w.out[0][0], (const void *const *)w.in[0][0],
                                     NULL));
    cr_assert_eq(lierne_coalesced_begin(w.coalesced[0], LIERNE_DIRECTION_FORWARD,
                                        (void *const *)w.out[0][0], (const void *const *)w.in[0][0],
                                        NULL),
                 LIERNE_ERR_BUSY);
    cr_assert_eq(lierne_coalesced_destroy(w.coalesced[0]), LIERNE_ERR_BUSY);
    for (int r = 1; r < RANKS; r++) {
        assert_ok(lierne_coalesced_begin(w.coalesced[r], LIERNE_DIRECTION_FORWARD,
                                         (void *const *)w.out[0][r],
                                         (const void *const *)w.in[0][r], NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_coalesced_end(w.coalesced[r], LIERNE_DIRECTION_FORWARD));
    }
    close_all(&w);
    close_all(&other);
}

Test(coalesced, running_out_of_memory_leaves_nothing) {
    lierne_grid *g = grid_of(2, 1, 4, RANKS), *h = grid_of(2, 4, 1, RANKS);
    lierne_bridge_spec spec = bridge_spec_of(g, h, shapes[0]);
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    for (size_t k = 1; status != LIERNE_OK; k++) {
        lierne_sim *sim;
        lierne_plan *plans[2];
        lierne_coalesced *x;
        lierne_sim_create(&sim, RANKS, NULL);
        lierne_plan_create_bridge(&plans[0], lierne_sim_get_context(sim, 0), &spec);
        lierne_plan_create_bridge(&plans[1], lierne_sim_get_context(sim, 0), &spec);
        lierne_mem_fail_at(k);
        status = lierne_coalesced_create(&x, plans, 2);
        lierne_mem_fail_at(0);
        cr_assert((status == LIERNE_OK) == (x != NULL));
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY);
        lierne_coalesced_destroy(x);
        assert_ok(lierne_plan_destroy(plans[0]));
        assert_ok(lierne_plan_destroy(plans[1]));
        assert_ok(lierne_sim_destroy(sim));
    }
    lierne_grid_destroy(g), lierne_grid_destroy(h);
}

/* 65,536 messages per plan: comparing each with all of the other plan takes 8,000,000,000 steps. */
Test(coalesced, preparing_takes_time_in_proportion_to_the_messages) {
    enum { MANY = 65536 };
    const lierne_all_to_all_spec spec = all_to_all_of(1, LIERNE_DTYPE_F32);
    lierne_sim *sim;
    lierne_plan *plans[2];
    lierne_coalesced *coalesced;
    assert_ok(lierne_sim_create(&sim, MANY, NULL));
    for (int p = 0; p < 2; p++) {
        assert_ok(lierne_plan_create_all_to_all(&plans[p], lierne_sim_get_context(sim, 5), &spec));
    }
    clock_t start = clock();
    assert_ok(lierne_coalesced_create(&coalesced, plans, 2));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    cr_expect_lt(seconds, 2, "%.1f seconds", seconds);
    lierne_coalesced_destroy(coalesced);
    lierne_sim_destroy_all(sim);
}
