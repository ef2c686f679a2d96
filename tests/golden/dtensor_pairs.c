/* dtensor.json, pairs: a tensor moves from one mesh to another, and its gradient back. Element g of
 * the tensor, by its row-major number, is g + 1, and that of the gradient 3 + 7 g mod 31: neither
 * is ever 0, and what lierne must write is poisoned before. */
#include "dtensor.h"

#include "lierne/sim.h"
#include "routing.h"

#include <stdlib.h>
#include <string.h>

/* One direction on one rank: global numbers of the elements of its buffers, and the buffers. */
typedef struct buffer {
    int64_t n;
    int64_t *numbers;
    int32_t *memory;
} buffer;

typedef struct pair {
    golden_dtensor sides[2]; /* source and destination */
    lierne_layout *layouts[2];
    int world;
    lierne_sim *sim;
    lierne_plan **plans;
    buffer *buffers[2]; /* per rank, under the layout of either side */
} pair;

static int32_t value(int64_t number) {
    return (int32_t)(number + 1);
}

static int32_t gradient(int64_t number) {
    return (int32_t)(3 + 7 * number % 31);
}

/* A rank outside a mesh has no elements. */
static buffer make_buffer(const golden_dtensor *t, int rank) {
    buffer b = {0};
    if (rank >= t->offset && rank < t->offset + t->nranks) {
        golden_indices parts[LIERNE_MAX_AXES];
        golden_dtensor_parts(t, rank - t->offset, parts);
        b.numbers = golden_dtensor_numbers(t, parts, &b.n);
        golden_indices_free(parts, t->naxes);
    }
    b.memory = golden_alloc(b.n, sizeof *b.memory);
    return b;
}

static void open_pair(golden_case *c, pair *p) {
    p->plans = golden_alloc(p->world, sizeof *p->plans);
    golden_expect_status(c, "lierne_sim_create", lierne_sim_create(&p->sim, p->world, NULL),
                         LIERNE_OK);
    for (int side = 0; side < 2; side++) {
        p->buffers[side] = golden_alloc(p->world, sizeof *p->buffers[side]);
        for (int r = 0; r < p->world; r++) {
            p->buffers[side][r] = make_buffer(&p->sides[side], r);
        }
    }
}

static void close_pair(golden_case *c, pair *p) {
    for (int r = 0; r < p->world; r++) {
        golden_expect_status(c, "lierne_plan_destroy", lierne_plan_destroy(p->plans[r]), LIERNE_OK);
        for (int side = 0; side < 2; side++) {
            free(p->buffers[side][r].numbers);
            free(p->buffers[side][r].memory);
        }
    }
    free(p->plans);
    free(p->buffers[0]);
    free(p->buffers[1]);
    golden_expect_status(c, "lierne_sim_destroy", lierne_sim_destroy(p->sim), LIERNE_OK);
    lierne_layout_destroy(p->layouts[0]);
    lierne_layout_destroy(p->layouts[1]);
}

/* Plans on every rank, without the layouts afterwards. */
static void plan(golden_case *c, pair *p) {
    lierne_redistribute_spec spec = {.size = sizeof spec,
                                     .src = p->layouts[0],
                                     .dst = p->layouts[1],
                                     .routing = test_routing(),
                                     .max_peers = test_max_peers(p->world)};
    for (int r = 0; r < p->world && !c->failed; r++) {
        lierne_context *context = lierne_sim_get_context(p->sim, r);
        golden_expect_status(c, "lierne_plan_create_redistribute",
                             lierne_plan_create_redistribute(&p->plans[r], context, &spec),
                             LIERNE_OK);
    }
    for (int side = 0; side < 2; side++) {
        lierne_layout_destroy(p->layouts[side]);
        p->layouts[side] = NULL;
    }
    if (!c->failed) {
        golden_expect_status(c, "lierne_plan_check",
                             lierne_plan_check((const lierne_plan *const *)p->plans, p->world),
                             LIERNE_OK);
    }
}

static void expect_values(golden_case *c, const char *what, const buffer *b, int rank,
                          int32_t (*of)(int64_t)) {
    for (int64_t i = 0; i < b->n; i++) {
        golden_expect(c, b->memory[i] == of(b->numbers[i]),
                      "%s on rank %d: element %lld is %d, expected %d", what, rank, (long long)i,
                      (int)b->memory[i], (int)of(b->numbers[i]));
    }
}

