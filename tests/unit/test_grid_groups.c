/* Groups, views and keys. The brute force here knows nothing of strides: it counts coordinates up
 * by hand, and calls two ranks together when they agree in all other dims. */
#include "base/base.h"
#include "lierne/grid.h"
#include "mesh.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BRUTE = 64 };

/* Coordinates of every rank of a view, first dim fastest. */
typedef struct brute {
    int ndims;
    int nranks;
    int sizes[LIERNE_MAX_DIMS];
    int coords[MAX_BRUTE][LIERNE_MAX_DIMS];
} brute;

static void brute_fill(brute *b, int ndims, const int64_t *sizes) {
    *b = (brute){.ndims = ndims, .nranks = 1};
    for (int d = 0; d < ndims; d++) {
        b->sizes[d] = (int)sizes[d];
        b->nranks *= b->sizes[d];
    }
    int now[LIERNE_MAX_DIMS] = {0};
    for (int l = 0; l < b->nranks; l++) {
        memcpy(b->coords[l], now, sizeof now);
        int d = 0;
        while (d < ndims && now[d] + 1 == b->sizes[d]) {
            now[d++] = 0;
        }
        if (d < ndims) {
            now[d]++;
        }
    }
}

static bool together(const brute *b, int l, int m, uint32_t mask) {
    for (int d = 0; d < b->ndims; d++) {
        if (!(mask >> d & 1) && b->coords[l][d] != b->coords[m][d]) {
            return false;
        }
    }
    return true;
}

/* Groups by the definition: each rank not yet seen opens one, and everybody together with it
 * follows in ascending order. */
static void brute_groups(const brute *b, uint32_t mask, int offset, int *ranks, int *ngroups) {
    bool seen[MAX_BRUTE] = {false};
    int n = 0;
    *ngroups = 0;
    for (int l = 0; l < b->nranks; l++) {
        for (int m = l; !seen[l] && m < b->nranks; m++) {
            if (m != l && together(b, l, m, mask)) {
                seen[m] = true;
                ranks[n++] = offset + m;
            } else if (m == l) {
                ranks[n++] = offset + l;
            }
        }
        *ngroups += !seen[l];
    }
}

/* Whether l comes before m in the caller's order: the first listed dim is the slowest. */
static bool before(const brute *b, int l, int m, const int *order, int count) {
    for (int i = 0; i < count; i++) {
        if (b->coords[l][order[i]] != b->coords[m][order[i]]) {
            return b->coords[l][order[i]] < b->coords[m][order[i]];
        }
    }
    return false;
}

static const char *const pool[] = {"tp", "cp", "dp", "pp", "ep", "x"};

/* A grid of up to 5 dims and MAX_BRUTE ranks; dims of size 1 are frequent. */
static int random_sizes(int64_t *sizes) {
    int ndims = rand() % 6, room = MAX_BRUTE;
    for (int d = 0; d < ndims; d++) {
        int size = rand() % 3 ? 1 + rand() % 4 : 1;
        sizes[d] = size <= room ? size : 1;
        room /= (int)sizes[d];
    }
    return ndims;
}

static int random_dims(int ndims, int *dims) {
    int count = 0;
    for (int d = 0; d < ndims; d++) {
        if (rand() % 2) {
            int at = rand() % (count + 1);
            memmove(dims + at + 1, dims + at, (size_t)(count - at) * sizeof *dims);
            dims[at] = d;
            count++;
        }
    }
    return count;
}

static void check_coords(const lierne_grid *grid, const brute *b, int offset) {
    for (int l = 0; l < b->nranks; l++) {
        int coords[LIERNE_MAX_DIMS], rank;
        assert_ok(lierne_grid_get_coords(coords, grid, NULL, offset + l));
        cr_assert_arr_eq(coords, b->coords[l], (size_t)b->ndims * sizeof coords[0]);
        assert_ok(lierne_grid_get_rank(&rank, grid, NULL, coords));
        cr_assert_eq(rank, offset + l);
    }
}

