/* grids.json: enumeration, constructor and query errors, the life of keys and views. */
#include "golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A failed call must name the condition that the reference names; an error text that the runner
 * does not know stands for any error. */
static void expect_error(golden_case *c, const char *what, lierne_status status,
                         const cJSON *error) {
    lierne_status wanted = golden_condition(error);
    if (wanted != LIERNE_OK) {
        golden_expect_status(c, what, status, wanted);
    } else {
        golden_expect(c, status != LIERNE_OK, "%s: accepted, the reference says: %s", what,
                      golden_string(error, "message"));
    }
}

static lierne_grid *case_grid(golden_case *c) {
    lierne_grid *grid = NULL;
    lierne_status status = golden_grid(&grid, c->item, golden_int(c->item, "world_size", 0));
    golden_expect_status(c, "lierne_grid_create", status, LIERNE_OK);
    return grid;
}

typedef lierne_status groups_of(int *ranks, int *ngroups, int *group_size, const lierne_grid *grid,
                                const char *view, const char *const *dims, int ndims);

static void expect_groups(golden_case *c, groups_of *get, const lierne_grid *grid, const char *view,
                          const cJSON *dims, const cJSON *expected) {
    golden_names names = golden_read_names(dims);
    int ngroups, size;
    int *ranks = malloc((size_t)lierne_grid_get_size(grid) * sizeof *ranks);
    lierne_status status =
        ranks ? get(ranks, &ngroups, &size, grid, view, names.at, names.n) : LIERNE_ERR_NO_MEMORY;
    if (golden_expect_status(c, "groups", status, LIERNE_OK)) {
        golden_expect(c, golden_same_groups(expected, ranks, ngroups, size),
                      "other groups for the %d dims '%s'...", names.n, names.n ? names.at[0] : "");
    }
    free(ranks);
}

static void expect_size(golden_case *c, const lierne_grid *grid) {
    int64_t size = golden_int(golden_get(c->item, "expect"), "size", -1);
    golden_expect(c, lierne_grid_get_size(grid) == size, "size is %d, expected %lld",
                  lierne_grid_get_size(grid), (long long)size);
}

static void expect_coords(golden_case *c, const lierne_grid *grid, const cJSON *rows) {
    const cJSON *row;
    int rank = lierne_grid_get_rank_offset(grid), ndims = lierne_grid_get_ndims(grid, NULL), back;
    golden_expect(c, cJSON_GetArraySize(rows) == lierne_grid_get_size(grid), "coords of %d ranks",
                  cJSON_GetArraySize(rows));
    cJSON_ArrayForEach(row, rows) {
        int coords[LIERNE_MAX_DIMS];
        lierne_status status = lierne_grid_get_coords(coords, grid, NULL, rank);
        if (!golden_expect_status(c, "lierne_grid_get_coords", status, LIERNE_OK)) {
            return;
        }
        int64_t wide[LIERNE_MAX_DIMS];
        for (int d = 0; d < ndims; d++) {
            wide[d] = coords[d];
        }
        golden_expect(c, golden_same_ints(row, wide, ndims), "other coordinates of rank %d", rank);
        status = lierne_grid_get_rank(&back, grid, NULL, coords);
        golden_expect(c, status == LIERNE_OK && back == rank, "rank %d comes back as %d", rank,
                      back);
        rank++;
    }
}

/* The key, and the dims in the order in which the key has them. */
static void expect_key(golden_case *c, const lierne_grid *grid, const cJSON *query) {
    golden_names names = golden_read_names(golden_get(query, "dims"));
    char key[1024], joined[1024] = "";
    lierne_status status =
        lierne_grid_get_key(key, sizeof key, NULL, grid, NULL, names.at, names.n);
    golden_expect_status(c, "lierne_grid_get_key", status, LIERNE_OK);
    golden_expect(c, strcmp(key, golden_string(query, "key")) == 0, "key is '%s', expected '%s'",
                  key, golden_string(query, "key"));
    const cJSON *one;
    cJSON_ArrayForEach(one, golden_get(query, "ordered")) {
        size_t used = strlen(joined);
        snprintf(joined + used, sizeof joined - used, "%s%s", used ? "-" : "", one->valuestring);
    }
    golden_expect(c, strcmp(key, joined) == 0, "key is '%s', but the order '%s'", key, joined);
}

