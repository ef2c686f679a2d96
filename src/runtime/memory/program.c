/* Recording: every copy and sum becomes a task, with its blocks in bytes and its lists in one
 * array, so that a device gets a program as three arrays.
 *
 * Tasks of a launch run at the same time. Copies of a stage are independent by the contract of
 * routes, sums are not: they have an order. So ranges that a launch reads and writes are kept, and
 * work that touches them begins the next launch. Ranges are wider than what is touched; that costs
 * a launch, never a result. */
#include "runtime/memory/program.h"

#define MOST_UNIT 16

lierne_status lierne_program_open(lierne_program *p) {
    const lierne_task_launch empty = {.first = (int64_t)p->tasks.count,
                                      .end = (int64_t)p->tasks.count,
                                      .dtype = LIERNE_NO_SUMS,
                                      .contiguous = true};
    p->written.count = p->read.count = 0;
    if (p->launches.count > 0 && p->launches.at[p->launches.count - 1].end == empty.first &&
        p->launches.at[p->launches.count - 1].first == empty.first) {
        return LIERNE_OK;
    }
    return LIERNE_VEC_PUSH(&p->launches, empty);
}

static lierne_program_span span_of(const lierne_operand *o, size_t size) {
    int64_t first = 0, end = 0;
    lierne_block_extend(o->block, &first, &end);
    return (lierne_program_span){o->region, o->shift + first * (int64_t)size,
                                 o->shift + end * (int64_t)size};
}

static bool overlap(const lierne_program_span *a, const lierne_program_span *b) {
    return a->region == b->region && a->first < b->end && b->first < a->end;
}

#define ANY_OVERLAPS(spans, with, found)                                                           \
    for (size_t i_ = 0; i_ < (spans)->count; i_++) {                                               \
        (found) |= overlap(&(spans)->at[i_], (with));                                              \
    }

/* Whether work must wait for what the open launch does. */
static bool depends(const lierne_program *p, const lierne_work *w) {
    bool found = false;
    lierne_program_span to = span_of(&w->to, w->size);
    ANY_OVERLAPS(&p->written, &to, found);
    ANY_OVERLAPS(&p->read, &to, found);
    for (size_t s = 0; s < w->nfrom; s++) {
        lierne_program_span from = span_of(&w->from[s], w->size);
        ANY_OVERLAPS(&p->written, &from, found);
    }
    return found;
}

/* One span per region: it grows. */
#define ADD_SPAN(spans, with)                                                                      \
    do {                                                                                           \
        size_t i_ = 0;                                                                             \
        while (i_ < (spans)->count && (spans)->at[i_].region != (with).region) {                   \
            i_++;                                                                                  \
        }                                                                                          \
        if (i_ == (spans)->count) {                                                                \
            LIERNE_TRY(LIERNE_VEC_PUSH((spans), (with)));                                          \
        }                                                                                          \
        lierne_program_span *own_ = &(spans)->at[i_];                                              \
        own_->first = (with).first < own_->first ? (with).first : own_->first;                     \
        own_->end = (with).end > own_->end ? (with).end : own_->end;                               \
    } while (0)

static lierne_status note(lierne_program *p, const lierne_work *w) {
    lierne_program_span to = span_of(&w->to, w->size);
    ADD_SPAN(&p->written, to);
    for (size_t s = 0; s < w->nfrom; s++) {
        lierne_program_span from = span_of(&w->from[s], w->size);
        ADD_SPAN(&p->read, from);
    }
    return LIERNE_OK;
}

static lierne_status add_list(lierne_program *p, const int64_t *rows, int64_t n, int64_t *at) {
    for (size_t i = 0; i < p->known.count; i++) {
        if (p->known.at[i].rows == rows && p->known.at[i].n >= n) {
            *at = p->known.at[i].at;
            return LIERNE_OK;
        }
    }
    lierne_program_list list = {rows, n, (int64_t)p->lists.count};
    *at = list.at;
    for (int64_t i = 0; i < n; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&p->lists, rows[i]));
    }
    return LIERNE_VEC_PUSH(&p->known, list);
}

static lierne_status add_block(lierne_program *p, const lierne_operand *o, size_t size) {
    const lierne_block *b = o->block;
    lierne_task_block block = {.base = o->base,
                               .offset = o->shift + b->offset * (int64_t)size,
                               .rows = -1};
    for (int d = 0; d < b->ndims; d++) {
        block.stride[d] = b->stride[d] * (int64_t)size;
    }
    if (b->rows) {
        LIERNE_TRY(add_list(p, b->rows, b->count[0], &block.rows));
    }
    return LIERNE_VEC_PUSH(&p->blocks, block);
}

