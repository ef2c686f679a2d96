/* packed.json, layouts and invalid: the token in each row of every rank's buffer, and descriptions
 * that are rejected, with the field at fault. */
#include "lierne/sim.h"
#include "packed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 3 };

/* Writes the tokens of a rank's boxes to their rows; -1 where none is. */
static void fill_rows(golden_case *c, const lierne_layout *layout, int rank, int64_t *rows,
                      int64_t n) {
    size_t count = 0;
    golden_expect_status(c, "lierne_layout_get_boxes",
                         lierne_layout_get_boxes(NULL, 0, &count, layout, rank), LIERNE_OK);
    lierne_box *boxes = golden_alloc((int64_t)count, sizeof *boxes);
    golden_expect_status(c, "lierne_layout_get_boxes",
                         lierne_layout_get_boxes(boxes, count, &count, layout, rank), LIERNE_OK);
    for (int64_t i = 0; i < n; i++) {
        rows[i] = -1;
    }
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < boxes[b].size[0]; i++) {
            int64_t row = boxes[b].local[0] + i;
            if (golden_expect(c, row >= 0 && row < n && rows[row] < 0, "rank %d: row %lld", rank,
                              (long long)row)) {
                rows[row] = boxes[b].start[0] + i;
            }
        }
    }
    free(boxes);
}

/* Rows of a full buffer that are not owned are not the layout's. */
static void keep_owned(const cJSON *expect, int64_t *rows, int64_t n) {
    int64_t nowned, at = 0;
    if (!golden_get(expect, "owned")) {
        return;
    }
    int64_t *owned = golden_read_ints(golden_get(expect, "owned"), &nowned);
    for (int64_t i = 0; i < n; i++) {
        while (at < nowned && owned[at] < i) {
            at++;
        }
        rows[i] = at < nowned && owned[at] == i ? rows[i] : -1;
    }
    free(owned);
}

static void expect_rank(golden_case *c, const lierne_layout *layout, int rank,
                        const cJSON *expect) {
    int64_t shape[2], n, stored, owned, tokens = 0;
    int64_t *wanted = golden_read_ints(golden_get(expect, "rows"), &n);
    golden_expect_status(c, "lierne_layout_get_shape", lierne_layout_get_shape(shape, layout, rank),
                         LIERNE_OK);
    golden_expect(c, shape[0] == n, "rank %d has %lld rows, expected %lld", rank,
                  (long long)shape[0], (long long)n);
    int64_t *rows = golden_alloc(n, sizeof *rows);
    fill_rows(c, layout, rank, rows, n);
    keep_owned(expect, wanted, n);
    for (int64_t i = 0; i < n; i++) {
        golden_expect(c, rows[i] == wanted[i], "rank %d: row %lld has token %lld, expected %lld",
                      rank, (long long)i, (long long)rows[i], (long long)wanted[i]);
        tokens += wanted[i] >= 0;
    }
    golden_expect_status(c, "lierne_layout_get_elements",
                         lierne_layout_get_elements(&stored, &owned, layout, rank), LIERNE_OK);
    golden_expect(c, owned == tokens * WIDTH && (n == 0 || stored == n * WIDTH),
                  "rank %d stores %lld and owns %lld elements", rank, (long long)stored,
                  (long long)owned);
    free(rows);
    free(wanted);
}

void golden_packed_layout(golden_case *c) {
    const cJSON *expect = golden_get(c->item, "expect");
    int world = (int)golden_int(c->item, "world_size", 0);
    golden_packed side;
    lierne_layout *layout = NULL;
    if (golden_packed_read(c, &side, golden_get(c->item, "side"), golden_get(c->item, "cu_seqlens"),
                           WIDTH, world)) {
        golden_expect_status(c, "lierne_layout_create", lierne_layout_create(&layout, &side.spec),
                             LIERNE_OK);
    }
    golden_packed_free(&side); /* a layout needs nothing of what it was made from */
    golden_expect(c, cJSON_GetArraySize(expect) == world, "%d ranks are listed",
                  cJSON_GetArraySize(expect));
    for (int r = 0; layout && r < world; r++) {
        expect_rank(c, layout, r, cJSON_GetArrayItem(expect, r));
    }
    lierne_layout_destroy(layout);
}

