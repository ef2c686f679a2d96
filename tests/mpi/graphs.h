/* Graphs of a world, for the programs that plan graph exchanges. Every rank makes the same one. */
#ifndef TESTS_MPI_GRAPHS_H
#define TESTS_MPI_GRAPHS_H

#include "mpi/rows.h"

enum { MAX_ROWS = 40, MAX_EDGES = 120 };

/* A graph of the world; of a rank the edges whose target it owns. */
typedef struct graph {
    const char *kind;
    int64_t nrows;
    int32_t owner[MAX_ROWS];
    int64_t nedges;
    int64_t source[MAX_EDGES], target[MAX_EDGES]; /* all ranks' */
} graph;

typedef enum kind {
    RANDOM,
    SOME_OWN,
    NO_EDGE,
    NO_ROW,
    ROW_EACH,
    DENSE,
    ONE_OWNS,
    ONE_WAY,
    KINDS
} kind;

void graph_random(graph *g, kind k, uint64_t seed);
/* Owned rows ascending; ghosts by owner and row, each once. */
void graph_forest(const graph *g, forest *f);

/* The own edges, and a spec that points to them. */
typedef struct own_edges {
    int64_t n;
    int64_t source[MAX_EDGES], target[MAX_EDGES];
} own_edges;

lierne_graph_spec graph_spec(const graph *g, const shape *s, own_edges *own);

/* What a plan lists, against the definition. */
void graph_lists_check(lierne_plan *plan, const graph *g, const forest *f, const own_edges *own);

#endif
