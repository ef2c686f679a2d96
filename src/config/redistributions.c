/* Redistributions: a tensor that moves from one layout to another, either of which may have halos.
 *
 * As of packed bridges, what must be true of layouts and halos is checked by the calls that make
 * them, so that a file and a program are told the same. Their messages begin with the field that is
 * wrong ("halo[1].lo is ..."), and its place in the file is found by it. */
#include "config/packed_sides.h"
#include "plan/redistribute/redistribute_check.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum { AXIS_LO, AXIS_HI, AXIS_BOUNDARY, AXIS_STRIDE, AXIS_OUTPUTS, AXIS_SEGMENTS, AXIS_KEYS };
static const lierne_config_key axis_keys[AXIS_KEYS] = {
    [AXIS_LO] = {"lo", LIERNE_JSON_NUMBER, false},
    [AXIS_HI] = {"hi", LIERNE_JSON_NUMBER, false},
    [AXIS_BOUNDARY] = {"boundary", LIERNE_JSON_STRING, false},
    [AXIS_STRIDE] = {"stride", LIERNE_JSON_NUMBER, false},
    [AXIS_OUTPUTS] = {"outputs", LIERNE_JSON_NUMBER, false},
    [AXIS_SEGMENTS] = {"segments", LIERNE_JSON_ARRAY, false},
};

typedef struct halo_side {
    const lierne_json_node *node;                  /* NULL: no halo */
    const lierne_json_node *axes[LIERNE_MAX_AXES]; /* by halo, in their order */
    const lierne_json_node *found[LIERNE_MAX_AXES][AXIS_KEYS];
} halo_side;

typedef struct redistribution {
    lierne_config_redistribution_entry *entry;
    const lierne_json_node *node, *tensor;
    lierne_config_packed_side sides[2];
    halo_side halos[2];
    lierne_config_packed_axes axes;
    lierne_dtype dtype;
} redistribution;

/* --- values ------------------------------------------------------------------------------- */

static int axis_of(const redistribution *d, const char *name) {
    for (int a = 0; a < d->axes.count; a++) {
        if (strcmp(d->axes.names[a], name) == 0) {
            return a;
        }
    }
    return -1;
}

static void read_axes(lierne_reader *r, const lierne_json_node *axes, redistribution *d) {
    if (axes->count < 1 || axes->count > LIERNE_MAX_AXES) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXES, axes, "list their names, slowest first",
                              "%d axes, must be 1 to %d", axes->count, LIERNE_MAX_AXES);
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(axes); n; n = lierne_json_next(r->doc, n)) {
        char **name = &d->entry->axes[d->axes.count];
        if (!lierne_config_typed(r, n, LIERNE_JSON_STRING) ||
            !lierne_config_name(r, n, false, LIERNE_CONFIG_KEY_NAME)) {
            continue;
        }
        if (axis_of(d, lierne_json_string(n)) >= 0) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXES, n, "name each axis once",
                                  "axis %s appears twice in axes",
                                  lierne_quote(lierne_json_string(n)).text);
        } else if (lierne_reader_ok(r, lierne_strdup(name, lierne_json_string(n)))) {
            d->axes.names[d->axes.count++] = *name;
        }
    }
}

static void read_shape(lierne_reader *r, const lierne_json_node *shape, const redistribution *d) {
    bool sized[LIERNE_MAX_AXES] = {false};
    for (const lierne_json_node *n = lierne_config_first(r, shape); n;
         n = lierne_config_next(r, n)) {
        int a = axis_of(d, lierne_json_key(n));
        if (a < 0) {
            lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_AXIS_UNKNOWN, n, "write it into axes",
                                      "%s is not an axis of the tensor", lierne_label(n).text);
        } else {
            sized[a] = true;
            lierne_config_integer(r, n, 1, INT64_MAX, &d->entry->shape[a]);
        }
    }
    for (int a = 0; a < d->axes.count; a++) {
        if (!sized[a]) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_SIZE, shape,
                                  "write its size into the shape", "axis '%s' has no size",
                                  d->axes.names[a]);
        }
    }
}

static void read_tensor(lierne_reader *r, redistribution *d) {
    enum { AXES, SHAPE, DTYPE, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [AXES] = {"axes", LIERNE_JSON_ARRAY, true},
        [SHAPE] = {"shape", LIERNE_JSON_OBJECT, true},
        [DTYPE] = {"dtype", LIERNE_JSON_STRING, true},
    };
    const lierne_json_node *found[KEYS];
    if (!lierne_config_object(r, d->tensor, keys, KEYS, found)) {
        return;
    }
    if (found[AXES]) {
        read_axes(r, found[AXES], d);
    }
    if (found[SHAPE] && d->axes.count > 0) {
        read_shape(r, found[SHAPE], d);
    }
    lierne_config_dtype(r, found[DTYPE], &d->dtype);
}

