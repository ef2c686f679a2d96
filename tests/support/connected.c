/* A record has what its rank knows, so that either end sees one that is another message's. */
#include "connected.h"

#include "base/base.h"
#include "runtime/memory/host.h"

size_t test_part_bytes(const lierne_part *part) {
    int64_t elements = 0;
    for (size_t i = 0; i < part->nblocks; i++) {
        elements += lierne_block_elements(&part->blocks[i]);
    }
    return (size_t)elements * part->size;
}

void test_part_copy(const lierne_part *to, const lierne_part *from) {
    lierne_host_copy_blocks(test_part_bytes(to), to->size, (void *)to->base, to->blocks,
                            to->nblocks, from->base, from->blocks, from->nblocks);
}

void test_end_describe(test_end *e, const lierne_posting *p, int rank, const void *slot,
                       lierne_record *record) {
    e->receives = p->receives;
    e->peer = p->peer;
    e->bytes = p->bytes;
    record->words[0] = (int64_t)(uintptr_t)slot;
    record->words[1] = rank;
    record->words[2] = p->peer;
    record->words[3] = p->receives;
    record->words[7] = (int64_t)p->bytes;
}

lierne_status test_end_connect(test_end *e, const lierne_remote *remote, int rank) {
    bool same = remote->nrecords > 0 && (e->receives || remote->nparts == 0);
    for (size_t k = 0; k < remote->nrecords; k++) {
        const int64_t *words = remote->records[k].words;
        same &= words[1] == e->peer && words[2] == rank && words[3] == !e->receives &&
                words[7] == (int64_t)e->bytes;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < remote->nparts; i++) {
        bytes += test_part_bytes(&remote->parts[i]);
        same &= remote->parts[i].base == NULL && remote->parts[i].index == 0;
    }
    e->remote = *remote;
    return same && (!e->receives || bytes == e->bytes)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "rank %d: rank %d described another message",
                             rank, e->peer);
}

bool test_end_knows(const test_end *e, const void *slot) {
    bool known = false;
    for (size_t k = 0; k < e->remote.nrecords; k++) {
        known |= (const void *)(uintptr_t)e->remote.records[k].words[0] == slot;
    }
    return known;
}
