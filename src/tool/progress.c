/* How far a long command is, on a terminal only and not too often: one line on standard error,
 * which the next one replaces. */
#include "tool.h"

#include <time.h>
#include <unistd.h>

#define PERIOD 0.2 /* seconds */

static bool shown;

double tool_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void tool_progress(char **argv, const char *what, int done, int all) {
    static double last;
    if (!isatty(STDERR_FILENO) || (done > 0 && tool_now() - last < PERIOD)) {
        return;
    }
    last = tool_now();
    shown = true;
    fprintf(stderr, "\r%s: %s, rank %d of %d\033[K", argv[0], what, done, all);
}

void tool_progress_end(void) {
    if (shown) {
        fputs("\r\033[K", stderr);
        shown = false;
    }
}
