/* The methods of the collective benchmark, and its buffers. */
#include "bench/collective.h"
#include "lierne/collective.h"
#include "runtime/memory/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the workload --- */

static float value(int rank, size_t i) {
    return (float)(1 + ((size_t)rank * 31 + i * 7 + i / 64) % 97);
}

static size_t count_of(const collective_work *w) {
    return w->bytes / sizeof(float);
}

void collective_open(collective_work *w) {
    size_t n = (size_t)test_world, block = w->bytes, all = n * block;
    const size_t sizes[OPERATIONS][2] = {{block, all}, {block, block}, {all, all}};
    for (int d = FORWARD; d <= ADJOINT; d++) {
        w->sizes[d][0] = sizes[w->kind][d];
        w->sizes[d][1] = sizes[w->kind][1 - d];
        w->in[d] = take(w->sizes[d][0]);
        w->out[d] = take(w->sizes[d][1]);
        for (size_t i = 0; i < w->sizes[d][0] / sizeof(float); i++) {
            ((float *)(void *)w->in[d])[i] = value(test_rank, i);
        }
    }
}

void collective_close(collective_work *w) {
    for (int d = FORWARD; d <= ADJOINT; d++) {
        free(w->in[d]);
        free(w->out[d]);
    }
}

void collective_reset(const void *workload, int direction) {
    const collective_work *w = workload;
    memset(w->out[direction], 0xee, w->sizes[direction][1]);
}

void collective_rewrite(const void *workload, int direction) {
    const collective_work *w = workload;
    rewrite(w->in[direction], w->sizes[direction][0]);
}

/* Element i of the output of a direction. */
static float wanted(const collective_work *w, int direction, size_t i) {
    size_t n = count_of(w), source = i / n, first = (size_t)test_rank * n;
    float sum = 0;
    if (w->kind == EXCHANGE) {
        return value((int)source, first + i % n);
    }
    if (w->kind == GATHER && direction == FORWARD) {
        return value((int)source, i % n);
    }
    for (int r = 0; r < test_world; r++) {
        sum += value(r, w->kind == REDUCE ? i : first + i);
    }
    return sum;
}

bool collective_right(const method *m, int direction) {
    const collective_work *w = m->workload;
    const float *out = (const void *)m->result[direction];
    bool right = true;
    for (size_t i = 0; i < w->sizes[direction][1] / sizeof(float); i++) {
        right = right && out[i] == wanted(w, direction, i);
    }
    return right;
}

const char *collective_text(const void *workload) {
    static char text[80];
    const collective_work *w = workload;
    snprintf(text, sizeof text, "%s of %zu bytes",
             w->kind == GATHER   ? "all-gather"
             : w->kind == REDUCE ? "all-reduce"
                                 : "all-to-all",
             w->bytes);
    return text;
}

/* --- lierne --- */

typedef struct planned {
    method base;
    lierne_context *context;
    lierne_plan *plan;
    char *in[2], *out[2]; /* the workload's, or memory of the context */
} planned;

static bool run_plan(method *m, int direction) {
    planned *p = (planned *)m;
    const collective_work *w = m->workload;
    lierne_status status = LIERNE_OK;
    for (int i = 0; i < w->calls && status == LIERNE_OK; i++) {
        status = (direction == FORWARD
                      ? lierne_plan_forward
                      : lierne_plan_adjoint)(p->plan, p->out[direction], p->in[direction], NULL);
    }
    return status == LIERNE_OK;
}

static void close_plan(method *m) {
    lierne_context_destroy_all(((planned *)m)->context);
    free(m);
}

static lierne_status plan(planned *p, const collective_work *w, lierne_collective_algorithm how) {
    int64_t count = (int64_t)count_of(w);
    lierne_all_gather_spec gather = {.size = sizeof gather,
                                     .count = count,
                                     .dtype = LIERNE_DTYPE_F32};
    lierne_all_reduce_spec reduce = {.size = sizeof reduce,
                                     .count = count,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .algorithm = how};
    lierne_all_to_all_spec exchange = {.size = sizeof exchange,
                                       .count = count,
                                       .dtype = LIERNE_DTYPE_F32};
    return w->kind == GATHER   ? lierne_plan_create_all_gather(&p->plan, p->context, &gather)
           : w->kind == REDUCE ? lierne_plan_create_all_reduce(&p->plan, p->context, &reduce)
                               : lierne_plan_create_all_to_all(&p->plan, p->context, &exchange);
}

static planned *open_plan(const collective_work *w, const char *transports,
                          lierne_collective_algorithm how) {
    planned *p = (planned *)take(sizeof *p);
    setenv("LIERNE_TRANSPORTS", transports, 1);
    CHECK(lierne_context_create_mpi(&p->context, MPI_COMM_WORLD, NULL) == LIERNE_OK &&
              plan(p, w, how) == LIERNE_OK,
          "%s", lierne_last_error());
    p->base = (method){.workload = w, .run = run_plan, .checked = true};
    for (int d = FORWARD; d <= ADJOINT; d++) {
        p->in[d] = w->in[d];
        p->base.result[d] = p->out[d] = w->out[d];
    }
    return p;
}

