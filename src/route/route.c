/* Building routes, counting and printing them.
 *
 * A route holds no pointer to data and no function: transports, checks, reports and pictures read
 * the same lists. Messages own their blocks, so that a builder can fill several at once. */
#include "route/route.h"

#include <limits.h>
#include <string.h>

/* The index lists of blocks. Routes of one context hold them: no two threads at once. */
typedef struct shared_lists {
    int routes;
    LIERNE_VEC(int64_t *) lists;
} shared_lists;

/* What lierne_route_create makes: the route, and the lists of its blocks, or NULL. */
typedef struct owning_route {
    lierne_route route;
    bool lent; /* see lierne_route_lend */
    shared_lists *shared;
} owning_route;

lierne_block lierne_block_range(int64_t offset, int64_t count) {
    return (lierne_block){.offset = offset, .ndims = 1, .count = {count}, .stride = {1}};
}

lierne_block lierne_block_rows(int64_t first, int64_t n, int64_t width, int64_t stride) {
    return (lierne_block){.offset = first * stride,
                          .ndims = 2,
                          .count = {n, width},
                          .stride = {stride, 1}};
}

/* Whether a list counts up by one. */
static bool consecutive(const int64_t *rows, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        if (rows[i] != rows[0] + i) {
            return false;
        }
    }
    return true;
}

lierne_status lierne_route_list(lierne_route *route, const int64_t **rows, int64_t n) {
    owning_route *owner = (owning_route *)route;
    int64_t *copy;
    if (!owner->shared) {
        LIERNE_TRY(lierne_alloc(&owner->shared, 1, sizeof *owner->shared));
        owner->shared->routes = 1;
    }
    LIERNE_TRY(lierne_alloc_unset(&copy, (size_t)n, sizeof *copy));
    memcpy(copy, *rows, (size_t)n * sizeof *copy);
    *rows = copy;
    lierne_status status = LIERNE_VEC_PUSH(&owner->shared->lists, copy);
    if (status != LIERNE_OK) {
        lierne_mem_free(copy);
    }
    return status;
}

lierne_status lierne_route_rows(lierne_route *route, lierne_block *block, const int64_t *rows,
                                int64_t n, int64_t width, int64_t stride) {
    if (consecutive(rows, n)) {
        *block = lierne_block_rows(n ? rows[0] : 0, n, width, stride);
        return LIERNE_OK;
    }
    *block = (lierne_block){.ndims = 2, .count = {n, width}, .stride = {stride, 1}};
    block->rows = rows;
    return lierne_route_list(route, &block->rows, n);
}

lierne_block lierne_block_packed(const lierne_block *block, int64_t offset) {
    lierne_block packed = *block;
    int64_t stride = 1;
    packed.rows = NULL;
    for (int d = packed.ndims - 1; d >= 0; d--) {
        packed.stride[d] = stride;
        stride *= packed.count[d];
    }
    packed.offset = offset;
    return packed;
}

lierne_block lierne_block_box(int naxes, const int64_t *shape, const int64_t *local,
                              const int64_t *size) {
    lierne_block block = {.ndims = naxes};
    int64_t stride = 1;
    for (int a = naxes - 1; a >= 0; a--) {
        block.count[a] = size[a];
        block.stride[a] = stride;
        block.offset += local[a] * stride;
        stride *= shape[a];
    }
    return block;
}

static void drop_loop(lierne_block *block, int d) {
    int rest = block->ndims - d - 1;
    memmove(&block->count[d], &block->count[d + 1], (size_t)rest * sizeof block->count[0]);
    memmove(&block->stride[d], &block->stride[d + 1], (size_t)rest * sizeof block->stride[0]);
    block->ndims--;
}

/* Whether loop d continues where loop d + 1 ends, in all blocks. */
static bool continues(lierne_block *const *blocks, int n, int d) {
    for (int i = 0; i < n; i++) {
        const lierne_block *b = blocks[i];
        if (b->stride[d] != b->count[d + 1] * b->stride[d + 1]) {
            return false;
        }
    }
    return true;
}

