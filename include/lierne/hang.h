/* Hangs: the flight recorder of a context, and what the recordings of all ranks say about a job
 * that hangs.
 *
 * Every context records what it does in a ring of its last 1,024 events: calls that begin and end,
 * stages that post their messages, messages that are missing after a while, what ranks tell each
 * other. That is always on; an event takes less than 100 ns. Where the environment variable
 * LIERNE_DUMP_DIR names a folder, each context's ring lies in a file there, from the moment at
 * which its creation begins. The file is there whatever happens to the process: killed, stopped,
 * stuck in other code. lierne never removes it, so give each job a folder of its own that is empty.
 * docs/hangs.md has the format.
 *
 * `lierne hang DIR` prints what lierne_hang_find finds in such a folder, while the job hangs or
 * afterwards.
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

/* Writes how this rank is doing, as one line of JSON for a monitor:
 *   {"rank":0,"world":8,"members":8,"state":"open","status":"LIERNE_OK","message":"",
 *    "transports":"shm,mpi","timeout":60.000,"calls":12,"plans":2,"groups":1,"silent":0.000012,
 *    "in_flight":[{"what":"forward","plan":3,"number":4,"stage":0,"stages":2,"seconds":0.5,
 *    "waits_for":[3]}]}
 * state: open or dead, and status and message say why; silent: seconds since the last event or poll
 * that found nothing; waits_for: the ranks, up to 8, whose messages were missing when the wait had
 * taken 20 ms, and when their number changed. Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_get_status_json(char **text, const lierne_context *context);

/* Writes the recorder of a context as JSON; or that of a file of LIERNE_DUMP_DIR, of any process,
 * running or not. docs/hangs.md has the members. Errors: INVALID (NULL; a file that is no dump, is
 * damaged, or has another version), IO (it cannot be read), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_get_recorder_json(char **text,
                                                          const lierne_context *context);
LIERNE_API lierne_status lierne_recorder_file_get_json(char **text, const char *path);

/* Writes the executing calls that the recorder of a context has, as events of the Chrome trace
 * format, one JSON object a line, with commas between them: those of all ranks, joined by commas
 * and put in [ ], open in Perfetto. The process is the rank, the thread the plan; a bar per call
 * and per stage; arrows lead from the begin of a stage at its sender to its end at the receiver, of
 * plans that are alive and were not updated since. `lierne run --trace FILE` does this for all
 * ranks. Clocks of several hosts are not aligned. Errors: INVALID (NULL), NO_MEMORY. */
LIERNE_API lierne_status lierne_context_get_trace(char **text, const lierne_context *context);

/* Why ranks wait in vain. */
typedef enum lierne_hang_kind {
    LIERNE_HANG_NONE = 0,    /* no rank does */
    LIERNE_HANG_ABSENT = 1,  /* the rank left no dump: it did not begin to create the context */
    LIERNE_HANG_MISSING = 2, /* it did not begin the operation, and is in no other one */
    LIERNE_HANG_LATE = 3,    /* it began the operation after another rank had given up */
    LIERNE_HANG_SILENT = 4,  /* it began the operation and gave no further sign of life: stopped, or
                                busy elsewhere after a begin */
    LIERNE_HANG_MISMATCH = 5, /* it is in another operation than the others: another order, another
                                 plan, or one skipped */
    LIERNE_HANG_ENDED = 6,    /* its process ended, or it destroyed the context */
    LIERNE_HANG_FAILED = 7    /* it gave up by itself, with an error of its own */
} lierne_hang_kind;

/* What a call executes. */
typedef enum lierne_hang_what {
    LIERNE_HANG_WHAT_FORWARD = 0,
    LIERNE_HANG_WHAT_ADJOINT = 1,
    LIERNE_HANG_WHAT_COALESCED_FORWARD = 2,
    LIERNE_HANG_WHAT_COALESCED_ADJOINT = 3,
    LIERNE_HANG_WHAT_CONTROL = 4 /* no plan: ranks agree, to plan or to create something */
} lierne_hang_what;

/* What lierne_hang_find found. Numbers that do not apply are -1. */
typedef struct lierne_hang {
    size_t size; /* sizeof(lierne_hang), set by the caller; filled as far as it goes */
    lierne_hang_kind kind;
    int rank;              /* the culprit */
    int waiting;           /* a rank that waits for it */
    lierne_hang_what what; /* the operation in which it waits */
    int plan;              /* number of its plan, the same on every rank, from 0 on in the order in
                              which plans and other agreements were made */
    int64_t number;        /* which call of the plan and direction it is, or of the control, from 0
                              on; -1 with CONTROL: the context is being created */
    int stage;             /* in which it waits */
    int64_t call;          /* with MISMATCH: the first call in which the rank differs, of all
                              executing calls of the context from 0 on */
    int ndumps;            /* files that were read, and those of them that were no dumps */
    int ndamaged;
    double seconds; /* how long `waiting` waited */
} lierne_hang;

/* Reads all dumps in a folder, finds the rank that the others wait for, and says so. Where several
 * contexts have such ranks, the wait that began first counts. The text has a few lines: the
 * culprit, the operation, stage and peer, what it did instead, what became of its process, then
 * what each rank was doing, and whether other contexts wait or a later job left dumps. Errors:
 * INVALID (NULL, size, a folder without dumps), IO (it cannot be read), NO_MEMORY. */
LIERNE_API lierne_status lierne_hang_find(lierne_hang *hang, char **text, const char *folder);

#ifdef __cplusplus
}
#endif
#endif
