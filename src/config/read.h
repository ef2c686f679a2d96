/* Reading a configuration: what the files of this folder share. A reader walks the JSON tree,
 * fills the config and adds a diagnostic for each error; it never stops at the first. The reader
 * remembers a failed allocation, which fails the reading as a whole. */
#ifndef LIERNE_CONFIG_READ_H
#define LIERNE_CONFIG_READ_H

#include "base/base.h"
#include "lierne/config.h"
#include "json/json.h"

#define LIERNE_CONFIG_MAX_GRIDS   256
#define LIERNE_CONFIG_MAX_BRIDGES 1024
#define LIERNE_CONFIG_MAX_NAME    128 /* bytes */
#define LIERNE_CONFIG_AXES        3

typedef struct lierne_config_diagnostic_entry {
    lierne_diagnostic diagnostic;
    int order; /* in which it was found: keeps sorting stable */
    bool more; /* says that there are more than are listed: stays last */
    char *texts[3];
} lierne_config_diagnostic_entry;

typedef struct lierne_config_grid_entry {
    char *name;
    lierne_grid *grid; /* NULL if it could not be made */
} lierne_config_grid_entry;

/* Allocated one by one: spec points into it. */
typedef struct lierne_config_bridge_entry {
    char *name;
    const char *src; /* names of entries of grids; NULL if unknown */
    const char *dst;
    const char *axes[LIERNE_CONFIG_AXES];
    int64_t shape[LIERNE_CONFIG_AXES];
    int64_t *counts[2];
    int32_t *rows;
    lierne_placement placements[2][LIERNE_MAX_DIMS];
    lierne_bridge_spec spec;
    lierne_megatron_spec megatron; /* of spec; algorithm 0: direct */
} lierne_config_bridge_entry;

/* A bridge of packed sequences; likewise. */
typedef struct lierne_config_packed_entry {
    char *name;
    const char *src;
    const char *dst;
    /* Of each side: boundaries and the lists of its packing, which its spec points to. */
    int64_t *lists[2][4];
    int32_t *owners[2];
    int64_t shapes[2][2];
    lierne_placement placements[2][LIERNE_MAX_DIMS];
    lierne_segments segments[2];
    lierne_packing packings[2];
    lierne_layout_spec specs[2];
    lierne_layout *layouts[2];
    lierne_image_run *runs;
    bool has_images;                  /* else the segments move from one layout to another */
    lierne_packed_bridge_spec bridge; /* of images */
    lierne_redistribute_spec move;    /* without */
} lierne_config_packed_entry;

/* A tensor that moves from one layout to another, with or without halos; likewise. */
typedef struct lierne_config_redistribution_entry {
    char *name;
    const char *src;
    const char *dst;
    char *axes[LIERNE_MAX_AXES];
    int64_t shape[LIERNE_MAX_AXES];
    lierne_placement placements[2][LIERNE_MAX_DIMS];
    lierne_dense_halo halos[2][LIERNE_MAX_AXES];
    int64_t *segments[2][LIERNE_MAX_AXES]; /* of halos */
    lierne_layout_spec specs[2];
    lierne_layout *layouts[2];
    lierne_redistribute_spec spec;
} lierne_config_redistribution_entry;

struct lierne_config {
    LIERNE_VEC(lierne_config_diagnostic_entry) diagnostics;
    struct {
        size_t count;
        size_t bytes;
        bool full; /* more than are listed */
    } listed[2];   /* by severity */
    int errors;
    int world;
    LIERNE_VEC(lierne_config_grid_entry) grids;
    LIERNE_VEC(lierne_config_bridge_entry *) bridges;
    LIERNE_VEC(lierne_config_packed_entry *) packed;
    LIERNE_VEC(lierne_config_redistribution_entry *) redistributions;
    int *nodes;
    lierne_links links;
    bool has_links;
};

typedef struct lierne_reader {
    lierne_config *config;
    const lierne_json *doc;
    bool failed; /* an allocation failed */
} lierne_reader;

/* Remembers a failed allocation; whether there was none. */
bool lierne_reader_ok(lierne_reader *r, lierne_status status);

/* Diagnostics (diagnostics.c). number is LIERNE_DIAGNOSTIC_..., or a status for what no rule of the
 * format covers. Their place is the value of node, or its key; node NULL is the whole file. */
