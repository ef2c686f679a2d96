/* The launch order: whether ranks could wait for each other for ever.
 *
 * Every rank's order makes edges between events. An event is complete only after all events before
 * it on any of its ranks, so a cycle never completes. Events without an edge into them are taken
 * away until none is left; what stays contains every cycle. Then a search from each of these events
 * finds the shortest one, for the message. Schedules may have many thousands of operations on many
 * ranks, so nothing but these searches takes more than linear time. */
#include "step/schedule.h"

#include <stdio.h>
#include <string.h>

#define SHORTEST 2 /* events of a cycle, at least */

/* part: the later one, on whose rank the order is. */
typedef struct edge {
    int from;
    int to;
    const lierne_event_part *before;
    const lierne_event_part *part;
} edge;

typedef struct graph {
    int count;
    LIERNE_VEC(edge) edges; /* sorted by from */
    int *first;             /* edge of each event; count + 1 of them */
    int *waits;             /* edges into each event that are not taken away */
    int *queue;
    int *by; /* edge by which a search reached an event; -1: it has not */
} graph;

static int queue_of(const lierne_schedule *s, int operation) {
    int group = s->operations.at[operation].group;
    return group < 0 ? -1 : s->groups.at[group].queue;
}

static lierne_status add_edge(graph *g, const lierne_event_part *before,
                              const lierne_event_part *part) {
    const edge e = {before->event, part->event, before, part};
    return LIERNE_VEC_PUSH(&g->edges, e);
}

/* mine: the parts of one schedule, by operation. last: room for an operation per queue, one of
 * which has no group. */
