/* The least maximum load: random jobs against the formula over all sets of ranks. Jobs whose ranks
 * are all in a set can only be done there, so the average over any set is a bound, and by the
 * theorem of maximum flow and minimum cut the largest of these bounds is reached. */
#include "plan/redistribute/spread.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

enum { RANKS = 6, JOBS = 7, SEEDS = 3000 };

static uint64_t state;
static int64_t draw(int64_t n) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (int64_t)((state * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

typedef struct problem {
    int64_t base[RANKS];
    int64_t amount[JOBS];
    int ranks[JOBS]; /* a bit each */
} problem;

static problem random_problem(uint64_t seed) {
    problem p;
    state = seed * 0x9e3779b97f4a7c15u + 1;
    for (int r = 0; r < RANKS; r++) {
        p.base[r] = draw(2) ? draw(40) : 0;
    }
    for (int j = 0; j < JOBS; j++) {
        p.amount[j] = draw(1000);
        p.ranks[j] = 1 + (int)draw((1 << RANKS) - 1);
    }
    return p;
}

static int64_t by_formula(const problem *p) {
    int64_t most = 0;
    for (int set = 1; set < 1 << RANKS; set++) {
        int64_t sum = 0, n = 0;
        for (int r = 0; r < RANKS; r++) {
            sum += set >> r & 1 ? p->base[r] : 0;
            n += set >> r & 1;
        }
        for (int j = 0; j < JOBS; j++) {
            sum += (p->ranks[j] & ~set) == 0 ? p->amount[j] : 0;
        }
        most = (sum + n - 1) / n > most ? (sum + n - 1) / n : most;
    }
    return most;
}

static void describe(lierne_spread *s, const problem *p) {
    assert_ok(lierne_spread_create(s, RANKS));
    for (int r = 0; r < RANKS; r++) {
        s->base[r] = p->base[r];
    }
    for (int j = 0; j < JOBS; j++) {
        assert_ok(lierne_spread_add_job(s, p->amount[j]));
        for (int r = 0; r < RANKS; r++) {
            if (p->ranks[j] >> r & 1) {
                assert_ok(lierne_spread_add_rank(s, r, draw(300)));
            }
        }
    }
}

/* Every job is given away, and no rank has more than the result allows. */
static void expect_given(const lierne_spread *s, const problem *p, int64_t most, uint64_t seed) {
    int64_t load[RANKS], given[JOBS] = {0};
    for (int r = 0; r < RANKS; r++) {
        load[r] = p->base[r];
    }
    for (size_t e = 0; e < s->entries.count; e++) {
        cr_assert(s->entries.at[e].given >= 0, "seed %llu", (unsigned long long)seed);
        load[s->entries.at[e].rank] += s->entries.at[e].given;
        given[s->entries.at[e].job] += s->entries.at[e].given;
    }
    for (int j = 0; j < JOBS; j++) {
        cr_assert_eq(given[j], p->amount[j], "seed %llu: job %d", (unsigned long long)seed, j);
    }
    for (int r = 0; r < RANKS; r++) {
        cr_assert(load[r] <= most + most / LIERNE_SPREAD_SLACK,
                  "seed %llu: rank %d has %lld of %lld", (unsigned long long)seed, r,
                  (long long)load[r], (long long)most);
    }
}

Test(spread, random_jobs_reach_the_least_maximum) {
    size_t before = lierne_mem_live();
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        problem p = random_problem(seed);
        lierne_spread s;
        int64_t most;
        describe(&s, &p);
        assert_ok(lierne_spread_solve(&s, &most));
        cr_assert_eq(most, by_formula(&p), "seed %llu: %lld, formula %lld",
                     (unsigned long long)seed, (long long)most, (long long)by_formula(&p));
        expect_given(&s, &p, most, seed);
        lierne_spread_destroy(&s);
    }
    cr_assert_eq(lierne_mem_live(), before);
}

Test(spread, without_memory_it_says_for_what) {
    const problem p = {.amount = {5}, .ranks = {7, 3, 1, 1, 1, 1, 1}};
    lierne_spread s;
    int64_t most;
    describe(&s, &p);
    lierne_mem_fail_at(1);
    assert_error(lierne_spread_solve(&s, &most), LIERNE_ERR_NO_MEMORY,
                 "no memory for 10 items of 8 bytes"); /* a number for each rank of a job */
    lierne_mem_fail_at(0);
    lierne_spread_destroy(&s);
}
