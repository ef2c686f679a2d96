/* Sums that read a contribution where it is exposed: routes made by hand, whose results are
 * computed here element by element. Scratch that was poisoned shows whether the message was copied
 * into it. */
#include "backend/sim/sim_world.h"
#include "base/base.h"
#include "runtime/context/context.h"
#include "runtime/execute/execution.h"
#include "transports.h"
#include "unit/expect.h"

#include "route_executor.h"

#include <criterion/criterion.h>
#include <lierne/sim.h>
#include <string.h>

enum { MOST = 64 };

/* Rank 1 sends blocks of its in, which rank 0 receives from `landing` of its scratch on and adds to
 * blocks of its own in. */
typedef struct fused_case {
    lierne_block sent[3];
    int nsent;
    struct {
        lierne_block to, own, received;
    } sums[3];
    int nsums;
    bool read_later; /* a second stage reads what was received, too: */
    bool sums_later; /* in a sum, and not in a copy */
    bool copied;     /* expected: into scratch */
} fused_case;

static const int64_t evens[4] = {6, 0, 4, 2}, mixed[4] = {3, 1, 0, 2};

static lierne_block loops(int64_t offset, int ndims, const int64_t (*of)[2], const int64_t *rows) {
    lierne_block b = {.offset = offset, .ndims = ndims, .rows = rows};
    for (int d = 0; d < ndims; d++) {
        b.count[d] = of[d][0];
        b.stride[d] = of[d][1];
    }
    return b;
}
#define LOOPS(offset, rows, ...)                                                                   \
    loops(offset, (int)(sizeof((const int64_t[][2]){__VA_ARGS__}) / sizeof(int64_t[2])),           \
          (const int64_t[][2]){__VA_ARGS__}, rows)

enum { LANDING = 5 };

static int64_t received_elements(const fused_case *c) {
    int64_t n = 0;
    for (int b = 0; b < c->nsent; b++) {
        n += route_block_elements(&c->sent[b]);
    }
    return n;
}

static lierne_route *receiver(const fused_case *c) {
    lierne_route *route;
    lierne_stage *stage;
    int64_t scratch, n = received_elements(c);
    assert_ok(lierne_route_create(&route, 0, MOST, MOST));
    route->dtype = LIERNE_DTYPE_F32;
    lierne_route_scratch(route, LANDING + n, &scratch);
    assert_ok(lierne_route_add_stage(route, &stage));
    lierne_messages_put(&stage->recvs, 1, LIERNE_BUFFER_SCRATCH, lierne_block_range(LANDING, n));
    for (int s = 0; s < c->nsums; s++) {
        const lierne_place from[2] = {lierne_place_at(LIERNE_BUFFER_IN, c->sums[s].own),
                                      lierne_place_at(LIERNE_BUFFER_SCRATCH, c->sums[s].received)};
        lierne_ops_put(&stage->sums, lierne_place_at(LIERNE_BUFFER_OUT, c->sums[s].to), false, from,
                       2);
    }
    if (c->read_later) {
        const lierne_place from =
            lierne_place_at(LIERNE_BUFFER_SCRATCH, lierne_block_range(LANDING, 1));
        assert_ok(lierne_route_add_stage(route, &stage));
        lierne_ops_put(c->sums_later ? &stage->sums : &stage->copies,
                       lierne_place_at(LIERNE_BUFFER_OUT, lierne_block_range(MOST - 1, 1)), false,
                       &from, 1);
    }
    return route;
}

static lierne_route *sender(const fused_case *c) {
    lierne_route *route;
    lierne_stage *stage;
    lierne_message *message;
    assert_ok(lierne_route_create(&route, 1, MOST, 0));
    route->dtype = LIERNE_DTYPE_F32;
    assert_ok(lierne_route_add_stage(route, &stage));
    assert_ok(lierne_messages_add(&stage->sends, 0, LIERNE_BUFFER_IN, &message));
    for (int b = 0; b < c->nsent; b++) {
        lierne_message_add(message, c->sent[b]);
    }
    return route;
}

