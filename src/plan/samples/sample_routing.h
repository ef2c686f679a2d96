/* Samples of a context: what is planned once, and where the items of a step are. Internal. */
#ifndef LIERNE_SAMPLE_ROUTING_H
#define LIERNE_SAMPLE_ROUTING_H

#include "plan/host_gather.h"
#include "plan/samples/assignment.h"
#include "runtime/context/context.h"

enum { LIERNE_OWNERS = 3, LIERNE_PLACES = 4 }; /* home, assigned, destination; of the enum */

/* What one rank has, or all of them. */
typedef struct lierne_sample_size {
    int64_t items, segments;
} lierne_sample_size;

/* The items of a step. Arrays have space for `most`. */
typedef struct lierne_sample_routing {
    lierne_sample_size most;
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
    lierne_samples_spec spec;
    int nranks;
    lierne_sample_size most;    /* of all ranks; without a capacity, of those so far and more */
    lierne_sample_size planned; /* what the plans have space for */
    lierne_host_gather gather;  /* of blocks */
    lierne_host_gather counter; /* without a capacity: of their sizes, before */
    /* Of the block of each rank: where it begins, and what it has space for. */
    int64_t *first_word;
    lierne_sample_size *sizes;
    int ntensors; /* that have plans */
    lierne_samples_tensor tensors[LIERNE_MAX_SAMPLES_TENSORS];
    lierne_layout *layouts[LIERNE_MAX_SAMPLES_TENSORS]; /* while plans are still to be made */
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

/* sample_create.c. Memory for samples->most: of the items of an update, of a routing. What there
 * was is lost. */
lierne_status lierne_samples_reserve_items(lierne_samples *samples);
lierne_status lierne_samples_reserve_routing(const lierne_samples *samples,
                                             lierne_sample_routing *routing);
/* OVERFLOW if buffers of samples->most, or blocks of so many words, have more than 2^60 bytes. */
lierne_status lierne_samples_check_bytes(const lierne_samples *samples, int64_t words);
/* A plan of a tensor, without items, with space for samples->most. Collective; the ranks agree. */
lierne_status lierne_samples_create_plan(lierne_plan **out, lierne_samples *samples, int tensor);
/* Gives a plan the segments of a routing. */
lierne_status lierne_samples_update_plan(lierne_samples *samples,
                                         const lierne_sample_routing *routing, int tensor);
/* BUSY if a request of a plan is in flight, or something else holds one; the same but for coalesced
 * plans between their calls, and BUSY also if a call was captured. */
lierne_status lierne_samples_check_idle(const lierne_samples *samples);
lierne_status lierne_samples_check_changeable(const lierne_samples *samples);

/* Whether there is no capacity of items: blocks have the sizes that ranks tell before. */
static inline bool lierne_samples_count_first(const lierne_samples *samples) {
    return samples->spec.max_local_items == 0;
}
/* sample_growth.c. Without a capacity, once sizes are set: finds where blocks begin; memory for
 * them and for the routing that is not in use. Collective where there is more than ever before. */
lierne_status lierne_samples_grow_lists(lierne_samples *samples);
/* Plans with space for that routing, in place of those there are, with the segments of these.
 * Collective where there is more than ever before. */
lierne_status lierne_samples_grow_plans(lierne_samples *samples);

/* sample_block.c. The capacity of a rank; words of a block with space for a size. */
lierne_sample_size lierne_sample_size_most(const lierne_samples_spec *spec);
int64_t lierne_sample_block_words(const lierne_samples_spec *spec, lierne_sample_size size);
lierne_sample_block lierne_sample_block_of(const lierne_samples *samples, int rank);
/* Reads and checks what depends on this rank's arguments alone. */
lierne_status lierne_sample_step_take(lierne_sample_step *step, const lierne_samples *samples,
                                      const lierne_items *items, const lierne_balance_spec *balance,
                                      const lierne_balance_spec *destination);
lierne_sample_size lierne_sample_step_size(const lierne_sample_step *step);
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
