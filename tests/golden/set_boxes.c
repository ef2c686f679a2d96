/* set_boxes.json: tensor sets whose tensors are fused, stacked, transposed or tied. The file has
 * every rank's buffers, made by slices and concatenations (set_boxes.py). */
#include "row_case.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TENSORS = 8, MOST_BOXES = 16, MOST_DIMS = 2 };

typedef struct side {
    lierne_grid *grid;
    int n;
    lierne_layout *layouts[MOST_TENSORS];
} side;

/* A case: what every rank plans, and the world in which it does. */
typedef struct work {
    const cJSON *item;
    golden_world *world;
    side sides[2];
    lierne_set_box boxes[MOST_BOXES];
    int axes[MOST_BOXES][LIERNE_MAX_AXES];
    lierne_set_spec spec;
    lierne_dtype dtype;
} work;

static int read_sizes(int64_t *sizes, const cJSON *list, int most) {
    const cJSON *one;
    int n = 0;
    cJSON_ArrayForEach(one, list) {
        if (n < most) {
            sizes[n++] = golden_to_int(one, -1);
        }
    }
    return n;
}

/* [axis, counts or null], or null: a copy on each coordinate. counts are the caller's memory. */
static lierne_placement read_cut(const cJSON *cut, int64_t **counts) {
    const cJSON *list = cJSON_GetArrayItem(cut, 1);
    int64_t n;
    *counts = cJSON_IsArray(list) ? golden_read_ints(list, &n) : NULL;
    lierne_placement placement = {.kind = LIERNE_PLACEMENT_REPLICATE};
    if (cJSON_IsArray(cut)) {
        placement.kind = LIERNE_PLACEMENT_SHARD;
        placement.axis = (int)golden_to_int(cJSON_GetArrayItem(cut, 0), -1);
        placement.counts = *counts;
    }
    return placement;
}

static void read_tensor(golden_case *c, work *w, side *s, const cJSON *tensor) {
    int64_t shape[LIERNE_MAX_AXES], *counts[MOST_DIMS] = {NULL};
    lierne_placement placements[MOST_DIMS] = {{0}};
    const cJSON *cut;
    int ndims = 0;
    if (!golden_expect(c, s->n < MOST_TENSORS, "more than %d tensors", (int)MOST_TENSORS)) {
        return;
    }
    cJSON_ArrayForEach(cut, golden_get(tensor, "cuts")) {
        if (golden_expect(c, ndims < MOST_DIMS, "more than %d cuts", (int)MOST_DIMS)) {
            placements[ndims] = read_cut(cut, &counts[ndims]);
            ndims++;
        }
    }
    lierne_layout_spec spec = {.size = sizeof spec,
                               .grid = s->grid,
                               .naxes =
                                   read_sizes(shape, golden_get(tensor, "shape"), LIERNE_MAX_AXES),
                               .shape = shape,
                               .dtype = w->dtype,
                               .placements = placements};
    golden_expect_status(c, "lierne_layout_create",
                         lierne_layout_create(&s->layouts[s->n++], &spec), LIERNE_OK);
    for (int d = 0; d < ndims; d++) {
        free(counts[d]);
    }
}

static void read_side(golden_case *c, work *w, int number, const char *key) {
    const cJSON *tensor, *item = golden_get(c->item, key);
    side *s = &w->sides[number];
    lierne_status status = golden_grid(&s->grid, golden_get(item, "grid"), w->world->n);
    if (golden_expect_status(c, key, status, LIERNE_OK)) {
        cJSON_ArrayForEach(tensor, golden_get(item, "tensors")) {
            read_tensor(c, w, s, tensor);
        }
    }
}

static void read_box(work *w, const cJSON *item) {
    int64_t axes[LIERNE_MAX_AXES];
    int number = (int)w->spec.nboxes++;
    lierne_set_box *box = &w->boxes[number];
    *box = (lierne_set_box){.src = golden_int(item, "src", -1), .dst = golden_int(item, "dst", -1)};
    read_sizes(box->src_start, golden_get(item, "src_start"), LIERNE_MAX_AXES);
    read_sizes(box->dst_start, golden_get(item, "dst_start"), LIERNE_MAX_AXES);
    read_sizes(box->sizes, golden_get(item, "sizes"), LIERNE_MAX_AXES);
    int n = read_sizes(axes, golden_get(item, "axes"), LIERNE_MAX_AXES);
    for (int a = 0; a < n; a++) {
        w->axes[number][a] = (int)axes[a];
    }
    box->axes = n > 0 ? w->axes[number] : NULL;
}

