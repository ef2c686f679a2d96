/* The leaders, and which ranks they exchange data with.
 *
 * The ranks of a dp rank that hold the tensor are one group of the grid's enumeration, taken over
 * all dims but dp, gtp_remat and pp. A leader is an end of its group, because the lowest and the
 * highest coordinates are the lowest and the highest rank. With the leaders of both sides in the
 * order of their dp ranks, the peers of a leader are consecutive in the list of the other side: the
 * map needs no table. */
#include "plan/megatron/megatron.h"

#include <stdlib.h>
#include <string.h>

typedef struct side {
    int ndp;
    int *leaders;
    int *members; /* group after group */
    int group_size;
} side;

struct lierne_megatron_leaders {
    side sides[2];
    int *p2p;
    int np2p;
};

static bool is_inside(const char *name) {
    return strcmp(name, "dp") != 0 && strcmp(name, "gtp_remat") != 0 && strcmp(name, "pp") != 0;
}

/* Keeps the groups of the pipeline stage that holds the tensor. */
static lierne_status keep_stage(side *s, const lierne_grid *grid, int ngroups, bool at_source) {
    int coords[LIERNE_MAX_DIMS], pp = lierne_grid_find_dim(grid, "pp");
    int stage = at_source ? lierne_grid_find_dim_size(grid, NULL, "pp") - 1 : 0;
    for (int g = 0; g < ngroups; g++) {
        const int *group = s->members + (size_t)g * (size_t)s->group_size;
        LIERNE_TRY(lierne_grid_get_coords(coords, grid, NULL, group[0]));
        if (pp < 0 || coords[pp] == stage) {
            memmove(s->members + (size_t)s->ndp * (size_t)s->group_size, group,
                    (size_t)s->group_size * sizeof *group);
            s->ndp++;
        }
    }
    return LIERNE_OK;
}

static lierne_status fill_side(side *s, const lierne_grid *grid, bool at_source) {
    const char *inside[LIERNE_MAX_DIMS];
    int n = 0, ngroups;
    for (int d = 0; d < lierne_grid_get_ndims(grid, NULL); d++) {
        const char *name = lierne_grid_get_dim_name(grid, NULL, d);
        if (is_inside(name)) {
            inside[n++] = name;
        }
    }
    LIERNE_TRY(lierne_alloc(&s->members, (size_t)lierne_grid_get_size(grid), sizeof *s->members));
    LIERNE_TRY(lierne_grid_get_groups(s->members, &ngroups, &s->group_size, grid, NULL, inside, n));
    LIERNE_TRY(keep_stage(s, grid, ngroups, at_source));
    LIERNE_TRY(lierne_alloc(&s->leaders, (size_t)s->ndp, sizeof *s->leaders));
    for (int dp = 0; dp < s->ndp; dp++) {
        s->leaders[dp] = s->members[dp * s->group_size + (at_source ? s->group_size - 1 : 0)];
    }
    return LIERNE_OK;
}

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static lierne_status fill_p2p(lierne_megatron_leaders *l) {
    const side *src = &l->sides[LIERNE_MEGATRON_SIDE_SRC],
               *dst = &l->sides[LIERNE_MEGATRON_SIDE_DST];
    size_t n = (size_t)src->ndp + (size_t)dst->ndp;
    LIERNE_TRY(lierne_alloc(&l->p2p, n, sizeof *l->p2p));
    memcpy(l->p2p, src->leaders, (size_t)src->ndp * sizeof *l->p2p);
    memcpy(l->p2p + src->ndp, dst->leaders, (size_t)dst->ndp * sizeof *l->p2p);
    qsort(l->p2p, n, sizeof *l->p2p, ascending);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || l->p2p[i] != l->p2p[l->np2p - 1]) {
            l->p2p[l->np2p++] = l->p2p[i];
        }
    }
    return LIERNE_OK;
}

static lierne_status fill_leaders(lierne_megatron_leaders *l, const lierne_megatron_grids *grids) {
    LIERNE_TRY(lierne_megatron_check_one(grids->src, "LEADER: source", "cp", ""));
    LIERNE_TRY(lierne_megatron_check_one(grids->dst, "LEADER: destination", "cp", ""));
    LIERNE_TRY(fill_side(&l->sides[LIERNE_MEGATRON_SIDE_SRC], grids->src, true));
    LIERNE_TRY(fill_side(&l->sides[LIERNE_MEGATRON_SIDE_DST], grids->dst, false));
    int src = l->sides[LIERNE_MEGATRON_SIDE_SRC].ndp, dst = l->sides[LIERNE_MEGATRON_SIDE_DST].ndp;
    if (src % dst != 0 && dst % src != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INDIVISIBLE,
                           "LEADER: %d dp ranks at the source and %d at the destination: "
                           "neither divides the other",
                           src, dst);
    }
    return fill_p2p(l);
}

