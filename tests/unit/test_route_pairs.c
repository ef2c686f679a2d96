/* The check of the routes of all ranks against each other: message k of a pair of ranks in a stage
 * is message k at the other end, wherever it stands among others. */
#include "base/base.h"
#include "route/route.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

enum { RANKS = 4, MANY = 100000 };

typedef struct fixture {
    lierne_route *routes[RANKS];
} fixture;

static void open(fixture *f, int stages) {
    lierne_stage *stage;
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_route_create(&f->routes[r], r, 100, 100));
        for (int s = 0; s < stages; s++) {
            assert_ok(lierne_route_add_stage(f->routes[r], &stage));
        }
    }
}

static void add(const fixture *f, int rank, int stage, bool sends, int peer, int64_t elements) {
    lierne_stage *s = &f->routes[rank]->stages.at[stage];
    lierne_messages *messages = sends ? &s->sends : &s->recvs;
    assert_ok(lierne_messages_put(messages, peer, sends ? LIERNE_BUFFER_IN : LIERNE_BUFFER_OUT,
                                  lierne_block_range(0, elements)));
}

/* Two messages each way between 0 and 2 among others, in another order at the other end. */
static void fill(const fixture *f) {
    add(f, 0, 0, true, 2, 5);
    add(f, 0, 0, true, 1, 4);
    add(f, 0, 0, true, 2, 6);
    add(f, 1, 0, false, 0, 4);
    add(f, 2, 0, false, 3, 7);
    add(f, 2, 0, false, 0, 5);
    add(f, 2, 0, false, 0, 6);
    add(f, 3, 0, true, 2, 7);
    add(f, 2, 1, true, 0, 8);
    add(f, 0, 1, false, 2, 8);
}

static void check(fixture *f, const char *wanted) {
    lierne_status status = lierne_routes_pair((const lierne_route *const *)f->routes, RANKS);
    cr_expect_eq(status, wanted ? LIERNE_ERR_INVALID : LIERNE_OK, "%s", lierne_last_error());
    cr_expect(!wanted || strstr(lierne_last_error(), wanted), "%s, expected %s",
              lierne_last_error(), wanted);
    for (int r = 0; r < RANKS; r++) {
        lierne_route_destroy(f->routes[r]);
    }
}

Test(route_pairs, messages_of_a_pair_match_in_order) {
    fixture f;
    size_t before = lierne_mem_live();
    open(&f, 2);
    fill(&f);
    check(&f, NULL);
    cr_expect_eq(lierne_mem_live(), before);
}

Test(route_pairs, every_difference_is_found) {
    fixture f;
    open(&f, 2), fill(&f);
    add(&f, 0, 0, true, 2, 3);
    check(&f, "stage 0: rank 0 sends rank 2 3 elements, but rank 2 expects 0");
    open(&f, 2), fill(&f);
    add(&f, 3, 1, false, 1, 9);
    check(&f, "stage 1: rank 1 sends rank 3 0 elements, but rank 3 expects 9");
    open(&f, 2), fill(&f);
    add(&f, 1, 0, true, 3, 2), add(&f, 3, 1, false, 1, 2); /* in another stage */
    check(&f, "stage 0: rank 1 sends rank 3 2 elements, but rank 3 expects 0");
    open(&f, 2), fill(&f);
    f.routes[2]->stages.at[0].recvs.at[1].elements = 6; /* the two swapped */
    f.routes[2]->stages.at[0].recvs.at[2].elements = 5;
    check(&f, "stage 0: rank 0 sends rank 2 5 elements, but rank 2 expects 6");
    open(&f, 1), add(&f, 2, 0, false, 3, 7);
    check(&f, "stage 0: rank 3 sends rank 2 0 elements, but rank 2 expects 7");
}

/* The time follows the number of messages: with each message compared with all it were minutes. */
Test(route_pairs, takes_as_long_as_there_are_messages) {
    fixture f;
    open(&f, 1);
    for (int i = 0; i < MANY; i++) {
        add(&f, 0, 0, true, 1 + i % 3, 1 + i % 7);
        add(&f, 1 + i % 3, 0, false, 0, 1 + i % 7);
    }
    clock_t start = clock();
    check(&f, NULL);
    cr_expect_lt((double)(clock() - start) / CLOCKS_PER_SEC, 2);
}
