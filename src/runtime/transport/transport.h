/* A transport moves the messages of a stage between ranks and knows nothing else: it is a table of
 * eight functions that every transport has, and capabilities that some have. The route says what
 * the messages mean; execute/ decides which transport serves which message, waits, has the
 * deadline, and does all sums.
 *
 * A transport works in one of two ways. One that moves takes contiguous bytes at the sender and
 * delivers them at the receiver. One that exposes tells the receiver where the sender's buffers are
 * readable and when; execution then copies straight from there and releases them. */
#ifndef LIERNE_TRANSPORT_H
#define LIERNE_TRANSPORT_H

#include "base/base.h"
#include "route/route.h"

/* Blocks of one buffer, one after another; a message has one part per plan that it serves. */
typedef struct lierne_part {
    const void *base; /* of the buffer in this call; NULL outside of calls */
    size_t size;      /* bytes of an element */
    lierne_buffer buffer;
    int index; /* of the buffer among those of its kind */
    const lierne_block *blocks;
    size_t nblocks;
} lierne_part;

/* A message of a stage that begins, or of one whose staging slot became free. */
typedef struct lierne_posting {
    size_t slot; /* of the batch; free again when poll has returned it */
    int peer;
    bool receives;
    size_t bytes;
    void *data;               /* where a transport that moves reads (sends) or writes (receives) */
    const lierne_part *parts; /* of a transport that exposes or connects: this rank's blocks, at
                                 both ends */
    size_t nparts;
    bool all_gathers; /* its stage is one: see lierne_transport_all_gathers */
    bool in_window;   /* packed in the window of the sender: see lierne_transport_windows */
    bool varies;      /* bytes and data change between calls: see resize in lierne_transport */
    bool overwritten; /* of a send: in this call, sums write to what it sends when it is complete */
} lierne_posting;

/* What a transport at one end of a message tells itself at the other end, before the first call:
 * where a flag lies, for example. The meaning is the transport's own. */
#define LIERNE_RECORD_WORDS 8
typedef struct lierne_record {
    int64_t words[LIERNE_RECORD_WORDS];
} lierne_record;

/* The other end of a message. Whichever request a call takes at each end, so a message may meet
 * any of the peer's executions of the route: it has the record of each of them, and which one it
 * meets is told by the match id. */
typedef struct lierne_remote {
    const lierne_part *parts; /* of a receive: the sender's, without bases; NULL of a send */
    size_t nparts;
    const lierne_record *records;
    size_t nrecords;
    const lierne_record *own; /* of this rank's executions, in their order: on every rank the k-th
                                 of a route has the k-th record */
    size_t nown;
} lierne_remote;

/* A group (lierne/group.h), as a transport sees it. */
typedef struct lierne_transport_group {
    int64_t uid; /* equal on all members, never used again */
    const char *purpose;
    int priority;     /* lierne_priority */
    const int *ranks; /* in the group's order; as the transport counts them */
    int n;
    int rank; /* this rank's place among them */
} lierne_transport_group;

struct lierne_heap;

/* The table of a transport ends with its capabilities: what only some transports have. Each is a
 * struct of which every function is set, or NULL. */

/* It must know the other end of each message before the first call. A plan calls both when it is
 * made and when its blocks change, never while one of its requests is in flight. All ranks of the
 * context must then have the transport, also those that it connects with nobody. An error of either
 * on any rank fails the plan on all. */
typedef struct lierne_transport_connects {
    /* Writes the record of a message that the batch will have, given without data and bases. */
    lierne_status (*describe)(void *batch, const lierne_posting *message, lierne_record *record);
    /* Takes the other ends of the messages in slots 0 to n - 1, which replace those of an earlier
     * connect. They stay readable until the next one or until the plan is destroyed, so withdraw
     * and batch_destroy must not read them. */
    lierne_status (*connect)(void *batch, const lierne_remote *remotes, size_t n);
} lierne_transport_connects;

/* It exposes instead of moving: receivers read the sender's memory. A send is then complete when
 * the receiver has released it. */
