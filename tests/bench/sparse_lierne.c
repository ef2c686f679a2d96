/* The methods of lierne, through blocking calls. The bytes that a plan reports are compared with
 * those counted from the star forest alone. */
#include "bench/sparse.h"

#include <stdlib.h>
#include <string.h>

typedef struct planned {
    method base;
    lierne_context *context;
    lierne_plan *plan;
    lierne_plan *like; /* of the method that retypes it */
    lierne_graph_spec edges;
    lierne_references_spec pairs;
    char *owned[2], *ghosts[2]; /* in shared memory, where the method has its own */
} planned;

static bool run_planned(method *m, int direction) {
    planned *p = (planned *)m;
    const sparse *w = m->workload;
    return direction == FORWARD
               ? lierne_plan_forward(p->plan, w->ghosts[FORWARD], w->owned[FORWARD], NULL) ==
                     LIERNE_OK
               : lierne_plan_adjoint(p->plan, w->owned[ADJOINT], w->ghosts[ADJOINT], NULL) ==
                     LIERNE_OK;
}

static bool run_whole(method *m, int direction) {
    planned *p = (planned *)m;
    const sparse *w = m->workload;
    char *rows = w->owned[direction];
    return (direction == FORWARD ? lierne_plan_forward : lierne_plan_adjoint)(p->plan, rows, rows,
                                                                              NULL) == LIERNE_OK;
}

static void close_planned(method *m) {
    planned *p = (planned *)m;
    CHECK(lierne_context_destroy_all(p->context) == LIERNE_OK, "%s", lierne_last_error());
    free(p);
}

