/* shrink [FIRST [COUNT]]: seeded deaths of one or two of 3 to 8 processes at random moments, also
 * at once, while they plan, move a tensor or shrink, over shared memory, over sockets, over
 * functions of the caller, and on emulated nodes of one to three ranks, which agree over ports. The
 * ranks that are left shrink the context until it has nobody else, make a plan again in each new
 * one, and move what survives of the tensor. In each attempt all of them must get the same ranks,
 * no call may give wrong data, and none may pass its deadline. Ends with "N passed, N failed". */
#include "lierne/oob.h"
#include "node_jobs.h"
#include "survive.h"

#include "base/base.h"
#include "runtime/context/context.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHRINKS = 4, AFTER = 5, SEEDS = 36, GROWN = 60000 };
static const double timeout = 6;

/* What a rank tells the test. */
typedef struct report {
    _Atomic int shrinks;
    lierne_status status[SHRINKS];
    unsigned ranks[SHRINKS]; /* a bit for each rank that is left */
    double seconds[SHRINKS];
    _Atomic int ended;
    char message[200];
} report;

/* Gathers of lierne_oob_calls: the k-th in half k % 2, which nobody begins to write before all have
 * read it. */
typedef struct gathers {
    _Atomic long begun[MOST];
    char data[2][MOST][1 << 16];
} gathers;

typedef struct gather {
    int rank, n;
    long k; /* begun by this rank */
    void *all;
    size_t bytes;
} gather;

typedef struct shared {
    report reports[MOST];
    _Atomic int created; /* ranks that have the first context */
    gathers gathers;
} shared;

typedef struct scenario {
    unsigned seed;
    int n;
    unsigned victims;
    long after[MOST]; /* microseconds until a victim dies, from the first call on */
    int late;         /* a victim that counts them from its own first shrink on; or -1 */
    unsigned way;     /* of WAYS */
    int nodes[MOST];  /* of each rank, with NODES */
} scenario;
enum { SHM, SOCKETS, FUNCTIONS, NODES, WAYS };

static shared *common;

/* lierne_now has a coarse clock. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int begin_gather(void **request, const void *mine, void *all, size_t bytes, void *user) {
    gather *g = user;
    g->all = all;
    g->bytes = bytes;
    memcpy(common->gathers.data[g->k % 2][g->rank], mine, bytes);
    atomic_store(&common->gathers.begun[g->rank], ++g->k);
    *request = g;
    return 0;
}

static int test_gather(void *request, void *user) {
    const gather *g = request;
    (void)user;
    for (int r = 0; r < g->n; r++) {
        if (atomic_load(&common->gathers.begun[r]) < g->k) {
            return 1;
        }
    }
    for (int r = 0; r < g->n; r++) {
        memcpy((char *)g->all + (size_t)r * g->bytes, common->gathers.data[(g->k - 1) % 2][r],
               g->bytes);
    }
    return 0;
}

static int free_gather(void *request, void *user) {
    (void)request;
    (void)user;
    return 0;
}

static lierne_status create(lierne_context **out, const scenario *s, int rank) {
    static gather own;
    char name[60];
    lierne_context_spec context = {.size = sizeof context, .timeout = timeout};
    context.nodes = s->way == NODES ? s->nodes : NULL;
    if (s->way == FUNCTIONS) {
        own = (gather){.rank = rank, .n = s->n};
        lierne_oob_spec spec = {.size = sizeof spec, .rank = rank, .nranks = s->n};
        spec.calls = (lierne_oob_calls){.user = &own,
                                        .allgather = begin_gather,
                                        .test = test_gather,
                                        .free_request = free_gather};
        spec.context = &context;
        return lierne_context_create_oob(out, &spec);
    }
    snprintf(name, sizeof name, "shrink-%d-%u", (int)getppid(), s->seed);
    lierne_node_spec spec = {.size = sizeof spec, .rank = rank, .world = s->n, .name = name};
    spec.context = &context;
    return lierne_context_create_node(out, &spec);
}

/* Plans anew now and then; with 0 rounds, until a call fails. */
static lierne_status work(lierne_context *context, int rounds) {
    int rank = lierne_context_get_rank(context), n = lierne_context_get_world_size(context);
    lierne_status status = LIERNE_OK;
    for (int round = 0; status == LIERNE_OK && (rounds == 0 || round < rounds);) {
        lierne_plan *plan = NULL;
        status = job_plan(&plan, context, n);
        for (int i = 0; status == LIERNE_OK && i < 10 && (rounds == 0 || round < rounds); i++) {
            status = job_move(plan, rank, n, round++);
        }
        lierne_plan_destroy(plan);
    }
    return status;
}

