/* Contexts over some ranks of a larger world: a plan has the bits, and with ranks renumbered the
 * messages, of the same plan on a world of the members alone. Members are the ranks of a smaller
 * world, moved up, with a gap between two of them where no grid lies across it. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "random_case.h"
#include "rank_threads.h"
#include "redistribute_case.h"
#include "transports.h"
#include "unit/expect.h"

enum { MOST = 12, LARGER = 64, SEEDS = 400 };

/* Where the ranks of a small world are in the larger one. */
typedef struct renumbering {
    int n;
    int members[MAX_WORLD];
    bool gap;
} renumbering;

static uint64_t state;

static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

/* crosses[i]: a grid has ranks on both sides of rank i. */
static renumbering renumber(int n, const bool *crosses) {
    renumbering m = {.n = n};
    int at = draw(LARGER - n - 8), gap = 0;
    for (int r = 0; r < n; r++) {
        if (r > 0 && !crosses[r] && gap < 8 && draw(3)) {
            at += 1 + draw(2);
            gap += 2;
            m.gap = true;
        }
        m.members[r] = at++;
    }
    return m;
}

static void cross(bool *crosses, int offset, int64_t size) {
    for (int r = offset + 1; r < offset + size; r++) {
        crosses[r] = true;
    }
}

static lierne_sim *world_of(const renumbering *m, const int *nodes) {
    lierne_sim *sim;
    const lierne_context_spec spec = {.size = sizeof spec,
                                      .nodes = nodes,
                                      .members = m->members,
                                      .nmembers = m->n,
                                      .world_size = LARGER};
    assert_ok(lierne_sim_create(&sim, LARGER, &spec));
    return sim;
}

static lierne_sim *small_world(int n, const int *nodes) {
    lierne_sim *sim;
    const lierne_context_spec spec = {.size = sizeof spec, .nodes = nodes};
    assert_ok(lierne_sim_create(&sim, n, &spec));
    return sim;
}

static void same_messages(const lierne_messages *small, const lierne_messages *large,
                          const renumbering *m) {
    cr_assert_eq(small->count, large->count);
    for (size_t i = 0; i < small->count; i++) {
        cr_assert_eq(m->members[small->at[i].peer], large->at[i].peer);
        cr_assert_eq(small->at[i].elements, large->at[i].elements);
    }
}

static void same_routes(const lierne_plan *small, const lierne_plan *large, const renumbering *m) {
    for (int d = 0; d < 2; d++) {
        const lierne_route *a, *b;
        assert_ok(lierne_plan_get_route(&a, small, (lierne_direction)d));
        assert_ok(lierne_plan_get_route(&b, large, (lierne_direction)d));
        cr_assert_eq(m->members[a->rank], b->rank);
        cr_assert_eq(a->stages.count, b->stages.count);
        for (size_t s = 0; s < a->stages.count; s++) {
            same_messages(&a->stages.at[s].sends, &b->stages.at[s].sends, m);
            same_messages(&a->stages.at[s].recvs, &b->stages.at[s].recvs, m);
        }
    }
}

static size_t bytes_of(const lierne_plan *plan, lierne_direction d, lierne_dtype dtype, bool out) {
    int64_t n[2];
    assert_ok(lierne_plan_get_elements(&n[0], &n[1], plan, d));
    return (size_t)n[out] * lierne_dtype_size(dtype);
}

