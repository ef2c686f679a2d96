/* The transport shm on real ranks: every way that a message takes, whichever memory its buffers are
 * in and whatever the system refuses; ranks of several nodes. Rank r has
 * ghosts of all rows of rank r - 1, so forward moves them to the next rank and the adjoint back.
 *
 *   shm          all of it
 *   shm N        N rounds of two plans in flight, begun in another order on every other rank
 *   shm caller   a message of MPI of the caller's own, where MPI moves it piece by piece */
#include "collectives.h"
#include "lierne/collective.h"
#include "lierne/sparse.h"
#include "mpi/common.h"
#include "plan/object.h"
#include "runtime/execute/execution.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static bool refuse_memfd, refuse_pull, miss_pull, cut_pull;

/* Replace the system's functions in the library too. */
int memfd_create(const char *name, unsigned flags) {
    if (refuse_memfd && strcmp(name, "lierne") == 0) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_memfd_create, name, flags);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nto,
                         const struct iovec *from, unsigned long nfrom, unsigned long flags) {
    if (refuse_pull || miss_pull) {
        errno = refuse_pull ? EPERM : ESRCH;
        miss_pull = false;
        return -1;
    }
    if (cut_pull) { /* not all that is asked for is read at once */
        const struct iovec half = {to->iov_base, (to->iov_len + 1) / 2};
        return syscall(SYS_process_vm_readv, pid, &half, 1ul, from, nfrom, flags);
    }
    return syscall(SYS_process_vm_readv, pid, to, nto, from, nfrom, flags);
}

typedef struct rows {
    int n, width;
    bool reversed; /* a message is rows, not one block */
    bool both;     /* ghosts of the next rank's rows too, behind those of the last one's */
    int requests;
} rows;

static int ghosts(const rows *r) {
    return r->both ? 2 * r->n : r->n;
}

static size_t bytes_of(const rows *r) {
    return sizeof(float) * (size_t)(ghosts(r) * r->width);
}

/* The rank and row of a ghost of a rank's. */
static int owner_of(const rows *r, int rank, int ghost) {
    return (rank + (ghost < r->n ? test_world - 1 : 1)) % test_world;
}

static int row_of(const rows *r, int ghost) {
    return r->reversed ? r->n - 1 - ghost % r->n : ghost % r->n;
}

static lierne_status plan_rows(lierne_plan **plan, lierne_context *context, const rows *r) {
    int32_t *rank = calloc((size_t)ghosts(r) + 1, sizeof *rank);
    int64_t *row = calloc((size_t)ghosts(r) + 1, sizeof *row);
    for (int i = 0; i < ghosts(r); i++) {
        rank[i] = owner_of(r, test_rank, i);
        row[i] = row_of(r, i);
    }
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = r->n,
                                   .nghosts = ghosts(r),
                                   .rank = rank,
                                   .row = row,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = r->width,
                                   .max_inflight = r->requests,
                                   .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT};
    lierne_status status = lierne_plan_create_references(plan, context, &spec);
    free(rank);
    free(row);
    return status;
}

/* Sums of two are exact. */
static float value(int rank, int call, int i) {
    return (float)(1 + (rank + 3 * call + 7 * (int)(mix((uint64_t)i) % 5003)) % 65521);
}

static void fill(const rows *r, float *in, bool adjoint, int call) {
    for (int i = 0; i < (adjoint ? ghosts(r) : r->n) * r->width; i++) {
        in[i] = value(test_rank, call, i);
    }
}

static void poison(const rows *r, float *out) {
    memset(out, 0xff, bytes_of(r));
}

/* What an element of out must be. */
static float wanted(const rows *r, bool adjoint, int call, int i) {
    int column = i % r->width, row = i / r->width;
    if (!adjoint) {
        return value(owner_of(r, test_rank, row), call, row_of(r, row) * r->width + column);
    }
    int ghost = row_of(r, row), next = (test_rank + 1) % test_world;
    float sum = value(next, call, ghost * r->width + column);
    int last = (test_rank + test_world - 1) % test_world;
    return r->both ? sum + value(last, call, (r->n + ghost) * r->width + column) : sum;
}

