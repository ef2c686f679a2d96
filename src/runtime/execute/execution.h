/* The execution: prepare.c and staging.c create it, phases.c runs it, progress.c waits for it. */
#ifndef LIERNE_EXECUTION_H
#define LIERNE_EXECUTION_H

#include "runtime/context/watchdog.h"
#include "runtime/execute/execute.h"
#include "runtime/execute/stream.h"
#include "runtime/memory/memory.h"

/* One route of the execution, with the buffers of the running call. */
typedef struct lierne_subroute {
    const lierne_route *route;
    const lierne_varying *varying; /* of an execution that varies */
    size_t size;                   /* of an element */
    int64_t scratch;               /* offset of its scratch in the execution's memory */
    char *base[LIERNE_BUFFER_COUNT];
    const char *in;
    bool no_out;      /* out is NULL: the result is an alias, or has no elements; copies
                         into it are skipped */
    bool accumulates; /* this call: its route does, or a reduction that is no sum */
} lierne_subroute;

/* A message of a subroute. */
typedef struct lierne_segment {
    lierne_subroute *subroute;
    const lierne_message *message;
} lierne_segment;
static inline int64_t lierne_segment_bytes(const lierne_segment *segment) {
    return segment->message->elements * (int64_t)segment->subroute->size;
}

/* One message of a transport: the segments of all subroutes with the same peer. A single contiguous
 * segment needs no staging, nor does a message that the transport exposes, or that is packed in its
 * window. predecessor and successor count from the first message of the phase. */
typedef struct lierne_coalesced_message {
    int peer;
    int index;    /* of the peer among the members, for the transport */
    int batch;    /* of the transport that serves the peer */
    size_t slot;  /* in that batch */
    bool lingers; /* a send whose blocks nothing writes to: only the end of the execution waits */
    size_t first; /* of its segments */
    size_t count;
    int64_t bytes;
    bool on_host;        /* staged in host memory: its transport cannot read that of buffers */
    bool in_window;      /* packed in the window of the sender */
    int64_t staging;     /* offset of its staging slot in the execution's memory; -1: not staged */
    int64_t predecessor; /* message whose staging slot it reuses; -1: a slot of its own */
    int64_t pipeline;    /* number of its pipeline; -1: posted when the phase begins */
    int64_t successor;   /* the next message of the pipeline; -1: none */
    bool skipped;        /* it has no elements, of an execution that varies */
} lierne_coalesced_message;

/* Long staged messages with one peer share a few staging slots, which stay in the cache. The first
 * message that waits for a slot, and all later ones with that peer, are a pipeline: they are posted
 * later, in the order of the messages. */
typedef struct lierne_staging_pipeline {
    size_t first; /* message of the pipeline */
    int64_t next; /* message to post; -1: none */
} lierne_staging_pipeline;

/* The messages of an execution that one transport serves; without any there is no batch. */
typedef struct lierne_execution_batch {
    const lierne_transport *transport;
    void *batch;
    LIERNE_VEC(size_t) messages; /* of each slot */
    size_t *done;                /* slots that poll returned */
    lierne_posting *postings;    /* of each slot */
    lierne_part *parts;          /* of each segment, where the transport exposes */
    size_t next;                 /* slot of the running call to post */
} lierne_execution_batch;

/* The messages of one stage of all subroutes: receives, then sends. */
typedef struct lierne_phase {
    size_t first;
    size_t nrecvs;
    size_t nsends;
    size_t first_pipeline;
    size_t npipelines;
} lierne_phase;

/* The clock of waits for an execution. It starts at the first poll without progress and is read in
 * one of a few of those. */
typedef struct lierne_wait_clock {
    lierne_deadline deadline; /* timeout 0: not started */
    double next_check;
    unsigned polls;
    size_t missing; /* messages, when they were last recorded */
} lierne_wait_clock;

/* A few calls that a device has not passed, each between two events. */
#define LIERNE_WATCHED_CALLS 8
typedef struct lierne_watched_call {
    void *begun, *ended; /* events */
    bool used;
    bool closed;  /* ended is recorded */
    double since; /* when begun was seen to have passed; 0: it has not */
    int64_t number;
} lierne_watched_call;

/* Calls that the stream counts, in their order. */
typedef struct lierne_counted_calls {
    const lierne_epochs *epochs; /* NULL where the driver has none */
    uint64_t enqueued;           /* by the host; LIERNE_REPLAYS: it does not know of them */
    uint64_t passed;             /* at the last look */
    double since;                /* when the next one was seen to have begun; 0: it has not */
} lierne_counted_calls;
#define LIERNE_REPLAYS UINT64_MAX

