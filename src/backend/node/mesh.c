/* Messages over the sockets between the ranks of a node.
 *
 * A message goes straight from the sender's buffer to the socket, and from there to the receiver's.
 * Only one that arrives before its receive was posted is kept in memory of its own, because the
 * messages behind it may be the ones that are waited for. A rank reads from a peer only while it
 * waits for messages of that peer, so a sender that is far ahead is held up by the socket.
 *
 * A rank learns that a peer has ended from the end of its connection. That is no error here:
 * whoever waits for the peer finds out why (backend/oob/oob_give_up.c). */
#include "backend/node/mesh.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define GATHER_TAG    (-1) /* not a caller's */
#define SLEEP_FOR     1    /* milliseconds; what arrives ends it */
#define NOTHING_MOVED (-1)
#define POOL_PER_RANK 8 /* requests that are allocated beforehand */

static int name_of(const lierne_mesh *m, int rank) {
    return m->members && m->members->count ? lierne_members_rank(m->members, rank) : rank;
}

static void append_request(lierne_mesh_list *list, lierne_mesh_request *r) {
    list->last = list->last ? list->last : &list->first;
    r->next = NULL;
    *list->last = r;
    list->last = &r->next;
}

static bool unlink_request(lierne_mesh_list *list, const lierne_mesh_request *r) {
    for (lierne_mesh_request **at = &list->first; *at; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            list->last = list->last == &r->next ? at : list->last;
            return true;
        }
    }
    return false;
}

static lierne_mesh_request *find_tag(const lierne_mesh_list *list, int64_t tag) {
    lierne_mesh_request *r = list->first;
    while (r && r->tag != tag) {
        r = r->next;
    }
    return r;
}

/* The pool holds what most calls need, so that executing allocates nothing. */
static lierne_status take_request(lierne_mesh *m, lierne_mesh_request **out) {
    lierne_mesh_request *r = m->spare;
    bool pooled = r != NULL;
    if (pooled) {
        m->spare = r->next;
    } else {
        LIERNE_TRY(lierne_alloc(&r, 1, sizeof *r));
    }
    *r = (lierne_mesh_request){.peer = -1, .pooled = pooled};
    *out = r;
    return LIERNE_OK;
}

static void give_back(lierne_mesh *m, lierne_mesh_request *r) {
    if (r->unexpected) {
        lierne_mem_free(r->data);
    }
    if (r->pooled) {
        r->next = m->spare;
        m->spare = r;
    } else {
        lierne_mem_free(r);
    }
}

/* Messages of an all-gather are nobody's requests. */
static void end_request(lierne_mesh *m, lierne_mesh_request *r) {
    r->ended = true;
    if (r->parent) {
        r->parent->ended = --r->parent->pending == 0;
        give_back(m, r);
    }
}

static void close_peer(lierne_mesh *m, int peer) {
    m->peers[peer].closed = true;
    m->polled[peer].fd = -1;
}

static void break_peer(lierne_mesh *m, int peer, lierne_status status) {
    lierne_mesh_peer *p = &m->peers[peer];
    p->broken = status;
    lierne_mem_free(p->reason);
    lierne_strdup(&p->reason, lierne_error_text());
}

