/* lierne_context_create_mpi.
 *
 * It first does everything that can fail on one rank alone (arguments, environment, memory), then
 * duplicates the communicator, then all ranks agree on the outcome. So the rank that failed takes
 * part and all others learn why. After that only MPI itself can fail.
 *
 * Nodes are found by gathering one number per rank, a hash of the host's name. MPI_Comm_split_type
 * would create a communicator and has no nonblocking form. */
#include "backend/mpi/mpi_transport.h"
#include "backend/shm/shm_context.h"
#include "backend/shm/shm_transport.h"
#include "lierne/mpi.h"
#include "runtime/context/context.h"

#include <limits.h>
#include <stdio.h>

#define PIECE ((size_t)1 << 30)

/* Errors of this rank alone: without a communicator it cannot tell the others. */
static lierne_status check_comm(MPI_Comm comm) {
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "MPI is %s",
                           finalized ? "finalised" : "not initialised");
    }
    if (comm == MPI_COMM_NULL) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "comm is MPI_COMM_NULL");
    }
    MPI_Comm_test_inter(comm, &inter);
    if (inter) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "comm is an intercommunicator");
    }
    return LIERNE_OK;
}

/* A rank needs the state even to tell the others that it has no memory, so the allocation is tried
 * twice; *mine becomes the outcome of the first try if that failed. */
static lierne_status create_state(lierne_mpi_state **out, MPI_Comm comm,
                                  const lierne_context_spec *spec, lierne_status *mine) {
    lierne_mpi_state *m;
    lierne_status first = lierne_alloc(&m, 1, sizeof *m);
    if (first != LIERNE_OK) {
        LIERNE_TRY(lierne_alloc(&m, 1, sizeof *m));
        *mine = first;
    }
    m->comm = m->notices = MPI_COMM_NULL;
    m->listening = MPI_REQUEST_NULL;
    m->opened = m->ports.listener = -1;
    m->crowded = true; /* until it is known */
    m->piece_bytes = PIECE;
    m->few = LIERNE_MPI_FEW;
    m->timeout = lierne_context_timeout(spec);
    MPI_Comm_rank(comm, &m->rank);
    MPI_Comm_size(comm, &m->world);
    *out = m;
    return LIERNE_OK;
}

static lierne_status fill_rank_info(lierne_mpi_state *m, const lierne_context_spec *spec) {
    char host[MPI_MAX_PROCESSOR_NAME];
    int length;
    MPI_Get_processor_name(host, &length);
    m->opened = lierne_abort_flags_open(m->world, lierne_mpi_board_bytes(m->world));
    lierne_rank_info_fill(&m->ranks[m->rank], m->rank, m->opened);
    LIERNE_TRY(lierne_ports_open(&m->ports, &m->ranks[m->rank].address, m->world));
    return lierne_context_node_id(&m->ranks[m->rank].node, spec, m->rank, host);
}

/* Everything that can fail on this rank alone. */
static void name_threads(lierne_context *context) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE) {
        snprintf(context->one_thread, sizeof context->one_thread,
                 "MPI does not provide MPI_THREAD_MULTIPLE");
    }
}

static lierne_status prepare_state(lierne_context *context, lierne_mpi_state *m,
                                   const lierne_context_spec *spec) {
    size_t world = (size_t)m->world;
    context->control = &lierne_mpi_control;
    LIERNE_TRY(lierne_context_add_transport(context, &lierne_shm_transport, NULL, NULL));
    LIERNE_TRY(lierne_context_add_transport(context, &lierne_mpi_transport, m, lierne_mpi_takes()));
    context->control_self = m;
    context->index = m->rank;
    context->members.count = m->world;
    LIERNE_TRY(lierne_context_fill(context, spec));
    name_threads(context);
    m->timeout = context->timeout;
    LIERNE_TRY(lierne_alloc(&m->ranks, world, sizeof *m->ranks));
    if (!context->nodes) {
        LIERNE_TRY(lierne_alloc(&context->nodes, world, sizeof *context->nodes));
    }
    LIERNE_TRY(lierne_alloc(&m->watches, world, sizeof *m->watches));
    for (size_t r = 0; r < world; r++) {
        m->watches[r] = LIERNE_NO_WATCH;
    }
    LIERNE_TRY(lierne_alloc(&m->flag, world, sizeof *m->flag));
    LIERNE_TRY(lierne_alloc(&m->gave_up, world, sizeof *m->gave_up));
    LIERNE_TRY(lierne_alloc(&m->contacted, world, sizeof *m->contacted));
    return fill_rank_info(m, spec);
}

