/* Samples of a context: what is planned once, and where the items of a step are. Internal. */
#ifndef LIERNE_SAMPLE_ROUTING_H
#define LIERNE_SAMPLE_ROUTING_H

#include "plan/host_gather.h"
#include "plan/samples/assignment.h"
#include "runtime/context/context.h"

enum { LIERNE_OWNERS = 3, LIERNE_PLACES = 4 }; /* home, assigned, destination; of the enum */

/* The items of a step. Arrays have space for the capacity. */
typedef struct lierne_sample_routing {
    int64_t n;
    int64_t
        *boundaries[3]; /* of items, by way: sums of rows, of returned rows, of segments; n + 1 */
    int32_t *owner[LIERNE_OWNERS]; /* of each item */
    int64_t *load[LIERNE_OWNERS];  /* of each rank */
    int64_t *permutation[LIERNE_OWNERS];
    int64_t *first[LIERNE_OWNERS];
    int64_t nsegments[LIERNE_PLACES]; /* of this rank */
    int64_t *cu_seqlens[LIERNE_PLACES];
    int32_t *cu_seqlens_i32[LIERNE_PLACES];
    lierne_assignment_report report;
} lierne_sample_routing;

/* What a rank tells the others, in words of 64 bits: a head, and arrays of the capacity. */
typedef struct lierne_sample_block {
    int64_t *head;
    int64_t *cost;
    uint32_t *rows[2]; /* per segment: rows, returned rows */
    int32_t *segments; /* per item; NULL: 1 each */
    int32_t *given[2]; /* per item: of assignment and destination; NULL without CALLER */
} lierne_sample_block;
enum {
    LIERNE_SAMPLE_STATUS, /* of the rank */
    LIERNE_SAMPLE_ITEMS,
    LIERNE_SAMPLE_SETTINGS, /* their hash */
    LIERNE_SAMPLE_HEAD
};

struct lierne_samples {
    lierne_dependent dependent; /* of the context; the first member */
    lierne_context *context;
    lierne_samples_spec spec; /* without tensors */
    int nranks;
    int64_t max_items, max_segments; /* of all ranks */
    lierne_host_gather gather;       /* of blocks */
    int ntensors;
    lierne_samples_way ways[LIERNE_MAX_SAMPLES_TENSORS];
    lierne_layout *layouts[LIERNE_MAX_SAMPLES_TENSORS]; /* while the plans are made */
    lierne_plan *plans[LIERNE_MAX_SAMPLES_TENSORS];
    /* The items of all ranks as an assignment reads them, in an update. */
    int64_t *cost, *rows, *counts;
    int32_t *given[2];
    lierne_balance_memory memory;
    lierne_sample_routing routings[2];
    int current; /* of routings */
};

/* The arguments of an update, read, and what must be the same on all ranks. */
typedef struct lierne_sample_step {
    lierne_items items;
    lierne_balance_spec balance[2]; /* the assignment, the destination */
    bool returns_home;
    lierne_field fields[24];
    size_t nfields;
} lierne_sample_step;

/* sample_create.c. BUSY if a request of a plan is in flight, or something else holds one. */
lierne_status lierne_samples_check_idle(const lierne_samples *samples);

/* sample_block.c. */
int64_t lierne_sample_block_words(const lierne_samples_spec *spec);
lierne_sample_block lierne_sample_block_at(const lierne_samples *samples, int64_t *words);
/* Reads and checks what depends on this rank's arguments alone. */
lierne_status lierne_sample_step_take(lierne_sample_step *step, const lierne_samples *samples,
                                      const lierne_items *items, const lierne_balance_spec *balance,
                                      const lierne_balance_spec *destination);
/* Fills this rank's block; without items after an error. */
void lierne_sample_block_write(const lierne_samples *samples, const lierne_sample_step *step,
                               lierne_status status);
/* From all blocks: the items of all ranks, with their homes and boundaries. */
void lierne_sample_blocks_read(lierne_samples *samples, lierne_sample_routing *routing);

/* sample_lists.c. The lists of a routing whose owners are known. */
void lierne_sample_lists_fill(const lierne_samples *samples, lierne_sample_routing *routing);
/* Of a place: whose items, which boundaries. */
int lierne_sample_place_owner(int place);
int lierne_sample_place_rows(int place);

#endif
