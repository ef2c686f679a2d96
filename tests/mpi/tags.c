/* Over an MPI that has few tags, messages of plans that are in flight together never match, however
 * many plans came before; a plan for which no tags are left is an error on every rank. */
#include "mpi/common.h"

#include <stdlib.h>

enum { ROWS = 3, CALLS = 8, PLANS = 80 /* with one request, that the tags are for */, MOST = 100 };

/* In place of MPI's: what the library asks for, with another answer. */
int MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *found) {
    static int bound = 2 * PLANS + 1;
    if (key != MPI_TAG_UB) {
        return PMPI_Comm_get_attr(comm, key, value, found);
    }
    *(int **)value = &bound;
    *found = 1;
    return MPI_SUCCESS;
}

/* n calls at once, of rank 0 in the order of the plans, of the others in the opposite one. */
static void cross(lierne_plan *const *plans, int n, int call) {
    int64_t in[2][ROWS], out[2][ROWS];
    lierne_request *requests[2];
    for (int i = 0; i < 2 * ROWS; i++) {
        in[i / ROWS][i % ROWS] = 1000 * call + i;
        out[i / ROWS][i % ROWS] = -1;
    }
    for (int i = 0; i < n; i++) {
        int p = test_rank == 0 ? i : n - 1 - i;
        CHECK_OK(lierne_plan_forward_begin(&requests[p], plans[p], out[p], in[p], NULL));
    }
    for (int p = 0; p < n; p++) {
        CHECK_OK(lierne_request_end(requests[p]));
        for (int i = 0; i < ROWS && test_rank > 0; i++) {
            CHECK(out[p][i] == 1000 * call + p * ROWS + i, "call %d, plan %d, row %d: %lld", call,
                  p, i, (long long)out[p][i]);
        }
    }
}

/* The first plan lives while `between` others come and go, and is then calls ahead of the last. */
static void live_together(lierne_context *context, int between, int max_inflight) {
    lierne_plan *plans[2];
    CHECK_OK(test_plan_rows_of_0(&plans[0], context, ROWS, max_inflight));
    CHECK_OK(test_plan_rows_of_0(&plans[1], context, ROWS, 1));
    for (int i = 1; i < between; i++) {
        CHECK_OK(lierne_plan_destroy(plans[1]));
        CHECK_OK(test_plan_rows_of_0(&plans[1], context, ROWS, 1));
    }
    for (int call = 0; call < CALLS; call++) {
        cross(plans, 1, call);
        cross(plans, 2, call);
    }
    CHECK_OK(lierne_plan_destroy(plans[0]));
    CHECK_OK(lierne_plan_destroy(plans[1]));
}

static void run_out(lierne_context *context) {
    lierne_plan *plans[MOST];
    int n = 0;
    lierne_status status = LIERNE_OK;
    while (n < MOST && (status = test_plan_rows_of_0(&plans[n], context, ROWS, 1)) == LIERNE_OK) {
        n++;
    }
    test_same_error(status, LIERNE_ERR_NO_MEMORY, "a plan without tags");
    CHECK(n == PLANS, "%d plans at once", n);
    CHECK_OK(lierne_plan_destroy(plans[n / 2]));
    status = test_plan_rows_of_0(&plans[n / 2], context, ROWS, 2);
    test_same_error(status, LIERNE_ERR_NO_MEMORY, "two requests without tags");
    CHECK_OK(test_plan_rows_of_0(&plans[n / 2], context, ROWS, 1));
    cross((lierne_plan *[]){plans[n / 2], plans[0]}, 2, 0);
    cross((lierne_plan *[]){plans[n - 1], plans[n / 2]}, 2, 1);
    for (int i = 0; i < n; i++) {
        CHECK_OK(lierne_plan_destroy(plans[i]));
    }
}

static void run(lierne_context *context) {
    for (int between = 1; between < PLANS; between++) {
        live_together(context, between, 1 + between % 2);
    }
    run_out(context);
}

int main(int argc, char **argv) {
    setenv("LIERNE_TRANSPORTS", "mpi", 1);
    return test_main(&argc, &argv, run);
}
