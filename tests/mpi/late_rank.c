/* A rank gives up and another rank calls late. The one that gave up destroys its plan and its
 * context at once and reuses the memory. The late rank must get an error, never data of reused
 * memory, and what it sends must not be written there. The rank that gave up keeps `in` and `out`
 * until MPI ends, as lierne/context.h requires. If all ranks are on one node, it breaks that rule
 * on purpose and overwrites `in`: the late rank must not return OK then.
 *
 *   late_rank            two ranks: one is late; control messages of planning.
 *                        three ranks: a ring of rows, in which a victim is late or stopped
 *   late_rank killed N   three ranks; the victim is killed, so MPI_Finalize is impossible. N: 1 the
 *                        adjoint, 2 packed, 3 both, 0 neither. For tests/cli/test_death.sh
 *   ... apart            each rank is a node of its own: no flags, only notices */
#include "lierne/halo.h"
#include "lierne/sparse.h"
#include "mpi/common.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT 0.4 /* seconds, of the rank that gives up */
#define ROWS    4096
/* A row is several cache lines long, and all rows are too long to be sent eagerly. */
#define WIDTH  64
#define BLOCKS 12

static bool one_node; /* abort flags reach all ranks */

/* Reuses memory that lierne freed, so that later reads and writes of it are found. */
typedef struct reuse {
    unsigned char *block[BLOCKS];
    size_t bytes[BLOCKS];
} reuse;

static void reuse_memory(reuse *r) {
    for (int i = 0; i < BLOCKS; i++) {
        r->bytes[i] = (size_t)ROWS * WIDTH * 4 >> i % 4 * 2;
        r->block[i] = malloc(r->bytes[i]);
        memset(r->block[i], 0x5a, r->bytes[i]);
    }
}

static void check_memory(reuse *r) {
    size_t wrong = 0;
    for (int i = 0; i < BLOCKS; i++) {
        for (size_t b = 0; b < r->bytes[i]; b++) {
            wrong += r->block[i][b] != 0x5a;
        }
        free(r->block[i]);
    }
    CHECK(wrong == 0, "%zu bytes of reused memory were overwritten", wrong);
}

/* What happens to the victim. BEGUN: it is stopped after it has begun its call. */
typedef enum fate { LATE, STOPPED, BEGUN, KILLED } fate;

/* The ranks of a ring: the giver waits for the victim and gives up, the late rank waits for the
 * giver. */
typedef struct ring {
    fate fate;
    lierne_direction direction;
    bool packed; /* the rows of a message are not contiguous */
    int giver, late, victim;
    int pid;       /* of the victim */
    MPI_Comm pair; /* of the giver and the late rank */
    MPI_Comm able; /* of the ranks that run while the victim is late or stopped */
    lierne_context *context;
    lierne_plan *plan;
    float *in;
    float *out;
} ring;

/* Rank r has ghosts of all rows of rank r - 1, so that each rank waits for another one. */
static lierne_status plan_ring(lierne_plan **plan, lierne_context *context, bool packed) {
    static int32_t rank[ROWS];
    static int64_t row[ROWS];
    for (int i = 0; i < ROWS; i++) {
        rank[i] = (test_rank + test_world - 1) % test_world;
        row[i] = packed ? ROWS - 1 - i : i;
    }
    lierne_references_spec spec = {.size = sizeof spec,
                                   .nowned = ROWS,
                                   .nghosts = ROWS,
                                   .rank = rank,
                                   .row = row,
                                   .dtype = LIERNE_DTYPE_F32,
                                   .width = WIDTH,
                                   .algorithm = LIERNE_GRAPH_ALGORITHM_DIRECT};
    return lierne_plan_create_references(plan, context, &spec);
}

static float value(int rank, int row, int column) {
    return (float)(1 + rank + 3 * ((row * WIDTH + column) % 4001));
}

static void fill(float *data, int rank) {
    for (int i = 0; i < ROWS * WIDTH; i++) {
        data[i] = value(rank, i / WIDTH, i % WIDTH);
    }
}

static long count_wrong(const ring *r) {
    int step = r->direction == LIERNE_DIRECTION_FORWARD ? test_world - 1 : 1;
    int from = (test_rank + step) % test_world;
    long wrong = 0;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        int row = r->packed ? ROWS - 1 - i / WIDTH : i / WIDTH;
        wrong += r->out[i] != value(from, row, i % WIDTH);
    }
    return wrong;
}

