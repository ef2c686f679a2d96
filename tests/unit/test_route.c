/* Routes as data: joining loops, checking, printing; and the planner's bytes. */
#include "base/base.h"
#include "plan/plan.h"
#include "route/route.h"
#include "unit/expect.h"

#include "lierne.h"
#include "lierne/sim.h"

#include <criterion/criterion.h>
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
    assert_ok(lierne_messages_add(list, peer, buffer, &m));
    assert_ok(lierne_message_add(m, lierne_block_range(at, n)));
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
    assert_ok(lierne_route_create(&r, 0, 10, 10));
    assert_ok(lierne_route_add_stage(r, &s));
    lierne_message *m = message(&s->sends, 1, LIERNE_BUFFER_IN, 2, 3);
    assert_ok(lierne_message_add(m, lierne_block_range(5, 2)));
    cr_assert_eq(m->blocks.count, 1);
    assert_ok(lierne_message_add(m, lierne_block_range(9, 1)));
    cr_assert_eq(m->blocks.count, 2);
    cr_assert_eq(m->elements, 6);
    lierne_route_destroy(r);
}

/* Two ranks of 4 elements: rank 0 keeps 0..1 and gets 2..3 from rank 1; rank 1 gets nothing. */
static lierne_route *half(int rank) {
    lierne_route *r;
    lierne_stage *s;
    assert_ok(lierne_route_create(&r, rank, 2, rank ? 0 : 4));
    assert_ok(lierne_route_add_stage(r, &s));
    if (rank == 0) {
        message(&s->recvs, 1, LIERNE_BUFFER_OUT, 2, 2);
        copy(&s->copies, LIERNE_BUFFER_OUT, 0, LIERNE_BUFFER_IN, 0, 2);
    } else {
        message(&s->sends, 0, LIERNE_BUFFER_IN, 0, 2);
    }
    return r;
}

Test(route, check_finds_what_is_wrong) {
    lierne_route *r[2] = {half(0), half(1)};
    lierne_block owned = lierne_block_range(0, 4);
    assert_ok(lierne_route_check(r[0], &owned, 1));
    assert_ok(lierne_routes_pair((const lierne_route *const *)r, 2));

    r[0]->stages.at[0].copies.count = 0; /* element 0 is never written */
    assert_error(lierne_route_check(r[0], &owned, 1), LIERNE_ERR_INVALID,
                 "element 0 of out is read before it was written");
    r[0]->stages.at[0].copies.count = 1;

    r[0]->stages.at[0].copies.at[0].to.block.offset = 1; /* element 2 twice */
    assert_error(lierne_route_check(r[0], &owned, 1), LIERNE_ERR_INVALID,
                 "element 2 of out is written twice");
    r[0]->stages.at[0].copies.at[0].to.block.offset = 3;
    cr_assert_eq(lierne_route_check(r[0], &owned, 1), LIERNE_ERR_INVALID);
    cr_assert(strstr(lierne_last_error(), "element 4 of out is outside") ||
              strstr(lierne_last_error(), "element 3 of out is written twice"));
    r[0]->stages.at[0].copies.at[0].to.block.offset = 0;

    r[1]->stages.at[0].sends.at[0].elements = 1;
    cr_assert_eq(lierne_route_check(r[1], NULL, 0), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_routes_pair((const lierne_route *const *)r, 2), LIERNE_ERR_INVALID);
    lierne_route_destroy(r[0]);
    lierne_route_destroy(r[1]);
}

