/* Jobs of one node whose ranks are processes: found, kept apart, killed, stopped, missing, of
 * another user. Nothing may hang, and nothing may be left. Ends with "N passed, N failed". */
#include "node_jobs.h"

#include "base/base.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* Addresses of this test's jobs would have "lierne-" in /proc/net/unix. */
static int addresses(void) {
    char line[512];
    int n = 0;
    FILE *file = fopen("/proc/net/unix", "r");
    while (file && fgets(line, sizeof line, file)) {
        n += strstr(line, "@lierne-") != NULL;
    }
    if (file) {
        fclose(file);
    }
    return n;
}

static void jobs_at_once(void) {
    pid_t a[3], b[4];
    char first[100];
    snprintf(first, sizeof first, "%s", job_name("first"));
    begin_job(a, 0, 3, first, 30, 20);
    begin_job(b, 3, 4, job_name("second"), 30, 20);
    CHECK(await(a, 3) && await(b, 4), "a rank hangs");
    for (int r = 0; r < 7; r++) {
        CHECK(reports[r].status == LIERNE_OK && reports[r].step == ENDED, "rank %d: %s", r,
              reports[r].message);
    }
}

/* Two jobs of one name at once: no rank of one may work with ranks of the other. If one job was
 * complete before the other began, both are right. */
static void one_name_twice(void) {
    pid_t pids[6];
    int failed = 0, said = 0;
    const char *name = job_name("twice");
    begin_job(pids, 0, 3, name, 2, 3);
    begin_job(pids + 3, 3, 3, name, 2, 3);
    CHECK(await(pids, 6), "a rank hangs");
    for (int r = 0; r < 6; r++) {
        failed += reports[r].status != LIERNE_OK;
        said += strstr(reports[r].message, "need different names") != NULL;
        CHECK(reports[r].status != LIERNE_ERR_IO, "wrong data");
    }
    CHECK(failed == 0 || said > 0, "%d of 6 failed, and none said why: %s", failed,
          reports[0].message);
}

/* The second process of a rank arrives while the first one waits. */
static void one_rank_twice(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 20};
    lierne_node_spec spec = spec_of(1, 2, job_name("rank"), &context);
    pid_t pids[2] = {begin(0, &spec, 1)};
    usleep(100000);
    pids[1] = begin(1, &spec, 1);
    CHECK(await(pids, 2), "a rank hangs");
    for (int i = 0; i < 2; i++) {
        CHECK(reports[i].status == LIERNE_ERR_INVALID && reports[i].seconds < 15 &&
                  strstr(reports[i].message, "need different names"),
              "%s", reports[i].message);
    }
    CHECK(strstr(reports[1].message, "rank 1 of job 'rank-") != NULL, "%s", reports[1].message);
}

static void other_worlds(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 20};
    const char *name = job_name("worlds");
    lierne_node_spec low = spec_of(0, 2, name, &context), high = spec_of(1, 3, name, &context);
    pid_t pids[2] = {begin(0, &low, 1), begin(1, &high, 1)};
    CHECK(await(pids, 2), "a rank hangs");
    for (int i = 0; i < 2; i++) {
        CHECK(reports[i].status == LIERNE_ERR_MISMATCH &&
                  strstr(reports[i].message, "another world"),
              "%s", reports[i].message);
    }
}

/* A rank is killed at a random moment, from its begin on. The others end at once, unless it was
 * killed before they met. */
static void killed(int round) {
    pid_t pids[4];
    int victim = round % 4;
    begin_job(pids, 0, 4, job_name("killed"), 3, 1000000);
    for (int step = round % 3; reports[victim].step < step * 20;) {
        usleep(1000);
    }
    usleep((useconds_t)(rand() % 20000));
    kill(pids[victim], SIGKILL);
    CHECK(await(pids, 4), "round %d: a rank hangs", round);
    for (int r = 0; r < 4; r++) {
        lierne_status status = reports[r].status;
        if (r != victim) {
            CHECK(status == LIERNE_ERR_PEER_FAILED ||
                      (status == LIERNE_ERR_TIMEOUT && round % 3 == 0),
                  "round %d, rank %d: %s: %s", round, r, lierne_status_name(status),
                  reports[r].message);
        }
    }
}

