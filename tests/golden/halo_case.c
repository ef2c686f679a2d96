/* Reading a halo, and its expected results: a ghost is a copy of the row that the file names, so
 * forward and adjoint follow from the roots; what ghosts accumulate follows from the swaps. */
#include "halo_case.h"

#include <stdlib.h>
#include <string.h>

static int *read_ranks(const cJSON *list, int64_t *n) {
    int64_t *wide = golden_read_ints(list, n);
    int *ranks = golden_alloc(*n, sizeof *ranks);
    for (int64_t i = 0; i < *n; i++) {
        ranks[i] = (int)wide[i];
    }
    free(wide);
    return ranks;
}

/* A list of *n rows, or of `least` if those are more: what is missing is row 0. */
static int64_t *read_rows(const cJSON *list, int64_t least, int64_t *n) {
    int64_t *given = golden_read_ints(list, n);
    int64_t *rows = golden_alloc(*n > least ? *n : least, sizeof *rows);
    memcpy(rows, given, (size_t)*n * sizeof *rows);
    free(given);
    return rows;
}

golden_swaps golden_swaps_read(const cJSON *procs, const cJSON *counts) {
    int64_t n = 0;
    const cJSON *list, *lists = golden_get(counts, "sendlist"),
                       *num = golden_get(counts, "sendnum");
    golden_swaps s = {.n = cJSON_GetArraySize(lists),
                      .nlocal = golden_int(counts, "nlocal", 0),
                      .nghost = golden_int(counts, "nghost", 0)};
    s.sendproc = read_ranks(golden_get(procs, "sendproc"), &n);
    s.recvproc = read_ranks(golden_get(procs, "recvproc"), &n);
    s.recvnum = golden_read_ints(golden_get(counts, "recvnum"), &n);
    s.sendnum = num ? golden_read_ints(num, &n) : golden_alloc(s.n, sizeof *s.sendnum);
    s.sendlist = golden_alloc(s.n, sizeof *s.sendlist);
    int i = 0;
    cJSON_ArrayForEach(list, lists) {
        s.sendlist[i] = read_rows(list, s.sendnum[i], &n);
        s.sendnum[i] = num ? s.sendnum[i] : n;
        i++;
    }
    return s;
}

void golden_swaps_free(golden_swaps *swaps) {
    for (int s = 0; s < swaps->n; s++) {
        free(swaps->sendlist[s]);
    }
    free(swaps->sendlist);
    free(swaps->sendnum);
    free(swaps->recvnum);
    free(swaps->sendproc);
    free(swaps->recvproc);
}

lierne_halo_spec golden_swaps_spec(const golden_swaps *swaps, golden_type type) {
    return (lierne_halo_spec){.size = sizeof(lierne_halo_spec),
                              .nlocal = swaps->nlocal,
                              .nghost = swaps->nghost,
                              .nswap = swaps->n,
                              .sendproc = swaps->sendproc,
                              .recvproc = swaps->recvproc,
                              .sendnum = swaps->sendnum,
                              .recvnum = swaps->recvnum,
                              .sendlist = (const int64_t *const *)swaps->sendlist,
                              .dtype = type.dtype,
                              .width = type.width,
                              .stride = type.stride};
}

