/* Routes as data: joining loops, reversing, checking, printing; and the planner's bytes. */
#include "base/base.h"
#include "plan/plan.h"
#include "route/route.h"

#include "lierne.h"
#include "lierne/sim.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(route, loops_that_run_together_are_joined) {
    int64_t shape[3] = {4, 6, 5}, zero[3] = {0}, rows[3] = {2, 6, 5}, columns[3] = {4, 2, 5};
    lierne_block whole = lierne_block_box(3, shape, zero, shape);
    lierne_block leading = lierne_block_box(3, shape, zero, rows);
    lierne_block strided = lierne_block_box(3, shape, zero, columns);
    lierne_blocks_join((lierne_block *const[]){&whole}, 1);
    lierne_blocks_join((lierne_block *const[]){&leading}, 1);
    lierne_blocks_join((lierne_block *const[]){&strided}, 1);
    cr_assert(lierne_block_contiguous(&whole) && whole.count[0] == 120);
    cr_assert(lierne_block_contiguous(&leading) && leading.count[0] == 60);
    cr_assert_eq(strided.ndims, 2);
    cr_assert(strided.count[0] == 4 && strided.stride[0] == 30);
    cr_assert(strided.count[1] == 10 && strided.stride[1] == 1);
    cr_assert_eq(lierne_block_elements(&strided), 40);
}

Test(route, two_blocks_join_only_where_both_continue) {
    int64_t big[2] = {4, 6}, small[2] = {4, 3}, zero[2] = {0}, size[2] = {4, 3};
    lierne_block a = lierne_block_box(2, small, zero, size),
                 b = lierne_block_box(2, big, zero, size);
    lierne_blocks_join((lierne_block *const[]){&a, &b}, 2);
    cr_assert_eq(a.ndims, 2);
    cr_assert_eq(b.ndims, 2);
}

static lierne_message *message(lierne_messages *list, int peer, lierne_buffer buffer, int64_t at,
                               int64_t n) {
    lierne_message *m;
    cr_assert_eq(lierne_messages_add(list, peer, buffer, &m), LIERNE_OK);
    cr_assert_eq(lierne_message_add(m, lierne_block_range(at, n)), LIERNE_OK);
    return m;
}

static void copy(lierne_ops *ops, lierne_buffer to, int64_t to_at, lierne_buffer from,
                 int64_t from_at, int64_t n) {
    lierne_op *op;
    cr_assert_eq(lierne_ops_add(ops, lierne_place_at(to, lierne_block_range(to_at, n)), &op), 0);
    cr_assert_eq(lierne_op_add(op, lierne_place_at(from, lierne_block_range(from_at, n))), 0);
}

Test(route, blocks_that_continue_extend_the_message) {
    lierne_route *r;
    lierne_stage *s;
    cr_assert_eq(lierne_route_create(&r, 0, 10, 10), LIERNE_OK);
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    lierne_message *m = message(&s->sends, 1, LIERNE_IN, 2, 3);
    cr_assert_eq(lierne_message_add(m, lierne_block_range(5, 2)), LIERNE_OK);
    cr_assert_eq(m->blocks.count, 1);
    cr_assert_eq(lierne_message_add(m, lierne_block_range(9, 1)), LIERNE_OK);
    cr_assert_eq(m->blocks.count, 2);
    cr_assert_eq(m->elements, 6);
    lierne_route_destroy(r);
}

/* Two ranks of 4 elements: rank 0 keeps 0..1 and gets 2..3 from rank 1; rank 1 gets nothing. */
static lierne_route *half(int rank) {
    lierne_route *r;
    lierne_stage *s;
    cr_assert_eq(lierne_route_create(&r, rank, 2, rank ? 0 : 4), LIERNE_OK);
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    if (rank == 0) {
        message(&s->recvs, 1, LIERNE_OUT, 2, 2);
        copy(&s->copies, LIERNE_OUT, 0, LIERNE_IN, 0, 2);
    } else {
        message(&s->sends, 0, LIERNE_IN, 0, 2);
    }
    return r;
}

