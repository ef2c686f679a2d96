/* lierne_context_create_mpi.
 *
 * It first does everything that can fail on one rank alone (arguments, environment, memory), then
 * duplicates the communicator, then all ranks agree on the outcome. So the rank that failed takes
 * part and all others learn why. After that only MPI itself can fail.
 *
 * Nodes are found by gathering one number per rank, a hash of the host's name. MPI_Comm_split_type
 * would create a communicator and has no nonblocking form. */
#include "context/context.h"
#include "lierne/mpi.h"
#include "transport/mpi/mpi.h"

#include <stdlib.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 30)

/* Errors of this rank alone: without a communicator it cannot tell the others. */
static lierne_status check_comm(MPI_Comm comm) {
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized) {
        return LIERNE_FAIL(LIERNE_INVALID, "MPI is %s",
                           finalized ? "finalised" : "not initialised");
    }
    if (comm == MPI_COMM_NULL) {
        return LIERNE_FAIL(LIERNE_INVALID, "comm is MPI_COMM_NULL");
    }
    MPI_Comm_test_inter(comm, &inter);
    if (inter) {
        return LIERNE_FAIL(LIERNE_INVALID, "comm is an intercommunicator");
    }
    return LIERNE_OK;
}

/* A rank needs the state even to tell the others that it has no memory, so the allocation is tried
 * twice; *mine is the outcome of the first try. */
static lierne_status create_state(lierne_mpi_state **out, MPI_Comm comm,
                                  const lierne_context_spec *spec, lierne_status *mine) {
    lierne_mpi_state *m;
    *mine = lierne_alloc(&m, 1, sizeof *m);
    if (*mine != LIERNE_OK) {
        LIERNE_TRY(lierne_alloc(&m, 1, sizeof *m));
    }
    m->comm = m->notices = MPI_COMM_NULL;
    m->listening = MPI_REQUEST_NULL;
    m->opened = -1;
    m->piece_bytes = PIECE;
    m->timeout = lierne_context_timeout(spec);
    MPI_Comm_rank(comm, &m->rank);
    MPI_Comm_size(comm, &m->world);
    *out = m;
    return LIERNE_OK;
}

/* An id of the node of this rank: LIERNE_NODE, else spec->nodes, else a hash of the host's name. */
static lierne_status own_node(const lierne_mpi_state *m, const lierne_context_spec *spec,
                              uint64_t *id) {
    char host[MPI_MAX_PROCESSOR_NAME];
    int length, node = -1;
    LIERNE_TRY(lierne_context_own_node(&node));
    if (node >= 0) {
        *id = (uint64_t)node;
    } else if (spec && spec->nodes) {
        *id = (uint64_t)spec->nodes[m->rank];
    } else {
        MPI_Get_processor_name(host, &length);
        *id = lierne_hash(0, host, (size_t)length);
    }
    return LIERNE_OK;
}

static lierne_status fill_rank_info(lierne_mpi_state *m, const lierne_context_spec *spec) {
    lierne_rank_info *info = &m->ranks[m->rank];
    m->opened = lierne_abort_flags_open(m->world);
    *info = (lierne_rank_info){.rank = (uint64_t)m->rank,
                               .space = lierne_mpi_process_space(),
                               .process = (uint64_t)getpid(),
                               .flags = m->opened < 0 ? LIERNE_NO_FLAGS : (uint64_t)m->opened};
    return own_node(m, spec, &info->node);
}

/* Everything that can fail on this rank alone. */
static lierne_status prepare(lierne_context *context, lierne_mpi_state *m,
                             const lierne_context_spec *spec) {
    size_t world = (size_t)m->world;
    context->control = &lierne_mpi_control;
    lierne_context_add_transport(context, &lierne_mpi_transport, m);
    context->control_self = m;
    context->index = m->rank;
    context->members.count = m->world;
    LIERNE_TRY(lierne_context_fill(context, spec));
    m->timeout = context->timeout;
    LIERNE_TRY(lierne_alloc(&m->ranks, world, sizeof *m->ranks));
    if (!context->nodes) {
        LIERNE_TRY(lierne_alloc(&context->nodes, world, sizeof *context->nodes));
    }
    LIERNE_TRY(lierne_alloc(&m->watches, world, sizeof *m->watches));
    for (size_t r = 0; r < world; r++) {
        m->watches[r] = -1;
    }
    LIERNE_TRY(lierne_alloc(&m->flag, world, sizeof *m->flag));
    LIERNE_TRY(lierne_alloc(&m->gave_up, world, sizeof *m->gave_up));
    LIERNE_TRY(lierne_alloc(&m->contacted, world, sizeof *m->contacted));
    return fill_rank_info(m, spec);
}

