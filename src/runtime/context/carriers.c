/* The transports of a context: which it has, which LIERNE_TRANSPORTS leaves, and which one serves a
 * peer. A context has few, so that all of them are looked at each time. */
#include "runtime/context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Transports of this version, whether or not a context has them. */
static const char *const known[] = {"self", "sim", "shm", "mpi", "oob", "socket", "nccl", "ipc"};

lierne_carrier *lierne_context_add_transport(lierne_context *context,
                                             const lierne_transport *transport, void *self) {
    lierne_carrier *carrier = &context->carriers[context->ncarriers++];
    *carrier = (lierne_carrier){.transport = transport, .self = self};
    return carrier;
}

static void insert(lierne_context *context, int at, lierne_carrier carrier) {
    for (int i = context->ncarriers++; i > at; i--) {
        context->carriers[i] = context->carriers[i - 1];
    }
    context->carriers[at] = carrier;
}

void lierne_context_prefer_transport(lierne_context *context, const lierne_transport *transport,
                                     void *self) {
    insert(context, 0, (lierne_carrier){.transport = transport, .self = self});
}

void lierne_context_list_transports(char *text, size_t size, const lierne_context *context) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < context->ncarriers && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "",
                                 context->carriers[i].transport->name);
    }
}

static int find_name(const lierne_context *context, const char *name, size_t length) {
    for (int i = 0; i < context->ncarriers; i++) {
        const char *has = context->carriers[i].transport->name;
        if (strlen(has) == length && memcmp(has, name, length) == 0) {
            return i;
        }
    }
    return -1;
}

static bool is_known(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i]) == length && memcmp(known[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the transport of one name of the list to selected, unless the context has none. */
static lierne_status select_name(const lierne_context *context, const char *name, size_t length,
                                 lierne_context *selected) {
    int i = find_name(context, name, length);
    if (i < 0 && !is_known(name, length)) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "LIERNE_TRANSPORTS names '%.*s', must be a list of self, sim, shm, mpi, oob, "
            "socket, nccl and ipc, separated by commas",
            (int)(length < 40 ? length : 40), name);
    }
    if (i >= 0 && find_name(selected, name, length) >= 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "LIERNE_TRANSPORTS names '%.*s' twice", (int)length,
                           name);
    }
    if (i >= 0) {
        selected->carriers[selected->ncarriers++] = context->carriers[i];
    }
    return LIERNE_OK;
}

lierne_status lierne_context_select_transports(lierne_context *context) {
    const char *list = getenv("LIERNE_TRANSPORTS");
    lierne_context selected = {0};
    if (!list || !*list) {
        return LIERNE_OK;
    }
    for (const char *name = list; name; name = strchr(name, ',')) {
        name += name != list;
        LIERNE_TRY(select_name(context, name, strcspn(name, ","), &selected));
    }
    if (selected.ncarriers == 0) {
        char names[80];
        lierne_context_list_transports(names, sizeof names, context);
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "LIERNE_TRANSPORTS is '%.80s', must name one that the context has (%s)",
                           list, names);
    }
    memcpy(context->carriers, selected.carriers, sizeof selected.carriers);
    context->ncarriers = selected.ncarriers;
    return LIERNE_OK;
}

/* The part of LIERNE_TRANSPORTS that begins with a name; NULL if it is not in the list. */
static const char *find_in_list(const char *list, const char *name) {
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += at != list;
        if (strcspn(at, ",") == length && memcmp(at, name, length) == 0) {
            return at;
        }
    }
    return NULL;
}

bool lierne_context_allows_transport(const char *name) {
    const char *list = getenv("LIERNE_TRANSPORTS");
    return !list || !*list || find_in_list(list, name);
}

bool lierne_context_place_transport(lierne_context *context, const lierne_transport *transport,
                                    void *self) {
    const char *list = getenv("LIERNE_TRANSPORTS");
    const char *own = list && *list ? find_in_list(list, transport->name) : NULL;
    int at = 0;
    if (!lierne_context_allows_transport(transport->name)) {
        return false;
    }
    while (own && at < context->ncarriers) {
        const char *other = find_in_list(list, context->carriers[at].transport->name);
        if (!other || other > own) {
            break;
        }
        at++;
    }
    insert(context, at, (lierne_carrier){.transport = transport, .self = self});
    return true;
}

bool lierne_context_connects(const lierne_context *context) {
    bool connects = false;
    for (int i = 0; i < context->ncarriers; i++) {
        connects |= context->carriers[i].transport->connects != NULL;
    }
    return connects;
}

lierne_status lierne_context_find_carrier(int *carrier, const lierne_context *context, int peer) {
    int index = lierne_members_index(&context->members, peer);
    for (int i = 0; i < context->ncarriers; i++) {
        const lierne_carrier *c = &context->carriers[i];
        if (c->transport->exposes && context->memory->alloc_host) {
            continue; /* the host would copy what it cannot read */
        }
        if (c->transport->reaches(c->self, index)) {
            *carrier = i;
            return LIERNE_OK;
        }
    }
    char names[80];
    lierne_context_list_transports(names, sizeof names, context);
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "rank %d: none of the transports of the context (%s) reaches rank %d",
                       context->rank, names, peer);
}
