/* Stages that are an all-gather: every rank sends one block to all others, and receives theirs one
 * after another, in the order of the ranks. A transport that has an all-gather of its own moves
 * such a stage in one operation, which may take rings and trees that single messages cannot;
 * nothing is added up, so the bits are the same.
 *
 * A rank sees its own messages only. Whether all see an all-gather is asked once, while planning.
 * The operation also writes this rank's own block where the others' lie, so a copy of the stage
 * must do the same, or the block must be there already.
 *
 * Memory that ranks have registered with each other (a heap) must have the same place on all of
 * them in such an operation: NCCL computes the peers' addresses from its own, and does not check.
 */
#include "runtime/execute/execution.h"
#include "runtime/transport/heap.h"

#define MOST_STAGES (LIERNE_MAX_REDUCED / 2) /* of a direction that are looked at */

/* One contiguous block. */
typedef struct piece {
    lierne_buffer buffer;
    int64_t offset;
    int64_t count;
} piece;

static piece piece_of(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_message *message = e->segments.at[m->first].message;
    return (piece){message->buffer, message->blocks.at[0].offset, message->elements};
}

static bool is_plain(const lierne_execution *e, const lierne_coalesced_message *m) {
    const lierne_message *message = e->segments.at[m->first].message;
    return e->batches[m->batch].transport->all_gathers && m->count == 1 && m->staging < 0 &&
           message->blocks.count == 1 && message->elements > 0;
}

static bool same_piece(piece a, piece b) {
    return a.buffer == b.buffer && a.offset == b.offset && a.count == b.count;
}

static bool is_piece(const lierne_place *place, piece p) {
    const piece own = {place->buffer, place->block.offset, lierne_block_elements(&place->block)};
    return lierne_block_contiguous(&place->block) && same_piece(own, p);
}

/* Whether the operation leaves in this rank's own place what the stage does. */
static bool keeps_own(const lierne_stage *stage, piece to, piece sent) {
    bool found = same_piece(to, sent);
    for (size_t o = 0; o < stage->copies.count; o++) {
        const lierne_op *op = &stage->copies.at[o];
        found |= !op->accumulate && op->from.count == 1 && is_piece(&op->to, to) &&
                 is_piece(&op->from.at[0], sent);
    }
    return found;
}

/* The block that a stage sends, and what the first rank's becomes. */
static void get_pieces(const lierne_execution *e, size_t number, piece *sent, piece *all) {
    const lierne_phase *phase = &e->phases.at[number];
    const lierne_coalesced_message *m = &e->messages.at[phase->first];
    *sent = piece_of(e, &m[phase->nrecvs]);
    *all = piece_of(e, &m[0]);
    all->offset -= m[0].index * all->count;
}

static bool looks_like_one(const lierne_execution *e, size_t number) {
    const lierne_phase *phase = &e->phases.at[number];
    size_t others = (size_t)e->context->members.count - 1;
    const lierne_coalesced_message *m = &e->messages.at[phase->first];
    if (e->nsubroutes != 1 || others == 0 || phase->nrecvs != others || phase->nsends != others) {
        return false;
    }
    for (size_t i = 0; i < 2 * others; i++) {
        if (!is_plain(e, &m[i])) {
            return false;
        }
    }
    piece sent, all;
    get_pieces(e, number, &sent, &all);
    bool same = all.count == sent.count && all.offset >= 0;
    for (size_t i = 0; i < others; i++) {
        const piece expected = {all.buffer, all.offset + m[i].index * all.count, all.count};
        same &= same_piece(piece_of(e, &m[i]), expected);
        same &= same_piece(piece_of(e, &m[others + i]), sent);
    }
    const piece own = {all.buffer, all.offset + e->context->index * all.count, all.count};
    return same && keeps_own(&e->subroutes[0].route->stages.at[number], own, sent);
}