static lierne_status add_edges(graph *g, const lierne_schedule *s,
                               const lierne_event_part *const *mine, bool concurrent, int *last) {
    for (size_t q = 0; q <= s->groups.count; q++) {
        last[q] = -1;
    }
    for (int i = 0; i < (int)s->operations.count; i++) {
        const lierne_recorded_operation *o = &s->operations.at[i];
        int *before = &last[concurrent ? queue_of(s, i) + 1 : 0];
        if (*before >= 0) {
            LIERNE_TRY(add_edge(g, mine[*before], mine[i]));
        }
        *before = i;
        for (int k = 0; concurrent && k < o->nafter; k++) {
            LIERNE_TRY(add_edge(g, mine[o->after[k]], mine[i]));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_schedule(graph *g, const lierne_event_part *const *mine, bool concurrent) {
    const lierne_schedule *s = mine[0]->schedule;
    int *last;
    LIERNE_TRY(lierne_alloc(&last, s->groups.count + 1, sizeof *last));
    lierne_status status = add_edges(g, s, mine, concurrent, last);
    lierne_mem_free(last);
    return status;
}

/* Adds the edges of every schedule, whose parts have places one behind the other. */
static lierne_status add_all_edges(graph *g, const lierne_events *events, bool concurrent) {
    const lierne_event_part **all;
    lierne_status status = LIERNE_OK;
    size_t n = events->parts.count, next = 0;
    LIERNE_TRY(lierne_alloc(&all, n, sizeof *all));
    for (size_t i = 0; i < n; i++) {
        all[events->parts.at[i].place] = &events->parts.at[i];
    }
    while (next < n && status == LIERNE_OK) {
        status = add_schedule(g, &all[next], concurrent);
        next += all[next]->schedule->operations.count;
    }
    lierne_mem_free(all);
    return status;
}

static lierne_status sort_edges(graph *g) {
    edge *sorted;
    size_t n = g->edges.count;
    LIERNE_TRY(lierne_alloc(&sorted, n, sizeof *sorted));
    memset(g->first, 0, ((size_t)g->count + 2) * sizeof *g->first);
    memset(g->waits, 0, ((size_t)g->count + 1) * sizeof *g->waits);
    for (size_t i = 0; i < n; i++) {
        g->first[g->edges.at[i].from + 1]++;
        g->waits[g->edges.at[i].to]++;
    }
    for (int v = 0; v < g->count; v++) {
        g->first[v + 1] += g->first[v];
    }
    memcpy(g->queue, g->first, (size_t)g->count * sizeof *g->queue);
    for (size_t i = 0; i < n; i++) {
        sorted[g->queue[g->edges.at[i].from]++] = g->edges.at[i];
    }
    lierne_mem_free(g->edges.at);
    g->edges.at = sorted;
    return LIERNE_OK;
}

/* Takes away what nothing waits for; returns how many events stay. */
static int take_away(graph *g) {
    int taken = 0, end = 0;
    for (int v = 0; v < g->count; v++) {
        if (g->waits[v] == 0) {
            g->queue[end++] = v;
        }
    }
    while (taken < end) {
        int v = g->queue[taken++];
        for (int i = g->first[v]; i < g->first[v + 1]; i++) {
            if (--g->waits[g->edges.at[i].to] == 0) {
                g->queue[end++] = g->edges.at[i].to;
            }
        }
    }
    return g->count - taken;
}

/* Leaves the edges between events that stay, turned round. */
static lierne_status turn_round(graph *g) {
    size_t kept = 0;
    for (size_t i = 0; i < g->edges.count; i++) {
        edge e = g->edges.at[i];
        if (g->waits[e.from] > 0 && g->waits[e.to] > 0) {
            g->edges.at[kept] = e;
            g->edges.at[kept].from = e.to;
            g->edges.at[kept++].to = e.from;
        }
    }
    g->edges.count = kept;
    return sort_edges(g);
}

/* The length of the shortest cycle through an event, below `most`, or 0; by has its edges. *found:
 * how many events of queue it came to. */
static int search(graph *g, int start, int most, int *found) {
    int taken = 0, depth = 0, level = 1;
    g->queue[0] = start;
    *found = 1;
    while (taken < *found && depth + 1 < most) {
        for (depth++; taken < level; taken++) {
            int v = g->queue[taken];
            for (int i = g->first[v]; i < g->first[v + 1]; i++) {
                int to = g->edges.at[i].to;
                if (g->by[to] < 0) {
                    g->by[to] = i;
                    g->queue[(*found)++] = to;
                }
                if (to == start) {
                    return depth;
                }
            }
        }
        level = *found;
    }
    return 0;
}

static size_t name_event(char *text, size_t size, const lierne_event_part *p) {
    const lierne_recorded_operation *o = &p->schedule->operations.at[p->operation];
    char name[LIERNE_MAX_OPERATION_NAME + 4], group[LIERNE_RECORDED_GROUP_TEXT] = "this rank";
    lierne_recorded_operation_print_name(name, o);
    if (p->group) {
        lierne_recorded_group_print(group, p->schedule, p->group);
    }
    int n = snprintf(text, size, "%s %d%s of %s", /* of its group */
                     lierne_operation_name(o->kind), p->sequence, name, group);
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

/* Follows the edges of the last search back from its start. */
static void print_cycle(const graph *g, int start, char *text, size_t size) {
    size_t used = 0;
    int v = start;
    do {
        const edge *e = &g->edges.at[g->by[v]];
        if (used + 32 < size) {
            used += (size_t)snprintf(text + used, size - used, "%srank %d launches ",
                                     used ? "; " : "", e->part->schedule->rank);
        }
        used += name_event(text + used, size - used, e->before);
        if (used + 16 < size) {
            used += (size_t)snprintf(text + used, size - used, " before ");
        }
        used += name_event(text + used, size - used, e->part);
        v = e->from;
    } while (v != start);
}

/* What a search came to is cleared by its own list: the others may be very many. */
static void find_shortest(graph *g, char *text, size_t size) {
    int most = g->count + 2, found;
    memset(g->by, -1, (size_t)g->count * sizeof *g->by);
    for (int v = 0; v < g->count && most > SHORTEST; v++) {
        int length = g->waits[v] > 0 ? search(g, v, most, &found) : 0;
        if (length > 0) {
            most = length;
            print_cycle(g, v, text, size);
        }
        for (int i = 0; g->waits[v] > 0 && i < found; i++) {
            g->by[g->queue[i]] = -1;
        }
    }
}

/* What waits for a cycle but is in none is taken away from its end. */
static lierne_status name_cycle(graph *g, char *text, size_t size) {
    LIERNE_TRY(turn_round(g));
    take_away(g);
    LIERNE_TRY(turn_round(g));
    find_shortest(g, text, size);
    return LIERNE_OK;
}

static lierne_status check_order(bool *safe, char *text, size_t size, graph *g,
                                 const lierne_events *events, bool concurrent) {
    LIERNE_TRY(lierne_alloc(&g->first, (size_t)g->count + 2, sizeof *g->first));
    LIERNE_TRY(lierne_alloc(&g->waits, (size_t)g->count + 1, sizeof *g->waits));
    LIERNE_TRY(lierne_alloc(&g->queue, (size_t)g->count + 2, sizeof *g->queue));
    LIERNE_TRY(lierne_alloc(&g->by, (size_t)g->count + 1, sizeof *g->by));
    LIERNE_TRY(add_all_edges(g, events, concurrent));
    LIERNE_TRY(sort_edges(g));
    *safe = take_away(g) == 0;
    return *safe ? LIERNE_OK : name_cycle(g, text, size);
}

lierne_status lierne_events_order(bool *safe, char *text, size_t size, const lierne_events *events,
                                  bool concurrent) {
    graph g = {.count = events->count};
    lierne_status status = check_order(safe, text, size, &g, events, concurrent);
    lierne_mem_free(g.edges.at);
    lierne_mem_free(g.first);
    lierne_mem_free(g.waits);
    lierne_mem_free(g.queue);
    lierne_mem_free(g.by);
    return status;
}
