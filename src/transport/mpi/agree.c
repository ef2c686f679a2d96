/* Deciding together.
 *
 * The common case is that all is well, so it costs one reduction of three words: the lowest rank
 * that failed, and the minimum of [h, ~h] of a hash of the fields. That pair tells whether all
 * hashes are equal, because the minimum of ~h is the complement of the maximum of h. Only when
 * something is wrong do ranks exchange what: a rank that failed tells its message; for fields that
 * differ, the fields of rank 0 go round page by page and the lowest rank that differs finds the
 * field. No step allocates, so that a rank without memory takes part like any other.
 *
 * Closing the link begins with the same reduction: a rank that closes while others decide, or
 * decided and gave up before, then meets a collective of its own kind and not one of another kind
 * at the same place, which MPI would answer by ending the program. */
#include "transport/mpi/link.h"

#include <stdio.h>
#include <string.h>

enum { FAILED, HASH, NOT_HASH, WORDS };

#define CLOSING 0x636c6f7365u /* the hash of a rank that closes */

lierne_status lierne_link_reduce(lierne_link *l, int words, MPI_Op operation) {
    MPI_Request request;
    return lierne_link_wait(l,
                            MPI_Iallreduce(l->ballot, l->tally, words, MPI_INT64_T, operation,
                                           l->comm, &request),
                            &request, "agreeing");
}

static lierne_status minimum(lierne_link *l, int words) {
    return lierne_link_reduce(l, words, MPI_MIN);
}

static lierne_status broadcast(lierne_link *l, void *data, size_t bytes, int root) {
    MPI_Request request;
    return lierne_link_wait(l, MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, l->comm, &request),
                            &request, "agreeing");
}

static void note(lierne_link *l, lierne_status status) {
    l->notice.status = status;
    snprintf(l->notice.message, sizeof l->notice.message, "%s", lierne_last_error());
}

/* Every rank takes over the failure of one. */
static lierne_status tell(lierne_link *l, int root, lierne_status *decision) {
    LIERNE_TRY(broadcast(l, &l->notice, sizeof l->notice, root));
    lierne_set_error(l->notice.message);
    *decision = (lierne_status)l->notice.status;
    return LIERNE_OK;
}

static uint64_t hash_fields(const lierne_field *fields, size_t n) {
    uint64_t hash = lierne_link_hash(0, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        hash = lierne_link_hash(hash, fields[i].name, strlen(fields[i].name) + 1);
        hash = lierne_link_hash(hash, &fields[i].value, sizeof fields[i].value);
    }
    return hash;
}

/* Compares a field of rank 0 with mine; either may be missing. */
static lierne_status compare(const lierne_field *first, const lierne_field *mine, int rank) {
    if (first && mine && first->value == mine->value && strcmp(first->name, mine->name) == 0) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_MISMATCH, "%s differs between ranks: %lld on rank 0, %lld on rank %d",
                       mine ? mine->name : first->name, first ? (long long)first->value : 0LL,
                       mine ? (long long)mine->value : 0LL, rank);
}

static const lierne_field *nth(const lierne_field *fields, size_t n, size_t i) {
    return i < n ? &fields[i] : NULL;
}

/* Sends the fields of rank 0 round; notes my first field that differs. */
static lierne_status leaf_through(lierne_link *l, const lierne_field *fields, size_t n,
                                  size_t first_n) {
    lierne_status found = LIERNE_OK;
    size_t i = 0;
    for (size_t start = 0; start < first_n; start += LIERNE_LINK_PAGE) {
        size_t end = start + LIERNE_LINK_PAGE < first_n ? start + LIERNE_LINK_PAGE : first_n;
        if (l->rank == 0) {
            memcpy(l->page, fields + start, (end - start) * sizeof *fields);
        }
        LIERNE_TRY(broadcast(l, l->page, sizeof l->page, 0));
        for (; i < end && found == LIERNE_OK; i++) {
            found = compare(&l->page[i - start], nth(fields, n, i), l->rank);
        }
    }
    if (found == LIERNE_OK && first_n < n) {
        found = compare(NULL, &fields[first_n], l->rank);
    }
    note(l, found);
    return LIERNE_OK;
}

static lierne_status find_difference(lierne_link *l, const lierne_field *fields, size_t n,
                                     lierne_status *decision) {
    int64_t hash = l->ballot[HASH];
    l->tally[0] = hash;
    l->tally[1] = (int64_t)n;
    LIERNE_TRY(broadcast(l, l->tally, 2 * sizeof l->tally[0], 0));
    size_t first_n = (size_t)l->tally[1];
    l->ballot[FAILED] = l->tally[0] != hash ? l->rank : l->world;
    LIERNE_TRY(minimum(l, 1));
    int differs = (int)l->tally[FAILED];
    LIERNE_TRY(leaf_through(l, fields, n, first_n));
    return tell(l, differs, decision);
}

static lierne_status vote(lierne_link *l, int64_t failed, uint64_t hash) {
    lierne_link_arm(l);
    l->ballot[FAILED] = failed;
    l->ballot[HASH] = (int64_t)hash;
    l->ballot[NOT_HASH] = (int64_t)~hash;
    return minimum(l, WORDS);
}

static bool unanimous(const lierne_link *l) {
    return l->tally[HASH] == ~l->tally[NOT_HASH];
}

bool lierne_link_all_close(lierne_link *l) {
    return vote(l, -1 - (int64_t)l->rank, CLOSING) == LIERNE_OK && unanimous(l);
}

lierne_status lierne_link_agree(lierne_link *l, lierne_status mine, const lierne_field *fields,
                                size_t n, lierne_status *decision) {
    note(l, mine);
    LIERNE_TRY(vote(l, mine != LIERNE_OK ? l->rank : l->world, hash_fields(fields, n)));
    if (l->tally[FAILED] < 0) {
        return LIERNE_FAIL(LIERNE_MISMATCH, "rank %d frees its context while others plan",
                           (int)(-1 - l->tally[FAILED]));
    }
    if (l->tally[FAILED] < l->world) {
        return tell(l, (int)l->tally[FAILED], decision);
    }
    if (!unanimous(l)) {
        return find_difference(l, fields, n, decision);
    }
    *decision = LIERNE_OK;
    return LIERNE_OK;
}
