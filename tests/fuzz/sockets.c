/* Fuzzing of what the ranks of a node say to each other over sockets, a libFuzzer target: who they
 * are, and the messages behind it. The input is what a process of the same user sends to the rank
 * under test, which is rank 0 and listens, or rank 1 and connects. Its first 40 bytes are added to
 * a good greeting, so that one bit more makes a bad one. For any bytes: the rank joins or returns
 * an error, soon, messages end or stay unfinished, and nothing is left behind. replay.c runs the
 * same target over files. */
#include "backend/node/mesh.h"
#include "base/base.h"
#include "fuzz/must.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define KEY   0x1234567890abcdefull
#define BYTES 24 /* of every message that the rank waits for */

/* As in join.c. */
typedef struct greeting {
    uint64_t magic, key, version;
    int32_t rank, world;
    int64_t status;
} greeting;

typedef struct stranger {
    int rank; /* under test */
    const uint8_t *data;
    size_t size, cut;
    int listener, socket;
    int calls;
} stranger;

static greeting greet(const stranger *s) {
    const char *version = lierne_version();
    greeting g = {.magic = 0x656e7265696cull,
                  .key = KEY + (uint64_t)getpid(),
                  .version = lierne_hash(0, version, strlen(version)),
                  .rank = 1 - s->rank,
                  .world = 2};
    for (size_t i = 0; i < sizeof g && i < s->size; i++) {
        ((uint8_t *)&g)[i] ^= s->data[i];
    }
    return g;
}

static socklen_t address_of(struct sockaddr_un *address, int rank) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                          "lierne-%lu-%016llx-%d", (unsigned long)geteuid(),
                          (unsigned long long)KEY + (unsigned long long)getpid(), rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int open_socket(void) {
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    MUST(s >= 0, "a socket");
    return s;
}

static void meet(stranger *s) {
    struct sockaddr_un address;
    if (s->rank == 1) {
        s->socket = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        return;
    }
    s->socket = open_socket();
    MUST(connect(s->socket, (struct sockaddr *)&address, address_of(&address, 0)) == 0,
         "the rank listens");
}

/* Asked by the rank while it waits: sends the greeting in two pieces, then is gone. */
static bool act(void *user, int rank) {
    stranger *s = user;
    greeting g = greet(s);
    (void)rank;
    if (s->calls == 0) {
        meet(s);
    }
    if (s->socket >= 0 && s->calls < 2) {
        size_t from = s->calls ? s->cut : 0, to = s->calls ? sizeof g : s->cut;
        send(s->socket, (char *)&g + from, to - from, MSG_NOSIGNAL);
    }
    return s->calls++ >= 3;
}

/* The rest of the input is the messages; a process that has said all ends its connection. */
static void exchange(lierne_mesh *mesh, const stranger *s) {
    const lierne_oob_calls calls = lierne_mesh_calls(mesh);
    char to[3][2 * BYTES], from[BYTES] = {0};
    void *requests[4] = {NULL};
    size_t said = s->size > sizeof(greeting) ? sizeof(greeting) : s->size;
    send(s->socket, s->data + said, s->size - said, MSG_NOSIGNAL);
    shutdown(s->socket, SHUT_WR);
    for (int i = 0; i < 3; i++) {
        int status = i < 2 ? calls.receive(&requests[i], to[i], BYTES, 1 - s->rank, i, mesh)
                           : calls.allgather(&requests[i], from, to[i], BYTES, mesh);
        MUST(status == LIERNE_OK || status == LIERNE_ERR_MISMATCH, "starting");
        lierne_mesh_hooks.progress(mesh);
    }
    MUST(calls.send(&requests[3], from, BYTES, 1 - s->rank, 0, mesh) == LIERNE_OK, "sending");
    lierne_mesh_hooks.progress(mesh);
    for (int i = 0; i < 4; i++) {
        int status = requests[i] ? calls.test(requests[i], mesh) : 0;
        MUST(status == 0 || status == 1 || status == LIERNE_ERR_MISMATCH ||
                 status == LIERNE_ERR_NO_MEMORY,
             "a request");
        MUST(!requests[i] || calls.free_request(requests[i], mesh) == 0, "freeing a request");
    }
}

static bool is_known(lierne_status status) {
    return status == LIERNE_OK || status == LIERNE_ERR_INVALID || status == LIERNE_ERR_MISMATCH ||
           status == LIERNE_ERR_PEER_FAILED || status == LIERNE_ERR_TRANSPORT;
}

static void run(const uint8_t *data, size_t size) {
    size_t before = lierne_mem_live();
    stranger s = {.rank = data[0] & 1,
                  .cut = (data[0] >> 1) % (sizeof(greeting) + 1),
                  .listener = -1,
                  .socket = -1,
                  .data = data + 1,
                  .size = size - 1};
    struct sockaddr_un address;
    lierne_mesh *mesh;
    if (s.rank == 1) {
        s.listener = open_socket();
        MUST(bind(s.listener, (struct sockaddr *)&address, address_of(&address, 0)) == 0 &&
                 listen(s.listener, 4) == 0,
             "listening");
    }
    MUST(lierne_mesh_open(&mesh, s.rank, 2) == LIERNE_OK, "a mesh");
    mesh->lost = act;
    mesh->lost_user = &s;
    lierne_status status = lierne_mesh_join(mesh, "fuzz", KEY + (uint64_t)getpid(), 5);
    MUST(is_known(status), "status of joining");
    if (status == LIERNE_OK) {
        exchange(mesh, &s);
    }
    lierne_mesh_close(mesh);
    for (int i = 0; i < 2; i++) {
        int socket = i ? s.listener : s.socket;
        if (socket >= 0) {
            close(socket);
        }
    }
    MUST(lierne_mem_live() == before, "memory left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 0) {
        run_timed(run, data, size);
    }
    return 0;
}
