/* A world's random swaps, what a plan of them must give by the model, and the check of one rank of
 * it. */
#ifndef HALO_TRIAL_H
#define HALO_TRIAL_H

#include "unit/halo_case.h"

typedef struct halo_trial {
    halo_case swaps;
    lierne_dtype dtype;
    int64_t stride;
    bool keep;
    bool flat; /* runs the flattened plan */
    halo_values input[2];
    halo_values expected[2]; /* forward, adjoint */
    int bad[HALO_WORLD];
    const char *why[HALO_WORLD]; /* the first that was wrong on a rank */
} halo_trial;

/* Notes on a rank that something was not good. */
void halo_trial_note(halo_trial *t, int rank, bool good, const char *why);
/* Integers of at most `most` in every row: what a forward reads, and what an adjoint does. */
void halo_trial_fill(halo_trial *t, uint64_t seed, uint64_t most);
/* The expected values of the input. */
void halo_trial_work_out(halo_trial *t);
lierne_status halo_trial_run(lierne_plan *plan, int d, void *out, const void *in);
/* Plans on the rank of the context, runs both directions, from in to out and in place, and notes.
 * Collective. */
void halo_trial_check(halo_trial *t, lierne_context *context);
/* Two requests in flight, ended in the other order. Collective. */
void halo_trial_overlap(halo_trial *t, lierne_context *context);

#endif
