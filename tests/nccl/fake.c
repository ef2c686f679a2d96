/* Messages are matched by pair of ranks, in the order in which they were posted. Ranks connect in
 * their first messages, and in their first all-gather: neither can be captured. */
#include "capture.h"
#include "device_streams.h"
#include "fake_windows.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_OPERATIONS = 256, MOST_SECONDS = 20 };

typedef struct message {
    struct message *next;
    int world_id, from, to;
    bool gathers; /* of an all-gather, which meets nothing else */
    const void *data;
    size_t bytes;
    bool taken;
} message;

typedef struct operation {
    struct ncclComm *comm;
    int peer;
    bool receives;
    void *data;
    size_t bytes;
    cudaStream_t stream;
} operation;

/* What a group call does, when it is executed or replayed; an all-gather is one with a copy. */
typedef struct operations {
    int n;
    const void *own;
    void *to;
    size_t bytes;
    operation at[MOST_OPERATIONS];
} operations;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static message *first, **last = &first;
static fake_nccl_counts counts;
static bool stalled, fails, on_streams, joins_groups;
static int failed_world; /* of the communicator whose send failed: its group does not come */
static _Thread_local int device;
static ncclResult_t async_error = ncclSuccess;
static int last_id = 1000;
static int version_number = NCCL_VERSION(2, 28, 9);
static _Thread_local operations group;
static _Thread_local bool open_group;
static _Thread_local bool broken; /* the group: nothing of it is begun */

static void set_flag(bool *flag, bool value) {
    pthread_mutex_lock(&lock);
    *flag = value;
    pthread_mutex_unlock(&lock);
}

void fake_nccl_stall(bool stall) {
    set_flag(&stalled, stall);
}

void fake_nccl_use_streams(bool use) {
    set_flag(&on_streams, use);
}

void fake_nccl_join_groups(bool join) {
    set_flag(&joins_groups, join);
}

void fake_nccl_set_version(int version) {
    pthread_mutex_lock(&lock);
    version_number = version;
    pthread_mutex_unlock(&lock);
}

void fake_nccl_set_device(int number) {
    device = number;
}

void fake_nccl_set_error(ncclResult_t error) {
    pthread_mutex_lock(&lock);
    async_error = error;
    pthread_mutex_unlock(&lock);
}

void fake_nccl_fail_send(void) {
    set_flag(&fails, true);
}

fake_nccl_counts fake_nccl_count(void) {
    pthread_mutex_lock(&lock);
    fake_nccl_counts now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}

ncclComm_t fake_nccl_comm(int world_id, int rank, int world) {
    struct ncclComm *comm = malloc(sizeof *comm);
    *comm = (struct ncclComm){.world_id = world_id, .rank = rank, .world = world, .device = device};
    return comm;
}

