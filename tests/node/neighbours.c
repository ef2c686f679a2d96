/* A hostile neighbour: another user of the machine, while a job of this user runs. It floods the
 * ranks' addresses and leaves handshakes half done, takes an address before its rank does, reads
 * what a rank has open, and puts links and pipes where a rank writes files. And a process that
 * joins a job, and then maps and says nothing. The job must work or end with an error that says
 * who, at its deadline at the latest; no file of anybody else may change. Needs root, to be two
 * users; as another user only what needs one is tried. Ends with "N passed, N failed". */
#include "node_jobs.h"

#include "base/base.h"
#include "runtime/recorder/trace_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, WORLD = 4, HELD = 100, LONG = 10 };

/* The address of a rank of a job of this user, as join.c makes it. */
static socklen_t address_of(struct sockaddr_un *address, const char *name, int rank) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "lierne-%lu-%016llx-%d",
                     (unsigned long)geteuid(),
                     (unsigned long long)lierne_hash(0, name, strlen(name)), rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* A process of another user that does this until it is killed; -1: this one may not be another. */
static pid_t begin_neighbour(void (*attack)(const char *), const char *what) {
    pid_t pid = geteuid() == 0 ? fork() : -1;
    if (pid == 0) {
        attack(what);
        pause();
        _exit(1);
    }
    return pid;
}

static void end_neighbour(pid_t pid) {
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

static void become_nobody(void) {
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) {
        _exit(7);
    }
}

/* Connects to all ranks all the time; some connections are held, after half a handshake. */
static void flood(const char *name) {
    struct sockaddr_un addresses[WORLD];
    socklen_t lengths[WORLD];
    int held[HELD], n = 0;
    for (int r = 0; r < WORLD; r++) {
        lengths[r] = address_of(&addresses[r], name, r);
    }
    become_nobody();
    for (unsigned i = 0;; i++) {
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), r = (int)(i % WORLD);
        if (connect(s, (struct sockaddr *)&addresses[r], lengths[r]) == 0 &&
            send(s, "lierne-lierne-lierne", 20, MSG_NOSIGNAL) > 0 && n < HELD) {
            held[n++] = s;
            continue;
        }
        close(s);
        if (n == HELD) { /* the oldest make place for new ones */
            close(held[i % HELD]);
            held[i % HELD] = held[--n];
        }
    }
}

/* Ranks come one after the other into the flood. */
static void flooded(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 30};
    const char *name = job_name("flooded");
    pid_t pids[WORLD], neighbours[2];
    for (int i = 0; i < 2; i++) {
        neighbours[i] = begin_neighbour(flood, name);
    }
    for (int r = 0; r < WORLD; r++) {
        lierne_node_spec spec = spec_of(r, WORLD, name, &context);
        pids[r] = begin(r, &spec, 3);
        usleep(50000);
    }
    CHECK(await(pids, WORLD), "a rank hangs");
    for (int r = 0; r < WORLD; r++) {
        CHECK(reports[r].status == LIERNE_OK, "rank %d: %s", r, reports[r].message);
    }
    for (int i = 0; i < 2; i++) {
        end_neighbour(neighbours[i]);
    }
}

static void squat(const char *name) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name, 1);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    become_nobody();
    if (bind(s, (struct sockaddr *)&address, length) != 0 || listen(s, 5) != 0) {
        _exit(7);
    }
}

/* The rank whose address is taken says who has it; the others miss it at their deadline. */
static void squatted(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 2};
    const char *name = job_name("squatted");
    lierne_node_spec low = spec_of(0, 2, name, &context), high = spec_of(1, 2, name, &context);
    pid_t neighbour = begin_neighbour(squat, name);
    if (neighbour < 0) {
        return;
    }
    usleep(200000);
    pid_t pids[2] = {begin(0, &low, 1), begin(1, &high, 1)};
    CHECK(await(pids, 2), "a rank hangs");
    CHECK(reports[1].status == LIERNE_ERR_INVALID && strstr(reports[1].message, "of user 65534"),
          "%s", reports[1].message);
    CHECK(reports[0].status == LIERNE_ERR_TIMEOUT &&
              strstr(reports[0].message, "no connection to rank 1") && reports[0].seconds < 4,
          "%g s: %s", reports[0].seconds, reports[0].message);
    end_neighbour(neighbour);
}

