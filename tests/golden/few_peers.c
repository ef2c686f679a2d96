/* packed.json, few_peers: where messages of n ranks stop over. Not all pairs are listed. */
#include "golden.h"

#include "route/relay.h"

#include <stdlib.h>

/* null: they exchange directly. */
static void check_pair(golden_case *c, const lierne_square *s, const cJSON *pair) {
    int from = (int)golden_to_int(cJSON_GetArrayItem(pair, 0), -1);
    int to = (int)golden_to_int(cJSON_GetArrayItem(pair, 1), -1);
    int wanted = (int)golden_to_int(cJSON_GetArrayItem(pair, 2), -1);
    int over = lierne_square_stopover(s, from, to);
    golden_expect(c, over == wanted, "from %d to %d over %d, expected %d", from, to, over, wanted);
}

void golden_few_peers(golden_case *c) {
    int n = (int)golden_int(c->item, "n", 0);
    const cJSON *expect = golden_get(c->item, "expect"), *pair;
    int *ranks = golden_alloc(n, sizeof *ranks);
    for (int i = 0; i < n; i++) {
        ranks[i] = i;
    }
    const lierne_square s = lierne_square_of(ranks, n);
    golden_expect(c, s.columns == golden_int(expect, "columns", -1), "%d columns", s.columns);
    golden_expect(c, s.rows == golden_int(expect, "rows", -1), "%d rows", s.rows);
    golden_expect(c, lierne_square_peers(&s) == golden_int(expect, "most_peers", -1), "%d peers",
                  lierne_square_peers(&s));
    cJSON_ArrayForEach(pair, golden_get(expect, "via")) {
        check_pair(c, &s, pair);
    }
    free(ranks);
}
