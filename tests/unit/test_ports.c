/* Ports of ranks of several nodes: whether a rank is reached, and who is not heard; and the ranks
 * that are left, over ports and in memory. */
#include "runtime/control/ports.h"
#include "runtime/control/processes.h"
#include "runtime/control/reach.h"
#include "runtime/control/remote.h"

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3 };

typedef struct part {
    pthread_t thread;
    lierne_ports ports;
    const lierne_rank_info *infos;
    int rank, world;
    double timeout;
    lierne_status status;
    bool reached;
} part;

static lierne_status all_alive(void *state, int rank) {
    (void)state, (void)rank;
    return LIERNE_OK;
}

static void *meet(void *user) {
    part *p = user;
    const lierne_ports_ranks ranks = {.infos = p->infos,
                                      .rank = p->rank,
                                      .world = p->world,
                                      .timeout = p->timeout,
                                      .alive = all_alive};
    p->status = lierne_ports_meet(&p->ports, &ranks, &p->reached);
    return NULL;
}

static void open_some(part *parts, lierne_rank_info *infos, int n, const char *address) {
    setenv("LIERNE_ADDRESS", address, 1);
    for (int r = 0; r < n; r++) {
        parts[r] = (part){.infos = infos, .rank = r, .world = n, .timeout = 60};
        infos[r] = (lierne_rank_info){.node = (uint64_t)r / 2, .rank = (uint64_t)r};
        cr_assert_eq(lierne_ports_open(&parts[r].ports, &infos[r].address, n), LIERNE_OK, "%s",
                     lierne_last_error());
    }
}

static void open_ports(part *parts, lierne_rank_info *infos, const char *address) {
    open_some(parts, infos, RANKS, address);
}