static int by_node(const void *a, const void *b) {
    const lierne_rank_info *x = a, *y = b;
    int node = (x->node > y->node) - (x->node < y->node);
    return node ? node : (x->rank > y->rank) - (x->rank < y->rank);
}

/* The number of a node is its lowest rank. */
static void number_nodes(lierne_context *context, lierne_mpi_state *m) {
    int node = 0;
    qsort(m->ranks, (size_t)m->world, sizeof *m->ranks, by_node);
    for (int i = 0; i < m->world; i++) {
        if (i == 0 || m->ranks[i].node != m->ranks[i - 1].node) {
            node = (int)m->ranks[i].rank;
        }
        context->nodes[m->ranks[i].rank] = node;
    }
    if (m->ranks[0].node == m->ranks[m->world - 1].node) {
        lierne_mem_free(context->nodes);
        context->nodes = NULL;
    }
    lierne_mem_free(m->ranks);
    m->ranks = NULL;
}

static lierne_status find_nodes(lierne_context *context, lierne_mpi_state *m) {
    MPI_Request request;
    LIERNE_TRY(
        lierne_mpi_wait(m,
                        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m->ranks,
                                       LIERNE_RANK_INFO_WORDS, MPI_UINT64_T, m->comm, &request),
                        &request, "finding nodes"));
    lierne_mpi_watch(m);
    bool reached = lierne_mpi_map_flags(m);
    number_nodes(context, m);
    return lierne_mpi_share_flags(m, reached);
}

static int64_t hash_members(const lierne_members *members) {
    size_t bytes = (size_t)members->count * sizeof *members->ranks;
    return members->ranks ? (int64_t)(lierne_hash(0, members->ranks, bytes) >> 1) : 0;
}

static lierne_status take_part(lierne_context *context, lierne_mpi_state *m, MPI_Comm comm,
                               lierne_status mine, const lierne_context_spec *spec,
                               lierne_status *decision) {
    lierne_field fields[5] = {{.name = "hash of spec->nodes"},
                              {.name = "check"},
                              {.name = "hash of LIERNE_TRANSPORTS"},
                              {.name = "world_size"},
                              {.name = "hash of spec->members"}};
    int id;
    if (mine == LIERNE_OK && spec && spec->nodes) {
        size_t bytes = (size_t)m->world * sizeof *spec->nodes;
        fields[0].value = (int64_t)lierne_hash(0, spec->nodes, bytes);
    }
    if (mine == LIERNE_OK) {
        fields[1].value = context->check;
        fields[3].value = context->members.world;
        fields[4].value = hash_members(&context->members);
        mine = lierne_context_select_transports(context, &fields[2].value);
    }
    LIERNE_TRY(lierne_mpi_open(m, comm));
    LIERNE_TRY(lierne_mpi_agree(m, mine, fields, 5, &id, decision));
    m->agreements = 0; /* plans take their numbers from agreements, from 0 on */
    if (*decision != LIERNE_OK) {
        return LIERNE_OK;
    }
    m->members = context->members; /* agreed: all ranks now mean the same by a rank */
    return find_nodes(context, m);
}

static bool progress_context(void *user) {
    return lierne_context_progress(user);
}

lierne_status lierne_context_create_mpi(lierne_context **out, MPI_Comm comm,
                                        const lierne_context_spec *spec) {
    lierne_context *context = NULL;
    lierne_mpi_state *m;
    lierne_status mine, decision = LIERNE_OK;
    if (out) {
        *out = NULL;
    }
    LIERNE_TRY(check_comm(comm));
    LIERNE_TRY(create_state(&m, comm, spec, &mine));
    if (mine == LIERNE_OK) {
        mine = out ? lierne_alloc(&context, 1, sizeof *context)
                   : LIERNE_FAIL(LIERNE_INVALID, "out is NULL");
    }
    if (mine == LIERNE_OK) {
        mine = prepare(context, m, spec);
    }
    lierne_status status = take_part(context, m, comm, mine, spec, &decision);
    if (status == LIERNE_OK && decision == LIERNE_OK) {
        m->hook = (lierne_control_hook){progress_context, context};
        *out = context;
        return LIERNE_OK;
    }
    lierne_mpi_close(m, status != LIERNE_OK);
    lierne_context_drop(context);
    return status != LIERNE_OK ? status : decision;
}