static void stopped(int round) {
    pid_t pids[4];
    int victim = round % 4;
    begin_job(pids, 0, 4, job_name("stopped"), 1, 1000000);
    while (reports[victim].step < 20) {
        usleep(1000);
    }
    kill(pids[victim], SIGSTOP);
    for (int r = 0; r < 4; r++) {
        if (r != victim) {
            CHECK(await(&pids[r], 1), "rank %d hangs", r);
            CHECK(reports[r].status == LIERNE_ERR_TIMEOUT, "round %d, rank %d: %s", round, r,
                  reports[r].message);
        }
    }
    /* The late rank gets the error of those that gave up, or misses them. */
    kill(pids[victim], SIGCONT);
    CHECK(await(&pids[victim], 1), "the late rank hangs");
    CHECK(reports[victim].status == LIERNE_ERR_TIMEOUT ||
              reports[victim].status == LIERNE_ERR_PEER_FAILED,
          "%s", reports[victim].message);
}

static void missing(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 0.5};
    const char *name = job_name("missing");
    lierne_node_spec low = spec_of(0, 4, name, &context), high = spec_of(2, 4, name, &context);
    pid_t pids[2] = {begin(0, &low, 1), begin(1, &high, 1)};
    CHECK(await(pids, 2), "a rank hangs");
    bool named = false;
    for (int i = 0; i < 2; i++) {
        named |= strstr(reports[i].message, "no connection to rank 1, 3 of job 'missing-") != NULL;
        CHECK(reports[i].status == LIERNE_ERR_TIMEOUT ||
                  reports[i].status == LIERNE_ERR_PEER_FAILED,
              "%s", reports[i].message);
    }
    CHECK(named, "%s", reports[0].message);
}

/* --- strangers --- */

