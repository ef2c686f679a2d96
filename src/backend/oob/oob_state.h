/* The state of the control over the caller's functions (lierne/oob.h), which transport/oob shares.
 *
 * Every collective begins with one all-gather of a record per rank, which says what the rank calls:
 * ranks that call different ones learn it, instead of waiting. What does not fit follows in pages.
 *
 * Functions are listed in the order in which their files depend on each other. */
#ifndef LIERNE_OOB_STATE_H
#define LIERNE_OOB_STATE_H

#include "backend/oob/oob_calls.h"
#include "runtime/control/control.h"
#include "runtime/control/members.h"
#include "runtime/control/ports.h"

typedef enum lierne_oob_kind {
    LIERNE_OOB_AGREE = 1,
    LIERNE_OOB_CLOSE,
    LIERNE_OOB_MAX,
    LIERNE_OOB_EXCHANGE,
} lierne_oob_kind;

/* What a rank says at the begin of a collective. Words of 64 bits. */
typedef struct lierne_oob_record {
    int64_t kind;
    int64_t status; /* an error of this rank, or LIERNE_OK */
    uint64_t hash;  /* of its fields */
    int64_t count;  /* of its fields, or the words that it sends */
    int64_t values[LIERNE_MAX_REDUCED];
} lierne_oob_record;

/* A rank's stream of messages of a sparse exchange, as far as it was read. */
typedef struct lierne_oob_cursor {
    int64_t header[2]; /* peer, count */
    int have;          /* words of the header */
    int64_t left;      /* words of the message that are in the stream */
    int64_t *to;       /* where they go; NULL: nowhere */
} lierne_oob_cursor;

typedef struct lierne_oob_state {
    lierne_control_hook hook; /* progress is NULL until there is a context */
    lierne_oob_calls calls;
    const lierne_oob_hooks *hooks; /* NULL: the functions are the caller's, and codes are theirs */
    int rank;
    int world;
    lierne_members members;   /* names of ranks in messages; without any, those of the functions */
    double timeout;           /* seconds */
    double opening;           /* seconds that creating the context may take; 0: timeout */
    lierne_deadline deadline; /* of the running collective */
    int agreements;
    bool abandoned; /* a function may still read or write here */
    struct lierne_oob_state *next_kept;
    bool pending_buffers; /* a sparse exchange failed with sends in flight */
    lierne_oob_record mine;
    lierne_oob_record *records; /* of all ranks, as the cursors */
    lierne_oob_cursor *cursors;
    char message[LIERNE_MESSAGE_SIZE]; /* of this rank's error */
    size_t page_bytes;
    char *page;
    char *pages;             /* of all ranks */
    lierne_rank_info *infos; /* until the context is created */
    int opened;              /* descriptor of this rank's abort flags, until all have mapped them */
    int *watches;            /* per rank */
    int *flag;               /* per rank: index of its flag, or -1 */
    lierne_abort_flags *flags;
    bool flags_reach_all;
    lierne_ports ports; /* where the flags do not reach all, and LIERNE_ADDRESS is set */
    bool ready;         /* ranks can tell each other that they give up */
    bool crowded;       /* this machine may have more ranks than cores */
    unsigned idle_polls;
    double next_check;
} lierne_oob_state;

/* Tags: those of messages of plans are below this one, which sparse exchanges have. */
#define LIERNE_OOB_CONTROL_TAG (1 << 30)

/* oob_error.c. The rank of the context that a rank of the functions is, for messages. */
int lierne_oob_name(const lierne_oob_state *s, int rank);
/* The error of a function that returned code: "rank 1: WHAT: the function returned 5". */
lierne_status lierne_oob_failed(const lierne_oob_state *s, int code, const char *what);
/* Ends a request: returns whether its buffers are quiet. completed: test has said so. */
bool lierne_oob_end(const lierne_oob_state *s, void *request, bool completed);

/* oob_give_up.c. As in the table of control. */
void lierne_oob_give_up(void *state, lierne_status status);
bool lierne_oob_any_gave_up(void *state);
lierne_status lierne_oob_gave_up(void *state, int peer);
lierne_status lierne_oob_alive(void *state, int peer);
/* The error of the lowest rank that gave up. */
lierne_status lierne_oob_check_given_up(lierne_oob_state *s);

/* oob_wait.c. Starts the deadline that the following waits share. */
void lierne_oob_start_deadline(lierne_oob_state *s);
/* As idle in the table of control. */
bool lierne_oob_idle(void *state);
/* One step of a wait without progress: progresses executions, checks abort flags, liveness and the
 * deadline. */
lierne_status lierne_oob_pause(lierne_oob_state *s, const char *what);
/* Gathers bytes from all ranks until the deadline. After a failure the state is abandoned, unless
 * the request could be taken back. Collective. */
lierne_status lierne_oob_gather(lierne_oob_state *s, const void *mine, void *all, size_t bytes,
                                const char *what);

/* oob_agree.c. Starts the deadline and gathers records, this rank's from state->mine. MISMATCH if
 * ranks call different collectives. Collective. */
lierne_status lierne_oob_begin(lierne_oob_state *s, lierne_oob_kind kind);
lierne_status lierne_oob_agree(void *state, lierne_status mine, const lierne_field *fields,
                               size_t n, int *id, lierne_status *decision);
lierne_status lierne_oob_allreduce_max(void *state, int64_t *values, size_t n);

/* oob_sparse_exchange.c */
lierne_status lierne_oob_sparse_exchange(void *state, const lierne_control_message *messages,
                                         size_t n, lierne_control_messages *received);

/* oob_control.c. A state with the memory that agreeing needs; a failed allocation is tried once
 * more, and *mine becomes the error of the first. rank and world are in range. */
LIERNE_PRIVATE lierne_status lierne_oob_open(lierne_oob_state **out, int rank, int world,
                                             lierne_status *mine);
/* Everything else that can fail on this rank alone. */
lierne_status lierne_oob_reserve(lierne_oob_state *s);
/* Gathers infos, this rank's among them, watches the processes and maps the abort flags; *reached
 * and *decision as lierne_ports_meet. Collective. */
lierne_status lierne_oob_meet(lierne_oob_state *s, bool *reached, lierne_status *decision);
/* Waits until all ranks have mapped their flags. Each of n answers, at most LIERNE_MAX_REDUCED - 1,
 * becomes that of all ranks. Collective. */
lierne_status lierne_oob_share_flags(lierne_oob_state *s, bool *answers, int n);
/* Frees the state. Collective unless dead. */
void lierne_oob_close(void *state, bool dead);
extern const lierne_control lierne_oob_control;

#endif
