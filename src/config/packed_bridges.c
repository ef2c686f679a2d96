/* Bridges of packed sequences: an example microbatch, from its values in the file to layouts.
 *
 * What must be true of segments, packings and runs is checked by the calls that make layouts and
 * plans, so that a file and a program are told the same. Their messages begin with the field that
 * is wrong ("lead[3] is ..."), and its place in the file is found by it. */
#include "config/packed_sides.h"
#include "layout/packed.h"
#include "plan/redistribute/redistribute_check.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const char *const run_fields[] = {"image", "row", "segment", "position", "length"};

typedef struct packed_bridge {
    lierne_config_packed_entry *entry;
    const lierne_json_node *node, *tensor, *runs, *partial;
    lierne_config_packed_side sides[2];
    lierne_config_packed_axes axes;
    int64_t hidden;
    lierne_dtype dtype;
} packed_bridge;

/* --- values ------------------------------------------------------------------------------- */

static void read_axes(lierne_reader *r, const lierne_json_node *axes, packed_bridge *b) {
    static const char *const words[] = {"s", "h"};
    int word, seen = 0;
    for (const lierne_json_node *n = lierne_json_first(axes); n; n = lierne_json_next(r->doc, n)) {
        if (b->axes.count < COUNT(b->axes.names) &&
            lierne_config_word(r, n, words, COUNT(words), &word)) {
            b->axes.names[b->axes.count++] = words[word];
            seen |= 1 << word;
        }
    }
    if (axes->count > COUNT(words) || axes->count != b->axes.count || !(seen & 1) ||
        seen != (1 << axes->count) - 1) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PACKED, axes,
                              "write [\"s\", \"h\"], [\"h\", \"s\"] or [\"s\"]",
                              "the axes of a packed tensor must be s and, if there is one, h");
        b->axes.count = 0;
    }
}

static void read_tensor(lierne_reader *r, packed_bridge *b) {
    enum { AXES, SHAPE, DTYPE, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [AXES] = {"axes", LIERNE_JSON_ARRAY, true},
        [SHAPE] = {"shape", LIERNE_JSON_OBJECT, false},
        [DTYPE] = {"dtype", LIERNE_JSON_STRING, true},
    };
    static const lierne_config_key shape_keys[] = {{"h", LIERNE_JSON_NUMBER, false}};
    const lierne_json_node *found[KEYS], *size[1] = {NULL};
    if (!lierne_config_object(r, b->tensor, keys, KEYS, found)) {
        return;
    }
    if (found[AXES]) {
        read_axes(r, found[AXES], b);
    }
    if (found[SHAPE] && lierne_config_object(r, found[SHAPE], shape_keys, 1, size)) {
        lierne_config_integer(r, size[0], 1, INT64_MAX, &b->hidden);
    }
    if (b->axes.count > 0 && (b->axes.count == 2) != (size[0] != NULL)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_SIZE, b->tensor,
                              "the size of s follows from the segments, that of h is in the shape",
                              "axis 'h' has %s", size[0] ? "a size, and is no axis" : "no size");
        b->axes.count = 0;
    }
    lierne_config_dtype(r, found[DTYPE], &b->dtype);
}

static int packed_axis(const packed_bridge *b) {
    return b->axes.count == 2 && b->axes.names[0][0] == 'h' ? 1 : 0;
}

static void read_partial(lierne_reader *r, packed_bridge *b) {
    const lierne_config_packed_side *dst = &b->sides[1];
    for (const lierne_json_node *n = b->partial ? lierne_json_first(b->partial) : NULL; n;
         n = lierne_json_next(r->doc, n)) {
        bool name = lierne_config_typed(r, n, LIERNE_JSON_STRING);
        int d = name && dst->grid ? lierne_config_packed_dim(r, n, false, dst) : -1;
        b->entry->bridge.partial_dims |= d >= 0 ? (uint32_t)1 << d : 0;
    }
}