/* The calls of an execution that may go on after their end (watch.c). */
typedef struct lierne_watch {
    lierne_watched watched; /* first */
    struct lierne_execution *execution;
    lierne_watched_call calls[LIERNE_WATCHED_CALLS]; /* taken in turn */
    size_t next;                                     /* of calls: the one that was taken first */
    lierne_watched_call *open; /* of the call that is being enqueued; NULL: it is counted */
    lierne_epochs *epochs;     /* NULL where the driver has none */
    lierne_counted_calls replays, more; /* more: calls that found no place */
    bool counts;                        /* the stream will count the begin of the open call */
    bool captured;                      /* some call was */
} lierne_watch;

/* Elements first to end - 1 of a buffer. */
typedef struct lierne_range {
    int64_t first;
    int64_t end;
} lierne_range;

/* Sums that read contributions where they are exposed (fused_sums.c). */
typedef struct lierne_fused_sums lierne_fused_sums;

/* What a transport sees of a message of an execution that varies: bytes in a row. */
typedef struct lierne_frame {
    lierne_part part;
    lierne_block block;
} lierne_frame;

/* What blocking calls with short messages need (short_call.c). */
typedef struct lierne_short_call lierne_short_call;

/* The program of an execution (record.c), where its memory kind has them: launches per kind of
 * call, phase and step. */
typedef enum lierne_recorded_step {
    LIERNE_RECORDED_SEND = 0, /* packing, and the copies of the stage */
    LIERNE_RECORDED_DELIVER = 1,
    LIERNE_RECORDED_SUM = 2
} lierne_recorded_step;
#define LIERNE_RECORDED_STEPS 3
typedef struct lierne_recorded {
    lierne_program program;
    struct {
        size_t first;
        size_t count;
    } * launches;
    lierne_operand *from;  /* space for the sources of a sum */
    bool changed;          /* since a call sent it to the device */
    char *window;          /* some place in a window, from which others are counted; or NULL */
    lierne_task_call call; /* the running one */
} lierne_recorded;

typedef enum lierne_wait {
    LIERNE_WAIT_NONE = 0,
    LIERNE_WAIT_PHASE = 1, /* its phase */
    LIERNE_WAIT_END = 2,   /* the end of the execution */
    LIERNE_WAIT_LATE = 3   /* those sums of its phase that are not early */
} lierne_wait;

/* Where it stands in its routes, in the running call or the last one. */
typedef struct lierne_execution_cursor {
    lierne_reduction reduction;
    bool in_place; /* in and out are one buffer, of some subroute */
    bool finished;
    size_t phase;         /* the current one */
    bool summed;          /* its early sums have run */
    bool holds;           /* messages may be held back until then */
    int64_t arriving;     /* bytes that its messages bring */
    lierne_status status; /* of a call that failed */
    char message[LIERNE_MESSAGE_SIZE];
} lierne_execution_cursor;

/* Its messages in flight. */
typedef struct lierne_execution_flight {
    int match;
    uint8_t *waiting; /* per message: what waits for it to complete, a lierne_wait */
    size_t pending;   /* messages that the phase, or its early sums, waits for */
    size_t late;      /* sends that the other sums of the phase wait for */
    size_t lingering; /* messages that only the end waits for */
    bool deferred;    /* the phase waits for its turn to post */
    size_t ordered;   /* messages on transports that are ordered */
    size_t unposted;  /* those that the call has still to post */
    lierne_wait_clock clock;
    bool withdrawn;
    bool quiet; /* once withdrawn: no peer may still read or write a buffer of the last call */
} lierne_execution_flight;

/* Calls on streams. */
typedef struct lierne_execution_stream {
    /* One of its transports that a call on a stream, or one without, cannot use; or NULL. */
    const lierne_transport *polled_only;
    const lierne_transport *stream_only;
    lierne_recorded *recorded; /* or NULL: the memory kind works block by block */
    lierne_watch *watch;       /* where calls are detached, else NULL */
    void *fence;               /* of the stream driver, where it has them */
    void *at;                  /* of the running call */
    bool used;                 /* the running call is on one */
    bool enqueues;             /* and the host need not poll its messages */
    bool captures;             /* and it is being captured */
    bool launched;             /* it may not have passed what the phase needs */
    bool was_captured;         /* some call was: replays use the memory, at any time */
    bool was_called;           /* some call was not */
} lierne_execution_stream;

