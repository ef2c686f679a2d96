/* lierne completion: what a shell needs to complete this command. Every subcommand is called with
 * tool_list_options set; tool_parse then lists its table instead of reading arguments, so that the
 * options are always those that are parsed. */
#include "tool.h"

#include <getopt.h>
#include <string.h>

static const char help[] =
    "Usage: lierne completion SHELL\n"
    "Prints the completion of this command for bash or zsh.\n"
    "\n"
    "  -h, --help  show this help\n"
    "\n"
    "For bash: eval \"$(lierne completion bash)\"; for zsh: lierne completion zsh >_lierne, in a\n"
    "folder of fpath.\n"
    "Exit status: 0 printed, 2 usage error.\n";

static void bash_options(const tool_option *options, int noptions) {
    printf("        options=\"--help");
    for (int i = 0; i < noptions; i++) {
        printf(" --%s%s", options[i].name, options[i].value ? "=" : "");
    }
    printf("\"\n        case $previous in\n");
    for (int i = 0; i < noptions; i++) {
        if (options[i].words) {
            printf("        --%s) words=\"%s\" ;;\n", options[i].name, options[i].words);
        }
    }
    printf("        esac\n");
}

static void zsh_options(const tool_option *options, int noptions) {
    printf("        options=('--help[show the help]'");
    for (int i = 0; i < noptions; i++) {
        const tool_option *o = &options[i];
        printf(" '--%s%s", o->name, o->value ? "=:" : "");
        if (o->value) {
            printf("%s:%s%s%s", o->name, o->words ? "(" : "", o->words ? o->words : "",
                   o->words ? ")" : "");
        }
        printf("'");
    }
    printf(")\n");
}

/* Runs a subcommand only to list its options. */
static void list(const tool_command *command, tool_list list_options) {
    char *argv[] = {(char *)command->called, (char *)"--help", NULL};
    tool_list_options = list_options;
    optind = 0;
    command->run(2, argv);
    tool_list_options = NULL;
}

static void print_bash(const tool_command *commands, int n) {
    printf("# Completion of lierne for bash, made by 'lierne completion bash'.\n"
           "_lierne() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
           "    local options= words= first=\n"
           "    COMPREPLY=()\n"
           "    # bash makes three words of --option=value.\n"
           "    [ \"$word\" != = ] || word=\n"
           "    [ \"$previous\" != = ] || previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"");
    for (int i = 0; i < n; i++) {
        printf("%s ", commands[i].name);
    }
    printf("--help --version\" -- \"$word\"))\n        return\n    fi\n"
           "    case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < n; i++) {
        printf("    %s)\n", commands[i].name);
        list(&commands[i], bash_options);
        if (commands[i].words) {
            printf("        first=\"%s\"\n", commands[i].words);
        }
        printf("        ;;\n");
    }
    printf("    esac\n"
           "    if [ -n \"$words\" ]; then\n"
           "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "    elif [[ $word == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
           "        [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null\n"
           "    elif [ \"$COMP_CWORD\" = 2 ] && [ -n \"$first\" ]; then\n"
           "        COMPREPLY=($(compgen -W \"$first\" -- \"$word\"))\n"
           "    else\n"
           "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
           "    fi\n"
           "}\n"
           "complete -o filenames -F _lierne lierne\n");
}

/* A summary may have an apostrophe, which would end zsh's string. */
static void zsh_command(const tool_command *command) {
    printf("\n        '%s:", command->name);
    for (const char *c = command->summary; *c; c++) {
        fputs(*c == '\'' ? "'\\''" : (char[]){*c, 0}, stdout);
    }
    printf("'");
}

static void print_zsh(const tool_command *commands, int n) {
    printf("#compdef lierne\n"
           "# Completion of lierne for zsh, made by 'lierne completion zsh'.\n"
           "_lierne() {\n"
           "    local -a commands options first\n"
           "    commands=(");
    for (int i = 0; i < n; i++) {
        zsh_command(&commands[i]);
    }
    printf(")\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe -t commands command commands\n"
           "        return\n"
           "    fi\n"
           "    case $words[2] in\n");
    for (int i = 0; i < n; i++) {
        printf("    %s)\n", commands[i].name);
        list(&commands[i], zsh_options);
        if (commands[i].words) {
            printf("        first=(%s)\n", commands[i].words);
        }
        printf("        ;;\n");
    }
    printf("    esac\n"
           "    if (( CURRENT == 3 && $#first )) && [[ $words[3] != -* ]]; then\n"
           "        compadd -a first\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    _arguments -S $options '*:file:_files'\n"
           "}\n"
           "_lierne \"$@\"\n");
}

int tool_completion(int argc, char **argv, const tool_command *commands, int n) {
    int status = tool_parse(argc, argv, help, NULL, 0);
    if (status >= 0) {
        return status;
    }
    if (argc - optind != 1 ||
        (strcmp(argv[optind], "bash") != 0 && strcmp(argv[optind], "zsh") != 0)) {
        return tool_usage(argv, "the shell is %s, must be bash or zsh",
                          argc > optind ? argv[optind] : "missing");
    }
    (strcmp(argv[optind], "bash") == 0 ? print_bash : print_zsh)(commands, n);
    return TOOL_VALID;
}
