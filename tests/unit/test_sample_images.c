/* A step of a multimodal job: images are assigned to the ranks that have time for them, samples to
 * data-parallel ranks, and embeddings go straight from one assignment to the other, into packed
 * sequences that context parallelism cuts. After the one all-gather of the images' numbers nothing
 * is agreed, executed or planned again. */
#include "expect.h"
#include "lierne.h"
#include "mesh.h"
#include "ranks.h"
#include "runtime/context/context.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 4, EACH = 3, IMAGES = WORLD * EACH, SAMPLES = WORLD, CP = 2, STEPS = 6 };
enum { MOST_LENGTH = 9, MOST_ROWS = IMAGES * MOST_LENGTH * 4, TEXT = -5 };

/* What all ranks know of a step: image i is of rank i / EACH, and of the sample of that rank. */
typedef struct batch {
    int64_t length[IMAGES], cu_images[IMAGES + 1];
    int64_t tokens[SAMPLES], cu[SAMPLES + 1];
    lierne_image_run runs[IMAGES];
    int32_t encoder[IMAGES], dp[SAMPLES];
} batch;

typedef struct step_of {
    int wrong;
    char what[400];
} step_of;

static void note(step_of *o, bool ok, int step, const char *what) {
    if (!ok && o->wrong++ == 0) {
        snprintf(o->what, sizeof o->what, "step %d: %s: %s", step, what, lierne_last_error());
    }
}

static void describe(batch *b, int step) {
    *b = (batch){.dp = {0}};
    for (int s = 0; s < SAMPLES; s++) {
        int64_t position = (s + step) % 3;
        for (int i = s * EACH; i < (s + 1) * EACH; i++) {
            int64_t n = b->length[i] = 1 + (s == step % 2 ? 6 : 0) + (3 * i + 5 * step) % 3;
            b->runs[i] = (lierne_image_run){i, 0, s, position, n};
            b->cu_images[i + 1] = b->cu_images[i] + n;
            position += n + (i + step) % 2;
        }
        b->tokens[s] = position + 2;
        b->cu[s + 1] = b->cu[s] + b->tokens[s];
    }
}

/* The dp ranks share the samples by their tokens: pure, the same on every rank. */
static lierne_status assign_samples(batch *b) {
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    static const int64_t counts[WORLD / CP] = {2, 2};
    const lierne_items items = {.size = sizeof items,
                                .nitems = SAMPLES,
                                .ncosts = 1,
                                .cost = b->tokens};
    lierne_assignment *a;
    lierne_status status = lierne_assignment_create(&a, &items, counts, WORLD / CP, &spec);
    if (status == LIERNE_OK) {
        memcpy(b->dp, lierne_assignment_get_ranks(a), sizeof b->dp);
        lierne_assignment_destroy(a);
    }
    return status;
}

static lierne_layout *layout_of(const lierne_grid *grid, const lierne_placement *placements,
                                const lierne_packing *packing) {
    static const int64_t boundary = 0;
    const lierne_segments none = {.size = sizeof none, .cu_seqlens = &boundary};
    const int64_t shape = 0;
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1,
                                     .shape = &shape,
                                     .dtype = LIERNE_DTYPE_I64,
                                     .placements = placements,
                                     .segments = &none,
                                     .packing = packing};
    lierne_layout *layout = NULL;
    (void)lierne_layout_create(&layout, &spec);
    return layout;
}

static lierne_status create_bridge(lierne_plan **out, lierne_context *context) {
    static const char *const names[] = {"cp", "dp", NULL};
    static const int64_t sizes[] = {CP, WORLD / CP}, all = WORLD;
    static const int32_t nobody = 0;
    static const lierne_placement images = {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS},
                                  cuts[] = {{.kind = LIERNE_PLACEMENT_SEGMENT_ZIGZAG},
                                            {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS}};
    const lierne_packing packing = {.size = sizeof packing, .owner = &nobody};
    lierne_grid *encoder = grid_named(&names[1], &all, 0, WORLD),
                *llm = grid_named(names, sizes, 0, WORLD);
    lierne_layout *src = layout_of(encoder, &images, &packing),
                  *dst = layout_of(llm, cuts, &packing);
    const lierne_packed_bridge_spec spec = {.size = sizeof spec,
                                            .src = src,
                                            .dst = dst,
                                            .max_segments = IMAGES,
                                            .max_rows = MOST_ROWS,
                                            .max_runs = IMAGES};
    lierne_status status = lierne_plan_create_packed_bridge(out, context, &spec);
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(encoder);
    lierne_grid_destroy(llm);
    return status;
}

static lierne_status update_bridge(lierne_plan *plan, const batch *b) {
    const lierne_segments images = {sizeof images, IMAGES, b->cu_images},
                          segments = {sizeof segments, SAMPLES, b->cu};
    const lierne_packing src = {.size = sizeof src, .owner = b->encoder},
                         dst = {.size = sizeof dst, .owner = b->dp, .align = 2 * CP};
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = &src,
                                           .dst = &dst,
                                           .images = &images,
                                           .runs = b->runs,
                                           .nruns = IMAGES};
    return lierne_plan_update_segments(plan, &update);
}

/* What token t holds: three times its image row, 1 + the row among all; else TEXT. */
static int64_t token_value(const batch *b, int s, int64_t position) {
    for (int i = s * EACH; i < (s + 1) * EACH; i++) {
        int64_t row = position - b->runs[i].position;
        if (row >= 0 && row < b->length[i]) {
            return 3 * (1 + b->cu_images[i] + row);
        }
    }
    return TEXT;
}