static void read_run(lierne_reader *r, const lierne_json_node *node, lierne_image_run *run) {
    int64_t *const fields[] = {&run->image, &run->row, &run->segment, &run->position, &run->length};
    int i = 0;
    if (!lierne_config_typed(r, node, LIERNE_JSON_ARRAY)) {
        return;
    }
    if (node->count != COUNT(fields)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PACKED, node,
                              "write [image, row, segment, position, length]",
                              "%s has %d numbers, must have %d", lierne_label(node).text,
                              node->count, COUNT(fields));
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(node); n; n = lierne_json_next(r->doc, n)) {
        lierne_config_integer(r, n, INT64_MIN, INT64_MAX, fields[i++]);
    }
}

static void read_runs(lierne_reader *r, packed_bridge *b) {
    lierne_config_packed_entry *e = b->entry;
    int i = 0;
    if (!b->runs ||
        !lierne_reader_ok(r, lierne_alloc(&e->runs, (size_t)b->runs->count, sizeof *e->runs))) {
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(b->runs); n;
         n = lierne_json_next(r->doc, n)) {
        read_run(r, n, &e->runs[i++]);
    }
    e->bridge.runs = e->runs;
    e->bridge.nruns = b->runs->count;
}

/* --- the whole ---------------------------------------------------------------------------- */

static const lierne_json_node *element(const lierne_reader *r, const lierne_json_node *list,
                                       int64_t i) {
    const lierne_json_node *n = lierne_json_first(list);
    while (n && i-- > 0) {
        n = lierne_json_next(r->doc, n);
    }
    return n ? n : list;
}

/* The node of a field that a message names; NULL: none. */
static const lierne_json_node *field_of(const packed_bridge *b, const lierne_config_packed_side *s,
                                        const char *name, size_t length) {
    const struct {
        const char *name;
        const lierne_json_node *node;
    } fields[] = {{"runs", b->runs},
                  {"partial_dims", b->partial},
                  {"cu_seqlens", s ? s->cu : NULL},
                  {"placements", s ? s->placed : NULL}};
    for (int i = 0; i < COUNT(fields); i++) {
        if (strlen(fields[i].name) == length && strncmp(name, fields[i].name, length) == 0) {
            return fields[i].node;
        }
    }
    for (int i = 0; s && i < LIERNE_PACKED_KEYS; i++) {
        const char *key = lierne_config_packing_keys[i].name;
        if (strlen(key) == length && strncmp(name, key, length) == 0) {
            return s->packed[i] ? s->packed[i] : s->padding;
        }
    }
    return NULL;
}

/* What a message names first: "lead[3] is ...", "runs[2].row is ...". */
static const lierne_json_node *place_of(const lierne_reader *r, const packed_bridge *b,
                                        const lierne_config_packed_side *s, const char *reason) {
    size_t length = strcspn(reason, "[ .");
    const lierne_json_node *node = field_of(b, s, reason, length);
    if (!node || reason[length] != '[' || node->type != LIERNE_JSON_ARRAY) {
        return node ? node : b->node;
    }
    char *end;
    node = element(r, node, strtoll(reason + length + 1, &end, 10));
    for (int i = 0; i < COUNT(run_fields) && strncmp(end, "].", 2) == 0; i++) {
        size_t field = strlen(run_fields[i]);
        if (strncmp(end + 2, run_fields[i], field) == 0 && end[2 + field] == ' ') {
            return element(r, node, i);
        }
    }
    return node;
}

static bool accept(lierne_reader *r, const packed_bridge *b, const lierne_config_packed_side *s,
                   lierne_status status) {
    if (!lierne_reader_ok(r, status) && !r->failed) {
        lierne_diagnostic_add(r, status, place_of(r, b, s, lierne_error_text()), "", "%s",
                              lierne_error_text());
    }
    return status == LIERNE_OK;
}