typedef struct lierne_transport_exposes {
    /* Of a receive that poll has returned: the sender's parts, as many as the receiver has,
     * readable at these addresses until release. NULL: the transport has written the message into
     * the receiver's own parts, and there is nothing to release. A transport may decide so for each
     * message of each call. */
    const lierne_part *(*exposed)(void *batch, size_t slot);
    void (*release)(void *batch, size_t slot);
    /* Other memory of the sender's window, for as long as it has not completed a send. find:
     * whether bytes of this rank's are in its window, and at which place. reach: that place of the
     * sender of a receive that exposed shows; NULL: it cannot be mapped, with the message. */
    bool (*find)(const void *batch, uint64_t *place, const void *at, size_t bytes);
    const void *(*reach)(const void *batch, size_t slot, uint64_t place, size_t bytes);
} lierne_transport_exposes;

/* What is sent goes into windows, memory of its own that peers read; of a transport that connects
 * and works on streams. Messages that are scattered need no staging slots: the sender packs into
 * its window and the receiver unpacks from there (lierne_posting.in_window; the other end of a
 * message need not do so), where no more than one execution of the route has messages. */
typedef struct lierne_transport_windows {
    char *(*at)(void *batch, size_t slot); /* the place, after connect */
    /* What the packing waits for, and that the unpacking is done, as enqueued work: for all
     * postings of a stage. */
    lierne_status (*before_packing)(void *batch, int match, const lierne_posting *postings,
                                    size_t n);
    lierne_status (*after_unpacking)(void *batch, int match, const lierne_posting *postings,
                                     size_t n);
} lierne_transport_windows;

/* It has memory that peers can read in place: zeroed, from the start of a page on. Errors of alloc:
 * NO_MEMORY. */
typedef struct lierne_transport_memory {
    lierne_status (*alloc)(void *self, void **out, size_t bytes);
    void (*free)(void *self, void *memory);
} lierne_transport_memory;

/* It moves memory best that all ranks have registered with each other: a heap (heap.h) of the kind
 * of buffers, for what execution allocates while planning. All ranks add a chunk together, and
 * agree after each step (runtime/context/context_heap.c). */
typedef struct lierne_transport_registers {
    struct lierne_heap *(*heap)(void *self);
    /* Allocates a chunk of at least so many bytes, the same on all ranks, and adds it to the heap.
     * Errors: any, of this rank alone; nothing is added. */
    lierne_status (*reserve)(void *self, int64_t bytes);
    /* Registers the chunk: collective, at most half of the timeout. Errors: UNSUPPORTED (the
     * transport is as good as before); others: it is of no further use, and abort follows, which it
     * must have (lierne_transport_watched). */
    lierne_status (*enlist)(void *self);
    /* Keeps the chunk, or frees what there is of it, and the heap grows no more. */
    void (*decide)(void *self, bool kept);
} lierne_transport_registers;

/* It has zeroed memory that several ranks of a node write and read. One of them creates it; the
 * others open it by its name, at any time before the first one closes it. It lives until the last
 * one has closed it. *memory is where it is in this process. Errors: NO_MEMORY; of open also
 * UNSUPPORTED (the system refuses it). */
typedef struct lierne_transport_shares {
    lierne_status (*create)(void **shared, void **memory, size_t bytes, lierne_record *name);
    lierne_status (*open)(void **shared, void **memory, size_t bytes, const lierne_record *name);
    void (*close)(void *shared);
} lierne_transport_shares;

/* A flag of 32 bits in such memory, and the rank that sets it, or waits for it. */
typedef struct lierne_round_flag {
    uint32_t *at;
    int peer;
} lierne_round_flag;
#define LIERNE_ROUND_FLAGS 64 /* of one enqueue */

/* It has memory of a device that the ranks of a node map, and streams set flags there and wait for
 * them: windows of programs (runtime/window). Of a transport that works on streams. */
