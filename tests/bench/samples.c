/* The benchmark of plans whose rows go elsewhere in every step: dispatch and its adjoint of
 * samples, and a zigzag of packed segments to contiguous shares. Each beside a redistribution that
 * was planned once with the owner of every row, which is the least that a step can cost, with the
 * same bytes.
 *
 *   mpirun -n 2|4|8 samples [quick|--csv] [text...] */
#include "bench/bench.h"
#include "support/lengths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL = 30, WIDTH = 256, MOST_RANKS = 8 };
enum { SEGMENTS = -1 }; /* beside the modes of samples */

/* A step: lengths near 500 rows of f32. */
typedef struct sample_work {
    int mode;
    int64_t rows[LOCAL * MOST_RANKS], n, all; /* of items or segments; all: their sum */
    int64_t cu[LOCAL * MOST_RANKS + 1];
    int32_t *owner[2]; /* of each row, at home and assigned */
    size_t bytes[2];   /* of this rank's rows */
    char *in[2], *out[2];
    int64_t moved;
} sample_work;

static void draw_rows(sample_work *w) {
    uint64_t x = 11;
    w->n = LOCAL * test_world;
    for (int64_t j = 0; j < w->n; j++) {
        w->rows[j] = draw_length("bell", &x);
        w->rows[j] += w->mode == SEGMENTS ? -w->rows[j] % (2 * test_world) + 2 * test_world : 0;
        w->all += w->rows[j];
        w->cu[j + 1] = w->all;
    }
}

/* A zigzag of every segment, and equal shares of all rows. */
static void cut(sample_work *w) {
    for (int64_t j = 0, row = 0; j < w->n; j++) {
        int64_t chunk = w->rows[j] / (2 * test_world);
        for (int64_t i = 0; i < w->rows[j]; i++, row++) {
            int64_t c = i / chunk;
            w->owner[0][row] = (int32_t)(c < test_world ? c : 2 * test_world - 1 - c);
            w->owner[1][row] = (int32_t)(row / (w->all / test_world));
            w->moved += w->owner[0][row] != w->owner[1][row];
        }
    }
}

static void assign(sample_work *w) {
    int64_t counts[MOST_RANKS], row = 0;
    lierne_items items = {.size = sizeof items, .nitems = w->n, .ncosts = 1, .cost = w->rows};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment_report report = {.size = sizeof report};
    lierne_assignment *a = NULL;
    spec.mode = (lierne_balance_mode)w->mode;
    for (int p = 0; p < test_world; p++) {
        counts[p] = LOCAL;
    }
    CHECK_OK(lierne_assignment_create(&a, &items, counts, test_world, &spec));
    CHECK_OK(lierne_assignment_get_report(&report, a));
    w->moved = report.moved_rows;
    for (int64_t j = 0; j < w->n; j++) {
        for (int64_t end = row + w->rows[j]; row < end; row++) {
            w->owner[0][row] = (int32_t)(j / LOCAL);
            w->owner[1][row] = lierne_assignment_get_ranks(a)[j];
        }
    }
    lierne_assignment_destroy(a);
}

/* Side 0 is home. Every element says its row and column. */
static void fill(const sample_work *w, int side, float *to) {
    for (int64_t row = 0; row < w->all; row++) {
        for (int c = 0; w->owner[side][row] == test_rank && c < WIDTH; c++) {
            *to++ = (float)(row * 7 + c % 5);
        }
    }
}

static void open_work(sample_work *w) {
    draw_rows(w);
    for (int side = 0; side < 2; side++) {
        w->owner[side] = (void *)take((size_t)w->all * sizeof(int32_t));
    }
    if (w->mode == SEGMENTS) {
        cut(w);
    } else {
        assign(w);
    }
    for (int side = 0; side < 2; side++) {
        for (int64_t row = 0; row < w->all; row++) {
            w->bytes[side] += w->owner[side][row] == test_rank ? WIDTH * sizeof(float) : 0;
        }
    }
    for (int d = FORWARD; d <= ADJOINT; d++) {
        w->in[d] = take(w->bytes[d]);
        w->out[d] = take(w->bytes[!d]);
        fill(w, d, (void *)w->in[d]);
    }
}

static void close_work(sample_work *w) {
    for (int k = 0; k < 2; k++) {
        free(w->owner[k]);
        free(w->in[k]);
        free(w->out[k]);
    }
}

static void reset(const void *workload, int direction) {
    const sample_work *w = workload;
    memset(w->out[direction], 0xee, w->bytes[!direction]);
}

