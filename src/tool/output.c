/* Reading a configuration for a subcommand, and printing: diagnostics as compilers print them, and
 * lists of numbers. */
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int tool_load(char **argv, const char *path, lierne_config **out) {
    lierne_config_read(out, strcmp(path, "-") == 0 ? "/dev/stdin" : path);
    return *out ? -1 : tool_failed(argv);
}

/* A warning of another bridge than the one that was asked for. */
static bool is_of_other(const lierne_config *config, const lierne_diagnostic *d,
                        const char *bridge) {
    static const char list[] = "/bridges/";
    if (!bridge || d->severity == LIERNE_SEVERITY_ERROR ||
        strncmp(d->pointer, list, sizeof list - 1) != 0) {
        return false;
    }
    const char *name =
        lierne_config_get_bridge_name(config, (int)strtol(d->pointer + sizeof list - 1, NULL, 10));
    return name && strcmp(name, bridge) != 0;
}

int tool_load_valid(char **argv, const char *path, const char *bridge, lierne_config **out) {
    bool valid = true;
    int status = tool_load(argv, path, out);
    for (int i = 0; i < lierne_config_get_ndiagnostics(*out); i++) {
        const lierne_diagnostic *diagnostic = lierne_config_get_diagnostic(*out, i);
        if (!is_of_other(*out, diagnostic, bridge)) {
            tool_print_diagnostic(stderr, path, diagnostic);
        }
        valid = valid && diagnostic->severity != LIERNE_SEVERITY_ERROR;
    }
    if (status < 0 && !valid) {
        lierne_config_destroy(*out);
        *out = NULL;
        return TOOL_INVALID;
    }
    return status;
}

int tool_load_text(char **argv, const char *text, size_t length, bool quiet, lierne_config **out) {
    lierne_status status = lierne_config_parse(out, text, length);
    for (int i = 0; i < lierne_config_get_ndiagnostics(*out) && !quiet; i++) {
        const lierne_diagnostic *d = lierne_config_get_diagnostic(*out, i);
        tool_say(argv, "%s: [%s] %s%s%s", d->severity ? "error" : "warning", d->code, d->message,
                 *d->hint ? "; " : "", d->hint);
    }
    if (status == LIERNE_OK) {
        return -1;
    }
    int end = *out ? TOOL_INVALID : tool_failed(argv);
    lierne_config_destroy(*out);
    *out = NULL;
    return end;
}

/* Names of the grids or bridges (what) of a file, if they fit; returns how many it has. */
static int list_names(char *list, size_t size, const char *what, const lierne_config *config) {
    size_t used = 0;
    bool grids = strcmp(what, "grid") == 0;
    int bridges = lierne_config_get_nbridges(config);
    int packed = bridges + lierne_config_get_npacked_bridges(config);
    int count = grids ? lierne_config_get_ngrids(config)
                      : packed + lierne_config_get_nredistributions(config);
    for (int i = 0; i < count && used < size; i++) {
        const char *known = grids         ? lierne_config_get_grid_name(config, i)
                            : i < bridges ? lierne_config_get_bridge_name(config, i)
                            : i < packed
                                ? lierne_config_get_packed_bridge_name(config, i - bridges)
                                : lierne_config_get_redistribution_name(config, i - packed);
        used += (size_t)snprintf(list + used, size - used, "%s%s", i ? ", " : "", known);
    }
    if (count == 0 || used >= size) {
        snprintf(list, size, "%d", count);
    }
    return used >= size ? 0 : count;
}

int tool_no_such(char **argv, const char *what, const char *name, const char *path,
                 const lierne_config *config) {
    char list[400];
    bool listed = list_names(list, sizeof list, what, config) > 0;
    return tool_usage(argv, "there is no %s '%s' in %s, which has%s %s", what, name, path,
                      listed ? ":" : "", list);
}

int tool_missing(char **argv, const char *what, const char *path) {
    char list[400];
    lierne_config *config = NULL;
    if (path && strcmp(path, "-") != 0) {
        lierne_config_read(&config, path);
    }
    bool listed = config && list_names(list, sizeof list, what, config) > 0;
    lierne_config_destroy(config);
    return listed ? tool_usage(argv, "--%s is missing; %s has: %s", what, path, list)
                  : tool_usage(argv, "--%s is missing", what);
}

void tool_print_diagnostic(FILE *out, const char *path, const lierne_diagnostic *diagnostic) {
    bool error = diagnostic->severity == LIERNE_SEVERITY_ERROR;
    tool_print_text(out, path);
    fprintf(out, ":%d:%d: %s%s:%s [%s] ", diagnostic->line, diagnostic->column,
            tool_paint(out, error ? TOOL_BAD : TOOL_WARN), error ? "error" : "warning",
            tool_paint(out, TOOL_PLAIN), diagnostic->code);
    tool_print_text(out, diagnostic->message);
    fputs(*diagnostic->hint ? "; " : "", out);
    tool_print_text(out, diagnostic->hint);
    fputc('\n', out);
}

void tool_print_ints(FILE *out, const int *values, int count) {
    for (int i = 0; i < count; i++) {
        fprintf(out, "%c%d", i ? ',' : '[', values[i]);
    }
    fputs(count ? "]" : "[]", out);
}

const char *tool_bytes(char text[TOOL_BYTES], int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    while (bytes >> (10 * (unit + 1)) > 0 && unit < 6) {
        unit++;
    }
    int64_t one = INT64_C(1) << 10 * unit;
    int64_t whole = bytes / one, rest = bytes % one;
    if (rest == 0) {
        snprintf(text, TOOL_BYTES, "%" PRId64 " %s", whole, units[unit]);
    } else {
        snprintf(text, TOOL_BYTES, "%.*f %s", whole < 100 ? 1 : 0, (double)bytes / (double)one,
                 units[unit]);
    }
    return text;
}
