/* The flight recorder of a context: a bounded ring of what was called, begun and ended.
 *
 * The ring is a header and entries of 32 bytes in memory of this process. Where LIERNE_DUMP_DIR is
 * set, a file gets the same bytes (docs/hangs.md), which a killed or stopped process leaves; dump.h
 * reads both. */
#ifndef LIERNE_RECORDER_H
#define LIERNE_RECORDER_H

#include "base/base.h"

#include <stdatomic.h>

/* What an entry says. Numbers are part of the file's format. */
typedef enum lierne_record_kind {
    LIERNE_RECORD_CALL = 1,       /* an execution was begun, or a round of a window; peer: its place
                                     among the context's; bytes: of all its messages */
    LIERNE_RECORD_STAGE = 2,      /* a stage posted its messages; peer: the first of them, or -1 */
    LIERNE_RECORD_WAIT = 3,       /* a message that is missing after a while: peer, bytes */
    LIERNE_RECORD_END = 4,        /* the execution ended; bytes: its status */
    LIERNE_RECORD_CONTROL = 5,    /* ranks tell each other something; number: in order */
    LIERNE_RECORD_CONTROLLED = 6, /* it ended; bytes: its status */
    LIERNE_RECORD_OPERATION = 7,  /* of a run, began; plan: its index; bytes: uid of its group */
    LIERNE_RECORD_OPERATED = 8,   /* it is complete */
    LIERNE_RECORD_GAVE_UP = 9,    /* the context died; bytes: its status */
    LIERNE_RECORD_ENDED = 10      /* the process of peer was found to have ended */
} lierne_record_kind;
#define LIERNE_RECORD_KINDS 10

/* `what` of CALL to END, of CONTROL and CONTROLLED. That of an operation is its kind. */
typedef enum lierne_record_call {
    LIERNE_RECORD_FORWARD = 0,
    LIERNE_RECORD_ADJOINT = 1,
    LIERNE_RECORD_COALESCED_FORWARD = 2,
    LIERNE_RECORD_COALESCED_ADJOINT = 3,
    LIERNE_RECORD_ROUND = 5 /* of a window, whose number is in plan; 4 is the control's in
                               lierne_hang_what */
} lierne_record_call;
#define LIERNE_RECORD_CALLS 6
typedef enum lierne_record_control {
    LIERNE_RECORD_AGREE = 0,
    LIERNE_RECORD_EXCHANGE = 1,
    LIERNE_RECORD_MAXIMUM = 2
} lierne_record_control;
#define LIERNE_RECORD_CONTROLS 3

typedef struct lierne_entry {
    int kind;
    int what;
    int stage;
    int plan;
    int64_t number; /* of the call of this plan and `what`, or of the control's call */
    int peer;
    int64_t bytes;
    int64_t time;  /* ticks on the recorder's clock; 0: now */
    int64_t index; /* of an entry that was read: its number */
} lierne_entry;

#define LIERNE_RECORDER_MAGIC   "LIERNEFR"
#define LIERNE_RECORDER_VERSION 1
#define LIERNE_RECORDER_TEXT    256
typedef enum lierne_recorder_state {
    LIERNE_RECORDER_CREATING = 0, /* the ranks have not met */
    LIERNE_RECORDER_OPEN = 1,
    LIERNE_RECORDER_DEAD = 2,
    LIERNE_RECORDER_DESTROYED = 3
} lierne_recorder_state;

/* The beginning of the file. After it come the ranks of the context, as many as listed, 4 bytes
 * each and rounded up to 64 bytes, then names, and, again at a multiple of 64 bytes, the entries.
 */
typedef struct lierne_recorder_header {
    char magic[8];
    uint32_t version;
    uint32_t header_bytes; /* up to the entries */
    uint32_t entry_bytes;
    uint32_t capacity; /* entries of the ring, a power of two */
    uint64_t context;  /* the same on all ranks of one context; 0: they have not met */
    int32_t rank;
    int32_t world;
    int32_t members;
    int32_t listed; /* members, or 0: all ranks of the world */
    uint64_t space; /* the pid namespace on its host and boot; 0: unknown */
    uint64_t process;
    uint64_t process_start;
    int64_t timeout; /* of the context, in nanoseconds */
    /* The clock: ticks and nanoseconds of the system's monotonic clock at two times, and what the
     * calendar said at the first one. */
    int64_t first_ticks;
    int64_t first_time;
    int64_t epoch;
    _Atomic int64_t last_ticks;
    _Atomic int64_t last_time;
    _Atomic uint64_t written; /* entries so far: entry i is at i % capacity */
    _Atomic int64_t alive;    /* ticks at the last sign of life */
    _Atomic int32_t state;
    _Atomic int32_t status; /* of a context that is dead */
    char host[64];
    char doing[64]; /* the public call of the last control */
    char message[LIERNE_RECORDER_TEXT];
} lierne_recorder_header;

