/* One side of a bridge of packed sequences: how it packs the segments, and how its dims cut them.
 */
#include "config/packed_sides.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

const lierne_config_key lierne_config_packing_keys[LIERNE_PACKED_KEYS] = {
    [LIERNE_PACKED_CU_PADDED] = {"cu_seqlens_padded", LIERNE_JSON_ARRAY, false},
    [LIERNE_PACKED_ALIGN] = {"align", LIERNE_JSON_NUMBER, false},
    [LIERNE_PACKED_LEAD] = {"lead", LIERNE_JSON_ARRAY, false},
    [LIERNE_PACKED_OWNER] = {"owner", LIERNE_JSON_ARRAY, false},
    [LIERNE_PACKED_ORDER] = {"order", LIERNE_JSON_ARRAY, false},
    [LIERNE_PACKED_STORE] = {"store", LIERNE_JSON_STRING, false},
    [LIERNE_PACKED_PADDING] = {"padding", LIERNE_JSON_STRING, false},
    [LIERNE_PACKED_ROW_ORDER] = {"row_order", LIERNE_JSON_STRING, false},
};
void lierne_config_read_boundaries(lierne_reader *r, const lierne_json_node *node,
                                   lierne_config_packed_side *s) {
    static const lierne_config_key keys[] = {{"cu_seqlens", LIERNE_JSON_ARRAY, true}};
    if (!lierne_config_object(r, node, keys, COUNT(keys), &s->cu) || !s->cu) {
        return;
    }
    if (s->cu->count == 0) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PACKED, s->cu, "write [0] if there are none",
                              "cu_seqlens is empty, must have one boundary more than segments");
        s->cu = NULL;
        return;
    }
    s->lists[0] = lierne_config_integers(r, s->cu);
    *s->segments = (lierne_segments){sizeof *s->segments, s->cu->count - 1, s->lists[0]};
}

/* A list of the packing, which has `more` entries beyond one for each segment. */
static bool list_fits(lierne_reader *r, const lierne_config_packed_side *s, int key, int more) {
    const lierne_json_node *node = s->packed[key];
    int64_t wanted = s->segments->nsegments + more;
    if (!node || !s->cu) {
        return false;
    }
    if (node->count != wanted) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PACKED, node, "",
                              "%s has %d entries, must have %lld: cu_seqlens has %d",
                              lierne_config_packing_keys[key].name, node->count, (long long)wanted,
                              s->cu->count);
        return false;
    }
    return true;
}

static void read_words(lierne_reader *r, lierne_config_packed_side *s) {
    static const char *const stores[] = {"padded", "unpadded"}; /* in the enums' order */
    static const char *const paddings[] = {"zero", "keep"};
    static const char *const orders[] = {"sample", "sequence"};
    int word;
    if (lierne_config_word(r, s->packed[LIERNE_PACKED_STORE], stores, COUNT(stores), &word)) {
        s->packing->store = (lierne_packing_store)word;
    }
    if (lierne_config_word(r, s->packed[LIERNE_PACKED_PADDING], paddings, COUNT(paddings), &word)) {
        s->packing->padding = (lierne_padding)word;
    }
    if (lierne_config_word(r, s->packed[LIERNE_PACKED_ROW_ORDER], orders, COUNT(orders), &word)) {
        s->packing->row_order = (lierne_row_order)word;
    }
}

void lierne_config_read_packing(lierne_reader *r, const lierne_json_node *node,
                                lierne_config_packed_side *s) {
    static const struct {
        int key, more;
    } lists[] = {{LIERNE_PACKED_CU_PADDED, 1}, {LIERNE_PACKED_LEAD, 0}, {LIERNE_PACKED_ORDER, 0}};
    if (!lierne_config_object(r, node, lierne_config_packing_keys, LIERNE_PACKED_KEYS, s->packed)) {
        return;
    }
    for (int i = 0; i < COUNT(lists); i++) {
        if (list_fits(r, s, lists[i].key, lists[i].more)) {
            s->lists[i + 1] = lierne_config_integers(r, s->packed[lists[i].key]);
        }
    }
    s->packing->cu_seqlens_padded = s->lists[1];
    s->packing->lead = s->lists[2];
    s->packing->order = s->lists[3];
    if (list_fits(r, s, LIERNE_PACKED_OWNER, 0)) {
        s->packing->owner = *s->owner =
            lierne_config_coordinates(r, s->packed[LIERNE_PACKED_OWNER]);
    }
    lierne_config_integer(r, s->packed[LIERNE_PACKED_ALIGN], INT64_MIN, INT64_MAX,
                          &s->packing->align);
    read_words(r, s);
}

