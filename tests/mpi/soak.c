/* A thousand rounds leak nothing: no memory, file descriptor, thread, group or communicator. MPI
 * does not tell how many communicators exist, so the calls that create and free them are counted
 * through its profiling interface. */
#include "mpi/common.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS  1000
#define WARM_UP 200 /* rounds: MPI and malloc grow to their size first */
#define GROWTH  (1 << 20)

static int communicators;

static int counted(int code) {
    communicators += code == MPI_SUCCESS;
    return code;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out) {
    return counted(PMPI_Comm_dup(comm, out));
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request) {
    return counted(PMPI_Comm_idup(comm, out, request));
}
int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *out) {
    return counted(PMPI_Comm_dup_with_info(comm, info, out));
}
int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *out) {
    return counted(PMPI_Comm_create(comm, group, out));
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out) {
    return counted(PMPI_Comm_create_group(comm, group, tag, out));
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out) {
    return counted(PMPI_Comm_split(comm, color, key, out));
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out) {
    return counted(PMPI_Comm_split_type(comm, type, key, info, out));
}
int MPI_Comm_free(MPI_Comm *comm) {
    communicators--;
    return PMPI_Comm_free(comm);
}

static int entries(const char *folder) {
    DIR *dir = opendir(folder);
    int n = 0;
    while (dir && readdir(dir)) {
        n++;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static long resident(void) { /* bytes */
    long total = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        CHECK(fscanf(file, "%ld %ld", &total, &pages) == 2, "/proc/self/statm");
        fclose(file);
    }
    return pages * sysconf(_SC_PAGESIZE);
}

typedef struct state {
    size_t allocations;
    int files;
    int threads;
    int communicators;
    long bytes;
} state;

static state state_now(void) {
    return (state){lierne_mem_live(), entries("/proc/self/fd"), entries("/proc/self/task"),
                   communicators, resident()};
}

static void check_state(const state *before, const char *what) {
    state now = state_now();
    CHECK(now.allocations == before->allocations, "%s: %zu allocations, before %zu", what,
          now.allocations, before->allocations);
    CHECK(now.files == before->files, "%s: %d files, before %d", what, now.files, before->files);
    CHECK(now.threads == before->threads, "%s: %d threads, before %d", what, now.threads,
          before->threads);
    CHECK(now.communicators == before->communicators, "%s: %d communicators, before %d", what,
          now.communicators, before->communicators);
    CHECK(now.bytes - before->bytes < GROWTH, "%s: %ld bytes resident, before %ld", what, now.bytes,
          before->bytes);
}

/* The rows of every dp rank to every rank, with cp: messages, staging, sums and, with COLLECTIVE,
 * groups. */
static lierne_status plan_of(lierne_plan **plan, lierne_context *context, int round) {
    bridge_case c = {.src = mesh_of("tcd", 1, 1, test_world),
                     .dst = mesh_of("tcd", 1, test_world, 1),
                     .size = {2 * test_world, 4, 64},
                     .axis = {1, 0, 2},
                     .dtype = LIERNE_F32,
                     .algorithm = (test_algorithm)(round % 2)};
    return case_plan(plan, context, &c);
}

static void use(lierne_context *context, int round, float *buffers) {
    float *in = buffers, *out = in + 2 * 4 * 64, *back = out + test_world * 2 * 4 * 64;
    lierne_plan *plan;
    CHECK(plan_of(&plan, context, round) == LIERNE_OK, "%s", lierne_last_error());
    in[7] = (float)(round + test_rank);
    CHECK(lierne_forward(plan, out, in, NULL) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_adjoint(plan, back, out, NULL) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(back[7] == (float)test_world * in[7], "round %d: %g of %g", round, (double)back[7],
          (double)in[7]);
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_context_get_ngroups(context) == 0, "%d groups alive",
          lierne_context_get_ngroups(context));
}

static void of_contexts(float *buffers) {
    state before = {0};
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        lierne_context *context;
        if (i == WARM_UP) {
            before = state_now();
        }
        CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
              lierne_last_error());
        use(context, i, buffers);
        CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    }
    CHECK(communicators == 0, "%d communicators alive", communicators);
    check_state(&before, "contexts");
}

static void of_plans(float *buffers) {
    lierne_context *context;
    state before = {0};
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    CHECK(communicators == 1, "%d communicators of one context", communicators);
    for (int i = 0; i < WARM_UP + ROUNDS; i++) {
        if (i == WARM_UP) {
            before = state_now();
        }
        use(context, i, buffers);
    }
    check_state(&before, "plans");
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t elements = (size_t)(test_world + 2) * 2 * 4 * 64;
    float *buffers = calloc(elements, sizeof *buffers);
    of_contexts(buffers);
    of_plans(buffers);
    CHECK(lierne_mem_live() == 0, "%zu allocations at the end", lierne_mem_live());
    free(buffers);
    return test_finish();
}