/* As documented: what was received lies in scratch one element after the other. */
static void expect(const fused_case *c, const float *own, const float *sent, float *out) {
    float scratch[LANDING + MOST];
    int64_t at = LANDING;
    for (int b = 0; b < c->nsent; b++) {
        for (int64_t i = 0; i < route_block_elements(&c->sent[b]); i++) {
            scratch[at++] = sent[route_block_element(&c->sent[b], i)];
        }
    }
    for (int s = 0; s < c->nsums; s++) {
        for (int64_t i = 0; i < route_block_elements(&c->sums[s].to); i++) {
            out[route_block_element(&c->sums[s].to, i)] =
                own[route_block_element(&c->sums[s].own, i)] +
                scratch[route_block_element(&c->sums[s].received, i)];
        }
    }
    if (c->read_later) {
        out[MOST - 1] = scratch[LANDING];
    }
}

static bool untouched(const lierne_execution *e) {
    bool same = true;
    for (int64_t i = 0; i < e->memory.reserved; i++) {
        same &= (unsigned char)e->memory.at[i] == 0xa5;
    }
    return same;
}

static void run_twice(const fused_case *c, lierne_execution *const e[2]) {
    float in[2][MOST], out[MOST], wanted[MOST];
    cr_assert_eq(e[1]->memory.reserved, 0, "what is exposed needs no staging");
    for (int call = 0; call < 2; call++) {
        for (int i = 0; i < MOST; i++) {
            in[0][i] = (float)(3 * i + 1 + call) / 7;
            in[1][i] = (float)(5 * i + 2 + call) / 3;
        }
        memset(out, 0xa5, sizeof out);
        memset(wanted, 0xa5, sizeof wanted);
        memset(e[0]->memory.at, 0xa5, (size_t)e[0]->memory.reserved);
        expect(c, in[0], in[1], wanted);
        for (int r = 0; r < 2; r++) {
            void *to = r == 0 ? out : NULL;
            const void *from = in[r];
            lierne_execution_identify(e[r], (lierne_execution_id){.match = call});
            assert_ok(lierne_execution_begin(e[r], LIERNE_REDUCTION_SUM, &to, &from, NULL));
        }
        assert_ok(lierne_execution_wait(e[0]));
        assert_ok(lierne_execution_wait(e[1]));
        char missing[16] = "?";
        lierne_execution_list_missing(e[0], missing, sizeof missing);
        cr_assert_str_empty(missing);
        cr_assert_eq(memcmp(out, wanted, sizeof out), 0, "call %d", call);
        cr_assert_eq(untouched(e[0]), !c->copied, "call %d: %s", call,
                     c->copied ? "not copied" : "copied");
    }
}

typedef struct pair {
    lierne_sim *sim;
    test_transports *transports;
    lierne_route *routes[2];
    lierne_execution *e[2];
} pair;

static void open_pair(pair *p, lierne_route *first, lierne_route *second) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 5};
    p->routes[0] = first;
    p->routes[1] = second;
    assert_ok(lierne_sim_create(&p->sim, 2, &spec));
    p->transports = test_transports_attach(p->sim, 2, (test_pairs){.exposed = 7});
    for (int r = 0; r < 2; r++) {
        const lierne_route *route = p->routes[r];
        lierne_context *context = lierne_sim_get_context(p->sim, r);
        assert_ok(
            lierne_execution_create(&p->e[r], context, NULL, &route, 1, 1, "sum", NULL, NULL));
    }
}

static void close_pair(pair *p) {
    for (int r = 0; r < 2; r++) {
        lierne_execution_destroy(p->e[r]);
        lierne_route_destroy(p->routes[r]);
    }
    assert_ok(lierne_sim_destroy(p->sim));
    test_transports_destroy(p->transports);
    cr_assert_eq(lierne_mem_live(), 0);
}

static void run_case(const fused_case *c) {
    pair p;
    open_pair(&p, receiver(c), sender(c));
    run_twice(c, p.e);
    close_pair(&p);
}

