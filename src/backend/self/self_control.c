/* The control of a world of one rank, which agrees with itself and sends messages only to itself.
 * Its state is the number of the next agreement, by which plans are told apart. */
#include "backend/self/self.h"

static lierne_status agree_alone(void *self, lierne_status mine, const lierne_field *fields,
                                 size_t n, int *id, lierne_status *decision) {
    (void)fields, (void)n;
    *id = (*(int *)self)++;
    *decision = mine;
    return LIERNE_OK;
}

static lierne_status sparse_exchange(void *self, const lierne_control_message *messages, size_t n,
                                     lierne_control_messages *received) {
    (void)self;
    for (size_t i = 0; i < n; i++) {
        lierne_status status = lierne_control_messages_copy(received, 0, &messages[i]);
        if (status != LIERNE_OK) {
            lierne_control_messages_destroy(received);
            return status;
        }
    }
    return LIERNE_OK;
}

static lierne_status allreduce_max(void *self, int64_t *values, size_t n) {
    (void)self, (void)values, (void)n;
    return LIERNE_OK;
}

static bool idle(void *self) {
    (void)self;
    return false;
}

static void close_self(void *self, bool dead) {
    (void)dead;
    lierne_mem_free(self);
}

const lierne_control lierne_self_control = {
    .name = "self",
    .agree = agree_alone,
    .sparse_exchange = sparse_exchange,
    .allreduce_max = allreduce_max,
    .idle = idle,
    .close = close_self,
};
