/* The model of the training oracle. Widths are small, weights and data are -1, 0 or 1, and it
 * computes in double, so that every number of a step is an integer and exact whatever the layout.
 * Both modules are the same two matrices, split as Megatron-LM splits them: the first by columns,
 * the second by rows, with a sum over tp behind it, and one behind the gradient of the input. */
#include "mpi/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE 0x1p-11 /* of descent */

const char *const model_faults[] = {"loss_dp_only", "drop_cp_sum",    "sum_dp_cp", "swap_shares",
                                    "scale_tp",     "reverse_chunks", NULL};
const char *model_fault = "";

/* Mistakes are only made in runs with a bridge, which are compared with the others. */
static bool faulty(const run *r, const char *name) {
    return r->bridge && strcmp(model_fault, name) == 0;
}

typedef struct token {
    int64_t b; /* sample within the dp rank */
    int s;
} token;

static double *zeros(int64_t n) {
    return calloc((size_t)n + 1, sizeof(double));
}

/* ---- data ---- */

enum { IMAGE, TEXT, TARGET, WEIGHT };

/* -1, 0 or 1, everywhere the same for the same index. */
static double number(const problem *p, int what, int64_t a, int64_t b, int64_t c) {
    double value = (double)(mix((uint64_t)(((what * 977 + a) * 131 + b) * 61 + c)) % 3) - 1;
    return !p->absolute ? value : what == TARGET ? -1 : fabs(value);
}

int problem_rows(const problem *p) {
    return p->use == PLAIN ? TOKENS : ROWS;
}

/* Where image row r of sample g stands in the LLM's sequence: spread, or in one run. */
static int position_of(const problem *p, int64_t g, int r) {
    if (p->use == PLAIN) {
        return r;
    }
    return g % 2 ? (int)(g * 5 % (TOKENS - ROWS + 1)) + r : r * TOKENS / ROWS;
}

static int row_at(const problem *p, int64_t g, int s) {
    for (int r = 0; r < problem_rows(p); r++) {
        if (position_of(p, g, r) == s) {
            return r;
        }
    }
    return -1;
}

/* Whether token s counts in the loss: samples end at different lengths. */
static bool counts(int64_t g, int s) {
    return s < TOKENS - (7 * g + 3) % (TOKENS / 2);
}

static int token_owner(bool contiguous, int ncp, int s) {
    int chunk = s / (TOKENS / (2 * ncp));
    return contiguous ? chunk / 2 : chunk < ncp ? chunk : 2 * ncp - 1 - chunk;
}

int problem_row_owner(const problem *p, int ncp, int64_t g, int r) {
    return token_owner(false, ncp, position_of(p, g, r));
}

/* ---- layouts ---- */

static place place_alone(void) {
    return (place){0, 0, 0, 1, 1, 1, MPI_COMM_SELF, MPI_COMM_SELF, MPI_COMM_SELF};
}

static place place_on(const mesh *m) {
    place p = {.tp = mesh_coord(m, test_rank, "tp"),
               .cp = mesh_coord(m, test_rank, "cp"),
               .dp = mesh_coord(m, test_rank, "dp"),
               .ntp = mesh_size(m, "tp"),
               .ncp = mesh_size(m, "cp"),
               .ndp = mesh_size(m, "dp")};
    MPI_Comm_split(MPI_COMM_WORLD, p.cp + p.ncp * p.dp, test_rank, &p.over_tp);
    MPI_Comm_split(MPI_COMM_WORLD, p.tp + p.ntp * p.cp, test_rank, &p.over_dp);
    MPI_Comm_split(MPI_COMM_WORLD, p.tp, test_rank, &p.over_data);
    return p;
}

static void place_free(place *p) {
    if (p->over_tp != MPI_COMM_SELF) {
        MPI_Comm_free(&p->over_tp);
        MPI_Comm_free(&p->over_dp);
        MPI_Comm_free(&p->over_data);
    }
}

static int64_t samples_of(const run *r, const module *m) {
    return r->of->samples / m->at.ndp;
}

static int64_t first_sample(const run *r, const module *m) {
    return samples_of(r, m) * m->at.dp;
}

/* ---- modules ---- */