static void check_groups(const lierne_grid *grid, const brute *b, int offset) {
    int order[LIERNE_MAX_DIMS], expected[MAX_BRUTE], got[MAX_BRUTE], wanted, ngroups, size;
    const char *names[LIERNE_MAX_DIMS];
    int count = random_dims(b->ndims, order);
    uint32_t mask = 0;
    for (int i = 0; i < count; i++) {
        names[i] = pool[order[i]];
        mask |= (uint32_t)1 << order[i];
    }
    brute_groups(b, mask, offset, expected, &wanted);
    assert_ok(lierne_grid_get_groups(got, &ngroups, &size, grid, NULL, names, count));
    cr_assert_eq(ngroups, wanted);
    cr_assert_eq(size, b->nranks / wanted);
    cr_assert_arr_eq(got, expected, (size_t)b->nranks * sizeof got[0]);
    assert_ok(lierne_grid_get_groups_ordered(got, &ngroups, &size, grid, NULL, names, count));
    cr_assert_eq(ngroups, wanted);
    for (int i = 0; i < b->nranks; i++) {
        int group = i / size * size;
        bool member = false;
        for (int j = group; j < group + size; j++) {
            member = member || expected[j] == got[i];
        }
        cr_assert(member);
        cr_assert(i == group || before(b, got[i - 1] - offset, got[i] - offset, order, count));
    }
}

Test(grid_groups, agree_with_brute_force_on_random_grids) {
    srand(20240917);
    for (int trial = 0; trial < 6000; trial++) {
        int64_t sizes[LIERNE_MAX_DIMS];
        brute b;
        lierne_grid *grid;
        int ndims = random_sizes(sizes), offset = rand() % 3 * 5;
        brute_fill(&b, ndims, sizes);
        lierne_grid_spec spec = {.size = sizeof spec,
                                 .ndims = ndims,
                                 .names = pool,
                                 .sizes = sizes,
                                 .rank_offset = offset,
                                 .world_size = offset + b.nranks + rand() % 2};
        assert_ok(lierne_grid_create(&grid, &spec));
        cr_assert_eq(lierne_grid_get_size(grid), b.nranks);
        check_coords(grid, &b, offset);
        check_groups(grid, &b, offset);
        lierne_grid_destroy(grid);
    }
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

Test(grid_groups, caller_order_is_kept_only_where_asked) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    int ranks[8], ngroups, size;
    static const int sorted[] = {0, 1, 2, 3, 4, 5, 6, 7}, raw[] = {0, 2, 1, 3, 4, 6, 5, 7};
    assert_ok(lierne_grid_get_groups(ranks, NULL, NULL, grid, NULL, NAMES("tp", "cp"), 2));
    cr_assert_arr_eq(ranks, sorted, sizeof ranks);
    assert_ok(
        lierne_grid_get_groups_ordered(ranks, &ngroups, &size, grid, NULL, NAMES("tp", "cp"), 2));
    cr_assert_arr_eq(ranks, raw, sizeof ranks);
    cr_assert_eq(ngroups, 2);
    cr_assert_eq(size, 4);
    lierne_grid_destroy(grid);
}

Test(grid_groups, query_errors) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    int n;
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, NULL, NULL, NULL, 0), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, grid, NULL, NULL, 1), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, grid, NULL, NULL, -1), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, grid, NULL, NAMES(NULL), 1),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, grid, "nope", NAMES("qq"), 1),
                 LIERNE_ERR_UNKNOWN_VIEW);
    cr_assert(strstr(lierne_last_error(), "'nope'") && strstr(lierne_last_error(), "base"));
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, grid, NULL, NAMES("tp", "tp", "qq"), 3),
                 LIERNE_ERR_UNKNOWN_DIM);
    cr_assert(strstr(lierne_last_error(), "'qq'") && strstr(lierne_last_error(), "tp, cp, dp"));
    cr_assert_eq(lierne_grid_get_groups(NULL, &n, &n, grid, NULL, NAMES("tp", "dp", "tp"), 3),
                 LIERNE_ERR_DUPLICATE);
    cr_assert_eq(lierne_grid_get_groups_ordered(NULL, &n, &n, grid, NULL, NAMES("tp", "tp"), 2),
                 LIERNE_ERR_DUPLICATE);
    assert_ok(lierne_grid_get_groups(NULL, NULL, NULL, grid, NULL, NULL, 0));
    lierne_grid_destroy(grid);
}

