/* The lower bound of a halo plan's bytes, for the report: each distinct row that a rank has ghosts
 * of must reach it once, whichever swaps bring it. */
#include "plan/halo/halo.h"

/* Distinct rows that this rank has ghosts of, of one owner. */
typedef struct needs {
    int owner;
    int64_t count;
} needs;
typedef LIERNE_VEC(needs) needs_list;

static uint64_t largest_row(const lierne_halo_saved_spec *saved) {
    uint64_t largest = 0;
    for (int64_t k = 0; k < saved->spec.nghost; k++) {
        uint64_t row = (uint64_t)saved->root_row[k];
        largest = row > largest ? row : largest;
    }
    return largest;
}

/* Ghosts by owner, those of one owner by row. */
static void sort_ghosts(const lierne_halo_saved_spec *saved, int world, lierne_keyed *ghosts,
                        lierne_keyed *spare) {
    size_t n = (size_t)saved->spec.nghost;
    for (size_t k = 0; k < n; k++) {
        ghosts[k] = (lierne_keyed){(uint64_t)saved->root_row[k], (int64_t)k};
    }
    lierne_sort_keyed(ghosts, spare, n, largest_row(saved));
    for (size_t i = 0; i < n; i++) {
        ghosts[i].key = (uint64_t)saved->root_rank[ghosts[i].value];
    }
    lierne_sort_keyed(ghosts, spare, n, (uint64_t)world);
}

static lierne_status count_rows(const lierne_halo_saved_spec *saved, int rank,
                                const lierne_keyed *ghosts, needs_list *list) {
    int64_t row = -1;
    for (int64_t i = 0; i < saved->spec.nghost; i++) {
        int64_t ghost = ghosts[i].value;
        int owner = saved->root_rank[ghost];
        bool another = i == 0 || owner != saved->root_rank[ghosts[i - 1].value];
        if (another && owner != rank) {
            LIERNE_TRY(LIERNE_VEC_PUSH(list, ((needs){owner, 0})));
        }
        if (owner != rank) {
            list->at[list->count - 1].count += another || saved->root_row[ghost] != row;
        }
        row = saved->root_row[ghost];
    }
    return LIERNE_OK;
}

static lierne_status list_needs(const lierne_halo_saved_spec *saved, const lierne_context *context,
                                needs_list *list) {
    lierne_keyed *ghosts;
    size_t n = (size_t)saved->spec.nghost;
    LIERNE_TRY(lierne_alloc_unset(&ghosts, 2 * n, sizeof *ghosts));
    sort_ghosts(saved, context->members.world, ghosts, ghosts + n);
    lierne_status status = count_rows(saved, context->rank, ghosts, list);
    lierne_mem_free(ghosts);
    return status;
}

static lierne_status write_messages(needs_list *list, lierne_control_messages *messages) {
    for (size_t i = 0; i < list->count; i++) {
        lierne_control_message message = {list->at[i].owner, 1, &list->at[i].count};
        LIERNE_TRY(LIERNE_VEC_PUSH(messages, message));
    }
    return LIERNE_OK;
}

lierne_status lierne_halo_count_rows(lierne_context *context, const lierne_halo_saved_spec *saved,
                                     lierne_status status, int64_t *rows) {
    needs_list list = {0};
    lierne_control_messages messages = {0}, received = {0};
    if (status == LIERNE_OK) {
        status = list_needs(saved, context, &list);
    }
    if (status == LIERNE_OK) {
        status = write_messages(&list, &messages);
    }
    size_t n = status == LIERNE_OK ? messages.count : 0;
    for (size_t i = 0; i < n; i++) {
        rows[LIERNE_DIRECTION_FORWARD] += list.at[i].count;
    }
    lierne_status sent = lierne_context_sparse_exchange(context, messages.at, n, &received);
    for (size_t i = 0; i < received.count; i++) {
        rows[LIERNE_DIRECTION_ADJOINT] += received.at[i].words[0];
    }
    lierne_control_messages_destroy(&received);
    lierne_mem_free(messages.at);
    lierne_context_free_message_memory(context, list.at); /* the messages point into it */
    return status == LIERNE_OK ? sent : status;
}
