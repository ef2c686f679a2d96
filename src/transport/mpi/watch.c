/* Who is still alive.
 *
 * MPI does not say that a peer has died (Open MPI 4.1 as packaged detects nothing, and a barrier
 * after a death waits for ever), so liveness is lierne's own: each rank holds a pidfd of every other
 * rank whose process numbers mean the same here, that is on the same boot of the same host and in
 * the same process-number namespace. A pidfd is readable once the process has ended and can never
 * mean another process. Where there is none, a dead peer shows as a missed deadline. */
#include "transport/mpi/link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t lierne_link_space(void) {
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
    uint64_t hash = lierne_link_hash(0, boot, (size_t)length);
    return lierne_link_hash(hash, &namespace.st_ino, sizeof namespace.st_ino);
}

/* Called before the seats are put in another order. A peer that cannot be watched is left to its
 * deadline, so nothing here is an error. */
void lierne_link_watch(lierne_link *l) {
    uint64_t space = l->seats[l->rank].space;
    long neighbours = 0;
    for (int r = 0; r < l->world && space != 0; r++) {
        neighbours += l->seats[r].space == space;
        if (r != l->rank && l->seats[r].space == space) {
            l->watches[r] = (int)syscall(SYS_pidfd_open, (pid_t)l->seats[r].process, 0);
        }
    }
    l->crowded = neighbours == 0 || neighbours > sysconf(_SC_NPROCESSORS_ONLN);
}

void lierne_link_unwatch(lierne_link *l) {
    for (int r = 0; l->watches && r < l->world; r++) {
        if (l->watches[r] >= 0) {
            close(l->watches[r]);
        }
    }
    lierne_mem_free(l->watches);
    l->watches = NULL;
}

lierne_status lierne_link_alive(void *link, int peer) {
    const lierne_link *l = link;
    struct pollfd watch = {.fd = l->watches ? l->watches[peer] : -1, .events = POLLIN};
    /* POLLNVAL would be somebody's closing our descriptor, not a death. */
    if (watch.fd >= 0 && poll(&watch, 1, 0) > 0 && (watch.revents & POLLIN)) {
        return LIERNE_FAIL(LIERNE_PEER_FAILED, "rank %d: the process of rank %d has ended", l->rank,
                           peer);
    }
    return LIERNE_OK;
}
