/* Liveness of peers without help from a network.
 *
 * MPI does not report that a peer has died (Open MPI 4.1 as packaged detects nothing, and a barrier
 * after a death waits for ever), and other transports need not. So each rank holds a pidfd of every
 * other rank whose process ids are valid here, that is on the same boot of the same host and in the
 * same pid namespace. A pidfd is readable once the process has ended and never refers to another
 * process. A process id does: its process may have ended, and the id been given away, before the
 * pidfd was opened. So the time at which the process began is compared. Without a pidfd, a dead
 * peer is found as a missed deadline. */
#include "runtime/control/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define START_FIELD 22 /* of /proc/PID/stat */

static ssize_t read_file(const char *path, char *text, size_t size) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
    if (file >= 0) {
        close(file);
    }
    text[length > 0 ? length : 0] = '\0';
    return length;
}

/* An id of this process's pid namespace, boot and host; 0 if it cannot be found. */
static uint64_t own_space(void) {
    char boot[64];
    struct stat namespace;
    ssize_t length = read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (length <= 0 || stat("/proc/self/ns/pid", &namespace) != 0) {
        return 0;
    }
    uint64_t hash = lierne_hash(0, boot, (size_t)length);
    return lierne_hash(hash, &namespace.st_ino, sizeof namespace.st_ino);
}

/* When a process began, 0 if there is none. *state: its letter. The second field, the name of the
 * program, may contain blanks and parentheses. */
static uint64_t read_process(uint64_t process, char *state) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)process);
    if (read_file(path, text, sizeof text) <= 0) {
        return 0;
    }
    const char *at = strrchr(text, ')');
    *state = at && at[1] ? at[2] : '?';
    for (int field = 2; at && field < START_FIELD; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

static uint64_t start_of(uint64_t process) {
    char state;
    return read_process(process, &state);
}

lierne_process_state lierne_process_find(uint64_t space, uint64_t process, uint64_t start) {
    char state = '?';
    if (space == 0 || space != own_space()) {
        return LIERNE_PROCESS_UNKNOWN;
    }
    uint64_t found = read_process(process, &state);
    if (found == 0 || (start != 0 && found != start) || state == 'Z' || state == 'X') {
        return LIERNE_PROCESS_ENDED;
    }
    return state == 'T' || state == 't' ? LIERNE_PROCESS_STOPPED : LIERNE_PROCESS_RUNS;
}

void lierne_process_describe(uint64_t *space, uint64_t *process, uint64_t *start) {
    *space = own_space();
    *process = (uint64_t)getpid();
    *start = start_of(*process);
}

uint64_t lierne_rank_infos_hash(const lierne_rank_info *infos) {
    return lierne_hash(0, &infos[0], sizeof infos[0]);
}

void lierne_rank_info_fill(lierne_rank_info *info, int rank, int flags) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    info->rank = (uint64_t)rank;
    info->created = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    lierne_process_describe(&info->space, &info->process, &info->start);
    info->flags = flags < 0 ? LIERNE_NO_FLAGS : (uint64_t)flags;
    info->segment = LIERNE_NO_SEGMENT;
}

static int watch(const lierne_rank_info *info) {
    int opened = (int)syscall(SYS_pidfd_open, (pid_t)info->process, 0);
    if (opened < 0) {
        return errno == ESRCH ? LIERNE_ENDED : LIERNE_NO_WATCH;
    }
    uint64_t start = start_of(info->process);
    if (start == 0 || info->start == 0 || start == info->start) {
        return opened;
    }
    close(opened);
    return LIERNE_ENDED;
}

bool lierne_processes_watch(int *watches, const lierne_rank_info *infos, int world, int rank) {
    uint64_t space = infos[rank].space;
    long neighbours = 0;
    for (int r = 0; r < world && space != 0; r++) {
        neighbours += infos[r].space == space;
        if (r != rank && infos[r].space == space) {
            watches[r] = watch(&infos[r]);
        }
    }
    return neighbours == 0 || neighbours > sysconf(_SC_NPROCESSORS_ONLN);
}

void lierne_processes_unwatch(const int *watches, int world) {
    for (int r = 0; watches && r < world; r++) {
        if (watches[r] >= 0) {
            close(watches[r]);
        }
    }
}

bool lierne_process_ended(int watch) {
    struct pollfd descriptor = {.fd = watch, .events = POLLIN};
    if (watch < 0) {
        return watch == LIERNE_ENDED;
    }
    /* POLLNVAL means that the program closed the descriptor, not that the peer died. */
    return poll(&descriptor, 1, 0) > 0 && (descriptor.revents & POLLIN);
}

static bool same_node(const lierne_rank_info *a, const lierne_rank_info *b) {
    return a->space != 0 && a->space == b->space && a->node == b->node;
}

bool lierne_processes_map_flags(lierne_abort_flags **flags, int *flag,
                                const lierne_rank_info *infos, int world, int rank, size_t board) {
    const lierne_rank_info *first = NULL;
    int count = 0;
    *flags = NULL;
    for (int r = 0; r < world; r++) {
        flag[r] = same_node(&infos[rank], &infos[r]) ? count++ : -1;
        if (flag[r] == 0) {
            first = &infos[r];
        }
    }
    if (first && first->flags != LIERNE_NO_FLAGS) {
        *flags =
            lierne_abort_flags_map(first->process, (int)first->flags, world, board, flag[rank]);
    }
    return *flags && count == world;
}
