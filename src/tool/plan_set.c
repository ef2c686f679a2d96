/* lierne plan --set: what a tensor set moves, all of it and as changes. Every rank's route is made
 * and counted by itself, so that a model of thousands of ranks needs the memory of one.
 *
 * The bytes of changes are those that changes spread evenly are expected to take: an element's
 * bits, a gap as a Rice code with the parameter that the library takes, or a bit map or the whole
 * where that is shorter. */
#include "plan.h"

#include "tool/set_file.h"

#include <lierne/redistribute.h>
#include <lierne/route.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A rank, and its bytes. */
typedef struct busiest {
    int rank;
    double bytes;
    int64_t messages;
} busiest;

typedef struct totals {
    const set_file *file;
    set_selection sets[LIERNE_DTYPE_BITS128 + 1]; /* by dtype */
    double share;                                 /* of the elements that change */
    double bytes;                                 /* of all tensors */
    double sent[2];
    busiest sender[2], receiver; /* dense, changed; dense */
    double seconds;              /* the longest planning of a rank */
} totals;

/* What a rank sends and receives of all dtypes. */
typedef struct traffic {
    double sent[2], received;
    int64_t messages;
} traffic;

/* Bytes of an element in changes. */
static double changed_bytes(const totals *t, lierne_dtype dtype) {
    double size = (double)lierne_dtype_size(dtype), p = t->share, map = p * size + 1.0 / 8;
    if (p <= 0) {
        return 0;
    }
    double k = floor(log2(1 / p)), stop = -expm1(exp2(k) * log1p(-p));
    double gaps = p * (size + (k + 1 / stop) / 8);
    double least = gaps < map ? gaps : map;
    return least < size ? least : size;
}

static void count_route(traffic *sum, const totals *t, const lierne_route *route) {
    double size = (double)lierne_dtype_size(route->dtype);
    for (size_t s = 0; s < route->stages.count; s++) {
        const lierne_stage *stage = &route->stages.at[s];
        for (size_t m = 0; m < stage->sends.count; m++) {
            double elements = (double)stage->sends.at[m].elements;
            sum->sent[0] += elements * size;
            sum->sent[1] += elements * changed_bytes(t, route->dtype);
        }
        for (size_t m = 0; m < stage->recvs.count; m++) {
            sum->received += (double)stage->recvs.at[m].elements * size;
        }
        sum->messages += (int64_t)stage->sends.count;
    }
}

static lierne_status count_set(traffic *sum, const totals *t, const set_selection *set, int rank) {
    lierne_route *route;
    if (set->spec.ntensors == 0) {
        return LIERNE_OK;
    }
    lierne_status status = lierne_route_create_set(&route, NULL, &set->spec, rank);
    if (status == LIERNE_OK) {
        count_route(sum, t, route);
        lierne_route_destroy(route);
    }
    return status;
}

static void take_most(busiest *most, int rank, double bytes, int64_t messages) {
    if (bytes > most->bytes) {
        *most = (busiest){rank, bytes, messages};
    }
}

static int plan_rank(totals *t, int rank, char **argv) {
    traffic sum = {{0}, 0, 0};
    double begin = tool_now();
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128; d++) {
        if (count_set(&sum, t, &t->sets[d], rank) != LIERNE_OK) {
            tool_failed(argv);
            return TOOL_INVALID;
        }
    }
    t->seconds = fmax(t->seconds, tool_now() - begin);
    for (int way = 0; way < 2; way++) {
        t->sent[way] += sum.sent[way];
        take_most(&t->sender[way], rank, sum.sent[way], sum.messages);
    }
    take_most(&t->receiver, rank, sum.received, 0);
    return -1;
}

static int plan_all(totals *t, char **argv) {
    const set_list *list = set_file_list(t->file, 1);
    int status = -1;
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128 && status < 0; d++) {
        status = set_select(&t->sets[d], t->file, (lierne_dtype)d);
    }
    for (int64_t i = 0; i < list->n; i++) {
        t->bytes += list->at[i].bytes;
    }
    for (int rank = 0; rank < t->file->world && status < 0; rank++) {
        tool_progress(argv, "planning", rank, t->file->world);
        status = plan_rank(t, rank, argv);
    }
    tool_progress_end();
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128; d++) {
        set_selection_free(&t->sets[d]);
    }
    return status;
}

/* Bytes as a number that is printed; the most where there are more. */
static int64_t whole(double bytes) {
    return bytes < 0x1p63 ? (int64_t)bytes : INT64_MAX;
}

static void print_text(const totals *t) {
    char text[4][TOOL_BYTES];
    long long n = (long long)set_file_list(t->file, 1)->n, messages = t->sender[0].messages;
    printf("set: %lld tensor%s of %s\n", n, n == 1 ? "" : "s",
           tool_bytes(text[0], whole(t->bytes)));
    printf("everything: %s sent; rank %d sends most, %s in %lld message%s; rank %d receives most, "
           "%s\n",
           tool_bytes(text[0], whole(t->sent[0])), t->sender[0].rank,
           tool_bytes(text[1], whole(t->sender[0].bytes)), messages, messages == 1 ? "" : "s",
           t->receiver.rank, tool_bytes(text[2], whole(t->receiver.bytes)));
    printf("changes of %g %%: %s sent; rank %d sends most, %s\n", 100 * t->share,
           tool_bytes(text[0], whole(t->sent[1])), t->sender[1].rank,
           tool_bytes(text[1], whole(t->sender[1].bytes)));
    printf("planning: %.3f s on the slowest rank\n", t->seconds);
}

static void print_json(const totals *t) {
    printf("{\"tensors\": %lld, \"bytes\": %.0f,\n", (long long)set_file_list(t->file, 1)->n,
           t->bytes);
    printf(" \"everything\": {\"sent_bytes\": %.0f, \"busiest_sender\": {\"rank\": %d, \"bytes\": "
           "%.0f, \"messages\": %lld}, \"busiest_receiver\": {\"rank\": %d, \"bytes\": %.0f}},\n",
           t->sent[0], t->sender[0].rank, t->sender[0].bytes, (long long)t->sender[0].messages,
           t->receiver.rank, t->receiver.bytes);
    printf(" \"changes\": {\"percent\": %g, \"sent_bytes\": %.0f, \"busiest_sender\": {\"rank\": "
           "%d, \"bytes\": %.0f}},\n",
           100 * t->share, t->sent[1], t->sender[1].rank, t->sender[1].bytes);
    printf(" \"planning_seconds\": %.6f}\n", t->seconds);
}

int plan_print_set(const char *path, const char *changed, bool json, char **argv) {
    set_file file = {0};
    totals t = {.file = &file, .share = 0.02};
    char *end = NULL;
    if (changed) {
        t.share = strtod(changed, &end) / 100;
        if (end == changed || *end || !(t.share >= 0 && t.share <= 1)) {
            return tool_usage(argv, "--changed is '%s', must be a number from 0 to 100", changed);
        }
    }
    int status = set_file_read(&file, path, argv);
    status = status < 0 ? plan_all(&t, argv) : status;
    if (status < 0) {
        (json ? print_json : print_text)(&t);
        status = TOOL_VALID;
    }
    set_file_close(&file);
    return status;
}
