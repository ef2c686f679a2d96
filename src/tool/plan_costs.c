/* What the two directions of a bridge cost: the part of lierne plan that most readers want, in a
 * form that fits 80 columns whatever is in it. */
#include "plan.h"

#include <inttypes.h>

enum { CELL = 64, BOTH = 2 };

void plan_print_row(const char *name, const char *forward, const char *adjoint) {
    printf("  %-27s %24s %24s\n", name, forward, adjoint);
}

/* Bytes, with their bound behind them: "4 MiB of 4 MiB". */
void plan_print_bytes(const char *name, const int64_t bytes[BOTH], const int64_t *bounds) {
    char cells[BOTH][CELL], one[TOOL_BYTES], bound[TOOL_BYTES];
    for (int d = 0; d < BOTH; d++) {
        snprintf(cells[d], CELL, "%s%s%s%s", tool_bytes(one, bytes[d]), bounds ? " (" : "",
                 bounds ? tool_bytes(bound, bounds[d]) : "", bounds ? ")" : "");
    }
    plan_print_row(name, cells[0], cells[1]);
}

static void print_numbers(const char *name, int64_t forward, int64_t adjoint) {
    char cells[BOTH][CELL];
    snprintf(cells[0], CELL, "%" PRId64, forward);
    snprintf(cells[1], CELL, "%" PRId64, adjoint);
    plan_print_row(name, cells[0], cells[1]);
}

/* Which rank moves most; none where nothing is moved. */
static void print_rank(const char *name, const int64_t bytes[BOTH], const int ranks[BOTH]) {
    char cells[BOTH][CELL];
    for (int d = 0; d < BOTH; d++) {
        snprintf(cells[d], CELL, bytes[d] ? "%d" : "none", ranks[d]);
    }
    plan_print_row(name, cells[0], cells[1]);
}

static void print_all_ranks(const plan_cost *f, const plan_cost *a, bool bounds) {
    const int64_t moved[] = {f->received_bytes, a->received_bytes};
    const int64_t least[] = {f->min_bytes, a->min_bytes};
    const int64_t received[] = {f->max_rank_bytes, a->max_rank_bytes};
    const int64_t sent[] = {f->max_rank_sent, a->max_rank_sent};
    const int64_t bound_received[] = {f->bound_rank_bytes, a->bound_rank_bytes};
    const int64_t bound_sent[] = {f->bound_rank_sent, a->bound_rank_sent};
    plan_print_bytes("received by all ranks", moved, least);
    plan_print_bytes("most received by a rank", received, bounds ? bound_received : NULL);
    print_rank("  rank", received, (const int[]){f->receiver, a->receiver});
    plan_print_bytes("most sent by a rank", sent, bounds ? bound_sent : NULL);
    print_rank("  rank", sent, (const int[]){f->sender, a->sender});
}

static void print_one_rank(const plan_cost *f, const plan_cost *a) {
    const int64_t received[] = {f->received_bytes, a->received_bytes};
    const int64_t least[] = {f->min_bytes, a->min_bytes};
    const int64_t sent[] = {f->max_rank_sent, a->max_rank_sent};
    plan_print_bytes("received", received, least);
    plan_print_bytes("sent", sent, NULL);
}

/* What AUTO compared, where it did. */
static void print_times(const char *name, int64_t forward, int64_t adjoint) {
    char cells[BOTH][CELL];
    const int64_t ns[BOTH] = {forward, adjoint};
    for (int d = 0; d < BOTH; d++) {
        snprintf(cells[d], CELL, ns[d] ? "%.1f us" : "-", (double)ns[d] / 1e3);
    }
    if (forward || adjoint) {
        plan_print_row(name, cells[0], cells[1]);
    }
}

void plan_print_costs(const plan_summary *summary, bool bounds) {
    const plan_cost *f = &summary->cost[LIERNE_DIRECTION_FORWARD];
    const plan_cost *a = &summary->cost[LIERNE_DIRECTION_ADJOINT];
    plan_print_row("bytes (bound)", "forward", "adjoint");
    if (summary->only < 0) {
        print_all_ranks(f, a, bounds);
    } else {
        print_one_rank(f, a);
    }
    print_times("time by the links, direct", f->direct_ns, a->direct_ns);
    print_times("  balanced", f->balanced_ns, a->balanced_ns);
    print_numbers(summary->only < 0 ? "messages" : "messages received", f->messages, a->messages);
    print_numbers("stages", f->stages, a->stages);
    if (f->most_peers > 0 || a->most_peers > 0) {
        print_numbers("peers of a rank, at most", f->most_peers, a->most_peers);
        plan_print_bytes("received and sent on",
                         (const int64_t[]){f->forwarded_bytes, a->forwarded_bytes}, NULL);
    }
}
