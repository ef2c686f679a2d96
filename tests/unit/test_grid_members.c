/* The ranks of several grids together: the list of members of a context over them. */
#include <criterion/criterion.h>
#include <lierne.h>
#include <string.h>

#include "mesh.h"
#include "unit/expect.h"

enum { WORLD = 16 };

static lierne_grid *grid_at(int offset, int size, int world) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {size}, .offset = offset};
    return mesh_grid(&dp, world);
}

/* Up to four grids anywhere in the world, against a map of its ranks. */
Test(grid_members, of_grids_are_their_ranks_ascending_and_once) {
    for (unsigned seed = 0; seed < 2000; seed++) {
        lierne_grid *grids[4];
        bool has[WORLD] = {false};
        int n = 1 + (int)(seed % 4), ranks[WORLD + 1], count, total = 0;
        for (int i = 0; i < n; i++) {
            unsigned x = (seed * 2654435761u + (unsigned)i * 40503u) >> 7;
            int offset = (int)(x % WORLD), size = 1 + (int)(x / 16 % (unsigned)(WORLD - offset));
            grids[i] = grid_at(offset, size, WORLD);
            for (int r = offset; r < offset + size; r++) {
                has[r] = true;
            }
        }
        for (int capacity = WORLD; capacity >= 0; capacity -= 7) {
            memset(ranks, 0xff, sizeof ranks);
            assert_ok(lierne_grid_get_members(capacity ? ranks : NULL, capacity, &count,
                                              (const lierne_grid *const *)grids, n));
            total = 0;
            for (int r = 0; r < WORLD; r++) {
                if (has[r]) {
                    cr_assert_eq(ranks[total], total < capacity ? r : -1, "seed %u", seed);
                    total++;
                }
            }
            cr_assert_eq(count, total);
            cr_assert_eq(ranks[total < capacity ? total : capacity], -1);
        }
        for (int i = 0; i < n; i++) {
            lierne_grid_destroy(grids[i]);
        }
    }
}

Test(grid_members, of_grids_that_are_none) {
    lierne_grid *a = grid_at(0, 4, WORLD), *b = grid_at(0, 4, WORLD + 1);
    const lierne_grid *grids[2] = {a, b}, *null[2] = {a, NULL};
    int ranks[4], count;
    assert_error(lierne_grid_get_members(ranks, 4, NULL, grids, 1), LIERNE_ERR_INVALID,
                 "lierne_grid_get_members: count is NULL");
    assert_error(lierne_grid_get_members(ranks, 4, &count, NULL, 1), LIERNE_ERR_INVALID,
                 "grids is NULL");
    assert_error(lierne_grid_get_members(NULL, 4, &count, grids, 1), LIERNE_ERR_INVALID,
                 "ranks is NULL");
    assert_error(lierne_grid_get_members(ranks, 4, &count, grids, 0), LIERNE_ERR_INVALID,
                 "n is 0, must be at least 1");
    assert_error(lierne_grid_get_members(ranks, -1, &count, grids, 1), LIERNE_ERR_INVALID,
                 "capacity -1, must be at least 0");
    assert_error(lierne_grid_get_members(ranks, 4, &count, null, 2), LIERNE_ERR_INVALID,
                 "grids[1] is NULL");
    assert_error(lierne_grid_get_members(ranks, 4, &count, &null[1], 1), LIERNE_ERR_INVALID,
                 "grids[0] is NULL");
    assert_error(lierne_grid_get_members(ranks, 4, &count, grids, 2), LIERNE_ERR_INVALID,
                 "grids[1] has a world of 17 ranks, grids[0] one of 16: they must be the same");
    lierne_grid_destroy(a);
    lierne_grid_destroy(b);
}
