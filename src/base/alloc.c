/* Counted allocation, growing arrays, checked arithmetic.
 *
 * Every allocation of the library is made here, for two reasons: tests compare the number of live
 * allocations before and after, and tests make the k-th allocation fail for every k. The counters
 * are the only global state of the library beside the thread-local message; only tests read them.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_size_t live_count;
static atomic_size_t fail_countdown;

static bool must_fail(void) {
    if (atomic_load(&fail_countdown) == 0) {
        return false;
    }
    return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

size_t lierne_mem_live(void) {
    return atomic_load(&live_count);
}

void lierne_mem_fail_at(size_t k) {
    atomic_store(&fail_countdown, k);
}

bool lierne_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

/* An array of none has an address, too. */
static size_t at_least_one(size_t n) {
    return n ? n : 1;
}

lierne_status lierne_alloc(void *out, size_t count, size_t size) {
    count = at_least_one(count);
    size = at_least_one(size);
    void *ptr = must_fail() ? NULL : calloc(count, size);
    memcpy(out, &ptr, sizeof ptr);
    if (!ptr) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for %zu items of %zu bytes", count,
                           size);
    }
    atomic_fetch_add(&live_count, 1);
    return LIERNE_OK;
}

lierne_status lierne_alloc_unset(void *out, size_t count, size_t size) {
    memset(out, 0, sizeof(void *));
    return lierne_realloc(out, count, size);
}

lierne_status lierne_realloc(void *ptr, size_t count, size_t size) {
    void *old, *grown = NULL;
    size_t bytes;
    memcpy(&old, ptr, sizeof old);
    count = at_least_one(count);
    size = at_least_one(size);
    if (lierne_mul_size(count, size, &bytes) && !must_fail()) {
        grown = realloc(old, bytes);
    }
    if (!grown) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for %zu items of %zu bytes", count,
                           size);
    }
    if (!old) {
        atomic_fetch_add(&live_count, 1);
    }
    memcpy(ptr, &grown, sizeof grown);
    return LIERNE_OK;
}

lierne_status lierne_workspace_take(lierne_workspace *workspace, int slot, void *out, size_t count,
                                    size_t size) {
    size_t bytes;
    if (!lierne_mul_size(count, size, &bytes)) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for %zu items of %zu bytes", count,
                           size);
    }
    if (!workspace->at[slot] || bytes > workspace->bytes[slot]) {
        lierne_mem_free(workspace->at[slot]);
        workspace->at[slot] = NULL;
        workspace->bytes[slot] = bytes;
        LIERNE_TRY(lierne_alloc_unset(&workspace->at[slot], bytes, 1));
    }
    memcpy(out, &workspace->at[slot], sizeof workspace->at[slot]);
    return LIERNE_OK;
}

void lierne_workspace_destroy(lierne_workspace *workspace) {
    for (int i = 0; i < LIERNE_WORKSPACE_SLOTS; i++) {
        lierne_mem_free(workspace->at[i]);
    }
    *workspace = (lierne_workspace){0};
}

lierne_status lierne_strdup(char **out, const char *text) {
    size_t bytes = strlen(text) + 1;
    LIERNE_TRY(lierne_alloc(out, bytes, 1));
    memcpy(*out, text, bytes);
    return LIERNE_OK;
}

void lierne_mem_free(void *ptr) {
    if (ptr) {
        atomic_fetch_sub(&live_count, 1);
        free(ptr);
    }
}

lierne_status lierne_vec_grow(void *at, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) {
        return LIERNE_OK;
    }
    size_t wanted = *capacity ? *capacity * 2 : 4;
    LIERNE_TRY(lierne_realloc(at, wanted, size));
    *capacity = wanted;
    return LIERNE_OK;
}

lierne_status lierne_list_grow(void *at, size_t count, size_t size) {
    bool full = !count || (count >= 4 && !(count & (count - 1)));
    return full ? lierne_realloc(at, count ? 2 * count : 4, size) : LIERNE_OK;
}
