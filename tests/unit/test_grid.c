/* Grids: every error in its place of the checking order, limits, and running out of memory.
 * test_grid_groups.c has enumeration, views and keys. */
#include "base/base.h"
#include "grid/grid.h"
#include "lierne/grid.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *const tp_dp[] = {"tp", "dp"};
static const int64_t two_four[] = {2, 4};

static lierne_grid_spec good_spec(void) {
    return (lierne_grid_spec){.size = sizeof(lierne_grid_spec),
                              .ndims = 2,
                              .names = tp_dp,
                              .sizes = two_four,
                              .world_size = 8};
}

static lierne_grid *good_grid(void) {
    lierne_grid *grid;
    lierne_grid_spec spec = good_spec();
    assert_ok(lierne_grid_create(&grid, &spec));
    return grid;
}

/* spec must be rejected with status and with a message in the name of the public function. */
static void expect_rejection(const lierne_grid_spec *spec, lierne_status status, const char *word) {
    lierne_grid *grid = (lierne_grid *)&grid;
    size_t live = lierne_mem_live();
    lierne_status got = lierne_grid_create(&grid, spec);
    cr_assert_eq(got, status, "%s, not %s: %s", lierne_status_name(got), lierne_status_name(status),
                 lierne_last_error());
    cr_assert_null(grid);
    cr_assert_eq(lierne_mem_live(), live);
    cr_assert_eq(strncmp(lierne_last_error(), "lierne_grid_create: ", 20), 0);
    assert_says(word);
}

Test(grid, each_error_is_named) {
    lierne_grid *grid;
    lierne_grid_spec spec = good_spec();
    cr_assert_eq(lierne_grid_create(NULL, &spec), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_create(&grid, NULL), LIERNE_ERR_INVALID);
    spec.size--;
    expect_rejection(&spec, LIERNE_ERR_INVALID, "spec->size");
    spec = good_spec(), spec.ndims = -1;
    expect_rejection(&spec, LIERNE_ERR_INVALID, "-1");
    spec = good_spec(), spec.ndims = LIERNE_MAX_DIMS + 1;
    expect_rejection(&spec, LIERNE_ERR_INVALID, "17");
    spec = good_spec(), spec.names = NULL;
    expect_rejection(&spec, LIERNE_ERR_INVALID, "names");
    spec = good_spec(), spec.sizes = NULL;
    expect_rejection(&spec, LIERNE_ERR_INVALID, "sizes");
    spec = good_spec(), spec.names = (const char *const[]){"tp", NULL};
    expect_rejection(&spec, LIERNE_ERR_INVALID, "dim 1");
    spec = good_spec(), spec.world_size = 0;
    expect_rejection(&spec, LIERNE_ERR_WORLD_SIZE, "world_size is 0");
    spec = good_spec(), spec.world_size = LIERNE_MAX_RANKS + 1;
    expect_rejection(&spec, LIERNE_ERR_WORLD_SIZE, "world_size");
    spec = good_spec(), spec.rank_offset = -1;
    expect_rejection(&spec, LIERNE_ERR_RANK_OFFSET, "rank_offset is -1");
}

Test(grid, names_and_sizes_are_checked) {
    static const char *const bad[] = {"", "a-b", "a,b", "a:b", "a\tb", "a\x7f"};
    lierne_grid_spec spec = good_spec();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        spec.names = (const char *const[]){"tp", bad[i]};
        expect_rejection(&spec, LIERNE_ERR_NAME, "name");
    }
    /* A lone byte, a cut sequence, an overlong form, a surrogate, a point past U+10FFFF. */
    static const char *const not_utf8[] = {"d\xffp", "dp\xe2\x82", "\xc0\xaf", "\xed\xa0\x80",
                                           "\xf4\x90\x80\x80"};
    static const char *const places[] = {"0xff at offset 1", "0xe2 at offset 2", "0xc0 at offset 0",
                                         "0xed at offset 0", "0xf4 at offset 0"};
    for (size_t i = 0; i < sizeof not_utf8 / sizeof not_utf8[0]; i++) {
        spec = good_spec(), spec.names = (const char *const[]){"tp", not_utf8[i]};
        expect_rejection(&spec, LIERNE_ERR_NAME, places[i]);
        assert_says("UTF-8");
    }
    lierne_grid *grid;
    spec = good_spec(),
    spec.names = (const char *const[]){"\xc3\xa9\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    assert_ok(lierne_grid_create(&grid, &spec));
    lierne_grid_destroy(grid);
    static const int64_t sizes[] = {0, -1, INT64_MIN};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        spec = good_spec(), spec.sizes = (const int64_t[]){2, sizes[i]};
        expect_rejection(&spec, LIERNE_ERR_DIM_SIZE, "'dp'");
    }
    spec = good_spec(), spec.names = (const char *const[]){"tp", "tp"};
    expect_rejection(&spec, LIERNE_ERR_DUPLICATE, "'tp'");
    spec = good_spec(), spec.sizes = (const int64_t[]){INT64_MAX / 2 + 1, 2};
    expect_rejection(&spec, LIERNE_ERR_OVERFLOW, "4611686018427387904 times 2");
    spec = good_spec(), spec.sizes = (const int64_t[]){(int64_t)1 << 31, (int64_t)1 << 31};
    expect_rejection(&spec, LIERNE_ERR_OVERSIZED, "4611686018427387904 ranks");
    spec = good_spec(), spec.rank_offset = 1;
    expect_rejection(&spec, LIERNE_ERR_OVERSIZED, "8 ranks from rank 1");
    spec = good_spec(), spec.rank_offset = INT64_MAX;
    expect_rejection(&spec, LIERNE_ERR_OVERSIZED, "9223372036854775807");
}