static void read_case(golden_case *c, work *w) {
    const cJSON *one;
    read_side(c, w, 0, "src");
    read_side(c, w, 1, "dst");
    w->spec = (lierne_set_spec){.size = sizeof w->spec,
                                .ntensors = w->sides[0].n,
                                .src = (const lierne_layout *const *)w->sides[0].layouts,
                                .dst = (const lierne_layout *const *)w->sides[1].layouts,
                                .ndst = w->sides[1].n,
                                .boxes = w->boxes};
    cJSON_ArrayForEach(one, golden_get(c->item, "boxes")) {
        if (golden_expect(c, w->spec.nboxes < MOST_BOXES, "more than %d boxes", (int)MOST_BOXES)) {
            read_box(w, one);
        }
    }
    if (!c->failed) {
        golden_expect_status(c, "lierne_set_check", lierne_set_check(&w->spec), LIERNE_OK);
    }
}

static void end_case(work *w) {
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < w->sides[s].n; i++) {
            lierne_layout_destroy(w->sides[s].layouts[i]);
        }
        lierne_grid_destroy(w->sides[s].grid);
    }
}

/* The buffer of a rank in one of the file's lists; a rank that is not named has nothing. */
static double *read_buffer(const work *w, const char *key, int rank, int64_t *n) {
    char name[16];
    snprintf(name, sizeof name, "%d", rank);
    *n = 0;
    const cJSON *list = golden_get(golden_get(w->item, key), name);
    return list ? golden_read_values(list, n) : golden_alloc(0, sizeof(double));
}

/* Moves what the list `from` has; the output, poisoned before, must be what the list `to` has. */
static void expect_move(golden_case *c, const work *w, int rank, lierne_direction direction,
                        const char *from, const char *to) {
    int64_t nin, nout, sizes[2];
    lierne_plan *plan = w->world->plans[rank];
    double *in = read_buffer(w, from, rank, &nin), *out = read_buffer(w, to, rank, &nout);
    void *input = golden_alloc(nin, 8), *output = golden_alloc(nout, 8);
    lierne_status status = lierne_plan_get_elements(&sizes[0], &sizes[1], plan, direction);
    golden_expect_status(c, "lierne_plan_get_elements", status, LIERNE_OK);
    bool fits = golden_expect(c, sizes[0] == nin && sizes[1] == nout,
                              "%s has %lld elements and %s %lld; the file has %lld and %lld", from,
                              (long long)sizes[0], to, (long long)sizes[1], (long long)nin,
                              (long long)nout);
    for (int64_t i = 0; fits && i < nin; i++) {
        number_put(w->dtype, input, i, in[i]);
    }
    for (int64_t i = 0; fits && i < nout; i++) {
        number_put(w->dtype, output, i, -1);
    }
    status = direction == LIERNE_DIRECTION_FORWARD ? lierne_plan_forward(plan, output, input, NULL)
                                                   : lierne_plan_adjoint(plan, output, input, NULL);
    golden_expect_status(c, to, status, LIERNE_OK);
    for (int64_t i = 0; fits && i < nout; i++) {
        double got = number_get(w->dtype, output, i);
        golden_expect(c, got >= out[i] && got <= out[i], "%s[%lld] is %g, must be %g", to,
                      (long long)i, got, out[i]);
    }
    free(in);
    free(out);
    free(input);
    free(output);
}

static void run_rank(lierne_context *context, void *shared) {
    const work *w = shared;
    int rank = lierne_context_get_rank(context);
    golden_case *c = &w->world->cases[rank];
    lierne_status status = lierne_plan_create_set(&w->world->plans[rank], context, &w->spec);
    if (!golden_expect_status(c, "lierne_plan_create_set", status, LIERNE_OK)) {
        return;
    }
    expect_move(c, w, rank, LIERNE_DIRECTION_FORWARD, "input", "output");
    if (golden_get(w->item, "input_gradient")) {
        expect_move(c, w, rank, LIERNE_DIRECTION_ADJOINT, "output_gradient", "input_gradient");
    } else {
        double none[64];
        status = lierne_plan_adjoint(w->world->plans[rank], none, none + 32, NULL);
        golden_expect_status(c, "the adjoint of tied tensors", status, LIERNE_ERR_INVALID);
    }
}

static void try_dtype(golden_case *c, lierne_dtype dtype) {
    golden_world world = golden_world_new(c, (int)golden_int(c->item, "world_size", 0));
    work w = {.item = c->item, .world = &world, .dtype = dtype};
    read_case(c, &w);
    /* Routes are compared both ways: those of tied tensors, which have no adjoint, are not. */
    bool planned = !c->failed && golden_world_run(&world, run_rank, &w);
    if (planned && golden_get(c->item, "input_gradient")) {
        golden_world_check(c, &world);
    }
    golden_world_end(c, &world, lierne_dtype_name(dtype));
    end_case(&w);
}

void golden_set_boxes(golden_case *c) {
    try_dtype(c, LIERNE_DTYPE_I32);
    if (!c->failed) {
        try_dtype(c, LIERNE_DTYPE_F64);
    }
}
