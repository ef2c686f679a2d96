/* Random tensor sets, compared tensor by tensor with the model of redistribute_case.h: every tensor
 * is a random redistribution of its own values. */
#ifndef SET_CASE_H
#define SET_CASE_H

#include "unit/redistribute_case.h"

enum { SET_KINDS = 4, SET_TENSORS = 12 };

typedef struct set_case {
    int world;
    int ntensors;
    int kind_of[SET_TENSORS];
    redistribute_case kinds[SET_KINDS];
    int scattered; /* tensors lie in another order than their own, with gaps between them */
} set_case;

/* A rank's buffers of a direction. */
typedef struct set_buffers {
    int64_t *in;
    int64_t *out;
    int64_t elements[2]; /* of in and out */
    int64_t offsets[2][SET_TENSORS];
    int64_t sizes[2][SET_TENSORS];
} set_buffers;

void random_set(set_case *c, uint64_t seed, int world);
/* A rank's plan. Ranks with odd numbers make layouts anew for each tensor, the others make equal
 * ones once; they are freed before the plan is used. */
lierne_status set_plan(lierne_plan **plan, const set_case *c, lierne_context *context, int rank);

/* Allocates and fills the buffers of a direction; false if the plan has other sizes. */
int set_open(set_buffers *b, const set_case *c, const lierne_plan *plan, int rank,
             lierne_direction d);
void set_close(set_buffers *b);
/* Fills the output with the byte 0xa5, as set_check expects of what is not written. */
void set_poison(set_buffers *b);
/* What is wrong with the output, NULL if nothing is (static storage); *dot is increased by the
 * rank's share of <Fx, y> or <x, F*y>. Spoils the output. */
const char *set_check(set_buffers *b, const set_case *c, int rank, lierne_direction d,
                      int64_t *dot);

#endif
