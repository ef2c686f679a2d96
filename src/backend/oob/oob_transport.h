/* The transport over the send and receive of the caller (lierne/oob.h); its state is that of the
 * control. The same over lierne's own sockets is called "socket". */
#ifndef LIERNE_OOB_TRANSPORT_H
#define LIERNE_OOB_TRANSPORT_H

#include "backend/oob/oob_state.h"
#include "runtime/transport/transport.h"

LIERNE_PRIVATE extern const lierne_transport lierne_oob_transport;
extern const lierne_transport lierne_socket_transport;

#endif