/* Executes a direction of all plans with the inputs and returns the outputs. */
static void execute(lierne_plan *const *plans, int n, lierne_direction d, lierne_dtype dtype,
                    void *const *in, void **out) {
    lierne_request *requests[MAX_WORLD];
    for (int r = 0; r < n; r++) {
        size_t bytes = bytes_of(plans[r], d, dtype, true);
        out[r] = malloc(bytes + 1);
        memset(out[r], 0xa5, bytes);
        cr_assert_eq((d ? lierne_plan_adjoint_begin
                        : lierne_plan_forward_begin)(&requests[r], plans[r], out[r], in[r], NULL),
                     LIERNE_OK, "%s", lierne_last_error());
    }
    for (int r = 0; r < n; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

/* Frees the inputs. */
static void same_results(lierne_plan *const *small, lierne_plan *const *large, int n,
                         lierne_direction d, lierne_dtype dtype, void *const *in) {
    void *a[MAX_WORLD], *b[MAX_WORLD];
    execute(small, n, d, dtype, in, a);
    execute(large, n, d, dtype, in, b);
    for (int r = 0; r < n; r++) {
        size_t bytes = bytes_of(small[r], d, dtype, true);
        cr_assert_eq(bytes, bytes_of(large[r], d, dtype, true));
        cr_assert_eq(memcmp(a[r], b[r], bytes), 0, "rank %d, direction %d", r, (int)d);
        free(a[r]);
        free(b[r]);
        free(in[r]);
    }
}

/* Members must be what every transport knows, so the larger world has several. */
static test_transports *attach(lierne_sim *sim, int n) {
    return test_transports_attach(sim, n, (test_pairs){.exposed = 1, .ordered = 2});
}

static void close_worlds(lierne_sim *small, lierne_sim *large, test_transports *transports,
                         lierne_plan **plans[2], int n) {
    for (int i = 0; i < 2 * n; i++) {
        assert_ok(lierne_plan_destroy(plans[i / n][i % n]));
    }
    assert_ok(lierne_sim_destroy(small));
    assert_ok(lierne_sim_destroy(large));
    cr_assert(test_transports_destroy(transports), "messages are left");
}

static int64_t layout_size(const case_layout *l) {
    int64_t size = 1;
    for (int d = 0; d < l->ndims; d++) {
        size *= l->sizes[d];
    }
    return size;
}

/* --- redistributions --- */

static bool run_redistribution(uint64_t seed) {
    static redistribute_case c, moved;
    bool crosses[MAX_WORLD] = {false};
    lierne_plan *small[MAX_WORLD], *large[MAX_WORLD], **plans[2] = {small, large};
    random_redistribute(&c, seed, 1 + (int)(seed % MOST));
    for (int l = 0; l < (c.stated_adjoint ? CASE_LAYOUTS : CASE_ADJOINT_SRC); l++) {
        cross(crosses, c.layouts[l].offset, layout_size(&c.layouts[l]));
    }
    renumbering m = renumber(c.world, crosses);
    moved = c;
    moved.world = LARGER;
    for (int l = 0; l < CASE_LAYOUTS; l++) {
        moved.layouts[l].offset = m.members[c.layouts[l].offset];
    }
    lierne_sim *sims[2] = {small_world(c.world, NULL), world_of(&m, NULL)};
    test_transports *transports = attach(sims[1], c.world);
    for (int r = 0; r < c.world; r++) {
        lierne_context *context = lierne_sim_get_context(sims[1], m.members[r]);
        cr_assert_eq(redistribute_plan(&small[r], &c, lierne_sim_get_context(sims[0], r)),
                     LIERNE_OK);
        cr_assert_eq(redistribute_plan(&large[r], &moved, context), LIERNE_OK, "%s",
                     lierne_last_error());
        same_routes(small[r], large[r], &m);
    }
    assert_ok(lierne_plan_check((const lierne_plan *const *)large, c.world));
    for (int d = 0; d < 2; d++) {
        void *in[MAX_WORLD];
        for (int r = 0; r < c.world; r++) {
            in[r] = malloc(bytes_of(small[r], (lierne_direction)d, c.dtype, false) + 1);
            redistribute_fill(&c, r, (lierne_direction)d, in[r]);
        }
        same_results(small, large, c.world, (lierne_direction)d, c.dtype, in);
    }
    close_worlds(sims[0], sims[1], transports, plans, c.world);
    return m.gap;
}

Test(members, redistributions_have_the_bits_of_a_world_of_the_members) {
    int gaps = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        gaps += run_redistribution(seed);
    }
    cr_assert_gt(gaps, SEEDS / 10);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* --- bridges, on several nodes --- */

static bool run_bridge(uint64_t seed, bool *planned) {
    static case_arrays arrays;
    bridge_case c, moved;
    bool crosses[MAX_WORLD] = {false};
    lierne_plan *small[MAX_WORLD] = {0}, *large[MAX_WORLD] = {0}, **plans[2] = {small, large};
    random_case(seed, 2 + (int)(seed % MOST), &c, &arrays);
    cross(crosses, c.src.offset, mesh_ranks(&c.src));
    cross(crosses, c.dst.offset, mesh_ranks(&c.dst));
    renumbering m = renumber(c.world, crosses);
    moved = c;
    moved.world = LARGER;
    moved.src.offset = m.members[c.src.offset];
    moved.dst.offset = m.members[c.dst.offset];
    lierne_sim *sims[2] = {small_world(c.world, c.nodes), world_of(&m, c.nodes)};
    test_transports *transports = attach(sims[1], c.world);
    *planned = true;
    for (int r = 0; r < c.world; r++) {
        lierne_context *contexts[2] = {lierne_sim_get_context(sims[0], r),
                                       lierne_sim_get_context(sims[1], m.members[r])};
        lierne_status status = case_plan(&small[r], contexts[0], &c);
        cr_assert_eq(case_plan(&large[r], contexts[1], &moved), status, "%s", lierne_last_error());
        *planned &= status == LIERNE_OK;
    }
    for (int r = 0; *planned && r < c.world; r++) {
        same_routes(small[r], large[r], &m);
    }
    for (int d = 0; *planned && d < 2; d++) {
        void *in[MAX_WORLD];
        assert_ok(lierne_plan_check((const lierne_plan *const *)large, c.world));
        for (int r = 0; r < c.world; r++) {
            in[r] = calloc(bytes_of(small[r], (lierne_direction)d, c.dtype, false) + 1, 1);
            case_fill(&c, r, (lierne_direction)d, in[r]);
        }
        same_results(small, large, c.world, (lierne_direction)d, c.dtype, in);
    }
    close_worlds(sims[0], sims[1], transports, plans, c.world);
    return m.gap;
}

Test(members, bridges_have_the_bits_and_the_replicas_of_a_world_of_the_members) {
    int gaps = 0, bridges = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        bool planned;
        gaps += run_bridge(seed, &planned);
        bridges += planned;
    }
    cr_assert(gaps > SEEDS / 10 && bridges > SEEDS / 2, "%d gaps, %d bridges", gaps, bridges);
    cr_assert_eq(lierne_mem_live(), 0);
}

/* --- rows --- */

enum { ROWS = 5, GHOSTS = 9 };

/* What all ranks of both worlds do. Every rank owns ROWS rows, or fewer, and has GHOSTS ghosts. */
typedef struct rows_case {
    int n;
    bool larger;
    renumbering m;
    lierne_graph_algorithm algorithm;
    bool graph;
    const char *wanted; /* algorithm of the report */
    float out[2][2][MOST][GHOSTS > ROWS ? GHOSTS : ROWS];
    char wrong[256];
} rows_case;

static int rank_in(const rows_case *c, int index) {
    return c->larger ? c->m.members[index] : index;
}

static int rows_of(int index) {
    return 1 + index % ROWS;
}

/* The k-th ghost of a rank: an owner and its row. */
static int owner_of(const rows_case *c, int index, int k) {
    return (index * 7 + k * 3 + k * k) % c->n;
}

static lierne_status plan_rows(lierne_plan **plan, lierne_context *context, const rows_case *c,
                               int index) {
    int32_t rank[GHOSTS];
    int64_t row[GHOSTS];
    for (int k = 0; k < GHOSTS; k++) {
        int owner = owner_of(c, index, k);
        rank[k] = rank_in(c, owner);
        row[k] = k % rows_of(owner);
    }
    const lierne_references_spec spec = {.size = sizeof spec,
                                         .nowned = rows_of(index),
                                         .nghosts = GHOSTS,
                                         .rank = rank,
                                         .row = row,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .width = 1,
                                         .algorithm = c->algorithm};
    return lierne_plan_create_references(plan, context, &spec);
}

/* Row i of the graph is of member i % n; each owned row has edges from three others. */
static lierne_status plan_graph(lierne_plan **plan, lierne_context *context, const rows_case *c,
                                int index) {
    enum { NROWS = 3 * MOST };
    int32_t owner[NROWS];
    int64_t source[NROWS * GHOSTS], target[NROWS * GHOSTS], n = 0;
    for (int i = 0; i < NROWS; i++) {
        owner[i] = rank_in(c, i % c->n);
        for (int k = 0; k < GHOSTS && i % c->n == index; k += 4) {
            source[n] = (i * 5 + k) % NROWS;
            target[n++] = i;
        }
    }
    const lierne_graph_spec spec = {.size = sizeof spec,
                                    .nrows = NROWS,
                                    .owner = owner,
                                    .nedges = n,
                                    .source = source,
                                    .target = target,
                                    .dtype = LIERNE_DTYPE_F32,
                                    .width = 1,
                                    .algorithm = c->algorithm};
    return lierne_plan_create_graph(plan, context, &spec);
}

/* Senders and receivers are ranks of the world, ascending. */
static void check_lists(rows_case *c, const lierne_plan *plan, int index) {
    lierne_graph_lists lists = {.size = sizeof lists};
    if (lierne_plan_get_graph_lists(&lists, plan) != LIERNE_OK) {
        strcpy(c->wrong, "lists");
    }
    bool sends[LARGER] = {false};
    int64_t senders = 0;
    for (int k = 0; k < GHOSTS && !c->graph; k++) {
        int owner = owner_of(c, index, k);
        senders += owner != index && !sends[owner];
        sends[owner] = true;
    }
    for (int64_t i = 0; i < lists.nsenders; i++) {
        int at = 0;
        while (at < c->n && rank_in(c, at) != lists.sender_ranks[i]) {
            at++;
        }
        if (at == c->n || (!c->graph && !sends[at]) ||
            (i > 0 && lists.sender_ranks[i - 1] >= lists.sender_ranks[i])) {
            strcpy(c->wrong, "senders");
        }
    }
    for (int64_t i = 1; i < lists.nreceivers; i++) {
        if (lists.receiver_ranks[i - 1] >= lists.receiver_ranks[i]) {
            strcpy(c->wrong, "receivers");
        }
    }
    if (!c->graph && lists.nsenders != senders) {
        strcpy(c->wrong, "number of senders");
    }
}

static void run_rows(lierne_context *context, void *shared) {
    rows_case *c = shared;
    int index = lierne_context_find_member(context, lierne_context_get_rank(context));
    lierne_plan *plan = NULL;
    lierne_report report = {.size = sizeof report};
    lierne_status status = (c->graph ? plan_graph : plan_rows)(&plan, context, c, index);
    if (status == LIERNE_OK) {
        check_lists(c, plan, index);
        status = lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD);
    }
    if (status == LIERNE_OK && strcmp(report.algorithm, c->wanted) != 0) {
        snprintf(c->wrong, sizeof c->wrong, "%s", report.algorithm);
    }
    for (int d = 0; d < 2 && status == LIERNE_OK; d++) {
        float in[64], out[64];
        int64_t nout;
        for (int i = 0; i < 64; i++) {
            in[i] = (float)(1 + (index * 13 + i * 5 + d) % 37) / 3;
        }
        status = (d ? lierne_plan_adjoint : lierne_plan_forward)(plan, out, in, NULL);
        lierne_plan_get_elements(NULL, &nout, plan, (lierne_direction)d);
        size_t most = sizeof c->out[0][0][0] / sizeof(float);
        memcpy(c->out[c->larger][d][index], out,
               (nout < (int64_t)most ? (size_t)nout : most) * sizeof(float));
    }
    if (status != LIERNE_OK) {
        snprintf(c->wrong, sizeof c->wrong, "%s", lierne_last_error());
    }
    lierne_plan_destroy(plan);
}

