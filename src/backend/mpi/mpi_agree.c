/* Agreement of all ranks.
 *
 * The common case is that no rank failed and all fields are equal, so it costs one reduction of
 * three words: the lowest rank that failed, and the minimum of [h, ~h] of a hash of the fields.
 * That pair tells whether all hashes are equal, because the minimum of ~h is the complement of the
 * maximum of h. Few ranks send these words in the heads of a dense exchange. Details are exchanged
 * only on an error: a rank that failed broadcasts its message; if fields differ, rank 0 broadcasts
 * its fields page by page and the lowest rank that differs finds the field; if that is a list, rank
 * 0 broadcasts its items likewise. No step allocates, so that a rank without memory takes part like
 * any other.
 *
 * Closing the control begins with the same reduction. If one rank closes while others agree, all of
 * them call the same collective; MPI ends the program when ranks call different ones. */
#include "backend/mpi/mpi_state.h"

#include <stdio.h>
#include <string.h>

enum { FAILED, HASH, NOT_HASH, WORDS };

#define CLOSING 0x636c6f7365u /* the hash of a rank that closes */

lierne_status lierne_mpi_minimum(lierne_mpi_state *m, int words) {
    MPI_Request request;
    return lierne_mpi_wait(m,
                           MPI_Iallreduce(m->reduce_in, m->reduce_out, words, MPI_INT64_T, MPI_MIN,
                                          m->comm, &request),
                           &request, "agreeing");
}

static lierne_status broadcast(lierne_mpi_state *m, void *data, size_t bytes, int root) {
    MPI_Request request;
    return lierne_mpi_wait(m, MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, m->comm, &request),
                           &request, "agreeing");
}

static void set_decision(lierne_mpi_state *m, lierne_status status) {
    m->decision.status = status;
    snprintf(m->decision.message, sizeof m->decision.message, "%s", lierne_error_text());
}

/* Every rank takes over the decision of root. */
static lierne_status broadcast_decision(lierne_mpi_state *m, int root, lierne_status *decision) {
    LIERNE_TRY(broadcast(m, &m->decision, sizeof m->decision, root));
    lierne_set_error(m->decision.message);
    *decision = (lierne_status)m->decision.status;
    return LIERNE_OK;
}

static const lierne_field *nth(const lierne_field *fields, size_t n, size_t i) {
    return i < n ? &fields[i] : NULL;
}

/* Broadcasts the fields of rank 0; sets the decision to this rank's first field that differs. *at
 * is its index if it is a list on both ranks, else -1. */
static lierne_status compare_pages(lierne_mpi_state *m, const lierne_field *fields, size_t n,
                                   size_t first_n, int64_t *at) {
    int first_rank = lierne_mpi_name(m, 0), rank = lierne_mpi_name(m, m->rank);
    lierne_status found = LIERNE_OK;
    size_t i = 0;
    *at = -1;
    for (size_t start = 0; start < first_n; start += LIERNE_MPI_PAGE) {
        size_t end = start + LIERNE_MPI_PAGE < first_n ? start + LIERNE_MPI_PAGE : first_n;
        if (m->rank == 0) {
            memcpy(m->page, fields + start, (end - start) * sizeof *fields);
        }
        LIERNE_TRY(broadcast(m, m->page, sizeof m->page, 0));
        for (; i < end && found == LIERNE_OK; i++) {
            const lierne_field *first = &m->page[i - start], *mine = nth(fields, n, i);
            found = lierne_field_compare(i, first, first_rank, mine, rank);
            *at = found != LIERNE_OK && lierne_field_same_lists(first, mine) ? (int64_t)i : -1;
        }
    }
    if (found == LIERNE_OK && first_n < n) {
        found = lierne_field_compare(first_n, NULL, first_rank, &fields[first_n], rank);
    }
    set_decision(m, found);
    return LIERNE_OK;
}

/* Broadcasts list `at` of rank 0, page by page, to the rank that differs, whose first item that
 * differs becomes its decision. */
