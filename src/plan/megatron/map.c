/* What a pair of grids means for Megatron-LM: kind, dp ratio, gather groups, misaligned ranks.
 *
 * Every coordinate comes from the grids' mixed radix. Megatron-LM numbers tp groups in the order of
 * their enumeration instead and takes the number for the dp coordinate, which is right only while
 * tp and dp are the only dims larger than 1; here any further dim is one more kind of replica, and
 * gets gather groups of its own. For the pairs that Megatron-LM maps correctly the order of groups
 * is the same: the dims that make no difference there have size 1. */
#include "plan/megatron/megatron.h"

/* The dims of a grid that a bridge knows; -1 where the grid has none of that name. */
typedef struct dims {
    int tp;
    int dp;
    int cp;
} dims;

/* Where a rank is in its grid. rest numbers the coordinates of all further dims. */
typedef struct position {
    int tp;
    int dp;
    int cp;
    int rest;
} position;

struct lierne_megatron_map {
    lierne_megatron_kind kind;
    int dp_ratio;
    int offset;
    int nranks;  /* of the source grid */
    int *shares; /* per rank of the source grid, from its first; NULL for kind general */
    int *gather;
    int ngather;
    int *cp;
    int ncp;
    int cp_size;
    int *misaligned;
    int nmisaligned;
    lierne_megatron_rejection code;
    char rejection[LIERNE_MEGATRON_REJECTION];
};

static dims dims_of(const lierne_grid *grid) {
    return (dims){lierne_grid_find_dim(grid, "tp"), lierne_grid_find_dim(grid, "dp"),
                  lierne_grid_find_dim(grid, "cp")};
}

static position position_of(const lierne_grid *grid, const dims *at, int rank) {
    int coords[LIERNE_MAX_DIMS] = {0};
    position p = {0};
    int stride = 1;
    lierne_grid_get_coords(coords, grid, NULL, rank);
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        if (d != at->tp && d != at->dp && d != at->cp) {
            p.rest += coords[d] * stride;
            stride *= lierne_grid_get_dim_size(grid, NULL, d);
        }
    }
    p.tp = coords[at->tp];
    p.dp = coords[at->dp];
    p.cp = at->cp < 0 ? 0 : coords[at->cp];
    return p;
}

static int ratio_of(int src_dp, int dst_dp) {
    int wide = src_dp > dst_dp ? src_dp : dst_dp, narrow = src_dp > dst_dp ? dst_dp : src_dp;
    return wide % narrow == 0 ? wide / narrow : 0;
}

/* Gather groups are groups of the grid with the larger dp: ranks that differ in their share only,
 * ordered by dp rank of the other side, tp, cp, and any other dims. */
static lierne_status map_gather(lierne_megatron_map *map, const lierne_grid *many) {
    const dims at = dims_of(many);
    int tp = lierne_grid_find_dim_size(many, NULL, "tp"),
        cp = lierne_grid_find_dim_size(many, NULL, "cp"), n = lierne_grid_get_size(many);
    int rest = n / (tp * cp * lierne_grid_find_dim_size(many, NULL, "dp"));
    LIERNE_TRY(lierne_alloc(&map->gather, (size_t)n, sizeof *map->gather));
    map->ngather = n / map->dp_ratio;
    for (int i = 0; i < n; i++) {
        position p = position_of(many, &at, map->offset + i);
        int group = ((p.dp / map->dp_ratio * tp + p.tp) * cp + p.cp) * rest + p.rest;
        map->gather[group * map->dp_ratio + p.dp % map->dp_ratio] = map->offset + i;
    }
    return LIERNE_OK;
}

static lierne_status map_shares(lierne_megatron_map *map, const lierne_grid *many) {
    const dims at = dims_of(many);
    LIERNE_TRY(lierne_alloc(&map->shares, (size_t)map->nranks, sizeof *map->shares));
    for (int i = 0; i < map->nranks; i++) {
        map->shares[i] = position_of(many, &at, map->offset + i).dp % map->dp_ratio;
    }
    return LIERNE_OK;
}

/* All ranks whose dp ranks on the two sides have no samples in common. */
static lierne_status map_misaligned(lierne_megatron_map *map, const lierne_megatron_grids *grids) {
    map->nmisaligned = lierne_megatron_misaligned(grids, NULL, 0);
    LIERNE_TRY(lierne_alloc(&map->misaligned, (size_t)map->nmisaligned, sizeof *map->misaligned));
    lierne_megatron_misaligned(grids, map->misaligned, map->nmisaligned);
    return LIERNE_OK;
}

static lierne_status map_cp(lierne_megatron_map *map, const lierne_grid *dst) {
    static const char *const names[] = {"cp"};
    if (lierne_grid_find_dim_size(dst, NULL, "cp") == 1) {
        return LIERNE_OK;
    }
    LIERNE_TRY(lierne_alloc(&map->cp, (size_t)lierne_grid_get_size(dst), sizeof *map->cp));
    return lierne_grid_get_groups(map->cp, &map->ncp, &map->cp_size, dst, NULL, names, 1);
}

