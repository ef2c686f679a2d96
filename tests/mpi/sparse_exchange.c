/* Letters between ranks that do not expect them, over MPI: every pattern, in pieces of every
 * length, rounds that overlap, a rank without memory, a rank that stays away, comes late or dies.
 */
#include "control_messages.h"
#include "mpi/common.h"
#include "transport/mpi/mpi.h"

#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT    0.5 /* seconds, where somebody does not come */
#define MOST_RANKS 64

static lierne_context *context_new(void) {
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    return context;
}

static lierne_status post(lierne_context *context, pattern p, int round, size_t most) {
    lierne_control_message letters[MOST_RANKS];
    lierne_control_messages received = {0};
    size_t n = letters_make(letters, p, round, test_rank, test_world, most), wrong;
    lierne_status status = lierne_context_sparse_exchange(context, letters, n, &received);
    if (status == LIERNE_OK) {
        wrong = letters_wrong(&received, p, round, test_rank, test_world, most);
        CHECK(wrong == 0, "pattern %d, round %d, up to %zu words: %zu wrong", (int)p, round, most,
              wrong);
    } else {
        CHECK(received.count == 0 && !received.at, "letters beside an error");
    }
    lierne_control_messages_destroy(&received);
    letters_drop(letters, n);
    return status;
}

static void every_pattern(lierne_context *context, size_t most) {
    for (int p = 0; p < PATTERNS; p++) {
        for (int round = 0; round < 5; round++) {
            CHECK(post(context, (pattern)p, round, most) == LIERNE_OK, "%s", lierne_last_error());
        }
    }
}

/* Lengths beside and at multiples of a piece are among those up to `most`. */
static void every_length_of_pieces(lierne_context *context) {
    const size_t chunks[] = {1, 8, 16, 40, 100};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        lierne_mpi_set_piece_bytes(context->transport_self, chunks[i]);
        every_pattern(context, 30);
    }
    lierne_mpi_set_piece_bytes(context->transport_self, (size_t)1 << 30);
    for (int round = 0; round < 3; round++) {
        CHECK(post(context, RING, round, 2 * LIERNE_MPI_SINK + 1) == LIERNE_OK, "%s",
              lierne_last_error());
    }
}

/* A letter of exactly some pieces, beside small ones. */
static void whole_pieces(lierne_context *context) {
    for (size_t pieces = 0; pieces < 4; pieces++) {
        lierne_control_message letters[2] = {{.peer = 0, .count = pieces * LIERNE_MPI_SINK},
                                             {.peer = test_world - 1, .count = 1}};
        lierne_control_messages received = {0};
        int64_t *words = calloc(letters[0].count + 1, sizeof *words);
        for (size_t i = 0; i < letters[0].count; i++) {
            words[i] = (int64_t)i * 3 + test_rank;
        }
        int64_t small = test_rank;
        letters[0].words = words;
        letters[1].words = &small;
        CHECK(lierne_context_sparse_exchange(context, letters, test_world > 1 ? 2 : 1, &received) ==
                  LIERNE_OK,
              "%s", lierne_last_error());
        bool ends = test_rank == 0 || test_rank == test_world - 1;
        CHECK(received.count == (ends ? (size_t)test_world : 0), "%zu letters", received.count);
        for (size_t r = 0; r < received.count; r++) {
            const lierne_control_message *l = &received.at[r];
            size_t wrong = l->peer != (int)r || l->count != letters[test_rank != 0].count;
            for (size_t i = 0; i < l->count && wrong == 0; i++) {
                wrong += l->words[i] != (int64_t)(test_rank == 0 ? i * 3 + r : r);
            }
            CHECK(wrong == 0, "letter of rank %d, %zu pieces", l->peer, pieces);
        }
        lierne_control_messages_destroy(&received);
        free(words);
    }
}

