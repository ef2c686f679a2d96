/* The wire of a world of one rank: there is nobody to talk to, so routes have no messages, and
 * agreeing is having no error. Only letters may go from a rank to itself. */
#include "transport/transport.h"

static lierne_status batch_new(void *self, size_t capacity, void **batch) {
    (void)self;
    (void)capacity;
    *batch = NULL;
    return LIERNE_OK;
}

static bool batch_free(void *batch) {
    (void)batch;
    return true;
}

static lierne_status send_nowhere(void *batch, size_t slot, int peer, int tag, const void *data,
                                  size_t bytes) {
    (void)batch, (void)slot, (void)tag, (void)data, (void)bytes;
    return LIERNE_FAIL(LIERNE_TRANSPORT, "no rank %d in a world of one", peer);
}

static lierne_status recv_nowhere(void *batch, size_t slot, int peer, int tag, void *data,
                                  size_t bytes) {
    return send_nowhere(batch, slot, peer, tag, data, bytes);
}

static lierne_status poll_nothing(void *batch, size_t *done, size_t *ndone) {
    (void)batch, (void)done;
    *ndone = 0;
    return LIERNE_OK;
}

static lierne_status agree(void *self, lierne_status mine, const lierne_field *fields, size_t n,
                           int *id) {
    (void)self, (void)fields, (void)n;
    *id = 0;
    return mine;
}

static lierne_status post(void *self, const lierne_letter *letters, size_t n,
                          lierne_letters *received) {
    (void)self;
    for (size_t i = 0; i < n; i++) {
        lierne_status status = lierne_letters_copy(received, 0, &letters[i]);
        if (status != LIERNE_OK) {
            lierne_letters_free(received);
            return status;
        }
    }
    return LIERNE_OK;
}

static lierne_status largest(void *self, int64_t *values, size_t n) {
    (void)self, (void)values, (void)n;
    return LIERNE_OK;
}

static void close_self(void *self, bool dead) {
    (void)self, (void)dead;
}

static const lierne_wire self_wire = {
    .name = "self",
    .batch_new = batch_new,
    .batch_free = batch_free,
    .send = send_nowhere,
    .recv = recv_nowhere,
    .poll = poll_nothing,
    .agree = agree,
    .post = post,
    .largest = largest,
    .close = close_self,
};

lierne_status lierne_init(lierne_context **out, const lierne_context_spec *spec) {
    lierne_context *context;
    if (!out) {
        return LIERNE_FAIL(LIERNE_INVALID, "out is NULL");
    }
    *out = NULL;
    LIERNE_TRY(lierne_alloc(&context, 1, sizeof *context));
    context->wire = &self_wire;
    context->world = 1;
    lierne_status status = lierne_context_fill(context, spec);
    if (status != LIERNE_OK) {
        lierne_context_drop(context);
        return status;
    }
    *out = context;
    return LIERNE_OK;
}
