/* The rules of a bridge that join several values, a function each, in a table.
 *
 * Each rule looks after its own preconditions and stays silent where a value that it needs is
 * missing or wrong: that has its own finding. So all rules always run and one fault never hides
 * another. A bridge that is sound by then is shown to the builder's own checks, so that
 * what `check` calls valid can be planned. */
#include "config/read.h"
#include "plan/megatron/megatron.h"

#include <string.h>

typedef const lierne_config_bridge_nodes values;
typedef const lierne_config_bridge_entry entry;

/* Size of a dim of a side; 1 where the view has none of that name, 0 where the view is unknown. */
static int size_of(entry *bridge, int side, const char *name) {
    int size = lierne_grid_find_dim_size(lierne_config_side(bridge, side),
                                         lierne_config_side_view(bridge, side), name);
    return size > 0 ? size : 0;
}

static const char *name_of(entry *bridge, int side) {
    return side ? bridge->dst : bridge->src;
}

static int64_t batch_of(values *v) {
    return v->planned.batch >= 0 ? v->planned.sizes[v->planned.batch] : 0;
}

static int64_t sequence_of(values *v) {
    return v->planned.sequence >= 0 ? v->planned.sizes[v->planned.sequence] : 0;
}

static void check_dims(lierne_reader *r, values *v, entry *bridge) {
    static const char *const names[] = {"tp", "dp"};
    for (int i = 0; i < 4; i++) {
        int side = i / 2;
        const char *view = lierne_config_side_view(bridge, side);
        if (lierne_config_side(bridge, side) &&
            lierne_config_side_dim(bridge, side, names[i % 2]) < 0) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_DIM_MISSING,
                                  view   ? v->views[side]
                                  : side ? v->dst
                                         : v->src,
                                  "both sides of a bridge have tp and dp, also of size 1",
                                  "%s %s has no dim '%s'", view ? "view" : "grid",
                                  lierne_quote(view ? view : name_of(bridge, side)).text,
                                  names[i % 2]);
        }
    }
}

static void check_source_cp(lierne_reader *r, values *v, entry *bridge) {
    int cp = size_of(bridge, 0, "cp");
    if (cp > 1 && !v->placed[0][lierne_config_side_dim(bridge, 0, "cp")]) {
        lierne_diagnostic_add(
            r, LIERNE_DIAGNOSTIC_SOURCE_CP, v->src,
            "add \"placements\": {\"src\": {\"cp\": ...}} to the bridge",
            "cp of the source grid %s is %d, and no placement says how the tensor "
            "lies over it",
            lierne_quote(bridge->src).text, cp);
    }
}

static void check_axes(lierne_reader *r, values *v, entry *bridge) {
    int axis = bridge->spec.sequence_axis;
    if (axis >= 0 && axis == bridge->spec.batch_axis) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_UNKNOWN, v->sequence, "",
                              "batch and sequence are both axis '%s'", bridge->axes[axis]);
    }
}

static void check_elements(lierne_reader *r, values *v, entry *bridge) {
    int64_t bytes = (int64_t)lierne_dtype_size(bridge->spec.dtype);
    bool fits = true;
    for (int a = 0; a < bridge->spec.naxes; a++) {
        fits = fits && lierne_mul_i64(bytes, bridge->shape[a], &bytes);
    }
    if (!fits) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ELEMENTS, v->shape, "",
                              "the bytes of the tensor do not fit 64 bits");
    }
}

static void add_rows_fault(lierne_reader *r, const lierne_json_node *node, const char *message) {
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SAMPLE_ROWS, node, "", "%s", message);
}

static void check_sample_rows(lierne_reader *r, values *v, entry *bridge) {
    int b = bridge->spec.batch_axis;
    int64_t per = bridge->spec.rows_per_sample;
    if (v->row_order && !v->rows_per_sample) {
        add_rows_fault(r, v->row_order, "there is a row_order, and no rows_per_sample");
    }
    if (!v->rows_per_sample || bridge->spec.naxes < 2) {
        return;
    }
    if (bridge->spec.naxes > 2) {
        add_rows_fault(r, v->rows_per_sample, "a tensor of 3 axes has no rows_per_sample");
        return;
    }
    if (strcmp(bridge->axes[0], "s") == 0 || strcmp(bridge->axes[1], "s") == 0) {
        add_rows_fault(r, v->axes, "with rows_per_sample, s is inside the rows: no axis of it");
    }
    if (v->sequence) {
        add_rows_fault(r, v->sequence, "with rows_per_sample, the sequence is inside the rows");
    }
    if (b >= 0 && per > 0 && bridge->shape[b] % per) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SAMPLE_ROWS, v->sizes[b], "",
                              "%lld rows are no whole samples of %lld", (long long)bridge->shape[b],
                              (long long)per);
    }
}

