/* lierne_init_mpi.
 *
 * What can go wrong on one rank alone (its arguments, its environment, its memory) is tried first,
 * then the communicator is duplicated, then all ranks agree on the outcome: so the rank that failed
 * takes part and all others learn why. After that only the wire itself can fail.
 *
 * Nodes are found by gathering one number per rank, a hash of the host's name, rather than with
 * MPI_Comm_split_type: that would make a communicator, and has no nonblocking form. */
#include "lierne/mpi.h"
#include "transport/mpi/link.h"

#include <stdlib.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 30)

/* What no other rank can be told, as there is nothing to tell it over. */
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

/* A rank needs the link even to say that it has no memory, so it is asked for twice: *mine is the
 * outcome of the first time. */
static lierne_status new_link(lierne_link **out, MPI_Comm comm, const lierne_context_spec *spec,
                              lierne_status *mine) {
    lierne_link *l;
    *mine = lierne_alloc(&l, 1, sizeof *l);
    if (*mine != LIERNE_OK) {
        LIERNE_TRY(lierne_alloc(&l, 1, sizeof *l));
    }
    l->comm = l->notices = MPI_COMM_NULL;
    l->hearing = MPI_REQUEST_NULL;
    l->opened = -1;
    l->chunk = CHUNK;
    l->timeout = lierne_context_timeout(spec);
    MPI_Comm_rank(comm, &l->rank);
    MPI_Comm_size(comm, &l->world);
    *out = l;
    return LIERNE_OK;
}

/* An id of the node of this rank: as LIERNE_NODE says, else spec->nodes, else the host's name. */
static lierne_status own_node(const lierne_link *l, const lierne_context_spec *spec, uint64_t *id) {
    char host[MPI_MAX_PROCESSOR_NAME];
    int length, node = -1;
    LIERNE_TRY(lierne_context_own_node(&node));
    if (node >= 0) {
        *id = (uint64_t)node;
    } else if (spec && spec->nodes) {
        *id = (uint64_t)spec->nodes[l->rank];
    } else {
        MPI_Get_processor_name(host, &length);
        *id = lierne_link_hash(0, host, (size_t)length);
    }
    return LIERNE_OK;
}

static lierne_status take_seat(lierne_link *l, const lierne_context_spec *spec) {
    lierne_seat *seat = &l->seats[l->rank];
    l->opened = lierne_abort_flags_open(l->world);
    *seat = (lierne_seat){.rank = (uint64_t)l->rank,
                          .space = lierne_link_space(),
                          .process = (uint64_t)getpid(),
                          .flags = l->opened < 0 ? LIERNE_NO_FLAGS : (uint64_t)l->opened};
    return own_node(l, spec, &seat->node);
}

/* Everything that this rank does alone. */
static lierne_status prepare(lierne_link *l, const lierne_context_spec *spec) {
    lierne_context *context;
    size_t world = (size_t)l->world;
    LIERNE_TRY(lierne_alloc(&l->context, 1, sizeof *l->context));
    context = l->context;
    context->wire = &lierne_mpi_wire;
    context->self = l;
    context->rank = l->rank;
    context->world = l->world;
    LIERNE_TRY(lierne_context_fill(context, spec));
    l->timeout = context->timeout;
    LIERNE_TRY(lierne_alloc(&l->seats, world, sizeof *l->seats));
    if (!context->nodes) {
        LIERNE_TRY(lierne_alloc(&context->nodes, world, sizeof *context->nodes));
    }
    LIERNE_TRY(lierne_alloc(&l->watches, world, sizeof *l->watches));
    for (size_t r = 0; r < world; r++) {
        l->watches[r] = -1;
    }
    LIERNE_TRY(lierne_alloc(&l->flag, world, sizeof *l->flag));
    LIERNE_TRY(lierne_alloc(&l->gone, world, sizeof *l->gone));
    LIERNE_TRY(lierne_alloc(&l->met, world, sizeof *l->met));
    return take_seat(l, spec);
}

static int by_node(const void *a, const void *b) {
    const lierne_seat *x = a, *y = b;
    int node = (x->node > y->node) - (x->node < y->node);
    return node ? node : (x->rank > y->rank) - (x->rank < y->rank);
}

/* A node's number is its lowest rank. */
static void number_nodes(lierne_link *l) {
    lierne_context *context = l->context;
    int node = 0;
    qsort(l->seats, (size_t)l->world, sizeof *l->seats, by_node);
    for (int i = 0; i < l->world; i++) {
        if (i == 0 || l->seats[i].node != l->seats[i - 1].node) {
            node = (int)l->seats[i].rank;
        }
        context->nodes[l->seats[i].rank] = node;
    }
    if (l->seats[0].node == l->seats[l->world - 1].node) {
        lierne_mem_free(context->nodes);
        context->nodes = NULL;
    }
    lierne_mem_free(l->seats);
    l->seats = NULL;
}

static lierne_status find_nodes(lierne_link *l) {
    MPI_Request request;
    LIERNE_TRY(lierne_link_wait(l,
                                MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, l->seats,
                                               LIERNE_SEAT_WORDS,
                                               MPI_UINT64_T, l->comm, &request),
                                &request, "finding nodes"));
    lierne_link_watch(l);
    bool reached = lierne_link_map_flags(l);
    number_nodes(l);
    return lierne_link_share_flags(l, reached);
}

static lierne_status take_part(lierne_link *l, MPI_Comm comm, lierne_status mine,
                               const lierne_context_spec *spec, lierne_status *decision) {
    lierne_field fields[2] = {{.name = "hash of spec->nodes"}, {.name = "check"}};
    if (mine == LIERNE_OK && spec && spec->nodes) {
        size_t bytes = (size_t)l->world * sizeof *spec->nodes;
        fields[0].value = (int64_t)lierne_link_hash(0, spec->nodes, bytes);
    }
    if (mine == LIERNE_OK) {
        fields[1].value = l->context->check;
    }
    LIERNE_TRY(lierne_link_open(l, comm));
    LIERNE_TRY(lierne_link_agree(l, mine, fields, 2, decision));
    return *decision == LIERNE_OK ? find_nodes(l) : LIERNE_OK;
}

lierne_status lierne_init_mpi(lierne_context **out, MPI_Comm comm,
                              const lierne_context_spec *spec) {
    lierne_link *l;
    lierne_status mine, decision = LIERNE_OK;
    if (out) {
        *out = NULL;
    }
    LIERNE_TRY(check_comm(comm));
    LIERNE_TRY(new_link(&l, comm, spec, &mine));
    if (mine == LIERNE_OK) {
        mine = out ? prepare(l, spec) : LIERNE_FAIL(LIERNE_INVALID, "out is NULL");
    }
    lierne_status status = take_part(l, comm, mine, spec, &decision);
    if (status == LIERNE_OK && decision == LIERNE_OK) {
        *out = l->context;
        return LIERNE_OK;
    }
    lierne_context_drop(l->context);
    l->context = NULL; /* closing waits, and waiting runs the jobs of a context */
    lierne_link_close(l, status != LIERNE_OK);
    return status != LIERNE_OK ? status : decision;
}
