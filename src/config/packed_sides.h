/* Bridges of packed sequences: what the two files that read them share. */
#ifndef LIERNE_CONFIG_PACKED_SIDES_H
#define LIERNE_CONFIG_PACKED_SIDES_H

#include "config/read.h"

/* Keys of a packing; their names are those of its fields. */
enum {
    LIERNE_PACKED_CU_PADDED,
    LIERNE_PACKED_ALIGN,
    LIERNE_PACKED_LEAD,
    LIERNE_PACKED_OWNER,
    LIERNE_PACKED_ORDER,
    LIERNE_PACKED_STORE,
    LIERNE_PACKED_PADDING,
    LIERNE_PACKED_ROW_ORDER,
    LIERNE_PACKED_KEYS
};
extern const lierne_config_key lierne_config_packing_keys[LIERNE_PACKED_KEYS];

/* A side being read. */
typedef struct lierne_config_packed_side {
    const lierne_json_node *cu, *placed, *padding; /* padding: the packing as a whole */
    const lierne_json_node *packed[LIERNE_PACKED_KEYS];
    const lierne_grid *grid; /* NULL if unknown */
    const char *view;
    int64_t **lists; /* all that follows is the entry's: four lists */
    int32_t **owner;
    lierne_segments *segments;
    lierne_packing *packing;
    lierne_placement *placements;
} lierne_config_packed_side;

/* The axes of a tensor, the slowest first; 0 if they are wrong. */
typedef struct lierne_config_packed_axes {
    int count;
    const char *names[LIERNE_MAX_AXES];
} lierne_config_packed_axes;

/* Boundaries, {"cu_seqlens": [...]}; packing and placements, which may be NULL. */
void lierne_config_read_boundaries(lierne_reader *r, const lierne_json_node *node,
                                   lierne_config_packed_side *s);
void lierne_config_read_packing(lierne_reader *r, const lierne_json_node *node,
                                lierne_config_packed_side *s);
void lierne_config_read_packed_placements(lierne_reader *r, const lierne_config_packed_axes *axes,
                                          lierne_config_packed_side *s, bool source);
/* Index of a dim of the side's view; -1, with a diagnostic at the key or value of node, if there is
 * none. */
int lierne_config_packed_dim(lierne_reader *r, const lierne_json_node *node, bool key,
                             const lierne_config_packed_side *s);

#endif