void lierne_diagnostic_add(lierne_reader *r, int number, const lierne_json_node *node,
                           const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void lierne_diagnostic_add_key(lierne_reader *r, int number, const lierne_json_node *node,
                               const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Adds what the scanner found. */
void lierne_diagnostic_add_text(lierne_reader *r);
void lierne_diagnostics_sort(lierne_config *config);
void lierne_diagnostics_destroy(lierne_config *config);

/* A text in quotes, cut if it is long: for messages. */
typedef struct lierne_quoted {
    char text[112];
} lierne_quoted;
lierne_quoted lierne_quote(const char *text);
/* What a node is called in a message: its key in quotes, or its place in an array. */
lierne_quoted lierne_label(const lierne_json_node *node);

/* Hints (suggest.c): "did you mean 'llm'? ", intro, and the words. */
typedef struct lierne_config_words {
    int n;
    const char *at[LIERNE_CONFIG_MAX_GRIDS];
} lierne_config_words;
void lierne_config_suggest(lierne_text *hint, const char *word, const char *intro,
                           const lierne_config_words *words);

/* Values (value.c). Each gives a diagnostic and false when the value is not as wanted; node NULL is
 * false without a diagnostic. */
typedef struct lierne_config_key {
    const char *name;
    int types; /* lierne_json_type bits */
    bool required;
} lierne_config_key;
/* Reads the members of an object: found[i] is that of keys[i], NULL if absent or of another type.
 */
bool lierne_config_object(lierne_reader *r, const lierne_json_node *node,
                          const lierne_config_key *keys, int nkeys, const lierne_json_node **found);
/* The members of an object that are no comments, one after the other. */
const lierne_json_node *lierne_config_first(const lierne_reader *r, const lierne_json_node *node);
const lierne_json_node *lierne_config_next(const lierne_reader *r, const lierne_json_node *node);
bool lierne_config_typed(lierne_reader *r, const lierne_json_node *node, int types);
bool lierne_config_integer(lierne_reader *r, const lierne_json_node *node, int64_t low,
                           int64_t high, int64_t *out);
/* Index of a string among words. */
bool lierne_config_word(lierne_reader *r, const lierne_json_node *node, const char *const *words,
                        int nwords, int *out);
/* A list of integers of any size, or of coordinates, to be freed; NULL if there is no memory. */
int64_t *lierne_config_integers(lierne_reader *r, const lierne_json_node *list);
int32_t *lierne_config_coordinates(lierne_reader *r, const lierne_json_node *list);
/* Checks a name, which is the node's key or its string. */
typedef enum lierne_config_name_kind {
    LIERNE_CONFIG_FREE_NAME, /* of a grid or bridge */
    LIERNE_CONFIG_KEY_NAME   /* of a dim or view: part of group keys */
} lierne_config_name_kind;
bool lierne_config_name(lierne_reader *r, const lierne_json_node *node, bool at_key,
                        lierne_config_name_kind kind);
bool lierne_config_true(const lierne_json_node *node);

/* How the grids, all read, lie on the world (world.c). */
typedef struct lierne_world_nodes {
    const lierne_json_node *world;
    const lierne_json_node *grids;
    const lierne_json_node *cover; /* NULL: the file does not say */
} lierne_world_nodes;
void lierne_config_check_world(lierne_reader *r, const lierne_world_nodes *w);

/* Parts of the file. */
void lierne_config_read_grids(lierne_reader *r, const lierne_json_node *grids, int64_t world);
void lierne_config_read_views(lierne_reader *r, const lierne_json_node *views, lierne_grid *grid);
void lierne_config_read_bridges(lierne_reader *r, const lierne_json_node *bridges);
void lierne_config_bridge_free(lierne_config_bridge_entry *bridge);
void lierne_config_read_packed(lierne_reader *r, const lierne_json_node *bridges);
void lierne_config_packed_free(lierne_config_packed_entry *entry);
void lierne_config_read_redistributions(lierne_reader *r, const lierne_json_node *list);
void lierne_config_redistribution_free(lierne_config_redistribution_entry *entry);

/* What bridges of all kinds have (bridges.c): a name that no other bridge has, to be freed; grid
 * and view of a side. A grid whose view is unknown is treated as unknown. */
char *lierne_config_bridge_name(lierne_reader *r, const lierne_json_node *node);
/* Reads the bridges of a list one after the other; what: what they are, in words. */
void lierne_config_each_bridge(lierne_reader *r, const lierne_json_node *bridges, const char *what,
                               void (*read)(lierne_reader *r, const lierne_json_node *node));
/* The objects "src" and "dst" of an object that may be NULL; NULL if absent. */
void lierne_config_pair(lierne_reader *r, const lierne_json_node *node,
                        const lierne_json_node *found[2]);
void lierne_config_read_end(lierne_reader *r, const lierne_json_node *node,
                            const lierne_json_node *view, const char **name,
                            const lierne_grid **grid, const char **view_name);

/* Dims of a grid or view: order and shape together (config_grids.c). */
typedef struct lierne_config_dims {
    int count;
    const char *names[LIERNE_MAX_DIMS];
    int64_t sizes[LIERNE_MAX_DIMS];
} lierne_config_dims;
bool lierne_config_read_dims(lierne_reader *r, const lierne_json_node *order,
                             const lierne_json_node *shape, lierne_config_dims *out);

/* The axes that a tensor is planned with: its own, or, where it has rows of samples, three. */
typedef struct lierne_config_planned {
    int naxes;
    int batch; /* -1 if unknown, as is sequence if there is none */
    int sequence;
    const char *names[LIERNE_CONFIG_AXES];
    int64_t sizes[LIERNE_CONFIG_AXES];                 /* 0 if unknown */
    const lierne_json_node *nodes[LIERNE_CONFIG_AXES]; /* where the size is said */
} lierne_config_planned;

/* A bridge being read: its values in the file beside what they make. Of pairs the source's is
 * first. */
typedef struct lierne_config_bridge_nodes {
    const lierne_json_node *bridge, *name, *src, *dst, *tensor, *batch, *sequence, *gradient;
    const lierne_json_node *algorithm, *counts, *require_divisible, *output;
    const lierne_json_node *axes, *shape, *dtype, *sizes[LIERNE_CONFIG_AXES];
    const lierne_json_node *rows_per_sample, *row_order;
    const lierne_json_node *owner, *storage, *rows;
    const lierne_json_node *dp_counts[2];
    const lierne_json_node *views[2];
    const lierne_json_node *placed[2][LIERNE_MAX_DIMS]; /* by dim of the view */
    lierne_config_planned planned;
} lierne_config_bridge_nodes;

/* Grid and view of a side of a bridge; NULL if unknown. */
const lierne_grid *lierne_config_side(const lierne_config_bridge_entry *bridge, int side);
const char *lierne_config_side_view(const lierne_config_bridge_entry *bridge, int side);
/* Index of a dim in the view of a side, -1 if there is none. */
int lierne_config_side_dim(const lierne_config_bridge_entry *bridge, int side, const char *name);

/* Tensor, batch and sequence (tensor.c). */
void lierne_config_dtype(lierne_reader *r, const lierne_json_node *node, lierne_dtype *dtype);
void lierne_config_read_tensor(lierne_reader *r, lierne_config_bridge_nodes *nodes,
                               lierne_config_bridge_entry *bridge);

/* Index of a dim in a view of a grid, -1 if there is none; and of the axis that a string names,
 * n with a diagnostic if there is none (none, if there are no axes). */
int lierne_config_find_dim(const lierne_grid *grid, const char *view, const char *name);
int lierne_config_find_axis(lierne_reader *r, const lierne_json_node *node,
                            const char *const *names, int n);

/* Placements (placements.c): reads those of a bridge; then the rules on what cuts an axis, which
 * look at placements and owner together. */
void lierne_config_read_placements(lierne_reader *r, const lierne_json_node *node,
                                   lierne_config_bridge_nodes *nodes,
                                   lierne_config_bridge_entry *bridge);
void lierne_config_check_cuts(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                              const lierne_config_bridge_entry *bridge);

/* The rules of a bridge that go beyond one value (bridge_rules.c). sound: no value had an error. */
void lierne_config_check_bridge(lierne_reader *r, const lierne_config_bridge_nodes *nodes,
                                const lierne_config_bridge_entry *bridge, bool sound);

#endif