static void rewrite_input(const void *workload, int direction) {
    const sample_work *w = workload;
    rewrite(w->in[direction], w->bytes[direction]);
}

static bool is_right(const method *m, int direction) {
    const sample_work *w = m->workload;
    float *wanted = (void *)take(w->bytes[!direction]);
    fill(w, !direction, wanted);
    bool right = memcmp(wanted, m->result[direction], w->bytes[!direction]) == 0;
    free(wanted);
    return right;
}

static const char *text_of(const void *workload) {
    static char text[80];
    snprintf(text, sizeof text, "%lld rows", (long long)((const sample_work *)workload)->all);
    return text;
}

typedef struct planned {
    method base;
    lierne_context *context;
    lierne_samples *samples; /* or NULL */
    lierne_plan *plan;
    char *in[2], *out[2];
} planned;

static lierne_status create_samples(planned *p, const sample_work *w) {
    const lierne_samples_tensor tensor = {LIERNE_SAMPLES_DISPATCH, LIERNE_DTYPE_F32, WIDTH};
    const lierne_samples_spec spec = {.size = sizeof spec,
                                      .max_local_items = LOCAL,
                                      .ncosts = 1,
                                      .max_rows = w->all,
                                      .ntensors = 1,
                                      .tensors = &tensor};
    const lierne_items items = {.size = sizeof items,
                                .nitems = LOCAL,
                                .ncosts = 1,
                                .cost = w->rows + LOCAL * test_rank};
    lierne_balance_spec balance = LIERNE_BALANCE_SPEC_INIT;
    balance.mode = (lierne_balance_mode)w->mode;
    lierne_status status = lierne_samples_create(&p->samples, p->context, &spec);
    status =
        status == LIERNE_OK ? lierne_samples_update(p->samples, &items, &balance, NULL) : status;
    return status == LIERNE_OK ? lierne_samples_get_plan(&p->plan, p->samples, 0) : status;
}

/* The layout of all ranks in one dim. */
static lierne_status create_layout(lierne_layout **out, const sample_work *w,
                                   const lierne_placement *placement,
                                   const lierne_packing *packing) {
    static const char *const name = "rank";
    const int64_t size = test_world, shape[2] = {w->all, WIDTH};
    const lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = &name, .sizes = &size, .world_size = size};
    const lierne_segments segments = {.size = sizeof segments,
                                      .nsegments = w->n,
                                      .cu_seqlens = w->cu};
    lierne_grid *grid = NULL;
    lierne_status status = lierne_grid_create(&grid, &grid_spec);
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = placement,
                                     .segments = packing ? &segments : NULL,
                                     .packing = packing};
    status = status == LIERNE_OK ? lierne_layout_create(out, &spec) : status;
    lierne_grid_destroy(grid);
    return status;
}

/* packing: NULL for the owners of rows. */
static lierne_status redistribute(planned *p, const sample_work *w, const lierne_packing *packing) {
    lierne_layout *layouts[2] = {NULL, NULL};
    lierne_status status = LIERNE_OK;
    for (int side = 0; side < 2 && status == LIERNE_OK; side++) {
        const lierne_placement rows = {.kind = LIERNE_PLACEMENT_SHARD_ROWS,
                                       .axis2 = -1,
                                       .rows = w->owner[side]},
                               share = {.kind = side ? LIERNE_PLACEMENT_SHARD
                                                     : LIERNE_PLACEMENT_SEGMENT_ZIGZAG};
        status = create_layout(&layouts[side], w, packing ? &share : &rows, packing);
    }
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = layouts[0],
                                           .dst = layouts[1],
                                           .max_segments = packing ? w->n : 0,
                                           .max_rows = packing ? w->all : 0};
    status =
        status == LIERNE_OK ? lierne_plan_create_redistribute(&p->plan, p->context, &spec) : status;
    lierne_layout_destroy(layouts[0]);
    lierne_layout_destroy(layouts[1]);
    return status;
}

static lierne_status create_row_map(planned *p, const sample_work *w) {
    return redistribute(p, w, NULL);
}

static lierne_status create_segments(planned *p, const sample_work *w) {
    const lierne_packing packing = {.size = sizeof packing};
    const lierne_segments segments = {.size = sizeof segments,
                                      .nsegments = w->n,
                                      .cu_seqlens = w->cu};
    const lierne_segments_update update = {.size = sizeof update,
                                           .segments = &segments,
                                           .src = &packing,
                                           .dst = &packing};
    lierne_status status = redistribute(p, w, &packing);
    return status == LIERNE_OK ? lierne_plan_update_segments(p->plan, &update) : status;
}