static void rewrite_own(method *m, int direction) {
    const collective_work *w = m->workload;
    if (m->dirty) {
        rewrite(((planned *)m)->in[direction], w->sizes[direction][0]);
    }
}

static method *open_window(const collective_work *w, lierne_collective_algorithm how) {
    planned *p = open_plan(w, "shm,mpi", how);
    for (int d = FORWARD; d <= ADJOINT; d++) {
        void *in, *out = NULL;
        CHECK(lierne_context_alloc(&in, p->context, w->sizes[d][0]) == LIERNE_OK &&
                  lierne_context_alloc(&out, p->context, w->sizes[d][1]) == LIERNE_OK,
              "%s", lierne_last_error());
        memcpy(in, w->in[d], w->sizes[d][0]);
        memset(out, 0xff, w->sizes[d][1]);
        p->in[d] = in;
        p->base.result[d] = p->out[d] = out;
    }
    p->base.before = rewrite_own;
    p->base.owns_inputs = true;
    return &p->base;
}

static method *open_auto(const void *w) {
    return open_window(w, LIERNE_COLLECTIVE_ALGORITHM_AUTO);
}
static method *open_one_shot(const void *w) {
    return open_window(w, LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT);
}
static method *open_two_shot(const void *w) {
    return open_window(w, LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
}
static method *open_shm(const void *w) {
    return &open_plan(w, "shm,mpi", LIERNE_COLLECTIVE_ALGORITHM_AUTO)->base;
}
static method *open_mpi(const void *w) {
    return &open_plan(w, "mpi", LIERNE_COLLECTIVE_ALGORITHM_AUTO)->base;
}

const method_kind window_collective = {"lierne, window", open_auto, close_plan};
const method_kind window_one_shot = {"lierne, window, 1-shot", open_one_shot, close_plan};
const method_kind window_two_shot = {"lierne, window, 2-shot", open_two_shot, close_plan};
const method_kind shm_collective = {"lierne, ordinary memory", open_shm, close_plan};
const method_kind mpi_collective = {"lierne over MPI", open_mpi, close_plan};

/* --- MPI, and the bound --- */

static int call_mpi(const collective_work *w, int direction) {
    const void *in = w->in[direction];
    void *out = w->out[direction];
    int n = (int)count_of(w);
    if (w->kind == REDUCE) {
        return MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (w->kind == EXCHANGE) {
        return MPI_Alltoall(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD);
    }
    return direction == FORWARD
               ? MPI_Allgather(in, n, MPI_FLOAT, out, n, MPI_FLOAT, MPI_COMM_WORLD)
               : MPI_Reduce_scatter_block(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static bool run_mpi(method *m, int direction) {
    const collective_work *w = m->workload;
    int code = MPI_SUCCESS;
    for (int i = 0; i < w->calls && code == MPI_SUCCESS; i++) {
        code = call_mpi(w, direction);
    }
    return code == MPI_SUCCESS;
}

static void close_method(method *m) {
    free(m);
}

static method *open_by_mpi(const void *of) {
    const collective_work *w = of;
    method *m = (method *)(void *)take(sizeof *m);
    *m = (method){.workload = w, .run = run_mpi, .checked = true, .result = {w->out[0], w->out[1]}};
    return m;
}

/* The sum of as many blocks as there are ranks, a part that the cache keeps at a time. */
static void sum_blocks(float *out, const float *in, size_t stride, size_t n) {
    enum { PART = 2048 };
    for (size_t at = 0; at < n; at += PART) {
        size_t part = n - at < PART ? n - at : PART;
        memcpy(out + at, in + at, part * sizeof *out);
        for (int r = 1; r < test_world; r++) {
            const float *from = in + (size_t)r * stride + at;
            for (size_t i = 0; i < part; i++) {
                out[at + i] += from[i];
            }
        }
    }
}

static void copy_once(const collective_work *w, int direction) {
    size_t in = w->sizes[direction][0], out = w->sizes[direction][1];
    const float *from = (const void *)w->in[direction];
    if (w->kind == REDUCE || (w->kind == GATHER && direction == ADJOINT)) {
        sum_blocks((void *)w->out[direction], from, w->kind == REDUCE ? 0 : count_of(w),
                   count_of(w));
        return;
    }
    for (size_t at = 0; at < out; at += in) {
        memcpy(w->out[direction] + at, w->in[direction], in);
    }
}

/* Reads and writes as many bytes as this rank must, in memory of its own, and waits for nobody. */
static bool run_copy(method *m, int direction) {
    const collective_work *w = m->workload;
    for (int i = 0; i < w->calls; i++) {
        copy_once(w, direction);
    }
    return true;
}

static method *open_bound(const void *of) {
    method *m = (method *)(void *)take(sizeof *m);
    *m = (method){.workload = of, .run = run_copy};
    return m;
}

const method_kind by_mpi = {"MPI", open_by_mpi, close_method};
const method_kind collective_bound = {"bound: own memory", open_bound, close_method};
