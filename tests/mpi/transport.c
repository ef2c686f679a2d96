/* The control and transport of MPI without plans: creating and destroying contexts, agreements,
 * messages of every length in pieces. An error of one rank must reach all ranks with the same
 * message. */
#include "backend/mpi/mpi_transport.h"
#include "mpi/common.h"
#include "runtime/context/context.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local long yields;

/* Replaces the system's function in the library too. */
int sched_yield(void) {
    yields++;
    return (int)syscall(SYS_sched_yield);
}

static lierne_context *context_new(const lierne_context_spec *spec) {
    lierne_context *context;
    CHECK_OK(test_context_create(&context, MPI_COMM_WORLD, spec));
    return context;
}

static void context_free(lierne_context *context) {
    CHECK_OK(lierne_context_destroy(context));
}

static void create_and_destroy_leak_nothing(void) {
    size_t before = lierne_mem_live();
    for (int i = 0; i < 100; i++) {
        lierne_context *context = context_new(NULL);
        CHECK(lierne_context_get_rank(context) == test_rank &&
                  lierne_context_get_world_size(context) == test_world,
              "rank %d of %d", lierne_context_get_rank(context),
              lierne_context_get_world_size(context));
        context_free(context);
    }
    CHECK(lierne_mem_live() == before, "%zu allocations alive, %zu before", lierne_mem_live(),
          before);
}

static void comm_is_a_subset_with_other_ranks(void) {
    MPI_Comm half;
    lierne_context *context;
    int odd = test_rank % 2, size;
    MPI_Comm_split(MPI_COMM_WORLD, odd, -test_rank, &half);
    MPI_Comm_size(half, &size);
    CHECK_OK(test_context_create(&context, half, NULL));
    CHECK(lierne_context_get_world_size(context) == size, "world %d of %d",
          lierne_context_get_world_size(context), size);
    CHECK(lierne_context_get_rank(context) == size - 1 - test_rank / 2, "rank %d",
          lierne_context_get_rank(context));
    context_free(context);
    MPI_Comm_free(&half);
}

/* Runs lierne_context_create_mpi with something wrong on rank `bad` only. */
static void creation_fails(const char *what, const lierne_context_spec *spec, lierne_context **out,
                           lierne_status wanted) {
    size_t before = lierne_mem_live();
    lierne_status status = test_context_create(out, MPI_COMM_WORLD, spec);
    test_same_error(status, wanted, what);
    CHECK(!out || !*out, "%s: a context beside the error", what);
    CHECK(lierne_mem_live() == before, "%s: %zu allocations leaked", what,
          lierne_mem_live() - before);
}

static void creation_fails_alike_on_all_ranks(int bad) {
    lierne_context *context = NULL;
    bool mine = test_rank == bad;
    lierne_context_spec spec = {.size = sizeof spec};
    spec.timeout = mine ? -1 : 0;
    creation_fails("timeout", &spec, &context, LIERNE_ERR_INVALID);
    CHECK(strstr(lierne_last_error(), "-1") != NULL, "no value in '%s'", lierne_last_error());
    spec.timeout = 0;
    spec.size = mine ? 1 : sizeof spec;
    creation_fails("size", &spec, &context, LIERNE_ERR_INVALID);
    creation_fails("out", NULL, mine ? NULL : &context, LIERNE_ERR_INVALID);
    static const char *const nodes[] = {"here", "", "1.5", " 1", "-1", "1000000000", "1x"};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        if (mine) {
            setenv("LIERNE_NODE", nodes[i], 1);
        }
        creation_fails(nodes[i], NULL, &context, LIERNE_ERR_INVALID);
        CHECK(strstr(lierne_last_error(), "LIERNE_NODE is '") != NULL, "no value in '%s'",
              lierne_last_error());
        unsetenv("LIERNE_NODE");
    }
    if (mine) {
        setenv("LIERNE_TIMEOUT_MS", "0", 1);
    }
    creation_fails("LIERNE_TIMEOUT_MS", NULL, &context, LIERNE_ERR_INVALID);
    unsetenv("LIERNE_TIMEOUT_MS");
    CHECK(test_context_create(&context, MPI_COMM_NULL, NULL) == LIERNE_ERR_INVALID,
          "MPI_COMM_NULL");
}

