/* Several plans in one exchange: the bits of one by one, fewer messages. */
#include "base/base.h"
#include "lierne.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, PLANS = 3 };

static lierne_grid *grid(int64_t tp, int64_t cp, int64_t dp) {
    const char *names[] = {"tp", "cp", "dp"};
    const int64_t sizes[] = {tp, cp, dp};
    lierne_grid_spec spec = {.size = sizeof spec, .ndims = 3, .names = names, .sizes = sizes,
                             .world_size = RANKS};
    lierne_grid *g = NULL;
    cr_assert_eq(lierne_grid_create(&g, &spec), LIERNE_OK);
    return g;
}

/* Vision tp2 dp4 in f32, audio tp1 dp8 in bf16, and a third one with a second stage, to one LLM. */
typedef struct world {
    lierne_sim *sim;
    lierne_plan *plans[RANKS][PLANS];
    lierne_exchange *exchange[RANKS];
    unsigned char *in[2][RANKS][PLANS], *out[2][RANKS][PLANS];
    size_t out_bytes[2][RANKS][PLANS];
} world;

static const int64_t shapes[PLANS][3] = {{8, 4, 6}, {16, 2, 10}, {8, 8, 3}};
static const lierne_dtype dtypes[PLANS] = {LIERNE_F32, LIERNE_BF16, LIERNE_I32};

static void plan_all(world *w, int check) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 5, .check = check};
    lierne_grid *src[PLANS] = {grid(2, 1, 4), grid(1, 1, 8), grid(8, 1, 1)};
    lierne_grid *dst = grid(2, 4, 1);
    memset(w, 0, sizeof *w);
    cr_assert_eq(lierne_sim_create(&w->sim, RANKS, &context), LIERNE_OK);
    for (int r = 0; r < RANKS; r++) {
        for (int p = 0; p < PLANS; p++) {
            lierne_bridge_spec spec = {.size = sizeof spec, .src = src[p], .dst = dst, .naxes = 3,
                                       .shape = shapes[p], .dtype = dtypes[p],
                                       .batch_axis = p % 2, .sequence_axis = 1 - p % 2};
            cr_assert_eq(lierne_plan_bridge(&w->plans[r][p], lierne_sim_context(w->sim, r), &spec),
                         LIERNE_OK, "%s", lierne_last_error());
        }
        cr_assert_eq(lierne_exchange_create(&w->exchange[r], w->plans[r], PLANS), LIERNE_OK, "%s",
                     lierne_last_error());
    }
    for (int p = 0; p < PLANS; p++) {
        lierne_grid_free(src[p]);
    }
    lierne_grid_free(dst);
}

/* Small integers in every type, the same on ranks that hold replicas: the bits of a counter. */
static void make_buffers(world *w) {
    for (int d = 0; d < 2; d++) {
        for (int r = 0; r < RANKS; r++) {
            for (int p = 0; p < PLANS; p++) {
                int64_t n_in, n_out;
                size_t size = lierne_dtype_size(dtypes[p]);
                lierne_plan_elements(w->plans[r][p], (lierne_direction)d, &n_in, &n_out);
                w->out_bytes[d][r][p] = (size_t)n_out * size;
                w->in[d][r][p] = malloc((size_t)n_in * size + 1);
                w->out[d][r][p] = malloc((size_t)n_out * size + 1);
                for (int64_t i = 0; i < n_in; i++) {
                    float f = (float)((13 * i + 7 * r + p) % 50 - 25);
                    uint32_t bits;
                    memcpy(&bits, &f, 4);
                    uint16_t half = (uint16_t)(bits >> 16);
                    const void *from = size == 2 ? (const void *)&half : &f;
                    memcpy(w->in[d][r][p] + (size_t)i * size, from, size);
                }
            }
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
            cr_assert_eq((d ? lierne_adjoint_begin : lierne_forward_begin)(
                             &q[r], w->plans[r][p], w->out[d][r][p], w->in[d][r][p], NULL), 0);
        }
        for (int r = 0; r < RANKS; r++) {
            cr_assert_eq(lierne_end(q[r]), LIERNE_OK);
        }
    }
}

static void run_together(world *w, lierne_direction d) {
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(lierne_exchange_begin(w->exchange[r], d, (void *const *)w->out[d][r],
                                           (const void *const *)w->in[d][r], NULL), LIERNE_OK, "%s",
                     lierne_last_error());
    }
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(lierne_exchange_end(w->exchange[r], d), LIERNE_OK, "%s", lierne_last_error());
    }
}

static void close_all(world *w) {
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(lierne_exchange_free(w->exchange[r]), LIERNE_OK);
        for (int p = 0; p < PLANS; p++) {
            cr_assert_eq(lierne_plan_free(w->plans[r][p]), LIERNE_OK);
            for (int d = 0; d < 2; d++) {
                free(w->in[d][r][p]);
                free(w->out[d][r][p]);
            }
        }
    }
    cr_assert_eq(lierne_sim_free(w->sim), LIERNE_OK);
}

