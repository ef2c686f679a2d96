/* What DTensor's placements mean, written from torch's definition and not from lierne: chunks of
 * ceil(size / n), the mesh dims from left to right; a strided shard cuts into split_factor chunks,
 * cuts each of them among its ranks, and a rank has its part of every chunk. */
#include "dtensor.h"

#include <stdlib.h>
#include <string.h>

static bool read_shard(golden_case *c, const golden_dtensor *t, const cJSON *item,
                       golden_shard *shard) {
    const cJSON *plain = golden_get(item, "shard"), *strided = golden_get(item, "strided_shard");
    const char *word = cJSON_GetStringValue(item);
    *shard = (golden_shard){.axis = -1};
    if (word && strcmp(word, "replicate") == 0) {
        return true;
    }
    shard->axis = (int)golden_to_int(plain ? plain : strided, -1);
    shard->factor = strided ? golden_int(item, "split_factor", 0) : 0;
    return golden_expect(c,
                         !plain != !strided && shard->axis >= 0 && shard->axis < t->naxes &&
                             (!strided || shard->factor > 0),
                         "the runner does not know a placement of this case");
}

bool golden_dtensor_read(golden_case *c, golden_dtensor *t, const cJSON *shape, const cJSON *side) {
    const cJSON *mesh = golden_get(side, "mesh"), *placements = golden_get(side, "placements");
    *t = (golden_dtensor){.naxes = cJSON_GetArraySize(shape),
                          .ndims = cJSON_GetArraySize(mesh),
                          .offset = (int)golden_int(side, "rank_offset", 0),
                          .nranks = 1};
    if (!golden_expect(c,
                       t->naxes > 0 && t->naxes <= LIERNE_MAX_AXES && t->ndims > 0 &&
                           t->ndims <= GOLDEN_MAX_DIMS &&
                           t->ndims == cJSON_GetArraySize(placements),
                       "%d axes, %d mesh dims, %d placements", t->naxes, t->ndims,
                       cJSON_GetArraySize(placements))) {
        return false;
    }
    for (int a = 0; a < t->naxes; a++) {
        t->shape[a] = golden_to_int(cJSON_GetArrayItem(shape, a), -1);
    }
    for (int d = 0; d < t->ndims; d++) {
        t->mesh[d] = golden_to_int(cJSON_GetArrayItem(mesh, d), 0);
        t->nranks *= (int)t->mesh[d];
        if (!read_shard(c, t, cJSON_GetArrayItem(placements, d), &t->shards[d])) {
            return false;
        }
    }
    return golden_expect(c, t->nranks > 0, "a mesh without ranks");
}

/* Appends the c-th of n chunks of at[0..size) to out. */
static void append_chunk(golden_indices *out, const int64_t *at, int64_t size, int64_t n,
                         int64_t c) {
    int64_t chunk = (size + n - 1) / n;
    for (int64_t i = c * chunk; i < size && i < (c + 1) * chunk; i++) {
        out->at[out->n++] = at[i];
    }
}

/* Keeps a coordinate's share of the indices. factor 0: one range. */
static void keep_shard(golden_indices *indices, int64_t factor, int64_t n, int64_t coord) {
    golden_indices out = {.at = golden_alloc(indices->n, sizeof *out.at)};
    int64_t parts = factor > 0 ? factor : 1, part = (indices->n + parts - 1) / parts;
    for (int64_t p = 0; p < parts && p * part < indices->n; p++) {
        int64_t left = indices->n - p * part;
        append_chunk(&out, indices->at + p * part, left < part ? left : part, n, coord);
    }
    free(indices->at);
    *indices = out;
}

static int64_t coord_of(const golden_dtensor *t, int rank, int dim) {
    int64_t faster = 1;
    for (int d = dim + 1; d < t->ndims; d++) {
        faster *= t->mesh[d];
    }
    return rank / faster % t->mesh[dim];
}

static golden_indices whole_axis(const golden_dtensor *t, int axis) {
    golden_indices all = {.n = t->shape[axis], .at = golden_alloc(t->shape[axis], sizeof *all.at)};
    for (int64_t i = 0; i < all.n; i++) {
        all.at[i] = i;
    }
    return all;
}

