/* lierne check: validates configurations. Every file is read, whatever the others hold, and all its
 * diagnostics are printed. The exit status is that of the worst file: unreadable is worse than
 * invalid. */
#include "findings.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: lierne check [OPTION]... FILE...\n"
    "Validates configurations and prints all diagnostics; '-' is standard input.\n"
    "\n"
    "  -s, --strict         warnings make a file invalid too\n"
    "  -q, --quiet          print nothing, only set the exit status\n"
    "      --ignore=CODES   leave out warnings, as LG103,LG104\n"
    "      --format=FORMAT  text (default), json, sarif, github or junit\n"
    "      --color=WHEN     auto (default), always or never; NO_COLOR is heeded;\n"
    "                       with colours the line of the file is shown too\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 all valid, 1 a file invalid, 2 usage error or unreadable file.\n";

typedef struct settings {
    bool strict;
    bool quiet;
    const char *ignore;            /* codes of warnings, between commas; NULL: none */
    const findings_format *format; /* NULL: text */
    int printed;                   /* files so far */
} settings;

static int read_color(char **argv, const char *when) {
    bool always = when && strcmp(when, "always") == 0;
    if (always || (when && strcmp(when, "never") == 0)) {
        tool_color_always(always);
    } else if (when && strcmp(when, "auto") != 0) {
        return tool_usage(argv, "--color is '%s', must be auto, always or never", when);
    }
    return -1;
}

static int read_format(char **argv, const char *name, const findings_format **format) {
    *format = name ? findings_format_find(name) : NULL;
    if (name && !*format && strcmp(name, "text") != 0) {
        return tool_usage(argv, "--format is '%s', must be text, json, sarif, github or junit",
                          name);
    }
    return -1;
}

/* Whether a code is in the list. */
static bool is_listed(const char *list, const char *code) {
    for (size_t n; list && *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (strlen(code) == n && strncmp(list, code, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Each code of --ignore is one of a warning. */
static int check_ignore(char **argv, const char *list) {
    static const char *const warnings[] = {
#define CODE(number, name, text) #number[0] == '1' ? "LG" #number : "",
        LIERNE_DIAGNOSTIC_TABLE(CODE)
#undef CODE
    };
    size_t known = 0, given = list && *list;
    for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++) {
        known += *warnings[i] && is_listed(list, warnings[i]);
    }
    for (const char *c = list; c && *c; c++) {
        given += *c == ',';
    }
    return known == given ? -1
                          : tool_usage(argv,
                                       "--ignore is '%s', must be codes of warnings, LG101 "
                                       "and above, each once",
                                       list);
}

/* The line of a diagnostic, and a caret below its column. */
static void print_line(const char *path, const lierne_diagnostic *d) {
    FILE *file = strcmp(path, "-") == 0 ? NULL : fopen(path, "rb");
    char *line = NULL;
    size_t size = 0;
    ssize_t length = -1;
    for (int i = 0; file && i < d->line; i++) {
        length = getline(&line, &size, file);
    }
    if (length > 0 && d->column >= 1 && d->column <= length && length < 200) {
        line[strcspn(line, "\r\n")] = '\0';
        for (char *tab = line; (tab = strchr(tab, '\t'));) {
            *tab = ' ';
        }
        printf("%6d | ", d->line);
        tool_print_text(stdout, line);
        line[d->column - 1] = '\0';
        printf("\n       | %*s^\n", tool_text_columns(line), "");
    }
    free(line);
    if (file) {
        fclose(file);
    }
}

static void print_text(const findings_file *file, int errors) {
    for (int i = 0; i < lierne_config_get_ndiagnostics(file->config); i++) {
        const lierne_diagnostic *d = lierne_config_get_diagnostic(file->config, i);
        if (file->keep[i]) {
            tool_print_diagnostic(stdout, file->path, d);
        }
        if (file->keep[i] && tool_has_color(stdout)) {
            print_line(file->path, d);
        }
    }
    if (errors == 0) {
        int ngrids = lierne_config_get_ngrids(file->config),
            nbridges = lierne_config_get_nbridges(file->config) +
                       lierne_config_get_npacked_bridges(file->config) +
                       lierne_config_get_nredistributions(file->config);
        tool_print_text(stdout, file->path);
        printf(": %svalid%s: %d grid%s, %d bridge%s\n", tool_paint(stdout, TOOL_GOOD),
               tool_paint(stdout, TOOL_PLAIN), ngrids, ngrids == 1 ? "" : "s", nbridges,
               nbridges == 1 ? "" : "s");
    }
}

/* keep[i]: whether diagnostic i counts. Returns the number of errors that do, with --strict also of
 * warnings. */
static int choose_bridges(const settings *s, const lierne_config *config, bool *keep, int *errors) {
    int bad = 0;
    *errors = 0;
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        const lierne_diagnostic *d = lierne_config_get_diagnostic(config, i);
        bool error = d->severity == LIERNE_SEVERITY_ERROR;
        keep[i] = !is_listed(s->ignore, d->code);
        *errors += error;
        bad += error || (s->strict && keep[i]);
    }
    return bad;
}

static int check_file(char **argv, settings *s, const char *path) {
    lierne_config *config;
    int errors, status = tool_load(argv, path, &config);
    if (status >= 0) {
        return status;
    }
    bool *keep = calloc((size_t)lierne_config_get_ndiagnostics(config) + 1, sizeof *keep);
    if (!keep) {
        lierne_config_destroy(config);
        return tool_usage(argv, "no memory for the diagnostics of %s", path);
    }
    findings_file file = {path, config, keep, choose_bridges(s, config, keep, &errors) == 0,
                          s->printed};
    if (!s->quiet && s->format) {
        s->format->file(&file);
        s->printed++;
    } else if (!s->quiet) {
        print_text(&file, errors);
    }
    free(keep);
    lierne_config_destroy(config);
    return file.valid ? TOOL_VALID : TOOL_INVALID;
}

static int check_files(char **argv, settings *s, int n, char **paths) {
    const findings_format *format = s->quiet ? NULL : s->format;
    int worst = TOOL_VALID;
    if (format) {
        format->begin(n);
    }
    for (int i = 0; i < n; i++) {
        int status = check_file(argv, s, paths[i]);
        worst = status > worst ? status : worst;
    }
    if (format) {
        format->end();
    }
    return worst;
}

int tool_check(int argc, char **argv) {
    settings s = {0};
    const char *format = NULL, *color = NULL;
    const tool_option options[] = {
        {"strict", 's', NULL, &s.strict, NULL},
        {"quiet", 'q', NULL, &s.quiet, NULL},
        {"ignore", 0, &s.ignore, NULL, NULL},
        {"format", 0, &format, NULL, "text json sarif github junit"},
        {"color", 0, &color, NULL, "auto always never"},
    };
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    status = status < 0 ? read_format(argv, format, &s.format) : status;
    status = status < 0 ? read_color(argv, color) : status;
    status = status < 0 ? check_ignore(argv, s.ignore) : status;
    if (status < 0 && optind == argc) {
        status = tool_usage(argv, "no file given, must be at least 1; '-' is standard input");
    }
    return status < 0 ? check_files(argv, &s, argc - optind, argv + optind) : status;
}
