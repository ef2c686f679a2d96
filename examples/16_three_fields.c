/* 16_three_fields: fields of three types through one neighbor list.
 *
 * Introduces lierne_plan_create_retyped: a plan that moves the same rows as rows of another dtype,
 * width and strides, without planning again; and what it is good for: coalesced, the fields travel
 * in one message per peer. Atoms on a ring; each rank needs the first two of the next rank.
 *
 * mpirun -n 4 build/examples/16_three_fields */
#include <lierne.h>
#include <lierne/mpi.h>
#include <mpi.h>

#include <stdio.h>

enum { ATOMS = 3, GHOSTS = 2 };

/* As a simulation keeps its atoms: positions and masses in one array, the rest in others. */
typedef struct fields {
    double x[ATOMS + GHOSTS][4]; /* x, y, z and a mass, which stays here */
    int32_t species[ATOMS + GHOSTS];
    float charge[ATOMS + GHOSTS];
} fields;

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The neighbor list, for species: planned once. */
static lierne_plan *plan_species(lierne_context *context, int next) {
    const int32_t rank[GHOSTS] = {next, next};
    const int64_t row[GHOSTS] = {0, 1};
    lierne_references_spec spec = LIERNE_REFERENCES_SPEC_INIT;
    lierne_plan *plan;
    spec.nowned = ATOMS;
    spec.nghosts = GHOSTS;
    spec.rank = rank;
    spec.row = row;
    spec.dtype = LIERNE_DTYPE_I32;
    spec.combined = 1; /* ghosts behind the owned atoms, in the same array */
    must(lierne_plan_create_references(&plan, context, &spec));
    return plan;
}

/* Rows of `width` elements, `stride` apart. */
static lierne_plan *retype(lierne_plan *like, lierne_dtype dtype, int64_t width, int64_t stride) {
    const lierne_retyped_spec spec = {.size = sizeof spec,
                                      .dtype = dtype,
                                      .width = width,
                                      .in_stride = stride,
                                      .out_stride = stride};
    lierne_plan *plan;
    must(lierne_plan_create_retyped(&plan, like, &spec));
    return plan;
}

/* Of the ghosts; a ghost's mass stays what it was. */
static int count_wrong(const fields *f, int next) {
    int wrong = 0;
    for (int g = 0; g < GHOSTS; g++) {
        for (int c = 0; c < 3; c++) {
            wrong += f->x[ATOMS + g][c] != next + 0.1 * g + c;
        }
        wrong += f->x[ATOMS + g][3] != -1;
        wrong += f->species[ATOMS + g] != 10 * next + g;
        wrong += f->charge[ATOMS + g] != (float)next / 2 - (float)g;
    }
    return wrong;
}

int main(int argc, char **argv) {
    int rank, world, wrong[2] = {0};
    fields f;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    for (int i = 0; i < ATOMS + GHOSTS; i++) {
        for (int c = 0; c < 3; c++) {
            f.x[i][c] = i < ATOMS ? rank + 0.1 * i + c : -1;
        }
        f.x[i][3] = i < ATOMS ? 12 : -1;
        f.species[i] = i < ATOMS ? 10 * rank + i : -1;
        f.charge[i] = i < ATOMS ? (float)rank / 2 - (float)i : -1;
    }

    lierne_context *context;
    lierne_coalesced *all;
    lierne_report report = {.size = sizeof report};
    int64_t sent;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    lierne_plan *species = plan_species(context, (rank + 1) % world);
    lierne_plan *positions = retype(species, LIERNE_DTYPE_F64, 3, 4);
    lierne_plan *charges = retype(species, LIERNE_DTYPE_F32, 1, 1);
    must(lierne_coalesced_create(&all, (lierne_plan *[]){positions, species, charges}, 3));

    /* In place: every plan reads its owned rows and writes its ghosts. */
    void *const arrays[] = {f.x, f.species, f.charge};
    must(lierne_coalesced_begin(all, LIERNE_DIRECTION_FORWARD, arrays, (const void *const *)arrays,
                                NULL));
    must(lierne_coalesced_end(all, LIERNE_DIRECTION_FORWARD));
    must(lierne_coalesced_get_messages(&sent, NULL, all, LIERNE_DIRECTION_FORWARD));
    must(lierne_plan_get_report(&report, positions, LIERNE_DIRECTION_FORWARD));
    wrong[0] = count_wrong(&f, (rank + 1) % world);
    MPI_Reduce(&wrong[0], &wrong[1], 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d of %d elements of ghosts are wrong\n", wrong[1], world * GHOSTS * 6);
        printf("rank 0 sends %d message with three fields, positions are %d bytes of it\n",
               (int)sent, (int)report.sent_bytes);
    }
    must(lierne_coalesced_destroy(all));
    must(lierne_plan_destroy(positions));
    must(lierne_plan_destroy(charges));
    must(lierne_plan_destroy(species));
    must(lierne_context_destroy(context));
    MPI_Finalize();
    return wrong[1] > 0;
}