static ncclResult_t get_version(int *version) {
    pthread_mutex_lock(&lock);
    *version = version_number;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

enum { FILLED = 0x80 };

static ncclResult_t get_unique_id(ncclUniqueId *id) {
    memset(id, FILLED, sizeof *id); /* words below zero, too */
    pthread_mutex_lock(&lock);
    int number = ++last_id;
    pthread_mutex_unlock(&lock);
    memcpy(id->internal + sizeof *id - sizeof number, &number, sizeof number);
    return ncclSuccess;
}

static ncclResult_t init(ncclComm_t *comm, int world, ncclUniqueId id, int rank,
                         ncclConfig_t *config) {
    int number;
    memcpy(&number, id.internal + sizeof id - sizeof number, sizeof number);
    bool whole = true;
    for (size_t i = 0; i < sizeof id - sizeof number; i++) {
        whole &= (unsigned char)id.internal[i] == FILLED;
    }
    if (!whole || config->blocking != 0 || config->size != 24) {
        return ncclInvalidArgument;
    }
    *comm = fake_nccl_comm(number, rank, world);
    pthread_mutex_lock(&lock);
    (*comm)->of_group = joins_groups;
    counts.created++;
    counts.joined += joins_groups;
    pthread_mutex_unlock(&lock);
    return ncclInProgress;
}

/* What a rank gives to a split; those of one split have its parent's id and number. */
typedef struct split_call {
    struct split_call *next;
    int world_id, number, rank, color;
} split_call;
static split_call *splits;

/* The ranks of a split with a color, or of all; *below: with a smaller rank. Keys are ranks. */
static int count_split(const split_call *own, bool all, int *below) {
    int n = 0;
    *below = 0;
    for (const split_call *s = splits; s; s = s->next) {
        bool same = s->world_id == own->world_id && s->number == own->number &&
                    (all || s->color == own->color);
        n += same;
        *below += same && s->rank < own->rank;
    }
    return n;
}

/* All ranks of the parent call, also those that get nothing. */
static ncclResult_t split_comm(ncclComm_t comm, int color, int key, ncclComm_t *made,
                               ncclConfig_t *config) {
    int below, n;
    struct timespec until;
    if (config->blocking != 0 || key != comm->rank) {
        return ncclInvalidArgument;
    }
    pthread_mutex_lock(&lock);
    split_call *own = malloc(sizeof *own);
    *own = (split_call){splits, comm->world_id, comm->splits++, comm->rank, color};
    splits = own;
    pthread_cond_broadcast(&changed);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MOST_SECONDS;
    while (!stalled && count_split(own, true, &below) < comm->world) {
        if (pthread_cond_timedwait(&changed, &lock, &until) != 0) {
            pthread_mutex_unlock(&lock);
            return ncclSystemError;
        }
    }
    n = count_split(own, false, &below);
    ncclComm_t member = NULL;
    if (color >= 0) {
        member = fake_nccl_comm((comm->world_id * 100 + own->number + 1) * 100 + color, below, n);
        member->of_group = true;
        counts.split += !stalled;
    }
    *made = stalled ? NULL : member;
    comm->split = stalled ? made : NULL;
    comm->member = stalled ? member : NULL;
    pthread_mutex_unlock(&lock);
    return ncclInProgress;
}

static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t *state) {
    pthread_mutex_lock(&lock);
    *state = stalled ? ncclInProgress : async_error;
    pthread_mutex_unlock(&lock);
    *state = *state == ncclSuccess ? fake_window_state(comm) : *state;
    return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t comm) {
    (void)comm;
    return ncclInProgress;
}

/* What streams still have of it ends, and frees it. A split that goes on ends, too, and what it has
 * made is written. */
static ncclResult_t end_comm(ncclComm_t comm, int *count) {
    fake_windows_end(comm);
    pthread_mutex_lock(&lock);
    if (comm->split) {
        *comm->split = comm->member;
    }
    bool idle = comm->passed == comm->enqueued;
    comm->ended = true;
    ++*count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (idle) {
        free(comm);
    }
    return ncclSuccess;
}

static ncclResult_t destroy(ncclComm_t comm) {
    return end_comm(comm, &counts.destroyed);
}

static ncclResult_t abort_comm(ncclComm_t comm) {
    return end_comm(comm, &counts.aborted);
}

static ncclResult_t comm_count(const ncclComm_t comm, int *count) {
    *count = comm->world;
    return ncclSuccess;
}

static ncclResult_t comm_rank(const ncclComm_t comm, int *rank) {
    *rank = comm->rank;
    return ncclSuccess;
}

static ncclResult_t comm_device(const ncclComm_t comm, int *number) {
    *number = comm->device;
    return ncclSuccess;
}

static const char *error_string(ncclResult_t result) {
    return result == ncclSystemError ? "the fake timed out" : "the fake failed";
}

static const char *last_error(ncclComm_t comm) {
    (void)comm;
    return "";
}

static ncclResult_t group_start(void) {
    group = (operations){.n = 0};
    open_group = true;
    broken = false;
    return ncclSuccess;
}

static ncclResult_t add(ncclComm_t comm, int peer, bool receives, void *data, size_t bytes,
                        cudaStream_t stream) {
    pthread_mutex_lock(&lock);
    bool fail = fails && !receives;
    fails &= !fail;
    failed_world = fail ? comm->world_id : failed_world;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!open_group || group.n == MOST_OPERATIONS || bytes == 0 || fail) {
        broken = true;
        return ncclInvalidUsage;
    }
    fake_windows_see_message(comm, data);
    group.at[group.n++] = (operation){comm, peer, receives, data, bytes, stream};
    return ncclSuccess;
}