static void check_owner(lierne_reader *r, values *v, entry *bridge) {
    bool partial = bridge->spec.gradient_owner == LIERNE_GRADIENT_PARTIAL;
    if (!partial && !v->sequence && !v->rows_per_sample) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_OWNER_SEQUENCE, v->owner,
                              "add \"sequence\" to the bridge",
                              "owner %s needs the sequence axis, and the bridge names none",
                              lierne_quote(lierne_json_string(v->owner)).text);
    }
    if (partial && bridge->spec.output == LIERNE_OUTPUT_SHARDED && (v->owner || !v->gradient)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_DELIVERY, v->deliver,
                              "deliver whole sequences, or name who owns the rows",
                              "own rows are to be delivered, and the gradient is partial");
    }
}

static void check_storage(lierne_reader *r, values *v, entry *bridge) {
    bool compact = bridge->spec.gradient_storage == LIERNE_COMPACT;
    int apart = v->planned.batch - v->planned.sequence;
    if (compact && v->owner && bridge->spec.gradient_owner == LIERNE_GRADIENT_PARTIAL) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_STORAGE, v->storage,
                              "store it full, or name who owns the rows",
                              "a partial gradient cannot be stored compact");
    }
    if (compact && bridge->spec.gradient_owner == LIERNE_GRADIENT_ROWS && v->planned.batch >= 0 &&
        v->planned.sequence >= 0 && (apart > 1 || apart < -1)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_STORAGE, v->storage, "store it full",
                              "rows are stored compact, and batch and sequence are not neighbours");
    }
}

static void check_row_owners(lierne_reader *r, values *v, entry *bridge) {
    int cp = size_of(bridge, 1, "cp");
    int64_t rows = 0;
    bool known =
        batch_of(v) && sequence_of(v) && lierne_mul_i64(batch_of(v), sequence_of(v), &rows);
    if (known && rows != v->rows->count) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, v->rows,
                              "one cp coordinate for each row (b, s)", "%d rows, must be %lld",
                              v->rows->count, (long long)rows);
    }
    for (const lierne_json_node *n = lierne_json_first(v->rows); n && cp;
         n = lierne_json_next(r->doc, n)) {
        if (n->integer && n->value >= cp) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, n, "",
                                  "owner is %lld, must be 0 to %d", (long long)n->value, cp - 1);
        }
    }
}

static void check_rows(lierne_reader *r, values *v, entry *bridge) {
    bool wanted = bridge->spec.gradient_owner == LIERNE_GRADIENT_ROWS;
    if (wanted && v->rows) {
        check_row_owners(r, v, bridge);
    } else if (wanted) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, v->owner, "add \"rows\" to the gradient",
                              "owner is rows, and there are none");
    } else if (v->rows && v->owner) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, v->rows,
                              "drop them, or let the owner be rows",
                              "rows are given, but the owner is %s",
                              lierne_quote(lierne_json_string(v->owner)).text);
    }
}

static void check_chunks(lierne_reader *r, values *v, entry *bridge) {
    int64_t sequence = sequence_of(v);
    int cp = size_of(bridge, 1, "cp");
    if (sequence && cp && bridge->spec.gradient_owner == LIERNE_GRADIENT_CONTIGUOUS &&
        sequence % cp) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_UNEVEN_CHUNKS,
                              v->planned.nodes[v->planned.sequence], "",
                              "a sequence of %lld is not divisible by cp %d: chunks are uneven",
                              (long long)sequence, cp);
    }
}

static void check_side_counts(lierne_reader *r, const lierne_json_node *list, int64_t batch,
                              int lanes) {
    int64_t sum = 0;
    if (lanes && list->count != lanes) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_COUNTS, list, "one count for each data lane",
                              "%d counts for %d lanes", list->count, lanes);
        return;
    }
    bool fits = true;
    for (const lierne_json_node *n = lierne_json_first(list); n; n = lierne_json_next(r->doc, n)) {
        if (!n->integer || n->value < 0) {
            return;
        }
        fits = fits && lierne_add_i64(sum, n->value, &sum);
    }
    if (batch && (!fits || sum != batch)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_COUNTS, list, "",
                              "the counts add up to %s%lld, must be the batch of %lld",
                              fits ? "" : "more than ", (long long)sum, (long long)batch);
    }
}

