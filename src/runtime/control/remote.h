/* Who is left of the ranks of a dead context that share no memory: survivors.h over connections. */
#ifndef LIERNE_REMOTE_H
#define LIERNE_REMOTE_H

#include "runtime/control/survivors.h"

#define LIERNE_REMOTE_MOST 1024 /* ranks: a message has a bit for each */

/* As the functions of survivors.h, which call them where a rank has ports. */
lierne_status lierne_remote_begin(lierne_survivors *s);
void lierne_remote_end(lierne_survivors *s);
lierne_status lierne_remote_list(lierne_survivors *s);
lierne_status lierne_remote_decide(lierne_survivors *s, lierne_status mine);
/* Connects to all ranks of the list, into sockets by their places in it; that of this rank stays as
 * it is. Errors: PEER_FAILED (one has ended or failed), TIMEOUT, NO_MEMORY, TRANSPORT. */
lierne_status lierne_remote_connect(lierne_survivors *s, int *sockets);

#endif
