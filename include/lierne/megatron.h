/* Megatron-LM's algorithms for a bridge, its mapping of ranks and its groups: for those who migrate
 * from Megatron-LM or compare with it. The algorithms plan the bridge that lierne/bridge.h
 * describes and give the same bits (up to the sign of zero) as lierne_plan_create_bridge, which
 * serves any two grids with the fewest bytes.
 *
 * COLLECTIVE is for two grids on the same ranks (Megatron-LM#4368; destination cp > 1 as in #7435).
 * Forward: fan-in gathers the samples of several source ranks, fan-out narrows to a part of the
 * rank's own samples. Adjoint: gradients are summed over cp, then fan-in narrows and fan-out
 * gathers.
 *
 * LEADER is for disjoint grids. One rank of each dp rank, its leader, sends to the leaders of the
 * other side that need its samples, and these broadcast over a binomial tree.
 *
 * Fan-in: the source has more dp ranks; fan-out: the destination has; equal: neither. One dp size
 * divides the other here. The dp ratio is their quotient. */
#ifndef LIERNE_MEGATRON_H
#define LIERNE_MEGATRON_H

#include "lierne/bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lierne_megatron_algorithm {
    LIERNE_MEGATRON_ALGORITHM_COLLECTIVE = 1,
    LIERNE_MEGATRON_ALGORITHM_LEADER = 2
} lierne_megatron_algorithm;

/* A bridge to plan by an algorithm of Megatron-LM. First set size to sizeof(lierne_megatron_spec)
 * and the rest to zero. `routing` of the bridge is not read: the algorithm decides who sends,
 * and max_peers must be 0. */
typedef struct lierne_megatron_spec {
    size_t size;
    lierne_megatron_algorithm algorithm;
    const lierne_bridge_spec *bridge;
} lierne_megatron_spec;

/* Plans a bridge by one of the algorithms. Collective over the context: every rank calls with the
 * same spec. If any rank fails, every rank gets the same error, no plan exists, and *out is NULL.
 * The spec and what it points to may be freed after the call. The plan is used through
 * lierne/plan.h. Thread safety: a context serves one thread at a time.
 * Errors: as lierne_plan_create_bridge, and INVALID (spec->size, algorithm); UNSUPPORTED (both: an
 * owned gradient, counts, placements, variable_rows, shared_output; COLLECTIVE: grids of different
 * ranks, pp > 1, source cp > 1, a dim other than tp, cp, pp and dp that is larger than 1; LEADER:
 * grids with ranks in common, cp > 1 on either side, gtp_remat > 1, which a view can join with dp);
 * INDIVISIBLE (neither dp size divides the other; the batch by the larger one); MISALIGNED
 * (COLLECTIVE: ranks whose dp ranks on the two sides have no samples in common; the message lists
 * them). */
LIERNE_API lierne_status lierne_plan_create_megatron(lierne_plan **out, lierne_context *context,
                                                     const lierne_megatron_spec *spec);

/* Makes all checks of lierne_plan_create_megatron that need no context. Pure, not collective.
 * Errors: as lierne_plan_create_megatron. */
LIERNE_API lierne_status lierne_megatron_check(const lierne_megatron_spec *spec);

/* What a pair of grids means for Megatron-LM's colocated bridge, without a context: pure, not
 * collective. */
typedef enum lierne_megatron_kind {
    LIERNE_MEGATRON_GENERAL = 0, /* Megatron-LM rejects this pair */
    LIERNE_MEGATRON_FAN_IN = 1,
    LIERNE_MEGATRON_FAN_OUT = 2,
    LIERNE_MEGATRON_EQUAL = 3
} lierne_megatron_kind;

typedef struct lierne_megatron_map lierne_megatron_map;
/* Reads the grids and views of spec only; the tensor need not be filled in. *out is NULL on
 * failure; free it with lierne_megatron_map_destroy. It keeps nothing of spec. Costs memory in
 * proportion to the ranks. A map is never changed: many threads may read it at once.
 * Errors: INVALID (out is NULL), and as lierne_bridge_check_grids. */
LIERNE_API lierne_status lierne_megatron_map_create(lierne_megatron_map **out,
                                                    const lierne_bridge_spec *spec);
/* Frees a map. NULL is allowed. */
LIERNE_API void lierne_megatron_map_destroy(lierne_megatron_map *map);
/* GENERAL for NULL. */
LIERNE_API lierne_megatron_kind lierne_megatron_map_get_kind(const lierne_megatron_map *map);
/* "general", "fan_in", "fan_out", "equal". */
LIERNE_API const char *lierne_megatron_kind_name(lierne_megatron_kind kind);
/* The dp ratio: 1 for equal dp sizes, 0 where neither divides the other; -1 for NULL. */
LIERNE_API int lierne_megatron_map_get_dp_ratio(const lierne_megatron_map *map);
/* Why Megatron-LM (with destination cp > 1) rejects the pair, the first reason in the order of its
 * checks. The numbers are part of the ABI. */
typedef enum lierne_megatron_rejection {
    LIERNE_MEGATRON_REJECTION_ACCEPTED = 0,
    LIERNE_MEGATRON_REJECTION_GRID_SIZES = 1,    /* the grids have different numbers of ranks */
    LIERNE_MEGATRON_REJECTION_RANK_OFFSETS = 2,  /* they begin at different ranks */
    LIERNE_MEGATRON_REJECTION_SRC_PP = 3,        /* pp of the source is not 1 */
    LIERNE_MEGATRON_REJECTION_DST_PP = 4,        /* pp of the destination is not 1 */
    LIERNE_MEGATRON_REJECTION_SRC_CP = 5,        /* cp of the source is not 1 */
    LIERNE_MEGATRON_REJECTION_CP_AFTER_DP = 6,   /* cp varies slower than dp in the destination */
    LIERNE_MEGATRON_REJECTION_DP_INDIVISIBLE = 7 /* neither dp size divides the other */
} lierne_megatron_rejection;

