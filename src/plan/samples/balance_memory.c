/* Memory for one assignment after the other: taken in order, given back as a whole.
 *
 * Ranks that assign the same items take the same amounts, so all of them run out of the block in
 * the same assignment, and can agree then on whether each of them got more. Assignments that fit
 * the block cannot fail for lack of memory, and need no agreement. */
#include "plan/samples/assignment.h"

#include <string.h>

#define ALIGNMENT 16

/* Beyond the block: what was taken follows the link. */
typedef struct extra {
    struct extra *next;
    char unused[ALIGNMENT - sizeof(void *)];
} extra;

static lierne_status take_extra(lierne_balance_memory *m, char **at, size_t bytes) {
    extra *one;
    LIERNE_TRY(lierne_alloc_unset(&one, sizeof *one + bytes, 1));
    one->next = m->extras;
    m->extras = one;
    *at = (char *)(one + 1);
    return LIERNE_OK;
}

lierne_status lierne_balance_take(lierne_balance_memory *m, void *out, size_t count, size_t size) {
    size_t bytes;
    char *at = NULL;
    memset(out, 0, sizeof at);
    if (!lierne_mul_size(count ? count : 1, size, &bytes) || bytes > SIZE_MAX / 4 ||
        m->used > SIZE_MAX / 4) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for %zu items of %zu bytes", count,
                           size);
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    m->used += bytes;
    if (m->used <= m->capacity) {
        at = m->block + m->used - bytes;
    } else {
        LIERNE_TRY(take_extra(m, &at, bytes));
    }
    memset(at, 0, bytes);
    memcpy(out, &at, sizeof at);
    return LIERNE_OK;
}

bool lierne_balance_outgrown(const lierne_balance_memory *m) {
    return m->used > m->capacity;
}

lierne_status lierne_balance_reserve(lierne_balance_memory *m, size_t bytes) {
    void *block;
    LIERNE_TRY(lierne_alloc_unset(&block, bytes, 1));
    lierne_balance_clear(m);
    *m = (lierne_balance_memory){.block = block, .capacity = bytes};
    return LIERNE_OK;
}

void lierne_balance_reset(lierne_balance_memory *m) {
    while (m->extras) {
        extra *next = m->extras->next;
        lierne_mem_free(m->extras);
        m->extras = next;
    }
    m->used = 0;
}

void lierne_balance_clear(lierne_balance_memory *m) {
    lierne_balance_reset(m);
    lierne_mem_free(m->block);
    *m = (lierne_balance_memory){0};
}
