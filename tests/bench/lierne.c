/* The methods of lierne, through blocking calls, and the bound of copying. A result that is an
 * alias of the input is used as one, as in the methods by hand.
 *
 * The bound writes on each rank as many bytes as its outputs have (none where they are aliases),
 * from memory of its own and without waiting: no method with private buffers can be faster. */
#include "bench/bridge.h"
#include "runtime/memory/host.h"

#include <stdlib.h>
#include <string.h>

typedef struct planned {
    method base;
    lierne_context *context;
    lierne_plan *plan;
    bool view[2];
    bool filled[2]; /* in[] of its own has the input */
    char *in[2];    /* the workload's, or its own */
    char *out[2];
} planned;

static bool run_plan(method *m, int direction) {
    planned *p = (planned *)m;
    char *out = p->view[direction] ? NULL : p->out[direction];
    lierne_status status = direction == FORWARD
                               ? lierne_plan_forward(p->plan, out, p->in[direction], NULL)
                               : lierne_plan_adjoint(p->plan, out, p->in[direction], NULL);
    return status == LIERNE_OK;
}

static void close_plan(method *m) {
    planned *p = (planned *)m;
    lierne_context_destroy_all(p->context);
    free(p);
}

static void find_views(planned *p) {
    const workload *w = p->base.workload;
    for (int d = FORWARD; d <= ADJOINT; d++) {
        int64_t offset = -1;
        lierne_plan_get_alias(&offset, p->plan, (lierne_direction)d);
        p->view[d] = offset >= 0;
        p->base.result[d] = offset < 0 ? p->out[d] : p->in[d] + (size_t)offset * w->size;
    }
}

static method *open_plan(const workload *w, test_algorithm algorithm, lierne_gradient_owner owner,
                         lierne_sharing sharing) {
    planned *p = (planned *)take(sizeof *p);
    bridge_case c = w->bridge;
    c.algorithm = algorithm;
    c.owner = owner;
    c.sharing = sharing;
    lierne_status status = lierne_context_create_mpi(&p->context, MPI_COMM_WORLD, NULL);
    CHECK(status == LIERNE_OK, "%s", lierne_last_error());
    status = case_plan(&p->plan, p->context, &c);
    CHECK(status == LIERNE_OK, "%s", lierne_last_error());
    p->base = (method){.workload = w, .run = run_plan, .checked = true};
    for (int d = FORWARD; d <= ADJOINT; d++) {
        p->in[d] = w->in[d];
        p->out[d] = w->out[d];
    }
    find_views(p);
    return &p->base;
}

static lierne_gradient_owner owner_of(const workload *w) {
    return w->cp > 1 ? LIERNE_GRADIENT_OWNER_ZIGZAG : LIERNE_GRADIENT_OWNER_PARTIAL;
}

static method *open_direct(const void *of) {
    const workload *w = of;
    return open_plan(w, TEST_DIRECT, owner_of(w), LIERNE_SHARING_NONE);
}

static method *open_over_shm(const workload *w, lierne_gradient_owner owner,
                             lierne_sharing sharing) {
    char *list = getenv("LIERNE_TRANSPORTS");
    char before[80] = "";
    strncat(before, list ? list : "", sizeof before - 1);
    setenv("LIERNE_TRANSPORTS", "shm,mpi", 1);
    method *m = open_plan(w, TEST_DIRECT, owner, sharing);
    setenv("LIERNE_TRANSPORTS", before, 1);
    return m;
}

static method *open_shm(const void *of) {
    return open_over_shm(of, owner_of(of), LIERNE_SHARING_NONE);
}

static void fill_own(method *m, int direction) {
    planned *p = (planned *)m;
    const workload *w = m->workload;
    if (!p->filled[direction]) {
        memcpy(p->in[direction], w->in[direction], w->bytes[direction][0]);
        p->filled[direction] = true;
    } else if (m->dirty) {
        rewrite(p->in[direction], w->bytes[direction][0]);
    }
}

static method *open_in_windows(const workload *w, lierne_gradient_owner owner,
                               lierne_sharing sharing) {
    planned *p = (planned *)open_over_shm(w, owner, sharing);
    for (int d = FORWARD; d <= ADJOINT; d++) {
        void *in, *out;
        lierne_status status = lierne_context_alloc(&in, p->context, w->bytes[d][0]);
        CHECK(status == LIERNE_OK, "%s", lierne_last_error());
        status = lierne_context_alloc(&out, p->context, w->bytes[d][1]);
        CHECK(status == LIERNE_OK, "%s", lierne_last_error());
        p->in[d] = in;
        p->out[d] = out;
        memset(out, 0xff, w->bytes[d][1]);
    }
    p->base.before = fill_own;
    p->base.owns_inputs = true;
    find_views(p);
    return &p->base;
}