static void sum_over(MPI_Comm comm, double *values, int64_t n) {
    MPI_Allreduce(MPI_IN_PLACE, values, (int)n, MPI_DOUBLE, MPI_SUM, comm);
}

int64_t module_size(const module *m) {
    return (int64_t)m->wide * (m->in + m->out);
}

static module module_new(const problem *p, int which, place at, int in, int out) {
    module m = {.at = at, .in = in, .out = out, .wide = WIDE / at.ntp};
    int64_t size = module_size(&m);
    m.weight = zeros(size);
    m.gradient = zeros(size);
    for (int64_t i = 0; i < size; i++) {
        m.weight[i] = number(p, WEIGHT, which, at.tp * size + i, 0);
    }
    return m;
}

static void module_free(module *m) {
    place_free(&m->at);
    free(m->weight);
    free(m->gradient);
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void add_scaled(double *to, double scale, const double *from, int n) {
    for (int i = 0; i < n; i++) {
        to[i] += scale * from[i];
    }
}

/* n rows of x through both matrices; the second is split by rows, hence the sum. */
static double *module_forward(const module *m, const double *x, int64_t n) {
    double *y = zeros(n * m->out);
    for (int64_t i = 0; i < n * m->wide; i++) {
        const double *w = m->weight + i % m->wide * (m->in + m->out);
        int64_t row = i / m->wide;
        add_scaled(y + row * m->out, dot(w, x + row * m->in, m->in), w + m->in, m->out);
    }
    sum_over(m->at.over_tp, y, n * m->out);
    return y;
}

/* Adds to the gradients of the weights; returns that of x, which is split by columns of the first
 * matrix, hence the sum. */
static double *module_backward(module *m, const double *x, const double *dy, int64_t n) {
    double *dx = zeros(n * m->in);
    for (int64_t i = 0; i < n * m->wide; i++) {
        int64_t at = i % m->wide * (m->in + m->out), row = i / m->wide;
        const double *w = m->weight + at, *in = x + row * m->in, *up = dy + row * m->out;
        double inner = dot(w + m->in, up, m->out);
        add_scaled(m->gradient + at, inner, in, m->in);
        add_scaled(m->gradient + at + m->in, dot(w, in, m->in), up, m->out);
        add_scaled(dx + row * m->in, inner, w, m->in);
    }
    sum_over(m->at.over_tp, dx, n * m->in);
    return dx;
}

/* ---- the bridge ---- */

/* Exchanges the first two shares of a wide dp rank; dp of this side and of the other one. */
static void swap_shares(double *values, int64_t count, int dp, int other_dp) {
    int64_t share = count * dp / other_dp;
    for (int64_t i = 0; other_dp > dp && i < share; i++) {
        double kept = values[i];
        values[i] = values[share + i];
        values[share + i] = kept;
    }
}

/* Moves the samples of one side's dp rank to the other side's, by the library. Rows that the rank
 * does not own hold a wrong value. */
static void cross(run *r, lierne_direction direction, double *out, const double *in) {
    bool forward = direction == LIERNE_DIRECTION_FORWARD;
    const bridge_case *c = r->bridge;
    int64_t nin, nout, row = c->sequence * HIDDEN;
    int64_t from = first_sample(r, forward ? &r->encoder : &r->llm);
    int64_t to = first_sample(r, forward ? &r->llm : &r->encoder);
    item *source = case_items(c, forward ? SIDE_SRC : SIDE_GRADIENT, test_rank, &nin, NULL);
    item *target = case_items(c, forward ? SIDE_DST : SIDE_SRC, test_rank, &nout, NULL);
    void *input = zeros(nin), *output = zeros(nout);
    for (int64_t i = 0; i < nin; i++) {
        const item *at = &source[i];
        double value = in[(at->b - from) * row + at->s * HIDDEN + at->h];
        number_put(c->dtype, input, i, at->owned ? value : 123456);
    }
    CHECK((forward ? lierne_plan_forward : lierne_plan_adjoint)(r->plan, output, input, NULL) ==
              LIERNE_OK,
          "%s", lierne_last_error());
    for (int64_t i = 0; i < nout; i++) {
        const item *at = &target[i];
        out[(at->b - to) * row + at->s * HIDDEN + at->h] = number_get(c->dtype, output, i);
    }
    free(source);
    free(target);
    free(input);
    free(output);
}

static void bridge(run *r, lierne_direction direction, double *out, int64_t nout, double *in,
                   int64_t nin) {
    if (r->bridge) {
        cross(r, direction, out, in);
    } else {
        memcpy(out, in, (size_t)nout * sizeof *out);
    }
    for (int64_t i = 0; i < nin + nout; i++) {
        r->greatest = fmax(r->greatest, fabs(i < nin ? in[i] : out[i - nin]));
    }
}

/* Sends the gradient back, with the mistake that model_fault names. */
static void bridge_back(run *r, double *dy, int64_t ndy, double *dz, int64_t ndz) {
    const place *to = &r->encoder.at, *from = &r->llm.at;
    if (faulty(r, "drop_cp_sum") && from->cp > 0) {
        memset(dz, 0, (size_t)ndz * sizeof *dz);
    }
    if (faulty(r, "sum_dp_cp")) {
        sum_over(from->over_dp, dz, ndz);
    }
    if (faulty(r, "swap_shares")) {
        swap_shares(dz, ndz, from->ndp, to->ndp);
    }
    bridge(r, LIERNE_DIRECTION_ADJOINT, dy, ndy, dz, ndz);
    if (faulty(r, "swap_shares")) {
        swap_shares(dy, ndy, to->ndp, from->ndp);
    }
    if (faulty(r, "scale_tp")) {
        add_scaled(dy, to->ntp - 1, dy, (int)ndy);
    }
}

/* ---- a step ---- */

static double *images(const run *r) {
    int rows = problem_rows(r->of);
    int64_t n = samples_of(r, &r->encoder) * rows, first = first_sample(r, &r->encoder) * rows;
    double *x = zeros(n * PIXELS);
    for (int64_t i = 0; i < n * PIXELS; i++) {
        x[i] = number(r->of, IMAGE, first + i / PIXELS, i % PIXELS, 0);
    }
    return x;
}

/* The tokens that this rank computes: its chunks of every sample of its dp rank. */
static token *own_tokens(const run *r, int64_t *n) {
    const place *at = &r->llm.at;
    bool contiguous = r->bridge && r->bridge->owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS;
    token *tokens = calloc((size_t)(samples_of(r, &r->llm) * TOKENS), sizeof *tokens);
    *n = 0;
    for (int64_t i = 0; i < samples_of(r, &r->llm) * TOKENS; i++) {
        token t = {i / TOKENS, (int)(i % TOKENS)};
        if (token_owner(contiguous, at->ncp, t.s) == at->cp) {
            tokens[(*n)++] = t;
        }
    }
    return tokens;
}

/* The image row that a token is, and a second one that it uses; -1: none. */
static void rows_of_token(const run *r, const token *t, int64_t row[2]) {
    int64_t g = first_sample(r, &r->llm) + t->b, rows = problem_rows(r->of);
    int own = row_at(r->of, g, t->s);
    row[0] = own < 0 ? -1 : t->b * rows + own;
    row[1] = r->of->use == CROSS ? t->b * rows + (t->s + g) % rows : -1;
}

static double *merge(const run *r, const token *tokens, int64_t n, const double *z) {
    double *x = zeros(n * HIDDEN);
    for (int64_t i = 0; i < n; i++) {
        int64_t row[2], g = first_sample(r, &r->llm) + tokens[i].b;
        rows_of_token(r, &tokens[i], row);
        for (int h = 0; h < HIDDEN && row[0] < 0; h++) {
            x[i * HIDDEN + h] = number(r->of, TEXT, g, tokens[i].s, h);
        }
        for (int k = 0; k < 2; k++) {
            if (row[k] >= 0) {
                add_scaled(x + i * HIDDEN, 1, z + row[k] * HIDDEN, HIDDEN);
            }
        }
    }
    return x;
}

/* Zero but for rows that a token of this rank is or sees. */
static void unmerge(const run *r, const token *tokens, int64_t n, const double *dx, double *dz) {
    for (int64_t i = 0; i < n; i++) {
        token t = tokens[i];
        if (faulty(r, "reverse_chunks")) {
            int length = TOKENS / (2 * r->llm.at.ncp);
            t.s += (2 * r->llm.at.ncp - 1 - 2 * (t.s / length)) * length;
        }
        int64_t row[2];
        rows_of_token(r, &t, row);
        for (int k = 0; k < 2; k++) {
            if (row[k] >= 0) {
                add_scaled(dz + row[k] * HIDDEN, 1, dx + i * HIDDEN, HIDDEN);
            }
        }
    }
}

/* Replaces results by the gradient of the loss, which is half the squared distance to the target,
 * summed over tokens; its numerator and denominator are reduced apart. */
static void lose(run *r, const token *tokens, int64_t n, double *y) {
    const place *at = &r->llm.at;
    r->loss[0] = r->loss[1] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t g = first_sample(r, &r->llm) + tokens[i].b;
        for (int c = 0; c < CLASSES; c++) {
            double *d = &y[i * CLASSES + c];
            *d = counts(g, tokens[i].s) ? *d - number(r->of, TARGET, g, tokens[i].s, c) : 0;
            r->loss[0] += *d * *d;
        }
        r->loss[1] += counts(g, tokens[i].s);
    }
    sum_over(faulty(r, "loss_dp_only") ? at->over_dp : at->over_data, r->loss, 2);
}