Test(route, check_finds_what_is_wrong) {
    lierne_route *r[2] = {half(0), half(1)};
    lierne_block owned = lierne_block_range(0, 4);
    cr_assert_eq(lierne_route_check(r[0], &owned, 1), LIERNE_OK);
    cr_assert_eq(lierne_routes_pair((const lierne_route *const *)r, 2), LIERNE_OK);

    r[0]->stages.at[0].copies.count = 0; /* element 0 is never written */
    cr_assert_eq(lierne_route_check(r[0], &owned, 1), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "element 0 of out is read before it was written"));
    r[0]->stages.at[0].copies.count = 1;

    r[0]->stages.at[0].copies.at[0].to.block.offset = 1; /* element 2 twice */
    cr_assert_eq(lierne_route_check(r[0], &owned, 1), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "element 2 of out is written twice"));
    r[0]->stages.at[0].copies.at[0].to.block.offset = 3;
    cr_assert_eq(lierne_route_check(r[0], &owned, 1), LIERNE_INVALID);
    cr_assert(strstr(lierne_last_error(), "element 4 of out is outside") ||
              strstr(lierne_last_error(), "element 3 of out is written twice"));
    r[0]->stages.at[0].copies.at[0].to.block.offset = 0;

    r[1]->stages.at[0].sends.at[0].elements = 1;
    cr_assert_eq(lierne_route_check(r[1], NULL, 0), LIERNE_INVALID);
    cr_assert_eq(lierne_routes_pair((const lierne_route *const *)r, 2), LIERNE_INVALID);
    lierne_route_destroy(r[0]);
    lierne_route_destroy(r[1]);
}

/* Runs routes of n ranks over a sim, i32; in and out are rank after rank. */
static void run(lierne_route **routes, int n, const int32_t *in, int32_t *out) {
    lierne_sim *sim;
    lierne_execution *jobs[8];
    cr_assert_eq(lierne_sim_create(&sim, n, NULL), LIERNE_OK);
    for (int r = 0; r < n; r++) {
        const lierne_route *route = routes[r];
        routes[r]->dtype = LIERNE_I32;
        const void *from = in;
        void *to = out;
        cr_assert_eq(lierne_execution_create(&jobs[r], lierne_sim_get_context(sim, r), &route, 1,
                                             "test"),
                     LIERNE_OK);
        cr_assert_eq(lierne_execution_begin(jobs[r], LIERNE_SUM, &to, &from, NULL), LIERNE_OK);
        in += routes[r]->elements[LIERNE_IN];
        out += routes[r]->elements[LIERNE_OUT];
    }
    for (int r = 0; r < n; r++) {
        cr_assert_eq(lierne_execution_wait(jobs[r]), LIERNE_OK, "%s", lierne_last_error());
        lierne_execution_destroy(jobs[r]);
    }
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK);
}

static int64_t elements(lierne_route **routes, int n, lierne_buffer buffer) {
    int64_t sum = 0;
    for (int r = 0; r < n; r++) {
        sum += routes[r]->elements[buffer];
    }
    return sum;
}

/* <F x, y> = <x, F* y> with every rank's entry a variable of its own, and F** = F. */
static void dot_test(lierne_route **routes, int n) {
    int64_t n_in = elements(routes, n, LIERNE_IN), n_out = elements(routes, n, LIERNE_OUT);
    int32_t *x = calloc((size_t)n_in + 1, 4), *y = calloc((size_t)n_out + 1, 4);
    int32_t *fx = calloc((size_t)n_out + 1, 4), *fy = calloc((size_t)n_in + 1, 4);
    int32_t *twice = calloc((size_t)n_out + 1, 4);
    lierne_route *adjoint[8], *second[8];
    int64_t left = 0, right = 0;
    for (int64_t i = 0; i < n_in; i++) {
        x[i] = (int32_t)((37 * i + 5) % 101 - 50);
    }
    for (int64_t i = 0; i < n_out; i++) {
        y[i] = (int32_t)((53 * i + 3) % 97 - 48);
    }
    for (int r = 0; r < n; r++) {
        cr_assert_eq(lierne_route_reverse(&adjoint[r], routes[r]), LIERNE_OK);
        cr_assert_eq(lierne_route_reverse(&second[r], adjoint[r]), LIERNE_OK);
        cr_assert_eq(lierne_route_check(adjoint[r], NULL, 0), LIERNE_OK, "%s", lierne_last_error());
    }
    memset(fx, 0x5a, (size_t)n_out * 4);
    memset(fy, 0x5a, (size_t)n_in * 4);
    run(routes, n, x, fx);
    run(adjoint, n, y, fy);
    run(second, n, x, twice);
    for (int64_t i = 0; i < n_out; i++) {
        left += (int64_t)fx[i] * y[i];
    }
    for (int64_t i = 0; i < n_in; i++) {
        right += (int64_t)fy[i] * x[i];
    }
    cr_assert_eq(left, right, "<Fx,y> = %lld, <x,F*y> = %lld", (long long)left, (long long)right);
    cr_assert_neq(left, 0);
    cr_assert_eq(memcmp(fx, twice, (size_t)n_out * 4), 0, "the adjoint's adjoint differs");
    for (int r = 0; r < n; r++) {
        lierne_route_destroy(adjoint[r]);
        lierne_route_destroy(second[r]);
    }
    free(x), free(y), free(fx), free(fy), free(twice);
}

