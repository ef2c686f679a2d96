/* Maps of one axis, turned round: from the owner of every index to the spans of every owner, so
 * that a question about one rank costs what that rank holds. */
#include "layout/layout.h"

bool lierne_is_axis_map(const lierne_placement *p) {
    return p->kind == LIERNE_PLACEMENT_SHARD_ROWS && p->axis2 < 0;
}

/* The end of the run of one owner that begins at an index. */
static int64_t run_end(const int32_t *rows, int64_t n, int64_t start) {
    int64_t end = start + 1;
    while (end < n && rows[end] == rows[start]) {
        end++;
    }
    return end;
}

lierne_status lierne_owners_create(lierne_layout *layout, int d) {
    const int32_t *rows = layout->placements[d].rows;
    int64_t n = lierne_extent(layout, layout->placements[d].axis);
    size_t size = (size_t)layout->sizes[d];
    if (!layout->owners) {
        LIERNE_TRY(lierne_alloc(&layout->owners, LIERNE_MAX_DIMS, sizeof *layout->owners));
    }
    lierne_owners *owners = &layout->owners[d];
    LIERNE_TRY(lierne_alloc(&owners->first, size + 2, sizeof *owners->first));
    size_t *next = owners->first + 1; /* ends as the first of the owner after */
    for (int64_t i = 0; i < n; i = run_end(rows, n, i)) {
        next[rows[i] + 1]++;
    }
    for (size_t c = 0; c < size; c++) {
        next[c + 1] += next[c];
    }
    LIERNE_TRY(lierne_alloc(&owners->at, next[size], sizeof *owners->at));
    for (int64_t i = 0, end; i < n; i = end) {
        end = run_end(rows, n, i);
        owners->at[next[rows[i]]++] = (lierne_span){.start = i, .size = end - i};
    }
    return LIERNE_OK;
}

void lierne_owners_destroy(lierne_layout *layout) {
    for (int d = 0; layout->owners && d < LIERNE_MAX_DIMS; d++) {
        lierne_mem_free(layout->owners[d].first);
        lierne_mem_free(layout->owners[d].at);
    }
    lierne_mem_free(layout->owners);
}

/* The first span of an owner that ends behind an index. */
static size_t find_piece(const lierne_owners *owners, int owner, int64_t index) {
    size_t low = owners->first[owner], high = owners->first[owner + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (owners->at[middle].start + owners->at[middle].size <= index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Appends what an owner has of a span. */
static lierne_status keep(const lierne_owners *owners, int owner, const lierne_span *span,
                          lierne_span_list *list) {
    int64_t end = span->start + span->size;
    for (size_t i = find_piece(owners, owner, span->start); i < owners->first[owner + 1]; i++) {
        const lierne_span *own = &owners->at[i];
        int64_t own_end = own->start + own->size;
        int64_t from = own->start > span->start ? own->start : span->start;
        int64_t to = own_end < end ? own_end : end;
        if (from >= to) {
            break;
        }
        LIERNE_TRY(LIERNE_VEC_PUSH(list, ((lierne_span){.start = from, .size = to - from})));
    }
    return LIERNE_OK;
}

lierne_status lierne_owners_keep(const lierne_owners *owners, int owner, lierne_spans *spans) {
    lierne_span_list kept = {0};
    lierne_status status = LIERNE_OK;
    for (size_t i = 0; i < spans->count && status == LIERNE_OK; i++) {
        status = keep(owners, owner, &spans->at[i], &kept);
    }
    lierne_mem_free(spans->list.at);
    spans->list = kept;
    spans->at = kept.at;
    spans->count = kept.count;
    return status;
}
