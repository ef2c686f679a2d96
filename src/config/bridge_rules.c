/* The rules of a bridge that join several values, a function each, in a table.
 *
 * A rule returns without a diagnostic where a value that it needs is missing or wrong: that value
 * has a diagnostic already. So all rules always run, and one error never hides another. A bridge
 * without errors is then given to the planner's own checks: what `check` calls valid can be
 * planned. */
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
                                  "a bridge needs dims tp and dp on both sides; add it with size 1",
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
            "cp of the source grid %s is %d, and the bridge has no placement for it",
            lierne_quote(bridge->src).text, cp);
    }
}

static void check_axes(lierne_reader *r, values *v, entry *bridge) {
    int axis = bridge->spec.sequence_axis;
    if (axis >= 0 && axis == bridge->spec.batch_axis) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_UNKNOWN, v->sequence,
                              "name another axis, or drop \"sequence\"",
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
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ELEMENTS, v->shape, "choose smaller sizes",
                              "the bytes of the tensor are more than %lld", (long long)INT64_MAX);
    }
}

static void add_rows_error(lierne_reader *r, const lierne_json_node *node, const char *message,
                           const char *hint) {
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SAMPLE_ROWS, node, hint, "%s", message);
}

static void check_sample_rows(lierne_reader *r, values *v, entry *bridge) {
    int b = bridge->spec.batch_axis;
    int64_t per = bridge->spec.rows_per_sample;
    if (v->row_order && !v->rows_per_sample) {
        add_rows_error(r, v->row_order, "row_order is given without rows_per_sample",
                       "add rows_per_sample, or drop row_order");
    }
    if (!v->rows_per_sample || bridge->spec.naxes < 2) {
        return;
    }
    if (bridge->spec.naxes > 2) {
        add_rows_error(r, v->rows_per_sample, "rows_per_sample is given, and the tensor has 3 axes",
                       "drop rows_per_sample, or let the tensor have 2 axes: rows and h");
        return;
    }
    if (strcmp(bridge->axes[0], "s") == 0 || strcmp(bridge->axes[1], "s") == 0) {
        add_rows_error(r, v->axes, "rows_per_sample is given, and s is an axis of the tensor",
                       "drop rows_per_sample, or let the axes be b and h");
    }
    if (v->sequence) {
        add_rows_error(r, v->sequence, "rows_per_sample and sequence are both given",
                       "drop sequence: it is the position inside the rows of a sample");
    }
    if (b >= 0 && per > 0 && bridge->shape[b] % per) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SAMPLE_ROWS, v->sizes[b],
                              "the batch axis counts rows: samples times rows_per_sample",
                              "%lld rows are not divisible by rows_per_sample %lld",
                              (long long)bridge->shape[b], (long long)per);
    }
}

static void check_owner(lierne_reader *r, values *v, entry *bridge) {
    bool partial = bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL;
    if (!partial && !v->sequence && !v->rows_per_sample) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_OWNER_SEQUENCE, v->owner,
                              "add \"sequence\" to the bridge",
                              "owner %s needs the sequence axis, and the bridge names none",
                              lierne_quote(lierne_json_string(v->owner)).text);
    }
    if (partial && bridge->spec.output == LIERNE_BRIDGE_OUTPUT_SHARDED &&
        (v->owner || !v->gradient)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_OUTPUT, v->output,
                              "let the output be whole, or choose another owner",
                              "output is sharded, and the owner of the gradient is partial");
    }
}

static void check_storage(lierne_reader *r, values *v, entry *bridge) {
    bool compact = bridge->spec.gradient_storage == LIERNE_STORAGE_COMPACT;
    int apart = v->planned.batch - v->planned.sequence;
    if (compact && v->owner && bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_STORAGE, v->storage,
                              "let storage be full, or choose another owner",
                              "storage is compact, and the owner of the gradient is partial");
    }
    if (compact && bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_ROWS &&
        v->planned.batch >= 0 && v->planned.sequence >= 0 && (apart > 1 || apart < -1)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_STORAGE, v->storage, "let storage be full",
                              "storage is compact with owner rows, and batch and sequence are not "
                              "neighbouring axes");
    }
}