static bool any_list(lierne_block *const *blocks, int n) {
    for (int i = 0; i < n; i++) {
        if (blocks[i]->rows) {
            return true;
        }
    }
    return false;
}

void lierne_blocks_join(lierne_block *const *blocks, int n) {
    if (any_list(blocks, n)) {
        return;
    }
    for (int d = blocks[0]->ndims - 1; d >= 0; d--) {
        bool single = blocks[0]->count[d] == 1 && blocks[0]->ndims > 1;
        bool joined = !single && d + 1 < blocks[0]->ndims && continues(blocks, n, d);
        for (int i = 0; i < n && (single || joined); i++) {
            if (joined) {
                blocks[i]->count[d + 1] *= blocks[i]->count[d];
            }
            drop_loop(blocks[i], d);
        }
    }
    /* A lone loop of one element has no stride to speak of. */
    for (int i = 0; i < n; i++) {
        if (blocks[i]->ndims == 1 && blocks[i]->count[0] == 1) {
            blocks[i]->stride[0] = 1;
        }
    }
}

int64_t lierne_block_elements(const lierne_block *block) {
    int64_t n = 1;
    for (int d = 0; d < block->ndims; d++) {
        n *= block->count[d];
    }
    return n;
}

void lierne_block_extend(const lierne_block *block, int64_t *first, int64_t *end) {
    int64_t low = block->offset, high = block->offset, least = 0, most = 0;
    if (lierne_block_elements(block) == 0) {
        return;
    }
    for (int d = block->rows ? 1 : 0; d < block->ndims; d++) {
        high += (block->count[d] - 1) * block->stride[d];
    }
    for (int64_t i = 0; block->rows && i < block->count[0]; i++) {
        least = i == 0 || block->rows[i] < least ? block->rows[i] : least;
        most = i == 0 || block->rows[i] > most ? block->rows[i] : most;
    }
    low += least * block->stride[0];
    high += most * block->stride[0] + 1;
    bool empty = *first == *end;
    *first = empty || low < *first ? low : *first;
    *end = empty || high > *end ? high : *end;
}

lierne_place lierne_place_at(lierne_buffer buffer, lierne_block block) {
    return (lierne_place){.buffer = buffer, .block = block};
}

bool lierne_place_same(const lierne_place *a, const lierne_place *b) {
    const lierne_block *x = &a->block, *y = &b->block;
    bool same = a->buffer == b->buffer && a->index == b->index && x->offset == y->offset &&
                x->ndims == y->ndims && !x->rows == !y->rows;
    for (int d = 0; same && d < x->ndims; d++) {
        same = x->count[d] == y->count[d] && x->stride[d] == y->stride[d];
    }
    return same && (x->rows == y->rows ||
                    memcmp(x->rows, y->rows, (size_t)x->count[0] * sizeof *x->rows) == 0);
}

lierne_status lierne_route_create(lierne_route **out, int rank, int64_t in, int64_t out_elements) {
    LIERNE_TRY(lierne_alloc(out, 1, sizeof(owning_route)));
    (*out)->rank = rank;
    (*out)->elements[LIERNE_BUFFER_IN] = in;
    (*out)->elements[LIERNE_BUFFER_OUT] = out_elements;
    return LIERNE_OK;
}

static void free_messages(lierne_messages *messages, bool lent) {
    for (size_t i = 0; i < messages->count && !lent; i++) {
        lierne_mem_free(messages->at[i].blocks.at);
    }
    lierne_mem_free(messages->at);
}

static void free_ops(lierne_ops *ops) {
    for (size_t i = 0; i < ops->count; i++) {
        lierne_mem_free(ops->at[i].from.at);
    }
    lierne_mem_free(ops->at);
}