/* Where a piece lies in the heap; -1: not there. */
static int64_t place_of(const lierne_execution *e, const lierne_heap *heap, piece p) {
    int64_t place = lierne_heap_place(heap, e->memory.at);
    const lierne_subroute *s = &e->subroutes[0];
    return p.buffer == LIERNE_BUFFER_SCRATCH && place >= 0
               ? place + s->scratch + p.offset * (int64_t)s->size
               : -1;
}

/* A number for the places of a stage in `each` executions: the same where they are. What is sent in
 * place has a place of its own on each rank. */
static int64_t places_of(lierne_execution *const *e, size_t each, size_t number,
                         const lierne_heap *heap) {
    uint64_t hash = 0;
    for (size_t i = 0; i < each; i++) {
        piece sent, all;
        get_pieces(e[i], number, &sent, &all);
        const piece own = {all.buffer, all.offset + e[i]->context->index * all.count, all.count};
        const int64_t places[2] = {place_of(e[i], heap, all),
                                   same_piece(own, sent) ? -2 : place_of(e[i], heap, sent)};
        hash = lierne_hash(hash, places, sizeof places);
    }
    return (int64_t)(hash & INT64_MAX);
}

/* The stages of a direction whose places differ become others. The least number is the greatest
 * one's negative. */
static lierne_status compare_stages(lierne_context *context, lierne_execution *const *e,
                                    size_t each, int64_t *others) {
    const lierne_heap *heap = lierne_context_heap(context);
    int64_t numbers[2 * MOST_STAGES] = {0};
    for (size_t i = 0; i < MOST_STAGES; i++) {
        numbers[i] = others[i] ? 0 : places_of(e, each, i, heap);
        numbers[MOST_STAGES + i] = -numbers[i];
    }
    LIERNE_TRY(lierne_context_allreduce_max(context, numbers, 2 * MOST_STAGES));
    for (size_t i = 0; i < MOST_STAGES; i++) {
        others[i] |= numbers[i] != -numbers[MOST_STAGES + i];
    }
    return LIERNE_OK;
}

static void set(lierne_execution *e, size_t number, bool is_one) {
    const lierne_phase *phase = &e->phases.at[number];
    for (size_t i = phase->first; i < phase->first + phase->nrecvs + phase->nsends; i++) {
        const lierne_coalesced_message *m = &e->messages.at[i];
        e->batches[m->batch].postings[m->slot].all_gathers = is_one;
    }
}

static bool has_transport(const lierne_context *context) {
    bool found = false;
    for (int i = 0; i < context->ncarriers; i++) {
        found |= context->carriers[i].transport->all_gathers != NULL;
    }
    return found;
}

lierne_status lierne_execution_find_all_gathers(lierne_context *context,
                                                lierne_execution *const *executions, size_t each) {
    int64_t others[LIERNE_MAX_REDUCED]; /* stages that are none on some rank */
    if (!has_transport(context)) {
        return LIERNE_OK;
    }
    for (size_t i = 0; i < LIERNE_MAX_REDUCED; i++) {
        const lierne_execution *e = executions[i / MOST_STAGES * each];
        size_t stage = i % MOST_STAGES;
        others[i] = stage >= e->phases.count || !looks_like_one(e, stage);
    }
    LIERNE_TRY(lierne_context_allreduce_max(context, others, LIERNE_MAX_REDUCED));
    const lierne_heap *heap = lierne_context_heap(context);
    for (size_t d = 0; d < 2 && heap && lierne_heap_bytes(heap) > 0; d++) {
        LIERNE_TRY(compare_stages(context, executions + d * each, each, others + d * MOST_STAGES));
    }
    for (size_t i = 0; i < 2 * each * MOST_STAGES; i++) {
        size_t number = i / MOST_STAGES, stage = i % MOST_STAGES;
        if (!others[number / each * MOST_STAGES + stage]) {
            set(executions[number], stage, true);
        }
    }
    return LIERNE_OK;
}

void lierne_execution_forget_all_gathers(lierne_execution *e) {
    for (size_t i = 0; i < e->phases.count; i++) {
        set(e, i, false);
    }
}
