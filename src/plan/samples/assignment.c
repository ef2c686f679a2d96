/* An assignment: its modes are files of their own, and what it moves is counted from the result,
 * whichever mode made it. */
#include "plan/samples/assignment.h"

#include "grid/grid.h"

#include <string.h>

struct lierne_assignment {
    int64_t n;
    int nranks;
    int32_t *rank;
    int64_t *load;
    lierne_assignment_report report;
};

static lierne_status check_range(const char *name, int64_t value, int64_t low, int64_t high) {
    return value >= low && value <= high
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is %lld, must be %lld to %lld", name,
                             (long long)value, (long long)low, (long long)high);
}

static lierne_status check_items(const lierne_items *items) {
    LIERNE_TRY(check_range("nitems", items->nitems, 0, INT64_MAX / 64));
    LIERNE_TRY(check_range("ncosts", items->ncosts, 1, LIERNE_MAX_COSTS));
    LIERNE_TRY(items->nitems > 0 ? lierne_check_set(items->cost, "cost") : LIERNE_OK);
    return items->segments ? lierne_check_set(items->rows, "rows") : LIERNE_OK;
}

static lierne_status check_caps(const lierne_balance_spec *s) {
    LIERNE_TRY(check_range("max_items", s->max_items, 0, INT64_MAX));
    LIERNE_TRY(check_range("max_rows", s->max_rows, 0, INT64_MAX));
    LIERNE_TRY(check_range("min_items", s->min_items, 0, INT64_MAX));
    if (s->equal_items && (s->max_items || s->min_items)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is %lld, must be 0: equal_items gives the numbers of items",
                           s->max_items ? "max_items" : "min_items",
                           (long long)(s->max_items ? s->max_items : s->min_items));
    }
    if (s->mode == LIERNE_BALANCE_KK && (s->max_items || s->max_rows || s->min_items)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is set, and mode KK takes no cap but equal_items",
                           s->max_items  ? "max_items"
                           : s->max_rows ? "max_rows"
                                         : "min_items");
    }
    return LIERNE_OK;
}

static lierne_status check_spec(const lierne_balance_spec *s, const lierne_items *items,
                                int nranks) {
    LIERNE_TRY(check_range("nranks", nranks, 1, LIERNE_MAX_RANKS));
    LIERNE_TRY(check_range("mode", (int64_t)s->mode, LIERNE_BALANCE_SHED, LIERNE_BALANCE_CALLER));
    LIERNE_TRY(check_range("spec->cost", s->cost, 0, items->ncosts - 1));
    LIERNE_TRY(check_range("tolerance", s->tolerance, 0, 1024));
    LIERNE_TRY(check_caps(s));
    for (int p = 0; s->nodes && p < nranks; p++) {
        if (s->nodes[p] < 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "nodes[%d] is %d, must be 0 to %d", p,
                               s->nodes[p], INT32_MAX);
        }
    }
    if (!s->assignment != (s->mode != LIERNE_BALANCE_CALLER) && items->nitems > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "spec->assignment is %s in mode %d",
                           s->assignment ? "set" : "NULL", (int)s->mode);
    }
    for (int64_t i = 0; s->assignment && i < items->nitems; i++) {
        if (s->assignment[i] < 0 || s->assignment[i] >= nranks) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "item %lld: its rank is %d, must be 0 to %d",
                               (long long)i, s->assignment[i], nranks - 1);
        }
    }
    return LIERNE_OK;
}

/* The caller's keeps the caps. count, rows: zeros, per rank. */
static lierne_status check_given(const lierne_balance_task *t, int64_t *count, int64_t *rows) {
    for (int64_t i = 0; i < t->n; i++) {
        int p = t->given[i];
        rows[p] += t->rows[i];
        if (++count[p] > t->max_items || rows[p] > t->max_rows) {
            bool items = count[p] > t->max_items;
            return LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                               "item %lld of rank %d: spec->assignment gives rank %d %lld %s, and "
                               "%s is %lld",
                               (long long)i, t->home[i], p, (long long)(items ? count[p] : rows[p]),
                               items ? "items" : "rows", items ? "max_items" : "max_rows",
                               (long long)(items ? t->max_items : t->max_rows));
        }
    }
    for (int p = 0; p < t->nranks; p++) {
        if (count[p] < t->min_items) {
            return LIERNE_FAIL(LIERNE_ERR_INFEASIBLE,
                               "spec->assignment gives rank %d %lld items, and min_items is %lld",
                               p, (long long)count[p], (long long)t->min_items);
        }
    }
    return LIERNE_OK;
}

static lierne_status take_given(int32_t *rank, const lierne_balance_task *t) {
    int64_t *sums;
    LIERNE_TRY(lierne_balance_take(t->memory, &sums, 2 * (size_t)t->nranks, sizeof *sums));
    LIERNE_TRY(check_given(t, sums, sums + t->nranks));
    if (t->n > 0) {
        memcpy(rank, t->given, (size_t)t->n * sizeof *rank);
    }
    return LIERNE_OK;
}