/* The reason as a number, ACCEPTED for NULL; and as one line of text with the values, "" if
 * Megatron-LM accepts the pair, and for NULL. The map owns the text. */
LIERNE_API lierne_megatron_rejection
lierne_megatron_map_get_rejection_code(const lierne_megatron_map *map);
LIERNE_API const char *lierne_megatron_map_get_rejection(const lierne_megatron_map *map);

/* Gather groups in Megatron-LM's order (fan-in: by destination dp, source tp; fan-out: by source
 * dp, destination tp, cp; none for equal and general), and cp groups of the destination (none for
 * cp 1). Dims other than tp, dp and cp are replicas with gather groups of their own, innermost.
 * Writes the number of groups and their size; *ranks belongs to the map, group after group, NULL if
 * there is none. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_megatron_map_get_gather_groups(const int **ranks, int *ngroups,
                                                               int *group_size,
                                                               const lierne_megatron_map *map);
LIERNE_API lierne_status lierne_megatron_map_get_cp_groups(const int **ranks, int *ngroups,
                                                           int *group_size,
                                                           const lierne_megatron_map *map);

/* The slice that a rank of the source grid keeps of the samples of one dp rank on the side with the
 * smaller dp: fan-in of the destination's, fan-out of the source's; equal: all of them. batch is
 * the number of samples of that dp rank; start and size count samples. Errors: INVALID (NULL, rank
 * outside the grid, kind general, batch negative); INDIVISIBLE (batch by the dp ratio; the message
 * names batch, kind and dp ratio). */
LIERNE_API lierne_status lierne_megatron_map_get_slice(int64_t *start, int64_t *size,
                                                       const lierne_megatron_map *map, int rank,
                                                       int64_t batch);

/* Ranks whose dp ranks on the two sides have no samples in common (Megatron-LM gives them the
 * samples of another dp rank), ascending, owned by the map, NULL if there is none. Known also for
 * pairs that Megatron-LM rejects, where both grids have the same ranks and one dp size divides the
 * other; none otherwise. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_megatron_map_get_misaligned(const int **ranks, int *count,
                                                            const lierne_megatron_map *map);

/* Which ranks communicate under LEADER, without a context: pure, not collective. Megatron-LM counts
 * gtp_remat as part of dp, and so do leaders: here a dp rank is one combination of the coordinates
 * of dp and gtp_remat, and dp ranks are in the order of their first ranks. The group of a dp rank
 * are its ranks on the pipeline stage that holds the tensor (the last of pp at the source, the
 * first at the destination), ascending. Its leader is the last of them at the source, the first at
 * the destination. Any dim other than dp, gtp_remat and pp is inside a group. The grids may have
 * ranks in common, as in Megatron-LM; LIERNE_MEGATRON_ALGORITHM_LEADER rejects that. */
typedef enum lierne_megatron_side {
    LIERNE_MEGATRON_SIDE_SRC = 0,
    LIERNE_MEGATRON_SIDE_DST = 1
} lierne_megatron_side;
typedef struct lierne_megatron_leaders lierne_megatron_leaders;
/* Reads the grids and views of spec only. *out is NULL on failure; free it with
 * lierne_megatron_leaders_destroy. It keeps nothing of spec. Costs memory in proportion to the
 * ranks. Leaders are never changed: many threads may read them at once. Errors: as
 * lierne_megatron_map_create; UNSUPPORTED (cp of either grid is not 1); INDIVISIBLE (neither number
 * of dp ranks divides the other; the message names both). */
LIERNE_API lierne_status lierne_megatron_leaders_create(lierne_megatron_leaders **out,
                                                        const lierne_bridge_spec *spec);
/* Frees leaders. NULL is allowed. */
LIERNE_API void lierne_megatron_leaders_destroy(lierne_megatron_leaders *leaders);

/* The leaders of a side, one per dp rank; the groups in which they broadcast, one per dp rank; and
 * the leaders of both sides, ascending, each once: the ranks that communicate with the other grid.
 * Arrays are owned by leaders. Errors: INVALID (NULL, side). */
LIERNE_API lierne_status lierne_megatron_leaders_get_ranks(const int **ranks, int *count,
                                                           const lierne_megatron_leaders *leaders,
                                                           lierne_megatron_side side);
LIERNE_API lierne_status lierne_megatron_leaders_get_groups(const int **ranks, int *ngroups,
                                                            int *group_size,
                                                            const lierne_megatron_leaders *leaders,
                                                            lierne_megatron_side side);
LIERNE_API lierne_status lierne_megatron_leaders_get_p2p_ranks(
    const int **ranks, int *count, const lierne_megatron_leaders *leaders);

/* The ranks that a rank sends to and receives from in the forward direction, in the order of their
 * dp ranks; the adjoint has them the other way round. Only a source leader sends and only a
 * destination leader receives; any other rank, also one outside both grids, has neither. Arrays are
 * owned by leaders, NULL where empty. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_megatron_leaders_get_peers(const int **send_to, int *nsends,
                                                           const int **recv_from, int *nrecvs,
                                                           const lierne_megatron_leaders *leaders,
                                                           int rank);

#ifdef __cplusplus
}
#endif
#endif
