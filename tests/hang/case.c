/* Plans of all ranks with all others, so that no call completes without the culprit; two of them
 * have other sizes per rank, and none is a no-op. */
#include "hang/case.h"
#include "collectives.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 5 };

/* A late rank may still read and write the buffers of a call that failed over MPI, so they are
 * kept.
 */
typedef struct buffers {
    struct buffers *next;
    int32_t in[COUNT * HANG_MOST_RANKS];
    int32_t out[COUNT * HANG_MOST_RANKS];
} buffers;

static unsigned draw(unsigned *state, unsigned n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

hang_case hang_case_draw(unsigned seed, int nfaults, double timeout) {
    unsigned state = seed * 2654435761u + 12345u;
    hang_case c = {.seed = seed, .timeout = timeout};
    c.fault = (hang_fault)(seed % (unsigned)nfaults);
    c.world = 3 + (int)draw(&state, HANG_MOST_RANKS - 2);
    c.culprit = (int)draw(&state, (unsigned)c.world);
    c.step = 1 + (int)draw(&state, HANG_STEPS - 3);
    for (int i = 0; i < HANG_STEPS; i++) {
        do {
            c.program[i] = (int)draw(&state, 2 * HANG_PLANS);
        } while (i > 0 && c.program[i] == c.program[i - 1]);
    }
    return c;
}

const char *hang_case_name(const hang_case *c) {
    static const char *const names[] = {"missing", "slow",    "skipped", "order",
                                        "plan",    "stopped", "killed",  "absent"};
    return names[c->fault];
}

void hang_case_sleep(double seconds) {
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static lierne_status make_plans(lierne_plan **plans, lierne_context *context) {
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    const lierne_all_to_all_spec exchange = all_to_all_of(COUNT, LIERNE_DTYPE_I32);
    const lierne_all_reduce_spec reduce = all_reduce_of(COUNT * HANG_MOST_RANKS, LIERNE_DTYPE_I32,
                                                        LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT);
    lierne_status status = lierne_plan_create_all_gather(&plans[0], context, &gather);
    status = status ? status : lierne_plan_create_all_to_all(&plans[1], context, &exchange);
    return status ? status : lierne_plan_create_all_reduce(&plans[2], context, &reduce);
}

static lierne_status begin(lierne_request **r, lierne_plan **plans, int call, buffers *b) {
    lierne_plan *plan = plans[call / 2];
    return call % 2 ? lierne_plan_adjoint_begin(r, plan, b->out, b->in, NULL)
                    : lierne_plan_forward_begin(r, plan, b->out, b->in, NULL);
}

static lierne_status execute(lierne_plan **plans, int call, buffers *b) {
    lierne_request *request;
    lierne_status status = begin(&request, plans, call, b);
    return status ? status : lierne_request_end(request);
}

/* What the culprit does in its step. *next: the step after it; HANG_STEPS: none. */
static lierne_status depart(const hang_case *c, lierne_plan **plans, buffers *b, int *next,
                            void (*stop)(double)) {
    const int *call = &c->program[c->step];
    lierne_request *request;
    lierne_status status = LIERNE_OK;
    *next = c->step + 1;
    switch (c->fault) {
    case FAULT_SLOW:
        stop(c->timeout * 1.5 + 0.2);
        return execute(plans, call[0], b);
    case FAULT_SKIPPED:
        return LIERNE_OK;
    case FAULT_ORDER:
        *next = c->step + 2;
        status = execute(plans, call[1], b);
        return status ? status : execute(plans, call[0], b);
    case FAULT_PLAN:
        return execute(plans, (call[0] + 2) % (2 * HANG_PLANS), b);
    case FAULT_STOPPED:
        status = begin(&request, plans, call[0], b);
        stop(c->timeout * 1.5 + 0.2);
        return status ? status : lierne_request_end(request);
    case FAULT_KILLED:
        status = begin(&request, plans, call[0], b);
        *next = HANG_STEPS;
        return status;
    default:
        *next = HANG_STEPS;
        return status;
    }
}

static buffers *make_buffers(void) {
    static _Atomic(buffers *) kept;
    buffers *b = calloc(1, sizeof *b);
    for (int i = 0; i < COUNT; i++) {
        b->in[i] = 3 * i + 1;
    }
    b->next = atomic_exchange(&kept, b);
    return b;
}

double hang_case_run(const hang_case *c, lierne_context *context, hang_ways ways) {
    lierne_plan *plans[HANG_PLANS] = {NULL};
    buffers *b = make_buffers();
    bool culprit = lierne_context_get_rank(context) == c->culprit;
    double start = now();
    lierne_status status = make_plans(plans, context);
    if (ways.hurry) {
        ways.hurry(context, c->timeout);
    }
    for (int i = 0; status == LIERNE_OK && i < HANG_STEPS;) {
        start = now();
        int next = i + 1;
        status = culprit && i == c->step ? depart(c, plans, b, &next, ways.stop)
                                         : execute(plans, c->program[i], b);
        i = next;
    }
    return status == LIERNE_OK || culprit ? 0 : now() - start;
}

/* Earlier calls of the same plan and direction. */
static int64_t number_of(const hang_case *c) {
    int64_t n = 0;
    for (int i = 0; i < c->step; i++) {
        n += c->program[i] == c->program[c->step];
    }
    return n;
}

/* Ranks that came to the culprit's step name it; those that another call stops first, the call. */
static bool is_right(const hang_case *c, const lierne_hang *h) {
    bool operation = (int)h->what == c->program[c->step] % 2 && h->number == number_of(c);
    switch (c->fault) {
    case FAULT_ABSENT:
        return h->kind == LIERNE_HANG_ABSENT;
    case FAULT_MISSING:
        return h->kind == LIERNE_HANG_MISSING && operation;
    case FAULT_SLOW:
        return (h->kind == LIERNE_HANG_LATE || h->kind == LIERNE_HANG_MISSING) && operation;
    case FAULT_SKIPPED:
    case FAULT_ORDER:
    case FAULT_PLAN:
        return h->kind == LIERNE_HANG_MISMATCH && h->place == c->step;
    default:
        return h->kind == LIERNE_HANG_MISSING || h->kind == LIERNE_HANG_SILENT ||
               h->kind == LIERNE_HANG_LATE || h->kind == LIERNE_HANG_ENDED;
    }
}

bool hang_case_judge(const hang_case *c, const char *folder, char *why, size_t size) {
    lierne_hang hang = {.size = sizeof hang};
    char *text = NULL;
    lierne_status status = lierne_hang_find(&hang, &text, folder);
    bool right =
        status == LIERNE_OK && hang.rank == c->culprit && hang.ndamaged == 0 && is_right(c, &hang);
    snprintf(why, size, "kind %d, rank %d, number %lld, place %lld: %s", hang.kind, hang.rank,
             (long long)hang.number, (long long)hang.place, text ? text : lierne_last_error());
    lierne_text_destroy(text);
    return right;
}

void hang_case_clean(const char *folder) {
    char path[1024];
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    if (directory) {
        closedir(directory);
    }
    rmdir(folder);
}