void run_step(run *r) {
    int64_t rows = problem_rows(r->of), n, nsrc = samples_of(r, &r->encoder) * rows;
    int64_t src = nsrc * HIDDEN, dst = samples_of(r, &r->llm) * rows * HIDDEN;
    double *x = images(r), *y = module_forward(&r->encoder, x, nsrc), *z = zeros(dst);
    bridge(r, LIERNE_DIRECTION_FORWARD, z, dst, y, src);
    token *tokens = own_tokens(r, &n);
    double *merged = merge(r, tokens, n, z), *result = module_forward(&r->llm, merged, n);
    lose(r, tokens, n, result);

    memset(r->encoder.gradient, 0, (size_t)module_size(&r->encoder) * sizeof(double));
    memset(r->llm.gradient, 0, (size_t)module_size(&r->llm) * sizeof(double));
    double *dmerged = module_backward(&r->llm, merged, result, n), *dz = zeros(dst);
    double *dy = zeros(src);
    unmerge(r, tokens, n, dmerged, dz);
    bridge_back(r, dy, src, dz, dst);
    double *dx = module_backward(&r->encoder, x, dy, nsrc);
    sum_over(r->encoder.at.over_data, r->encoder.gradient, module_size(&r->encoder));
    sum_over(r->llm.at.over_data, r->llm.gradient, module_size(&r->llm));
    void *made[] = {x, y, z, tokens, merged, result, dmerged, dz, dy, dx};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        free(made[i]);
    }
}

