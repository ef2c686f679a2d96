/* Runs tests of criterion/criterion.h beside: run [PATTERN], of SUITE/NAME in the manner of
 * Criterion's --filter, as many at a time as there are cores. A test ends with its process, so that
 * what it leaves meets no other. Last line: N passed, N failed. */
#include "criterion/criterion.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOWER = 20 }; /* than the machine that timeouts are for */

static test_entry *entries;
static bool failed; /* of this process: a test */

void test_add(test_entry *entry) {
    entry->next = entries;
    entries = entry;
}

void test_fail(bool fatal, const char *text, const char *file, int line, ...) {
    va_list values;
    const char *format;
    failed = true;
    fprintf(stderr, "%s:%d: %s: ", file, line, text);
    va_start(values, line);
    format = va_arg(values, const char *);
    if (format) {
        vfprintf(stderr, format, values);
    }
    va_end(values);
    fputc('\n', stderr);
    if (fatal) {
        _exit(1);
    }
}

static const test_options *options_of(const char *suite) {
    static const test_options none;
    for (const test_entry *e = entries; e; e = e->next) {
        if (!e->run && strcmp(e->suite, suite) == 0) {
            return &e->options;
        }
    }
    return &none;
}

static pid_t start(const test_entry *entry) {
    const test_options *around = options_of(entry->suite);
    pid_t child = fork();
    if (child != 0) {
        return child;
    }
    alarm((unsigned)(SLOWER * (entry->options.timeout > 0 ? entry->options.timeout : 60)));
    if (around->init) {
        around->init();
    }
    entry->run();
    if (around->fini) {
        around->fini();
    }
    fflush(NULL);
    _exit(failed);
}

typedef struct running {
    const test_entry *entry;
    pid_t process;
} running;

/* Waits for one of n, takes it out, and returns whether it passed. */
static bool end_one(running *of, int *n) {
    int status = 0, i = 0;
    const pid_t ended = wait(&status);
    while (i < *n - 1 && of[i].process != ended) {
        i++;
    }
    if (status != 0) {
        printf("FAIL %s/%s (status %d)\n", of[i].entry->suite, of[i].entry->name, status);
    }
    of[i] = of[--*n];
    return status == 0;
}

int main(int argc, char **argv) {
    const char *pattern = argc > 1 ? argv[1] : "*/*";
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), most = cores < 1    ? 1
                                                             : cores > 64 ? 64
                                                                          : cores;
    running now[64];
    int n = 0, passes = 0, tests = 0;
    char name[256];
    for (const test_entry *e = entries; e; e = e->next) {
        snprintf(name, sizeof name, "%s/%s", e->suite, e->name);
        if (!e->run || fnmatch(pattern, name, FNM_EXTMATCH | FNM_PATHNAME) != 0) {
            continue;
        }
        tests++;
        fflush(NULL);
        now[n].entry = e;
        now[n++].process = start(e);
        if (n == most) {
            passes += end_one(now, &n);
        }
    }
    while (n > 0) {
        passes += end_one(now, &n);
    }
    printf("%d passed, %d failed\n", passes, tests - passes);
    return passes != tests || tests == 0;
}
