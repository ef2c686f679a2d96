/* The formats of lierne check for programs: JSON, SARIF, GitHub's workflow commands, JUnit. */
#ifndef LIERNE_TOOL_FINDINGS_H
#define LIERNE_TOOL_FINDINGS_H

#include "tool.h"

/* What one file has. keep: of each diagnostic, whether it is printed. */
typedef struct findings_file {
    const char *path;
    const lierne_config *config;
    const bool *keep;
    bool valid;
    int before; /* files so far */
} findings_file;

typedef struct findings_format {
    const char *name;
    void (*begin)(int nfiles);
    void (*file)(const findings_file *file);
    void (*end)(void);
} findings_format;

/* json, sarif, github or junit; NULL: another name. */
const findings_format *findings_format_find(const char *name);

#endif
