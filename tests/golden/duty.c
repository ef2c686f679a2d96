/* Runs plans of rows. Outputs and what lies between rows are poisoned before; afterwards the poison
 * between rows must be there still, inputs must be as they were, and a second run, with begin and
 * end, must give the same bytes. */
#include "exchange.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, ELEMENT = 8 };

golden_duty golden_duty_new(golden_type type, bool whole, int64_t nx, int64_t ny) {
    golden_duty duty = {.type = type, .whole = whole, .nx = nx, .ny = ny};
    duty.x = golden_alloc(nx * type.width, sizeof(double));
    duty.fx = golden_alloc(ny * type.width, sizeof(double));
    duty.y = golden_alloc(ny * type.width, sizeof(double));
    duty.fty = golden_alloc(nx * type.width, sizeof(double));
    duty.ffx = golden_alloc(nx * type.width, sizeof(double));
    duty.most = golden_alloc(nx * type.width, sizeof(double));
    duty.least = golden_alloc(nx * type.width, sizeof(double));
    return duty;
}

void golden_duty_free(golden_duty *duty) {
    free(duty->x);
    free(duty->fx);
    free(duty->y);
    free(duty->fty);
    free(duty->ffx);
    free(duty->most);
    free(duty->least);
    free(duty->before);
}

/* One execution: values in, values that must come out, what out holds before (NULL: poison). */
typedef struct execution {
    const char *what;
    lierne_plan *plan;
    lierne_direction direction;
    golden_type type;
    const double *in, *wanted, *before;
    int64_t nin, nout;
} execution;

static size_t bytes_of(const execution *e, int64_t rows) {
    return (size_t)((rows + 1) * e->type.stride) * ELEMENT;
}

/* A poisoned array with the rows of values, and room for one row more. */
static void *array_of(const execution *e, const double *values, int64_t rows) {
    void *array = golden_alloc((int64_t)bytes_of(e, rows), 1);
    memset(array, POISON, bytes_of(e, rows));
    for (int64_t i = 0; values && i < rows * e->type.width; i++) {
        int64_t row = i / e->type.width, column = i % e->type.width;
        golden_poke(e->type.dtype, array, row * e->type.stride + column, values[i]);
    }
    return array;
}

static lierne_status execute(const execution *e, void *out, const void *in, bool split) {
    lierne_request *request = NULL;
    if (!split) {
        return (e->direction ? lierne_adjoint : lierne_forward)(e->plan, out, in, NULL);
    }
    lierne_status status = (e->direction ? lierne_adjoint_begin
                                         : lierne_forward_begin)(&request, e->plan, out, in, NULL);
    return status ? status : lierne_end(request);
}

/* All bytes, so also those between the rows. The 16-bit floats have one zero here only: no sum of
 * the test's numbers is a negative zero. */
static void expect_array(golden_case *c, const execution *e, const char *how, const void *array) {
    void *wanted = array_of(e, e->wanted, e->nout);
    int64_t n = e->nout * e->type.width;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / e->type.width * e->type.stride + i % e->type.width;
        double got = golden_peek(e->type.dtype, array, at);
        double want = golden_peek(e->type.dtype, wanted, at);
        if (memcmp(&got, &want, sizeof got) != 0) {
            golden_expect(c, false, "%s, %s %s: row %lld, column %lld is %.17g, expected %.17g",
                          e->what, how, e->direction ? "adjoint" : "forward",
                          (long long)(i / e->type.width), (long long)(i % e->type.width), got,
                          want);
            break;
        }
    }
    golden_expect(c, c->failed || memcmp(array, wanted, bytes_of(e, e->nout)) == 0,
                  "%s, %s %s: bytes between or behind the rows were written", e->what, how,
                  e->direction ? "adjoint" : "forward");
    free(wanted);
}

