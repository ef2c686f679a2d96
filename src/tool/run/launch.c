/* lierne run. The program that needs MPI is a separate one beside this one, so that everything else
 * works where there is no MPI; with --launch, this one starts the ranks itself.
 *
 * The ranks are forks of this process, which only waits for them: it hands signals on, names a rank
 * that died, and then ends the rest, which would otherwise wait for it. They gather numbers in
 * shared memory; tensors move over their contexts. */
#include "tool/run.h"

#include "lierne/node.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 10 }; /* seconds that ranks have to end after one has failed */

static const char program[] = "lierne-run";

typedef struct shared_memory {
    pthread_barrier_t barrier;
    char name[64]; /* of the job */
    char slots[];  /* RUN_MOST_BYTES for each rank */
} shared_memory;

typedef struct launch {
    char **argv;
    int n;
    int alive;
    pid_t *pids;     /* per rank; 0: it has ended */
    int status;      /* the worst so far */
    int signal;      /* that this process got and handed on, or 0 */
    time_t deadline; /* of the ranks that are left once one has failed, or 0 */
    sigset_t watched;
    sigset_t before;
} launch;

static void gather_launched(void *all, const void *mine, size_t bytes, void *user) {
    run_ranks *together = user;
    shared_memory *shared = together->shared;
    memcpy(shared->slots + (size_t)together->rank * bytes, mine, bytes);
    pthread_barrier_wait(&shared->barrier);
    memcpy(all, shared->slots, (size_t)together->n * bytes);
    pthread_barrier_wait(&shared->barrier);
}

static lierne_status create_launched(lierne_context **out, const lierne_context_spec *spec,
                                     void *user) {
    const run_ranks *together = user;
    const shared_memory *shared = together->shared;
    const lierne_node_spec node = {.size = sizeof node,
                                   .rank = together->rank,
                                   .world = together->n,
                                   .name = shared->name,
                                   .context = spec};
    return lierne_context_create_node(out, &node);
}

static shared_memory *open_shared(int n) {
    size_t bytes = sizeof(shared_memory) + (size_t)n * RUN_MOST_BYTES;
    pthread_barrierattr_t attributes;
    shared_memory *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return NULL;
    }
    snprintf(shared->name, sizeof shared->name, "lierne-run/%d/%lld", (int)getpid(),
             (long long)time(NULL));
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)n);
    pthread_barrierattr_destroy(&attributes);
    return shared;
}

/* A rank ends with the process that started it, however that ends. Ranks that fail together write
 * whole lines. */
static int be_rank(const launch *l, int rank, shared_memory *shared, int argc, pid_t parent) {
    static char line[BUFSIZ];
    run_ranks together = {.rank = rank,
                          .n = l->n,
                          .launched = true,
                          .gather = gather_launched,
                          .create = create_launched,
                          .shared = shared};
    together.user = &together;
    setvbuf(stderr, line, _IOLBF, sizeof line);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    return getppid() == parent ? run_main(argc, l->argv, &together) : TOOL_INVALID;
}

static void send_to_all(const launch *l, int signal) {
    for (int r = 0; r < l->n; r++) {
        if (l->pids[r] > 0) {
            kill(l->pids[r], signal);
        }
    }
}

static void note_end(launch *l, int rank, int status) {
    int own = WIFEXITED(status) ? WEXITSTATUS(status) : TOOL_INVALID;
    l->pids[rank] = 0;
    l->alive--;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE && l->signal == 0) {
        l->signal = SIGPIPE; /* whoever read the output has enough, as head: no error to report */
        send_to_all(l, SIGKILL);
    } else if (WIFSIGNALED(status) && l->deadline == 0 && l->signal == 0) {
        tool_say(l->argv, "rank %d died: %s (signal %d)", rank, strsignal(WTERMSIG(status)),
                 WTERMSIG(status));
        send_to_all(l, SIGKILL);
    }
    if (own != TOOL_VALID && l->deadline == 0) {
        l->deadline = time(NULL) + PATIENCE;
    }
    l->status = own > l->status ? own : l->status;
}

