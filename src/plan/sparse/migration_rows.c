/* Migrations: rows that leave for other ranks, as a star forest whose ghosts are the rows that a
 * rank has afterwards.
 *
 * Here the owner knows where its rows go, and the others do not know what they get. So the messages
 * of planning go the other way than those of references: each rank sends the numbers of the rows
 * that it will send. Every row has one ghost at most, so both directions copy only. */
#include "plan/sparse/star_forest.h"

#include <string.h>

static lierne_status check_owner(const lierne_context *context, int64_t row, int32_t owner) {
    if (owner != -1 && lierne_context_index(context, owner) < 0) {
        char members[LIERNE_MEMBERS_TEXT];
        lierne_members_print(members, sizeof members, &context->members);
        return LIERNE_FAIL(LIERNE_ERR_OWNER_RANGE,
                           "rank %d: row %lld gets owner %d, which must be %s, or -1",
                           context->rank, (long long)row, (int)owner, members);
    }
    return LIERNE_OK;
}

/* Where rows are in f->sent: those of each other member, those that stay, those that end. */
static int64_t place_of(const lierne_context *context, int32_t owner) {
    int n = context->members.count;
    return owner == context->rank ? n : owner < 0 ? n + 1 : lierne_context_index(context, owner);
}

/* next: how many rows each place gets, then where its next one goes. */
static lierne_status add_receivers(lierne_star_forest *f, const lierne_context *context,
                                   int64_t *next) {
    int64_t first = 0;
    for (int i = 0; i < context->members.count + 2; i++) {
        lierne_peer_rows receiver = {0, first, next[i]};
        f->nsent = i == context->members.count ? first : f->nsent;
        next[i] = first;
        first += receiver.count;
        if (i < context->members.count && receiver.count > 0) {
            receiver.rank = lierne_members_rank(&context->members, i);
            LIERNE_TRY(LIERNE_VEC_PUSH(&f->receivers, receiver));
        }
    }
    f->nstay = next[context->members.count + 1] - f->nsent;
    return LIERNE_OK;
}

lierne_status lierne_star_forest_leave(lierne_star_forest *f, const lierne_context *context,
                                       const int32_t *owner) {
    int64_t *next;
    if (f->nowned > 0) {
        LIERNE_TRY(lierne_check_set(owner, "owner"));
    }
    for (int64_t i = 0; i < f->nowned; i++) {
        LIERNE_TRY(check_owner(context, i, owner[i]));
    }
    LIERNE_TRY(lierne_alloc_unset(&f->sent, (size_t)f->nowned, sizeof *f->sent));
    LIERNE_TRY(lierne_alloc(&next, (size_t)context->members.count + 2, sizeof *next));
    for (int64_t i = 0; i < f->nowned; i++) {
        next[place_of(context, owner[i])]++;
    }
    lierne_status status = add_receivers(f, context, next);
    for (int64_t i = 0; status == LIERNE_OK && i < f->nowned; i++) {
        f->sent[next[place_of(context, owner[i])]++] = i;
    }
    lierne_mem_free(next);
    return status;
}

static lierne_status count_arrivals(lierne_star_forest *f, const lierne_control_messages *messages,
                                    int64_t size) {
    int64_t elements = 0, bytes;
    f->nghosts = f->nstay;
    for (size_t i = 0; i < messages->count; i++) {
        f->nghosts += (int64_t)messages->at[i].count;
    }
    f->nroots = f->nghosts;
    return lierne_mul_i64(f->nghosts, f->stride, &elements) &&
                   lierne_mul_i64(elements, size, &bytes)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                             "rank %d: bytes of %lld rows that arrive, %lld elements apart, do not "
                             "fit",
                             f->rank, (long long)f->nghosts, (long long)f->stride);
}

static lierne_status add_sender(lierne_star_forest *f, int rank, const int64_t *rows, int64_t n,
                                int64_t *at) {
    const lierne_peer_rows sender = {rank, *at, n};
    if (n == 0) {
        return LIERNE_OK;
    }
    memcpy(f->row + *at, rows, (size_t)n * sizeof *rows);
    *at += n;
    return LIERNE_VEC_PUSH(&f->senders, sender);
}

lierne_status lierne_star_forest_arrive(lierne_star_forest *f,
                                        const lierne_control_messages *messages, int64_t size) {
    size_t i = 0;
    int64_t at = 0;
    LIERNE_TRY(count_arrivals(f, messages, size));
    LIERNE_TRY(lierne_alloc_unset(&f->row, (size_t)f->nghosts, sizeof *f->row));
    for (; i < messages->count && messages->at[i].peer < f->rank; i++) {
        const lierne_control_message *m = &messages->at[i];
        LIERNE_TRY(add_sender(f, m->peer, m->words, (int64_t)m->count, &at));
    }
    LIERNE_TRY(add_sender(f, f->rank, f->sent + f->nsent, f->nstay, &at));
    for (; i < messages->count; i++) {
        const lierne_control_message *m = &messages->at[i];
        LIERNE_TRY(add_sender(f, m->peer, m->words, (int64_t)m->count, &at));
    }
    return LIERNE_OK;
}
