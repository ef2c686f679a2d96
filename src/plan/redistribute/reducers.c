/* Who sums what.
 *
 * A rank that sums receives more than one that gets the sum. So the elements of an overlap are
 * divided among its reducers in such a way that the busiest receiver of all overlaps has as little
 * as possible: in the parts that suit the senders, unless some of them receive more elsewhere. */
#include "plan/redistribute/reducers.h"

#include "plan/redistribute/spread.h"

/* A cut between two ranks is at most one part in GRAIN of what each has from where it should be. */
enum { GRAIN = 64 };

/* The busiest receiver may have one part in LOOSE more than it must, where senders need it. */
enum { LOOSE = 26 };

bool lierne_shared_holds(const lierne_planner *p, const lierne_shared *s, int rank) {
    return lierne_in_cell(p->from, rank, &s->pair.from);
}

int lierne_balance_index(const lierne_balance *b, int rank) {
    size_t low = 0, high = b->members.count;
    while (low + 1 < high) {
        size_t middle = (low + high) / 2;
        if (b->members.at[middle] <= rank) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (int)low;
}

lierne_status lierne_reducers_list(lierne_balance *b, const lierne_planner *p, lierne_shared *s) {
    int64_t holding = 0, n = (int64_t)s->nreceivers, partials = p->from->partials;
    const int *receivers = b->ranks.at + s->receivers;
    for (size_t i = 0; i < s->nreceivers; i++) {
        holding += lierne_shared_holds(p, s, receivers[i]);
    }
    s->divided = n * partials - holding > partials - 1 + n - 1 + (holding == 0);
    s->reducers = b->reducers.count;
    for (size_t i = 0; i < s->nreceivers; i++) {
        if (!s->divided || holding == 0 || lierne_shared_holds(p, s, receivers[i])) {
            lierne_reducer r = {.rank = receivers[i], .size = s->pair.elements};
            LIERNE_TRY(LIERNE_VEC_PUSH(&b->reducers, r));
        }
    }
    s->nreducers = b->reducers.count - s->reducers;
    return LIERNE_OK;
}

/* Contributions that a reducer of an overlap receives beyond the one that stands for its result. */
static int64_t surplus(const lierne_balance *b, const lierne_planner *p, const lierne_shared *s) {
    bool held = lierne_shared_holds(p, s, b->reducers.at[s->reducers].rank);
    return p->from->partials - 1 - held;
}

/* What every rank receives in any case, and who could sum how much of what is divided. */
static lierne_status describe_sums(lierne_spread *spread, const lierne_balance *b,
                                   const lierne_planner *p) {
    for (size_t i = 0; i < b->shared.count; i++) {
        const lierne_shared *s = &b->shared.at[i];
        const int *receivers = b->ranks.at + s->receivers;
        int64_t each = s->pair.elements, more = p->from->partials > 1 ? surplus(b, p, s) : 0;
        for (size_t k = 0; k < s->nreceivers; k++) {
            bool held = lierne_shared_holds(p, s, receivers[k]);
            int64_t n = s->divided ? 1 : p->from->partials - held;
            spread->base[lierne_balance_index(b, receivers[k])] += n * each;
        }
        if (!s->divided || more == 0) {
            continue;
        }
        LIERNE_TRY(lierne_spread_add_job(spread, more * each));
        for (size_t k = 0; k < s->nreducers; k++) {
            int rank = lierne_balance_index(b, b->reducers.at[s->reducers + k].rank);
            int64_t wish = more * b->reducers.at[s->reducers + k].size;
            LIERNE_TRY(lierne_spread_add_rank(spread, rank, wish));
        }
    }
    return LIERNE_OK;
}

int64_t lierne_shared_grain(const lierne_planner *p, const lierne_shared *s, int64_t size,
                            size_t parts) {
    int64_t most = size / (GRAIN * (int64_t)(parts + 1)), grain = 1;
    for (int a = p->from->naxes - 1; a > 0 && grain * s->pair.size[a] <= most; a--) {
        grain *= s->pair.size[a];
    }
    while (grain < 1024 && 2 * grain <= most) {
        grain *= 2;
    }
    return grain;
}

/* Divides an overlap among its reducers: as spread gave it to them, or as suits the senders where
 * nobody receives more by adding up. */
static void divide(lierne_balance *b, const lierne_planner *p, const lierne_shared *s,
                   const lierne_spread_entry *given) {
    int64_t n = (int64_t)s->nreducers, all = s->pair.elements, before = 0, sum = 0;
    int64_t more = surplus(b, p, s), grain = lierne_shared_grain(p, s, all, s->nreducers);
    for (int64_t k = 0; k < n; k++) {
        lierne_reducer *r = &b->reducers.at[s->reducers + (size_t)k];
        sum += more ? given[k].given : r->size;
        int64_t end = k + 1 == n ? all : sum / (more ? more : 1) / grain * grain;
        r->start = before;
        r->size = end - before;
        before = end;
    }
}

lierne_status lierne_reducers_divide(lierne_balance *b, const lierne_planner *p, bool loose) {
    lierne_spread spread;
    size_t job = 0;
    lierne_status status = lierne_spread_create(&spread, (int)b->members.count);
    if (status == LIERNE_OK) {
        status = describe_sums(&spread, b, p);
    }
    if (status == LIERNE_OK) {
        spread.slack = loose ? LOOSE : spread.slack;
        status = lierne_spread_solve(&spread, &b->received);
    }
    for (size_t i = 0; i < b->shared.count && status == LIERNE_OK; i++) {
        const lierne_shared *s = &b->shared.at[i];
        if (s->divided) {
            bool given = surplus(b, p, s) > 0;
            divide(b, p, s, given ? &spread.entries.at[spread.jobs.at[job].first] : NULL);
            job += given;
        }
    }
    lierne_spread_destroy(&spread);
    return status;
}