double largest(const double *values, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(values[i]));
    }
    return most;
}

/* One step down the mean over tokens. */
static void module_descend(module *m, double tokens) {
    double rate = RATE / fmax(tokens, 1);
    add_scaled(m->weight, -rate, m->gradient, (int)module_size(m));
    m->moved += rate * largest(m->gradient, module_size(m));
}

void run_descend(run *r) {
    module_descend(&r->encoder, r->loss[1]);
    module_descend(&r->llm, r->loss[1]);
}

static run run_new(const problem *p, place encoder, place llm) {
    return (run){.of = p,
                 .encoder = module_new(p, 0, encoder, PIXELS, HIDDEN),
                 .llm = module_new(p, 1, llm, HIDDEN, CLASSES)};
}

run run_alone(const problem *p) {
    return run_new(p, place_alone(), place_alone());
}

run run_equal(const problem *p, const mesh *m) {
    return run_new(p, place_on(m), place_on(m));
}

run run_bridged(const problem *p, const bridge_case *c, lierne_context *context) {
    run r = run_new(p, place_on(&c->src), place_on(&c->dst));
    r.bridge = c;
    CHECK(case_plan(&r.plan, context, c) == LIERNE_OK, "%s: %s", case_text(c), lierne_last_error());
    return r;
}

void run_free(run *r) {
    CHECK_OK(lierne_plan_destroy(r->plan));
    module_free(&r->encoder);
    module_free(&r->llm);
}
