/* Comparing digests between the ranks that had a tensor and those that got it.
 *
 * What is compared follows from the layouts and boxes and not from a plan, so that a plan that is
 * wrong is found like data that is. The lowest holder of each element at the source answers for it.
 * It sends each rank of the destination one number per tensor that the two share, in the order of
 * the tensors; the receiver finds from the layouts which tensors these are. It also adds up how
 * many elements were answered for: a number that nobody sent is found as well. */
#include "diagnose/digest.h"
#include "plan/redistribute/set.h"
#include "runtime/context/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* What is sent: a digest to a rank. */
typedef struct answer {
    int peer;
    int tensor;
    uint64_t digest;
} answer;

typedef struct checker {
    lierne_context *context;
    lierne_digest_check_spec spec;
    const void *const *out;
    const void *const *in;
    LIERNE_VEC(answer) answers;
    int64_t *words; /* of the messages */
    LIERNE_VEC(lierne_control_message) messages;
    /* Of each tensor of the destination: elements that were answered for; those that a rank answers
     * for, and their digest here. */
    int64_t *covered, *elements;
    uint64_t *digests;
} checker;

/* What moves: tensor i of both sides, or box i. */
typedef struct move {
    const lierne_layout *src, *dst;
    int tensors[2];
    lierne_frame frame; /* of a box */
} move;

static int64_t count_moves(const checker *c) {
    return c->spec.boxes ? c->spec.nboxes : c->spec.ntensors;
}

static int count_targets(const checker *c) {
    return c->spec.boxes ? (int)c->spec.ndst : c->spec.ntensors;
}

static move move_at(const checker *c, int64_t i) {
    const lierne_set_box *box = c->spec.boxes ? &c->spec.boxes[i] : NULL;
    move m = {.tensors = {(int)(box ? box->src : i), (int)(box ? box->dst : i)}};
    m.src = c->spec.src[m.tensors[0]];
    m.dst = c->spec.dst[m.tensors[1]];
    if (box) {
        lierne_frame_create(&m.frame, box, m.src->naxes, m.dst->naxes, 0);
    }
    return m;
}

/* Adds what this rank has on a side of a move, and peer on the other. */
static lierne_status add_move(uint64_t *digest, int64_t *elements, const checker *c, const move *m,
                              int side, int peer) {
    lierne_digest_factors factors;
    char name[32];
    const lierne_digest_part part = {.layout = side ? m->dst : m->src,
                                     .rank = c->context->rank,
                                     .peer_layout = side ? m->src : m->dst,
                                     .peer = peer,
                                     .name = name};
    const void *data = (side ? c->out : c->in)[m->tensors[side]];
    snprintf(name, sizeof name, "%s[%d]", side ? "out" : "in", m->tensors[side]);
    lierne_digest_factors_set(&factors, c->spec.key, (uint64_t)m->tensors[1]);
    return c->spec.boxes
               ? lierne_digest_add_box(digest, elements, &part, &m->frame, side, &factors, data)
               : lierne_digest_add(digest, elements, &part, &factors, data);
}

static lierne_status check_layout(const checker *c, const lierne_layout *layout, const char *side,
                                  int t) {
    char name[32];
    snprintf(name, sizeof name, "%s[%d]", side, t);
    LIERNE_TRY(lierne_digest_check_layout(layout, name));
    if (layout->world != c->context->members.world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s has a world of %d ranks, the context one of %d: they must be the "
                           "same",
                           name, layout->world, c->context->members.world);
    }
    return lierne_context_check_ranks(c->context, name, layout->offset, layout->nranks);
}

/* As a set with these boxes is checked. */
static lierne_status check_boxes(const checker *c) {
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = c->spec.ntensors,
                                  .src = c->spec.src,
                                  .dst = c->spec.dst,
                                  .boxes = c->spec.boxes,
                                  .nboxes = c->spec.nboxes,
                                  .ndst = c->spec.ndst};
    lierne_set set;
    lierne_status status = lierne_set_describe(&set, &spec, c->context->rank);
    lierne_set_destroy(&set);
    return status;
}