/* Bytes moved, or NOTHING_MOVED; the peer is closed where its connection has ended. */
static ssize_t moved(lierne_mesh *m, int peer, ssize_t n, bool received) {
    if (n > 0) {
        return n;
    }
    if ((n == 0 && received) ||
        (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        close_peer(m, peer);
    }
    return NOTHING_MOVED;
}

static ssize_t send_some(lierne_mesh *m, int peer, const lierne_mesh_request *r) {
    lierne_mesh_header header = {r->tag, r->bytes};
    size_t in_header = r->moved < sizeof header ? r->moved : sizeof header;
    size_t in_data = r->moved - in_header;
    struct iovec parts[2] = {{(char *)&header + in_header, sizeof header - in_header},
                             {r->data + in_data, r->bytes - in_data}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = r->bytes > in_data ? 2 : 1};
    return moved(m, peer, sendmsg(m->sockets[peer], &message, MSG_NOSIGNAL | MSG_DONTWAIT), false);
}

static void write_peer(lierne_mesh *m, int peer) {
    lierne_mesh_peer *p = &m->peers[peer];
    while (p->sends.first && !p->closed) {
        lierne_mesh_request *r = p->sends.first;
        ssize_t n = send_some(m, peer, r);
        if (n == NOTHING_MOVED) {
            return;
        }
        r->moved += (size_t)n;
        if (r->moved == r->bytes + sizeof(lierne_mesh_header)) {
            unlink_request(&p->sends, r);
            end_request(m, r);
        }
    }
}

/* The receive that a message is for; without one, memory of its own. */
static lierne_status find_receive(lierne_mesh *m, int peer) {
    lierne_mesh_peer *p = &m->peers[peer];
    lierne_mesh_request *r = find_tag(&p->receives, p->header.tag);
    if (r && r->bytes != p->header.bytes) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "rank %d expects %zu bytes from rank %d and received %zu",
                           name_of(m, m->rank), r->bytes, name_of(m, peer),
                           (size_t)p->header.bytes);
    }
    if (r) {
        unlink_request(&p->receives, r);
    } else {
        LIERNE_TRY(take_request(m, &r));
        r->receives = r->unexpected = true;
        r->peer = peer;
        r->tag = p->header.tag;
        r->bytes = p->header.bytes;
        lierne_status status = lierne_alloc_unset(&r->data, r->bytes, 1);
        if (status != LIERNE_OK) {
            give_back(m, r);
            return status;
        }
        append_request(&p->unexpected, r);
    }
    p->reading = r;
    return LIERNE_OK;
}

static bool is_wanted(const lierne_mesh_peer *p) {
    return !p->closed && p->broken == LIERNE_OK && (p->receives.first || p->reading);
}

static void read_peer(lierne_mesh *m, int peer) {
    lierne_mesh_peer *p = &m->peers[peer];
    while (is_wanted(p)) {
        lierne_mesh_request *r = p->reading;
        char *to = r ? r->data + r->moved : (char *)&p->header + p->have;
        size_t wanted = r ? r->bytes - r->moved : sizeof p->header - p->have;
        ssize_t n = wanted == 0
                        ? 0
                        : moved(m, peer, recv(m->sockets[peer], to, wanted, MSG_DONTWAIT), true);
        if (n == NOTHING_MOVED) {
            return;
        }
        if (r && (r->moved += (size_t)n) == r->bytes) {
            p->reading = NULL;
            end_request(m, r);
        } else if (!r && (p->have += (size_t)n) == sizeof p->header) {
            p->have = 0;
            lierne_status status = find_receive(m, peer);
            if (status != LIERNE_OK) {
                break_peer(m, peer, status);
            }
        }
    }
}

/* A connection that has ended would wake every sleep, so one that nobody reads is left out. */
static int wait_for(lierne_mesh *m, int milliseconds) {
    for (int r = 0; r < m->world; r++) {
        const lierne_mesh_peer *p = &m->peers[r];
        int events = (is_wanted(p) ? POLLIN : 0) | (p->sends.first && !p->closed ? POLLOUT : 0);
        m->polled[r].events = (short)events;
        m->polled[r].fd = events ? m->sockets[r] : -1;
    }
    return poll(m->polled, (nfds_t)m->world, milliseconds);
}

static void progress_mesh(void *user) {
    lierne_mesh *m = user;
    for (int r = 0, found = wait_for(m, 0); found > 0 && r < m->world; r++) {
        if (m->polled[r].fd >= 0 && m->polled[r].revents) {
            write_peer(m, r);
            read_peer(m, r);
        }
    }
}

static void sleep_a_moment(void *user) {
    wait_for(user, SLEEP_FOR);
}

static lierne_status post_send(lierne_mesh *m, lierne_mesh_request **out, const void *data,
                               size_t bytes, int to, int64_t tag) {
    lierne_mesh_request *r;
    LIERNE_TRY(take_request(m, &r));
    r->peer = to;
    r->tag = tag;
    r->data = (char *)data;
    r->bytes = bytes;
    r->parent = *out;
    append_request(&m->peers[to].sends, r);
    if (!r->parent) {
        *out = r;
    }
    if (m->peers[to].sends.first == r) {
        write_peer(m, to);
    }
    return LIERNE_OK;
}