typedef struct lierne_transport_rounds {
    /* Memory of this rank, from a multiple of 256 bytes on; the first `zeros` bytes are zero.
     * Errors: NO_MEMORY, UNSUPPORTED. */
    lierne_status (*alloc)(void *self, void **memory, lierne_record *name, size_t bytes,
                           size_t zeros);
    void (*free)(void *self, const lierne_record *name);
    /* That of a peer, in this process, until the peer frees it. Errors: UNSUPPORTED, TRANSPORT. */
    lierne_status (*map)(void *self, void **memory, int peer, const lierne_record *name);
    /* Sets n flags to a value after all work before on the stream, or lets the stream wait until
     * they have it: with the deadline and the errors of messages. */
    lierne_status (*enqueue)(void *self, const lierne_round_flag *flags, size_t n, uint32_t value,
                             bool waits, void *stream);
} lierne_transport_rounds;

/* Calls of which every message is short and contiguous on this rank (runtime/execute/short_call.c);
 * of a transport that exposes and is polled. */
typedef struct lierne_transport_short_calls {
    size_t bytes; /* the most that a message may have */
    /* post of all messages of the batch; false, and nothing was posted, where a send would have to
     * wait. */
    bool (*post)(void *batch, int match, const lierne_posting *postings, size_t n);
    /* Waits a moment, and returns whether every receive is there, so that exposed shows them;
     * otherwise the batch is to be polled. */
    bool (*await)(void *batch);
    /* Ends all of its messages, in place of poll and release. */
    void (*release)(void *batch);
} lierne_transport_short_calls;

/* The order of work on a stream makes its messages complete, and nothing may poll: posts enqueue,
 * and poll returns at once what was posted. Without it the host must poll. */
typedef struct lierne_transport_streams {
    /* Takes the stream of the next call. */
    void (*set)(void *batch, void *stream);
    /* A flag per rank: whether this rank has had a message with it. Of a transport that connects
     * two ranks in their first message: execution lets ranks have one while planning, and sets the
     * flags (runtime/execute/first_messages.c). Returns NULL where no first message is needed. */
    bool *(*met)(void *self);
} lierne_transport_streams;

/* It notices errors by itself, and may hang on a device. The watchdog (runtime/context/watchdog.h)
 * calls both in a thread of its own while others use the transport. */
typedef struct lierne_transport_watched {
    lierne_status (*check)(void *self); /* an error that it has noticed since */
    void (*abort)(void *self);          /* ends what hangs on the device, after an error */
    /* The index of the rank that gave up first, where that was the error; else -1. It may say why
     * by other ways, which only the caller's own thread may use. */
    int (*ended_by)(void *self);
} lierne_transport_watched;

/* It has an all-gather; of a transport that works on streams. Used where it serves all messages of
 * a stage, and every rank of the context sends one block to all others and has theirs in the order
 * of the ranks, one after another (runtime/execute/all_gathers.c). */
typedef struct lierne_transport_all_gathers {
    /* In place of post: all postings of the stage. The operation also writes this rank's own block
     * to its place, and may connect ranks, so that a capture must not be the first call. tag: of
     * the plan and what it runs, for tools of the transport's; never 0, below 2^63. */
    lierne_status (*post)(void *batch, const lierne_posting *postings, size_t n, uint64_t tag);
} lierne_transport_all_gathers;

/* It has a state per group beside that of the context, with which the functions of the transport
 * that take one work as well: messages of plans in the group. Both are collective over the members,
 * which all call for their groups in one order, wait for them at most timeout seconds, and are
 * called without the control's lock. Errors of both: TIMEOUT, PEER_FAILED, TRANSPORT (the context
 * dies). */
typedef struct lierne_transport_groups {
    /* create is collective over the context instead: called for each spec of a call, in their
     * order, by all ranks; by those in none of the spec's groups with n 0 and rank -1. */
    bool by_all;
    /* Writes what it made; of a member not NULL. After an error that only some members got, it is
     * as if the others had succeeded: they then call destroy alone. Other errors: any, after which
     * the member takes part in further groups. */
    lierne_status (*create)(void *self, const lierne_transport_group *group, double timeout,
                            void **communicator);
    /* Frees the communicator in any case; with alone set, other members do not call, and it must
     * not wait for them. */
    lierne_status (*destroy)(void *communicator, double timeout, bool alone);
} lierne_transport_groups;

