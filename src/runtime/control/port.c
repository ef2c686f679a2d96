#include "runtime/control/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096 /* connections that wait until the rank calls; the system may allow fewer */

/* IPv4 addresses are handled as those that IPv6 maps them to, only the sockets differ. */
static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool read_address(lierne_address *address, const char *text) {
    uint8_t host[16];
    memcpy(host, mapped, sizeof mapped);
    bool good =
        inet_pton(AF_INET, text, host + sizeof mapped) == 1 || inet_pton(AF_INET6, text, host) == 1;
    memcpy(address->host, host, sizeof host);
    return good;
}

unsigned lierne_port_address(struct sockaddr_storage *out, const lierne_address *address) {
    uint8_t host[16];
    memcpy(host, address->host, sizeof host);
    memset(out, 0, sizeof *out);
    if (memcmp(host, mapped, sizeof mapped) == 0) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)address->port);
        memcpy(&v4->sin_addr, host + sizeof mapped, sizeof v4->sin_addr);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)address->port);
    memcpy(&v6->sin6_addr, host, sizeof v6->sin6_addr);
    return sizeof *v6;
}

static lierne_status listen_at(int listener, lierne_address *own, const char *text) {
    struct sockaddr_storage address;
    socklen_t length = lierne_port_address(&address, own);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
        listen(listener, BACKLOG) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        getrandom(&own->secret, sizeof own->secret, 0) != sizeof own->secret) {
        return LIERNE_FAIL(LIERNE_ERR_TRANSPORT, "LIERNE_ADDRESS is '%.60s': no port there: %s",
                           text, strerror(errno));
    }
    own->port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                   : ((struct sockaddr_in6 *)&address)->sin6_port);
    return LIERNE_OK;
}

int lierne_port_listen(lierne_address *own, const char *text, lierne_status *status) {
    struct sockaddr_storage address;
    if (!read_address(own, text)) {
        *status = LIERNE_FAIL(LIERNE_ERR_INVALID,
                              "LIERNE_ADDRESS is '%.60s', must be an IPv4 or IPv6 address of this "
                              "host in digits",
                              text);
        return -1;
    }
    lierne_port_address(&address, own);
    int listener = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    *status = listen_at(listener, own, text);
    if (*status != LIERNE_OK && listener >= 0) {
        close(listener);
    }
    return *status == LIERNE_OK ? listener : -1;
}
