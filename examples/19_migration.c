/* 19_migration: atoms that fly around a ring of ranks, with all their fields.
 *
 * Introduces lierne_plan_create_migration: rows that change their owner, planned once, updated in
 * every step; retyped plans of the other fields, coalesced, so that a step is one update and one
 * message per pair of ranks; and the adjoint, which takes the atoms back where they came from.
 *
 * mpirun -n 4 build/examples/19_migration */
#include <lierne.h>
#include <lierne/mpi.h>
#include <mpi.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { ATOMS = 60, STEPS = 50, MOST = 1000, FIELDS = 3 };

typedef struct atoms {
    int64_t n;
    double x[MOST]; /* on a ring of length `world`: rank r has those in [r, r + 1) */
    int32_t species[MOST];
    int64_t number[MOST];
} atoms;

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* Atoms fly at speeds of their own. Fills where each of them is now. */
static void fly(atoms *a, int world, int32_t *owner) {
    for (int64_t i = 0; i < a->n; i++) {
        a->x[i] = fmod(a->x[i] + 0.01 * (double)(a->number[i] % 7), world);
        owner[i] = (int32_t)a->x[i];
    }
}

static lierne_migration_spec spec_of(int64_t n, const int32_t *owner) {
    return (lierne_migration_spec){.size = sizeof(lierne_migration_spec),
                                   .nrows = n,
                                   .owner = owner,
                                   .dtype = LIERNE_DTYPE_F64,
                                   .width = 1};
}

static lierne_plan *retype(lierne_plan *like, lierne_dtype dtype) {
    const lierne_retyped_spec spec = {.size = sizeof spec, .dtype = dtype, .width = 1};
    lierne_plan *plan;
    must(lierne_plan_create_retyped(&plan, like, &spec));
    return plan;
}

/* A step: who leaves, and all fields of those. Returns how many atoms other ranks sent. */
static int64_t migrate(lierne_coalesced *fields, lierne_plan *positions, const atoms *from,
                       atoms *to, const int32_t *owner) {
    const lierne_migration_spec spec = spec_of(from->n, owner);
    const void *in[FIELDS] = {from->x, from->species, from->number};
    void *out[FIELDS] = {to->x, to->species, to->number};
    lierne_graph_lists lists = {.size = sizeof lists};
    int64_t arrived = 0;
    must(lierne_coalesced_update_migration(fields, &spec));
    must(lierne_plan_get_graph_lists(&lists, positions));
    if (lists.nghosts > MOST) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    must(lierne_coalesced_begin(fields, LIERNE_DIRECTION_FORWARD, out, in, NULL));
    must(lierne_coalesced_end(fields, LIERNE_DIRECTION_FORWARD));
    to->n = lists.nghosts;
    for (int64_t s = 0; s < lists.nsenders; s++) {
        arrived += lists.sender_counts[s];
    }
    return arrived;
}

/* Atoms on a wrong rank, or whose fields are not their own. */
static int64_t count_wrong(const atoms *a, int rank) {
    int64_t wrong = 0;
    for (int64_t i = 0; i < a->n; i++) {
        wrong += (int)a->x[i] != rank || a->species[i] != a->number[i] % 3;
    }
    return wrong;
}

int main(int argc, char **argv) {
    static atoms sides[2], home;
    static int32_t owner[MOST];
    atoms *now = &sides[0], *next = &sides[1];
    int rank, world;
    int64_t mine[3] = {0}, all[3] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    now->n = ATOMS;
    for (int i = 0; i < ATOMS; i++) {
        now->x[i] = rank + (i + 0.5) / ATOMS;
        now->number[i] = rank * ATOMS + i;
        now->species[i] = (int32_t)(now->number[i] % 3);
        owner[i] = rank;
    }

    lierne_context *context;
    lierne_coalesced *fields;
    lierne_plan *positions;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    const lierne_migration_spec stay = spec_of(now->n, owner);
    must(lierne_plan_create_migration(&positions, context, &stay));
    lierne_plan *species = retype(positions, LIERNE_DTYPE_I32);
    lierne_plan *numbers = retype(positions, LIERNE_DTYPE_I64);
    must(lierne_coalesced_create(&fields, (lierne_plan *[]){positions, species, numbers}, FIELDS));
    for (int step = 0; step < STEPS; step++) {
        fly(now, world, owner);
        mine[0] += migrate(fields, positions, now, next, owner);
        mine[1] += count_wrong(next, rank);
        atoms *was = now;
        now = next;
        next = was;
    }

    /* Back to where the last step began: a model can be differentiated through it. */
    must(lierne_plan_adjoint(numbers, home.number, now->number, NULL));
    for (int64_t i = 0; i < next->n; i++) {
        mine[2] += home.number[i] != next->number[i];
    }
    MPI_Reduce(mine, all, 3, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d steps: %d atoms changed their rank, %d are wrong\n", STEPS, (int)all[0],
               (int)all[1]);
        printf("the last step back: %d are wrong\n", (int)all[2]);
    }
    must(lierne_coalesced_destroy(fields));
    must(lierne_plan_destroy(species));
    must(lierne_plan_destroy(numbers));
    must(lierne_plan_destroy(positions));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return all[1] + all[2] > 0;
}
