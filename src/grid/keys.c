/* Keys: the identity of groups as a text.
 *
 * Two queries name the same groups, and may share communicators, exactly when their keys are equal.
 * Equal rank lists are not enough: a dim that has the same ranks in another view without being
 * shared is another group. So a key follows shared dims to the oldest view that has all of them and
 * names the dims there. '-', ',' and ':' are reserved so that different names never give one key.
 */
#include "grid/grid.h"

#include <string.h>

/* The same dims in the view that they are shared with. */
static uint32_t translate(const lierne_view *from, const lierne_view *to, uint32_t mask) {
    uint32_t result = 0;
    for (int d = 0; d < from->ndims; d++) {
        if (mask >> d & 1) {
            result |= (uint32_t)1 << lierne_view_dim(to, from->names[d]);
        }
    }
    return result;
}

static lierne_status query_key(const lierne_grid *grid, const lierne_query *query, char **out) {
    const lierne_view *base = grid->views[0], *view = query->view;
    uint32_t mask = query->mask;
    lierne_text text = {0};
    while (view != base && (mask & ~view->shared) == 0) {
        const lierne_view *with = grid->views[view->with];
        mask = translate(view, with, mask);
        view = with;
    }
    if (view != base) {
        lierne_text_add(&text, "view:%s:", view->name);
    }
    const char *between = "";
    for (int d = view->ndims - 1; d >= 0; d--) {
        if (mask >> d & 1) {
            lierne_text_add(&text, "%s%s", between, view->names[d]);
            between = view == base ? "-" : ",";
        }
    }
    return lierne_text_take(&text, out);
}

lierne_status lierne_grid_get_key(char *text, size_t size, size_t *needed, const lierne_grid *grid,
                                  const char *view, const char *const *dims, int ndims) {
    LIERNE_PUBLIC_CALL();
    lierne_query query;
    char *key;
    LIERNE_TRY(lierne_query_read(&query, grid, view, dims, ndims));
    if (!text && size > 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "text is NULL, but size is %zu", size);
    }
    LIERNE_TRY(query_key(grid, &query, &key));
    size_t bytes = strlen(key) + 1;
    if (needed) {
        *needed = bytes;
    }
    if (bytes <= size) {
        memcpy(text, key, bytes);
    }
    lierne_mem_free(key);
    if (size > 0 && bytes > size) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "size is %zu, must be at least %zu for this key",
                           size, bytes);
    }
    return LIERNE_OK;
}