static void check_rows(const rows *r, const float *out, bool adjoint, int call, const char *what) {
    long wrong = 0;
    for (int i = 0; i < (adjoint ? r->n : ghosts(r)) * r->width; i++) {
        wrong += out[i] != wanted(r, adjoint, call, i);
    }
    CHECK(wrong == 0, "%s: %ld wrong, %d rows of %d, call %d", what, wrong, r->n, r->width, call);
}

static bool failed;

/* Whether a call failed on some rank: what follows would wait for the deadline again. */
static bool any_failed(void) {
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_C_BOOL, MPI_LOR, MPI_COMM_WORLD);
    return failed;
}

/* Both directions, twice: the second time lines are used again. */
static void move_rows(lierne_plan *plan, const rows *r, float *in, float *out, const char *what) {
    for (int call = 0; call < 4; call++) {
        bool adjoint = call & 1;
        fill(r, in, adjoint, call);
        poison(r, out);
        lierne_status status = adjoint ? lierne_plan_adjoint(plan, out, in, NULL)
                                       : lierne_plan_forward(plan, out, in, NULL);
        failed |= !CHECK(status == LIERNE_OK, "%s: %s", what, lierne_last_error());
        check_rows(r, out, adjoint, call, what);
    }
}

/* Rows with a context, a plan and buffers of their own. */
typedef struct moving {
    const rows *r;
    lierne_context *context;
    lierne_plan *plan;
    float *in, *out;
} moving;

static moving open_moving(const rows *r) {
    moving m = {.r = r,
                .context = test_context(PATIENT),
                .in = malloc(bytes_of(r)),
                .out = malloc(bytes_of(r))};
    CHECK_OK(plan_rows(&m.plan, m.context, r));
    return m;
}

static void close_moving(moving *m) {
    CHECK_OK(lierne_plan_destroy(m->plan));
    CHECK_OK(lierne_context_destroy(m->context));
    free(m->in), free(m->out);
}

/* Every n ranks, or the last ones, are a node for contexts from now on; 0: all are on one again. */
static void split_nodes(int n) {
    char node[16];
    snprintf(node, sizeof node, "%d", n > 0 ? test_rank / n : 0);
    n > 0 ? setenv("LIERNE_NODE", node, 1) : unsetenv("LIERNE_NODE");
}

/* The number before some words of the context's dump; -1: there is none. */
static long count_of(const lierne_context *context, const char *words) {
    char text[4096];
    CHECK_OK(lierne_context_dump(text, sizeof text, context));
    const char *at = strstr(text, words);
    if (!at) {
        return -1;
    }
    while (at > text && at[-1] != ' ') {
        at--;
    }
    return atol(at);
}

/* Moves rows in a context of its own and checks how many of the four messages went this way. */
static void goes(const rows *r, bool window, const char *way, int messages) {
    if (any_failed()) {
        return;
    }
    moving m = open_moving(r);
    void *in, *out;
    CHECK_OK(lierne_context_alloc(&in, m.context, bytes_of(r)));
    CHECK_OK(lierne_context_alloc(&out, m.context, bytes_of(r)));
    move_rows(m.plan, r, window ? in : m.in, window ? out : m.out, way);
    CHECK(count_of(m.context, way) == (test_world > 1 ? messages : 0),
          "%ld messages%s, %d rows of %d, in %s memory", count_of(m.context, way), way, r->n,
          r->width, window ? "shared" : "ordinary");
    CHECK_OK(lierne_context_dealloc(m.context, in));
    CHECK_OK(lierne_context_dealloc(m.context, out));
    close_moving(&m);
}