/* Fills what is read, poisons what is written, and executes on all ranks. */
static void execute(golden_case *c, pair *p, lierne_direction direction) {
    lierne_request **requests = golden_alloc(p->world, sizeof *requests);
    int32_t (*of)(int64_t) = direction == LIERNE_DIRECTION_FORWARD ? value : gradient;
    for (int r = 0; r < p->world && !c->failed; r++) {
        buffer *in = &p->buffers[direction == LIERNE_DIRECTION_ADJOINT][r];
        buffer *out = &p->buffers[direction == LIERNE_DIRECTION_FORWARD][r];
        for (int64_t i = 0; i < in->n; i++) {
            in->memory[i] = of(in->numbers[i]);
        }
        memset(out->memory, 0xa5, (size_t)out->n * sizeof *out->memory);
        lierne_status status = direction == LIERNE_DIRECTION_FORWARD
                                   ? lierne_plan_forward_begin(&requests[r], p->plans[r],
                                                               out->memory, in->memory, NULL)
                                   : lierne_plan_adjoint_begin(&requests[r], p->plans[r],
                                                               out->memory, in->memory, NULL);
        golden_expect_status(c, "begin", status, LIERNE_OK);
    }
    for (int r = 0; r < p->world; r++) {
        if (requests[r]) {
            golden_expect_status(c, "lierne_request_end", lierne_request_end(requests[r]),
                                 LIERNE_OK);
        }
    }
    for (int r = 0; r < p->world && !c->failed; r++) {
        expect_values(c, "input", &p->buffers[direction == LIERNE_DIRECTION_ADJOINT][r], r, of);
        expect_values(c, "output", &p->buffers[direction == LIERNE_DIRECTION_FORWARD][r], r, of);
    }
    free(requests);
}

/* The sum over a side's distinct elements, of their replicas the first, of what a buffer holds
 * times the other factor. */
static int64_t dot(const pair *p, int side, int32_t (*factor)(int64_t)) {
    int64_t sum = 0, n = 1;
    for (int a = 0; a < p->sides[side].naxes; a++) {
        n *= p->sides[side].shape[a];
    }
    bool *seen = golden_alloc(n, sizeof *seen);
    for (int r = 0; r < p->world; r++) {
        const buffer *b = &p->buffers[side][r];
        for (int64_t i = 0; i < b->n; i++) {
            int64_t number = b->numbers[i];
            sum += seen[number] ? 0 : (int64_t)b->memory[i] * factor(number);
            seen[number] = true;
        }
    }
    free(seen);
    return sum;
}

static void run(golden_case *c, pair *p) {
    int64_t forward, adjoint;
    execute(c, p, LIERNE_DIRECTION_FORWARD);
    forward = dot(p, 1, gradient);
    execute(c, p, LIERNE_DIRECTION_ADJOINT);
    adjoint = dot(p, 0, value);
    golden_expect(c, forward == adjoint, "<F x, y> is %lld, <x, F* y> %lld", (long long)forward,
                  (long long)adjoint);
}

static bool read_pair(golden_case *c, pair *p) {
    static const char *const kinds[] = {"same", "disjoint", "overlap"};
    const cJSON *item = c->item, *src = golden_get(item, "src"), *dst = golden_get(item, "dst");
    const char *kind = golden_string(item, "kind");
    bool known = false;
    for (int i = 0; i < 3; i++) {
        known = known || strcmp(kind, kinds[i]) == 0;
    }
    p->world = (int)golden_int(item, "world_size", 0);
    return golden_expect(c, known, "the runner does not know the kind '%s'", kind) &&
           golden_expect(c, p->world > 0, "no world_size") &&
           golden_dtensor_read(c, &p->sides[0], golden_get(item, "shape"), src) &&
           golden_dtensor_read(c, &p->sides[1], golden_get(item, "shape"), dst);
}

/* Both layouts, each stated one way. */
static void try_pair(golden_case *c, pair p, const golden_statement *statements) {
    golden_case one = {.item = c->item};
    open_pair(&one, &p);
    for (int side = 0; side < 2; side++) {
        p.layouts[side] = golden_dtensor_layout(&one, &p.sides[side], statements[side], p.world,
                                                LIERNE_DTYPE_I32);
        golden_layout_expect(&one, &p.sides[side], p.layouts[side]);
    }
    if (!one.failed) {
        plan(&one, &p);
    }
    if (!one.failed) {
        run(&one, &p);
    }
    close_pair(&one, &p);
    golden_expect(c, !one.failed, "source %s, destination %s: %s",
                  statements[0] == GOLDEN_AS_CUTS ? "as cuts" : "by index",
                  statements[1] == GOLDEN_AS_CUTS ? "as cuts" : "by index", one.why);
}

void golden_dtensor_pair(golden_case *c) {
    pair p = {0};
    if (!read_pair(c, &p)) {
        return;
    }
    golden_dtensor_expect(c, &p.sides[0], golden_get(golden_get(c->item, "src"), "holds"));
    golden_dtensor_expect(c, &p.sides[1], golden_get(c->item, "expect"));
    bool nested[2] = {golden_dtensor_is_nested(&p.sides[0]), golden_dtensor_is_nested(&p.sides[1])};
    for (int i = 0; i < 4 && !c->failed; i++) {
        golden_statement statements[2] = {i & 1 ? GOLDEN_BY_INDEX : GOLDEN_AS_CUTS,
                                          i & 2 ? GOLDEN_BY_INDEX : GOLDEN_AS_CUTS};
        if ((statements[0] == GOLDEN_BY_INDEX || nested[0]) &&
            (statements[1] == GOLDEN_BY_INDEX || nested[1])) {
            try_pair(c, p, statements);
        }
    }
}
