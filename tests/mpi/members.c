/* Contexts over some ranks: the even and the odd ranks each have one, at the same time and with no
 * call on the others, and half of both have a third one over two grids. Ranks of the world of grids
 * and messages are not those of MPI: the i-th even one is rank EVEN + i, the i-th odd one ODD + i.
 */
#include "layouts.h"
#include "lierne/node.h"
#include "mpi/common.h"
#include "unit/redistribute_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVEN = 100, ODD = 200, WORLD = 131072, CASES = 40, MOST = 16 };

static int rank_of(int process) {
    return (process % 2 ? ODD : EVEN) + process / 2;
}

/* A context over processes first, first + step, ..., below end. Collective over them only. */
static lierne_status create(lierne_context **out, const int *processes, int n,
                            lierne_context_spec *spec) {
    MPI_Group world, group;
    MPI_Comm comm;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, n, processes, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &comm);
    lierne_status status = test_context_create(out, comm, spec);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return status;
}

/* The processes that are as even as this one, and their ranks. */
static int list_half(int *processes, int *ranks) {
    int n = 0;
    for (int p = test_rank % 2; p < test_world; p += 2) {
        processes[n] = p;
        ranks[n++] = rank_of(p);
    }
    return n;
}

static lierne_context_spec spec_of(const int *ranks, int n) {
    return (lierne_context_spec){.size = sizeof(lierne_context_spec),
                                 .timeout = PATIENT,
                                 .members = ranks,
                                 .nmembers = n,
                                 .world_size = WORLD};
}

/* --- redistributions, against their model --- */

static void run_redistribution(lierne_context *context, int seed) {
    static redistribute_case c, moved;
    lierne_plan *plan;
    random_redistribute(&c, (uint64_t)seed, lierne_context_get_nmembers(context));
    moved = c;
    moved.world = WORLD;
    for (int l = 0; l < CASE_LAYOUTS; l++) {
        moved.layouts[l].offset += lierne_context_get_member(context, 0);
    }
    lierne_status status = redistribute_plan(&plan, &moved, context);
    CHECK(status == LIERNE_OK, "seed %d: %s", seed, lierne_last_error());
    if (status == LIERNE_OK) {
        int index = lierne_context_find_member(context, lierne_context_get_rank(context));
        for (int d = 0; d < 2; d++) {
            const char *wrong = redistribute_run(&c, plan, index, (lierne_direction)d, NULL);
            CHECK(!wrong, "seed %d: %s\n%s", seed, wrong, redistribute_text(&c));
        }
        lierne_plan_destroy(plan);
    }
}

/* --- rows --- */

/* Ghosts of all members' rows, one each, in descending order of the ranks. */
static void run_rows(lierne_context *context, lierne_graph_algorithm algorithm) {
    int n = lierne_context_get_nmembers(context), rank = lierne_context_get_rank(context);
    int32_t owner[MOST];
    int64_t row[MOST] = {0}, own = rank, ghosts[MOST], sum;
    lierne_plan *plan;
    for (int k = 0; k < n; k++) {
        owner[k] = lierne_context_get_member(context, n - 1 - k);
    }
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = 1,
                                         .nghosts = n,
                                         .rank = owner,
                                         .row = row,
                                         .dtype = LIERNE_DTYPE_I64,
                                         .width = 1,
                                         .algorithm = algorithm};
    lierne_status status = lierne_plan_create_references(&plan, context, &spec);
    CHECK_OK(status);
    if (status != LIERNE_OK) {
        return;
    }
    lierne_graph_lists lists = {.size = sizeof lists};
    CHECK(lierne_plan_get_graph_lists(&lists, plan) == LIERNE_OK && lists.nsenders == n - 1 &&
              lists.nreceivers == n - 1,
          "%d senders", (int)lists.nsenders);
    for (int i = 0; i < n - 1; i++) {
        int peer = lierne_context_get_member(context, i);
        peer = peer < rank ? peer : lierne_context_get_member(context, i + 1);
        CHECK(lists.sender_ranks[i] == peer && lists.receiver_ranks[i] == peer,
              "sender %d is %d, must be %d", i, (int)lists.sender_ranks[i], peer);
    }
    CHECK_OK(lierne_plan_forward(plan, ghosts, &own, NULL));
    for (int k = 0; k < n; k++) {
        CHECK(ghosts[k] == owner[k], "ghost %d is %d", k, (int)ghosts[k]);
        ghosts[k] = rank + owner[k];
    }
    CHECK_OK(lierne_plan_adjoint(plan, &sum, ghosts, NULL));
    for (int k = 0; k < n; k++) {
        sum -= rank + owner[k];
    }
    CHECK(sum == 0, "the sum is off by %d", (int)sum);
    lierne_plan_destroy(plan);
}

