/* A 2-D tensor of rows is planned as one of three axes by the model, so shapes and placements are
 * turned here into what the library is told. */
#include "bridge_plan.h"

#include "routing.h"

#include <stdio.h>

lierne_bridge_spec bridge_spec_of(const lierne_grid *src, const lierne_grid *dst,
                                  const int64_t *shape) {
    return (lierne_bridge_spec){.size = sizeof(lierne_bridge_spec),
                                .src = src,
                                .dst = dst,
                                .naxes = 3,
                                .shape = shape,
                                .dtype = LIERNE_DTYPE_F32,
                                .sequence_axis = 1};
}

bridge_case case_of_samples(int world, int hidden, mesh dst) {
    return (bridge_case){.src = mesh_of("tcd", 1, 1, world),
                         .dst = dst,
                         .world = world,
                         .batch = world,
                         .sequence = 4,
                         .hidden = hidden,
                         .axis_b = 0,
                         .axis_s = 1,
                         .axis_h = 2,
                         .dtype = LIERNE_DTYPE_F32};
}

/* A spec of the case, and what it points to. */
typedef struct case_spec {
    lierne_bridge_spec spec;
    lierne_grid *src;
    lierne_grid *dst;
    lierne_placement src_placed[MESH_DIMS];
    lierne_placement dst_placed[MESH_DIMS];
    int64_t shape[3];
} case_spec;

static void set_placements(const bridge_case *c, const lierne_placement *from,
                           lierne_placement *to) {
    int where[3] = {c->axis_b, c->axis_s, c->axis_h};
    for (int d = 0; d < MESH_DIMS; d++) {
        to[d] = from[d];
        to[d].axis = where[from[d].axis];
    }
}

static void open_spec(const bridge_case *c, case_spec *s) {
    int rows = c->axis_s < 0 && c->sequence > 1;
    s->src = mesh_grid(&c->src, c->world);
    s->dst = mesh_grid(&c->dst, c->world);
    s->shape[c->axis_b] = rows ? c->batch * c->sequence : c->batch;
    if (c->axis_s >= 0) {
        s->shape[c->axis_s] = c->sequence;
        set_placements(c, c->src_placed, s->src_placed);
        set_placements(c, c->dst_placed, s->dst_placed);
    }
    s->shape[c->axis_h] = c->hidden;
    s->spec = (lierne_bridge_spec){.size = sizeof s->spec,
                                   .src = s->src,
                                   .dst = s->dst,
                                   .naxes = c->axis_s < 0 ? 2 : 3,
                                   .shape = s->shape,
                                   .dtype = c->dtype,
                                   .batch_axis = c->axis_b,
                                   .sequence_axis = c->axis_s,
                                   .src_counts = c->src_counts,
                                   .dst_counts = c->dst_counts,
                                   .gradient_owner = c->owner,
                                   .gradient_storage = c->storage,
                                   .row_owner = c->rows,
                                   .shared_output = c->sharing,
                                   .src_placements = c->placed ? s->src_placed : NULL,
                                   .dst_placements = c->placed ? s->dst_placed : NULL,
                                   .output = c->output,
                                   .rows_per_sample = rows ? c->sequence : 0,
                                   .row_order = c->row_order,
                                   .routing = c->routing ? c->routing : test_routing(),
                                   .max_peers = c->sharing || c->algorithm != TEST_DIRECT
                                                    ? 0
                                                    : test_max_peers(c->world)};
}

static void close_spec(case_spec *s) {
    lierne_grid_destroy(s->src);
    lierne_grid_destroy(s->dst);
}

lierne_status case_plan(lierne_plan **plan, lierne_context *context, const bridge_case *c) {
    case_spec s;
    open_spec(c, &s);
    lierne_status status = test_plan_bridge(plan, context, &s.spec, c->algorithm);
    close_spec(&s);
    return status;
}

/* The layouts that a direction moves between. */
typedef struct case_sides {
    lierne_layout *layouts[3]; /* src, dst, gradient */
    const lierne_layout *from;
    const lierne_layout *to;
} case_sides;

static lierne_status open_sides(const bridge_case *c, lierne_direction d, case_sides *s) {
    case_spec spec;
    open_spec(c, &spec);
    lierne_status status =
        lierne_layout_create_bridge(&s->layouts[0], &s->layouts[1], &s->layouts[2], &spec.spec);
    close_spec(&spec);
    s->from = s->layouts[d ? 2 : 0];
    s->to = s->layouts[d ? 0 : 1];
    return status;
}

static void close_sides(case_sides *s) {
    for (int i = 0; i < 3; i++) {
        lierne_layout_destroy(s->layouts[i]);
    }
}

lierne_status case_bound(const bridge_case *c, lierne_direction d, int64_t *received,
                         int64_t *sent) {
    case_sides s;
    lierne_status status = open_sides(c, d, &s);
    if (status == LIERNE_OK) {
        status = lierne_redistribute_get_bound(received, sent, s.from, s.to);
    }
    close_sides(&s);
    return status;
}

lierne_status case_node_bound(const bridge_case *c, lierne_direction d, lierne_node_bound *bound) {
    case_sides s;
    lierne_status status = open_sides(c, d, &s);
    if (status == LIERNE_OK) {
        status = lierne_redistribute_get_node_bound(bound, s.from, s.to, c->nodes);
    }
    close_sides(&s);
    return status;
}

static void mesh_text(char *text, size_t size, const mesh *m) {
    size_t used = 0;
    for (int i = 0; i < m->ndims; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%lld", m->names[i],
                                 (long long)m->sizes[i]);
    }
    snprintf(text + used, size - used, "@%d", m->offset);
}

const char *case_text(const bridge_case *c) {
    static const char *const owners[] = {"partial", "zigzag", "contiguous", "rows"};
    static const char *const algorithms[] = {"direct", "collective", "leader"};
    static char text[256];
    char src[64], dst[64];
    mesh_text(src, sizeof src, &c->src);
    mesh_text(dst, sizeof dst, &c->dst);
    snprintf(text, sizeof text, "%s -> %s, b %lld on axis %d, s %lld on axis %d, %s, %s, %s %s",
             src, dst, (long long)c->batch, c->axis_b, (long long)c->sequence, c->axis_s,
             lierne_dtype_name(c->dtype), algorithms[c->algorithm], owners[c->owner],
             c->storage == LIERNE_STORAGE_FULL ? "full" : "compact");
    return text;
}
