/* The tensors of a bridge on this rank, filled and checked by a closed form. Nothing here depends
 * on how a method moves them. */
#include "bench/bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUES 199

static int owner_of(const workload *w, int64_t s) {
    int64_t chunk = s / (w->s / (2 * w->cp));
    return (int)(chunk < w->cp ? chunk : 2 * w->cp - 1 - chunk);
}

/* Element h of row (b, s) is values[place]; a row that the part does not own is zero. */
static void fill_row(const workload *w, char *to, int64_t b, int64_t s, const char *values) {
    int64_t place = (b * 67 + s * 31 + s / 256) % VALUES;
    for (int64_t h = 0; h < w->h; h++, to += w->size) {
        memcpy(to, values + (size_t)place * w->size, w->size == 4 ? 4 : 2);
        place = place + 7 < VALUES ? place + 7 : place + 7 - VALUES;
    }
}

static void fill(const workload *w, char *to, const held *part) {
    int64_t outer = w->axis == 0 ? part->samples : w->s;
    int64_t inner = w->axis == 0 ? w->s : part->samples;
    char values[VALUES * 4];
    size_t row = (size_t)w->h * w->size;
    for (int64_t i = 0; i < VALUES; i++) {
        number_put(w->dtype, values, i, (double)(i + 1));
    }
    for (int64_t i = 0; i < outer; i++) {
        for (int64_t j = 0; j < inner; j++, to += row) {
            int64_t b = part->first + (w->axis == 0 ? i : j), s = w->axis == 0 ? j : i;
            if (part->cp < 0 || owner_of(w, s) == part->cp) {
                fill_row(w, to, b, s, values);
            } else {
                memset(to, 0, row);
            }
        }
    }
}

static size_t bytes_of(const workload *w, const held *part) {
    return (size_t)(part->samples * w->s * w->h) * w->size;
}

void workload_open(workload *w) {
    int src = mesh_size(&w->src, "dp"), dst = mesh_size(&w->dst, "dp");
    w->size = lierne_dtype_size(w->dtype);
    w->fan_in = src > dst;
    w->dp_ratio = w->fan_in ? src / dst : dst / src;
    w->cp = mesh_size(&w->dst, "cp");
    w->disjoint = w->src.offset != w->dst.offset;
    w->source.samples = w->narrow * (w->fan_in ? 1 : w->dp_ratio);
    w->target.samples = w->narrow * (w->fan_in ? w->dp_ratio : 1);
    w->source.first = mesh_coord(&w->src, test_rank, "dp") * w->source.samples;
    w->target.first = mesh_coord(&w->dst, test_rank, "dp") * w->target.samples;
    w->source.samples = mesh_has(&w->src, test_rank) ? w->source.samples : 0;
    w->target.samples = mesh_has(&w->dst, test_rank) ? w->target.samples : 0;
    w->source.cp = w->target.cp = -1;
    w->target_cp = mesh_coord(&w->dst, test_rank, "cp");
    held gradient = w->target;
    gradient.cp = w->target_cp;
    w->bytes[FORWARD][0] = w->bytes[ADJOINT][1] = bytes_of(w, &w->source);
    w->bytes[FORWARD][1] = w->bytes[ADJOINT][0] = bytes_of(w, &w->target);
    for (int d = FORWARD; d <= ADJOINT; d++) {
        w->in[d] = take(w->bytes[d][0]);
        w->out[d] = take(w->bytes[d][1]);
        fill(w, w->in[d], d == FORWARD ? &w->source : &gradient);
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
    fill(w, wanted, direction == FORWARD ? &w->target : &w->source);
    bool right = m->result[direction] && memcmp(wanted, m->result[direction], bytes) == 0;
    free(wanted);
    return right;
}

static int put_mesh(char *text, size_t room, const mesh *m, const char *then) {
    int n = 0;
    for (int i = 0; i < m->ndims; i++) {
        if (m->sizes[i] > 1 || strcmp(m->names[i], "cp") != 0) {
            n += snprintf(text + n, room - (size_t)n, "%s%d ", m->names[i], m->sizes[i]);
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