static void run(golden_case *c, const execution *e, bool split) {
    void *in = array_of(e, e->in, e->nin), *kept = array_of(e, e->in, e->nin);
    void *out = array_of(e, e->before, e->nout);
    golden_expect_status(c, e->what, execute(e, out, in, split), LIERNE_OK);
    expect_array(c, e, split ? "begun" : "blocking", out);
    golden_expect(c, memcmp(in, kept, bytes_of(e, e->nin)) == 0, "%s: in was written", e->what);
    free(in);
    free(kept);
    free(out);
}

static void run_in_place(golden_case *c, const execution *e) {
    void *array = array_of(e, e->in, e->nin);
    golden_expect_status(c, e->what, execute(e, array, array, false), LIERNE_OK);
    expect_array(c, e, "in place,", array);
    free(array);
}

static void expect_elements(golden_case *c, const execution *e) {
    int64_t in = -1, out = -1;
    lierne_status status = lierne_plan_elements(e->plan, e->direction, &in, &out);
    golden_expect_status(c, e->what, status, LIERNE_OK);
    int64_t stride = e->type.stride, gap = stride - e->type.width;
    golden_expect(c, in <= e->nin * stride && in >= (e->nin ? e->nin * stride - gap : 0),
                  "%s: in has %lld elements", e->what, (long long)in);
    golden_expect(c, out <= e->nout * stride && out >= (e->nout ? e->nout * stride - gap : 0),
                  "%s: out has %lld elements", e->what, (long long)out);
}

/* Both ways of executing, whatever fails before: the other ranks wait. */
static void expect_execution(golden_case *c, const execution *e, bool whole) {
    expect_elements(c, e);
    run(c, e, false);
    run(c, e, true);
    if (whole) {
        run_in_place(c, e);
    }
}

static execution forward_of(const char *what, lierne_plan *plan, const golden_duty *duty) {
    return (execution){.what = what,
                       .plan = plan,
                       .direction = LIERNE_FORWARD,
                       .type = duty->type,
                       .in = duty->x,
                       .wanted = duty->fx,
                       .nin = duty->nx,
                       .nout = duty->ny};
}

static execution adjoint_of(const char *what, lierne_plan *plan, const golden_duty *duty) {
    return (execution){.what = what,
                       .plan = plan,
                       .direction = LIERNE_ADJOINT,
                       .type = duty->type,
                       .in = duty->y,
                       .wanted = duty->fty,
                       .before = duty->before,
                       .nin = duty->ny,
                       .nout = duty->nx};
}

void golden_duty_expect(golden_case *c, const char *what, lierne_plan *plan,
                        const golden_duty *duty) {
    execution forward = forward_of(what, plan, duty), adjoint = adjoint_of(what, plan, duty);
    expect_execution(c, &forward, duty->whole);
    expect_execution(c, &adjoint, duty->whole);
}

/* <what the execution gives, values>. */
static double dot(golden_case *c, const execution *e, const double *values) {
    void *in = array_of(e, e->in, e->nin), *out = array_of(e, NULL, e->nout);
    double sum = 0;
    golden_expect_status(c, e->what, execute(e, out, in, false), LIERNE_OK);
    for (int64_t i = 0; i < e->nout * e->type.width; i++) {
        int64_t at = i / e->type.width * e->type.stride + i % e->type.width;
        sum += golden_peek(e->type.dtype, out, at) * values[i];
    }
    free(in);
    free(out);
    return sum;
}

void golden_duty_dots(golden_case *c, lierne_plan *plan, const golden_duty *duty, double *dots) {
    execution forward = forward_of("F x", plan, duty), adjoint = adjoint_of("F* y", plan, duty);
    dots[0] = dot(c, &forward, duty->y);
    dots[1] = dot(c, &adjoint, duty->x);
}