/* Two blocks that lie apart; the sums read the second one first. */
Test(fused_sums, blocks_in_any_order) {
    const fused_case c = {
        .sent = {LOOPS(3, NULL, {3, 8}, {2, 1}), LOOPS(30, NULL, {2, 5}, {4, 1})},
        .nsent = 2,
        .sums = {{LOOPS(0, NULL, {8, 1}), LOOPS(1, NULL, {8, 1}), LOOPS(11, NULL, {8, 1})},
                 {LOOPS(20, NULL, {6, 2}), LOOPS(40, NULL, {6, 1}), LOOPS(5, NULL, {6, 1})}},
        .nsums = 2};
    run_case(&c);
}

/* Rows of one block, some of them per sum; other loops at every place. */
Test(fused_sums, loops_are_divided) {
    const fused_case c = {
        .sent = {LOOPS(1, NULL, {4, 9}, {4, 2})},
        .nsent = 1,
        .sums = {{LOOPS(0, NULL, {8, 2}), LOOPS(2, NULL, {8, 3}), LOOPS(9, NULL, {8, 1})},
                 {LOOPS(60, NULL, {2, -20}, {2, 1}), LOOPS(0, NULL, {2, 2}, {2, 1}),
                  LOOPS(5, NULL, {2, 2}, {2, 1})}},
        .nsums = 2};
    run_case(&c);
}

/* Six elements are one and a half rows of four, and of two blocks. */
Test(fused_sums, no_block_at_the_sender_is_copied) {
    const fused_case rows = {.sent = {LOOPS(0, NULL, {3, 6}, {4, 1})},
                             .nsent = 1,
                             .sums = {{LOOPS(0, NULL, {6, 1}), LOOPS(0, NULL, {6, 1}),
                                       LOOPS(5, NULL, {6, 1})}},
                             .nsums = 1,
                             .copied = true};
    const fused_case blocks = {.sent = {LOOPS(0, NULL, {4, 1}), LOOPS(9, NULL, {4, 1})},
                               .nsent = 2,
                               .sums = {{LOOPS(0, NULL, {6, 1}), LOOPS(0, NULL, {6, 1}),
                                         LOOPS(6, NULL, {6, 1})}},
                               .nsums = 1,
                               .copied = true};
    const fused_case counts = {.sent = {LOOPS(0, NULL, {2, 4}, {3, 1})},
                               .nsent = 1,
                               .sums = {{LOOPS(0, NULL, {3, 3}, {2, 1}),
                                         LOOPS(0, NULL, {3, 3}, {2, 1}),
                                         LOOPS(5, NULL, {3, 2}, {2, 1})}},
                               .nsums = 1,
                               .copied = true};
    run_case(&rows);
    run_case(&blocks);
    run_case(&counts);
}

/* Lists at the receiver and at the sender. */
Test(fused_sums, index_lists) {
    const fused_case contiguous = {.sent = {LOOPS(7, NULL, {12, 1})},
                                   .nsent = 1,
                                   .sums = {{LOOPS(1, evens, {4, 3}, {3, 1}),
                                             LOOPS(0, mixed, {4, 5}, {3, 1}),
                                             LOOPS(5, mixed, {4, 3}, {3, 1})}},
                                   .nsums = 1};
    const fused_case apart = {.sent = {LOOPS(7, NULL, {4, 5}, {3, 1})},
                              .nsent = 1,
                              .sums = {{LOOPS(1, evens, {4, 3}, {3, 1}),
                                        LOOPS(0, mixed, {4, 5}, {3, 1}),
                                        LOOPS(5, mixed, {4, 3}, {3, 1})}},
                              .nsums = 1};
    const fused_case sent_by_list = {.sent = {LOOPS(7, evens, {4, 5}, {3, 1})},
                                     .nsent = 1,
                                     .sums = {{LOOPS(0, NULL, {12, 1}), LOOPS(20, NULL, {12, 1}),
                                               LOOPS(5, NULL, {12, 1})}},
                                     .nsums = 1};
    const fused_case both = {.sent = {LOOPS(7, evens, {4, 5}, {3, 1})},
                             .nsent = 1,
                             .sums = {{LOOPS(1, evens, {4, 3}, {3, 1}),
                                       LOOPS(0, mixed, {4, 5}, {3, 1}),
                                       LOOPS(5, mixed, {4, 3}, {3, 1})}},
                             .nsums = 1,
                             .copied = true};
    const fused_case strided = {.sent = {LOOPS(7, NULL, {4, 9}, {3, 2})},
                                .nsent = 1,
                                .sums = {{LOOPS(1, evens, {4, 3}, {3, 1}),
                                          LOOPS(0, mixed, {4, 5}, {3, 1}),
                                          LOOPS(5, mixed, {4, 3}, {3, 1})}},
                                .nsums = 1,
                                .copied = true};
    run_case(&contiguous);
    run_case(&strided);
    run_case(&apart);
    run_case(&sent_by_list);
    run_case(&both);
}

