/* The transports of a context: which it has, which LIERNE_TRANSPORTS leaves, and which one serves a
 * peer. A context has few, so that all of them are looked at each time. */
#include "runtime/context/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The back end with a transport of this name, or NULL. */
static const lierne_back_end *find_back_end(const char *transport, size_t length) {
    for (const lierne_back_end *b = lierne_back_ends; b->name; b++) {
        if (b->transport && strlen(b->transport) == length &&
            memcmp(b->transport, transport, length) == 0) {
            return b;
        }
    }
    return NULL;
}

static int priority_of(const lierne_transport *transport) {
    const lierne_back_end *b = find_back_end(transport->name, strlen(transport->name));
    return b ? b->priority : 0;
}

/* The note about a transport; for NULL, space for one. NULL if there is none. */
static lierne_unused *find_unused(lierne_context *context, const char *name) {
    for (int i = 0; i < LIERNE_MAX_TRANSPORTS; i++) {
        lierne_unused *u = &context->unused[i];
        if (name ? u->transport && strcmp(u->transport, name) == 0 : !u->transport) {
            return u;
        }
    }
    return NULL;
}

/* What could not be used before now is: another driver of the device serves it. */
static void forget_unused(lierne_context *context, const char *name) {
    lierne_unused *u = find_unused(context, name);
    if (u) {
        u->transport = NULL;
    }
}

static lierne_status insert_carrier(lierne_context *context, int at, lierne_carrier carrier) {
    if (context->ncarriers == LIERNE_MAX_TRANSPORTS) {
        char names[80];
        lierne_context_list_transports(names, sizeof names, context);
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the context has %d transports (%s), and can have at most %d: %s does "
                           "not fit",
                           context->ncarriers, names, LIERNE_MAX_TRANSPORTS,
                           carrier.transport->name);
    }
    forget_unused(context, carrier.transport->name);
    for (int i = context->ncarriers++; i > at; i--) {
        context->carriers[i] = context->carriers[i - 1];
    }
    context->carriers[at] = carrier;
    return LIERNE_OK;
}

lierne_status lierne_context_add_transport(lierne_context *context,
                                           const lierne_transport *transport, void *self,
                                           const char *takes) {
    int at = 0, own = priority_of(transport);
    while (at < context->ncarriers && priority_of(context->carriers[at].transport) >= own) {
        at++;
    }
    return insert_carrier(context, at, (lierne_carrier){transport, self, takes});
}

void lierne_context_note_unused(lierne_context *context, const lierne_transport *transport,
                                const char *why) {
    lierne_unused *u = find_unused(context, transport->name);
    u = u ? u : find_unused(context, NULL);
    if (u) {
        u->transport = transport->name;
        snprintf(u->why, sizeof u->why, "%s", why);
    }
}

bool lierne_context_is_unused(lierne_context *context, const lierne_transport *transport) {
    return find_unused(context, transport->name) != NULL;
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

static lierne_status reject_name(const char *name, size_t length) {
    char names[LIERNE_MESSAGE_SIZE] = "";
    size_t used = 0;
    for (const lierne_back_end *b = lierne_back_ends; b->name && used < sizeof names; b++) {
        if (b->transport) {
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     b->transport);
        }
    }
    return LIERNE_FAIL(LIERNE_ERR_INVALID,
                       "LIERNE_TRANSPORTS names '%.*s', must be a list of some of %s, separated by "
                       "commas",
                       (int)(length < 40 ? length : 40), name, names);
}

/* Adds the transport of one name of the list to selected, unless the context has none. */
static lierne_status select_name(const lierne_context *context, const char *name, size_t length,
                                 lierne_context *selected) {
    int i = find_name(context, name, length);
    if (i < 0 && !find_back_end(name, length)) {
        return reject_name(name, length);
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

lierne_status lierne_context_place_transport(lierne_context *context,
                                             const lierne_transport *transport, void *self) {
    const char *list = getenv("LIERNE_TRANSPORTS");
    const char *own = list && *list ? find_in_list(list, transport->name) : NULL;
    int at = 0;
    if (!own) {
        return lierne_context_add_transport(context, transport, self, NULL);
    }
    while (at < context->ncarriers) {
        const char *other = find_in_list(list, context->carriers[at].transport->name);
        if (!other || other > own) {
            break;
        }
        at++;
    }
    return insert_carrier(context, at, (lierne_carrier){transport, self, NULL});
}

bool lierne_context_connects(const lierne_context *context) {
    bool connects = false;
    for (int i = 0; i < context->ncarriers; i++) {
        connects |= context->carriers[i].transport->connects != NULL;
    }
    return connects;
}

lierne_status lierne_context_find_carrier(int *carrier, const lierne_context *context, int peer,
                                          bool resizes) {
    int index = lierne_members_index(&context->members, peer);
    for (int i = 0; i < context->ncarriers; i++) {
        const lierne_carrier *c = &context->carriers[i];
        if (c->transport->exposes && context->memory->alloc_host) {
            continue; /* the host would copy what it cannot read */
        }
        if (resizes && c->transport->connects && !c->transport->resize) {
            continue;
        }
        if (c->transport->reaches(c->self, index)) {
            *carrier = i;
            return LIERNE_OK;
        }
    }
    char names[80];
    lierne_context_list_transports(names, sizeof names, context);
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "rank %d: none of the transports of the context (%s) reaches rank %d%s",
                       context->rank, names, peer,
                       resizes ? " and can change the length of messages" : "");
}
