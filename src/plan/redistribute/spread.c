/* The least maximum load, by maximum flow.
 *
 * Jobs flow to ranks up to a limit of load per rank. What does not fit is moved along the shortest
 * ways over ranks and the jobs that these have (Dinic's algorithm). Where that ends and something
 * is left, the ranks that were reached are full, and all that they have could only be theirs: so
 * the limit must grow by what is left divided by their number. It never grows past the least
 * possible maximum, which makes the result exact, and the flow goes on from where it was.
 *
 * All numbers are integers and all orders those of the caller, so that every rank that computes
 * the same problem gets the same result. */
#include "plan/redistribute/spread.h"

#include <string.h>

lierne_status lierne_spread_create(lierne_spread *s, int nranks) {
    size_t n = (size_t)nranks;
    *s = (lierne_spread){.nranks = nranks, .slack = LIERNE_SPREAD_SLACK};
    LIERNE_TRY(lierne_alloc(&s->base, n, sizeof *s->base));
    LIERNE_TRY(lierne_alloc(&s->load, n, sizeof *s->load));
    LIERNE_TRY(lierne_alloc(&s->level, n, sizeof *s->level));
    LIERNE_TRY(lierne_alloc(&s->next, n, sizeof *s->next));
    return lierne_alloc(&s->start, n + 2, sizeof *s->start);
}

void lierne_spread_destroy(lierne_spread *s) {
    lierne_mem_free(s->base);
    lierne_mem_free(s->load);
    lierne_mem_free(s->level);
    lierne_mem_free(s->next);
    lierne_mem_free(s->start);
    lierne_mem_free(s->of);
    lierne_mem_free(s->queue);
    lierne_mem_free(s->jobs.at);
    lierne_mem_free(s->entries.at);
}

lierne_status lierne_spread_add_job(lierne_spread *s, int64_t amount) {
    lierne_spread_job job = {.amount = amount, .first = s->entries.count};
    return LIERNE_VEC_PUSH(&s->jobs, job);
}

lierne_status lierne_spread_add_rank(lierne_spread *s, int rank, int64_t wish) {
    lierne_spread_entry entry = {.rank = rank, .job = s->jobs.count - 1, .wish = wish};
    s->jobs.at[entry.job].count++;
    return LIERNE_VEC_PUSH(&s->entries, entry);
}