static bool make_layout(lierne_reader *r, const packed_bridge *b, int i) {
    const lierne_config_packed_side *s = &b->sides[i];
    int axis = packed_axis(b);
    int64_t *shape = b->entry->shapes[i];
    lierne_layout_spec *spec = &b->entry->specs[i];
    shape[!axis] = b->hidden;
    shape[axis] = s->segments->cu_seqlens[s->segments->nsegments];
    *spec = (lierne_layout_spec){.size = sizeof *spec,
                                 .grid = s->grid,
                                 .view = s->view,
                                 .naxes = b->axes.count,
                                 .shape = shape,
                                 .dtype = b->dtype,
                                 .placements = s->placements,
                                 .packed_axis = axis,
                                 .segments = s->segments,
                                 .packing = s->packing};
    /* Of boundaries the last one is the size of the axis, which must not be the first error. */
    return accept(r, b, s, lierne_segments_check(s->segments)) &&
           accept(r, b, s, lierne_layout_create(&b->entry->layouts[i], spec));
}

static void make_specs(lierne_reader *r, const packed_bridge *b) {
    lierne_config_packed_entry *e = b->entry;
    bool made = true;
    for (int i = 0; i < 2; i++) {
        made = make_layout(r, b, i) && made;
    }
    if (!made) {
        return;
    }
    e->bridge.src = e->move.src = e->layouts[0];
    e->bridge.dst = e->move.dst = e->layouts[1];
    e->bridge.name = e->move.name = e->name;
    accept(r, b, NULL,
           e->has_images
               ? lierne_packed_bridge_check(&e->bridge)
               : lierne_redistribute_check_pair(e->layouts[0], "src", e->layouts[1], "dst"));
}

enum {
    NAME,
    SRC,
    DST,
    SRC_VIEW,
    DST_VIEW,
    TENSOR,
    SEGMENTS,
    IMAGES,
    RUNS,
    PACKING,
    PLACEMENTS,
    PARTIAL,
    UNUSED,
    REPEAT,
    MAX_PEERS,
    KEYS
};
static const lierne_config_key keys[KEYS] = {
    [NAME] = {"name", LIERNE_JSON_STRING, true},
    [SRC] = {"src", LIERNE_JSON_STRING, true},
    [DST] = {"dst", LIERNE_JSON_STRING, true},
    [SRC_VIEW] = {"src_view", LIERNE_JSON_STRING, false},
    [DST_VIEW] = {"dst_view", LIERNE_JSON_STRING, false},
    [TENSOR] = {"tensor", LIERNE_JSON_OBJECT, true},
    [SEGMENTS] = {"segments", LIERNE_JSON_OBJECT, true},
    [IMAGES] = {"images", LIERNE_JSON_OBJECT, false},
    [RUNS] = {"runs", LIERNE_JSON_ARRAY, false},
    [PACKING] = {"packing", LIERNE_JSON_OBJECT, false},
    [PLACEMENTS] = {"placements", LIERNE_JSON_OBJECT, false},
    [PARTIAL] = {"partial", LIERNE_JSON_ARRAY, false},
    [UNUSED] = {"allow_unused", LIERNE_JSON_BOOLEAN, false},
    [REPEAT] = {"allow_repeat", LIERNE_JSON_BOOLEAN, false},
    [MAX_PEERS] = {"max_peers", LIERNE_JSON_NUMBER, false},
};

/* Without images both sides have the segments: a packed sequence moves from one cut to another. */
static void read_sides(lierne_reader *r, packed_bridge *b, const lierne_json_node **found) {
    const lierne_json_node *packing[2], *placed[2];
    const char **names[] = {&b->entry->src, &b->entry->dst};
    lierne_config_pair(r, found[PACKING], packing);
    lierne_config_pair(r, found[PLACEMENTS], placed);
    for (int i = 0; i < 2; i++) {
        lierne_config_packed_side *s = &b->sides[i];
        s->placed = placed[i];
        s->padding = packing[i];
        lierne_config_read_end(r, found[SRC + i], found[SRC_VIEW + i], names[i], &s->grid,
                               &s->view);
        lierne_config_read_packed_placements(r, &b->axes, s, i == 0);
        const lierne_json_node *cu = i == 0 && found[IMAGES] ? found[IMAGES] : found[SEGMENTS];
        if (cu) {
            lierne_config_read_boundaries(r, cu, s);
        }
        if (packing[i]) {
            lierne_config_read_packing(r, packing[i], s);
        }
    }
}