/* --- one half of the ranks --- */

static lierne_context *create_half(void) {
    int processes[MOST], ranks[MOST], n = list_half(processes, ranks);
    lierne_context_spec spec = spec_of(ranks, n);
    lierne_context *context;
    CHECK_OK(create(&context, processes, n, &spec));
    CHECK(lierne_context_get_rank(context) == rank_of(test_rank), "rank");
    CHECK(lierne_context_get_world_size(context) == WORLD, "world");
    CHECK(lierne_context_get_nmembers(context) == n, "members");
    return context;
}

static void work(lierne_context *context) {
    for (int seed = 0; seed < CASES * (1 + test_rank % 2); seed++) {
        run_redistribution(context, 1000 * (test_rank % 2) + seed);
    }
    run_rows(context, LIERNE_GRAPH_ALGORITHM_DIRECT);
    run_rows(context, LIERNE_GRAPH_ALGORITHM_ALL_GATHER);
    run_rows(context, LIERNE_GRAPH_ALGORITHM_AUTO);
}

/* The even ranks create, work and destroy while the odd ones make no call of lierne, then the odd
 * ones while the even ones make none, then both at once. */
static void halves(void) {
    for (int turn = 0; turn < 3; turn++) {
        if (turn == 2 || test_rank % 2 == turn) {
            lierne_context *context = create_half();
            work(context);
            CHECK_OK(lierne_context_destroy(context));
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* --- two grids of the larger world --- */

static lierne_layout *rows_on(const lierne_grid *grid, lierne_placement_kind kind) {
    static const int64_t shape[2] = {24, 3};
    const lierne_placement placement = {.kind = kind};
    lierne_layout *layout = layout_on(grid, LIERNE_DTYPE_I64, 2, shape, &placement);
    CHECK(layout != NULL, "%s", lierne_last_error());
    return layout;
}

static lierne_grid *grid_at(int offset, int n) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {n}, .offset = offset};
    lierne_grid *grid = mesh_grid(&dp, WORLD);
    CHECK(grid != NULL, "%s", lierne_last_error());
    return grid;
}

/* Rows cut over the source grid become whole on each rank of the destination grid. */
static void move(lierne_context *context, const lierne_grid *src, const lierne_grid *dst) {
    int rank = lierne_context_get_rank(context), n = lierne_grid_get_size(src);
    int64_t in[72], out[72];
    lierne_plan *plan;
    lierne_layout *from = rows_on(src, LIERNE_PLACEMENT_SHARD),
                  *to = rows_on(dst, LIERNE_PLACEMENT_REPLICATE);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = from, .dst = to};
    for (int i = 0; i < 72; i++) {
        in[i] = (rank - EVEN) * (72 / n) + i;
    }
    lierne_status status = lierne_plan_create_redistribute(&plan, context, &spec);
    CHECK_OK(status);
    if (status == LIERNE_OK) {
        CHECK_OK(lierne_plan_forward(plan, out, in, NULL));
        for (int i = 0; rank >= ODD && i < 72; i++) {
            CHECK(out[i] == i, "element %d of rank %d is %d", i, rank, (int)out[i]);
        }
        CHECK_OK(lierne_plan_destroy(plan));
    }
    lierne_layout_destroy(from);
    lierne_layout_destroy(to);
}

/* The first half of the processes: of each grid of test_world / 2 ranks, the first test_world / 4.
 * The others go on to their next calls. */