/* Which name a plan has; number -1: the context. The newest ones, as many as there is space for:
 * number i of them is in slot i modulo their number. */
typedef struct lierne_recorded_name {
    _Atomic int32_t used;
    int32_t plan;
    char name[LIERNE_MAX_NAME + 8];
} lierne_recorded_name;
#define LIERNE_RECORDER_OWN_NAME -1

/* The file, and what it has of the ring. */
typedef struct lierne_recorder_file {
    int file;
    _Atomic uint64_t first;  /* entry that it may lack; it has all before */
    _Atomic uint64_t header; /* entries that its header says */
    _Atomic int64_t time;    /* ticks when it got entries last */
} lierne_recorder_file;

/* Part of a context. All zero, it records nothing. */
typedef struct lierne_recorder {
    lierne_recorder_header *header;
    _Atomic uint64_t *entries;
    lierne_recorded_name *names;
    size_t nnames;              /* slots */
    size_t named;               /* names so far */
    lierne_recorder_file *file; /* or NULL */
    uint64_t mask;
    size_t bytes;
    int64_t created;  /* on the first rank, in nanoseconds of the calendar: time 0 of traces */
    int64_t begin;    /* the same on this rank's monotonic clock */
    int64_t calls;    /* executions so far */
    int64_t controls; /* calls of the control so far */
    unsigned polls;
    bool own_clock; /* the processor's counter; false: the system's clock */
} lierne_recorder;

/* What the header has of the context. */
typedef struct lierne_recorder_spec {
    int rank;
    int world;
    int members;
    const int *ranks; /* NULL: all of the world */
    double timeout;
    uint64_t space;
    uint64_t process;
    uint64_t process_start;
    unsigned capacity; /* a power of two */
} lierne_recorder_spec;

/* "forward 6 of plan 3 'vision'": how every message, report and trace names a call. number counts
 * from 0 on, per plan and direction. Either number is left out if it is negative; label: the name
 * of the plan, or NULL. */
#define LIERNE_CALL_TEXT (80 + LIERNE_MAX_NAME)
void lierne_call_print(char text[LIERNE_CALL_TEXT], const char *name, int64_t number, int plan,
                       const char *label);

/* Opens a recorder: in the folder that LIERNE_DUMP_DIR names, or in memory. Errors: IO (no file can
 * be made there), NO_MEMORY; it records nothing then. */
lierne_status lierne_recorder_open(lierne_recorder *r, const lierne_recorder_spec *spec);
/* The folder of LIERNE_DUMP_DIR, or NULL. */
const char *lierne_recorder_folder(void);
/* Closes it. The file stays; it says that the context was destroyed, unless it had died. */
void lierne_recorder_close(lierne_recorder *r);
/* The ranks have met: the number of the context, and when it was created on its first rank, in
 * nanoseconds of the calendar. Both are the same on all of them. */
LIERNE_PRIVATE void lierne_recorder_meet(lierne_recorder *r, uint64_t context, int64_t created);
/* Keeps the name of a plan, which lierne_check_name allows; NULL: it has none. find_name: NULL
 * where there is none, or newer ones have taken its place. */
void lierne_recorder_set_name(lierne_recorder *r, int plan, const char *name);
const char *lierne_recorder_find_name(const lierne_recorder *r, int plan);
/* Where the names begin, after so many ranks. */
size_t lierne_recorder_names_at(size_t listed);
/* The context died: its status and the thread's message. */
void lierne_recorder_die(lierne_recorder *r, int status, const char *message);

/* Adds an entry, and is a sign of life. Any thread may call it at any time. A file gets the begin
 * of calls and stages that follow others at once only with what comes next, or by the functions
 * below. */
void lierne_recorder_add(const lierne_recorder *r, const lierne_entry *record);
/* The file gets what it lacks: before this rank returns, or computes, or waits for long. */
void lierne_recorder_flush(const lierne_recorder *r);
/* The same, unless it got something just now: for waits, which poll. */
void lierne_recorder_flush_late(const lierne_recorder *r);
/* Notes both clocks, so that ticks can be converted. */
void lierne_recorder_set_clock(const lierne_recorder *r);
/* The same, and a sign of life while nothing happens. */
void lierne_recorder_beat(const lierne_recorder *r);
/* Ticks of the recorder's clock in seconds; those since a time of it. */
double lierne_recorder_seconds(const lierne_recorder *r, int64_t ticks);
double lierne_recorder_since(const lierne_recorder *r, int64_t ticks);
/* The recorder's clock; the nanoseconds of the system's monotonic one; those of the calendar. */
int64_t lierne_recorder_now(const lierne_recorder *r);
int64_t lierne_recorder_nanoseconds(void);
int64_t lierne_recorder_calendar(void);

#endif