static lierne_status compare_lists(lierne_mpi_state *m, const lierne_field *fields, size_t n,
                                   int differs, int64_t at) {
    /* Another rank than these two may have no such field, and reads none. */
    const lierne_field none = {0}, *list = (size_t)at < n ? &fields[at] : &none;
    size_t size = lierne_item_size(list->kind), per_page = sizeof m->page / 8;
    lierne_status found = LIERNE_OK;
    m->reduce_out[0] = (int64_t)list->count;
    LIERNE_TRY(broadcast(m, m->reduce_out, sizeof m->reduce_out[0], 0));
    size_t count = (size_t)m->reduce_out[0];
    for (size_t start = 0; start < count; start += per_page) {
        size_t items = count - start < per_page ? count - start : per_page;
        if (m->rank == 0) {
            memcpy(m->page, (const char *)list->items + start * size, items * size);
        }
        LIERNE_TRY(broadcast(m, m->page, sizeof m->page, 0));
        if (m->rank == differs && found == LIERNE_OK) {
            found = lierne_field_compare_items(m->page, start, items, lierne_mpi_name(m, 0), list,
                                               lierne_mpi_name(m, differs));
        }
    }
    if (found != LIERNE_OK) {
        set_decision(m, found);
    }
    return LIERNE_OK;
}

static lierne_status find_difference(lierne_mpi_state *m, const lierne_field *fields, size_t n,
                                     lierne_status *decision) {
    int64_t hash = m->reduce_in[HASH], at;
    m->reduce_out[0] = hash;
    m->reduce_out[1] = (int64_t)n;
    LIERNE_TRY(broadcast(m, m->reduce_out, 2 * sizeof m->reduce_out[0], 0));
    size_t first_n = (size_t)m->reduce_out[1];
    m->reduce_in[FAILED] = m->reduce_out[0] != hash ? m->rank : m->world;
    LIERNE_TRY(lierne_mpi_minimum(m, 1));
    int differs = (int)m->reduce_out[FAILED];
    LIERNE_TRY(compare_pages(m, fields, n, first_n, &at));
    m->reduce_out[0] = at;
    LIERNE_TRY(broadcast(m, m->reduce_out, sizeof m->reduce_out[0], differs));
    if (m->reduce_out[0] >= 0) {
        LIERNE_TRY(compare_lists(m, fields, n, differs, m->reduce_out[0]));
    }
    return broadcast_decision(m, differs, decision);
}

static void set_words(lierne_mpi_state *m, int64_t failed, uint64_t hash) {
    m->reduce_in[FAILED] = failed;
    m->reduce_in[HASH] = (int64_t)hash;
    m->reduce_in[NOT_HASH] = (int64_t)~hash;
}

static bool same_hash(const lierne_mpi_state *m) {
    return m->reduce_out[HASH] == ~m->reduce_out[NOT_HASH];
}

bool lierne_mpi_all_close(lierne_mpi_state *m) {
    lierne_status memory;
    set_words(m, -1 - (int64_t)m->rank, CLOSING);
    return lierne_mpi_exchange(m, WORDS, NULL, 0, NULL, &memory) == LIERNE_OK && same_hash(m);
}

lierne_status lierne_mpi_agree_exchange(void *state, const lierne_control_agreement *agreement,
                                        const lierne_control_message *messages, size_t nmessages,
                                        lierne_control_messages *received, lierne_status *memory,
                                        lierne_status *decision) {
    lierne_mpi_state *m = state;
    lierne_status mine = agreement->mine;
    const lierne_field *fields = agreement->fields;
    size_t n = agreement->n;
    m->agreements++;
    set_decision(m, mine);
    set_words(m, mine != LIERNE_OK ? m->rank : m->world, lierne_fields_hash(fields, n));
    LIERNE_TRY(lierne_mpi_exchange(m, WORDS, messages, nmessages, received, memory));
    if (m->reduce_out[FAILED] < 0) {
        return LIERNE_FAIL(LIERNE_ERR_MISMATCH, "rank %d destroys its context while others plan",
                           lierne_mpi_name(m, (int)(-1 - m->reduce_out[FAILED])));
    }
    if (m->reduce_out[FAILED] < m->world) {
        return broadcast_decision(m, (int)m->reduce_out[FAILED], decision);
    }
    if (!same_hash(m)) {
        return find_difference(m, fields, n, decision);
    }
    *decision = LIERNE_OK;
    return LIERNE_OK;
}

lierne_status lierne_mpi_agree(void *state, lierne_status mine, const lierne_field *fields,
                               size_t n, int *id, lierne_status *decision) {
    const lierne_control_agreement agreement = {mine, fields, n};
    lierne_status memory;
    *id = ((lierne_mpi_state *)state)->agreements;
    return lierne_mpi_agree_exchange(state, &agreement, NULL, 0, NULL, &memory, decision);
}
