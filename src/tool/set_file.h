/* Files that list the tensors of a set, for --set of lierne plan and lierne simulate. */
#ifndef LIERNE_TOOL_SET_FILE_H
#define LIERNE_TOOL_SET_FILE_H

#include "tool/tool.h"

#include <stdint.h>

typedef struct set_tensor {
    lierne_dtype dtype;
    double bytes; /* of the whole tensor, as the file has it */
    int naxes;
    int64_t shape[LIERNE_MAX_AXES];
    lierne_placement placements[2][LIERNE_MAX_DIMS];
    lierne_layout *layouts[2];
} set_tensor;

typedef struct set_file {
    const char *path;
    char **argv; /* for messages */
    bool reduce; /* set before reading: axes that are cut evenly have the fewest indices */
    int world;
    lierne_grid *grids[2];
    set_tensor *at;
    int64_t n, capacity;
} set_file;

/* Reads a file. Returns -1 to go on; or prints what is wrong, and returns the exit status. To be
 * closed in any case. */
int set_file_read(set_file *file, const char *path, char **argv);
void set_file_close(set_file *file);

/* The layout of a tensor on a side; it points into the file. */
lierne_layout_spec set_file_spec(const set_file *file, const set_tensor *tensor, int side);

/* Moves the set of a file in a simulated world, and says what is wrong (simulate_set.c). full: axes
 * keep their sizes. Returns an exit status. */
int set_file_simulate(const char *path, bool full, bool json, char **argv);

#endif
