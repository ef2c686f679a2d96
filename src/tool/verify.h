/* Checks a bridge against its closed form (form.h), the same way for a simulated world and for real
 * ranks: buffers with input and poisoned output, comparison bit for bit, the dot product test. */
#ifndef LIERNE_TOOL_VERIFY_H
#define LIERNE_TOOL_VERIFY_H

#include "form.h"

/* All of one rank: buffers filled, outputs poisoned. */
typedef struct verify_rank {
    int rank;
    form form[FORM_TENSORS];
    char *buffer[FORM_TENSORS];
} verify_rank;

typedef enum verify_where {
    VERIFY_IN_OUTPUT = 0,
    VERIFY_PAST_OUTPUT = 1, /* index counts bytes */
    VERIFY_IN_INPUT = 2,
    VERIFY_IN_ALIAS = 3
} verify_where;

/* Plain data: ranks send it to each other. */
typedef struct verify_count {
    int64_t checked; /* elements of outputs */
    int64_t wrong;
    int rank; /* of the first wrong element, and what it is */
    int64_t index;
    double expected;
    double got;
    verify_where where;
} verify_count;

/* Allocates and fills the buffers of a rank of a bridge, or of a packed one, if packed is not NULL.
 * False: no memory, and nothing is kept. spec and packed must outlive it. */
bool verify_rank_open(verify_rank *rank, const lierne_bridge_spec *spec, const tool_packed *packed,
                      int number);
void verify_rank_close(verify_rank *rank);

/* Bytes of the lists that a rank keeps beside the buffers of a direction, about. */
int64_t verify_lists(const lierne_plan *plan, lierne_direction direction);
/* Elements of all four buffers. */
int64_t verify_rank_elements(const verify_rank *rank);
/* Starts a direction from one of the buffers into another. */
lierne_status verify_rank_begin(const verify_rank *rank, lierne_request **request,
                                lierne_plan *plan, lierne_direction direction);
/* Poisons the output of a direction again. */
void verify_rank_poison(const verify_rank *rank, lierne_direction direction);

/* Whether the plan's buffers are as large as the closed form says. */
bool verify_rank_fits(const verify_rank *rank, const lierne_plan *plan, lierne_direction direction);

/* After the direction was executed: compares every element of the output bit for bit, that nothing
 * was written past its end, that the input is unchanged, and the alias if the plan has one. */
void verify_rank_check(const verify_rank *rank, const lierne_plan *plan, lierne_direction direction,
                       verify_count *count);

/* This rank's part of <F x, y> and <x, F* y>: replicas count once, every partial contribution
 * counts, and of a gradient with an owner only the owned rows. */
void verify_rank_dot(const verify_rank *rank, int64_t *lhs, int64_t *rhs);

/* Nothing wrong in either direction, and both sides of the dot test equal. */
bool verify_is_right(const verify_count *counts, int64_t lhs, int64_t rhs);
/* The members "forward", "adjoint" and "dot", each with a comma before it; and as text, with the
 * first wrong element of each direction. counts has one per direction. */
void verify_print_json(const verify_count *counts, int64_t lhs, int64_t rhs);
void verify_print_text(const verify_count *counts, int64_t lhs, int64_t rhs);

#endif
