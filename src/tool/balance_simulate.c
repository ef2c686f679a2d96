/* lierne balance --simulate: the rows of an assignment moved in a simulated world, there and back.
 *
 * A row is one number, its place among the rows of all items, and a gradient another function of
 * it: so what every buffer must be is known without asking how rows move. */
#include "tool/balance_input.h"

#include "lierne/redistribute.h"
#include "lierne/sim.h"
#include "tool/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT, RESULT, GRADIENT, INPUT_GRADIENT, BUFFERS };
enum { HOME, ASSIGNED, SIDES };
static const int side_of[BUFFERS] = {HOME, ASSIGNED, ASSIGNED, HOME};
#define POISON ((int64_t)0x5a5a5a5a5a5a5a5a)

typedef struct world {
    const lierne_items *items;
    int nranks;
    int64_t *cu;           /* sums of the rows of items */
    int32_t *owner[SIDES]; /* of each item */
    int64_t *next[SIDES];  /* of each rank, the place of its next row; in the end, its rows */
    lierne_layout *layouts[SIDES];
    lierne_plan **plans;
    lierne_request **requests;
    int64_t **buffers[BUFFERS]; /* of each rank */
    verify_count count[2];
    uint64_t dot[2];
} world;

static int64_t value_of(int buffer, int64_t row) {
    return buffer == INPUT || buffer == RESULT ? row : row * 6007 % 4093 - 2046;
}

static void check_row(world *w, int buffer, int rank, int64_t at, int64_t row) {
    int d = buffer == RESULT ? LIERNE_DIRECTION_FORWARD : LIERNE_DIRECTION_ADJOINT;
    int64_t got = w->buffers[buffer][rank][at], expected = value_of(buffer, row);
    verify_count *c = &w->count[d];
    c->checked++;
    if (got != expected && c->wrong++ == 0) {
        c->rank = rank, c->index = at, c->where = VERIFY_IN_OUTPUT;
        c->expected = (double)expected, c->got = (double)got;
    }
    w->dot[d] +=
        (uint64_t)got * (uint64_t)w->buffers[buffer == RESULT ? GRADIENT : INPUT][rank][at];
}

/* All rows of a buffer of all ranks: inputs are filled, outputs checked. */
static void walk_rows(world *w, int buffer) {
    int side = side_of[buffer];
    memset(w->next[side], 0, (size_t)w->nranks * sizeof *w->next[side]);
    for (int64_t i = 0; i < w->items->nitems; i++) {
        int rank = w->owner[side][i];
        for (int64_t row = w->cu[i]; row < w->cu[i + 1]; row++) {
            int64_t at = w->next[side][rank]++;
            if (buffer == RESULT || buffer == INPUT_GRADIENT) {
                check_row(w, buffer, rank, at, row);
            } else {
                w->buffers[buffer][rank][at] = value_of(buffer, row);
            }
        }
    }
    for (int r = 0; r < w->nranks && (buffer == RESULT || buffer == INPUT_GRADIENT); r++) {
        verify_count *c = &w->count[buffer == INPUT_GRADIENT];
        int64_t end = w->next[side][r], got = w->buffers[buffer][r][end];
        if (got != POISON && c->wrong++ == 0) {
            c->rank = r, c->index = end * (int64_t)sizeof got, c->where = VERIFY_PAST_OUTPUT;
            c->expected = (double)POISON, c->got = (double)got;
        }
    }
}

static void count_rows(world *w) {
    for (int64_t i = 0; i < w->items->nitems; i++) {
        int64_t rows = w->items->rows[i];
        w->cu[i + 1] = w->cu[i] + rows;
        w->next[HOME][w->owner[HOME][i]] += rows;
        w->next[ASSIGNED][w->owner[ASSIGNED][i]] += rows;
    }
}

static bool open_lists(world *w, const int64_t *counts, const int32_t *assigned) {
    size_t n = (size_t)w->items->nitems, ranks = (size_t)w->nranks;
    w->cu = calloc(n + 1, sizeof *w->cu);
    w->plans = calloc(ranks, sizeof *w->plans);
    w->requests = calloc(ranks, sizeof *w->requests);
    bool good = w->cu && w->plans && w->requests;
    for (int side = 0; side < SIDES; side++) {
        w->owner[side] = calloc(n + 1, sizeof *w->owner[side]);
        w->next[side] = calloc(ranks, sizeof *w->next[side]);
        good = good && w->owner[side] && w->next[side];
    }
    for (int b = 0; b < BUFFERS; b++) {
        w->buffers[b] = calloc(ranks, sizeof *w->buffers[b]);
        good = good && w->buffers[b];
    }
    int64_t i = 0;
    for (int r = 0; good && r < w->nranks; r++) {
        for (int64_t end = i + counts[r]; i < end; i++) {
            w->owner[HOME][i] = r;
            w->owner[ASSIGNED][i] = assigned[i];
        }
    }
    return good;
}

/* With a row more, that must not be written. */
static bool open_buffers(world *w) {
    bool good = true;
    count_rows(w);
    for (int b = 0; b < BUFFERS; b++) {
        for (int r = 0; good && r < w->nranks; r++) {
            int64_t rows = w->next[side_of[b]][r] + 1;
            int64_t *at = w->buffers[b][r] = malloc((size_t)rows * sizeof *at);
            good = at != NULL;
            for (int64_t k = 0; good && k < rows; k++) {
                at[k] = POISON;
            }
        }
    }
    return good;
}

