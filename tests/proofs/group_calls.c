/* Group calls (src/backend/nccl/group_calls.c), for up to 5 messages of a rank of 4, of calls of 2
 * or 4 operations: each posting comes once, by ascending calls and otherwise as it was posted; its
 * call is that of its number among the messages with the same ends; no call has more operations
 * than it may. The number of a call does not overflow for 2^24 ranks and 2^32 messages each.
 *
 * cbmc: src/backend/nccl/group_calls.c --unwind 9 -DMOST=2
 * cbmc: src/backend/nccl/group_calls.c --unwind 9 -DMOST=4 */
#include "backend/nccl/group_calls.h"
#include "proofs/proofs.h"

#define RANKS    4
#define POSTINGS 5

/* In place of the radix sort of src/base, whose digits are too many for a proof. */
void lierne_sort_keyed(lierne_keyed *items, lierne_keyed *spare, size_t n, uint64_t most) {
    for (size_t i = 1; i < n; i++) {
        for (size_t k = i; k > 0 && items[k - 1].key > items[k].key; k--) {
            spare[0] = items[k];
            items[k] = items[k - 1];
            items[k - 1] = spare[0];
        }
    }
    for (size_t i = 0; i < n; i++) {
        assert(items[i].key <= most);
    }
}

/* How many postings before this one have its ends. */
static int64_t index_of(const lierne_posting *at, size_t i) {
    int64_t before = 0;
    for (size_t k = 0; k < i; k++) {
        before += at[k].peer == at[i].peer && at[k].receives == at[i].receives;
    }
    return before;
}

static void prove_cut(void) {
    static lierne_posting postings[POSTINGS];
    static int64_t counts[2 * RANKS];
    static lierne_keyed order[POSTINGS], spare[POSTINGS];
    int rank = any_int(0, RANKS - 1), seen = 0, operations = 0;
    lierne_group_cutter cutter = {rank, RANKS, counts, order, spare};
    for (int i = 0; i < POSTINGS; i++) {
        postings[i].peer = any_int(0, RANKS - 1);
        postings[i].receives = nondet_bool();
    }
    lierne_group_cut(&cutter, postings, POSTINGS, MOST);
    for (int i = 0; i < POSTINGS; i++) {
        int64_t at = order[i].value;
        assert(0 <= at && at < POSTINGS && !(seen >> at & 1));
        seen |= 1 << at;
        int src = postings[at].receives ? postings[at].peer : rank;
        int dst = postings[at].receives ? rank : postings[at].peer;
        int64_t key = ((dst - src) % RANKS + RANKS) % RANKS;
        int64_t call = (index_of(postings, (size_t)at) * RANKS + key) / (MOST / 2);
        assert(order[i].key == (uint64_t)call);
        bool same = i > 0 && order[i - 1].key == order[i].key;
        assert(i == 0 || order[i - 1].key < order[i].key ||
               (same && order[i - 1].value < order[i].value));
        operations = same ? operations + 1 : 1;
        assert(operations <= MOST);
    }
}

static void prove_bounds(void) {
    int world = any_int(1, 1 << 24), src = any_int(0, world - 1), dst = any_int(0, world - 1);
    int64_t index = any_int64(0, (int64_t)1 << 32);
    assert(lierne_group_call_of(src, dst, index, world, 2) >= 0);
}

int main(void) {
    if (nondet_bool()) {
        prove_cut();
    } else {
        prove_bounds();
    }
}
