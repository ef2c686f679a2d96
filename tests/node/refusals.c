/* Jobs of one node over shared memory, where the system refuses a rank something: memory without a
 * name, reading another process, a long file. The next way must be taken on all ranks and be named
 * in the dump, or the error be that of all ranks. Nothing may hang, and no signal may end a rank.
 * Ends with "N passed, N failed". */
#include "lierne/collective.h"
#include "lierne/node.h"
#include "lierne/sparse.h"
#include "processes.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, DENIED = 1, LONG = 60, COUNT = 40000, NARROW = 300000 };

/* What one rank is refused before it creates its context. */
typedef enum refusal { NOTHING, MEMFD, PULLING, ALL_FILES, LONG_FILES, REFUSALS } refusal;

/* What a rank tells the test, in memory that all processes share. */
typedef struct report {
    volatile bool ended;
    volatile long wrong;            /* elements */
    volatile lierne_status gathers; /* of contiguous parts */
    volatile lierne_status narrow;  /* of a plan that needs megabytes of shared memory */
    volatile lierne_status memory;  /* of 32 MiB */
    char message[1024];             /* of the last of these that failed */
    char dump[4096];
} report;

static report *reports;

/* The system call fails with EPERM from now on, as in a container. */
static void deny(unsigned number) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(7);
    }
}

static void limit_files(rlim_t bytes) {
    const struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        _exit(7);
    }
}

static void refuse(refusal what) {
    switch (what) {
    case MEMFD:
        deny(SYS_memfd_create);
        break;
    case PULLING:
        deny(SYS_process_vm_readv);
        break;
    case ALL_FILES:
        limit_files(64 << 10);
        break;
    case LONG_FILES:
        limit_files(3 << 19);
        break;
    default:
        break;
    }
}

static lierne_status failed(report *own, lierne_status status) {
    if (status != LIERNE_OK) {
        snprintf(own->message, sizeof own->message, "%s", lierne_last_error());
    }
    return status;
}

static lierne_status gather(report *own, lierne_context *context, int rank) {
    static float in[COUNT], out[RANKS * COUNT];
    lierne_all_gather_spec spec = {.size = sizeof spec, .count = COUNT, .dtype = LIERNE_DTYPE_F32};
    lierne_plan *plan;
    lierne_status status = lierne_plan_create_all_gather(&plan, context, &spec);
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)(1 + rank * COUNT + i);
    }
    memset(out, 0xff, sizeof out);
    status = status ? status : lierne_plan_forward(plan, out, in, NULL);
    for (int i = 0; i < RANKS * COUNT; i++) {
        own->wrong += out[i] != (float)(1 + i);
    }
    lierne_plan_destroy(plan);
    return failed(own, status);
}

/* Every row of four bytes of the rank before, the last one first, is packed. */
static lierne_status plan_narrow(report *own, lierne_context *context, int rank) {
    static int32_t owner[NARROW];
    static int64_t row[NARROW];
    for (int i = 0; i < NARROW; i++) {
        owner[i] = (rank + RANKS - 1) % RANKS;
        row[i] = NARROW - 1 - i;
    }
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = NARROW,
                                   .nghosts = NARROW,
                                   .rank = owner,
                                   .row = row,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = 1,
                                   .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT};
    lierne_plan *plan;
    lierne_status status = lierne_plan_create_references(&plan, context, &spec);
    lierne_plan_destroy(plan);
    return failed(own, status);
}

static void live(report *own, int rank, const char *name) {
    lierne_context_spec context_spec = {.size = sizeof context_spec, .timeout = LONG / 2};
    lierne_node_spec spec = {
        .size = sizeof spec, .rank = rank, .world = RANKS, .name = name, .context = &context_spec};
    lierne_context *context;
    void *memory;
    own->gathers = failed(own, lierne_context_create_node(&context, &spec));
    if (own->gathers == LIERNE_OK) {
        own->gathers = gather(own, context, rank);
        lierne_context_dump(own->dump, sizeof own->dump, context);
        own->memory = failed(own, lierne_context_alloc(&memory, context, 32 << 20));
        own->narrow = plan_narrow(own, context, rank);
        lierne_context_dealloc(context, memory);
        lierne_context_destroy(context);
    }
    own->ended = true;
}