static lierne_status check_spec(const checker *c) {
    int n = c->spec.ntensors;
    if (n < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "ntensors is %d, must be at least 0", n);
    }
    if (n > 0) {
        LIERNE_TRY(lierne_check_set(c->spec.src, "src"));
        LIERNE_TRY(lierne_check_set(c->spec.dst, "dst"));
        LIERNE_TRY(lierne_check_set(c->out, "out"));
        LIERNE_TRY(lierne_check_set(c->in, "in"));
    }
    LIERNE_TRY(c->spec.boxes ? check_boxes(c) : LIERNE_OK);
    for (int t = 0; t < n; t++) {
        LIERNE_TRY(check_layout(c, c->spec.src[t], "src", t));
    }
    for (int t = 0; t < count_targets(c); t++) {
        LIERNE_TRY(check_layout(c, c->spec.dst[t], "dst", t));
        LIERNE_TRY(c->spec.boxes ? LIERNE_OK
                                 : lierne_digest_check_pair(c->spec.src[t], c->spec.dst[t]));
    }
    return LIERNE_OK;
}

/* Answers the ranks of a cell of the destination. */
static lierne_status answer_cell(checker *c, const move *m, const lierne_cell *cell) {
    lierne_ranks ranks = {0};
    answer a = {.tensor = m->tensors[1]};
    int64_t elements = 0;
    lierne_status status = lierne_layout_members(m->dst, cell, -1, &ranks);
    if (status == LIERNE_OK) {
        status = add_move(&a.digest, &elements, c, m, 0, ranks.at[0]);
    }
    for (size_t i = 0; i < ranks.count && elements > 0 && status == LIERNE_OK; i++) {
        a.peer = ranks.at[i];
        status = LIERNE_VEC_PUSH(&c->answers, a);
    }
    lierne_mem_free(ranks.at);
    return status;
}

static lierne_status answer_move(checker *c, const move *m) {
    lierne_cells cells = {0};
    lierne_cell own;
    if (!lierne_digest_counts(m->src, c->context->rank)) {
        return LIERNE_OK;
    }
    lierne_layout_cell(m->src, c->context->rank, &own);
    lierne_status status =
        c->spec.boxes ? lierne_frame_overlapping(&cells, &m->frame, 1, m->dst, m->src, &own)
                      : lierne_layout_overlapping(&cells, m->dst, m->src, &own);
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        status = answer_cell(c, m, &cells.at[i]);
    }
    lierne_mem_free(cells.at);
    return status;
}

static int compare_answers(const void *a, const void *b) {
    const answer *x = a, *y = b;
    int peer = (x->peer > y->peer) - (x->peer < y->peer);
    return peer ? peer : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* What boxes of a tensor add up to is one answer. */
static void join_answers(checker *c) {
    size_t n = 0;
    if (c->answers.count > 0) {
        qsort(c->answers.at, c->answers.count, sizeof *c->answers.at, compare_answers);
    }
    for (size_t i = 0; i < c->answers.count; i++) {
        const answer *a = &c->answers.at[i];
        if (n > 0 && compare_answers(a, &c->answers.at[n - 1]) == 0) {
            c->answers.at[n - 1].digest += a->digest;
        } else {
            c->answers.at[n++] = *a;
        }
    }
    c->answers.count = n;
}

/* One message to each rank that has answers. */
static lierne_status write_messages(checker *c) {
    LIERNE_TRY(lierne_alloc(&c->words, c->answers.count, sizeof *c->words));
    for (size_t i = 0; i < c->answers.count; i++) {
        c->words[i] = (int64_t)c->answers.at[i].digest;
        if (i == 0 || c->answers.at[i].peer != c->answers.at[i - 1].peer) {
            const lierne_control_message m = {.peer = c->answers.at[i].peer, .words = c->words + i};
            LIERNE_TRY(LIERNE_VEC_PUSH(&c->messages, m));
        }
        c->messages.at[c->messages.count - 1].count++;
    }
    return LIERNE_OK;
}

static lierne_status prepare_checker(checker *c) {
    LIERNE_TRY(check_spec(c));
    size_t n = (size_t)count_targets(c);
    LIERNE_TRY(lierne_alloc(&c->covered, n, sizeof *c->covered));
    LIERNE_TRY(lierne_alloc(&c->elements, n, sizeof *c->elements));
    LIERNE_TRY(lierne_alloc(&c->digests, n, sizeof *c->digests));
    for (int64_t i = 0; i < count_moves(c); i++) {
        const move m = move_at(c, i);
        LIERNE_TRY(answer_move(c, &m));
    }
    join_answers(c);
    return write_messages(c);
}

/* What this rank has of the elements that another one answers for. */
static lierne_status add_up_answered(checker *c, int from) {
    for (int t = 0; t < count_targets(c); t++) {
        c->elements[t] = 0;
        c->digests[t] = 0;
    }
    for (int64_t i = 0; i < count_moves(c); i++) {
        const move m = move_at(c, i);
        int t = m.tensors[1];
        if (lierne_digest_counts(m.src, from)) {
            LIERNE_TRY(add_move(&c->digests[t], &c->elements[t], c, &m, 1, from));
        }
    }
    return LIERNE_OK;
}

/* Compares what a rank answered for a tensor; *next is the place of its digest. */
static lierne_status compare_digests(checker *c, int t, const lierne_control_message *m,
                                     size_t *next) {
    if (c->elements[t] == 0) {
        return LIERNE_OK;
    }
    uint64_t theirs = *next < m->count ? (uint64_t)m->words[*next] : 0, mine = c->digests[t];
    if (*next >= m->count || mine != theirs) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "tensor %d: out of rank %d differs from in of rank %d in the %" PRId64
                           " elements that they share: digest %016" PRIx64 ", must be %016" PRIx64,
                           t, c->context->rank, m->peer, c->elements[t], mine, theirs);
    }
    ++*next;
    c->covered[t] += c->elements[t];
    return LIERNE_OK;
}

