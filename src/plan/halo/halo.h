/* What the files of the halo planner share. */
#ifndef LIERNE_HALO_INTERNAL_H
#define LIERNE_HALO_INTERNAL_H

#include "lierne/halo.h"
#include "plan/plan.h"
#include "plan/spec_table.h"

/* Of lierne_halo_spec. */
extern const lierne_spec_table lierne_halo_table;

/* What a plan of swaps keeps: its spec, with copies of all that it points to. */
typedef struct lierne_halo_saved_spec {
    lierne_saved_spec base;
    lierne_halo_spec spec; /* stride is never 0 here, max_inflight neither */
    int *procs;            /* what spec points to: sendproc, then recvproc */
    int64_t *nums;         /* sendnum, recvnum, then `first` */
    const int64_t *first;  /* each swap's first ghost row */
    int64_t *rows;         /* all lists */
    const int64_t **lists;
    int32_t *root_rank; /* owner of each ghost's row, and the row there; NULL without swaps */
    int64_t *root_row;
} lierne_halo_saved_spec;
/* Of a spec that was checked. */
lierne_status lierne_halo_saved_spec_create(lierne_halo_saved_spec **out,
                                            const lierne_halo_spec *spec);
void lierne_halo_saved_spec_destroy(lierne_saved_spec *saved);
/* The saved spec of a plan of swaps; NULL for another plan. */
const lierne_halo_saved_spec *lierne_halo_saved_spec_of(const lierne_plan *plan);

/* Checks everything in a spec that a rank can check alone. */
lierne_status lierne_halo_check(const lierne_halo_spec *spec, const lierne_context *context);

/* Labels of rows, n words each: swaps copy those of the owned rows to the ghosts. If owned is NULL,
 * n is 2 and an owned row's label is its rank and its number, computed when it is sent. */
typedef struct lierne_halo_labels {
    size_t n;
    const int64_t *owned;
    int64_t *ghosts;
    int64_t *buffer; /* see lierne_halo_reserve_labels */
} lierne_halo_labels;
/* Sends labels through the swaps in control messages. Collective, also after a failure, which is
 * returned at the end. PEER_COUNT if a swap brings another number of rows than this rank expects.
 */
lierne_status lierne_halo_propagate(lierne_context *context, const lierne_halo_spec *spec,
                                    const lierne_halo_labels *labels);
/* The buffer that labels of n words need, for lierne_context_free_message_memory. Separate, so that
 * ranks can agree that all have it before the first one sends. */
lierne_status lierne_halo_reserve_labels(int64_t **buffer, const lierne_halo_spec *spec, size_t n);

/* The lower bound, in rows that pass between ranks: those that this rank needs, and those that
 * others need of it. Collective, also where status is a failure, which it returns. */
lierne_status lierne_halo_count_rows(lierne_context *context, const lierne_halo_saved_spec *saved,
                                     lierne_status status, int64_t *rows);

/* Fills the routes, shapes and owned blocks of both directions. */
lierne_status lierne_halo_routes(const lierne_halo_saved_spec *saved, int rank,
                                 lierne_plan_parts *parts);

/* As lierne_plan_create_halo; status: how the caller's own preparation ended on this rank. */
lierne_status lierne_halo_plan(lierne_plan **out, lierne_context *context, lierne_status status,
                               const lierne_halo_spec *spec);

#endif
