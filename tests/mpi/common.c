/* The harness. A rank that hangs ends its program: mpirun then ends the others, and the log has the
 * line. */
#include "mpi/common.h"
#include "backend/mpi/mpi_state.h"
#include "backend/oob/oob_state.h"
#include "lierne/sparse.h"
#include "runtime/context/context.h"

#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHOWN       10  /* failures that a rank prints */
#define CHECK_EVERY 300 /* seconds */

int test_rank;
int test_world;
static long counts[2]; /* failed, passed */

typedef struct borrowed {
    struct borrowed *next;
    max_align_t data[];
} borrowed;
static borrowed *buffers;

static void check_progress(int signal) {
    static const char text[] = "watchdog: a rank hangs\n";
    static long seen = -1;
    (void)signal;
    if (seen == counts[0] + counts[1]) {
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        _exit(3);
    }
    seen = counts[0] + counts[1];
    alarm(CHECK_EVERY);
}

/* LIERNE_TEST_NODE_RANKS=n: n ranks to a node. */
static void split_nodes(void) {
    const char *ranks = getenv("LIERNE_TEST_NODE_RANKS");
    char node[16];
    if (ranks && atoi(ranks) > 0) {
        snprintf(node, sizeof node, "%d", test_rank / atoi(ranks));
        setenv("LIERNE_NODE", node, 1);
    }
}

int test_start_threads(int *argc, char ***argv) {
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    test_start(argc, argv);
    return provided;
}

void test_start(int *argc, char ***argv) {
    int initialized;
    MPI_Initialized(&initialized);
    if (!initialized) {
        MPI_Init(argc, argv);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &test_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &test_world);
    split_nodes();
    signal(SIGALRM, check_progress);
    alarm(CHECK_EVERY);
}

lierne_status test_plan_rows_of_0(lierne_plan **plan, lierne_context *context, int n,
                                  int max_inflight) {
    int32_t *rank = calloc((size_t)n, sizeof *rank);
    int64_t *row = calloc((size_t)n, sizeof *row);
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    spec.nowned = test_rank == 0 ? n : 0;
    spec.nghosts = test_rank == 0 ? 0 : n;
    spec.rank = rank;
    spec.row = row;
    spec.dtype = LIERNE_DTYPE_I64;
    spec.algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT;
    spec.max_inflight = max_inflight;
    for (int i = 0; i < n; i++) {
        row[i] = i;
    }
    lierne_status status = lierne_plan_create_references(plan, context, &spec);
    free(rank);
    free(row);
    return status;
}

bool test_over_shm(void) {
    const char *list = getenv("LIERNE_TRANSPORTS");
    return !list || !*list || strncmp(list, "shm", 3) == 0;
}

void test_hurry(lierne_context *context, double seconds) {
    context->timeout = seconds;
    if (strcmp(context->control->name, "oob") == 0) {
        ((lierne_oob_state *)context->control_self)->timeout = seconds;
    } else {
        ((lierne_mpi_state *)context->control_self)->timeout = seconds;
    }
}

void test_cut_messages(lierne_context *context, size_t bytes) {
    if (strcmp(context->control->name, "mpi") == 0) {
        ((lierne_mpi_state *)context->control_self)->piece_bytes = bytes;
    }
}

void test_exchange_by(lierne_context *context, test_exchange way) {
    if (strcmp(context->control->name, "mpi") == 0) {
        lierne_mpi_state *m = context->control_self;
        m->few = way == TEST_SPARSELY ? 0 : LIERNE_MPI_FEW;
        m->boards &= way == TEST_ON_BOARDS;
    }
}

static bool show_counts(MPI_Comm comm) {
    long sum[2];
    int rank;
    MPI_Comm_rank(comm, &rank);
    MPI_Allreduce(counts, sum, 2, MPI_LONG, MPI_SUM, comm);
    if (rank == 0) {
        printf("%ld passed, %ld failed\n", sum[1], sum[0]);
        fflush(stdout);
    }
    return sum[0] == 0;
}

void *test_buffer(size_t bytes) {
    borrowed *b = malloc(sizeof *b + bytes);
    b->next = buffers;
    buffers = b;
    return b->data;
}

static void free_buffers(void) {
    for (borrowed *b = buffers, *next; b; b = next) {
        next = b->next;
        free(b);
    }
}

int test_finish(void) {
    bool passed = show_counts(MPI_COMM_WORLD);
    MPI_Finalize();
    free_buffers();
    return !passed;
}

lierne_context *test_context(double timeout) {
    lierne_context *context;
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = timeout};
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, &spec));
    return context;
}

int test_main(int *argc, char ***argv, void (*run)(lierne_context *context)) {
    test_start(argc, argv);
    size_t before = lierne_mem_live();
    lierne_context *context;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, NULL));
    run(context);
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    return test_finish();
}

void test_leave(MPI_Comm comm) {
    bool passed = show_counts(comm);
    MPI_Barrier(comm);
    _exit(!passed);
}

bool test_check(bool ok, const char *file, int line, const char *format, ...) {
    counts[ok]++;
    if (!ok && counts[0] <= SHOWN) {
        char text[2048];
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        fprintf(stderr, "%s:%d: rank %d of %d: %s\n", file, line, test_rank, test_world, text);
    }
    return ok;
}

/* The message without the name of the public function, which may differ between ranks. */
static const char *text_of(const char *message) {
    const char *colon = strchr(message, ':');
    return strncmp(message, "lierne_", 7) == 0 && colon ? colon + 2 : message;
}

void test_same_error(lierne_status status, lierne_status wanted, const char *what) {
    char first[1024];
    snprintf(first, sizeof first, "%s", lierne_last_error());
    CHECK(status == wanted, "%s: %s, wanted %s (%s)", what, lierne_status_name(status),
          lierne_status_name(wanted), first);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(text_of(first), text_of(lierne_last_error())) == 0,
          "%s: rank 0 says '%s', this rank '%s'", what, first, lierne_last_error());
}
