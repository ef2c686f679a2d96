/* lierne_context_shrink: the ranks that are left agree, in shared memory or over the ports that
 * they have (survivors.h), and then meet as the ranks of a new job.
 *
 * Nothing of the dead context but that memory, or those ports, is used: messages may be in flight
 * everywhere else. So it does not matter what the dead context was made of. */
#include "backend/node/mesh.h"
#include "lierne/node.h"
#include "runtime/context/context.h"
#include "runtime/control/remote.h"

#include <stdio.h>
#include <string.h>

static lierne_status find_survivors(lierne_survivors *s, const lierne_context *dead) {
    const lierne_control *control = dead->control;
    if (!control->survivors || !control->survivors->find(dead->control_self, s)) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the ranks of the context are not processes of one node that share "
                           "memory, and LIERNE_ADDRESS was not set when it was created: create a "
                           "context of those that are left yourself");
    }
    if (s->world > LIERNE_REMOTE_MOST && !s->flags) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                           "the context has %d ranks on several nodes, must have at most %d",
                           s->world, LIERNE_REMOTE_MOST);
    }
    if (dead->dead == LIERNE_OK) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "the context is not dead: lierne_context_abort kills it");
    }
    if (dead->shrunk) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "the context was shrunk before, which is once only");
    }
    s->members = &dead->members;
    return LIERNE_OK;
}

static lierne_status check_spec(const lierne_context_spec *spec) {
    if (spec->members || spec->nmembers || spec->world_size || spec->nodes) {
        return LIERNE_FAIL(
            LIERNE_ERR_INVALID,
            "spec->%s is set, must not: the ranks that are left are the members, on the nodes that "
            "they were on",
            spec->nodes ? "nodes" : "members, nmembers or world_size");
    }
    return LIERNE_OK;
}

static bool is_lost(void *user, int index) {
    return lierne_survivors_lost(user, index);
}

static lierne_status connect_remote(void *user, int *sockets) {
    return lierne_remote_connect(user, sockets);
}

/* The context of an attempt, of the ranks in its list. */
static lierne_status try_to_create(lierne_context **out, lierne_survivors *s,
                                   const lierne_context_spec *spec) {
    lierne_launch job = {.world = s->count};
    lierne_node_opening how = {.seconds = lierne_survivors_left(s), .lost = is_lost, .user = s};
    how.connect = s->remote ? connect_remote : NULL;
    while (s->list[job.rank] != s->rank) {
        job.rank++;
    }
    snprintf(job.name, sizeof job.name, "lierne_context_shrink/%llx/%d",
             (unsigned long long)lierne_survivors_key(s), s->attempt);
    if (s->count > LIERNE_NODE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED, "%d ranks are left, must be at most %d",
                           s->count, LIERNE_NODE_MAX_RANKS);
    }
    return lierne_node_open(out, &job, spec, LIERNE_OK, &how);
}

/* Frees a context that not all ranks have. */
static void discard(lierne_context *context) {
    if (context) {
        lierne_context_kill(context, LIERNE_FAIL(LIERNE_ERR_PEER_FAILED,
                                                 "not all ranks that are left created it"));
        context->control->close(context->control_self, true);
        lierne_context_drop(context);
    }
}

/* The list becomes the context's. */
static void keep_list(lierne_context *context, lierne_survivors *s) {
    for (int i = 0; i < s->count; i++) {
        s->list[i] = lierne_members_rank(s->members, s->list[i]);
    }
    context->former = s->list;
    s->list = NULL;
}

/* The nodes of the ranks in the list, as the dead context has them; *nodes is NULL if it has one.
 */
static lierne_status list_nodes(int **nodes, const lierne_context *dead,
                                const lierne_survivors *s) {
    *nodes = NULL;
    if (!dead->nodes) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(nodes, (size_t)s->count, sizeof **nodes));
    for (int i = 0; i < s->count; i++) {
        (*nodes)[i] = dead->nodes[s->list[i]];
    }
    return LIERNE_OK;
}

static lierne_status try_on_nodes(lierne_context **out, const lierne_context *dead,
                                  lierne_survivors *s, const lierne_context_spec *given) {
    lierne_context_spec spec = *given;
    int *nodes;
    LIERNE_TRY(list_nodes(&nodes, dead, s));
    spec.nodes = nodes;
    lierne_status status = try_to_create(out, s, &spec);
    lierne_mem_free(nodes);
    return status;
}

/* Tries until there is an outcome for all. mine: an error of this rank, or OK. */
static lierne_status shrink(lierne_context **out, const lierne_context *dead, lierne_survivors *s,
                            lierne_status mine, const lierne_context_spec *spec) {
    for (;;) {
        lierne_context *context = NULL;
        LIERNE_TRY(lierne_survivors_list(s));
        lierne_status own = mine == LIERNE_OK ? try_on_nodes(&context, dead, s, spec) : mine;
        lierne_status status = lierne_survivors_decide(s, own);
        if (status == LIERNE_OK) {
            keep_list(context, s);
            *out = context;
            return LIERNE_OK;
        }
        discard(context);
        if (status != LIERNE_ERR_PEER_FAILED) {
            return status;
        }
    }
}

lierne_status lierne_context_shrink(lierne_context **out, lierne_context *dead,
                                    const lierne_context_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_context_spec spec;
    lierne_survivors s;
    LIERNE_TRY(lierne_check_set(dead, "dead"));
    LIERNE_TRY(find_survivors(&s, dead));
    lierne_status mine = out ? LIERNE_OK : LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    lierne_status taken = lierne_context_take_spec(&spec, given);
    mine = mine != LIERNE_OK ? mine : taken != LIERNE_OK ? taken : check_spec(&spec);
    lierne_status begun = lierne_survivors_begin(&s, lierne_context_timeout(&spec));
    if (begun != LIERNE_OK) { /* tried once more, so that the others need not wait for this rank */
        mine = begun;
        LIERNE_TRY(lierne_survivors_begin(&s, lierne_context_timeout(&spec)));
    }
    dead->shrunk = true;
    lierne_status status = shrink(out, dead, &s, mine, &spec);
    lierne_survivors_end(&s);
    return status;
}
