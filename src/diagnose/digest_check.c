/* Comparing digests between the ranks that had a tensor and those that got it.
 *
 * What is compared follows from the layouts and not from a plan, so that a plan that is wrong is
 * found like data that is. The lowest holder of each element at the source answers for it. It sends
 * each rank of the destination one number per tensor that the two share, in the order of the
 * tensors; the receiver finds from the layouts which tensors these are. It also adds up how many
 * elements were answered for: a number that nobody sent is found as well. */
#include "diagnose/digest.h"
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
    int64_t *covered; /* elements of each tensor that were answered for */
} checker;

static lierne_status check_tensor(const checker *c, int t) {
    const lierne_layout *layouts[2] = {c->spec.src[t], c->spec.dst[t]};
    char name[32];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s[%d]", i ? "dst" : "src", t);
        LIERNE_TRY(lierne_digest_check_layout(layouts[i], name));
        if (layouts[i]->world != c->context->members.world) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "%s has a world of %d ranks, the context one of %d: they must be "
                               "the same",
                               name, layouts[i]->world, c->context->members.world);
        }
        LIERNE_TRY(
            lierne_context_check_ranks(c->context, name, layouts[i]->offset, layouts[i]->nranks));
    }
    return lierne_digest_check_pair(layouts[0], layouts[1]);
}

static lierne_status check_spec(const checker *c) {
    if (c->spec.ntensors < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "ntensors is %d, must be at least 0",
                           c->spec.ntensors);
    }
    if (c->spec.ntensors > 0) {
        LIERNE_TRY(lierne_check_set(c->spec.src, "src"));
        LIERNE_TRY(lierne_check_set(c->spec.dst, "dst"));
        LIERNE_TRY(lierne_check_set(c->out, "out"));
        LIERNE_TRY(lierne_check_set(c->in, "in"));
    }
    for (int t = 0; t < c->spec.ntensors; t++) {
        LIERNE_TRY(check_tensor(c, t));
    }
    return LIERNE_OK;
}

/* Answers the ranks of a cell of the destination. */
static lierne_status answer_cell(checker *c, int t, const lierne_digest_factors *factors,
                                 const lierne_cell *cell) {
    lierne_ranks ranks = {0};
    answer a = {.tensor = t};
    int64_t elements = 0;
    char name[32];
    snprintf(name, sizeof name, "in[%d]", t);
    lierne_status status = lierne_layout_members(c->spec.dst[t], cell, -1, &ranks);
    if (status == LIERNE_OK) {
        const lierne_digest_part part = {c->spec.src[t], c->context->rank, c->spec.dst[t],
                                         ranks.at[0], name};
        status = lierne_digest_add(&a.digest, &elements, &part, factors, c->in[t]);
    }
    for (size_t i = 0; i < ranks.count && elements > 0 && status == LIERNE_OK; i++) {
        a.peer = ranks.at[i];
        status = LIERNE_VEC_PUSH(&c->answers, a);
    }
    lierne_mem_free(ranks.at);
    return status;
}

static lierne_status answer_tensor(checker *c, int t) {
    lierne_cells cells = {0};
    lierne_cell own;
    lierne_digest_factors factors;
    if (!lierne_digest_counts(c->spec.src[t], c->context->rank)) {
        return LIERNE_OK;
    }
    lierne_digest_factors_set(&factors, c->spec.key, (uint64_t)t);
    lierne_layout_cell(c->spec.src[t], c->context->rank, &own);
    lierne_status status = lierne_layout_overlapping(&cells, c->spec.dst[t], c->spec.src[t], &own);
    for (size_t i = 0; i < cells.count && status == LIERNE_OK; i++) {
        status = answer_cell(c, t, &factors, &cells.at[i]);
    }
    lierne_mem_free(cells.at);
    return status;
}

static int compare_answers(const void *a, const void *b) {
    const answer *x = a, *y = b;
    int peer = (x->peer > y->peer) - (x->peer < y->peer);
    return peer ? peer : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* One message to each rank that has answers. */
static lierne_status write_messages(checker *c) {
    LIERNE_TRY(lierne_alloc(&c->words, c->answers.count, sizeof *c->words));
    LIERNE_TRY(lierne_alloc(&c->covered, (size_t)c->spec.ntensors, sizeof *c->covered));
    if (c->answers.count > 0) {
        qsort(c->answers.at, c->answers.count, sizeof *c->answers.at, compare_answers);
    }
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
    for (int t = 0; t < c->spec.ntensors; t++) {
        LIERNE_TRY(answer_tensor(c, t));
    }
    return write_messages(c);
}

/* Compares what a rank answered for a tensor; *next is the place of its digest. */
static lierne_status compare_digests(checker *c, int t, int from, const lierne_control_message *m,
                                     size_t *next) {
    char name[32];
    const lierne_digest_part part = {c->spec.dst[t], c->context->rank, c->spec.src[t], from, name};
    lierne_digest_factors factors;
    uint64_t mine = 0;
    int64_t elements = 0;
    snprintf(name, sizeof name, "out[%d]", t);
    if (!lierne_digest_counts(c->spec.src[t], from)) {
        return LIERNE_OK;
    }
    lierne_digest_factors_set(&factors, c->spec.key, (uint64_t)t);
    LIERNE_TRY(lierne_digest_add(&mine, &elements, &part, &factors, c->out[t]));
    if (elements == 0) {
        return LIERNE_OK;
    }
    uint64_t theirs = *next < m->count ? (uint64_t)m->words[*next] : 0;
    if (*next >= m->count || mine != theirs) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                           "tensor %d: out of rank %d differs from in of rank %d in the %" PRId64
                           " elements that they share: digest %016" PRIx64 ", must be %016" PRIx64,
                           t, c->context->rank, from, elements, mine, theirs);
    }
    ++*next;
    c->covered[t] += elements;
    return LIERNE_OK;
}

static lierne_status compare_message(checker *c, const lierne_control_message *m) {
    int from = m->peer;
    size_t next = 0;
    for (int t = 0; t < c->spec.ntensors; t++) {
        LIERNE_TRY(compare_digests(c, t, from, m, &next));
    }
    return next == m->count ? LIERNE_OK
                            : LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                                          "rank %d sent rank %d %zu digests, must be %zu: the "
                                          "layouts of the two differ",
                                          from, c->context->rank, m->count, next);
}

static lierne_status check_covered(const checker *c) {
    for (int t = 0; t < c->spec.ntensors; t++) {
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
    lierne_field fields[3] = {{.name = "lierne_digest_check"},
                              {.name = "ntensors", .value = c->spec.ntensors},
                              {.name = "key", .value = (int64_t)c->spec.key}};
    return lierne_context_agree_all(c->context, mine, fields, 3, NULL);
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
    lierne_mem_free(c.messages.at);
    return status;
}
