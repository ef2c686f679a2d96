/* Fuzzing of the texts of plans (lierne_plan_deserialize), a libFuzzer target. The input is the
 * texts of the ranks of a world, up to MAX_WORLD of them, with a zero byte between. For any bytes:
 * every rank gets the same status, soon, and nothing is left behind. A plan that is made from them
 * is serialized as a text that gives the same plan again, its routes match, it can be transposed,
 * and, where it is small, executed. replay.c runs the same target over files, without a fuzzer. */
#include "base/base.h"
#include "fuzz/must.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "rank_threads.h"

#include <stdlib.h>
#include <string.h>

#define MAX_WORLD    3
#define MAX_ELEMENTS 4096
#define WIDEST       16 /* bytes of an element, at most */

typedef struct world {
    int n;
    const char *text[MAX_WORLD];
    size_t length[MAX_WORLD];
    lierne_plan *plans[MAX_WORLD];
    lierne_status status[MAX_WORLD];
} world;

static void split(world *w, const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    for (w->n = 0; w->n < MAX_WORLD && (w->n == 0 || at < end); w->n++) {
        const char *zero =
            w->n < MAX_WORLD - 1 && at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
        w->text[w->n] = at;
        w->length[w->n] = (size_t)((zero ? zero : end) - at);
        at = zero ? zero + 1 : end;
    }
}

/* Texts that are wrong, or plans that are; nothing else may come of them. */
static bool rejects(lierne_status status) {
    switch (status) {
    case LIERNE_ERR_TIMEOUT:
    case LIERNE_ERR_TRANSPORT:
    case LIERNE_ERR_PEER_FAILED:
    case LIERNE_ERR_BUSY:
    case LIERNE_OK:
        return false;
    default:
        return true;
    }
}

static void read_one(lierne_context *context, void *shared) {
    world *w = shared;
    int r = lierne_context_get_rank(context);
    w->status[r] = lierne_plan_deserialize(&w->plans[r], context, w->text[r], w->length[r]);
    MUST((w->status[r] == LIERNE_OK) == (w->plans[r] != NULL), "a plan beside an error, or none");
    MUST(w->plans[r] || rejects(w->status[r]), "status of a text");
}

/* What is written is read again, and then written alike. */
static void write_one(lierne_context *context, void *shared) {
    world *w = shared;
    lierne_plan *plan = w->plans[lierne_context_get_rank(context)], *again, *back;
    char *text, *same;
    MUST(lierne_plan_serialize(&text, plan) == LIERNE_OK, "writing a plan");
    MUST(lierne_plan_deserialize(&again, context, text, strlen(text)) == LIERNE_OK,
         "reading it again");
    MUST(lierne_plan_serialize(&same, again) == LIERNE_OK, "writing it again");
    MUST(strcmp(text, same) == 0, "a plan that was read is another one");
    lierne_text_destroy(text);
    lierne_text_destroy(same);
    lierne_status status = lierne_plan_create_transposed(&back, again);
    MUST(status == LIERNE_OK || status == LIERNE_ERR_INVALID,
         "transposing a plan"); /* accumulates */
    MUST(lierne_plan_destroy(back) == LIERNE_OK, "freeing a transpose");
    MUST(lierne_plan_destroy(again) == LIERNE_OK, "freeing a plan");
}

static bool small(const world *w) {
    for (int r = 0; r < w->n; r++) {
        for (int d = 0; d < 2; d++) {
            lierne_report report = {.size = sizeof report};
            int64_t in, out;
            MUST(lierne_plan_get_elements(&in, &out, w->plans[r], (lierne_direction)d) ==
                         LIERNE_OK &&
                     lierne_plan_get_report(&report, w->plans[r], (lierne_direction)d) == LIERNE_OK,
                 "what a plan says of itself");
            if (in > MAX_ELEMENTS || out > MAX_ELEMENTS ||
                report.scratch_bytes > 8 * MAX_ELEMENTS) {
                return false;
            }
        }
    }
    return true;
}

/* Moves bytes that are not zero: a sanitizer sees whether they stay inside the buffers. */
static void execute(const world *w, lierne_direction d) {
    lierne_request *requests[MAX_WORLD];
    void *in[MAX_WORLD], *out[MAX_WORLD];
    for (int r = 0; r < w->n; r++) {
        int64_t n, m;
        lierne_plan_get_elements(&n, &m, w->plans[r], d);
        in[r] = malloc((size_t)n * WIDEST), out[r] = malloc((size_t)m * WIDEST);
        MUST((in[r] || n == 0) && (out[r] || m == 0), "memory of the test");
        memset(in[r], 0x3c, (size_t)n * WIDEST), memset(out[r], 0xa5, (size_t)m * WIDEST);
        MUST((d == LIERNE_DIRECTION_FORWARD
                  ? lierne_plan_forward_begin
                  : lierne_plan_adjoint_begin)(&requests[r], w->plans[r], out[r], in[r], NULL) ==
                 LIERNE_OK,
             "beginning");
    }
    for (int r = 0; r < w->n; r++) {
        MUST(lierne_request_end(requests[r]) == LIERNE_OK, "ending");
    }
    for (int r = 0; r < w->n; r++) {
        free(in[r]), free(out[r]);
    }
}

static void use(lierne_sim *sim, world *w) {
    if (w->plans[0]) {
        rank_threads(sim, w->n, write_one, w);
        if (small(w)) {
            MUST(lierne_plan_check((const lierne_plan *const *)w->plans, w->n) == LIERNE_OK,
                 "plans of texts");
            execute(w, LIERNE_DIRECTION_FORWARD);
            execute(w, LIERNE_DIRECTION_ADJOINT);
        }
    }
    for (int r = 0; r < w->n; r++) {
        MUST(w->status[r] == w->status[0], "ranks with different statuses");
        MUST(lierne_plan_destroy(w->plans[r]) == LIERNE_OK, "freeing a plan");
    }
}

static void run(const uint8_t *data, size_t size) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 60};
    size_t before = lierne_mem_live();
    lierne_sim *sim;
    world w = {0};
    split(&w, data, size);
    MUST(lierne_sim_create(&sim, w.n, &spec) == LIERNE_OK, "sim");
    rank_threads(sim, w.n, read_one, &w);
    use(sim, &w);
    MUST(lierne_sim_destroy(sim) == LIERNE_OK, "freeing the sim");
    MUST(lierne_mem_live() == before, "memory left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    run_timed(run, data, size);
    return 0;
}
