/* lierne check: validates configurations. Every file is read, whatever the others hold, and all its
 * diagnostics are printed. The exit status is that of the worst file: unreadable is worse than
 * invalid. */
#include "tool.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: lierne check [OPTION]... FILE...\n"
    "Validates configurations and prints all diagnostics; '-' is standard input.\n"
    "\n"
    "  -s, --strict         warnings make a file invalid too\n"
    "  -q, --quiet          print nothing, only set the exit status\n"
    "      --format=FORMAT  text (default) or json\n"
    "      --color=WHEN     auto (default), always or never; NO_COLOR is heeded\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 all valid, 1 a file invalid, 2 usage error or unreadable file.\n";

typedef struct settings {
    bool strict;
    bool quiet;
    bool json;
    bool color;
    int printed; /* files so far, for JSON's commas */
} settings;

static int read_color(char **argv, const char *when, bool *color) {
    const char *no_color = getenv("NO_COLOR");
    if (!when || strcmp(when, "auto") == 0) {
        *color = isatty(STDOUT_FILENO) && !(no_color && *no_color);
    } else if (strcmp(when, "always") == 0 || strcmp(when, "never") == 0) {
        *color = *when == 'a';
    } else {
        return tool_usage(argv, "--color is '%s', must be auto, always or never", when);
    }
    return -1;
}

static int count(const lierne_config *config, lierne_severity severity) {
    int n = 0;
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        n += lierne_config_get_diagnostic(config, i)->severity == severity;
    }
    return n;
}

static void print_text(const settings *s, const char *path, const lierne_config *config) {
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        tool_print_diagnostic(stdout, path, lierne_config_get_diagnostic(config, i), s->color);
    }
    if (count(config, LIERNE_ERROR) == 0) {
        int ngrids = lierne_config_get_ngrids(config),
            nbridges = lierne_config_get_nbridges(config);
        tool_print_text(stdout, path);
        printf(": valid: %d grid%s, %d bridge%s\n", ngrids, ngrids == 1 ? "" : "s", nbridges,
               nbridges == 1 ? "" : "s");
    }
}

static void print_json_diagnostic(const lierne_diagnostic *diagnostic) {
    printf("{\"severity\":\"%s\",\"code\":", diagnostic->severity ? "error" : "warning");
    tool_print_string(stdout, diagnostic->code);
    printf(",\"line\":%d,\"column\":%d,\"pointer\":", diagnostic->line, diagnostic->column);
    tool_print_string(stdout, diagnostic->pointer);
    printf(",\"message\":");
    tool_print_string(stdout, diagnostic->message);
    printf(",\"hint\":");
    tool_print_string(stdout, diagnostic->hint);
    printf("}");
}

static void print_json(const settings *s, const char *path, const lierne_config *config,
                       bool valid) {
    printf("%s\n{\"file\":", s->printed ? "," : "");
    tool_print_string(stdout, path);
    printf(",\"valid\":%s,\"findings\":[", valid ? "true" : "false");
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        printf("%s\n ", i ? "," : "");
        print_json_diagnostic(lierne_config_get_diagnostic(config, i));
    }
    printf("]}");
}

static int check_file(char **argv, settings *s, const char *path) {
    lierne_config *config;
    int status = tool_load(argv, path, &config);
    if (status >= 0) {
        return status;
    }
    bool valid =
        count(config, LIERNE_ERROR) == 0 && !(s->strict && count(config, LIERNE_WARNING) > 0);
    if (!s->quiet && s->json) {
        print_json(s, path, config, valid);
        s->printed++;
    } else if (!s->quiet) {
        print_text(s, path, config);
    }
    lierne_config_destroy(config);
    return valid ? TOOL_VALID : TOOL_INVALID;
}

int tool_check(int argc, char **argv) {
    settings s = {0};
    const char *format = NULL, *color = NULL;
    const tool_option options[] = {
        {"strict", 's', NULL, &s.strict},
        {"quiet", 'q', NULL, &s.quiet},
        {"format", 0, &format, NULL},
        {"color", 0, &color, NULL},
    };
    int worst = TOOL_VALID;
    int status = tool_parse(argc, argv, help, options, sizeof options / sizeof *options);
    status = status < 0 ? tool_format(argv, format, &s.json) : status;
    status = status < 0 ? read_color(argv, color, &s.color) : status;
    if (status < 0 && optind == argc) {
        status = tool_usage(argv, "no file given, must be at least 1; '-' is standard input");
    }
    if (status >= 0) {
        return status;
    }
    bool wrap = s.json && !s.quiet;
    fputs(wrap ? "{\"files\":[" : "", stdout);
    for (int i = optind; i < argc; i++) {
        status = check_file(argv, &s, argv[i]);
        worst = status > worst ? status : worst;
    }
    fputs(wrap ? "]}\n" : "", stdout);
    return worst;
}
