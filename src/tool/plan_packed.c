/* lierne plan of a packed bridge: an example microbatch. What a reader wants to know of it is how
 * many rows each rank has, gets and gives away, and how much of it is padding. Of a redistribution,
 * how large each rank's buffers are, and which windows they have. */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_RANKS = 64 };

typedef struct packed_rank {
    int64_t rows[2]; /* of its buffers, padding included */
    int64_t sent[2]; /* bytes, by direction */
    int64_t received[2];
} packed_rank;

typedef struct packed_plan_summary {
    plan_summary base;
    const tool_packed *packed;
    packed_rank *ranks;
} packed_plan_summary;

static lierne_status count_rank(packed_plan_summary *s, const lierne_plan *plan, int rank) {
    packed_rank *r = &s->ranks[rank];
    int64_t shape[LIERNE_MAX_AXES] = {0};
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        lierne_report report = {.size = sizeof report};
        lierne_status status = lierne_layout_get_shape(shape, s->packed->layouts[d], rank);
        r->rows[d] = shape[packed_axis(s->packed)];
        if (s->packed->redistribution) {
            status = lierne_layout_get_elements(&r->rows[d], NULL, s->packed->layouts[d], rank);
        }
        if (status == LIERNE_OK) {
            status = lierne_plan_get_report(&report, plan, (lierne_direction)d);
        }
        if (status != LIERNE_OK) {
            return status;
        }
        r->sent[d] = report.sent_bytes;
        r->received[d] = report.received_bytes;
    }
    return LIERNE_OK;
}

static int plan_ranks(packed_plan_summary *s, lierne_sim *sim, char **argv) {
    lierne_status status = LIERNE_OK;
    int world = s->base.bridge->world;
    for (int rank = 0; rank < world && status == LIERNE_OK; rank++) {
        lierne_plan *plan;
        tool_progress(argv, "planning", rank, world);
        status = packed_plan(&plan, lierne_sim_get_context(sim, rank), s->packed);
        for (int d = LIERNE_DIRECTION_FORWARD; status == LIERNE_OK && d <= LIERNE_DIRECTION_ADJOINT;
             d++) {
            status = plan_add_cost(&s->base, plan, rank, (lierne_direction)d);
        }
        if (status == LIERNE_OK) {
            status = count_rank(s, plan, rank);
        }
        if (status != LIERNE_OK) {
            tool_failed(argv);
        }
        lierne_plan_destroy(plan);
    }
    tool_progress_end();
    return status == LIERNE_OK ? TOOL_VALID : TOOL_INVALID;
}

static int64_t delivered_tokens(const tool_packed *packed) {
    int64_t n = 0;
    for (int64_t t = 0; t < packed_tokens(packed, 1); t++) {
        n += packed->rows[t] >= 0;
    }
    return n;
}

static void print_halo(const packed_plan_summary *s, const lierne_layout_spec *spec) {
    static const char *const boundaries[] = {"none",   "zero",      "keep",     "periodic",
                                             "mirror", "symmetric", "replicate"};
    const tool_bridge *bridge = s->base.bridge;
    for (int i = 0; i < spec->nhalos; i++) {
        const lierne_dense_halo *h = &spec->halos[i];
        printf("  %-10s ", i ? "" : "halo");
        tool_print_text(stdout,
                        lierne_config_get_bridge_axis(bridge->config, bridge->name, h->axis));
        printf(" %" PRId64 " below, %" PRId64 " above, %s", h->lo, h->hi, boundaries[h->boundary]);
        if (h->stride > 0) {
            printf(", %" PRId64 " outputs, stride %" PRId64, h->outputs, h->stride);
        }
        if (h->nsegments > 0) {
            printf(", %" PRId64 " document%s", h->nsegments, h->nsegments == 1 ? "" : "s");
        }
        printf("\n");
    }
    if (spec->nhalos > 0) {
        printf("  %-10s %s, %s\n", "", spec->stencil == LIERNE_STENCIL_STAR ? "star" : "box",
               spec->halo_storage == LIERNE_HALO_STORAGE_MARGINS ? "margins alone" : "padded");
    }
}

