/* Memory of the segment that a batch takes its lines and slots from. A receiver that is late still
 * reads what was packed for it, after the batch was destroyed: so an area says which lines are in
 * the batch's memory, and is freed once all of their messages were taken. */
#include "backend/shm/shm_message.h"

#define ARENA_BYTES (16 << 10)
#define HEAD_BYTES  LIERNE_CACHE_LINE /* of an area */

/* The begin of an area. */
struct lierne_shm_area {
    lierne_shm_area *next;       /* of the batch */
    lierne_shm_area *next_batch; /* of a batch's first: that of another batch that was destroyed */
    lierne_line *lines;          /* of a batch's first */
};

static void free_areas(lierne_shm *shm, lierne_shm_area *first) {
    for (lierne_shm_area *a = first, *next; a; a = next) {
        next = a->next;
        lierne_segment_free(&shm->own, a);
    }
}

void lierne_shm_sweep_areas(lierne_shm *shm) {
    for (lierne_shm_area **at = &shm->destroyed; *at;) {
        lierne_shm_area *a = *at;
        bool pending = false;
        for (const lierne_line *line = a->lines; line; line = line->next) {
            pending |= lierne_shm_pending(line);
        }
        if (pending) {
            at = &a->next_batch;
            continue;
        }
        *at = a->next_batch;
        free_areas(shm, a);
    }
}

void lierne_shm_drop_areas(lierne_shm *shm, const lierne_shm_areas *areas) {
    if (areas->first) {
        areas->first->lines = areas->lines;
        areas->first->next_batch = shm->destroyed;
        shm->destroyed = areas->first;
    }
    lierne_shm_sweep_areas(shm);
}

lierne_status lierne_shm_take_area(lierne_shm *shm, lierne_shm_areas *areas, size_t bytes,
                                   char **out, uint64_t *offset) {
    bytes = (bytes + LIERNE_CACHE_LINE - 1) / LIERNE_CACHE_LINE * LIERNE_CACHE_LINE;
    if (bytes > areas->left) {
        size_t size = bytes + HEAD_BYTES > ARENA_BYTES ? bytes + HEAD_BYTES : ARENA_BYTES;
        void *memory;
        LIERNE_TRY(lierne_segment_alloc(&memory, &areas->free_offset, &shm->own, size));
        lierne_shm_area *a = memory;
        a->next = areas->first;
        areas->first = a;
        areas->free = (char *)memory + HEAD_BYTES;
        areas->free_offset += HEAD_BYTES;
        areas->left = size - HEAD_BYTES;
    }
    *out = areas->free;
    *offset = areas->free_offset;
    areas->free += bytes;
    areas->free_offset += bytes;
    areas->left -= bytes;
    return LIERNE_OK;
}
