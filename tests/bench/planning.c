/* What planning costs: one rank's plan of a bridge, forward and adjoint, in worlds up to 131,072
 * ranks, and all groups of a grid. Planned on the sim transport, where agreeing is a comparison, so
 * that the times are those of planning alone. The tensor is small, so that the times do not include
 * allocating a plan's buffers.
 *
 *   planning [quick | updates | halos]
 *
 * updates is what new segments of a packed sequence cost a plan, alone; halos what dense halos
 * cost. quick is one round in worlds up to 1,024 ranks. Checks the targets: 2 ms at 4,096 ranks, 10
 * ms at 131,072 and with balanced routing, and 1 MB for a plan; for assignments of samples 5 ms
 * with 10,000 items on 1,000 ranks, and 15 ms with 30,720 on 1,024; for a box of halos with 26
 * neighbours 1 ms at 4,096 ranks and 2 ms at 131,072; for 1,000 new documents 50 us. */
#include "bench/checks.h"
#include "lierne.h"
#include "lierne/sim.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 21
#define NODE   8

static double now(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

static lierne_grid *grid_of(int world, int64_t tp, int64_t cp) {
    const char *names[] = {"tp", "cp", "dp"};
    const int64_t sizes[] = {tp, cp, world / tp / cp};
    lierne_grid *grid = NULL;
    lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 3, .names = names, .sizes = sizes, .world_size = world};
    check(lierne_grid_create(&grid, &spec) == LIERNE_OK, "a grid");
    return grid;
}

/* Median time of one rank's plan, in seconds. */
static double time_plan(lierne_sim *sim, int rank, const lierne_bridge_spec *spec, int rounds,
                        size_t *bytes) {
    double seconds[ROUNDS];
    for (int i = 0; i < rounds; i++) {
        lierne_plan *plan;
        lierne_context *context = lierne_sim_get_context(sim, rank);
        size_t before = mallinfo2().uordblks;
        double start = now();
        lierne_status status = lierne_plan_create_bridge(&plan, context, spec);
        seconds[i] = now() - start;
        *bytes = mallinfo2().uordblks - before;
        check(status == LIERNE_OK && lierne_plan_destroy(plan) == LIERNE_OK, "a plan");
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
    return seconds[rounds / 2];
}

static void run_bridge(lierne_sim *sim, int world, const char *text, lierne_bridge_spec *spec,
                       int rounds) {
    static const char *const owners[] = {"partial", "zigzag"};
    const int ranks[] = {0, world / 2 + 3, world - 1};
    for (int i = 0; i < 4; i++) {
        bool owned = i % 2, balanced = i / 2;
        size_t bytes = 0;
        printf("%7d  %-24s %-8s %-8s", world, text, owners[owned],
               balanced ? "balanced" : "direct");
        spec->gradient_owner = owned ? LIERNE_GRADIENT_OWNER_ZIGZAG : LIERNE_GRADIENT_OWNER_PARTIAL;
        spec->routing = balanced ? LIERNE_ROUTING_BALANCED : LIERNE_ROUTING_DIRECT;
        for (int r = 0; r < 3; r++) {
            printf(" %9.3f", 1e3 * time_plan(sim, ranks[r], spec, rounds, &bytes));
        }
        printf(" %9.1f\n", (double)bytes / 1024);
        check(bytes < 1 << 20, "a plan in 1 MB");
    }
}

static void run_world(int world, int rounds) {
    int *nodes = malloc((size_t)world * sizeof *nodes);
    lierne_sim *sim = NULL;
    for (int r = 0; nodes && r < world; r++) {
        nodes[r] = r / NODE;
    }
    lierne_context_spec context = {.size = sizeof context, .nodes = nodes};
    check(nodes && lierne_sim_create(&sim, world, &context) == LIERNE_OK, "a world");
    lierne_grid *wide = grid_of(world, 2, 1), *narrow = grid_of(world, 8, 4);
    lierne_grid *back = grid_of(world, 2, 4), *one = grid_of(world, 8, 1);
    int64_t shape[] = {world / 2, 64, 4};
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = wide,
                               .dst = narrow,
                               .naxes = 3,
                               .shape = shape,
                               .dtype = LIERNE_DTYPE_BF16,
                               .sequence_axis = 1};
    run_bridge(sim, world, "tp2 dp -> tp8 cp4 dp/16", &spec, rounds);
    spec.src = one;
    spec.dst = back;
    run_bridge(sim, world, "tp8 dp -> tp2 cp4 dp", &spec, rounds);
    lierne_grid_destroy(wide);
    lierne_grid_destroy(narrow);
    lierne_grid_destroy(back);
    lierne_grid_destroy(one);
    check(lierne_sim_destroy(sim) == LIERNE_OK, "the world's end");
    free(nodes);
}