static ncclResult_t send_bytes(const void *data, size_t bytes, ncclDataType_t type, int peer,
                               ncclComm_t comm, cudaStream_t stream) {
    return type == ncclInt8 && stream ? add(comm, peer, false, (void *)data, bytes, stream)
                                      : ncclInvalidArgument;
}

static ncclResult_t receive_bytes(void *data, size_t bytes, ncclDataType_t type, int peer,
                                  ncclComm_t comm, cudaStream_t stream) {
    return type == ncclInt8 && stream ? add(comm, peer, true, data, bytes, stream)
                                      : ncclInvalidArgument;
}

/* Copies the first message of a pair, where there is one. */
static bool take(const operation *o, bool gathers) {
    for (message *m = first; m; m = m->next) {
        if (!m->taken && m->world_id == o->comm->world_id && m->from == o->peer &&
            m->to == o->comm->rank && m->gathers == gathers) {
            if (m->bytes != o->bytes) {
                return false;
            }
            memcpy(o->data, m->data, m->bytes);
            m->taken = true;
            pthread_cond_broadcast(&changed);
            return true;
        }
    }
    return false;
}

/* One look at all messages of the group; returns whether all are done. */
static bool look(const operations *o, const message *sent, bool *done) {
    bool all = true;
    for (int i = 0; i < o->n; i++) {
        done[i] = done[i] || (o->at[i].receives ? take(&o->at[i], o->own) : sent[i].taken);
        all &= done[i];
    }
    return all;
}

static void link_sends(const operations *all, message *sent) {
    for (int i = 0; i < all->n; i++) {
        const operation *o = &all->at[i];
        sent[i] = (message){.world_id = o->comm->world_id,
                            .from = o->comm->rank,
                            .to = o->peer,
                            .gathers = all->own != NULL,
                            .data = o->data,
                            .bytes = o->bytes};
        if (!o->receives) {
            *last = &sent[i];
            last = &sent[i].next;
        }
    }
    pthread_cond_broadcast(&changed);
}

static void unlink_sends(const message *sent, int n) {
    message **at = &first;
    while (*at) {
        if (*at >= sent && *at < sent + n) {
            *at = (*at)->next;
        } else {
            at = &(*at)->next;
        }
    }
    last = at;
}

static ncclResult_t run_group(const operations *o) {
    message sent[MOST_OPERATIONS];
    if (o->own && o->own != o->to) {
        memcpy(o->to, o->own, o->bytes);
    }
    bool done[MOST_OPERATIONS] = {0}, all;
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MOST_SECONDS;
    pthread_mutex_lock(&lock);
    counts.groups++;
    counts.messages += o->n;
    counts.group_messages += o->n > 0 && o->at[0].comm->of_group ? o->n : 0;
    link_sends(o, sent);
    while (!(all = look(o, sent, done)) && late == 0 && !o->at[0].comm->ended &&
           o->at[0].comm->world_id != failed_world) {
        late = pthread_cond_timedwait(&changed, &lock, &until);
    }
    unlink_sends(sent, o->n);
    for (int i = 0; all && !o->own && i < o->n; i++) {
        o->at[i].comm->met[o->at[i].receives] |= 1u << o->at[i].peer;
    }
    pthread_mutex_unlock(&lock);
    return all ? ncclInProgress : ncclSystemError;
}

static lierne_status replay_group(void *data) {
    return run_group(data) == ncclInProgress
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "a replayed group call did not end");
}

typedef struct stream_work {
    operations operations;
    int turn;
} stream_work;

static void run_on_stream(void *data) {
    const stream_work *w = data;
    ncclComm_t comm = w->operations.at[0].comm;
    pthread_mutex_lock(&lock);
    while (comm->passed != w->turn && !comm->ended) {
        pthread_cond_wait(&changed, &lock);
    }
    bool runs = !comm->ended;
    pthread_mutex_unlock(&lock);
    if (runs) {
        run_group(&w->operations);
    }
    pthread_mutex_lock(&lock);
    bool last_one = ++comm->passed == comm->enqueued && comm->ended;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (last_one) {
        free(comm);
    }
}

