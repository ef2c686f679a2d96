/* Two ranks, and a call in which one only sends and the other only receives, so that no other
 * message of the call hides what happens to this one. One of them gives up:
 *
 *   the receiver, because the sender was stopped after it began: what arrives afterwards must not
 * be written to memory that lierne has freed. The message is sent in fragments then (argument
 *   "fragments"); with a single copy it arrives although the sender is stopped.
 *   the sender, because the receiver is late: the receiver must not return OK with data that the
 *   sender's caller has overwritten since. With a single copy the message completes at the first
 *   poll. */
#include "lierne/sparse.h"
#include "mpi/common.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT 0.4 /* seconds, of the rank that gives up */
#define ROWS    4096
#define WIDTH   64 /* all rows together are too long to be sent eagerly */
#define BYTES   ((size_t)ROWS * WIDTH * sizeof(float))
#define BLOCKS  8
#define KEPT    100 /* blocks of the context's memory */

typedef struct one_way {
    int sender;
    int pid; /* of the other rank */
    lierne_context *context;
    lierne_plan *plan;
    float *in;
    float *out;
    size_t live; /* blocks of lierne's before the context */
} one_way;

/* The sender has ghosts of all rows of the other rank: in the adjoint it only sends. */
static void open_one_way(one_way *w, int sender) {
    static int32_t rank[ROWS];
    static int64_t row[ROWS];
    int pid = (int)getpid(), other = 1 - test_rank;
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = ROWS,
                                   .nghosts = test_rank == sender ? ROWS : 0,
                                   .rank = rank,
                                   .row = row,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = WIDTH,
                                   .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT};
    for (int i = 0; i < ROWS; i++) {
        rank[i] = other;
        row[i] = i;
    }
    w->sender = sender;
    MPI_Sendrecv(&pid, 1, MPI_INT, other, 0, &w->pid, 1, MPI_INT, other, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    w->in = test_buffer(BYTES);
    w->out = test_buffer(BYTES);
    memset(w->in, 0x3c, BYTES);
    w->live = lierne_mem_live();
    w->context = test_context(PATIENT);
    for (int i = 0; i < KEPT; i++) {
        void *block;
        CHECK_OK(lierne_context_alloc(&block, w->context, 1));
    }
    CHECK_OK(lierne_plan_create_references(&w->plan, w->context, &spec));
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The buffers of a call that was given up, if a message of it could not be taken back; a send never
 * can, unless it is over shm. The receiver has no elements of in. */
static size_t check_borrowed(const one_way *w, bool gave_up) {
    lierne_borrowed list[3] = {{0}};
    size_t n = 9, same = 9, all = test_rank == w->sender ? 2 : 1;
    CHECK_OK(lierne_context_get_borrowed(list, 3, &n, w->context));
    CHECK(lierne_context_get_borrowed(NULL, 0, &same, w->context) == LIERNE_OK && same == n,
          "%zu buffers are borrowed, then %zu", n, same);
    CHECK(n == 0 || (n == all && gave_up), "%zu buffers are borrowed", n);
    CHECK(n == 0 || (list[n - 1].data == w->out && list[n - 1].written), "out is not the last");
    CHECK(n < 2 || (list[0].data == w->in && list[0].bytes == BYTES && !list[0].written),
          "in is not the first");
    CHECK(n == 2 || !gave_up || test_rank != w->sender || test_over_shm(),
          "no buffer of a send is borrowed");
    CHECK(n == 0 || !test_over_shm(), "a buffer is borrowed over shm");
    return n;
}

static void destroy_plan(one_way *w, bool gave_up) {
    size_t n;
    CHECK(lierne_context_get_borrowed(NULL, 0, &n, w->context) == LIERNE_ERR_INVALID,
          "buffers are listed while a plan is alive");
    CHECK_OK(lierne_plan_destroy(w->plan));
    n = check_borrowed(w, gave_up);
    CHECK_OK(lierne_context_destroy_all(w->context));
    CHECK(n == 0 || lierne_mem_live() >= w->live + KEPT,
          "the memory of a context that a late rank may still read is freed");
}

static lierne_status give_up(one_way *w) {
    test_hurry(w->context, TIMEOUT);
    lierne_status status = lierne_plan_adjoint(w->plan, w->out, w->in, NULL);
    CHECK(status == LIERNE_ERR_TIMEOUT || status == LIERNE_OK, "%s", lierne_last_error());
    destroy_plan(w, status != LIERNE_OK);
    return status;
}

static void receiver_gives_up(int sender) {
    one_way w;
    unsigned char *block[BLOCKS];
    size_t wrong = 0;
    open_one_way(&w, sender);
    if (test_rank == sender) {
        lierne_request *request;
        CHECK_OK(lierne_plan_adjoint_begin(&request, w.plan, w.out, w.in, NULL));
        raise(SIGSTOP);
        destroy_plan(&w, lierne_request_end(request) != LIERNE_OK);
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        give_up(&w);
        for (int i = 0; i < BLOCKS; i++) {
            block[i] = malloc(BYTES >> i % 4);
            memset(block[i], 0x5a, BYTES >> i % 4);
        }
        kill(w.pid, SIGCONT);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < BLOCKS; i++) {
            for (size_t b = 0; b < BYTES >> i % 4; b++) {
                wrong += block[i][b] != 0x5a;
            }
            free(block[i]);
        }
        CHECK(wrong == 0, "%zu bytes of reused memory were overwritten", wrong);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void sender_gives_up(int sender) {
    one_way w;
    int gave_up = 0;
    open_one_way(&w, sender);
    if (test_rank == sender) {
        gave_up = give_up(&w) != LIERNE_OK;
        CHECK(gave_up, "the sender returned OK without the receiver");
        memset(w.in, 0x77, BYTES);
    }
    MPI_Bcast(&gave_up, 1, MPI_INT, sender, MPI_COMM_WORLD);
    if (test_rank != sender) {
        lierne_status status = lierne_plan_adjoint(w.plan, w.out, w.in, NULL);
        CHECK(status == LIERNE_ERR_TIMEOUT, "the receiver returned %s after the sender gave up",
              lierne_status_name(status));
        CHECK(strstr(lierne_last_error(), "gave up"), "'%s'", lierne_last_error());
        destroy_plan(&w, true);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "fragments") == 0) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
        setenv("LIERNE_TRANSPORTS", "mpi", 1);
    }
    test_start(&argc, &argv);
    for (int sender = 0; sender < 2; sender++) {
        receiver_gives_up(sender);
        sender_gives_up(sender);
    }
    return test_finish();
}
