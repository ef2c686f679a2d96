/* Plans from texts that another program may have written: each fault is rejected with a message
 * that says what is wrong, and nothing leaks. A world of one rank, which owns every row. */
#include "base/base.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <stdio.h>
#include <string.h>

static const char graph[] =
    "{\"kind\": \"graph\", \"dtype\": \"i64\", \"width\": 1, \"stride\": 1,\n"
    " \"algorithm\": \"auto\", \"accumulate\": false, \"combined\": false, \"keep_ghosts\": "
    "false,\n"
    " \"max_inflight\": 1, \"nowned\": 3, \"root\": [[0,2],[0,0]], \"nrows\": 5,\n"
    " \"owned\": [0,2,4], \"needed\": [4,0], \"edge_index_local\": [[0,3,4],[0,1,2]],\n"
    " \"local_edge_idx\": [0], \"remote_edge_idx\": [1,2]}";
static const char halo[] =
    "{\"kind\": \"halo\", \"dtype\": \"i64\", \"width\": 1, \"stride\": 1,\n"
    " \"keep_ghosts\": false, \"max_inflight\": 1, \"nlocal\": 3, \"nghost\": 2, \"nswap\": 1,\n"
    " \"sendproc\": [0], \"recvproc\": [0], \"sendnum\": [2], \"recvnum\": [2],\n"
    " \"sendlist\": [[2,0]]}";

typedef struct fault {
    const char *text;
    const char *right; /* once in the text */
    const char *wrong;
    lierne_status status;
    const char *says;
} fault;

static const fault faults[] = {
    {graph, "[0,2,4]", "[0,2,5]", LIERNE_ERR_INDEX_RANGE,
     "entry 2 of owned is 5, must be in 0 to 4"},
    {graph, "[0,2,4]", "[0,2]", LIERNE_ERR_INVALID, "owned has 2 entries, must have 3"},
    {graph, "[4,0]", "[4,-1]", LIERNE_ERR_INDEX_RANGE, "entry 1 of needed is -1"},
    {graph, "[4,0]", "[4,0,1]", LIERNE_ERR_INVALID, "needed has 3 entries, must have 2"},
    {graph, "[0,3,4]", "[0,3,5]", LIERNE_ERR_INDEX_RANGE,
     "entry 2 of edge_index_local is 5, must be in 0 to 4"},
    {graph, "[0,3,4]", "[-1,3,4]", LIERNE_ERR_INDEX_RANGE, "entry 0 of edge_index_local is -1"},
    {graph, "[0,1,2]", "[0,3,2]", LIERNE_ERR_INDEX_RANGE,
     "entry 1 of edge_index_local is 3, must be in 0 to 2"},
    {graph, "[0,1,2]", "[0,1]", LIERNE_ERR_INVALID, "two lists of one length"},
    {graph, "[[0,3,4],[0,1,2]]", "[]", LIERNE_ERR_INVALID, "two lists of one length"},
    {graph, "[0],", "[3],", LIERNE_ERR_INDEX_RANGE, "entry 0 of local_edge_idx is 3"},
    {graph, "[1,2]}", "[1,3]}", LIERNE_ERR_INDEX_RANGE, "entry 1 of remote_edge_idx is 3"},
    {graph, "[1,2]}", "[1,true]}", LIERNE_ERR_INVALID, "remote_edge_idx must be an integer"},
    {graph, "[0,2],", "[0,3],", LIERNE_ERR_INDEX_RANGE, "row 3"},
    {graph, "\"width\": 1, \"stride\": 1", "\"width\": 100000000, \"stride\": 0",
     LIERNE_ERR_OVERFLOW,
     "2 rows of width 100000000 and max_inflight 1 take 1600000000 bytes, more than 1073741824"},
    {halo, "\"width\": 1, \"stride\": 1", "\"width\": 100000000, \"stride\": 0",
     LIERNE_ERR_OVERFLOW,
     "4 rows of width 100000000 and max_inflight 1 take 3200000000 bytes, more than 1073741824"},
    {graph, "\"width\": 1, \"stride\": 1", "\"width\": 1000000000000000000, \"stride\": 0",
     LIERNE_ERR_OVERFLOW, "take 9223372036854775807 bytes or more"},
    {graph, "[0,2],", "[1,2],", LIERNE_ERR_PEER_RANGE, "ghost 0 is of rank 1"},
    {graph, "[0,2],", "[4294967296,2],", LIERNE_ERR_INVALID, "fits 32 bits"},
    {graph, "[0,2],", "[0],", LIERNE_ERR_INVALID, "an array of [rank, row]"},
    {graph, "\"nrows\": 5", "\"nrows\": -1", LIERNE_ERR_COUNT_RANGE, "nrows is -1"},
    {graph, "\"nrows\": 5", "\"rows\": 5", LIERNE_ERR_INVALID, "there is no 'nrows'"},
    {graph, "\"nowned\": 3", "\"nowned\": 9223372036854775807", LIERNE_ERR_INVALID,
     "must have 92233"},
    {graph, "\"width\": 1", "\"width\": 1.5", LIERNE_ERR_INVALID, "1:44: width must be an integer"},
    {graph, "\"width\": 1", "\"width\": 0", LIERNE_ERR_INVALID, "width is 0"},
    {graph, "i64", "i65", LIERNE_ERR_INVALID, "i65"},
    {graph, "auto", "best", LIERNE_ERR_INVALID, "algorithm is 'best'"},
    {graph, "\"accumulate\": false", "\"accumulate\": 0", LIERNE_ERR_INVALID, "accumulate must be"},
    {graph, "\"kind\": \"graph\"", "\"kind\": \"tree\"", LIERNE_ERR_INVALID, "kind is 'tree'"},
    {graph, "[1,2]}", "[1,2]", LIERNE_ERR_SYNTAX, "rank 0: "},
    {halo, "[[2,0]]", "[[2,3]]", LIERNE_ERR_ROW_NOT_YET_FILLED, "3"},
    {halo, "[[2,0]]", "[[2]]", LIERNE_ERR_INVALID, "an array of sendnum rows"},
    {halo, "[[2,0]]", "[]", LIERNE_ERR_INVALID, "an array of nswap lists"},
    {halo, "\"nswap\": 1", "\"nswap\": 2", LIERNE_ERR_INVALID, "must have 2"},
    {halo, "\"nswap\": 1", "\"nswap\": -1", LIERNE_ERR_INVALID, "must have -1"},
    {halo, "\"sendproc\": [0]", "\"sendproc\": [4294967296]", LIERNE_ERR_PEER_RANGE, "-1"},
    {halo, "\"recvnum\": [2]", "\"recvnum\": [3]", LIERNE_ERR_SELF_COUNT, "receives 3"},
    {halo, "\"nghost\": 2", "\"nghost\": 3", LIERNE_ERR_GHOST_COUNT, "3"},
};

