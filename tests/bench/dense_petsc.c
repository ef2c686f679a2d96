/* PETSc's DMDA: DMGlobalToLocal fills a local vector, part and margins; DMLocalToGlobal with
 * ADD_VALUES is its adjoint, for which the global vector is set to zero first. Axes without a halo
 * behind the others are its degrees of freedom. Only workloads of the scalar that PETSc was built
 * for, with equal widths, have such a line. */
#include "bench/dense.h"

#ifdef HAVE_PETSC

#include <petscdmda.h>
#include <stdlib.h>

typedef struct dmda {
    method base;
    DM dm;
    Vec global, local;
} dmda;

static bool run_dmda(method *m, int direction) {
    dmda *d = (dmda *)m;
    if (direction == FORWARD) {
        return DMGlobalToLocalBegin(d->dm, d->global, INSERT_VALUES, d->local) == 0 &&
               DMGlobalToLocalEnd(d->dm, d->global, INSERT_VALUES, d->local) == 0;
    }
    return VecSet(d->global, 0) == 0 &&
           DMLocalToGlobalBegin(d->dm, d->local, ADD_VALUES, d->global) == 0 &&
           DMLocalToGlobalEnd(d->dm, d->local, ADD_VALUES, d->global) == 0;
}

static void close_dmda(method *m) {
    dmda *d = (dmda *)m;
    VecDestroy(&d->global);
    VecDestroy(&d->local);
    DMDestroy(&d->dm);
    free(d);
}

static bool create(dmda *d, const dense *w, int spatial, PetscInt dof) {
    const dense_axis *x = &w->axes[spatial - 1], *y = x - 1, *z = x - 2;
    DMBoundaryType b = x->periodic ? DM_BOUNDARY_PERIODIC : DM_BOUNDARY_NONE;
    DMDAStencilType s = w->stencil == LIERNE_STENCIL_STAR ? DMDA_STENCIL_STAR : DMDA_STENCIL_BOX;
    PetscInt width = (PetscInt)x->lo;
    return (spatial == 2
                ? DMDACreate2d(MPI_COMM_WORLD, b, b, s, (PetscInt)x->size, (PetscInt)y->size,
                               x->ranks, y->ranks, dof, width, NULL, NULL, &d->dm)
                : DMDACreate3d(MPI_COMM_WORLD, b, b, b, s, (PetscInt)x->size, (PetscInt)y->size,
                               (PetscInt)z->size, x->ranks, y->ranks, z->ranks, dof, width, NULL,
                               NULL, NULL, &d->dm)) == 0 &&
           DMSetUp(d->dm) == 0;
}

static bool vectors(dmda *d, const dense *w) {
    return VecCreateMPIWithArray(MPI_COMM_WORLD, 1, (PetscInt)(w->bytes[0] / w->element),
                                 PETSC_DETERMINE, (void *)w->part, &d->global) == 0 &&
           VecCreateSeqWithArray(PETSC_COMM_SELF, 1, (PetscInt)(w->bytes[1] / w->element),
                                 (void *)w->padded, &d->local) == 0;
}

static method *open_dmda(const void *of) {
    const dense *w = of;
    int spatial = 0;
    PetscInt dof = 1;
    while (spatial < w->naxes && w->axes[spatial].lo > 0) {
        spatial++;
    }
    for (int k = spatial; k < w->naxes; k++) {
        dof *= (PetscInt)w->axes[k].size;
    }
    if (w->dtype != (sizeof(PetscScalar) == 8 ? LIERNE_DTYPE_F64 : LIERNE_DTYPE_F32) ||
        spatial < 2) {
        return NULL;
    }
    dmda *d = (dmda *)(void *)take(sizeof *d);
    CHECK(create(d, w, spatial, dof) && vectors(d, w), "a DMDA cannot be set up");
    d->base = (method){.workload = w,
                       .run = run_dmda,
                       .before = dense_rewrite,
                       .owns_inputs = true,
                       .checked = true,
                       .result = {w->padded, w->part}};
    return &d->base;
}

#else

static method *open_dmda(const void *of) {
    (void)of;
    return NULL;
}

#define close_dmda NULL

#endif

const method_kind dense_petsc = {"PETSc DMDA", open_dmda, close_dmda};
