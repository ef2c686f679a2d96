/* What a pair of grids means for a bridge: worked examples, written down by hand. */
#include "base/base.h"
#include "lierne/megatron.h"
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
static const char *const usual[] = {"tp", "cp", "pp", "dp", NULL};

/* The map of two grids, which are freed: the map must not need them. */
static lierne_megatron_map *map_of(lierne_grid *src, lierne_grid *dst) {
    lierne_megatron_map *map;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    assert_ok(lierne_megatron_map_create(&map, &spec));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
    return map;
}

static lierne_megatron_map *usual_map(const int64_t *src, const int64_t *dst, int offset,
                                      int world) {
    return map_of(grid_named(usual, src, offset, world), grid_named(usual, dst, offset, world));
}

typedef lierne_status groups_of(const int **ranks, int *ngroups, int *group_size,
                                const lierne_megatron_map *map);

static void expect_groups(groups_of *get, const lierne_megatron_map *map, const int *expected,
                          int ngroups, int size) {
    const int *ranks;
    int n, m;
    cr_assert_eq(get(&ranks, &n, &m, map), LIERNE_OK);
    cr_assert_eq(n, ngroups);
    cr_assert_eq(m, size);
    cr_assert_eq(ranks == NULL, ngroups == 0);
    for (int i = 0; i < n * m; i++) {
        cr_assert_eq(ranks[i], expected[i], "place %d: rank %d, not %d", i, ranks[i], expected[i]);
    }
}

static void expect_slices(const lierne_megatron_map *map, int first, int n, int64_t batch,
                          const int64_t *starts, int64_t size) {
    for (int i = 0; i < n; i++) {
        int64_t start, got;
        assert_ok(lierne_megatron_map_get_slice(&start, &got, map, first + i, batch));
        cr_assert_eq(start, starts[i], "rank %d starts at %lld", first + i, (long long)start);
        cr_assert_eq(got, size);
    }
}

static void expect_misaligned(const lierne_megatron_map *map, const int *expected, int n) {
    const int *ranks;
    int count;
    assert_ok(lierne_megatron_map_get_misaligned(&ranks, &count, map));
    cr_assert_eq(count, n);
    cr_assert_eq(ranks == NULL, n == 0);
    for (int i = 0; i < n; i++) {
        cr_assert_eq(ranks[i], expected[i]);
    }
    ranks = &count;
    cr_assert_eq(lierne_megatron_map_get_misaligned(&ranks, &count, NULL), LIERNE_ERR_INVALID);
    cr_assert_null(ranks);
}

