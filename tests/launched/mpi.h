/* The few functions of MPI that programs in tests/mpi use for their own bookkeeping, for ranks that
 * tests/launched/launch.c starts: so these programs run where there is no MPI, over sockets.
 * Collectives are of MPI_COMM_WORLD only. */
#ifndef TESTS_LAUNCHED_MPI_H
#define TESTS_LAUNCHED_MPI_H

#include <stddef.h>

typedef struct launched_ranks *MPI_Comm;
typedef struct launched_ranks *MPI_Group;
typedef int MPI_Request; /* named in structs only */
typedef enum MPI_Datatype {
    MPI_BYTE,
    MPI_CHAR,
    MPI_INT,
    MPI_LONG,
    MPI_LONG_LONG,
    MPI_INT64_T,
    MPI_UINT64_T,
    MPI_DOUBLE
} MPI_Datatype;
typedef enum MPI_Op { MPI_SUM, MPI_MAX, MPI_MIN } MPI_Op;

extern struct launched_ranks launched_world;
#define MPI_COMM_WORLD      (&launched_world)
#define MPI_COMM_NULL       ((MPI_Comm)NULL)
#define MPI_IN_PLACE        ((void *)-1)
#define MPI_SUCCESS         0
#define MPI_THREAD_MULTIPLE 3

int MPI_Init(int *argc, char ***argv);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Initialized(int *initialized);
int MPI_Finalize(void);
int MPI_Comm_rank(MPI_Comm comm, int *rank);
int MPI_Comm_size(MPI_Comm comm, int *size);
int MPI_Barrier(MPI_Comm comm);
int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Allreduce(const void *mine, void *all, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm);
int MPI_Allgather(const void *mine, int count, MPI_Datatype type, void *all, int all_count,
                  MPI_Datatype all_type, MPI_Comm comm);
int MPI_Allgatherv(const void *mine, int count, MPI_Datatype type, void *all, const int *counts,
                   const int *offsets, MPI_Datatype all_type, MPI_Comm comm);
int MPI_Comm_group(MPI_Comm comm, MPI_Group *group);
int MPI_Group_incl(MPI_Group group, int n, const int *ranks, MPI_Group *out);
int MPI_Group_free(MPI_Group *group);
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out);
int MPI_Comm_free(MPI_Comm *comm);

#endif
