/* Specs of collectives with one fault each, and the error that it must be. */
#ifndef COLLECTIVE_FAULTS_H
#define COLLECTIVE_FAULTS_H

#include "lierne.h"

#include <stdbool.h>

typedef struct collective_fault {
    const char *name;
    lierne_status status;
    const char *text; /* part of the message */
} collective_fault;

/* The list ends with a NULL name. Worlds have 2 to 8 ranks. MISMATCH: the spec would be valid, but
 * other ranks give another one. */
extern const collective_fault collective_faults[];

/* Plans what the fault is in, with it where bad is set. Collective. */
lierne_status collective_fault_plan(lierne_plan **plan, lierne_context *context,
                                    const collective_fault *fault, bool bad);

#endif
