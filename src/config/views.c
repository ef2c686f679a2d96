/* Views of a grid, and which of their shared dims are wrong.
 *
 * lierne_grid_add_view names only the first shared dim whose groups differ. To find all of them it
 * is called for one dim at a time, on a copy of the two views: so the rule stands in one place
 * only. A view that was rejected is added without its shared dims, because later views may name it
 * and must not get an error for it. */
#include "config/read.h"
#include "grid/grid.h"

#include <string.h>

typedef struct view_reading {
    const lierne_json_node *node, *order, *shape, *shared, *with;
    lierne_config_dims dims;
    const char *shared_names[LIERNE_MAX_DIMS];
} view_reading;

static int find_dim(const char *const *names, int count, const char *name) {
    int d = 0;
    while (d < count && strcmp(names[d], name) != 0) {
        d++;
    }
    return d < count ? d : -1;
}

static const char *with_name(const view_reading *v) {
    return v->with ? lierne_json_string(v->with) : "base";
}

/* One shared dim: in both views, and not named before. */
static bool read_shared_dim(lierne_reader *r, const view_reading *v, int before,
                            const lierne_json_node *n, const lierne_grid *grid) {
    if (!lierne_config_typed(r, n, LIERNE_JSON_STRING)) {
        return false;
    }
    const char *name = lierne_json_string(n);
    if (find_dim(v->shared_names, before, name) >= 0) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SHARED_DUPLICATE, n, "name each dim once",
                              "dim %s is shared twice", lierne_quote(name).text);
        return false;
    }
    bool mine = find_dim(v->dims.names, v->dims.count, name) >= 0;
    if (mine && lierne_view_dim(lierne_view_find(grid, with_name(v)), name) >= 0) {
        return true;
    }
    lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SHARED_UNKNOWN, n,
                          "a shared dim must be in both views", "shared dim %s is not in view %s",
                          lierne_quote(name).text,
                          mine ? lierne_quote(with_name(v)).text : lierne_label(v->node).text);
    return false;
}

static bool read_shared(lierne_reader *r, view_reading *v, const lierne_grid *grid,
                        lierne_view_spec *spec) {
    bool ok = true;
    if (v->shared->count > LIERNE_MAX_DIMS) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_LIMIT, v->shared, "name each dim once",
                              "%d shared dims, must be at most %d", v->shared->count,
                              LIERNE_MAX_DIMS);
        return false;
    }
    for (const lierne_json_node *n = lierne_json_first(v->shared); n;
         n = lierne_json_next(r->doc, n)) {
        if (read_shared_dim(r, v, spec->nshared, n, grid)) {
            v->shared_names[spec->nshared++] = lierne_json_string(n);
        } else {
            ok = false;
        }
    }
    spec->shared = v->shared_names;
    return ok;
}

/* A view of a grid as the dims that it was made of. */
static void copy_dims(const lierne_grid *grid, const char *view, lierne_config_dims *dims) {
    dims->count = lierne_grid_get_ndims(grid, view);
    for (int d = 0; d < dims->count; d++) {
        dims->names[d] = lierne_grid_get_dim_name(grid, view, d);
        dims->sizes[d] = lierne_grid_get_dim_size(grid, view, d);
    }
}

/* Adds spec to a grid that has the base view and the view `with` of grid, and nothing else. */
static lierne_status try_view(const lierne_grid *grid, const lierne_view_spec *spec) {
    lierne_config_dims base, with;
    lierne_grid *copy;
    copy_dims(grid, NULL, &base);
    lierne_grid_spec grid_spec = {.size = sizeof grid_spec,
                                  .ndims = base.count,
                                  .names = base.names,
                                  .sizes = base.sizes,
                                  .world_size = lierne_grid_get_size(grid)};
    LIERNE_TRY(lierne_grid_create(&copy, &grid_spec));
    lierne_status status = LIERNE_OK;
    if (spec->with && strcmp(spec->with, "base") != 0) {
        copy_dims(grid, spec->with, &with);
        lierne_view_spec with_spec = {.size = sizeof with_spec,
                                      .name = spec->with,
                                      .ndims = with.count,
                                      .names = with.names,
                                      .sizes = with.sizes};
        status = lierne_grid_add_view(copy, &with_spec);
    }
    if (status == LIERNE_OK) {
        status = lierne_grid_add_view(copy, spec);
    }
    lierne_grid_destroy(copy);
    return status;
}