/* Fails each allocation of one rank in one round, until creating a context works, and some that it
 * works without: all ranks then have the same transports. */
static void create_without_memory(int bad) {
    enum { ENOUGH = 8 };
    int k = 0, created = 0;
    setenv("LIERNE_ADDRESS", "127.0.0.1", 1); /* a port is opened, too */
    while (created < ENOUGH && ++k < 100) {
        lierne_context *context;
        size_t before = lierne_mem_live();
        lierne_mem_fail_at(test_rank == bad ? (size_t)k : 0);
        lierne_status status = test_context_create(&context, MPI_COMM_WORLD, NULL);
        lierne_mem_fail_at(0);
        int last = (int)status;
        MPI_Bcast(&last, 1, MPI_INT, bad, MPI_COMM_WORLD);
        if (last == LIERNE_OK) {
            CHECK_OK(status);
            int n = context->ncarriers;
            MPI_Bcast(&n, 1, MPI_INT, bad, MPI_COMM_WORLD);
            CHECK(context->ncarriers == n, "%d transports, not %d", context->ncarriers, n);
            created++;
            context_free(context);
        } else {
            test_same_error(status, LIERNE_ERR_NO_MEMORY, "creating without memory");
        }
        CHECK(lierne_mem_live() == before, "allocation %d: a leak", k);
    }
    unsetenv("LIERNE_ADDRESS");
    CHECK(k > 2, "creating works without %d allocations", k);
}

static void nodes_are_found(void) {
    lierne_context *context = context_new(NULL);
    int nodes[64];
    CHECK(context->nodes == NULL, "ranks of one host on several nodes");
    context_free(context);
    setenv("LIERNE_NODE", "999999999", 1);
    context_free(context_new(NULL));
    unsetenv("LIERNE_NODE");
    for (int r = 0; r < test_world && r < 64; r++) {
        nodes[r] = 7 - r / 2;
    }
    lierne_context_spec spec = {.size = sizeof spec, .nodes = nodes};
    context = context_new(&spec);
    for (int r = 0; context->nodes && r < test_world; r++) {
        CHECK(context->nodes[r] == r / 2 * 2, "rank %d on node %d", r, context->nodes[r]);
    }
    CHECK((context->nodes != NULL) == (test_world > 2), "nodes of %d ranks", test_world);
    context_free(context);
    if (test_rank == test_world - 1) {
        setenv("LIERNE_NODE", "9", 1);
    }
    context = context_new(&spec);
    unsetenv("LIERNE_NODE");
    int last = test_world - 1;
    CHECK(test_world < 2 || (context->nodes && context->nodes[last] == last),
          "LIERNE_NODE does not win");
    context_free(context);
    nodes[0] += test_rank == last;
    if (test_world > 1) {
        creation_fails("nodes that differ", &spec, &context, LIERNE_ERR_MISMATCH);
        const lierne_links links = {.other_node = {.latency_ns = test_rank == last}};
        spec.nodes = NULL, spec.links = &links;
        creation_fails("links that differ", &spec, &context, LIERNE_ERR_MISMATCH);
    }
}

/* Agrees on n fields; ranks from `odd` on have another value of field `index`. */
static void agree_on_fields(lierne_context *context, int n, int odd, int index) {
    lierne_field fields[100] = {{.name = ""}};
    char wanted[128];
    int id = -1;
    for (int i = 0; i < n; i++) {
        snprintf(fields[i].name, sizeof fields[i].name, "field%d", i);
        fields[i].value = i == index && test_rank >= odd ? -5 : i;
    }
    lierne_status status = lierne_context_agree(context, LIERNE_OK, fields, (size_t)n, &id);
    if (index >= n || odd >= test_world) {
        CHECK(status == LIERNE_OK && id >= 0, "%s", lierne_last_error());
        return;
    }
    test_same_error(status, LIERNE_ERR_MISMATCH, "fields");
    snprintf(wanted, sizeof wanted, "field%d differs between ranks: %d on rank 0, -5 on rank %d",
             index, index, odd);
    CHECK(strstr(lierne_last_error(), wanted) != NULL, "'%s', wanted '%s'", lierne_last_error(),
          wanted);
}