static void read_placement(lierne_reader *r, const lierne_json_node *node,
                           const lierne_config_packed_axes *axes, lierne_placement *placement) {
    static const lierne_config_key keys[] = {
        {"shard", LIERNE_JSON_STRING, false},
        {"zigzag", LIERNE_JSON_STRING, false},
        {"shard_segments", LIERNE_JSON_STRING, false},
        {"segment_zigzag", LIERNE_JSON_STRING, false},
        {"segment_shard", LIERNE_JSON_STRING, false},
        {"at", LIERNE_JSON_NUMBER, false},
    };
    static const lierne_placement_kind kinds[] = {LIERNE_PLACEMENT_SHARD,
                                                  LIERNE_PLACEMENT_SHARD_ZIGZAG,
                                                  LIERNE_PLACEMENT_SHARD_SEGMENTS,
                                                  LIERNE_PLACEMENT_SEGMENT_ZIGZAG,
                                                  LIERNE_PLACEMENT_SEGMENT_SHARD,
                                                  LIERNE_PLACEMENT_AT};
    const lierne_json_node *found[COUNT(keys)];
    int given = 0, at = 0;
    int64_t coordinate = 0;
    if (!lierne_config_object(r, node, keys, COUNT(keys), found)) {
        return;
    }
    for (int i = 0; i < COUNT(keys); i++) {
        given += found[i] != NULL;
        at = found[i] ? i : at;
    }
    if (given != 1) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_PLACEMENT, node,
                              "one of shard, zigzag, shard_segments, segment_zigzag, "
                              "segment_shard and at",
                              "%s has %d placements, must have one", lierne_label(node).text,
                              given);
        return;
    }
    placement->kind = kinds[at];
    if (kinds[at] == LIERNE_PLACEMENT_AT) {
        lierne_config_integer(r, found[at], 0, LIERNE_MAX_RANKS, &coordinate);
        placement->at = (int)coordinate;
    } else {
        placement->axis = lierne_config_find_axis(r, found[at], axes->names, axes->count);
    }
}

/* The tensor is on the last stage of the source, and goes to the first of the destination. */
static void place_stages(lierne_config_packed_side *s, bool source) {
    int d = lierne_config_find_dim(s->grid, s->view, "pp");
    if (d >= 0) {
        int last = lierne_grid_get_dim_size(s->grid, s->view, d) - 1;
        s->placements[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = source ? last : 0};
    }
}

int lierne_config_packed_dim(lierne_reader *r, const lierne_json_node *node, bool key,
                             const lierne_config_packed_side *s) {
    const char *name = key ? lierne_json_key(node) : lierne_json_string(node);
    int d = lierne_config_find_dim(s->grid, s->view, name);
    if (d < 0) {
        (key ? lierne_diagnostic_add_key
             : lierne_diagnostic_add)(r, LIERNE_DIAGNOSTIC_PLACEMENT_DIM, node,
                                      "name a dim of the view that the bridge uses",
                                      "%s is not a dim of it", lierne_quote(name).text);
    }
    return d;
}

void lierne_config_read_packed_placements(lierne_reader *r, const lierne_config_packed_axes *axes,
                                          lierne_config_packed_side *s, bool source) {
    if (s->grid) {
        place_stages(s, source);
    }
    for (const lierne_json_node *n = s->placed ? lierne_config_first(r, s->placed) : NULL; n;
         n = lierne_config_next(r, n)) {
        int d = s->grid ? lierne_config_packed_dim(r, n, true, s) : -1;
        lierne_placement ignored = {0};
        read_placement(r, n, axes, d >= 0 ? &s->placements[d] : &ignored);
    }
}
