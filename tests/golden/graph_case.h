/* A graph of graph_a2a.json, as each rank gets it. */
#ifndef LIERNE_TESTS_GOLDEN_GRAPH_CASE_H
#define LIERNE_TESTS_GOLDEN_GRAPH_CASE_H

#include "row_case.h"

enum { GOLDEN_GRAPH_WIDTH = 3 };

typedef struct golden_edges {
    int64_t n;
    int64_t *source;
    int64_t *target;
} golden_edges;

typedef struct golden_graph_case {
    int world;
    int64_t nrows;
    int32_t *owner;
    golden_edges *edges; /* of each rank: those whose target it owns, in the file's order */
    int64_t **owned;     /* rows of the graph of each rank's rows, ascending */
    golden_forest forest;
} golden_graph_case;

/* Owners and edges from the case, local rows and roots by counting owners. */
golden_graph_case golden_graph_read(const cJSON *item);
void golden_graph_free(golden_graph_case *graph);
/* What the case has of a rank. */
const cJSON *golden_graph_rank(const cJSON *item, int rank);
/* What a rank plans. */
lierne_graph_spec golden_graph_spec(const golden_graph_case *graph, int rank, golden_type type);

/* Rows and ranks of a list with a count for each rank. */
void golden_graph_count(const cJSON *counts, int64_t *rows, int64_t *ranks);
/* lierne_plan_get_graph_lists against the case. */
void golden_graph_expect_lists(golden_case *c, const lierne_plan *plan, const cJSON *rank);
/* A rank's report in both directions, by the case's counts and the algorithm that it names. */
void golden_graph_expect_reports(golden_case *c, const lierne_plan *plan,
                                 const golden_graph_case *graph, const cJSON *rank,
                                 int64_t row_bytes);

#endif
