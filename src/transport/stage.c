/* Where parcels that must be packed or unpacked are staged.
 *
 * Short ones have a place each. Long ones, which a planner has cut so that they fit the cache, take
 * turns in a few places per peer and direction: what arrived is unpacked from the cache before the
 * place is used again, and memory far larger than the cache is touched once instead of three times.
 * Each peer has places of its own, or ranks could wait for each other's in a circle. */
#include "transport/job.h"

#define ALIGN  64         /* a cache line, in bytes */
#define LONG   (64 << 10) /* bytes of a parcel that takes turns */
#define PLACES 3          /* per peer and direction: one is filled, one unpacked, one in between */

int64_t lierne_job_align(int64_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool in_one_piece(const lierne_message *m) {
    return m->blocks.count == 0 ||
           (m->blocks.count == 1 && lierne_block_contiguous(&m->blocks.at[0]));
}

static bool is_staged(const lierne_job *job, const lierne_parcel *parcel) {
    return parcel->count > 1 || !in_one_piece(job->items.at[parcel->first].message);
}

/* Parcels of one direction of a leg, begin to end - 1. */
typedef struct range {
    const lierne_leg *leg;
    size_t begin;
    size_t end;
} range;

static lierne_parcel *parcel_at(const lierne_job *job, const range *r, size_t slot) {
    return &job->parcels.at[r->leg->first + slot];
}

/* The PLACES-th long staged parcel with the same peer before this one; -1 if there are fewer. */
static int64_t occupant_of(const lierne_job *job, const range *r, size_t slot) {
    int peer = parcel_at(job, r, slot)->peer, places = 0;
    for (size_t i = slot; i-- > r->begin;) {
        const lierne_parcel *p = parcel_at(job, r, i);
        if (p->peer == peer && p->staging >= 0 && p->bytes >= LONG && ++places == PLACES) {
            return (int64_t)i;
        }
    }
    return -1;
}

static void place_parcel(const lierne_job *job, const range *r, size_t slot, int64_t *used) {
    lierne_parcel *parcel = parcel_at(job, r, slot);
    if (!is_staged(job, parcel)) {
        return;
    }
    int64_t occupant = parcel->bytes >= LONG ? occupant_of(job, r, slot) : -1;
    if (occupant >= 0 && parcel_at(job, r, (size_t)occupant)->bytes >= parcel->bytes) {
        parcel->staging = parcel_at(job, r, (size_t)occupant)->staging;
        parcel->after = occupant;
    } else {
        parcel->staging = *used;
        *used += lierne_job_align(parcel->bytes);
    }
}

/* The stream of the parcels with a peer, from the first one on that waits for a place. */
static lierne_status add_stream(lierne_job *job, lierne_leg *leg, const range *r, size_t slot) {
    lierne_stream stream = {.first = slot};
    int64_t number = (int64_t)job->streams.count;
    int peer = parcel_at(job, r, slot)->peer;
    lierne_parcel *last = NULL;
    LIERNE_TRY(LIERNE_VEC_PUSH(&job->streams, stream));
    leg->nstreams++;
    for (size_t i = r->begin; i < r->end; i++) {
        lierne_parcel *p = parcel_at(job, r, i);
        if (p->peer != peer) {
            continue;
        }
        p->stream = number;
        if (i >= slot) {
            if (last) {
                last->successor = (int64_t)i;
            }
            last = p;
        }
    }
    return LIERNE_OK;
}

static lierne_status stage_range(lierne_job *job, lierne_leg *leg, size_t begin, size_t end,
                                 int64_t *used) {
    const range r = {leg, begin, end};
    for (size_t i = begin; i < end; i++) {
        place_parcel(job, &r, i, used);
    }
    for (size_t i = begin; i < end; i++) {
        const lierne_parcel *p = parcel_at(job, &r, i);
        if (p->after >= 0 && p->stream < 0) {
            LIERNE_TRY(add_stream(job, leg, &r, i));
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_job_stage(lierne_job *job, int64_t *bytes) {
    int64_t most = *bytes;
    for (size_t i = 0; i < job->legs.count; i++) {
        lierne_leg *leg = &job->legs.at[i];
        int64_t used = *bytes; /* legs do not run at once */
        leg->first_stream = job->streams.count;
        LIERNE_TRY(stage_range(job, leg, 0, leg->nrecvs, &used));
        LIERNE_TRY(stage_range(job, leg, leg->nrecvs, leg->nrecvs + leg->nsends, &used));
        most = used > most ? used : most;
    }
    *bytes = most;
    return LIERNE_OK;
}
