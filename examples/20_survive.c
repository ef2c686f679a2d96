/* 20_survive: a rank dies, and the others go on with a new process in its place.
 *
 * Introduces lierne_context_shrink, which makes a context of the ranks that are left,
 * lierne_layout_find_lost, a redistribution of what survives, and lierne_plan_recreate. A vector is
 * cut over 4 ranks, of which rank 3 dies. The ranks that are left take in a fifth process: its part
 * of the vector is what died, so it loads that from a checkpoint (here it is computed).
 *
 * Run it without a launcher: build/examples/20_survive */
#include <lierne.h>
#include <lierne/node.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, SIZE = 12, OWN = SIZE / RANKS, DIES = 3 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        exit(1); /* the other ranks learn it: PEER_FAILED */
    }
}

static float value_of(int64_t i) {
    return (float)(10 * i);
}

static lierne_context *meet(int rank, const char *job) {
    const lierne_node_spec spec = {.size = sizeof spec, .rank = rank, .world = RANKS, .name = job};
    lierne_context *context;
    must(lierne_context_create_node(&context, &spec));
    return context;
}

static lierne_grid *line(void) {
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = 1,
                                   .names = (const char *[]){"dp"},
                                   .sizes = (int64_t[]){RANKS},
                                   .world_size = RANKS};
    lierne_grid *grid;
    must(lierne_grid_create(&grid, &spec));
    return grid;
}

static lierne_layout *layout(lierne_placement_kind kind) {
    const int64_t shape[] = {SIZE};
    const lierne_placement placement = {.kind = kind};
    lierne_grid *grid = line();
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &placement};
    lierne_layout *l;
    must(lierne_layout_create(&l, &spec));
    lierne_grid_destroy(grid);
    return l;
}

/* The plan by which every rank gets the whole vector. */
static lierne_plan *plan_whole(lierne_context *context) {
    lierne_layout *shares = layout(LIERNE_PLACEMENT_SHARD),
                  *whole = layout(LIERNE_PLACEMENT_REPLICATE);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = shares, .dst = whole};
    lierne_plan *plan;
    must(lierne_plan_create_redistribute(&plan, context, &spec));
    lierne_layout_destroy(shares);
    lierne_layout_destroy(whole);
    return plan;
}

/* The same plan in the next context, from the old one where there is one. */
static lierne_plan *plan_again(lierne_context *context, const lierne_plan *old) {
    lierne_plan *plan;
    lierne_grid *grid = line();
    const lierne_recreate_spec spec = {.size = sizeof spec, .src = grid, .dst = grid};
    if (!old) {
        lierne_grid_destroy(grid);
        return plan_whole(context);
    }
    must(lierne_plan_recreate(&plan, context, old, &spec));
    lierne_grid_destroy(grid);
    return plan;
}

/* Moves what survives of the shares to where the new ranks have theirs, and loads the rest. */
static void take_shares(lierne_context *context, const int *former, float *to, const float *from) {
    int rank = lierne_context_get_rank(context);
    lierne_layout *shares = layout(LIERNE_PLACEMENT_SHARD), *left;
    lierne_plan *plan;
    lierne_box box;
    size_t count;
    must(lierne_layout_create_surviving(&left, shares, former, RANKS));
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = left, .dst = shares};
    must(lierne_plan_create_redistribute(&plan, context, &spec));
    must(lierne_plan_forward(plan, to, from, NULL));
    must(lierne_redistribute_find_lost(&box, 1, &count, left, shares, rank));
    if (count > 0) {
        printf("rank %d has joined and loads elements %d to %d\n", rank, (int)box.start[0],
               (int)(box.start[0] + box.size[0] - 1));
        fflush(stdout);
        for (int64_t i = 0; i < box.size[0]; i++) {
            to[box.local[0] + i] = value_of(box.start[0] + i);
        }
    }
    must(lierne_plan_destroy(plan));
    lierne_layout_destroy(left);
    lierne_layout_destroy(shares);
}

/* The next context: the ranks that are left in their order, then the process that joins. */
static int go_on(int rank, const char *job, const lierne_plan *old, const float *from) {
    const int former[RANKS] = {0, 1, 2, -1};
    lierne_context *next = meet(rank, job);
    float share[OWN], all[SIZE];
    int wrong = 0;
    take_shares(next, former, share, from);
    lierne_plan *plan = plan_again(next, old);
    must(lierne_plan_forward(plan, all, share, NULL));
    for (int i = 0; i < SIZE; i++) {
        wrong += all[i] != value_of(i);
    }
    must(lierne_plan_destroy(plan));
    must(lierne_context_destroy(next));
    return wrong > 0;
}

static void say_lost(const lierne_context *smaller) {
    int former[RANKS], n = lierne_context_get_world_size(smaller);
    lierne_layout *shares = layout(LIERNE_PLACEMENT_SHARD);
    lierne_box box;
    size_t count;
    for (int r = 0; r < n; r++) {
        former[r] = lierne_context_get_former_rank(smaller, r);
    }
    must(lierne_layout_find_lost(&box, 1, &count, shares, former, n));
    printf("rank %d has died: elements %d to %d are lost\n", DIES, (int)box.start[0],
           (int)(box.start[0] + box.size[0] - 1));
    fflush(stdout);
    lierne_layout_destroy(shares);
}

/* Returns the exit status of a rank. */
static int work(int rank, const char *job, const char *next) {
    lierne_context *context = meet(rank, job), *smaller;
    lierne_plan *plan = plan_whole(context);
    float own[OWN], all[SIZE];
    for (int i = 0; i < OWN; i++) {
        own[i] = value_of(rank * OWN + i);
    }
    must(lierne_plan_forward(plan, all, own, NULL));
    if (rank == DIES) {
        _exit(0);
    }
    if (lierne_plan_forward(plan, all, own, NULL) != LIERNE_ERR_PEER_FAILED) {
        return 1;
    }
    must(lierne_context_shrink(&smaller, context, NULL));
    if (rank == 0) {
        say_lost(smaller);
    }
    int status = go_on(lierne_context_get_rank(smaller), next, plan, own);
    must(lierne_plan_destroy(plan));
    must(lierne_context_destroy(context));
    must(lierne_context_destroy(smaller));
    return status;
}

int main(void) {
    char job[40], next[40];
    int right = 0, status;
    snprintf(job, sizeof job, "20_survive/%d", (int)getpid());
    snprintf(next, sizeof next, "20_survive/%d/next", (int)getpid());
    for (int r = 0; r <= RANKS; r++) { /* the last one is the process that joins */
        if (fork() == 0) {
            return r < RANKS ? work(r, job, next) : go_on(RANKS - 1, next, NULL, NULL);
        }
    }
    while (wait(&status) > 0) {
        right += status == 0;
    }
    printf("%d of %d ranks have the whole vector again\n", right - 1, RANKS);
    return right != RANKS + 1;
}