/* Mends the faults one by one, in the order in which they must be found. */
Test(grid, errors_come_in_the_order_of_the_header) {
    const char *names[] = {NULL, "a-b", "x"};
    int64_t sizes[] = {INT64_MAX, 4, 3};
    lierne_grid_spec spec = {.ndims = 3, .names = names, .sizes = sizes, .rank_offset = -4};
    expect_rejection(&spec, LIERNE_ERR_INVALID, "spec->size");
    spec.size = sizeof spec;
    expect_rejection(&spec, LIERNE_ERR_INVALID, "dim 0");
    names[0] = "x";
    expect_rejection(&spec, LIERNE_ERR_WORLD_SIZE, "world_size");
    spec.world_size = 12;
    expect_rejection(&spec, LIERNE_ERR_RANK_OFFSET, "rank_offset");
    spec.rank_offset = 4;
    expect_rejection(&spec, LIERNE_ERR_NAME, "a-b");
    names[1] = "y";
    expect_rejection(&spec, LIERNE_ERR_DUPLICATE, "'x'");
    names[2] = "z";
    expect_rejection(&spec, LIERNE_ERR_OVERFLOW, "times 4");
    sizes[0] = 1;
    expect_rejection(&spec, LIERNE_ERR_OVERSIZED, "12 ranks from rank 4");
    spec.world_size = 16;
    lierne_grid *grid;
    assert_ok(lierne_grid_create(&grid, &spec));
    lierne_grid_destroy(grid);
}

Test(grid, limits_are_reached_not_passed) {
    char text[LIERNE_MAX_DIMS][16];
    const char *names[LIERNE_MAX_DIMS];
    int64_t sizes[LIERNE_MAX_DIMS];
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        snprintf(text[d], sizeof text[d], "d%d", d);
        names[d] = text[d];
        sizes[d] = d < 8 ? 8 : 1;
    }
    lierne_grid *grid;
    lierne_grid_spec spec = {.size = sizeof spec,
                             .ndims = LIERNE_MAX_DIMS,
                             .names = names,
                             .sizes = sizes,
                             .world_size = LIERNE_MAX_RANKS};
    assert_ok(lierne_grid_create(&grid, &spec));
    cr_assert_eq(lierne_grid_get_size(grid), LIERNE_MAX_RANKS);
    int coords[LIERNE_MAX_DIMS], rank;
    assert_ok(lierne_grid_get_coords(coords, grid, NULL, LIERNE_MAX_RANKS - 1));
    for (int d = 0; d < LIERNE_MAX_DIMS; d++) {
        cr_assert_eq(coords[d], sizes[d] - 1);
    }
    assert_ok(lierne_grid_get_rank(&rank, grid, NULL, coords));
    cr_assert_eq(rank, LIERNE_MAX_RANKS - 1);
    lierne_grid_destroy(grid);
    spec.ndims = 0;
    assert_ok(lierne_grid_create(&grid, &spec));
    cr_assert_eq(lierne_grid_get_size(grid), 1);
    lierne_grid_destroy(grid);
}

Test(grid, getters) {
    lierne_grid_spec spec = good_spec();
    spec.world_size = 12, spec.rank_offset = 3;
    lierne_grid *grid;
    assert_ok(lierne_grid_create(&grid, &spec));
    cr_assert_eq(lierne_grid_get_size(grid), 8);
    cr_assert_eq(lierne_grid_get_rank_offset(grid), 3);
    cr_assert_eq(lierne_grid_get_world_size(grid), 12);
    cr_assert_eq(lierne_grid_get_nviews(grid), 1);
    cr_assert_str_eq(lierne_grid_get_view_name(grid, 0), "base");
    cr_assert_null(lierne_grid_get_view_name(grid, 1));
    cr_assert_null(lierne_grid_get_view_name(grid, -1));
    cr_assert_eq(lierne_grid_get_ndims(grid, "base"), 2);
    cr_assert_eq(lierne_grid_get_ndims(grid, "nope"), -1);
    cr_assert_str_eq(lierne_grid_get_dim_name(grid, NULL, 1), "dp");
    cr_assert_null(lierne_grid_get_dim_name(grid, NULL, 2));
    cr_assert_eq(lierne_grid_get_dim_size(grid, NULL, 1), 4);
    cr_assert_eq(lierne_grid_get_dim_size(grid, NULL, -1), -1);
    cr_assert_eq(lierne_grid_find_dim_size(grid, NULL, "dp"), 4);
    cr_assert_eq(lierne_grid_find_dim_size(grid, NULL, "cp"), 1);
    cr_assert_eq(lierne_grid_find_dim_size(grid, "nope", "dp"), -1);
    lierne_grid_destroy(grid);
}