static void check_counts(lierne_reader *r, values *v, entry *bridge) {
    for (int side = 0; side < 2; side++) {
        if (v->lane_counts[side]) {
            check_side_counts(r, v->lane_counts[side], batch_of(v), size_of(bridge, side, "dp"));
        }
    }
}

static void check_divisible(lierne_reader *r, values *v, entry *bridge) {
    int lanes[] = {size_of(bridge, 0, "dp"), size_of(bridge, 1, "dp")};
    int64_t batch = batch_of(v);
    if (!bridge->spec.require_divisible) {
        return;
    }
    if (lanes[0] && lanes[1] && lanes[0] % lanes[1] && lanes[1] % lanes[0]) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_INDIVISIBLE, v->require_divisible,
                              "drop require_divisible: lierne serves any two sizes",
                              "dp is %d at the source and %d at the destination: neither divides "
                              "the other",
                              lanes[0], lanes[1]);
    }
    for (int side = 0; side < 2; side++) {
        if (lanes[side] && batch % lanes[side]) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_INDIVISIBLE,
                                  v->planned.nodes[v->planned.batch],
                                  "drop require_divisible, or choose another batch",
                                  "a batch of %lld is not divisible by dp %d of grid %s",
                                  (long long)batch, lanes[side],
                                  lierne_quote(name_of(bridge, side)).text);
        }
    }
}

static void check_lanes(lierne_reader *r, values *v, entry *bridge) {
    int64_t batch = batch_of(v);
    for (int side = 0; side < 2; side++) {
        int lanes = size_of(bridge, side, "dp");
        if (batch && batch < lanes && !v->lane_counts[side]) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_EMPTY_LANES,
                                  v->planned.nodes[v->planned.batch],
                                  "choose a larger batch, or write counts to say that it is meant",
                                  "a batch of %lld leaves lanes of grid %s empty: dp is %d",
                                  (long long)batch, lierne_quote(name_of(bridge, side)).text,
                                  lanes);
        }
    }
}

/* What Megatron-LM would do with the pair, where lierne does better. */
static void compare_megatron(lierne_reader *r, values *v, const lierne_megatron_comparison *c) {
    const int shown =
        c->nmisaligned < LIERNE_MEGATRON_SHOWN ? c->nmisaligned : LIERNE_MEGATRON_SHOWN;
    lierne_text text = {0};
    if (*c->rejection) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_REFUSED, v->bridge, "",
                              "Megatron-LM's colocated bridge refuses this pair: %s", c->rejection);
        return;
    }
    for (int i = 0; i < shown; i++) {
        lierne_text_add(&text, "%s%d", i ? ", " : "", c->misaligned[i]);
    }
    if (c->nmisaligned > shown) {
        lierne_text_add(&text, " and %d more", c->nmisaligned - shown);
    }
    r->failed |= text.failed;
    if (text.length) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_MISALIGNED, v->bridge, "",
                              "Megatron-LM would deliver another lane's samples to ranks %s",
                              text.data);
    }
    lierne_text_clear(&text);
}

/* Whether the builder takes the bridge; what it refuses has no rule of its own here. */
static bool check_plannable(lierne_reader *r, values *v, entry *bridge) {
    lierne_status status = lierne_bridge_check(&bridge->spec);
    if (!lierne_reader_ok(r, status) && !r->failed) {
        lierne_diagnostic_add(r, status, v->bridge, "", "%s", lierne_reason());
    }
    return status == LIERNE_OK;
}

static void check_pair(lierne_reader *r, values *v, entry *bridge) {
    lierne_megatron_comparison comparison;
    if (!check_plannable(r, v, bridge)) {
        return;
    }
    if (bridge->megatron.algorithm != 0) {
        lierne_status status = lierne_megatron_check(&bridge->megatron);
        if (!lierne_reader_ok(r, status) && !r->failed) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ALGORITHM, v->algorithm,
                                  "use the direct algorithm", "%s", lierne_reason());
        }
    } else if (lierne_reader_ok(r, lierne_megatron_compare(&comparison, &bridge->spec))) {
        compare_megatron(r, v, &comparison);
    }
}

void lierne_config_check_bridge(lierne_reader *r, values *v, entry *bridge, bool sound) {
    static void (*const rules[])(lierne_reader *, values *, entry *) = {
        check_dims,   check_source_cp, check_axes,  check_elements,           check_sample_rows,
        check_owner,  check_storage,   check_rows,  lierne_config_check_cuts, check_chunks,
        check_counts, check_divisible, check_lanes,
    };
    int errors = r->config->errors;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        rules[i](r, v, bridge);
    }
    if (sound && errors == r->config->errors && bridge->spec.src && bridge->spec.dst) {
        check_pair(r, v, bridge);
    }
}
