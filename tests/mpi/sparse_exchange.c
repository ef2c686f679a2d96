/* The sparse exchange over MPI: every pattern of messages, pieces of every length, rounds that
 * overlap, a rank without memory, a rank that never calls, calls late or dies. */
#include "backend/mpi/mpi_transport.h"
#include "control_messages.h"
#include "mpi/common.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT    0.5 /* seconds, where a rank does not call */
#define MOST_RANKS 64

static lierne_context *open_context(test_exchange way) {
    lierne_context *context = test_context(PATIENT);
    test_exchange_by(context, way);
    return context;
}

static lierne_status exchange(lierne_context *context, pattern p, int round, size_t most) {
    lierne_control_message messages[MOST_RANKS];
    lierne_control_messages received = {0};
    size_t n = messages_create(messages, p, round, test_rank, test_world, most), wrong;
    lierne_status status = lierne_context_sparse_exchange(context, messages, n, &received);
    if (status == LIERNE_OK) {
        wrong = messages_wrong(&received, p, round, test_rank, test_world, most);
        CHECK(wrong == 0, "pattern %d, round %d, up to %zu words: %zu wrong", (int)p, round, most,
              wrong);
    } else {
        CHECK(received.count == 0 && !received.at, "messages despite an error");
    }
    lierne_control_messages_destroy(&received);
    messages_destroy(messages, n);
    return status;
}

static void every_pattern(lierne_context *context, size_t most) {
    for (int p = 0; p < PATTERNS; p++) {
        for (int round = 0; round < 5; round++) {
            CHECK_OK(exchange(context, (pattern)p, round, most));
        }
    }
}

/* The lengths up to `most` include multiples of a piece and their neighbours. */
static void every_length_of_pieces(lierne_context *context) {
    const size_t chunks[] = {1, 8, 16, 40, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        test_cut_messages(context, chunks[i]);
        every_pattern(context, 30);
    }
    test_cut_messages(context, (size_t)1 << 30);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(exchange(context, RING, round, 2 * LIERNE_MPI_SINK + 1));
    }
}

/* A message whose length is a multiple of a piece, together with short ones. */
static void whole_pieces(lierne_context *context) {
    for (size_t pieces = 0; pieces < 4; pieces++) {
        lierne_control_message messages[2] = {{.peer = 0, .count = pieces * LIERNE_MPI_SINK},
                                              {.peer = test_world - 1, .count = 1}};
        lierne_control_messages received = {0};
        int64_t *words = calloc(messages[0].count + 1, sizeof *words);
        for (size_t i = 0; i < messages[0].count; i++) {
            words[i] = (int64_t)i * 3 + test_rank;
        }
        int64_t small = test_rank;
        messages[0].words = words;
        messages[1].words = &small;
        CHECK(lierne_context_sparse_exchange(context, messages, test_world > 1 ? 2 : 1,
                                             &received) == LIERNE_OK,
              "%s", lierne_last_error());
        bool ends = test_rank == 0 || test_rank == test_world - 1;
        CHECK(received.count == (ends ? (size_t)test_world : 0), "%zu messages", received.count);
        for (size_t r = 0; r < received.count; r++) {
            const lierne_control_message *l = &received.at[r];
            size_t wrong = l->peer != (int)r || l->count != messages[test_rank != 0].count;
            for (size_t i = 0; i < l->count && wrong == 0; i++) {
                wrong += l->words[i] != (int64_t)(test_rank == 0 ? i * 3 + r : r);
            }
            CHECK(wrong == 0, "message of rank %d, %zu pieces", l->peer, pieces);
        }
        lierne_control_messages_destroy(&received);
        free(words);
    }
}

/* More pieces from one rank than may be in flight at once. */
static void many_pieces(lierne_context *context) {
    test_cut_messages(context, 8);
    CHECK_OK(exchange(context, ALL_TO_ALL, 5, 300));
    test_cut_messages(context, (size_t)1 << 30);
}

static void ranks_run_ahead(lierne_context *context) {
    for (int round = 0; round < 200; round++) {
        CHECK_OK(exchange(context, SPARSE, round, 40));
        int64_t values[LIERNE_MAX_REDUCED] = {test_rank * (round % 3 - 1) - 7, round};
        values[LIERNE_MAX_REDUCED - 1] = -test_rank;
        if (round % 4 == test_rank % 4) {
            sched_yield();
        }
        if (round % 2 == 0) {
            CHECK_OK(lierne_context_allreduce_max(context, values, LIERNE_MAX_REDUCED));
            CHECK(values[0] == (round % 3 == 2 ? test_world - 1 : 0) - 7 && values[1] == round &&
                      values[LIERNE_MAX_REDUCED - 1] == 0,
                  "round %d: %lld, %lld", round, (long long)values[0], (long long)values[1]);
        }
        if (round % 8 == 0) {
            lierne_field field = {.name = "round", .value = round};
            CHECK_OK(lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL));
        }
    }
}

