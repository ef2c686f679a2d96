/* lierne import: what the readers of other tools' descriptions share. A reader fills a world; the
 * command completes it, writes it as a configuration, and has the library check that. */
#ifndef LIERNE_TOOL_IMPORT_H
#define LIERNE_TOOL_IMPORT_H

#include "tool/tool.h"

#include <cjson/cJSON.h>
#include <stdint.h>

enum { IMPORT_DIMS = 8, IMPORT_GRIDS = 16, IMPORT_VIEWS = 2, IMPORT_NAME = 65 };
#define IMPORT_MOST 16777216 /* ranks */

typedef struct import_dims {
    char name[IMPORT_NAME]; /* of the view; "": there is none */
    int n;
    struct {
        char name[IMPORT_NAME];
        int64_t size;
    } at[IMPORT_DIMS];  /* the fastest first */
    const char *shared; /* a dim that it shares with the base, or NULL */
} import_dims;

typedef struct import_grid {
    char name[IMPORT_NAME];
    import_dims base;
    import_dims views[IMPORT_VIEWS];
    int nviews;
    int64_t offset;
    int64_t heads; /* attention heads; 0: not given */
} import_grid;

typedef struct import_world {
    int64_t world;    /* --world-size; 0: not given */
    const char *name; /* --name, of the only grid */
    const char *set;  /* --set, variables of a script: "TP=8,PP=4"; NULL: not given */
    import_grid grids[IMPORT_GRIDS];
    int ngrids;
    char **argv; /* for messages */
} import_world;

/* Readers: operands are argv[0] to argv[argc - 1]. Each returns -1, or prints what is wrong or
 * ambiguous and returns the exit status. */
typedef int import_reader(import_world *world, int argc, char **argv);
import_reader import_megatron, import_component, import_devicemesh, import_torchtitan, import_m2n;

/* A new grid without dims; the name is --name, or the one given. NULL: too many, and said so. */
import_grid *import_add_grid(import_world *world, const char *name);
void import_add_dim(import_dims *dims, const char *name, int64_t size);
int64_t import_size(const import_dims *dims);
/* A whole number from least to IMPORT_MOST in digits. what: whose it is. Returns -1 or TOOL_USAGE.
 */
int import_number(const import_world *world, const char *what, const char *text, int64_t least,
                  int64_t *out);
/* A number of JSON, if it is whole and within the bounds, or 0. Returns whether it is; NULL is not.
 */
bool import_whole(int64_t *to, const cJSON *item, int64_t least, int64_t most);
/* size / by, which must be whole: returns -1 or TOOL_INVALID. */
int import_share(const import_world *world, const char *what, int64_t size, int64_t by,
                 int64_t *out);
/* The text of a file, "-" for standard input, to be freed. NULL: it cannot be read, or has a byte
 * 0; said so. */
char *import_read(const import_world *world, const char *path);
/* Warns where none of n sizes was found in the file; what: which are looked for. */
void import_warn_default(const import_world *world, const char *path, const int64_t *sizes, int n,
                         const char *what);

#endif