static void open_ring(ring *r) {
    r->victim = 2;
    r->giver = r->direction == LIERNE_DIRECTION_FORWARD ? 0 : 1;
    r->late = 1 - r->giver;
    r->pid = (int)getpid();
    MPI_Bcast(&r->pid, 1, MPI_INT, r->victim, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, test_rank == r->victim, test_rank, &r->pair);
    r->able = r->fate == LATE ? MPI_COMM_WORLD : r->pair;
    r->in = test_buffer(sizeof *r->in * ROWS * WIDTH);
    r->out = test_buffer(sizeof *r->out * ROWS * WIDTH);
    fill(r->in, test_rank);
    memset(r->out, 0xff, sizeof *r->out * ROWS * WIDTH);
    r->context = test_context(PATIENT);
    CHECK_OK(plan_ring(&r->plan, r->context, r->packed));
    if (test_rank == r->giver) {
        test_hurry(r->context, TIMEOUT);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static lierne_status begin(ring *r, lierne_request **request) {
    return r->direction == LIERNE_DIRECTION_FORWARD
               ? lierne_plan_forward_begin(request, r->plan, r->out, r->in, NULL)
               : lierne_plan_adjoint_begin(request, r->plan, r->out, r->in, NULL);
}

static lierne_status execute(ring *r) {
    lierne_request *request;
    lierne_status status = begin(r, &request);
    return status == LIERNE_OK ? lierne_request_end(request) : status;
}

static void free_ring(ring *r) {
    CHECK_OK(lierne_plan_destroy(r->plan));
    CHECK_OK(lierne_context_destroy(r->context));
}

static void check_outcome(const ring *r, lierne_status status, const char *who) {
    CHECK(status == LIERNE_OK || status == LIERNE_ERR_TIMEOUT || status == LIERNE_ERR_PEER_FAILED,
          "%s: %s", who, lierne_last_error());
    if (status == LIERNE_OK) {
        long wrong = count_wrong(r);
        CHECK(wrong == 0, "%s returned OK with %ld wrong elements", who, wrong);
    }
}

/* Returns whether it gave up: messages that a stopped rank began to send may still arrive. */
static bool give_up(ring *r) {
    lierne_status status = execute(r);
    check_outcome(r, status, "the giver");
    CHECK(status != LIERNE_OK || r->fate == BEGUN, "the giver returned OK without the victim");
    free_ring(r);
    if (status != LIERNE_OK && one_node) {
        memset(r->in, 0x77, sizeof *r->in * ROWS * WIDTH);
    }
    return status != LIERNE_OK;
}

static void come_late(ring *r, bool gave_up) {
    char name[32];
    snprintf(name, sizeof name, "rank %d gave up", r->giver);
    double start = lierne_now();
    lierne_status status = execute(r);
    check_outcome(r, status, "the late rank");
    if (gave_up && one_node) {
        CHECK(status != LIERNE_OK, "the late rank returned OK after the giver gave up");
        CHECK(strstr(lierne_last_error(), name), "'%s' lacks '%s'", lierne_last_error(), name);
    }
    CHECK(lierne_now() - start < PATIENT / 2.0, "it took %g s", lierne_now() - start);
    free_ring(r);
}

static void play_pair(ring *r) {
    reuse memory = {0};
    int gave_up = 0;
    if (test_rank == r->giver) {
        gave_up = give_up(r);
        reuse_memory(&memory);
    }
    MPI_Bcast(&gave_up, 1, MPI_INT, r->giver, r->able);
    if (test_rank == r->late) {
        come_late(r, gave_up);
    }
    MPI_Barrier(r->pair);
    if (test_rank == r->giver && (r->fate == STOPPED || r->fate == BEGUN)) {
        kill(r->pid, SIGCONT);
    }
    if (r->fate != KILLED) {
        MPI_Barrier(MPI_COMM_WORLD); /* with the victim, after its call has ended */
    }
    check_memory(&memory);
}

static void play_victim(ring *r) {
    lierne_request *request = NULL;
    lierne_status status = LIERNE_OK;
    int ignored = 0;
    if (r->fate == BEGUN) {
        status = begin(r, &request);
    }
    if (r->fate == LATE) {
        MPI_Bcast(&ignored, 1, MPI_INT, r->giver, r->able);
    } else {
        raise(r->fate == KILLED ? SIGKILL : SIGSTOP);
    }
    if (status == LIERNE_OK) {
        status = request ? lierne_request_end(request) : execute(r);
    }
    check_outcome(r, status, "the victim");
    free_ring(r);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void play(fate f, lierne_direction direction, bool packed) {
    ring r = {.fate = f, .direction = direction, .packed = packed};
    open_ring(&r);
    if (test_rank == r.victim) {
        play_victim(&r);
    } else {
        play_pair(&r);
    }
    if (f == KILLED) {
        test_leave(r.pair);
    }
    MPI_Comm_free(&r.pair);
}

static void play_all(void) {
    for (int f = LATE; f < KILLED; f++) {
        for (int d = 0; d < 2; d++) {
            play((fate)f, (lierne_direction)d, false);
            play((fate)f, (lierne_direction)d, true);
        }
    }
}

/* Two dp ranks, 0 and 1, into one dp rank on both: each rank sends its half of every row. Blocks
 * are strided, so that messages are staged, and small enough that none waits for a staging slot, as
 * it would then never be sent. */
#define SAMPLES  2 /* of each dp rank */
#define SEQUENCE 200
#define HIDDEN   400

static lierne_status plan_two_dp_ranks(lierne_plan **plan, lierne_context *context) {
    bridge_case c = {.src = mesh_of("tcd", 1, 1, 2),
                     .dst = mesh_of("tcd", 2, 1, 1),
                     .world = test_world,
                     .batch = 2 * SAMPLES,
                     .sequence = SEQUENCE,
                     .hidden = HIDDEN,
                     .axis_b = 1,
                     .axis_s = 0,
                     .axis_h = 2,
                     .dtype = LIERNE_DTYPE_F32};
    return case_plan(plan, context, &c);
}

static float dp_value(int row, int sample, int h) {
    return (float)((row * 2 * SAMPLES + sample) * HIDDEN + h);
}

static long count_wrong_dp(const float *out) {
    long wrong = 0;
    for (int i = 0; i < SEQUENCE * 2 * SAMPLES * HIDDEN; i++) {
        int h = i % HIDDEN, sample = i / HIDDEN % (2 * SAMPLES);
        wrong += out[i] != dp_value(i / HIDDEN / (2 * SAMPLES), sample, h);
    }
    return wrong;
}

/* Each rank waits for the other: the messages of both are in flight when one gives up. */
static void give_up_in_flight(int late) {
    lierne_context *context = test_context(PATIENT);
    lierne_plan *plan;
    reuse memory = {0};
    float *in = test_buffer(sizeof *in * SEQUENCE * SAMPLES * HIDDEN);
    float *out = test_buffer(sizeof *out * SEQUENCE * 2 * SAMPLES * HIDDEN);
    for (int i = 0; i < SEQUENCE * SAMPLES * HIDDEN; i++) {
        int h = i % HIDDEN, sample = test_rank * SAMPLES + i / HIDDEN % SAMPLES;
        in[i] = dp_value(i / HIDDEN / SAMPLES, sample, h);
    }
    CHECK_OK(plan_two_dp_ranks(&plan, context));
    if (test_rank == late) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        test_hurry(context, TIMEOUT);
    }
    lierne_status status = lierne_plan_forward(plan, out, in, NULL);
    CHECK(status != LIERNE_OK || (test_rank == late && !one_node), "OK without the other rank");
    CHECK(status != LIERNE_OK || count_wrong_dp(out) == 0, "OK with wrong elements");
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK_OK(lierne_context_destroy(context));
    reuse_memory(&memory);
    if (test_rank != late) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check_memory(&memory);
}

static int tests_at_once = 1;

/* Replaces MPI_Test in the library too: the late rank tests so often that it finds a collective
 * complete before it reads the flags. */
int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
    int code = PMPI_Test(request, flag, status);
    for (int i = 1; i < tests_at_once && code == MPI_SUCCESS && !*flag; i++) {
        code = PMPI_Test(request, flag, status);
    }
    return code;
}

/* The rank that gave up has started the agreement's collective, so MPI completes it for the late
 * rank. */
static void agree_late(int late) {
    lierne_context *context = test_context(PATIENT);
    lierne_plan *plan;
    if (test_rank == late) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else {
        test_hurry(context, TIMEOUT);
    }
    tests_at_once = test_rank == late ? 100000 : 1;
    lierne_status status = plan_two_dp_ranks(&plan, context);
    tests_at_once = 1;
    if (one_node || test_rank != late) {
        CHECK(status == LIERNE_ERR_TIMEOUT && !plan, "a plan, though a rank gave up planning");
    }
    CHECK_OK(lierne_plan_destroy(plan));
    CHECK_OK(lierne_context_destroy(context));
    if (test_rank != late) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static double asleep; /* seconds by which the next probe for messages is delayed */

static void sleep_once(void) {
    usleep((useconds_t)(asleep * 1e6));
    asleep = 0;
}

/* These replace MPI's in the library, too: where many ranks look for control messages, and few. */
int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
    sleep_once();
    return PMPI_Improbe(source, tag, comm, flag, message, status);
}

int MPI_Testsome(int n, MPI_Request requests[], int *done, int indices[], MPI_Status statuses[]) {
    sleep_once();
    return PMPI_Testsome(n, requests, done, indices, statuses);
}

/* Control messages of several hundred kilobytes, whose buffers MPI reads when they are received. */
#define POINTS 40000

static lierne_status plan_swap(lierne_context *context) {
    static int64_t rows[POINTS];
    const int64_t *lists[] = {rows};
    const int64_t number = POINTS;
    const int other = 1 - test_rank;
    lierne_plan *plan;
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = POINTS,
                             .nghost = POINTS,
                             .nswap = 1,
                             .sendproc = &other,
                             .recvproc = &other,
                             .sendnum = &number,
                             .recvnum = &number,
                             .sendlist = lists,
                             .dtype = LIERNE_DTYPE_F32,
                             .width = 1};
    return lierne_plan_create_halo(&plan, context, &spec);
}

