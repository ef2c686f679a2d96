/* How the ranks of a node find each other.
 *
 * Each rank listens at an address of its own, made of the user, the job and the rank, and connects
 * to all lower ranks; addresses are in the abstract namespace, which forgets them when the socket
 * is closed, even by a kill. Both ends ask the system who the other one is: another user's process
 * is turned away where it connects, and is an error where it has taken an address. Then both say
 * who they are. Nobody is told in advance where to find others, so connecting is tried until the
 * deadline. A connection that says nothing loses its place after a second: a rank that is only slow
 * connects again.
 *
 * A rank that fails closes its connections, and those who had them fail too. So does a rank that is
 * killed. One that never came can only be missed. */
#include "backend/node/mesh.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAGIC     0x656e7265696cull /* "lierne" */
#define TRY_FIRST 0.001             /* seconds between attempts to connect: at first, */
#define TRY_EVERY 0.01              /* and at most */
#define GUESTS    32                /* connections that have not said who they are */
#define PATIENCE  1.0               /* seconds that a guest has for it; a rank connects again */
#define CHECKED   32                /* ranks that a look checks, so that n looks take no n * n */

/* What both ends say first. */
typedef struct hello {
    uint64_t magic;
    uint64_t key;
    uint64_t version; /* a hash of it */
    int32_t rank;
    int32_t world;
    int64_t status; /* of an answer: why the rank is turned away, or OK */
} hello;

typedef struct guest {
    int socket; /* -1: free */
    hello hello;
    size_t have;
    double since; /* it is here */
} guest;

typedef struct joining {
    lierne_mesh *mesh;
    const char *name;
    uint64_t key;
    int listener;
    bool *joined;   /* per rank: both ends have said who they are */
    guest *answers; /* per lower rank: what it answers */
    guest guests[GUESTS];
    long silent; /* guests that have not said who they are in time, and the last one's process */
    int silent_process;
    int checked;           /* ranks checked so far: a look goes on there */
    struct pollfd *polled; /* the listener, guests, answers */
    lierne_deadline deadline;
    double next_try;
    double try_after; /* seconds */
} joining;

static lierne_status system_error(const char *what) {
    return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "%s: %s%s", what, strerror(errno),
                       errno == EMFILE || errno == ENFILE
                           ? "; a rank needs a descriptor for every other rank (ulimit -n)"
                           : "");
}

static socklen_t address_of(struct sockaddr_un *address, const joining *j, int rank) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length =
        snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "lierne-%lu-%016llx-%d",
                 (unsigned long)geteuid(), (unsigned long long)j->key, rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static hello own_hello(const joining *j, lierne_status status) {
    const char *version = lierne_version();
    return (hello){.magic = MAGIC,
                   .key = j->key,
                   .version = lierne_hash(0, version, strlen(version)),
                   .rank = j->mesh->rank,
                   .world = j->mesh->world,
                   .status = status};
}

static struct ucred peer_of(int socket) {
    struct ucred peer = {.uid = (uid_t)-1};
    socklen_t length = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    return peer;
}

static int open_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* A new connection has space for a hello. */
static bool say_hello(int socket, const hello *h) {
    return send(socket, h, sizeof *h, MSG_NOSIGNAL) == (ssize_t)sizeof *h;
}

/* Tells the process that has this rank's address, so that it fails too: the two may be of two jobs,
 * whose ranks would mix. */
static lierne_status name_is_taken(const joining *j) {
    struct sockaddr_un address;
    struct ucred other = {0};
    hello own = own_hello(j, LIERNE_OK);
    int probe = open_socket();
    if (probe >= 0 &&
        connect(probe, (struct sockaddr *)&address, address_of(&address, j, j->mesh->rank)) == 0) {
        other = peer_of(probe);
        say_hello(probe, &own);
    }
    if (probe >= 0) {
        close(probe);
    }
    return LIERNE_FAIL(
        LIERNE_ERR_INVALID,
        "rank %d of job '%.100s' is taken by process %d of user %ld: jobs that begin "
        "at the same time need different names",
        j->mesh->rank, j->name, (int)other.pid, (long)other.uid);
}

