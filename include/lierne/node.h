/* Contexts of one node without MPI: the processes find each other by themselves.
 *
 * Each process connects to the others over Unix domain sockets in the abstract namespace, which no
 * file system knows and which disappear with the processes: no server, no port, no file, and
 * nothing is left when processes are killed. The system says which user a connected process belongs
 * to, and processes of other users are turned away. Tensors move through shared memory (transport
 * "shm"), or over the same connections where the system refuses that ("socket").
 *
 * The name of a job keeps jobs apart: two that exist at once need different names, and a job that
 * is started again while its former processes may still run should be given another one. If two
 * processes claim the same rank of a name while they begin, both get INVALID. All processes must
 * share a network namespace: containers usually do not. */
#ifndef LIERNE_NODE_H
#define LIERNE_NODE_H

#include "lierne/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lierne_node_spec {
    size_t size; /* sizeof(lierne_node_spec) */
    int rank;    /* 0 to world - 1; those of the larger world where context->members is set */
    int world;   /* 1 to LIERNE_NODE_MAX_RANKS; 0: rank, world and the job's name are those that the
                    launcher has put into the environment (below), and rank must be 0 too */
    const char *name; /* of the job, 1 to 200 bytes, the same on all ranks. Where world is 0, it is
                         added to the launcher's, and may be NULL: for several contexts of a job */
    const lierne_context_spec *context; /* may be NULL */
} lierne_node_spec;

/* A process holds a connection to every other one. */
#define LIERNE_NODE_MAX_RANKS 1024

/* Creates a context of the processes of one node. Collective over them (over the members, where
 * context->members is set): returns when all have called, or at the timeout. spec may be NULL,
 * which is the same as all zeros. Destroy the context with lierne_context_destroy, which waits for
 * all ranks, at most the timeout, unless it is dead; *out is NULL on failure.
 *
 * With world 0, the first of these launchers whose rank and size are set is read:
 *   torchrun     RANK, WORLD_SIZE, LOCAL_WORLD_SIZE; the job's name is made of TORCHELASTIC_RUN_ID,
 *                TORCHELASTIC_RESTART_COUNT and MASTER_PORT (a part of the name only: the port is
 *                the launcher's)
 *   mpirun       (Open MPI) OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_SIZE; PMIX_NAMESPACE
 *   mpiexec      (MPICH and others with PMI) PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS; the number of the
 *                parent process, which must then be the launcher's own
 *   srun         SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_NUM_NODES; SLURM_JOB_ID, SLURM_STEP_ID,
 *                SLURM_RESTART_COUNT
 * Their world must be on this node: another number of local ranks than ranks, or more nodes than
 * one, is INVALID; such a world is the business of lierne_context_create_oob or
 * lierne_context_create_mpi.
 *
 * Whoever dies is found by the end of its connection and by its pidfd: PEER_FAILED, at once. A rank
 * that never comes cannot be told from one that is late: TIMEOUT, which names the missing ranks.
 * After an error no buffer stays borrowed (lierne/context.h): they are the caller's again.
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

#ifdef __cplusplus
}
#endif
#endif