/* Match ids of the calls of a plan and direction that are never in flight together, in turn. A send
 * may be complete before it is received, and its rank then be calls ahead: with n requests, a call
 * that was not received is at most n - 1 calls before the last one of its receiver; the sender may
 * have 2 n later messages ready (two per request over shared memory), and n - 1 calls of its own in
 * flight before the last of these. */
#define LIERNE_CALL_IDS 256 /* n is at most 64 */

typedef struct lierne_transport {
    const char *name;
    /* It has no match ids: messages between two ranks match in the order in which they are posted.
     * Execution then posts whole executions one after another, in the order of their begins. */
    bool ordered;

    /* What every transport has. */

    /* Frees its state when the context is destroyed, after all batches. */
    void (*close)(void *self);
    /* Writes a line about its messages so far, for the dump of a context; "" for none. */
    void (*print)(const void *self, char *text, size_t size);
    /* Whether it serves this rank and a peer: the same at both ends. */
    bool (*reaches)(void *self, int peer);

    /* A batch holds up to capacity messages in flight, each in a slot of its own. withdraw gives up
     * those in flight, after an error, and returns whether their buffers are quiet; if not, peers
     * may still read and write them. batch_destroy frees a batch that was withdrawn
     * or has nothing in flight. */
    lierne_status (*batch_create)(void *self, size_t capacity, void **batch);
    bool (*withdraw)(void *batch);
    void (*batch_destroy)(void *batch);

    /* Starts messages. data and parts stay borrowed until poll returns the slot. Messages between
     * the same two ranks with the same match id match in the order in which they are posted, and
     * messages with different ids never do. Both ends must give the same size; otherwise post or
     * poll returns MISMATCH. match / LIERNE_CALL_IDS is enough for a transport that keeps the order
     * also of messages that were sent before they were asked for. */
    lierne_status (*post)(void *batch, int match, const lierne_posting *postings, size_t n);
    /* Writes the slots that completed since the last poll into done, which has space for capacity
     * of them. */
    lierne_status (*poll)(void *batch, size_t *done, size_t *ndone);

    /* Capabilities, or NULL. The first three are one function each. leave: gives up what belongs to
     * peers, when a context that is not dead is destroyed: before the ranks part; they close
     * afterwards. wait: one step of waiting where nothing but messages of this transport is in
     * flight, after a poll that found none of them; as idle in runtime/control/control.h. */
    void (*leave)(void *self);
    bool (*wait)(void *self);
    /* Of one that connects: takes a new length, at least 1, of a message that varies, while it is
     * not in flight. Such a message is one part of single bytes in a row at both ends; it is
     * described without a length, and a receive is connected without the sender's parts. */
    void (*resize)(void *batch, const lierne_posting *message);
    const lierne_transport_connects *connects;
    const lierne_transport_exposes *exposes;
    const lierne_transport_windows *windows;
    const lierne_transport_memory *memory;
    const lierne_transport_registers *registers;
    const lierne_transport_shares *shares;
    const lierne_transport_rounds *rounds;
    const lierne_transport_short_calls *short_calls;
    const lierne_transport_streams *streams;
    const lierne_transport_watched *watched;
    const lierne_transport_all_gathers *all_gathers;
    const lierne_transport_groups *groups;
} lierne_transport;

/* Of a transport that serves all peers, has no state of its own, or no line for a dump. */
LIERNE_PRIVATE bool lierne_transport_reaches_all(void *self, int peer);
LIERNE_PRIVATE void lierne_transport_close_nothing(void *self);
LIERNE_PRIVATE void lierne_transport_print_nothing(const void *self, char *text, size_t size);

#endif