/* Adds a diagnostic for each shared dim that puts other ranks together. */
static void add_memberships(lierne_reader *r, const view_reading *v, const lierne_grid *grid,
                            const lierne_view_spec *spec) {
    for (const lierne_json_node *n = lierne_json_first(v->shared); n;
         n = lierne_json_next(r->doc, n)) {
        const char *name = lierne_json_string(n);
        lierne_view_spec one = *spec;
        one.nshared = 1;
        one.shared = &name;
        if (!lierne_reader_ok(r, try_view(grid, &one)) && !r->failed) {
            lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_SHARED_MEMBERSHIP, n,
                                  "do not share it, or lay the view out so that its ranks agree",
                                  "%s", lierne_error_text());
        }
    }
}

static void add_rejected(lierne_reader *r, lierne_status status, const view_reading *v,
                         const lierne_grid *grid, const lierne_view_spec *spec) {
    switch (status) {
    case LIERNE_ERR_SIZE:
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_VIEW_SIZE, v->shape,
                              "the sizes of a view must multiply to the ranks of its grid", "%s",
                              lierne_error_text());
        break;
    case LIERNE_ERR_OVERFLOW:
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_GRID_OVERFLOW, v->shape, "choose smaller sizes",
                              "%s", lierne_error_text());
        break;
    case LIERNE_ERR_MEMBERSHIP:
        add_memberships(r, v, grid, spec);
        break;
    default:
        lierne_diagnostic_add(r, status, v->node, "", "%s", lierne_error_text());
    }
}

static void add_view(lierne_reader *r, view_reading *v, lierne_grid *grid) {
    lierne_view_spec spec = {.size = sizeof spec,
                             .name = lierne_json_key(v->node),
                             .ndims = v->dims.count,
                             .names = v->dims.names,
                             .sizes = v->dims.sizes,
                             .with = v->with ? lierne_json_string(v->with) : NULL};
    bool known = lierne_grid_get_ndims(grid, with_name(v)) >= 0;
    if (!known) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_WITH_UNKNOWN, v->with,
                              "name 'base' or a view that comes before this one",
                              "there is no view %s to share dims with",
                              lierne_quote(with_name(v)).text);
        spec.with = NULL;
    }
    if (v->shared && (!known || !read_shared(r, v, grid, &spec))) {
        spec.nshared = 0;
    }
    lierne_status status = lierne_grid_add_view(grid, &spec);
    if (!lierne_reader_ok(r, status) && !r->failed) {
        add_rejected(r, status, v, grid, &spec);
        spec.nshared = 0;
        lierne_reader_ok(r, lierne_grid_add_view(grid, &spec));
    }
}

static void read_view(lierne_reader *r, const lierne_json_node *node, lierne_grid *grid) {
    enum { ORDER, SHAPE, SHARED, WITH, KEYS };
    static const lierne_config_key keys[KEYS] = {
        [ORDER] = {"order", LIERNE_JSON_ARRAY, true},
        [SHAPE] = {"shape", LIERNE_JSON_OBJECT, true},
        [SHARED] = {"shared", LIERNE_JSON_ARRAY, false},
        [WITH] = {"with", LIERNE_JSON_STRING, false},
    };
    const lierne_json_node *found[KEYS];
    view_reading v = {.node = node};
    bool ok = lierne_config_name(r, node, true, LIERNE_CONFIG_KEY_NAME);
    if (strcmp(lierne_json_key(node), "base") == 0) {
        lierne_diagnostic_add_key(r, LIERNE_DIAGNOSTIC_VIEW_RESERVED, node, "choose another name",
                                  "'base' is the grid's own view");
        ok = false;
    }
    ok &= lierne_config_object(r, node, keys, KEYS, found);
    v.order = found[ORDER];
    v.shape = found[SHAPE];
    v.shared = found[SHARED];
    v.with = found[WITH];
    ok &= lierne_config_read_dims(r, v.order, v.shape, &v.dims);
    if (ok && grid) {
        add_view(r, &v, grid);
    }
}

void lierne_config_read_views(lierne_reader *r, const lierne_json_node *views, lierne_grid *grid) {
    if (views->count > LIERNE_MAX_VIEWS) {
        lierne_diagnostic_add(r, LIERNE_DIAGNOSTIC_LIMIT, views, "drop views that no group needs",
                              "%d views, must be at most %d", views->count, LIERNE_MAX_VIEWS);
        return;
    }
    for (const lierne_json_node *n = lierne_config_first(r, views); n;
         n = lierne_config_next(r, n)) {
        read_view(r, n, grid);
    }
}