static lierne_status listen_to_others(joining *j) {
    struct sockaddr_un address;
    j->listener = open_socket();
    if (j->listener < 0) {
        return system_error("socket");
    }
    if (bind(j->listener, (struct sockaddr *)&address, address_of(&address, j, j->mesh->rank)) !=
        0) {
        return errno == EADDRINUSE ? name_is_taken(j) : system_error("bind");
    }
    return listen(j->listener, j->mesh->world + GUESTS) == 0 ? LIERNE_OK : system_error("listen");
}

static lierne_status check_hello(const joining *j, const hello *h, int socket) {
    hello own = own_hello(j, LIERNE_OK);
    int pid = (int)peer_of(socket).pid;
    if (h->version != own.version || h->world != own.world) {
        return LIERNE_FAIL(
            LIERNE_ERR_MISMATCH,
            "process %d, rank %d of job '%.100s', has %s; this rank, %d, has a world "
            "of %d and lierne %s",
            pid, h->rank, j->name,
            h->version != own.version ? "another version of lierne" : "another world", own.rank,
            own.world, lierne_version());
    }
    if (h->rank <= own.rank || h->rank >= own.world || j->joined[h->rank]) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "process %d claims rank %d of job '%.100s', which another process has: "
                           "jobs that begin at the same time need different names",
                           pid, h->rank, j->name);
    }
    return LIERNE_OK;
}

static void join(joining *j, int rank, int socket) {
    int bytes = LIERNE_MESH_SEND_BUFFER;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    j->mesh->sockets[rank] = socket;
    j->joined[rank] = true;
}

static void drop_guest(guest *g) {
    if (g->socket >= 0) {
        close(g->socket);
    }
    *g = (guest){.socket = -1};
}

/* Reads a hello as far as it is there. Returns whether it is complete; drops who has gone or says
 * something else. */
static bool read_hello(const joining *j, guest *g) {
    ssize_t n = recv(g->socket, (char *)&g->hello + g->have, sizeof g->hello - g->have, 0);
    if (n > 0) {
        g->have += (size_t)n;
    } else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        drop_guest(g);
        return false;
    }
    if (g->have < sizeof g->hello) {
        return false;
    }
    if (g->hello.magic != MAGIC || g->hello.key != j->key) {
        drop_guest(g);
        return false;
    }
    return true;
}

/* A higher rank that has said who it is. */
static lierne_status answer(joining *j, guest *g) {
    lierne_status status = check_hello(j, &g->hello, g->socket);
    hello own = own_hello(j, status);
    bool said = say_hello(g->socket, &own);
    LIERNE_TRY(status);
    if (said) {
        join(j, g->hello.rank, g->socket);
        g->socket = -1;
    }
    drop_guest(g);
    return LIERNE_OK;
}

/* Gives the place of a guest that says nothing to another one. */
static void expire_guest(joining *j, guest *g) {
    if (lierne_now() - g->since > PATIENCE) {
        j->silent++;
        j->silent_process = (int)peer_of(g->socket).pid;
        drop_guest(g);
    }
}

