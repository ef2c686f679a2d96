/* The verdicts on launch orders against brute force: random programs of 3 to 5 ranks, of which all
 * interleavings are explored; and programs of many operations, which must be judged in a time that
 * grows with their number and not with its square.
 *
 * The model here knows nothing of cycles. An operation is enabled when what its rank must complete
 * before it is complete, and it completes together with its like on the other ranks. A program is
 * safe if no interleaving comes to a state in which nothing can complete and something is left. */
#include "lierne/schedule.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 5, GROUPS = 4, OPS = 8, STATES = 1 << 12, PROGRAMS = 3000 };

typedef struct step {
    lierne_operation_kind kind;
    int group; /* -1: none */
    int peer;
    int after; /* -1: nothing */
} step;

typedef struct program {
    int nranks, ngroups;
    int members[GROUPS][RANKS], size[GROUPS];
    step steps[RANKS][OPS];
    int nsteps[RANKS];
} program;

static uint64_t seed;

static int below(int n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static void add_step(program *p, int rank, lierne_operation_kind kind, int group, int peer) {
    p->steps[rank][p->nsteps[rank]++] = (step){kind, group, peer, -1};
}

static void add_event(program *p) {
    int g = below(p->ngroups), what = below(6);
    const int *m = p->members[g];
    if (what == 0) {
        add_step(p, below(p->nranks), LIERNE_OPERATION_LOCAL, -1, 0);
    } else if (what == 1) {
        int a = below(p->size[g]), b = (a + 1 + below(p->size[g] - 1)) % p->size[g];
        add_step(p, m[a], LIERNE_OPERATION_SEND, g, m[b]);
        add_step(p, m[b], LIERNE_OPERATION_RECV, g, m[a]);
    } else {
        for (int i = 0; i < p->size[g]; i++) {
            add_step(p, m[i], LIERNE_OPERATION_BARRIER, g, 0);
        }
    }
}

static void swap_steps(step *a, step *b) {
    step keep = *a;
    *a = *b;
    *b = keep;
}

/* Complete programs, of which some ranks then change the order. */
static program make_program(void) {
    program p = {.nranks = 3 + below(RANKS - 2), .ngroups = 1 + below(GROUPS)};
    for (int g = 0; g < p.ngroups; g++) {
        int first = below(p.nranks);
        p.size[g] = 2 + below(p.nranks - 1);
        for (int i = 0; i < p.size[g]; i++) {
            p.members[g][i] = (first + i) % p.nranks;
        }
    }
    for (int n = 2 + below(OPS - 1); n > 0; n--) {
        add_event(&p);
    }
    for (int n = below(4); n > 0; n--) {
        int r = below(p.nranks), i = below(OPS - 1);
        if (i + 1 < p.nsteps[r]) {
            swap_steps(&p.steps[r][i], &p.steps[r][i + 1]);
        }
    }
    for (int r = 0; r < p.nranks; r++) {
        for (int i = 1; i < p.nsteps[r]; i++) {
            p.steps[r][i].after = below(3) ? -1 : below(i);
        }
    }
    return p;
}

static bool complete(uint64_t state, int rank, int i) {
    return state >> (rank * OPS + i) & 1;
}

/* Whether step i of a rank may complete as far as this rank is concerned. */
static bool enabled(const program *p, uint64_t state, int rank, int i, bool concurrent) {
    const step *own = p->steps[rank];
    bool ok = !complete(state, rank, i);
    for (int k = 0; k < i; k++) {
        bool before = !concurrent || own[k].group == own[i].group || own[i].after == k;
        ok &= !before || complete(state, rank, k);
    }
    return ok;
}

static bool fits(const step *own, int rank, const step *other, int peer) {
    return other->group == own->group &&
           (own->kind == LIERNE_OPERATION_BARRIER
                ? other->kind == own->kind
                : other->kind != own->kind && other->kind != LIERNE_OPERATION_BARRIER &&
                      own->peer == peer && other->peer == rank);
}

/* The state after step i of a rank and its like on all others; 0: they are not there yet. */
static uint64_t advance(const program *p, uint64_t state, int rank, int i, bool concurrent) {
    const step *own = &p->steps[rank][i];
    uint64_t next = state | 1ull << (rank * OPS + i);
    for (int m = 0; own->group >= 0 && m < p->size[own->group]; m++) {
        int peer = p->members[own->group][m], found = -1;
        bool needed = peer != rank && (own->kind == LIERNE_OPERATION_BARRIER || peer == own->peer);
        for (int k = 0; needed && k < p->nsteps[peer]; k++) {
            bool there =
                enabled(p, state, peer, k, concurrent) && fits(own, rank, &p->steps[peer][k], peer);
            found = there ? k : found;
        }
        if (needed && found < 0) {
            return 0;
        }
        next |= needed ? 1ull << (peer * OPS + found) : 0;
    }
    return next;
}

static bool known(const uint64_t *states, int n, uint64_t state) {
    for (int i = 0; i < n; i++) {
        if (states[i] == state) {
            return true;
        }
    }
    return false;
}

/* Explores every state that some interleaving comes to. */
static bool is_safe(const program *p, bool concurrent) {
    static uint64_t states[STATES];
    uint64_t all = 0;
    int n = 1;
    for (int r = 0; r < p->nranks; r++) {
        all |= ((1ull << p->nsteps[r]) - 1) << (r * OPS);
    }
    states[0] = 0;
    for (int at = 0; at < n; at++) {
        bool stuck = true;
        for (int k = 0; k < p->nranks * OPS; k++) {
            int rank = k / OPS, i = k % OPS;
            bool own = i < p->nsteps[rank] && enabled(p, states[at], rank, i, concurrent);
            uint64_t next = own ? advance(p, states[at], rank, i, concurrent) : 0;
            stuck &= next == 0;
            if (next && !known(states, n, next)) {
                cr_assert_lt(n, STATES);
                states[n++] = next;
            }
        }
        if (stuck && states[at] != all) {
            return false;
        }
    }
    return true;
}

/* With the names of the operations of each group, or NULL. */
static lierne_schedule *record(const program *p, int rank,
                               char (*names)[LIERNE_MAX_OPERATION_NAME + 1]) {
    lierne_schedule *s;
    assert_ok(lierne_schedule_create(&s, rank));
    for (int g = 0; g < p->ngroups; g++) {
        const char name[2] = {(char)('A' + g), '\0'};
        const lierne_schedule_group_spec spec = {.size = sizeof spec,
                                                 .name = name,
                                                 .uid = g + 1,
                                                 .ranks = p->members[g],
                                                 .nranks = p->size[g]};
        int index;
        assert_ok(lierne_schedule_add_group(&index, s, &spec));
    }
    for (int i = 0; i < p->nsteps[rank]; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        const step *own = &p->steps[rank][i];
        int index;
        o.kind = own->kind, o.group = own->group, o.peer = own->peer;
        o.after = &own->after, o.nafter = own->after >= 0;
        o.name = names ? names[own->group] : NULL;
        assert_ok(lierne_schedule_add_operation(&index, s, &o));
    }
    lierne_schedule_freeze(s);
    return s;
}

static char cycle[512];

static lierne_schedule_order judge(lierne_schedule *const *s, int n) {
    lierne_schedule_order order = {.size = sizeof order};
    assert_ok(
        lierne_schedule_check(&order, cycle, sizeof cycle, (const lierne_schedule *const *)s, n));
    for (int r = 0; r < n; r++) {
        lierne_schedule_destroy(s[r]);
    }
    return order;
}

Test(schedule_order, both_verdicts_are_those_of_all_interleavings, .timeout = 120) {
    int seen[2][2] = {{0}};
    for (int i = 0; i < PROGRAMS; i++) {
        lierne_schedule *s[RANKS];
        seed = (uint64_t)i;
        const program p = make_program();
        for (int r = 0; r < p.nranks; r++) {
            s[r] = record(&p, r, NULL);
        }
        lierne_schedule_order order = judge(s, p.nranks);
        bool serialised = is_safe(&p, false), concurrent = is_safe(&p, true);
        cr_assert_eq(!!order.safe_serialised, serialised, "program %d: %s", i, cycle);
        cr_assert_eq(!!order.safe_concurrent, concurrent, "program %d: %s", i, cycle);
        cr_assert_eq(*cycle != '\0', !serialised, "program %d: '%s'", i, cycle);
        seen[serialised][concurrent]++;
    }
    cr_assert_eq(seen[1][0], 0, "what is safe one by one is safe concurrently");
    cr_assert(seen[0][0] > 100 && seen[0][1] > 100 && seen[1][1] > 100, "%d, %d, %d", seen[0][0],
              seen[0][1], seen[1][1]);
}

/* Rank 0 launches the barrier of group A first, rank 1 that of B; names are as long as they may be.
 */
Test(schedule_order, a_cycle_is_printed_with_the_longest_names) {
    char names[2][LIERNE_MAX_OPERATION_NAME + 1] = {"", ""}, expected[512];
    program p = {.nranks = 2, .ngroups = 2, .members = {{0, 1}, {0, 1}}, .size = {2, 2}};
    lierne_schedule *s[2];
    memset(names[0], 'x', LIERNE_MAX_OPERATION_NAME);
    memset(names[1], 'y', LIERNE_MAX_OPERATION_NAME);
    for (int r = 0; r < 2; r++) {
        add_step(&p, r, LIERNE_OPERATION_BARRIER, r, 0);
        add_step(&p, r, LIERNE_OPERATION_BARRIER, !r, 0);
        s[r] = record(&p, r, names);
    }
    judge(s, 2);
    snprintf(expected, sizeof expected,
             "rank 1 launches barrier 0 '%s' of B before barrier 0 '%s' of A; rank 0 launches "
             "barrier 0 '%s' of A before barrier 0 '%s' of B",
             names[1], names[0], names[0], names[1]);
    cr_expect_str_eq(cycle, expected);
}

/* A, B and C wait for each other in a cycle, which is found first; C and D do in a shorter one. */
Test(schedule_order, the_shortest_cycle_is_printed) {
    program p = {.nranks = 5,
                 .ngroups = 4,
                 .members = {{0, 1}, {1, 2}, {0, 2, 3, 4}, {3, 4}},
                 .size = {2, 2, 4, 2}};
    static const int groups[5][2] = {{0, 2}, {1, 0}, {2, 1}, {2, 3}, {3, 2}};
    lierne_schedule *s[5];
    for (int r = 0; r < 5; r++) {
        add_step(&p, r, LIERNE_OPERATION_BARRIER, groups[r][0], 0);
        add_step(&p, r, LIERNE_OPERATION_BARRIER, groups[r][1], 0);
        s[r] = record(&p, r, NULL);
    }
    judge(s, 5);
    cr_expect_str_eq(cycle, "rank 4 launches barrier 0 of D before barrier 0 of C; rank 3 "
                            "launches barrier 0 of C before barrier 0 of D");
}

enum { MANY_RANKS = 64, MANY_OPS = 10000 };

/* Messages between neighbours on two groups in turn; `turned`: rank 0 begins with the second group.
 */
static lierne_schedule *record_many(int rank, bool turned) {
    const int pair[2] = {rank & ~1, rank | 1};
    lierne_schedule *s;
    int g[2];
    assert_ok(lierne_schedule_create(&s, rank));
    for (int i = 0; i < 2; i++) {
        const lierne_schedule_group_spec spec = {.size = sizeof spec,
                                                 .name = i ? "B" : "A",
                                                 .uid = 1 + rank / 2 * 2 + i,
                                                 .ranks = pair,
                                                 .nranks = 2};
        assert_ok(lierne_schedule_add_group(&g[i], s, &spec));
    }
    for (int i = 0; i < MANY_OPS; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        int index;
        o.kind = rank % 2 ? LIERNE_OPERATION_RECV : LIERNE_OPERATION_SEND;
        o.group = g[i % 2 ^ (turned && rank == 0 && i < 2)];
        o.peer = rank ^ 1;
        assert_ok(lierne_schedule_add_operation(&index, s, &o));
    }
    lierne_schedule_freeze(s);
    return s;
}

/* Takes a second or two; with quadratic time it takes minutes, and the limit ends it. */
Test(schedule_order, ten_thousand_operations_of_64_ranks_are_judged, .timeout = 60) {
    for (int turned = 0; turned < 2; turned++) {
        lierne_schedule *s[MANY_RANKS];
        for (int r = 0; r < MANY_RANKS; r++) {
            s[r] = record_many(r, turned);
        }
        lierne_schedule_order order = judge(s, MANY_RANKS);
        cr_assert(order.safe_serialised == !turned && order.safe_concurrent);
        cr_assert_eq(order.ngroups, MANY_RANKS);
        cr_assert_str_eq(cycle, turned ? "rank 0 launches send 0 of B before send 0 of A; rank 1 "
                                         "launches recv 0 of A before recv 0 of B"
                                       : "");
    }
}
