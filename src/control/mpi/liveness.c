/* Liveness of peers.
 *
 * MPI does not report that a peer has died (Open MPI 4.1 as packaged detects nothing, and a barrier
 * after a death waits for ever). So each rank holds a pidfd of every other rank whose process ids
 * are valid here, that is on the same boot of the same host and in the same pid namespace. A pidfd
 * is readable once the process has ended and never refers to another process. Without a pidfd, a
 * dead peer is found as a missed deadline. */
#include "control/mpi/state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t lierne_mpi_process_space(void) {
    char boot[64];
    struct stat namespace;
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, boot, sizeof boot);
    if (file >= 0) {
        close(file);
    }
    if (length <= 0 || stat("/proc/self/ns/pid", &namespace) != 0) {
        return 0;
    }
    uint64_t hash = lierne_hash(0, boot, (size_t)length);
    return lierne_hash(hash, &namespace.st_ino, sizeof namespace.st_ino);
}

/* m->ranks must be in the order of ranks. A peer that cannot be watched is not an error: the
 * deadline covers it. */
void lierne_mpi_watch(lierne_mpi_state *m) {
    uint64_t space = m->ranks[m->rank].space;
    long neighbours = 0;
    for (int r = 0; r < m->world && space != 0; r++) {
        neighbours += m->ranks[r].space == space;
        if (r != m->rank && m->ranks[r].space == space) {
            m->watches[r] = (int)syscall(SYS_pidfd_open, (pid_t)m->ranks[r].process, 0);
        }
    }
    m->crowded = neighbours == 0 || neighbours > sysconf(_SC_NPROCESSORS_ONLN);
}

void lierne_mpi_unwatch(lierne_mpi_state *m) {
    for (int r = 0; m->watches && r < m->world; r++) {
        if (m->watches[r] >= 0) {
            close(m->watches[r]);
        }
    }
    lierne_mem_free(m->watches);
    m->watches = NULL;
}

lierne_status lierne_mpi_alive(void *state, int peer) {
    const lierne_mpi_state *m = state;
    struct pollfd watch = {.fd = m->watches ? m->watches[peer] : -1, .events = POLLIN};
    /* POLLNVAL means that the program closed the descriptor, not that the peer died. */
    if (watch.fd >= 0 && poll(&watch, 1, 0) > 0 && (watch.revents & POLLIN)) {
        return LIERNE_FAIL(LIERNE_PEER_FAILED, "rank %d: the process of rank %d has ended",
                           lierne_mpi_name(m, m->rank), lierne_mpi_name(m, peer));
    }
    return LIERNE_OK;
}