/* Lists the entries of each rank. */
static lierne_status index_entries(lierne_spread *s) {
    size_t *next = s->start + 1; /* ends as the first of the rank after */
    LIERNE_TRY(lierne_alloc(&s->of, s->entries.count, sizeof *s->of));
    LIERNE_TRY(lierne_alloc(&s->queue, s->jobs.count + (size_t)s->nranks, sizeof *s->queue));
    for (size_t e = 0; e < s->entries.count; e++) {
        next[s->entries.at[e].rank + 1]++;
    }
    for (int r = 0; r < s->nranks; r++) {
        next[r + 1] += next[r];
    }
    for (size_t e = 0; e < s->entries.count; e++) {
        s->of[next[s->entries.at[e].rank]++] = e;
    }
    return LIERNE_OK;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Gives every rank its wishes, as far as they fit. */
static void begin_spread(lierne_spread *s, int64_t limit) {
    memcpy(s->load, s->base, (size_t)s->nranks * sizeof *s->load);
    for (size_t j = 0; j < s->jobs.count; j++) {
        lierne_spread_job *job = &s->jobs.at[j];
        job->left = job->amount;
        for (size_t e = job->first; e < job->first + job->count; e++) {
            lierne_spread_entry *entry = &s->entries.at[e];
            int64_t room = limit - s->load[entry->rank];
            entry->given = smaller(entry->wish, smaller(job->left, room > 0 ? room : 0));
            s->load[entry->rank] += entry->given;
            job->left -= entry->given;
        }
    }
}

/* One job or rank of the queue: appends what it leads to. Jobs stand behind the ranks. */
static size_t visit(lierne_spread *s, size_t at, size_t end) {
    size_t ranks = (size_t)s->nranks;
    if (at < ranks) {
        for (size_t i = s->start[at]; i < s->start[at + 1]; i++) {
            const lierne_spread_entry *entry = &s->entries.at[s->of[i]];
            lierne_spread_job *job = &s->jobs.at[entry->job];
            if (entry->given > 0 && job->level < 0) {
                job->level = s->level[at] + 1;
                s->queue[end++] = ranks + entry->job;
            }
        }
        return end;
    }
    const lierne_spread_job *job = &s->jobs.at[at - ranks];
    for (size_t e = job->first; e < job->first + job->count; e++) {
        int rank = s->entries.at[e].rank;
        if (s->level[rank] < 0) {
            s->level[rank] = job->level + 1;
            s->queue[end++] = (size_t)rank;
        }
    }
    return end;
}

static size_t begin_search(lierne_spread *s) {
    size_t end = 0;
    for (int r = 0; r < s->nranks; r++) {
        s->level[r] = -1;
        s->next[r] = s->start[r];
    }
    for (size_t j = 0; j < s->jobs.count; j++) {
        lierne_spread_job *job = &s->jobs.at[j];
        job->next = job->first;
        job->level = job->left > 0 ? 0 : -1;
        if (job->left > 0) {
            s->queue[end++] = (size_t)s->nranks + j;
        }
    }
    return end;
}

/* Finds the levels of all that the jobs with something left lead to. *full: the number of ranks
 * reached; whether one of them has room. */
static bool search(lierne_spread *s, int64_t limit, int64_t *full) {
    size_t end = begin_search(s);
    bool found = false;
    *full = 0;
    for (size_t i = 0; i < end; i++) {
        size_t at = s->queue[i];
        if (at < (size_t)s->nranks) {
            found |= s->load[at] < limit;
            *full += 1;
        }
        end = visit(s, at, end);
    }
    return found;
}

static int64_t push_job(lierne_spread *s, size_t j, int64_t want, int64_t limit);

/* Makes a rank take up to want more: into its room, or by giving others of its jobs away. */
static int64_t push_rank(lierne_spread *s, int rank, int64_t want, int64_t limit) {
    int64_t room = limit - s->load[rank], taken = room > 0 ? smaller(want, room) : 0;
    s->load[rank] += taken;
    for (; s->next[rank] < s->start[rank + 1] && taken < want; s->next[rank]++) {
        lierne_spread_entry *entry = &s->entries.at[s->of[s->next[rank]]];
        if (entry->given == 0 || s->jobs.at[entry->job].level != s->level[rank] + 1) {
            continue;
        }
        int64_t moved = push_job(s, entry->job, smaller(want - taken, entry->given), limit);
        entry->given -= moved;
        taken += moved;
        if (taken == want) {
            break;
        }
    }
    return taken;
}

/* Gives up to want of a job to its ranks of the next level. */
static int64_t push_job(lierne_spread *s, size_t j, int64_t want, int64_t limit) {
    lierne_spread_job *job = &s->jobs.at[j];
    int64_t pushed = 0;
    for (; job->next < job->first + job->count; job->next++) {
        lierne_spread_entry *entry = &s->entries.at[job->next];
        if (s->level[entry->rank] == job->level + 1) {
            int64_t taken = push_rank(s, entry->rank, want - pushed, limit);
            entry->given += taken;
            pushed += taken;
        }
        if (pushed == want) {
            break;
        }
    }
    return pushed;
}

static int64_t push_all(lierne_spread *s, int64_t limit) {
    int64_t left = 0;
    for (size_t j = 0; j < s->jobs.count; j++) {
        lierne_spread_job *job = &s->jobs.at[j];
        if (job->left > 0) {
            job->left -= push_job(s, j, job->left, limit);
            left += job->left;
        }
    }
    return left;
}

/* Gives away all that is left; returns the limit, which grows where it must. */
static int64_t give(lierne_spread *s, int64_t limit) {
    int64_t left = 0, full;
    for (size_t j = 0; j < s->jobs.count; j++) {
        left += s->jobs.at[j].left;
    }
    while (left > 0) {
        if (search(s, limit, &full)) {
            left = push_all(s, limit);
        } else {
            limit += (left + full - 1) / full;
        }
    }
    return limit;
}

/* No rank can have less than its base, nor all of them less than the average. */
static int64_t least_limit(const lierne_spread *s) {
    int64_t sum = s->nranks - 1, most = 0;
    for (int r = 0; r < s->nranks; r++) {
        sum += s->base[r];
        most = s->base[r] > most ? s->base[r] : most;
    }
    for (size_t j = 0; j < s->jobs.count; j++) {
        sum += s->jobs.at[j].amount;
    }
    sum = s->nranks > 0 ? sum / s->nranks : 0;
    return sum > most ? sum : most;
}

lierne_status lierne_spread_solve(lierne_spread *s, int64_t *most) {
    LIERNE_TRY(index_entries(s));
    int64_t limit = least_limit(s);
    begin_spread(s, limit);
    *most = limit = give(s, limit);
    limit += limit / s->slack;
    begin_spread(s, limit);
    give(s, limit);
    return LIERNE_OK;
}
