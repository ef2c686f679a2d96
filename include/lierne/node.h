/* Contexts of the processes of one node, without MPI.
 *
 * The processes connect to each other over Unix domain sockets in the abstract namespace. No
 * server, port or file is needed, and nothing is left when processes are killed. Processes of other
 * users are rejected. Tensors move through shared memory (transport shm), or over the sockets
 * (transport socket) if the system does not allow shared memory.
 *
 * Jobs that exist at the same time need different names, and so does a job that is restarted while
 * processes of its former run may be alive. If two processes claim the same rank of a name while
 * they begin, both get INVALID. All processes must share a network namespace; containers usually do
 * not. */
#ifndef LIERNE_NODE_H
#define LIERNE_NODE_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_node_spec {
    size_t size;      /* sizeof(lierne_node_spec) */
    int rank;         /* 0 to world - 1; those of the larger world where context->members is set */
    int world;        /* 1 to LIERNE_NODE_MAX_RANKS; 0: rank, world and the job's name come from the
                         launcher's environment variables (below), and rank must be 0 too */
    const char *name; /* of the job, 1 to 200 bytes, the same on all ranks. If world is 0, it is
                         appended to the launcher's name, for several contexts of one job, and may
                         be NULL */
    const lierne_context_spec *context; /* may be NULL */
} lierne_node_spec;

/* A process holds a connection to every other one. */
#define LIERNE_NODE_MAX_RANKS 1024

/* Creates a context of the processes of one node. Collective over them (over the members, if
 * context->members is set): returns when all have called, or at the timeout. spec may be NULL,
 * which means all zeros. Destroy the context with lierne_context_destroy, which waits for all ranks
 * at most the timeout, unless it is dead. *out is NULL on failure.
 *
 * With world 0, lierne reads the variables of the first of these launchers whose rank and size are
 * set:
 *   torchrun     RANK, WORLD_SIZE, LOCAL_WORLD_SIZE; the job's name is made of TORCHELASTIC_RUN_ID,
 *                TORCHELASTIC_RESTART_COUNT and MASTER_PORT (a part of the name only: the port is
 *                the launcher's)
 *   mpirun       (Open MPI) OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE; PMIX_NAMESPACE
 *   mpiexec      (MPICH and others with PMI) PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS; the number of the
 *                parent process, which must then be the launcher's own
 *   srun         SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NUM_NODES; SLURM_JOB_ID, SLURM_STEP_ID,
 *                SLURM_RESTART_COUNT
 * All ranks must be on this node. If the number of local ranks differs from the number of ranks, or
 * there is more than one node, the call returns INVALID: use lierne_context_create_oob or
 * lierne_context_create_mpi.
 *
 * If a process dies, the others get PEER_FAILED at once. If a rank never calls, they get TIMEOUT,
 * and the message names the missing ranks. After an error no buffer stays borrowed
 * (lierne/context.h): all belong to the caller again.
 *
 * Errors that all ranks get alike: as lierne_context_create_oob. Errors of one rank, whose peers
 * get PEER_FAILED or TIMEOUT: INVALID (spec->size, rank, world, name, the launcher's variables
 * missing, not numbers or of a larger world, a rank or a name that another process has, members),
 * MISMATCH (another world or version of lierne, at both ends), TIMEOUT, PEER_FAILED, NO_MEMORY,
 * TRANSPORT (the system's error; more connections than RLIMIT_NOFILE allows).
 *
 * Thread safety: as any context; ranks may be threads of one process. */
LIERNE_API lierne_status lierne_context_create_node(lierne_context **out,
                                                    const lierne_node_spec *spec);

/* Creates a context of the ranks that are left after others have died. Collective over the ranks of
 * dead whose processes run: each calls it with its own dead context, once. dead may be of any kind
 * (node, oob, MPI, NCCL) if its ranks are processes of one node that share memory, or if
 * LIERNE_ADDRESS was set (below); the smaller context moves tensors through shared memory and over
 * sockets, and needs neither the functions nor the MPI that dead was made with. Ranks are 0 to n -
 * 1 in the order that they had; lierne_context_get_former_rank has those of before. Memory kinds,
 * groups, plans and windows are made anew.
 *
 * All ranks that are left agree: either all get a context, of the same ranks, or all get the same
 * status. If a rank dies meanwhile, it is left out too. The call waits until every rank of dead has
 * called or its process has ended, and ends at the timeout of spec, whatever happens: with TIMEOUT
 * on all ranks if one of them runs and does not call (it is stopped, or has not met the error yet).
 * A rank that has called and dies may still be among those that are left; then the first call over
 * the new context returns PEER_FAILED, and that context can be shrunk in turn.
 *
 * Several nodes. Set the environment variable LIERNE_ADDRESS on every rank, before dead is created,
 * to a numeric IPv4 or IPv6 address of its host that the other nodes reach. Then each rank of a
 * context of several nodes, of at most 1024 ranks, keeps a TCP port there, at a number that the
 * system chooses, until the context is destroyed; creating the context fails with INVALID if a rank
 * is not reached from another node, or the variable is set on some ranks only, and with TRANSPORT
 * if the address is not one of the host. After a death the ranks connect to each other's ports: a
 * rank nobody listens for is one whose process has ended, or that has destroyed dead. So:
 *   - A host that falls silent is not taken for dead, because its ranks may run and do the same:
 * the call ends with TIMEOUT, on all ranks that reach each other.
 *   - Ranks of other nodes may learn of the death only at the deadline of dead (lierne/oob.h). Let
 *     the timeout of spec be longer.
 *   - A process forked from a rank without exec keeps its port: end it, too.
 *   - The call needs three descriptors per rank of dead (RLIMIT_NOFILE). A rank that has none left
 *     gets TRANSPORT, and the others go on without it.
 * The nodes of the new context are those of dead.
 *
 * spec: of the new context, may be NULL, which means all zeros; nodes, members, nmembers and
 * world_size must be 0. dead stays the caller's: destroy what was made from it, and it, before or
 * after. *out is NULL on failure.
 *
 * Errors that all ranks get alike: those of one rank of INVALID (out NULL, spec), NO_MEMORY,
 * TRANSPORT, IO and MISMATCH of creating a context; TIMEOUT. Errors of one rank, which the others
 * see as TIMEOUT: INVALID (dead is NULL, not dead, or was
 * shrunk before), UNSUPPORTED (the ranks of dead are not
 * processes of one node that share memory, and have no ports or are more than 1024), NO_MEMORY (its
 * first allocations, twice). */
LIERNE_API lierne_status lierne_context_shrink(lierne_context **out, lierne_context *dead,
                                               const lierne_context_spec *spec);

#ifdef __cplusplus
}
#endif
#endif
