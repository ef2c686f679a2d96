/* Contexts over functions: lierne_context_create_oob, and what contexts over lierne's own functions
 * share with it.
 *
 * As over MPI, everything that can fail on one rank alone comes first, and the ranks then agree on
 * the outcome, so that the rank that failed takes part and all others learn why. */
#include "backend/oob/oob_context.h"
#include "backend/shm/shm_context.h"
#include "backend/shm/shm_transport.h"
#include "lierne/grid.h"

#include <unistd.h>

#define HOST_SIZE 256

/* Everything that can fail on this rank alone. */
static lierne_status prepare_state(lierne_context *context, lierne_oob_state *s,
                                   const lierne_transport *transport,
                                   const lierne_context_spec *spec) {
    char host[HOST_SIZE] = "";
    context->control = &lierne_oob_control;
    context->control_self = s;
    LIERNE_TRY(lierne_context_add_transport(context, &lierne_shm_transport, NULL, NULL));
    LIERNE_TRY(lierne_context_add_transport(context, transport, s, NULL));
    context->index = s->rank;
    context->members.count = s->world;
    LIERNE_TRY(lierne_context_fill(context, spec));
    context->match_ids = LIERNE_OOB_CONTROL_TAG;
    s->timeout = s->opening > 0 ? s->opening : context->timeout;
    if (!context->nodes) {
        LIERNE_TRY(lierne_alloc(&context->nodes, (size_t)s->world, sizeof *context->nodes));
    }
    LIERNE_TRY(lierne_oob_reserve(s));
    gethostname(host, sizeof host - 1);
    return lierne_context_node_id(&s->infos[s->rank].node, spec, s->rank, host);
}

static lierne_status find_nodes(lierne_context *context, lierne_oob_state *s,
                                lierne_status *decision) {
    bool shm[LIERNE_SHM_ANSWERS + 1], *reached = &shm[LIERNE_SHM_ANSWERS], own;
    lierne_context_open_shm(context, &s->infos[s->rank]);
    LIERNE_TRY(lierne_oob_meet(s, reached, decision));
    own = *reached;
    const lierne_shm_ranks ranks = {s->infos, s->flag, s->world, s->flags != NULL};
    lierne_context_map_shm(context, &ranks, shm);
    lierne_recorder_meet(&context->recorder, lierne_rank_infos_hash(s->infos),
                         (int64_t)s->infos[0].created);
    lierne_context_number_nodes(context, s->infos, s->world);
    LIERNE_TRY(lierne_oob_share_flags(s, shm, LIERNE_SHM_ANSWERS + 1));
    *decision = *decision != LIERNE_OK ? *decision
                : *reached             ? lierne_context_start_shm(context, shm, s->crowded)
                                       : lierne_ports_not_reached(context->rank, own);
    return LIERNE_OK;
}

static lierne_status take_part(lierne_context *context, lierne_oob_state *s, lierne_status mine,
                               const lierne_context_spec *spec, lierne_status *decision) {
    const char *call = lierne_call_name ? lierne_call_name : "";
    lierne_field fields[LIERNE_CONTEXT_FIELDS] = {0};
    int id;
    mine = mine == LIERNE_OK ? lierne_context_list_fields(fields, context, spec, call) : mine;
    LIERNE_TRY(lierne_oob_agree(s, mine, fields, LIERNE_CONTEXT_FIELDS, &id, decision));
    s->agreements = 0; /* plans take their numbers from agreements, from 0 on */
    if (*decision != LIERNE_OK) {
        return LIERNE_OK;
    }
    s->members = context->members; /* agreed: all ranks now mean the same by a rank */
    return find_nodes(context, s, decision);
}

static bool progress_context(void *user) {
    lierne_context_beat(user);
    return lierne_context_poll(user);
}

lierne_status lierne_context_open_oob(lierne_context **out, lierne_oob_state *s,
                                      const lierne_transport *transport,
                                      const lierne_context_spec *spec, lierne_status mine) {
    lierne_context *context = NULL;
    lierne_status decision = LIERNE_OK;
    s->timeout = s->opening > 0 ? s->opening : lierne_context_timeout(spec);
    if (mine == LIERNE_OK) {
        mine = out ? lierne_alloc(&context, 1, sizeof *context)
                   : LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    }
    if (mine == LIERNE_OK) {
        mine = prepare_state(context, s, transport, spec);
    }
    lierne_status status = take_part(context, s, mine, spec, &decision);
    if (status == LIERNE_OK && decision == LIERNE_OK) {
        s->hook = (lierne_control_hook){progress_context, context};
        s->timeout = context->timeout;
        lierne_log_context(context);
        *out = context;
        return LIERNE_OK;
    }
    s->members = (lierne_members){0}; /* the context's, which is dropped */
    lierne_oob_close(s, true);
    lierne_context_drop(context);
    return status != LIERNE_OK ? status : decision;
}

/* Errors of this rank alone: without the functions it cannot tell the others. */
static lierne_status check_spec(const lierne_oob_spec *spec) {
    if (spec->nranks < 1 || spec->nranks > LIERNE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nranks is %d, must be 1 to %d", spec->nranks,
                           LIERNE_MAX_RANKS);
    }
    if (spec->rank < 0 || spec->rank >= spec->nranks) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank is %d, must be 0 to %d", spec->rank,
                           spec->nranks - 1);
    }
    const lierne_oob_calls *calls = &spec->calls;
    if (!calls->allgather || !calls->test) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "calls.%s is NULL, must be a function",
                           calls->allgather ? "test" : "allgather");
    }
    if (!calls->send != !calls->receive) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "calls.%s is NULL, must be a function where calls.%s is",
                           calls->send ? "receive" : "send", calls->send ? "send" : "receive");
    }
    return LIERNE_OK;
}

lierne_status lierne_context_create_oob(lierne_context **out, const lierne_oob_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_oob_spec spec;
    lierne_context_spec context;
    lierne_oob_state *s;
    LIERNE_TRY(lierne_spec_take(&spec, sizeof spec, given, "spec"));
    LIERNE_TRY(check_spec(&spec));
    lierne_status mine = lierne_context_take_spec(&context, spec.context);
    LIERNE_TRY(lierne_oob_open(&s, spec.rank, spec.nranks, &mine));
    s->calls = spec.calls;
    return lierne_context_open_oob(out, s, &lierne_oob_transport, &context, mine);
}