static void check_row_owners(lierne_reader *r, values *v, entry *bridge) {
    int cp = size_of(bridge, 1, "cp");
    int64_t rows = 0;
    bool known =
        batch_of(v) && sequence_of(v) && lierne_mul_i64(batch_of(v), sequence_of(v), &rows);
    if (known && rows != v->rows->count) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, v->rows,
                              "give one cp coordinate for each row (b, s)",
                              "rows has %d entries, must have %lld", v->rows->count,
                              (long long)rows);
    }
    for (const lierne_json_node *n = lierne_json_first(v->rows); n && cp;
         n = lierne_json_next(r->doc, n)) {
        if (n->integer && n->value >= cp) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, n,
                                  "cp of the destination is the bound",
                                  "the owner of a row is %lld, must be 0 to %d",
                                  (long long)n->value, cp - 1);
        }
    }
}

static void check_rows(lierne_reader *r, values *v, entry *bridge) {
    bool wanted = bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_ROWS;
    if (wanted && v->rows) {
        check_row_owners(r, v, bridge);
    } else if (wanted) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, v->owner, "add \"rows\" to the gradient",
                              "owner is rows, and the gradient has no rows");
    } else if (v->rows && v->owner) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ROWS, v->rows,
                              "drop rows, or let the owner be rows",
                              "rows are given, and the owner is %s",
                              lierne_quote(lierne_json_string(v->owner)).text);
    }
}

static void check_chunks(lierne_reader *r, values *v, entry *bridge) {
    int64_t sequence = sequence_of(v);
    int cp = size_of(bridge, 1, "cp");
    if (sequence && cp && bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS &&
        sequence % cp) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_UNEVEN_CHUNKS,
                              v->planned.nodes[v->planned.sequence],
                              "choose a sequence that cp divides, if this is not meant",
                              "a sequence of %lld is not divisible by cp %d: chunks are uneven",
                              (long long)sequence, cp);
    }
}

static void check_side_counts(lierne_reader *r, const lierne_json_node *list, int64_t batch,
                              int dp) {
    int64_t sum = 0;
    if (dp && list->count != dp) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_COUNTS, list, "give one count for each dp rank",
                              "%s has %d counts, must have %d as dp has", lierne_label(list).text,
                              list->count, dp);
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
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_COUNTS, list, "change the counts or the batch",
                              "the counts add up to %s%lld, must be the batch of %lld",
                              fits ? "" : "more than ", (long long)sum, (long long)batch);
    }
}

static void check_counts(lierne_reader *r, values *v, entry *bridge) {
    for (int side = 0; side < 2; side++) {
        if (v->dp_counts[side]) {
            check_side_counts(r, v->dp_counts[side], batch_of(v), size_of(bridge, side, "dp"));
        }
    }
}

static void check_divisible(lierne_reader *r, values *v, entry *bridge) {
    int dp[] = {size_of(bridge, 0, "dp"), size_of(bridge, 1, "dp")};
    int64_t batch = batch_of(v);
    if (!bridge->spec.require_divisible) {
        return;
    }
    if (dp[0] && dp[1] && dp[0] % dp[1] && dp[1] % dp[0]) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_INDIVISIBLE, v->require_divisible,
                              "drop require_divisible: lierne takes any two sizes",
                              "dp is %d at the source and %d at the destination: neither divides "
                              "the other",
                              dp[0], dp[1]);
    }
    for (int side = 0; side < 2; side++) {
        if (dp[side] && batch % dp[side]) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_INDIVISIBLE,
                                  v->planned.nodes[v->planned.batch],
                                  "drop require_divisible, or choose another batch",
                                  "a batch of %lld is not divisible by dp %d of grid %s",
                                  (long long)batch, dp[side],
                                  lierne_quote(name_of(bridge, side)).text);
        }
    }
}

static void check_empty_dp_ranks(lierne_reader *r, values *v, entry *bridge) {
    int64_t batch = batch_of(v);
    for (int side = 0; side < 2; side++) {
        int dp = size_of(bridge, side, "dp");
        if (batch && batch < dp && !v->dp_counts[side]) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_EMPTY_DP_RANKS,
                                  v->planned.nodes[v->planned.batch],
                                  "choose a larger batch, or write counts to say that it is meant",
                                  "a batch of %lld leaves dp ranks of grid %s empty: dp is %d",
                                  (long long)batch, lierne_quote(name_of(bridge, side)).text, dp);
        }
    }
}

