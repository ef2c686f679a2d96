/* Agreement over connections, where ranks end at any moment.
 *
 * Every rank has a connection to and from every other one (reach.h). What is agreed on, first the
 * list of an attempt, then its outcome, is proposed by the lowest rank that runs, to all that run.
 * It is decided once all of them have taken it over, which they tell the proposer. If the proposer
 * ends before, the next rank proposes: what it has taken over, if anything, and else something of
 * its own. So if a rank has decided, everyone that runs has taken over the same, and no other
 * proposal can follow. A rank that decides tells all others, and may then leave.
 *
 * That a process has ended is seen by the end of its connection, behind all that it sent, so a rank
 * takes over no proposal of a rank behind whose end it has looked already. A host that falls silent
 * is never taken for ended: that could split the ranks into two contexts. At the deadline a rank
 * tells the others that it cannot wait, and the proposer proposes TIMEOUT; what all have taken over
 * before stands. Only if the proposer itself is silent, a rank returns TIMEOUT by itself, GRACE
 * later: so all that others hear of have returned TIMEOUT, unless one of them was told the outcome
 * in the moment in which the proposer fell silent, and its host, too, before it passed it on. */
#include "runtime/control/remote.h"
#include "runtime/control/reach.h"

#include <errno.h>
#include <sys/socket.h>

#define GRACE 0.5 /* seconds */
#define LOOK  10  /* milliseconds between looks at the agreement while connecting */

typedef enum kind { RESULT = 1, EXPIRED, PROPOSE, TAKEN, DECIDED } kind;

typedef struct message {
    int32_t kind;
    int32_t about; /* of a result: the attempt; else: what is agreed on, two per attempt */
    int32_t code;
    int32_t unused;
    uint8_t ranks[LIERNE_REMOTE_MOST / 8];
} message;

typedef struct member {
    bool ended;
    bool taken;  /* it has taken over what this rank proposes */
    int attempt; /* of its result */
    int code;
    size_t have;
    message arrives;
} member;

struct lierne_remote {
    lierne_reach links;
    member *members;
    struct pollfd *polled;
    int about;
    int proposer;  /* of the proposal that was taken over; -1: none */
    bool proposed; /* by this rank */
    bool decided;
    message value;
    bool expired;
    bool told;
};

static bool runs(const lierne_survivors *s, int rank) {
    return rank == s->rank || !s->remote->members[rank].ended;
}

/* A message is small and there are few: what does not fit goes to a rank that is stopped, and what
 * is not sent is found at the end of the connection. */