Test(megatron_map, fan_in_with_cp) {
    lierne_megatron_map *map = usual_map(SIZES(2, 1, 1, 4), SIZES(2, 2, 1, 2), 0, 8);
    cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_FAN_IN);
    cr_assert_eq(lierne_megatron_map_get_dp_ratio(map), 2);
    cr_assert_str_eq(lierne_megatron_map_get_rejection(map), "");
    cr_assert_eq(lierne_megatron_map_get_rejection_code(map), LIERNE_MEGATRON_REJECTION_ACCEPTED);
    static const int groups[] = {0, 2, 1, 3, 4, 6, 5, 7};
    expect_groups(lierne_megatron_map_get_gather_groups, map, groups, 4, 2);
    expect_groups(lierne_megatron_map_get_cp_groups, map, groups, 4, 2);
    expect_slices(map, 0, 8, 6, SIZES(0, 0, 3, 3, 0, 0, 3, 3), 3);
    expect_misaligned(map, NULL, 0);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, fan_out_with_cp) {
    lierne_megatron_map *map = usual_map(SIZES(4, 1, 1, 2), SIZES(1, 2, 1, 4), 3, 12);
    cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_FAN_OUT);
    cr_assert_eq(lierne_megatron_map_get_dp_ratio(map), 2);
    static const int gather[] = {3, 5, 4, 6, 7, 9, 8, 10}, cp[] = {3, 4, 5, 6, 7, 8, 9, 10};
    expect_groups(lierne_megatron_map_get_gather_groups, map, gather, 4, 2);
    expect_groups(lierne_megatron_map_get_cp_groups, map, cp, 4, 2);
    expect_slices(map, 3, 8, 4, SIZES(0, 0, 2, 2, 0, 0, 2, 2), 2);
    expect_misaligned(map, NULL, 0);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, fan_out_orders_groups_by_tp_before_cp) {
    lierne_megatron_map *map = map_of(grid_named(usual, SIZES(8, 1, 1, 1), 0, 8),
                                      grid_named(NAMES("cp", "tp", "dp"), SIZES(2, 2, 2), 0, 8));
    static const int gather[] = {0, 4, 1, 5, 2, 6, 3, 7};
    expect_groups(lierne_megatron_map_get_gather_groups, map, gather, 4, 2);
    lierne_megatron_map_destroy(map);
    map = map_of(grid_named(usual, SIZES(8, 1, 1, 1), 0, 8),
                 grid_named(usual, SIZES(2, 2, 1, 2), 0, 8));
    static const int other[] = {0, 4, 2, 6, 1, 5, 3, 7};
    expect_groups(lierne_megatron_map_get_gather_groups, map, other, 4, 2);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, equal_keeps_all_samples) {
    lierne_megatron_map *map = usual_map(SIZES(4, 1, 1, 2), SIZES(2, 2, 1, 2), 0, 8);
    cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_EQUAL);
    cr_assert_eq(lierne_megatron_map_get_dp_ratio(map), 1);
    expect_groups(lierne_megatron_map_get_gather_groups, map, NULL, 0, 0);
    expect_groups(lierne_megatron_map_get_cp_groups, map, (int[]){0, 2, 1, 3, 4, 6, 5, 7}, 4, 2);
    expect_slices(map, 0, 8, 5, SIZES(0, 0, 0, 0, 0, 0, 0, 0), 5);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, slices_are_rejected_with_the_numbers) {
    lierne_megatron_map *map = usual_map(SIZES(2, 1, 1, 4), SIZES(8, 1, 1, 1), 2, 10);
    int64_t start, size;
    cr_assert_eq(lierne_megatron_map_get_slice(&start, &size, map, 4, 6), LIERNE_ERR_INDIVISIBLE);
    cr_assert(strstr(lierne_last_error(), "batch of 6") && strstr(lierne_last_error(), "fan_in") &&
              strstr(lierne_last_error(), "dp ratio 4"));
    cr_assert_eq(lierne_megatron_map_get_slice(&start, &size, map, 1, 4), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_slice(&start, &size, map, 10, 4), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_slice(&start, &size, map, 2, -4), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_slice(&start, &size, NULL, 2, 4), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_slice(NULL, &size, map, 2, 4), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_slice(&start, NULL, map, 2, 4), LIERNE_ERR_INVALID);
    assert_ok(lierne_megatron_map_get_slice(&start, &size, map, 2, 0));
    cr_assert_eq(size, 0);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, misaligned_ranks_are_named) {
    /* Destination with tp slowest: its dp rank is rank / 2 % 2, the source's rank / 2. */
    lierne_megatron_map *map = map_of(grid_named(NAMES("tp", "dp"), SIZES(2, 4), 0, 8),
                                      grid_named(NAMES("cp", "dp", "tp"), SIZES(2, 2, 2), 0, 8));
    cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_FAN_IN);
    expect_misaligned(map, (int[]){2, 3, 4, 5}, 4);
    lierne_megatron_map_destroy(map);
    map = map_of(grid_named(NAMES("dp", "tp"), SIZES(2, 4), 5, 13),
                 grid_named(NAMES("dp", "tp"), SIZES(4, 2), 5, 13));
    expect_misaligned(map, (int[]){6, 7, 10, 11}, 4);
    lierne_megatron_map_destroy(map);
    map = map_of(grid_named(NAMES("dp", "tp"), SIZES(2, 2), 0, 4),
                 grid_named(NAMES("tp", "dp"), SIZES(2, 2), 0, 4));
    expect_misaligned(map, (int[]){1, 2}, 2);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, other_dims_are_replicas) {
    lierne_megatron_map *map = map_of(grid_named(NAMES("tp", "dp"), SIZES(8, 1), 0, 8),
                                      grid_named(NAMES("tp", "ep", "dp"), SIZES(2, 2, 2), 0, 8));
    cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_FAN_OUT);
    expect_groups(lierne_megatron_map_get_gather_groups, map, (int[]){0, 4, 2, 6, 1, 5, 3, 7}, 4,
                  2);
    lierne_megatron_map_destroy(map);
}