void golden_swaps_expect(golden_case *c, const char *what, const lierne_halo_spec *spec,
                         const golden_swaps *swaps) {
    golden_expect(c, spec->nlocal == swaps->nlocal && spec->nghost == swaps->nghost,
                  "%s: %lld rows and %lld ghosts, expected %lld and %lld", what,
                  (long long)spec->nlocal, (long long)spec->nghost, (long long)swaps->nlocal,
                  (long long)swaps->nghost);
    if (!golden_expect(c, spec->nswap == swaps->n, "%s: %d swaps, expected %d", what, spec->nswap,
                       swaps->n)) {
        return;
    }
    for (int s = 0; s < swaps->n; s++) {
        golden_expect(c,
                      spec->sendproc[s] == swaps->sendproc[s] &&
                          spec->recvproc[s] == swaps->recvproc[s],
                      "%s: swap %d sends to %d and receives from %d, expected %d and %d", what, s,
                      spec->sendproc[s], spec->recvproc[s], swaps->sendproc[s], swaps->recvproc[s]);
        bool same =
            golden_expect(c,
                          spec->sendnum[s] == swaps->sendnum[s] &&
                              spec->recvnum[s] == swaps->recvnum[s],
                          "%s: swap %d sends %lld rows and receives %lld, expected %lld and %lld",
                          what, s, (long long)spec->sendnum[s], (long long)spec->recvnum[s],
                          (long long)swaps->sendnum[s], (long long)swaps->recvnum[s]);
        for (int64_t i = 0; same && i < swaps->sendnum[s]; i++) {
            golden_expect(c, spec->sendlist[s][i] == swaps->sendlist[s][i],
                          "%s: swap %d sends row %lld at place %lld, expected %lld", what, s,
                          (long long)spec->sendlist[s][i], (long long)i,
                          (long long)swaps->sendlist[s][i]);
        }
    }
}

const cJSON *golden_halo_rank(const cJSON *item, int rank) {
    return cJSON_GetArrayItem(golden_get(item, "ranks"), rank);
}

static void read_roots(golden_halo_case *halo, int rank, const cJSON *list) {
    const cJSON *root;
    int64_t k = 0;
    cJSON_ArrayForEach(root, list) {
        bool none = !cJSON_IsArray(root) || k >= halo->forest.nghosts[rank];
        if (k < halo->forest.nghosts[rank]) {
            halo->forest.rank[rank][k] =
                none ? -1 : (int32_t)golden_to_int(cJSON_GetArrayItem(root, 0), -1);
            halo->forest.row[rank][k++] =
                none ? -1 : golden_to_int(cJSON_GetArrayItem(root, 1), -1);
        }
    }
}

/* Phantom rows stand in front of all others. */
static golden_swaps read_plain(const cJSON *rank) {
    golden_swaps s = golden_swaps_read(rank, rank);
    int64_t phantom = golden_int(rank, "phantom", 0);
    s.nlocal -= phantom;
    for (int i = 0; i < s.n; i++) {
        for (int64_t k = 0; k < s.sendnum[i]; k++) {
            s.sendlist[i][k] -= phantom;
        }
    }
    return s;
}

static void read_rank(golden_halo_case *halo, int r, const cJSON *rank) {
    int64_t n;
    const cJSON *before = golden_get(rank, "before_remap");
    halo->swaps[r] = golden_swaps_read(rank, rank);
    halo->plain[r] = read_plain(rank);
    halo->before[r] = before ? golden_swaps_read(rank, before) : read_plain(rank);
    halo->gid[r] = golden_read_ints(golden_get(rank, "gid"), &n);
    halo->gid_before[r] = golden_read_ints(golden_get(before ? before : rank, "gid"), &n);
    int64_t phantom = before ? 0 : golden_int(rank, "phantom", 0);
    memmove(halo->gid_before[r], halo->gid_before[r] + phantom,
            (size_t)(n - phantom) * sizeof **halo->gid_before);
    halo->forest.nowned[r] = halo->swaps[r].nlocal;
    halo->forest.nghosts[r] = halo->swaps[r].nghost;
}

golden_halo_case golden_halo_read(const cJSON *item) {
    int world = (int)golden_int(item, "world", 0);
    golden_halo_case halo = {.world = world,
                             .nswap = (int)golden_int(item, "nswap", -1),
                             .phantom = golden_get(item, "phantom") != NULL,
                             .drops = golden_get(item, "null") != NULL,
                             .inexact = strcmp(golden_string(item, "upstream"), "q") == 0,
                             .swaps = golden_alloc(world, sizeof *halo.swaps),
                             .plain = golden_alloc(world, sizeof *halo.plain),
                             .before = golden_alloc(world, sizeof *halo.before),
                             .gid = golden_alloc(world, sizeof *halo.gid),
                             .gid_before = golden_alloc(world, sizeof *halo.gid_before)};
    halo.forest = golden_forest_new(world);
    for (int r = 0; r < world; r++) {
        read_rank(&halo, r, golden_halo_rank(item, r));
    }
    golden_forest_roots(&halo.forest);
    for (int r = 0; r < world; r++) {
        read_roots(&halo, r, golden_get(golden_halo_rank(item, r), "root"));
    }
    return halo;
}