static void send_to(lierne_survivors *s, int rank, const message *m) {
    const lierne_reach_peer *peer = &s->remote->links.peers[rank];
    if (rank != s->rank && peer->said &&
        send(peer->out, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof *m) {
        shutdown(peer->out, SHUT_WR);
    }
}

static void send_to_all(lierne_survivors *s, const message *m) {
    for (int r = 0; r < s->world; r++) {
        send_to(s, r, m);
    }
}

static void decide(lierne_survivors *s, const message *value) {
    message m = *value;
    m.kind = DECIDED;
    s->remote->value = m;
    s->remote->decided = true;
    send_to_all(s, &m);
}

static void take_over(lierne_survivors *s, int from, const message *m) {
    struct lierne_remote *v = s->remote;
    const message answer = {.kind = TAKEN, .about = m->about};
    if (m->about == v->about && from < v->proposer) {
        return; /* it has ended: another one has proposed since */
    }
    if (m->about == v->about) {
        v->value = *m;
        v->proposer = from;
    }
    send_to(s, from, &answer);
}

static void handle(lierne_survivors *s, int from, const message *m) {
    struct lierne_remote *v = s->remote;
    member *sender = &v->members[from];
    switch (m->kind) {
    case RESULT:
        sender->attempt = m->about;
        sender->code = m->code;
        break;
    case EXPIRED:
        v->expired = true;
        break;
    case PROPOSE:
        take_over(s, from, m);
        break;
    case TAKEN:
        sender->taken = sender->taken || (v->proposed && m->about == v->about);
        break;
    default:
        if (m->about == v->about) {
            decide(s, m);
        }
    }
}

/* Whether a message arrived. */
static bool receive_from(lierne_survivors *s, int rank) {
    member *m = &s->remote->members[rank];
    int connection = s->remote->links.peers[rank].in;
    ssize_t n =
        recv(connection, (char *)&m->arrives + m->have, sizeof m->arrives - m->have, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        m->ended = true;
    }
    m->have += n > 0 ? (size_t)n : 0;
    if (m->have < sizeof m->arrives) {
        return false;
    }
    m->have = 0;
    handle(s, rank, &m->arrives);
    return true;
}

/* What is behind a decision belongs to what is agreed on next. */
static void receive_all(lierne_survivors *s) {
    for (int r = 0; r < s->world; r++) {
        while (r != s->rank && runs(s, r) && !s->remote->decided && receive_from(s, r)) {
        }
    }
}

static bool is_list(const struct lierne_remote *v) {
    return v->about % 2 == 1;
}

/* The list: all that run. */
static bool list_running(const lierne_survivors *s, message *value) {
    for (int r = 0; r < s->world; r++) {
        value->ranks[r / 8] |= (uint8_t)(runs(s, r) << r % 8);
    }
    value->code = LIERNE_OK;
    return true;
}

/* The outcome, once all of the list have said how it went, or ended. */
static bool judge(const lierne_survivors *s, message *value) {
    lierne_verdict verdict = {0};
    for (int i = 0; i < s->count; i++) {
        const member *m = &s->remote->members[s->list[i]];
        bool said = m->attempt == s->attempt, ended = !runs(s, s->list[i]);
        if (!said && !ended) {
            return false;
        }
        lierne_verdict_add(&verdict, ended, said ? (lierne_status)m->code : LIERNE_OK);
    }
    value->code = (int32_t)lierne_verdict_get(&verdict);
    return true;
}

/* Proposes, as the lowest rank that runs, and decides once all have taken it over. */
static void propose(lierne_survivors *s) {
    struct lierne_remote *v = s->remote;
    bool all = true;
    for (int r = 0; r < s->rank; r++) {
        if (runs(s, r)) {
            return;
        }
    }
    if (!v->proposed) {
        message value = {0};
        if (v->proposer >= 0) {
            value = v->value;
        } else if (v->expired) {
            value.code = LIERNE_ERR_TIMEOUT;
        } else if (!(is_list(v) ? list_running(s, &value) : judge(s, &value))) {
            return;
        }
        value.kind = PROPOSE;
        value.about = v->about;
        v->value = value;
        v->proposer = s->rank;
        v->proposed = true;
        send_to_all(s, &value);
    }
    for (int r = 0; r < s->world; r++) {
        all = all && (r == s->rank || !runs(s, r) || v->members[r].taken);
    }
    if (all) {
        decide(s, &v->value);
    }
}

/* This rank waits no longer. */
static void expire(lierne_survivors *s) {
    const message m = {.kind = EXPIRED};
    if (!s->remote->told) {
        s->remote->told = s->remote->expired = true;
        send_to_all(s, &m);
    }
}

/* Milliseconds to sleep. A clock that is looked at too rarely takes the sleep for a process that
 * did not run (lierne_deadline). */
static int milliseconds(const lierne_survivors *s, double left) {
    double most = s->deadline.timeout / 4;
    left = left < 0 ? 0 : left > most ? most : left;
    return 1 + (int)(1000 * left);
}

static void sleep_until_something_arrives(lierne_survivors *s, double seconds) {
    struct pollfd *polled = s->remote->polled;
    for (int r = 0; r < s->world; r++) {
        bool waits = r != s->rank && runs(s, r);
        polled[r] =
            (struct pollfd){.fd = waits ? s->remote->links.peers[r].in : -1, .events = POLLIN};
    }
    poll(polled, (nfds_t)s->world, milliseconds(s, seconds));
}

static void begin_to_agree(struct lierne_remote *v, int world) {
    v->about++;
    v->proposer = -1;
    v->proposed = v->decided = false;
    for (int r = 0; r < world; r++) {
        v->members[r].taken = false;
    }
}

static lierne_status await(lierne_survivors *s) {
    struct lierne_remote *v = s->remote;
    while (!v->decided) {
        double left = s->deadline.at - lierne_now();
        if (lierne_deadline_passed(&s->deadline, lierne_now())) {
            expire(s);
            left += GRACE;
        }
        receive_all(s);
        if (!v->decided) {
            propose(s);
        }
        if (!v->decided && v->told && left <= 0) {
            return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                               "rank %d of %d: not all ranks that are left answered within %g s",
                               lierne_members_rank(s->members, s->rank), s->members->world,
                               s->deadline.timeout);
        }
        if (!v->decided) {
            sleep_until_something_arrives(s, left);
        }
    }
    return LIERNE_OK;
}

