/* The control of a simulated world.
 *
 * An agreement cannot wait for ranks that the same thread calls later. So it compares a rank with
 * the ranks that called before it, and those get the failure of a later rank when they execute.
 * Planning that needs messages must wait and therefore needs a thread per rank; await_agreement and
 * barriers serve it.
 *
 * At a barrier each rank publishes its contribution without copying it. When all ranks have
 * arrived, it reads the contributions of the others, and it leaves when all ranks have read. Both
 * counters only grow, over all barriers: a rank that leaves can enter the next barrier at once, and
 * no rank resets them. When a rank times out, its contribution belongs to its caller again, so no
 * barrier can complete any more: every rank that waits or arrives later gets an error at once. */
#include "backend/sim/sim_world.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define CHECK_EVERY 20000000 /* nanoseconds between checks of the clock */

int lierne_sim_name(const lierne_sim_world *world, int index) {
    return lierne_members_rank(&world->members, index);
}

/* The lock of the world. Waiting ranks sleep until another one has changed something (dirty) and
 * releases the lock: on a busy machine, ranks that only yield would slow each other down. */
static void enter(void *self) {
    pthread_mutex_lock(&((lierne_sim_rank *)self)->world->lock);
}

static void wake_others(lierne_sim_world *world) {
    if (world->dirty) {
        world->dirty = false;
        pthread_cond_broadcast(&world->changed);
    }
}

static void leave(void *self) {
    lierne_sim_world *world = ((lierne_sim_rank *)self)->world;
    wake_others(world);
    pthread_mutex_unlock(&world->lock);
}

/* Called with the lock, which it releases while it sleeps. */
static void sleep_until_change(lierne_sim_world *world) {
    wake_others(world);
    lierne_thread_wait(&world->changed, &world->lock, CHECK_EVERY);
}

static bool progress_world(lierne_sim_world *world) {
    bool moved = world->hook.progress(world->hook.user);
    world->dirty |= moved;
    return moved;
}

static bool idle(void *self) {
    lierne_sim_world *world = ((lierne_sim_rank *)self)->world;
    if (progress_world(world)) {
        return false;
    }
    sleep_until_change(world);
    return true;
}

static void give_up(void *self, lierne_status status) {
    lierne_sim_rank *s = self;
    lierne_strdup(&s->gave_up_message, lierne_last_error());
    atomic_store(&s->gave_up, (int)status);
    atomic_store(&s->world->any_gave_up, true);
    enter(s);
    s->world->dirty = true;
    leave(s);
}

static bool any_gave_up(void *self) {
    return atomic_load(&((const lierne_sim_rank *)self)->world->any_gave_up);
}

static lierne_status gave_up(void *self, int peer) {
    const lierne_sim_world *world = ((const lierne_sim_rank *)self)->world;
    const lierne_sim_rank *s = &world->ranks[peer];
    lierne_status status = (lierne_status)atomic_load(&s->gave_up);
    return status == LIERNE_OK
               ? LIERNE_OK
               : lierne_control_gave_up(status, lierne_sim_name(world, peer),
                                        s->gave_up_message ? s->gave_up_message : "");
}

static lierne_status compare_fields(const lierne_sim_world *world, const lierne_sim_agreement *a,
                                    int rank, const lierne_field *fields, size_t n) {
    int first = lierne_sim_name(world, a->first), own = lierne_sim_name(world, rank);
    for (size_t i = 0; i < n || i < a->nfields; i++) {
        const lierne_field *theirs = i < a->nfields ? &a->fields[i] : NULL;
        const lierne_field *mine = i < n ? &fields[i] : NULL;
        lierne_status status = lierne_field_compare(i, theirs, first, mine, own);
        if (status != LIERNE_OK && lierne_field_same_lists(theirs, mine)) {
            lierne_field_compare_items(theirs->items, 0, theirs->count, first, mine, own);
        }
        LIERNE_TRY(status);
    }
    return LIERNE_OK;
}

/* Copies fields and then their lists, whose first rank may have returned when others compare. */
static lierne_status copy_fields(lierne_field **copy, const lierne_field *fields, size_t n) {
    size_t bytes = n * sizeof *fields;
    for (size_t i = 0; i < n; i++) {
        bytes += fields[i].count * lierne_item_size(fields[i].kind);
    }
    LIERNE_TRY(lierne_alloc_unset(copy, bytes, 1));
    char *at = (char *)(*copy + n);
    for (size_t i = 0; i < n; i++) {
        size_t size = fields[i].count * lierne_item_size(fields[i].kind);
        (*copy)[i] = fields[i];
        if (size > 0) {
            (*copy)[i].items = memcpy(at, fields[i].items, size);
        }
        at += size;
    }
    return LIERNE_OK;
}