/* A view of the cube; NULL-terminated lists. */
static lierne_status add(lierne_grid *grid, const char *name, const char *const *names,
                         const int64_t *sizes, const char *const *shared, const char *with) {
    lierne_view_spec spec = {.size = sizeof spec,
                             .name = name,
                             .names = names,
                             .sizes = sizes,
                             .shared = shared,
                             .with = with};
    while (names && names[spec.ndims]) {
        spec.ndims++;
    }
    while (shared && shared[spec.nshared]) {
        spec.nshared++;
    }
    return lierne_grid_add_view(grid, &spec);
}

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

Test(grid_views, each_error_in_its_order) {
    static const int64_t huge[] = {INT64_MAX, 2}, wrong[] = {2, 2}, four[] = {4, 2};
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    const char *names[] = {"a-b", "a-b", NULL}, *shared[] = {"ep", "ep", NULL};
    int64_t sizes[] = {0, 2};
    cr_assert_eq(add(NULL, "v", names, sizes, shared, "w"), LIERNE_ERR_INVALID);
    cr_assert_eq(add(grid, NULL, names, sizes, shared, "w"), LIERNE_ERR_INVALID);
    cr_assert_eq(add(grid, "", names, sizes, shared, "w"), LIERNE_ERR_NAME);
    cr_assert_eq(add(grid, "base", names, sizes, shared, "w"), LIERNE_ERR_DUPLICATE);
    cr_assert_eq(add(grid, "v", names, NULL, shared, "w"), LIERNE_ERR_UNKNOWN_VIEW);
    cr_assert_eq(add(grid, "v", names, NULL, shared, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(add(grid, "v", names, sizes, shared, NULL), LIERNE_ERR_DUPLICATE);
    names[1] = "dp";
    cr_assert_eq(add(grid, "v", names, sizes, shared, NULL), LIERNE_ERR_NAME);
    names[0] = "ep";
    cr_assert_eq(add(grid, "v", names, sizes, shared, NULL), LIERNE_ERR_DIM_SIZE);
    assert_says("'ep' is 0");
    cr_assert_eq(add(grid, "v", names, huge, shared, NULL), LIERNE_ERR_OVERFLOW);
    cr_assert_eq(add(grid, "v", names, wrong, shared, NULL), LIERNE_ERR_SIZE);
    cr_assert_eq(add(grid, "v", names, four, shared, NULL), LIERNE_ERR_DUPLICATE);
    shared[0] = "dp";
    cr_assert_eq(add(grid, "v", names, four, shared, NULL), LIERNE_ERR_UNKNOWN_DIM);
    assert_says("'ep' is not in view 'base'");
    shared[1] = "tp";
    cr_assert_eq(add(grid, "v", names, four, shared, NULL), LIERNE_ERR_UNKNOWN_DIM);
    assert_says("'tp' is not in view 'v'");
    names[0] = "tp";
    cr_assert_eq(add(grid, "v", names, four, shared, NULL), LIERNE_ERR_MEMBERSHIP);
    assert_says("'tp' groups 4 ranks");
    cr_assert_eq(lierne_grid_get_nviews(grid), 1);
    lierne_grid_destroy(grid);
}

Test(grid_views, shared_dims_are_given) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    lierne_view_spec spec = {.size = sizeof spec,
                             .name = "v",
                             .ndims = 1,
                             .names = NAMES("x"),
                             .sizes = SIZES(8),
                             .nshared = -1};
    assert_error(lierne_grid_add_view(grid, &spec), LIERNE_ERR_INVALID, "nshared is -1");
    spec.nshared = 1;
    assert_error(lierne_grid_add_view(grid, &spec), LIERNE_ERR_INVALID, "shared is NULL");
    spec.shared = NAMES(NULL);
    assert_error(lierne_grid_add_view(grid, &spec), LIERNE_ERR_INVALID, "shared dim 0 is NULL");
    lierne_grid_destroy(grid);
}

Test(grid_views, equal_sizes_at_other_strides_are_other_groups) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    cr_assert_eq(add(grid, "v", NAMES("dp", "x", NULL), SIZES(2, 4), NAMES("dp", NULL), NULL),
                 LIERNE_ERR_MEMBERSHIP);
    assert_says("'dp'");
    cr_assert_eq(add(grid, "v", NAMES("x", "dp", NULL), SIZES(4, 2), NAMES("dp", NULL), NULL),
                 LIERNE_OK);
    cr_assert_eq(add(grid, "v", NAMES("x", NULL), SIZES(8), NULL, NULL), LIERNE_ERR_DUPLICATE);
    lierne_grid_destroy(grid);
}

