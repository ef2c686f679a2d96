/* What plan, simulate and run share: a bridge of a file, as the command line names it. */
#ifndef LIERNE_TOOL_BRIDGE_H
#define LIERNE_TOOL_BRIDGE_H

#include "inline.h"
#include "packed_rows.h"

#include "lierne/sim.h"

typedef enum tool_algorithm {
    TOOL_DIRECT = 0,
    TOOL_COLLECTIVE = LIERNE_MEGATRON_ALGORITHM_COLLECTIVE,
    TOOL_LEADER = LIERNE_MEGATRON_ALGORITHM_LEADER
} tool_algorithm;

typedef struct tool_bridge {
    const char *path;
    tool_inline given; /* in place of path and name */
    const char *name;
    const char *algorithm;      /* as given; NULL: the file's */
    const char *routing;        /* as given, or NULL */
    const char *max_peers;      /* likewise */
    const char *const *formats; /* set before parsing, as for tool_format; NULL: text and json */
    int format;                 /* index of the one given */
    const char *links;
    lierne_links own_links; /* those of links */
    int most_peers;         /* that of max_peers; 0: any number */
    bool json;
    const char *set; /* --set: a file in place of path and name; or NULL */
    bool optional;   /* set before parsing: --bridge may be missing, and name is NULL then */
    lierne_config *config;
    int world;
    lierne_bridge_spec spec; /* of a packed bridge: tensor, dtype and routing only */
    bool takes_packed;       /* set before parsing: the subcommand takes packed bridges */
    bool checks;             /* likewise: it compares elements */
    tool_packed *packed;     /* NULL: the bridge is not packed */
    tool_packed own_packed;
    tool_algorithm method; /* the one given, or the file's */
} tool_bridge;

/* Checks --routing. Returns -1, or TOOL_USAGE. */
int tool_bridge_routing(const tool_bridge *bridge, char **argv);
/* Parses the options that all have (--bridge, --algorithm, --routing, --max-peers,
 * --links, --format) and those of the subcommand.
 * Returns -1 to go on, or the exit status to end with. */
int tool_bridge_parse(tool_bridge *bridge, int argc, char **argv, const char *help,
                      const tool_option *options, int noptions);
/* Finds the bridge in bridge->config, which bridge owns from then on. Returns likewise. */
int tool_bridge_find(tool_bridge *bridge, char **argv);
/* Loads the file, diagnostics to stderr, and finds the bridge. Returns likewise. */
int tool_bridge_load(tool_bridge *bridge, char **argv);
void tool_bridge_close(tool_bridge *bridge);

/* A number given as an option: returns -1, or TOOL_USAGE. *out is unchanged if text is NULL. */
int tool_bridge_number(char **argv, const char *option, const char *text, int least, int most,
                       int *out);

/* "direct", "collective", "leader"; "partial", "zigzag", "contiguous", "rows". */
const char *tool_bridge_algorithm(tool_algorithm algorithm);
const char *tool_bridge_owner(lierne_gradient_owner owner);

/* Opens a packed bridge of so many columns, 0: all; another bridge is left as it is. Returns -1, or
 * TOOL_INVALID. */
int tool_bridge_open_packed(tool_bridge *bridge, int64_t hidden, char **argv);
/* Whether every sum of a bridge is exact in its dtype, so that elements can be checked. A packed
 * one must be open. Returns -1, or TOOL_USAGE. */
int tool_bridge_exact(const tool_bridge *bridge, char **argv);

/* Plans a bridge with an algorithm, or, where packed is not NULL, that packed bridge. Collective.
 */
lierne_status tool_bridge_plan(lierne_plan **out, lierne_context *context,
                               const tool_packed *packed, const lierne_bridge_spec *spec,
                               tool_algorithm algorithm);

/* How to create its context: nodes and links of the command line or the file. */
lierne_context_spec tool_bridge_context(const tool_bridge *bridge);

/* A simulated world of as many ranks as the file has, on its nodes. NULL: failed, and said so. */
lierne_sim *tool_bridge_sim(const tool_bridge *bridge, char **argv);

#endif
