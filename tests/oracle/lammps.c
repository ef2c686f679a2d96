/* Halos of LAMMPS itself: the swaps of a melt that LAMMPS made. A plan of them must give the ghosts
 * that LAMMPS has, its adjoint the results of LAMMPS' reverse communication, bit for bit, and
 * bricks must make the same swaps from the same atoms. Built and run by tests/cli/test_lammps.sh.
 */
#include "mpi/common.h"
#include "oracle/melt.h"

#include "lierne/halo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where nothing is sent, there is no known peer: the low and the high side alternate, as often on
 * each axis as the cutoff reaches across bricks. */
static void name_peers(melt_swaps *m) {
    int s = 0, wrong = 0;
    for (int d = 0; d < 3; d++) {
        int hops = (int)(m->cutoff * m->grid[d] / m->box[d]) + 1;
        for (int k = 0; k < 2 * hops && s < m->nswap; k++, s++) {
            int to = m->neighbour[d][k % 2], from = m->neighbour[d][1 - k % 2];
            wrong += m->sendproc[s] != -1 && m->sendproc[s] != to;
            wrong += m->recvproc[s] != -1 && m->recvproc[s] != from;
            m->sendproc[s] = to;
            m->recvproc[s] = from;
        }
    }
    CHECK(wrong == 0 && s == m->nswap, "%d of %d swaps, %d peers of another side", s, m->nswap,
          wrong);
}

static lierne_halo_spec spec_of(const melt_swaps *m, lierne_dtype dtype) {
    lierne_halo_spec spec = {.size = sizeof spec,
                             .nlocal = m->nlocal,
                             .nghost = m->nghost,
                             .nswap = m->nswap,
                             .sendproc = m->sendproc,
                             .recvproc = m->recvproc,
                             .sendnum = m->sendnum,
                             .recvnum = m->recvnum,
                             .sendlist = (const int64_t *const *)m->sendlist,
                             .dtype = dtype,
                             .width = 1};
    return spec;
}