Test(fused_sums, what_a_later_stage_reads_is_copied) {
    fused_case c = {.sent = {LOOPS(7, NULL, {12, 1})},
                    .nsent = 1,
                    .sums = {{LOOPS(0, NULL, {12, 1}), LOOPS(0, NULL, {12, 1}),
                              LOOPS(5, NULL, {12, 1})}},
                    .nsums = 1};
    run_case(&c);
    c.read_later = c.copied = true;
    run_case(&c);
    c.sums_later = true;
    run_case(&c);
}

/* Of two routes that run together the first one's sums read scratch. */
Test(fused_sums, only_one_of_two_routes_reads_exposed_memory) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 5};
    fused_case c[2] = {
        {.sent = {LOOPS(7, NULL, {12, 1})},
         .nsent = 1,
         .sums = {{LOOPS(0, NULL, {12, 1}), LOOPS(0, NULL, {12, 1}), LOOPS(5, NULL, {12, 1})}},
         .nsums = 1}};
    c[1] = c[0];
    c[0].read_later = true;
    lierne_route *routes[2][2] = {{receiver(&c[0]), receiver(&c[1])},
                                  {sender(&c[0]), sender(&c[1])}};
    float in[2][2][MOST], out[2][MOST] = {{0}}, wanted[2][MOST] = {{0}};
    lierne_execution *e[2];
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 2, &spec));
    test_transports *transports = test_transports_attach(sim, 2, (test_pairs){.exposed = 7});
    for (int i = 0; i < 4 * MOST; i++) {
        in[i / 2 / MOST][i / MOST % 2][i % MOST] = (float)i / 7;
    }
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_execution_create(&e[r], lierne_sim_get_context(sim, r), NULL,
                                          (const lierne_route *const *)routes[r], 2, 1, "sum", NULL,
                                          NULL));
        void *to[2] = {out[0], out[1]};
        assert_ok(lierne_execution_begin(e[r], LIERNE_REDUCTION_SUM, to,
                                         (const void *[]){in[r][0], in[r][1]}, NULL));
    }
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_execution_wait(e[r]));
        expect(&c[r], in[0][r], in[1][r], wanted[r]);
    }
    cr_assert_eq(memcmp(out, wanted, sizeof out), 0);
    for (int r = 0; r < 2; r++) {
        lierne_execution_destroy(e[r]);
        lierne_route_destroy(routes[r][0]);
        lierne_route_destroy(routes[r][1]);
    }
    assert_ok(lierne_sim_destroy(sim));
    test_transports_destroy(transports);
}

/* Each rank sends n elements, and then adds to them what the other one sent: in place, or of its
 * out, which a copy filled. */