static void read_halo(lierne_reader *r, const lierne_json_node *node, redistribution *d, int i) {
    static const char *const boundaries[] = {"none",   "zero",      "keep",     "periodic",
                                             "mirror", "symmetric", "replicate"};
    halo_side *side = &d->halos[i];
    lierne_layout_spec *spec = &d->entry->specs[i];
    int word, k = spec->nhalos, axis = axis_of(d, lierne_json_key(node));
    if (axis < 0) {
        lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_AXIS_UNKNOWN, node, "name one of its axes",
                                  "%s is not an axis of the tensor", lierne_label(node).text);
        return;
    }
    lierne_dense_halo *h = &d->entry->halos[i][k];
    const lierne_json_node **found = side->found[k];
    int64_t *const numbers[] = {[AXIS_LO] = &h->lo,
                                [AXIS_HI] = &h->hi,
                                [AXIS_STRIDE] = &h->stride,
                                [AXIS_OUTPUTS] = &h->outputs};
    spec->nhalos++;
    side->axes[k] = node;
    h->axis = axis;
    if (!lierne_config_object(r, node, axis_keys, AXIS_KEYS, found)) {
        return;
    }
    for (int key = 0; key < COUNT(numbers); key++) {
        if (numbers[key]) {
            lierne_config_integer(r, found[key], INT64_MIN, INT64_MAX, numbers[key]);
        }
    }
    if (lierne_config_word(r, found[AXIS_BOUNDARY], boundaries, COUNT(boundaries), &word)) {
        h->boundary = (lierne_boundary)word;
    }
    if (found[AXIS_SEGMENTS]) {
        d->entry->segments[i][k] = lierne_config_integers(r, found[AXIS_SEGMENTS]);
        h->segments = d->entry->segments[i][k];
        h->nsegments = found[AXIS_SEGMENTS]->count - 1;
    }
}

static void read_halos(lierne_reader *r, redistribution *d, int i) {
    enum { AXES, STENCIL, STORAGE, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [AXES] = {"axes", LIERNE_JSON_OBJECT, true},
        [STENCIL] = {"stencil", LIERNE_JSON_STRING, false},
        [STORAGE] = {"storage", LIERNE_JSON_STRING, false},
    };
    static const char *const stencils[] = {"box", "star"}; /* in the order of the enums */
    static const char *const storages[] = {"padded", "margins"};
    lierne_layout_spec *spec = &d->entry->specs[i];
    const lierne_json_node *found[KEYS];
    int word;
    if (!d->halos[i].node || !lierne_config_object(r, d->halos[i].node, keys, KEYS, found)) {
        return;
    }
    for (const lierne_json_node *n = found[AXES] ? lierne_config_first(r, found[AXES]) : NULL;
         n && d->axes.count > 0; n = lierne_config_next(r, n)) {
        read_halo(r, n, d, i);
    }
    if (lierne_config_word(r, found[STENCIL], stencils, COUNT(stencils), &word)) {
        spec->stencil = (lierne_stencil)word;
    }
    if (lierne_config_word(r, found[STORAGE], storages, COUNT(storages), &word)) {
        spec->halo_storage = (lierne_halo_storage)word;
    }
}

/* --- the whole ---------------------------------------------------------------------------- */

static const lierne_json_node *element(const lierne_reader *r, const lierne_json_node *list,
                                       long i) {
    const lierne_json_node *n = lierne_json_first(list);
    while (n && i-- > 0) {
        n = lierne_json_next(r->doc, n);
    }
    return n ? n : list;
}

/* The value of halo k that a message names: ".lo is ...", ".segments[2] is ...", ".nsegments is".
 */
static const lierne_json_node *value_of(const lierne_reader *r, const halo_side *side, long k,
                                        const char *field) {
    const lierne_json_node *const *found = side->found[k];
    field += field[1] == 'n' ? 2 : 1;
    for (int key = 0; key < AXIS_KEYS; key++) {
        size_t length = strlen(axis_keys[key].name);
        if (strncmp(field, axis_keys[key].name, length) != 0) {
            continue;
        }
        if (!found[key] && key == AXIS_STRIDE && found[AXIS_OUTPUTS]) {
            return found[AXIS_OUTPUTS];
        }
        if (found[key] && field[length] == '[') {
            return element(r, found[key], strtol(field + length + 1, NULL, 10));
        }
        return found[key] ? found[key] : side->axes[k];
    }
    return side->axes[k];
}

/* Where it is what a layout was rejected for: a halo, or a placement. */
static const lierne_json_node *place_of(const lierne_reader *r, const redistribution *d, int i,
                                        const char *reason) {
    const halo_side *side = &d->halos[i];
    if (strncmp(reason, "halo[", 5) == 0) {
        char *end;
        long k = strtol(reason + 5, &end, 10);
        return strncmp(end, "].", 2) == 0 ? value_of(r, side, k, end + 1) : side->axes[k];
    }
    return d->sides[i].placed ? d->sides[i].placed : d->node;
}

static bool accept(lierne_reader *r, const lierne_json_node *place, lierne_status status) {
    if (!lierne_reader_ok(r, status) && !r->failed) {
        lierne_diagnostic_add(r, status, place, "", "%s", lierne_error_text());
    }
    return status == LIERNE_OK;
}

