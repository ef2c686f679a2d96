/* All ranks of a case on the sim transport: plans, both directions twice into poisoned outputs, the
 * model's values and shapes, the dot test, bytes, and the same from the routes alone. */
#include "unit/bridge_case.h"

#include "route_executor.h"
#include "streams.h"
#include "transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char why[512];
#define WRONG(...) (snprintf(why, sizeof why, __VA_ARGS__), why)

static case_side input_of(lierne_direction d) {
    return d == LIERNE_DIRECTION_FORWARD ? SIDE_SRC : SIDE_GRADIENT;
}

static case_side output_of(lierne_direction d) {
    return d == LIERNE_DIRECTION_FORWARD ? SIDE_DST : SIDE_SRC;
}

void case_fill(const bridge_case *c, int rank, lierne_direction d, void *in) {
    int64_t n;
    item *items = case_items(c, input_of(d), rank, &n, NULL);
    int cp = mesh_coord(&c->dst, rank, "cp");
    for (int64_t i = 0; i < n; i++) {
        const item *e = &items[i];
        if (e->held) {
            number_put(c->dtype, in, i, d ? case_contribution(c, e, cp) : case_value(c, e));
        }
    }
    free(items);
}

static const char *wrong_element(const item *e, int rank, lierne_direction d, double want,
                                 double got) {
    return WRONG("rank %d %s (%lld,%lld,%lld): expected %g, got %g", rank,
                 d ? "adjoint" : "forward", (long long)e->b, (long long)e->s, (long long)e->h, want,
                 got);
}

const char *case_check(const bridge_case *c, int rank, lierne_direction d, void *out, double *dot) {
    int64_t n;
    item *items = case_items(c, output_of(d), rank, &n, NULL);
    int cp = mesh_coord(&c->dst, rank, "cp");
    double products = 0;
    const char *wrong = NULL;
    for (int64_t i = 0; i < n && !wrong; i++) {
        const item *e = &items[i];
        double got = e->held ? number_get(c->dtype, out, i) : 0;
        double want = d ? case_gradient(c, e) : case_value(c, e);
        if (e->held && c->data == SMALL_INTEGERS && got != want) {
            wrong = wrong_element(e, rank, d, want, got);
        }
        products += !e->owned ? 0 : got * (d ? case_value(c, e) : case_contribution(c, e, cp));
    }
    *dot += case_first_replica(c, output_of(d), rank) ? products : 0;
    free(items);
    return wrong;
}

typedef struct buffers {
    unsigned char **in;
    unsigned char **out;
    size_t *in_bytes;
    size_t *out_bytes;
    int n;
} buffers;

static void free_buffers(buffers *b) {
    for (int r = 0; r < b->n; r++) {
        free(b->in[r]);
        free(b->out[r]);
    }
    free(b->in);
    free(b->out);
    free(b->in_bytes);
    free(b->out_bytes);
}

/* A buffer's shape and number of elements must be those of the model. */
static const char *check_shape(const bridge_case *c, case_side which, int rank,
                               const int64_t *shape, int naxes, int64_t elements) {
    static const char *const names[] = {"the source's tensor", "the output", "the gradient"};
    int64_t extent[3], n, product = 1;
    free(case_items(c, which, rank, &n, extent));
    for (int a = 0; a < naxes; a++) {
        product *= shape[a];
    }
    int wrong = elements != n || elements != product;
    if (c->axis_s >= 0 && elements > 0) {
        wrong |= shape[c->axis_b] != extent[0] || shape[c->axis_s] != extent[1] ||
                 shape[c->axis_h] != extent[2];
    }
    return !wrong ? NULL
                  : WRONG("rank %d: %s has %lld elements, shape %lld,%lld,%lld, instead of %lld x "
                          "%lld x %lld",
                          rank, names[which], (long long)elements, (long long)shape[0],
                          (long long)shape[1], (long long)shape[2], (long long)extent[0],
                          (long long)extent[1], (long long)extent[2]);
}

static const char *check_shapes(const bridge_case *c, const lierne_plan *plan, int r,
                                lierne_direction d) {
    int64_t in, out, in_shape[4] = {0}, out_shape[4] = {0};
    int naxes = 0;
    lierne_plan_get_elements(&in, &out, plan, d);
    lierne_plan_get_shape(&naxes, in_shape, out_shape, plan, d);
    const char *wrong = check_shape(c, input_of(d), r, in_shape, naxes, in);
    return wrong ? wrong : check_shape(c, output_of(d), r, out_shape, naxes, out);
}