static void run_groups(int world, int rounds) {
    const char *dims[] = {"tp", "dp"};
    lierne_grid *grid = grid_of(world, 8, 4);
    int *ranks = malloc((size_t)world * sizeof *ranks), ngroups = 0, size = 0;
    double seconds[ROUNDS];
    for (int i = 0; i < rounds; i++) {
        double start = now();
        lierne_status status = lierne_grid_get_groups(ranks, &ngroups, &size, grid, NULL, dims, 2);
        seconds[i] = now() - start;
        check(status == LIERNE_OK && ngroups * size == world, "groups");
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
    printf("all %d groups of tp and dp of %d ranks: %.1f us\n", ngroups, world,
           1e6 * seconds[rounds / 2]);
    free(ranks);
    lierne_grid_destroy(grid);
}

/* Lengths of 16 to some thousands of rows, most of them near 500. */
static void draw_lengths(int64_t *rows, int64_t *homes, int n, int nranks) {
    uint64_t x = 2435719230u;
    for (int i = 0; i < n; i++) {
        uint64_t exponent = 0;
        for (int k = 0; k < 8; k++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            exponent += (x >> 33) % 8;
        }
        uint64_t base = (uint64_t)16 << (exponent / 8);
        rows[i] = (int64_t)(base + base * (exponent % 8) / 8 + (x >> 40) % (base / 8));
        homes[(int64_t)i * nranks / n]++;
    }
}

/* One mode of an assignment. most: the aim, in seconds; 0: none. */
static void time_assignment(const lierne_items *items, const int64_t *homes, int nranks,
                            lierne_balance_mode mode, int rounds, double most) {
    static const char *const names[] = {"shed", "lpt", "kk", "contiguous"};
    lierne_balance_spec spec = LIERNE_BALANCE_SPEC_INIT;
    lierne_assignment_report r = {.size = sizeof r};
    double seconds[ROUNDS];
    spec.mode = mode;
    for (int i = 0; i < rounds; i++) {
        lierne_assignment *a;
        double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        lierne_status status = lierne_assignment_create(&a, items, homes, nranks, &spec);
        seconds[i] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start;
        check(status == LIERNE_OK && lierne_assignment_get_report(&r, a) == LIERNE_OK, "items");
        lierne_assignment_destroy(a);
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
    printf("%7lld %7d  %-12s %9.3f %9.4f %12lld %9lld\n", (long long)items->nitems, nranks,
           names[mode], 1e3 * seconds[rounds / 2], (double)r.max_load / (double)r.lower_bound,
           (long long)r.moved_rows, (long long)r.messages);
    check(most == 0 || rounds == 1 || seconds[rounds / 2] <= most, "an assignment in time");
}

static void run_assignments(int n, int nranks, int rounds, double most) {
    int64_t *rows = malloc((size_t)n * sizeof *rows), *homes = calloc((size_t)nranks, 8);
    draw_lengths(rows, homes, n, nranks);
    const lierne_items items = {sizeof items, n, 1, rows, NULL, NULL, NULL};
    for (int mode = LIERNE_BALANCE_SHED; mode <= LIERNE_BALANCE_CONTIGUOUS; mode++) {
        if (mode != LIERNE_BALANCE_KK || nranks <= 64) {
            time_assignment(&items, homes, nranks, (lierne_balance_mode)mode, rounds,
                            mode <= LIERNE_BALANCE_LPT ? most : 0);
        }
    }
    free(rows);
    free(homes);
}

/* ---- new segments for a plan: zigzag over CP ranks to contiguous shares ---- */

enum { CP = 16 };

/* Boundaries of n segments of unequal lengths, together `tokens`. */
static void draw_segments(int64_t *cu, int n, int64_t tokens, uint64_t x) {
    cu[0] = 0;
    for (int i = 0; i < n; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int64_t left = tokens - cu[i], mean = left / (n - i);
        int64_t length = mean / 2 + (int64_t)((x >> 33) % (uint64_t)(mean + 1));
        length = length < left - (n - i - 1) ? length : left - (n - i - 1);
        cu[i + 1] = cu[i] + (i + 1 == n ? left : length > 0 ? length : 1);
    }
}

static lierne_layout *segments_layout(const lierne_grid *grid, const lierne_segments *segments,
                                      const lierne_packing *packing, lierne_placement_kind kind) {
    const lierne_placement cut = {.kind = kind};
    const int64_t shape[] = {segments->cu_seqlens[segments->nsegments], 2048};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_BF16,
                                     .placements = &cut,
                                     .segments = segments,
                                     .packing = packing};
    lierne_layout *layout = NULL;
    check(lierne_layout_create(&layout, &spec) == LIERNE_OK, "a packed layout");
    return layout;
}

/* A plan of two segments lists for one rank; nothing is moved, so its buffers need no memory. */
static lierne_plan *segments_plan(lierne_sim *sim, int rank, const lierne_segments *segments,
                                  const lierne_packing *packing) {
    static const char *const names[] = {"cp"};
    const int64_t sizes[] = {CP};
    const lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = CP};
    lierne_grid *grid = NULL;
    lierne_plan *plan = NULL;
    check(lierne_grid_create(&grid, &grid_spec) == LIERNE_OK, "a grid");
    lierne_layout *src = segments_layout(grid, segments, packing, LIERNE_PLACEMENT_SEGMENT_ZIGZAG),
                  *dst = segments_layout(grid, segments, packing, LIERNE_PLACEMENT_SHARD);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = src,
                                           .dst = dst,
                                           .max_segments = segments->nsegments,
                                           .max_rows =
                                               segments->cu_seqlens[segments->nsegments] / CP +
                                               3 * segments->nsegments + 64};
    check(lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, rank), &spec) ==
              LIERNE_OK,
          "a plan whose segments change");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    return plan;
}