void golden_duty_reduce(golden_case *c, lierne_plan *plan, const golden_duty *duty) {
    for (int least = 0; least < 2; least++) {
        execution e =
            adjoint_of(least ? "lierne_reduce, least," : "lierne_reduce, most,", plan, duty);
        e.wanted = least ? duty->least : duty->most;
        e.before = duty->x;
        void *in = array_of(&e, e.in, e.nin), *out = array_of(&e, e.before, e.nout);
        lierne_status status = lierne_reduce(plan, least ? LIERNE_MIN : LIERNE_MAX, out, in, NULL);
        golden_expect_status(c, e.what, status, LIERNE_OK);
        expect_array(c, &e, "blocking", out);
        free(in);
        free(out);
    }
}

/* The same plan the other way round. */
static golden_duty turned(const golden_duty *duty) {
    golden_duty t = *duty;
    t.nx = duty->ny;
    t.ny = duty->nx;
    t.x = duty->y;
    t.fx = duty->fty;
    t.y = duty->x;
    t.fty = duty->fx;
    return t;
}

static void expect_transposed(golden_case *c, const lierne_plan *plan, const golden_duty *duty) {
    lierne_plan *once = NULL, *twice = NULL;
    golden_duty other = turned(duty);
    lierne_status status = lierne_plan_transpose(&once, plan);
    if (golden_expect_status(c, "lierne_plan_transpose", status, LIERNE_OK)) {
        golden_duty_expect(c, "the transpose", once, &other);
        status = lierne_plan_transpose(&twice, once);
    }
    if (golden_expect_status(c, "the second transpose", status, LIERNE_OK)) {
        golden_duty_expect(c, "F**", twice, duty);
    }
    golden_expect_status(c, "lierne_plan_free", lierne_plan_free(twice), LIERNE_OK);
    golden_expect_status(c, "lierne_plan_free", lierne_plan_free(once), LIERNE_OK);
}

/* F* F is its own transpose. */
static void expect_composed(golden_case *c, const lierne_plan *plan, const golden_duty *duty) {
    lierne_plan *back = NULL, *both = NULL;
    golden_duty square = *duty;
    square.ny = square.nx;
    square.y = square.x;
    square.fx = square.fty = square.ffx;
    lierne_status status = lierne_plan_transpose(&back, plan);
    status = status ? status : lierne_plan_compose(&both, plan, back);
    golden_expect_status(c, "lierne_plan_free", lierne_plan_free(back), LIERNE_OK);
    if (golden_expect_status(c, "lierne_plan_compose", status, LIERNE_OK)) {
        square.whole = false;
        golden_duty_expect(c, "F* F", both, &square);
    }
    golden_expect_status(c, "lierne_plan_free", lierne_plan_free(both), LIERNE_OK);
}

static void expect_written(golden_case *c, lierne_context *context, const lierne_plan *plan,
                           const golden_duty *duty) {
    char *text = NULL, *again = NULL;
    lierne_plan *read = NULL;
    lierne_status status = lierne_plan_write(plan, &text);
    golden_expect_status(c, "lierne_plan_write", status, LIERNE_OK);
    status = lierne_plan_read(&read, context, text ? text : "", text ? strlen(text) : 0);
    if (golden_expect_status(c, "lierne_plan_read", status, LIERNE_OK)) {
        golden_duty_expect(c, "the plan that was read", read, duty);
        status = lierne_plan_write(read, &again);
        golden_expect(c, status == LIERNE_OK && strcmp(text, again) == 0,
                      "a plan that was written and read is written differently");
    }
    lierne_text_release(text);
    lierne_text_release(again);
    golden_expect_status(c, "lierne_plan_free", lierne_plan_free(read), LIERNE_OK);
}

void golden_duty_algebra(golden_case *c, lierne_context *context, const lierne_plan *plan,
                         const golden_duty *duty) {
    lierne_plan *refused = NULL;
    expect_written(c, context, plan, duty);
    if (duty->before) {
        golden_expect_status(c, "transpose of a plan that accumulates",
                             lierne_plan_transpose(&refused, plan), LIERNE_INVALID);
        return;
    }
    expect_transposed(c, plan, duty);
    expect_composed(c, plan, duty);
}
