/* Files that list the tensors of a set, for lierne plan --set. */
#ifndef LIERNE_TOOL_SET_FILE_H
#define LIERNE_TOOL_SET_FILE_H

#include "tool/tool.h"

#include <stdint.h>

typedef struct set_tensor {
    lierne_dtype dtype;
    double bytes; /* of the whole tensor */
    lierne_layout *layouts[2];
} set_tensor;

typedef struct set_file {
    const char *path;
    char **argv; /* for messages */
    int world;
    lierne_grid *grids[2];
    set_tensor *at;
    int64_t n, capacity;
} set_file;

/* Reads a file. Returns -1 to go on; or prints what is wrong, and returns the exit status. To be
 * closed in any case. */
int set_file_read(set_file *file, const char *path, char **argv);
void set_file_close(set_file *file);

#endif
