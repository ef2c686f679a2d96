/* What depends on the terminal: colours and the width of lines. A file or a pipe gets neither. */
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int choice = -1; /* whether there are colours; -1: where there is a terminal */

void tool_color_always(bool on) {
    choice = on;
}

bool tool_has_color(FILE *out) {
    const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (choice >= 0) {
        return choice;
    }
    return isatty(fileno(out)) && !(no_color && *no_color) &&
           !(terminal && strcmp(terminal, "dumb") == 0);
}

const char *tool_paint(FILE *out, tool_color color) {
    static const char *const escapes[] = {"\033[0m", "\033[1m", "\033[1;32m", "\033[1;31m",
                                          "\033[1;35m"};
    return tool_has_color(out) ? escapes[color] : "";
}

void tool_print_painted(tool_color color, const char *text) {
    printf("%s%s%s", tool_paint(stdout, color), text, tool_paint(stdout, TOOL_PLAIN));
}

int tool_width(int usual) {
    struct winsize size;
    bool known = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
    return known && size.ws_col >= 40 ? size.ws_col : usual;
}
