/* Views, and the checks of dims that grids and views share.
 *
 * A shared dim must form the same groups in both views. That needs no enumeration: a dim of size n
 * and stride s groups local rank l with l +- s, l +- 2s, ..., so two dims form the same groups if
 * both n and s are equal, or if n is 1. The groups of several dims follow from those of each dim,
 * so dims that agree one by one also agree in any combination. */
#include "grid/grid.h"

#include <stdio.h>
#include <string.h>

const lierne_view *lierne_view_find(const lierne_grid *grid, const char *name) {
    if (!grid) {
        return NULL;
    }
    if (!name) {
        return grid->views[0];
    }
    for (int i = 0; i < grid->nviews; i++) {
        if (strcmp(grid->views[i]->name, name) == 0) {
            return grid->views[i];
        }
    }
    return NULL;
}

int lierne_view_dim(const lierne_view *view, const char *name) {
    for (int d = 0; name && d < view->ndims; d++) {
        if (strcmp(view->names[d], name) == 0) {
            return d;
        }
    }
    return -1;
}

void lierne_names_list(char *text, size_t size, int count, const char *const *names) {
    static const char more[] = "...";
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        size_t bytes = strlen(names[i]) + 2;
        if (used + bytes + sizeof more > size) {
            memcpy(text + used, more, sizeof more);
            return;
        }
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", names[i], i + 1 < count ? ", " : "");
    }
}

lierne_status lierne_name_grid_error(lierne_status status, const char *name) {
    return status == LIERNE_OK || !name
               ? status
               : LIERNE_FAIL(status, "grid '%s': %s", name, lierne_error_text());
}

lierne_status lierne_view_get(const lierne_view **out, const lierne_grid *grid, const char *name) {
    *out = lierne_view_find(grid, name);
    if (*out) {
        return LIERNE_OK;
    }
    const char *names[LIERNE_MAX_VIEWS + 1];
    char list[LIERNE_LIST_SIZE];
    for (int i = 0; i < grid->nviews; i++) {
        names[i] = grid->views[i]->name;
    }
    lierne_names_list(list, sizeof list, grid->nviews, names);
    return lierne_name_grid_error(LIERNE_FAIL(LIERNE_ERR_UNKNOWN_VIEW,
                                              "view '%s' is not registered; there are: %s", name,
                                              list),
                                  grid->name);
}

lierne_status lierne_view_create(lierne_view **out, const char *name, int ndims,
                                 const char *const *names, const int64_t *sizes) {
    lierne_view *view;
    int stride = 1;
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&view, 1, sizeof *view));
    lierne_status status = lierne_strdup(&view->name, name);
    for (int d = 0; d < ndims && status == LIERNE_OK; d++) {
        status = lierne_strdup(&view->names[d], names[d]);
        view->sizes[d] = (int)sizes[d];
        view->strides[d] = stride;
        stride *= view->sizes[d];
        view->ndims = d + 1;
    }
    if (status != LIERNE_OK) {
        lierne_view_destroy(view);
        return status;
    }
    *out = view;
    return LIERNE_OK;
}

void lierne_view_destroy(lierne_view *view) {
    if (!view) {
        return;
    }
    for (int d = 0; d < view->ndims; d++) {
        lierne_mem_free(view->names[d]);
    }
    lierne_mem_free(view->name);
    lierne_mem_free(view);
}