/* More messages from one rank than may be in flight at a time. */
static void many_pieces(lierne_context *context) {
    lierne_mpi_set_piece_bytes(context->transport_self, 8);
    CHECK(post(context, EVERYBODY, 5, 300) == LIERNE_OK, "%s", lierne_last_error());
    lierne_mpi_set_piece_bytes(context->transport_self, (size_t)1 << 30);
}

static void ranks_run_ahead(lierne_context *context) {
    for (int round = 0; round < 200; round++) {
        CHECK(post(context, SPARSE, round, 40) == LIERNE_OK, "%s", lierne_last_error());
        int64_t values[LIERNE_MAX_REDUCED] = {test_rank * (round % 3 - 1) - 7, round};
        values[LIERNE_MAX_REDUCED - 1] = -test_rank;
        if (round % 4 == test_rank % 4) {
            sched_yield();
        }
        if (round % 2 == 0) {
            CHECK(lierne_context_allreduce_max(context, values, LIERNE_MAX_REDUCED) == LIERNE_OK,
                  "%s", lierne_last_error());
            CHECK(values[0] == (round % 3 == 2 ? test_world - 1 : 0) - 7 && values[1] == round &&
                      values[LIERNE_MAX_REDUCED - 1] == 0,
                  "round %d: %lld, %lld", round, (long long)values[0], (long long)values[1]);
        }
        if (round % 8 == 0) {
            lierne_field field = {.name = "round", .value = round};
            CHECK(lierne_context_agree_all(context, LIERNE_OK, &field, 1, NULL) == LIERNE_OK, "%s",
                  lierne_last_error());
        }
    }
}

static void an_error_kills_nothing(lierne_context *context, int bad) {
    lierne_status mine = LIERNE_OK;
    if (test_rank == bad) {
        mine = LIERNE_FAIL(LIERNE_INDEX_RANGE, "row 7 of rank %d", test_rank);
    }
    test_same_error(lierne_context_agree_all(context, mine, NULL, 0, NULL), LIERNE_INDEX_RANGE,
                    "settling");
    CHECK(post(context, EVERYBODY, 1, 5) == LIERNE_OK, "%s", lierne_last_error());
}

/* Every allocation of one rank fails by turns, with letters of one and of many pieces. */
static void without_memory(lierne_context *context, int bad, size_t chunk) {
    lierne_status status = LIERNE_NO_MEMORY;
    int k = 0, last = LIERNE_NO_MEMORY;
    lierne_mpi_set_piece_bytes(context->transport_self, chunk);
    while (last != LIERNE_OK && ++k < 1000) {
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(test_rank == bad ? (size_t)k : 0);
        status = post(context, EVERYBODY, 2, 100);
        lierne_mem_fail_at(0);
        CHECK(status == LIERNE_OK || (test_rank == bad && status == LIERNE_NO_MEMORY), "%s",
              lierne_last_error());
        CHECK(lierne_mem_live() == before, "allocation %d: a leak", k);
        CHECK(post(context, SPARSE, k, 100) == LIERNE_OK, "%s", lierne_last_error());
        last = (int)status;
        MPI_Bcast(&last, 1, MPI_INT, bad, MPI_COMM_WORLD);
    }
    CHECK(k > test_world && k < 1000, "posting works from allocation %d on", k);
    lierne_mpi_set_piece_bytes(context->transport_self, (size_t)1 << 30);
}

/* Longer than what MPI sends at once, so that taking it without keeping it is work, too. */
static void long_letter_without_memory(lierne_context *context) {
    size_t words = 3 * LIERNE_MPI_SINK + 5;
    lierne_control_message letter = {.peer = 0, .count = words, .words = calloc(words, 8)};
    lierne_control_messages received = {0};
    lierne_mem_fail_at(test_rank == 0 ? 3 : 0);
    lierne_status status = lierne_context_sparse_exchange(context, &letter, 1, &received);
    lierne_mem_fail_at(0);
    CHECK(status == (test_rank == 0 ? LIERNE_NO_MEMORY : LIERNE_OK), "%s",
          lierne_status_name(status));
    CHECK(received.count == 0, "%zu letters", received.count);
    free(letter.words);
    CHECK(post(context, EVERYBODY, 9, 100) == LIERNE_OK, "%s", lierne_last_error());
}

