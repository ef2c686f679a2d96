/* A stage over NCCL: group calls of sends and receives of packed bytes, on the stream of the call.
 *
 * One communicator serves all plans of a context that have no group: each takes hundreds of
 * megabytes. Those of groups are in nccl_groups.c. NCCL has no match ids, so execution posts whole
 * calls of a communicator in the order of their begins (ordered). What was posted is complete in
 * the order of the stream, so that poll returns it at once. */
#include "backend/nccl/nccl_transport.h"

#include "backend/nccl/group_calls.h"
#include "runtime/transport/posted.h"

typedef struct batch {
    lierne_nccl *nccl;
    lierne_group_cutter cutter;
    lierne_posted posted;
    cudaStream_t stream;
} batch;

static void batch_destroy(void *self) {
    batch *b = self;
    b->nccl->batches--;
    lierne_group_cutter_destroy(&b->cutter);
    lierne_mem_free(b->posted.slots);
    lierne_mem_free(b);
}

static lierne_status batch_create(void *self, size_t capacity, void **out) {
    lierne_nccl *n = self;
    batch *b;
    LIERNE_TRY(lierne_alloc(&b, 1, sizeof *b));
    b->nccl = n;
    n->batches++;
    lierne_status status = lierne_group_cutter_create(&b->cutter, n->rank, n->world, capacity);
    if (status == LIERNE_OK) {
        status = lierne_alloc(&b->posted.slots, capacity, sizeof *b->posted.slots);
    }
    if (status != LIERNE_OK) {
        batch_destroy(b);
        return status;
    }
    *out = b;
    return LIERNE_OK;
}

/* What a failed post began, a peer may still write. */
static bool withdraw_nccl(void *self) {
    batch *b = self;
    b->nccl->broken |= b->posted.n > 0;
    return b->posted.n == 0;
}

static void set_stream(void *self, void *stream) {
    ((batch *)self)->stream = stream;
}

/* Both ends know that a message has no bytes. */
static lierne_status post_one(const batch *b, const lierne_posting *p) {
    const lierne_nccl *n = b->nccl;
    if (p->bytes == 0) {
        return LIERNE_OK;
    }
    int peer = n->places ? n->places[p->peer] : p->peer;
    ncclResult_t result =
        p->receives ? n->call.ncclRecv(p->data, p->bytes, ncclInt8, peer, n->comm, b->stream)
                    : n->call.ncclSend(p->data, p->bytes, ncclInt8, peer, n->comm, b->stream);
    return lierne_nccl_check(n, result, p->receives ? "ncclRecv" : "ncclSend");
}

/* With the lock. The group call ends after an error, too. */
static lierne_status begin_group(const batch *b, const lierne_posting *postings, size_t first,
                                 size_t end) {
    const lierne_nccl *n = b->nccl;
    LIERNE_TRY(lierne_nccl_check(n, n->call.ncclGroupStart(), "ncclGroupStart"));
    lierne_status status = LIERNE_OK;
    for (size_t i = first; i < end && status == LIERNE_OK; i++) {
        status = post_one(b, &postings[b->cutter.order[i].value]);
    }
    ncclResult_t ended = n->call.ncclGroupEnd();
    LIERNE_TRY(status);
    return lierne_nccl_check(n, ended, "ncclGroupEnd");
}

/* Posts the messages first to end - 1 of the cut as one group call. A nonblocking communicator
 * takes the next one when this one is enqueued. */
static lierne_status post_group(const batch *b, const lierne_posting *postings, size_t first,
                                size_t end) {
    lierne_nccl *n = b->nccl;
    LIERNE_TRY(lierne_nccl_enter(n));
    lierne_status status = begin_group(b, postings, first, end);
    lierne_nccl_leave(n);
    return status == LIERNE_OK ? lierne_nccl_wait(n, "ncclGroupEnd") : status;
}

/* The postings are those of an all-gather: its blocks lie at the places of their ranks. */
static lierne_status post_all_gather(void *self, const lierne_posting *postings, size_t n,
                                     uint64_t tag) {
    batch *b = self;
    const lierne_posting *sent = &postings[0], *received = &postings[0];
    for (size_t i = 0; i < n; i++) {
        sent = postings[i].receives ? sent : &postings[i];
        received = postings[i].receives ? &postings[i] : received;
    }
    char *all = (char *)received->data - (size_t)received->peer * received->bytes;
    lierne_posted_add(&b->posted, postings, n);
    LIERNE_TRY(lierne_nccl_all_gather(b->nccl, sent->data, all, sent->bytes, b->stream, tag));
    return lierne_nccl_wait(b->nccl, "ncclAllGather");
}

static lierne_status post_nccl(void *self, int match, const lierne_posting *postings, size_t n) {
    batch *b = self;
    (void)match; /* NCCL has none */
    lierne_posted_add(&b->posted, postings, n);
    lierne_group_cut(&b->cutter, postings, n, LIERNE_GROUP_CALL_OPERATIONS);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first; end < n && b->cutter.order[end].key == b->cutter.order[first].key;) {
            end++;
        }
        LIERNE_TRY(post_group(b, postings, first, end));
    }
    return LIERNE_OK;
}

static lierne_status poll_posted(void *self, size_t *done, size_t *ndone) {
    lierne_posted_take(&((batch *)self)->posted, done, ndone);
    return LIERNE_OK;
}

static bool *met(void *self) {
    return ((lierne_nccl *)self)->met;
}

static void close_nccl(void *self) {
    lierne_nccl *n = self;
    lierne_nccl_end(n);
    if (!n->splits) {
        lierne_mem_free(n);
    }
}

/* NCCL names no rank. */
static int ended_by(void *self) {
    (void)self;
    return -1;
}

static const lierne_transport_registers registers = {.heap = lierne_nccl_heap,
                                                     .reserve = lierne_nccl_heap_reserve,
                                                     .enlist = lierne_nccl_heap_enlist,
                                                     .decide = lierne_nccl_heap_decide};
static const lierne_transport_streams streams = {.set = set_stream, .met = met};
static const lierne_transport_all_gathers all_gathers = {.post = post_all_gather};
static const lierne_transport_groups groups = {.by_all = true,
                                               .create = lierne_nccl_group_create,
                                               .destroy = lierne_nccl_group_destroy};
static const lierne_transport_watched watched = {.check = lierne_nccl_check_async,
                                                 .abort = lierne_nccl_abort,
                                                 .ended_by = ended_by};

const lierne_transport lierne_nccl_transport = {
    .name = "nccl",
    .ordered = true,
    .close = close_nccl,
    .leave = lierne_nccl_heap_leave,
    .print = lierne_nccl_print,
    .reaches = lierne_transport_reaches_all,
    .batch_create = batch_create,
    .withdraw = withdraw_nccl,
    .batch_destroy = batch_destroy,
    .post = post_nccl,
    .poll = poll_posted,
    .registers = &registers,
    .streams = &streams,
    .watched = &watched,
    .all_gathers = &all_gathers,
    .groups = &groups,
};