static lierne_status time_out(lierne_survivors *s, int missing) {
    expire(s);
    return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                       "rank %d of %d: rank %d runs, or its host is silent, and it has not called "
                       "before the deadline, %g s",
                       lierne_members_rank(s->members, s->rank), s->members->world,
                       lierne_members_rank(s->members, missing), s->deadline.timeout);
}

/* Waits until every other rank has called or ended. */
static lierne_status meet(lierne_survivors *s) {
    lierne_reach *links = &s->remote->links;
    for (int r = 0; r < s->world; r++) {
        while (r != s->rank && !lierne_reach_done(links, r)) {
            double left = s->deadline.at - lierne_now();
            if (lierne_deadline_passed(&s->deadline, lierne_now())) {
                return time_out(s, r);
            }
            LIERNE_TRY(lierne_reach_step(links, milliseconds(s, left)));
        }
    }
    for (int r = 0; r < s->world; r++) {
        s->remote->members[r].ended = r != s->rank && links->peers[r].in < 0;
    }
    return LIERNE_OK;
}

lierne_status lierne_remote_begin(lierne_survivors *s) {
    struct lierne_remote *v;
    LIERNE_TRY(lierne_alloc(&v, 1, sizeof *v));
    s->remote = v;
    v->links = (lierne_reach){.listener = s->ports->listener,
                              .addresses = s->ports->addresses,
                              .rank = s->rank,
                              .world = s->world};
    LIERNE_TRY(lierne_reach_open(&v->links));
    LIERNE_TRY(lierne_alloc(&v->members, (size_t)s->world, sizeof *v->members));
    for (int r = 0; r < s->world; r++) {
        v->links.peers[r].to = v->links.peers[r].from = r != s->rank;
    }
    return lierne_alloc(&v->polled, (size_t)s->world, sizeof *v->polled);
}

void lierne_remote_end(lierne_survivors *s) {
    if (s->remote) {
        lierne_reach_close(&s->remote->links);
        lierne_mem_free(s->remote->members);
        lierne_mem_free(s->remote->polled);
        lierne_mem_free(s->remote);
        s->remote = NULL;
    }
}

static lierne_status fail(const lierne_survivors *s, int code, lierne_status mine) {
    if (code == (int)mine) {
        return mine; /* its message is the thread's */
    }
    return LIERNE_FAIL((lierne_status)code, "rank %d of %d: %s",
                       lierne_members_rank(s->members, s->rank), s->members->world,
                       code == LIERNE_ERR_TIMEOUT ? "another rank waited until its deadline"
                                                  : "another rank failed: it has the reason");
}

lierne_status lierne_remote_list(lierne_survivors *s) {
    struct lierne_remote *v = s->remote;
    if (s->attempt++ == 0) {
        LIERNE_TRY(meet(s));
    }
    begin_to_agree(v, s->world);
    LIERNE_TRY(await(s));
    if (v->value.code != LIERNE_OK) {
        return fail(s, v->value.code, LIERNE_OK);
    }
    s->count = 0;
    for (int r = 0; r < s->world; r++) {
        if (v->value.ranks[r / 8] >> r % 8 & 1) {
            s->list[s->count++] = r;
        }
    }
    begin_to_agree(v, s->world);
    if (!(v->value.ranks[s->rank / 8] >> s->rank % 8 & 1)) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED,
                           "rank %d of %d: the others go on without this rank: its connections to "
                           "them broke",
                           lierne_members_rank(s->members, s->rank), s->members->world);
    }
    return LIERNE_OK;
}

