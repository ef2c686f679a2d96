/* Group calls of bounded size.
 *
 * Why no rank can wait forever: take the lowest group call that is not complete on some rank. Every
 * peer of it has the same messages in its call of the same number, and has completed all lower
 * ones, so it is in that call, too, and the messages between them can move without any buffer. */
#include "backend/nccl/group_calls.h"

#include <string.h>

int64_t lierne_group_call_of(int src, int dst, int64_t index, int world, int most) {
    int64_t key = ((int64_t)dst - src + world) % world;
    return (index * world + key) / (most / 2);
}

lierne_status lierne_group_cutter_create(lierne_group_cutter *cutter, int rank, int world,
                                         size_t capacity) {
    cutter->rank = rank;
    cutter->world = world;
    LIERNE_TRY(lierne_alloc(&cutter->counts, 2 * (size_t)world, sizeof *cutter->counts));
    LIERNE_TRY(lierne_alloc(&cutter->order, capacity, sizeof *cutter->order));
    return lierne_alloc(&cutter->spare, capacity, sizeof *cutter->spare);
}

void lierne_group_cutter_destroy(lierne_group_cutter *cutter) {
    lierne_mem_free(cutter->counts);
    lierne_mem_free(cutter->order);
    lierne_mem_free(cutter->spare);
    *cutter = (lierne_group_cutter){0};
}

void lierne_group_cut(lierne_group_cutter *cutter, const lierne_posting *postings, size_t n,
                      int most) {
    int64_t last = 0;
    memset(cutter->counts, 0, 2 * (size_t)cutter->world * sizeof *cutter->counts);
    for (size_t i = 0; i < n; i++) {
        const lierne_posting *p = &postings[i];
        int src = p->receives ? p->peer : cutter->rank, dst = p->receives ? cutter->rank : p->peer;
        int64_t index = cutter->counts[p->peer + (p->receives ? cutter->world : 0)]++;
        int64_t call = lierne_group_call_of(src, dst, index, cutter->world, most);
        cutter->order[i] = (lierne_keyed){(uint64_t)call, (int64_t)i};
        last = call > last ? call : last;
    }
    lierne_sort_keyed(cutter->order, cutter->spare, n, (uint64_t)last);
}