/* Median of updates that take turns between two lists of segments. most: the aim, in seconds; 0:
 * none. */
static void run_segments(int n, int64_t tokens, int rounds, double most) {
    int64_t *cu[2] = {malloc(((size_t)n + 1) * 8), malloc(((size_t)n + 1) * 8)};
    lierne_sim *sim = NULL;
    check(lierne_sim_create(&sim, CP, NULL) == LIERNE_OK, "a world");
    printf("%8d,%8lld", n, (long long)tokens);
    lierne_segments segments[2];
    const lierne_packing packing = {.size = sizeof packing, .align = 2 * CP};
    for (int k = 0; k < 2; k++) {
        draw_segments(cu[k], n, tokens, 17u + (uint64_t)k);
        segments[k] = (lierne_segments){sizeof segments[k], n, cu[k]};
    }
    for (int rank = 0; rank < CP; rank += 7) {
        double seconds[ROUNDS];
        lierne_plan *plan = segments_plan(sim, rank, &segments[0], &packing);
        for (int i = 0; i < rounds + 2; i++) { /* two to warm up */
            const lierne_segments_update u = {.size = sizeof u,
                                              .segments = &segments[!(i % 2)],
                                              .src = &packing,
                                              .dst = &packing};
            double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
            lierne_status status = lierne_plan_update_segments(plan, &u);
            seconds[i < 2 ? 0 : i - 2] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start;
            check(status == LIERNE_OK, "an update");
        }
        qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
        printf(",%9.1f", 1e6 * seconds[rounds / 2]);
        check(most == 0 || rounds == 1 || seconds[rounds / 2] <= most, "an update in time");
        check(lierne_plan_destroy(plan) == LIERNE_OK, "a plan's end");
    }
    printf("\n");
    check(lierne_sim_destroy(sim) == LIERNE_OK, "the world's end");
    free(cu[0]);
    free(cu[1]);
}