lierne_status lierne_remote_decide(lierne_survivors *s, lierne_status mine) {
    const message m = {.kind = RESULT, .about = s->attempt, .code = mine};
    s->remote->members[s->rank].attempt = s->attempt;
    s->remote->members[s->rank].code = mine;
    send_to_all(s, &m);
    LIERNE_TRY(await(s));
    int code = s->remote->value.code;
    if (code == LIERNE_ERR_PEER_FAILED) {
        return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "a rank ended meanwhile");
    }
    return code == LIERNE_OK ? LIERNE_OK : fail(s, code, mine);
}

static lierne_status ended_meanwhile(void) {
    return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED, "a rank ended or failed meanwhile");
}

/* PEER_FAILED if a rank of the list has ended or failed, or there is an outcome without it. */
static lierne_status check_list(lierne_survivors *s) {
    receive_all(s);
    bool lost = s->remote->decided;
    for (int i = 0; i < s->count; i++) {
        const member *m = &s->remote->members[s->list[i]];
        lost = lost || !runs(s, s->list[i]) || (m->attempt == s->attempt && m->code != LIERNE_OK);
    }
    return lost ? ended_meanwhile() : LIERNE_OK;
}

static lierne_status connect_list(lierne_survivors *s, lierne_reach *reach) {
    LIERNE_TRY(lierne_reach_open(reach));
    for (int i = 0; i < s->count; i++) {
        reach->peers[s->list[i]].to = s->list[i] < s->rank;
        reach->peers[s->list[i]].from = s->list[i] > s->rank;
    }
    for (int i = 0; i < s->count; i++) {
        while (s->list[i] != s->rank && !lierne_reach_done(reach, s->list[i])) {
            LIERNE_TRY(check_list(s));
            if (lierne_deadline_passed(&s->deadline, lierne_now())) {
                return time_out(s, s->list[i]);
            }
            LIERNE_TRY(lierne_reach_step(reach, LOOK));
        }
    }
    return LIERNE_OK;
}

/* Waits for a byte of every other rank, which it sends once it has all its connections: from then
 * on, the end of one tells of every failure. */
static lierne_status confirm(lierne_survivors *s, const int *sockets) {
    char byte = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->list[i] != s->rank &&
            (sockets[i] < 0 || send(sockets[i], &byte, 1, MSG_NOSIGNAL) != 1)) {
            return ended_meanwhile();
        }
    }
    for (int i = 0; i < s->count; i++) {
        struct pollfd one = {.fd = sockets[i], .events = POLLIN};
        while (s->list[i] != s->rank && poll(&one, 1, LOOK) <= 0) {
            LIERNE_TRY(check_list(s));
            if (lierne_deadline_passed(&s->deadline, lierne_now())) {
                return time_out(s, s->list[i]);
            }
        }
        if (s->list[i] != s->rank && recv(sockets[i], &byte, 1, MSG_DONTWAIT) != 1) {
            return ended_meanwhile();
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_remote_connect(lierne_survivors *s, int *sockets) {
    lierne_reach reach = {.listener = s->ports->listener,
                          .addresses = s->ports->addresses,
                          .rank = s->rank,
                          .world = s->world,
                          .purpose = (uint64_t)s->attempt};
    lierne_status status = connect_list(s, &reach);
    for (int i = 0; status == LIERNE_OK && i < s->count; i++) {
        lierne_reach_peer *peer = &reach.peers[s->list[i]];
        int *connection = s->list[i] < s->rank ? &peer->out : &peer->in;
        if (s->list[i] != s->rank) {
            sockets[i] = *connection;
            *connection = -1;
        }
    }
    lierne_reach_close(&reach);
    return status == LIERNE_OK ? confirm(s, sockets) : status;
}