/* Stores the fields of the first rank of an agreement. */
static lierne_status open_agreement(lierne_sim_world *world, int rank, const lierne_field *fields,
                                    size_t n) {
    lierne_sim_agreement first = {.first = rank, .nfields = n};
    LIERNE_TRY(copy_fields(&first.fields, fields, n));
    lierne_status status = LIERNE_VEC_PUSH(&world->agreements, first);
    if (status != LIERNE_OK) {
        lierne_mem_free(first.fields);
    }
    return status;
}

static lierne_status take_part(lierne_sim_rank *s, lierne_status mine, const lierne_field *fields,
                               size_t n, int id) {
    lierne_sim_world *world = s->world;
    if ((size_t)id == world->agreements.count && !world->full) {
        world->full = open_agreement(world, s->rank, fields, n) != LIERNE_OK;
    }
    if ((size_t)id >= world->agreements.count) {
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY,
                           "there was no memory to record agreement %d of the world", id);
    }
    lierne_sim_agreement *a = &world->agreements.at[id];
    a->taken++;
    world->dirty = true;
    if (a->status != LIERNE_OK) {
        lierne_set_error(a->message);
        return a->status;
    }
    a->status = mine != LIERNE_OK ? mine : compare_fields(world, a, s->rank, fields, n);
    if (a->status != LIERNE_OK) {
        snprintf(a->message, sizeof a->message, "%s", lierne_error_text());
    }
    return a->status;
}

/* Frees the fields of an agreement in which all ranks took part: a world may agree very often. */
static void drop_fields(const lierne_sim_world *world, int id) {
    if ((size_t)id < world->agreements.count && world->agreements.at[id].taken == world->nranks) {
        lierne_mem_free(world->agreements.at[id].fields);
        world->agreements.at[id].fields = NULL;
    }
}

static lierne_status agree_threads(void *self, lierne_status mine, const lierne_field *fields,
                                   size_t n, int *id, lierne_status *decision) {
    lierne_sim_rank *s = self;
    *id = s->agreements++;
    enter(s);
    *decision = take_part(s, mine, fields, n, *id);
    drop_fields(s->world, *id);
    leave(s);
    return LIERNE_OK;
}

/* Returns the status of an agreement and sets the message if it failed. */
static lierne_status status_of(const lierne_sim_agreement *a) {
    if (a->status != LIERNE_OK) {
        lierne_set_error(a->message);
    }
    return a->status;
}

static lierne_status agreement_status(void *self, int id) {
    lierne_sim_rank *s = self;
    enter(s);
    lierne_status status = status_of(&s->world->agreements.at[id]);
    leave(s);
    return status;
}

static lierne_status check_given_up(lierne_sim_rank *s) {
    const lierne_sim_world *world = s->world;
    if (world->timed_out >= 0) {
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d of %d: planning: rank %d timed out waiting for other ranks",
                           lierne_sim_name(world, s->rank), world->members.world,
                           lierne_sim_name(world, world->timed_out));
    }
    for (int r = 0; any_gave_up(s) && r < world->nranks; r++) {
        LIERNE_TRY(gave_up(s, r));
    }
    return LIERNE_OK;
}

/* Called with the lock, which it may release for a moment. */
static lierne_status pause(lierne_sim_rank *s, lierne_deadline *deadline, size_t missing) {
    LIERNE_TRY(check_given_up(s));
    if (lierne_deadline_passed(deadline, lierne_now())) {
        s->world->timed_out = s->rank;
        s->world->dirty = true;
        return LIERNE_FAIL(LIERNE_ERR_TIMEOUT,
                           "rank %d of %d: planning: %zu ranks did not call within %g s",
                           lierne_sim_name(s->world, s->rank), s->world->members.world, missing,
                           s->world->timeout);
    }
    if (!progress_world(s->world)) {
        sleep_until_change(s->world);
    }
    return LIERNE_OK;
}

static lierne_status await_all(lierne_sim_rank *s, int id, lierne_status *decision) {
    lierne_deadline deadline;
    lierne_deadline_start(&deadline, s->world->timeout, lierne_now());
    for (;;) {
        const lierne_sim_agreement *a = &s->world->agreements.at[id];
        *decision = status_of(a);
        if (a->status != LIERNE_OK || a->taken == s->world->nranks) {
            return LIERNE_OK;
        }
        LIERNE_TRY(pause(s, &deadline, (size_t)(s->world->nranks - a->taken)));
    }
}

