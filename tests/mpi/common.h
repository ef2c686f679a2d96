/* For the programs that run under mpirun: checks counted over all ranks, a watchdog, and an oracle
 * of the bridge that uses nothing of the library. */
#ifndef TESTS_MPI_COMMON_H
#define TESTS_MPI_COMMON_H

#include "algorithm.h"
#include "base/base.h"
#include "lierne/mpi.h"

#include <mpi.h>

extern int test_rank;
extern int test_world;

/* Seconds. On a busy machine, a wait that must not reach its deadline has PATIENT, and a call that
 * must return at once may take SLACK. */
#define PATIENT 60
#define SLACK   5

/* Starts MPI. Ends the program as failed if no check is made for five minutes: that is a hang,
 * however slow the machine. */
void test_start(int *argc, char ***argv);
/* The same with MPI_THREAD_MULTIPLE; returns what MPI provides. */
int test_start_threads(int *argc, char ***argv);
/* Sums the counts of all ranks; rank 0 prints "N passed, N failed". Returns the exit status. */
int test_finish(void);
/* The same for the ranks of comm only, when others are dead. Ends the process without MPI_Finalize,
 * which would wait for them. */
void test_leave(MPI_Comm comm);

/* Whether ranks of one node use shared memory, as far as LIERNE_TRANSPORTS says. */
bool test_over_shm(void);

/* Gives a context a shorter timeout, after a start that a busy machine may have slowed down. */
void test_hurry(lierne_context *context, double seconds);

/* Over MPI, cuts messages into pieces of at most `bytes` from now on, the same on every rank. */
void test_cut_messages(lierne_context *context, size_t bytes);

/* Memory for in and out of calls that fail: MPI may use them until MPI_Finalize, so test_finish
 * frees them after it. */
void *test_buffer(size_t bytes);

/* Counts a check; prints the message of one that fails. */
#define CHECK(ok, ...) test_check((ok), __FILE__, __LINE__, __VA_ARGS__)
bool test_check(bool ok, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Checks that status is the one wanted, on every rank with the same message. Collective. */
void test_same_error(lierne_status status, lierne_status wanted, const char *what);

/* A grid in plain numbers, fastest dim first. */
#define MESH_DIMS 4
typedef struct mesh {
    int ndims;
    const char *names[MESH_DIMS];
    int sizes[MESH_DIMS];
    int offset; /* its first rank */
} mesh;
/* A mesh of tp, cp and dp in the order of `order`, three letters of "tcd". */
mesh mesh_of(const char *order, int tp, int cp, int dp);
int mesh_size(const mesh *m, const char *dim);
int mesh_coord(const mesh *m, int rank, const char *dim);
/* Whether a rank is in the mesh. The buffers of other ranks are empty and their coordinates
 * meaningless. */
bool mesh_has(const mesh *m, int rank);
/* The mesh as a grid of the library. */
lierne_grid *mesh_grid(const mesh *m);

/* A bridge to test. Axes: batch b, sequence s, hidden h, at the positions in axis[]. */
typedef struct bridge_case {
    mesh src, dst;
    int64_t size[3]; /* of b, s, h */
    int axis[3];     /* place of b, s, h; 0 to 2 */
    lierne_dtype dtype;
    test_algorithm algorithm;
    lierne_gradient_owner owner;
    lierne_storage storage;
    const int64_t *src_counts; /* NULL: balanced */
    const int64_t *dst_counts;
    const int32_t *row_owner;
    lierne_sharing sharing; /* of a direct plan */
} bridge_case;

/* One element of a rank's buffer. */
typedef struct item {
    int64_t b, s, h;
    bool owned;
    int64_t at; /* its index in the buffer with the whole sequence */
} item;
typedef enum side { SIDE_SRC, SIDE_DST, SIDE_GRADIENT } side;
/* The items of a rank's input, output or gradient of the output, in order. The caller frees them.
 */
item *case_items(const bridge_case *c, side which, int rank, int64_t *count);

/* Closed forms: the value of an element, the contribution of cp rank c to its gradient, and the
 * gradient, their sum. Small integers, exact in every dtype, also when added. */
double case_value(const item *i);
double case_contribution(const item *i, int c);
double case_gradient(const bridge_case *c, const item *i);
/* Whether the reference algorithm is defined: dp sizes divide and dp ranks line up on every rank.
 */
bool case_aligned(const bridge_case *c);
/* "tp2cp1dp4 -> ..." with everything else, for messages; in a static buffer. */
const char *case_text(const bridge_case *c);

/* Plans the case. Collective. */
lierne_status case_plan(lierne_plan **plan, lierne_context *context, const bridge_case *c);

/* Elements of a dtype. */
void number_put(lierne_dtype dtype, void *buffer, int64_t at, double value);
double number_get(lierne_dtype dtype, const void *buffer, int64_t at);
/* A mixed hash, for values that look random. */
uint64_t mix(uint64_t x);

#endif