Test(exchange, together_has_the_bits_of_apart_and_fewer_messages) {
    size_t before = lierne_mem_live();
    for (int check = 0; check < 2; check++) {
        world w;
        plan_all(&w, check);
        make_buffers(&w);
        for (int d = 0; d < 2; d++) {
            int64_t apart = 0, together = 0;
            unsigned char *kept[RANKS][PLANS];
            poison(&w, d);
            run_apart(&w, (lierne_direction)d);
            for (int r = 0; r < RANKS; r++) {
                for (int p = 0; p < PLANS; p++) {
                    kept[r][p] = malloc(w.out_bytes[d][r][p] + 1);
                    memcpy(kept[r][p], w.out[d][r][p], w.out_bytes[d][r][p]);
                }
            }
            for (int round = 0; round < 2; round++) {
                poison(&w, d);
                run_together(&w, (lierne_direction)d);
                for (int r = 0; r < RANKS; r++) {
                    for (int p = 0; p < PLANS; p++) {
                        cr_assert_eq(memcmp(kept[r][p], w.out[d][r][p], w.out_bytes[d][r][p]), 0,
                                     "direction %d rank %d plan %d", d, r, p);
                    }
                }
            }
            for (int r = 0; r < RANKS; r++) {
                int64_t sent;
                cr_assert_eq(lierne_exchange_messages(w.exchange[r], (lierne_direction)d, &sent,
                                                      NULL), LIERNE_OK);
                together += sent;
                for (int p = 0; p < PLANS; p++) {
                    lierne_report report = {.size = sizeof report};
                    lierne_plan_report(w.plans[r][p], (lierne_direction)d, &report);
                    apart += report.sent_messages;
                    free(kept[r][p]);
                }
            }
            cr_assert_lt(together, apart, "direction %d: %d messages together, %d apart", d,
                         (int)together, (int)apart);
        }
        close_all(&w);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(exchange, holds_its_plans_and_refuses_what_is_wrong) {
    world w, other;
    lierne_exchange *x;
    void *out[PLANS] = {0};
    const void *in[PLANS] = {0};
    plan_all(&w, 0);
    plan_all(&other, 0);
    make_buffers(&w);
    make_buffers(&other);
    cr_assert_eq(lierne_plan_free(w.plans[0][1]), LIERNE_BUSY);
    cr_assert(strstr(lierne_last_error(), "1 exchanges hold the plan"));
    cr_assert_eq(lierne_exchange_create(NULL, w.plans[0], PLANS), LIERNE_INVALID);
    cr_assert_eq(lierne_exchange_create(&x, NULL, PLANS), LIERNE_INVALID);
    lierne_plan *mixed[2] = {w.plans[0][0], other.plans[0][0]};
    cr_assert_eq(lierne_exchange_create(&x, mixed, 2), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "plan 1 is NULL or of another context"));
    cr_assert_null(x);
    cr_assert_eq(lierne_exchange_begin(NULL, LIERNE_FORWARD, out, in, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_exchange_begin(w.exchange[0], LIERNE_FORWARD, NULL, in, NULL),
                 LIERNE_INVALID);
    cr_assert_eq(lierne_exchange_begin(w.exchange[0], LIERNE_FORWARD, out, in, NULL),
                 LIERNE_INVALID, "in is NULL");
    cr_assert_eq(lierne_exchange_end(w.exchange[0], LIERNE_FORWARD), LIERNE_INVALID);
    cr_assert_eq(lierne_exchange_end(w.exchange[0], (lierne_direction)7), LIERNE_INVALID);
    cr_assert_eq(lierne_exchange_messages(NULL, LIERNE_FORWARD, NULL, NULL), LIERNE_INVALID);
    cr_assert_eq(lierne_exchange_free(NULL), LIERNE_OK);
    cr_assert_eq(lierne_exchange_begin(w.exchange[0], LIERNE_FORWARD, (void *const *)w.out[0][0],
                                       (const void *const *)w.in[0][0], NULL), LIERNE_OK);
    cr_assert_eq(lierne_exchange_begin(w.exchange[0], LIERNE_FORWARD, (void *const *)w.out[0][0],
                                       (const void *const *)w.in[0][0], NULL), LIERNE_BUSY);
    cr_assert_eq(lierne_exchange_free(w.exchange[0]), LIERNE_BUSY);
    for (int r = 1; r < RANKS; r++) {
        cr_assert_eq(lierne_exchange_begin(w.exchange[r], LIERNE_FORWARD,
                                           (void *const *)w.out[0][r],
                                           (const void *const *)w.in[0][r], NULL), LIERNE_OK);
    }
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(lierne_exchange_end(w.exchange[r], LIERNE_FORWARD), LIERNE_OK);
    }
    close_all(&w);
    close_all(&other);
}

Test(exchange, running_out_of_memory_leaves_nothing) {
    lierne_grid *g = grid(2, 1, 4), *h = grid(2, 4, 1);
    lierne_bridge_spec spec = {.size = sizeof spec, .src = g, .dst = h, .naxes = 3,
                               .shape = shapes[0], .dtype = LIERNE_F32, .sequence_axis = 1};
    lierne_status status = LIERNE_NO_MEMORY;
    for (size_t k = 1; status != LIERNE_OK; k++) {
        lierne_sim *sim;
        lierne_plan *plans[2];
        lierne_exchange *x;
        lierne_sim_create(&sim, RANKS, NULL);
        lierne_plan_bridge(&plans[0], lierne_sim_context(sim, 0), &spec);
        lierne_plan_bridge(&plans[1], lierne_sim_context(sim, 0), &spec);
        lierne_mem_fail_at(k);
        status = lierne_exchange_create(&x, plans, 2);
        lierne_mem_fail_at(0);
        cr_assert((status == LIERNE_OK) == (x != NULL));
        cr_assert(status == LIERNE_OK || status == LIERNE_NO_MEMORY);
        lierne_exchange_free(x);
        cr_assert_eq(lierne_plan_free(plans[0]), LIERNE_OK);
        cr_assert_eq(lierne_plan_free(plans[1]), LIERNE_OK);
        cr_assert_eq(lierne_sim_free(sim), LIERNE_OK);
    }
    lierne_grid_free(g), lierne_grid_free(h);
}