static void every_way(void) {
    static const rows one = {.n = 1, .width = 3}, short_block = {.n = 8, .width = 32},
                      block = {.n = 300, .width = 64}, long_block = {.n = 3000, .width = 400},
                      long_rows = {.n = 300, .width = 64, .reversed = true},
                      many_rows = {.n = 3000, .width = 400, .reversed = true},
                      narrow = {.n = 1500, .width = 9, .reversed = true},
                      two_ranks = {.n = 700, .width = 64, .both = true},
                      wide_and_short = {.n = 20, .width = 16, .reversed = true};
    static const rows over_a_kib = {.n = 8, .width = 33};
    const rows *packed[] = {&one, &short_block, &over_a_kib, &wide_and_short};
    const rows *whole[] = {&block, &long_block, &long_rows, &many_rows};
    const char *far = refuse_pull ? " in pieces" : " pulled";
    for (int i = 0; i < 4; i++) {
        goes(packed[i], false, " packed", 4);
        goes(packed[i], true, i < 2 ? " packed" : " messages in place",
             4); /* up to 1 KiB: packed */
    }
    /* Pulling pays for every run: forward, rows of 256 bytes go in pieces. */
    goes(&long_rows, false, " in pieces", refuse_pull ? 4 : 2);
    for (int i = 0; i < 4; i++) {
        goes(whole[i], false, far, whole[i] == &long_rows && !refuse_pull ? 2 : 4);
        goes(whole[i], true, " messages in place", 4);
    }
    /* To and from two ranks: blocks that begin behind others, and sums of two. The adjoint of two
     * ghosts of a row on one rank is summed there first, in scratch, which is in a window. */
    goes(&two_ranks, false, far, test_world > 2 ? 8 : 2);
    goes(&two_ranks, false, " messages in place", test_world > 2 ? 0 : 2);
    goes(&two_ranks, true, " messages in place", test_world > 2 ? 8 : 4);
    /* Forward packs rows of 36 bytes; the adjoint sends one block. */
    goes(&narrow, false, " packed", 2);
    goes(&narrow, true, " packed", 2);
    goes(&narrow, false, far, 2);
    goes(&narrow, true, " messages in place", 2);
}

/* A chunk that the segment gets after the plan, and after peers have mapped others. Before, the
 * messages are pulled. */
static void memory_after_the_plan(void) {
    if (any_failed()) {
        return;
    }
    const rows r = {.n = 500, .width = 64};
    size_t bytes = bytes_of(&r);
    moving m = open_moving(&r);
    miss_pull = cut_pull = true; /* a message whose sender is not found is not there yet */
    move_rows(m.plan, &r, m.in, m.out, "a sender that is not found at once");
    cut_pull = false;
    for (int i = 0; i < 6; i++) {
        char *in, *out;
        size_t more = (size_t)i << 21;
        CHECK_OK(lierne_context_alloc((void **)&in, m.context, bytes + more));
        CHECK_OK(lierne_context_alloc((void **)&out, m.context, bytes + more));
        move_rows(m.plan, &r, (float *)(void *)(in + more), (float *)(void *)(out + more / 2),
                  "memory after the plan");
        CHECK_OK(lierne_context_dealloc(m.context, in));
        CHECK_OK(lierne_context_dealloc(m.context, out));
    }
    CHECK(count_of(m.context, " messages in place") == (test_world > 1 ? 24 : 0), "not in place");
    close_moving(&m);
}