static lierne_status assign(int32_t *rank, int *step, const lierne_balance_task *t,
                            lierne_balance_mode mode) {
    switch (mode) {
    case LIERNE_BALANCE_LPT:
        return lierne_balance_lpt(rank, t);
    case LIERNE_BALANCE_KK:
        return lierne_balance_kk(rank, t);
    case LIERNE_BALANCE_CONTIGUOUS:
        return lierne_balance_contiguous(rank, t);
    case LIERNE_BALANCE_CALLER:
        return take_given(rank, t);
    default:
        return lierne_balance_shed(rank, step, t);
    }
}

/* Items of one home come one after the other, so a receiver is new to a home unless the home was
 * the last that sent to it. last: per rank, -1 at first. */
static void count_moves(lierne_assignment_report *r, const int32_t *rank, int64_t *load,
                        const lierne_balance_task *t, int *last) {
    int64_t peers = 0;
    for (int64_t i = 0; i < t->n; i++) {
        int from = t->home[i], to = rank[i];
        load[to] += t->cost[i];
        peers = i > 0 && t->home[i - 1] == from ? peers : 0;
        if (from == to) {
            continue;
        }
        r->moved_items++;
        r->moved_rows += t->rows[i];
        r->node_rows += t->nodes && t->nodes[from] != t->nodes[to] ? t->rows[i] : 0;
        if (t->rows[i] > 0 && last[to] != from) {
            last[to] = from;
            r->messages++;
            peers++;
            r->most_peers = peers > r->most_peers ? (int)peers : r->most_peers;
        }
    }
    for (int p = 0; p < t->nranks; p++) {
        r->max_load = load[p] > r->max_load ? load[p] : r->max_load;
    }
}

static lierne_status count(lierne_assignment_report *report, const int32_t *rank, int64_t *load,
                           const lierne_balance_task *t) {
    int *last;
    LIERNE_TRY(lierne_balance_take(t->memory, &last, (size_t)t->nranks, sizeof *last));
    memset(last, -1, (size_t)t->nranks * sizeof *last);
    memset(load, 0, (size_t)t->nranks * sizeof *load);
    count_moves(report, rank, load, t, last);
    return LIERNE_OK;
}

lierne_status lierne_balance(int32_t *rank, int64_t *load, lierne_assignment_report *report,
                             lierne_balance_memory *memory, const lierne_items *items,
                             const int64_t *counts, int nranks, const lierne_balance_spec *spec) {
    lierne_balance_task task;
    LIERNE_TRY(check_items(items));
    LIERNE_TRY(check_spec(spec, items, nranks));
    LIERNE_TRY(lierne_balance_task_fill(&task, memory, items, counts, nranks, spec));
    *report = (lierne_assignment_report){.size = sizeof *report,
                                         .lower_bound = task.lower_bound,
                                         .threshold = task.threshold};
    LIERNE_TRY(assign(rank, &report->step, &task, spec->mode));
    return count(report, rank, load, &task);
}

/* Of items that were checked for the ranges that the memory depends on. */
static lierne_status fill(lierne_assignment *a, const lierne_items *items, const int64_t *counts,
                          const lierne_balance_spec *spec) {
    lierne_balance_memory memory = {0};
    LIERNE_TRY(lierne_alloc(&a->rank, (size_t)a->n, sizeof *a->rank));
    LIERNE_TRY(lierne_alloc(&a->load, (size_t)a->nranks, sizeof *a->load));
    lierne_status status =
        lierne_balance(a->rank, a->load, &a->report, &memory, items, counts, a->nranks, spec);
    lierne_balance_clear(&memory);
    return status;
}

lierne_status lierne_assignment_create(lierne_assignment **out, const lierne_items *items,
                                       const int64_t *counts, int nranks,
                                       const lierne_balance_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_items known;
    lierne_balance_spec how;
    lierne_assignment *a;
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(lierne_spec_take(&known, sizeof known, items, "items"));
    LIERNE_TRY(lierne_check_set(counts, "counts"));
    LIERNE_TRY(lierne_spec_take(&how, sizeof how, spec, "spec"));
    LIERNE_TRY(check_items(&known));
    LIERNE_TRY(check_range("nranks", nranks, 1, LIERNE_MAX_RANKS));
    LIERNE_TRY(lierne_alloc(&a, 1, sizeof *a));
    a->n = known.nitems;
    a->nranks = nranks;
    lierne_status status = fill(a, &known, counts, &how);
    if (status != LIERNE_OK) {
        lierne_assignment_destroy(a);
        return status;
    }
    *out = a;
    return LIERNE_OK;
}

void lierne_assignment_destroy(lierne_assignment *assignment) {
    if (assignment) {
        lierne_mem_free(assignment->rank);
        lierne_mem_free(assignment->load);
    }
    lierne_mem_free(assignment);
}

const int32_t *lierne_assignment_get_ranks(const lierne_assignment *assignment) {
    return assignment ? assignment->rank : NULL;
}

const int64_t *lierne_assignment_get_loads(const lierne_assignment *assignment) {
    return assignment ? assignment->load : NULL;
}

lierne_status lierne_assignment_get_report(lierne_assignment_report *report,
                                           const lierne_assignment *assignment) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(assignment, "assignment"));
    return lierne_spec_give(report, &assignment->report, sizeof *report, "report");
}
