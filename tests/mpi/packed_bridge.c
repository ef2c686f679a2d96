/* A packed bridge whose description no rank has whole: each rank knows its own samples and images,
 * gathers those of all, and updates the plan. Text rows keep what they held. Then one rank gives
 * another run than the rest, of equal length: at least one rank gets MISMATCH, and a rank that gets
 * OK has the rows of its own description. What is wrong on one rank alone is the same error on
 * all. */
#include "layouts.h"
#include "mpi/common.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 3, MOST_ROWS = 2048, WIDTH = 3, ROUNDS = 4, TEXT = -7, GARBAGE = 999999 };

typedef struct exchanges {
    lierne_segments_exchange *images;
    lierne_segments_exchange *segments;
} exchanges;

typedef struct description {
    lierne_gathered_segments images, segments;
    lierne_image_run *runs;
    lierne_segments rows, tokens;
    lierne_packing src, dst;
} description;

/* This rank's samples: each has an image, the second one two runs of it, and text around. */
static void describe(const exchanges *x, description *d, int round) {
    int64_t rows[SAMPLES], tokens[SAMPLES];
    int32_t owner[SAMPLES];
    lierne_image_run runs[SAMPLES + 1];
    int64_t nruns = 0;
    for (int i = 0; i < SAMPLES; i++) {
        rows[i] = 2 + (test_rank * 5 + round * 3 + i) % 7;
        tokens[i] = rows[i] + 3 + (i + round) % 4;
        owner[i] = test_rank;
        int64_t first = i == 1 ? 1 : rows[i];
        runs[nruns++] = (lierne_image_run){i, 0, i, 1, first};
        if (first < rows[i]) {
            runs[nruns++] = (lierne_image_run){i, first, i, first + 2, rows[i] - first};
        }
    }
    const lierne_own_segments own_rows = {.size = sizeof own_rows,
                                          .nsegments = SAMPLES,
                                          .lengths = rows,
                                          .owner = owner},
                              own_tokens = {.size = sizeof own_tokens,
                                            .nsegments = SAMPLES,
                                            .lengths = tokens,
                                            .nruns = nruns,
                                            .runs = runs,
                                            .nimages = SAMPLES};
    d->images.size = d->segments.size = sizeof d->images;
    CHECK(lierne_segments_gather(&d->images, x->images, &own_rows) == LIERNE_OK, "%s",
          lierne_last_error());
    CHECK(lierne_segments_gather(&d->segments, x->segments, &own_tokens) == LIERNE_OK, "%s",
          lierne_last_error());
    CHECK(d->segments.nsegments == SAMPLES * test_world &&
              d->segments.nimages == SAMPLES * test_world,
          "%lld segments", (long long)d->segments.nsegments);
    CHECK(d->segments.first_segment[test_rank] == SAMPLES * test_rank, "segments of another rank");
    size_t bytes = (size_t)d->segments.nruns * sizeof *d->runs;
    d->runs = test_buffer(bytes);
    memcpy(d->runs, d->segments.runs, bytes);
    d->rows = (lierne_segments){sizeof d->rows, d->images.nsegments, d->images.cu_seqlens};
    d->tokens = (lierne_segments){sizeof d->tokens, d->segments.nsegments, d->segments.cu_seqlens};
    d->src = (lierne_packing){.size = sizeof d->src, .owner = d->images.owner};
    d->dst = (lierne_packing){.size = sizeof d->dst, .align = 2 * test_world};
}

static lierne_layout *layout_of(const lierne_grid *grid, const description *d, bool dst) {
    lierne_layout *layout =
        layout_packed(grid, dst ? &d->tokens : &d->rows, dst ? &d->dst : &d->src,
                      dst ? LIERNE_PLACEMENT_SEGMENT_ZIGZAG : LIERNE_PLACEMENT_SHARD_SEGMENTS,
                      WIDTH);
    CHECK(layout != NULL, "%s", lierne_last_error());
    return layout;
}