/* A gradient that is not compact has the shape of the output. */
static const char *compare_shapes(const bridge_case *c, const lierne_plan *plan, int r) {
    int64_t output[4] = {0}, gradient[4] = {0}, elements, of_gradient;
    lierne_plan_get_shape(NULL, NULL, output, plan, LIERNE_DIRECTION_FORWARD);
    lierne_plan_get_shape(NULL, gradient, NULL, plan, LIERNE_DIRECTION_ADJOINT);
    lierne_plan_get_elements(NULL, &elements, plan, LIERNE_DIRECTION_FORWARD);
    lierne_plan_get_elements(&of_gradient, NULL, plan, LIERNE_DIRECTION_ADJOINT);
    int same = memcmp(output, gradient, sizeof output) == 0 && elements == of_gradient;
    int must = c->storage == LIERNE_STORAGE_FULL || c->output == LIERNE_BRIDGE_OUTPUT_SHARDED;
    return same || !must
               ? NULL
               : WRONG("rank %d: the output has shape %lld,%lld,%lld, its gradient "
                       "%lld,%lld,%lld",
                       r, (long long)output[0], (long long)output[1], (long long)output[2],
                       (long long)gradient[0], (long long)gradient[1], (long long)gradient[2]);
}

static const char *make_buffers(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                                buffers *b) {
    size_t size = lierne_dtype_size(c->dtype), n = (size_t)c->world;
    *b = (buffers){calloc(n, sizeof(void *)), calloc(n, sizeof(void *)), calloc(n, sizeof(size_t)),
                   calloc(n, sizeof(size_t)), c->world};
    for (int r = 0; r < c->world; r++) {
        int64_t in, out;
        const char *wrong = compare_shapes(c, plans[r], r);
        wrong = wrong ? wrong : check_shapes(c, plans[r], r, d);
        if (wrong) {
            return wrong;
        }
        lierne_plan_get_elements(&in, &out, plans[r], d);
        b->in_bytes[r] = (size_t)in * size;
        b->out_bytes[r] = (size_t)out * size;
        b->in[r] = malloc(b->in_bytes[r] + 1);
        b->out[r] = malloc(b->out_bytes[r] + 1);
        /* What the rank does not own must not be read. */
        memset(b->in[r], 0x7b, b->in_bytes[r]);
        case_fill(c, r, d, b->in[r]);
    }
    return NULL;
}

static const char *execute(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                           buffers *b) {
    lierne_request **requests = calloc((size_t)c->world, sizeof *requests);
    const char *wrong = NULL;
    for (int r = 0; r < c->world; r++) {
        memset(b->out[r], 0xa5, b->out_bytes[r]);
    }
    for (int r = 0; r < c->world && !wrong; r++) {
        lierne_status status =
            (d == LIERNE_DIRECTION_FORWARD
                 ? lierne_plan_forward_begin
                 : lierne_plan_adjoint_begin)(&requests[r], plans[r], b->out[r], b->in[r], NULL);
        if (status != LIERNE_OK) {
            wrong = WRONG("begin on rank %d: %s", r, lierne_last_error());
        }
    }
    for (int r = 0; r < c->world; r++) {
        if (lierne_request_end(requests[r]) != LIERNE_OK && !wrong) {
            wrong = WRONG("end on rank %d: %s", r, lierne_last_error());
        }
    }
    free(requests);
    return wrong;
}

static const char *compare(const bridge_case *c, lierne_direction d, buffers *b, double *dot) {
    for (int r = 0; r < c->world; r++) {
        const char *wrong = case_check(c, r, d, b->out[r], dot);
        if (wrong) {
            return wrong;
        }
    }
    return NULL;
}

static unsigned char *keep(const buffers *b, size_t *bytes) {
    size_t n = 0;
    for (int r = 0; r < b->n; r++) {
        n += b->out_bytes[r];
    }
    unsigned char *all = malloc(n + 1), *at = all;
    for (int r = 0; r < b->n; r++) {
        memcpy(at, b->out[r], b->out_bytes[r]);
        at += b->out_bytes[r];
    }
    *bytes = n;
    return all;
}