static void check_default_owner(lierne_reader *r, values *v, entry *bridge) {
    int cp = size_of(bridge, 1, "cp");
    if (!v->gradient && cp > 1) {
        lierne_diagnostic_add(
            r, LIERNE_DIAGNOSTIC_DEFAULT_OWNER, v->dst,
            "write \"gradient\": {\"owner\": \"partial\"}, or zigzag or contiguous "
            "as context parallelism shards the sequence",
            "cp of grid %s is %d, and the bridge does not say who owns a row's "
            "gradient: partial is taken",
            lierne_quote(name_of(bridge, 1)).text, cp);
    }
}

static void check_batch_axis(lierne_reader *r, values *v, entry *bridge) {
    const char *batch = bridge->axes[bridge->spec.batch_axis];
    for (int a = 0; a < bridge->spec.naxes; a++) {
        if (strcmp(bridge->axes[a], "b") == 0 && strcmp(batch, "b") != 0) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_BATCH_AXIS, v->batch, "let batch be b",
                                  "the batch is axis %s, and the tensor has an axis 'b'",
                                  lierne_quote(batch).text);
        }
    }
}

/* Where the sides have views, placements or counts of their own, something may move. */
static void check_same_layout(lierne_reader *r, values *v, entry *bridge) {
    bool apart = bridge->spec.src != bridge->spec.dst;
    for (int side = 0; side < 2; side++) {
        apart = apart || v->views[side] || v->dp_counts[side];
        for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
            apart = apart || v->placed[side][d];
        }
    }
    if (!apart) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SAME_LAYOUT, v->dst, "name another grid",
                              "source and destination are both grid %s: nothing moves",
                              lierne_quote(bridge->dst).text);
    }
}

/* What can be planned and is seldom meant. */
static void check_intent(lierne_reader *r, values *v, entry *bridge) {
    check_default_owner(r, v, bridge);
    check_batch_axis(r, v, bridge);
    check_same_layout(r, v, bridge);
}

/* Warns of a pair that Megatron-LM rejects or plans wrongly. */
static void compare_megatron(lierne_reader *r, values *v, const lierne_megatron_comparison *c) {
    const int shown =
        c->nmisaligned < LIERNE_MEGATRON_SHOWN ? c->nmisaligned : LIERNE_MEGATRON_SHOWN;
    lierne_text text = {0};
    if (*c->rejection) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_REJECTED, v->bridge, "",
                              "Megatron-LM's colocated bridge rejects this pair: %s", c->rejection);
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
                              "Megatron-LM would deliver another dp rank's samples to ranks %s",
                              text.data);
    }
    lierne_text_clear(&text);
}

/* Whether the planner takes the bridge; what it rejects has no rule of its own here. */
static bool check_plannable(lierne_reader *r, values *v, entry *bridge) {
    lierne_status status = lierne_bridge_check(&bridge->spec);
    if (!lierne_reader_ok(r, status) && !r->failed) {
        lierne_diagnostic_add(r, status, v->bridge, "", "%s", lierne_error_text());
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
                                  "use the direct algorithm", "%s", lierne_error_text());
        }
    } else if (lierne_reader_ok(r, lierne_megatron_compare(&comparison, &bridge->spec))) {
        compare_megatron(r, v, &comparison);
    }
}

void lierne_config_check_bridge(lierne_reader *r, values *v, entry *bridge, bool sound) {
    static void (*const rules[])(lierne_reader *, values *, entry *) = {
        check_dims,           check_source_cp,   check_axes,
        check_elements,       check_sample_rows, check_owner,
        check_storage,        check_rows,        lierne_config_check_cuts,
        check_chunks,         check_counts,      check_divisible,
        check_empty_dp_ranks,
    };
    int errors = r->config->errors;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        rules[i](r, v, bridge);
    }
    if (sound && errors == r->config->errors && bridge->spec.src && bridge->spec.dst) {
        check_pair(r, v, bridge);
        if (errors == r->config->errors) {
            check_intent(r, v, bridge);
        }
    }
}
