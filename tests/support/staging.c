/* A call whose output is not copied back may still run: its copies stay, as the rule for buffers
 * says. */
#include "staging.h"
#include "ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_staged {
    const lierne_request *request;
    void *out, *in;  /* copies; the same one where the buffers are */
    void *given_out; /* the test's */
    size_t out_bytes;
    test_staged *next;
};

static const test_stager *device; /* NULL: none is in use */
static test_staged *in_flight;

/* The device that is played can read the host's memory; a copy shows what is not copied back. */
static void *play_alloc(size_t bytes) {
    void *memory = malloc(bytes);
    memset(memory, 0x5c, bytes);
    return memory;
}

static void play_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

static void *play_stream(void) {
    static char any;
    return &any;
}

static void play_wait(void) {
}

static const test_stager played = {.use = test_ipc_use,
                                   .alloc = play_alloc,
                                   .free = free,
                                   .copy = play_copy,
                                   .stream = play_stream,
                                   .wait = play_wait};

lierne_status test_staging_use_asked(lierne_context *context) {
    const char *asked = getenv("LIERNE_TEST_EXECUTOR");
    if (!asked || strcmp(asked, "ipc") == 0) {
        return asked ? test_ipc_use(context) : LIERNE_OK;
    }
    bool real = strcmp(asked, "cuda") == 0 || strcmp(asked, "nccl") == 0;
    if (strcmp(asked, "staged") != 0 && !(real && &test_cuda_stager)) {
        fprintf(stderr, "LIERNE_TEST_EXECUTOR is '%s', which this program has not\n", asked);
        exit(2);
    }
    device = real ? &test_cuda_stager : &played;
    return device->use(context);
}

static void *copy_of(const void *given, size_t bytes) {
    void *memory = given ? device->alloc(bytes + 1) : NULL;
    if (given) {
        device->copy(memory, given, bytes);
    }
    return memory;
}

test_staged *test_stage(const lierne_plan *plan, lierne_direction direction, void **out,
                        const void **in, void **stream) {
    int64_t nin, nout;
    lierne_dtype dtype;
    if (!device || !plan || strcmp(lierne_plan_get_memory_kind(plan), "host") == 0 ||
        lierne_plan_get_dtype(&dtype, plan) != LIERNE_OK ||
        lierne_plan_get_elements(&nin, &nout, plan, direction) != LIERNE_OK) {
        return NULL;
    }
    test_staged *s = calloc(1, sizeof *s);
    s->given_out = *out;
    s->out_bytes = (size_t)nout * lierne_dtype_size(dtype);
    s->out = copy_of(*out, s->out_bytes);
    s->in = *in == *out ? s->out : copy_of(*in, (size_t)nin * lierne_dtype_size(dtype));
    *out = s->out;
    *in = s->in;
    *stream = device->stream();
    return s;
}

void test_staged_keep(test_staged *s, lierne_request *request) {
    if (s) {
        s->request = request;
        s->next = in_flight;
        in_flight = s;
    }
}

test_staged *test_staged_take(const lierne_request *request) {
    test_staged **at = &in_flight;
    while (*at && (*at)->request != request) {
        at = &(*at)->next;
    }
    test_staged *s = *at;
    *at = s ? s->next : NULL;
    return s;
}

void test_unstage(test_staged *s, bool done) {
    if (s && done) {
        device->wait();
        if (s->out) {
            device->copy(s->given_out, s->out, s->out_bytes);
        }
        device->free(s->in == s->out ? NULL : s->in);
        device->free(s->out);
    }
    free(s);
}