static void check_enum(golden_case *c) {
    const cJSON *query;
    lierne_grid *grid = case_grid(c);
    if (!grid) {
        return;
    }
    if (golden_get(c->item, "expect")) {
        expect_size(c, grid);
    }
    if (golden_get(c->item, "coords")) {
        expect_coords(c, grid, golden_get(c->item, "coords"));
    }
    cJSON_ArrayForEach(query, golden_get(c->item, "queries")) {
        const cJSON *raw = golden_get(query, "dims_raw_order");
        if (raw) {
            expect_groups(c, lierne_grid_get_groups_ordered, grid, NULL, raw,
                          golden_get(query, "groups"));
        } else {
            expect_groups(c, lierne_grid_get_groups, grid, NULL, golden_get(query, "dims"),
                          golden_get(query, "groups"));
            expect_key(c, grid, query);
        }
    }
    lierne_grid_destroy(grid);
}

static void check_ctor_ok(golden_case *c) {
    lierne_grid *grid = case_grid(c);
    if (grid) {
        expect_size(c, grid);
    }
    lierne_grid_destroy(grid);
}

static void check_ctor_error(golden_case *c) {
    lierne_grid *grid;
    lierne_status status = golden_grid(&grid, c->item, golden_int(c->item, "world_size", 0));
    expect_error(c, "lierne_grid_create", status, golden_get(c->item, "error"));
    lierne_grid_destroy(grid);
}

/* Nonsense that the reference accepts. An empty grid is one rank, which is no nonsense. */
static void check_ctor_lax(golden_case *c) {
    lierne_grid *grid;
    lierne_status status = golden_grid(&grid, c->item, golden_int(c->item, "world_size", 0));
    bool empty = cJSON_GetArraySize(golden_get(c->item, "shape")) == 0 &&
                 cJSON_GetArraySize(golden_get(c->item, "dim_names")) == 0;
    golden_expect(c, status != LIERNE_OK || (empty && lierne_grid_get_size(grid) == 1),
                  "accepted with %d ranks: %s", lierne_grid_get_size(grid),
                  golden_string(c->item, "note"));
    lierne_grid_destroy(grid);
}

/* A Python tuple is one name to the reference, and a list in JSON: its error shows which it was. */
static golden_names query_names(const cJSON *query, const cJSON *error) {
    golden_names names = golden_read_names(query);
    if (cJSON_IsArray(query) && golden_string(error, "message")[0] == '(') {
        names.n = 1;
        names.at[0] = golden_string(error, "message");
    }
    return names;
}

static void check_query(golden_case *c) {
    const cJSON *query = golden_get(c->item, "query"), *error = golden_get(c->item, "error");
    lierne_grid *grid = case_grid(c);
    if (!grid) {
        return;
    }
    if (error) {
        golden_names names = query_names(query, error);
        lierne_status status =
            lierne_grid_get_groups(NULL, NULL, NULL, grid, NULL, names.at, names.n);
        expect_error(c, "lierne_grid_get_groups", status, error);
    } else {
        expect_groups(c, lierne_grid_get_groups, grid, NULL, query, golden_get(c->item, "groups"));
    }
    lierne_grid_destroy(grid);
}

/* What the steps of a case work on. The reference keeps the groups that it created by their keys;
 * here the case does, so that only the keys are lierne's. */
typedef struct stage {
    lierne_grid *grid;
    char keys[32][64];
    int nkeys;
} stage;