/* The image row of a token, or the token of an image row; -1: none. */
static int64_t partner(const description *d, bool token, int64_t t) {
    for (int64_t i = 0; i < d->segments.nruns; i++) {
        const lierne_image_run *run = &d->runs[i];
        int64_t row = d->images.cu_seqlens[run->image] + run->row,
                first = d->segments.cu_seqlens[run->segment] + run->position;
        int64_t at = token ? first : row, other = token ? row : first;
        if (t >= at && t < at + run->length) {
            return other + t - at;
        }
    }
    return -1;
}

static int64_t value(int64_t row, int64_t i) {
    return 100 * row + i % WIDTH + 1;
}

/* Of the rows of a side that this rank owns: writes what it reads, or counts what is not as it must
 * be after the call. */
static int64_t visit(const description *d, const lierne_layout *layout, bool dst, int64_t *buffer,
                     bool write) {
    static lierne_box boxes[MOST_ROWS];
    size_t count = 0;
    int64_t wrong = 0;
    lierne_layout_get_boxes(boxes, MOST_ROWS, &count, layout, test_rank);
    for (size_t b = 0; b < count; b++) {
        for (int64_t i = 0; i < boxes[b].size[0] * WIDTH; i++) {
            int64_t *at = &buffer[boxes[b].local[0] * WIDTH + i], t = boxes[b].start[0] + i / WIDTH;
            int64_t other = partner(d, dst, t);
            int64_t wanted = other < 0 ? TEXT : write ? value(t, i) : value(other, i);
            wrong += !write && *at != wanted;
            *at = write ? (other < 0 ? GARBAGE : wanted) : *at;
        }
    }
    return wrong;
}

static lierne_status move(lierne_plan *plan, const lierne_grid *grid, const description *d,
                          bool forward) {
    int64_t *in = test_buffer(MOST_ROWS * WIDTH * sizeof *in);
    int64_t *out = test_buffer(MOST_ROWS * WIDTH * sizeof *out);
    lierne_layout *from = layout_of(grid, d, !forward), *to = layout_of(grid, d, forward);
    for (int64_t i = 0; i < MOST_ROWS * WIDTH; i++) {
        in[i] = GARBAGE;
        out[i] = TEXT;
    }
    visit(d, from, !forward, in, true);
    lierne_status status =
        (forward ? lierne_plan_forward : lierne_plan_adjoint)(plan, out, in, NULL);
    CHECK(status != LIERNE_OK || visit(d, to, forward, out, false) == 0, "%s: wrong rows",
          forward ? "forward" : "adjoint");
    lierne_layout_destroy(from);
    lierne_layout_destroy(to);
    return status;
}

static lierne_status update(lierne_plan *plan, const description *d) {
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = &d->tokens,
                                      .src = &d->src,
                                      .dst = &d->dst,
                                      .images = &d->rows,
                                      .runs = d->runs,
                                      .nruns = d->segments.nruns};
    return lierne_plan_update_segments(plan, &u);
}

