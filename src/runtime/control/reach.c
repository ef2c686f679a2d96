#include "runtime/control/reach.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY_EVERY 0.02 /* seconds between attempts to connect */

lierne_status lierne_reach_open(lierne_reach *reach) {
    size_t world = (size_t)reach->world;
    for (int i = 0; i < LIERNE_REACH_GUESTS; i++) {
        reach->guests[i].connection = -1;
    }
    LIERNE_TRY(lierne_alloc(&reach->peers, world, sizeof *reach->peers));
    for (size_t r = 0; r < world; r++) {
        reach->peers[r].out = reach->peers[r].in = -1;
    }
    return lierne_alloc(&reach->polled, 1 + LIERNE_REACH_GUESTS + 2 * world, sizeof *reach->polled);
}

static void close_connection(int *connection) {
    if (*connection >= 0) {
        close(*connection);
        *connection = -1;
    }
}

void lierne_reach_close(lierne_reach *reach) {
    for (int i = 0; i < LIERNE_REACH_GUESTS; i++) {
        close_connection(&reach->guests[i].connection);
    }
    for (int r = 0; reach->peers && r < reach->world; r++) {
        close_connection(&reach->peers[r].out);
        close_connection(&reach->peers[r].in);
    }
    lierne_mem_free(reach->peers);
    lierne_mem_free(reach->polled);
}

/* A port of this host that nobody listens at may be given to the connection that connects to it,
 * which is then connected to itself. */
static bool is_own(int connection) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t length = sizeof here, other = sizeof there;
    return getsockname(connection, (struct sockaddr *)&here, &length) == 0 &&
           getpeername(connection, (struct sockaddr *)&there, &other) == 0 && length == other &&
           memcmp(&here, &there, length) == 0;
}

/* An attempt to connect has failed: only where the host says that nobody listens, it is no use to
 * try again. */
static void fail_to_connect(lierne_reach_peer *peer, int error) {
    close_connection(&peer->out);
    peer->said = false;
    peer->refused = error == ECONNREFUSED;
}

static lierne_status start_to_connect(lierne_reach *reach, int rank) {
    lierne_reach_peer *peer = &reach->peers[rank];
    struct sockaddr_storage address;
    socklen_t length = lierne_port_address(&address, &reach->addresses[rank]);
    peer->out = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (peer->out < 0) {
        return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "no connection: %s", strerror(errno));
    }
    if (connect(peer->out, (struct sockaddr *)&address, length) != 0 && errno != EINPROGRESS) {
        fail_to_connect(peer, errno);
    }
    return LIERNE_OK;
}