/* A message that is here already: copies it, or lets the rest of it arrive in place. */
static void take_over(lierne_mesh *m, lierne_mesh_request *r, lierne_mesh_request *early) {
    lierne_mesh_peer *p = &m->peers[r->peer];
    if (early->moved > 0) {
        memcpy(r->data, early->data, early->moved);
    }
    r->moved = early->moved;
    if (p->reading == early) {
        p->reading = r;
    } else {
        end_request(m, r);
    }
    unlink_request(&p->unexpected, early);
    give_back(m, early);
}

static lierne_status post_receive(lierne_mesh *m, lierne_mesh_request **out, void *data,
                                  size_t bytes, int from, int64_t tag) {
    lierne_mesh_peer *p = &m->peers[from];
    lierne_mesh_request *r, *early = find_tag(&p->unexpected, tag);
    if (early && early->bytes != bytes) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "rank %d expects %zu bytes from rank %d and received %zu",
                           name_of(m, m->rank), bytes, name_of(m, from), early->bytes);
    }
    LIERNE_TRY(take_request(m, &r));
    r->receives = true;
    r->peer = from;
    r->tag = tag;
    r->data = data;
    r->bytes = bytes;
    r->parent = *out;
    if (!r->parent) {
        *out = r;
    }
    if (early) {
        take_over(m, r, early);
    } else {
        append_request(&p->receives, r);
    }
    return LIERNE_OK;
}

static int send_message(void **request, const void *data, size_t bytes, int to, int tag,
                        void *user) {
    lierne_mesh_request *r = NULL;
    lierne_status status = post_send(user, &r, data, bytes, to, tag);
    *request = r;
    return status;
}

static int receive_message(void **request, void *data, size_t bytes, int from, int tag,
                           void *user) {
    lierne_mesh_request *r = NULL;
    lierne_status status = post_receive(user, &r, data, bytes, from, tag);
    *request = r;
    return status;
}

static lierne_status start_gather(lierne_mesh *m, lierne_mesh_request *all) {
    for (int i = 1; i < m->world; i++) {
        int to = (m->rank + i) % m->world, from = (m->rank + m->world - i) % m->world;
        char *at = all->data + (size_t)from * all->bytes;
        char *own = all->data + (size_t)m->rank * all->bytes;
        LIERNE_TRY(post_receive(m, &all, at, all->bytes, from, GATHER_TAG));
        LIERNE_TRY(post_send(m, &all, own, all->bytes, to, GATHER_TAG));
    }
    return LIERNE_OK;
}

/* The error of a peer whose messages cannot be read any more. */
static lierne_status check_broken(const lierne_mesh *m, int peer) {
    const lierne_mesh_peer *p = &m->peers[peer];
    if (p->broken != LIERNE_OK) {
        lierne_set_error(p->reason ? p->reason : lierne_status_name(p->broken));
    }
    return p->broken;
}

static int test(void *request, void *user) {
    const lierne_mesh_request *r = request;
    const lierne_mesh *m = user;
    if (r->ended) {
        return 0;
    }
    for (int peer = r->peer < 0 ? 0 : r->peer; peer <= (r->peer < 0 ? m->world - 1 : r->peer);
         peer++) {
        lierne_status status = check_broken(m, peer);
        if (status != LIERNE_OK) {
            return status;
        }
    }
    return 1;
}

/* The rest of a message that has begun cannot be told from the next one. */
static void take_back(lierne_mesh *m, lierne_mesh_request *r) {
    lierne_mesh_peer *p = &m->peers[r->peer];
    if (r->receives) {
        unlink_request(&p->receives, r);
    } else {
        unlink_request(&p->sends, r);
    }
    if (p->reading == r) {
        p->reading = NULL;
        close_peer(m, r->peer);
    } else if (!r->receives && r->moved > 0) {
        close_peer(m, r->peer);
    }
    give_back(m, r);
}

static void take_back_parts(lierne_mesh *m, const lierne_mesh_request *all,
                            lierne_mesh_list *list) {
    for (lierne_mesh_request *r = list->first, *next; r; r = next) {
        next = r->next;
        if (r->parent == all) {
            take_back(m, r);
        }
    }
}

