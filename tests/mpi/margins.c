/* Margins whose rows lie apart go packed over shared memory, so that a rank's calls end although
 * those that need its elements have not called yet: ranks call twice, one rank after the other.
 * Rows of 1 KiB do so where they are overwritten, as the gradients of margins in place are. */
#include "mpi/common.h"

#include "lierne/redistribute.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 128, COLUMNS = 640, CALLS = 2 };

typedef struct field {
    lierne_context *context;
    lierne_plan *plan;
    int64_t columns; /* of this rank's buffer: its margin, then its part */
    float *at;
} field;

static lierne_layout *extended(const lierne_grid *grid, int64_t width) {
    const int64_t shape[] = {ROWS, COLUMNS * test_world};
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD, .axis = 1};
    const lierne_dense_halo halo = {.axis = 1, .lo = width};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &cut,
                                     .nhalos = 1,
                                     .halos = &halo};
    lierne_layout *layout;
    CHECK_OK(lierne_layout_create(&layout, &spec));
    return layout;
}

static field open_field(int64_t width) {
    static const char *const name = "x";
    const int64_t size = test_world;
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 1, .names = &name, .sizes = &size, .world_size = test_world};
    field f = {.context = test_context(PATIENT), .columns = COLUMNS + (test_rank ? width : 0)};
    lierne_grid *grid;
    CHECK_OK(lierne_grid_create(&grid, &spec));
    lierne_layout *layout = extended(grid, width);
    const lierne_redistribute_spec moves = {.size = sizeof moves, .src = layout, .dst = layout};
    CHECK_OK(lierne_plan_create_redistribute(&f.plan, f.context, &moves));
    CHECK_OK(
        lierne_context_alloc((void **)&f.at, f.context, (size_t)(ROWS * f.columns) * sizeof *f.at));
    lierne_layout_destroy(layout);
    lierne_grid_destroy(grid);
    return f;
}

static void close_field(field *f) {
    CHECK_OK(lierne_context_dealloc(f->context, f->at));
    CHECK_OK(lierne_plan_destroy(f->plan));
    CHECK_OK(lierne_context_destroy(f->context));
}

/* The element of this rank's column; those of the margin are below 0. */
static float value(int call, int64_t row, int64_t column) {
    return (float)(call * ROWS * 7 + row * 7 + (test_rank * COLUMNS + column) % 5003);
}

static float *element(const field *f, int64_t row, int64_t column) {
    return &f->at[row * f->columns + f->columns - COLUMNS + column];
}

/* The element afterwards. A gradient's terms are equal; each margin is as wide as another one. */
static float result(int64_t width, bool adjoint, int call, int64_t row, int64_t column) {
    bool shown = column >= COLUMNS - width && test_rank + 1 < test_world;
    float once = value(call, row, column);
    return !adjoint ? once : column < 0 ? 0 : shown ? 2 * once : once;
}

/* What the rank sent before it wrote to its buffer again must arrive. */
static void call_once(const field *f, int64_t width, bool adjoint, int call) {
    long wrong = 0;
    int64_t margin = f->columns - COLUMNS;
    for (int64_t i = 0; i < ROWS * f->columns; i++) {
        int64_t row = i / f->columns, column = i % f->columns - margin;
        *element(f, row, column) = column < 0 && !adjoint ? 0 : value(call, row, column);
    }
    CHECK_OK((adjoint ? lierne_plan_adjoint : lierne_plan_forward)(f->plan, f->at, f->at, NULL));
    for (int64_t i = 0; i < ROWS * f->columns; i++) {
        int64_t row = i / f->columns, column = i % f->columns - margin;
        wrong += *element(f, row, column) != result(width, adjoint, call, row, column);
    }
    CHECK(wrong == 0, "call %d: %ld wrong", call, wrong);
}

/* The first rank that calls is the one that needs nothing of others. */
static void call_in_turn(int64_t width, bool adjoint) {
    field f = open_field(width);
    for (int rank = 0; rank < test_world; rank++) {
        bool calls = test_rank == (adjoint ? test_world - 1 - rank : rank);
        for (int call = 0; call < CALLS && calls; call++) {
            call_once(&f, width, adjoint, call);
        }
        if (test_over_shm()) {
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    close_field(&f);
}

int main(int argc, char **argv) {
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    call_in_turn(32, false);
    call_in_turn(32, true);
    call_in_turn(256, true); /* rows of 1 KiB */
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
