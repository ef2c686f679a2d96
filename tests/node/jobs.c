/* Jobs of one node whose ranks are processes: found, kept apart, killed, stopped, missing, of
 * another user. Nothing may hang, and nothing may be left. Ends with "N passed, N failed". */
#include "lierne.h"
#include "lierne/node.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, NOBODY = 65534, LONG = 60, ENDED = 100 };

/* What a rank tells the test, in memory that all processes share. */
typedef struct report {
    volatile int step; /* 1: created, then one more per call; ENDED: it returned */
    volatile lierne_status status;
    volatile double seconds;
    char message[1024];
} report;

static report *reports;
static long counts[2];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int line, bool ok, const char *format, ...) {
    va_list args;
    counts[ok]++;
    if (!ok) {
        va_start(args, format);
        printf("jobs.c:%d: ", line);
        vprintf(format, args);
        printf("\n");
        va_end(args);
        fflush(stdout);
    }
}
#define CHECK(ok, ...) check(__LINE__, (ok), __VA_ARGS__)

static lierne_status plan_ring(lierne_plan **plan, lierne_context *context, int world) {
    static const char *const names[] = {"dp"};
    const int64_t sizes[] = {world}, shape[] = {world * 20000};
    lierne_placement shard = {.kind = LIERNE_PLACEMENT_SHARD},
                     all = {.kind = LIERNE_PLACEMENT_REPLICATE};
    lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = world};
    lierne_grid *grid = NULL;
    lierne_layout *src = NULL, *dst = NULL;
    lierne_status status = lierne_grid_create(&grid, &grid_spec);
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = grid,
                               .naxes = 1,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_I64,
                               .placements = &shard};
    status = status ? status : lierne_layout_create(&src, &spec);
    spec.placements = &all;
    status = status ? status : lierne_layout_create(&dst, &spec);
    lierne_redistribute_spec r = {.size = sizeof r, .src = src, .dst = dst};
    status = status ? status : lierne_plan_create_redistribute(plan, context, &r);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    return status;
}

/* Every rank gets everything: element i of the tensor is 3 i + 1 + round. */
static lierne_status move(lierne_plan *plan, int rank, int world, int round) {
    static int64_t in[20000], out[MOST * 20000];
    for (int i = 0; i < 20000; i++) {
        in[i] = 3 * (rank * 20000 + i) + 1 + round;
    }
    memset(out, 0x5a, sizeof out);
    lierne_status status = lierne_plan_forward(plan, out, in, NULL);
    for (int i = 0; status == LIERNE_OK && i < world * 20000; i++) {
        if (out[i] != 3 * i + 1 + round) {
            return LIERNE_ERR_IO; /* no status of a call: wrong data */
        }
    }
    return status;
}

/* A rank: creates a context, moves a tensor `rounds` times, destroys the context. */
static void live(report *own, const lierne_node_spec *spec, int rounds) {
    lierne_context *context;
    lierne_plan *plan = NULL;
    double start = now();
    lierne_status status = lierne_context_create_node(&context, spec);
    own->step = 1;
    int rank = lierne_context_get_rank(context), world = lierne_context_get_world_size(context);
    status = status ? status : plan_ring(&plan, context, world);
    for (int i = 0; status == LIERNE_OK && i < rounds; i++) {
        own->step++;
        start = now();
        status = move(plan, rank, world, i);
    }
    own->status = status;
    own->seconds = now() - start;
    snprintf(own->message, sizeof own->message, "%s", lierne_last_error());
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    own->step = ENDED;
}

static pid_t begin(int at, const lierne_node_spec *spec, int rounds) {
    memset(&reports[at], 0, sizeof reports[at]);
    pid_t pid = fork();
    if (pid == 0) {
        live(&reports[at], spec, rounds);
        _exit(0);
    }
    return pid;
}

static lierne_node_spec spec_of(int rank, int world, const char *name,
                                const lierne_context_spec *context) {
    return (lierne_node_spec){.size = sizeof(lierne_node_spec),
                              .rank = rank,
                              .world = world,
                              .name = name,
                              .context = context};
}

static void begin_job(pid_t *pids, int at, int world, const char *name, double timeout,
                      int rounds) {
    lierne_context_spec context = {.size = sizeof context, .timeout = timeout};
    for (int r = 0; r < world; r++) {
        lierne_node_spec spec = spec_of(r, world, name, &context);
        pids[r] = begin(at + r, &spec, rounds);
    }
}

/* Whether all have ended within LONG seconds; kills those that have not. */
static bool await(const pid_t *pids, int n) {
    double deadline = now() + LONG;
    bool all = true;
    for (int r = 0; r < n; r++) {
        while (pids[r] > 0 && waitpid(pids[r], NULL, WNOHANG) == 0) {
            if (now() > deadline) {
                kill(pids[r], SIGKILL);
                all = false;
            }
            usleep(2000);
        }
    }
    return all;
}

static const char *job_name(const char *what) {
    static char name[100];
    static int number;
    snprintf(name, sizeof name, "%s-%d-%d", what, (int)getpid(), number++);
    return name;
}

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

/* --- launchers --- */

