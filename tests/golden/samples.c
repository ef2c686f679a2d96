/* samples.json: assignments of items to ranks, in every mode that a case names. */
#include "golden.h"
#include "support/lengths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample_case {
    int nranks;
    int64_t n;
    int64_t *counts, *cost, *rows;
    int32_t *given;
    int *nodes;
    lierne_balance_spec spec;
} sample_case;

static void read_formula(sample_case *s, const cJSON *formula) {
    uint64_t x = (uint64_t)golden_int(formula, "seed", 0);
    const char *cost = golden_string(formula, "cost");
    bool front = strcmp(golden_string(formula, "home"), "front") == 0;
    for (int64_t j = 0; j < s->n; j++) {
        int64_t length = draw_length(golden_string(formula, "lengths"), &x);
        s->rows[j] = length;
        s->cost[j] = strcmp(cost, "rows") == 0     ? length
                     : strcmp(cost, "square") == 0 ? length * length
                                                   : 24576 * length + length * length;
        s->counts[front ? j * j * s->nranks / s->n / s->n : j * s->nranks / s->n]++;
    }
}

static void read_ints(int64_t *to, const cJSON *list) {
    const cJSON *one;
    cJSON_ArrayForEach(one, list) {
        *to++ = golden_to_int(one, 0);
    }
}

static int32_t *read_ranks(const cJSON *list) {
    int32_t *ranks = list ? calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *ranks) : NULL,
            n = 0;
    const cJSON *one;
    cJSON_ArrayForEach(one, list) {
        ranks[n++] = (int32_t)golden_to_int(one, 0);
    }
    return ranks;
}

static void read_case(sample_case *s, const cJSON *item) {
    const cJSON *formula = golden_get(item, "formula"), *cost = golden_get(item, "cost");
    s->nranks = (int)golden_int(item, "ranks", 0);
    s->n = formula ? golden_int(formula, "items", 0) : cJSON_GetArraySize(cost);
    s->counts = calloc((size_t)s->nranks + 1, sizeof *s->counts);
    s->cost = calloc((size_t)s->n + 1, sizeof *s->cost);
    s->rows = calloc((size_t)s->n + 1, sizeof *s->rows);
    s->given = read_ranks(golden_get(item, "caller"));
    s->nodes = read_ranks(golden_get(item, "nodes"));
    if (formula) {
        read_formula(s, formula);
    } else {
        read_ints(s->counts, golden_get(item, "home_items"));
        read_ints(s->cost, cost);
        read_ints(s->rows, golden_get(item, "rows"));
    }
    s->spec = (lierne_balance_spec)LIERNE_BALANCE_SPEC_INIT;
    s->spec.tolerance = (int)golden_int(item, "tolerance", LIERNE_DEFAULT_TOLERANCE);
    s->spec.max_items = golden_int(item, "max_items", 0);
    s->spec.max_rows = golden_int(item, "max_rows", 0);
    s->spec.min_items = golden_int(item, "min_items", 0);
    s->spec.equal_items = cJSON_IsTrue(golden_get(item, "equal_items"));
    s->spec.nodes = s->nodes;
}

static void free_case(sample_case *s) {
    free(s->counts);
    free(s->cost);
    free(s->rows);
    free(s->given);
    free(s->nodes);
}

static lierne_balance_mode find_mode(const char *name) {
    static const char *const names[] = {"shed", "lpt", "kk", "contiguous", "caller"};
    int i = 0;
    while (i < 5 && strcmp(name, names[i]) != 0) {
        i++;
    }
    return (lierne_balance_mode)i;
}

