/* Configuration files: one JSON file describes the grids of a job and the bridges between them.
 * docs/grid-format.md has the format, grids/ has examples.
 *
 * Reading a file never stops at its first error: all diagnostics are collected, each with its code,
 * line, column and JSON pointer. Pure: no function here communicates, none is collective.
 *
 * Ownership: the config owns everything that it hands out. Thread safety: a config may be read by
 * many threads at once. */
#ifndef LIERNE_CONFIG_H
#define LIERNE_CONFIG_H

#include "lierne/bridge.h"
#include "lierne/megatron.h"
#include "lierne/packed_bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_config lierne_config;

typedef enum lierne_severity {
    LIERNE_SEVERITY_WARNING = 0,
    LIERNE_SEVERITY_ERROR = 1
} lierne_severity;

typedef struct lierne_diagnostic {
    lierne_severity severity;
    const char *code; /* "LG001" and up, or the name of a status */
    int line;         /* from 1; column counts bytes, from 1 */
    int column;
    const char *pointer; /* RFC 6901, "/grids/llm/shape/tp"; "" is the whole file */
    const char *message; /* one line: what is wrong, with the value and the bound */
    const char *hint;    /* one line: how to correct it; never NULL, may be "" */
} lierne_diagnostic;

/* The table of diagnostics: X(code, name, paragraph). docs/errors.md is generated from it. */
#include "lierne/diagnostics.h"

/* Reads a configuration from length bytes of text. With SYNTAX and CONFIG *out is a configuration
 * too, whose diagnostics can be listed; with INVALID and NO_MEMORY it is NULL. Free it with
 * lierne_config_destroy. Errors: SYNTAX (the text is not strict JSON; all diagnostics are of the
 * text), CONFIG (diagnostics of severity error), INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_config_parse(lierne_config **out, const char *text, size_t length);
/* The same from a file. Errors: as lierne_config_parse; IO (*out is NULL). */
LIERNE_API lierne_status lierne_config_read(lierne_config **out, const char *path);
/* Frees a configuration and all that it handed out. NULL is allowed. */
LIERNE_API void lierne_config_destroy(lierne_config *config);

/* Number of diagnostics, 0 for NULL, and diagnostic i in the order of their place in the file, NULL
 * if there is none. */
LIERNE_API int lierne_config_get_ndiagnostics(const lierne_config *config);
LIERNE_API const lierne_diagnostic *lierne_config_get_diagnostic(const lierne_config *config,
                                                                 int i);

/* The getters below need a configuration without diagnostics of severity error.
 *
 * Ranks of the world, 0 for NULL. */
LIERNE_API int lierne_config_get_world_size(const lierne_config *config);
/* Number of grids, 0 for NULL; name of grid i, NULL if there is none. */
LIERNE_API int lierne_config_get_ngrids(const lierne_config *config);
LIERNE_API const char *lierne_config_get_grid_name(const lierne_config *config, int i);
/* Grid by name, NULL if there is none. */
LIERNE_API const lierne_grid *lierne_config_get_grid(const lierne_config *config, const char *name);
/* Number of bridges, 0 for NULL; name of bridge i, NULL if there is none. */
LIERNE_API int lierne_config_get_nbridges(const lierne_config *config);
LIERNE_API const char *lierne_config_get_bridge_name(const lierne_config *config, int i);
/* The spec of a bridge by name, ready for lierne_plan_create_bridge; NULL if there is none. Its
 * size is the library's: a program that copies the struct sets the size of its copy. */
LIERNE_API const lierne_bridge_spec *lierne_config_get_bridge(const lierne_config *config,
                                                              const char *name);
/* The spec of a bridge whose algorithm is collective or leader, ready for
 * lierne_plan_create_megatron; NULL for another algorithm, or if there is no such bridge. */
LIERNE_API const lierne_megatron_spec *lierne_config_get_megatron(const lierne_config *config,
                                                                  const char *name);
/* Number of packed bridges ("packed_bridges" of the file: an example microbatch each), 0 for NULL;
 * name of packed bridge i, NULL if there is none. No other bridge has it. */
LIERNE_API int lierne_config_get_npacked_bridges(const lierne_config *config);
LIERNE_API const char *lierne_config_get_packed_bridge_name(const lierne_config *config, int i);
/* A packed bridge by name: one with images, ready for lierne_plan_create_packed_bridge; or one
 * without, which moves segments from one layout to another, ready for
 * lierne_plan_create_redistribute. NULL if there is none, or if it is of the other kind. The size
 * is the library's, as above; capacities are 0. */
LIERNE_API const lierne_packed_bridge_spec *
lierne_config_get_packed_bridge(const lierne_config *config, const char *name);
LIERNE_API const lierne_redistribute_spec *
lierne_config_get_packed_move(const lierne_config *config, const char *name);
/* The spec of the layout of a packed bridge's source (side 0) or destination (1), with its segments
 * and packing: for other capacities, sizes or dtypes. NULL if there is no such bridge or side. */
LIERNE_API const lierne_layout_spec *lierne_config_get_packed_layout(const lierne_config *config,
                                                                     const char *name, int side);
/* Number of redistributions ("redistributions" of the file), 0 for NULL; name of redistribution i,
 * NULL if there is none. No bridge has it. */
LIERNE_API int lierne_config_get_nredistributions(const lierne_config *config);
LIERNE_API const char *lierne_config_get_redistribution_name(const lierne_config *config, int i);
/* A redistribution by name, ready for lierne_plan_create_redistribute; NULL if there is none. The
 * size is the library's, as above. */
LIERNE_API const lierne_redistribute_spec *
lierne_config_get_redistribution(const lierne_config *config, const char *name);
/* The spec of its source's (side 0) or destination's layout (1), with its halos: for other sizes or
 * dtypes. NULL if there is no such redistribution or side. */
LIERNE_API const lierne_layout_spec *
lierne_config_get_redistribution_layout(const lierne_config *config, const char *name, int side);
/* Names of a bridge's source and destination grids and of its axes ("b", "s", "h"); NULL if there
 * is no such bridge or axis. Redistributions have all three, packed bridges sides and no axes here.
 */
LIERNE_API const char *lierne_config_get_bridge_src(const lierne_config *config, const char *name);
LIERNE_API const char *lierne_config_get_bridge_dst(const lierne_config *config, const char *name);
LIERNE_API const char *lierne_config_get_bridge_axis(const lierne_config *config, const char *name,
                                                     int axis);
/* Node of each rank: lierne_config_get_world_size() ints. NULL if the file has no "nodes". */
LIERNE_API const int *lierne_config_get_nodes(const lierne_config *config);
/* The links of the machine, for lierne_context_spec; NULL if the file has no "links". */
LIERNE_API const lierne_links *lierne_config_get_links(const lierne_config *config);

#ifdef __cplusplus
}
#endif
#endif