/* The tokens of a rank, chunk by chunk; padding stays TEXT. */
static int64_t expect_tokens(int64_t *values, const batch *b, int rank) {
    int64_t n = 0;
    for (int s = 0; s < SAMPLES; s++) {
        int64_t width = (b->tokens[s] + 2 * CP - 1) / (2 * CP);
        const int64_t chunks[2] = {rank % CP, 2 * CP - 1 - rank % CP};
        for (int c = 0; c < 2 && b->dp[s] == rank / CP; c++) {
            for (int64_t j = chunks[c] * width; j < (chunks[c] + 1) * width; j++) {
                values[n++] = j < b->tokens[s] ? token_value(b, s, j) : TEXT;
            }
        }
    }
    return n;
}

/* Pixels from home to the encoder, embeddings into the sequence, and gradients all the way back. */
static void move(step_of *o, int step, const batch *b, int rank, lierne_plan *dispatch,
                 lierne_plan *bridge) {
    int64_t home[MOST_ROWS], rows[MOST_ROWS], out[MOST_ROWS], wanted[MOST_ROWS], n = 0;
    int64_t first = b->cu_images[rank * EACH], own = b->cu_images[(rank + 1) * EACH] - first;
    for (int64_t k = 0; k < MOST_ROWS; k++) {
        home[k] = 1 + first + k;
        rows[k] = -1;
        out[k] = TEXT;
    }
    note(o, lierne_plan_forward(dispatch, rows, home, NULL) == LIERNE_OK, step, "dispatch");
    for (int64_t k = 0; k < MOST_ROWS; k++) {
        rows[k] *= 3; /* the encoder */
    }
    note(o, lierne_plan_forward(bridge, out, rows, NULL) == LIERNE_OK, step, "bridge");
    n = expect_tokens(wanted, b, rank);
    note(o, memcmp(out, wanted, (size_t)n * sizeof *out) == 0 && out[n] == TEXT, step, "tokens");
    note(o, lierne_plan_adjoint(bridge, rows, out, NULL) == LIERNE_OK, step, "bridge, back");
    memset(home, 0x55, sizeof home);
    note(o, lierne_plan_adjoint(dispatch, home, rows, NULL) == LIERNE_OK, step, "dispatch, back");
    for (int64_t k = 0; k < own; k++) {
        note(o, home[k] == 3 * (1 + first + k), step, "a gradient at home");
    }
}

/* Of plans, and of the control, which carries the blocks where plans move a device's memory. */
static int64_t calls_of(const lierne_context *context) {
    return context->ncalls + context->recorder.controls;
}

static void run_steps(lierne_context *context, void *shared) {
    int rank = lierne_context_get_rank(context), before = 0, after = 0;
    step_of *o = &((step_of *)shared)[rank];
    /* On the bridge's segments, where messages cannot say from which ones they come. */
    const char *transports = getenv("LIERNE_TEST_TRANSPORTS");
    bool agrees =
        getenv("LIERNE_TEST_EXECUTOR") || (transports && strcmp(transports, "mixed") == 0);
    const lierne_field field = {.name = "test"};
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_I64, 1};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = EACH,
                                      .ncosts = 1,
                                      .max_rows = MOST_ROWS,
                                      .ntensors = 1,
                                      .tensors = &tensor};
    lierne_samples *samples = NULL;
    lierne_plan *dispatch = NULL, *bridge = NULL;
    note(o, lierne_samples_create(&samples, context, &spec) == LIERNE_OK, -1, "samples");
    note(o, lierne_samples_get_plan(&dispatch, samples, 0) == LIERNE_OK, -1, "plan");
    note(o, create_bridge(&bridge, context) == LIERNE_OK, -1, "create_packed_bridge");
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, &before);
    for (int step = 0; step < STEPS && !o->wrong; step++) {
        batch b;
        lierne_samples_lists lists = {.size = sizeof lists};
        lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
        describe(&b, step);
        const lierne_items items = {.size = sizeof items,
                                    .nitems = EACH,
                                    .ncosts = 1,
                                    .cost = &b.length[(ptrdiff_t)rank * EACH],
                                    .rows = &b.length[(ptrdiff_t)rank * EACH]};
        int64_t calls = calls_of(context);
        note(o, lierne_samples_update(samples, &items, &balance, NULL) == LIERNE_OK, step,
             "update");
        note(o, calls_of(context) == calls + 1, step, "samples_update is one all-gather");
        note(o, lierne_samples_get_lists(&lists, samples, LIERNE_SAMPLES_DISPATCHED) == LIERNE_OK,
             step, "lists");
        memcpy(b.encoder, lists.ranks, sizeof b.encoder);
        note(o, assign_samples(&b) == LIERNE_OK, step, "assignment");
        note(o, update_bridge(bridge, &b) == LIERNE_OK, step, "update_segments");
        note(o, calls_of(context) == calls + 1, step, "update_segments is local");
        move(o, step, &b, rank, dispatch, bridge);
    }
    lierne_context_agree_all(context, LIERNE_OK, &field, 1, &after);
    note(o, after == before + 1 + (agrees ? STEPS : 0), STEPS, "ranks agreed on something");
    note(o, lierne_plan_destroy(bridge) == LIERNE_OK, STEPS, "destroy");
    note(o, lierne_samples_destroy(samples) == LIERNE_OK, STEPS, "destroy");
}

Test(samples, images_go_to_their_tokens_without_a_word) {
    step_of all[WORLD] = {{0}};
    ranks_run(WORLD, NULL, run_steps, all);
    for (int r = 0; r < WORLD; r++) {
        cr_expect_eq(all[r].wrong, 0, "rank %d: %s", r, all[r].what);
    }
}
