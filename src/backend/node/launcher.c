/* The variables of launchers. The first launcher whose rank and size are both set counts, from the
 * innermost to the outermost: torchrun may run under Slurm, and mpirun in a batch script whose
 * SLURM_PROCID is 0. */
#include "backend/node/mesh.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_PARTS 3

typedef struct launcher {
    const char *name;
    const char *rank;
    const char *size;
    const char *local;             /* ranks on this node, or NULL */
    const char *nodes;             /* nodes of the job, or NULL */
    const char *parts[NAME_PARTS]; /* of the job's name; those that are not set count as empty */
    bool parent;                   /* the parent process is part of the name */
} launcher;

static const launcher launchers[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_WORLD_SIZE",
     NULL,
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"},
     false},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     NULL,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL},
     false},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, {"PMI_ID", NULL, NULL}, true},
    {"srun",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     NULL,
     "SLURM_STEP_NUM_NODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     false},
};

enum { NLAUNCHERS = sizeof launchers / sizeof *launchers };

static lierne_status read_number(const char *variable, int *number) {
    const char *text = getenv(variable);
    char *end;
    long value = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || value < 0 || value > INT_MAX) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is '%.40s', must be a whole number from 0 on",
                           variable, text ? text : "");
    }
    *number = (int)value;
    return LIERNE_OK;
}

/* A world of several nodes needs a network, which sockets of a node are not. */
static lierne_status check_node(const launcher *l, int world) {
    int local = world, nodes = 1;
    if (l->local && getenv(l->local)) {
        LIERNE_TRY(read_number(l->local, &local));
    }
    if (l->nodes && getenv(l->nodes)) {
        LIERNE_TRY(read_number(l->nodes, &nodes));
    }
    if (local != world || nodes > 1) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s is %d and %s is %d: the world is larger than this node; use "
                           "lierne_context_create_oob with your own all-gather, send and receive, "
                           "or lierne_context_create_mpi",
                           l->size, world, local != world ? l->local : l->nodes,
                           local != world ? local : nodes);
    }
    return LIERNE_OK;
}

/* Cut parts are long random ids, of which the beginning tells enough. */
static void write_name(const launcher *l, char *name, size_t size) {
    size_t used = (size_t)snprintf(name, size, "%s", l->name);
    for (int i = 0; i < NAME_PARTS && used < size; i++) {
        const char *part = l->parts[i] ? getenv(l->parts[i]) : NULL;
        used += (size_t)snprintf(name + used, size - used, "/%.120s", part ? part : "");
    }
    if (l->parent && used < size) {
        snprintf(name + used, size - used, "/%d", (int)getppid());
    }
}

lierne_status lierne_launch_find(lierne_launch *launch) {
    for (int i = 0; i < NLAUNCHERS; i++) {
        const launcher *l = &launchers[i];
        if (!getenv(l->rank) || !getenv(l->size)) {
            continue;
        }
        LIERNE_TRY(read_number(l->rank, &launch->rank));
        LIERNE_TRY(read_number(l->size, &launch->world));
        write_name(l, launch->name, sizeof launch->name);
        return check_node(l, launch->world);
    }
    return LIERNE_FAIL(
        LIERNE_ERR_INVALID,
        "spec->world is 0, and no launcher has set its variables (RANK and WORLD_SIZE "
        "of torchrun, OMPI_COMM_WORLD_RANK and _SIZE, PMI_RANK and PMI_SIZE, "
        "SLURM_PROCID and SLURM_NTASKS): set world, rank and name");
}