Test(grid_views, there_is_a_most) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    char name[16];
    for (int i = 0; i < LIERNE_MAX_VIEWS; i++) {
        snprintf(name, sizeof name, "v%d", i);
        cr_assert_eq(add(grid, name, NAMES("x", NULL), SIZES(8), NULL, NULL), LIERNE_OK);
    }
    cr_assert_eq(add(grid, "more", NAMES("x", NULL), SIZES(8), NULL, NULL), LIERNE_ERR_INVALID);
    cr_assert_eq(lierne_grid_get_nviews(grid), LIERNE_MAX_VIEWS + 1);
    cr_assert_eq(lierne_grid_find_dim_size(grid, "v31", "x"), 8);
    lierne_grid_destroy(grid);
}

static void expect_key(const lierne_grid *grid, const char *view, const char *const *dims,
                       int ndims, const char *key) {
    char text[64];
    size_t needed;
    assert_ok(lierne_grid_get_key(text, sizeof text, &needed, grid, view, dims, ndims));
    cr_assert_str_eq(text, key);
    cr_assert_eq(needed, strlen(key) + 1);
}

Test(grid_keys, a_key_follows_shared_dims_to_the_oldest_view) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    cr_assert_eq(add(grid, "e", NAMES("ep", "cp", "dp", NULL), SIZES(2, 2, 2), NAMES("cp", NULL),
                     NULL),
                 LIERNE_OK);
    cr_assert_eq(add(grid, "f", NAMES("x", "cp", "dp", NULL), SIZES(2, 2, 2),
                     NAMES("dp", "cp", NULL), "e"),
                 LIERNE_OK);
    cr_assert_eq(add(grid, "g", NAMES("ep", "y", "dp", NULL), SIZES(2, 2, 2), NAMES("dp", NULL),
                     "f"),
                 LIERNE_OK);
    expect_key(grid, NULL, NAMES("tp", "dp"), 2, "dp-tp");
    expect_key(grid, "base", NAMES("dp", "tp"), 2, "dp-tp");
    expect_key(grid, NULL, NULL, 0, "");
    expect_key(grid, "e", NAMES("cp"), 1, "cp");
    expect_key(grid, "e", NAMES("dp"), 1, "view:e:dp");
    expect_key(grid, "e", NAMES("cp", "dp"), 2, "view:e:dp,cp");
    expect_key(grid, "f", NAMES("cp"), 1, "cp");
    expect_key(grid, "f", NAMES("cp", "dp"), 2, "view:e:dp,cp");
    expect_key(grid, "f", NAMES("x", "cp"), 2, "view:f:cp,x");
    expect_key(grid, "g", NAMES("dp"), 1, "view:e:dp");
    expect_key(grid, "g", NAMES("ep"), 1, "view:g:ep");
    expect_key(grid, "g", NULL, 0, "");
    lierne_grid_destroy(grid);
}

Test(grid_keys, two_call_sizing) {
    lierne_grid *grid = grid_of(2, 2, 2, 8);
    size_t needed = 0;
    char text[6] = "??";
    assert_ok(lierne_grid_get_key(NULL, 0, &needed, grid, NULL, NAMES("tp", "dp"), 2));
    cr_assert_eq(needed, 6);
    cr_assert_eq(lierne_grid_get_key(NULL, 6, &needed, grid, NULL, NAMES("tp", "dp"), 2),
                 LIERNE_ERR_INVALID);
    needed = 0;
    cr_assert_eq(lierne_grid_get_key(text, 5, &needed, grid, NULL, NAMES("tp", "dp"), 2),
                 LIERNE_ERR_INVALID);
    cr_assert_eq(needed, 6);
    assert_ok(lierne_grid_get_key(text, 6, NULL, grid, NULL, NAMES("tp", "dp"), 2));
    cr_assert_str_eq(text, "dp-tp");
    cr_assert_eq(lierne_grid_get_key(text, 6, NULL, grid, NULL, NAMES("no"), 1),
                 LIERNE_ERR_UNKNOWN_DIM);
    lierne_grid_destroy(grid);
}

/* Views of the same ranks, at random, each sharing what it can with a random older one: dims that
 * agree one by one must agree in every selection, and a key must mean one enumeration. */