/* Mends the faults one by one, in the order of the reference's checks. */
Test(megatron_map, rejections_come_in_the_order_of_megatron_lm) {
    static const char *const late[] = {"tp", "dp", "cp", "pp", NULL};
    static const struct {
        const char *const *names;
        int64_t src[4], dst[4];
        int offset;
        const char *word;
    } steps[] = {
        {late, {1, 2, 2, 3}, {1, 3, 1, 2}, 1, "12 ranks, the destination grid 6"},
        {late, {1, 2, 2, 3}, {1, 3, 2, 2}, 1, "begins at rank 0, the destination grid at rank 1"},
        {late, {1, 2, 3, 2}, {1, 3, 2, 2}, 0, "pp of the source grid is 3"},
        {late, {2, 3, 1, 2}, {1, 3, 2, 2}, 0, "pp of the destination grid is 2"},
        {late, {2, 3, 1, 2}, {2, 3, 2, 1}, 0, "cp of the source grid is 3"},
        {late, {6, 1, 1, 2}, {2, 3, 2, 1}, 0, "cp stands after dp"},
        {usual, {6, 1, 1, 2}, {2, 2, 1, 3}, 0, "dp of the source grid is 2, that of the dest"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        lierne_megatron_map *map =
            map_of(grid_named(usual, steps[i].src, 0, 13),
                   grid_named(steps[i].names, steps[i].dst, steps[i].offset, 13));
        int64_t start, size;
        cr_assert(strstr(lierne_megatron_map_get_rejection(map), steps[i].word), "step %zu: %s", i,
                  lierne_megatron_map_get_rejection(map));
        cr_assert_eq((int)lierne_megatron_map_get_rejection_code(map), (int)i + 1);
        cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_GENERAL);
        expect_groups(lierne_megatron_map_get_gather_groups, map, NULL, 0, 0);
        cr_assert_eq(lierne_megatron_map_get_slice(&start, &size, map, 2, 6), LIERNE_ERR_INVALID);
        lierne_megatron_map_destroy(map);
    }
}

Test(megatron_map, cp_after_dp_is_rejected_at_size_one_too) {
    lierne_megatron_map *map = map_of(grid_named(NAMES("tp", "dp", "cp"), SIZES(2, 4, 1), 0, 8),
                                      grid_named(NAMES("tp", "dp", "cp"), SIZES(4, 2, 1), 0, 8));
    cr_assert(strstr(lierne_megatron_map_get_rejection(map), "cp stands after dp"));
    cr_assert_eq(lierne_megatron_map_get_dp_ratio(map), 2);
    expect_misaligned(map, NULL, 0);
    lierne_megatron_map_destroy(map);
}

/* Gives each prime factor of a number of ranks to one of four dims, in an order drawn too. */
static lierne_grid *random_grid(unsigned *seed, const int *primes, int nprimes, int nranks) {
    const char *names[] = {"tp", "dp", "cp", "ep"};
    int64_t sizes[] = {1, 1, 1, 1};
    for (int d = 3; d > 0; d--) {
        int other = rand_r(seed) % (d + 1);
        const char *name = names[d];
        names[d] = names[other];
        names[other] = name;
    }
    for (int i = 0; i < nprimes; i++) {
        sizes[rand_r(seed) % 4] *= primes[i];
    }
    lierne_grid *grid;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = 4,
                             .names = names,
                             .sizes = sizes,
                             .rank_offset = 5,
                             .world_size = nranks + 5};
    assert_ok(lierne_grid_create(&grid, &spec));
    return grid;
}

