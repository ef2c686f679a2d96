/* Random tensor sets: see set_case.h. */
#include "unit/set_case.h"

#include <stdlib.h>
#include <string.h>

enum { GAP = 3, STEP = 1000003 };

static const int64_t poison = (int64_t)0xa5a5a5a5a5a5a5a5u;

/* A random redistribution without contributions, which sets do not have. */
static void random_kind(redistribute_case *c, uint64_t seed, int world) {
    random_redistribute(c, seed, world);
    c->dtype = LIERNE_DTYPE_I64;
    c->stated_adjoint = 0;
    for (int i = 0; i < CASE_LAYOUTS; i++) {
        for (int d = 0; d < c->layouts[i].ndims; d++) {
            lierne_placement *p = &c->layouts[i].placements[d];
            p->kind = p->kind == LIERNE_PLACEMENT_PARTIAL ? LIERNE_PLACEMENT_REPLICATE : p->kind;
        }
    }
}

void random_set(set_case *c, uint64_t seed, int world) {
    memset(c, 0, sizeof *c);
    c->world = world;
    c->ntensors = 1 + (int)(seed % SET_TENSORS);
    c->scattered = (int)(seed / 2 % 2);
    for (int k = 0; k < SET_KINDS; k++) {
        random_kind(&c->kinds[k], SET_KINDS * seed + (uint64_t)k, world);
    }
    for (int i = 0; i < c->ntensors; i++) {
        c->kind_of[i] = (int)((seed * 7 + (uint64_t)(i * i)) % SET_KINDS);
    }
}

static const redistribute_case *kind(const set_case *c, int tensor) {
    return &c->kinds[c->kind_of[tensor]];
}

/* Where a rank's tensors lie under their layouts; returns the elements of the buffer. Scattered
 * ones lie in descending order, further apart on higher ranks. */
static int64_t place(const set_case *c, lierne_layout *const *layouts, int rank, int64_t *offsets,
                     int64_t *sizes) {
    int64_t end = 0;
    for (int k = 0; k < c->ntensors; k++) {
        int i = c->scattered ? c->ntensors - 1 - k : k;
        lierne_layout_get_elements(&sizes[i], NULL, layouts[i], rank);
        offsets[i] = end + (c->scattered ? GAP + rank : 0);
        end = sizes[i] ? offsets[i] + sizes[i] : end;
    }
    return end;
}

/* The layout of every tensor: made once per kind, or once per tensor. */
static void open_layouts(const set_case *c, int which, int each, lierne_layout **layouts) {
    for (int i = 0; i < c->ntensors; i++) {
        layouts[i] = NULL;
        for (int j = 0; j < i && !each; j++) {
            layouts[i] = c->kind_of[j] == c->kind_of[i] ? layouts[j] : layouts[i];
        }
        layouts[i] = layouts[i] ? layouts[i] : redistribute_layout(kind(c, i), which);
    }
}

static void close_layouts(const set_case *c, int each, lierne_layout **layouts) {
    for (int i = 0; i < c->ntensors; i++) {
        int first = 0;
        while (layouts[first] != layouts[i]) {
            first++;
        }
        if (each || first == i) {
            lierne_layout_destroy(layouts[i]);
            layouts[i] = each ? NULL : layouts[i];
        }
    }
}

lierne_status set_plan(lierne_plan **plan, const set_case *c, lierne_context *context, int rank) {
    lierne_layout *layouts[2][SET_TENSORS];
    int64_t offsets[2][SET_TENSORS], sizes[SET_TENSORS];
    for (int side = 0; side < 2; side++) {
        open_layouts(c, side ? CASE_DST : CASE_SRC, rank % 2, layouts[side]);
        place(c, layouts[side], rank, offsets[side], sizes);
    }
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = c->ntensors,
                                  .src = (const lierne_layout *const *)layouts[0],
                                  .dst = (const lierne_layout *const *)layouts[1],
                                  .src_offsets = c->scattered ? offsets[0] : NULL,
                                  .dst_offsets = c->scattered ? offsets[1] : NULL};
    lierne_status status = lierne_plan_create_set(plan, context, &spec);
    close_layouts(c, rank % 2, layouts[0]);
    close_layouts(c, rank % 2, layouts[1]);
    return status;
}

int set_open(set_buffers *b, const set_case *c, const lierne_plan *plan, int rank,
             lierne_direction d) {
    lierne_layout *layouts[SET_TENSORS];
    int64_t in, out;
    for (int side = 0; side < 2; side++) { /* of in and out */
        open_layouts(c, (side == 0) == (d == LIERNE_DIRECTION_FORWARD) ? CASE_SRC : CASE_DST, 1,
                     layouts);
        b->elements[side] = place(c, layouts, rank, b->offsets[side], b->sizes[side]);
        close_layouts(c, 1, layouts);
    }
    lierne_plan_get_elements(&in, &out, plan, d);
    b->in = malloc((size_t)b->elements[0] * sizeof *b->in + 1);
    b->out = malloc((size_t)b->elements[1] * sizeof *b->out + 1);
    memset(b->in, 0x7b, (size_t)b->elements[0] * sizeof *b->in);
    for (int i = 0; i < c->ntensors; i++) {
        int64_t *at = b->in + (b->sizes[0][i] ? b->offsets[0][i] : 0);
        redistribute_fill(kind(c, i), rank, d, at);
        for (int64_t k = 0; k < b->sizes[0][i]; k++) {
            at[k] += (int64_t)i * STEP;
        }
    }
    return in == b->elements[0] && out == b->elements[1];
}

void set_close(set_buffers *b) {
    free(b->in);
    free(b->out);
}

void set_poison(set_buffers *b) {
    for (int64_t k = 0; k < b->elements[1]; k++) {
        b->out[k] = poison;
    }
}

const char *set_check(set_buffers *b, const set_case *c, int rank, lierne_direction d,
                      int64_t *dot) {
    int64_t checked = 0, written = 0;
    for (int64_t k = 0; k < b->elements[1]; k++) {
        written += b->out[k] != poison;
    }
    for (int i = 0; i < c->ntensors; i++) {
        int64_t *at = b->out + (b->sizes[1][i] ? b->offsets[1][i] : 0);
        for (int64_t k = 0; k < b->sizes[1][i]; k++) {
            checked += at[k] != poison;
            at[k] -= at[k] == poison ? 0 : (int64_t)i * STEP;
        }
        const char *wrong = redistribute_check(kind(c, i), rank, d, at);
        if (wrong) {
            return wrong;
        }
        *dot += redistribute_dot(kind(c, i), rank, d, at);
    }
    return checked == written ? NULL : "elements between tensors were written";
}
