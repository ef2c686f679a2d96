/* Checking routes without running them.
 *
 * One rank: a map with a byte per element of out and scratch follows what was written. Reading what
 * was never written, writing an element of out twice, or leaving an owned one unwritten is an
 * error. So is a receive or copy into an element that its stage sends, receives or copies. All
 * ranks: message k from a to b in a stage must meet message k that b expects from a in that stage,
 * with as many elements. */
#include "route/route.h"

#include <stdlib.h>

typedef struct checker {
    const lierne_route *route;
    size_t stage;
    bool in_flight; /* sends, receives and copies, which come in any order */
    unsigned char *written[LIERNE_BUFFER_COUNT]; /* NULL for in */
} checker;

static lierne_status bad(const checker *c, const char *what, lierne_buffer buffer, int64_t at) {
    static const char *const names[LIERNE_BUFFER_COUNT] = {"in", "out", "scratch"};
    return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d stage %zu: element %lld of %s %s (it has %lld)",
                       c->route->rank, c->stage, (long long)at, names[buffer], what,
                       (long long)c->route->elements[buffer]);
}

typedef enum access { READ, WRITE_ONCE, WRITE } access;
/* What the map has of an element. */
enum { WRITTEN = 1, IN_FLIGHT = 2 };

static lierne_status touch(checker *c, lierne_buffer buffer, int64_t at, access how) {
    if (at < 0 || at >= c->route->elements[buffer]) {
        return bad(c, "is outside", buffer, at);
    }
    if (buffer == LIERNE_BUFFER_IN) {
        return how == READ ? LIERNE_OK : bad(c, "is written", buffer, at);
    }
    unsigned char *w = &c->written[buffer][at];
    if (how == READ && !*w) {
        return bad(c, "is read before it was written", buffer, at);
    }
    if (how == WRITE_ONCE && *w && buffer == LIERNE_BUFFER_OUT) {
        return bad(c, "is written twice", buffer, at);
    }
    if (how != READ && c->in_flight && (*w & IN_FLIGHT)) {
        return bad(c, "is written while its stage sends, receives or copies it", buffer, at);
    }
    *w |= (unsigned char)(WRITTEN | (c->in_flight ? IN_FLIGHT : 0));
    return LIERNE_OK;
}

static int64_t offset_of(const lierne_block *block, const int64_t *at) {
    int64_t offset = block->offset;
    for (int d = 0; d < block->ndims; d++) {
        offset += (d == 0 && block->rows ? block->rows[at[0]] : at[d]) * block->stride[d];
    }
    return offset;
}

static lierne_status walk(checker *c, lierne_buffer buffer, const lierne_block *block, access how) {
    int64_t at[LIERNE_MAX_AXES] = {0};
    if (lierne_block_elements(block) == 0) {
        return LIERNE_OK;
    }
    for (int d = 0; d >= 0;) {
        LIERNE_TRY(touch(c, buffer, offset_of(block, at), how));
        for (d = block->ndims - 1; d >= 0; d--) {
            if (++at[d] < block->count[d]) {
                break;
            }
            at[d] = 0;
        }
    }
    return LIERNE_OK;
}

static lierne_status walk_messages(checker *c, const lierne_messages *messages, access how) {
    for (size_t m = 0; m < messages->count; m++) {
        const lierne_message *message = &messages->at[m];
        int64_t elements = 0;
        for (size_t b = 0; b < message->blocks.count; b++) {
            LIERNE_TRY(walk(c, message->buffer, &message->blocks.at[b], how));
            elements += lierne_block_elements(&message->blocks.at[b]);
        }
        if (elements != message->elements || message->peer == c->route->rank) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "rank %d stage %zu: message with rank %d counts "
                               "%lld elements and has %lld",
                               c->route->rank, c->stage, message->peer,
                               (long long)message->elements, (long long)elements);
        }
    }
    return LIERNE_OK;
}

static lierne_status walk_ops(checker *c, const lierne_ops *ops, access reads, bool writes) {
    for (size_t o = 0; o < ops->count; o++) {
        const lierne_op *op = &ops->at[o];
        bool updates = false;
        for (size_t s = 0; s < op->from.count; s++) {
            const lierne_place *from = &op->from.at[s];
            if (lierne_block_elements(&from->block) != lierne_block_elements(&op->to.block)) {
                return LIERNE_FAIL(LIERNE_ERR_INVALID,
                                   "rank %d stage %zu: operation of %lld elements "
                                   "has a source of %lld",
                                   c->route->rank, c->stage,
                                   (long long)lierne_block_elements(&op->to.block),
                                   (long long)lierne_block_elements(&from->block));
            }
            updates |= lierne_place_same(from, &op->to);
            if (reads == READ) {
                LIERNE_TRY(walk(c, from->buffer, &from->block, READ));
            }
        }
        if (writes) {
            /* Zeroing and adding to itself are not second results. */
            access how = updates || op->from.count == 0 ? WRITE : WRITE_ONCE;
            LIERNE_TRY(walk(c, op->to.buffer, &op->to.block, how));
        }
    }
    return LIERNE_OK;
}

static void land(checker *c) {
    c->in_flight = false;
    for (int b = LIERNE_BUFFER_OUT; b < LIERNE_BUFFER_COUNT; b++) {
        for (int64_t i = 0; i < c->route->elements[b]; i++) {
            c->written[b][i] &= WRITTEN;
        }
    }
}

