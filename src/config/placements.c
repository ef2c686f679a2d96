/* Placements of a bridge: tensor placement per grid dim, and the rules for axes that several dims
 * cut.
 *
 * The rules look at cuts, not at placements: the destination's cp is cut by the owner of the
 * gradient, and both kinds can cut the same axis. The slowest dim cuts first, so a zigzag divides
 * what slower dims have left. */
#include "config/read.h"

#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const char *const sides[] = {"source", "destination"};

const lierne_grid *lierne_config_side(const lierne_config_bridge_entry *bridge, int side) {
    return side ? bridge->spec.dst : bridge->spec.src;
}

const char *lierne_config_side_view(const lierne_config_bridge_entry *bridge, int side) {
    return side ? bridge->spec.dst_view : bridge->spec.src_view;
}

static const char *dim_name(const lierne_config_bridge_entry *bridge, int side, int dim) {
    return lierne_grid_get_dim_name(lierne_config_side(bridge, side),
                                    lierne_config_side_view(bridge, side), dim);
}

static int ndims_of(const lierne_config_bridge_entry *bridge, int side) {
    return lierne_grid_get_ndims(lierne_config_side(bridge, side),
                                 lierne_config_side_view(bridge, side));
}

static int64_t dim_size(const lierne_config_bridge_entry *bridge, int side, int dim) {
    return lierne_grid_get_dim_size(lierne_config_side(bridge, side),
                                    lierne_config_side_view(bridge, side), dim);
}

int lierne_config_find_dim(const lierne_grid *grid, const char *view, const char *name) {
    for (int d = 0; d < lierne_grid_get_ndims(grid, view); d++) {
        if (strcmp(lierne_grid_get_dim_name(grid, view, d), name) == 0) {
            return d;
        }
    }
    return -1;
}

int lierne_config_side_dim(const lierne_config_bridge_entry *bridge, int side, const char *name) {
    return lierne_config_find_dim(lierne_config_side(bridge, side),
                                  lierne_config_side_view(bridge, side), name);
}

/* --- reading ------------------------------------------------------------------------------ */

/* What places a dim of Megatron-LM's; NULL for a dim that a placement may be given for. */
static const char *meaning(const char *dim, int side) {
    if (strcmp(dim, "dp") == 0) {
        return "it shards the batch";
    }
    if (strcmp(dim, "pp") == 0) {
        return side ? "the tensor goes to the first stage" : "the tensor is on the last stage";
    }
    return side && strcmp(dim, "cp") == 0 ? "the owner of the gradient and output say how" : NULL;
}

static void check_dim(lierne_reader *r, const lierne_json_node *node,
                      const lierne_config_bridge_entry *bridge, int side) {
    const char *means = meaning(lierne_json_key(node), side);
    if (means) {
        lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_PLACEMENT_DIM, node, "drop it",
                                  "%s of the %s has a fixed placement: %s", lierne_label(node).text,
                                  sides[side], means);
    } else if (lierne_config_side(bridge, side) &&
               lierne_config_side_dim(bridge, side, lierne_json_key(node)) < 0) {
        lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_PLACEMENT_DIM, node,
                                  "name a dim of the view that the bridge uses",
                                  "%s is not a dim of the %s", lierne_label(node).text,
                                  sides[side]);
    }
}

int lierne_config_find_axis(lierne_reader *r, const lierne_json_node *node,
                            const char *const *names, int n) {
    int a = 0;
    while (a < n && strcmp(names[a], lierne_json_string(node)) != 0) {
        a++;
    }
    if (n && a == n) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_AXIS_UNKNOWN, node, "name one of its axes",
                              "%s is %s, which is not an axis of the tensor",
                              lierne_label(node).text, lierne_quote(lierne_json_string(node)).text);
    }
    return a;
}

static void read_axis(lierne_reader *r, const lierne_json_node *node,
                      const lierne_config_planned *planned, lierne_placement *placement) {
    int a = lierne_config_find_axis(r, node, planned->names, planned->naxes);
    if (a < planned->naxes && a == planned->batch) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PLACEMENT, node, "only dp cuts it",
                              "%s is '%s', which is the batch axis", lierne_label(node).text,
                              planned->names[a]);
    }
    placement->axis = a;
}

static lierne_placement read_placement(lierne_reader *r, const lierne_json_node *node,
                                       const lierne_config_planned *planned) {
    static const lierne_config_key keys[] = {
        {"shard", LIERNE_JSON_STRING, false},
        {"zigzag", LIERNE_JSON_STRING, false},
    };
    const lierne_json_node *found[COUNT(keys)];
    lierne_placement placement = {.kind = LIERNE_PLACEMENT_REPLICATE};
    int errors = r->config->errors;
    if (!lierne_config_object(r, node, keys, COUNT(keys), found) || errors != r->config->errors) {
        return placement;
    }
    if (!found[0] == !found[1]) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PLACEMENT, node,
                              "write {\"shard\": AXIS} or {\"zigzag\": AXIS}",
                              "%s has %s of shard and zigzag, must have one",
                              lierne_label(node).text, found[0] ? "both" : "none");
        return placement;
    }
    placement.kind = found[0] ? LIERNE_PLACEMENT_SHARD : LIERNE_PLACEMENT_SHARD_ZIGZAG;
    read_axis(r, found[0] ? found[0] : found[1], planned, &placement);
    return placement;
}