void lierne_route_share_lists(lierne_route *route, const lierne_route *from) {
    shared_lists *shared = ((const owning_route *)from)->shared;
    ((owning_route *)route)->shared = shared;
    if (shared) {
        shared->routes++;
    }
}

static void drop_lists(shared_lists *shared) {
    if (!shared || --shared->routes > 0) {
        return;
    }
    for (size_t i = 0; i < shared->lists.count; i++) {
        lierne_mem_free(shared->lists.at[i]);
    }
    lierne_mem_free(shared->lists.at);
    lierne_mem_free(shared);
}

void lierne_route_destroy(lierne_route *route) {
    if (!route) {
        return;
    }
    owning_route *owner = (owning_route *)route;
    for (size_t i = 0; i < route->stages.count; i++) {
        lierne_stage *stage = &route->stages.at[i];
        free_messages(&stage->sends, owner->lent);
        free_messages(&stage->recvs, owner->lent);
        if (!owner->lent) {
            free_ops(&stage->copies);
            free_ops(&stage->sums);
        }
    }
    drop_lists(owner->shared);
    lierne_mem_free(route->stages.at);
    lierne_mem_free(route);
}

lierne_status lierne_route_add_stage(lierne_route *route, lierne_stage **stage) {
    lierne_stage empty = {.group = -1};
    LIERNE_TRY(LIERNE_LIST_PUSH(&route->stages, empty));
    *stage = &route->stages.at[route->stages.count - 1];
    return LIERNE_OK;
}

void lierne_route_lend(lierne_route *route) {
    ((owning_route *)route)->lent = true;
}

lierne_status lierne_route_scratch(lierne_route *route, int64_t elements, int64_t *offset) {
    *offset = route->elements[LIERNE_BUFFER_SCRATCH];
    if (!lierne_add_i64(*offset, elements, &route->elements[LIERNE_BUFFER_SCRATCH])) {
        return LIERNE_FAIL(LIERNE_ERR_OVERFLOW, "scratch of %lld and %lld elements",
                           (long long)*offset, (long long)elements);
    }
    return LIERNE_OK;
}

lierne_status lierne_messages_add(lierne_messages *messages, int peer, lierne_buffer buffer,
                                  lierne_message **message) {
    lierne_message empty = {.peer = peer, .buffer = buffer};
    LIERNE_TRY(LIERNE_LIST_PUSH(messages, empty));
    *message = &messages->at[messages->count - 1];
    return LIERNE_OK;
}

bool lierne_message_extend(lierne_message *message, lierne_block *block) {
    lierne_blocks_join((lierne_block *const[]){block}, 1);
    message->elements += lierne_block_elements(block);
    if (message->blocks.count == 0) {
        return false;
    }
    lierne_block *last = &message->blocks.at[message->blocks.count - 1];
    bool follows = lierne_block_contiguous(last) && lierne_block_contiguous(block) &&
                   last->offset + last->count[0] == block->offset;
    last->count[0] += follows ? block->count[0] : 0;
    return follows;
}

lierne_status lierne_message_add(lierne_message *message, lierne_block block) {
    return lierne_message_extend(message, &block) ? LIERNE_OK
                                                  : LIERNE_LIST_PUSH(&message->blocks, block);
}

lierne_status lierne_messages_put(lierne_messages *messages, int peer, lierne_buffer buffer,
                                  lierne_block block) {
    lierne_message *message;
    LIERNE_TRY(lierne_messages_add(messages, peer, buffer, &message));
    return lierne_message_add(message, block);
}

lierne_status lierne_ops_add(lierne_ops *ops, lierne_place to, lierne_op **op) {
    lierne_op empty = {.to = to};
    LIERNE_TRY(LIERNE_LIST_PUSH(ops, empty));
    *op = &ops->at[ops->count - 1];
    return LIERNE_OK;
}

lierne_status lierne_op_add(lierne_op *op, lierne_place from) {
    return LIERNE_LIST_PUSH(&op->from, from);
}

