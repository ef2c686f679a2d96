/* What moves of an overlap. */
#ifndef LIERNE_DELIVERIES_H
#define LIERNE_DELIVERIES_H

#include "plan/redistribute/balance.h"

/* Adds the deliveries of an overlap whose reducers are known. */
lierne_status lierne_deliveries_add(lierne_balance *b, const lierne_planner *p, lierne_shared *s);

#endif