static const char *run_direction(const bridge_case *c, lierne_plan **plans, lierne_direction d,
                                 unsigned char **kept, size_t *bytes, double *dot) {
    buffers b;
    double again = 0;
    size_t bytes_again;
    const char *wrong = make_buffers(c, plans, d, &b);
    for (int round = 0; round < 2 && !wrong; round++) {
        wrong = execute(c, plans, d, &b);
        if (!wrong) {
            wrong = compare(c, d, &b, round ? &again : dot);
        }
        if (!wrong && round == 0) {
            *kept = keep(&b, bytes);
        } else if (!wrong) {
            unsigned char *second = keep(&b, &bytes_again);
            wrong = memcmp(second, *kept, *bytes) ? WRONG("a repeat has other bits") : NULL;
            free(second);
        }
    }
    free_buffers(&b);
    return wrong;
}

static lierne_status make_plans(const bridge_case *c, lierne_sim *sim, lierne_plan **plans,
                                case_result *result) {
    for (int r = 0; r < c->world && result->status == LIERNE_OK; r++) {
        result->status = case_plan(&plans[r], lierne_sim_get_context(sim, r), c);
    }
    if (result->status != LIERNE_OK) {
        snprintf(result->message, sizeof result->message, "%s", lierne_last_error());
    }
    return result->status;
}

static void count(const bridge_case *c, lierne_plan **plans, case_result *result) {
    int64_t size = (int64_t)lierne_dtype_size(c->dtype);
    for (int r = 0; r < c->world; r++) {
        lierne_report forward = {.size = sizeof forward}, adjoint = {.size = sizeof adjoint};
        lierne_plan_get_report(&forward, plans[r], LIERNE_DIRECTION_FORWARD);
        lierne_plan_get_report(&adjoint, plans[r], LIERNE_DIRECTION_ADJOINT);
        result->received += (forward.received_bytes - forward.forwarded_bytes) / size;
        result->minimum += forward.min_bytes / size;
        result->adjoint_received += (adjoint.received_bytes - adjoint.forwarded_bytes) / size;
        result->adjoint_minimum += adjoint.min_bytes / size;
    }
}

static const char *run_plans(const bridge_case *c, lierne_plan **plans, case_result *result) {
    double forward_dot = 0, adjoint_dot = 0;
    if (lierne_plan_check((const lierne_plan *const *)plans, c->world) != LIERNE_OK) {
        return WRONG("%s", lierne_last_error());
    }
    count(c, plans, result);
    const char *wrong = run_direction(c, plans, LIERNE_DIRECTION_FORWARD, &result->forward,
                                      &result->forward_bytes, &forward_dot);
    if (!wrong) {
        wrong = run_direction(c, plans, LIERNE_DIRECTION_ADJOINT, &result->adjoint,
                              &result->adjoint_bytes, &adjoint_dot);
    }
    if (!wrong && c->data == SMALL_INTEGERS && forward_dot != adjoint_dot) {
        return WRONG("dot test: <Fx,y> = %.17g, <x,F*y> = %.17g", forward_dot, adjoint_dot);
    }
    return wrong ? wrong : route_compare(plans, c->world);
}

const char *run_case(const bridge_case *c, case_result *result) {
    lierne_context_spec context = {.size = sizeof context, .timeout = 120, .nodes = c->nodes};
    lierne_plan **plans = calloc((size_t)c->world, sizeof *plans);
    lierne_sim *sim = NULL;
    const char *wrong = NULL;
    test_transports *transports = NULL;
    test_streams *streams = NULL;
    *result = (case_result){0};
    if (lierne_sim_create(&sim, c->world, &context) == LIERNE_OK) {
        transports = test_transports_attach_asked(sim, c->world);
        streams = test_streams_attach_asked(sim, c->world);
    }
    if (!sim) {
        wrong = WRONG("%s", lierne_last_error());
    } else if (make_plans(c, sim, plans, result) == LIERNE_OK) {
        wrong = run_plans(c, plans, result);
    }
    for (int r = 0; r < c->world; r++) {
        lierne_plan_destroy(plans[r]);
    }
    if (lierne_sim_destroy(sim) != LIERNE_OK && !wrong) {
        wrong = WRONG("%s", lierne_last_error());
    }
    test_streams_destroy(streams);
    if (!test_transports_destroy(transports) && !wrong) {
        wrong = WRONG("messages are left");
    }
    free(plans);
    return wrong;
}

void free_result(case_result *result) {
    free(result->forward);
    free(result->adjoint);
    *result = (case_result){0};
}