lierne_status lierne_op_join(lierne_op *op) {
    size_t n = op->from.count;
    lierne_block **blocks;
    LIERNE_TRY(lierne_alloc(&blocks, n + 1, sizeof *blocks));
    for (size_t i = 0; i < n; i++) {
        blocks[i] = &op->from.at[i].block;
    }
    blocks[n] = &op->to.block;
    lierne_blocks_join(blocks, (int)n + 1);
    lierne_mem_free(blocks);
    return LIERNE_OK;
}

lierne_status lierne_ops_put(lierne_ops *ops, lierne_place to, bool accumulate,
                             const lierne_place *from, int n) {
    lierne_op *op;
    LIERNE_TRY(lierne_ops_add(ops, to, &op));
    op->accumulate = accumulate;
    for (int i = 0; i < n; i++) {
        LIERNE_TRY(lierne_op_add(op, from[i]));
    }
    return lierne_op_join(op);
}

lierne_route_counts lierne_route_count(const lierne_route *route) {
    lierne_route_counts counts = {0};
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *stage = &route->stages.at[i];
        for (size_t m = 0; m < stage->sends.count; m++) {
            counts.sent += stage->sends.at[m].elements;
        }
        for (size_t m = 0; m < stage->recvs.count; m++) {
            counts.received += stage->recvs.at[m].elements;
        }
        for (size_t o = 0; o < stage->copies.count; o++) {
            counts.local += lierne_block_elements(&stage->copies.at[o].to.block);
        }
        counts.sent_messages += (int64_t)stage->sends.count;
        counts.received_messages += (int64_t)stage->recvs.count;
    }
    return counts;
}

/* The lowest peer above `above`; INT_MAX: none. */
static int next_peer(const lierne_route *route, bool sends, int above) {
    int next = INT_MAX;
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *stage = &route->stages.at[i];
        const lierne_messages *messages = sends ? &stage->sends : &stage->recvs;
        for (size_t m = 0; m < messages->count; m++) {
            int peer = messages->at[m].peer;
            bool nearer = peer > above && peer < next && messages->at[m].elements > 0;
            next = nearer ? peer : next;
        }
    }
    return next;
}

int64_t lierne_route_count_peers(const lierne_route *route, bool sends) {
    int64_t n = 0;
    for (int peer = next_peer(route, sends, -1); peer < INT_MAX;
         peer = next_peer(route, sends, peer)) {
        n++;
    }
    return n;
}

static const char *const buffer_names[LIERNE_BUFFER_COUNT] = {"in", "out", "scratch"};

/* "8:16" and "8:16:2" are elements as Python's slices have them; "8 + 4/16 x 2" are 4 times 2, the
 * first at 8, and 16 from one to the next. */
static void print_loops(lierne_text *text, const lierne_block *block) {
    for (int d = 0; d < block->ndims; d++) {
        lierne_text_add(text, d ? " x %lld" : " + %lld", (long long)block->count[d]);
        if (d == 0 && block->rows) {
            lierne_text_add(text, " listed");
        }
        if (block->stride[d] != 1) {
            lierne_text_add(text, "/%lld", (long long)block->stride[d]);
        }
    }
}

static void print_place(lierne_text *text, lierne_buffer buffer, const lierne_block *block) {
    bool slice = block->ndims == 1 && !block->rows && block->stride[0] > 0;
    lierne_text_add(text, "%s[%lld", buffer_names[buffer], (long long)block->offset);
    if (!slice) {
        print_loops(text, block);
    } else if (block->stride[0] == 1) {
        lierne_text_add(text, ":%lld", (long long)(block->offset + block->count[0]));
    } else {
        int64_t end = block->offset + (block->count[0] - 1) * block->stride[0] + 1;
        lierne_text_add(text, ":%lld:%lld", (long long)end, (long long)block->stride[0]);
    }
    lierne_text_add(text, "]");
}

