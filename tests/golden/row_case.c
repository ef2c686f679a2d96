/* Executes plans of rows. Outputs and the elements between rows are filled with a pattern before;
 * afterwards the pattern between rows and the inputs must be unchanged, and a second execution,
 * with begin and end, must give the same bytes. */
#include "row_case.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5, ELEMENT = 8 };

golden_row_case golden_row_case_new(golden_type type, bool whole, int64_t nx, int64_t ny) {
    golden_row_case row_case = {.type = type, .whole = whole, .nx = nx, .ny = ny};
    row_case.x = golden_alloc(nx * type.width, sizeof(double));
    row_case.fx = golden_alloc(ny * type.width, sizeof(double));
    row_case.y = golden_alloc(ny * type.width, sizeof(double));
    row_case.fty = golden_alloc(nx * type.width, sizeof(double));
    row_case.ffx = golden_alloc(nx * type.width, sizeof(double));
    row_case.most = golden_alloc(nx * type.width, sizeof(double));
    row_case.least = golden_alloc(nx * type.width, sizeof(double));
    return row_case;
}

void golden_row_case_free(golden_row_case *row_case) {
    free(row_case->x);
    free(row_case->fx);
    free(row_case->y);
    free(row_case->fty);
    free(row_case->ffx);
    free(row_case->most);
    free(row_case->least);
    free(row_case->before);
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

/* A buffer filled with the pattern, with the rows of values, and one row more. */
static void *array_of(const execution *e, const double *values, int64_t rows) {
    void *array = golden_alloc((int64_t)bytes_of(e, rows), 1);
    memset(array, POISON, bytes_of(e, rows));
    for (int64_t i = 0; values && i < rows * e->type.width; i++) {
        int64_t row = i / e->type.width, column = i % e->type.width;
        number_put(e->type.dtype, array, row * e->type.stride + column, values[i]);
    }
    return array;
}

static lierne_status execute(const execution *e, void *out, const void *in, bool split) {
    lierne_request *request = NULL;
    if (!split) {
        return (e->direction ? lierne_plan_adjoint : lierne_plan_forward)(e->plan, out, in, NULL);
    }
    lierne_status status =
        (e->direction ? lierne_plan_adjoint_begin : lierne_plan_forward_begin)(&request, e->plan,
                                                                               out, in, NULL);
    return status ? status : lierne_request_end(request);
}

/* All bytes, so also those between the rows. The 16-bit floats have one zero here only: no sum of
 * the test's numbers is a negative zero. */
static void expect_array(golden_case *c, const execution *e, const char *how, const void *array) {
    void *wanted = array_of(e, e->wanted, e->nout);
    int64_t n = e->nout * e->type.width;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / e->type.width * e->type.stride + i % e->type.width;
        double got = number_get(e->type.dtype, array, at);
        double want = number_get(e->type.dtype, wanted, at);
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
    lierne_status status = lierne_plan_get_elements(&in, &out, e->plan, e->direction);
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

static execution forward_of(const char *what, lierne_plan *plan, const golden_row_case *row_case) {
    return (execution){.what = what,
                       .plan = plan,
                       .direction = LIERNE_DIRECTION_FORWARD,
                       .type = row_case->type,
                       .in = row_case->x,
                       .wanted = row_case->fx,
                       .nin = row_case->nx,
                       .nout = row_case->ny};
}

static execution adjoint_of(const char *what, lierne_plan *plan, const golden_row_case *row_case) {
    return (execution){.what = what,
                       .plan = plan,
                       .direction = LIERNE_DIRECTION_ADJOINT,
                       .type = row_case->type,
                       .in = row_case->y,
                       .wanted = row_case->fty,
                       .before = row_case->before,
                       .nin = row_case->ny,
                       .nout = row_case->nx};
}

void golden_row_case_expect(golden_case *c, const char *what, lierne_plan *plan,
                            const golden_row_case *row_case) {
    execution forward = forward_of(what, plan, row_case),
              adjoint = adjoint_of(what, plan, row_case);
    expect_execution(c, &forward, row_case->whole);
    expect_execution(c, &adjoint, row_case->whole);
}

/* <what the execution gives, values>. */
static double dot(golden_case *c, const execution *e, const double *values) {
    void *in = array_of(e, e->in, e->nin), *out = array_of(e, NULL, e->nout);
    double sum = 0;
    golden_expect_status(c, e->what, execute(e, out, in, false), LIERNE_OK);
    for (int64_t i = 0; i < e->nout * e->type.width; i++) {
        int64_t at = i / e->type.width * e->type.stride + i % e->type.width;
        sum += number_get(e->type.dtype, out, at) * values[i];
    }
    free(in);
    free(out);
    return sum;
}

void golden_row_case_dots(golden_case *c, lierne_plan *plan, const golden_row_case *row_case,
                          double *dots) {
    execution forward = forward_of("F x", plan, row_case),
              adjoint = adjoint_of("F* y", plan, row_case);
    dots[0] = dot(c, &forward, row_case->y);
    dots[1] = dot(c, &adjoint, row_case->x);
}

void golden_row_case_reduce(golden_case *c, lierne_plan *plan, const golden_row_case *row_case) {
    for (int least = 0; least < 2; least++) {
        execution e = adjoint_of(least ? "lierne_plan_reduce, least," : "lierne_plan_reduce, most,",
                                 plan, row_case);
        e.wanted = least ? row_case->least : row_case->most;
        e.before = row_case->x;
        void *in = array_of(&e, e.in, e.nin), *out = array_of(&e, e.before, e.nout);
        lierne_status status =
            lierne_plan_reduce(plan, least ? LIERNE_REDUCTION_MIN : LIERNE_REDUCTION_MAX, out, in,
                               NULL);
        golden_expect_status(c, e.what, status, LIERNE_OK);
        expect_array(c, &e, "blocking", out);
        free(in);
        free(out);
    }
}

/* The same plan the other way round. */
static golden_row_case turned(const golden_row_case *row_case) {
    golden_row_case t = *row_case;
    t.nx = row_case->ny;
    t.ny = row_case->nx;
    t.x = row_case->y;
    t.fx = row_case->fty;
    t.y = row_case->x;
    t.fty = row_case->fx;
    return t;
}

static void expect_transposed(golden_case *c, const lierne_plan *plan,
                              const golden_row_case *row_case) {
    lierne_plan *once = NULL, *twice = NULL;
    golden_row_case other = turned(row_case);
    lierne_status status = lierne_plan_create_transposed(&once, plan);
    if (golden_expect_status(c, "lierne_plan_create_transposed", status, LIERNE_OK)) {
        golden_row_case_expect(c, "the transpose", once, &other);
        status = lierne_plan_create_transposed(&twice, once);
    }
    if (golden_expect_status(c, "the second transpose", status, LIERNE_OK)) {
        golden_row_case_expect(c, "F**", twice, row_case);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(twice), LIERNE_OK);
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(once), LIERNE_OK);
}

/* F* F is its own transpose. */
static void expect_composed(golden_case *c, const lierne_plan *plan,
                            const golden_row_case *row_case) {
    lierne_plan *back = NULL, *both = NULL;
    golden_row_case square = *row_case;
    square.ny = square.nx;
    square.y = square.x;
    square.fx = square.fty = square.ffx;
    lierne_status status = lierne_plan_create_transposed(&back, plan);
    status = status ? status : lierne_plan_create_composed(&both, plan, back);
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(back), LIERNE_OK);
    if (golden_expect_status(c, "lierne_plan_create_composed", status, LIERNE_OK)) {
        square.whole = false;
        golden_row_case_expect(c, "F* F", both, &square);
    }
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(both), LIERNE_OK);
}

