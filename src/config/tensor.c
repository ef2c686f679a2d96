/* The tensor of a bridge: its axes, their sizes, which of them dp and cp cut, and the axes that it
 * is planned with. With rows_per_sample these differ from its own. */
#include "config/read.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const char *const axis_words[] = {"b", "s", "h"};

static int axis_index(const lierne_config_bridge_entry *bridge, const char *name) {
    int a = 0;
    while (a < bridge->spec.naxes && strcmp(bridge->axes[a], name) != 0) {
        a++;
    }
    return a < bridge->spec.naxes ? a : -1;
}

static void read_axes(lierne_reader *r, const lierne_json_node *axes,
                      lierne_config_bridge_entry *bridge) {
    if (axes->count < 2 || axes->count > COUNT(axis_words)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXES, axes, "list b, h and, if it is an axis, s",
                              "%d axes, must be 2 or 3", axes->count);
        return;
    }
    for (const lierne_json_node *n = lierne_json_first(axes); n; n = lierne_json_next(r->doc, n)) {
        int word;
        if (!lierne_config_word(r, n, axis_words, COUNT(axis_words), &word)) {
            continue;
        }
        if (axis_index(bridge, axis_words[word]) >= 0) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXES, n, "name each axis once",
                                  "axis '%s' appears twice in axes", axis_words[word]);
            continue;
        }
        bridge->axes[bridge->spec.naxes++] = axis_words[word];
    }
}

static void read_shape(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                       lierne_config_bridge_entry *bridge) {
    for (const lierne_json_node *n = lierne_config_first(r, nodes->shape); n;
         n = lierne_config_next(r, n)) {
        int a = axis_index(bridge, lierne_json_key(n));
        if (a < 0) {
            lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_UNKNOWN_KEY, n, "write it into axes",
                                      "%s is not an axis of the tensor", lierne_label(n).text);
        } else {
            nodes->sizes[a] = n;
            lierne_config_integer(r, n, 1, INT64_MAX, &bridge->shape[a]);
        }
    }
    for (int a = 0; a < bridge->spec.naxes; a++) {
        if (!nodes->sizes[a]) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_SIZE, nodes->shape,
                                  "write its size into the shape", "axis '%s' has no size",
                                  bridge->axes[a]);
        }
    }
}

void lierne_config_dtype(lierne_reader *r, const lierne_json_node *node, lierne_dtype *dtype) {
    enum { FIRST = LIERNE_DTYPE_F64, LAST = LIERNE_DTYPE_U8 };
    const char *names[LAST - FIRST + 1]; /* of those whose gradients can be summed */
    int word;
    for (int i = 0; i < COUNT(names); i++) {
        names[i] = lierne_dtype_name((lierne_dtype)(FIRST + i));
    }
    if (lierne_config_word(r, node, names, COUNT(names), &word)) {
        *dtype = (lierne_dtype)(FIRST + word);
    }
}

static void read_object(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                        lierne_config_bridge_entry *bridge) {
    enum { AXES, SHAPE, DTYPE, ROWS, ROW_ORDER, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [AXES] = {"axes", LIERNE_JSON_ARRAY, true},
        [SHAPE] = {"shape", LIERNE_JSON_OBJECT, true},
        [DTYPE] = {"dtype", LIERNE_JSON_STRING, true},
        [ROWS] = {"rows_per_sample", LIERNE_JSON_NUMBER, false},
        [ROW_ORDER] = {"row_order", LIERNE_JSON_STRING, false},
    };
    static const char *const orders[] = {"sample", "sequence"}; /* in the enum's order */
    const lierne_json_node *found[KEYS];
    int word;
    lierne_config_object(r, nodes->tensor, keys, KEYS, found);
    nodes->axes = found[AXES];
    nodes->shape = found[SHAPE];
    nodes->dtype = found[DTYPE];
    if (nodes->axes) {
        int errors = r->config->errors;
        read_axes(r, nodes->axes, bridge);
        /* Wrong axes have a diagnostic already; their sizes need no further one. */
        if (nodes->shape && errors == r->config->errors) {
            read_shape(r, nodes, bridge);
        }
    }
    lierne_config_dtype(r, nodes->dtype, &bridge->spec.dtype);
    nodes->rows_per_sample = found[ROWS];
    nodes->row_order = found[ROW_ORDER];
    lierne_config_integer(r, found[ROWS], 1, INT64_MAX, &bridge->spec.rows_per_sample);
    if (lierne_config_word(r, found[ROW_ORDER], orders, COUNT(orders), &word)) {
        bridge->spec.row_order = (lierne_row_order)word;
    }
}

/* Puts axis a of the tensor at place i of the planned ones. */
static void plan_axis(lierne_config_bridge_nodes *nodes, const lierne_config_bridge_entry *bridge,
                      int i, int a) {
    nodes->planned.names[i] = bridge->axes[a];
    nodes->planned.sizes[i] = bridge->shape[a];
    nodes->planned.nodes[i] = nodes->sizes[a];
}

/* Rows of samples: the batch axis becomes two. What does not fit stays of unknown size. */
static void plan_rows(lierne_config_bridge_nodes *nodes, const lierne_config_bridge_entry *bridge) {
    lierne_config_planned *planned = &nodes->planned;
    int64_t per = bridge->spec.rows_per_sample;
    int b = bridge->spec.batch_axis;
    bool sample_major = bridge->spec.row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR;
    planned->naxes = LIERNE_CONFIG_AXES;
    planned->batch = b + !sample_major;
    planned->sequence = b + sample_major;
    plan_axis(nodes, bridge, b == 0 ? 2 : 0, 1 - b);
    plan_axis(nodes, bridge, planned->batch, b);
    planned->names[planned->sequence] = "s";
    planned->nodes[planned->sequence] = nodes->rows_per_sample;
    planned->sizes[planned->sequence] = per;
    planned->sizes[planned->batch] = bridge->shape[b] % per ? 0 : bridge->shape[b] / per;
}

static void plan_axes(lierne_config_bridge_nodes *nodes, const lierne_config_bridge_entry *bridge) {
    const lierne_bridge_spec *spec = &bridge->spec;
    if (spec->rows_per_sample > 0 && spec->naxes == 2 && spec->batch_axis >= 0) {
        plan_rows(nodes, bridge);
        return;
    }
    nodes->planned.naxes = spec->naxes;
    nodes->planned.batch = spec->batch_axis;
    nodes->planned.sequence = spec->sequence_axis;
    for (int a = 0; a < spec->naxes; a++) {
        plan_axis(nodes, bridge, a, a);
    }
}

/* The axis that batch or sequence names, -1 if none. */
static int read_axis(lierne_reader *r, const lierne_json_node *node,
                     const lierne_config_bridge_entry *bridge) {
    if (!node || !bridge->spec.naxes) {
        return -1;
    }
    int a = axis_index(bridge, lierne_json_string(node));
    if (a < 0) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_UNKNOWN, node, "name one of its axes",
                              "%s is %s, which is not an axis of the tensor",
                              lierne_label(node).text, lierne_quote(lierne_json_string(node)).text);
    }
    return a;
}

void lierne_config_read_tensor(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                               lierne_config_bridge_entry *bridge) {
    if (nodes->tensor) {
        read_object(r, nodes, bridge);
    }
    bridge->spec.batch_axis = read_axis(r, nodes->batch, bridge);
    bridge->spec.sequence_axis = read_axis(r, nodes->sequence, bridge);
    plan_axes(nodes, bridge);
}
