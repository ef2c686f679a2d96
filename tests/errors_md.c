/* Prints docs/errors.md from the tables of statuses and diagnostics. tests/cli/test_docs.sh
 * compares the file with what this prints; `make docs/errors.md` writes it. */
#include "lierne/config.h"

#include <stdio.h>

/* Wraps a paragraph at 100 columns. */
static void print_wrapped(const char *text) {
    size_t column = 0;
    while (*text) {
        size_t length = 0;
        while (text[length] && text[length] != ' ') {
            length++;
        }
        if (column > 0 && column + 1 + length > 100) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : "", (int)length, text);
        text += length + (text[length] == ' ');
    }
    puts("\n");
}

static void print_status(const char *name, int number, const char *text) {
    printf("### %s (%d)\n\n", name, number);
    print_wrapped(text);
}

static void print_diagnostic(const char *code, int number, const char *name, const char *text) {
    printf("### %s: %s%s\n\n", code, name, number >= LIERNE_DIAGNOSTIC_WARNING ? " (warning)" : "");
    print_wrapped(text);
}

int main(void) {
    puts("# Errors and diagnostics\n");
    print_wrapped(
        "Made from the tables in `include/lierne/status.h` and `include/lierne/diagnostics.h` "
        "by `tests/errors_md.c`; change them there.");
    puts("## Statuses\n");
    print_wrapped("What the functions of the library return. The numbers never change. "
                  "`lierne_last_error()` has the values that belong to a failure.");
#define PRINT_STATUS(name, number, text) print_status(#name, number, text);
    LIERNE_STATUS_TABLE(PRINT_STATUS)
    puts("## Diagnostics\n");
    print_wrapped(
        "What `lierne check` and `lierne_config_get_diagnostic()` report of a configuration, with "
        "line, column and JSON pointer. `grids/bad/` has a file for each. Codes never change. A "
        "diagnostic whose code is the name of a status comes from the planner of bridges, which "
        "rejected what no rule of the format covers.");
#define PRINT_DIAGNOSTIC(number, name, text)                                                       \
    print_diagnostic(LIERNE_DIAGNOSTIC_CODE(number), LIERNE_DIAGNOSTIC_NUMBER(number), #name, text);
    LIERNE_DIAGNOSTIC_TABLE(PRINT_DIAGNOSTIC)
    return 0;
}
