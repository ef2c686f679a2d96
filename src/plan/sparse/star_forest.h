/* Star forests: every ghost is a copy of one row of one rank, its root. Graphs and references are
 * planned as star forests. */
#ifndef LIERNE_STAR_FOREST_H
#define LIERNE_STAR_FOREST_H

#include "lierne/sparse.h"
#include "plan/plan.h"
#include "plan/spec_table.h"

/* Of each algorithm, in texts and reports. */
extern const char *const lierne_graph_algorithm_names[3];
extern const lierne_spec_table lierne_references_table;

/* What only a graph has, named as in lierne_graph_lists, in the slots of a workspace. */
enum {
    LIERNE_WORKSPACE_OWNED,
    LIERNE_WORKSPACE_GHOSTS,
    LIERNE_WORKSPACE_SOURCE,
    LIERNE_WORKSPACE_TARGET,
    LIERNE_WORKSPACE_LOCAL,
    LIERNE_WORKSPACE_REMOTE
};
typedef struct lierne_star_forest_graph {
    lierne_workspace workspace;
    int64_t *owned;
    int64_t *ghosts;
    int64_t nedges;
    int64_t *edge_source;
    int64_t *edge_target;
    int64_t nlocal_edges;
    int64_t *local_edges;
    int64_t nremote_edges;
    int64_t *remote_edges;
} lierne_star_forest_graph;

/* References to plan, and the graph that they come from. */
typedef struct lierne_star_forest_spec {
    lierne_references_spec references;
    lierne_star_forest_graph *graph; /* or NULL; a plan that is made takes its arrays */
    int64_t nrows;                   /* of the graph; -1 for references */
    const int32_t *owner;            /* of all rows of the graph; or NULL */
    bool migrates;                   /* then references has neither ghosts nor their roots */
    const int32_t *to;               /* of each owned row, where it migrates to; or NULL */
} lierne_star_forest_spec;

/* As lierne_plan_create_references, for references that may come from a graph. status: how the
 * caller's own preparation ended on this rank. */
lierne_status lierne_plan_star_forest(lierne_plan **out, lierne_context *context,
                                      lierne_status status, const lierne_star_forest_spec *spec);
/* The same for an existing plan of lierne_plan_star_forest. */
lierne_status lierne_plan_update_star_forest(lierne_plan *plan, lierne_status status,
                                             const lierne_star_forest_spec *spec);
/* The same for one of coalesced plans, which the others, retyped, follow. */
lierne_status lierne_coalesced_update_star_forest(lierne_coalesced *coalesced,
                                                  const lierne_plan *plan, lierne_status status,
                                                  const lierne_star_forest_spec *spec);

/* Rows that pass between this rank and another one (or itself). */
typedef struct lierne_peer_rows {
    int rank;
    int64_t first; /* of its rows in the list of all */
    int64_t count;
} lierne_peer_rows;
typedef LIERNE_VEC(lierne_peer_rows) lierne_peers;

/* A rank's part of a forest. A root is a distinct (rank, row) among the references; roots are in
 * order of rank and then of their first ghosts. Senders and receivers are those of the forward. */
typedef struct lierne_star_forest {
    int rank;
    int64_t nowned;
    int64_t nghosts;
    int64_t width;
    int64_t stride;
    bool combined;
    bool keep_ghosts;
    bool accumulate;
    lierne_peers senders; /* owners of roots; this rank too, if it has ghosts of its own rows */
    int64_t nroots;
    int64_t *row;           /* of each root, at its owner */
    int64_t *first;         /* first ghost of each root */
    int64_t *root;          /* of each ghost */
    lierne_peers receivers; /* other ranks that have ghosts of this rank's rows */
    int64_t nsent;
    int64_t *sent; /* this rank's rows for each receiver */
    bool migrates; /* then rows that stay follow in sent, and those that end */
    int64_t nstay;
} lierne_star_forest;

/* Sorts references into senders and roots. forest is zero but for the fields above senders. */
lierne_status lierne_star_forest_sort(lierne_star_forest *forest, const int32_t *rank,
                                      const int64_t *row);