static void fields_that_differ_are_named(lierne_context *context) {
    static const int counts[] = {0, 1, 31, 32, 33, 64, 100};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int n = counts[c];
        agree_on_fields(context, n, 1, n);
        agree_on_fields(context, n, 1, n - 1 < 0 ? 0 : n - 1);
        agree_on_fields(context, n, test_world - 1 < 1 ? 1 : test_world - 1, n / 2);
    }
}

static void counts_that_differ_are_named(lierne_context *context) {
    lierne_field fields[2] = {{.name = "a", .value = 1}, {.name = "b", .value = 2}};
    size_t few = test_rank == test_world - 1;
    int id;
    if (test_world > 1) {
        lierne_status status = lierne_context_agree(context, LIERNE_OK, fields, 2 - few, &id);
        test_same_error(status, LIERNE_ERR_MISMATCH, "one field less");
        status = lierne_context_agree(context, LIERNE_OK, fields, 1 + few, &id);
        test_same_error(status, LIERNE_ERR_MISMATCH, "one field more");
        CHECK(strstr(lierne_last_error(), "b differs") != NULL, "'%s'", lierne_last_error());
        fields[1].name[0] = few ? 'c' : 'b';
        status = lierne_context_agree(context, LIERNE_OK, fields, 2, &id);
        test_same_error(status, LIERNE_ERR_MISMATCH, "another name");
    }
}

/* Lists of several pages whose item `at` differs from rank `odd` on. */
static void agree_on_lists(lierne_context *context, int odd, size_t at) {
    enum { ITEMS = 1000 };
    int32_t numbers[ITEMS];
    double reals[ITEMS];
    char wanted[128];
    int id;
    for (int i = 0; i < ITEMS; i++) {
        numbers[i] = 3 * i + 1;
        reals[i] = i + 0.5;
    }
    numbers[at] += test_rank >= odd;
    reals[at] += 0.25 * (test_rank >= odd);
    lierne_field fields[] = {{.name = "call"},
                             lierne_field_list("a", LIERNE_ITEM_I32, numbers, ITEMS)};
    /* A rank with fewer fields than the two that are compared takes part too. */
    size_t n = test_rank > odd ? 1 : 2;
    lierne_status status = lierne_context_agree(context, LIERNE_OK, fields, n, &id);
    test_same_error(status, LIERNE_ERR_MISMATCH, "lists");
    snprintf(wanted, sizeof wanted, "a[%zu] differs between ranks: %d on rank 0, %d on rank %d", at,
             3 * (int)at + 1, 3 * (int)at + 2, odd);
    CHECK(strstr(lierne_last_error(), wanted), "'%s', wanted '%s'", lierne_last_error(), wanted);
    fields[1] = lierne_field_list("b", LIERNE_ITEM_F64, reals, ITEMS);
    status = lierne_context_agree(context, LIERNE_OK, fields, 2, &id);
    test_same_error(status, LIERNE_ERR_MISMATCH, "real numbers");
    snprintf(wanted, sizeof wanted,
             "b[%zu] differs between ranks: %zu.5 on rank 0, %zu.75 on rank %d", at, at, at, odd);
    CHECK(strstr(lierne_last_error(), wanted), "'%s', wanted '%s'", lierne_last_error(), wanted);
    fields[1] = lierne_field_text("c", test_rank >= odd ? "other" : "one");
    status = lierne_context_agree(context, LIERNE_OK, fields, 2, &id);
    test_same_error(status, LIERNE_ERR_MISMATCH, "texts");
    CHECK(strstr(lierne_last_error(), "c differs between ranks: 'one' on rank 0, 'other' on rank"),
          "'%s'", lierne_last_error());
    fields[1] = lierne_field_list("d", LIERNE_ITEM_I32, test_rank >= odd ? NULL : numbers, ITEMS);
    status = lierne_context_agree(context, LIERNE_OK, fields, 2, &id);
    test_same_error(status, LIERNE_ERR_MISMATCH, "no list");
    CHECK(strstr(lierne_last_error(), "d differs between ranks: 1000 entries on rank 0, NULL on"),
          "'%s'", lierne_last_error());
}

static void items_that_differ_are_named(lierne_context *context) {
    static const size_t places[] = {0, 1, 500, 999};
    for (size_t p = 0; p < sizeof places / sizeof *places && test_world > 1; p++) {
        agree_on_lists(context, 1, places[p]);
        agree_on_lists(context, test_world - 1, places[p]);
    }
}

