/* lierne place: what it prints. Keys of the JSON are those of lierne plan where it has them. */
#include "advise.h"

#include <inttypes.h>
#include <string.h>

static const char *const directions[2] = {"forward", "adjoint"};

static const char *routing_of(const advise_order *order) {
    return order->balanced ? "balanced" : "direct";
}

static void print_order(const advice *a, const advise_order *order) {
    for (int d = 0; d < a->ndims; d++) {
        fputs(d ? "," : "", stdout);
        tool_print_text(stdout, lierne_grid_get_dim_name(a->grid, a->view, order->dims[d]));
    }
    printf("\n");
}

static void print_saved(const char *what, int64_t saved) {
    char text[TOOL_BYTES];
    printf("  saves %s: %s%s (%" PRId64 " bytes)\n", what, saved < 0 ? "-" : "",
           tool_bytes(text, saved < 0 ? -saved : saved), saved);
}

static void print_text(const advice *a, const advise_order *order) {
    char text[TOOL_BYTES];
    if (order != &a->today && memcmp(order->dims, a->today.dims, sizeof order->dims) == 0) {
        printf("that of today\n");
        return;
    }
    print_order(a, order);
    printf("  routing: %s\n", routing_of(order));
    for (int d = 0; d < 2; d++) {
        printf("  %s between ranks: %s (%" PRId64 " bytes)\n", directions[d],
               tool_bytes(text, order->bytes[d]), order->bytes[d]);
        if (a->nodes) {
            printf("  %s between nodes: %s (%" PRId64 " bytes)\n", directions[d],
                   tool_bytes(text, order->between[d]), order->between[d]);
        }
    }
    if (order == &a->today) {
        return;
    }
    print_saved("between ranks", advise_bytes(&a->today) - advise_bytes(order));
    if (a->nodes) {
        print_saved("between nodes", advise_between(&a->today) - advise_between(order));
    }
}

void advise_print_text(const advice *a) {
    const char *side = a->dst ? "destination" : "source";
    char text[TOOL_BYTES];
    printf("order of the %s's dims today, fastest first: ", side);
    print_text(a, &a->today);
    printf("best of %d order%s: ", a->orders, a->orders == 1 ? "" : "s");
    print_text(a, &a->best);
    if (a->nodes) {
        printf("fewest bytes between nodes: ");
        print_text(a, &a->nearest);
    }
    if (a->position) {
        printf("no order of the %s's ranks saves more than %s (%" PRId64 " bytes) between ranks\n",
               side, tool_bytes(text, a->bound), a->bound);
    }
}

static void print_json(const advice *a, const char *key, const advise_order *order) {
    printf(",\"%s\":{\"order\":[", key);
    for (int d = 0; d < a->ndims; d++) {
        fputs(d ? "," : "", stdout);
        tool_print_string(stdout, lierne_grid_get_dim_name(a->grid, a->view, order->dims[d]));
    }
    printf("],\"routing\":\"%s\"", routing_of(order));
    for (int d = 0; d < 2; d++) {
        printf(",\"%s\":{\"bytes\":%" PRId64, directions[d], order->bytes[d]);
        if (a->nodes) {
            printf(",\"between_nodes_bytes\":%" PRId64, order->between[d]);
        }
        printf("}");
    }
    printf(",\"saved_bytes\":%" PRId64, advise_bytes(&a->today) - advise_bytes(order));
    if (a->nodes) {
        printf(",\"saved_between_nodes_bytes\":%" PRId64,
               advise_between(&a->today) - advise_between(order));
    }
    printf("}");
}

void advise_print_json(const advice *a) {
    printf("{\"bridge\":");
    tool_print_string(stdout, a->bridge->name);
    printf(",\"side\":\"%s\",\"orders\":%d", a->dst ? "dst" : "src", a->orders);
    print_json(a, "today", &a->today);
    print_json(a, "best", &a->best);
    if (a->nodes) {
        print_json(a, "fewest_between_nodes", &a->nearest);
    }
    if (a->position) {
        printf(",\"bound_saved_bytes\":%" PRId64 ",\"assignment\":", a->bound);
        tool_print_ints(stdout, a->position, lierne_grid_get_size(a->grid));
    }
    printf("}\n");
}