static ncclResult_t enqueue(void) {
    ncclComm_t comm = group.at[0].comm;
    pthread_mutex_lock(&lock);
    const stream_work w = {group, comm->enqueued++};
    pthread_mutex_unlock(&lock);
    test_device_stream_add(group.at[0].stream, run_on_stream, &w, sizeof w);
    return ncclInProgress;
}

static bool connects(const operations *o) {
    bool found = o->own && o->at[0].comm->gathers == 1;
    for (int i = 0; !o->own && i < o->n; i++) {
        found |= !(o->at[i].comm->met[o->at[i].receives] & 1u << o->at[i].peer);
    }
    return found;
}

static ncclResult_t group_end(void) {
    open_group = false;
    if (broken) {
        return ncclInvalidUsage;
    }
    if (on_streams && group.n > 0) {
        return enqueue();
    }
    bool kept =
        group.n > 0 && test_capture_add(group.at[0].stream, replay_group, &group, sizeof group);
    return !kept ? run_group(&group) : connects(&group) ? ncclInvalidUsage : ncclInProgress;
}

static ncclResult_t all_gather(const void *mine, void *all, size_t bytes, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
    char *parts = all;
    fake_windows_see_gather(comm, all);
    pthread_mutex_lock(&lock);
    counts.all_gathers++;
    pthread_mutex_unlock(&lock);
    group_start();
    for (int r = 0; r < comm->world; r++) {
        if (r != comm->rank) {
            send_bytes(mine, bytes, type, r, comm, stream);
            receive_bytes(parts + (size_t)r * bytes, bytes, type, r, comm, stream);
        }
    }
    group.own = mine;
    group.to = parts + (size_t)comm->rank * bytes;
    group.bytes = bytes;
    return group_end();
}

static ncclResult_t all_gather_config(const void *mine, void *all, size_t bytes,
                                      ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
                                      const ncclCollConfig_t *config) {
    if (config->size < sizeof(struct ncclCollConfig_v23100) || config->magic != 0xcafebeef ||
        config->minCTAs != NCCL_CONFIG_UNDEF_INT || config->algSelection) {
        return ncclInvalidArgument;
    }
    pthread_mutex_lock(&lock);
    counts.tagged++;
    counts.tag = config->userProfilerTag;
    pthread_mutex_unlock(&lock);
    return all_gather(mine, all, bytes, type, comm, stream);
}

lierne_status __wrap_lierne_nccl_load(lierne_nccl_functions *nccl);
lierne_status __wrap_lierne_nccl_load(lierne_nccl_functions *nccl) {
    *nccl = (lierne_nccl_functions){
        .ncclGetVersion = get_version,
        .ncclGetUniqueId = get_unique_id,
        .ncclCommInitRankConfig = init,
        .ncclCommGetAsyncError = get_async_error,
        .ncclCommFinalize = finalize,
        .ncclCommDestroy = destroy,
        .ncclCommAbort = abort_comm,
        .ncclCommCount = comm_count,
        .ncclCommUserRank = comm_rank,
        .ncclCommCuDevice = comm_device,
        .ncclGetErrorString = error_string,
        .ncclGetLastError = last_error,
        .ncclAllGather = all_gather,
        .ncclGroupStart = group_start,
        .ncclGroupEnd = group_end,
        .ncclSend = send_bytes,
        .ncclRecv = receive_bytes,
        .ncclMemAlloc = fake_mem_alloc,
        .ncclMemFree = fake_mem_free,
        .ncclCommWindowRegister = fake_window_register,
        .ncclCommWindowDeregister = fake_window_deregister,
        .ncclCommSplit = version_number < NCCL_VERSION(2, 18, 0) ? NULL : split_comm,
        .ncclAllGatherConfig = version_number < NCCL_VERSION(2, 31, 0) ? NULL : all_gather_config};
    return LIERNE_OK;
}