static void rows_in_both_worlds(int n, lierne_graph_algorithm algorithm, const char *wanted,
                                bool graph) {
    static rows_case c;
    const bool crosses[MAX_WORLD] = {false};
    c = (rows_case){.n = n,
                    .m = renumber(n, crosses),
                    .algorithm = algorithm,
                    .wanted = wanted,
                    .graph = graph};
    lierne_sim *sims[2] = {small_world(n, NULL), world_of(&c.m, NULL)};
    rank_threads(sims[0], n, run_rows, &c);
    c.larger = true;
    rank_threads(sims[1], LARGER, run_rows, &c);
    cr_assert_str_eq(c.wrong, "");
    cr_assert_eq(memcmp(c.out[0], c.out[1], sizeof c.out[0]), 0, "%d ranks", n);
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_sim_destroy(sims[i]));
    }
}

Test(members, rows_have_the_bits_of_a_world_of_the_members) {
    for (int n = 1; n <= MOST; n++) {
        const char *gathers = n > 1 ? "all_gather" : "direct";
        for (int graph = 0; graph < 2; graph++) {
            rows_in_both_worlds(n, LIERNE_GRAPH_ALGORITHM_DIRECT, "direct", graph);
            rows_in_both_worlds(n, LIERNE_GRAPH_ALGORITHM_ALL_GATHER, gathers, graph);
        }
    }
    cr_assert_eq(lierne_mem_live(), 0);
}