/* Where there is no place for a guest, it waits in the listener's queue. */
static void accept_guests(joining *j) {
    for (int i = 0; i < GUESTS; i++) {
        guest *g = &j->guests[i];
        if (g->socket >= 0) {
            continue;
        }
        int socket = accept4(j->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (socket < 0) {
            return;
        }
        *g = (guest){.socket = socket, .since = lierne_now()};
        if (peer_of(socket).uid != geteuid()) {
            drop_guest(g);
        }
    }
}

static lierne_status receive_guests(joining *j) {
    accept_guests(j);
    for (int i = 0; i < GUESTS; i++) {
        guest *g = &j->guests[i];
        if (g->socket >= 0 && read_hello(j, g)) {
            LIERNE_TRY(answer(j, g));
        } else if (g->socket >= 0) {
            expire_guest(j, g);
        }
    }
    return LIERNE_OK;
}

/* A rank that is not there yet is tried again. */
static lierne_status connect_to(joining *j, int rank) {
    struct sockaddr_un address;
    hello own = own_hello(j, LIERNE_OK);
    int socket = open_socket();
    if (socket < 0) {
        return system_error("socket");
    }
    if (connect(socket, (struct sockaddr *)&address, address_of(&address, j, rank)) != 0) {
        bool later = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR || errno == ENOENT;
        lierne_status status = later ? LIERNE_OK : system_error("connect");
        close(socket);
        return status;
    }
    struct ucred peer = peer_of(socket);
    if (peer.uid != geteuid()) {
        close(socket);
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the address of rank %d of job '%.100s' is taken by process %d of user "
                           "%ld, not of user %ld: use another name",
                           rank, j->name, (int)peer.pid, (long)peer.uid, (long)geteuid());
    }
    j->answers[rank] = (guest){.socket = socket};
    if (!say_hello(socket, &own)) {
        drop_guest(&j->answers[rank]);
    }
    return LIERNE_OK;
}

static lierne_status take_answer(joining *j, int rank) {
    guest *g = &j->answers[rank];
    lierne_status status = LIERNE_OK;
    if (g->hello.status != LIERNE_OK) { /* any number may arrive */
        status = g->hello.status == LIERNE_ERR_MISMATCH ? LIERNE_ERR_MISMATCH : LIERNE_ERR_INVALID;
        return LIERNE_FAIL(status, "rank %d of job '%.100s' rejected rank %d of %d: %s", rank,
                           j->name, j->mesh->rank, j->mesh->world,
                           status == LIERNE_ERR_MISMATCH
                               ? "it has another world, or another version of lierne"
                               : "another process has that rank; jobs that begin at the same "
                                 "time need different names");
    }
    join(j, rank, g->socket);
    g->socket = -1;
    return LIERNE_OK;
}

static lierne_status reach_lower_ranks(joining *j) {
    double now = lierne_now();
    bool tries = now >= j->next_try;
    if (tries) {
        j->next_try = now + j->try_after;
        j->try_after = 2 * j->try_after < TRY_EVERY ? 2 * j->try_after : TRY_EVERY;
    }
    for (int r = 0; r < j->mesh->rank; r++) {
        guest *g = &j->answers[r];
        if (!j->joined[r] && g->socket < 0 && tries) {
            LIERNE_TRY(connect_to(j, r));
        }
        if (g->socket >= 0 && j->polled[1 + GUESTS + r].revents && read_hello(j, g)) {
            LIERNE_TRY(take_answer(j, r));
        }
    }
    return LIERNE_OK;
}

/* Whoever has joined and leaves again has failed, and so has one that can never join. What it sends
 * already stays for later. */
static lierne_status check_rank(const joining *j, int rank) {
    const lierne_mesh *mesh = j->mesh;
    struct pollfd end = {.fd = mesh->sockets[rank], .events = POLLRDHUP};
    if (j->joined[rank] && poll(&end, 1, 0) > 0 && (end.revents & (POLLRDHUP | POLLHUP))) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED,
                           "rank %d of job '%.100s' ended, or failed, while rank %d waited for the "
                           "others",
                           rank, j->name, mesh->rank);
    }
    if (rank != mesh->rank && !j->joined[rank] && mesh->lost && mesh->lost(mesh->lost_user, rank)) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED,
                           "the process of rank %d of job '%.100s' has ended", rank, j->name);
    }
    return LIERNE_OK;
}

static lierne_status check_ranks(joining *j) {
    int n = j->mesh->world < CHECKED ? j->mesh->world : CHECKED;
    for (int i = 0; i < n; i++, j->checked++) {
        LIERNE_TRY(check_rank(j, j->checked % j->mesh->world));
    }
    return LIERNE_OK;
}

