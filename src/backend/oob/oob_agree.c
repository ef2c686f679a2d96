/* Agreement of all ranks, from gathered records.
 *
 * The common case is that no rank failed and all fields are equal: one all-gather. If a rank
 * failed, its message follows in pages; if fields differ, the fields of all ranks, until every rank
 * has seen the first that differs between rank 0 and the lowest rank that differs from it. Every
 * rank forms the decision by itself, from the same data. No step allocates, so that a rank without
 * memory takes part like any other. */
#include "backend/oob/oob_state.h"

#include <stdio.h>
#include <string.h>

static const char *name_of(int64_t kind) {
    static const char *const names[] = {"another call", "plans", "destroys its context",
                                        "finds a maximum", "exchanges messages"};
    return names[kind >= LIERNE_OOB_AGREE && kind <= LIERNE_OOB_EXCHANGE ? kind : 0];
}

lierne_status lierne_oob_begin(lierne_oob_state *s, lierne_oob_kind kind) {
    s->mine.kind = kind;
    lierne_oob_start_deadline(s);
    LIERNE_TRY(lierne_oob_gather(s, &s->mine, s->records, sizeof s->mine, "agreeing"));
    for (int r = 0; r < s->world; r++) {
        if (s->records[r].kind != s->records[0].kind) {
            return LIERNE_FAIL(LIERNE_ERR_MISMATCH,
                               "rank %d %s while rank %d %s: all ranks must make the same calls",
                               lierne_oob_name(s, r), name_of(s->records[r].kind),
                               lierne_oob_name(s, 0), name_of(s->records[0].kind));
        }
    }
    return LIERNE_OK;
}

/* Every rank takes over the message of one that failed. */
static lierne_status take_message(lierne_oob_state *s, int failed) {
    char message[LIERNE_MESSAGE_SIZE];
    for (size_t at = 0; at < sizeof message; at += s->page_bytes) {
        size_t left = sizeof message - at, n = left < s->page_bytes ? left : s->page_bytes;
        memcpy(s->page, s->message + at, n);
        LIERNE_TRY(lierne_oob_gather(s, s->page, s->pages, n, "agreeing"));
        memcpy(message + at, s->pages + (size_t)failed * n, n);
    }
    message[sizeof message - 1] = '\0';
    lierne_set_error(message);
    return LIERNE_OK;
}

/* Field i of a page with fields of all ranks; NULL if the rank has none. */
static const lierne_field *field_of(const lierne_oob_state *s, int rank, size_t per_page,
                                    size_t i) {
    const lierne_field *page =
        (const lierne_field *)s->pages + (size_t)rank * per_page + i % per_page;
    return (int64_t)i < s->records[rank].count ? page : NULL;
}

static void keep_message(lierne_oob_state *s) {
    snprintf(s->message, sizeof s->message, "%s", lierne_error_text());
}

/* Gathers a list page by page; the rank that differs finds the first item, and the others take over
 * its message. list is the field of this rank; like is that of rank 0. */
static lierne_status compare_lists(lierne_oob_state *s, int rank, const lierne_field *list,
                                   lierne_field like) {
    size_t size = lierne_item_size(like.kind), per_page = s->page_bytes / size;
    lierne_status found = LIERNE_OK;
    for (size_t at = 0; at < like.count; at += per_page) {
        size_t items = like.count - at < per_page ? like.count - at : per_page;
        if (s->rank == 0) {
            memcpy(s->page, (const char *)list->items + at * size, items * size);
        }
        LIERNE_TRY(lierne_oob_gather(s, s->page, s->pages, items * size, "agreeing"));
        if (s->rank == rank && found == LIERNE_OK) {
            found = lierne_field_compare_items(s->pages, at, items, lierne_oob_name(s, 0), list,
                                               lierne_oob_name(s, rank));
        }
    }
    if (found != LIERNE_OK) {
        keep_message(s);
    }
    return take_message(s, rank);
}

/* Gathers pages of fields up to the first that differs: *index, and *like, that of rank 0. */
static lierne_status compare_fields(lierne_oob_state *s, int rank, const lierne_field *fields,
                                    size_t n, size_t *index, lierne_field *like, bool *lists,
                                    lierne_status *found) {
    size_t per_page = s->page_bytes / sizeof *fields;
    int64_t first_n = s->records[0].count, other_n = s->records[rank].count;
    int64_t most = first_n > other_n ? first_n : other_n;
    for (size_t at = 0; (int64_t)at < most && *found == LIERNE_OK; at += per_page) {
        for (size_t i = at; i < at + per_page && i < n; i++) {
            memcpy(s->page + (i - at) * sizeof *fields, &fields[i], sizeof *fields);
        }
        LIERNE_TRY(lierne_oob_gather(s, s->page, s->pages, per_page * sizeof *fields, "agreeing"));
        for (size_t i = at; i < at + per_page && (int64_t)i < most && *found == LIERNE_OK; i++) {
            const lierne_field *first = field_of(s, 0, per_page, i);
            const lierne_field *other = field_of(s, rank, per_page, i);
            *found = lierne_field_compare(i, first, lierne_oob_name(s, 0), other,
                                          lierne_oob_name(s, rank));
            *lists = lierne_field_same_lists(first, other);
            *index = i;
            *like = first ? *first : (lierne_field){0};
        }
    }
    return LIERNE_OK;
}

static lierne_status find_difference(lierne_oob_state *s, int rank, const lierne_field *fields,
                                     size_t n, lierne_status *decision) {
    lierne_field like = {0};
    size_t index = 0;
    bool lists = false;
    *decision = LIERNE_OK;
    LIERNE_TRY(compare_fields(s, rank, fields, n, &index, &like, &lists, decision));
    keep_message(s);
    return *decision != LIERNE_OK && lists
               ? compare_lists(s, rank, index < n ? &fields[index] : NULL, like)
               : LIERNE_OK;
}

lierne_status lierne_oob_agree(void *state, lierne_status mine, const lierne_field *fields,
                               size_t n, int *id, lierne_status *decision) {
    lierne_oob_state *s = state;
    *id = s->agreements++;
    keep_message(s);
    s->mine = (lierne_oob_record){.status = mine,
                                  .hash = lierne_fields_hash(fields, n),
                                  .count = (int64_t)n};
    LIERNE_TRY(lierne_oob_begin(s, LIERNE_OOB_AGREE));
    *decision = LIERNE_OK;
    for (int r = 0; r < s->world; r++) {
        if (s->records[r].status != LIERNE_OK) {
            *decision = (lierne_status)s->records[r].status;
            return take_message(s, r);
        }
    }
    for (int r = 1; r < s->world; r++) {
        if (s->records[r].hash != s->records[0].hash) {
            return find_difference(s, r, fields, n, decision);
        }
    }
    return LIERNE_OK;
}

lierne_status lierne_oob_allreduce_max(void *state, int64_t *values, size_t n) {
    lierne_oob_state *s = state;
    s->mine = (lierne_oob_record){0};
    memcpy(s->mine.values, values, n * sizeof *values);
    LIERNE_TRY(lierne_oob_begin(s, LIERNE_OOB_MAX));
    for (int r = 0; r < s->world; r++) {
        for (size_t i = 0; i < n; i++) {
            int64_t value = s->records[r].values[i];
            values[i] = value > values[i] ? value : values[i];
        }
    }
    return LIERNE_OK;
}