static void print_messages(lierne_text *text, const char *verb, const lierne_messages *messages) {
    for (size_t i = 0; i < messages->count; i++) {
        const lierne_message *m = &messages->at[i];
        lierne_text_add(text, "  %s %d, %lld elements:", verb, m->peer, (long long)m->elements);
        for (size_t b = 0; b < m->blocks.count; b++) {
            lierne_text_add(text, " ");
            print_place(text, m->buffer, &m->blocks.at[b]);
        }
        lierne_text_add(text, "\n");
    }
}

/* Of each reduction that a route may have. */
static const char *const reduction_names[] = {"", " maximum of", " minimum of", ""};
static const char *const separators[] = {" + ", ", ", ", ", " * "};

static void print_ops(lierne_text *text, const lierne_ops *ops) {
    for (size_t i = 0; i < ops->count; i++) {
        const lierne_op *op = &ops->at[i];
        lierne_text_add(text, "  ");
        print_place(text, op->to.buffer, &op->to.block);
        lierne_text_add(text, op->accumulate ? " (+)=" : " =");
        lierne_text_add(text, "%s%s", reduction_names[op->reduction], op->from.count ? "" : " 0");
        for (size_t s = 0; s < op->from.count; s++) {
            lierne_text_add(text, "%s", s ? separators[op->reduction] : " ");
            print_place(text, op->from.at[s].buffer, &op->from.at[s].block);
        }
        lierne_text_add(text, op->divisor > 1 ? ", divided by %lld\n" : "\n",
                        (long long)op->divisor);
    }
}

void lierne_route_print(const lierne_route *route, lierne_text *text) {
    lierne_text_add(text, "rank %d: in %lld, out %lld, scratch %lld elements\n", route->rank,
                    (long long)route->elements[LIERNE_BUFFER_IN],
                    (long long)route->elements[LIERNE_BUFFER_OUT],
                    (long long)route->elements[LIERNE_BUFFER_SCRATCH]);
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *stage = &route->stages.at[i];
        lierne_text_add(text,
                        stage->group < 0 ? "stage %zu\n"
                                         : "stage %zu, all-gather of group "
                                           "%d\n",
                        i, stage->group);
        print_messages(text, "send to", &stage->sends);
        print_messages(text, "receive from", &stage->recvs);
        print_ops(text, &stage->copies);
        print_ops(text, &stage->sums);
    }
}

/* Where peers come and go with segments, some messages have nothing. */
static bool receives(const lierne_stage *stage) {
    for (size_t m = 0; m < stage->recvs.count; m++) {
        if (stage->recvs.at[m].elements > 0) {
            return true;
        }
    }
    return false;
}

int64_t lierne_route_alias(const lierne_route *route, int64_t untouched) {
    int64_t offset = -1, covered = 0;
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_stage *stage = &route->stages.at[i];
        if (receives(stage) || stage->sums.count) {
            return -1;
        }
        for (size_t o = 0; o < stage->copies.count; o++) {
            const lierne_op *op = &stage->copies.at[o];
            const lierne_place *from = op->from.count == 1 ? &op->from.at[0] : NULL;
            if (!from || from->buffer != LIERNE_BUFFER_IN || op->to.buffer != LIERNE_BUFFER_OUT ||
                !lierne_block_contiguous(&op->to.block) || !lierne_block_contiguous(&from->block) ||
                (covered > 0 && from->block.offset - op->to.block.offset != offset)) {
                return -1;
            }
            offset = from->block.offset - op->to.block.offset;
            covered += op->to.block.count[0];
        }
    }
    bool inside = offset >= 0 &&
                  offset + route->elements[LIERNE_BUFFER_OUT] <= route->elements[LIERNE_BUFFER_IN];
    return covered > 0 && inside && covered + untouched == route->elements[LIERNE_BUFFER_OUT]
               ? offset
               : -1;
}
