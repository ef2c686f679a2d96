/* New segments for a plan, on each rank alone. Good ones give the right rows, and sums of a PARTIAL
 * source, whose adjoint sends each gradient to all. Then one rank gives
 * others than the rest, or forgets an update: at least one rank gets MISMATCH, a rank that gets OK
 * has the rows of its own description, and nobody waits for long. Where contexts check calls, all
 * ranks get the same MISMATCH from the update, and go on with the segments that they had. */
#include "layouts.h"
#include "mpi/common.h"

enum { SEGMENTS = 6, MOST_ROWS = 4096, WIDTH = 3, ROUNDS = 5 };

typedef enum fault { NONE, BOUNDARY, SWAPPED, ORDER, OWNER, FORGOTTEN, REPEATED, FAULTS } fault;

/* cp ranks by zigzag, or contributions of all ranks, to dp ranks, each with whole segments. */
typedef struct description {
    bool partial;
    int64_t cu[SEGMENTS + 1];
    int64_t order[SEGMENTS];
    int32_t owner[SEGMENTS];
    lierne_segments segments;
    lierne_packing src, dst;
} description;

static void describe(description *d, int round, fault k) {
    for (int i = 0; i < SEGMENTS; i++) {
        int64_t length = (round * 7 + i * 5) % 23 + (i == 2 ? 0 : 1);
        length += k == BOUNDARY && i == 1 ? 1 : 0;
        d->cu[i + 1] = d->cu[i] + length;
        d->order[i] = i;
        d->owner[i] = (int32_t)((i + round) % test_world);
    }
    if (k == SWAPPED) { /* as many tokens, and often as many for each rank */
        d->cu[1] = d->cu[2] - d->cu[1];
    }
    d->order[0] = k == ORDER;
    d->order[1] = k != ORDER;
    d->owner[0] = (int32_t)((d->owner[0] + (k == OWNER)) % test_world);
    d->segments =
        (lierne_segments){.size = sizeof d->segments, .nsegments = SEGMENTS, .cu_seqlens = d->cu};
    d->src = (lierne_packing){.size = sizeof d->src, .align = 2 * test_world, .order = d->order};
    d->dst = (lierne_packing){.size = sizeof d->dst, .owner = d->owner};
}

static lierne_layout *layout_of(const lierne_grid *grid, const description *d, bool dst) {
    lierne_layout *layout = layout_packed(grid, &d->segments, dst ? &d->dst : &d->src,
                                          dst          ? LIERNE_PLACEMENT_SHARD_SEGMENTS
                                          : d->partial ? LIERNE_PLACEMENT_PARTIAL
                                                       : LIERNE_PLACEMENT_SEGMENT_ZIGZAG,
                                          WIDTH);
    CHECK(layout != NULL, "%s", lierne_last_error());
    return layout;
}

/* Writes the rows of this rank's tokens, times a factor, or counts those that are not so. */
static int64_t visit_rows(const lierne_layout *layout, int64_t *buffer, int64_t factor,
                          bool write) {
    static lierne_box boxes[MOST_ROWS];
    size_t count = 0;
    int64_t wrong = 0;
    lierne_layout_get_boxes(boxes, MOST_ROWS, &count, layout, test_rank);
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < boxes[b].size[0] * WIDTH; i++) {
            int64_t *at = &buffer[boxes[b].local[0] * WIDTH + i];
            int64_t value = factor * (100 * (boxes[b].start[0] + i / WIDTH) + i % WIDTH + 1);
            wrong += !write && *at != value;
            *at = write ? value : *at;
        }
    }
    return wrong;
}

/* A call; what this rank gets if that is OK must be what its description says. */
static lierne_status move(lierne_plan *plan, const lierne_grid *grid, const description *d,
                          bool forward) {
    int64_t *in = test_buffer(MOST_ROWS * WIDTH * sizeof *in);
    int64_t *out = test_buffer(MOST_ROWS * WIDTH * sizeof *out);
    lierne_layout *from = layout_of(grid, d, !forward), *to = layout_of(grid, d, forward);
    bool sums = d->partial && forward;
    visit_rows(from, in, sums ? test_rank + 1 : 1, true);
    lierne_status status =
        (forward ? lierne_plan_forward : lierne_plan_adjoint)(plan, out, in, NULL);
    CHECK(status != LIERNE_OK ||
              visit_rows(to, out, sums ? test_world * (test_world + 1) / 2 : 1, false) == 0,
          "%s: wrong rows", forward ? "forward" : "adjoint");
    lierne_layout_destroy(from);
    lierne_layout_destroy(to);
    return status;
}

