/* What a rank can check of its swaps alone.
 *
 * The reference checks almost nothing; a bad list there silently overwrites owned rows. So every
 * class of mistake has a status of its own. Classes are checked one after another, because later
 * checks rely on earlier ones: with a negative count any other message would be misleading. */
#include "layout/layout.h"
#include "plan/halo/halo.h"

#define SWAP_FAIL(status, ...) LIERNE_FAIL(status, "rank %d swap %d: " __VA_ARGS__)

static lierne_status check_arguments(const lierne_halo_spec *spec, int rank) {
    if (spec->width < 1 || (spec->stride != 0 && spec->stride < spec->width)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: width is %lld, must be at least 1, and stride %lld, must be 0 "
                           "or at least width",
                           rank, (long long)spec->width, (long long)spec->stride);
    }
    LIERNE_TRY(lierne_check_dtype(spec->dtype, rank));
    if (spec->max_inflight < 0 || spec->max_inflight > LIERNE_MAX_INFLIGHT) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "rank %d: max_inflight is %d, must be in 0 to %d",
                           rank, spec->max_inflight, LIERNE_MAX_INFLIGHT);
    }
    if (spec->nswap > 0 && (!spec->sendproc || !spec->recvproc || !spec->sendnum ||
                            !spec->recvnum || !spec->sendlist)) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank %d: nswap is %d, but one of sendproc, recvproc, sendnum, recvnum "
                           "and sendlist is NULL",
                           rank, spec->nswap);
    }
    return LIERNE_OK;
}

/* Whether the size of these rows in bytes does not overflow. */
static bool fits(const lierne_halo_spec *spec, int64_t rows) {
    int64_t stride = spec->stride ? spec->stride : spec->width, bytes;
    return rows >= 0 && lierne_mul_i64(rows, stride, &bytes) &&
           lierne_mul_i64(bytes, (int64_t)lierne_dtype_size(spec->dtype), &bytes);
}

static lierne_status check_counts(const lierne_halo_spec *spec, int rank) {
    int64_t rows;
    if (spec->nlocal < 0 || spec->nghost < 0 || spec->nswap < 0) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: nlocal is %lld, nghost %lld and nswap %d, must not be "
                           "negative",
                           rank, (long long)spec->nlocal, (long long)spec->nghost, spec->nswap);
    }
    if (!lierne_add_i64(spec->nlocal, spec->nghost, &rows) || !fits(spec, rows)) {
        return LIERNE_FAIL(LIERNE_ERR_COUNT_RANGE,
                           "rank %d: bytes of %lld + %lld rows of width %lld and stride %lld do "
                           "not fit",
                           rank, (long long)spec->nlocal, (long long)spec->nghost,
                           (long long)spec->width, (long long)spec->stride);
    }
    for (int s = 0; s < spec->nswap; s++) {
        if (!fits(spec, spec->sendnum[s]) || !fits(spec, spec->recvnum[s])) {
            return SWAP_FAIL(LIERNE_ERR_COUNT_RANGE,
                             "sendnum is %lld and recvnum %lld: negative, or the bytes do not fit",
                             rank, s, (long long)spec->sendnum[s], (long long)spec->recvnum[s]);
        }
    }
    return LIERNE_OK;
}

static lierne_status check_peers(const lierne_halo_spec *spec, const lierne_context *context) {
    int rank = context->rank;
    for (int s = 0; s < spec->nswap; s++) {
        int to = spec->sendproc[s], from = spec->recvproc[s];
        if (lierne_context_index(context, to) < 0 || lierne_context_index(context, from) < 0) {
            char members[LIERNE_MEMBERS_TEXT];
            lierne_members_print(members, sizeof members, &context->members);
            return SWAP_FAIL(LIERNE_ERR_PEER_RANGE, "sendproc is %d and recvproc %d, must be %s",
                             rank, s, to, from, members);
        }
    }
    for (int s = 0; s < spec->nswap; s++) {
        if ((spec->sendproc[s] == rank) != (spec->recvproc[s] == rank)) {
            return SWAP_FAIL(LIERNE_ERR_SELF_ASYM,
                             "sendproc is %d and recvproc %d, must both be the rank itself or "
                             "neither",
                             rank, s, spec->sendproc[s], spec->recvproc[s]);
        }
    }
    for (int s = 0; s < spec->nswap; s++) {
        if (spec->sendproc[s] == rank && spec->sendnum[s] != spec->recvnum[s]) {
            return SWAP_FAIL(LIERNE_ERR_SELF_COUNT, "sends %lld rows to itself but receives %lld",
                             rank, s, (long long)spec->sendnum[s], (long long)spec->recvnum[s]);
        }
    }
    return LIERNE_OK;
}