/* What a rank says first, as join.c has it. */
typedef struct hello {
    uint64_t magic, key, version;
    int32_t rank, world;
    int64_t status;
} hello;

/* Joins as rank 1 of 2 and does nothing more. */
static void join_only(const char *name) {
    const hello own = {.magic = 0x656e7265696cu,
                       .key = lierne_hash(0, name, strlen(name)),
                       .version = lierne_hash(0, lierne_version(), strlen(lierne_version())),
                       .rank = 1,
                       .world = 2};
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name, 0);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    while (connect(s, (struct sockaddr *)&address, length) != 0) {
        usleep(1000);
    }
    if (write(s, &own, sizeof own) != sizeof own) {
        _exit(7);
    }
    pause();
}

/* Of the same user, so it gets in, where it maps no memory and takes part in nothing. */
static void mute(void) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 2};
    const char *name = job_name("mute");
    lierne_node_spec low = spec_of(0, 2, name, &context);
    pid_t rank = begin(0, &low, 1), other = fork();
    if (other == 0) {
        join_only(name);
    }
    CHECK(await(&rank, 1), "the rank hangs");
    CHECK(reports[0].status == LIERNE_ERR_TIMEOUT && reports[0].seconds < 5, "%g s: %s",
          reports[0].seconds, reports[0].message);
    end_neighbour(other);
}

/* Whether another user can open anything that a process has open. */
static bool can_open_any(pid_t pid) {
    char path[64];
    int status = 0;
    pid_t other = fork();
    if (other == 0) {
        become_nobody();
        for (int fd = 0; fd < 256; fd++) {
            snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
            if (open(path, O_RDONLY | O_NONBLOCK) >= 0) {
                _exit(1);
            }
        }
        snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
        _exit(open(path, O_RDONLY) >= 0);
    }
    waitpid(other, &status, 0);
    return status != 0;
}

/* Shared memory has no name: nothing of it is in /dev/shm, whatever somebody puts there. */
static bool maps(pid_t pid, const char *words) {
    char path[64], line[600];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        found = found || strstr(line, words);
    }
    if (file) {
        fclose(file);
    }
    return found;
}

static void read_by_others(void) {
    pid_t pids[2];
    begin_job(pids, 0, 2, job_name("read"), 20, 1000000);
    while (reports[0].step < 20 || reports[1].step < 20) {
        usleep(1000);
    }
    CHECK(maps(pids[0], "memfd:lierne"), "no memory without a name is mapped: no test of it");
    CHECK(!maps(pids[0], "/dev/shm"), "named memory is mapped");
    if (geteuid() == 0) {
        CHECK(!can_open_any(pids[0]), "another user opens what a rank has open");
    }
    for (int r = 0; r < 2; r++) {
        kill(pids[r], SIGKILL);
        waitpid(pids[r], NULL, 0);
    }
}

/* --- files --- */

/* A folder that everybody may write, and a file there that is nobody's but this user's. */
typedef struct folder {
    char path[64], precious[96];
} folder;

static const char words[] = "do not touch";

static void open_folder(folder *f) {
    snprintf(f->path, sizeof f->path, "/tmp/lierne-neighbours-XXXXXX");
    CHECK(mkdtemp(f->path) && chmod(f->path, 0777) == 0, "%s: %s", f->path, strerror(errno));
    snprintf(f->precious, sizeof f->precious, "%s/precious", f->path);
    FILE *file = fopen(f->precious, "w");
    CHECK(file && fputs(words, file) >= 0 && fclose(file) == 0, "%s", strerror(errno));
}

static void close_folder(const folder *f) {
    char path[400];
    DIR *directory = opendir(f->path);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%.255s", f->path, entry->d_name);
        unlink(path);
    }
    if (directory) {
        closedir(directory);
    }
    rmdir(f->path);
}

