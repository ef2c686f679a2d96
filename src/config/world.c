/* Which ranks of the world the grids cover. Ranks in no grid are legal, and so are grids that share
 * ranks. But the first is more often a wrong world_size, and the second a missing rank_offset: both
 * give a warning unless the file says "cover_world": false. */
#include "config/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_offsets(const void *a, const void *b) {
    const lierne_config_grid_entry *x = a, *y = b;
    int i = lierne_grid_get_rank_offset(x->grid), j = lierne_grid_get_rank_offset(y->grid);
    return (i > j) - (i < j);
}

/* Ranks that no grid has. */
typedef struct gaps {
    lierne_text text; /* "3 to 5, 8" */
    int first;
    int end; /* the rank behind the last grid */
} gaps;

static void add_gap(gaps *g, int from, int to) {
    if (from == to) {
        return;
    }
    g->first = g->text.length ? g->first : from;
    lierne_text_add(&g->text, g->text.length ? ", %d" : "%d", from);
    if (to > from + 1) {
        lierne_text_add(&g->text, " to %d", to - 1);
    }
}

static void list_gaps(const lierne_config_grid_entry *sorted, size_t count, int world, gaps *g) {
    for (size_t i = 0; i < count; i++) {
        int first = lierne_grid_get_rank_offset(sorted[i].grid);
        int end = first + lierne_grid_get_size(sorted[i].grid);
        add_gap(g, g->end, first > g->end ? first : g->end);
        g->end = end > g->end ? end : g->end;
    }
    add_gap(g, g->end, world);
}

static bool all_grids_made(const lierne_config *config) {
    for (size_t i = 0; i < config->grids.count; i++) {
        if (!config->grids.at[i].grid) {
            return false;
        }
    }
    return config->grids.count > 0;
}

static const lierne_json_node *grid_node(const lierne_reader *r, const lierne_json_node *grids,
                                         size_t index) {
    const lierne_json_node *n = lierne_config_first(r, grids);
    while (index-- > 0) {
        n = lierne_config_next(r, n);
    }
    return n;
}

static bool begins_at_0(const lierne_config *config, size_t i) {
    return lierne_grid_get_rank_offset(config->grids.at[i].grid) == 0;
}

/* Two grids that begin at rank 0 and have together as many ranks as the world. */
static bool find_pair(const lierne_config *config, size_t *a, size_t *b) {
    for (*b = 1; *b < config->grids.count; (*b)++) {
        for (*a = 0; *a < *b; (*a)++) {
            int64_t sum = (int64_t)lierne_grid_get_size(config->grids.at[*a].grid) +
                          lierne_grid_get_size(config->grids.at[*b].grid);
            if (begins_at_0(config, *a) && begins_at_0(config, *b) && sum == config->world) {
                return true;
            }
        }
    }
    return false;
}

/* Whether that is true of all grids together. */
static bool all_fill_the_world(const lierne_config *config) {
    int64_t sum = 0;
    for (size_t i = 0; i < config->grids.count; i++) {
        if (!begins_at_0(config, i)) {
            return false;
        }
        sum += lierne_grid_get_size(config->grids.at[i].grid);
    }
    return config->grids.count > 1 && sum == config->world;
}

/* Grids that would have all ranks of the world if they were disjoint, and share some. No grid has
 * the ranks from `end` on. */
static bool check_offsets(lierne_reader *r, const lierne_json_node *grids, int end) {
    const lierne_config *config = r->config;
    size_t a, b;
    char hint[256];
    if (find_pair(config, &a, &b)) {
        const char *first = config->grids.at[a].name, *second = config->grids.at[b].name;
        int size = lierne_grid_get_size(config->grids.at[a].grid);
        snprintf(hint, sizeof hint,
                 "write \"rank_offset\": %d for %s, or, if they are to share ranks, set world_size "
                 "to %d",
                 size, lierne_quote(second).text, end);
        lierne_diagnostic_add_key(
            r, LIERNE_DIAGNOSTIC_OFFSET, grid_node(r, grids, b), hint,
            "grids %s and %s have %d and %d ranks, together the %d of the world, "
            "and both begin at rank 0",
            lierne_quote(first).text, lierne_quote(second).text, size,
            lierne_grid_get_size(config->grids.at[b].grid), config->world);
        return true;
    }
    if (all_fill_the_world(config)) {
        snprintf(hint, sizeof hint,
                 "give each grid the rank_offset at which the one before it ends, or, if they are "
                 "to share ranks, set world_size to %d",
                 end);
        lierne_diagnostic_add_key(
            r, LIERNE_DIAGNOSTIC_OFFSET, grid_node(r, grids, 1), hint,
            "%zu grids have together the %d ranks of the world, and all begin "
            "at rank 0",
            config->grids.count, config->world);
        return true;
    }
    return false;
}

static void check_gaps(lierne_reader *r, const lierne_world_nodes *w, const gaps *g) {
    char hint[160];
    int world = r->config->world;
    if (lierne_config_true(w->cover)) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_UNCOVERED, w->cover,
                              "let grids span these ranks, or drop cover_world",
                              "ranks %.400s of %d are in no grid", g->text.data, world);
    }
    if (check_offsets(r, w->grids, g->end) || w->cover) {
        return;
    }
    int used =
        g->first == g->end ? snprintf(hint, sizeof hint, "set world_size to %d, ", g->end) : 0;
    snprintf(hint + used, sizeof hint - (size_t)used,
             "let grids span these ranks, or write \"cover_world\": false");
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_IDLE_RANKS, w->world, hint,
                          "ranks %.400s of %d are in no grid", g->text.data, world);
}

void lierne_config_check_world(lierne_reader *r, const lierne_world_nodes *w) {
    lierne_config *config = r->config;
    size_t count = config->grids.count;
    lierne_config_grid_entry *sorted;
    gaps g = {0};
    bool meant = w->cover && !lierne_config_true(w->cover);
    if (meant || !all_grids_made(config) ||
        !lierne_reader_ok(r, lierne_alloc(&sorted, count, sizeof *sorted))) {
        return;
    }
    memcpy(sorted, config->grids.at, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_offsets);
    list_gaps(sorted, count, config->world, &g);
    r->failed |= g.text.failed;
    if (g.text.length) {
        check_gaps(r, w, &g);
    }
    lierne_text_clear(&g.text);
    lierne_mem_free(sorted);
}