lierne_status lierne_megatron_leaders_create(lierne_megatron_leaders **out,
                                             const lierne_bridge_spec *spec) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(out);
    lierne_megatron_grids grids;
    lierne_megatron_leaders *leaders;
    LIERNE_TRY(lierne_check_set(out, "out"));
    LIERNE_TRY(lierne_alloc(&leaders, 1, sizeof *leaders));
    lierne_status status = lierne_megatron_grids_create(&grids, spec);
    if (status == LIERNE_OK) {
        status = fill_leaders(leaders, &grids);
    }
    lierne_megatron_grids_destroy(&grids);
    if (status != LIERNE_OK) {
        lierne_megatron_leaders_destroy(leaders);
        return status;
    }
    *out = leaders;
    return LIERNE_OK;
}

void lierne_megatron_leaders_destroy(lierne_megatron_leaders *leaders) {
    if (leaders) {
        for (int i = 0; i < 2; i++) {
            lierne_mem_free(leaders->sides[i].leaders);
            lierne_mem_free(leaders->sides[i].members);
        }
        lierne_mem_free(leaders->p2p);
        lierne_mem_free(leaders);
    }
}

static lierne_status check_side(const lierne_megatron_leaders *leaders,
                                lierne_megatron_side which) {
    LIERNE_TRY(lierne_check_set(leaders, "leaders"));
    if (which != LIERNE_MEGATRON_SIDE_SRC && which != LIERNE_MEGATRON_SIDE_DST) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "side is %d, must be 0 or 1", (int)which);
    }
    return LIERNE_OK;
}

lierne_status lierne_megatron_leaders_get_ranks(const int **ranks, int *count,
                                                const lierne_megatron_leaders *leaders,
                                                lierne_megatron_side which) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(ranks);
    LIERNE_TRY(check_side(leaders, which));
    LIERNE_TRY(lierne_check_set(ranks, "ranks"));
    LIERNE_TRY(lierne_check_set(count, "count"));
    *ranks = leaders->sides[which].leaders;
    *count = leaders->sides[which].ndp;
    return LIERNE_OK;
}

lierne_status lierne_megatron_leaders_get_groups(const int **ranks, int *ngroups, int *group_size,
                                                 const lierne_megatron_leaders *leaders,
                                                 lierne_megatron_side which) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(ranks);
    LIERNE_TRY(check_side(leaders, which));
    LIERNE_TRY(lierne_check_set(ranks, "ranks"));
    LIERNE_TRY(lierne_check_set(ngroups, "ngroups"));
    LIERNE_TRY(lierne_check_set(group_size, "group_size"));
    *ranks = leaders->sides[which].members;
    *ngroups = leaders->sides[which].ndp;
    *group_size = leaders->sides[which].group_size;
    return LIERNE_OK;
}

lierne_status lierne_megatron_leaders_get_p2p_ranks(const int **ranks, int *count,
                                                    const lierne_megatron_leaders *leaders) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(ranks);
    LIERNE_TRY(lierne_check_set(leaders, "leaders"));
    LIERNE_TRY(lierne_check_set(ranks, "ranks"));
    LIERNE_TRY(lierne_check_set(count, "count"));
    *ranks = leaders->p2p;
    *count = leaders->np2p;
    return LIERNE_OK;
}

/* The leaders of the other side that a rank talks to as a leader of this one. */
static void find_peers(const side *own, const side *other, int rank, const int **peers, int *n) {
    *peers = NULL;
    *n = 0;
    for (int dp = 0; dp < own->ndp; dp++) {
        if (own->leaders[dp] == rank) {
            bool many = other->ndp >= own->ndp;
            *n = many ? other->ndp / own->ndp : 1;
            *peers = other->leaders + (many ? dp * *n : dp / (own->ndp / other->ndp));
        }
    }
}

lierne_status lierne_megatron_leaders_get_peers(const int **send_to, int *nsends,
                                                const int **recv_from, int *nrecvs,
                                                const lierne_megatron_leaders *leaders, int rank) {
    LIERNE_PUBLIC_CALL();
    LIERNE_NULL_OUTPUT(send_to);
    LIERNE_NULL_OUTPUT(recv_from);
    LIERNE_TRY(lierne_check_set(leaders, "leaders"));
    LIERNE_TRY(lierne_check_set(send_to, "send_to"));
    LIERNE_TRY(lierne_check_set(nsends, "nsends"));
    LIERNE_TRY(lierne_check_set(recv_from, "recv_from"));
    LIERNE_TRY(lierne_check_set(nrecvs, "nrecvs"));
    const side *src = &leaders->sides[LIERNE_MEGATRON_SIDE_SRC],
               *dst = &leaders->sides[LIERNE_MEGATRON_SIDE_DST];
    find_peers(src, dst, rank, send_to, nsends);
    find_peers(dst, src, rank, recv_from, nrecvs);
    return LIERNE_OK;
}