/* --- bricks and swaps --- */

enum { BRICKS = 6, POINTS = 4, SWAPPED = 64 };

typedef struct bricks_case {
    bool larger;
    int members[BRICKS];
    int64_t rows[2][BRICKS];
    double forward[2][BRICKS][SWAPPED];
    double back[2][BRICKS][SWAPPED];
    char wrong[256];
} bricks_case;

static lierne_status plan_bricks(lierne_plan **plan, lierne_brick **brick, lierne_context *context,
                                 int index) {
    double points[3 * POINTS];
    for (int i = 0; i < POINTS; i++) {
        points[3 * i] = index / 2 + (i % 2 ? 0.9 : 0.1);
        points[3 * i + 1] = index % 2 + (i / 2 ? 0.8 : 0.2);
        points[3 * i + 2] = 0.5;
    }
    lierne_brick_spec spec = {.size = sizeof spec,
                              .grid = {3, 2, 1},
                              .box = {3, 2, 1},
                              .periodic = {1, 1, 0},
                              .dims = 2,
                              .cutoff = 0.4,
                              .nlocal = POINTS,
                              .positions = points};
    lierne_halo_spec halo = {.size = sizeof halo, .dtype = LIERNE_DTYPE_F64, .width = 1};
    LIERNE_TRY(lierne_brick_create(brick, context, &spec));
    LIERNE_TRY(lierne_brick_get_swaps(&halo, *brick));
    return lierne_plan_create_halo(plan, context, &halo);
}

