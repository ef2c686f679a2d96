/* The command `lierne`: a table of subcommands. A subcommand is one line here and one file. */
#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static int run_completion(int argc, char **argv);
static int run_help_of(int argc, char **argv);

static const tool_command commands[] = {
    {"check", "lierne check", tool_check, "validate configurations, all errors at once", NULL},
    {"groups", "lierne groups", tool_groups, "print the rank groups of dims of a grid", NULL},
    {"plan", "lierne plan", tool_plan, "print what a bridge does and what it costs", NULL},
    {"simulate", "lierne simulate", tool_simulate, "run a bridge on a simulated world, check it",
     NULL},
    {"run", "lierne run", tool_run, "run a bridge on real ranks, check and time it", NULL},
    {"draw", "lierne draw", tool_draw, "draw a configuration: mesh, ranks, matrix, rows, stages",
     "mesh ranks matrix rows stages timeline"},
    {"schedule", "lierne schedule", tool_schedule, "check the schedules of all ranks", NULL},
    {"hang", "lierne hang", tool_hang, "name the rank that the others wait for", NULL},
    {"import", "lierne import", tool_import, "write the layout of another tool as a configuration",
     "megatron component torchtitan devicemesh m2n"},
    {"export", "lierne export", tool_export, "write a grid for another tool", NULL},
    {"place", "lierne place", tool_place, "advise an order of a grid's dims that moves fewer bytes",
     NULL},
    {"balance", "lierne balance", tool_balance, "assign samples to ranks, all modes side by side",
     NULL},
    {"info", "lierne info", tool_info, "say what memory and transports this installation has",
     NULL},
    {"completion", "lierne completion", run_completion, "print completion for a shell", "bash zsh"},
    {"help", "lierne help", run_help_of, "show the help of a command",
     "check groups plan simulate run draw schedule hang import export place balance info "
     "completion"},
};

enum { NCOMMANDS = sizeof commands / sizeof *commands };

static int run_completion(int argc, char **argv) {
    return tool_completion(argc, argv, commands, NCOMMANDS);
}

static void print_help(FILE *out) {
    fputs("Usage: lierne COMMAND [OPTION]... FILE...\n"
          "Describes, checks and plans how tensors move between parallel layouts.\n"
          "\n"
          "Commands:\n",
          out);
    for (int i = 0; i < NCOMMANDS; i++) {
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n"
          "  -h, --help     show this help; 'lierne COMMAND --help' for a command\n"
          "  -V, --version  show the version\n"
          "\n"
          "Exit status: 0 valid, 1 invalid or wrong, 2 usage or input error.\n",
          out);
}

/* Standard output may be a full disk: a failed write must not count as success. Nor must what
 * lacks the parts that there was no memory for. */
static int finish(int status) {
    if (tool_lacks_memory()) {
        fprintf(stderr, "lierne: no memory: what is read or printed is not whole\n");
        status = TOOL_USAGE;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "lierne: cannot write: %s\n", strerror(errno));
        return TOOL_USAGE;
    }
    return status;
}

static const tool_command *find_command(const char *name) {
    for (int i = 0; i < NCOMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    tool_usage((char *[]){"lierne"},
               "there is no command '%s', only check, groups, plan, simulate, run, draw, schedule, "
               "hang, import, export, place, balance, info, completion and help",
               name);
    return NULL;
}

static int run_help_of(int argc, char **argv) {
    static const char text[] =
        "Usage: lierne help [COMMAND]\n"
        "Shows the help of a command, as 'lierne COMMAND --help' does, or the list of commands.\n"
        "\n"
        "  -h, --help  show this help\n"
        "\n"
        "Exit status: 0 shown, 2 usage error.\n";
    int status = tool_parse(argc, argv, text, NULL, 0);
    if (status >= 0) {
        return status;
    }
    if (argc - optind > 1) {
        return tool_usage(argv, "%d commands given, must be at most 1", argc - optind);
    }
    if (optind == argc) {
        print_help(stdout);
        return TOOL_VALID;
    }
    const tool_command *command = find_command(argv[optind]);
    if (!command) {
        return TOOL_USAGE;
    }
    optind = 1;
    return command->run(2, (char *[]){(char *)command->called, (char *)"--help", NULL});
}

static bool is_option(const char *arg, const char *name, const char *letter) {
    return strcmp(arg, name) == 0 || strcmp(arg, letter) == 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return TOOL_USAGE;
    }
    if (is_option(argv[1], "--help", "-h")) {
        print_help(stdout);
        return finish(TOOL_VALID);
    }
    if (is_option(argv[1], "--version", "-V")) {
        printf("lierne %s\n", lierne_version());
        return finish(TOOL_VALID);
    }
    const tool_command *command = find_command(argv[1]);
    if (!command) {
        return TOOL_USAGE;
    }
    argv[1] = (char *)command->called;
    tool_watch_json();
    return finish(command->run(argc - 1, argv + 1));
}