/* Rank 0 comes when the others have given up, whose context is dead for good. Without letters all
 * have come to the meeting then, which does not count. Letters that were under way must outlive
 * their owner's interest: MPI reads them when rank 0 comes. */
static void stay_away(size_t letters, size_t words) {
    size_t before = lierne_mem_live();
    lierne_context *context = context_new();
    lierne_control_message letter = {.peer = 0, .count = words};
    lierne_control_messages received = {0};
    CHECK(lierne_alloc(&letter.words, words, 8) == LIERNE_OK, "%s", lierne_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
    test_hurry(context, TIMEOUT);
    if (test_rank == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    double start = lierne_now();
    lierne_status status = lierne_context_sparse_exchange(context, &letter, letters, &received);
    double took = lierne_now() - start;
    CHECK(status == LIERNE_TIMEOUT, "%s", lierne_status_name(status));
    CHECK(test_rank == 0 || took > TIMEOUT * 0.9, "it took %g s", took);
    CHECK(test_rank != 0 || strstr(lierne_last_error(), "gave up"), "'%s'", lierne_last_error());
    CHECK(took < TIMEOUT + SLACK, "it took %g s", took);
    CHECK(received.count == 0 && !received.at, "letters beside an error");
    bool lends = context->control->has_pending_buffers(context->control_self);
    CHECK(test_rank == 0 || lends == (letters > 0), "lends %d", lends);
    /* The link, the letter, and letters that were on their way to this rank. */
    size_t left = 1 + lends + (test_rank == 0 ? letters * (size_t)test_world : 0);
    lierne_context_free_message_memory(context, letter.words);
    start = lierne_now();
    CHECK(post(context, SPARSE, 1, 4) == LIERNE_TIMEOUT, "a dead context lives on");
    CHECK(lierne_now() - start < SLACK, "a dead context took %g s", lierne_now() - start);
    if (test_rank != 0) {
        MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(lierne_mem_live() <= before + left, "%zu allocations leaked", lierne_mem_live() - before);
}

/* A descriptor of a process that has ended, in place of that of the last rank, which stays away. */
static void peer_dies(void) {
    lierne_context *context = context_new();
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
        CHECK(post(context, EVERYBODY, 1, 4) == LIERNE_PEER_FAILED, "%s", lierne_last_error());
        CHECK(post(context, EVERYBODY, 1, 4) == LIERNE_PEER_FAILED, "a dead context lives on");
        CHECK(lierne_now() - start < PATIENT / 2.0, "it took %g s", lierne_now() - start);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    context->dead = LIERNE_PEER_FAILED; /* of the last rank, which would wait for all to free */
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
}

int main(int argc, char **argv) {
    /* Long messages in one copy, as Open MPI prefers, and elsewhere bit by bit. */
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (size && atoi(size) == 4) {
        setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    }
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    lierne_context *context = context_new();
    every_pattern(context, 20);
    every_pattern(context, 5000);
    every_length_of_pieces(context);
    whole_pieces(context);
    many_pieces(context);
    ranks_run_ahead(context);
    for (int i = 0; i < 2; i++) {
        int rank = i == 0 ? test_world - 1 : 0;
        an_error_kills_nothing(context, rank);
        without_memory(context, rank, (size_t)1 << 30);
        without_memory(context, rank, 24);
    }
    long_letter_without_memory(context);
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    if (test_world > 1) {
        stay_away(0, 0);
        stay_away(1, 10);
        stay_away(1, 3 * LIERNE_MPI_SINK);
        peer_dies();
    }
    return test_finish();
}