static bool is_untouched(const folder *f) {
    char text[sizeof words + 1] = "";
    FILE *file = fopen(f->precious, "r");
    size_t n = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) {
        fclose(file);
    }
    return n == sizeof words - 1 && strcmp(text, words) == 0;
}

/* A variable that names files, and what a neighbour puts in their places. */
typedef struct trap {
    const char *variable;
    const char *value; /* in the folder; "": the folder itself */
    const char *before,
        *after; /* of what lierne makes there; in between the process, or the host */
    bool host;
} trap;

static const trap traps[] = {
    {"LIERNE_TRACE", "/trace.json", "trace.json.", ".0", false},
    {"LIERNE_TRACE", "", "calls-", ".json", true},
    {"LIERNE_METRICS", "", "lierne-rank0-", "-0.prom", false},
    {"LIERNE_METRICS", "", "lierne-rank0-", "-0.prom.new", false},
    {"LIERNE_DUMP_DIR", "", "rank0-", "-0.lierne", false},
};
enum { TRAPS = sizeof traps / sizeof *traps };

static lierne_status write_event(lierne_text *text, const void *self, int64_t created) {
    (void)self;
    (void)created;
    lierne_text_add(text, "{}");
    return LIERNE_OK;
}

/* A rank alone, once its parent says so, which writes its file at the latest when it ends; to a
 * file of LIERNE_TRACE, what a run would. */
static void write_files(const folder *f, const trap *t, int go) {
    char value[200], byte;
    lierne_context *context;
    lierne_plan *plan;
    snprintf(value, sizeof value, "%s%s", f->path, t->value);
    setenv(t->variable, value, 1);
    if (read(go, &byte, 1) != 1) {
        _exit(7);
    }
    lierne_status status = lierne_context_create_self(&context, NULL);
    if (status == LIERNE_OK && *t->value) {
        status = lierne_trace_append(write_event, NULL, "runs", 0, 0);
    }
    status = status == LIERNE_OK ? job_plan(&plan, context, 1) : status;
    status = status == LIERNE_OK ? job_move(plan, 0, 1, 0) : status;
    if (status == LIERNE_OK) {
        lierne_plan_destroy(plan);
        status = lierne_context_destroy(context);
    }
    _exit(status == LIERNE_OK || status == LIERNE_ERR_IO ? 0 : 1);
}

/* Puts a link to the precious file, or a pipe that nobody reads, where the process will write. */
static void set_trap(const folder *f, const trap *t, pid_t pid, bool pipe) {
    char path[300], own[64];
    snprintf(own, sizeof own, "%d", (int)pid);
    if (t->host) {
        gethostname(own, sizeof own - 1);
    }
    snprintf(path, sizeof path, "%s/%s%s%s", f->path, t->before, own, t->after);
    int made = pipe ? mkfifo(path, 0666) : symlink(f->precious, path);
    CHECK(made == 0, "%s: %s", path, strerror(errno));
}

static void trapped(const trap *t, bool with_pipe) {
    folder f;
    int go[2], status = -1;
    open_folder(&f);
    CHECK(pipe(go) == 0, "%s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        write_files(&f, t, go[0]);
    }
    set_trap(&f, t, pid, with_pipe);
    CHECK(write(go[1], "", 1) == 1, "%s", strerror(errno));
    CHECK(process_await(pid, LONG, &status) && status == 0, "%s, %s at %s: %s", t->variable,
          with_pipe ? "a pipe" : "a link", t->after, status == -1 ? "hangs" : "fails");
    CHECK(is_untouched(&f), "%s writes where a link leads: %s", t->variable, t->after);
    close(go[0]);
    close(go[1]);
    close_folder(&f);
}

int main(void) {
    /* Where this is permitted, addresses of other jobs on this machine are out of sight. */
    unshare(CLONE_NEWNET);
    open_reports();
    if (geteuid() != 0) {
        printf("not root: nobody is another user\n");
    }
    for (int i = 0; i < 3; i++) {
        flooded();
    }
    squatted();
    mute();
    read_by_others();
    for (int i = 0; i < TRAPS; i++) {
        trapped(&traps[i], false);
        trapped(&traps[i], true);
    }
    return process_counts();
}