static lierne_status check_stages(checker *c) {
    for (c->stage = 0; c->stage < c->route->stages.count; c->stage++) {
        const lierne_stage *stage = &c->route->stages.at[c->stage];
        /* All that is in flight reads what was there before the stage. */
        c->in_flight = true;
        LIERNE_TRY(walk_messages(c, &stage->sends, READ));
        LIERNE_TRY(walk_ops(c, &stage->copies, READ, false));
        LIERNE_TRY(walk_messages(c, &stage->recvs, WRITE_ONCE));
        LIERNE_TRY(walk_ops(c, &stage->copies, WRITE, true));
        land(c);
        LIERNE_TRY(walk_ops(c, &stage->sums, READ, true));
    }
    return LIERNE_OK;
}

lierne_status lierne_route_check(const lierne_route *route, const lierne_block *owned,
                                 size_t nowned) {
    checker c = {.route = route};
    lierne_status status = LIERNE_OK;
    for (int b = LIERNE_BUFFER_OUT; b < LIERNE_BUFFER_COUNT && status == LIERNE_OK; b++) {
        status = lierne_alloc(&c.written[b], (size_t)route->elements[b], 1);
    }
    if (status == LIERNE_OK) {
        status = check_stages(&c);
    }
    for (size_t i = 0; i < nowned && status == LIERNE_OK; i++) {
        status = walk(&c, LIERNE_BUFFER_OUT, &owned[i], READ);
    }
    lierne_mem_free(c.written[LIERNE_BUFFER_OUT]);
    lierne_mem_free(c.written[LIERNE_BUFFER_SCRATCH]);
    return status;
}

/* One end of a message of a stage. */
typedef struct message_end {
    int from;
    int to;
    int order; /* of the messages of its rank in the stage: those of one pair match in order */
    bool sends;
    int64_t elements;
} message_end;
typedef LIERNE_VEC(message_end) message_ends;

static lierne_status add_ends(message_ends *ends, int rank, const lierne_messages *messages,
                              bool sends) {
    for (size_t m = 0; m < messages->count; m++) {
        int peer = messages->at[m].peer;
        const message_end end = {.from = sends ? rank : peer,
                                 .to = sends ? peer : rank,
                                 .order = (int)m,
                                 .sends = sends,
                                 .elements = messages->at[m].elements};
        LIERNE_TRY(LIERNE_VEC_PUSH(ends, end));
    }
    return LIERNE_OK;
}

/* By pair of ranks; of a pair first all that is sent, in order, then all that is expected. */
static int compare_ends(const void *a, const void *b) {
    const message_end *x = a, *y = b;
    int from = (x->from > y->from) - (x->from < y->from), to = (x->to > y->to) - (x->to < y->to);
    int kind = y->sends - x->sends, order = (x->order > y->order) - (x->order < y->order);
    return from ? from : to ? to : kind ? kind : order;
}

/* The end of those that begin at i and are of one pair and, where asked, all sent. */
static size_t run_of(const message_ends *ends, size_t i, bool sent) {
    const message_end *first = &ends->at[i];
    while (i < ends->count && ends->at[i].from == first->from && ends->at[i].to == first->to &&
           (!sent || ends->at[i].sends)) {
        i++;
    }
    return i;
}

static lierne_status compare_pair(const message_ends *ends, size_t stage, size_t i, size_t end) {
    size_t middle = run_of(ends, i, true),
           n = middle - i > end - middle ? middle - i : end - middle;
    const message_end *pair = &ends->at[i];
    for (size_t k = 0; k < n; k++) {
        int64_t sent = i + k < middle ? ends->at[i + k].elements : -1;
        int64_t expected = middle + k < end ? ends->at[middle + k].elements : -1;
        if (sent != expected) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "stage %zu: rank %d sends rank %d %lld elements, but rank %d "
                               "expects %lld",
                               stage, pair->from, pair->to, (long long)(sent < 0 ? 0 : sent),
                               pair->to, (long long)(expected < 0 ? 0 : expected));
        }
    }
    return LIERNE_OK;
}

static lierne_status pair_stage(const lierne_route *const *routes, int n, size_t stage,
                                message_ends *ends) {
    ends->count = 0;
    for (int r = 0; r < n; r++) {
        if (stage < routes[r]->stages.count) {
            const lierne_stage *s = &routes[r]->stages.at[stage];
            LIERNE_TRY(add_ends(ends, routes[r]->rank, &s->sends, true));
            LIERNE_TRY(add_ends(ends, routes[r]->rank, &s->recvs, false));
        }
    }
    if (ends->count > 0) {
        qsort(ends->at, ends->count, sizeof *ends->at, compare_ends);
    }
    for (size_t i = 0, next; i < ends->count; i = next) {
        next = run_of(ends, i, false);
        LIERNE_TRY(compare_pair(ends, stage, i, next));
    }
    return LIERNE_OK;
}

lierne_status lierne_routes_pair(const lierne_route *const *routes, int n) {
    message_ends ends = {0};
    size_t stages = 0;
    lierne_status status = LIERNE_OK;
    for (int r = 0; r < n; r++) {
        stages = routes[r]->stages.count > stages ? routes[r]->stages.count : stages;
    }
    for (size_t i = 0; i < stages && status == LIERNE_OK; i++) {
        status = pair_stage(routes, n, i, &ends);
    }
    lierne_mem_free(ends.at);
    return status;
}
