/* Checking routes without running them.
 *
 * One rank: a map with a byte per element of out and scratch follows what was written. Reading what
 * was never written, writing an element of out twice, or leaving an owned one unwritten is an
 * error. All ranks: message k from a to b in a stage must meet message k that b expects from a in
 * that stage, with as many elements. */
#include "route/route.h"

typedef struct checker {
    const lierne_route *route;
    size_t stage;
    unsigned char *written[LIERNE_BUFFERS]; /* NULL for in */
} checker;

static lierne_status bad(const checker *c, const char *what, lierne_buffer buffer, int64_t at) {
    static const char *const names[LIERNE_BUFFERS] = {"in", "out", "scratch"};
    return LIERNE_FAIL(LIERNE_INVALID, "rank %d stage %zu: element %lld of %s %s (it has %lld)",
                       c->route->rank, c->stage, (long long)at, names[buffer], what,
                       (long long)c->route->elements[buffer]);
}

typedef enum access { READ, WRITE_ONCE, WRITE } access;

static lierne_status touch(checker *c, lierne_buffer buffer, int64_t at, access how) {
    if (at < 0 || at >= c->route->elements[buffer]) {
        return bad(c, "is outside", buffer, at);
    }
    if (buffer == LIERNE_IN) {
        return how == READ ? LIERNE_OK : bad(c, "is written", buffer, at);
    }
    unsigned char *w = &c->written[buffer][at];
    if (how == READ && !*w) {
        return bad(c, "is read before it was written", buffer, at);
    }
    if (how == WRITE_ONCE && *w && buffer == LIERNE_OUT) {
        return bad(c, "is written twice", buffer, at);
    }
    if (how != READ) {
        *w = 1;
    }
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
            return LIERNE_FAIL(LIERNE_INVALID,
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
                return LIERNE_FAIL(LIERNE_INVALID,
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

static lierne_status check_stages(checker *c) {
    for (c->stage = 0; c->stage < c->route->stages.count; c->stage++) {
        const lierne_stage *stage = &c->route->stages.at[c->stage];
        /* All that is in flight reads what was there before the stage. */
        LIERNE_TRY(walk_messages(c, &stage->sends, READ));
        LIERNE_TRY(walk_ops(c, &stage->copies, READ, false));
        LIERNE_TRY(walk_messages(c, &stage->recvs, WRITE_ONCE));
        LIERNE_TRY(walk_ops(c, &stage->copies, WRITE, true));
        LIERNE_TRY(walk_ops(c, &stage->sums, READ, true));
    }
    return LIERNE_OK;
}

lierne_status lierne_route_check(const lierne_route *route, const lierne_block *owned,
                                 size_t nowned) {
    checker c = {.route = route};
    lierne_status status = LIERNE_OK;
    for (int b = LIERNE_OUT; b < LIERNE_BUFFERS && status == LIERNE_OK; b++) {
        status = lierne_alloc(&c.written[b], (size_t)route->elements[b], 1);
    }
    if (status == LIERNE_OK) {
        status = check_stages(&c);
    }
    for (size_t i = 0; i < nowned && status == LIERNE_OK; i++) {
        status = walk(&c, LIERNE_OUT, &owned[i], READ);
    }
    lierne_mem_free(c.written[LIERNE_OUT]);
    lierne_mem_free(c.written[LIERNE_SCRATCH]);
    return status;
}

/* The k-th message of a list that has this peer. */
static const lierne_message *nth(const lierne_messages *messages, int peer, int k) {
    for (size_t m = 0; m < messages->count; m++) {
        if (messages->at[m].peer == peer && k-- == 0) {
            return &messages->at[m];
        }
    }
    return NULL;
}

static int earlier(const lierne_messages *messages, size_t m) {
    int k = 0;
    for (size_t i = 0; i < m; i++) {
        k += messages->at[i].peer == messages->at[m].peer;
    }
    return k;
}

/* The route of a rank; NULL if there is none. Routes ascend by rank. */
static const lierne_route *route_of(const lierne_route *const *routes, int n, int rank) {
    int low = 0, high = n - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (routes[middle]->rank < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return routes[low]->rank == rank ? routes[low] : NULL;
}

static lierne_status pair(const lierne_route *const *routes, int n, int r, size_t stage,
                          bool sends) {
    int rank = routes[r]->rank;
    const lierne_stage *mine = &routes[r]->stages.at[stage];
    const lierne_messages *messages = sends ? &mine->sends : &mine->recvs;
    for (size_t m = 0; m < messages->count; m++) {
        int peer = messages->at[m].peer;
        const lierne_message *other = NULL;
        const lierne_route *route = route_of(routes, n, peer);
        if (route && stage < route->stages.count) {
            const lierne_stage *theirs = &route->stages.at[stage];
            other = nth(sends ? &theirs->recvs : &theirs->sends, rank, earlier(messages, m));
        }
        if (!other || other->elements != messages->at[m].elements) {
            return LIERNE_FAIL(LIERNE_INVALID,
                               "stage %zu: rank %d %s rank %d %lld elements, but "
                               "rank %d %s %lld",
                               stage, rank, sends ? "sends" : "expects from", peer,
                               (long long)messages->at[m].elements, peer,
                               sends ? "expects" : "sends",
                               (long long)(other ? other->elements : 0));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_routes_pair(const lierne_route *const *routes, int n) {
    for (int r = 0; r < n; r++) {
        for (size_t i = 0; i < routes[r]->stages.count; i++) {
            LIERNE_TRY(pair(routes, n, r, i, true));
            LIERNE_TRY(pair(routes, n, r, i, false));
        }
    }
    return LIERNE_OK;
}
