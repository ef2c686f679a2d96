/* What `lierne plan` prints of a bridge. */
#ifndef LIERNE_TOOL_PLAN_H
#define LIERNE_TOOL_PLAN_H

#include "bridge.h"

/* What moves inside nodes and between them (plan_nodes.c). */
typedef struct plan_nodes plan_nodes;

/* A direction's numbers, added up over the ranks that were planned. */
typedef struct plan_cost {
    int64_t received_bytes;
    int64_t min_bytes;
    int64_t messages;       /* received */
    int64_t max_rank_bytes; /* the most that one rank receives, and the first such rank */
    int64_t max_rank_sent;
    int receiver, sender;
    int64_t bound_rank_bytes; /* no schedule with the fewest bytes has less; of all ranks only */
    int64_t bound_rank_sent;
    plan_nodes *nodes;  /* NULL where the file has none */
    int64_t stages;     /* the most that one rank has */
    int64_t most_peers; /* these as in lierne_report */
    int64_t forwarded_bytes;
    int64_t direct_ns; /* what AUTO compared, the most of a rank; 0: nothing */
    int64_t balanced_ns;
} plan_cost;

typedef struct plan_summary {
    const tool_bridge *bridge;
    lierne_megatron_map *map;
    lierne_megatron_leaders *leaders; /* NULL unless the algorithm is that of leaders */
    int only;                         /* the one rank asked for, or -1 */
    int first, end;                   /* the ranks that were planned */
    int64_t *wide; /* per planned rank: samples of the wider of its two dp ranks */
    plan_cost cost[2];
    bool balanced;  /* one of the planned ranks has a balanced route */
    int64_t groups; /* the most that one rank holds */
    char *route[2]; /* of the one rank, as text or JSON; to be freed */
    bool all;       /* lists are printed in full */
} plan_summary;

/* What a tensor set moves, all of it and as changes (plan_set.c). changed: percent of the elements,
 * as given, or NULL. Returns an exit status. */
int plan_print_set(const char *path, const char *changed, bool json, char **argv);

/* The slice of a rank; false where the mapping defines none. */
bool plan_summary_slice(const plan_summary *summary, int rank, int64_t *start, int64_t *size);

/* Whether a group is to be printed: all are, or those that the one rank is in. */
bool plan_summary_shows(const plan_summary *summary, const int *ranks, int size);

/* Counts what moves inside nodes and between them, where the file has them, and finds the bounds
 * where all ranks are planned. open: to be closed in any case. json, text: members of a direction's
 * object, or lines; bounds: with these. */
lierne_status plan_nodes_open(plan_summary *summary);
void plan_nodes_close(plan_summary *summary);
void plan_nodes_json(const plan_cost *cost, bool bounds);
void plan_nodes_text(const plan_cost cost[2]);
void plan_nodes_text_rank(const plan_cost cost[2]); /* where one rank was planned */
lierne_status plan_nodes_add(plan_summary *summary, const lierne_plan *plan, int rank,
                             lierne_direction direction);

/* What is summed over which dims and who divides (semantics.c): a section, or the member
 * "semantics" with a comma before it. */
void plan_semantics_text(const tool_bridge *bridge);
void plan_semantics_json(const tool_bridge *bridge);

/* A route as a JSON object; docs/conventions.md has the keys. */
void plan_route_json(FILE *to, const lierne_route *route);

/* A route that lierne_plan_print made; all: in full. */
void plan_route_text(const char *text, bool all);

/* Adds what a rank's plan reports of a direction. */
lierne_status plan_add_cost(plan_summary *summary, const lierne_plan *plan, int rank,
                            lierne_direction direction);
/* A line on a grid. */
void plan_print_grid(const char *name, const lierne_grid *grid, const char *view);
/* plan_costs.c. What both directions cost, a line per number; bounds: with those of all ranks. row:
 * one line of it. */
void plan_print_costs(const plan_summary *summary, bool bounds);
void plan_print_row(const char *name, const char *forward, const char *adjoint);
void plan_print_bytes(const char *name, const int64_t bytes[2], const int64_t *bounds);
/* The whole of a packed bridge. Returns an exit status. */
int plan_print_packed(tool_bridge *bridge, bool all, char **argv);

void plan_print_text(const plan_summary *summary);
void plan_print_json(const plan_summary *summary);

#endif