static lierne_status read_text(lierne_plan **plan, lierne_sim *sim, const char *text) {
    return lierne_plan_deserialize(plan, lierne_sim_get_context(sim, 0), text, strlen(text));
}

Test(serialize, a_fault_in_a_text_is_named) {
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const fault *f = &faults[i];
        const char *at = strstr(f->text, f->right);
        char text[1024];
        lierne_plan *plan;
        cr_assert(at && !strstr(at + 1, f->right), "%s is there once", f->right);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - f->text), f->text, f->wrong,
                 at + strlen(f->right));
        lierne_status status = read_text(&plan, sim, text);
        cr_expect(status == f->status && strstr(lierne_last_error(), f->says) && !plan,
                  "%s for %s: %s: %s", f->wrong, f->right, lierne_status_name(status),
                  lierne_last_error());
    }
    expect_ok(lierne_sim_destroy(sim));
    cr_expect_eq(lierne_mem_live(), 0);
}

/* Ghosts of a plan of swaps are in the combined buffer, after the owned rows. */
static void try_plan(lierne_plan *plan, int64_t ghosts_at) {
    const int64_t in[] = {10, 20, 30, 0, 0};
    int64_t out[5];
    assert_ok(lierne_plan_forward(plan, out, in, NULL));
    cr_expect(out[ghosts_at] == 30 && out[ghosts_at + 1] == 10);
}

Test(serialize, without_a_fault_it_becomes_a_plan) {
    const char *const texts[] = {graph, halo};
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    for (int i = 0; i < 2; i++) {
        lierne_plan *plan, *again;
        char *text;
        cr_assert_eq(read_text(&plan, sim, texts[i]), LIERNE_OK, "%s", lierne_last_error());
        try_plan(plan, i == 0 ? 0 : 3);
        assert_ok(lierne_plan_serialize(&text, plan));
        cr_assert_eq(read_text(&again, sim, text), LIERNE_OK, "%s", lierne_last_error());
        try_plan(again, i == 0 ? 0 : 3);
        lierne_text_destroy(text);
        cr_expect(lierne_plan_destroy(plan) == LIERNE_OK &&
                  lierne_plan_destroy(again) == LIERNE_OK);
    }
    expect_ok(lierne_sim_destroy(sim));
    cr_expect_eq(lierne_mem_live(), 0);
}

/* Whether a text becomes a plan although one allocation fails. */
static bool becomes_a_plan_without(const char *text, size_t allocation) {
    lierne_sim *sim;
    lierne_plan *plan;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    cr_assert(lierne_sim_get_context(sim, 0));
    lierne_mem_fail_at(allocation);
    lierne_status status = read_text(&plan, sim, text);
    lierne_mem_fail_at(0);
    cr_assert(status == LIERNE_OK || (status == LIERNE_ERR_NO_MEMORY && !plan), "%zu: %s: %s",
              allocation, lierne_status_name(status), lierne_last_error());
    assert_ok(lierne_plan_destroy(plan));
    assert_ok(lierne_sim_destroy(sim));
    cr_assert_eq(lierne_mem_live(), 0, "allocation %zu: a leak", allocation);
    return status == LIERNE_OK;
}