static void an_error_kills_nothing(lierne_context *context, int bad) {
    lierne_status mine = LIERNE_OK;
    if (test_rank == bad) {
        mine = LIERNE_FAIL(LIERNE_ERR_INDEX_RANGE, "row 7 of rank %d", test_rank);
    }
    test_same_error(lierne_context_agree_all(context, mine, NULL, 0, NULL), LIERNE_ERR_INDEX_RANGE,
                    "agreeing");
    CHECK_OK(exchange(context, ALL_TO_ALL, 1, 5));
}

/* A rank that only agrees drops what the others send it, and all learn that they differ. */
static void one_only_agrees(lierne_context *context) {
    int64_t words[3] = {1, 2, 3};
    lierne_control_message message = {.peer = 0, .count = 3, .words = words};
    const lierne_field field = {.name = "kind", .value = test_rank == 0};
    const lierne_control_agreement agreement = {LIERNE_OK, &field, 1};
    lierne_control_messages received = {0};
    lierne_status memory, status;
    if (test_rank == 0) {
        status = lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL);
    } else {
        status =
            lierne_context_agree_exchange(context, &agreement, &message, 1, &received, &memory);
    }
    lierne_control_messages_destroy(&received);
    if (test_world > 1) {
        test_same_error(status, LIERNE_ERR_MISMATCH, "agreeing while others plan");
    }
    CHECK_OK(exchange(context, ALL_TO_ALL, 3, 5));
    CHECK_OK(exchange(context, ALL_TO_ALL, 4, 5));
}

/* Each allocation of one rank fails in one round, with messages of one and of many pieces. */
static void without_memory(lierne_context *context, int bad, size_t chunk) {
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    int k = 0, last = LIERNE_ERR_NO_MEMORY;
    test_cut_messages(context, chunk);
    while (last != LIERNE_OK && ++k < 1000) {
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(test_rank == bad ? (size_t)k : 0);
        status = exchange(context, ALL_TO_ALL, 2, 100);
        lierne_mem_fail_at(0);
        CHECK(status == LIERNE_OK || (test_rank == bad && status == LIERNE_ERR_NO_MEMORY), "%s",
              lierne_last_error());
        CHECK(lierne_mem_live() == before, "allocation %d: a leak", k);
        CHECK_OK(exchange(context, SPARSE, k, 100));
        last = (int)status;
        MPI_Bcast(&last, 1, MPI_INT, bad, MPI_COMM_WORLD);
    }
    CHECK(k > test_world && k < 1000, "the exchange works from allocation %d on", k);
    test_cut_messages(context, (size_t)1 << 30);
}

/* Several pieces long, so that it is received into the sink piece by piece. The third allocation is
 * for words of another rank. */
static void long_message_without_memory(lierne_context *context) {
    size_t words = 3 * LIERNE_MPI_SINK + 5;
    lierne_control_message message = {.peer = 0, .count = words, .words = calloc(words, 8)};
    lierne_control_messages received = {0};
    lierne_mem_fail_at(test_rank > 0 ? 0 : test_world == 1 ? 2 : 3);
    lierne_status status = lierne_context_sparse_exchange(context, &message, 1, &received);
    lierne_mem_fail_at(0);
    CHECK(status == (test_rank == 0 ? LIERNE_ERR_NO_MEMORY : LIERNE_OK), "%s",
          lierne_status_name(status));
    CHECK(received.count == 0, "%zu messages", received.count);
    free(message.words);
    CHECK_OK(exchange(context, ALL_TO_ALL, 9, 100));
}

/* Rank 0 calls after the others have given up, whose contexts stay dead. Without messages all ranks
 * are then in the barrier, which must fail nevertheless. The buffers of pending messages must stay
 * allocated: MPI reads them when rank 0 calls. */
