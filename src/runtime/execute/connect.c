/* Connects the two ends of each message, where a transport asks for it.
 *
 * A transport whose ends are in different processes needs, before the first call, what the other
 * end knows: the receiver the sender's blocks, and each a record of the other's. Every rank writes
 * them into one control message per peer, and one sparse exchange takes all of them there. Both
 * ends list the messages between two ranks in the same order, so messages need no names.
 *
 * Words of a control message, per direction: the sends to the peer, then the receives from it. Of a
 * send: the number of parts; per part the size of an element, the buffer, its index and the number
 * of blocks; per block the number of loops, whether it has an index list, offset, counts, strides
 * and the list. Then, of both, the number of executions and their records. */
#include "runtime/execute/execution.h"

#include <string.h>

/* What this rank tells a peer. */
typedef struct lierne_description {
    int peer;
    LIERNE_VEC(int64_t) words;
} lierne_description;

/* The executions of one direction, and the other ends of their messages. */
typedef struct lierne_connected_side {
    lierne_execution **executions;
    lierne_remote *remotes[LIERNE_MAX_TRANSPORTS]; /* by slot */
    lierne_part *parts;                            /* by segment */
    LIERNE_VEC(lierne_block) blocks;               /* of all parts, in their order */
    lierne_record *own[LIERNE_MAX_TRANSPORTS];     /* by slot, those of each execution */
} lierne_connected_side;

struct lierne_connection {
    lierne_context *context;
    size_t each; /* executions of a side */
    lierne_connected_side sides[2];
    LIERNE_VEC(lierne_description) sent;
    lierne_control_message *messages; /* of sent */
    lierne_control_messages received;
};

/* The sends of a side, or its receives, as indices of messages, one after the other. */
typedef struct lierne_message_walk {
    const lierne_execution *execution;
    bool sends;
    size_t phase;
    size_t index; /* of the phase */
} lierne_message_walk;

/* The next message that a transport connects; NULL at the end. */
static const lierne_coalesced_message *next_message(lierne_message_walk *w) {
    const lierne_execution *e = w->execution;
    for (; w->phase < e->phases.count; w->phase++, w->index = 0) {
        const lierne_phase *phase = &e->phases.at[w->phase];
        size_t n = w->sends ? phase->nsends : phase->nrecvs;
        size_t first = phase->first + (w->sends ? phase->nrecvs : 0);
        while (w->index < n) {
            const lierne_coalesced_message *m = &e->messages.at[first + w->index++];
            if (e->batches[m->batch].transport->connects) {
                return m;
            }
        }
    }
    return NULL;
}

static lierne_status write_word(lierne_description *d, int64_t word) {
    return LIERNE_VEC_PUSH(&d->words, word);
}

static lierne_status write_block(lierne_description *d, const lierne_block *block) {
    LIERNE_TRY(write_word(d, block->ndims));
    LIERNE_TRY(write_word(d, block->rows != NULL));
    LIERNE_TRY(write_word(d, block->offset));
    for (int i = 0; i < block->ndims; i++) {
        LIERNE_TRY(write_word(d, block->count[i]));
        LIERNE_TRY(write_word(d, block->stride[i]));
    }
    for (int64_t i = 0; block->rows && i < block->count[0]; i++) {
        LIERNE_TRY(write_word(d, block->rows[i]));
    }
    return LIERNE_OK;
}

static lierne_status write_parts(lierne_description *d, const lierne_part *parts, size_t n) {
    LIERNE_TRY(write_word(d, (int64_t)n));
    for (size_t i = 0; i < n; i++) {
        LIERNE_TRY(write_word(d, (int64_t)parts[i].size));
        LIERNE_TRY(write_word(d, parts[i].buffer));
        LIERNE_TRY(write_word(d, parts[i].index));
        LIERNE_TRY(write_word(d, (int64_t)parts[i].nblocks));
        for (size_t b = 0; b < parts[i].nblocks; b++) {
            LIERNE_TRY(write_block(d, &parts[i].blocks[b]));
        }
    }
    return LIERNE_OK;
}