static lierne_status create_layout(lierne_layout **out, const world *w, int side) {
    static const char *const name = "rank";
    const int64_t size = w->nranks, n = w->items->nitems, shape[1] = {w->cu[n]};
    const lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = &name, .sizes = &size, .world_size = size};
    const lierne_placement placement = {.kind = LIERNE_PLACEMENT_SHARD_SEGMENTS, .axis = 0};
    const lierne_segments segments = {.size = sizeof segments, .nsegments = n, .cu_seqlens = w->cu};
    const lierne_packing packing = {.size = sizeof packing, .owner = w->owner[side]};
    lierne_layout_spec spec = {.size = sizeof spec,
                               .naxes = 1,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_I64,
                               .placements = &placement,
                               .segments = &segments,
                               .packing = &packing};
    lierne_grid *grid = NULL;
    lierne_status status = lierne_grid_create(&grid, &grid_spec);
    spec.grid = grid;
    status = status == LIERNE_OK ? lierne_layout_create(out, &spec) : status;
    lierne_grid_destroy(grid);
    return status;
}

static lierne_status plan_ranks(world *w, lierne_sim *sim) {
    lierne_status status = create_layout(&w->layouts[HOME], w, HOME);
    status = status == LIERNE_OK ? create_layout(&w->layouts[ASSIGNED], w, ASSIGNED) : status;
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = w->layouts[HOME],
                                           .dst = w->layouts[ASSIGNED]};
    for (int r = 0; r < w->nranks && status == LIERNE_OK; r++) {
        status =
            lierne_plan_create_redistribute(&w->plans[r], lierne_sim_get_context(sim, r), &spec);
    }
    return status;
}

/* Whether the plans' buffers are those of the items: next counts rows until they are walked. */
static bool fits(const world *w) {
    bool good = true;
    for (int r = 0; r < w->nranks && good; r++) {
        int64_t in, out;
        lierne_plan_get_elements(&in, &out, w->plans[r], LIERNE_DIRECTION_FORWARD);
        good = in == w->next[HOME][r] && out == w->next[ASSIGNED][r];
    }
    return good;
}

static lierne_status execute(world *w, bool adjoint) {
    int in = adjoint ? GRADIENT : INPUT, out = adjoint ? INPUT_GRADIENT : RESULT;
    lierne_status status = LIERNE_OK;
    for (int r = 0; r < w->nranks && status == LIERNE_OK; r++) {
        status = (adjoint ? lierne_plan_adjoint_begin
                          : lierne_plan_forward_begin)(&w->requests[r], w->plans[r],
                                                       w->buffers[out][r], w->buffers[in][r], NULL);
    }
    for (int r = 0; r < w->nranks; r++) {
        lierne_status ended = lierne_request_end(w->requests[r]);
        w->requests[r] = NULL;
        status = status == LIERNE_OK ? ended : status;
    }
    if (status == LIERNE_OK) {
        walk_rows(w, out);
    }
    return status;
}

/* *moved: the rows were moved; else a buffer of a plan has another size than the items. */
static lierne_status simulate(world *w, bool *moved) {
    lierne_sim *sim = NULL;
    const lierne_context_spec spec = {.size = sizeof spec};
    lierne_status status = lierne_sim_create(&sim, w->nranks, &spec);
    status = status == LIERNE_OK ? plan_ranks(w, sim) : status;
    *moved = status == LIERNE_OK && fits(w);
    if (*moved) {
        walk_rows(w, INPUT);
        walk_rows(w, GRADIENT);
        status = execute(w, false);
        status = status == LIERNE_OK ? execute(w, true) : status;
    }
    lierne_sim_destroy_all(sim);
    return status;
}

static void close_world(world *w) {
    for (int b = 0; b < BUFFERS; b++) {
        for (int r = 0; w->buffers[b] && r < w->nranks; r++) {
            free(w->buffers[b][r]);
        }
        free(w->buffers[b]);
    }
    for (int side = 0; side < SIDES; side++) {
        lierne_layout_destroy(w->layouts[side]);
        free(w->owner[side]);
        free(w->next[side]);
    }
    free(w->cu);
    free(w->plans);
    free(w->requests);
}

static void print_world(const world *w, const char *title, bool json) {
    int64_t lhs = (int64_t)w->dot[0], rhs = (int64_t)w->dot[1];
    if (json) {
        printf("{\"world\":%d", w->nranks);
        verify_print_json(w->count, lhs, rhs);
        printf("}\n");
    } else {
        printf("%s, %" PRId64 " rows\n", title, w->cu[w->items->nitems]);
        verify_print_text(w->count, lhs, rhs);
    }
}

int balance_simulate(char **argv, const lierne_items *items, const int64_t *counts, int nranks,
                     const lierne_assignment *assignment, const char *title, bool json) {
    world w = {.items = items, .nranks = nranks};
    int status = TOOL_INVALID;
    bool moved;
    if (!open_lists(&w, counts, lierne_assignment_get_ranks(assignment)) || !open_buffers(&w)) {
        status = tool_usage(argv, "no memory for the rows of %d ranks", nranks);
    } else if (simulate(&w, &moved) != LIERNE_OK) {
        tool_failed(argv);
    } else if (!moved) {
        tool_say(argv, "a buffer of a plan has another size than the items of its rank");
    } else {
        print_world(&w, title, json);
        bool right = verify_is_right(w.count, (int64_t)w.dot[0], (int64_t)w.dot[1]);
        status = right ? TOOL_VALID : TOOL_INVALID;
    }
    close_world(&w);
    return status;
}