static void expect_infeasible(golden_case *c, const cJSON *mode, lierne_status status) {
    static const char *const texts[][2] = {{"item_rows", " rows, and max_rows is"},
                                           {"max_items", " items, and max_items is"},
                                           {"min_items", " items, and min_items is"},
                                           {"max_rows", " rows, and max_rows is"},
                                           {"not_found", "found no assignment"},
                                           {"caller", "spec->assignment gives"}};
    const char *why = golden_string(mode, "why");
    char item[40] = "";
    int64_t number = golden_int(mode, "item", -2);
    if (number >= 0) {
        snprintf(item, sizeof item, "item %lld of rank ", (long long)number);
    }
    golden_expect_status(c, mode->string, status, LIERNE_ERR_INFEASIBLE);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        golden_expect(c, strcmp(why, texts[i][0]) != 0 || strstr(lierne_last_error(), texts[i][1]),
                      "%s, not %s", lierne_last_error(), why);
    }
    golden_expect(c, strstr(lierne_last_error(), item), "%s, not %s", lierne_last_error(), item);
}

static void expect_ranks(golden_case *c, const cJSON *mode, const sample_case *s,
                         const int32_t *ranks) {
    const char *fnv = golden_string(mode, "assignment_fnv");
    char text[20];
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < 4 * (size_t)s->n; i++) {
        hash = (hash ^ ((const unsigned char *)ranks)[i]) * 1099511628211u;
    }
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    golden_expect(c,
                  *fnv ? strcmp(fnv, text) == 0
                       : golden_same_ranks(golden_get(mode, "assignment"), ranks, (int)s->n),
                  "%s: other ranks", mode->string);
}

static void expect_report(golden_case *c, const cJSON *mode, const lierne_assignment *a) {
    lierne_assignment_report r = {.size = sizeof r};
    golden_expect_status(c, "report", lierne_assignment_get_report(&r, a), LIERNE_OK);
    const struct {
        const char *name;
        int64_t value;
    } fields[] = {
        {"max_load", r.max_load}, {"moved_items", r.moved_items}, {"moved_rows", r.moved_rows},
        {"messages", r.messages}, {"most_peers", r.most_peers},   {"node_rows", r.node_rows},
        {"step", r.step}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        golden_expect(c, golden_int(mode, fields[i].name, fields[i].value) == fields[i].value,
                      "%s: %s is %lld", mode->string, fields[i].name, (long long)fields[i].value);
    }
    const cJSON *expected = golden_get(c->item, "expect");
    golden_expect(c,
                  r.lower_bound == golden_int(expected, "lower_bound", r.lower_bound) &&
                      r.threshold == golden_int(expected, "threshold", r.threshold),
                  "bound %lld, threshold %lld", (long long)r.lower_bound, (long long)r.threshold);
}

static void expect_mode(golden_case *c, const cJSON *mode, sample_case *s) {
    const lierne_items items = {
        .size = sizeof items, .nitems = s->n, .ncosts = 1, .cost = s->cost, .rows = s->rows};
    lierne_assignment *a = NULL;
    s->spec.mode = find_mode(mode->string);
    s->spec.assignment = s->spec.mode == LIERNE_BALANCE_CALLER ? s->given : NULL;
    lierne_status status = lierne_assignment_create(&a, &items, s->counts, s->nranks, &s->spec);
    if (golden_get(mode, "error")) {
        expect_infeasible(c, mode, status);
    } else if (golden_expect_status(c, mode->string, status, LIERNE_OK)) {
        const cJSON *loads = golden_get(mode, "loads");
        expect_ranks(c, mode, s, lierne_assignment_get_ranks(a));
        expect_report(c, mode, a);
        golden_expect(c,
                      !loads || golden_same_ints(loads, lierne_assignment_get_loads(a), s->nranks),
                      "%s: other loads", mode->string);
    }
    lierne_assignment_destroy(a);
}

void golden_samples(golden_case *c) {
    const cJSON *modes = golden_get(golden_get(c->item, "expect"), "modes"), *mode;
    sample_case s = {0};
    read_case(&s, c->item);
    golden_expect(c, cJSON_GetArraySize(modes) > 0, "no mode");
    cJSON_ArrayForEach(mode, modes) {
        expect_mode(c, mode, &s);
    }
    free_case(&s);
}