static lierne_route *swapper(int rank, int n, bool in_place) {
    lierne_route *route;
    lierne_stage *stage;
    int64_t scratch;
    assert_ok(lierne_route_create(&route, rank, n, n));
    route->dtype = LIERNE_DTYPE_F32;
    const lierne_block all = lierne_block_range(0, n);
    lierne_route_scratch(route, n, &scratch);
    const lierne_buffer sent = in_place ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT;
    const lierne_place from[2] = {lierne_place_at(sent, all),
                                  lierne_place_at(LIERNE_BUFFER_SCRATCH, all)};
    const lierne_place in = lierne_place_at(LIERNE_BUFFER_IN, all),
                       out = lierne_place_at(LIERNE_BUFFER_OUT, all);
    assert_ok(lierne_route_add_stage(route, &stage));
    if (!in_place) {
        lierne_ops_put(&stage->copies, out, false, &in, 1);
        assert_ok(lierne_route_add_stage(route, &stage));
    }
    lierne_messages_put(&stage->sends, 1 - rank, sent, all);
    lierne_messages_put(&stage->recvs, 1 - rank, LIERNE_BUFFER_SCRATCH, all);
    lierne_ops_put(&stage->sums, out, false, from, 2);
    return route;
}

/* A rank that summed before the other one has read would send the sum. Two ranks that held each
 * other's message back until their sums would wait for each other. */
static void swap(bool in_place) {
    enum { N = 9 };
    pair p;
    float in[2][N], out[2][N], wanted[N];
    open_pair(&p, swapper(0, N, in_place), swapper(1, N, in_place));
    for (int call = 0; call < 20; call++) {
        for (int r = 0; r < 2; r++) {
            void *to = in_place ? in[r] : out[r];
            const void *from = in[r];
            for (int i = 0; i < N; i++) {
                in[r][i] = (float)(100 * r + 7 * i + call + 1);
                wanted[i] = (r ? wanted[i] : 0) + in[r][i];
            }
            memset(out[r], 0xa5, sizeof out[r]);
            lierne_execution_identify(p.e[r], (lierne_execution_id){.match = call});
            assert_ok(lierne_execution_begin(p.e[r], LIERNE_REDUCTION_SUM, &to, &from, NULL));
        }
        for (int r = 0; r < 2; r++) {
            assert_ok(lierne_execution_wait(p.e[r]));
        }
        for (int i = 0; i < 2 * N; i++) {
            float is = (in_place ? in : out)[i / N][i % N];
            cr_assert_eq(is, wanted[i % N], "call %d, in place %d", call, in_place);
        }
    }
    close_pair(&p);
}

Test(fused_sums, a_sum_of_what_is_sent_waits_for_its_reader) {
    swap(false);
    swap(true);
}

/* The sender gives up while its blocks are being read. */
static lierne_sim_rank *gives_up;

static void reduce_too_late(lierne_dtype dtype, lierne_reduction reduction, int64_t divisor,
                            void *to, const lierne_block *to_block, const lierne_contribution *from,
                            size_t n) {
    lierne_host_reduce(dtype, reduction, divisor, to, to_block, from, n);
    atomic_store(&gives_up->gave_up, (int)LIERNE_ERR_TIMEOUT);
    atomic_store(&gives_up->world->any_gave_up, true);
}

Test(fused_sums, a_sender_that_gave_up_during_the_sum) {
    const fused_case c = {.sent = {LOOPS(7, NULL, {12, 1})},
                          .nsent = 1,
                          .sums = {{LOOPS(0, NULL, {12, 1}), LOOPS(0, NULL, {12, 1}),
                                    LOOPS(5, NULL, {12, 1})}},
                          .nsums = 1};
    pair p;
    float in[MOST] = {1}, out[MOST];
    void *to[2] = {out, NULL};
    const void *from = in;
    open_pair(&p, receiver(&c), sender(&c));
    lierne_memory memory = lierne_host_memory;
    memory.reduce = reduce_too_late;
    gives_up = lierne_sim_get_context(p.sim, 1)->control_self;
    lierne_sim_get_context(p.sim, 0)->memory = &memory;
    for (int r = 0; r < 2; r++) {
        assert_ok(lierne_execution_begin(p.e[r], LIERNE_REDUCTION_SUM, &to[r], &from, NULL));
    }
    assert_error(lierne_execution_wait(p.e[0]), LIERNE_ERR_TIMEOUT, "rank 1 gave up");
    lierne_execution_wait(p.e[1]);
    close_pair(&p);
}