/* What the recorder tells of the running call. */
typedef struct lierne_recorded_call {
    int plan;
    int what;                /* a lierne_record_call */
    int64_t number;          /* of this plan and direction */
    int64_t call;            /* of the context */
    int64_t started;         /* by the recorder's clock */
    int64_t bytes;           /* of all messages, sent and received */
    lierne_counter *counter; /* or NULL */
    int64_t waited;          /* ticks while nothing progressed */
    int64_t idle;            /* since when; 0: something did */
    uint64_t stage;          /* its range in a profiler; 0: none is open */
} lierne_recorded_call;

/* Memory that it allocated while planning. capacity: at least what is reserved; it may have been
 * another execution's. */
typedef struct lierne_execution_memory {
    char *at;
    int64_t reserved;
    int64_t capacity;
    bool window; /* it is in one that peers read */
} lierne_execution_memory;

struct lierne_execution {
    lierne_activity activity; /* first */
    lierne_context *context;
    const lierne_domain *domain; /* whose states of transports it uses */
    const char *name;
    lierne_subroute *subroutes;
    size_t nsubroutes;
    bool is_only;      /* no other execution has its routes: the other requests of a plan */
    bool uses_windows; /* some message is packed in one: recorded when it is connected */
    LIERNE_VEC(lierne_segment) segments;
    LIERNE_VEC(lierne_coalesced_message) messages;
    LIERNE_VEC(lierne_phase) phases;
    LIERNE_VEC(lierne_staging_pipeline) pipelines;
    lierne_execution_batch batches[LIERNE_MAX_TRANSPORTS]; /* one per transport of the context */
    lierne_execution_memory memory;    /* scratch of the subroutes, then staging slots */
    lierne_execution_memory host;      /* staging slots of messages that are staged there */
    lierne_shared_output *output;      /* or NULL: the caller's */
    const lierne_varying *varying;     /* of the first subroute, or NULL */
    int64_t stamp[LIERNE_STAMP_WORDS]; /* where it varies: of all of them */
    bool stamps;                       /* where it varies: its messages begin with stamps */
    lierne_frame *frames;              /* of each message, where it varies */
    lierne_contribution *contributions;
    size_t *early;                 /* per phase and subroute: sums that wait for no send in place */
    lierne_fused_sums *fused;      /* or NULL: no sum can read what is exposed */
    lierne_short_call *short_call; /* or NULL: some message is not short */
    bool running;
    bool abandoned; /* a call failed: messages may still be in flight */
    lierne_execution_cursor cursor;
    lierne_execution_flight flight;
    lierne_execution_stream stream;
    lierne_recorded_call record;
};

/* Rounds bytes up to a whole number of cache lines. */
int64_t lierne_execution_align(int64_t bytes);
/* Assigns staging slots, from offset bytes[0] of the execution's memory and bytes[1] of its host
 * memory on, and adds their sizes. */
lierne_status lierne_execution_assign_staging(lierne_execution *e, int64_t bytes[2]);

/* Whether the transport of a message exposes instead of moving. */
bool lierne_execution_exposes(const lierne_execution *e, const lierne_coalesced_message *m);
/* Chooses a transport for each message; then, with staging assigned, creates the batches. */
lierne_status lierne_execution_choose_transports(lierne_execution *e);
lierne_status lierne_execution_create_batches(lierne_execution *e);
/* Updates the postings of messages with staging slots after the execution's memory has moved. */
void lierne_execution_place_slots(lierne_execution *e);
/* Gives up messages in flight, once; returns whether no peer may still read or write buffers. */
bool lierne_execution_withdraw(lierne_execution *e);
void lierne_execution_destroy_batches(lierne_execution *e);
/* Marks the sends that need not end with their phase. */
void lierne_execution_mark_lingering(lierne_execution *e);

/* Its stages are moved as single messages again: their blocks have changed. */
void lierne_execution_forget_all_gathers(lierne_execution *e);

/* Posts the messages of the current phase that need not wait for a staging slot. Where another
 * execution must post first, sets deferred and posts nothing. */
lierne_status lierne_execution_post_phase(lierne_execution *e);
/* Posts the messages of a pipeline whose slots are free, up to one whose slot is not. */
lierne_status lierne_execution_post_pipeline(lierne_execution *e,
                                             lierne_staging_pipeline *pipeline);
/* Delivers a message that arrived: unpacks it, or copies from where it is exposed. */
void lierne_execution_deliver(const lierne_execution *e, const lierne_coalesced_message *m);
/* Copies what is exposed of a segment into this rank's buffer. */
void lierne_execution_copy_segment(const lierne_execution *e, const lierne_segment *segment,
                                   const lierne_part *part);

