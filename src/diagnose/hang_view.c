/* Turns the entries of a ring into operations. The beginning of an operation may have been
 * overwritten: what is left of it is then of no use and is skipped. */
#include "diagnose/hang_view.h"

#include <math.h>
#include <string.h>

/* Operations back that an entry may belong to; bounds a hostile file. */
#define MOST_UNDER_WAY 256

static bool is_control(const lierne_entry *entry) {
    return entry->kind == LIERNE_RECORD_CONTROL || entry->kind == LIERNE_RECORD_CONTROLLED;
}

static lierne_status begin_operation(lierne_hang_view *view, const lierne_entry *entry) {
    bool control = is_control(entry);
    const lierne_hang_operation o = {.control = control,
                                     .what = entry->what,
                                     .plan = entry->plan,
                                     .number = entry->number,
                                     .place = control ? -1 : entry->peer,
                                     .stages = entry->stage,
                                     .begun = lierne_dump_time(&view->dump, entry),
                                     .ended = INFINITY};
    return LIERNE_VEC_PUSH(&view->operations, o);
}

/* The operation under way that an entry belongs to, or NULL. */
static lierne_hang_operation *find_operation(const lierne_hang_view *view,
                                             const lierne_entry *entry) {
    bool control = is_control(entry);
    size_t count = view->operations.count;
    for (size_t i = count; i > 0 && i + MOST_UNDER_WAY > count; i--) {
        lierne_hang_operation *o = &view->operations.at[i - 1];
        if (o->control == control && o->what == entry->what && o->plan == entry->plan &&
            o->number == entry->number) {
            return o;
        }
    }
    return NULL;
}

static void add_peer(lierne_hang_operation *o, const lierne_entry *entry) {
    if (o->waited != entry->time) { /* what was missing at once was recorded with one time */
        o->npeers = 0;
        o->waited = entry->time;
    }
    if (o->npeers < LIERNE_HANG_PEERS) {
        o->peers[o->npeers++] = entry->peer;
    }
    o->stage = entry->stage;
}

static void change(const lierne_hang_view *view, const lierne_entry *entry) {
    lierne_hang_operation *o = find_operation(view, entry);
    if (o && entry->kind == LIERNE_RECORD_STAGE) {
        o->stage = entry->stage;
        o->npeers = 0;
    } else if (o && entry->kind == LIERNE_RECORD_WAIT) {
        add_peer(o, entry);
    } else if (o && entry->bytes == LIERNE_OK) {
        o->ended = lierne_dump_time(&view->dump, entry);
    }
}

static lierne_status take_entry(lierne_hang_view *view, const lierne_entry *entry) {
    switch (entry->kind) {
    case LIERNE_RECORD_CALL:
    case LIERNE_RECORD_CONTROL:
        return begin_operation(view, entry);
    case LIERNE_RECORD_STAGE:
    case LIERNE_RECORD_WAIT:
    case LIERNE_RECORD_END:
    case LIERNE_RECORD_CONTROLLED:
        change(view, entry);
        return LIERNE_OK;
    case LIERNE_RECORD_GAVE_UP:
        view->gave_up = lierne_dump_time(&view->dump, entry);
        return LIERNE_OK;
    case LIERNE_RECORD_ENDED:
        view->ended_peer = entry->peer;
        return LIERNE_OK;
    default:
        return LIERNE_OK;
    }
}

lierne_status lierne_hang_view_fill(lierne_hang_view *view) {
    view->gave_up = INFINITY;
    view->ended_peer = -1;
    for (size_t i = 0; i < view->dump.records.count; i++) {
        LIERNE_TRY(take_entry(view, &view->dump.records.at[i]));
    }
    return LIERNE_OK;
}

void lierne_hang_views_clear(lierne_hang_views *views) {
    for (size_t i = 0; i < views->count; i++) {
        lierne_dump_clear(&views->at[i].dump);
        lierne_mem_free(views->at[i].operations.at);
    }
    lierne_mem_free(views->at);
    memset(views, 0, sizeof *views);
}

bool lierne_hang_same(const lierne_hang_operation *a, const lierne_hang_operation *b) {
    return a->control == b->control && (a->control || (a->what == b->what && a->plan == b->plan)) &&
           a->number == b->number;
}

const lierne_hang_operation *lierne_hang_view_find(const lierne_hang_view *view,
                                                   const lierne_hang_operation *operation) {
    for (size_t i = view->operations.count; i > 0; i--) {
        if (lierne_hang_same(&view->operations.at[i - 1], operation)) {
            return &view->operations.at[i - 1];
        }
    }
    return NULL;
}

const lierne_hang_operation *lierne_hang_view_waits(const lierne_hang_view *view, double at,
                                                    bool any) {
    for (size_t i = view->operations.count; i > 0; i--) {
        const lierne_hang_operation *o = &view->operations.at[i - 1];
        if (o->begun <= at && o->ended > at && (any || o->control || o->npeers > 0)) {
            return o;
        }
    }
    return NULL;
}

int lierne_hang_index(const lierne_hang_context *c, int rank) {
    int low = 0, high = c->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (c->at[middle]->dump.rank < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < c->n && c->at[low]->dump.rank == rank ? low : -1;
}