static lierne_status add_view(lierne_grid *grid, const cJSON *op) {
    golden_dims dims = golden_read_dims(cJSON_GetArrayItem(op, 2), cJSON_GetArrayItem(op, 3));
    golden_names shared = golden_read_names(cJSON_GetArrayItem(op, 4));
    lierne_view_spec spec = {.size = sizeof spec,
                             .name = cJSON_GetStringValue(cJSON_GetArrayItem(op, 1)),
                             .ndims = dims.n,
                             .names = dims.names,
                             .sizes = dims.sizes,
                             .nshared = shared.n,
                             .shared = shared.at};
    return lierne_grid_add_view(grid, &spec);
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Adds a key, which must be new, or finds one. */
static lierne_status key_of(stage *s, bool create, const char *view, golden_names dims) {
    char key[sizeof s->keys[0]];
    lierne_status status =
        lierne_grid_get_key(key, sizeof key, NULL, s->grid, view, dims.at, dims.n);
    if (status != LIERNE_OK) {
        return status;
    }
    for (int i = 0; i < s->nkeys; i++) {
        if (strcmp(s->keys[i], key) == 0) {
            return create ? LIERNE_ERR_DUPLICATE : LIERNE_OK;
        }
    }
    if (!create || s->nkeys == 32) {
        return LIERNE_ERR_INVALID;
    }
    memcpy(s->keys[s->nkeys++], key, sizeof key);
    qsort(s->keys, (size_t)s->nkeys, sizeof key, compare_keys);
    return LIERNE_OK;
}

/* Does what the operation says; *known tells whether there is such an operation. */
static lierne_status operate(stage *s, const cJSON *op, bool *known) {
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(op, 0));
    const char *view = cJSON_GetStringValue(cJSON_GetArrayItem(op, 2));
    golden_names dims = golden_read_names(cJSON_GetArrayItem(op, 1));
    *known = true;
    if (name && (strcmp(name, "create") == 0 || strcmp(name, "get") == 0)) {
        return key_of(s, name[0] == 'c', view, dims);
    }
    if (name && strcmp(name, "enum") == 0) {
        return lierne_grid_get_groups(NULL, NULL, NULL, s->grid, view, dims.at, dims.n);
    }
    if (name && strcmp(name, "view") == 0) {
        return add_view(s->grid, op);
    }
    *known = name && strcmp(name, "destroy") == 0;
    s->nkeys = *known ? 0 : s->nkeys;
    return LIERNE_OK;
}

static void expect_keys(golden_case *c, const stage *s, const cJSON *expected) {
    golden_names names = golden_read_names(expected);
    if (!golden_expect(c, s->nkeys == names.n, "%d keys, expected %d", s->nkeys, names.n)) {
        return;
    }
    for (int i = 0; i < s->nkeys; i++) {
        golden_expect(c, names.at[i] && strcmp(s->keys[i], names.at[i]) == 0, "key %d is '%s'", i,
                      s->keys[i]);
    }
}

static void check_step(golden_case *c, stage *s, const cJSON *step) {
    const cJSON *op = golden_get(step, "op"), *dims = cJSON_GetArrayItem(op, 1);
    const char *view = cJSON_GetStringValue(cJSON_GetArrayItem(op, 2));
    bool known;
    lierne_status status = operate(s, op, &known);
    if (!golden_expect(c, known, "the runner does not know this operation")) {
        return;
    }
    if (!cJSON_IsTrue(golden_get(step, "ok"))) {
        expect_error(c, "step", status, golden_get(step, "error"));
    } else if (golden_expect_status(c, "step", status, LIERNE_OK)) {
        static const char *const results[] = {"groups", "created_groups"};
        for (int i = 0; i < 2; i++) {
            const cJSON *groups = golden_get(step, results[i]);
            if (groups) {
                expect_groups(c, lierne_grid_get_groups, s->grid, view, dims, groups);
            }
        }
    }
    expect_keys(c, s, golden_get(step, "keys"));
}

static void check_steps(golden_case *c) {
    const cJSON *step, *steps = golden_get(c->item, "steps");
    stage s = {.grid = case_grid(c)};
    int n = 0;
    golden_expect(c, cJSON_GetArraySize(steps) > 0, "no steps");
    if (s.grid) {
        cJSON_ArrayForEach(step, steps) {
            golden_case one = {.item = c->item};
            check_step(&one, &s, step);
            golden_expect(c, !one.failed, "step %d: %s", n++, one.why);
        }
    }
    lierne_grid_destroy(s.grid);
}

void golden_grids(golden_case *c) {
    static const struct {
        const char *category;
        golden_check *check;
    } kinds[] = {
        {"enum_canonical", check_enum},   {"enum_random", check_enum},
        {"enum_raw_order", check_enum},   {"ctor_ok", check_ctor_ok},
        {"ctor_error", check_ctor_error}, {"ctor_lax", check_ctor_lax},
        {"query_error", check_query},     {"query_lax", check_query},
        {"lifecycle", check_steps},       {"view_ok", check_steps},
        {"view_error", check_steps},      {"view_random", check_steps},
    };
    const char *category = golden_string(c->item, "category");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].category, category) == 0) {
            kinds[i].check(c);
            return;
        }
    }
    golden_expect(c, false, "the runner does not know the category '%s'", category);
}