static lierne_status await_agreement(void *self, int id, lierne_status *decision) {
    lierne_sim_rank *s = self;
    enter(s);
    lierne_status status = await_all(s, id, decision);
    leave(s);
    return status;
}

static lierne_status await_count(lierne_sim_rank *s, const size_t *count, size_t all,
                                 lierne_deadline *deadline) {
    while (*count < all) {
        LIERNE_TRY(pause(s, deadline, all - *count));
    }
    return check_given_up(s);
}

/* A barrier at which read_all makes the result from the contributions of all ranks. */
static lierne_status barrier(lierne_sim_rank *s, const void *shared, size_t n,
                             lierne_status (*read_all)(const lierne_sim_rank *s, void *result),
                             void *result) {
    lierne_sim_world *world = s->world;
    size_t all = ++s->barriers * (size_t)world->nranks;
    lierne_deadline deadline;
    lierne_status outcome = LIERNE_OK;
    lierne_deadline_start(&deadline, world->timeout, lierne_now());
    enter(s);
    s->shared = shared;
    s->nshared = n;
    world->arrivals++;
    world->dirty = true;
    lierne_status status = await_count(s, &world->arrivals, all, &deadline);
    if (status == LIERNE_OK) {
        outcome = read_all(s, result);
        world->reads++;
        world->dirty = true;
        status = await_count(s, &world->reads, all, &deadline);
    }
    leave(s);
    return status != LIERNE_OK ? status : outcome;
}

static lierne_status collect_result(const lierne_sim_rank *s, void *result) {
    for (int r = 0; r < s->world->nranks; r++) {
        const lierne_control_message *messages = s->world->ranks[r].shared;
        for (size_t i = 0; i < s->world->ranks[r].nshared; i++) {
            if (messages[i].peer == s->rank) {
                LIERNE_TRY(lierne_control_messages_copy(result, r, &messages[i]));
            }
        }
    }
    return LIERNE_OK;
}

static lierne_status sparse_exchange(void *self, const lierne_control_message *messages, size_t n,
                                     lierne_control_messages *received) {
    lierne_status status = barrier(self, messages, n, collect_result, received);
    if (status != LIERNE_OK) {
        lierne_control_messages_destroy(received);
    }
    return status;
}

static lierne_status find_max(const lierne_sim_rank *s, void *result) {
    int64_t *max = result;
    for (int r = 0; r < s->world->nranks; r++) {
        const int64_t *values = s->world->ranks[r].shared;
        for (size_t i = 0; i < s->world->ranks[r].nshared; i++) {
            max[i] = values[i] > max[i] ? values[i] : max[i];
        }
    }
    return LIERNE_OK;
}

static lierne_status allreduce_max(void *self, int64_t *values, size_t n) {
    int64_t max[LIERNE_MAX_REDUCED];
    memcpy(max, values, n * sizeof *values);
    LIERNE_TRY(barrier(self, values, n, find_max, max));
    memcpy(values, max, n * sizeof *values);
    return LIERNE_OK;
}

static void close_rank(void *self, bool dead) {
    (void)self, (void)dead;
}

static const lierne_control_pending pending = {.status = agreement_status,
                                               .await = await_agreement};
static const lierne_control_failures failures = {.give_up = give_up,
                                                 .any_gave_up = any_gave_up,
                                                 .gave_up = gave_up};
static const lierne_control_lock lock = {.enter = enter, .leave = leave};

const lierne_control lierne_sim_control = {
    .name = "sim",
    .agree = agree_threads,
    .sparse_exchange = sparse_exchange,
    .allreduce_max = allreduce_max,
    .idle = idle,
    .close = close_rank,
    .pending = &pending,
    .failures = &failures,
    .lock = &lock,
};

lierne_status lierne_sim_world_open(lierne_sim_world *world, const lierne_members *members,
                                    double timeout, lierne_control_hook hook) {
    pthread_condattr_t attributes;
    world->nranks = members->count;
    world->members = *members;
    world->timeout = timeout;
    world->hook = hook;
    world->timed_out = -1;
    pthread_mutex_init(&world->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&world->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return lierne_alloc(&world->ranks, (size_t)members->count, sizeof *world->ranks);
}

void lierne_sim_world_close(lierne_sim_world *world) {
    for (int r = 0; world->ranks && r < world->nranks; r++) {
        lierne_sim_mailbox_destroy(&world->ranks[r].mailbox);
        lierne_mem_free(world->ranks[r].gave_up_message);
    }
    for (size_t i = 0; i < world->agreements.count; i++) {
        lierne_mem_free(world->agreements.at[i].fields);
    }
    lierne_mem_free(world->agreements.at);
    lierne_mem_free(world->ranks);
    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->lock);
}