static void read_side(lierne_reader *r, const lierne_json_node *list,
                      lierne_config_bridge_nodes *nodes, lierne_config_bridge_entry *bridge,
                      int side) {
    for (const lierne_json_node *n = lierne_config_first(r, list); n;
         n = lierne_config_next(r, n)) {
        int dim = lierne_config_side_dim(bridge, side, lierne_json_key(n));
        lierne_placement placement = read_placement(r, n, &nodes->planned);
        check_dim(r, n, bridge, side);
        if (dim >= 0) {
            nodes->placed[side][dim] = n;
            bridge->placements[side][dim] = placement;
        }
    }
}

void lierne_config_read_placements(lierne_reader *r, const lierne_json_node *node,
                                   lierne_config_bridge_nodes *nodes,
                                   lierne_config_bridge_entry *bridge) {
    static const lierne_config_key keys[] = {
        {"src", LIERNE_JSON_OBJECT, false},
        {"dst", LIERNE_JSON_OBJECT, false},
    };
    const lierne_json_node *found[COUNT(keys)];
    lierne_config_object(r, node, keys, COUNT(keys), found);
    for (int side = 0; side < 2; side++) {
        if (found[side]) {
            read_side(r, found[side], nodes, bridge, side);
        }
    }
    bridge->spec.src_placements = found[0] ? bridge->placements[0] : NULL;
    bridge->spec.dst_placements = found[1] ? bridge->placements[1] : NULL;
}

/* --- rules -------------------------------------------------------------------------------- */

typedef struct cut {
    lierne_placement_kind kind;
    int axis; /* -1: none */
    const lierne_json_node *node;
} cut;

/* How a dim cuts the tensor, or, at the destination, its gradient. */
static cut cut_of(const lierne_config_bridge_nodes *nodes, const lierne_config_bridge_entry *bridge,
                  int side, int dim) {
    lierne_gradient_owner owner = bridge->spec.gradient_owner;
    const lierne_placement *p = &bridge->placements[side][dim];
    if (side && strcmp(dim_name(bridge, side, dim), "cp") == 0) {
        bool chunks =
            owner == LIERNE_GRADIENT_OWNER_ZIGZAG || owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS;
        int axis = nodes->planned.sequence;
        return (cut){.kind = owner == LIERNE_GRADIENT_OWNER_ZIGZAG ? LIERNE_PLACEMENT_SHARD_ZIGZAG
                                                                   : LIERNE_PLACEMENT_SHARD,
                     .axis = chunks ? axis : -1,
                     .node = axis >= 0 ? nodes->planned.nodes[axis] : NULL};
    }
    return (cut){.kind = p->kind,
                 .axis = p->kind == LIERNE_PLACEMENT_REPLICATE ? -1 : p->axis,
                 .node = nodes->placed[side][dim]};
}

/* An axis cut zigzag twice, or not divisible by what its zigzag needs. */
static void check_zigzag(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                         const lierne_config_bridge_entry *bridge, int side, int dim) {
    cut c = cut_of(nodes, bridge, side, dim);
    int64_t chunks = 2 * dim_size(bridge, side, dim), before = 1;
    int64_t size = c.axis >= 0 && c.axis < nodes->planned.naxes ? nodes->planned.sizes[c.axis] : 0;
    if (c.kind != LIERNE_PLACEMENT_SHARD_ZIGZAG || !size || !c.node) {
        return;
    }
    for (int d = dim + 1; d < ndims_of(bridge, side); d++) {
        cut slower = cut_of(nodes, bridge, side, d);
        before *= slower.axis == c.axis ? dim_size(bridge, side, d) : 1;
        if (slower.axis == c.axis && slower.kind == LIERNE_PLACEMENT_SHARD_ZIGZAG) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PLACEMENT, c.node,
                                  "let one of them shard it, or choose another axis",
                                  "dims '%s' and '%s' of the %s both cut axis '%s' zigzag",
                                  dim_name(bridge, side, dim), dim_name(bridge, side, d),
                                  sides[side], nodes->planned.names[c.axis]);
            return;
        }
    }
    if (chunks > 2 && size % (chunks * before)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_ZIGZAG, c.node,
                              "pad the axis, or choose another size",
                              "axis '%s' of %lld is not divisible by 2 x %s = %lld%s",
                              nodes->planned.names[c.axis], (long long)size,
                              dim_name(bridge, side, dim), (long long)(chunks * before),
                              before > 1 ? ", with the dims that cut it before" : "");
    }
}

/* Chunks over cp of a sequence that another dim cuts already: the gradient's own rows would not be
 * rows of the output, unless the output is sharded. */
static void check_sequence(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                           const lierne_config_bridge_entry *bridge, int dim) {
    int cp = lierne_config_side_dim(bridge, 1, "cp");
    cut c = cut_of(nodes, bridge, 1, dim);
    bool chunks = bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_ZIGZAG ||
                  bridge->spec.gradient_owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS;
    if (dim != cp && c.node && c.axis >= 0 && c.axis == nodes->planned.sequence && chunks &&
        bridge->spec.output == LIERNE_BRIDGE_OUTPUT_WHOLE) {
        lierne_diagnostic_add(
            r, LIERNE_DIAGNOSTIC_OUTPUT, c.node, "add \"output\": \"sharded\"",
            "'%s' cuts the sequence, which the owner of the gradient cuts over cp",
            dim_name(bridge, 1, dim));
    }
}

void lierne_config_check_cuts(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                              const lierne_config_bridge_entry *bridge) {
    for (int side = 0; side < 2; side++) {
        for (int d = 0; d < ndims_of(bridge, side); d++) {
            check_zigzag(r, nodes, bridge, side, d);
            if (side) {
                check_sequence(r, nodes, bridge, d);
            }
        }
    }
}