Test(grid, null_grids) {
    cr_assert_eq(lierne_grid_get_size(NULL), -1);
    cr_assert_eq(lierne_grid_get_rank_offset(NULL), -1);
    cr_assert_eq(lierne_grid_get_world_size(NULL), -1);
    cr_assert_eq(lierne_grid_get_nviews(NULL), -1);
    cr_assert_null(lierne_grid_get_view_name(NULL, 0));
    cr_assert_eq(lierne_grid_get_ndims(NULL, NULL), -1);
    cr_assert_null(lierne_grid_get_dim_name(NULL, NULL, 0));
    cr_assert_eq(lierne_grid_get_dim_size(NULL, NULL, 0), -1);
    cr_assert_eq(lierne_grid_find_dim_size(NULL, NULL, "tp"), -1);
    lierne_grid_destroy(NULL);
}

Test(grid, coords_and_rank_refuse_what_is_outside) {
    lierne_grid *grid = good_grid();
    int coords[2], rank;
    cr_assert_eq(lierne_grid_get_coords(coords, NULL, NULL, 0), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_coords(NULL, grid, NULL, 0), LIERNE_ERR_INVALID);
    assert_error(lierne_grid_get_coords(coords, grid, "nope", 0), LIERNE_ERR_UNKNOWN_VIEW, "base");
    cr_assert_eq(lierne_grid_get_coords(coords, grid, NULL, 8), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_coords(coords, grid, NULL, -1), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_rank(&rank, NULL, NULL, coords), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_rank(&rank, grid, NULL, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_rank(NULL, grid, NULL, coords), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_rank(&rank, grid, "nope", coords), LIERNE_ERR_UNKNOWN_VIEW);
    cr_assert_eq(lierne_grid_get_rank(&rank, grid, NULL, (int[]){2, 0}), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_rank(&rank, grid, NULL, (int[]){0, -1}), LIERNE_ERR_INVALID);
    lierne_grid_destroy(grid);
}

/* The grid of docs: views of two kinds and a key, whatever allocation fails. */
static lierne_status build_all(void) {
    static const char *const expert[] = {"ep", "dp"};
    static const char *const dp[] = {"dp"};
    lierne_grid *grid = NULL;
    lierne_grid_spec spec = good_spec();
    lierne_view_spec view = {.size = sizeof view,
                             .name = "expert",
                             .ndims = 2,
                             .names = expert,
                             .sizes = two_four,
                             .nshared = 1,
                             .shared = dp};
    size_t needed;
    lierne_status status = lierne_grid_create(&grid, &spec);
    cr_assert_eq(grid == NULL, status != LIERNE_OK);
    status = status ? status : lierne_grid_add_view(grid, &view);
    status = status ? status : lierne_grid_get_key(NULL, 0, &needed, grid, "expert", expert, 2);
    lierne_grid_destroy(grid);
    return status;
}

Test(grid, every_allocation_may_fail) {
    size_t live = lierne_mem_live(), k = 1;
    lierne_status status = LIERNE_ERR_NO_MEMORY;
    for (; status != LIERNE_OK; k++) {
        cr_assert_lt(k, 1000);
        lierne_mem_fail_at(k);
        status = build_all();
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_NO_MEMORY, "%s", lierne_last_error());
        cr_assert_eq(lierne_mem_live(), live, "allocation %zu failed: %zu alive, %zu before", k,
                     lierne_mem_live(), live);
    }
    cr_assert_gt(k, 10);
}

Test(grid, a_failed_view_changes_nothing) {
    static const char *const names[] = {"x", "y"};
    lierne_grid *grid = good_grid();
    lierne_view_spec view = {
        .size = sizeof view, .name = "v", .ndims = 2, .names = names, .sizes = two_four};
    lierne_mem_fail_at(2);
    cr_assert_eq(lierne_grid_add_view(grid, &view), LIERNE_ERR_NO_MEMORY);
    cr_assert_eq(lierne_grid_get_nviews(grid), 1);
    lierne_mem_fail_at(0);
    assert_ok(lierne_grid_add_view(grid, &view));
    lierne_grid_destroy(grid);
}

Test(grid, a_list_of_names_may_fill_its_text) {
    static const char *const names[] = {"ab", "cd"};
    char text[16];
    lierne_names_list(text, 12, 2, names);
    cr_expect_str_eq(text, "ab, cd");
    lierne_names_list(text, 11, 2, names);
    cr_expect_str_eq(text, "ab, ...");
}