/* The current phase's copies. */
void lierne_execution_run_copies(const lierne_execution *e);
/* Its sums: those that are early, or the others, which in place wait for the phase's sends. */
void lierne_execution_run_sums(const lierne_execution *e, bool early);
/* early_sums.c. Finds the sums of each stage that are early in place; again where blocks changed.
 */
void lierne_early_sums_find(lierne_execution *e);
/* How many of the sums of subroute p are early in the current phase of this call: those before
 * the ones that clear. Not in place it is all of them. */
size_t lierne_early_sums_count(const lierne_execution *e, size_t p);
/* Whether no element is in both blocks; false where that is not found out. */
bool lierne_blocks_apart(const lierne_block *a, const lierne_block *b);
/* A sum with other blocks: the target's, then one per source. bases: of the sources that are not in
 * a buffer of this rank, else NULL. */
void lierne_execution_run_sum(const lierne_execution *e, const lierne_subroute *subroute,
                              const lierne_op *op, const lierne_block *blocks,
                              const void *const *bases);
/* The address of a buffer of a subroute in the running call. */
const char *lierne_execution_readable(const lierne_subroute *subroute, lierne_buffer buffer);

/* Widens a range by the elements of a block; one that is empty becomes theirs. */
void lierne_range_extend(lierne_range *range, const lierne_block *block);

/* Rows first to first + count - 1 of the outermost loop of a block; all of it if count is -1. */
lierne_block lierne_block_part(const lierne_block *block, int64_t first, int64_t count);
/* The block of a part that was looked at last, and its first element in the message. */
typedef struct lierne_part_cursor {
    size_t block;
    int64_t first;
} lierne_part_cursor;
/* Where a block of scratch that a message lands in, from element `landing` on, lies at the
 * sender's; false if that is no block. */
bool lierne_part_find(lierne_block *out, const lierne_part *part, lierne_part_cursor *cursor,
                      int64_t landing, const lierne_block *source);
/* The counts of *loops become those of the coarsest loops that divide its own and those of a block
 * with as many elements; false if there are none. */
bool lierne_block_refine(lierne_block *loops, const lierne_block *block);
/* Divides the loops of a block into such loops; false if it has an index list and they are finer.
 */
bool lierne_block_divide(lierne_block *block, const lierne_block *loops);

/* Sets e->fused. */
lierne_status lierne_fused_sums_create(lierne_execution *e);
void lierne_fused_sums_destroy(lierne_fused_sums *f);
/* Where e->fused is not NULL. Holds a segment that is exposed back until the sums; false: it must
 * be copied. */
bool lierne_fused_sums_hold(const lierne_execution *e, const lierne_coalesced_message *m,
                            size_t segment, const lierne_part *part);
/* The current phase's sums. */
void lierne_fused_sums_run(const lierne_execution *e);
/* Releases what was held, once the sums have read it. */
void lierne_fused_sums_release(const lierne_execution *e);

/* Which call the running one is, or one of that number: "forward 6 of plan 3". */
static inline void lierne_execution_print_call(char text[LIERNE_CALL_TEXT],
                                               const lierne_execution *e, int64_t number) {
    lierne_call_print(text, e->name, number, e->record.plan,
                      lierne_recorder_find_name(&e->context->recorder, e->record.plan));
}

/* ranges.c: in a profiler, where one is attached. what: "begin", "end". Returns 0 where it is not
 * shown. enter_stage leaves the one before; leave_stage does nothing where none is open. */
uint64_t lierne_execution_begin_range(const lierne_execution *e, const char *what);
void lierne_execution_end_range(const lierne_execution *e, uint64_t range);
void lierne_execution_enter_stage(lierne_execution *e);
void lierne_execution_leave_stage(lierne_execution *e);
/* The error of a sender of the current phase that gave up. */
lierne_status lierne_execution_check_senders(const lierne_execution *e);
/* Of an execution that varies (varying.c). Adds the messages of the ring to the phase that is being
 * made, reserves its memory and frames, and deals slots. */
lierne_status lierne_varying_add_ring(lierne_execution *e, bool sends);
lierne_status lierne_varying_reserve(lierne_execution *e);
void lierne_varying_deal(lierne_execution *e);
/* The most sources of any sum, 0 where nothing varies; tasks of a call. */
static inline size_t lierne_varying_most_sources(const lierne_execution *e) {
    size_t most = 0;
    for (size_t p = 0; e->varying && p < e->nsubroutes; p++) {
        size_t own = e->subroutes[p].varying->most_sources;
        most = own > most ? own : most;
    }
    return most;
}
static inline size_t lierne_varying_most_tasks_of(const lierne_execution *e) {
    size_t n = 0;
    for (size_t p = 0; p < e->nsubroutes; p++) {
        n += e->subroutes[p].varying->most_tasks;
    }
    return n;
}
/* Before a message is posted, and when one arrived. Errors: MISMATCH. */
void lierne_varying_refresh(const lierne_execution *e, const lierne_coalesced_message *m);
lierne_status lierne_varying_deliver(const lierne_execution *e, size_t message);
/* Packs one segment to a place, or a message's segments one after another; or unpacks them from
 * there. */