/* The dp coordinate of each rank, asked one by one. */
static int dp_of(const lierne_grid *grid, int rank) {
    int coords[LIERNE_MAX_DIMS], d = 0;
    while (strcmp(lierne_grid_get_dim_name(grid, NULL, d), "dp") != 0) {
        d++;
    }
    assert_ok(lierne_grid_get_coords(coords, grid, NULL, rank));
    return coords[d];
}

Test(megatron_map, misaligned_ranks_are_those_whose_coordinates_say_so) {
    static const int worlds[][8] = {{2, 2, 2, 2, 3, 3}, {2, 3, 5, 2}, {2, 2, 2, 2, 2, 2, 2},
                                    {3, 3, 3, 2, 2},    {7, 2, 3, 3}, {5, 5, 2, 2, 2}};
    int compared = 0;
    for (unsigned trial = 0; trial < 3000; trial++) {
        unsigned seed = trial;
        const int *primes = worlds[trial % 6];
        int nprimes = 0, nranks = 1, expected[512], n = 0;
        while (primes[nprimes]) {
            nranks *= primes[nprimes++];
        }
        lierne_grid *src = random_grid(&seed, primes, nprimes, nranks);
        lierne_grid *dst = random_grid(&seed, primes, nprimes, nranks);
        int from = lierne_grid_find_dim_size(src, NULL, "dp"),
            to = lierne_grid_find_dim_size(dst, NULL, "dp");
        for (int r = 5; r < 5 + nranks && (from % to == 0 || to % from == 0); r++) {
            int a = dp_of(src, r), b = dp_of(dst, r);
            if (from > to ? a / (from / to) != b : b / (to / from) != a) {
                expected[n++] = r;
            }
        }
        compared += n > 0;
        lierne_megatron_map *map = map_of(src, dst);
        expect_misaligned(map, expected, n);
        lierne_megatron_map_destroy(map);
    }
    cr_assert_gt(compared, 1000);
}

Test(megatron_map, misaligned_ranks_are_known_of_rejected_pairs_too) {
    lierne_megatron_map *map = map_of(grid_named(NAMES("tp", "dp"), SIZES(2, 4), 0, 8),
                                      grid_named(NAMES("tp", "dp", "cp"), SIZES(2, 2, 2), 0, 8));
    cr_assert_eq(lierne_megatron_map_get_kind(map), LIERNE_MEGATRON_GENERAL);
    expect_misaligned(map, (int[]){2, 3, 4, 5}, 4);
    lierne_megatron_map_destroy(map);
    /* Other spans: there is nothing to line up. */
    map = map_of(grid_named(NAMES("tp", "dp"), SIZES(2, 2), 0, 8),
                 grid_named(NAMES("dp", "tp"), SIZES(2, 2), 4, 8));
    expect_misaligned(map, NULL, 0);
    lierne_megatron_map_destroy(map);
}

Test(megatron_map, scale_is_zero_where_dp_does_not_divide) {
    lierne_megatron_map *map = usual_map(SIZES(2, 1, 1, 3), SIZES(1, 3, 1, 2), 0, 6);
    cr_assert_eq(lierne_megatron_map_get_dp_ratio(map), 0);
    expect_groups(lierne_megatron_map_get_cp_groups, map, (int[]){0, 1, 2, 3, 4, 5}, 2, 3);
    lierne_megatron_map_destroy(map);
}