/* The ranks of the first context, of which `ranks` has a bit each, that a smaller one has. */
static unsigned ranks_of(const lierne_context *context, unsigned ranks) {
    unsigned left = 0;
    for (int r = 0; r < lierne_context_get_world_size(context); r++) {
        int former = lierne_context_get_former_rank(context, r), first = 0;
        for (int seen = -1; first < MOST; first++) {
            seen += (int)(ranks >> first & 1);
            if (seen == former) {
                break;
            }
        }
        left |= 1u << first;
    }
    return left;
}

static void die(int signal) {
    (void)signal;
    kill(getpid(), SIGKILL);
}

static void die_after(long microseconds) {
    struct itimerval timer = {.it_value.tv_usec = microseconds};
    signal(SIGALRM, die);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Replaces a dead context by a smaller one, and its plan of n elements; writes what came of it. */
static lierne_status shrink(lierne_context **context, lierne_plan **plan, int64_t n,
                            unsigned *ranks, report *own) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    lierne_context *smaller;
    int k = own->shrinks;
    double start = now();
    lierne_status status = lierne_context_shrink(&smaller, *context, &spec);
    if (k < SHRINKS) {
        own->seconds[k] = now() - start;
        own->status[k] = status;
        *ranks = own->ranks[k] = status == LIERNE_OK ? ranks_of(smaller, *ranks) : 0;
        own->shrinks = k + 1;
    }
    lierne_status moved = status;
    if (status == LIERNE_OK) {
        moved = survive_plan(plan, smaller, n);
        moved = moved == LIERNE_OK ? survive_move(*context, smaller) : moved;
    } else {
        lierne_plan_destroy(*plan);
        *plan = NULL;
    }
    lierne_context_destroy(*context);
    *context = smaller;
    return k >= SHRINKS ? LIERNE_ERR_OVERLAP : moved == LIERNE_ERR_IO ? moved : status;
}

static void await_others(int n) {
    for (int i = 0; i < 1000 && common->created < n; i++) {
        usleep(1000);
    }
}

static lierne_status live(const scenario *s, int rank, report *own) {
    lierne_context *context;
    lierne_plan *plan = NULL;
    unsigned ranks = (1u << s->n) - 1, left = ranks & ~s->victims;
    lierne_status status = create(&context, s, rank);
    common->created += status == LIERNE_OK;
    if (status == LIERNE_OK && rank != s->late && (s->victims >> rank & 1)) {
        await_others(s->n); /* a death while others create it is tests/node/jobs.c's */
        die_after(s->after[rank]);
    }
    if (status == LIERNE_OK) {
        job_plan(&plan, context, s->n); /* NULL after a death */
    }
    while (status == LIERNE_OK) {
        bool last = ranks == left;
        status = work(context, last ? AFTER : 0);
        if (last || status == LIERNE_ERR_IO) {
            break;
        }
        if (rank == s->late && own->shrinks == 0) {
            die_after(s->after[rank]);
        }
        status = shrink(&context, &plan, s->n * 20000, &ranks, own);
    }
    snprintf(own->message, sizeof own->message, "%s: %.150s", lierne_status_name(status),
             status == LIERNE_OK ? "" : lierne_last_error());
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    return status;
}