void lierne_execution_pack_segment(const lierne_execution *e, const lierne_segment *segment,
                                   char *staged, bool unpack);
void lierne_execution_pack(const lierne_execution *e, const lierne_coalesced_message *m,
                           char *staged, bool unpack);
/* Short calls: prepares what it needs, if all messages are short; frees it. */
lierne_status lierne_short_call_create(lierne_execution *e);
void lierne_short_call_destroy(lierne_execution *e);
/* Parts of a call. reset: everything that one call changes, set_buffers: of each subroute. expect:
 * counts what the current phase waits for; returns its bytes. record_...: the entries of the
 * recorder, at a time of its clock; 0: now. */
void lierne_execution_reset(lierne_execution *e, lierne_reduction reduction, const void *stream);
void lierne_execution_set_buffers(lierne_execution *e, void *const *out, const void *const *in);
int64_t lierne_execution_expect_phase(lierne_execution *e);
/* Ends it with an error, which its wait returns; nothing if status is OK. */
void lierne_execution_fail(lierne_execution *e, lierne_status status);
void lierne_execution_record_call(lierne_execution *e, int64_t time);
void lierne_execution_record_phase(const lierne_execution *e, int64_t bytes, int64_t time);
void lierne_execution_record_end(lierne_execution *e, lierne_status status, int64_t time);

/* After a poll without progress: TIMEOUT, or the error of a peer that is waited for. */
lierne_status lierne_execution_check_clock(lierne_execution *e);

/* The messages of the phases so far that are not complete, as peers and what serves them, as far as
 * they fit. */
void lierne_execution_list_missing(const lierne_execution *e, char *text, size_t size);
/* Records these messages, as far as a few entries go. */
void lierne_execution_record_missing(const lierne_execution *e);
/* The stage that it is in, for messages: the last one also while sends linger after it. */
size_t lierne_execution_stage(const lierne_execution *e);

/* Records the work of all phases; again after the blocks of the routes changed. record_again: of
 * an execution that varies, without waiting for calls that streams have not passed, unless there is
 * more work than ever before. */
lierne_status lierne_execution_record(lierne_execution *e);
lierne_status lierne_execution_record_again(lierne_execution *e);
void lierne_execution_destroy_recorded(lierne_execution *e);
/* Sets the addresses of the running call. */
void lierne_execution_set_recorded(lierne_execution *e);
/* Whether the running call launches what was recorded. */
bool lierne_execution_launches(const lierne_execution *e);
/* Launches a step of the current phase. */
lierne_status lierne_execution_launch(const lierne_execution *e, lierne_recorded_step step);

/* Where the context has streams: the fence and the watch. */
lierne_status lierne_execution_create_stream_state(lierne_execution *e);
void lierne_execution_destroy_stream_state(lierne_execution *e);

/* Around what is enqueued on the stream of the running call. leave returns status, which is kept,
 * or its own error. */
lierne_status lierne_execution_enter_stream(lierne_execution *e);
lierne_status lierne_execution_leave_stream(lierne_execution *e, lierne_status status);
/* Sets the stream of the running call. */
void lierne_execution_set_stream(lierne_execution *e, void *stream);

/* Whether the messages of the current phase may be posted. */
lierne_status lierne_execution_check_launched(lierne_execution *e, bool *passed);

/* Calls that go on after their end (watch.c); where calls are not detached, all do nothing. open
 * and close: around what a call enqueues on its stream. */
lierne_status lierne_execution_create_watch(lierne_execution *e);
void lierne_execution_destroy_watch(lierne_execution *e);
lierne_status lierne_execution_open_watched(lierne_execution *e, void *stream);
lierne_status lierne_execution_close_watched(lierne_execution *e, void *stream);

/* Begins the first phase, and further ones while they complete at once. */
lierne_status lierne_execution_start(lierne_execution *e);
/* Delivers messages that arrived and begins the next phase if the current one is complete; returns
 * whether anything progressed. */
bool lierne_execution_progress(lierne_execution *e);

#endif