static void expect_invalid(lierne_grid *src, lierne_grid *dst, const char *word) {
    lierne_megatron_map *map = (lierne_megatron_map *)&map;
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    cr_assert_eq(lierne_megatron_map_create(&map, &spec), LIERNE_ERR_INVALID);
    cr_assert_null(map);
    assert_says(word);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

Test(megatron_map, what_makes_no_sense_is_an_error) {
    lierne_bridge_spec spec = {.size = 1};
    cr_assert_eq(lierne_megatron_map_create(NULL, &spec), LIERNE_ERR_INVALID);
    expect_invalid(NULL, NULL, "source grid is NULL");
    expect_invalid(grid_named(usual, SIZES(1, 1, 1, 8), 0, 8), NULL, "destination grid is NULL");
    lierne_grid *cp = grid_named(NAMES("cp"), SIZES(4), 0, 8);
    expect_invalid(cp, grid_named(NAMES("cp"), SIZES(8), 0, 8), "source grid has no dim 'tp'");
    cp = grid_named(NAMES("tp"), SIZES(4), 0, 8);
    expect_invalid(cp, grid_named(NAMES("cp"), SIZES(8), 0, 8), "source grid has no dim 'dp'");
    cp = grid_named(NAMES("tp", "dp"), SIZES(4, 1), 0, 8);
    expect_invalid(cp, grid_named(NAMES("cp"), SIZES(8), 0, 8), "destination grid has no dim 'tp'");
    cp = grid_named(NAMES("tp", "dp"), SIZES(4, 1), 0, 8);
    expect_invalid(cp, grid_named(NAMES("tp"), SIZES(8), 0, 8), "destination grid has no dim 'dp'");
    expect_invalid(grid_named(usual, SIZES(1, 1, 1, 8), 0, 8),
                   grid_named(usual, SIZES(1, 1, 1, 8), 0, 9),
                   "8 ranks, the destination grid on one of 9");
}

Test(megatron_map, null_maps) {
    const int *ranks;
    int n;
    lierne_megatron_map_destroy(NULL);
    cr_assert_eq(lierne_megatron_map_get_kind(NULL), LIERNE_MEGATRON_GENERAL);
    cr_assert_eq(lierne_megatron_map_get_dp_ratio(NULL), -1);
    cr_assert_str_eq(lierne_megatron_map_get_rejection(NULL), "");
    cr_assert_eq(lierne_megatron_map_get_rejection_code(NULL), LIERNE_MEGATRON_REJECTION_ACCEPTED);
    cr_assert_eq(lierne_megatron_map_get_gather_groups(&ranks, &n, &n, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_cp_groups(&ranks, &n, &n, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_megatron_map_get_misaligned(&ranks, &n, NULL), LIERNE_ERR_INVALID);
}

Test(megatron_map, kinds_have_names) {
    cr_assert_str_eq(lierne_megatron_kind_name(LIERNE_MEGATRON_GENERAL), "general");
    cr_assert_str_eq(lierne_megatron_kind_name(LIERNE_MEGATRON_FAN_IN), "fan_in");
    cr_assert_str_eq(lierne_megatron_kind_name(LIERNE_MEGATRON_FAN_OUT), "fan_out");
    cr_assert_str_eq(lierne_megatron_kind_name(LIERNE_MEGATRON_EQUAL), "equal");
}

Test(megatron_map, every_allocation_may_fail) {
    lierne_grid *src = grid_named(usual, SIZES(2, 1, 1, 4), 0, 8);
    lierne_grid *dst = grid_named(usual, SIZES(2, 2, 1, 2), 0, 8);
    lierne_bridge_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    size_t live = lierne_mem_live(), k = 1;
    lierne_megatron_map *map;
    lierne_mem_fail_at(k);
    while (lierne_megatron_map_create(&map, &spec) != LIERNE_OK) {
        cr_assert_null(map);
        cr_assert_eq(lierne_mem_live(), live);
        lierne_mem_fail_at(++k);
    }
    lierne_mem_fail_at(0);
    cr_assert_gt(k, 6);
    lierne_megatron_map_destroy(map);
    cr_assert_eq(lierne_mem_live(), live);
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}