static lierne_status find_nodes(lierne_context *context, lierne_mpi_state *m,
                                lierne_status *decision) {
    MPI_Request request;
    bool shm[LIERNE_SHM_ANSWERS + 1], *reached = &shm[LIERNE_SHM_ANSWERS], own;
    lierne_context_open_shm(context, &m->ranks[m->rank]);
    LIERNE_TRY(
        lierne_mpi_wait(m,
                        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m->ranks,
                                       LIERNE_RANK_INFO_WORDS, MPI_UINT64_T, m->comm, &request),
                        &request, "finding nodes"));
    lierne_mpi_watch(m);
    bool flags_reach_all = lierne_mpi_map_flags(m);
    const lierne_shm_ranks ranks = {m->ranks, m->flag, m->world, m->flags != NULL};
    lierne_context_map_shm(context, &ranks, shm);
    lierne_recorder_meet(&context->recorder, lierne_rank_infos_hash(m->ranks),
                         (int64_t)m->ranks[0].created);
    const lierne_ports_ranks all = {.infos = m->ranks,
                                    .rank = m->rank,
                                    .world = m->world,
                                    .timeout = m->timeout,
                                    .alive = lierne_mpi_alive,
                                    .state = m};
    *decision = lierne_ports_meet(&m->ports, &all, reached);
    own = *reached;
    lierne_context_number_nodes(context, m->ranks, m->world);
    lierne_mem_free(m->ranks);
    m->ranks = NULL;
    LIERNE_TRY(lierne_mpi_share_flags(m, flags_reach_all, shm, LIERNE_SHM_ANSWERS + 1));
    *decision = *decision != LIERNE_OK ? *decision
                : *reached             ? lierne_context_start_shm(context, shm, m->crowded)
                                       : lierne_ports_not_reached(context->rank, own);
    return LIERNE_OK;
}

static lierne_status take_part(lierne_context *context, lierne_mpi_state *m, MPI_Comm comm,
                               lierne_status mine, const lierne_context_spec *spec,
                               lierne_status *decision) {
    lierne_field fields[LIERNE_CONTEXT_FIELDS] = {0};
    int id;
    mine = mine == LIERNE_OK
               ? lierne_context_list_fields(fields, context, spec, "lierne_context_create_mpi")
               : mine;
    LIERNE_TRY(lierne_mpi_open(m, comm));
    LIERNE_TRY(lierne_mpi_agree(m, mine, fields, LIERNE_CONTEXT_FIELDS, &id, decision));
    m->agreements = 0; /* plans take their numbers from agreements, from 0 on */
    if (*decision != LIERNE_OK) {
        return LIERNE_OK;
    }
    m->members = context->members; /* agreed: all ranks now mean the same by a rank */
    context->match_ids = m->tags <= INT_MAX / LIERNE_CALL_IDS ? m->tags * LIERNE_CALL_IDS : INT_MAX;
    return find_nodes(context, m, decision);
}

static bool progress_context(void *user) {
    lierne_context_beat(user);
    return lierne_context_poll(user);
}

lierne_status lierne_context_create_mpi(lierne_context **out, MPI_Comm comm,
                                        const lierne_context_spec *given) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_context *context = NULL;
    lierne_context_spec own, *spec = &own;
    lierne_mpi_state *m;
    lierne_status mine, decision = LIERNE_OK;
    LIERNE_TRY(check_comm(comm));
    mine = lierne_context_take_spec(spec, given);
    LIERNE_TRY(create_state(&m, comm, spec, &mine));
    if (mine == LIERNE_OK) {
        mine = out ? lierne_alloc(&context, 1, sizeof *context)
                   : LIERNE_FAIL(LIERNE_ERR_INVALID, "out is NULL");
    }
    if (mine == LIERNE_OK) {
        mine = prepare_state(context, m, spec);
    }
    lierne_status status = take_part(context, m, comm, mine, spec, &decision);
    if (status == LIERNE_OK && decision == LIERNE_OK) {
        m->hook = (lierne_control_hook){progress_context, context};
        lierne_log_context(context);
        *out = context;
        return LIERNE_OK;
    }
    lierne_mpi_close(m, status != LIERNE_OK);
    lierne_context_drop(context);
    return status != LIERNE_OK ? status : decision;
}

/* The standard MPI ABI has no handles of Fortran, but integers for the same purpose. */
static MPI_Comm comm_of(int handle) {
#ifdef MPI_ABI_VERSION
    return MPI_Comm_fromint(handle);
#else
    return MPI_Comm_f2c(handle);
#endif
}

lierne_status lierne_context_create_mpi_fortran(lierne_context **out, int comm,
                                                const lierne_context_spec *spec) {
    LIERNE_PUBLIC_CALL();
    int initialized = 0;
    MPI_Initialized(&initialized);
    return lierne_context_create_mpi(out, initialized ? comm_of(comm) : MPI_COMM_NULL, spec);
}
