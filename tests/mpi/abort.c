/* A rank that cannot make the calls that the others wait for. In a context that does not check
 * calls, a bad argument is that rank's INVALID alone and nothing has started: it may call again. Or
 * it says so with lierne_context_abort: the others get its status and its reason at once, long
 * before their deadline, whatever they wait in. And lierne_context_destroy_all destroys a context
 * with what was made from it. With the argument "apart", each rank is a node of its own. */
#include "mpi/common.h"

#include "lierne/collective.h"
#include "lierne/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 24 };

typedef struct setup {
    lierne_context *context;
    lierne_plan *plan;
    float *in, *out;
} setup;

static lierne_status plan_all(lierne_plan **plan, lierne_context *context) {
    bridge_case c = case_of_samples(test_world, ROW / 4, mesh_of("tcd", test_world, 1, 1));
    return case_plan(plan, context, &c);
}

static setup open_setup(void) {
    setup s = {.context = test_context(PATIENT),
               .in = test_buffer(ROW * sizeof(float)),
               .out = test_buffer((size_t)(ROW * test_world) * sizeof(float))};
    CHECK_OK(plan_all(&s.plan, s.context));
    for (int i = 0; i < ROW; i++) {
        s.in[i] = (float)(ROW * test_rank + i + 1);
    }
    return s;
}

static void works(setup *s) {
    int wrong = 0;
    memset(s->out, 0xa5, (size_t)(ROW * test_world) * sizeof *s->out);
    CHECK_OK(lierne_plan_forward(s->plan, s->out, s->in, NULL));
    for (int i = 0; i < ROW * test_world; i++) {
        wrong += s->out[i] != (float)(i + 1);
    }
    CHECK(wrong == 0, "%d wrong elements", wrong);
}

static void rejects_null(setup *s) {
    CHECK(lierne_plan_forward(s->plan, s->out, NULL, NULL) == LIERNE_ERR_INVALID,
          "in NULL was taken");
}

/* The rank calls again, after others have begun to wait for it. */
static void calls_again(setup *s, int who) {
    if (test_rank == who) {
        rejects_null(s);
    }
    works(s);
}

typedef enum waiting { IN_FORWARD, IN_PLANNING, IN_A_REQUEST, WAYS } waiting;

static lierne_status wait_for_it(setup *s, waiting where) {
    lierne_plan *other = NULL;
    lierne_request *request = NULL;
    lierne_status status;
    switch (where) {
    case IN_FORWARD:
        return lierne_plan_forward(s->plan, s->out, s->in, NULL);
    case IN_PLANNING:
        status = plan_all(&other, s->context);
        CHECK(other == NULL, "a plan beside an error");
        return status;
    default:
        status = lierne_plan_forward_begin(&request, s->plan, s->out, s->in, NULL);
        return status == LIERNE_OK ? lierne_request_end(request) : status;
    }
}

static void aborts(int who, waiting where) {
    setup s = open_setup();
    double start = MPI_Wtime();
    lierne_status status = LIERNE_ERR_INVALID;
    works(&s);
    MPI_Barrier(MPI_COMM_WORLD); /* a call that has not ended elsewhere would fail, too */
    if (test_rank == who) {
        rejects_null(&s);
        CHECK(lierne_context_abort(s.context, LIERNE_ERR_INVALID, lierne_last_error()) == LIERNE_OK,
              "abort");
        CHECK(lierne_context_abort(s.context, LIERNE_ERR_IO, "again") == LIERNE_OK,
              "of a dead one");
        status = lierne_plan_forward(s.plan, s.out, s.in, NULL);
    } else {
        status = wait_for_it(&s, where);
        CHECK(strstr(lierne_last_error(), "gave up") != NULL, "%s", lierne_last_error());
    }
    CHECK(status == LIERNE_ERR_INVALID, "%s: %s", lierne_status_name(status), lierne_last_error());
    CHECK(strstr(lierne_last_error(), "in is NULL") != NULL, "%s", lierne_last_error());
    CHECK(MPI_Wtime() - start < PATIENT / 2, "not before %g s", MPI_Wtime() - start);
    CHECK_OK(lierne_context_destroy_all(s.context));
}

/* This rank's plan with the next one; the other ranks' plans are made, too. */
static lierne_plan *plan_with_next(lierne_context *context) {
    lierne_plan *own = NULL;
    for (int first = 0; first < test_world - 1; first++) {
        int ranks[2] = {first, first + 1};
        lierne_all_reduce_spec spec = {.size = sizeof spec,
                                       .count = ROW,
                                       .dtype = LIERNE_DTYPE_F32,
                                       .ranks = ranks,
                                       .nranks = 2};
        lierne_plan *plan;
        CHECK_OK(lierne_plan_create_all_reduce(&plan, context, &spec));
        own = first == test_rank ? plan : own;
    }
    return own;
}

/* Each rank waits for the next one only, which has given up with the error of the one after it: the
 * last rank's error is told once, as the last rank's. */