static lierne_status make_brick(lierne_context *context) {
    static double points[3 * POINTS];
    lierne_brick *brick;
    lierne_brick_spec spec = {.size = sizeof spec,
                              .grid = {2, 1, 1},
                              .box = {1, 1, 1},
                              .cutoff = 0.3,
                              .nlocal = POINTS,
                              .positions = points};
    for (int i = 0; i < POINTS; i++) {
        points[3 * i] = 0.25 + 0.5 * test_rank;
    }
    return lierne_brick_create(&brick, context, &spec);
}

/* The late rank finds control messages of a rank that has given up. */
static void read_late(test_exchange way, int late, lierne_status (*plan)(lierne_context *context)) {
    lierne_context *context = test_context(PATIENT);
    test_exchange_by(context, way);
    reuse memory = {0};
    MPI_Barrier(MPI_COMM_WORLD);
    test_hurry(context, test_rank == late ? PATIENT : TIMEOUT);
    asleep = test_rank == late ? 2 * TIMEOUT : 0;
    CHECK(plan(context) == LIERNE_ERR_TIMEOUT, "planning returned OK after a rank gave up");
    CHECK_OK(lierne_context_destroy(context));
    reuse_memory(&memory);
    MPI_Barrier(MPI_COMM_WORLD);
    check_memory(&memory);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    one_node = argc < 2 || strcmp(argv[argc - 1], "apart") != 0;
    if (!one_node) {
        char node[16];
        snprintf(node, sizeof node, "%d", test_rank);
        setenv("LIERNE_NODE", node, 1);
    }
    if (argc > 2 && strcmp(argv[1], "killed") == 0) {
        int n = atoi(argv[2]);
        play(KILLED, (lierne_direction)(n & 1), n & 2);
    }
    if (test_world == 3) {
        play_all();
    } else {
        for (int late = 0; late < 2; late++) {
            give_up_in_flight(late);
            agree_late(late);
            for (int way = 0; way < TEST_EXCHANGES; way++) {
                read_late((test_exchange)way, late, plan_swap);
                read_late((test_exchange)way, late, make_brick);
            }
        }
    }
    return test_finish();
}
