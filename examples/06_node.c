/* 06_node: a context without MPI.
 *
 * Introduces lierne_context_create_node. The ranks are processes of one node. This program forks
 * them and gives each its rank, the number of ranks and the name of the job. Under torchrun, mpirun
 * or srun, lierne_context_create_node(&context, NULL) reads all three from the environment.
 *
 * Run it without a launcher: build/examples/06_node */
#include <lierne.h>
#include <lierne/node.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, SIZE = 12, OWN = SIZE / RANKS };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        exit(1); /* the other ranks learn it: PEER_FAILED */
    }
}

static lierne_layout *layout(const lierne_grid *grid, lierne_placement_kind kind) {
    const int64_t shape[] = {SIZE};
    const lierne_placement placement = {.kind = kind};
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = grid,
                                     .naxes = 1,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_F32,
                                     .placements = &placement};
    lierne_layout *l;
    must(lierne_layout_create(&l, &spec));
    return l;
}

/* Every rank has a share of a vector, and gets the whole. Returns the number of wrong elements. */
static int gather(lierne_context *context, int rank) {
    const char *names[] = {"dp"};
    const int64_t sizes[] = {RANKS};
    const lierne_grid_spec grid_spec = {
        .size = sizeof grid_spec, .ndims = 1, .names = names, .sizes = sizes, .world_size = RANKS};
    lierne_grid *grid;
    lierne_plan *plan;
    float own[OWN], all[SIZE];
    int wrong = 0;
    must(lierne_grid_create(&grid, &grid_spec));
    lierne_layout *shares = layout(grid, LIERNE_PLACEMENT_SHARD),
                  *whole = layout(grid, LIERNE_PLACEMENT_REPLICATE);
    const lierne_redistribute_spec spec = {.size = sizeof spec, .src = shares, .dst = whole};
    must(lierne_plan_create_redistribute(&plan, context, &spec));
    for (int i = 0; i < OWN; i++) {
        own[i] = (float)(10 * (rank * OWN + i));
    }
    must(lierne_plan_forward(plan, all, own, NULL));
    for (int i = 0; i < SIZE; i++) {
        wrong += all[i] != (float)(10 * i);
    }
    must(lierne_plan_destroy(plan));
    lierne_layout_destroy(shares);
    lierne_layout_destroy(whole);
    lierne_grid_destroy(grid);
    return wrong;
}

/* Returns the exit status of a rank. */
static int work(int rank, const char *job) {
    const lierne_node_spec spec = {.size = sizeof spec, .rank = rank, .world = RANKS, .name = job};
    lierne_context *context;
    must(lierne_context_create_node(&context, &spec));
    int wrong = gather(context, rank);
    must(lierne_context_destroy(context));
    return wrong > 0;
}

int main(void) {
    char job[40];
    int right = 0, status;
    snprintf(job, sizeof job, "06_node/%d", (int)getpid());
    for (int r = 0; r < RANKS; r++) {
        if (fork() == 0) {
            return work(r, job);
        }
    }
    while (wait(&status) > 0) {
        right += status == 0;
    }
    printf("%d of %d ranks have the whole vector\n", right, RANKS);
    return right != RANKS;
}