/* The same of a migration. leave: sorts owned rows into receivers. arrive: takes the rows that
 * other ranks send; size: bytes of an element. */
lierne_status lierne_star_forest_leave(lierne_star_forest *forest, const lierne_context *context,
                                       const int32_t *owner);
lierne_status lierne_star_forest_arrive(lierne_star_forest *forest,
                                        const lierne_control_messages *messages, int64_t size);
void lierne_star_forest_destroy(lierne_star_forest *forest);
/* This rank among the senders; NULL if it has no ghosts of its own rows. */
const lierne_peer_rows *lierne_star_forest_own(const lierne_star_forest *forest);
int64_t lierne_star_forest_root(const lierne_star_forest *forest, int64_t ghost);

/* Fill empty routes. nowned_of: number of rows of every member, for the all-gather. */
lierne_status lierne_star_forest_forward(const lierne_star_forest *forest, lierne_route *route);
lierne_status lierne_star_forest_all_gather(const lierne_star_forest *forest, lierne_route *route,
                                            const lierne_members *members,
                                            const int64_t *nowned_of);
lierne_status lierne_star_forest_adjoint(const lierne_star_forest *forest, lierne_route *route);
/* The adjoint of a migration. */
lierne_status lierne_star_forest_way_back(const lierne_star_forest *forest, lierne_route *route);

/* Scratch of the adjoint, in rows of width elements: first the sums that are sent to other ranks,
 * if any root has several ghosts; then the sums received from other ranks, in order of rank, with
 * those of this rank's own ghosts at its place. */
typedef struct lierne_star_forest_scratch {
    bool sums;        /* whether any root has several ghosts */
    int64_t received; /* first row of the sums received */
    int64_t own;      /* first row of own sums */
    int64_t nreceived;
} lierne_star_forest_scratch;
/* The adjoint but for the ghosts of a combined buffer. row: the owned row that each received sum
 * belongs to, and as many entries more; to be freed also on failure. */
lierne_status lierne_star_forest_reduce(const lierne_star_forest *forest, lierne_route *route,
                                        lierne_star_forest_scratch *scratch, int64_t **row);
/* A block of OUT: the first ghosts of a sender's roots. */
lierne_status lierne_star_forest_first_ghosts(const lierne_star_forest *forest, lierne_route *route,
                                              const lierne_peer_rows *sender, lierne_block *block);
/* Of a combined buffer; an empty route becomes that of a fetch-and-add. */
lierne_status lierne_star_forest_fetch(const lierne_star_forest *forest, lierne_route *route);
/* Makes the route of a side, whose buffers have so many rows; written: all rows of out are. */
lierne_status lierne_star_forest_start_side(const lierne_star_forest *forest,
                                            lierne_plan_side *side, int64_t in, int64_t out,
                                            bool written);
/* Elements of an array of n rows. */
int64_t lierne_star_forest_elements(const lierne_star_forest *forest, int64_t n);
/* The row at which ghosts begin in their buffer: 0, or after the owned rows. */
int64_t lierne_star_forest_ghosts_at(const lierne_star_forest *forest);

/* Adds operations that sum contributions, in their order, into rows: row to[i] += row from[i]. One
 * operation per number of contributions to a row, so that all of a row are added at once. */
typedef struct lierne_row_place {
    lierne_buffer buffer;
    int64_t offset; /* elements before row 0 */
    int64_t stride;
} lierne_row_place;
/* What rows without a contribution become. */
typedef enum lierne_rest { LIERNE_REST_NONE, LIERNE_REST_ZERO, LIERNE_REST_COPY } lierne_rest;
typedef struct lierne_row_sums {
    lierne_row_place to;
    int64_t nrows;
    lierne_row_place from;
    bool accumulate;
    const lierne_row_place *base; /* its row is the first contribution to each; or NULL */
    lierne_rest rest;             /* COPY: of base */
    int64_t width;
} lierne_row_sums;
lierne_status lierne_star_forest_sums(lierne_route *route, lierne_ops *ops,
                                      const lierne_row_sums *sums, const int64_t *to,
                                      const int64_t *from, int64_t n);

#endif
