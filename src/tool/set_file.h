/* Files that list the tensors of a set, for --set of lierne plan and lierne simulate. */
#ifndef LIERNE_TOOL_SET_FILE_H
#define LIERNE_TOOL_SET_FILE_H

#include "tool/tool.h"

#include <cjson/cJSON.h>
#include <stdint.h>

typedef struct set_tensor {
    char *name;
    lierne_dtype dtype;
    double bytes; /* of the whole tensor, as the file has it */
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_placement placements[2][LIERNE_MAX_DIMS];
    lierne_layout *layouts[2]; /* with boxes that of its own side */
} set_tensor;

typedef struct set_list {
    set_tensor *at;
    int64_t n, capacity;
} set_list;

/* src and dst of the box are places in the lists. */
typedef struct set_box {
    lierne_set_box box;
    int axes[LIERNE_MAX_AXES];
    bool permuted; /* the file gives axes */
} set_box;

typedef struct set_file {
    const char *path;
    char **argv;      /* for messages */
    const char *text; /* while it is read */
    const char *key; /* what is read: an element of this list of the text, where index is not -1; */
    int64_t index;   /* NULL: all of it, "": what is not in the text */
    bool reduce;     /* set before reading: axes that are cut evenly have the fewest indices, */
    bool reduced;    /* which has no sense with boxes */
    int world;
    lierne_grid *grids[2];
    set_list lists[2]; /* of the source and the destination; without boxes the first is both */
    bool has_boxes;
    set_box *boxes;
    int64_t nboxes;
} set_file;

/* The tensors of one dtype, as the library takes them. numbers: of each side, in its list. */
typedef struct set_selection {
    lierne_set_spec spec; /* ntensors 0: there are none */
    int64_t n[2];
    int64_t *numbers[2];
    const lierne_layout **layouts[2];
    lierne_set_box *boxes;
    int64_t *box_numbers;
} set_selection;

/* Reads a file. Returns -1 to go on; or prints what is wrong, and returns the exit status. To be
 * closed in any case. */
int set_file_read(set_file *file, const char *path, char **argv);
void set_file_close(set_file *file);

const set_list *set_file_list(const set_file *file, int side);
/* Selects the tensors of a dtype; to be freed in any case. Returns -1 to go on, or the exit status.
 */
int set_select(set_selection *selection, const set_file *file, lierne_dtype dtype);
void set_selection_free(set_selection *selection);

/* For set_file.c (set_place.c). Says what is wrong with what is read, with its line and column.
 * Returns TOOL_INVALID. */
int set_file_say(const set_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A member that an object may not have, or NULL. */
const char *set_file_unknown_key(const cJSON *object, const char *const *keys);
/* The boxes of a file whose tensors are read, and that each dtype has a set. As set_file_read. */
int set_file_read_boxes(set_file *file, const cJSON *list);

/* The layout of a tensor on a side; it points into the file. */
lierne_layout_spec set_file_spec(const set_file *file, const set_tensor *tensor, int side);

/* Moves the set of a file in a simulated world, and says what is wrong (simulate_set.c). full: axes
 * keep their sizes. Returns an exit status. */
int set_file_simulate(const char *path, bool full, bool json, char **argv);

#endif