static void stay_away(test_exchange way, size_t nmessages, size_t words) {
    size_t before = lierne_mem_live();
    lierne_context *context = open_context(way);
    lierne_control_message message = {.peer = 0, .count = words};
    lierne_control_messages received = {0};
    CHECK_OK(lierne_alloc(&message.words, words, 8));
    MPI_Barrier(MPI_COMM_WORLD);
    test_hurry(context, TIMEOUT);
    if (test_rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    double start = lierne_now();
    lierne_status status = lierne_context_sparse_exchange(context, &message, nmessages, &received);
    double took = lierne_now() - start;
    CHECK(status == LIERNE_ERR_TIMEOUT, "%s", lierne_status_name(status));
    CHECK(test_rank == 0 || took > TIMEOUT * 0.9, "it took %g s", took);
    CHECK(test_rank != 0 || strstr(lierne_last_error(), "gave up"), "'%s'", lierne_last_error());
    CHECK(took < TIMEOUT + SLACK, "it took %g s", took);
    CHECK(received.count == 0 && !received.at, "messages despite an error");
    bool pending = context->control->processes->has_pending_buffers(context->control_self);
    CHECK(test_rank == 0 || pending == (nmessages > 0), "pending buffers: %d", pending);
    /* The state, the message, and the messages to this rank that were in flight. */
    size_t left = 1 + pending + (test_rank == 0 ? nmessages * (size_t)test_world : 0);
    lierne_context_free_message_memory(context, message.words);
    start = lierne_now();
    CHECK(exchange(context, SPARSE, 1, 4) == LIERNE_ERR_TIMEOUT, "a dead context lives on");
    CHECK(lierne_now() - start < SLACK, "a dead context took %g s", lierne_now() - start);
    if (test_rank != 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK_OK(lierne_context_destroy(context));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(lierne_mem_live() <= before + left, "%zu allocations leaked", lierne_mem_live() - before);
}

/* The last rank does not call, and the others watch a process that has ended in its place. */
static void peer_dies(test_exchange way) {
    lierne_context *context = open_context(way);
    lierne_mpi_state *state = context->control_self;
    int last = test_world - 1;
    double start = lierne_now();
    if (test_rank != last) {
        pid_t child = fork();
        if (child == 0) {
            _exit(0);
        }
        close(state->watches[last]);
        state->watches[last] = (int)syscall(SYS_pidfd_open, child, 0);
        waitpid(child, NULL, 0);
        CHECK(exchange(context, ALL_TO_ALL, 1, 4) == LIERNE_ERR_PEER_FAILED, "%s",
              lierne_last_error());
        CHECK(exchange(context, ALL_TO_ALL, 1, 4) == LIERNE_ERR_PEER_FAILED,
              "a dead context lives on");
        CHECK(lierne_now() - start < PATIENT / 2.0, "it took %g s", lierne_now() - start);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    context->dead = LIERNE_ERR_PEER_FAILED; /* or destroying would wait on the last rank */
    CHECK_OK(lierne_context_destroy(context));
}

/* Where ranks differ, and the page behind their fields cannot be read. */
static void reads_no_more_than_the_fields(lierne_context *context) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0, "no two pages");
    lierne_field *last = (lierne_field *)(void *)(memory + page) - 1;
    *last = (lierne_field){.name = "whether last", .value = test_rank == test_world - 1};
    lierne_status status = lierne_context_agree_all(context, LIERNE_OK, last, 1, NULL);
    CHECK(status == (test_world > 1 ? LIERNE_ERR_MISMATCH : LIERNE_OK), "status %d", (int)status);
    munmap(memory, 2 * page);
}

static void exchange_all(test_exchange way) {
    size_t before = lierne_mem_live();
    lierne_context *context = open_context(way);
    every_pattern(context, 20);
    every_pattern(context, 5000);
    every_length_of_pieces(context);
    whole_pieces(context);
    many_pieces(context);
    ranks_run_ahead(context);
    one_only_agrees(context);
    reads_no_more_than_the_fields(context);
    for (int i = 0; i < 2; i++) {
        int rank = i == 0 ? test_world - 1 : 0;
        an_error_kills_nothing(context, rank);
        without_memory(context, rank, (size_t)1 << 30);
        without_memory(context, rank, 24);
    }
    long_message_without_memory(context);
    CHECK_OK(lierne_context_destroy(context));
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    if (test_world > 1) {
        stay_away(way, 0, 0);
        stay_away(way, 1, 10);
        stay_away(way, 1, 3 * LIERNE_MPI_SINK);
        peer_dies(way);
    }
}

int main(int argc, char **argv) {
    /* Open MPI copies long messages once; with 4 ranks it must send them in fragments. */
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (size && atoi(size) == 4) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    }
    test_start(&argc, &argv);
    for (int way = 0; way < TEST_EXCHANGES; way++) {
        exchange_all((test_exchange)way);
    }
    return test_finish();
}