static void collect_output(launch *l) {
    int status;
    for (int r = 0; r < l->n; r++) {
        if (l->pids[r] > 0 && waitpid(l->pids[r], &status, WNOHANG) == l->pids[r]) {
            note_end(l, r, status);
        }
    }
}

static void await_ranks(launch *l) {
    const struct timespec second = {.tv_sec = 1};
    while (l->alive > 0) {
        int got = sigtimedwait(&l->watched, NULL, &second);
        if (got > 0 && got != SIGCHLD) {
            l->signal = got;
            send_to_all(l, got);
        }
        collect_output(l);
        if (l->deadline != 0 && time(NULL) > l->deadline) {
            send_to_all(l, SIGKILL);
        }
    }
}

/* Ends as the signal would have ended this process. */
static void end_by_signal(const launch *l) {
    signal(l->signal, SIG_DFL);
    sigprocmask(SIG_SETMASK, &l->before, NULL);
    raise(l->signal);
}

static void watch_signals(launch *l) {
    sigemptyset(&l->watched);
    sigaddset(&l->watched, SIGCHLD);
    sigaddset(&l->watched, SIGINT);
    sigaddset(&l->watched, SIGTERM);
    sigaddset(&l->watched, SIGHUP);
    sigprocmask(SIG_BLOCK, &l->watched, &l->before);
}

/* Returns the exit status, in the ranks as well. */
static int launch_ranks(launch *l, int argc, shared_memory *shared) {
    pid_t parent = getpid();
    watch_signals(l);
    fflush(NULL); /* or ranks would print what this process has not written yet */
    for (int r = 0; r < l->n; r++) {
        l->pids[r] = fork();
        if (l->pids[r] == 0) {
            return be_rank(l, r, shared, argc, parent);
        }
        if (l->pids[r] < 0) {
            tool_say(l->argv, "cannot start rank %d: %s", r, strerror(errno));
            l->status = TOOL_USAGE;
            send_to_all(l, SIGKILL);
            l->deadline = time(NULL); /* those that were killed have not died by themselves */
            break;
        }
        l->alive++;
    }
    await_ranks(l);
    if (l->signal) {
        end_by_signal(l);
    }
    return l->status;
}

static int launch_here(int argc, char **argv, const char *number) {
    launch l = {.argv = argv};
    int status = tool_bridge_number(argv, "--launch", number, 1, LIERNE_NODE_MAX_RANKS, &l.n);
    if (status >= 0) {
        return status;
    }
    shared_memory *shared = open_shared(l.n);
    l.pids = calloc((size_t)l.n, sizeof *l.pids);
    if (!shared || !l.pids) {
        tool_say(argv, "no memory for %d ranks", l.n);
        status = TOOL_USAGE;
    } else {
        status = launch_ranks(&l, argc, shared);
    }
    free(l.pids);
    return status;
}

static int execute_program(char **argv) {
    char path[PATH_MAX + sizeof program];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length < 0) {
        tool_say(argv, "cannot find this program: %s", strerror(errno));
        return TOOL_USAGE;
    }
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, program);
    execv(path, argv);
    tool_say(argv,
             "cannot execute %s: %s; it is built where mpicc is found, and --launch N does without",
             path, strerror(errno));
    return TOOL_USAGE;
}

/* The value of --launch or -l; NULL: it is not given. */
static const char *find_launch(int argc, char **argv) {
    static const char name[] = "--launch";
    size_t length = sizeof name - 1;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') {
            return argv[i] + length + 1;
        }
        if (strcmp(argv[i], name) == 0 || strcmp(argv[i], "-l") == 0) {
            return i + 1 < argc ? argv[i + 1] : "";
        }
    }
    return NULL;
}

int tool_run(int argc, char **argv) {
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        return run_help(argc, argv);
    }
    const char *number = find_launch(argc, argv);
    return number ? launch_here(argc, argv, number) : execute_program(argv);
}
