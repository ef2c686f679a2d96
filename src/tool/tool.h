/* The command `lierne`: what its subcommands share. The command uses the public headers only. */
#ifndef LIERNE_TOOL_H
#define LIERNE_TOOL_H

#include "lierne.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* Exit statuses. INVALID: a file is invalid, a bridge cannot be planned, or a result is wrong. */
enum { TOOL_VALID = 0, TOOL_INVALID = 1, TOOL_USAGE = 2 };

/* Subcommands: argv[0] is "lierne NAME". Each returns an exit status. */
typedef struct tool_command {
    const char *name;
    const char *called; /* how it calls itself in messages */
    int (*run)(int argc, char **argv);
    const char *summary;
    const char *words; /* what its first operand may be, between blanks; NULL: a file */
} tool_command;

int tool_check(int argc, char **argv);
int tool_groups(int argc, char **argv);
int tool_plan(int argc, char **argv);
int tool_simulate(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_run(int argc, char **argv);
int tool_schedule(int argc, char **argv);
int tool_hang(int argc, char **argv);
int tool_import(int argc, char **argv);
int tool_export(int argc, char **argv);
int tool_place(int argc, char **argv);
int tool_balance(int argc, char **argv);
int tool_draw(int argc, char **argv);
/* commands: all subcommands, n of them. */
int tool_completion(int argc, char **argv, const tool_command *commands, int n);

/* Options of a subcommand: either value or flag is set. */
typedef struct tool_option {
    const char *name;   /* long name */
    char letter;        /* short name; 0: none */
    const char **value; /* the option's argument goes here */
    bool *flag;         /* or this becomes true */
    const char *words;  /* the values that there are, between blanks; NULL: any */
} tool_option;

/* If set, tool_parse hands its table to it and returns TOOL_VALID. */
typedef void (*tool_list)(const tool_option *options, int noptions);
extern tool_list tool_list_options;

/* Parses options, --help among them; operands are argv[optind] and on. Returns -1 to go on, or the
 * exit status to end with. */
int tool_parse(int argc, char **argv, const char *help, const tool_option *options, int noptions);
/* A line on standard error, in the name of the command. */
void tool_say(char **argv, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tool_say_all(char **argv, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
/* Prints what is wrong with the command line. Returns TOOL_USAGE. */
int tool_usage(char **argv, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The message of the last failed call of the library, without the name of its function. */
const char *tool_reason(void);
/* Prints the message of the last failed call of the library. Returns TOOL_USAGE. */
int tool_failed(char **argv);
/* The argument of --format, NULL if it was not given: *index becomes that of the name in names, a
 * list that ends with NULL and begins with the default. Returns -1 to go on, or TOOL_USAGE. */
int tool_format(char **argv, const char *format, const char *const *names, int *index);
/* The same where the formats are text and json. */
int tool_json(char **argv, const char *format, bool *json);
/* The one operand of a subcommand that takes one file. Returns -1 to go on, or TOOL_USAGE. */
int tool_one_file(int argc, char **argv, const char **path);

/* Reads a configuration, "-" from standard input, whatever diagnostics it has. Returns -1; or
 * prints why nothing could be read, and returns TOOL_USAGE. */
int tool_load(char **argv, const char *path, lierne_config **out);
/* The same for a subcommand that needs it without errors: diagnostics go to stderr. Returns -1, or
 * the exit status to end with, and *out is NULL then. */
int tool_load_valid(char **argv, const char *path, const char *bridge, lierne_config **out);
/* The same for a text that the command has made; quiet: diagnostics are not printed. */
int tool_load_text(char **argv, const char *text, size_t length, bool quiet, lierne_config **out);

/* A stream into a text that is to be freed, and that is whole once the stream is closed. An error
 * of the stream or of fclose, and NULL, where *text is NULL: no memory. */
FILE *tool_open_text(char **text, size_t *length);
/* What is printed or drawn lacks a part, for which there is no memory: the command goes on, says so
 * at its end, and its exit status is TOOL_USAGE. */
void tool_lack_memory(void);
bool tool_lacks_memory(void);
/* From here on a JSON text that there is no memory for counts as a part that is lacking: cJSON only
 * says that it is not valid. */
void tool_watch_json(void);

/* Seconds of a clock that never goes back. */
double tool_now(void);

/* Where standard error is a terminal: prints what is being done, and how many of all ranks are
 * done. At 0 at once, then a few times a second. tool_progress_end, which tool_say calls too,
 * removes the line. */
void tool_progress(char **argv, const char *what, int done, int all);
void tool_progress_end(void);

/* Prints that a file has no grid or bridge (what) of this name, and the names of those that it has.
 * Returns TOOL_USAGE. */
int tool_no_such(char **argv, const char *what, const char *name, const char *path,
                 const lierne_config *config);
/* Prints that the option of this name, grid or bridge, is missing, and what the file at path has.
 * Returns TOOL_USAGE. */
int tool_missing(char **argv, const char *what, const char *path);

/* Colours: where there is a terminal and no NO_COLOR, or as this says. */
typedef enum tool_color {
    TOOL_PLAIN = 0,
    TOOL_HEAD = 1,
    TOOL_GOOD = 2,
    TOOL_BAD = 3,
    TOOL_WARN = 4
} tool_color;
void tool_color_always(bool on);
bool tool_has_color(FILE *out);
/* What to print before text in this colour; TOOL_PLAIN ends it. */
const char *tool_paint(FILE *out, tool_color color);
void tool_print_painted(tool_color color, const char *text);
/* Columns of the terminal; `usual` where there is none. */
int tool_width(int usual);

/* One line for a diagnostic: file:line:column: error: [CODE] message; hint. */
void tool_print_diagnostic(FILE *out, const char *path, const lierne_diagnostic *diagnostic);
/* Untrusted text (names, paths, messages that repeat them): control characters and bidirectional
 * marks are printed as escapes, \u009B, and bytes that are not UTF-8 as \xFF. Every such text is
 * printed by this, by tool_say or as a JSON string. */
void tool_print_text(FILE *out, const char *text);
int tool_text_columns(const char *text);
/* Bytes for people: "16 MiB", "1.5 GiB". Returns text. */
#define TOOL_BYTES 24
const char *tool_bytes(char text[TOOL_BYTES], int64_t bytes);
/* The same on standard output, like %*s: at the right of its width, or at the left of -width. */
void tool_print_padded(const char *text, int width);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void tool_print_string(FILE *out, const char *text);
/* As text or in quotes in XML. */
void tool_print_xml(FILE *out, const char *text);
/* [1,2,3] */
void tool_print_ints(FILE *out, const int *values, int count);

#endif