/* The records of one message, which is at the same place in every execution of its side. */
static lierne_status write_records(const lierne_connection *c, lierne_description *d,
                                   const lierne_connected_side *side,
                                   const lierne_coalesced_message *m) {
    LIERNE_TRY(write_word(d, (int64_t)c->each));
    for (size_t k = 0; k < c->each; k++) {
        const lierne_execution_batch *batch = &side->executions[k]->batches[m->batch];
        lierne_record record = {{0}};
        LIERNE_TRY(
            batch->transport->connects->describe(batch->batch, &batch->postings[m->slot], &record));
        side->own[m->batch][m->slot * c->each + k] = record;
        for (int i = 0; i < LIERNE_RECORD_WORDS; i++) {
            LIERNE_TRY(write_word(d, record.words[i]));
        }
    }
    return LIERNE_OK;
}

/* The description for a peer; NULL if there is no memory for a new one. */
static lierne_description *description_for(lierne_connection *c, int peer) {
    const lierne_description first = {.peer = peer};
    for (size_t i = c->sent.count; i-- > 0;) {
        if (c->sent.at[i].peer == peer) {
            return &c->sent.at[i];
        }
    }
    return LIERNE_VEC_PUSH(&c->sent, first) == LIERNE_OK ? &c->sent.at[c->sent.count - 1] : NULL;
}

static lierne_status describe_messages(lierne_connection *c, const lierne_connected_side *side,
                                       bool sends) {
    const lierne_execution *e = side->executions[0];
    lierne_message_walk walk = {.execution = e, .sends = sends};
    for (const lierne_coalesced_message *m; (m = next_message(&walk));) {
        lierne_description *d = description_for(c, m->peer);
        if (!d) {
            return LIERNE_ERR_NO_MEMORY;
        }
        if (sends && !e->varying) {
            LIERNE_TRY(write_parts(d, &e->batches[m->batch].parts[m->first], m->count));
        }
        LIERNE_TRY(write_records(c, d, side, m));
    }
    return LIERNE_OK;
}

static void clear_sent(lierne_connection *c) {
    for (size_t i = 0; i < c->sent.count; i++) {
        lierne_context_free_message_memory(c->context, c->sent.at[i].words.at);
    }
    lierne_mem_free(c->messages);
    c->messages = NULL;
    c->sent.count = 0;
}

/* After it, nothing of this rank can keep its messages from the others. */
static lierne_status list_messages(lierne_connection *c) {
    LIERNE_TRY(lierne_alloc(&c->messages, c->sent.count, sizeof *c->messages));
    for (size_t i = 0; i < c->sent.count; i++) {
        const lierne_description *d = &c->sent.at[i];
        c->messages[i] = (lierne_control_message){d->peer, d->words.count, d->words.at};
    }
    return LIERNE_OK;
}

static void clear_own(lierne_connected_side *side) {
    for (int b = 0; b < LIERNE_MAX_TRANSPORTS; b++) {
        lierne_mem_free(side->own[b]);
        side->own[b] = NULL;
    }
}

/* Once: a side has as many messages when it is described again. */
static lierne_status reserve_own(lierne_connected_side *side, size_t each) {
    for (int b = 0; b < LIERNE_MAX_TRANSPORTS; b++) {
        size_t n = side->executions[0]->batches[b].messages.count * each;
        if (n > 0 && !side->own[b]) {
            LIERNE_TRY(lierne_alloc(&side->own[b], n, sizeof *side->own[b]));
        }
    }
    return LIERNE_OK;
}

static lierne_status describe_sides(lierne_connection *c) {
    clear_sent(c);
    for (int d = 0; d < 2; d++) {
        LIERNE_TRY(reserve_own(&c->sides[d], c->each));
        LIERNE_TRY(describe_messages(c, &c->sides[d], true));
        LIERNE_TRY(describe_messages(c, &c->sides[d], false));
    }
    return list_messages(c);
}

/* Where reading what a peer sent has come to. */
typedef struct lierne_word_reader {
    const lierne_control_message *message;
    size_t at;
    bool failed; /* read beyond the end */
} lierne_word_reader;

static const int64_t *read_words(lierne_word_reader *r, size_t n) {
    r->failed |= n > r->message->count - r->at;
    if (r->failed) {
        return NULL;
    }
    r->at += n;
    return r->message->words + r->at - n;
}