static lierne_status time_out(const joining *j) {
    char missing[200] = "", silent[120] = "";
    size_t used = 0;
    for (int r = 0; r < j->mesh->world && used + 24 < sizeof missing; r++) {
        if (r != j->mesh->rank && !j->joined[r]) {
            used +=
                (size_t)snprintf(missing + used, sizeof missing - used, used ? ", %d" : "%d", r);
        }
    }
    if (j->silent > 0) {
        snprintf(silent, sizeof silent,
                 "; %ld connections said nothing for %g s and were closed, the last one of process "
                 "%d",
                 j->silent, PATIENCE, j->silent_process);
    }
    return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                       "rank %d of %d: no connection to rank %s of job '%.100s' within %g s; ranks "
                       "of another node, network namespace or user cannot join: use "
                       "lierne_context_create_oob for them%s",
                       j->mesh->rank, j->mesh->world, missing, j->name, j->deadline.timeout,
                       silent);
}

static bool all_joined(const joining *j) {
    int n = 0;
    for (int r = 0; r < j->mesh->world; r++) {
        n += j->joined[r];
    }
    return n == j->mesh->world - 1;
}

/* Sleeps until something arrives, or it is time to try again. */
static void wait_a_moment(const joining *j) {
    int n = 0;
    j->polled[n++] = (struct pollfd){.fd = j->listener, .events = POLLIN};
    for (int i = 0; i < GUESTS; i++) {
        j->polled[n++] = (struct pollfd){.fd = j->guests[i].socket, .events = POLLIN};
    }
    for (int r = 0; r < j->mesh->rank; r++) {
        j->polled[n++] = (struct pollfd){.fd = j->answers[r].socket, .events = POLLIN};
    }
    poll(j->polled, (nfds_t)n, (int)(j->try_after * 1000));
}

static lierne_status meet(joining *j) {
    LIERNE_TRY(listen_to_others(j));
    for (;;) {
        LIERNE_TRY(receive_guests(j));
        LIERNE_TRY(reach_lower_ranks(j));
        if (all_joined(j)) {
            return LIERNE_OK;
        }
        LIERNE_TRY(check_ranks(j));
        if (lierne_deadline_passed(&j->deadline, lierne_now())) {
            return time_out(j);
        }
        wait_a_moment(j);
    }
}

static lierne_status allocate_joining(joining *j) {
    size_t world = (size_t)j->mesh->world;
    LIERNE_TRY(lierne_alloc(&j->joined, world, sizeof *j->joined));
    LIERNE_TRY(lierne_alloc(&j->answers, world, sizeof *j->answers));
    for (size_t r = 0; r < world; r++) {
        j->answers[r].socket = -1;
    }
    return lierne_alloc(&j->polled, world + GUESTS + 1, sizeof *j->polled);
}

static void close_joining(joining *j) {
    for (int i = 0; i < GUESTS; i++) {
        drop_guest(&j->guests[i]);
    }
    for (int r = 0; j->answers && r < j->mesh->world; r++) {
        drop_guest(&j->answers[r]);
    }
    if (j->listener >= 0) {
        close(j->listener);
    }
    lierne_mem_free(j->joined);
    lierne_mem_free(j->answers);
    lierne_mem_free(j->polled);
}

lierne_status lierne_mesh_join(lierne_mesh *mesh, const char *name, uint64_t key, double timeout) {
    joining j = {.mesh = mesh, .name = name, .key = key, .listener = -1, .try_after = TRY_FIRST};
    for (int i = 0; i < GUESTS; i++) {
        j.guests[i].socket = -1;
    }
    lierne_deadline_start(&j.deadline, timeout, lierne_now());
    lierne_status status = allocate_joining(&j);
    if (status == LIERNE_OK) {
        status = meet(&j);
    }
    close_joining(&j);
    return status;
}