static void print_shape(const packed_plan_summary *s) {
    const tool_bridge *bridge = s->base.bridge;
    const lierne_layout_spec *spec = s->packed->given[0];
    printf("  %-10s ", "tensor");
    for (int a = 0; a < spec->naxes; a++) {
        tool_print_text(stdout, lierne_config_get_bridge_axis(bridge->config, bridge->name, a));
        printf(" %" PRId64 "%s", spec->shape[a], a + 1 < spec->naxes ? ", " : "");
    }
    printf(" of %s\n", lierne_dtype_name(spec->dtype));
}

static void print_side(const packed_plan_summary *s, int side) {
    const tool_bridge *bridge = s->base.bridge;
    const lierne_layout_spec *spec = s->packed->given[side];
    const char *name = side ? lierne_config_get_bridge_dst(bridge->config, bridge->name)
                            : lierne_config_get_bridge_src(bridge->config, bridge->name);
    bool images = side == 0 && s->packed->images;
    plan_print_grid(name, spec->grid, spec->view);
    if (s->packed->redistribution) {
        print_halo(s, spec);
        return;
    }
    int64_t tokens = packed_tokens(s->packed, side), padded = packed_padded_rows(s->packed, side);
    printf("  %-10s %" PRId64 " %s of %" PRId64 " %s", "", spec->segments->nsegments,
           images ? "images" : "segments", tokens, images ? "rows" : "tokens");
    if (padded > tokens) {
        printf(", padded to %" PRId64 " rows", padded);
    }
    printf("\n");
}

static void print_moved(int64_t sent, int64_t received) {
    char bytes[TOOL_BYTES];
    printf(" %12s", tool_bytes(bytes, sent));
    printf(" %12s", tool_bytes(bytes, received));
}

static void print_ranks(const packed_plan_summary *s) {
    int world = s->base.bridge->world;
    int end = s->base.all || world <= MOST_RANKS ? world : MOST_RANKS;
    printf("\n%s%s, and bytes that go to and come from others%s\n", tool_paint(stdout, TOOL_HEAD),
           s->packed->redistribution ? "Elements of each rank's buffers"
                                     : "Rows of each rank with padding",
           tool_paint(stdout, TOOL_PLAIN));
    printf("%6s %9s %11s %12s %12s %12s %12s\n", "rank", "source", "destination", "sent",
           "received", "adjoint sent", "received");
    for (int r = 0; r < end; r++) {
        const packed_rank *at = &s->ranks[r];
        printf("%6d %9" PRId64 " %11" PRId64, r, at->rows[0], at->rows[1]);
        print_moved(at->sent[0], at->received[0]);
        print_moved(at->sent[1], at->received[1]);
        printf("\n");
    }
    if (end < world) {
        printf("   ... %d more (--all)\n", world - end);
    }
}

static void print_text(const packed_plan_summary *s) {
    const tool_packed *packed = s->packed;
    printf("%s ", packed_word(packed));
    tool_print_text(stdout, s->base.bridge->name);
    printf(", world of %d rank%s\n", s->base.bridge->world, s->base.bridge->world == 1 ? "" : "s");
    print_side(s, 0);
    print_side(s, 1);
    if (packed->redistribution) {
        print_shape(s);
    } else {
        printf("  %-10s %" PRId64 " element%s of %s in a row\n", "tensor", packed_hidden(packed),
               packed_hidden(packed) == 1 ? "" : "s", lierne_dtype_name(packed->specs[0].dtype));
    }
    if (packed->images) {
        printf("  %-10s %" PRId64 " bring %" PRId64 " of %" PRId64 " tokens their rows\n", "runs",
               packed->images->nruns, delivered_tokens(packed), packed_tokens(packed, 1));
    }
    printf("\n%sOne execution, all ranks together%s\n", tool_paint(stdout, TOOL_HEAD),
           tool_paint(stdout, TOOL_PLAIN));
    plan_print_costs(&s->base, false);
    print_ranks(s);
}

