/* What a benchmark prints. Titles are the only filter, so that every printed table can be selected
 * again. The ratios of all tables are printed at the end: they are what to compare. As CSV there is
 * a row per method, which has its ratio, and run.sh prints the header, since several programs run.
 */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

void tables_ask(tables *t, int argc, char **argv) {
    t->quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    t->csv = argc > 1 && strcmp(argv[1], "--csv") == 0;
    t->texts = argv + 1 + (t->quick || t->csv);
    t->ntexts = argc - 1 - (t->quick || t->csv);
}

bool tables_want(const tables *t, const char *title) {
    for (int i = 0; i < t->ntexts; i++) {
        if (!strstr(title, t->texts[i])) {
            return false;
        }
    }
    return true;
}

double tables_time(const outcome *results, int n, const method_kind *kind, int direction) {
    for (int i = 0; i < n; i++) {
        if (results[i].kind == kind && results[i].agrees) {
            return results[i].t[direction].median;
        }
    }
    return 0;
}

static void print_row(const tables *t, const char *title, const outcome *r,
                      const double reference[3]) {
    (void)title;
    if (!r->agrees) {
        printf("%-24s   wrong: not timed\n", r->kind->name);
        return;
    }
    double unit = t->per_second;
    printf("%-24s %9.3f %9.3f %9.3f (%.3f - %.3f) %7.2f\n", r->kind->name,
           unit * r->t[FORWARD].median, unit * r->t[ADJOINT].median, unit * r->t[BOTH].median,
           unit * r->t[BOTH].low, unit * r->t[BOTH].high,
           reference[BOTH] > 0 ? r->t[BOTH].median / reference[BOTH] : 0);
}

/* Times of the three directions, quartiles of both, ratios of the three. */
static void print_csv(const tables *t, const char *title, const outcome *r,
                      const double reference[3]) {
    if (!r->agrees) {
        return;
    }
    printf("\"%s\",%s,\"%s\"", title, t->unit, r->kind->name);
    for (int d = FORWARD; d <= BOTH; d++) {
        printf(",%.5g", t->per_second * r->t[d].median);
    }
    printf(",%.5g,%.5g", t->per_second * r->t[BOTH].low, t->per_second * r->t[BOTH].high);
    for (int d = FORWARD; d <= BOTH; d++) {
        printf(",%.3f", reference[d] > 0 ? r->t[d].median / reference[d] : 0);
    }
    printf("\n");
}

void tables_print(const tables *t, const char *title, const outcome *results, int n, int rounds) {
    double reference[3];
    for (int d = FORWARD; d <= BOTH; d++) {
        reference[d] = tables_time(results, n, t->reference, d);
    }
    if (test_rank != 0) {
        return;
    }
    if (!t->csv) {
        printf("\n%s; %d rounds\n%-24s %9s %9s %9s %-17s %7s\n", title, rounds, t->unit,
               t->headings[FORWARD], t->headings[ADJOINT], t->headings[BOTH], "(quartiles)",
               t->over);
    }
    for (int i = 0; i < n; i++) {
        (t->csv ? print_csv : print_row)(t, title, &results[i], reference);
    }
    fflush(stdout);
}

void tables_keep(tables *t, const char *title, const outcome *results, int n, int direction) {
    double reference = tables_time(results, n, t->reference, direction);
    line *l = &t->lines[t->nlines++];
    snprintf(l->title, sizeof l->title, "%s", title);
    for (int c = 0; c < COLUMNS && t->columns[c].name; c++) {
        const method_kind *const *kinds = t->columns[c].kinds;
        double first = tables_time(results, n, kinds[0], direction);
        double second = tables_time(results, n, kinds[1], direction);
        double shorter = second > 0 && second < first ? second : first;
        l->ratios[c] = reference > 0 ? shorter / reference : 0;
    }
}

void tables_print_ratios(const tables *t) {
    if (test_rank != 0 || t->nlines == 0 || t->csv) {
        return;
    }
    printf("\n%-56s", t->ratios);
    for (int c = 0; c < COLUMNS && t->columns[c].name; c++) {
        printf(" %6s", t->columns[c].name);
    }
    for (int i = 0; i < t->nlines; i++) {
        printf("\n%-56s", t->lines[i].title);
        for (int c = 0; c < COLUMNS && t->columns[c].name; c++) {
            int width = (int)strlen(t->columns[c].name);
            printf(" %*.2f", width < 6 ? 6 : width, t->lines[i].ratios[c]);
        }
    }
    printf("\n");
}
