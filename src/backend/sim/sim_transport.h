/* The transport of a simulated world; its state is a lierne_sim_rank (sim_world.h). */
#ifndef LIERNE_SIM_TRANSPORT_H
#define LIERNE_SIM_TRANSPORT_H

#include "runtime/transport/transport.h"

extern const lierne_transport lierne_sim_transport;

#endif