/* Match ids repeat after 64 calls. */
static void calls_in_flight(int rounds) {
    if (any_failed()) {
        return;
    }
    const rows a = {.n = 40, .width = 64, .requests = 2},
               b = {.n = 700, .width = 30, .reversed = true, .requests = 2};
    const rows *of[] = {&a, &a, &b, &b};
    lierne_context *context = test_context(PATIENT);
    lierne_plan *plan[2];
    float *in[4], *out[4];
    CHECK_OK(plan_rows(&plan[0], context, &a));
    CHECK_OK(plan_rows(&plan[1], context, &b));
    for (int k = 0; k < 4; k++) {
        in[k] = malloc(sizeof(float) * (size_t)(of[k]->n * of[k]->width));
        out[k] = malloc(sizeof(float) * (size_t)(of[k]->n * of[k]->width));
    }
    for (int i = 0; i < rounds; i++) {
        lierne_request *request[4];
        for (int j = 0; j < 4; j++) {
            int k = test_rank % 2 ? (j + 2) % 4 : j;
            fill(of[k], in[k], false, i + k);
            poison(of[k], out[k]);
            CHECK_OK(lierne_plan_forward_begin(&request[k], plan[k / 2], out[k], in[k], NULL));
        }
        for (int j = 0; j < 4; j++) {
            int k = (j + i) % 4;
            CHECK_OK(lierne_request_end(request[k]));
            check_rows(of[k], out[k], false, i + k, "in flight");
        }
    }
    for (int k = 0; k < 4; k++) {
        free(in[k]);
        free(out[k]);
    }
    CHECK_OK(lierne_plan_destroy(plan[0]));
    CHECK_OK(lierne_plan_destroy(plan[1]));
    CHECK_OK(lierne_context_destroy(context));
}

/* Even ranks execute and destroy the plan, and write to what was freed, before odd ranks read. */
static void plan_destroyed_before_it_was_read(void) {
    if (any_failed()) {
        return;
    }
    const rows r = {.n = 20, .width = 16};
    moving m = open_moving(&r);
    lierne_request *request;
    void *memory[8];
    fill(&r, m.in, false, 5);
    poison(&r, m.out);
    if (test_rank % 2 == 1) {
        CHECK_OK(lierne_plan_forward_begin(&request, m.plan, m.out, m.in, NULL));
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK_OK(lierne_request_end(request));
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK_OK(lierne_plan_forward(m.plan, m.out, m.in, NULL));
    }
    check_rows(&r, m.out, false, 5, "a plan that is destroyed at once");
    CHECK_OK(lierne_plan_destroy(m.plan));
    m.plan = NULL;
    for (int i = 0; i < 8; i++) {
        CHECK_OK(lierne_context_alloc(&memory[i], m.context, 16 << 10));
        memset(memory[i], 0x55, 16 << 10);
    }
    if (test_rank % 2 == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < 8; i++) {
        CHECK_OK(lierne_context_dealloc(m.context, memory[i]));
    }
    close_moving(&m);
}