static void make_specs(lierne_reader *r, const redistribution *d) {
    lierne_config_redistribution_entry *e = d->entry;
    bool made = true;
    for (int i = 0; i < 2; i++) {
        lierne_layout_spec *spec = &e->specs[i];
        spec->size = sizeof *spec;
        spec->grid = d->sides[i].grid;
        spec->view = d->sides[i].view;
        spec->naxes = d->axes.count;
        spec->shape = e->shape;
        spec->dtype = d->dtype;
        spec->placements = e->placements[i];
        spec->halos = e->halos[i];
        lierne_status status = lierne_layout_create(&e->layouts[i], spec);
        made = (status == LIERNE_OK || accept(r, place_of(r, d, i, lierne_error_text()), status)) &&
               made;
    }
    if (made &&
        accept(r, d->node,
               lierne_redistribute_check_pair(e->layouts[0], "src", e->layouts[1], "dst")) &&
        accept(r, d->halos[0].node,
               lierne_redistribute_check_source(e->layouts[0], "src", e->layouts[1], "dst"))) {
        e->spec.src = e->layouts[0];
        e->spec.dst = e->layouts[1];
        e->spec.name = e->name;
    }
}

enum { NAME, SRC, DST, SRC_VIEW, DST_VIEW, TENSOR, PLACEMENTS, HALO, MAX_PEERS, KEYS };
static const lierne_config_key keys[KEYS] = {
    [NAME] = {"name", LIERNE_JSON_STRING, true},
    [SRC] = {"src", LIERNE_JSON_STRING, true},
    [DST] = {"dst", LIERNE_JSON_STRING, true},
    [SRC_VIEW] = {"src_view", LIERNE_JSON_STRING, false},
    [DST_VIEW] = {"dst_view", LIERNE_JSON_STRING, false},
    [TENSOR] = {"tensor", LIERNE_JSON_OBJECT, true},
    [PLACEMENTS] = {"placements", LIERNE_JSON_OBJECT, false},
    [HALO] = {"halo", LIERNE_JSON_OBJECT, false},
    [MAX_PEERS] = {"max_peers", LIERNE_JSON_NUMBER, false},
};

static void read_values(lierne_reader *r, redistribution *d, const lierne_json_node **found) {
    lierne_config_redistribution_entry *e = d->entry;
    const lierne_json_node *placed[2], *halos[2];
    const char **names[] = {&e->src, &e->dst};
    int64_t peers = 0;
    d->tensor = found[TENSOR];
    e->name = lierne_config_bridge_name(r, found[NAME]);
    if (d->tensor) {
        read_tensor(r, d);
    }
    lierne_config_pair(r, found[PLACEMENTS], placed);
    lierne_config_pair(r, found[HALO], halos);
    for (int i = 0; i < 2; i++) {
        lierne_config_packed_side *s = &d->sides[i];
        s->placements = e->placements[i];
        s->placed = placed[i];
        d->halos[i].node = halos[i];
        lierne_config_read_end(r, found[SRC + i], found[SRC_VIEW + i], names[i], &s->grid,
                               &s->view);
        lierne_config_read_packed_placements(r, &d->axes, s, i == 0);
        read_halos(r, d, i);
    }
    lierne_config_integer(r, found[MAX_PEERS], 0, LIERNE_MAX_RANKS, &peers);
    e->spec.max_peers = (int)peers;
}

static void read_redistribution(lierne_reader *r, const lierne_json_node *node) {
    redistribution d = {.node = node};
    const lierne_json_node *found[KEYS];
    int errors = r->config->errors;
    if (!lierne_reader_ok(r, lierne_alloc(&d.entry, 1, sizeof *d.entry))) {
        return;
    }
    d.entry->spec.size = sizeof d.entry->spec;
    if (lierne_config_object(r, node, keys, KEYS, found)) {
        read_values(r, &d, found);
    }
    if (errors == r->config->errors && !r->failed) {
        make_specs(r, &d);
    }
    if (!lierne_reader_ok(r, LIERNE_VEC_PUSH(&r->config->redistributions, d.entry))) {
        lierne_config_redistribution_free(d.entry);
    }
}

void lierne_config_read_redistributions(lierne_reader *r, const lierne_json_node *list) {
    lierne_config_each_bridge(r, list, "redistributions", read_redistribution);
}

void lierne_config_redistribution_free(lierne_config_redistribution_entry *entry) {
    for (int i = 0; i < 2; i++) {
        lierne_layout_destroy(entry->layouts[i]);
        for (int k = 0; k < LIERNE_MAX_AXES; k++) {
            lierne_mem_free(entry->segments[i][k]);
        }
    }
    for (int a = 0; a < LIERNE_MAX_AXES; a++) {
        lierne_mem_free(entry->axes[a]);
    }
    lierne_mem_free(entry->name);
    lierne_mem_free(entry);
}