static lierne_status fill_map(lierne_megatron_map *map, const lierne_megatron_grids *grids) {
    int src_dp = lierne_grid_find_dim_size(grids->src, NULL, "dp"),
        dst_dp = lierne_grid_find_dim_size(grids->dst, NULL, "dp");
    const lierne_grid *many = src_dp > dst_dp ? grids->src : grids->dst;
    map->dp_ratio = ratio_of(src_dp, dst_dp);
    map->offset = lierne_grid_get_rank_offset(grids->src);
    map->nranks = lierne_grid_get_size(grids->src);
    map->code = lierne_megatron_reject(grids, map->rejection, sizeof map->rejection);
    LIERNE_TRY(map_cp(map, grids->dst));
    LIERNE_TRY(map_misaligned(map, grids));
    if (map->code != LIERNE_MEGATRON_REJECTION_ACCEPTED) {
        return LIERNE_OK;
    }
    map->kind = src_dp > dst_dp   ? LIERNE_MEGATRON_FAN_IN
                : src_dp < dst_dp ? LIERNE_MEGATRON_FAN_OUT
                                  : LIERNE_MEGATRON_EQUAL;
    LIERNE_TRY(map_shares(map, many));
    return map->kind == LIERNE_MEGATRON_EQUAL ? LIERNE_OK : map_gather(map, many);
}

lierne_status lierne_megatron_map_create(lierne_megatron_map **out,
                                         const lierne_bridge_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_megatron_grids grids;
    lierne_megatron_map *map;
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(lierne_alloc(&map, 1, sizeof *map));
    lierne_status status = lierne_megatron_grids_create(&grids, spec);
    if (status == LIERNE_OK) {
        status = fill_map(map, &grids);
    }
    lierne_megatron_grids_destroy(&grids);
    if (status != LIERNE_OK) {
        lierne_megatron_map_destroy(map);
        return status;
    }
    *out = map;
    return LIERNE_OK;
}

void lierne_megatron_map_destroy(lierne_megatron_map *map) {
    if (map) {
        lierne_mem_free(map->shares);
        lierne_mem_free(map->gather);
        lierne_mem_free(map->cp);
        lierne_mem_free(map->misaligned);
        lierne_mem_free(map);
    }
}

lierne_megatron_kind lierne_megatron_map_get_kind(const lierne_megatron_map *map) {
    return map ? map->kind : LIERNE_MEGATRON_GENERAL;
}

const char *lierne_megatron_kind_name(lierne_megatron_kind kind) {
    switch (kind) {
    case LIERNE_MEGATRON_FAN_IN:
        return "fan_in";
    case LIERNE_MEGATRON_FAN_OUT:
        return "fan_out";
    case LIERNE_MEGATRON_EQUAL:
        return "equal";
    default:
        return "general";
    }
}

int lierne_megatron_map_get_dp_ratio(const lierne_megatron_map *map) {
    return map ? map->dp_ratio : -1;
}

lierne_megatron_rejection lierne_megatron_map_get_rejection_code(const lierne_megatron_map *map) {
    return map ? map->code : LIERNE_MEGATRON_REJECTION_ACCEPTED;
}

const char *lierne_megatron_map_get_rejection(const lierne_megatron_map *map) {
    return map ? map->rejection : "";
}

static lierne_status give_groups(int *from, int count, int size, const int **ranks, int *ngroups,
                                 int *group_size) {
    if (!ranks || !ngroups || !group_size) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL",
                           !ranks     ? "ranks"
                           : !ngroups ? "ngroups"
                                      : "group_size");
    }
    *ranks = from;
    *ngroups = count;
    *group_size = from ? size : 0;
    return LIERNE_OK;
}

lierne_status lierne_megatron_map_get_gather_groups(const int **ranks, int *ngroups,
                                                    int *group_size,
                                                    const lierne_megatron_map *map) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(ranks);
    LIERNE_TRY(lierne_check_set(map, "map"));
    return give_groups(map->gather, map->ngather, map->dp_ratio, ranks, ngroups, group_size);
}

lierne_status lierne_megatron_map_get_cp_groups(const int **ranks, int *ngroups, int *group_size,
                                                const lierne_megatron_map *map) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(ranks);
    LIERNE_TRY(lierne_check_set(map, "map"));
    return give_groups(map->cp, map->ncp, map->cp_size, ranks, ngroups, group_size);
}

lierne_status lierne_megatron_map_get_slice(int64_t *start, int64_t *size,
                                            const lierne_megatron_map *map, int rank,
                                            int64_t batch) {
    LIERNE_PUBLIC_CALL();
    LIERNE_TRY(lierne_check_set(map, "map"));
    LIERNE_TRY(lierne_check_set(start, "start"));
    LIERNE_TRY(lierne_check_set(size, "size"));
    if (!map->shares) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "Megatron-LM rejects the pair, so it has no slices: %s", map->rejection);
    }
    if (rank < map->offset || rank - map->offset >= map->nranks || batch < 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "rank is %d, must be %d to %d; batch is %lld, must be at least 0", rank,
                           map->offset, map->offset + map->nranks - 1, (long long)batch);
    }
    if (batch % map->dp_ratio != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "a batch of %lld is not divisible by the %s dp ratio %d",
                           (long long)batch, lierne_megatron_kind_name(map->kind), map->dp_ratio);
    }
    *size = batch / map->dp_ratio;
    *start = *size * map->shares[rank - map->offset];
    return LIERNE_OK;
}

lierne_status lierne_megatron_map_get_misaligned(const int **ranks, int *count,
                                                 const lierne_megatron_map *map) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(ranks);
    LIERNE_TRY(lierne_check_set(map, "map"));
    LIERNE_TRY(lierne_check_set(ranks, "ranks"));
    LIERNE_TRY(lierne_check_set(count, "count"));
    *ranks = map->nmisaligned ? map->misaligned : NULL;
    *count = map->nmisaligned;
    return LIERNE_OK;
}