/* The largest power of two up to `most` that divides n. */
static int64_t align_of(int64_t n, int64_t most) {
    int64_t low = n & -n;
    return n == 0 || low > most ? most : low;
}

/* Bytes of a piece: as many as lie together in every block, and at a multiple of themselves. */
static int32_t unit_of(const lierne_program *p, const lierne_task *t, size_t nblocks) {
    int run = t->ndims - 1;
    const lierne_task_block *blocks = &p->blocks.at[t->block];
    int64_t most = t->kind == LIERNE_TASK_REDUCE && t->size < MOST_UNIT / LIERNE_LANES
                       ? t->size * LIERNE_LANES
                       : MOST_UNIT;
    int64_t unit = align_of(t->size, most), together = run >= 0 ? t->count[run] : 1;
    for (size_t b = 0; b < nblocks && run >= 0; b++) {
        bool listed = run == 0 && blocks[b].rows >= 0;
        together = listed || blocks[b].stride[run] != t->size ? 1 : together;
    }
    unit = together > 1 ? align_of(together * t->size, most) : unit;
    for (size_t b = 0; b < nblocks; b++) {
        unit = align_of(blocks[b].offset, unit);
        for (int d = 0; d < t->ndims - (together > 1); d++) {
            unit = align_of(blocks[b].stride[d], unit);
        }
    }
    return (int32_t)unit;
}

/* Sorts the mentions of the rows of a list; without one all are of one row. Returns the number of
 * distinct rows. */
static int64_t sort_rows(lierne_keyed *order, lierne_keyed *spare, const int64_t *rows, int64_t n) {
    uint64_t most = 0;
    int64_t distinct = n > 0;
    for (int64_t i = 0; i < n; i++) {
        order[i] = (lierne_keyed){rows ? (uint64_t)rows[i] : 0, i};
        most = order[i].key > most ? order[i].key : most;
    }
    lierne_sort_keyed(order, spare, (size_t)n, most);
    for (int64_t i = 1; i < n; i++) {
        distinct += order[i].key != order[i - 1].key;
    }
    return distinct;
}

static lierne_status list_mentions(lierne_program *p, lierne_task *t, const lierne_keyed *order,
                                   int64_t n, int64_t distinct) {
    t->mentions = (int64_t)p->lists.count;
    for (int64_t i = 0; i < n; i++) {
        LIERNE_TRY(LIERNE_VEC_PUSH(&p->lists, order[i].value));
    }
    t->starts = (int64_t)p->lists.count;
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || order[i].key != order[i - 1].key) {
            LIERNE_TRY(LIERNE_VEC_PUSH(&p->lists, i));
        }
    }
    t->elements = t->elements / n * distinct;
    return LIERNE_VEC_PUSH(&p->lists, n);
}

/* Whether a source is part of the target's buffer, and shares elements with the target. */
static bool reads_target(const lierne_work *w) {
    bool found = false;
    lierne_program_span to = span_of(&w->to, w->size);
    for (size_t s = 0; s < w->nfrom; s++) {
        lierne_program_span from = span_of(&w->from[s], w->size);
        bool same = w->from[s].block == w->to.block && w->from[s].shift == w->to.shift;
        found |= !same && w->from[s].base == w->to.base && overlap(&from, &to);
    }
    return found;
}

/* Whether a sum adds to its target, and reads nothing else of what may be the same buffer. */
static bool adds_to_target(const lierne_work *w) {
    bool adds = w->kind == LIERNE_TASK_REDUCE && w->from[0].base == w->to.base &&
                w->from[0].block == w->to.block && w->from[0].shift == w->to.shift;
    for (size_t s = 1; s < w->nfrom; s++) {
        adds &= w->from[s].region != w->to.region;
    }
    return adds;
}

/* Where the target's list mentions a row twice, its mentions are worked on in their order; where
 * sources may be rows of the target, all rows are. */
static lierne_status order_mentions(lierne_program *p, lierne_task *t, const lierne_work *w) {
    lierne_keyed *order, *spare = NULL;
    const lierne_block *to = w->to.block;
    bool serial = w->kind == LIERNE_TASK_REDUCE && reads_target(w);
    size_t n = (to->rows || serial) && to->ndims > 0 ? (size_t)to->count[0] : 0;
    if (n < 2) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&order, n, sizeof *order));
    lierne_status status = lierne_alloc(&spare, n, sizeof *spare);
    if (status == LIERNE_OK) {
        int64_t distinct = sort_rows(order, spare, serial ? NULL : to->rows, (int64_t)n);
        status =
            distinct == (int64_t)n ? LIERNE_OK : list_mentions(p, t, order, (int64_t)n, distinct);
        t->keeps = t->starts >= 0 && !serial && adds_to_target(w);
    }
    lierne_mem_free(order);
    lierne_mem_free(spare);
    return status;
}