/* Stops when the sum exceeds nghost, so that it cannot overflow. */
static lierne_status check_ghosts(const lierne_halo_spec *spec, int rank) {
    int64_t left = spec->nghost;
    for (int s = 0; s < spec->nswap; s++) {
        if (spec->recvnum[s] > left) {
            return SWAP_FAIL(LIERNE_ERR_GHOST_COUNT,
                             "receives %lld rows, but only %lld of %lld ghosts are left to fill",
                             rank, s, (long long)spec->recvnum[s], (long long)left,
                             (long long)spec->nghost);
        }
        left -= spec->recvnum[s];
    }
    if (spec->nswap > 0 && left > 0) {
        return LIERNE_FAIL(LIERNE_ERR_GHOST_COUNT,
                           "rank %d: the swaps receive %lld rows, but nghost is %lld", rank,
                           (long long)(spec->nghost - left), (long long)spec->nghost);
    }
    return LIERNE_OK;
}

/* Rows of a swap's list: all below `below`. */
static lierne_status check_list(const lierne_halo_spec *spec, int rank, int s, int64_t below,
                                lierne_status status) {
    for (int64_t i = 0; i < spec->sendnum[s]; i++) {
        int64_t row = spec->sendlist[s][i];
        if (row >= 0 && row < below) {
            continue;
        }
        return status == LIERNE_ERR_INDEX_RANGE
                   ? SWAP_FAIL(LIERNE_ERR_INDEX_RANGE,
                               "entry %lld of sendlist is row %lld, must be in 0 to %lld", rank, s,
                               (long long)i, (long long)row, (long long)below - 1)
                   : SWAP_FAIL(LIERNE_ERR_ROW_NOT_YET_FILLED,
                               "entry %lld of sendlist is row %lld, but only rows below %lld are "
                               "filled by then",
                               rank, s, (long long)i, (long long)row, (long long)below);
    }
    return LIERNE_OK;
}

static lierne_status check_lists(const lierne_halo_spec *spec, int rank) {
    int64_t filled = spec->nlocal;
    for (int s = 0; s < spec->nswap; s++) {
        LIERNE_TRY(check_list(spec, rank, s, spec->nlocal + spec->nghost, LIERNE_ERR_INDEX_RANGE));
    }
    for (int s = 0; s < spec->nswap; s++) {
        LIERNE_TRY(check_list(spec, rank, s, filled, LIERNE_ERR_ROW_NOT_YET_FILLED));
        filled += spec->recvnum[s];
    }
    return LIERNE_OK;
}

lierne_status lierne_halo_check(const lierne_halo_spec *spec, const lierne_context *context) {
    int rank = context->rank;
    LIERNE_TRY(check_arguments(spec, rank));
    LIERNE_TRY(check_counts(spec, rank));
    for (int s = 0; s < spec->nswap; s++) {
        if (spec->sendnum[s] > 0 && !spec->sendlist[s]) {
            return SWAP_FAIL(LIERNE_ERR_INVALID, "sendlist is NULL, but sendnum is %lld", rank, s,
                             (long long)spec->sendnum[s]);
        }
    }
    LIERNE_TRY(check_peers(spec, context));
    LIERNE_TRY(check_ghosts(spec, rank));
    return check_lists(spec, rank);
}