static void expect_written(golden_case *c, lierne_context *context, const lierne_plan *plan,
                           const golden_row_case *row_case) {
    char *text = NULL, *again = NULL;
    lierne_plan *read = NULL;
    lierne_status status = lierne_plan_serialize(&text, plan);
    golden_expect_status(c, "lierne_plan_serialize", status, LIERNE_OK);
    status = lierne_plan_deserialize(&read, context, text ? text : "", text ? strlen(text) : 0);
    if (golden_expect_status(c, "lierne_plan_deserialize", status, LIERNE_OK)) {
        golden_row_case_expect(c, "the plan that was read", read, row_case);
        status = lierne_plan_serialize(&again, read);
        golden_expect(c, status == LIERNE_OK && strcmp(text, again) == 0,
                      "a plan that was written and read is written differently");
    }
    lierne_text_destroy(text);
    lierne_text_destroy(again);
    golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(read), LIERNE_OK);
}

void golden_row_case_algebra(golden_case *c, lierne_context *context, const lierne_plan *plan,
                             const golden_row_case *row_case) {
    lierne_plan *rejected = NULL;
    expect_written(c, context, plan, row_case);
    if (row_case->before) {
        golden_expect_status(c, "transpose of a plan that accumulates",
                             lierne_plan_create_transposed(&rejected, plan), LIERNE_ERR_INVALID);
        return;
    }
    expect_transposed(c, plan, row_case);
    expect_composed(c, plan, row_case);
}
