/* The table of the control over the caller's functions; opens and closes its state. */
#include "backend/oob/oob_state.h"

#include "runtime/control/survivors.h"
#include "runtime/memory/memory.h"

#include <stdatomic.h>
#include <unistd.h>

#define PAGE_MOST   65536     /* bytes of a page */
#define PAGE_LEAST  1024      /* a message fits, and some fields */
#define PAGES_BYTES (4 << 20) /* of the pages of all ranks */

static void free_state(lierne_oob_state *s) {
    lierne_mem_free(s->records);
    lierne_mem_free(s->cursors);
    lierne_mem_free(s->page);
    lierne_mem_free(s->pages);
    lierne_mem_free(s->infos);
    lierne_mem_free(s);
}

static lierne_status allocate_state(lierne_oob_state *s) {
    size_t world = (size_t)s->world, share = PAGES_BYTES / world / 8 * 8;
    s->page_bytes = share > PAGE_MOST ? PAGE_MOST : share < PAGE_LEAST ? PAGE_LEAST : share;
    LIERNE_TRY(lierne_alloc(&s->records, world, sizeof *s->records));
    LIERNE_TRY(lierne_alloc(&s->cursors, world, sizeof *s->cursors));
    LIERNE_TRY(lierne_alloc(&s->page, s->page_bytes, 1));
    return lierne_alloc(&s->pages, world, s->page_bytes);
}

static lierne_status try_to_open(lierne_oob_state **out, int rank, int world) {
    lierne_oob_state *s;
    LIERNE_TRY(lierne_alloc(&s, 1, sizeof *s));
    s->rank = rank;
    s->world = world;
    s->opened = s->ports.listener = -1;
    lierne_status status = allocate_state(s);
    if (status != LIERNE_OK) {
        free_state(s);
        return status;
    }
    *out = s;
    return LIERNE_OK;
}

lierne_status lierne_oob_open(lierne_oob_state **out, int rank, int world, lierne_status *mine) {
    lierne_status first = try_to_open(out, rank, world);
    if (first == LIERNE_OK) {
        return LIERNE_OK;
    }
    *mine = first;
    return try_to_open(out, rank, world);
}

lierne_status lierne_oob_reserve(lierne_oob_state *s) {
    size_t world = (size_t)s->world;
    LIERNE_TRY(lierne_alloc(&s->infos, world, sizeof *s->infos));
    LIERNE_TRY(lierne_alloc(&s->flag, world, sizeof *s->flag));
    LIERNE_TRY(lierne_alloc(&s->watches, world, sizeof *s->watches));
    for (size_t r = 0; r < world; r++) {
        s->watches[r] = LIERNE_NO_WATCH;
        s->flag[r] = -1;
    }
    s->opened = lierne_abort_flags_open(s->world, 0);
    lierne_rank_info_fill(&s->infos[s->rank], s->rank, s->opened);
    return lierne_ports_open(&s->ports, &s->infos[s->rank].address, s->world);
}

static void close_descriptor(lierne_oob_state *s) {
    if (s->opened >= 0) {
        close(s->opened);
        s->opened = -1;
    }
}

lierne_status lierne_oob_meet(lierne_oob_state *s, bool *reached, lierne_status *decision) {
    lierne_rank_info own = s->infos[s->rank];
    lierne_oob_start_deadline(s);
    LIERNE_TRY(lierne_oob_gather(s, &own, s->infos, sizeof own, "finding nodes"));
    s->crowded = lierne_processes_watch(s->watches, s->infos, s->world, s->rank);
    s->flags_reach_all =
        lierne_processes_map_flags(&s->flags, s->flag, s->infos, s->world, s->rank, 0);
    const lierne_ports_ranks ranks = {.infos = s->infos,
                                      .rank = s->rank,
                                      .world = s->world,
                                      .timeout = s->timeout,
                                      .alive = lierne_oob_alive,
                                      .state = s};
    *decision = lierne_ports_meet(&s->ports, &ranks, reached);
    return LIERNE_OK;
}

/* Descriptors of flags stay open until every rank has mapped them. */
lierne_status lierne_oob_share_flags(lierne_oob_state *s, bool *answers, int n) {
    int64_t noes[LIERNE_MAX_REDUCED];
    noes[n] = !s->flags_reach_all;
    for (int i = 0; i < n; i++) {
        noes[i] = !answers[i];
    }
    LIERNE_TRY(lierne_oob_allreduce_max(s, noes, (size_t)n + 1));
    for (int i = 0; i < n; i++) {
        answers[i] = !noes[i];
    }
    s->flags_reach_all = !noes[n];
    s->ready = true;
    if (s->flags_reach_all) {
        lierne_ports_close(&s->ports);
    }
    close_descriptor(s);
    return LIERNE_OK;
}

/* Without this, a rank that plans while others leave would wait for its deadline; and so would one
 * that calls after this rank has left alone. */
static void leave_together(lierne_oob_state *s) {
    s->mine = (lierne_oob_record){0};
    if (lierne_oob_begin(s, LIERNE_OOB_CLOSE) != LIERNE_OK && s->flags) {
        lierne_abort_flags_leave(s->flags, s->flag[s->rank]);
    }
}

/* The caller's functions may still read or write a state that was abandoned: it stays until the
 * process ends, in a list, so that leak checkers reach it. */
static void keep(lierne_oob_state *s) {
    static _Atomic(lierne_oob_state *) kept;
    s->next_kept = atomic_exchange(&kept, s);
}

void lierne_oob_close(void *state, bool dead) {
    lierne_oob_state *s = state;
    if (!dead) {
        leave_together(s);
    }
    close_descriptor(s);
    lierne_ports_close(&s->ports);
    lierne_processes_unwatch(s->watches, s->world);
    lierne_mem_free(s->watches);
    lierne_mem_free(s->flag);
    lierne_abort_flags_unmap(s->flags);
    if (s->hooks) {
        s->hooks->close(s->calls.user);
    }
    bool now = lierne_lifetime_find(NULL, !s->abandoned) == LIERNE_LIFETIME_USE;
    now ? free_state(s) : keep(s);
}

static bool has_pending_buffers(void *state) {
    return ((const lierne_oob_state *)state)->pending_buffers;
}

static const lierne_control_failures failures = {.give_up = lierne_oob_give_up,
                                                 .any_gave_up = lierne_oob_any_gave_up,
                                                 .gave_up = lierne_oob_gave_up};
static const lierne_control_processes processes = {.alive = lierne_oob_alive,
                                                   .has_pending_buffers = has_pending_buffers};

static bool find_survivors(void *state, lierne_survivors *survivors) {
    const lierne_oob_state *s = state;
    *survivors = (lierne_survivors){.flags = s->flags_reach_all ? s->flags : NULL,
                                    .flag = s->flag,
                                    .watches = s->watches,
                                    .ports = &s->ports,
                                    .rank = s->rank,
                                    .world = s->world};
    return survivors->flags || s->ports.addresses;
}

static const lierne_control_survivors survivors = {.find = find_survivors};

const lierne_control lierne_oob_control = {
    .name = "oob",
    .agree = lierne_oob_agree,
    .sparse_exchange = lierne_oob_sparse_exchange,
    .allreduce_max = lierne_oob_allreduce_max,
    .idle = lierne_oob_idle,
    .close = lierne_oob_close,
    .failures = &failures,
    .processes = &processes,
    .survivors = &survivors,
};