void golden_halo_free(golden_halo_case *halo) {
    for (int r = 0; r < halo->world; r++) {
        golden_swaps_free(&halo->swaps[r]);
        golden_swaps_free(&halo->plain[r]);
        golden_swaps_free(&halo->before[r]);
        free(halo->gid[r]);
        free(halo->gid_before[r]);
    }
    free(halo->swaps);
    free(halo->plain);
    free(halo->before);
    free(halo->gid);
    free(halo->gid_before);
    golden_forest_free(&halo->forest);
}

static bool narrow(golden_type type) {
    return type.dtype == LIERNE_DTYPE_F16 || type.dtype == LIERNE_DTYPE_BF16;
}

static golden_value *upstream(const golden_halo_case *halo, golden_type type) {
    bool exact = type.dtype == LIERNE_DTYPE_I64 || type.dtype == LIERNE_DTYPE_I32 || !halo->inexact;
    return narrow(type) ? golden_tiny : exact ? golden_h : golden_q;
}

/* An owned row before the forward; without a number it is a phantom. */
static double owned(const golden_halo_case *halo, int rank, int64_t row, int64_t column,
                    golden_type type) {
    int64_t gid = halo->gid[rank][row];
    if (narrow(type)) {
        return gid < 0 ? 77 : golden_tiny(rank, row + 1, column);
    }
    return gid < 0 ? 777 : golden_f(gid, column);
}

static void fill_owned(golden_row_case *row_case, const golden_halo_case *halo, int rank) {
    int64_t width = row_case->type.width;
    for (int64_t i = 0; i < halo->forest.nowned[rank]; i++) {
        double copies = (double)golden_forest_copies(&halo->forest, rank, i);
        for (int64_t c = 0; c < width; c++) {
            row_case->x[i * width + c] = owned(halo, rank, i, c, row_case->type);
            row_case->ffx[i * width + c] =
                copies * row_case->x[i * width + c] + 0.0; /* no negative zero */
        }
    }
}

/* Ghosts of fx, from row `first` of it on; those without a root stay. */
static void fill_ghosts(golden_row_case *row_case, const golden_halo_case *halo, int rank,
                        int64_t first) {
    const golden_forest *f = &halo->forest;
    int64_t width = row_case->type.width;
    for (int64_t k = 0; k < f->nghosts[rank]; k++) {
        for (int64_t c = 0; c < width && f->row[rank][k] >= 0; c++) {
            row_case->fx[(first + k) * width + c] =
                owned(halo, f->rank[rank][k], f->row[rank][k], c, row_case->type);
        }
    }
}

static void fill_extremes(golden_row_case *row_case, const golden_halo_case *halo, int rank,
                          const double *start) {
    golden_value *value = upstream(halo, row_case->type);
    size_t bytes = (size_t)(row_case->nx * row_case->type.width) * sizeof(double);
    memcpy(row_case->most, start, bytes);
    memcpy(row_case->least, start, bytes);
    golden_forest_extreme(&halo->forest, rank, true, row_case->type.width, value, 1,
                          row_case->most);
    golden_forest_extreme(&halo->forest, rank, true, row_case->type.width, value, -1,
                          row_case->least);
}

static void clear_ghosts(const golden_row_case *row_case, int64_t nowned, double *rows) {
    int64_t width = row_case->type.width;
    memset(rows + nowned * width, 0, (size_t)((row_case->nx - nowned) * width) * sizeof *rows);
}

