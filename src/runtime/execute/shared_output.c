/* Outputs that a plan owns.
 *
 * Ranks that share one have two buffers, which take turns. A call writes into one while the other
 * may still be read as the result of the call before; and a rank that begins a call has ended the
 * one before it, in the last stage of which every other rank told it that it had begun that one,
 * and so no longer reads the result of the call before that. So no rank waits before it writes. A
 * rank on its own needs one buffer. */
#include "runtime/execute/shared_output.h"

#include <string.h>

struct lierne_shared_output {
    lierne_context *context;
    const lierne_transport_shares *shares; /* of a transport; NULL: the memory is this rank's own */
    void *shared;                          /* of the transport */
    lierne_record name;
    char *memory;
    size_t bytes; /* of a buffer, in whole pages where there are two */
    int *ranks;
    size_t nranks;
};

enum { PAGE = 4096 };

/* What a rank that created memory tells another one: per output its index and name. */
enum { OUTPUTS = 2, WORDS = 1 + LIERNE_RECORD_WORDS };
typedef struct names {
    int peer;
    size_t count;
    int64_t words[OUTPUTS * WORDS];
} names;
typedef LIERNE_VEC(names) names_list;

static const lierne_transport_shares *sharing(const lierne_context *context) {
    for (int i = 0; i < context->ncarriers; i++) {
        if (context->carriers[i].transport->shares) {
            return context->carriers[i].transport->shares;
        }
    }
    return NULL;
}

bool lierne_context_shares(const lierne_context *context) {
    return sharing(context) != NULL;
}

static bool is_creator(const lierne_shared_output *o) {
    return o->ranks[0] == o->context->rank;
}

static lierne_status reserve_output(lierne_shared_output *o) {
    void *memory = NULL;
    if (o->bytes > 0 && !o->shares) {
        LIERNE_TRY(lierne_alloc(&memory, o->bytes, 1));
    } else if (o->bytes > 0 && is_creator(o)) {
        LIERNE_TRY(o->shares->create(&o->shared, &memory, 2 * o->bytes, &o->name));
    }
    o->memory = memory;
    return LIERNE_OK;
}

lierne_status lierne_shared_output_create(lierne_shared_output **out, lierne_context *context,
                                          size_t bytes, const int *ranks, size_t n) {
    lierne_shared_output *o;
    LIERNE_TRY(lierne_alloc(&o, 1, sizeof *o));
    *out = o;
    o->context = context;
    o->shares = n > 1 ? sharing(context) : NULL;
    o->bytes = o->shares ? (bytes + PAGE - 1) / PAGE * PAGE : bytes;
    LIERNE_TRY(lierne_alloc(&o->ranks, n, sizeof *o->ranks));
    for (size_t i = 0; i < n; i++) {
        o->ranks[i] = ranks[i];
    }
    o->nranks = n;
    return reserve_output(o);
}

static lierne_status find_names(names **out, names_list *list, int peer) {
    for (size_t i = 0; i < list->count; i++) {
        if (list->at[i].peer == peer) {
            *out = &list->at[i];
            return LIERNE_OK;
        }
    }
    LIERNE_TRY(LIERNE_VEC_PUSH(list, (names){.peer = peer}));
    *out = &list->at[list->count - 1];
    return LIERNE_OK;
}

/* The names of what this rank created, for the ranks that share it. */
static lierne_status list_names(names_list *list, lierne_shared_output *const *outputs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const lierne_shared_output *o = outputs[i];
        for (size_t k = 1; o && o->shared && k < o->nranks; k++) {
            names *to;
            LIERNE_TRY(find_names(&to, list, o->ranks[k]));
            to->words[to->count++] = (int64_t)i;
            memcpy(&to->words[to->count], o->name.words, sizeof o->name.words);
            to->count += LIERNE_RECORD_WORDS;
        }
    }
    return LIERNE_OK;
}

static lierne_status open_named(lierne_shared_output *const *outputs, size_t n,
                                const lierne_control_message *m) {
    for (size_t at = 0; at + WORDS <= m->count; at += WORDS) {
        lierne_record name;
        size_t i = (size_t)m->words[at];
        memcpy(name.words, &m->words[at + 1], sizeof name.words);
        lierne_shared_output *o = i < n ? outputs[i] : NULL;
        if (!o || !o->shares || o->shared || o->ranks[0] != m->peer) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                               "rank %d names memory that this rank does not use", m->peer);
        }
        void *memory;
        LIERNE_TRY(o->shares->open(&o->shared, &memory, 2 * o->bytes, &name));
        o->memory = memory;
    }
    return LIERNE_OK;
}

/* Every rank has opened what it shares. */
static lierne_status check_open(lierne_shared_output *const *outputs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const lierne_shared_output *o = outputs[i];
        if (o && o->bytes > 0 && !o->memory) {
            return LIERNE_FAIL(LIERNE_ERR_TRANSPORT,
                               "rank %d has not named the memory of the output", o->ranks[0]);
        }
    }
    return LIERNE_OK;
}

/* A rank that has no memory to name what it created still takes part, and says so afterwards. */
static lierne_status exchange_names(lierne_context *context, names_list *list, lierne_status listed,
                                    lierne_control_messages *received) {
    lierne_control_message *messages = NULL;
    if (listed == LIERNE_OK) {
        listed = lierne_alloc(&messages, list->count, sizeof *messages);
    }
    size_t n = listed == LIERNE_OK ? list->count : 0;
    for (size_t i = 0; i < n; i++) {
        names *to = &list->at[i];
        messages[i] = (lierne_control_message){to->peer, to->count, to->words};
    }
    lierne_status status = lierne_context_sparse_exchange(context, messages, n, received);
    lierne_mem_free(messages);
    return listed == LIERNE_OK ? status : listed;
}

lierne_status lierne_shared_outputs_connect(lierne_context *context,
                                            lierne_shared_output *const *outputs, size_t n) {
    names_list list = {0};
    lierne_control_messages received = {0};
    if (!lierne_context_shares(context)) {
        return LIERNE_OK;
    }
    lierne_status status = list_names(&list, outputs, n);
    status = exchange_names(context, &list, status, &received);
    for (size_t i = 0; i < received.count && status == LIERNE_OK; i++) {
        status = open_named(outputs, n, &received.at[i]);
    }
    status = status == LIERNE_OK ? check_open(outputs, n) : status;
    lierne_control_messages_destroy(&received);
    lierne_context_free_message_memory(context, list.at);
    return lierne_context_agree_all(context, status, NULL, 0, NULL);
}

void *lierne_shared_output_get(const lierne_shared_output *o, size_t call) {
    return o->shares && o->memory ? o->memory + call % 2 * o->bytes : o->memory;
}

bool lierne_shared_output_overlaps(const lierne_shared_output *o, const void *data, size_t n) {
    uintptr_t a = (uintptr_t)o->memory, b = (uintptr_t)data;
    return o->memory && n > 0 && a < b + n && b < a + (o->shares ? 2 : 1) * o->bytes;
}

void lierne_shared_output_destroy(lierne_shared_output *o, bool quiet) {
    if (!o) {
        return;
    }
    bool now = lierne_lifetime_find(NULL, quiet) == LIERNE_LIFETIME_USE;
    if (now && !o->shares) {
        lierne_mem_free(o->memory);
    } else if (now && o->shared) {
        o->shares->close(o->shared);
    }
    lierne_mem_free(o->ranks);
    lierne_mem_free(o);
}
