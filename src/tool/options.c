/* Command lines: GNU long options from a table, so that all subcommands parse them in the same way
 * and print the same errors. */
#include "tool.h"

#include <getopt.h>
#include <stdarg.h>
#include <string.h>

tool_list tool_list_options;

enum { MAX_OPTIONS = 20 };

int tool_usage(char **argv, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tool_say_all(argv, format, args);
    va_end(args);
    fprintf(stderr, "Try '%s --help'.\n", argv[0]);
    return TOOL_USAGE;
}

const char *tool_reason(void) {
    const char *message = lierne_last_error();
    const char *reason = strstr(message, ": ");
    return reason ? reason + 2 : message;
}

int tool_failed(char **argv) {
    tool_say(argv, "%s", tool_reason());
    return TOOL_USAGE;
}

/* The colon at the front makes a missing value another answer than an unknown option. */
static void fill_tables(const tool_option *options, int noptions, struct option *longs,
                        char *shorts) {
    memset(longs, 0, (size_t)(noptions + 2) * sizeof *longs);
    *shorts++ = ':';
    for (int i = 0; i < noptions; i++) {
        longs[i].name = options[i].name;
        longs[i].has_arg = options[i].value ? required_argument : no_argument;
        longs[i].val = options[i].letter ? options[i].letter : 256 + i;
        if (options[i].letter) {
            *shorts++ = options[i].letter;
            if (options[i].value) {
                *shorts++ = ':';
            }
        }
    }
    longs[noptions].name = "help";
    longs[noptions].val = 'h';
    strcpy(shorts, "h");
}

/* getopt would print the argument as it is. */
static int reject_option(char **argv, int found) {
    const char *what =
        found == ':' ? "lacks its value" : "is unknown, abbreviates several, or takes no value";
    if (optopt > 0 && optopt < 256 && strncmp(argv[optind - 1], "--", 2) != 0) {
        return tool_usage(argv, "option '-%c' %s", optopt, what);
    }
    return tool_usage(argv, "option '%s' %s", argv[optind - 1], what);
}

int tool_parse(int argc, char **argv, const char *help, const tool_option *options, int noptions) {
    struct option longs[MAX_OPTIONS + 2];
    char shorts[2 * MAX_OPTIONS + 3];
    int found;
    if (tool_list_options) {
        tool_list_options(options, noptions);
        return TOOL_VALID;
    }
    opterr = 0;
    fill_tables(options, noptions, longs, shorts);
    while ((found = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        if (found == 'h') {
            fputs(help, stdout);
            return TOOL_VALID;
        }
        int i = 0;
        while (i < noptions && found != longs[i].val) {
            i++;
        }
        if (i == noptions) {
            return reject_option(argv, found);
        }
        if (options[i].value) {
            *options[i].value = optarg;
        } else {
            *options[i].flag = true;
        }
    }
    return -1;
}

int tool_format(char **argv, const char *format, const char *const *names, int *index) {
    char list[100] = "";
    size_t used = 0;
    for (*index = 0; names[*index]; ++*index) {
        if (!format || strcmp(format, names[*index]) == 0) {
            return -1;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 *index == 0         ? ""
                                 : names[*index + 1] ? ", "
                                                     : " or ",
                                 names[*index]);
    }
    return tool_usage(argv, "--format is '%s', must be %s", format, list);
}

int tool_json(char **argv, const char *format, bool *json) {
    static const char *const names[] = {"text", "json", NULL};
    int index;
    int status = tool_format(argv, format, names, &index);
    *json = status < 0 && index == 1;
    return status;
}

int tool_one_file(int argc, char **argv, const char **path) {
    if (argc - optind != 1) {
        return tool_usage(argv, "%d files given, must be 1", argc - optind);
    }
    *path = argv[optind];
    return -1;
}
