/* A run from inside: commit.c makes it, schedule_run.c executes it, schedule_trace.c describes it.
 */
#ifndef LIERNE_RUN_INTERNAL_H
#define LIERNE_RUN_INTERNAL_H

#include "plan/plan.h"
#include "runtime/context/context.h"
#include "runtime/group/group.h"
#include "step/schedule.h"

/* An operation of the running execution. */
typedef struct lierne_run_operation {
    lierne_request *request; /* NULL unless it is posted and not ended */
    int64_t number;          /* of that call, of its plan and direction */
    int64_t begun;           /* nanoseconds of the system's monotonic clock; these: 0 before */
    int64_t resumed;
    int64_t ended;
    bool free;   /* it is not held, or was resumed */
    bool turn;   /* its queue has come to it */
    bool queued; /* the queue goes on behind it: it is complete, or its stream will have it so */
    bool passed; /* its stream has, as far as the last look saw */
} lierne_run_operation;

/* run_thread.c */
typedef struct lierne_run_thread {
    lierne_guard guard;
    pthread_t thread;
    bool closing;
} lierne_run_thread;

/* run_plans.c. A plan to copy: its number, and the group that a pass made. Words of a message. */
typedef struct lierne_run_copy {
    int64_t source;
    int64_t number;
    int64_t purpose[(LIERNE_MAX_PURPOSE + 1) / 8];
} lierne_run_copy;
typedef LIERNE_VEC(lierne_run_copy) lierne_run_copies;

typedef struct lierne_run_streams lierne_run_streams; /* run_streams.h */

struct lierne_run {
    lierne_dependent dependent; /* of the context; the first member */
    lierne_context *context;
    lierne_schedule *schedule;        /* a copy, with the uids of groups that were created */
    lierne_group **groups;            /* per group of the schedule: what a pass made, else NULL */
    lierne_run_operation *operations; /* per operation of the schedule */
    lierne_plan **plans;              /* per operation: what it executes, or NULL */
    lierne_plan **copies; /* the run's own plans among these, and others that only ranks beside this
                             one execute */
    size_t ncopies;
    lierne_run_streams *streams; /* or NULL: the host polls */
    int nqueues;                 /* the last one is the local one */
    int *next; /* per queue: operation whose turn it is, or the number of operations */
    void **out;
    const void **in;
    lierne_run_thread *thread; /* or NULL: it progresses in the caller's calls only */
    LIERNE_VEC(lierne_recorded_group) created; /* for it, on all ranks, in that order */
    bool external;
    bool running;
    int unpassed;       /* operations that streams have and have not passed */
    int64_t executions; /* begun so far */
    int64_t issued;
    lierne_deadline deadline; /* of nothing progressing; timeout 0: not started */
    lierne_status status;     /* of the execution */
    char message[LIERNE_MESSAGE_SIZE];
};

/* The queue of an operation. */
static inline int lierne_run_queue(const lierne_run *run, int operation) {
    int group = run->schedule->operations.at[operation].group;
    return group < 0 ? run->nqueues - 1 : run->schedule->groups.at[group].queue;
}

/* Whether a transport matches messages in the order of calls: the same on every rank. */
bool lierne_run_is_ordered(const lierne_context *context);
/* Over such transports: whether the messages of no two queues are in one domain. Errors: INVALID,
 * UNSUPPORTED (a transport has no groups), NO_MEMORY. */
lierne_status lierne_run_check_domains(const lierne_run *run);
/* The plans of groups that passes made, of n ranks, each once; copies is empty before. */
lierne_status lierne_run_list_copies(lierne_run_copies *copies, lierne_schedule *const *schedules,
                                     int n);
/* Collective: makes n of them, and lets operations execute them. */
lierne_status lierne_run_copy_plans(lierne_run *run, const lierne_run_copy *copies, size_t n);
void lierne_run_destroy_copies(lierne_run *run);

/* schedule_run.c. Looks at every queue once; *moved: something was done. */
lierne_status lierne_run_advance(lierne_run *run, bool *moved);
/* Whether an execution was begun that is neither complete nor has failed. */
bool lierne_run_is_open(const lierne_run *run);

/* run_thread.c. Errors: UNSUPPORTED, NO_RESOURCE, NO_MEMORY. */
lierne_status lierne_run_thread_create(lierne_run *run);
void lierne_run_thread_destroy(lierne_run *run);
/* The guard of a run with a thread; NULL: it has none. */
static inline lierne_guard *lierne_run_guard(const lierne_run *run) {
    return run && run->thread ? &run->thread->guard : NULL;
}

/* schedule_trace.c. Adds the events of the last execution as lierne_run_get_trace writes them, with
 * times since a nanosecond of the calendar. */
void lierne_run_write_trace(lierne_text *text, const lierne_run *run, int64_t begin);
/* Appends them to the file that LIERNE_TRACE names, if it is set. Errors: IO,
 * NO_MEMORY. */
lierne_status lierne_run_append_trace(const lierne_run *run);

/* exchange.c. Collective: compares the schedules of all ranks, and creates the groups of passes
 * that have no uid, into run->groups. status: how this rank fared so far; the result is the same on
 * every rank. */
lierne_status lierne_run_agree(lierne_run *run, lierne_context *context, lierne_status status,
                               bool concurrent);
/* The group that an earlier run has of this source and purpose, or NULL. */
lierne_group *lierne_run_find_group(const lierne_context *context, const lierne_recorded_group *g);

#endif
