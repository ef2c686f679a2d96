/* A route as JSON: everything that an executor needs, in elements and bytes. Index lists are
 * written in full, so a text grows with the rows that it names. */
#include "plan.h"

#include <inttypes.h>

static const char *const buffers[LIERNE_BUFFER_COUNT] = {"in", "out", "scratch"};

static void print_numbers(FILE *to, const char *key, const int64_t *values, int64_t count) {
    fprintf(to, ",\"%s\":[", key);
    for (int64_t i = 0; i < count; i++) {
        fprintf(to, "%s%" PRId64, i ? "," : "", values[i]);
    }
    fprintf(to, "]");
}

static void print_block(FILE *to, const lierne_block *block) {
    fprintf(to, "{\"offset\":%" PRId64, block->offset);
    print_numbers(to, "counts", block->count, block->ndims);
    print_numbers(to, "strides", block->stride, block->ndims);
    if (block->rows) {
        print_numbers(to, "rows", block->rows, block->count[0]);
    }
    fprintf(to, "}");
}

static void print_messages(FILE *to, const char *key, const lierne_messages *messages,
                           size_t element_size) {
    fprintf(to, "\"%s\":[", key);
    for (size_t i = 0; i < messages->count; i++) {
        const lierne_message *m = &messages->at[i];
        fprintf(to,
                "%s{\"peer\":%d,\"bytes\":%" PRId64 ",\"buffer\":\"%s\",\"index\":%d,\"blocks\":[",
                i ? "," : "", m->peer, m->elements * (int64_t)element_size, buffers[m->buffer],
                m->index);
        for (size_t b = 0; b < m->blocks.count; b++) {
            fprintf(to, "%s", b ? "," : "");
            print_block(to, &m->blocks.at[b]);
        }
        fprintf(to, "]}");
    }
    fprintf(to, "]");
}

static void print_place(FILE *to, const lierne_place *place) {
    fprintf(to, "{\"buffer\":\"%s\",\"index\":%d,\"block\":", buffers[place->buffer], place->index);
    print_block(to, &place->block);
    fprintf(to, "}");
}

static void print_ops(FILE *to, const char *key, const lierne_ops *ops, bool accumulates) {
    fprintf(to, ",\"%s\":[", key);
    for (size_t i = 0; i < ops->count; i++) {
        const lierne_op *op = &ops->at[i];
        fprintf(to, "%s{\"to\":", i ? "," : "");
        print_place(to, &op->to);
        fprintf(to, ",\"accumulate\":%s,\"from\":[",
                op->accumulate && accumulates ? "true" : "false");
        for (size_t s = 0; s < op->from.count; s++) {
            fprintf(to, "%s", s ? "," : "");
            print_place(to, &op->from.at[s]);
        }
        fprintf(to, "]}");
    }
    fprintf(to, "]");
}

void plan_route_json(FILE *to, const lierne_route *route) {
    size_t size = lierne_dtype_size(route->dtype);
    fprintf(to, "{\"dtype\":\"%s\",\"elements\":{", lierne_dtype_name(route->dtype));
    for (int b = 0; b < LIERNE_BUFFER_COUNT; b++) {
        fprintf(to, "%s\"%s\":%" PRId64, b ? "," : "", buffers[b], route->elements[b]);
    }
    fprintf(to, "},\"stages\":[");
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *stage = &route->stages.at[i];
        fprintf(to, "%s{", i ? "," : "");
        print_messages(to, "sends", &stage->sends, size);
        fprintf(to, ",");
        print_messages(to, "recvs", &stage->recvs, size);
        print_ops(to, "copies", &stage->copies, route->accumulates);
        print_ops(to, "sums", &stage->sums, route->accumulates);
        fprintf(to, "}");
    }
    fprintf(to, "]}");
}