/* What is in flight may come in any order: scratch 0 to 2 is sent on while 2 to 4 is written. */
Test(route, check_finds_what_is_written_in_flight) {
    static const char *const in_flight =
        "element 2 of scratch is written while its stage sends, receives or copies it";
    for (int kind = 0; kind < 4; kind++) {
        lierne_route *r;
        lierne_stage *s;
        int64_t scratch;
        assert_ok(lierne_route_create(&r, 0, 6, 3));
        assert_ok(lierne_route_scratch(r, 6, &scratch));
        assert_ok(lierne_route_add_stage(r, &s));
        copy(&s->copies, LIERNE_BUFFER_SCRATCH, 0, LIERNE_BUFFER_IN, 0, 3);
        assert_ok(lierne_route_add_stage(r, &s));
        if (kind == 0) {
            message(&s->sends, 1, LIERNE_BUFFER_SCRATCH, 0, 3);
        } else {
            copy(&s->copies, LIERNE_BUFFER_OUT, 0, LIERNE_BUFFER_SCRATCH, 0, 3);
        }
        message(&s->recvs, 1, LIERNE_BUFFER_SCRATCH, kind == 3 ? 3 : 2, 2);
        if (kind == 2) {
            s->copies.at[0].from.at[0].buffer = LIERNE_BUFFER_IN;
            copy(&s->copies, LIERNE_BUFFER_SCRATCH, 1, LIERNE_BUFFER_IN, 0, 2);
        }
        if (kind == 3) {
            assert_ok(lierne_route_check(r, NULL, 0));
        } else {
            assert_error(lierne_route_check(r, NULL, 0), LIERNE_ERR_INVALID, in_flight);
        }
        lierne_route_destroy(r);
    }
}

/* Three ranks in a line: stage 1 passes on what stage 0 brought, rank 2 sums two arrivals. */
static lierne_route *relay(int rank) {
    lierne_route *r;
    lierne_stage *s;
    int64_t landing;
    assert_ok(lierne_route_create(&r, rank, 3, 3));
    assert_ok(lierne_route_add_stage(r, &s));
    if (rank == 0) {
        message(&s->sends, 1, LIERNE_BUFFER_IN, 0, 2);
    } else if (rank == 1) {
        message(&s->recvs, 0, LIERNE_BUFFER_OUT, 0, 2);
    }
    if (rank != 1) {
        copy(&s->copies, LIERNE_BUFFER_OUT, 0, LIERNE_BUFFER_IN, 1, 2);
    }
    copy(&s->copies, LIERNE_BUFFER_OUT, 2, LIERNE_BUFFER_IN, 0, 1);
    assert_ok(lierne_route_add_stage(r, &s));
    if (rank == 1) {
        message(&s->sends, 2, LIERNE_BUFFER_OUT, 0, 3);
    } else if (rank == 2) {
        lierne_op *op;
        assert_ok(lierne_route_scratch(r, 3, &landing));
        message(&s->recvs, 1, LIERNE_BUFFER_SCRATCH, landing, 3);
        lierne_place out = lierne_place_at(LIERNE_BUFFER_OUT, lierne_block_range(0, 3));
        assert_ok(lierne_ops_add(&s->sums, out, &op));
        assert_ok(lierne_op_add(op, out));
        assert_ok(lierne_op_add(op, lierne_place_at(LIERNE_BUFFER_SCRATCH,
                                                    lierne_block_range(landing, 3))));
    }
    return r;
}

Test(route, print_shows_every_line) {
    lierne_route *r = relay(2);
    lierne_text text = {0};
    lierne_route_print(r, &text);
    cr_assert(strstr(text.data, "rank 2: in 3, out 3, scratch 3 elements"));
    cr_assert(strstr(text.data, "receive from 1, 3 elements: scratch[0:3]"), "%s", text.data);
    cr_assert(strstr(text.data, "out[0:3] = out[0:3] + scratch[0:3]"));
    lierne_text_clear(&text);
    lierne_route_destroy(r);
}

/* out = what the reduction makes of both halves of in, over the divisor. */
static lierne_route *halves(lierne_reduction reduction, int64_t divisor) {
    lierne_route *r;
    lierne_stage *s;
    assert_ok(lierne_route_create(&r, 0, 4, 2));
    assert_ok(lierne_route_add_stage(r, &s));
    copy(&s->sums, LIERNE_BUFFER_OUT, 0, LIERNE_BUFFER_IN, 0, 2);
    lierne_op *op = &s->sums.at[0];
    cr_assert_eq(lierne_op_add(op, lierne_place_at(LIERNE_BUFFER_IN, lierne_block_range(2, 2))), 0);
    op->reduction = reduction;
    op->divisor = divisor;
    return r;
}