static void check_images(lierne_reader *r, const packed_bridge *b, const lierne_json_node **found) {
    static const int of_images[] = {RUNS, PARTIAL, UNUSED, REPEAT};
    if (found[IMAGES] && !found[RUNS]) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PACKED, found[IMAGES],
                              "list [image, row, segment, position, length] of each",
                              "images are given, and no runs say where their rows go");
    }
    for (int i = 0; i < COUNT(of_images) && !found[IMAGES]; i++) {
        if (found[of_images[i]]) {
            lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_PACKED, found[of_images[i]],
                                      "drop it, or give the images",
                                      "%s is given, and the bridge has no images",
                                      keys[of_images[i]].name);
        }
    }
    b->entry->has_images = found[IMAGES] != NULL;
}

static void read_values(lierne_reader *r, packed_bridge *b, const lierne_json_node **found) {
    lierne_config_packed_entry *e = b->entry;
    int64_t peers = 0;
    b->tensor = found[TENSOR];
    b->runs = found[RUNS];
    b->partial = found[PARTIAL];
    e->name = lierne_config_bridge_name(r, found[NAME]);
    if (b->tensor) {
        read_tensor(r, b);
    }
    read_sides(r, b, found);
    read_runs(r, b);
    read_partial(r, b);
    check_images(r, b, found);
    e->bridge.allow_unused = lierne_config_true(found[UNUSED]);
    e->bridge.allow_repeat = lierne_config_true(found[REPEAT]);
    lierne_config_integer(r, found[MAX_PEERS], 0, LIERNE_MAX_RANKS, &peers);
    e->bridge.max_peers = e->move.max_peers = (int)peers;
}

/* What is read goes into the entry, which outlives the reader. */
static void open_sides(packed_bridge *b) {
    lierne_config_packed_entry *e = b->entry;
    for (int i = 0; i < 2; i++) {
        lierne_config_packed_side *s = &b->sides[i];
        e->packings[i].size = sizeof e->packings[i];
        s->lists = e->lists[i];
        s->owner = &e->owners[i];
        s->segments = &e->segments[i];
        s->packing = &e->packings[i];
        s->placements = e->placements[i];
    }
}

static void read_bridge(lierne_reader *r, const lierne_json_node *node) {
    packed_bridge b = {.node = node};
    const lierne_json_node *found[KEYS];
    int errors = r->config->errors;
    if (!lierne_reader_ok(r, lierne_alloc(&b.entry, 1, sizeof *b.entry))) {
        return;
    }
    open_sides(&b);
    b.entry->bridge.size = sizeof b.entry->bridge;
    b.entry->move.size = sizeof b.entry->move;
    if (lierne_config_object(r, node, keys, KEYS, found)) {
        read_values(r, &b, found);
    }
    if (errors == r->config->errors && !r->failed) {
        make_specs(r, &b);
    }
    if (!lierne_reader_ok(r, LIERNE_VEC_PUSH(&r->config->packed, b.entry))) {
        lierne_config_packed_free(b.entry);
    }
}

void lierne_config_read_packed(lierne_reader *r, const lierne_json_node *bridges) {
    lierne_config_each_bridge(r, bridges, "packed bridges", read_bridge);
}

void lierne_config_packed_free(lierne_config_packed_entry *entry) {
    for (int i = 0; i < 2; i++) {
        lierne_layout_destroy(entry->layouts[i]);
        for (int k = 0; k < COUNT(entry->lists[i]); k++) {
            lierne_mem_free(entry->lists[i][k]);
        }
        lierne_mem_free(entry->owners[i]);
    }
    lierne_mem_free(entry->runs);
    lierne_mem_free(entry->name);
    lierne_mem_free(entry);
}