/* nodes: how many ranks are on one. Returns whether all ranks ended. */
static bool run(refusal what, int nodes) {
    static int number;
    char name[80], node[16];
    pid_t pids[RANKS];
    bool all = true;
    snprintf(name, sizeof name, "refusals-%d-%d", (int)getpid(), number++);
    memset(reports, 0, RANKS * sizeof *reports);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            snprintf(node, sizeof node, "%d", r / nodes);
            setenv("LIERNE_NODE", node, 1);
            refuse(r == DENIED ? what : NOTHING);
            live(&reports[r], r, name);
            _exit(0);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        int status = 0;
        process_await(pids[r], LONG, &status);
        all &= CHECK(reports[r].ended && WIFEXITED(status), "rank %d: refusal %d: status %d: %s", r,
                     what, status, reports[r].message);
    }
    return all;
}

static void expect(refusal what, const char *mine, const char *others) {
    if (!run(what, RANKS)) {
        return;
    }
    for (int r = 0; r < RANKS; r++) {
        const char *words = r == DENIED ? mine : others;
        CHECK(reports[r].gathers == LIERNE_OK && reports[r].wrong == 0, "rank %d: %ld wrong: %s", r,
              reports[r].wrong, reports[r].message);
        CHECK(strstr(reports[r].dump, words), "rank %d: '%s' is not in: %s", r, words,
              reports[r].dump);
    }
}

static void check_memory(lierne_status memory, lierne_status narrow) {
    for (int r = 0; r < RANKS; r++) {
        CHECK(reports[r].memory == (r == DENIED ? memory : LIERNE_OK), "rank %d: %s", r,
              reports[r].message);
        CHECK(reports[r].narrow == narrow, "rank %d: %d: %s", r, (int)reports[r].narrow,
              reports[r].message);
    }
}

/* No transport is left: an error of all ranks, which takes down what never was. */
static void shm_alone(void) {
    setenv("LIERNE_TRANSPORTS", "shm", 1);
    bool ended = run(MEMFD, RANKS);
    for (int r = 0; ended && r < RANKS; r++) {
        CHECK(reports[r].gathers == LIERNE_ERR_UNSUPPORTED &&
                  strstr(reports[r].message, "names shm alone"),
              "rank %d: %d: %s", r, (int)reports[r].gathers, reports[r].message);
    }
    unsetenv("LIERNE_TRANSPORTS");
}

/* Two ranks on one node, one on another. */
static void two_nodes(void) {
    if (!run(NOTHING, 2)) {
        return;
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK(reports[r].gathers == LIERNE_OK && reports[r].wrong == 0, "%s", reports[r].message);
        CHECK(strstr(reports[r].dump, r < 2
                                          ? "shm: 1 peers; sent 0 messages in place, 0 packed, 1 "
                                          : "shm: 0 peers; sent 0 messages in place, 0 packed, 0 "),
              "%s", reports[r].dump);
    }
}

int main(void) {
    static const char refused[] = "shm is not used: the system refuses it to another rank";
    reports = process_share(RANKS * sizeof *reports);
    expect(NOTHING, " 2 pulled, 0 in pieces\n", " 2 pulled, 0 in pieces\n");
    check_memory(LIERNE_OK, LIERNE_OK);
    expect(MEMFD, "without a name (memfd): Operation not permitted", refused);
    check_memory(LIERNE_OK, LIERNE_OK);
    expect(PULLING, " 2 in pieces; the system does not allow process_vm_readv",
           " 2 in pieces; the system does not allow process_vm_readv");
    check_memory(LIERNE_OK, LIERNE_OK);
    expect(ALL_FILES, "without a name (memfd): File too large", refused);
    check_memory(LIERNE_OK, LIERNE_OK);
    expect(LONG_FILES, " 2 pulled, 0 in pieces\n", " 2 pulled, 0 in pieces\n");
    check_memory(LIERNE_ERR_NO_MEMORY, LIERNE_ERR_NO_MEMORY);
    CHECK(strstr(reports[0].message, "rank 1") && strstr(reports[0].message, "RLIMIT_FSIZE"), "%s",
          reports[0].message);
    shm_alone();
    two_nodes();
    return process_counts();
}