/* Ranks 0 and 1 are reached by rank 2, which is reached by rank 0. */
static void meet_all(part *parts) {
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(pthread_create(&parts[r].thread, NULL, meet, &parts[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(parts[r].thread, NULL);
        lierne_ports_close(&parts[r].ports);
    }
}

Test(ports, ranks_of_other_nodes_reach_each_other) {
    part parts[RANKS];
    lierne_rank_info infos[RANKS];
    size_t before = lierne_mem_live();
    open_ports(parts, infos, "127.0.0.1");
    meet_all(parts);
    for (int r = 0; r < RANKS; r++) {
        cr_assert(parts[r].status == LIERNE_OK && parts[r].reached, "rank %d", r);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(ports, a_rank_that_is_not_reached_says_so) {
    part parts[RANKS];
    lierne_rank_info infos[RANKS], others[RANKS];
    open_ports(parts, infos, "127.0.0.1");
    memcpy(others, infos, sizeof infos);
    others[1].address.secret++; /* as if rank 2 met another process there */
    parts[2].infos = others;
    parts[1].timeout = 0.5;
    meet_all(parts);
    cr_assert(parts[0].reached && !parts[1].reached && parts[2].reached);
    cr_assert_eq(lierne_ports_not_reached(1, false), LIERNE_ERR_INVALID);
    cr_assert(strstr(lierne_last_error(), "reaches it at its LIERNE_ADDRESS, 127.0.0.1"), "%s",
              lierne_last_error());
}

Test(ports, all_ranks_have_one_or_none) {
    part parts[RANKS];
    lierne_rank_info infos[RANKS];
    open_ports(parts, infos, "127.0.0.1");
    infos[1].address.port = 0;
    meet_all(parts);
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(parts[r].status, LIERNE_ERR_INVALID);
    }
}

static int connect_to(const lierne_address *address) {
    struct sockaddr_storage to;
    socklen_t length = lierne_port_address(&to, address);
    int opened = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(opened, (struct sockaddr *)&to, length), 0);
    return opened;
}

/* With the secret of another rank, as which it is, for all that rank 0 can tell, rank 2. One that
 * knows the secret is of no rank. */
Test(ports, a_stranger_is_not_taken_for_a_rank) {
    part parts[RANKS];
    lierne_rank_info infos[RANKS], others[RANKS];
    open_ports(parts, infos, "127.0.0.1");
    const lierne_reach_hello hello = {.magic = LIERNE_REACH_MAGIC,
                                      .secret = infos[1].address.secret,
                                      .purpose = LIERNE_REACH_CHECK,
                                      .rank = 2};
    lierne_reach_hello none = hello;
    none.secret = infos[0].address.secret;
    none.rank = RANKS;
    int stranger = connect_to(&infos[0].address), nobody = connect_to(&infos[0].address);
    cr_assert_eq(send(stranger, &hello, sizeof hello, 0), sizeof hello);
    cr_assert_eq(send(nobody, &none, sizeof none, 0), sizeof none);
    memcpy(others, infos, sizeof infos);
    others[0].address.secret++;
    parts[2].infos = others;
    parts[0].timeout = 0.5;
    meet_all(parts);
    cr_assert(!parts[0].reached && parts[1].reached && parts[2].reached);
    close(stranger);
    close(nobody);
}

Test(ports, connections_that_say_nothing_keep_nobody_out) {
    part parts[RANKS];
    lierne_rank_info infos[RANKS];
    int strangers[2 * LIERNE_REACH_GUESTS];
    open_ports(parts, infos, "127.0.0.1");
    for (int i = 0; i < 2 * LIERNE_REACH_GUESTS; i++) {
        strangers[i] = connect_to(&infos[0].address);
    }
    meet_all(parts);
    cr_assert(parts[0].reached && parts[1].reached && parts[2].reached);
    for (int i = 0; i < 2 * LIERNE_REACH_GUESTS; i++) {
        close(strangers[i]);
    }
}

Test(ports, addresses_are_numeric_and_of_this_host) {
    lierne_ports ports;
    lierne_address own;
    setenv("LIERNE_ADDRESS", "localhost", 1);
    cr_assert_eq(lierne_ports_open(&ports, &own, RANKS), LIERNE_ERR_INVALID);
    lierne_ports_close(&ports);
    setenv("LIERNE_ADDRESS", "203.0.113.9", 1);
    cr_assert_eq(lierne_ports_open(&ports, &own, RANKS), LIERNE_ERR_TRANSPORT);
    lierne_ports_close(&ports);
    unsetenv("LIERNE_ADDRESS");
    cr_assert(lierne_ports_open(&ports, &own, RANKS) == LIERNE_OK && own.port == 0);
    lierne_ports_close(&ports);
    setenv("LIERNE_ADDRESS", "::1", 1);
    lierne_status status = lierne_ports_open(&ports, &own, RANKS);
    if (status == LIERNE_OK) {
        close(connect_to(&own));
    }
    cr_assert(status == LIERNE_OK || status == LIERNE_ERR_TRANSPORT, "a host may have no IPv6");
    lierne_ports_close(&ports);
}

typedef enum ending { CONFIRMS, FAILS, CLOSES, ENDINGS } ending;

typedef struct survivor {
    part *part;
    ending last; /* of the last rank */
    lierne_status connected, outcome;
} survivor;

static void close_all(int *sockets) {
    for (int r = 0; r < RANKS; r++) {
        close(sockets[r]);
    }
}

/* As rank 2, which the others connect to and from which they hear nothing. */
static void connect_silently(const lierne_survivors *s, int *sockets) {
    lierne_reach reach = {.listener = s->ports->listener,
                          .addresses = s->ports->addresses,
                          .rank = s->rank,
                          .world = RANKS,
                          .purpose = (uint64_t)s->attempt};
    cr_assert_eq(lierne_reach_open(&reach), LIERNE_OK);
    for (int r = 0; r < s->rank; r++) {
        char byte;
        reach.peers[r].to = true;
        for (int i = 0; i < 1000 && !lierne_reach_done(&reach, r); i++) {
            cr_assert_eq(lierne_reach_step(&reach, 10), LIERNE_OK);
        }
        sockets[r] = reach.peers[r].out;
        reach.peers[r].out = -1;
        /* The rank is now in need of nothing but this one's byte. */
        struct pollfd one = {.fd = sockets[r], .events = POLLIN};
        cr_expect(poll(&one, 1, 10000) == 1 && recv(sockets[r], &byte, 1, 0) == 1);
    }
    lierne_reach_close(&reach);
}

static void *survive(void *user) {
    survivor *v = user;
    int sockets[RANKS] = {-1, -1, -1};
    const lierne_members members = {.world = RANKS, .count = RANKS};
    lierne_survivors s = {.ports = &v->part->ports,
                          .members = &members,
                          .rank = v->part->rank,
                          .world = RANKS};
    meet(v->part);
    cr_assert_eq(lierne_survivors_begin(&s, 30), LIERNE_OK);
    cr_assert_eq(lierne_survivors_list(&s), LIERNE_OK);
    cr_assert_eq(s.count, RANKS);
    if (s.rank < RANKS - 1 || v->last == CONFIRMS) {
        v->connected = lierne_remote_connect(&s, sockets);
    } else {
        connect_silently(&s, sockets);
        v->connected = v->last == FAILS ? LIERNE_ERR_NO_MEMORY : LIERNE_OK;
    }
    if (s.rank == RANKS - 1 && v->last == CLOSES) {
        close_all(sockets);
        usleep(100000);
    }
    v->outcome = lierne_survivors_decide(&s, v->connected);
    if (s.rank < RANKS - 1 || v->last != CLOSES) {
        close_all(sockets);
    }
    lierne_survivors_end(&s);
    return NULL;
}

/* A rank has all its connections and hears that another one failed, or that it closed its own. */
Test(ports, survivors_are_connected_once_all_of_them_are) {
    for (ending last = CONFIRMS; last < ENDINGS; last++) {
        part parts[RANKS];
        survivor all[RANKS];
        lierne_rank_info infos[RANKS];
        size_t before = lierne_mem_live();
        open_ports(parts, infos, "127.0.0.1");
        for (int r = 0; r < RANKS; r++) {
            all[r] = (survivor){.part = &parts[r], .last = last};
            cr_assert_eq(pthread_create(&parts[r].thread, NULL, survive, &all[r]), 0);
        }
        for (int r = 0; r < RANKS; r++) {
            pthread_join(parts[r].thread, NULL);
            lierne_ports_close(&parts[r].ports);
        }
        for (int r = 0; r < RANKS - 1; r++) {
            cr_expect_eq(all[r].connected, last == CONFIRMS ? LIERNE_OK : LIERNE_ERR_PEER_FAILED,
                         "ending %d, rank %d: %d", (int)last, r, (int)all[r].connected);
            cr_expect_eq(all[r].outcome,
                         last == CONFIRMS ? LIERNE_OK
                         : last == FAILS  ? LIERNE_ERR_NO_MEMORY
                                          : LIERNE_ERR_PEER_FAILED,
                         "ending %d, rank %d: %d", (int)last, r, (int)all[r].outcome);
        }
        cr_assert_eq(lierne_mem_live(), before);
    }
}

static void *list_all(void *user) {
    part *p = user;
    const lierne_members members = {.world = p->world, .count = p->world};
    lierne_survivors s = {.ports = &p->ports,
                          .members = &members,
                          .rank = p->rank,
                          .world = p->world};
    meet(p);
    cr_assert_eq(lierne_survivors_begin(&s, 30), LIERNE_OK);
    p->status = lierne_survivors_list(&s);
    p->reached = s.count == p->world;
    lierne_survivors_decide(&s, p->status);
    lierne_survivors_end(&s);
    return NULL;
}

/* A list of them takes more than a byte. */
Test(ports, nine_ranks_are_left) {
    enum { WORLD = 9 };
    part parts[WORLD];
    lierne_rank_info infos[WORLD];
    open_some(parts, infos, WORLD, "127.0.0.1");
    for (int r = 0; r < WORLD; r++) {
        cr_assert_eq(pthread_create(&parts[r].thread, NULL, list_all, &parts[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) {
        pthread_join(parts[r].thread, NULL);
        lierne_ports_close(&parts[r].ports);
        cr_expect(parts[r].status == LIERNE_OK && parts[r].reached, "rank %d", r);
    }
}

/* Rank 1 is alone in the first attempt; in the second one rank 0 is in the list, and says nothing.
 */
Test(ports, a_decision_waits_for_every_rank_of_its_list) {
    const int flag[] = {0, 1}, watches[] = {LIERNE_NO_WATCH, LIERNE_NO_WATCH};
    const lierne_members members = {.world = 2, .count = 2};
    int opened = lierne_abort_flags_open(2, 0);
    lierne_abort_flags *flags = lierne_abort_flags_map((uint64_t)getpid(), opened, 2, 0, 0);
    lierne_survivors s = {.flags = flags,
                          .flag = flag,
                          .watches = watches,
                          .members = &members,
                          .rank = 1,
                          .world = 2};
    cr_assert_eq(lierne_survivors_begin(&s, 0.02), LIERNE_OK);
    s.attempt = s.count = s.list[0] = 1;
    cr_expect_eq(lierne_survivors_decide(&s, LIERNE_ERR_PEER_FAILED), LIERNE_ERR_PEER_FAILED);
    s.attempt = s.count = 2;
    s.list[0] = 0;
    s.list[1] = 1;
    cr_expect_eq(lierne_survivors_decide(&s, LIERNE_OK), LIERNE_ERR_TIMEOUT);
    lierne_survivors_end(&s);
    lierne_abort_flags_unmap(flags);
    close(opened);
}