Test(serialize, without_memory_there_is_no_plan) {
    const char *const texts[] = {graph, halo};
    for (int i = 0; i < 2; i++) {
        size_t k = 1;
        while (k < 1000 && !becomes_a_plan_without(texts[i], k)) {
            k++;
        }
        cr_expect(k > 20 && k < 1000, "%zu allocations", k);
    }
}

/* The text with one of its values, which must occur once, replaced. */
static void change(char *to, size_t size, const char *text, const char *right, const char *wrong) {
    const char *at = strstr(text, right);
    cr_assert(at && !strstr(at + 1, right), "%s is there once", right);
    snprintf(to, size, "%.*s%s%s", (int)(at - text), text, wrong, at + strlen(right));
}

/* What messages take is bounded by the text too: rows, width and requests in flight multiply. */
Test(serialize, a_text_bounds_the_memory_of_its_plan) {
    static const char references[] =
        "{\"kind\": \"references\", \"dtype\": \"u8\", \"width\": 1000000, \"stride\": 0, "
        "\"algorithm\": \"direct\", \"accumulate\": false, \"combined\": false, \"keep_ghosts\": "
        "false, \"max_inflight\": 1, \"nowned\": 3000, \"root\": [[0,4],[0,1],[0,4]]}";
    char text[1024], longer[8192];
    lierne_sim *sim;
    lierne_plan *plan;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    cr_expect_eq(read_text(&plan, sim, references), LIERNE_OK, "%s", lierne_last_error());
    expect_ok(lierne_plan_destroy(plan));
    change(text, sizeof text, references, "direct", "all_gather");
    cr_expect_eq(read_text(&plan, sim, text), LIERNE_ERR_OVERFLOW, "all owned rows are gathered");
    change(text, sizeof text, references, "1000000", "10000000");
    change(longer, sizeof longer, text, "\"max_inflight\": 1", "\"max_inflight\": 64");
    cr_expect_eq(read_text(&plan, sim, longer), LIERNE_ERR_OVERFLOW);
    expect_says("max_inflight 64");
    size_t n = strlen(longer);
    memset(longer + n, ' ', 2000); /* 1920000000 bytes, and 1 MiB for each of the text */
    longer[n + 2000] = '\0';
    cr_expect_eq(read_text(&plan, sim, longer), LIERNE_OK, "%s", lierne_last_error());
    expect_ok(lierne_plan_destroy(plan));
    expect_ok(lierne_sim_destroy(sim));
    cr_expect_eq(lierne_mem_live(), 0);
}

/* Time and memory are in proportion to the text, not to the counts in it: rows that the text does
 * not mention cost nothing, even if no machine has memory for them. */
Test(serialize, a_huge_count_costs_nothing) {
    static const char references[] =
        "{\"kind\": \"references\", \"dtype\": \"u8\", \"width\": 3, \"stride\": 8, \"algorithm\": "
        "\"auto\",\n"
        " \"accumulate\": false, \"combined\": false, \"keep_ghosts\": false, \"max_inflight\": "
        "64,\n"
        " \"nowned\": 5, \"root\": [[0,4],[0,1],[0,4]]}";
    static const struct {
        const char *text, *right, *wrong;
    } cases[] = {{references, "\"nowned\": 5", "\"nowned\": 100000000000000000"},
                 {halo, "\"nlocal\": 3", "\"nlocal\": 100000000000000000"},
                 {graph, "\"nrows\": 5", "\"nrows\": 100000000000000000"}};
    lierne_sim *sim;
    assert_ok(lierne_sim_create(&sim, 1, NULL));
    for (int i = 0; i < 3; i++) {
        char text[1024], combined[1024], *written;
        lierne_plan *plan, *next;
        change(text, sizeof text, cases[i].text, cases[i].right, cases[i].wrong);
        cr_assert_eq(read_text(&plan, sim, text), LIERNE_OK, "%s", lierne_last_error());
        assert_ok(lierne_plan_serialize(&written, plan));
        cr_expect_lt(strlen(written), 1024);
        lierne_text_destroy(written);
        expect_ok(lierne_plan_create_transposed(&next, plan));
        expect_ok(lierne_plan_destroy(next));
        if (i == 0) {
            change(combined, sizeof combined, text, "\"combined\": false", "\"combined\": true");
            cr_expect_eq(read_text(&next, sim, combined), LIERNE_OK, "%s", lierne_last_error());
            expect_ok(lierne_plan_destroy(next));
        }
        if (i == 1) {
            expect_ok(lierne_plan_create_flattened(&next, plan, 0));
            expect_ok(lierne_plan_destroy(next));
        }
        expect_ok(lierne_plan_destroy(plan));
    }
    expect_ok(lierne_sim_destroy(sim));
    cr_expect_eq(lierne_mem_live(), 0);
}
