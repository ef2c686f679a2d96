/* What moves over the connections of a mesh: messages that arrive early, in parts or not at all,
 * and those of a transport over it that are given up. One rank is the mesh, the test has the other
 * end of its socket. */
#include "backend/node/mesh.h"
#include "backend/oob/oob_transport.h"
#include "base/base.h"
#include "unit/expect.h"

#include <criterion/criterion.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 16, HALF = BYTES / 2, TAG = 5, OTHER = 7 };

typedef struct pair {
    lierne_mesh *mesh;
    lierne_oob_calls calls;
    int end;
} pair;

static void open_pair(pair *p) {
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    assert_ok(lierne_mesh_open(&p->mesh, 0, 2));
    p->mesh->sockets[1] = ends[0];
    p->end = ends[1];
    p->calls = lierne_mesh_calls(p->mesh);
}

static void close_pair(pair *p) {
    lierne_mesh_close(p->mesh);
    close(p->end);
    cr_expect_eq(lierne_mem_live(), 0);
}

static void arrive(const pair *p, const void *data, size_t bytes) {
    cr_assert_eq(send(p->end, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    lierne_mesh_hooks.progress(p->mesh);
}

static void arrive_header_of(const pair *p, int tag, uint64_t bytes) {
    arrive(p, &(lierne_mesh_header){.tag = tag, .bytes = bytes}, sizeof(lierne_mesh_header));
}

static void arrive_header(const pair *p, int tag) {
    arrive_header_of(p, tag, BYTES);
}

static void *receive(const pair *p, void *data, int tag) {
    void *request = NULL;
    cr_assert_eq(p->calls.receive(&request, data, BYTES, 1, tag, p->mesh), 0);
    return request;
}

/* Its data is there, and its request ends. */
static void expect_arrived(const pair *p, void *request, const char *data, const char *wanted) {
    cr_expect_eq(p->calls.test(request, p->mesh), 0);
    cr_expect_str_eq(data, wanted);
    cr_expect_eq(p->calls.free_request(request, p->mesh), 0);
}

Test(mesh, messages_arrive_in_parts_and_before_their_receives) {
    static const char first[BYTES] = "the first of two", second[BYTES] = "second of them";
    char early[BYTES + 1] = "", late[BYTES + 1] = "";
    pair p;
    open_pair(&p);
    for (int round = 0; round < 100; round++) { /* more than a mesh keeps requests for */
        void *request = receive(&p, late, TAG);
        arrive_header(&p, OTHER);
        arrive(&p, first, BYTES);
        arrive_header(&p, TAG);
        arrive(&p, second, HALF);
        cr_expect_eq(p.calls.test(request, p.mesh), 1);
        arrive(&p, second + HALF, HALF);
        expect_arrived(&p, request, late, second);
        expect_arrived(&p, receive(&p, early, OTHER), early, "the first of two");
    }
    close_pair(&p);
}

Test(mesh, a_header_arrives_in_two_pieces) {
    enum { CUT = sizeof(lierne_mesh_header) / 2 };
    const struct {
        lierne_mesh_header header;
        char data[BYTES];
    } message = {{.tag = TAG, .bytes = BYTES}, "behind a header"};
    char data[BYTES];
    pair p;
    open_pair(&p);
    void *request = receive(&p, data, TAG);
    arrive(&p, &message, CUT);
    cr_expect_eq(p.calls.test(request, p.mesh), 1);
    arrive(&p, (const char *)&message + CUT, sizeof message - CUT);
    expect_arrived(&p, request, data, "behind a header");
    close_pair(&p);
}

/* What is behind it cannot be told from the next header. */
Test(mesh, a_message_of_another_length_ends_all_receives_from_its_rank) {
    char data[2][BYTES];
    pair p;
    open_pair(&p);
    void *requests[2] = {receive(&p, data[0], TAG), receive(&p, data[1], OTHER)};
    arrive_header_of(&p, TAG, BYTES + 1);
    for (int i = 0; i < 2; i++) {
        lierne_set_error("another error");
        assert_error(p.calls.test(requests[i], p.mesh), LIERNE_ERR_MISMATCH,
                     "rank 0 expects 16 bytes from rank 1 and received 17");
        cr_expect_eq(p.calls.free_request(requests[i], p.mesh), 0);
    }
    close_pair(&p);
}

/* As many as most calls need; also with messages that nobody received, which go with the mesh. */
Test(mesh, receives_take_no_memory) {
    char data[BYTES];
    void *requests[12];
    pair p;
    open_pair(&p);
    size_t before = lierne_mem_live();
    for (int i = 0; i < 12; i++) {
        requests[i] = receive(&p, data, i);
    }
    cr_expect_eq(lierne_mem_live(), before);
    for (int i = 12; i < 14; i++) {
        arrive_header(&p, i);
        arrive(&p, "nobody receives", BYTES);
    }
    for (int i = 0; i < 12; i++) {
        cr_expect_eq(p.calls.free_request(requests[i], p.mesh), 0);
    }
    close_pair(&p);
}

/* Once the caller has its memory back. */
Test(mesh, a_receive_that_is_given_up_writes_nothing_more) {
    for (int begun = 0; begun < 2; begun++) {
        char data[BYTES] = "before", all[BYTES];
        pair p;
        open_pair(&p);
        void *request = receive(&p, data, TAG);
        if (begun) {
            arrive_header(&p, TAG);
            arrive(&p, "1234567", HALF);
            cr_expect_str_eq(data, "1234567");
        }
        cr_expect_eq(p.calls.free_request(request, p.mesh), 0);
        memset(data, 'x', sizeof data);
        memcpy(all, data, sizeof all);
        if (!begun) {
            send(p.end, &(lierne_mesh_header){.tag = TAG, .bytes = BYTES},
                 sizeof(lierne_mesh_header), MSG_NOSIGNAL);
        }
        send(p.end, "7654321", HALF, MSG_NOSIGNAL);
        lierne_mesh_hooks.progress(p.mesh);
        cr_expect_eq(memcmp(data, all, sizeof all), 0);
        close_pair(&p);
    }
}

/* The other end answers to what it has of it. */
Test(mesh, a_gather_that_is_given_up_writes_nothing_more) {
    const char mine[BYTES] = "mine";
    char all[2 * BYTES], wanted[2 * BYTES];
    lierne_mesh_header header;
    void *request = NULL;
    pair p;
    open_pair(&p);
    cr_assert_eq(p.calls.allgather(&request, mine, all, BYTES, p.mesh), 0);
    lierne_mesh_hooks.progress(p.mesh);
    cr_assert_eq(recv(p.end, &header, sizeof header, 0), (ssize_t)sizeof header);
    cr_expect_eq(p.calls.test(request, p.mesh), 1);
    cr_expect_eq(p.calls.free_request(request, p.mesh), 0);
    memset(all, 'x', sizeof all);
    memset(wanted, 'x', sizeof wanted);
    arrive_header(&p, (int)header.tag);
    arrive(&p, mine, BYTES);
    cr_expect_eq(memcmp(all, wanted, sizeof all), 0);
    close_pair(&p);
}

/* A process without standard input may have a socket of number 0. */
Test(mesh, a_cut_ends_every_connection) {
    char byte;
    pair p;
    close(STDIN_FILENO);
    open_pair(&p);
    cr_assert_eq(p.mesh->sockets[1], 0);
    lierne_mesh_hooks.cut(p.mesh);
    cr_expect_eq(recv(p.end, &byte, 1, 0), 0);
    close_pair(&p);
}

Test(mesh, what_is_still_to_be_sent_goes_with_the_mesh) {
    enum { LARGE = 1 << 24 };
    char *data = calloc(1, LARGE);
    void *request = NULL;
    pair p;
    open_pair(&p);
    for (int i = 0; i < 20; i++) { /* more than a mesh keeps requests for */
        cr_assert_eq(p.calls.send(&request, data, LARGE, 1, TAG, p.mesh), 0);
        cr_expect_eq(p.calls.test(request, p.mesh), 1);
    }
    close_pair(&p);
    free(data);
}

static int fail(void *request, void *user) {
    (void)request, (void)user;
    return 77;
}

/* After an error of the first message, too. */
Test(mesh, a_transport_gives_up_all_its_messages) {
    for (int fails = 0; fails < 2; fails++) {
        char data[3][BYTES];
        size_t done[3], ndone;
        void *batch;
        pair p;
        open_pair(&p);
        lierne_oob_state state = {.calls = p.calls, .world = 2};
        const lierne_transport *t = &lierne_oob_transport;
        assert_ok(t->batch_create(&state, 3, &batch));
        for (size_t i = 0; i < 3; i++) {
            const lierne_posting posting = {
                .slot = i, .peer = 1, .receives = true, .bytes = BYTES, .data = data[i]};
            assert_ok(t->post(batch, TAG, &posting, 1));
        }
        if (fails) {
            state.calls.test = fail;
            assert_error(t->poll(batch, done, &ndone), LIERNE_ERR_TRANSPORT,
                         "the caller's function returned 77");
        }
        cr_expect(t->withdraw(batch));
        cr_expect_null(p.mesh->peers[1].receives.first);
        t->batch_destroy(batch);
        close_pair(&p);
    }
}
