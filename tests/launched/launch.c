/* launch N PROGRAM [ARGUMENT]...: starts N ranks of a program of build/tests/launched as torchrun
 * would, and returns the worst of their exit statuses. Once one has failed, the others have ten
 * seconds to end. */
#include "launched/shared.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void set_number(const char *name, long value) {
    char text[24];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static int open_memory(int n) {
    size_t bytes = sizeof(launched_memory) + (size_t)n * LAUNCHED_SLOT;
    int descriptor = memfd_create("lierne-test", 0);
    if (descriptor < 0 || ftruncate(descriptor, (off_t)bytes) != 0) {
        return -1;
    }
    launched_memory *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) {
        return -1;
    }
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&memory->barrier, &attributes, (unsigned)n);
    return descriptor;
}

static pid_t start(int rank, char **argv) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        set_number("RANK", rank);
        execv(argv[0], argv);
        perror(argv[0]);
        _exit(127);
    }
    return pid;
}

static void kill_all(const pid_t *pids, int n) {
    for (int r = 0; r < n; r++) {
        if (pids[r] > 0) {
            kill(pids[r], SIGKILL);
        }
    }
}

static int collect(pid_t *pids, int n) {
    int worst = 0, status;
    time_t deadline = 0;
    for (int left = n; left > 0; usleep(5000)) {
        for (int r = 0; r < n; r++) {
            if (pids[r] <= 0 || waitpid(pids[r], &status, WNOHANG) != pids[r]) {
                continue;
            }
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            if (code > 128) {
                fprintf(stderr, "launch: rank %d ended by signal %d\n", r, code - 128);
            }
            deadline = code != 0 && deadline == 0 ? time(NULL) + 10 : deadline;
            worst = code > worst ? code : worst;
            pids[r] = 0;
            left--;
        }
        if (deadline != 0 && time(NULL) > deadline) {
            kill_all(pids, n);
        }
    }
    return worst;
}

int main(int argc, char **argv) {
    int n = argc > 2 ? atoi(argv[1]) : 0;
    int descriptor = n > 0 ? open_memory(n) : -1;
    pid_t *pids = calloc((size_t)n + 1, sizeof *pids);
    if (descriptor < 0 || !pids) {
        fprintf(stderr, "usage: launch N PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    set_number(LAUNCHED_MEMORY, descriptor);
    set_number("WORLD_SIZE", n);
    set_number("LOCAL_WORLD_SIZE", n);
    set_number("TORCHELASTIC_RUN_ID", getpid());
    for (int r = 0; r < n; r++) {
        pids[r] = start(r, argv + 2);
    }
    int status = collect(pids, n);
    free(pids);
    return status;
}