typedef struct setting {
    const char *name, *value;
} setting;

static void clear_variables(void) {
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsetenv(names[i]);
    }
}

/* A rank that only the environment describes. */
static pid_t begin_launched(int at, const setting *settings, int n, int rank, const char *rank_name,
                            int rounds, const char *name) {
    char text[16];
    lierne_context_spec context = {.size = sizeof context, .timeout = 3};
    lierne_node_spec spec = {.size = sizeof spec, .context = &context, .name = name};
    snprintf(text, sizeof text, "%d", rank);
    clear_variables();
    for (int i = 0; i < n; i++) {
        setenv(settings[i].name, settings[i].value, 1);
    }
    setenv(rank_name, text, 1);
    return begin(at, &spec, rounds);
}

static void launched_by(const setting *settings, int n, const char *rank_name) {
    pid_t pids[3];
    for (int r = 0; r < 3; r++) {
        pids[r] = begin_launched(r, settings, n, r, rank_name, 3, NULL);
    }
    CHECK(await(pids, 3), "%s: a rank hangs", rank_name);
    for (int r = 0; r < 3; r++) {
        CHECK(reports[r].status == LIERNE_OK, "%s: rank %d: %s", rank_name, r, reports[r].message);
    }
}

static void launchers(void) {
    const char *id = job_name("launched");
    const setting torch[] = {{"WORLD_SIZE", "3"},
                             {"LOCAL_WORLD_SIZE", "3"},
                             {"TORCHELASTIC_RUN_ID", id},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
    const setting ompi[] = {{"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_NAMESPACE", id}};
    const setting pmi[] = {{"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
    const setting slurm[] = {{"SLURM_NTASKS", "3"},
                             {"SLURM_STEP_NUM_NODES", "1"},
                             {"SLURM_JOB_ID", id}};
    launched_by(torch, 4, "RANK");
    launched_by(ompi, 3, "OMPI_COMM_WORLD_RANK");
    launched_by(pmi, 2, "PMI_RANK");
    launched_by(slurm, 3, "SLURM_PROCID");
}

/* A job that waits for a rank that died, and the same job started again. */
static void restarted(void) {
    const char *id = job_name("restarted");
    const setting before[] = {{"WORLD_SIZE", "3"},
                              {"TORCHELASTIC_RUN_ID", id},
                              {"TORCHELASTIC_RESTART_COUNT", "0"}};
    setting after[3];
    pid_t old[2], pids[3];
    memcpy(after, before, sizeof after);
    after[2].value = "1";
    for (int r = 0; r < 2; r++) {
        old[r] = begin_launched(4 + r, before, 3, r, "RANK", 3, NULL);
    }
    for (int r = 0; r < 3; r++) {
        pids[r] = begin_launched(r, after, 3, r, "RANK", 3, NULL);
    }
    CHECK(await(pids, 3), "a rank hangs");
    for (int r = 0; r < 3; r++) {
        CHECK(reports[r].status == LIERNE_OK, "rank %d: %s", r, reports[r].message);
    }
    CHECK(await(old, 2), "an old rank hangs");
    CHECK(reports[4].status == LIERNE_ERR_TIMEOUT || reports[5].status == LIERNE_ERR_TIMEOUT,
          "%s, %s", reports[4].message, reports[5].message);
}

/* Two contexts of one job at once. */
static void two_names_of_a_job(void) {
    const char *id = job_name("names");
    const setting settings[] = {{"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", id}};
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = begin_launched(i, settings, 2, i % 2, "RANK", 3, i < 2 ? "vision" : "audio");
    }
    CHECK(await(pids, 4), "a rank hangs");
    for (int i = 0; i < 4; i++) {
        CHECK(reports[i].status == LIERNE_OK, "%s", reports[i].message);
    }
}

static void rejected(const setting *settings, int n, const char *words) {
    pid_t pid = begin_launched(0, settings, n, 0, "RANK", 1, NULL);
    CHECK(await(&pid, 1) && reports[0].status == LIERNE_ERR_INVALID &&
              strstr(reports[0].message, words),
          "'%s' is not in: %s", words, reports[0].message);
}

static void bad_variables(void) {
    const setting larger[] = {{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}};
    const setting word[] = {{"WORLD_SIZE", "many"}};
    const setting low[] = {{"WORLD_SIZE", "0"}};
    rejected(larger, 2, "the world is larger than this node; use lierne_context_create_oob");
    rejected(word, 1, "WORLD_SIZE is 'many', must be a whole number");
    rejected(low, 1, "rank is 0 of a world of 0");
    rejected(NULL, 0, "no launcher has set its variables");
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
    double deadline = now() + 20;
    while ((length = address_of(address, name, rank)) < 12 && now() < deadline) {
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
    reports =
        mmap(NULL, 16 * sizeof *reports, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
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
    launchers();
    restarted();
    two_names_of_a_job();
    bad_variables();
    clear_variables();
    strangers();
    crowded();
    taken_by_another_user();
    CHECK(addresses() == before, "%d addresses are left", addresses() - before);
    printf("%ld passed, %ld failed\n", counts[1], counts[0]);
    return counts[0] != 0;
}