static void the_lowest_failure_wins(lierne_context *context) {
    for (int low = 0; low < test_world; low++) {
        lierne_field field = {.name = "same",
                              .value = test_rank}; /* differs, but failures come first */
        lierne_status mine = LIERNE_OK;
        char wanted[64];
        int id;
        if (test_rank >= low) {
            mine = LIERNE_FAIL(test_rank == low ? LIERNE_ERR_IO : LIERNE_ERR_SYNTAX, "rank %d",
                               test_rank);
        }
        snprintf(wanted, sizeof wanted, "rank %d", low);
        lierne_status status = lierne_context_agree(context, mine, &field, 1, &id);
        test_same_error(status, LIERNE_ERR_IO, "failures of several ranks");
        CHECK(strcmp(lierne_last_error(), wanted) == 0, "'%s'", lierne_last_error());
    }
}

static const lierne_transport *transport_of(const lierne_context *context) {
    return context->carriers[context->ncarriers - 1].transport;
}

static void *state_of(const lierne_context *context) {
    return context->carriers[context->ncarriers - 1].self;
}

/* Polls until `wanted` slots are done or the transport fails. */
static lierne_status drain(lierne_context *context, void *batch, size_t wanted) {
    size_t done[64], n;
    while (wanted > 0) {
        LIERNE_TRY(transport_of(context)->poll(batch, done, &n));
        wanted -= n;
        if (n == 0) {
            context->control->idle(context->control_self);
        }
    }
    return LIERNE_OK;
}

static unsigned char byte_of(int rank, size_t message, size_t i) {
    return (unsigned char)mix((uint64_t)rank * 7919 + message * 104729 + i);
}

/* Every rank sends `lengths` messages of 0, 1, 2 ... bytes to the next rank with one tag. The tag
 * of the receives, `same`, may be a different number that the transport maps to the same MPI tag.
 */
static void messages_of_every_length(lierne_context *context, size_t chunk, int tag, int same) {
    enum { lengths = 24 };
    unsigned char out[lengths][lengths], in[lengths][lengths];
    int next = (test_rank + 1) % test_world, last = (test_rank + test_world - 1) % test_world;
    const lierne_transport *w = transport_of(context);
    void *batch;
    test_cut_messages(context, chunk);
    CHECK(w->batch_create(state_of(context), 2 * lengths, &batch) == LIERNE_OK, "no batch");
    memset(in, 0xa5, sizeof in);
    for (size_t m = 0; m < lengths; m++) {
        for (size_t i = 0; i < m; i++) {
            out[m][i] = byte_of(test_rank, m, i);
        }
        const lierne_posting receive = {
            .slot = m, .peer = last, .receives = true, .bytes = m, .data = in[m]};
        const lierne_posting send = {.slot = lengths + m, .peer = next, .bytes = m, .data = out[m]};
        CHECK_OK(w->post(batch, same, &receive, 1));
        CHECK_OK(w->post(batch, tag, &send, 1));
    }
    CHECK_OK(drain(context, batch, 2 * lengths));
    for (size_t m = 0; m < lengths; m++) {
        size_t wrong = 0;
        for (size_t i = 0; i < lengths; i++) {
            wrong += in[m][i] != (i < m ? byte_of(last, m, i) : 0xa5);
        }
        CHECK(wrong == 0, "%zu bytes of a message of %zu in pieces of %zu are wrong", wrong, m,
              chunk);
    }
    w->batch_destroy(batch);
    test_cut_messages(context, (size_t)1 << 30);
}