static void two_grids(void) {
    int n = test_world / 4, count, ranks[MOST], processes[MOST];
    lierne_grid *src = grid_at(EVEN, n), *dst = grid_at(ODD, n);
    const lierne_grid *const grids[2] = {dst, src};
    CHECK(lierne_grid_get_members(ranks, MOST, &count, grids, 2) == LIERNE_OK && count == 2 * n,
          "%d members", count);
    for (int i = 0; i < count; i++) {
        processes[i] = ranks[i] < ODD ? 2 * (ranks[i] - EVEN) : 2 * (ranks[i] - ODD) + 1;
    }
    if (test_rank < 2 * n) {
        lierne_context_spec spec = spec_of(ranks, count);
        lierne_context *context;
        CHECK_OK(create(&context, processes, count, &spec));
        move(context, src, dst);
        run_rows(context, LIERNE_GRAPH_ALGORITHM_AUTO);
        CHECK_OK(lierne_context_destroy(context));
    }
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

/* --- errors --- */

static void expect(lierne_status status, lierne_status wanted, const char *words) {
    CHECK(status == wanted, "%s: %s", words, lierne_last_error());
    CHECK(strstr(lierne_last_error(), words), "'%s' has no '%s'", lierne_last_error(), words);
}

typedef enum mistake { TOO_FEW, OUTSIDE, DESCENDING, OTHERS, OTHER_WORLD } mistake;

static void spoil(mistake which, lierne_context_spec *spec, int *ranks) {
    int n = spec->nmembers;
    switch (which) {
    case TOO_FEW:
        spec->nmembers--;
        break;
    case OUTSIDE:
        ranks[n - 1] = WORLD;
        break;
    case DESCENDING:
        ranks[n - 1] = ranks[0];
        break;
    case OTHERS:
        ranks[n - 1]++;
        break;
    case OTHER_WORLD:
        spec->world_size += 5;
        break;
    }
}

/* The last process of each half has another spec. */
static void reject(mistake which, lierne_status wanted, const char *words) {
    int processes[MOST], ranks[MOST], n = list_half(processes, ranks);
    lierne_context_spec spec = spec_of(ranks, n);
    lierne_context *context;
    if (test_rank >= test_world - 2) {
        spoil(which, &spec, ranks);
    }
    expect(create(&context, processes, n, &spec), wanted, words);
    CHECK(!context, "a context beside an error");
}

/* Ranks in these messages are those of the communicator. */
static void specs_that_are_wrong(void) {
    char words[96];
    int last = test_world / 2 - 1;
    reject(TOO_FEW, LIERNE_ERR_INVALID, "a member for each rank of the communicator");
    reject(OUTSIDE, LIERNE_ERR_INVALID, "is 131072, must be in ");
    reject(DESCENDING, LIERNE_ERR_INVALID, "members ascend and are ranks of a world of 131072");
    snprintf(words, sizeof words, "world_size differs between ranks: %d on rank 0, %d on rank %d",
             WORLD, WORLD + 5, last);
    reject(OTHER_WORLD, LIERNE_ERR_MISMATCH, words);
    reject(OTHERS, LIERNE_ERR_MISMATCH, "members");
}

/* The ranks of a context that shrinks are those of the world, of which they were members. */
static void halves_that_shrink(void) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    int processes[MOST], ranks[MOST], n = list_half(processes, ranks);
    lierne_context *context = create_half(), *smaller;
    MPI_Barrier(MPI_COMM_WORLD); /* one that gives up fails those that still create it */
    lierne_context_abort(context, LIERNE_ERR_TRANSPORT, "to shrink it");
    CHECK_OK(lierne_context_shrink(&smaller, context, &spec));
    CHECK(lierne_context_get_world_size(smaller) == n, "%d ranks are left",
          lierne_context_get_world_size(smaller));
    for (int r = 0; r < n; r++) {
        int former = lierne_context_get_former_rank(smaller, r);
        CHECK(former == ranks[r], "rank %d was %d, must be %d", r, former, ranks[r]);
    }
    CHECK_OK(lierne_context_destroy(smaller));
    CHECK_OK(lierne_context_destroy(context));
}

/* The last member of each half does not plan: the others name ranks of the world. */
static void a_member_that_does_not_call(void) {
    int processes[MOST], ranks[MOST], n = list_half(processes, ranks);
    lierne_context_spec spec = spec_of(ranks, n);
    lierne_context *context;
    lierne_plan *plan;
    char words[96];
    const int32_t owner = rank_of(test_rank);
    const int64_t row = 0;
    const lierne_references_spec references = {.size = sizeof references,
                                               .nowned = 1,
                                               .nghosts = 1,
                                               .rank = &owner,
                                               .row = &row,
                                               .dtype = LIERNE_DTYPE_F32,
                                               .width = 1};
    CHECK_OK(create(&context, processes, n, &spec));
    test_hurry(context, 0.5);
    if (test_rank < test_world - 2) {
        CHECK(lierne_plan_create_references(&plan, context, &references) == LIERNE_ERR_TIMEOUT,
              "%s", lierne_last_error());
        bool named = false;
        for (int i = 0; i < n - 1; i++) {
            bool own = ranks[i] == rank_of(test_rank);
            snprintf(words, sizeof words, own ? "rank %d of %d: " : "rank %d gave up: ", ranks[i],
                     WORLD);
            named |= strstr(lierne_last_error(), words) != NULL;
        }
        CHECK(named, "%s", lierne_last_error());
        CHECK_OK(lierne_context_destroy(context));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (test_rank >= test_world - 2) {
        lierne_status status = lierne_plan_create_references(&plan, context, &references);
        expect(status, LIERNE_ERR_TIMEOUT, " gave up: ");
        CHECK_OK(lierne_context_destroy(context));
    }
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    halves();
    two_grids();
    halves();
    specs_that_are_wrong();
    CHECK(lierne_mem_live() == before, "%zu allocations leaked", lierne_mem_live() - before);
    halves_that_shrink();
    a_member_that_does_not_call();
    return test_finish();
}
