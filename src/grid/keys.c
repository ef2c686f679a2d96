/* Keys: the identity of groups as a text, and the table of the keys that exist.
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

struct lierne_group_keys {
    const lierne_grid *grid;
    LIERNE_VEC(char *) keys; /* ascending */
};

lierne_status lierne_group_keys_create(lierne_group_keys **out, const lierne_grid *grid) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    if (!out || !grid) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", out ? "grid" : "out");
    }
    LIERNE_TRY(lierne_alloc(out, 1, sizeof **out));
    (*out)->grid = grid;
    return LIERNE_OK;
}

void lierne_group_keys_clear(lierne_group_keys *keys) {
    for (size_t i = 0; keys && i < keys->keys.count; i++) {
        lierne_mem_free(keys->keys.at[i]);
    }
    if (keys) {
        keys->keys.count = 0;
    }
}

void lierne_group_keys_destroy(lierne_group_keys *keys) {
    if (keys) {
        lierne_group_keys_clear(keys);
        lierne_mem_free(keys->keys.at);
        lierne_mem_free(keys);
    }
}

/* Finds the position of a key, or where to insert it. */
static bool find(const lierne_group_keys *keys, const char *key, size_t *place) {
    size_t low = 0, high = keys->keys.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(keys->keys.at[middle], key);
        if (order == 0) {
            *place = middle;
            return true;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    *place = low;
    return false;
}

static lierne_status read_key(const lierne_group_keys *keys, const char *view,
                              const char *const *dims, int ndims, char **key) {
    lierne_query query;
    LIERNE_TRY(lierne_check_set(keys, "keys"));
    LIERNE_TRY(lierne_query_read(&query, keys->grid, view, dims, ndims));
    return query_key(keys->grid, &query, key);
}

/* Inserts key at place; the table owns it then. */
static lierne_status insert(lierne_group_keys *keys, size_t place, char *key) {
    LIERNE_TRY(LIERNE_VEC_PUSH(&keys->keys, key));
    char **at = keys->keys.at + place;
    memmove(at + 1, at, (keys->keys.count - 1 - place) * sizeof *at);
    *at = key;
    return LIERNE_OK;
}

lierne_status lierne_group_keys_add(lierne_group_keys *keys, const char *view,
                                    const char *const *dims, int ndims) {
    LIERNE_PUBLIC_CALL();
    char *key;
    size_t place;
    lierne_status status;
    LIERNE_TRY(read_key(keys, view, dims, ndims, &key));
    if (find(keys, key, &place)) {
        status = LIERNE_FAIL(LIERNE_ERR_DUPLICATE, "key '%s' has been created already", key);
    } else {
        status = insert(keys, place, key);
    }
    if (status != LIERNE_OK) {
        lierne_mem_free(key);
    }
    return status;
}

lierne_status lierne_group_keys_find(const lierne_group_keys *keys, const char *view,
                                     const char *const *dims, int ndims) {
    LIERNE_PUBLIC_CALL();
    char *key;
    size_t place;
    lierne_status status = LIERNE_OK;
    LIERNE_TRY(read_key(keys, view, dims, ndims, &key));
    if (!find(keys, key, &place)) {
        status = LIERNE_FAIL(LIERNE_ERR_NOT_CREATED, "key '%s' has not been created", key);
    }
    lierne_mem_free(key);
    return status;
}

int lierne_group_keys_get_count(const lierne_group_keys *keys) {
    return keys ? (int)keys->keys.count : -1;
}

const char *lierne_group_keys_get_key(const lierne_group_keys *keys, int i) {
    return keys && i >= 0 && (size_t)i < keys->keys.count ? keys->keys.at[i] : NULL;
}