static int free_request(void *request, void *user) {
    lierne_mesh *m = user;
    lierne_mesh_request *r = request;
    for (int peer = 0; r->peer < 0 && !r->ended && peer < m->world; peer++) {
        lierne_mesh_peer *p = &m->peers[peer];
        take_back_parts(m, r, &p->sends);
        take_back_parts(m, r, &p->receives);
        if (p->reading && p->reading->parent == r) {
            take_back(m, p->reading);
        }
    }
    if (r->peer >= 0 && !r->ended) {
        take_back(m, r);
    } else {
        give_back(m, r);
    }
    return 0;
}

/* Every rank sends to every other one. A node has few, and each of them waits only once. */
static int allgather(void **request, const void *mine, void *all, size_t bytes, void *user) {
    lierne_mesh *m = user;
    lierne_mesh_request *r;
    LIERNE_TRY(take_request(m, &r));
    r->data = all;
    r->bytes = bytes;
    r->pending = 2 * (size_t)(m->world - 1) + 1;
    memcpy(r->data + (size_t)m->rank * bytes, mine, bytes);
    lierne_status status = start_gather(m, r);
    if (status != LIERNE_OK) {
        free_request(r, m);
        return status;
    }
    r->ended = --r->pending == 0;
    *request = r;
    return LIERNE_OK;
}

static bool ended(void *user, int peer) {
    return ((const lierne_mesh *)user)->peers[peer].closed;
}

static void cut(void *user) {
    const lierne_mesh *m = user;
    for (int r = 0; r < m->world; r++) {
        if (m->sockets[r] >= 0) {
            shutdown(m->sockets[r], SHUT_RDWR);
        }
    }
}

static lierne_status allocate_mesh(lierne_mesh *m) {
    size_t world = (size_t)m->world;
    LIERNE_TRY(lierne_alloc(&m->sockets, world, sizeof *m->sockets));
    memset(m->sockets, 0xff, world * sizeof *m->sockets);
    LIERNE_TRY(lierne_alloc(&m->polled, world, sizeof *m->polled));
    LIERNE_TRY(lierne_alloc(&m->peers, world, sizeof *m->peers));
    size_t n = POOL_PER_RANK * world;
    LIERNE_TRY(lierne_alloc(&m->pool, n, sizeof *m->pool));
    for (size_t i = 0; i < n; i++) {
        m->pool[i].pooled = true;
        give_back(m, &m->pool[i]);
    }
    return LIERNE_OK;
}

lierne_status lierne_mesh_open(lierne_mesh **out, int rank, int world) {
    lierne_mesh *m;
    LIERNE_TRY(lierne_alloc(&m, 1, sizeof *m));
    m->rank = rank;
    m->world = world;
    lierne_status status = allocate_mesh(m);
    if (status != LIERNE_OK) {
        lierne_mesh_close(m);
        return status;
    }
    *out = m;
    return LIERNE_OK;
}

static void free_list(lierne_mesh *m, lierne_mesh_list *list) {
    for (lierne_mesh_request *r = list->first, *next; r; r = next) {
        next = r->next;
        give_back(m, r);
    }
}

void lierne_mesh_close(void *user) {
    lierne_mesh *m = user;
    for (int r = 0; m && r < m->world; r++) {
        if (m->sockets && m->sockets[r] >= 0) {
            close(m->sockets[r]);
        }
        if (m->peers) {
            free_list(m, &m->peers[r].sends);
            free_list(m, &m->peers[r].receives);
            free_list(m, &m->peers[r].unexpected);
            lierne_mem_free(m->peers[r].reason);
        }
    }
    if (m) {
        lierne_mem_free(m->sockets);
        lierne_mem_free(m->polled);
        lierne_mem_free(m->peers);
        lierne_mem_free(m->pool);
        lierne_mem_free(m);
    }
}

lierne_oob_calls lierne_mesh_calls(lierne_mesh *mesh) {
    return (lierne_oob_calls){.user = mesh,
                              .allgather = allgather,
                              .send = send_message,
                              .receive = receive_message,
                              .test = test,
                              .free_request = free_request};
}

const lierne_oob_hooks lierne_mesh_hooks = {
    .progress = progress_mesh,
    .sleep = sleep_a_moment,
    .ended = ended,
    .cut = cut,
    .close = lierne_mesh_close,
};