static int64_t read_word(lierne_word_reader *r) {
    const int64_t *word = read_words(r, 1);
    return word ? *word : 0;
}

static lierne_status read_block(lierne_word_reader *r, lierne_connected_side *side) {
    lierne_block block = {.ndims = (int)read_word(r)};
    bool has_rows = read_word(r);
    block.offset = read_word(r);
    r->failed |= block.ndims < 0 || block.ndims > LIERNE_MAX_AXES;
    for (int i = 0; !r->failed && i < block.ndims; i++) {
        block.count[i] = read_word(r);
        block.stride[i] = read_word(r);
    }
    block.rows = has_rows ? read_words(r, (size_t)block.count[0]) : NULL;
    return LIERNE_VEC_PUSH(&side->blocks, block);
}

/* The parts of a receive, which must be those that this rank expects; blocks get their address
 * later. */
static lierne_status read_parts(lierne_word_reader *r, lierne_connected_side *side,
                                const lierne_coalesced_message *m) {
    const lierne_execution *e = side->executions[0];
    r->failed |= read_word(r) != (int64_t)m->count;
    for (size_t i = m->first; !r->failed && i < m->first + m->count; i++) {
        const lierne_segment *own = &e->segments.at[i];
        int64_t elements = 0;
        side->parts[i] = (lierne_part){.size = (size_t)read_word(r)};
        side->parts[i].buffer = (lierne_buffer)read_word(r);
        side->parts[i].index = (int)read_word(r);
        side->parts[i].nblocks = (size_t)read_word(r);
        for (size_t b = 0; !r->failed && b < side->parts[i].nblocks; b++) {
            LIERNE_TRY(read_block(r, side));
            elements += lierne_block_elements(&side->blocks.at[side->blocks.count - 1]);
        }
        r->failed |=
            side->parts[i].size != own->subroute->size || elements != own->message->elements;
    }
    return LIERNE_OK;
}

static lierne_status read_messages(lierne_connected_side *side, size_t each, bool sends,
                                   lierne_word_reader *readers, size_t nreaders) {
    lierne_message_walk walk = {.execution = side->executions[0], .sends = sends};
    for (const lierne_coalesced_message *m; (m = next_message(&walk));) {
        lierne_remote *remote = &side->remotes[m->batch][m->slot];
        lierne_word_reader *r = readers;
        while (r < readers + nreaders && r->message->peer != m->peer) {
            r++;
        }
        if (r == readers + nreaders) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                               "rank %d: rank %d has not described its messages with this rank",
                               walk.execution->context->rank, m->peer);
        }
        if (!sends && !walk.execution->varying) {
            LIERNE_TRY(read_parts(r, side, m));
            remote->parts = &side->parts[m->first];
            remote->nparts = m->count;
        }
        remote->nrecords = (size_t)read_word(r);
        remote->records = (const void *)read_words(r, remote->nrecords * LIERNE_RECORD_WORDS);
        remote->own = &side->own[m->batch][m->slot * each];
        remote->nown = each;
        r->failed |= remote->nrecords != each;
    }
    return LIERNE_OK;
}

static void clear_side(lierne_connected_side *side) {
    for (int b = 0; b < LIERNE_MAX_TRANSPORTS; b++) {
        lierne_mem_free(side->remotes[b]);
        side->remotes[b] = NULL;
    }
    lierne_mem_free(side->parts);
    side->parts = NULL;
}

static lierne_status reserve_side(lierne_connected_side *side) {
    const lierne_execution *e = side->executions[0];
    side->blocks.count = 0;
    if (!side->parts) {
        LIERNE_TRY(lierne_alloc(&side->parts, e->segments.count, sizeof *side->parts));
    }
    for (int b = 0; b < LIERNE_MAX_TRANSPORTS; b++) {
        size_t n = e->batches[b].messages.count;
        if (n > 0 && !side->remotes[b]) {
            LIERNE_TRY(lierne_alloc(&side->remotes[b], n, sizeof *side->remotes[b]));
        }
    }
    return LIERNE_OK;
}

/* Receives were read in the order of the segments. */
static void set_blocks(lierne_connected_side *side) {
    const lierne_block *blocks = side->blocks.at;
    for (size_t i = 0; i < side->executions[0]->segments.count; i++) {
        side->parts[i].blocks = blocks;
        blocks += side->parts[i].nblocks;
    }
}