static void run_updates(int rounds) {
    static const int numbers[] = {64, 1024, 4096, 65536};
    printf("new segments for one rank's plan, both directions, cp %d, zigzag to contiguous, "
           "microseconds of the processor\n%8s,%8s,%9s,%9s,%9s\n",
           CP, "segments", "tokens", "rank 0", "rank 7", "rank 14");
    for (int i = 0; i < 4; i++) {
        run_segments(numbers[i], 1 << 16, rounds, 0);
        run_segments(numbers[i], 1 << 20, rounds, 0);
    }
}

/* ---- dense halos ---- */

static lierne_layout *halo_layout(const lierne_grid *grid, int naxes, const int64_t *shape,
                                  const lierne_dense_halo *halos, int nhalos) {
    lierne_placement cuts[3];
    for (int d = 0; d < 3; d++) {
        cuts[d] = (lierne_placement){.kind = LIERNE_PLACEMENT_SHARD, .axis = d};
    }
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = naxes,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = cuts,
                                     .nhalos = nhalos,
                                     .halos = halos};
    lierne_layout *layout = NULL;
    check(lierne_layout_create(&layout, &spec) == LIERNE_OK, "a layout with halos");
    return layout;
}

static lierne_grid *box_grid(int ndims, const int64_t *sizes, int world) {
    static const char *const names[] = {"x", "y", "z"};
    const lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = ndims, .names = names, .sizes = sizes, .world_size = world};
    lierne_grid *grid = NULL;
    check(lierne_grid_create(&grid, &spec) == LIERNE_OK, "a grid");
    return grid;
}

/* Parts of 8 x 8 x 8 with margins of width 1 around: 26 neighbours. most: the aim, in seconds. */
static void run_box(int64_t x, int64_t y, int64_t z, lierne_boundary boundary, int rounds,
                    double most) {
    int world = (int)(x * y * z), rank = world / 2 + 3;
    const int64_t sizes[] = {x, y, z}, shape[] = {8 * x, 8 * y, 8 * z};
    lierne_sim *sim = NULL;
    lierne_grid *grid = box_grid(3, sizes, world);
    lierne_dense_halo halos[3];
    double seconds[ROUNDS];
    for (int a = 0; a < 3; a++) {
        halos[a] = (lierne_dense_halo){.axis = a, .boundary = boundary, .lo = 1, .hi = 1};
    }
    lierne_layout *src = halo_layout(grid, 3, shape, NULL, 0),
                  *dst = halo_layout(grid, 3, shape, halos, 3);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    check(lierne_sim_create(&sim, world, NULL) == LIERNE_OK, "a world");
    for (int i = 0; i < rounds; i++) {
        lierne_plan *plan;
        double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        lierne_status status =
            lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, rank), &spec);
        seconds[i] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start;
        check(status == LIERNE_OK && lierne_plan_destroy(plan) == LIERNE_OK, "a plan of halos");
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
    printf("%7d  %-24s %9.1f\n", world,
           boundary == LIERNE_BOUNDARY_PERIODIC ? "box, periodic" : "box, zero",
           1e6 * seconds[rounds / 2]);
    check(rounds == 1 || seconds[rounds / 2] <= most, "a plan of halos in time");
    check(lierne_sim_destroy(sim) == LIERNE_OK, "the world's end");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
}