static void print_list(const packed_plan_summary *s, const char *key, size_t offset, int d) {
    printf(",\"%s\":[", key);
    for (int r = 0; r < s->base.bridge->world; r++) {
        const int64_t *numbers = (const int64_t *)((const char *)&s->ranks[r] + offset);
        printf("%s%" PRId64, r ? "," : "", numbers[d]);
    }
    printf("]");
}

/* What the sides hold. */
static void print_sides_json(const packed_plan_summary *s) {
    const tool_packed *packed = s->packed;
    for (int side = 0; side < 2; side++) {
        if (packed->redistribution) {
            printf(",\"%s\":{\"halos\":%d", side ? "dst" : "src", packed->given[side]->nhalos);
            print_list(s, "elements", offsetof(packed_rank, rows), side);
            printf("}");
            continue;
        }
        printf(",\"%s\":{\"segments\":%" PRId64 ",\"tokens\":%" PRId64 ",\"padded_rows\":%" PRId64,
               side ? "dst" : "src", packed->given[side]->segments->nsegments,
               packed_tokens(packed, side), packed_padded_rows(packed, side));
        print_list(s, "rows", offsetof(packed_rank, rows), side);
        printf("}");
    }
}

static void print_json(const packed_plan_summary *s) {
    const tool_packed *packed = s->packed;
    printf("{\"bridge\":");
    tool_print_string(stdout, s->base.bridge->name);
    printf(",\"world\":%d,\"packed\":%s", s->base.bridge->world,
           packed->redistribution ? "false" : "true");
    print_sides_json(s);
    if (!packed->redistribution) {
        printf(",\"delivered_tokens\":%" PRId64, delivered_tokens(packed));
    }
    for (int d = LIERNE_DIRECTION_FORWARD; d <= LIERNE_DIRECTION_ADJOINT; d++) {
        const plan_cost *cost = &s->base.cost[d];
        printf(",\"%s\":{\"bytes\":%" PRId64 ",\"max_rank_bytes\":%" PRId64
               ",\"min_bytes\":%" PRId64 ",\"messages\":%" PRId64
               ",\"max_rank_sent_bytes\":%" PRId64 ",\"stages\":%" PRId64 ",\"most_peers\":%" PRId64
               ",\"forwarded_bytes\":%" PRId64,
               d ? "adjoint" : "forward", cost->received_bytes, cost->max_rank_bytes,
               cost->min_bytes, cost->messages, cost->max_rank_sent, cost->stages, cost->most_peers,
               cost->forwarded_bytes);
        print_list(s, "sent_bytes", offsetof(packed_rank, sent), d);
        print_list(s, "received_bytes", offsetof(packed_rank, received), d);
        printf("}");
    }
    printf("}\n");
}

int plan_print_packed(tool_bridge *bridge, bool all, char **argv) {
    packed_plan_summary s = {.base = {.bridge = bridge, .only = -1, .all = all},
                             .packed = bridge->packed};
    int status = tool_bridge_open_packed(bridge, 0, argv);
    if (status >= 0) {
        return status;
    }
    lierne_sim *sim = tool_bridge_sim(bridge, argv);
    s.ranks = calloc((size_t)bridge->world, sizeof *s.ranks);
    status = TOOL_INVALID;
    if (sim && s.ranks) {
        status = plan_ranks(&s, sim, argv);
    } else if (sim) {
        status = tool_usage(argv, "no memory for %d ranks", bridge->world);
    }
    lierne_sim_destroy(sim);
    if (status == TOOL_VALID) {
        (bridge->json ? print_json : print_text)(&s);
    }
    free(s.ranks);
    return status;
}