static scenario scenario_of(unsigned seed) {
    scenario s = {.seed = seed, .way = seed % WAYS, .late = -1};
    unsigned short state[3] = {(unsigned short)seed, (unsigned short)(seed >> 16), 0x330e};
    s.n = 3 + (int)(erand48(state) * 6);
    int first = (int)(erand48(state) * s.n), second = (int)(erand48(state) * s.n);
    s.after[first] = 1 + (long)(erand48(state) * 30000);
    s.victims = 1u << first;
    if (second != first && s.n > 3) {
        s.victims |= 1u << second;
        s.late = seed % 4 ? second : -1;
        s.after[second] = (s.late < 0 ? s.after[first] : 1) + (long)(erand48(state) * 4000);
        s.after[second] = seed / WAYS % 8 == 0 ? s.after[first] : s.after[second];
    }
    for (int r = 0; r < s.n; r++) {
        s.nodes[r] = r / (1 + (int)(seed / WAYS % 3));
    }
    return s;
}

/* What all ranks that got an answer say of the k-th shrink. */
static bool check_shrink(const scenario *s, int k) {
    int first = -1;
    bool good = true;
    for (int r = 0; r < s->n; r++) {
        const report *own = &common->reports[r];
        if (own->shrinks <= k) {
            continue;
        }
        first = first < 0 ? r : first;
        const report *lowest = &common->reports[first];
        good &= CHECK(own->status[k] == lowest->status[k] && own->ranks[k] == lowest->ranks[k],
                      "seed %u: shrink %d: rank %d got %s of ranks %#x, rank %d %s of %#x", s->seed,
                      k, r, lierne_status_name(own->status[k]), own->ranks[k], first,
                      lierne_status_name(lowest->status[k]), lowest->ranks[k]);
        good &= CHECK(own->seconds[k] < timeout + 1, "seed %u: shrink %d of rank %d took %g s",
                      s->seed, k, r, own->seconds[k]);
    }
    return good;
}

static void set_environment(unsigned way) {
    way == SOCKETS ? setenv("LIERNE_TRANSPORTS", "socket", 1) : unsetenv("LIERNE_TRANSPORTS");
    way == NODES ? setenv("LIERNE_ADDRESS", "127.0.0.1", 1) : unsetenv("LIERNE_ADDRESS");
}

/* Whether all went well. *longest: of all shrinks. */
static bool run(const scenario *s, double *longest) {
    pid_t pids[MOST];
    bool good = true;
    *longest = 0;
    memset(common, 0, sizeof *common);
    for (int r = 0; r < s->n; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            set_environment(s->way);
            lierne_status status = live(s, r, &common->reports[r]);
            common->reports[r].ended = 1;
            _exit(status == LIERNE_OK ? 0 : 1);
        }
    }
    for (int r = 0; r < s->n; r++) {
        const report *own = &common->reports[r];
        int status = -1;
        good &= CHECK(process_await(pids[r], 60, &status), "seed %u: rank %d hangs", s->seed, r);
        good &=
            CHECK((s->victims >> r & 1) || status == 0, "seed %u: rank %d of %d ended with %d: %s",
                  s->seed, r, s->n, status, own->message);
        good &=
            CHECK(strncmp(own->message, "LIERNE_ERR_IO", 13) != 0, "seed %u: wrong data", s->seed);
    }
    for (int k = 0; k < SHRINKS; k++) {
        good &= check_shrink(s, k);
        for (int r = 0; r < s->n; r++) {
            double seconds = common->reports[r].seconds[k];
            *longest = seconds > *longest ? seconds : *longest;
        }
    }
    return good;
}

/* What a rank does after rank 0 has killed the context of 3 ranks, which all run on. */
typedef enum habit { ALL_CALL, BAD_NODES, BAD_WORLD, ONE_IS_LATE, HABITS } habit;

/* Whether ranks 1 and 2 of 3 are on a node of their own, where they were. */
static bool keeps_nodes(const lierne_context *context, unsigned way) {
    const int *nodes = context->nodes;
    return way != NODES || (nodes && nodes[0] != nodes[1] && nodes[1] == nodes[2]);
}

