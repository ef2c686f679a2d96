/* The ranks of a launch gather pieces in shared memory. Contexts are those of a node. */
#include "launched/mpi.h"

#include "backend/node/mesh.h"
#include "backend/oob/oob_context.h"
#include "launched/shared.h"
#include "lierne/node.h"
#include "mpi/contexts.h"
#include "staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 256 };

struct launched_ranks {
    int n;
    int rank;        /* of this process among them, -1: none */
    int ranks[MOST]; /* of the world */
};
struct launched_ranks launched_world;
static launched_memory *memory;

static int number(const char *name) {
    const char *text = getenv(name);
    if (!text) {
        fprintf(stderr, "%s is not set: start this program with build/tests/launched/launch\n",
                name);
        exit(2);
    }
    return atoi(text);
}

int MPI_Init(int *argc, char ***argv) {
    (void)argc, (void)argv;
    launched_world.n = number("WORLD_SIZE");
    launched_world.rank = number("RANK");
    size_t bytes = sizeof *memory + (size_t)launched_world.n * LAUNCHED_SLOT;
    int descriptor = number(LAUNCHED_MEMORY);
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) {
        exit(2);
    }
    close(descriptor);
    for (int r = 0; r < launched_world.n; r++) {
        launched_world.ranks[r] = r;
    }
    return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    *provided = required;
    return MPI_Init(argc, argv);
}

int MPI_Initialized(int *initialized) {
    *initialized = memory != NULL;
    return MPI_SUCCESS;
}

int MPI_Finalize(void) {
    return MPI_Barrier(MPI_COMM_WORLD);
}

int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    *rank = comm->rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size) {
    *size = comm->n;
    return MPI_SUCCESS;
}

int MPI_Barrier(MPI_Comm comm) {
    (void)comm;
    pthread_barrier_wait(&memory->barrier);
    return MPI_SUCCESS;
}

static size_t size_of(MPI_Datatype type) {
    return type <= MPI_CHAR ? 1 : type == MPI_INT ? sizeof(int) : 8;
}