static method *open_window(const void *of) {
    return open_in_windows(of, owner_of(of), LIERNE_SHARING_NONE);
}

/* The forward's output is the plan's, one per node for all ranks that need the same. */
static void find_shared(method *m, int direction) {
    const void *result = NULL;
    if (direction == FORWARD) {
        lierne_plan_get_shared_output(&result, ((planned *)m)->plan, LIERNE_DIRECTION_FORWARD);
        m->result[FORWARD] = result ? result : m->result[FORWARD]; /* NULL: no output here */
    }
}

static method *open_shared(const void *of) {
    const workload *w = of;
    if (mesh_size(&w->dst, "tp") * mesh_size(&w->dst, "cp") == 1) {
        return NULL;
    }
    method *m = open_in_windows(w, owner_of(w), LIERNE_SHARING_FORWARD);
    ((planned *)m)->view[FORWARD] = true;
    m->after = find_shared;
    return m;
}

/* Without cp the gradient has one owner: the plan would be that of open_direct. */
static method *open_partial(const void *of) {
    const workload *w = of;
    return w->cp > 1 ? open_plan(w, TEST_DIRECT, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_SHARING_NONE)
                     : NULL;
}

static method *open_window_partial(const void *of) {
    const workload *w = of;
    return w->cp > 1 ? open_in_windows(w, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_SHARING_NONE)
                     : NULL;
}

static method *open_collective(const void *of) {
    const workload *w = of;
    return w->disjoint
               ? NULL
               : open_plan(w, TEST_COLLECTIVE, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_SHARING_NONE);
}

static method *open_leader(const void *of) {
    const workload *w = of;
    return w->disjoint
               ? open_plan(w, TEST_LEADER, LIERNE_GRADIENT_OWNER_PARTIAL, LIERNE_SHARING_NONE)
               : NULL;
}

const method_kind lierne_direct = {"lierne DIRECT", open_direct, close_plan};
const method_kind lierne_shm = {"lierne DIRECT, shm", open_shm, close_plan};
const method_kind lierne_window_partial = {"lierne partial, window", open_window_partial,
                                           close_plan};
const method_kind lierne_shared = {"lierne, shared output", open_shared, close_plan};
const method_kind lierne_windows = {"lierne DIRECT, window", open_window, close_plan};
const method_kind lierne_partial = {"lierne DIRECT, partial", open_partial, close_plan};
const method_kind lierne_collective = {"lierne COLLECTIVE", open_collective, close_plan};
const method_kind lierne_leader = {"lierne LEADER", open_leader, close_plan};

typedef struct copier {
    method base;
    char *from;
    size_t bytes[2];
    bool streams;
} copier;

static bool run_copy(method *m, int direction) {
    copier *c = (copier *)m;
    const workload *w = m->workload;
    char *to = w->out[direction];
    if (c->streams) {
        lierne_nontemporal_copy(to, c->from, c->bytes[direction], NULL);
        lierne_nontemporal_fence();
    } else {
        memcpy(to, c->from, c->bytes[direction]);
    }
    return true;
}

static void close_copy(method *m) {
    free(((copier *)m)->from);
    free(m);
}

static method *open_copier(const workload *w, bool streams) {
    copier *c = (copier *)take(sizeof *c);
    bool view[2] = {!w->fan_in && w->axis == 0, w->fan_in && w->axis == 0 && w->cp == 1};
    for (int d = FORWARD; d <= ADJOINT; d++) {
        c->bytes[d] = view[d] && !w->disjoint ? 0 : w->bytes[d][1];
    }
    c->from = take(c->bytes[0] > c->bytes[1] ? c->bytes[0] : c->bytes[1]);
    c->streams = streams;
    c->base = (method){.workload = w, .run = run_copy};
    return &c->base;
}

static method *open_copy(const void *of) {
    return open_copier(of, false);
}

static method *open_stream(const void *of) {
    return open_copier(of, true);
}

const method_kind copy_bound = {"bound: memcpy", open_copy, close_copy};
const method_kind stream_bound = {"bound: streaming stores", open_stream, close_copy};
