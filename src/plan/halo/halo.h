/* What the files of the halo builder share. */
#ifndef LIERNE_HALO_INTERNAL_H
#define LIERNE_HALO_INTERNAL_H

#include "lierne/halo.h"
#include "plan/plan.h"

/* What a plan of swaps keeps: its spec, with copies of all that it points to. */
typedef struct lierne_halo_saved_spec {
    lierne_saved_spec base;
    lierne_halo_spec spec; /* stride is never 0 here, max_inflight neither */
    int *procs;            /* what spec points to: ranks sent to, then received from */
    int64_t *nums;         /* rows sent, received, then `first` */
    const int64_t *first;  /* each swap's first ghost row */
    int64_t *rows;         /* all lists */
    const int64_t **lists;
    int32_t *root_rank; /* owner of each ghost's row, and the row there; without swaps NULL */
    int64_t *root_row;
} lierne_halo_saved_spec;
/* Of a spec that was checked. */
lierne_status lierne_halo_saved_spec_create(lierne_halo_saved_spec **out,
                                            const lierne_halo_spec *spec);
void lierne_halo_saved_spec_destroy(lierne_saved_spec *saved);
void lierne_halo_saved_spec_write(const lierne_saved_spec *saved, lierne_text *text);
/* The saved of a plan of swaps, else NULL. */
const lierne_halo_saved_spec *lierne_halo_saved_spec_of(const lierne_plan *plan);

/* All of a spec that a rank can tell alone. */
lierne_status lierne_halo_check(const lierne_halo_spec *spec, int rank, int world);

/* Words of rows, n each: from those of the owned rows come those of the ghosts. Where owned is
 * NULL, n is 2 and an owned row's words are its rank and its number, which take no memory. */
typedef struct lierne_halo_words {
    size_t n;
    const int64_t *owned;
    int64_t *ghosts;
    int64_t *room; /* see lierne_halo_propagate_memory */
} lierne_halo_words;
/* Sends them through the forward, by messages. Collective, also after a failure, which is returned
 * at the end. PEER_COUNT where a swap brings another number of rows than this rank expects. */
lierne_status lierne_halo_propagate(lierne_context *context, const lierne_halo_spec *spec,
                                    const lierne_halo_words *words);
/* Memory that pushing n words a row needs, for lierne_context_free_message_memory. Apart, so that
 * ranks can agree that all have it before the first one sends. */
lierne_status lierne_halo_propagate_memory(int64_t **room, const lierne_halo_spec *spec, size_t n);

/* The lower bound, in rows that pass between ranks: those that this rank needs, and those that
 * others need of it. Collective, also where status is a failure, which it returns. */
lierne_status lierne_halo_count_rows(lierne_context *context, const lierne_halo_saved_spec *saved,
                                     lierne_status status, int64_t *rows);

/* Fills the routes, shapes and owned blocks of both sides. */
lierne_status lierne_halo_routes(const lierne_halo_saved_spec *saved, int rank,
                                 lierne_plan_parts *parts);

/* lierne_plan_create_halo, where status is how the caller's own preparation ended on this rank. */
lierne_status lierne_halo_plan(lierne_plan **out, lierne_context *context, lierne_status status,
                               const lierne_halo_spec *spec);

#endif
