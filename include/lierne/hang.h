/* Hangs: the flight recorder of a context, and which rank a hung job waits for.
 *
 * Every context records its last 1,024 events in a ring: calls that begin and end, stages that post
 * their messages, messages that are missing after 20 ms, agreements. Recording is always on; an
 * event takes less than 100 ns. If the environment variable LIERNE_DUMP_DIR names a folder, the
 * ring of each context is a file there from the moment at which its creation begins. The file
 * survives the process, killed, stopped or hung. lierne never removes it: give each job an empty
 * folder of its own. docs/hangs.md has the format.
 *
 * `lierne hang DIR` prints what lierne_hang_find finds in such a folder, while the job hangs or
 * after it has ended.
 *
 * Thread safety: functions that take a context follow its rules (lierne/context.h); the others may
 * be called by any thread at any time. None is collective. Texts are the caller's, to be freed with
 * lierne_text_destroy (lierne/plan.h); on failure they are NULL. */
#ifndef LIERNE_HANG_H
#define LIERNE_HANG_H

#include "lierne/context.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the state of this rank as one line of JSON for a monitor:
 *   {"rank":0,"world":8,"members":8,"state":"open","status":"LIERNE_OK","message":"",
 *    "transports":"shm,mpi","timeout":60.000,"calls":12,"plans":2,"groups":1,"silent":0.000012,
 *    "in_flight":[{"what":"forward","plan":3,"number":4,"stage":0,"stages":2,"seconds":0.5,
 *    "waits_for":[3]}]}
 * state: open, or dead with status and message; silent: seconds since the last event or
 * unsuccessful poll; waits_for: up to 8 ranks whose messages are missing after 20 ms. Errors:
 * INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_get_status_json(char **text, const lierne_context *context);

/* Writes the recorder of a context as JSON, or that of a file in LIERNE_DUMP_DIR of any process,
 * running or not. docs/hangs.md has the members. Errors: INVALID (NULL; a file that is no dump, is
 * damaged, or has another version), IO (it cannot be read), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_get_recorder_json(char **text,
                                                          const lierne_context *context);
LIERNE_API lierne_status lierne_recorder_file_get_json(char **text, const char *path);

/* Writes the recorded executing calls of a context as events of the Chrome trace format: one JSON
 * object per line, separated by commas. Join the texts of all ranks with commas and put them in [ ]
 * to open them in Perfetto; `lierne run --trace FILE` does this. The process is the rank, the
 * thread the plan; calls of one plan that are in flight at the same time have threads of their own.
 * There is a bar per call, named as in lierne_hang_find ("forward 7 of plan 3"), and a bar per
 * stage, both with the bytes that they send and receive. Arrows lead from the begin of a stage at
 * the sender to its end at the receiver, for plans that are alive and were not updated since. Times
 * are whole nanoseconds since the context was created on its first rank, written as microseconds
 * with three decimals. Clocks of several hosts are not aligned. Errors: INVALID (NULL), NO_MEMORY.
 */
LIERNE_API lierne_status lierne_context_get_trace(char **text, const lierne_context *context);

/* Causes of hangs. */
typedef enum lierne_hang_kind {
    LIERNE_HANG_NONE = 0,     /* no rank hangs */
    LIERNE_HANG_ABSENT = 1,   /* the rank left no dump: it did not begin to create the context */
    LIERNE_HANG_MISSING = 2,  /* it did not begin the operation, and waits in no other one */
    LIERNE_HANG_LATE = 3,     /* it began the operation after another rank had given up */
    LIERNE_HANG_SILENT = 4,   /* it began the operation and recorded nothing after that: stopped, or
                                 busy elsewhere after a begin */
    LIERNE_HANG_MISMATCH = 5, /* it waits in another operation than the others: another order,
                                 another plan, or a skipped call */
    LIERNE_HANG_ENDED = 6,    /* its process ended, or it destroyed the context */
    LIERNE_HANG_FAILED = 7    /* it gave up first, with an error of its own */
} lierne_hang_kind;

/* What a call executes. */
typedef enum lierne_hang_what {
    LIERNE_HANG_WHAT_FORWARD = 0,
    LIERNE_HANG_WHAT_ADJOINT = 1,
    LIERNE_HANG_WHAT_COALESCED_FORWARD = 2,
    LIERNE_HANG_WHAT_COALESCED_ADJOINT = 3,
    LIERNE_HANG_WHAT_CONTROL = 4, /* no plan: planning, or creating a context or groups */
    LIERNE_HANG_WHAT_ROUND = 5    /* of a window (lierne/window.h) */
} lierne_hang_what;

/* What lierne_hang_find found. Numbers that do not apply are -1. */
typedef struct lierne_hang {
    size_t size; /* sizeof(lierne_hang), set by the caller; filled as far as it goes */
    lierne_hang_kind kind;
    int rank;              /* the rank that others wait for */
    int waiting;           /* a rank that waits for it */
    lierne_hang_what what; /* the operation in which it waits */
    int plan;              /* number of its plan or window, the same on every rank, from 0 on in
                              the order in which these and other agreements were made */
    int64_t number;        /* the number of the call among those of the plan and direction, or of
                              the control, from 0; of a round, from 1; -1 with CONTROL: creation
                              of the context */
    int stage;             /* in which it waits */
    int64_t place;         /* with MISMATCH: of the first call that differs, in the order of all
                              executing calls of the context, from 0 */
    int ndumps;            /* files that were read, and those that were no valid dumps */
    int ndamaged;
    double seconds; /* how long `waiting` waited */
} lierne_hang;

/* Reads all dumps in a folder and reports the rank that the others wait for. If several contexts
 * have such ranks, the wait that began first counts. The text has a few lines: that rank, the
 * operation, stage and peer, what it did instead, the state of its process, what each rank was
 * doing, and whether other contexts wait or a later job left dumps. Errors:
 * INVALID (NULL, size, a folder without dumps), IO (it cannot be read), NO_MEMORY. */
LIERNE_API lierne_status lierne_hang_find(lierne_hang *hang, char **text, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