/* Ranks whose peers are late sleep, instead of polling. */
static void waits_asleep(void) {
    const rows r = {.n = 500, .width = 64};
    const struct timespec late = {.tv_nsec = 400000000};
    struct timespec before, after;
    moving m = open_moving(&r);
    fill(&r, m.in, false, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank % 2 == 1) {
        nanosleep(&late, NULL);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    CHECK_OK(lierne_plan_forward(m.plan, m.out, m.in, NULL));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    double used =
        (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    CHECK(used < 0.1, "%g s of a processor to wait for 0.4 s", used);
    close_moving(&m);
}

/* Small collectives need not put a call in flight. */
static void prepares_short_calls(void) {
    const lierne_all_gather_spec spec = all_gather_of(8, LIERNE_DTYPE_F32);
    lierne_context *context = test_context(PATIENT);
    lierne_plan *plan;
    CHECK_OK(lierne_plan_create_all_gather(&plan, context, &spec));
    CHECK((plan->requests[0][0].execution->short_call != NULL) == (test_world > 1),
          "an all-gather of 32 bytes is no short call");
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK_OK(lierne_context_destroy(context));
}

/* Every other rank is on another node, so that some plans use both transports. */
static void several_nodes(void) {
    const rows r = {.n = 900, .width = 64};
    split_nodes(2);
    moving m = open_moving(&r);
    move_rows(m.plan, &r, m.in, m.out, "several nodes");
    int first = test_rank / 2 * 2, last = first + 2 < test_world ? first + 2 : test_world;
    CHECK(count_of(m.context, " peers;") == last - first - 1, "%ld peers",
          count_of(m.context, " peers;"));
    close_moving(&m);
    split_nodes(0);
}

/* Where one rank gets no memfd, no rank uses shm, also on other nodes. */
static void without_memfd(void) {
    lierne_context *context;
    const rows r = {.n = 900, .width = 64};
    refuse_memfd = test_rank == test_world - 1;
    split_nodes(2); /* the last of three ranks is alone */
    moving m = open_moving(&r);
    split_nodes(0);
    CHECK(count_of(m.context, " peers;") == -1, "shm is used");
    CHECK(count_of(m.context, "shm is not used: ") != -1, "the dump does not say why");
    move_rows(m.plan, &r, m.in, m.out, "without memfd");
    close_moving(&m);
    setenv("LIERNE_TRANSPORTS", "shm", 1);
    test_same_error(test_context_create(&context, MPI_COMM_WORLD, NULL), LIERNE_ERR_UNSUPPORTED,
                    "shm alone, without memfd");
    CHECK(!context, "a context beside the error");
    refuse_memfd = false;
}

/* Rank 0 waits for shared memory alone, while rank 1 receives from it over MPI and calls later. */
static void message_of_the_caller(void) {
    enum { BYTES = 8 << 20 };
    const rows r = {.n = 20, .width = 16};
    moving m = open_moving(&r);
    char *message = malloc(BYTES);
    MPI_Request request = MPI_REQUEST_NULL;
    memset(message, 7 * !test_rank, BYTES);
    if (test_rank == 0) {
        MPI_Isend(message, BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    } else if (test_rank == 1) {
        MPI_Recv(message, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(message[0] == 7 && message[BYTES - 1] == 7, "%d", message[0]);
    }
    move_rows(m.plan, &r, m.in, m.out, "beside a message of the caller");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    close_moving(&m);
    free(message);
}

/* Over shm alone, with ranks that it does not reach. */
static void shm_alone(void) {
    const rows r = {.n = 9, .width = 64};
    lierne_plan *plan;
    moving m = open_moving(&r);
    close_moving(&m);
    split_nodes(1);
    lierne_context *context = test_context(PATIENT);
    split_nodes(0);
    if (test_world > 1) {
        test_same_error(plan_rows(&plan, context, &r), LIERNE_ERR_UNSUPPORTED, "shm between nodes");
    }
    CHECK_OK(lierne_context_destroy(context));
}

static int count_entries(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    while (d && readdir(d)) {
        n++;
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "caller") == 0) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    }
    test_start(&argc, &argv);
    if (test_world == 1) {
        setenv("LIERNE_TRANSPORTS", "shm", 1); /* or a rank without others has none */
    }
    CHECK_OK(lierne_context_destroy(test_context(PATIENT))); /* MPI opens some files for good */
    size_t before = lierne_mem_live();
    int files = count_entries("/proc/self/fd"), maps = count_entries("/proc/self/map_files");
    if (argc > 1) {
        strcmp(argv[1], "caller") == 0 ? message_of_the_caller() : calls_in_flight(atoi(argv[1]));
        return test_finish();
    }
    for (int i = 0; i < 2; i++) {
        refuse_pull = i;
        every_way();
        calls_in_flight(70);
    }
    refuse_pull = false;
    memory_after_the_plan();
    plan_destroyed_before_it_was_read();
    waits_asleep();
    prepares_short_calls();
    several_nodes();
    if (test_world > 1) {
        without_memfd();
    }
    shm_alone();
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    CHECK(count_entries("/proc/self/fd") == files, "files were left open");
    CHECK(count_entries("/proc/self/map_files") <= maps + 20, "mappings were left");
    return test_finish();
}