static bool run_plan(method *m, int direction) {
    planned *p = (planned *)m;
    return (direction == FORWARD ? lierne_plan_forward
                                 : lierne_plan_adjoint)(p->plan, p->out[direction],
                                                        p->in[direction], NULL) == LIERNE_OK;
}

static void before_plan(method *m, int direction) {
    const sample_work *w = m->workload;
    if (m->dirty) {
        rewrite(((planned *)m)->in[direction], w->bytes[direction]);
    }
}

static void close_plan(method *m) {
    lierne_context_destroy_all(((planned *)m)->context);
    free(m);
}

/* windows: buffers are memory of the context. */
static method *open_plan(const sample_work *w, bool planned_once, bool windows) {
    planned *p = (planned *)take(sizeof *p);
    *p = (planned){.base = {.workload = w, .run = run_plan, .checked = true}};
    CHECK_OK(lierne_context_create_mpi(&p->context, MPI_COMM_WORLD, NULL));
    CHECK_OK((planned_once          ? create_row_map
              : w->mode == SEGMENTS ? create_segments
                                    : create_samples)(p, w));
    for (int d = FORWARD; d <= ADJOINT; d++) {
        p->in[d] = w->in[d];
        p->out[d] = w->out[d];
        if (windows) {
            void *memory[2];
            CHECK_OK(lierne_context_alloc(&memory[0], p->context, w->bytes[d] + 1));
            CHECK_OK(lierne_context_alloc(&memory[1], p->context, w->bytes[!d] + 1));
            memcpy(memory[0], w->in[d], w->bytes[d]);
            p->in[d] = memory[0];
            p->out[d] = memory[1];
        }
        p->base.result[d] = p->out[d];
    }
    p->base.owns_inputs = windows;
    p->base.before = windows ? before_plan : NULL;
    return &p->base;
}

static method *open_window_map(const void *w) {
    return open_plan(w, true, true);
}
static method *open_window_steps(const void *w) {
    return open_plan(w, false, true);
}
static method *open_map(const void *w) {
    return open_plan(w, true, false);
}
static method *open_steps(const void *w) {
    return open_plan(w, false, false);
}

static const method_kind window_map = {"row map, windows", open_window_map, close_plan},
                         window_steps = {"steps, windows", open_window_steps, close_plan},
                         plain_map = {"row map", open_map, close_plan},
                         plain_steps = {"steps", open_steps, close_plan};

static const char *name_of(int mode) {
    return mode == SEGMENTS              ? "segments, zigzag to contiguous"
           : mode == LIERNE_BALANCE_SHED ? "samples, shed"
                                         : "samples, lpt";
}

static void run_one(tables *t, int mode, bool dirty) {
    static const method_kind *const kinds[] = {&window_map, &window_steps, &plain_map,
                                               &plain_steps};
    static const char *const headings[] = {"dispatch", "adjoint", "both"};
    outcome results[METHODS];
    char title[128];
    sample_work w = {.mode = mode};
    bench b = {.workload = &w,
               .kinds = kinds,
               .nkinds = 4,
               .reset = reset,
               .right = is_right,
               .rewrite = rewrite_input,
               .text = text_of};
    open_work(&w);
    snprintf(title, sizeof title, "%d ranks, %s, %lld of %lld rows move, %s", test_world,
             name_of(mode), (long long)w.moved, (long long)w.all, dirty ? "dirty" : "hot");
    if (tables_want(t, title)) {
        int rounds = t->quick ? 0 : 31, n = measure(&b, dirty, rounds, results);
        if (rounds > 0) {
            t->headings = headings;
            tables_print(t, title, results, n, rounds);
            tables_keep(t, title, results, n, BOTH);
        }
    }
    close_work(&w);
}

int main(int argc, char **argv) {
    static tables t = {.unit = "milliseconds",
                       .per_second = 1e3,
                       .ratios = "the time as a multiple of a row map's in windows",
                       .reference = &window_map,
                       .over = "/row map",
                       .columns = {{"steps", {&window_steps}},
                                   {"row map", {&plain_map}},
                                   {"steps", {&plain_steps}}}};
    test_start(&argc, &argv);
    tables_ask(&t, argc, argv);
    for (int dirty = 0; dirty < (t.quick ? 1 : 2); dirty++) {
        run_one(&t, LIERNE_BALANCE_SHED, dirty);
        run_one(&t, LIERNE_BALANCE_LPT, dirty);
        run_one(&t, SEGMENTS, dirty);
    }
    tables_print_ratios(&t);
    return test_finish();
}