static void run_bricks(lierne_context *context, void *shared) {
    bricks_case *c = shared;
    int index = lierne_context_find_member(context, lierne_context_get_rank(context));
    lierne_plan *plan = NULL;
    lierne_brick *brick = NULL;
    double in[SWAPPED];
    for (int i = 0; i < SWAPPED; i++) {
        in[i] = (100 * index + i) / 3.0;
    }
    lierne_status status = plan_bricks(&plan, &brick, context, index);
    if (status == LIERNE_OK) {
        lierne_plan_get_elements(&c->rows[c->larger][index], NULL, plan, LIERNE_DIRECTION_FORWARD);
        status = lierne_plan_forward(plan, c->forward[c->larger][index], in, NULL);
    }
    status = status ? status : lierne_plan_adjoint(plan, c->back[c->larger][index], in, NULL);
    if (status != LIERNE_OK) {
        snprintf(c->wrong, sizeof c->wrong, "%s", lierne_last_error());
    }
    lierne_plan_destroy(plan);
    lierne_brick_destroy(brick);
}

Test(members, bricks_are_in_the_order_of_the_members) {
    static bricks_case c;
    renumbering m = {.n = BRICKS, .members = {3, 4, 9, 20, 21, 63}};
    lierne_sim *sims[2] = {small_world(BRICKS, NULL), world_of(&m, NULL)};
    rank_threads(sims[0], BRICKS, run_bricks, &c);
    c.larger = true;
    rank_threads(sims[1], LARGER, run_bricks, &c);
    cr_assert_str_eq(c.wrong, "");
    cr_assert_gt(c.rows[0][0], POINTS);
    cr_assert_eq(memcmp(c.rows[0], c.rows[1], sizeof c.rows[0]), 0);
    cr_assert_eq(memcmp(c.forward[0], c.forward[1], sizeof c.forward[0]), 0);
    cr_assert_eq(memcmp(c.back[0], c.back[1], sizeof c.back[0]), 0);
    assert_ok(lierne_sim_destroy(sims[0]));
    assert_ok(lierne_sim_destroy(sims[1]));
    cr_assert_eq(lierne_mem_live(), 0);
}
