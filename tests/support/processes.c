/* A child that hangs is killed, so that the program ends with a line that says which. */
#include "processes.h"

#include "base/base.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static long counts[2];

bool process_check(bool ok, const char *file, int line, const char *format, ...) {
    va_list args;
    counts[ok]++;
    if (!ok) {
        va_start(args, format);
        printf("%s:%d: ", file, line);
        vprintf(format, args);
        printf("\n");
        va_end(args);
        fflush(stdout);
    }
    return ok;
}

int process_counts(void) {
    printf("%ld passed, %ld failed\n", counts[1], counts[0]);
    return counts[0] != 0;
}

void *process_share(size_t bytes) {
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

bool process_await(pid_t pid, double seconds, int *status) {
    double deadline = lierne_now() + seconds;
    while (waitpid(pid, status, WNOHANG) == 0) {
        usleep(1000);
        if (lierne_now() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, status, 0);
            return false;
        }
    }
    return true;
}