static bool is_contiguous(const lierne_work *w) {
    return w->kind == LIERNE_TASK_COPY && lierne_block_contiguous(w->to.block) &&
           lierne_block_contiguous(w->from[0].block);
}

static lierne_status add_task(lierne_program *p, const lierne_work *w) {
    const lierne_block *to = w->to.block;
    lierne_task_launch *launch = &p->launches.at[p->launches.count - 1];
    lierne_task t = {.kind = (int32_t)w->kind,
                     .ndims = to->ndims,
                     .size = (int32_t)w->size,
                     .reduction = (int32_t)w->reduction,
                     .divisor = w->divisor,
                     .elements = lierne_block_elements(to),
                     .block = (int64_t)p->blocks.count,
                     .nfrom = (int64_t)w->nfrom,
                     .starts = -1,
                     .first_tile = launch->tiles};
    for (int d = 0; d < to->ndims; d++) {
        t.count[d] = to->count[d];
    }
    LIERNE_TRY(add_block(p, &w->to, w->size));
    for (size_t s = 0; s < w->nfrom; s++) {
        LIERNE_TRY(add_block(p, &w->from[s], w->size));
    }
    t.unit = unit_of(p, &t, w->nfrom + 1);
    LIERNE_TRY(order_mentions(p, &t, w));
    launch->tiles += (t.elements * t.size + LIERNE_TILE - 1) / LIERNE_TILE;
    launch->dtype = w->kind == LIERNE_TASK_REDUCE ? (int)w->dtype : launch->dtype;
    launch->contiguous &= is_contiguous(w);
    LIERNE_TRY(LIERNE_VEC_PUSH(&p->tasks, t));
    launch->end = (int64_t)p->tasks.count;
    return LIERNE_OK;
}

/* A kernel sums one dtype. */
static bool another_dtype(const lierne_program *p, const lierne_work *w) {
    int dtype = p->launches.at[p->launches.count - 1].dtype;
    return w->kind == LIERNE_TASK_REDUCE && dtype != LIERNE_NO_SUMS && dtype != (int)w->dtype;
}

lierne_status lierne_program_add(lierne_program *p, const lierne_work *work, bool ordered) {
    if (lierne_block_elements(work->to.block) == 0) {
        return LIERNE_OK;
    }
    if (another_dtype(p, work) || (ordered && depends(p, work))) {
        LIERNE_TRY(lierne_program_open(p));
    }
    if (ordered) {
        LIERNE_TRY(note(p, work));
    }
    return add_task(p, work);
}

bool lierne_program_fits(const lierne_program *p) {
    return lierne_program_bytes(p) <= p->reserved;
}

/* A copy is a task of two blocks. */
lierne_status lierne_program_reserve(lierne_program *p, size_t copies) {
    if (p->tasks.capacity < copies) {
        LIERNE_TRY(lierne_realloc(&p->tasks.at, copies, sizeof *p->tasks.at));
        p->tasks.capacity = copies;
    }
    if (p->blocks.capacity < 2 * copies) {
        LIERNE_TRY(lierne_realloc(&p->blocks.at, 2 * copies, sizeof *p->blocks.at));
        p->blocks.capacity = 2 * copies;
    }
    size_t bytes = copies * (sizeof *p->tasks.at + 2 * sizeof *p->blocks.at);
    p->reserved = bytes > p->reserved ? bytes : p->reserved;
    return LIERNE_OK;
}

void lierne_program_clear(lierne_program *p) {
    p->launches.count = p->tasks.count = p->blocks.count = 0;
    p->lists.count = p->known.count = p->written.count = p->read.count = 0;
}

void lierne_program_destroy(lierne_program *p) {
    lierne_mem_free(p->launches.at);
    lierne_mem_free(p->tasks.at);
    lierne_mem_free(p->blocks.at);
    lierne_mem_free(p->lists.at);
    lierne_mem_free(p->known.at);
    lierne_mem_free(p->written.at);
    lierne_mem_free(p->read.at);
    *p = (lierne_program){.device = p->device};
}

void lierne_task_call_align(lierne_task_call *call, size_t nbases) {
    uintptr_t bits = MOST_UNIT;
    for (size_t i = 0; i < nbases; i++) {
        bits |= (uintptr_t)call->bases[i];
    }
    call->align = (int32_t)(bits & -bits);
}