static lierne_status update(lierne_plan *plan, const description *d) {
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = &d->segments,
                                      .src = &d->src,
                                      .dst = &d->dst};
    return lierne_plan_update_segments(plan, &u);
}

static lierne_plan *plan_of(lierne_context *context, const lierne_grid *grid, bool partial) {
    description d = {.partial = partial};
    describe(&d, 0, NONE);
    lierne_layout *src = layout_of(grid, &d, false), *dst = layout_of(grid, &d, true);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = src,
                                           .dst = dst,
                                           .max_segments = SEGMENTS,
                                           .max_rows = MOST_ROWS};
    lierne_plan *plan = NULL;
    CHECK(lierne_plan_create_redistribute(&plan, context, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return plan;
}

static void run_good(lierne_context *context, const lierne_grid *grid, bool partial) {
    lierne_plan *plan = plan_of(context, grid, partial);
    for (int round = 0; round < ROUNDS; round++) {
        description d = {.partial = partial};
        describe(&d, round, NONE);
        CHECK(update(plan, &d) == LIERNE_OK, "%s", lierne_last_error());
        for (int call = 0; call < 4; call++) {
            CHECK(move(plan, grid, &d, call % 2) == LIERNE_OK, "%s", lierne_last_error());
        }
    }
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
}

static int count_ranks(bool mine) {
    int n = mine;
    MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return n;
}

/* The culprit's is another description; REPEATED: the same one again, which it forgets. */
static void run_fault(lierne_context *context, const lierne_grid *grid, fault k, int culprit,
                      bool checks) {
    lierne_plan *plan = plan_of(context, grid, false);
    MPI_Barrier(MPI_COMM_WORLD); /* before the first rank gives up */
    description own = {.segments = {0}}, before = {.segments = {0}};
    bool bad = test_rank == culprit, forgets = k == FORGOTTEN || k == REPEATED;
    describe(&before, 0, NONE);
    describe(&own, k == REPEATED || (bad && forgets) ? 0 : 1, bad && !forgets ? k : NONE);
    lierne_status status = bad && forgets ? LIERNE_OK : update(plan, &own);
    if (checks) {
        test_same_error(status, LIERNE_ERR_MISMATCH, "an update that differs");
        CHECK(move(plan, grid, &before, true) == LIERNE_OK, "%s", lierne_last_error());
    } else {
        CHECK(status == LIERNE_OK, "%s", lierne_last_error());
        MPI_Barrier(MPI_COMM_WORLD);
        status = move(plan, grid, &own, true);
        CHECK(status == LIERNE_OK || status == LIERNE_ERR_MISMATCH, "fault %d: %s: %s", (int)k,
              lierne_status_name(status), lierne_last_error());
        CHECK(count_ranks(status == LIERNE_ERR_MISMATCH) > 0, "fault %d is not found", (int)k);
    }
    lierne_plan_destroy(plan);
}

static void run_context(const lierne_grid *grid, fault k, bool checks) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT, .check = checks};
    lierne_context *context = NULL;
    CHECK(test_context_create(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    if (k == NONE) {
        run_good(context, grid, false);
        run_good(context, grid, true);
    } else {
        run_fault(context, grid, k, (int)k % test_world, checks);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    lierne_context_destroy(context);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    const mesh ranks = {.ndims = 1, .names = {"ranks"}, .sizes = {test_world}};
    lierne_grid *grid = mesh_grid(&ranks, test_world);
    run_context(grid, NONE, false);
    run_context(grid, NONE, true);
    for (fault k = BOUNDARY; test_world > 1 && k < FAULTS; k++) {
        run_context(grid, k, false);
        if (k < FORGOTTEN) {
            run_context(grid, k, true);
        }
    }
    lierne_grid_destroy(grid);
    return test_finish();
}