static lierne_status read_all(lierne_connection *c, lierne_word_reader *readers) {
    size_t n = c->received.count;
    for (size_t i = 0; i < n; i++) {
        readers[i] = (lierne_word_reader){.message = &c->received.at[i]};
    }
    for (int d = 0; d < 2; d++) {
        LIERNE_TRY(reserve_side(&c->sides[d]));
        LIERNE_TRY(read_messages(&c->sides[d], c->each, false, readers, n));
        LIERNE_TRY(read_messages(&c->sides[d], c->each, true, readers, n));
        set_blocks(&c->sides[d]);
    }
    for (size_t i = 0; i < n; i++) {
        if (readers[i].failed || readers[i].at != readers[i].message->count) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                               "rank %d: rank %d describes other messages than this rank has with "
                               "it",
                               c->context->rank, readers[i].message->peer);
        }
    }
    return LIERNE_OK;
}

/* Hands every batch the other ends of its messages. What is packed in windows can be recorded
 * then. */
static lierne_status connect_batches(const lierne_connection *c) {
    for (size_t i = 0; i < 2 * c->each; i++) {
        const lierne_connected_side *side = &c->sides[i / c->each];
        lierne_execution *e = side->executions[i % c->each];
        for (int b = 0; b < e->context->ncarriers; b++) {
            const lierne_execution_batch *batch = &e->batches[b];
            if (batch->batch && batch->transport->connects) {
                LIERNE_TRY(batch->transport->connects->connect(batch->batch, side->remotes[b],
                                                               batch->messages.count));
            }
        }
        LIERNE_TRY(e->uses_windows ? lierne_execution_record(e) : LIERNE_OK);
    }
    return LIERNE_OK;
}

static lierne_status connect_all(lierne_connection *c) {
    lierne_word_reader *readers;
    LIERNE_TRY(lierne_alloc(&readers, c->received.count, sizeof *readers));
    lierne_status status = read_all(c, readers);
    lierne_mem_free(readers);
    return status == LIERNE_OK ? connect_batches(c) : status;
}

lierne_status lierne_connection_establish(lierne_connection *c) {
    if (!c) {
        return LIERNE_OK;
    }
    lierne_control_messages_destroy(&c->received);
    lierne_status status =
        lierne_context_sparse_exchange(c->context, c->messages, c->sent.count, &c->received);
    if (status == LIERNE_OK) {
        status = connect_all(c);
    }
    clear_sent(c);
    return lierne_context_agree_all(c->context, status, NULL, 0, NULL);
}

lierne_status lierne_connection_renew(lierne_connection *c) {
    if (!c) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_context_agree_all(c->context, describe_sides(c), NULL, 0, NULL));
    return lierne_connection_establish(c);
}

void lierne_connection_destroy(lierne_connection *c) {
    if (!c) {
        return;
    }
    clear_sent(c);
    lierne_mem_free(c->sent.at);
    for (int d = 0; d < 2; d++) {
        clear_side(&c->sides[d]);
        clear_own(&c->sides[d]);
        lierne_mem_free(c->sides[d].blocks.at);
        lierne_mem_free(c->sides[d].executions);
    }
    lierne_control_messages_destroy(&c->received);
    lierne_mem_free(c);
}

static lierne_status fill_connection(lierne_connection *c, lierne_execution *const *executions) {
    for (size_t d = 0; d < 2; d++) {
        LIERNE_TRY(lierne_alloc(&c->sides[d].executions, c->each, sizeof *executions));
        memcpy(c->sides[d].executions, executions + d * c->each, c->each * sizeof *executions);
    }
    return describe_sides(c);
}

lierne_status lierne_connection_create(lierne_connection **out, lierne_context *context,
                                       lierne_execution *const *executions, size_t each) {
    lierne_connection *c;
    *out = NULL;
    if (!lierne_context_connects(context)) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&c, 1, sizeof *c));
    c->context = context;
    c->each = each;
    lierne_status status = fill_connection(c, executions);
    if (status != LIERNE_OK) {
        lierne_connection_destroy(c);
        return status;
    }
    *out = c;
    return LIERNE_OK;
}