/* Ghosts are copies of the atoms that LAMMPS says they are. */
static void check_tags(lierne_context *context, const melt_swaps *m) {
    lierne_plan *plan = NULL;
    int64_t n = m->nlocal + m->nghost, *out = calloc((size_t)n + 1, sizeof *out);
    int64_t *in = calloc((size_t)n + 1, sizeof *in);
    lierne_halo_spec spec = spec_of(m, LIERNE_DTYPE_I64);
    memcpy(in, m->tag, (size_t)m->nlocal * sizeof *in);
    CHECK(lierne_plan_create_halo(&plan, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(memcmp(out, m->tag, (size_t)n * sizeof *out) == 0, "ghosts are other atoms");
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    free(in), free(out);
}

/* Random numbers, whose sums show the order of additions. */
static void check_values(lierne_context *context, melt *lammps, const melt_swaps *m) {
    lierne_plan *plan = NULL;
    int64_t n = m->nlocal + m->nghost, wrong = 0;
    double *in = calloc((size_t)n + 1, sizeof *in), *out = calloc((size_t)n + 1, sizeof *out);
    double *theirs = calloc((size_t)n + 1, sizeof *theirs);
    lierne_halo_spec spec = spec_of(m, LIERNE_DTYPE_F64);
    for (int64_t i = 0; i < n; i++) {
        in[i] = (double)mix((uint64_t)(test_rank * 100000 + i)) * 0x1p-64 - 0.5;
    }
    CHECK(lierne_plan_create_halo(&plan, context, &spec) == LIERNE_OK, "%s", lierne_last_error());
    memcpy(theirs, in, (size_t)n * sizeof *in);
    melt_forward(lammps, theirs);
    CHECK(lierne_plan_forward(plan, out, in, NULL) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(memcmp(out, theirs, (size_t)n * sizeof *out) == 0, "forward differs from LAMMPS'");
    memcpy(theirs, in, (size_t)n * sizeof *in);
    melt_reverse(lammps, theirs); /* leaves ghosts as they are */
    CHECK(lierne_plan_adjoint(plan, out, in, NULL) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(memcmp(out, theirs, (size_t)m->nlocal * sizeof *out) == 0,
          "adjoint differs from LAMMPS' reverse communication");
    for (int64_t i = m->nlocal; i < n; i++) {
        wrong += out[i] != 0;
    }
    CHECK(wrong == 0, "%lld ghosts are not zero", (long long)wrong);
    CHECK(lierne_plan_destroy(plan) == LIERNE_OK, "%s", lierne_last_error());
    free(in), free(out), free(theirs);
}

static void check_swaps(const melt_swaps *m, const lierne_halo_spec *own) {
    if (!CHECK(own->nlocal == m->nlocal && own->nghost == m->nghost && own->nswap == m->nswap,
               "%lld ghosts by %d swaps, LAMMPS has %lld by %d", (long long)own->nghost, own->nswap,
               (long long)m->nghost, m->nswap)) {
        return;
    }
    for (int s = 0; s < m->nswap; s++) {
        CHECK(own->sendproc[s] == m->sendproc[s] && own->recvproc[s] == m->recvproc[s] &&
                  own->sendnum[s] == m->sendnum[s] && own->recvnum[s] == m->recvnum[s] &&
                  memcmp(own->sendlist[s], m->sendlist[s],
                         (size_t)m->sendnum[s] * sizeof(int64_t)) == 0,
              "swap %d: %lld rows to %d and %lld from %d, LAMMPS %lld to %d and %lld from %d", s,
              (long long)own->sendnum[s], own->sendproc[s], (long long)own->recvnum[s],
              own->recvproc[s], (long long)m->sendnum[s], m->sendproc[s], (long long)m->recvnum[s],
              m->recvproc[s]);
    }
}

/* Bricks of the same atoms come to the same swaps, and to the same images. */
static void check_brick(lierne_context *context, const melt_swaps *m) {
    lierne_brick *brick = NULL;
    double most = 0;
    lierne_brick_spec spec = {.size = sizeof spec,
                              .periodic = {1, 1, 1},
                              .cutoff = m->cutoff,
                              .nlocal = m->nlocal,
                              .positions = m->at};
    lierne_halo_spec own = {.size = sizeof own};
    memcpy(spec.grid, m->grid, sizeof spec.grid);
    memcpy(spec.box, m->box, sizeof spec.box);
    if (!CHECK(lierne_brick_create(&brick, context, &spec) == LIERNE_OK &&
                   lierne_brick_get_swaps(&own, brick) == LIERNE_OK,
               "%s", lierne_last_error())) {
        return;
    }
    check_swaps(m, &own);
    for (int64_t i = 0; i < 3 * m->nghost && own.nghost == m->nghost; i++) {
        most = fmax(most, fabs(lierne_brick_get_ghosts(brick)[i] - m->at[3 * m->nlocal + i]));
    }
    CHECK(most < 1e-12, "a ghost is %g away from where LAMMPS has it", most);
    lierne_brick_destroy(brick);
}

/* cells and skin: a cutoff that reaches into the next box, and one that reaches beyond it. */
static void run_melt(lierne_context *context, const int *cells, double skin) {
    melt_swaps m;
    melt *lammps = melt_open(MPI_COMM_WORLD, cells, skin, &m);
    if (CHECK(lammps != NULL, "LAMMPS does not start")) {
        int64_t rows = 0;
        for (int s = 0; s < m.nswap; s++) {
            rows += m.recvnum[s];
        }
        CHECK(m.nswap >= 6 && m.nghost > 0 && rows == m.nghost, "%d swaps of %lld ghosts", m.nswap,
              (long long)m.nghost);
        name_peers(&m);
        check_tags(context, &m);
        check_values(context, lammps, &m);
        check_brick(context, &m);
        melt_close(lammps, &m);
    }
}

int main(int argc, char **argv) {
    lierne_context *context;
    test_start(&argc, &argv);
    size_t before = lierne_mem_live();
    CHECK(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL) == LIERNE_OK, "%s",
          lierne_last_error());
    run_melt(context, (int[]){4, 5, 6}, 0.3);
    run_melt(context, (int[]){7, 4, 4}, 0.9);
    run_melt(context, (int[]){2, 2, 3}, 1.2);
    CHECK(lierne_context_destroy(context) == LIERNE_OK, "%s", lierne_last_error());
    CHECK(lierne_mem_live() == before, "leaked");
    return test_finish();
}