static void expect_text(lierne_reduction reduction, int64_t divisor, const char *wanted) {
    static const lierne_buffer same[] = {LIERNE_BUFFER_IN, LIERNE_BUFFER_OUT,
                                         LIERNE_BUFFER_SCRATCH};
    lierne_route *r = halves(reduction, divisor), *copied;
    lierne_text text = {0};
    assert_ok(lierne_route_create(&copied, 0, 4, 2));
    assert_ok(lierne_route_append(copied, r, same, (const int64_t[]){0, 0, 0}));
    lierne_route_print(copied, &text);
    cr_expect(strstr(text.data, wanted), "%s", text.data);
    lierne_text_clear(&text);
    lierne_route_destroy(copied);
    lierne_route_destroy(r);
}

Test(route, reductions_are_copied_and_printed) {
    expect_text(LIERNE_REDUCTION_SUM, 0, "  out[0:2] = in[0:2] + in[2:4]\n");
    expect_text(LIERNE_REDUCTION_SUM, 4, "  out[0:2] = in[0:2] + in[2:4], divided by 4\n");
    expect_text(LIERNE_REDUCTION_PROD, 0, "  out[0:2] = in[0:2] * in[2:4]\n");
    expect_text(LIERNE_REDUCTION_MAX, 0, "  out[0:2] = maximum of in[0:2], in[2:4]\n");
    expect_text(LIERNE_REDUCTION_MIN, 0, "  out[0:2] = minimum of in[0:2], in[2:4]\n");
}

/* One loop is a slice as Python has it; what is none cannot be taken for one. */
Test(route, blocks_are_printed_as_slices_of_python) {
    static const int64_t rows[] = {4, 1};
    const struct {
        lierne_block block;
        const char *text;
    } cases[] = {
        {lierne_block_range(8, 8), "in[8:16]"},
        {{.offset = 8, .ndims = 1, .count = {4}, .stride = {2}}, "in[8:15:2]"},
        {{.offset = 8, .ndims = 2, .count = {4, 2}, .stride = {16, 1}}, "in[8 + 4/16 x 2]"},
        {{.offset = 0, .ndims = 2, .count = {2, 3}, .stride = {3, 1}, .rows = rows},
         "in[0 + 2 listed/3 x 3]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lierne_route *r;
        lierne_stage *s;
        lierne_message *m;
        lierne_text text = {0};
        assert_ok(lierne_route_create(&r, 0, 100, 0));
        assert_ok(lierne_route_add_stage(r, &s));
        assert_ok(lierne_messages_add(&s->sends, 1, LIERNE_BUFFER_IN, &m));
        assert_ok(lierne_message_add(m, cases[i].block));
        lierne_route_print(r, &text);
        cr_expect(strstr(text.data, cases[i].text), "%s: %s", cases[i].text, text.data);
        lierne_text_clear(&text);
        lierne_route_destroy(r);
    }
}

Test(route, a_view_is_found_and_only_a_view) {
    lierne_route *r;
    lierne_stage *s;
    assert_ok(lierne_route_create(&r, 0, 6, 3));
    assert_ok(lierne_route_add_stage(r, &s));
    copy(&s->copies, LIERNE_BUFFER_OUT, 0, LIERNE_BUFFER_IN, 2, 1);
    copy(&s->copies, LIERNE_BUFFER_OUT, 1, LIERNE_BUFFER_IN, 3, 2);
    cr_assert_eq(lierne_route_alias(r, 0), 2);
    s->copies.at[1].from.at[0].block.offset = 4;
    cr_assert_eq(lierne_route_alias(r, 0), -1);
    lierne_route_destroy(r);
}

static void expect_extent(const lierne_block *block, int64_t first, int64_t end) {
    int64_t got[2] = {0, 0};
    lierne_block_extend(block, &got[0], &got[1]);
    cr_expect(got[0] == first && got[1] == end, "%lld to %lld", (long long)got[0],
              (long long)got[1]);
}

Test(route, a_block_reaches_from_its_first_to_its_last_element) {
    static const int64_t rows[] = {5, 2};
    lierne_block block = {.offset = 3, .ndims = 3, .count = {2, 4, 2}, .stride = {10, 2, 1}};
    expect_extent(&block, 3, 3 + 10 + 6 + 1 + 1);
    block.rows = rows;
    expect_extent(&block, 3 + 20, 3 + 50 + 6 + 1 + 1);
    block.count[2] = 0;
    expect_extent(&block, 0, 0);
}
