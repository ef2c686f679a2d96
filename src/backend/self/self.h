/* A world of one rank. Neither table has a state. */
#ifndef LIERNE_SELF_H
#define LIERNE_SELF_H

#include "runtime/control/control.h"
#include "runtime/transport/transport.h"

extern const lierne_control lierne_self_control;
/* Routes of one rank have no messages. */
extern const lierne_transport lierne_self_transport;

#endif
