/* The formula of the least maximum goes over all sets of ranks: what only the ranks of a set can
 * send, divided by their number. The largest of these is reached (Hall's theorem), and it shares
 * nothing with the flow that the library computes. */
#include "unit/holding.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

enum { LEAST_BYTES = 64 << 10 };

void holding_find(const lierne_layout *layout, const redistribute_case *c, unsigned *ranks) {
    for (int r = 0; r < c->world; r++) {
        lierne_box boxes[HOLDING_MOST];
        size_t n;
        assert_ok(lierne_layout_get_boxes(boxes, HOLDING_MOST, &n, layout, r));
        cr_assert_leq(n, HOLDING_MOST);
        for (size_t b = 0; b < n; b++) {
            int64_t at[LIERNE_MAX_AXES] = {0};
            for (int a = 0; a >= 0;) {
                int64_t element = 0;
                for (int x = 0; x < c->naxes; x++) {
                    element = element * c->shape[x] + boxes[b].start[x] + at[x];
                }
                ranks[element] |= 1u << r;
                for (a = c->naxes - 1; a >= 0 && ++at[a] == boxes[b].size[a]; a--) {
                    at[a] = 0;
                }
            }
        }
    }
}

int64_t holding_elements(const redistribute_case *c) {
    int64_t n = 1;
    for (int a = 0; a < c->naxes; a++) {
        n *= c->shape[a];
    }
    return n;
}

bool holding_has_partial(const redistribute_case *c) {
    const case_layout *l = &c->layouts[CASE_SRC];
    for (int d = 0; d < l->ndims; d++) {
        if (l->placements[d].kind == LIERNE_PLACEMENT_PARTIAL && l->sizes[d] > 1) {
            return true;
        }
    }
    return false;
}

static int bits(unsigned set) {
    return __builtin_popcount(set);
}

int64_t holding_most_sent(const unsigned *have, const unsigned *need, int64_t n, int world) {
    int64_t most = 0;
    for (unsigned set = 1; set < 1u << world; set++) {
        int64_t sum = 0, size = bits(set);
        for (int64_t e = 0; e < n; e++) {
            unsigned lack = need[e] & ~have[e];
            sum += lack && (have[e] & ~set) == 0;
            sum += lack && ((have[e] | lack) & ~set) == 0 ? bits(lack) - 1 : 0;
        }
        most = (sum + size - 1) / size > most ? (sum + size - 1) / size : most;
    }
    return most;
}

void holding_enlarge(bridge_case *c) {
    int64_t src = mesh_size(&c->src, "dp"), dst = mesh_size(&c->dst, "dp");
    int64_t bytes = c->batch * c->sequence * c->hidden * (int64_t)lierne_dtype_size(c->dtype);
    int64_t wanted = LEAST_BYTES * (src > dst ? src : dst);
    c->hidden *= 1 + wanted / (bytes > 0 ? bytes : wanted);
}