static void call_alive(habit how, unsigned way, int rank, report *own) {
    const scenario s = {.seed = 1000000 + how, .n = 3, .way = way, .nodes = {0, 1, 1}};
    const int nodes[3] = {0};
    lierne_context_spec spec = {.size = sizeof spec, .timeout = how == ONE_IS_LATE ? 1 : timeout};
    lierne_context *context, *smaller;
    if (create(&context, &s, rank) != LIERNE_OK ||
        lierne_context_shrink(&smaller, context, &spec) != LIERNE_ERR_INVALID ||
        !strstr(lierne_last_error(), "not dead")) {
        return;
    }
    work(context, 3);
    if (rank == 0) {
        lierne_context_abort(context, LIERNE_ERR_TRANSPORT, "rank 0 cannot go on");
    } else {
        work(context, 0);
    }
    spec.nodes = how == BAD_NODES && rank == 1 ? nodes : NULL;
    spec.world_size = how == BAD_WORLD && rank == 1 ? 3 : 0;
    usleep(how == ONE_IS_LATE && rank == 2 ? 1500000 : 0);
    double start = now();
    own->status[0] = lierne_context_shrink(&smaller, context, &spec);
    own->seconds[0] = now() - start;
    snprintf(own->message, sizeof own->message, "%.150s", lierne_last_error());
    own->ranks[0] = smaller ? ranks_of(smaller, 7) : 0;
    own->status[1] = smaller ? work(smaller, AFTER) : LIERNE_OK;
    own->ended =
        (!smaller || keeps_nodes(smaller, way)) &&
        lierne_context_shrink(&(lierne_context *){NULL}, context, &spec) == LIERNE_ERR_INVALID &&
        strstr(lierne_last_error(), "once only");
    lierne_context_destroy(context);
    lierne_context_destroy(smaller);
}

/* Rank 2 of 3 dies, and a new process takes its place in the next context, also on a node of its
 * own: the ranks that are left make their plan again there, the new one makes an equal one. */
static void call_grown(unsigned way, int rank, bool is_new, report *own) {
    scenario s = {.seed = 3000000, .n = 3, .way = way, .nodes = {0, 1, 2}};
    lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    lierne_context *context = NULL, *smaller = NULL, *grown = NULL;
    lierne_plan *plan = NULL;
    if (!is_new) {
        own->status[0] = create(&context, &s, rank);
        if (own->status[0] == LIERNE_OK) {
            survive_plan(&plan, context, GROWN); /* fails where the death comes before its end */
            if (rank == 2) {
                work(context, 1);
                kill(getpid(), SIGKILL);
            }
            work(context, 0);
            own->status[0] = lierne_context_shrink(&smaller, context, &spec);
        }
    }
    s.seed++;
    own->status[1] = create(&grown, &s, rank);
    own->status[2] = grown ? survive_plan(&plan, grown, GROWN) : LIERNE_ERR_INVALID;
    snprintf(own->message, sizeof own->message, "%.150s", lierne_last_error());
    own->ended = own->status[2] == LIERNE_OK;
    lierne_plan_destroy(plan);
    lierne_context_destroy(context);
    lierne_context_destroy(smaller);
    lierne_context_destroy(grown);
}

static void check_grown(unsigned way) {
    enum { NEW = 3 };
    pid_t pids[NEW + 1];
    memset(common, 0, sizeof *common);
    for (int r = 0; r <= NEW; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            set_environment(way);
            call_grown(way, r == NEW ? 2 : r, r == NEW, &common->reports[r]);
            _exit(0);
        }
    }
    for (int r = 0; r <= NEW; r++) {
        const report *own = &common->reports[r];
        CHECK(process_await(pids[r], 60, NULL), "grown: rank %d hangs", r);
        CHECK(r == 2 ? !own->ended : own->ended, "grown, way %u: %d: %s, %s, %s: %s", way, r,
              lierne_status_name(own->status[0]), lierne_status_name(own->status[1]),
              lierne_status_name(own->status[2]), own->message);
    }
}

/* Over ports the lowest rank connects to nobody: the others must learn that it does not come. */
static int failing_rank(unsigned way) {
    return way == NODES ? 0 : 1;
}