lierne_status lierne_dims_given(int ndims, const char *const *names, const int64_t *sizes) {
    if (ndims < 0 || ndims > LIERNE_MAX_DIMS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "ndims is %d, must be 0 to %d", ndims,
                           LIERNE_MAX_DIMS);
    }
    if (ndims > 0 && (!names || !sizes)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", names ? "sizes" : "names");
    }
    for (int d = 0; d < ndims; d++) {
        if (!names[d]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "name of dim %d of %d is NULL", d, ndims);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_name_valid(const char *name) {
    if (name[0] == '\0') {
        return LIERNE_FAIL(LIERNE_ERR_NAME, "a name is empty");
    }
    /* Checked first, because the other messages repeat the name. */
    for (const char *c = name; *c; c += lierne_utf8_length(c)) {
        if (lierne_utf8_length(c) == 0) {
            return LIERNE_FAIL(LIERNE_ERR_NAME,
                               "a name has the byte 0x%02x at offset %d, must be UTF-8",
                               (unsigned)(unsigned char)*c, (int)(c - name));
        }
    }
    for (const char *c = name; *c; c++) {
        if (strchr("-,:", *c)) {
            return LIERNE_FAIL(LIERNE_ERR_NAME,
                               "name '%s' has '%c', which is reserved for "
                               "keys",
                               name, *c);
        }
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return LIERNE_FAIL(LIERNE_ERR_NAME, "a name has the control character 0x%02x",
                               (unsigned)*c);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_dims_valid(int ndims, const char *const *names, const int64_t *sizes) {
    for (int d = 0; d < ndims; d++) {
        LIERNE_TRY(lierne_name_valid(names[d]));
        if (sizes[d] < 1) {
            return LIERNE_FAIL(LIERNE_ERR_DIM_SIZE, "size of dim '%s' is %lld, must be at least 1",
                               names[d], (long long)sizes[d]);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_names_distinct(int count, const char *const *names) {
    for (int i = 1; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (strcmp(names[i], names[j]) == 0) {
                return LIERNE_FAIL(LIERNE_ERR_DUPLICATE,
                                   "dim '%s' appears twice, at %d and %d, must be once", names[i],
                                   j, i);
            }
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_sizes_product(int ndims, const int64_t *sizes, int64_t *product) {
    *product = 1;
    for (int d = 0; d < ndims; d++) {
        int64_t before = *product;
        if (!lierne_mul_i64(before, sizes[d], product)) {
            return LIERNE_FAIL(LIERNE_ERR_OVERFLOW,
                               "the product of the sizes overflows: %lld "
                               "times %lld",
                               (long long)before, (long long)sizes[d]);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_view_spec(const lierne_grid *grid, const lierne_view_spec *spec) {
    if (!grid || !spec->name) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", grid ? "spec->name" : "grid");
    }
    LIERNE_TRY(lierne_name_valid(spec->name));
    if (lierne_view_find(grid, spec->name)) {
        return LIERNE_FAIL(LIERNE_ERR_DUPLICATE, "view '%s' is registered already", spec->name);
    }
    if (grid->nviews > LIERNE_MAX_VIEWS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the grid has %d views beside \"base\", must have at most %d",
                           LIERNE_MAX_VIEWS, LIERNE_MAX_VIEWS);
    }
    return LIERNE_OK;
}

static lierne_status check_view_dims(const lierne_grid *grid, const lierne_view_spec *spec) {
    int64_t ranks;
    LIERNE_TRY(lierne_dims_given(spec->ndims, spec->names, spec->sizes));
    LIERNE_TRY(lierne_names_distinct(spec->ndims, spec->names));
    LIERNE_TRY(lierne_dims_valid(spec->ndims, spec->names, spec->sizes));
    LIERNE_TRY(lierne_sizes_product(spec->ndims, spec->sizes, &ranks));
    if (ranks != grid->size) {
        return LIERNE_FAIL(LIERNE_ERR_SIZE, "view '%s' has %lld ranks, but the grid has %d",
                           spec->name, (long long)ranks, grid->size);
    }
    return LIERNE_OK;
}

static lierne_status check_shared_given(const lierne_view_spec *spec) {
    if (spec->nshared < 0 || (spec->nshared > 0 && !spec->shared)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nshared is %d, shared is %s", spec->nshared,
                           spec->shared ? "given" : "NULL");
    }
    for (int i = 0; i < spec->nshared; i++) {
        if (!spec->shared[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID, "shared dim %d is NULL", i);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_in_view(const lierne_view *view, const char *name) {
    if (lierne_view_dim(view, name) >= 0) {
        return LIERNE_OK;
    }
    char list[LIERNE_LIST_SIZE];
    lierne_names_list(list, sizeof list, view->ndims, (const char *const *)view->names);
    return LIERNE_FAIL(LIERNE_ERR_UNKNOWN_DIM,
                       "shared dim '%s' is not in view '%s', which has: "
                       "%s",
                       name, view->name, list);
}

/* Marks the shared dims of view, which are those of the same names in other. */
static lierne_status share(lierne_view *view, const lierne_view *other,
                           const lierne_view_spec *spec) {
    for (int i = 0; i < spec->nshared; i++) {
        const char *name = spec->shared[i];
        LIERNE_TRY(check_in_view(other, name));
        LIERNE_TRY(check_in_view(view, name));
        int mine = lierne_view_dim(view, name), theirs = lierne_view_dim(other, name);
        bool single = view->sizes[mine] == 1;
        if (view->sizes[mine] != other->sizes[theirs] ||
            (!single && view->strides[mine] != other->strides[theirs])) {
            return LIERNE_FAIL(
                LIERNE_ERR_MEMBERSHIP,
                "shared dim '%s' groups %d ranks with stride %d in view '%s', but %d "
                "ranks with stride %d in view '%s'; both must be equal",
                name, view->sizes[mine], view->strides[mine], view->name, other->sizes[theirs],
                other->strides[theirs], other->name);
        }
        view->shared |= (uint32_t)1 << mine;
    }
    return LIERNE_OK;
}

static int view_index(const lierne_grid *grid, const lierne_view *view) {
    int i = 0;
    while (grid->views[i] != view) {
        i++;
    }
    return i;
}

lierne_status lierne_grid_add_view(lierne_grid *grid, const lierne_view_spec *given) {
    LIERNE_PUBLIC_CALL();
    const lierne_view *other;
    lierne_view_spec own, *spec = &own;
    lierne_view *view;
    LIERNE_TRY(lierne_spec_take(spec, sizeof *spec, given, "spec"));
    LIERNE_TRY(check_view_spec(grid, spec));
    LIERNE_TRY(lierne_view_get(&other, grid, spec->with));
    LIERNE_TRY(check_view_dims(grid, spec));
    LIERNE_TRY(check_shared_given(spec));
    LIERNE_TRY(lierne_names_distinct(spec->nshared, spec->shared));
    LIERNE_TRY(lierne_view_create(&view, spec->name, spec->ndims, spec->names, spec->sizes));
    lierne_status status = share(view, other, spec);
    if (status != LIERNE_OK) {
        lierne_view_destroy(view);
        return status;
    }
    view->with = view_index(grid, other);
    grid->views[grid->nviews++] = view;
    return LIERNE_OK;
}