/* Rank r gives bytes[r] bytes, which go to to[r]. */
static void gather(const void *mine, char *const *to, const size_t *bytes) {
    size_t most = 0;
    for (int r = 0; r < launched_world.n; r++) {
        most = bytes[r] > most ? bytes[r] : most;
    }
    for (size_t at = 0; at < most; at += LAUNCHED_SLOT) {
        for (int turn = 0; turn < 2; turn++) { /* write, then read */
            for (int r = 0; r < launched_world.n; r++) {
                size_t left = bytes[r] > at ? bytes[r] - at : 0;
                size_t n = left < LAUNCHED_SLOT ? left : LAUNCHED_SLOT;
                char *slot = memory->slots + (size_t)r * LAUNCHED_SLOT;
                if (n > 0 && turn == 0 && r == launched_world.rank) {
                    memcpy(slot, (const char *)mine + at, n);
                } else if (n > 0 && turn == 1) {
                    memcpy(to[r] + at, slot, n);
                }
            }
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
}

int MPI_Allgatherv(const void *mine, int count, MPI_Datatype type, void *all, const int *counts,
                   const int *offsets, MPI_Datatype all_type, MPI_Comm comm) {
    char *to[MOST];
    size_t bytes[MOST], size = size_of(all_type);
    (void)count, (void)type, (void)comm;
    for (int r = 0; r < launched_world.n; r++) {
        to[r] = (char *)all + (size_t)offsets[r] * size;
        bytes[r] = (size_t)counts[r] * size;
    }
    gather(mine, to, bytes);
    return MPI_SUCCESS;
}

int MPI_Allgather(const void *mine, int count, MPI_Datatype type, void *all, int all_count,
                  MPI_Datatype all_type, MPI_Comm comm) {
    int counts[MOST], offsets[MOST];
    for (int r = 0; r < launched_world.n; r++) {
        counts[r] = all_count;
        offsets[r] = r * all_count;
    }
    return MPI_Allgatherv(mine, count, type, all, counts, offsets, all_type, comm);
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    size_t bytes = (size_t)count * size_of(type);
    char *all = malloc(bytes * (size_t)launched_world.n + 1);
    MPI_Allgather(data, count, type, all, count, type, comm);
    memcpy(data, all + (size_t)root * bytes, bytes);
    free(all);
    return MPI_SUCCESS;
}

#define REDUCE(type)                                                                               \
    do {                                                                                           \
        type *to = result;                                                                         \
        const type *from = other;                                                                  \
        for (int i = 0; i < n; i++) {                                                              \
            to[i] = op == MPI_SUM   ? to[i] + from[i]                                              \
                    : op == MPI_MAX ? (from[i] > to[i] ? from[i] : to[i])                          \
                                    : (from[i] < to[i] ? from[i] : to[i]);                         \
        }                                                                                          \
    } while (0)

static void reduce(void *result, const void *other, int n, MPI_Datatype type, MPI_Op op) {
    switch (type) {
    case MPI_INT:
        REDUCE(int);
        break;
    case MPI_LONG:
        REDUCE(long);
        break;
    case MPI_LONG_LONG:
        REDUCE(long long);
        break;
    case MPI_INT64_T:
        REDUCE(int64_t);
        break;
    case MPI_UINT64_T:
        REDUCE(uint64_t);
        break;
    case MPI_DOUBLE:
        REDUCE(double);
        break;
    default:
        fprintf(stderr, "no sums of this type\n");
        exit(2);
    }
}

int MPI_Allreduce(const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    size_t bytes = (size_t)count * size_of(type);
    char *gathered = malloc(bytes * (size_t)launched_world.n + 1);
    MPI_Allgather(mine == MPI_IN_PLACE ? all : mine, count, type, gathered, count, type, comm);
    memcpy(all, gathered, bytes);
    for (int r = 1; r < launched_world.n; r++) {
        reduce(all, gathered + (size_t)r * bytes, count, type, op);
    }
    free(gathered);
    return MPI_SUCCESS;
}

int MPI_Comm_group(MPI_Comm comm, MPI_Group *group) {
    *group = malloc(sizeof **group);
    **group = *comm;
    return MPI_SUCCESS;
}

int MPI_Group_incl(MPI_Group group, int n, const int *ranks, MPI_Group *out) {
    struct launched_ranks *g = malloc(sizeof *g);
    g->n = n;
    g->rank = -1;
    for (int i = 0; i < n; i++) {
        g->ranks[i] = group->ranks[ranks[i]];
        g->rank = g->ranks[i] == launched_world.rank ? i : g->rank;
    }
    *out = g;
    return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group *group) {
    free(*group);
    return MPI_SUCCESS;
}

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out) {
    (void)comm, (void)tag;
    return MPI_Comm_group(group, out);
}

int MPI_Comm_free(MPI_Comm *comm) {
    free(*comm);
    return MPI_SUCCESS;
}

/* Over ranks of a communicator, whose order the members must have, as over MPI. */
static lierne_status create_over(lierne_context **out, MPI_Comm comm,
                                 const lierne_context_spec *given) {
    lierne_context_spec own, *spec = &own;
    lierne_mesh *mesh;
    lierne_oob_state *s;
    lierne_status mine = LIERNE_OK;
    uint64_t key =
        lierne_hash((uint64_t)number("TORCHELASTIC_RUN_ID"), comm->ranks, (size_t)comm->n * 4);
    LIERNE_TRY(lierne_mesh_open(&mesh, comm->rank, comm->n));
    lierne_status status = lierne_mesh_join(mesh, "test", key, 60);
    status = status ? status : lierne_oob_open(&s, comm->rank, comm->n, &mine);
    if (status != LIERNE_OK) {
        lierne_mesh_close(mesh);
        return status;
    }
    mine = mine == LIERNE_OK ? lierne_context_take_spec(spec, given) : mine;
    s->calls = lierne_mesh_calls(mesh);
    s->hooks = &lierne_mesh_hooks;
    mesh->members = &s->members;
    return lierne_context_open_oob(out, s, &lierne_socket_transport, spec, mine);
}

lierne_status test_context_create(lierne_context **out, MPI_Comm comm,
                                  const lierne_context_spec *spec) {
    lierne_node_spec node = {.size = sizeof node, .context = spec};
    if (out) {
        *out = NULL;
    }
    LIERNE_TRY(comm == MPI_COMM_WORLD && !(spec && spec->members)
                   ? lierne_context_create_node(out, &node)
                   : create_over(out, comm, spec));
    return test_staging_use_asked(*out);
}