static lierne_plan *plan_of(lierne_context *context, const lierne_grid *grid,
                            const description *d) {
    lierne_layout *src = layout_of(grid, d, false), *dst = layout_of(grid, d, true);
    const lierne_packed_bridge_spec spec = {.size = sizeof spec,
                                            .src = src,
                                            .dst = dst,
                                            .runs = d->runs,
                                            .nruns = d->segments.nruns,
                                            .max_segments = SAMPLES * test_world,
                                            .max_rows = MOST_ROWS,
                                            .max_runs = (SAMPLES + 1) * test_world};
    lierne_plan *plan = NULL;
    CHECK(lierne_plan_create_packed_bridge(&plan, context, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    return plan;
}

static void create_exchanges(exchanges *x, lierne_context *context) {
    lierne_segments_exchange_spec spec = {.size = sizeof spec, .max_segments = SAMPLES};
    CHECK(lierne_segments_exchange_create(&x->images, context, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    spec.max_runs = SAMPLES + 1;
    CHECK(lierne_segments_exchange_create(&x->segments, context, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
}

static void destroy_exchanges(const exchanges *x, bool alive) {
    lierne_status a = lierne_segments_exchange_destroy(x->images),
                  b = lierne_segments_exchange_destroy(x->segments);
    CHECK(!alive || (a == LIERNE_OK && b == LIERNE_OK), "%s", lierne_last_error());
}

/* What may be wrong on one rank, and what all ranks say of it. */
typedef enum own_fault {
    NO_OWN,
    NO_SIZE,
    FEW_SEGMENTS,
    MANY_SEGMENTS,
    FEW_RUNS,
    MANY_RUNS,
    FEW_IMAGES,
    NO_LENGTHS,
    NO_RUNS,
    BAD_LENGTH,
    BAD_LEAD,
    BAD_PADDED,
    BAD_SEGMENT,
    BAD_IMAGE,
    TOO_LONG,
    OWN_FAULTS
} own_fault;

static const struct {
    lierne_status status;
    const char *words;
} own_faults[] = {
    [NO_OWN] = {LIERNE_ERR_INVALID, "own is NULL"},
    [NO_SIZE] = {LIERNE_ERR_INVALID, "all->size is 3, must be "},
    [FEW_SEGMENTS] = {LIERNE_ERR_INVALID, "nsegments is -1, must be in 0 to 3"},
    [MANY_SEGMENTS] = {LIERNE_ERR_CAPACITY, "nsegments is 4, must be in 0 to 3"},
    [FEW_RUNS] = {LIERNE_ERR_INVALID, "nruns is -1, must be in 0 to 4"},
    [MANY_RUNS] = {LIERNE_ERR_CAPACITY, "nruns is 5, must be in 0 to 4"},
    [FEW_IMAGES] = {LIERNE_ERR_INVALID, "nimages is -1, must be "},
    [NO_LENGTHS] = {LIERNE_ERR_INVALID, "lengths is NULL"},
    [NO_RUNS] = {LIERNE_ERR_INVALID, "runs is NULL"},
    [BAD_LENGTH] = {LIERNE_ERR_INVALID, "lengths[1] is -1, must be "},
    [BAD_LEAD] = {LIERNE_ERR_INVALID, "lead[1] is -2, must be "},
    [BAD_PADDED] = {LIERNE_ERR_INVALID, "padded[1] is 5, must be at least lead and length"},
    [BAD_SEGMENT] = {LIERNE_ERR_INDEX_RANGE, "segment of runs[0] is 2, must be "},
    [BAD_IMAGE] = {LIERNE_ERR_INDEX_RANGE, "image of runs[0] is 1, must be "},
    [TOO_LONG] = {LIERNE_ERR_OVERFLOW, "have more than 1152921504606846976 rows"},
};

/* One rank's own has a fault: all get its error, and go on. */
static void reject_own(const exchanges *x, own_fault k) {
    int64_t lengths[SAMPLES] = {1, 4, 1}, lead[SAMPLES] = {0, 2, 0}, padded[SAMPLES] = {1, 6, 1};
    lierne_image_run runs[SAMPLES] = {{.length = 1}};
    lierne_own_segments own = {.size = sizeof own,
                               .nsegments = 2,
                               .lengths = lengths,
                               .padded = padded,
                               .lead = lead,
                               .nruns = 1,
                               .runs = runs,
                               .nimages = 1};
    lierne_gathered_segments all = {.size = sizeof all, .nsegments = 77};
    int culprit = test_world / 2;
    if (test_rank == culprit) {
        all.size = k == NO_SIZE ? 3 : all.size;
        own.nsegments = k == FEW_SEGMENTS ? -1 : k == MANY_SEGMENTS ? SAMPLES + 1 : 2;
        own.nruns = k == FEW_RUNS ? -1 : k == MANY_RUNS ? SAMPLES + 2 : 1;
        own.nimages = k == FEW_IMAGES ? -1 : 1;
        own.lengths = k == NO_LENGTHS ? NULL : lengths;
        own.runs = k == NO_RUNS ? NULL : runs;
        lengths[1] = k == BAD_LENGTH ? -1 : 4;
        lead[1] = k == BAD_LEAD ? -2 : 2;
        padded[1] = k == BAD_PADDED ? 5 : k == TOO_LONG ? (int64_t)1 << 60 : 6;
        runs[0].segment = k == BAD_SEGMENT ? 2 : 0;
        runs[0].image = k == BAD_IMAGE ? 1 : 0;
    }
    bool none = test_rank == culprit && k == NO_OWN;
    test_same_error(lierne_segments_gather(&all, x->segments, none ? NULL : &own),
                    own_faults[k].status, own_faults[k].words);
    CHECK(strstr(lierne_last_error(), own_faults[k].words), "%s: %s", own_faults[k].words,
          lierne_last_error());
    CHECK(all.nsegments == 77, "%s: what was gathered", own_faults[k].words);
}

/* A spec that is wrong, or another one, on one rank. */
static void reject_specs(lierne_context *context) {
    static const int64_t wrong[] = {-1, INT64_MAX, SAMPLES + 1};
    static const lierne_status wanted[] = {LIERNE_ERR_INVALID, LIERNE_ERR_COUNT_RANGE,
                                           LIERNE_ERR_MISMATCH};
    for (int k = 0; k < (test_world > 1 ? 3 : 2); k++) {
        lierne_segments_exchange *x;
        const lierne_segments_exchange_spec spec = {.size = sizeof spec,
                                                    .max_segments =
                                                        test_rank == 0 ? wrong[k] : SAMPLES};
        test_same_error(lierne_segments_exchange_create(&x, context, &spec), wanted[k],
                        "a spec that is wrong on one rank");
        CHECK(!x, "an exchange of a wrong spec");
    }
}

/* A context destroys what it still has. */
static void destroy_with_context(void) {
    size_t before = lierne_mem_live();
    lierne_context *context = test_context(PATIENT);
    exchanges x;
    create_exchanges(&x, context);
    CHECK(lierne_context_destroy(context) == LIERNE_ERR_INVALID, "exchanges are alive");
    CHECK_OK(lierne_context_destroy_all(context));
    CHECK(lierne_mem_live() == before, "%zu allocations are left", lierne_mem_live() - before);
}

static int count_ranks(bool mine) {
    int n = mine;
    MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return n;
}

/* The culprit has a run one token further on than the rest. */
static void run_fault(lierne_plan *plan, const lierne_grid *grid, description *d, int culprit) {
    d->runs[0].position += test_rank == culprit;
    MPI_Barrier(MPI_COMM_WORLD); /* before the first rank gives up */
    CHECK(update(plan, d) == LIERNE_OK, "%s", lierne_last_error());
    lierne_status status = move(plan, grid, d, true);
    CHECK(status == LIERNE_OK || status == LIERNE_ERR_MISMATCH, "%s: %s",
          lierne_status_name(status), lierne_last_error());
    CHECK(count_ranks(status == LIERNE_ERR_MISMATCH) > 0, "another run is not found");
}

static void run(const lierne_grid *grid, bool faulty) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = PATIENT};
    lierne_context *context = NULL;
    exchanges x;
    description d;
    CHECK(test_context_create(&context, MPI_COMM_WORLD, &spec) == LIERNE_OK, "%s",
          lierne_last_error());
    create_exchanges(&x, context);
    describe(&x, &d, 0);
    lierne_plan *plan = plan_of(context, grid, &d);
    for (int round = 0; round < ROUNDS; round++) {
        describe(&x, &d, round);
        CHECK(update(plan, &d) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(move(plan, grid, &d, true) == LIERNE_OK, "%s", lierne_last_error());
        CHECK(move(plan, grid, &d, false) == LIERNE_OK, "%s", lierne_last_error());
    }
    if (faulty) {
        run_fault(plan, grid, &d, test_world - 1);
    } else {
        for (int k = 0; k < OWN_FAULTS; k++) {
            reject_own(&x, (own_fault)k);
        }
        reject_specs(context);
        describe(&x, &d, 1);
    }
    lierne_status status = lierne_plan_destroy(plan);
    CHECK(faulty || status == LIERNE_OK, "%s", lierne_last_error());
    destroy_exchanges(&x, !faulty);
    MPI_Barrier(MPI_COMM_WORLD);
    lierne_context_destroy(context);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    static const char *const names[] = {"ranks"};
    const int64_t sizes[] = {test_world};
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = test_world};
    lierne_grid *grid = NULL;
    CHECK(lierne_grid_create(&grid, &spec) == LIERNE_OK, "%s", lierne_last_error());
    run(grid, false);
    destroy_with_context();
    if (test_world > 1) {
        run(grid, true);
    }
    lierne_grid_destroy(grid);
    return test_finish();
}
