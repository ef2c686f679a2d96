/* The tensors of a set that have a halo.
 *
 * Each moves as it does alone, so that the sums of its gradients are the same: the route of one is
 * planned once per class and added for each of its tensors, shifted to their places. What two
 * ranks exchange shares messages with the rest of the set. A message lands in one buffer, so values
 * and terms do not share one; both ends know which is which, because a route lists values first. */
#include "plan/redistribute/redistribute.h"
#include "plan/redistribute/set_messages.h"

typedef struct adding {
    lierne_route *route;
    lierne_set_open *open;
    lierne_tensor_route tensor;
    int64_t offset[LIERNE_BUFFER_COUNT];
} adding;

static lierne_set_traffic traffic_of(const adding *a, size_t stage, bool sends, size_t m) {
    const lierne_messages *recvs = &a->tensor.route->stages.at[stage].recvs;
    bool terms = sends ? m >= a->tensor.core_sends : recvs->at[m].buffer == LIERNE_BUFFER_SCRATCH;
    return stage > 0 ? LIERNE_SET_SUMS : terms ? LIERNE_SET_TERMS : LIERNE_SET_VALUES;
}

/* Where a message of a tensor is added: to one that has space, or to its own. */
static lierne_status place_message(adding *a, lierne_messages *to, const lierne_message *message,
                                   lierne_open_messages *open, size_t *index) {
    int64_t size = (int64_t)lierne_dtype_size(a->tensor.route->dtype);
    if (message->elements * size < LIERNE_SET_LEAST_PIECE) {
        return lierne_set_open_for(open, to, message->peer, LIERNE_SET_FULL_MESSAGE / size,
                                   message->buffer, index);
    }
    lierne_message *own;
    *index = to->count;
    return lierne_messages_add(to, message->peer, message->buffer, &own);
}

static lierne_status add_messages(adding *a, size_t stage, bool sends) {
    const lierne_stage *tensor = &a->tensor.route->stages.at[stage];
    lierne_stage *set = &a->route->stages.at[stage];
    const lierne_messages *from = sends ? &tensor->sends : &tensor->recvs;
    lierne_messages *to = sends ? &set->sends : &set->recvs;
    for (size_t m = 0; m < from->count; m++) {
        const lierne_message *message = &from->at[m];
        size_t index;
        LIERNE_TRY(place_message(a, to, message,
                                 &a->open->at[traffic_of(a, stage, sends, m)][!sends], &index));
        for (size_t b = 0; b < message->blocks.count; b++) {
            lierne_block block = message->blocks.at[b];
            block.offset += a->offset[message->buffer];
            LIERNE_TRY(lierne_message_add(&to->at[index], block));
        }
    }
    return LIERNE_OK;
}

static lierne_status add_tensor(adding *a) {
    const lierne_route *tensor = a->tensor.route;
    LIERNE_TRY(lierne_route_scratch(a->route, tensor->elements[LIERNE_BUFFER_SCRATCH],
                                    &a->offset[LIERNE_BUFFER_SCRATCH]));
    for (size_t i = 0; i < tensor->stages.count; i++) {
        const lierne_stage *from = &tensor->stages.at[i];
        lierne_stage *to;
        if (i == a->route->stages.count) {
            LIERNE_TRY(lierne_route_add_stage(a->route, &to));
        }
        to = &a->route->stages.at[i];
        LIERNE_TRY(add_messages(a, i, true));
        LIERNE_TRY(add_messages(a, i, false));
        LIERNE_TRY(lierne_ops_append_at(&to->copies, &from->copies, a->offset));
        LIERNE_TRY(lierne_ops_append_at(&to->sums, &from->sums, a->offset));
    }
    return LIERNE_OK;
}

lierne_status lierne_set_add_halos(lierne_route *route, int64_t *min_elements,
                                   lierne_set_open *open, const lierne_set *set,
                                   const lierne_set_class *members, int from) {
    adding a = {.route = route, .open = open};
    LIERNE_TRY(lierne_tensor_route_create(&a.tensor,
                                          set->layouts.at[members->layouts[LIERNE_SET_SRC]].layout,
                                          set->layouts.at[members->layouts[LIERNE_SET_DST]].layout,
                                          set->rank, from == LIERNE_SET_DST));
    lierne_status status = LIERNE_OK;
    for (int64_t i = 0; i < members->count && status == LIERNE_OK; i++) {
        int64_t tensor = set->members[members->first + i];
        a.offset[LIERNE_BUFFER_IN] = set->offsets[from][tensor];
        a.offset[LIERNE_BUFFER_OUT] = set->offsets[!from][tensor];
        status = add_tensor(&a);
    }
    *min_elements += members->count * a.tensor.min_elements;
    lierne_route_destroy(a.tensor.route);
    return status;
}
