/* The tensors of a bridge on this rank: the model says which rows a rank has, a formula what is in
 * them. Nothing here depends on how a method moves them. */
#include "bench/bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES 199

/* Element h of row (b, s) is values[place]; a row that the rank does not own is zero. */
static void fill_row(const workload *w, char *to, int64_t b, int64_t s, const char *values) {
    int64_t place = (b * 67 + s * 31 + s / 256) % VALUES;
    for (int64_t h = 0; h < w->h; h++, to += w->size) {
        memcpy(to, values + (size_t)place * w->size, w->size == 4 ? 4 : 2);
        place = place + 7 < VALUES ? place + 7 : place + 7 - VALUES;
    }
}

/* Fills a buffer; a NULL one is counted only. Returns its bytes. */
static size_t fill(const workload *w, char *to, case_side which) {
    case_axis axes[2] = {case_axis_open(&w->bridge, which, test_rank, 0),
                         case_axis_open(&w->bridge, which, test_rank, 1)};
    const case_axis *outer = &axes[w->axis], *inner = &axes[1 - w->axis];
    size_t row = (size_t)w->h * w->size, bytes = (size_t)(outer->n * inner->n) * row;
    char values[VALUES * 4];
    for (int64_t i = 0; i < VALUES; i++) {
        number_put(w->dtype, values, i, (double)(i + 1));
    }
    for (int64_t i = 0; to && i < outer->n; i++) {
        for (int64_t j = 0; j < inner->n; j++, to += row) {
            int64_t b = w->axis == 0 ? i : j, s = w->axis == 0 ? j : i;
            if (which != SIDE_GRADIENT || (axes[0].owned[b] && axes[1].owned[s])) {
                fill_row(w, to, axes[0].index[b], axes[1].index[s], values);
            } else {
                memset(to, 0, row);
            }
        }
    }
    case_axis_close(&axes[0]);
    case_axis_close(&axes[1]);
    return bytes;
}

static void set_bridge(workload *w) {
    w->bridge = (bridge_case){.world = test_world,
                              .src = w->src,
                              .dst = w->dst,
                              .batch = w->narrow * mesh_size(w->fan_in ? &w->src : &w->dst, "dp"),
                              .sequence = w->s,
                              .hidden = w->h,
                              .axis_b = w->axis,
                              .axis_s = 1 - w->axis,
                              .axis_h = 2,
                              .dtype = w->dtype,
                              .owner = LIERNE_GRADIENT_OWNER_ZIGZAG};
}

void workload_open(workload *w) {
    static const case_side sides[2][2] = {{SIDE_SRC, SIDE_DST}, {SIDE_GRADIENT, SIDE_SRC}};
    int src = mesh_size(&w->src, "dp"), dst = mesh_size(&w->dst, "dp");
    w->size = lierne_dtype_size(w->dtype);
    w->fan_in = src > dst;
    w->dp_ratio = w->fan_in ? src / dst : dst / src;
    w->cp = mesh_size(&w->dst, "cp");
    w->disjoint = w->src.offset != w->dst.offset;
    set_bridge(w);
    for (int d = FORWARD; d <= ADJOINT; d++) {
        w->bytes[d][0] = fill(w, NULL, sides[d][0]);
        w->bytes[d][1] = fill(w, NULL, sides[d][1]);
        w->in[d] = take(w->bytes[d][0]);
        w->out[d] = take(w->bytes[d][1]);
        fill(w, w->in[d], sides[d][0]);
    }
}

void workload_close(workload *w) {
    for (int d = FORWARD; d <= ADJOINT; d++) {
        free(w->in[d]);
        free(w->out[d]);
    }
}

void workload_reset(const void *of, int direction) {
    const workload *w = of;
    memset(w->out[direction], 0xee, w->bytes[direction][1]);
}

void workload_rewrite(const void *of, int direction) {
    const workload *w = of;
    rewrite(w->in[direction], w->bytes[direction][0]);
}

bool workload_right(const method *m, int direction) {
    const workload *w = m->workload;
    size_t bytes = w->bytes[direction][1];
    char *wanted = take(bytes);
    fill(w, wanted, direction == FORWARD ? SIDE_DST : SIDE_SRC);
    bool right = m->result[direction] && memcmp(wanted, m->result[direction], bytes) == 0;
    free(wanted);
    return right;
}

static int put_mesh(char *text, size_t room, const mesh *m, const char *then) {
    int n = 0;
    for (int i = 0; i < m->ndims; i++) {
        if (m->sizes[i] > 1 || strcmp(m->names[i], "cp") != 0) {
            n += snprintf(text + n, room - (size_t)n, "%s%d ", m->names[i], (int)m->sizes[i]);
        }
    }
    return n - 1 + snprintf(text + n - 1, room - (size_t)n, "%s", then);
}

const char *workload_text(const void *of) {
    static char text[160];
    const workload *w = of;
    int n = snprintf(text, sizeof text, "%s, %s, batch axis %d, ", w->kind, w->load, w->axis);
    n += put_mesh(text + n, sizeof text - (size_t)n, &w->src, " -> ");
    put_mesh(text + n, sizeof text - (size_t)n, &w->dst, "");
    return text;
}