Test(route, reverse_of_one_stage) {
    lierne_route *r[2] = {half(0), half(1)};
    dot_test(r, 2);
    lierne_route_destroy(r[0]);
    lierne_route_destroy(r[1]);
}

/* Rank 0 copies its input to where, a stage later, rank 1's arrives: nothing of it is in the
 * result, and nothing of the gradient may come back. */
static lierne_route *overwritten(int rank) {
    lierne_route *r;
    lierne_stage *s;
    cr_assert_eq(lierne_route_create(&r, rank, 2, rank ? 0 : 4), LIERNE_OK);
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    if (rank == 0) {
        copy(&s->copies, LIERNE_OUT, 0, LIERNE_IN, 0, 2);
        copy(&s->copies, LIERNE_OUT, 2, LIERNE_IN, 0, 2);
    }
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    message(rank ? &s->sends : &s->recvs, !rank, rank ? LIERNE_IN : LIERNE_OUT, rank ? 0 : 2, 2);
    return r;
}

Test(route, reverse_of_a_place_that_is_overwritten) {
    lierne_route *r[2] = {overwritten(0), overwritten(1)};
    dot_test(r, 2);
    lierne_route_destroy(r[0]);
    lierne_route_destroy(r[1]);
}

/* Three ranks in a line: stage 1 passes on what stage 0 brought, rank 2 sums two arrivals. */
static lierne_route *relay(int rank) {
    lierne_route *r;
    lierne_stage *s;
    int64_t landing;
    cr_assert_eq(lierne_route_create(&r, rank, 3, 3), LIERNE_OK);
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    if (rank == 0) {
        message(&s->sends, 1, LIERNE_IN, 0, 2);
    } else if (rank == 1) {
        message(&s->recvs, 0, LIERNE_OUT, 0, 2);
    }
    if (rank != 1) {
        copy(&s->copies, LIERNE_OUT, 0, LIERNE_IN, 1, 2);
    }
    copy(&s->copies, LIERNE_OUT, 2, LIERNE_IN, 0, 1);
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    if (rank == 1) {
        message(&s->sends, 2, LIERNE_OUT, 0, 3);
    } else if (rank == 2) {
        lierne_op *op;
        cr_assert_eq(lierne_route_scratch(r, 3, &landing), LIERNE_OK);
        message(&s->recvs, 1, LIERNE_SCRATCH, landing, 3);
        lierne_place out = lierne_place_at(LIERNE_OUT, lierne_block_range(0, 3));
        cr_assert_eq(lierne_ops_add(&s->sums, out, &op), LIERNE_OK);
        cr_assert_eq(lierne_op_add(op, out), LIERNE_OK);
        cr_assert_eq(lierne_op_add(op,
                                   lierne_place_at(LIERNE_SCRATCH, lierne_block_range(landing, 3))),
                     LIERNE_OK);
    }
    return r;
}

Test(route, reverse_of_two_stages_that_forward_and_sum) {
    lierne_route *r[3] = {relay(0), relay(1), relay(2)};
    dot_test(r, 3);
    for (int i = 0; i < 3; i++) {
        lierne_route_destroy(r[i]);
    }
}

Test(route, print_shows_every_line) {
    lierne_route *r = relay(2);
    lierne_text text = {0};
    lierne_route_print(r, &text);
    cr_assert(strstr(text.data, "rank 2: in 3, out 3, scratch 3 elements"));
    cr_assert(strstr(text.data, "receive from 1, 3 elements: scratch[0 : 3]"), "%s", text.data);
    cr_assert(strstr(text.data, "out[0 : 3] = out[0 : 3] + scratch[0 : 3]"));
    lierne_text_clear(&text);
    lierne_route_destroy(r);
}

Test(route, a_view_is_found_and_only_a_view) {
    lierne_route *r;
    lierne_stage *s;
    cr_assert_eq(lierne_route_create(&r, 0, 6, 3), LIERNE_OK);
    cr_assert_eq(lierne_route_add_stage(r, &s), LIERNE_OK);
    copy(&s->copies, LIERNE_OUT, 0, LIERNE_IN, 2, 1);
    copy(&s->copies, LIERNE_OUT, 1, LIERNE_IN, 3, 2);
    cr_assert_eq(lierne_route_alias(r), 2);
    s->copies.at[1].from.at[0].block.offset = 4;
    cr_assert_eq(lierne_route_alias(r), -1);
    lierne_route_destroy(r);
}
