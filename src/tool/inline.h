/* A bridge given on the command line in place of a file. */
#ifndef LIERNE_TOOL_INLINE_H
#define LIERNE_TOOL_INLINE_H

#include "tool.h"

typedef struct tool_inline {
    const char *src, *dst, *tensor, *dtype;
} tool_inline;

bool tool_inline_given(const tool_inline *given);
/* A configuration with grids src and dst and the bridge src_to_dst; diagnostics go to stderr,
 * unless quiet. Returns -1, or the exit status to end with, and *out is NULL then. */
int tool_inline_load(char **argv, const tool_inline *given, bool quiet, lierne_config **out);

#endif
