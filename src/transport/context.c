/* Contexts: what every transport's context has in common, and the context of one rank.
 *
 * A context dies of its first failure on the wire: after a missed deadline nobody knows which
 * messages are still under way, so going on could deliver one call's data to another. It keeps the
 * error and gives it again to whoever calls. */
#include "transport/transport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number from the environment; *value is unchanged if the variable is not set. */
static lierne_status env_number(const char *name, double low, double *value) {
    const char *text = getenv(name);
    char *end;
    if (!text) {
        return LIERNE_OK;
    }
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= low) || number > 1e9) {
        return LIERNE_FAIL(LIERNE_INVALID, "%s is '%s', must be a number from %g to 1e9", name,
                           text, low);
    }
    *value = number;
    return LIERNE_OK;
}

lierne_status lierne_context_own_node(int *node) {
    double number = *node;
    LIERNE_TRY(env_number("LIERNE_NODE", 0, &number));
    *node = (int)number;
    return LIERNE_OK;
}

lierne_status lierne_context_fill(lierne_context *context, const lierne_context_spec *spec) {
    double milliseconds = 60e3;
    if (spec && spec->size != sizeof *spec) {
        return LIERNE_FAIL(LIERNE_INVALID, "spec->size is %zu, must be %zu", spec->size,
                           sizeof *spec);
    }
    if (spec && !(spec->timeout >= 0 && spec->timeout <= 1e6)) {
        return LIERNE_FAIL(LIERNE_INVALID, "timeout is %g s, must be in 0 to 1e6", spec->timeout);
    }
    LIERNE_TRY(env_number("LIERNE_TIMEOUT_MS", 1, &milliseconds));
    context->timeout = spec && spec->timeout > 0 ? spec->timeout : milliseconds / 1e3;
    if (spec && spec->nodes) {
        size_t n = (size_t)context->world;
        LIERNE_TRY(lierne_alloc(&context->nodes, n, sizeof *context->nodes));
        memcpy(context->nodes, spec->nodes, n * sizeof *context->nodes);
    }
    return LIERNE_OK;
}

void lierne_context_drop(lierne_context *context) {
    if (context) {
        lierne_jobs_drop_orphans(context);
        lierne_mem_free(context->nodes);
        lierne_mem_free(context->groups.at);
        lierne_mem_free(context);
    }
}

lierne_status lierne_context_alive(const lierne_context *context) {
    if (context->dead != LIERNE_OK) {
        lierne_set_error(context->dead_message);
    }
    return context->dead;
}

lierne_status lierne_context_kill(lierne_context *context, lierne_status status) {
    if (context->dead == LIERNE_OK) {
        context->dead = status;
        snprintf(context->dead_message, sizeof context->dead_message, "%s", lierne_last_error());
    }
    return status;
}

int lierne_rank(const lierne_context *context) {
    return context ? context->rank : -1;
}

int lierne_world(const lierne_context *context) {
    return context ? context->world : -1;
}

int lierne_groups_alive(const lierne_context *context) {
    return context ? (int)context->groups.count : -1;
}

lierne_status lierne_free(lierne_context *context) {
    if (!context) {
        return LIERNE_OK;
    }
    if (context->owned_by_sim) {
        return LIERNE_FAIL(LIERNE_INVALID, "the context belongs to a sim: use lierne_sim_free");
    }
    if (context->nplans > 0) {
        return LIERNE_FAIL(LIERNE_INVALID, "%zu plans of the context are alive", context->nplans);
    }
    lierne_jobs_drop_orphans(context);
    context->wire->close(context->self, context->dead != LIERNE_OK);
    lierne_context_drop(context);
    return LIERNE_OK;
}