static socklen_t address_of(struct sockaddr_un *address, const char *name, int rank) {
    /* The address that rank listens at is that of its file line in /proc/net/unix. */
    char line[512], end[16];
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(end, sizeof end, "-%d\n", rank);
    (void)name;
    FILE *file = fopen("/proc/net/unix", "r");
    size_t length = 0;
    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "@lierne-");
        if (at && strcmp(line + strlen(line) - strlen(end), end) == 0) {
            length = strlen(at + 1) - 1;
            memcpy(address->sun_path + 1, at + 1, length);
        }
    }
    if (file) {
        fclose(file);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* Connections that say nothing, more than have a place at a rank. */
enum { CROWD = 40 };
static void crowd(int sockets[CROWD], const struct sockaddr_un *address, socklen_t length) {
    for (int i = 0; i < CROWD; i++) {
        sockets[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        CHECK(connect(sockets[i], (const struct sockaddr *)address, length) == 0, "%s",
              strerror(errno));
    }
}

static socklen_t await_address(struct sockaddr_un *address, const char *name, int rank) {
    socklen_t length;
    double deadline = lierne_now() + 20;
    while ((length = address_of(address, name, rank)) < 12 && lierne_now() < deadline) {
        usleep(1000);
    }
    return length;
}

/* Another user, if this process can be one, connects and is turned away at once. */
static void turned_away(const struct sockaddr_un *address, socklen_t length) {
    int status = 0;
    pid_t other = geteuid() == 0 ? fork() : -1;
    if (other == 0) {
        char byte = 0;
        const struct timeval patience = {.tv_sec = 10};
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        bool away = setuid(NOBODY) == 0 &&
                    connect(s, (const struct sockaddr *)address, length) == 0 &&
                    read(s, &byte, 1) == 0;
        _exit(!away);
    }
    if (other > 0) {
        CHECK(waitpid(other, &status, 0) == other && status == 0, "another user was let in");
    }
}

/* The rank that never comes is missed, and the error says who took the places. */
static void crowded(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 3};
    const char *name = job_name("crowded");
    lierne_node_spec low = spec_of(0, 2, name, &context);
    struct sockaddr_un address;
    int silent[CROWD];
    char who[32];
    pid_t pid = begin(0, &low, 3);
    socklen_t length = await_address(&address, name, 0);
    turned_away(&address, length); /* and not counted */
    crowd(silent, &address, length);
    CHECK(await(&pid, 1), "a rank hangs");
    snprintf(who, sizeof who, "process %d", (int)getpid());
    CHECK(reports[0].status == LIERNE_ERR_TIMEOUT &&
              strstr(reports[0].message, "40 connections said nothing") &&
              strstr(reports[0].message, who),
          "%s", reports[0].message);
    for (int i = 0; i < CROWD; i++) {
        close(silent[i]);
    }
}

/* Connects to rank 0's address and says nothing, many times, or nonsense; another user does the
 * same. Then the last rank comes, and the job works. */
static void strangers(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 30};
    const char *name = job_name("strangers");
    lierne_node_spec low = spec_of(0, 2, name, &context), high = spec_of(1, 2, name, &context);
    struct sockaddr_un address;
    pid_t pids[2] = {begin(0, &low, 3)};
    socklen_t length = await_address(&address, name, 0);
    int silent[CROWD], mad = socket(AF_UNIX, SOCK_STREAM, 0);
    crowd(silent, &address, length);
    CHECK(connect(mad, (struct sockaddr *)&address, length) == 0, "%s", strerror(errno));
    CHECK(write(mad, reports, 300) == 300, "%s", strerror(errno));
    turned_away(&address, length);
    pids[1] = begin(1, &high, 3);
    CHECK(await(pids, 2), "a rank hangs");
    for (int r = 0; r < 2; r++) {
        CHECK(reports[r].status == LIERNE_OK, "%s", reports[r].message);
    }
    for (int i = 0; i < CROWD; i++) {
        close(silent[i]);
    }
    close(mad);
}

/* Another user listens at the address of rank 0 before it does. */
static void taken_by_another_user(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 20};
    const char *name = job_name("taken");
    lierne_node_spec low = spec_of(0, 2, name, &context), high = spec_of(1, 2, name, &context);
    struct sockaddr_un address;
    socklen_t length;
    if (geteuid() != 0) {
        return;
    }
    pid_t probe = begin(0, &low, 1);
    while ((length = address_of(&address, name, 0)) < 12) {
        usleep(1000);
    }
    kill(probe, SIGKILL);
    waitpid(probe, NULL, 0);
    pid_t other = fork();
    if (other == 0) {
        int s = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(setuid(NOBODY) != 0 || bind(s, (struct sockaddr *)&address, length) != 0 ||
              listen(s, 5) != 0 || pause());
    }
    usleep(200000);
    pid_t pids[2] = {begin(0, &low, 1), begin(1, &high, 1)};
    CHECK(await(pids, 2), "a rank hangs");
    for (int r = 0; r < 2; r++) {
        CHECK(reports[r].status == LIERNE_ERR_INVALID &&
                  strstr(reports[r].message, "of user 65534"),
              "%s", reports[r].message);
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

int main(void) {
    /* Where this is permitted, addresses of other jobs on this machine are out of sight. */
    unshare(CLONE_NEWNET);
    int before = addresses();
    srand(7);
    open_reports();
    jobs_at_once();
    for (int i = 0; i < 3; i++) {
        one_name_twice();
    }
    one_rank_twice();
    other_worlds();
    missing();
    for (int i = 0; i < 12; i++) {
        killed(i);
    }
    for (int i = 0; i < 3; i++) {
        stopped(i);
    }
    strangers();
    crowded();
    taken_by_another_user();
    CHECK(addresses() == before, "%d addresses are left", addresses() - before);
    return process_counts();
}