/* Updates that take turns between two lists of documents of a sequence. */
static void run_documents(int n, lierne_boundary boundary, int rounds, double most) {
    const int64_t size = CP, shape[] = {1 << 20, 128};
    int64_t *cu[2] = {malloc(((size_t)n + 1) * 8), malloc(((size_t)n + 1) * 8)};
    lierne_sim *sim = NULL;
    lierne_plan *plan = NULL;
    lierne_grid *grid = box_grid(1, &size, CP);
    double seconds[ROUNDS];
    draw_segments(cu[0], n, shape[0], 17);
    draw_segments(cu[1], n, shape[0], 18);
    const lierne_dense_halo halo = {.boundary = boundary,
                                    .lo = 1023,
                                    .nsegments = n,
                                    .segments = cu[0]};
    lierne_layout *src = halo_layout(grid, 2, shape, NULL, 0),
                  *dst = halo_layout(grid, 2, shape, &halo, 1);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = src, .dst = dst};
    check(lierne_sim_create(&sim, CP, NULL) == LIERNE_OK &&
              lierne_plan_create_redistribute(&plan, lierne_sim_get_context(sim, 3), &spec) ==
                  LIERNE_OK,
          "a plan with documents");
    for (int i = 0; i < rounds + 2; i++) { /* two to warm up */
        double start = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        lierne_status status = lierne_plan_update_documents(plan, 0, n, cu[!(i % 2)]);
        seconds[i < 2 ? 0 : i - 2] = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - start;
        check(status == LIERNE_OK, "an update of documents");
    }
    qsort(seconds, (size_t)rounds, sizeof *seconds, ascending);
    printf("%7d  %5d documents, %-9s %8.1f\n", CP, n,
           boundary == LIERNE_BOUNDARY_NONE ? "none" : "periodic", 1e6 * seconds[rounds / 2]);
    check(rounds == 1 || seconds[rounds / 2] <= most, "an update of documents in time");
    check(lierne_plan_destroy(plan) == LIERNE_OK && lierne_sim_destroy(sim) == LIERNE_OK,
          "the world's end");
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    free(cu[0]);
    free(cu[1]);
}

static void run_halos(int rounds) {
    printf("one rank's plan of halos, both directions, and new documents for one, microseconds of "
           "the processor\n");
    for (int k = 0; k < 2; k++) {
        lierne_boundary boundary = k ? LIERNE_BOUNDARY_PERIODIC : LIERNE_BOUNDARY_ZERO;
        run_box(16, 16, 16, boundary, rounds, 0.001);
        run_box(64, 64, 32, boundary, rounds, 0.002);
        run_documents(1000, k ? boundary : LIERNE_BOUNDARY_NONE, rounds, 50e-6);
    }
}

int main(int argc, char **argv) {
    static const int worlds[] = {64, 1024, 4096, 16384, 131072};
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    int rounds = quick ? 1 : ROUNDS;
    if (argc > 1 && strcmp(argv[1], "updates") == 0) {
        run_updates(rounds);
        return close_counts();
    }
    if (argc > 1 && strcmp(argv[1], "halos") == 0) {
        run_halos(rounds);
        return close_counts();
    }
    printf("one rank's plan, milliseconds and KiB\n%7s  %-24s %-8s %-8s %9s %9s %9s %9s\n", "ranks",
           "bridge", "gradient", "routing", "rank 0", "middle", "last", "memory");
    for (int i = 0; i < (quick ? 2 : 5); i++) {
        run_world(worlds[i], rounds);
    }
    run_groups(1024, rounds);
    run_updates(rounds);
    run_halos(rounds);
    printf("items to ranks, milliseconds of the processor\n%7s %7s  %-12s %9s %9s %12s %9s\n",
           "items", "ranks", "mode", "median", "max / LB", "rows moved", "messages");
    run_assignments(1920, 64, rounds, 0);
    run_assignments(10000, 1000, rounds, 0.005);
    run_assignments(30720, 1024, rounds, 0.015);
    return close_counts();
}