/* The status of a class; run: of a run, which is RANGE where an index is. */
static lierne_status status_of(golden_case *c, const char *class, bool run) {
    static const struct {
        const char *name;
        lierne_status status;
    } classes[] = {
        {"MISSING", LIERNE_ERR_INVALID},   {"RANGE", LIERNE_ERR_INVALID},
        {"ORDER", LIERNE_ERR_INVALID},     {"EXCLUSIVE", LIERNE_ERR_INVALID},
        {"OVERFLOW", LIERNE_ERR_OVERFLOW}, {"INDIVISIBLE", LIERNE_ERR_INDIVISIBLE},
        {"CAPACITY", LIERNE_ERR_CAPACITY}, {"OVERLAP", LIERNE_ERR_OVERLAP},
        {"COUNT", LIERNE_ERR_COUNT},
    };
    if (run && strcmp(class, "RANGE") == 0) {
        return LIERNE_ERR_INDEX_RANGE;
    }
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        if (strcmp(classes[i].name, class) == 0) {
            return classes[i].status;
        }
    }
    golden_expect(c, false, "the runner does not know the class '%s'", class);
    return LIERNE_OK;
}

/* An update beyond the capacity of a plan that begins without tokens. */
static lierne_status update(golden_case *c, const golden_packed *side) {
    const int64_t none[1] = {0}, shape[2] = {0, side->shape[1]};
    const lierne_segments no_segments = {.size = sizeof no_segments, .cu_seqlens = none};
    const cJSON *capacity = golden_get(c->item, "capacity");
    lierne_layout_spec layout_spec = side->spec;
    lierne_layout *layout = NULL;
    lierne_sim *sim = NULL;
    lierne_plan *plan = NULL;
    layout_spec.shape = shape;
    layout_spec.segments = &no_segments;
    golden_expect_status(c, "layout", lierne_layout_create(&layout, &layout_spec), LIERNE_OK);
    golden_expect_status(c, "world", lierne_sim_create(&sim, 64, NULL), LIERNE_OK);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = layout,
                                           .dst = layout,
                                           .max_segments = golden_int(capacity, "segments", 64),
                                           .max_rows = golden_int(capacity, "rows", 64)};
    golden_expect_status(c, "plan",
                         lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 0),
                                                         &spec),
                         LIERNE_OK);
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = &side->segments,
                                      .src = &side->packing,
                                      .dst = &side->packing};
    lierne_status status = lierne_plan_update_segments(plan, &u);
    char message[400];
    snprintf(message, sizeof message, "%s", lierne_last_error());
    golden_expect(c, strstr(message, golden_string(golden_get(c->item, "expect"), "field")) != NULL,
                  "'%s' does not name the field", message);
    lierne_plan_destroy(plan);
    lierne_sim_destroy(sim);
    lierne_layout_destroy(layout);
    return status;
}

void golden_packed_invalid(golden_case *c) {
    const cJSON *expect = golden_get(c->item, "expect");
    const char *what = golden_string(c->item, "what");
    golden_packed side;
    lierne_layout *layout = NULL;
    bool bridge = strcmp(what, "bridge") == 0;
    lierne_status wanted = status_of(c, golden_string(expect, "error"), bridge);
    if (bridge) {
        golden_packed_bridge_invalid(c, wanted);
        return;
    }
    if (golden_packed_read(c, &side, golden_get(c->item, "side"), golden_get(c->item, "cu_seqlens"),
                           1, 64)) {
        if (strcmp(what, "update") == 0) {
            golden_expect_status(c, "lierne_plan_update_segments", update(c, &side), wanted);
        } else {
            golden_expect_status(c, "lierne_layout_create",
                                 lierne_layout_create(&layout, &side.spec), wanted);
            golden_expect(c, strstr(lierne_last_error(), golden_string(expect, "field")) != NULL,
                          "'%s' does not name %s", lierne_last_error(),
                          golden_string(expect, "field"));
        }
    }
    lierne_layout_destroy(layout);
    golden_packed_free(&side);
}