static void call_without_memory(size_t k, unsigned way, int rank, report *own) {
    const scenario s = {.seed = 2000000 + (unsigned)k, .n = 3, .way = way, .nodes = {0, 1, 1}};
    lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    lierne_context *context, *smaller;
    if (create(&context, &s, rank) != LIERNE_OK) {
        return;
    }
    lierne_context_abort(context, LIERNE_ERR_TRANSPORT, "go on");
    double start = now();
    size_t before = lierne_mem_live();
    lierne_mem_fail_at(rank == failing_rank(way) ? k : 0);
    own->status[0] = lierne_context_shrink(&smaller, context, &spec);
    lierne_mem_fail_at(0);
    own->seconds[0] = now() - start;
    own->ended = smaller || lierne_mem_live() == before;
    lierne_context_destroy(smaller);
    lierne_context_destroy(context);
}

/* Ranks that run need not die to be in a new context, and an error is that of all. */
static void check_habit(habit how, unsigned way) {
    static const lierne_status wanted[HABITS] = {LIERNE_OK, LIERNE_ERR_INVALID, LIERNE_ERR_INVALID,
                                                 LIERNE_ERR_TIMEOUT};
    const char *said[HABITS] = {"", "spec->nodes", "or world_size",
                                way == NODES ? "deadline" : "rank 2 runs and has not called"};
    pid_t pids[3];
    memset(common, 0, sizeof *common);
    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            set_environment(way);
            call_alive(how, way, r, &common->reports[r]);
            _exit(0);
        }
    }
    for (int r = 0; r < 3; r++) {
        const report *own = &common->reports[r];
        CHECK(process_await(pids[r], 60, NULL) && own->ended, "habit %d: rank %d", how, r);
        CHECK(own->status[0] == wanted[how] && own->status[1] == LIERNE_OK, "habit %d: %d %d: %s",
              how, own->status[0], own->status[1], own->message);
        CHECK(own->ranks[0] == (how == ALL_CALL ? 7 : 0), "habit %d: %#x", how, own->ranks[0]);
        CHECK(r != 1 || strstr(own->message, said[how]), "habit %d: %s", how, own->message);
        CHECK(own->seconds[0] < timeout, "habit %d: %g s", how, own->seconds[0]);
    }
}

/* The k-th allocation of shrinking fails on a rank, which runs on: all get NO_MEMORY, or nobody
 * does, because there were fewer. Returns whether it was the latter, or went wrong. */
static bool fail_allocation(size_t k, unsigned way) {
    pid_t pids[3];
    bool good = true;
    const lierne_status *first = &common->reports[0].status[0];
    memset(common, 0, sizeof *common);
    for (int r = 0; r < 3; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            set_environment(way);
            call_without_memory(k, way, r, &common->reports[r]);
            _exit(0);
        }
    }
    for (int r = 0; r < 3; r++) {
        const report *own = &common->reports[r];
        good &=
            CHECK(process_await(pids[r], 60, NULL) && own->ended, "allocation %zu: rank %d", k, r);
        good &=
            CHECK(own->status[0] == *first && own->seconds[0] < timeout,
                  "allocation %zu: rank %d got %s after %g s, rank 0 %s", k, r,
                  lierne_status_name(own->status[0]), own->seconds[0], lierne_status_name(*first));
    }
    good &= CHECK(*first == LIERNE_OK || *first == LIERNE_ERR_NO_MEMORY, "allocation %zu: %s", k,
                  lierne_status_name(*first));
    return !good || *first == LIERNE_OK;
}

int main(int argc, char **argv) {
    unsigned first = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    unsigned count = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : SEEDS;
    double longest = 0, sum = 0, seconds;
    bool good = true;
    common = process_share(sizeof *common);
    for (unsigned way = SHM; way < WAYS; way++) {
        way == FUNCTIONS ? (void)0 : check_grown(way);
    }
    for (unsigned way = SHM; way < WAYS; way += NODES) {
        for (habit how = 0; how < HABITS; how++) {
            check_habit(how, way);
        }
        for (size_t k = 1; !fail_allocation(k, way) && k < 200; k++) {
        }
    }
    for (unsigned seed = first; good && seed < first + count; seed++) {
        scenario s = scenario_of(seed);
        good = run(&s, &seconds);
        longest = seconds > longest ? seconds : longest;
        sum += seconds;
    }
    printf("%u seeds: the slowest shrink of each took %.1f ms on average, %.1f ms at most\n", count,
           sum / count * 1e3, longest * 1e3);
    return process_counts();
}