/* A new connection has space for this. over: it is at its end already. */
static void say_hello(lierne_reach *reach, int rank, bool over) {
    lierne_reach_peer *peer = &reach->peers[rank];
    const lierne_reach_hello hello = {.magic = LIERNE_REACH_MAGIC,
                                      .secret = reach->addresses[rank].secret,
                                      .purpose = reach->purpose,
                                      .rank = (uint64_t)reach->rank};
    int error = 0, at_once = 1;
    socklen_t length = sizeof error;
    getsockopt(peer->out, SOL_SOCKET, SO_ERROR, &error, &length);
    error = error == 0 && is_own(peer->out) ? ECONNREFUSED : error;
    if (error == 0) {
        setsockopt(peer->out, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
        peer->said = send(peer->out, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello;
        error = peer->said && !over ? 0 : EAGAIN;
    }
    if (error != 0) {
        fail_to_connect(peer, error);
    }
}

/* A connection that ends before the rank has called is tried again: that is how it is known whether
 * its process has ended. */
static void look_at_out(lierne_reach *reach, int rank, short events) {
    lierne_reach_peer *peer = &reach->peers[rank];
    if (peer->out >= 0 && events && !peer->said) {
        say_hello(reach, rank, events & POLLRDHUP);
    } else if (peer->out >= 0 && (events & (POLLRDHUP | POLLHUP | POLLERR))) {
        fail_to_connect(peer, 0);
    }
}

/* Where there is no place, the guest that came first loses its own. */
static void accept_guests(lierne_reach *reach) {
    bool full = true;
    for (int i = 0; i < LIERNE_REACH_GUESTS; i++) {
        full = full && reach->guests[i].connection >= 0;
    }
    if (full) {
        close_connection(&reach->guests[reach->oldest++ % LIERNE_REACH_GUESTS].connection);
    }
    for (int i = 0; i < LIERNE_REACH_GUESTS; i++) {
        lierne_reach_guest *guest = &reach->guests[i];
        if (guest->connection < 0) {
            *guest = (lierne_reach_guest){
                .connection = accept4(reach->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        }
        if (guest->connection < 0) {
            return;
        }
    }
}

/* A rank may close what this one connected to it, and then call: that it has must be seen before it
 * is heard, or out would be taken for good. */
static void look_at_end(lierne_reach_peer *peer) {
    struct pollfd out = {.fd = peer->out, .events = POLLRDHUP};
    if (peer->said && poll(&out, 1, 0) > 0) {
        fail_to_connect(peer, 0);
    }
}

static void welcome(lierne_reach *reach, lierne_reach_guest *guest) {
    const lierne_reach_hello *hello = &guest->hello;
    bool known = hello->magic == LIERNE_REACH_MAGIC && hello->purpose == reach->purpose &&
                 hello->secret == reach->addresses[reach->rank].secret &&
                 hello->rank < (uint64_t)reach->world;
    lierne_reach_peer *peer = known ? &reach->peers[hello->rank] : NULL;
    if (peer && peer->from && peer->in < 0) {
        int at_once = 1;
        setsockopt(guest->connection, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
        peer->in = guest->connection;
        guest->connection = -1;
        look_at_end(peer);
    }
    close_connection(&guest->connection);
}

static void look_at_guest(lierne_reach *reach, lierne_reach_guest *guest) {
    ssize_t n = recv(guest->connection, (char *)&guest->hello + guest->have,
                     sizeof guest->hello - guest->have, MSG_DONTWAIT);
    if (n > 0 && (guest->have += (size_t)n) == sizeof guest->hello) {
        welcome(reach, guest);
    } else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        close_connection(&guest->connection);
    }
}

static lierne_status connect_to_all(lierne_reach *reach) {
    double now = lierne_now();
    for (int r = 0; now >= reach->next_try && r < reach->world; r++) {
        const lierne_reach_peer *peer = &reach->peers[r];
        if (peer->to && peer->out < 0 && !peer->refused) {
            LIERNE_TRY(start_to_connect(reach, r));
        }
    }
    reach->next_try = now >= reach->next_try ? now + TRY_EVERY : reach->next_try;
    return LIERNE_OK;
}

/* What is polled of every rank: whether out can be written or has ended, and whether in has. */
static void poll_all(lierne_reach *reach, int milliseconds) {
    struct pollfd *at = reach->polled;
    bool waits = false;
    *at++ = (struct pollfd){.fd = reach->listener, .events = POLLIN};
    for (int i = 0; i < LIERNE_REACH_GUESTS; i++) {
        *at++ = (struct pollfd){.fd = reach->guests[i].connection, .events = POLLIN};
    }
    for (int r = 0; r < reach->world; r++) {
        const lierne_reach_peer *peer = &reach->peers[r];
        waits = waits || (peer->to && peer->out < 0 && !peer->refused);
        *at++ = (struct pollfd){.fd = peer->out,
                                .events = peer->said ? POLLRDHUP : POLLOUT | POLLRDHUP};
        *at++ = (struct pollfd){.fd = peer->over ? -1 : peer->in, .events = POLLRDHUP};
    }
    int most =
        waits && milliseconds > (int)(TRY_EVERY * 1000) ? (int)(TRY_EVERY * 1000) : milliseconds;
    poll(reach->polled, (nfds_t)(at - reach->polled), most);
}

lierne_status lierne_reach_step(lierne_reach *reach, int milliseconds) {
    LIERNE_TRY(connect_to_all(reach));
    poll_all(reach, milliseconds);
    const struct pollfd *peers = reach->polled + 1 + LIERNE_REACH_GUESTS;
    for (int r = 0; r < reach->world; r++) {
        lierne_reach_peer *peer = &reach->peers[r];
        look_at_out(reach, r, peers[2 * r].revents);
        peer->over = peer->over || (peer->in >= 0 && peers[2 * r + 1].revents);
    }
    if (reach->polled[0].revents) {
        accept_guests(reach);
    }
    for (int i = 0; i < LIERNE_REACH_GUESTS; i++) {
        if (reach->guests[i].connection >= 0) {
            look_at_guest(reach, &reach->guests[i]);
        }
    }
    return LIERNE_OK;
}

bool lierne_reach_done(const lierne_reach *reach, int rank) {
    const lierne_reach_peer *peer = &reach->peers[rank];
    bool left = peer->in >= 0 && peer->over;
    return left || (peer->refused && peer->to) ||
           ((!peer->to || peer->said) && (!peer->from || peer->in >= 0));
}
