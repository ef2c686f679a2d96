/* A simulated world: the contexts of all its ranks, in one process.
 *
 * A rank that waits progresses the executions of all ranks, so that one thread can begin on all of
 * them and then end on all of them; a lock lets several threads wait at once. The context of a rank
 * is initialised at its first use, so that planning one rank of a large world takes the memory of
 * one context, and ending it looks at that one only. All contexts share the arrays of nodes and
 * members. Without a context, a rank that is no member takes no memory. */
#include "backend/sim/sim_transport.h"
#include "backend/sim/sim_world.h"
#include "lierne/grid.h"
#include "lierne/sim.h"
#include "runtime/context/summary.h"

struct lierne_sim {
    lierne_sim_world world;
    lierne_context *contexts; /* per member; control is NULL until the first use */
    lierne_context common;    /* initial value of all contexts; owns their nodes and members */
    uint64_t number;          /* of the world, for its dumps */
    int64_t created;          /* nanoseconds of the calendar */
    lierne_context *used;     /* the contexts that were used, in the order of first use */
    lierne_context **last_used;
};

static const lierne_context_owner owner = {.name = "a simulated world",
                                           .destroy = "lierne_sim_destroy",
                                           .destroy_all = "lierne_sim_destroy_all"};

static bool progress_all(void *user) {
    const lierne_sim *sim = user;
    bool moved = false;
    for (const lierne_context *c = sim->used; c; c = c->next_used) {
        moved |= lierne_context_poll(c);
        moved |= lierne_context_awaits_stream(c); /* who sleeps is not woken by a stream */
    }
    return moved;
}

/* The context of a member. Called with the lock. Memory for all contexts is allocated, but the
 * system provides only what is written. */
static lierne_context *open_context(lierne_sim *sim, int index) {
    lierne_context *context = &sim->contexts[index];
    if (!context->control) {
        lierne_sim_rank *s = &sim->world.ranks[index];
        s->world = &sim->world;
        s->rank = index;
        *context = sim->common;
        context->log.owned = false; /* the world's */
        context->control_self = s;
        for (int i = 0; i < context->ncarriers; i++) {
            context->carriers[i].self = s;
        }
        context->index = index;
        context->rank = lierne_members_rank(&sim->common.members, index);
        /* Without memory for it, nothing is recorded: this function cannot fail. */
        (void)lierne_context_open_recorder(context, lierne_recorder_folder()
                                                        ? LIERNE_RECORDER_ENTRIES
                                                        : LIERNE_RECORDER_FEW_ENTRIES);
        lierne_recorder_meet(&context->recorder, sim->number, sim->created);
        (void)lierne_metrics_open(context);
        lierne_log_context(context);
        *sim->last_used = context;
        sim->last_used = &context->next_used;
    }
    return context;
}

static void close_sim(lierne_sim *sim) {
    for (lierne_context *c = sim->used; c; c = c->next_used) {
        lierne_context_trace_calls(c);
        lierne_summary_end(c);
        lierne_metrics_write(c);
        c->nodes = NULL; /* the world's, as the members and the name */
        c->name = NULL;
        c->members.ranks = NULL;
        lierne_context_clear(c);
    }
    lierne_log_close(&sim->common.log);
    lierne_mem_free(sim->contexts);
    lierne_mem_free(sim->common.nodes);
    lierne_mem_free(sim->common.name);
    lierne_mem_free(sim->common.members.ranks);
    lierne_sim_world_close(&sim->world);
    lierne_mem_free(sim);
}

static lierne_status open_sim(lierne_sim *sim, int nranks, const lierne_context_spec *spec) {
    sim->last_used = &sim->used;
    sim->common.control = &lierne_sim_control;
    lierne_context_add_transport(&sim->common, &lierne_sim_transport, NULL, NULL);
    sim->common.members.world = nranks;
    sim->common.owner = &owner;
    const int64_t unique[2] = {(int64_t)(intptr_t)sim, lierne_recorder_nanoseconds()};
    sim->number = lierne_hash(0, unique, sizeof unique);
    sim->created = lierne_recorder_calendar();
    lierne_status status = lierne_context_fill(&sim->common, spec);
    if (status == LIERNE_OK) {
        status = lierne_context_select_transports(&sim->common);
    }
    LIERNE_TRY(lierne_sim_world_open(&sim->world, &sim->common.members, sim->common.timeout,
                                     (lierne_control_hook){progress_all, sim}));
    LIERNE_TRY(status);
    return lierne_alloc(&sim->contexts, (size_t)sim->world.nranks, sizeof *sim->contexts);
}

lierne_status lierne_sim_create(lierne_sim **out, int nranks, const lierne_context_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_context_spec own, *spec = &own;
    lierne_sim *sim;
    LIERNE_TRY(lierne_check_set(out, "out"));
    if (nranks < 1 || nranks > LIERNE_MAX_RANKS) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "nranks is %d, must be 1 to %d", nranks,
                           LIERNE_MAX_RANKS);
    }
    LIERNE_TRY(lierne_context_take_spec(spec, given));
    LIERNE_TRY(lierne_alloc(&sim, 1, sizeof *sim));
    lierne_status status = open_sim(sim, nranks, spec);
    if (status != LIERNE_OK) {
        close_sim(sim);
        return status;
    }
    *out = sim;
    return LIERNE_OK;
}

lierne_context *lierne_sim_get_context(lierne_sim *sim, int rank) {
    int index = sim ? lierne_members_index(&sim->common.members, rank) : -1;
    if (index < 0) {
        return NULL;
    }
    pthread_mutex_lock(&sim->world.lock);
    lierne_context *context = open_context(sim, index);
    pthread_mutex_unlock(&sim->world.lock);
    return context;
}

lierne_status lierne_sim_destroy(lierne_sim *sim) {
    LIERNE_PUBLIC_CALL();
    for (const lierne_context *context = sim ? sim->used : NULL; context;
         context = context->next_used) {
        if (context->nplans > 0 || context->groups.count > 0) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "%zu plans and %zu groups of rank %d are alive, must be 0: destroy "
                               "them first, or use lierne_sim_destroy_all",
                               context->nplans, context->groups.count, context->rank);
        }
        LIERNE_TRY(lierne_context_check_memory(context));
    }
    if (sim) {
        close_sim(sim);
    }
    return LIERNE_OK;
}

lierne_status lierne_sim_destroy_all(lierne_sim *sim) {
    LIERNE_PUBLIC_CALL();
    lierne_status first = LIERNE_OK;
    for (lierne_context *c = sim ? sim->used : NULL; c; c = c->next_used) {
        LIERNE_TRY(lierne_context_check_dependents(c));
    }
    for (lierne_context *c = sim ? sim->used : NULL; c; c = c->next_used) {
        lierne_status status = lierne_context_destroy_dependents(c);
        first = first == LIERNE_OK ? status : first;
    }
    if (sim) {
        close_sim(sim);
    }
    return first;
}