static void passes_on(void) {
    setup s = open_setup();
    lierne_plan *plan = plan_with_next(s.context);
    int last = test_world - 1;
    char cause[64];
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == last) {
        CHECK(lierne_context_abort(s.context, LIERNE_ERR_IO, "the disk is full") == LIERNE_OK,
              "abort");
    } else {
        MPI_Recv(NULL, 0, MPI_BYTE, test_rank + 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        lierne_status status = lierne_plan_forward(plan, s.out, s.in, NULL);
        const char *text = lierne_last_error(), *told;
        snprintf(cause, sizeof cause, "rank %d gave up: lierne_context_abort: the disk", last);
        CHECK(status == LIERNE_ERR_IO, "%s: %s", lierne_status_name(status), text);
        told = strstr(text, cause);
        CHECK(told && strstr(text, "gave up") == strstr(told, "gave up") &&
                  !strstr(told + strlen(cause), "gave up"),
              "%s", text);
    }
    if (test_rank > 0) {
        MPI_Send(NULL, 0, MPI_BYTE, test_rank - 1, 0, MPI_COMM_WORLD);
    }
    CHECK_OK(lierne_context_destroy_all(s.context));
}

/* A rank destroys its context while the others go on: who calls later learns it at once, where
 * ranks share flags. */
static void leaves_alone(void) {
    setup s = open_setup();
    works(&s);
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank == test_world - 1) {
        test_hurry(s.context, 0.3);
        CHECK_OK(lierne_context_destroy_all(s.context));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank < test_world - 1) {
        double start = MPI_Wtime();
        lierne_status status = lierne_plan_forward(s.plan, s.out, s.in, NULL);
        CHECK(status == LIERNE_ERR_PEER_FAILED, "%s: %s", lierne_status_name(status),
              lierne_last_error());
        CHECK(strstr(lierne_last_error(), "has destroyed its context") != NULL, "%s",
              lierne_last_error());
        CHECK(MPI_Wtime() - start < PATIENT / 2, "not before %g s", MPI_Wtime() - start);
        CHECK_OK(lierne_context_destroy_all(s.context));
    }
}

static void arguments(void) {
    setup s = open_setup();
    CHECK(lierne_context_abort(NULL, LIERNE_ERR_INVALID, "x") == LIERNE_ERR_INVALID, "no context");
    CHECK(lierne_context_abort(s.context, LIERNE_ERR_INVALID, NULL) == LIERNE_ERR_INVALID,
          "no reason");
    CHECK(lierne_context_abort(s.context, LIERNE_OK, "x") == LIERNE_ERR_INVALID, "no error");
    works(&s);
    CHECK(lierne_context_destroy(s.context) == LIERNE_ERR_INVALID, "under its plan");
    CHECK(strstr(lierne_last_error(), "lierne_context_destroy_all") != NULL, "no remedy");
    CHECK_OK(lierne_context_destroy_all(s.context));
    CHECK(lierne_context_destroy_all(NULL) == LIERNE_OK, "NULL");
}

/* Coalesced plans hold their plans, a plan with variable rows owns another one, and groups. */
static void destroys_all(void) {
    setup s = open_setup();
    mesh one = mesh_of("tcd", 1, 1, test_world);
    lierne_grid *grid = mesh_grid(&one, test_world);
    const int64_t shape[3] = {test_world, 4, 2};
    lierne_bridge_spec spec = bridge_spec_of(grid, grid, shape);
    const int first = 0;
    const lierne_group_spec group_spec = {
        .size = sizeof group_spec, .purpose = "x", .ngroups = 1, .group_size = 1, .ranks = &first};
    lierne_plan *variable = NULL, *transposed = NULL;
    lierne_coalesced *both = NULL;
    lierne_group *group = NULL;
    lierne_request *request = NULL;
    spec.variable_rows = 1;
    CHECK(lierne_plan_create_bridge(&variable, s.context, &spec) == LIERNE_OK, "variable");
    CHECK(lierne_plan_create_transposed(&transposed, s.plan) == LIERNE_OK, "transposed");
    CHECK(lierne_coalesced_create(&both, (lierne_plan *[]){s.plan, transposed}, 2) == LIERNE_OK,
          "coalesced");
    CHECK(lierne_group_create(&group, s.context, &group_spec) == LIERNE_OK, "group");
    CHECK(lierne_plan_forward_begin(&request, s.plan, s.out, s.in, NULL) == LIERNE_OK, "begin");
    CHECK(lierne_context_destroy_all(s.context) == LIERNE_ERR_BUSY, "with a request in flight");
    CHECK_OK(lierne_request_end(request));
    works(&s);
    CHECK_OK(lierne_context_destroy_all(s.context));
    lierne_grid_destroy(grid);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    if (argc > 1) {
        char node[16];
        snprintf(node, sizeof node, "%d", test_rank);
        setenv("LIERNE_NODE", node, 1);
    }
    size_t before = lierne_mem_live();
    arguments();
    destroys_all();
    setup s = open_setup();
    for (int who = 0; who < test_world; who++) {
        calls_again(&s, who);
    }
    CHECK_OK(lierne_context_destroy_all(s.context));
    CHECK(lierne_mem_live() == before, "leaked");
    for (waiting where = 0; test_world > 1 && where < WAYS; where++) {
        aborts(0, where);
        aborts(test_world - 1, where);
    }
    passes_on();
    if (test_world > 1 && argc == 1) {
        leaves_alone();
    }
    return test_finish();
}
