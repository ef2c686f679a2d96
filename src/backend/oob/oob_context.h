/* Opening a context over functions, the caller's or lierne's own. */
#ifndef LIERNE_CONTEXT_OOB_H
#define LIERNE_CONTEXT_OOB_H

#include "backend/oob/oob_state.h"
#include "backend/oob/oob_transport.h"
#include "runtime/context/context.h"

/* Creates the context of a state, which it takes over in any case: on failure the state is closed.
 * mine is the error of this rank so far, with its message: the others learn it. Collective. */
LIERNE_PRIVATE lierne_status lierne_context_open_oob(lierne_context **out, lierne_oob_state *s,
                                                     const lierne_transport *transport,
                                                     const lierne_context_spec *spec,
                                                     lierne_status mine);

#endif