static planned *open_planned(const sparse *w, bool (*run)(method *, int)) {
    planned *p = (planned *)take(sizeof *p);
    p->base = (method){.workload = w, .run = run, .checked = true};
    p->edges = (lierne_graph_spec){.size = sizeof p->edges,
                                   .nrows = w->nrows,
                                   .owner = w->owner,
                                   .nedges = w->nedges,
                                   .source = w->source,
                                   .target = w->target,
                                   .dtype = w->dtype,
                                   .width = w->width,
                                   .accumulate = 1};
    p->pairs = (lierne_references_spec){.size = sizeof p->pairs,
                                        .nowned = w->nowned,
                                        .nghosts = w->nghosts,
                                        .rank = w->rank,
                                        .row = w->root,
                                        .dtype = w->dtype,
                                        .width = w->width,
                                        .accumulate = 1};
    CHECK(lierne_context_create_mpi(&p->context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    return p;
}

/* Each row once to each rank that has ghosts of it, both ways. */
static void check_bytes(const planned *p) {
    const sparse *w = p->base.workload;
    int64_t rows, messages, local;
    sparse_bound(w, &rows, &messages, &local);
    for (int d = FORWARD; d <= ADJOINT; d++) {
        lierne_report report = {.size = sizeof report};
        lierne_status status = lierne_plan_get_report(&report, p->plan, (lierne_direction)d);
        int64_t mine[2] = {report.received_bytes, report.sent_messages}, all[2];
        MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        CHECK(status == LIERNE_OK && all[0] == rows * (int64_t)w->row && all[1] == messages,
              "%s: direction %d moves %lld bytes in %lld messages, needed are %lld rows in %lld",
              sparse_text(w), d, (long long)all[0], (long long)all[1], (long long)rows,
              (long long)messages);
    }
}

static method *open_graph(const void *of) {
    planned *p = open_planned(of, run_planned);
    CHECK(lierne_plan_create_graph(&p->plan, p->context, &p->edges) == LIERNE_OK, "%s",
          lierne_last_error());
    check_bytes(p);
    return &p->base;
}

static method *open_shm(const void *of) {
    char *list = getenv("LIERNE_TRANSPORTS");
    char before[80] = "";
    strncat(before, list ? list : "", sizeof before - 1);
    setenv("LIERNE_TRANSPORTS", "shm,mpi", 1);
    method *m = open_graph(of);
    setenv("LIERNE_TRANSPORTS", before, 1);
    return m;
}

static bool run_window(method *m, int direction) {
    planned *p = (planned *)m;
    return direction == FORWARD
               ? lierne_plan_forward(p->plan, p->ghosts[FORWARD], p->owned[FORWARD], NULL) ==
                     LIERNE_OK
               : lierne_plan_adjoint(p->plan, p->owned[ADJOINT], p->ghosts[ADJOINT], NULL) ==
                     LIERNE_OK;
}

static void take_over(char *own, const char *from, size_t bytes) {
    if (memcmp(own, from, bytes) != 0) {
        memcpy(own, from, bytes);
    }
}

/* An input that has not changed is not written: its cache lines stay where they are. */
static void before_window(method *m, int direction) {
    planned *p = (planned *)m;
    const sparse *w = m->workload;
    take_over(p->owned[direction], w->owned[direction], w->owned_bytes);
    take_over(p->ghosts[direction], w->ghosts[direction], w->ghost_bytes);
    if (m->dirty) {
        rewrite(direction == FORWARD ? p->owned[FORWARD] : p->ghosts[ADJOINT],
                direction == FORWARD ? w->owned_bytes : w->ghost_bytes);
    }
}

static void after_window(method *m, int direction) {
    planned *p = (planned *)m;
    const sparse *w = m->workload;
    if (direction == FORWARD) {
        memcpy(w->ghosts[FORWARD], p->ghosts[FORWARD], w->ghost_bytes);
    } else {
        memcpy(w->owned[ADJOINT], p->owned[ADJOINT], w->owned_bytes);
    }
}

static char *share(const planned *p, size_t bytes) {
    void *memory = NULL;
    CHECK(lierne_context_alloc(&memory, p->context, bytes) == LIERNE_OK, "%s", lierne_last_error());
    return memory;
}

static method *open_window(const void *of) {
    method *m = open_shm(of);
    planned *p = (planned *)m;
    const sparse *w = of;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        p->owned[d] = share(p, w->owned_bytes);
        p->ghosts[d] = share(p, w->ghost_bytes);
    }
    m->run = run_window;
    m->before = before_window;
    m->owns_inputs = true;
    m->after = after_window;
    return m;
}

static method *open_swaps(const void *of) {
    const sparse *w = of;
    planned *p = open_planned(w, run_whole);
    CHECK(lierne_plan_create_halo(&p->plan, p->context, &w->swaps) == LIERNE_OK, "%s",
          lierne_last_error());
    return &p->base;
}

static method *open_flat(const void *of) {
    const sparse *w = of;
    planned *p = open_planned(w, run_whole);
    lierne_plan *swaps = NULL;
    CHECK(lierne_plan_create_halo(&swaps, p->context, &w->swaps) == LIERNE_OK &&
              lierne_plan_create_flattened(&p->plan, swaps, 0) == LIERNE_OK &&
              lierne_plan_destroy(swaps) == LIERNE_OK,
          "%s", lierne_last_error());
    check_bytes(p);
    return &p->base;
}

static void drop_plan(method *m, int direction) {
    planned *p = (planned *)m;
    (void)direction;
    CHECK(lierne_plan_destroy(p->plan) == LIERNE_OK, "%s", lierne_last_error());
    p->plan = NULL;
}

static void before_edges(method *m, int direction) {
    if (direction == FORWARD) {
        drop_plan(m, direction);
    }
}

static bool run_edges(method *m, int direction) {
    planned *p = (planned *)m;
    return direction == FORWARD
               ? lierne_plan_create_graph(&p->plan, p->context, &p->edges) == LIERNE_OK
               : lierne_plan_update_graph(p->plan, &p->edges) == LIERNE_OK;
}

static bool run_pairs(method *m, int direction) {
    planned *p = (planned *)m;
    (void)direction;
    return lierne_plan_create_references(&p->plan, p->context, &p->pairs) == LIERNE_OK;
}

static void after_plan(method *m, int direction) {
    (void)direction;
    CHECK(run_planned(m, FORWARD), "%s", lierne_last_error());
}

static method *open_plan(const sparse *w, void (*before)(method *, int),
                         bool (*run)(method *, int)) {
    planned *p = open_planned(w, run);
    p->base.before = before;
    p->base.after = after_plan;
    p->edges.algorithm = p->pairs.algorithm =
        LIERNE_GRAPH_ALGORITHM_DIRECT; /* as PetscSF's basic */
    return &p->base;
}

/* A plan of rows of one byte, for rows of the workload's type. */
static bool run_retyped(method *m, int direction) {
    planned *p = (planned *)m;
    const lierne_retyped_spec spec = {.size = sizeof spec,
                                      .dtype = p->edges.dtype,
                                      .width = p->edges.width};
    (void)direction;
    return lierne_plan_create_retyped(&p->plan, p->like, &spec) == LIERNE_OK;
}

static method *open_retyped(const void *of) {
    planned *p = (planned *)open_plan(of, drop_plan, run_retyped);
    lierne_graph_spec bytes = p->edges;
    bytes.dtype = LIERNE_DTYPE_I8;
    bytes.width = 1;
    CHECK(lierne_plan_create_graph(&p->like, p->context, &bytes) == LIERNE_OK, "%s",
          lierne_last_error());
    return &p->base;
}

static method *open_edges(const void *of) {
    return open_plan(of, before_edges, run_edges);
}

static method *open_pairs(const void *of) {
    return open_plan(of, drop_plan, run_pairs);
}

const method_kind lierne_graph = {"lierne", open_graph, close_planned};
const method_kind lierne_graph_shm = {"lierne, shm", open_shm, close_planned};
const method_kind lierne_graph_window = {"lierne, window", open_window, close_planned};
const method_kind lierne_swaps = {"lierne, swaps", open_swaps, close_planned};
const method_kind lierne_flat = {"lierne, flattened", open_flat, close_planned};
const method_kind plan_edges = {"lierne from edges", open_edges, close_planned};
const method_kind plan_retyped = {"lierne retyped", open_retyped, close_planned};
const method_kind plan_pairs = {"lierne from references", open_pairs, close_planned};