void golden_dtensor_parts(const golden_dtensor *t, int rank, golden_indices *parts) {
    for (int a = 0; a < t->naxes; a++) {
        parts[a] = whole_axis(t, a);
        for (int d = 0; d < t->ndims; d++) {
            if (t->shards[d].axis == a) {
                keep_shard(&parts[a], t->shards[d].factor, t->mesh[d], coord_of(t, rank, d));
            }
        }
    }
}

/* The same with plain chunks, those of strided shards last. */
static void nested_parts(const golden_dtensor *t, int rank, golden_indices *parts) {
    for (int a = 0; a < t->naxes; a++) {
        parts[a] = whole_axis(t, a);
        for (int i = 0; i < 2 * t->ndims; i++) {
            int d = i % t->ndims;
            bool strided = t->shards[d].factor > 0;
            if (t->shards[d].axis == a && strided == (i >= t->ndims)) {
                keep_shard(&parts[a], 0, t->mesh[d], coord_of(t, rank, d));
            }
        }
    }
}

void golden_indices_free(golden_indices *parts, int naxes) {
    for (int a = 0; a < naxes; a++) {
        free(parts[a].at);
    }
}

static bool same_indices(const golden_indices *a, const golden_indices *b, int naxes) {
    for (int i = 0; i < naxes; i++) {
        if (a[i].n != b[i].n || memcmp(a[i].at, b[i].at, (size_t)a[i].n * sizeof *a[i].at) != 0) {
            return false;
        }
    }
    return true;
}

bool golden_dtensor_is_nested(const golden_dtensor *t) {
    bool nested = true;
    for (int r = 0; r < t->nranks && nested; r++) {
        golden_indices torch[LIERNE_MAX_AXES], cuts[LIERNE_MAX_AXES];
        golden_dtensor_parts(t, r, torch);
        nested_parts(t, r, cuts);
        nested = same_indices(torch, cuts, t->naxes);
        golden_indices_free(torch, t->naxes);
        golden_indices_free(cuts, t->naxes);
    }
    return nested;
}

int64_t *golden_dtensor_numbers(const golden_dtensor *t, const golden_indices *parts, int64_t *n) {
    *n = 1;
    for (int a = 0; a < t->naxes; a++) {
        *n *= parts[a].n;
    }
    int64_t *numbers = golden_alloc(*n, sizeof *numbers);
    for (int64_t i = 0; i < *n; i++) {
        int64_t rest = i, below = 1;
        for (int a = t->naxes - 1; a >= 0; a--) {
            numbers[i] += parts[a].at[rest % parts[a].n] * below;
            rest /= parts[a].n;
            below *= t->shape[a];
        }
    }
    return numbers;
}

/* Where a rank holds nothing the file lists no indices. */
static void expect_rank(golden_case *c, const golden_dtensor *t, const cJSON *expect, int rank) {
    golden_indices parts[LIERNE_MAX_AXES];
    const cJSON *axes = golden_get(expect, "axes");
    int64_t shape[LIERNE_MAX_AXES], n = 1;
    golden_dtensor_parts(t, rank, parts);
    for (int a = 0; a < t->naxes; a++) {
        shape[a] = parts[a].n;
        n *= parts[a].n;
    }
    golden_expect(c, golden_same_ints(golden_get(expect, "shape"), shape, t->naxes),
                  "shape of rank %d is not torch's definition", rank);
    golden_expect(c, cJSON_GetArraySize(axes) == (n > 0 ? t->naxes : 0), "axes of rank %d", rank);
    for (int a = 0; n > 0 && a < t->naxes; a++) {
        golden_expect(c, golden_same_ints(cJSON_GetArrayItem(axes, a), parts[a].at, parts[a].n),
                      "axis %d of rank %d is not torch's definition", a, rank);
    }
    golden_indices_free(parts, t->naxes);
}

void golden_dtensor_expect(golden_case *c, const golden_dtensor *t, const cJSON *expect) {
    golden_expect(c, cJSON_GetArraySize(expect) == t->nranks,
                  "%d ranks are listed, the mesh has %d", cJSON_GetArraySize(expect), t->nranks);
    for (int r = 0; r < t->nranks; r++) {
        expect_rank(c, t, cJSON_GetArrayItem(expect, r), r);
    }
}
