/* Megatron-LM's own algorithms for a bridge, its mapping and its groups: for those who migrate from
 * Megatron-LM, and as a check of lierne_plan_create_bridge, which gives the same bits (up to the
 * sign of zero) with at most as many bytes and for any two grids. */
#ifndef LIERNE_MEGATRON_H
#define LIERNE_MEGATRON_H

#include "lierne/bridge.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lierne_megatron_algorithm {
    LIERNE_MEGATRON_COLLECTIVE = 1,
    LIERNE_MEGATRON_LEADER = 2
} lierne_megatron_algorithm;

typedef struct lierne_megatron_spec {
    size_t size;
    lierne_megatron_algorithm algorithm;
    const lierne_bridge_spec *bridge;
} lierne_megatron_spec;

LIERNE_API lierne_status lierne_plan_create_megatron(lierne_plan **out, lierne_context *context,
                                                     const lierne_megatron_spec *spec);

LIERNE_API lierne_status lierne_megatron_check(const lierne_megatron_spec *spec);

/* What a pair of grids means for a bridge, without a context: pure, not collective. The mapping is
 * that of Megatron-LM where Megatron-LM accepts the pair. */
typedef enum lierne_megatron_kind {
    LIERNE_MEGATRON_GENERAL = 0, /* Megatron-LM would refuse this pair */
    LIERNE_MEGATRON_FAN_IN = 1,
    LIERNE_MEGATRON_FAN_OUT = 2,
    LIERNE_MEGATRON_EQUAL = 3
} lierne_megatron_kind;

typedef struct lierne_megatron_map lierne_megatron_map;
/* Looks at the grids of spec only; the tensor need not be filled in. Free with
 * lierne_megatron_map_destroy; it keeps nothing of spec. Costs memory in proportion to the ranks.
 * Errors: INVALID (NULL, spec->size; a missing dim, looked for as source tp, source dp, destination
 * tp, destination dp; grids of different worlds), NO_MEMORY. */
LIERNE_API lierne_status lierne_megatron_map_create(lierne_megatron_map **out,
                                                    const lierne_bridge_spec *spec);
LIERNE_API void lierne_megatron_map_destroy(lierne_megatron_map *map);
LIERNE_API lierne_megatron_kind lierne_megatron_map_get_kind(const lierne_megatron_map *map);
/* "general", "fan_in", "fan_out", "equal". */
LIERNE_API const char *lierne_megatron_kind_name(lierne_megatron_kind kind);
/* Ratio of the data parallel sizes; 1 for equal, 0 where they do not divide; -1 for NULL. */
LIERNE_API int lierne_megatron_map_get_dp_ratio(const lierne_megatron_map *map);
/* Why Megatron-LM (with destination cp > 1) refuses the pair, the first fault in the order of its
 * checks; "" if it accepts it. Owned by the map. */
LIERNE_API const char *lierne_megatron_map_get_rejection(const lierne_megatron_map *map);

/* Gather groups in Megatron-LM's order (fan-in: by destination dp, source tp; fan-out: by source
 * dp, destination tp, cp; none for equal and general) and cp groups of the destination (none for
 * cp 1). Dims other than tp, dp and cp are replicas, with gather groups of their own, innermost.
 * Writes the number of groups and their size; *ranks is the map's, group after group, NULL if there
 * is none. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_megatron_map_get_gather_groups(const int **ranks, int *ngroups,
                                                               int *group_size,
                                                               const lierne_megatron_map *map);
LIERNE_API lierne_status lierne_megatron_map_get_cp_groups(const int **ranks, int *ngroups,
                                                           int *group_size,
                                                           const lierne_megatron_map *map);

/* The slice of the wider lane's batch that a rank of the source grid keeps: fan-in of the
 * destination lane's, fan-out of the source lane's, equal the whole. batch is the wider lane's
 * number of samples. Errors: INVALID (NULL, rank outside the grid, kind general, batch negative);
 * INDIVISIBLE (batch by the scale; the message names batch, direction and scale). */
LIERNE_API lierne_status lierne_megatron_map_get_slice(int64_t *start, int64_t *size,
                                                       const lierne_megatron_map *map, int rank,
                                                       int64_t batch);

/* Ranks on which the data lanes do not line up (Megatron-LM delivers another lane's samples there),
 * ascending, owned by the map, NULL if there is none. Known also for pairs that Megatron-LM
 * refuses, where the spans are equal and the dp sizes divide; none otherwise. Errors: INVALID
 * (NULL). */
LIERNE_API lierne_status lierne_megatron_map_get_misaligned(const int **ranks, int *count,
                                                            const lierne_megatron_map *map);

/* Who talks to whom under LEADER, without a context: pure, not collective. A lane is one
 * combination of the coordinates of dp and gtp_remat; lanes are in the order of their first ranks.
 * A lane's group are its ranks on the stage that holds the tensor (the last of pp at the source,
 * the first at the destination), ascending; its leader is the last of them at the source, the first
 * at the destination. These are Megatron-LM's, where lanes have tp, cp and pp inside; any further
 * dim is a kind of replica here. Spans may overlap, as Megatron-LM lets them; LIERNE_BRIDGE_LEADER
 * refuses that. */
typedef enum lierne_megatron_side {
    LIERNE_MEGATRON_SRC = 0,
    LIERNE_MEGATRON_DST = 1
} lierne_megatron_side;
typedef struct lierne_megatron_leaders lierne_megatron_leaders;
/* Looks at the grids of spec only. Free with lierne_megatron_leaders_destroy; it keeps nothing of
 * spec. Costs memory in proportion to the ranks. Errors: as lierne_megatron_map_create; UNSUPPORTED
 * (cp of either grid is not 1); INDIVISIBLE (neither number of lanes divides the other; the message
 * names both). */
LIERNE_API lierne_status lierne_megatron_leaders_create(lierne_megatron_leaders **out,
                                                        const lierne_bridge_spec *spec);
LIERNE_API void lierne_megatron_leaders_destroy(lierne_megatron_leaders *leaders);

/* The leaders of a side, lane by lane; the groups in which they broadcast, lane by lane; and the
 * leaders of both sides, ascending, each once: the ranks that cross. Arrays are owned by leaders.
 * Errors: INVALID (NULL, side). */
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
 * lanes; the adjoint is the other way round. Who sends is a source leader, who receives a
 * destination leader; anyone else, also a rank outside both grids, has neither. Arrays are owned by
 * leaders, NULL where empty. Errors: INVALID (NULL). */
LIERNE_API lierne_status lierne_megatron_leaders_get_peers(const int **send_to, int *nsends,
                                                           const int **recv_from, int *nrecvs,
                                                           const lierne_megatron_leaders *leaders,
                                                           int rank);

#ifdef __cplusplus
}
#endif
#endif
