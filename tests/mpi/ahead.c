/* One rank that is calls ahead: rank 0 only sends, and a send may be complete before its receiver
 * has called. So the messages of several calls lie ready at once, and each must be found by the
 * call that it is for. The other ranks begin late; how far rank 0 is then depends on the transport:
 * over shared memory it has made two calls for each request. */
#include "mpi/common.h"

#include <string.h>
#include <unistd.h>

enum { ROWS = 200, MOST = 64 /* requests */, LATE = 30000 /* us */ };

typedef struct setup {
    lierne_context *context;
    lierne_plan *plan;
    int64_t in[MOST][ROWS], out[MOST][ROWS];
    lierne_request *requests[MOST];
} setup;

static void fill(setup *s, int at, int call) {
    for (int i = 0; i < ROWS; i++) {
        s->in[at][i] = (int64_t)call * ROWS + i;
        s->out[at][i] = -1;
    }
}

static void check(const setup *s, int at, int call, int n, const char *what) {
    int wrong = 0;
    for (int i = 0; i < n && test_rank > 0; i++) {
        wrong += s->out[at][i] != (int64_t)call * ROWS + i;
    }
    CHECK(wrong == 0, "%s, %d rows, call %d: %d are wrong, the first is %lld", what, n, call, wrong,
          (long long)s->out[at][0]);
}

static void be_late(void) {
    if (test_rank > 0) {
        usleep(LATE);
    }
}

/* Rounds of as many requests as there may be. */
static void requests(setup *s, int n, int max_inflight) {
    CHECK_OK(test_plan_rows_of_0(&s->plan, s->context, n, max_inflight));
    be_late();
    for (int first = 0; first < 4 * MOST; first += max_inflight) {
        for (int k = 0; k < max_inflight; k++) {
            fill(s, k, first + k);
            CHECK_OK(
                lierne_plan_forward_begin(&s->requests[k], s->plan, s->out[k], s->in[k], NULL));
        }
        for (int k = 0; k < max_inflight; k++) {
            CHECK_OK(lierne_request_end(s->requests[k]));
            check(s, k, first + k, n, "requests");
        }
    }
    CHECK_OK(lierne_plan_destroy(s->plan));
}

static void coalesced(setup *s, int n) {
    lierne_coalesced *together;
    void *out[1] = {s->out[0]};
    const void *in[1] = {s->in[0]};
    CHECK_OK(test_plan_rows_of_0(&s->plan, s->context, n, 1));
    CHECK_OK(lierne_coalesced_create(&together, &s->plan, 1));
    be_late();
    for (int call = 0; call < 8; call++) {
        fill(s, 0, call);
        CHECK_OK(lierne_coalesced_begin(together, LIERNE_DIRECTION_FORWARD, out, in, NULL));
        CHECK_OK(lierne_coalesced_end(together, LIERNE_DIRECTION_FORWARD));
        check(s, 0, call, n, "coalesced");
    }
    CHECK_OK(lierne_coalesced_destroy(together));
    CHECK_OK(lierne_plan_destroy(s->plan));
}

static void run(lierne_context *context) {
    static setup s;
    s.context = context;
    for (int n = 1; n <= ROWS; n += ROWS - 1) {
        coalesced(&s, n);
        requests(&s, n, 1);
        requests(&s, n, MOST);
    }
}

int main(int argc, char **argv) {
    return test_main(&argc, &argv, run);
}
