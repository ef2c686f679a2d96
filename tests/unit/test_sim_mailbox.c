/* The mailbox of a simulated rank: order, and that taking does not look at all that is in it. */
#include "backend/sim/sim_mailbox.h"
#include "base/base.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

static void put(lierne_sim_mailbox *box, int from, int match, size_t bytes) {
    lierne_sim_message *m;
    assert_ok(lierne_alloc(&m, 1, sizeof *m));
    m->from = from;
    m->match = match;
    m->bytes = bytes;
    assert_ok(lierne_sim_mailbox_put(box, m));
}

static void expect(lierne_sim_mailbox *box, int from, int match, size_t bytes) {
    lierne_sim_message *m = lierne_sim_mailbox_take(box, from, match);
    cr_assert(m && m->from == from && m->match == match);
    cr_assert_eq(m->bytes, bytes, "message %zu of rank %d in place of %zu", m->bytes, from, bytes);
    lierne_mem_free(m);
}

Test(sim_mailbox, messages_of_one_sender_and_match_keep_their_order) {
    enum { SENDERS = 50, MATCHES = 3, EACH = 4 };
    size_t before = lierne_mem_live();
    lierne_sim_mailbox box = {0};
    cr_assert_null(lierne_sim_mailbox_take(&box, 0, 0));
    for (size_t n = 0; n < EACH; n++) {
        for (int i = 0; i < SENDERS * MATCHES; i++) {
            put(&box, i / MATCHES, i % MATCHES, 100 + n);
        }
    }
    for (int i = SENDERS * MATCHES - 1; i >= 0; i--) {
        for (size_t n = 0; n < EACH - 1; n++) {
            expect(&box, i / MATCHES, i % MATCHES, 100 + n);
        }
        put(&box, i / MATCHES, i % MATCHES, 200);
        expect(&box, i / MATCHES, i % MATCHES, 100 + EACH - 1);
        cr_assert_null(lierne_sim_mailbox_take(&box, i / MATCHES, MATCHES));
    }
    expect(&box, 7, 1, 200);
    cr_assert_null(lierne_sim_mailbox_take(&box, 7, 1));
    lierne_sim_mailbox_destroy(&box);
    cr_assert_eq(lierne_mem_live(), before);
}

/* 200,000 messages, the last one first: looking at all of them would be 20,000,000,000 steps. */
Test(sim_mailbox, taking_does_not_look_at_the_messages_of_others, .timeout = 10) {
    enum { SENDERS = 200000 };
    lierne_sim_mailbox box = {0};
    for (int i = 0; i < SENDERS; i++) {
        put(&box, i, 5, (size_t)i);
    }
    size_t used = 0;
    for (size_t b = 0; b < box.nbuckets; b++) {
        used += box.buckets[b].first != NULL;
    }
    cr_expect_gt(used, SENDERS * 6 / 10);
    for (int i = SENDERS - 1; i >= 0; i--) {
        expect(&box, i, 5, (size_t)i);
    }
    cr_assert_eq(box.count, 0);
    lierne_sim_mailbox_destroy(&box);
}
