/* Dims of a grid or a view: the order, then a size for each. */
#include "config/read.h"

#include <string.h>

static int dim_index(const lierne_config_dims *dims, const char *name) {
    int d = 0;
    while (d < dims->count && strcmp(dims->names[d], name) != 0) {
        d++;
    }
    return d < dims->count ? d : -1;
}

static bool read_order(lierne_reader *r, const lierne_json_node *order, lierne_config_dims *out) {
    bool ok = true;
    if (order->count > LIERNE_MAX_DIMS) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_LIMIT, order,
                              "join dims, or drop those of size 1", "%d dims, must be at most %d",
                              order->count, LIERNE_MAX_DIMS);
        return false;
    }
    for (const lierne_json_node *n = lierne_json_first(order); n; n = lierne_json_next(r->doc, n)) {
        if (!lierne_config_name(r, n, false, LIERNE_CONFIG_KEY_NAME)) {
            ok = false;
        } else if (dim_index(out, lierne_json_string(n)) >= 0) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ORDER_DUPLICATE, n, "name each dim once",
                                  "dim %s appears twice in the order",
                                  lierne_quote(lierne_json_string(n)).text);
            ok = false;
        } else {
            out->names[out->count++] = lierne_json_string(n);
        }
    }
    return ok;
}

static bool read_sizes(lierne_reader *r, const lierne_json_node *shape, lierne_config_dims *out) {
    bool ok = true;
    for (const lierne_json_node *n = lierne_config_first(r, shape); n;
         n = lierne_config_next(r, n)) {
        int d = dim_index(out, lierne_json_key(n));
        int64_t size = 1;
        ok &= lierne_config_integer(r, n, 1, INT64_MAX, &size);
        if (d >= 0) {
            out->sizes[d] = size;
        } else {
            lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_ORDER_MISSING, n,
                                      "write it into the order, fastest dim first",
                                      "dim %s is not in the order", lierne_label(n).text);
            ok = false;
        }
    }
    return ok;
}

/* Every dim of the order must have got a size. */
static bool check_sizes(lierne_reader *r, const lierne_json_node *order,
                        const lierne_config_dims *dims) {
    bool ok = true;
    for (const lierne_json_node *n = lierne_json_first(order); n; n = lierne_json_next(r->doc, n)) {
        int d = n->type == LIERNE_JSON_STRING ? dim_index(dims, lierne_json_string(n)) : -1;
        if (d >= 0 && dims->sizes[d] == 0) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SHAPE_MISSING, n,
                                  "write it into the shape, also if it is 1",
                                  "dim %s has no size in the shape",
                                  lierne_quote(dims->names[d]).text);
            ok = false;
        }
    }
    return ok;
}

bool lierne_config_read_dims(lierne_reader *r, const lierne_json_node *order,
                             const lierne_json_node *shape, lierne_config_dims *out) {
    *out = (lierne_config_dims){0};
    if (!order || !shape) {
        return false;
    }
    /* A wrong order does not tell which sizes are missing. */
    if (!read_order(r, order, out)) {
        return false;
    }
    bool ok = read_sizes(r, shape, out);
    return check_sizes(r, order, out) && ok;
}