golden_row_case golden_halo_duty(const golden_halo_case *halo, int rank, golden_type type) {
    const golden_forest *f = &halo->forest;
    int64_t nowned = f->nowned[rank], n = nowned + f->nghosts[rank], width = type.width;
    size_t bytes = (size_t)(n * width) * sizeof(double);
    golden_row_case row_case = golden_row_case_new(type, true, n, n);
    fill_owned(&row_case, halo, rank);
    for (int64_t i = 0; i < n * width; i++) {
        row_case.x[i] = i < nowned * width ? row_case.x[i] : narrow(type) ? -99 : -9999;
        row_case.ffx[i] += row_case.x[i];
        row_case.y[i] = upstream(halo, type)(rank, i / width, i % width);
    }
    memcpy(row_case.fx, row_case.x, bytes);
    fill_ghosts(&row_case, halo, rank, nowned);
    memcpy(row_case.fty, row_case.y, bytes);
    golden_forest_sum(f, rank, true, width, upstream(halo, type), row_case.fty);
    fill_extremes(&row_case, halo, rank, row_case.y);
    if (halo->nswap > 0) {
        clear_ghosts(&row_case, nowned, row_case.fty);
        clear_ghosts(&row_case, nowned, row_case.ffx);
        clear_ghosts(&row_case, nowned, row_case.most);
        clear_ghosts(&row_case, nowned, row_case.least);
    }
    return row_case;
}

golden_row_case golden_halo_separate(const golden_halo_case *halo, int rank, golden_type type) {
    const golden_forest *f = &halo->forest;
    int64_t nowned = f->nowned[rank], width = type.width;
    golden_row_case row_case = golden_row_case_new(type, false, nowned, f->nghosts[rank]);
    fill_owned(&row_case, halo, rank);
    fill_ghosts(&row_case, halo, rank, 0);
    for (int64_t i = 0; i < row_case.ny * width; i++) {
        row_case.y[i] = upstream(halo, type)(rank, nowned + i / width, i % width);
    }
    golden_forest_sum(f, rank, true, width, upstream(halo, type), row_case.fty);
    fill_extremes(&row_case, halo, rank, row_case.x);
    return row_case;
}

/* The first ghost that swap s brings to a rank. */
static int64_t first_of(const golden_swaps *swaps, int s) {
    int64_t first = swaps->nlocal;
    for (int t = 0; t < s; t++) {
        first += swaps->recvnum[t];
    }
    return first;
}

/* Row k of the ghosts that a swap brought to one rank is added where the other one sent it from. */
static void take_back(const golden_halo_case *halo, int rank, int s, int64_t width, double **rows) {
    const golden_swaps *own = &halo->swaps[rank], *other = &halo->swaps[own->sendproc[s]];
    const double *ghosts = rows[own->sendproc[s]] + first_of(other, s) * width;
    for (int64_t i = 0; i < own->sendnum[s] * width; i++) {
        rows[rank][own->sendlist[s][i / width] * width + i % width] += ghosts[i];
    }
}

void golden_halo_keep(const golden_halo_case *halo, int rank, golden_row_case *row_case,
                      bool flat) {
    int64_t width = row_case->type.width, nowned = halo->forest.nowned[rank];
    double **rows = golden_alloc(halo->world, sizeof *rows);
    for (int r = 0; r < halo->world; r++) {
        int64_t n = (halo->swaps[r].nlocal + halo->swaps[r].nghost) * width;
        rows[r] = golden_alloc(n, sizeof **rows);
        for (int64_t i = 0; i < n; i++) {
            rows[r][i] = upstream(halo, row_case->type)(r, i / width, i % width);
        }
    }
    for (int s = halo->nswap - 1; s >= 0 && !flat; s--) {
        for (int r = 0; r < halo->world; r++) {
            take_back(halo, r, s, width, rows);
        }
    }
    memcpy(row_case->fty + nowned * width, rows[rank] + nowned * width,
           (size_t)(halo->forest.nghosts[rank] * width) * sizeof **rows);
    for (int r = 0; r < halo->world; r++) {
        free(rows[r]);
    }
    free(rows);
}
