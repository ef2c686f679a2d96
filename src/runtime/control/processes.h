/* The processes of the ranks: which of them this process can see, and whether they still run. */
#ifndef LIERNE_PROCESSES_H
#define LIERNE_PROCESSES_H

#include "runtime/control/abort_flags.h"
#include "runtime/control/port.h"

/* Node and process of a rank. Words of 64 bits, so that ranks can gather them. */
typedef struct lierne_rank_info {
    uint64_t node;
    uint64_t rank;
    uint64_t space;   /* the pid namespace, on its host and boot; 0: unknown */
    uint64_t process; /* id of the process in that namespace */
    uint64_t start;   /* when it began, in ticks since the boot; 0: unknown */
    uint64_t flags;   /* descriptor of the abort flags that this process opened */
    uint64_t segment; /* descriptor of its shared memory, and the token in it */
    uint64_t token;
    uint64_t created;       /* when this was filled in: nanoseconds of the calendar */
    lierne_address address; /* where it listens, if anywhere */
} lierne_rank_info;
#define LIERNE_RANK_INFO_WORDS 13
#define LIERNE_NO_FLAGS        UINT64_MAX
#define LIERNE_NO_SEGMENT      UINT64_MAX

/* Fills in everything but the node and the token; there is no segment yet. flags is what
 * lierne_abort_flags_open returned. */
LIERNE_PRIVATE void lierne_rank_info_fill(lierne_rank_info *info, int rank, int flags);

/* How a process is doing, by the numbers that its rank info has. */
typedef enum lierne_process_state {
    LIERNE_PROCESS_UNKNOWN = 0, /* of another machine or pid namespace */
    LIERNE_PROCESS_RUNS = 1,
    LIERNE_PROCESS_STOPPED = 2, /* by a signal or a debugger */
    LIERNE_PROCESS_ENDED = 3
} lierne_process_state;
lierne_process_state lierne_process_find(uint64_t space, uint64_t process, uint64_t start);
/* The same numbers of this process. */
void lierne_process_describe(uint64_t *space, uint64_t *process, uint64_t *start);
/* A number that is the same on all ranks that gathered these infos, in the order of ranks, and that
 * no other context has. */
LIERNE_PRIVATE uint64_t lierne_rank_infos_hash(const lierne_rank_info *infos);

/* Watches are descriptors that are readable once the process has ended, per rank; or one of these.
 */
#define LIERNE_NO_WATCH (-1)
#define LIERNE_ENDED    (-2) /* it had ended before it could be watched */
/* Begins to watch the processes of other ranks in the same pid namespace. infos is in the order of
 * ranks. Returns whether this machine may have more ranks than cores. */
LIERNE_PRIVATE bool lierne_processes_watch(int *watches, const lierne_rank_info *infos, int world,
                                           int rank);
LIERNE_PRIVATE void lierne_processes_unwatch(const int *watches, int world);
/* Whether a watched process is known to have ended. */
LIERNE_PRIVATE bool lierne_process_ended(int watch);

/* Maps the abort flags that the lowest rank of this node opened: *flags becomes NULL if the system
 * does not allow it. flag[r] is the index of rank r's flag, -1 for one on another node. Returns
 * whether the flags reach all ranks. infos is in the order of ranks; board: as it was opened. */
LIERNE_PRIVATE bool lierne_processes_map_flags(lierne_abort_flags **flags, int *flag,
                                               const lierne_rank_info *infos, int world, int rank,
                                               size_t board);

#endif
