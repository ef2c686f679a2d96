/* A TCP port of this process, by which ranks of other nodes reach it. */
#ifndef LIERNE_PORT_H
#define LIERNE_PORT_H

#include "base/base.h"

struct sockaddr_storage; /* of sys/socket.h, whose names the including files would clash with */

/* Where a rank listens. Words of 64 bits, so that ranks can gather them. */
typedef struct lierne_address {
    uint64_t host[2]; /* an IPv6 address, in the order of the network; IPv4: mapped into it */
    uint64_t port;    /* 0: the rank has none */
    uint64_t secret;  /* what whoever connects must know */
} lierne_address;

/* Listens at a numeric address of this host. Returns the connection, or -1: errors are INVALID (no
 * numeric address) and TRANSPORT (the system's error: not one of this host). */
int lierne_port_listen(lierne_address *own, const char *text, lierne_status *status);
/* The address for connect; returns its length. */
unsigned lierne_port_address(struct sockaddr_storage *out, const lierne_address *address);

#endif