static lierne_status compare_message(checker *c, const lierne_control_message *m) {
    size_t next = 0;
    LIERNE_TRY(add_up_answered(c, m->peer));
    for (int t = 0; t < count_targets(c); t++) {
        LIERNE_TRY(compare_digests(c, t, m, &next));
    }
    return next == m->count ? LIERNE_OK
                            : LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                                          "rank %d sent rank %d %zu digests, must be %zu: the "
                                          "layouts of the two differ",
                                          m->peer, c->context->rank, m->count, next);
}

static lierne_status check_covered(const checker *c) {
    for (int t = 0; t < count_targets(c); t++) {
        int64_t own;
        LIERNE_TRY(lierne_layout_get_elements(NULL, &own, c->spec.dst[t], c->context->rank));
        if (c->covered[t] != own) {
            return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                               "tensor %d: ranks sent digests of %" PRId64 " of the %" PRId64
                               " elements of out of rank %d: the layouts of ranks differ",
                               t, c->covered[t], own, c->context->rank);
        }
    }
    return LIERNE_OK;
}

static lierne_status exchange(checker *c) {
    lierne_control_messages received = {0};
    lierne_status status =
        lierne_context_sparse_exchange(c->context, c->messages.at, c->messages.count, &received);
    for (size_t i = 0; i < received.count && status == LIERNE_OK; i++) {
        status = compare_message(c, &received.at[i]);
    }
    lierne_control_messages_destroy(&received);
    return status == LIERNE_OK ? check_covered(c) : status;
}

/* What the ranks must have given alike, and whether all of them could compute. */
static lierne_status agree_on_digests(const checker *c, lierne_status mine) {
    lierne_field fields[4] = {{.name = "lierne_digest_check"},
                              {.name = "ntensors", .value = c->spec.ntensors},
                              {.name = "nboxes", .value = c->spec.boxes ? c->spec.nboxes : 0},
                              {.name = "key", .value = (int64_t)c->spec.key}};
    return lierne_context_agree_all(c->context, mine, fields, 4, NULL);
}

lierne_status lierne_digest_check(lierne_context *context, const lierne_digest_check_spec *spec,
                                  const void *const *out, const void *const *in) {
    LIERNE_PUBLIC_CALL();
    checker c = {.context = context, .out = out, .in = in};
    LIERNE_TRY(lierne_check_set(context, "context"));
    LIERNE_TRY(lierne_context_alive(context));
    int64_t call = lierne_context_begin_call(context, "digest check", -1, -1);
    lierne_status status = lierne_spec_take(&c.spec, sizeof c.spec, spec, "spec");
    status = agree_on_digests(&c, status == LIERNE_OK ? prepare_checker(&c) : status);
    if (status == LIERNE_OK) {
        status = agree_on_digests(&c, exchange(&c));
    }
    lierne_context_end_call(context, call, status);
    lierne_mem_free(c.answers.at);
    lierne_context_free_message_memory(context, c.words);
    lierne_mem_free(c.covered);
    lierne_mem_free(c.elements);
    lierne_mem_free(c.digests);
    lierne_mem_free(c.messages.at);
    return status;
}