typedef struct entry {
    char key[128];
    int ranks[MAX_BRUTE];
} entry;

static int collect_keys(const lierne_grid *grid, const char *view, entry *entries, int n) {
    int ndims = lierne_grid_get_ndims(grid, view);
    for (uint32_t mask = 0; mask < (uint32_t)1 << ndims; mask++, n++) {
        const char *names[LIERNE_MAX_DIMS];
        int count = 0;
        for (int d = 0; d < ndims; d++) {
            if (mask >> d & 1) {
                names[count++] = lierne_grid_get_dim_name(grid, view, d);
            }
        }
        entry *e = &entries[n];
        memset(e, 0, sizeof *e);
        assert_ok(lierne_grid_get_key(e->key, sizeof e->key, NULL, grid, view, names, count));
        assert_ok(lierne_grid_get_groups(e->ranks, NULL, NULL, grid, view, names, count));
        e->ranks[MAX_BRUTE - 1] = count;
    }
    return n;
}

/* Which dims may be shared, by brute force. */
static int find_shared(const brute *a, const brute *b, const char **shared) {
    int n = 0;
    for (int d = 0; d < a->ndims; d++) {
        bool same = true;
        for (int l = 0; l < a->nranks * a->nranks; l++) {
            uint32_t bit = (uint32_t)1 << d;
            int i = l / a->nranks, j = l % a->nranks;
            same = same && together(a, i, j, bit) == together(b, i, j, bit);
        }
        if (same) {
            shared[n++] = pool[d];
        }
    }
    return n;
}

static void shuffle_sizes(int64_t *sizes) {
    for (int i = 3; i > 0; i--) {
        int j = rand() % (i + 1);
        int64_t t = sizes[i];
        sizes[i] = sizes[j], sizes[j] = t;
    }
}

/* Adds view v, which shares what it can with view `with`: never more. Returns how many dims. */
static int add_random_view(lierne_grid *grid, brute *b, int v, int with, int64_t *sizes) {
    static const char *const views[] = {"base", "v1", "v2", "v3"};
    const char *shared[4];
    shuffle_sizes(sizes);
    brute_fill(&b[v], 4, sizes);
    int n = find_shared(&b[v], &b[with], shared);
    lierne_view_spec view = {.size = sizeof view,
                             .name = views[v],
                             .ndims = 4,
                             .names = pool,
                             .sizes = sizes,
                             .shared = pool,
                             .nshared = 4,
                             .with = views[with]};
    lierne_status status = lierne_grid_add_view(grid, &view);
    cr_assert_eq(status, n == 4 ? LIERNE_OK : LIERNE_ERR_MEMBERSHIP);
    if (n < 4) {
        view.shared = shared, view.nshared = n;
        assert_ok(lierne_grid_add_view(grid, &view));
    }
    return n;
}

static void check_keys(const lierne_grid *grid) {
    entry entries[64];
    int n = 0;
    for (int v = 0; v < lierne_grid_get_nviews(grid); v++) {
        n = collect_keys(grid, lierne_grid_get_view_name(grid, v), entries, n);
    }
    for (int i = 0; i < n * n; i++) {
        const entry *p = &entries[i / n], *q = &entries[i % n];
        bool same = memcmp(p->ranks, q->ranks, sizeof p->ranks) == 0;
        cr_assert(strcmp(p->key, q->key) != 0 || same, "%s", p->key);
    }
}

Test(grid_keys, equal_keys_mean_equal_groups_whatever_views_share) {
    int shared = 0;
    srand(7);
    for (int trial = 0; trial < 500; trial++) {
        int64_t sizes[] = {1 + rand() % 2, 2, 2, 3};
        brute b[4];
        lierne_grid *grid;
        shuffle_sizes(sizes);
        brute_fill(&b[0], 4, sizes);
        lierne_grid_spec spec = {.size = sizeof spec,
                                 .ndims = 4,
                                 .names = pool,
                                 .sizes = sizes,
                                 .world_size = b[0].nranks};
        assert_ok(lierne_grid_create(&grid, &spec));
        for (int v = 1; v < 4; v++) {
            shared += add_random_view(grid, b, v, rand() % v, sizes);
        }
        check_keys(grid);
        lierne_grid_destroy(grid);
    }
    cr_assert(shared > 500 && shared < 5500, "%d of 6000 dims shared", shared);
}