/* Rank 0 sends `sent` bytes to rank 1, which expects `expected`. */
static void lengths_that_differ(size_t sent, size_t expected, size_t chunk) {
    const int match = 3 * LIERNE_CALL_IDS;
    char data[64] = {0};
    lierne_context *context = context_new(NULL);
    void *batch;
    lierne_status status = LIERNE_OK;
    test_cut_messages(context, chunk);
    CHECK(transport_of(context)->batch_create(state_of(context), 1, &batch) == LIERNE_OK,
          "no batch");
    if (test_rank == 0) {
        lierne_posting send = {.peer = 1, .data = data, .bytes = sent};
        status = transport_of(context)->post(batch, match, &send, 1);
    } else if (test_rank == 1) {
        lierne_posting receive = {.receives = true, .data = data, .bytes = expected};
        status = transport_of(context)->post(batch, match, &receive, 1);
        status = status == LIERNE_OK ? drain(context, batch, 1) : status;
        CHECK(status == LIERNE_ERR_MISMATCH, "%zu bytes for %zu in pieces of %zu: %s", sent,
              expected, chunk, lierne_status_name(status));
        CHECK(strstr(lierne_last_error(), "from rank 0 with tag 3") != NULL, "'%s'",
              lierne_last_error());
        bool too_long = sent > expected && chunk == 1000; /* MPI's own error then */
        CHECK((strstr(lierne_last_error(), " and received ") == NULL) == too_long || chunk != 1000,
              "'%s'", lierne_last_error());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    lierne_context_kill(context, LIERNE_ERR_TRANSPORT);
    transport_of(context)->batch_destroy(batch);
    context_free(context);
}

static void messages(lierne_context *context) {
    static const size_t lengths[] = {0, 1, 3, 4, 5, 8, 12, 13};
    size_t n = sizeof lengths / sizeof *lengths;
    static const size_t chunks[] = {1, 2, 3, 4, 7, 23, 1000};
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        messages_of_every_length(context, chunks[c], (int)c, (int)c);
    }
    messages_of_every_length(context, 1000, INT_MAX, INT_MAX);
    messages_of_every_length(context, 1000, LIERNE_CALL_IDS, 2 * LIERNE_CALL_IDS - 1);
    for (size_t i = 0; i < n * n && test_world > 1; i++) {
        if (i / n != i % n) {
            lengths_that_differ(lengths[i / n], lengths[i % n], i % 2 ? 4 : 1000);
        }
    }
}

/* MPICH raises errors of messages on MPI_COMM_WORLD (lierne/mpi.h). */
/* A list of transports that one rank alone has, or that no rank understands. */
static void lists_of_transports(void) {
    lierne_context *context;
    bool last = test_rank == test_world - 1;
    setenv("LIERNE_TRANSPORTS", "self,mpi", 1);
    context_free(context_new(NULL));
    setenv("LIERNE_TRANSPORTS", last ? "mpi" : "self,mpi", 1);
    if (test_world > 1) {
        creation_fails("lists that differ", NULL, &context, LIERNE_ERR_MISMATCH);
        CHECK(strstr(lierne_last_error(), "LIERNE_TRANSPORTS"), "'%s'", lierne_last_error());
    }
    setenv("LIERNE_TRANSPORTS", last ? "mpi,upi" : "mpi", 1);
    creation_fails("an unknown name", NULL, &context, LIERNE_ERR_INVALID);
    CHECK(strstr(lierne_last_error(), "LIERNE_TRANSPORTS names 'upi'"), "'%s'",
          lierne_last_error());
    unsetenv("LIERNE_TRANSPORTS");
}

/* Where ranks outnumber the cores, and not in every poll. */
static void some_polls_yield(const lierne_context *context) {
    lierne_mpi_state *m = context->control_self;
    const bool before = m->crowded;
    for (int crowded = 0; crowded < 2; crowded++) {
        long first = yields;
        m->crowded = crowded;
        for (int i = 0; i < 3 * LIERNE_MPI_POLLS_PER_YIELD; i++) {
            context->control->idle(m);
        }
        CHECK(yields - first == 3 * crowded, "%ld yields", yields - first);
    }
    m->crowded = before;
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    create_and_destroy_leak_nothing();
    comm_is_a_subset_with_other_ranks();
    for (int bad = 0; bad<test_world; bad += test_world> 2 ? test_world - 1 : 1) {
        creation_fails_alike_on_all_ranks(bad);
        create_without_memory(bad);
    }
    nodes_are_found();
    lists_of_transports();
    size_t before = lierne_mem_live();
    lierne_context *context = context_new(NULL);
    fields_that_differ_are_named(context);
    counts_that_differ_are_named(context);
    items_that_differ_are_named(context);
    the_lowest_failure_wins(context);
    messages(context);
    some_polls_yield(context);
    context_free(context);
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    return test_finish();
}
