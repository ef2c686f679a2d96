/* Memory that several ranks of a node write and read together.
 *
 * Each is a segment of its own and not a part of its creator's: a segment lives in every process
 * that has mapped it, so no rank need ask the others before it closes its own. */
#include "backend/shm/shm_transport.h"

static lierne_status close_failed(lierne_segment *segment, lierne_status status) {
    lierne_segment_close(segment);
    lierne_mem_free(segment);
    return status;
}

lierne_status lierne_shm_shared_create(void **shared, void **memory, size_t bytes,
                                       lierne_record *name) {
    lierne_segment *segment;
    uint64_t offset = 0;
    LIERNE_TRY(lierne_alloc(&segment, 1, sizeof *segment));
    lierne_status status = lierne_segment_open(segment);
    if (status == LIERNE_OK) {
        status = lierne_segment_alloc(memory, &offset, segment, bytes);
    }
    if (status != LIERNE_OK) {
        return close_failed(segment, status);
    }
    *name = (lierne_record){{(int64_t)segment->name.process, (int64_t)segment->name.descriptor,
                             (int64_t)segment->name.token, (int64_t)offset}};
    *shared = segment;
    return LIERNE_OK;
}

lierne_status lierne_shm_shared_open(void **shared, void **memory, size_t bytes,
                                     const lierne_record *name) {
    lierne_segment *segment;
    LIERNE_TRY(lierne_alloc(&segment, 1, sizeof *segment));
    lierne_status status =
        lierne_segment_attach(segment, (lierne_segment_name){(uint64_t)name->words[0],
                                                             (uint64_t)name->words[1],
                                                             (uint64_t)name->words[2]});
    if (status != LIERNE_OK) {
        lierne_mem_free(segment);
        return status;
    }
    *memory = lierne_segment_address(segment, (uint64_t)name->words[3], bytes);
    if (!*memory) {
        return close_failed(segment, LIERNE_ERR_UNSUPPORTED);
    }
    *shared = segment;
    return LIERNE_OK;
}

void lierne_shm_shared_close(void *shared) {
    if (shared) {
        close_failed(shared, LIERNE_OK);
    }
}
