/* PetscSF: a star forest with broadcast and reduce, with point-to-point messages ("basic"). Without
 * PETSc the tables have no such lines.
 *
 * PETSc adds rows of the type that it was built for. Rows of another floating type would be added
 * one element at a time through MPI, which rejects them. */
#include "bench/sparse.h"

#ifdef HAVE_PETSC

#include <petscsf.h>
#include <stdlib.h>
#include <string.h>

typedef struct forest {
    method base;
    PetscSF sf;
    PetscSFNode *roots;
    MPI_Datatype type; /* of a row */
} forest;

void petsc_start(void) {
    PetscOptionsSetValue(NULL, "-no_signal_handler", "true");
    CHECK(PetscInitializeNoArguments() == 0, "PETSc does not start");
}

void petsc_stop(void) {
    PetscFinalize();
}

static bool set_graph(forest *f) {
    const sparse *w = f->base.workload;
    return PetscSFSetGraph(f->sf, (PetscInt)w->nowned, (PetscInt)w->nghosts, NULL,
                           PETSC_COPY_VALUES, f->roots, PETSC_COPY_VALUES) == 0 &&
           PetscSFSetUp(f->sf) == 0;
}

static bool create(forest *f) {
    return PetscSFCreate(MPI_COMM_WORLD, &f->sf) == 0 && PetscSFSetType(f->sf, PETSCSFBASIC) == 0 &&
           set_graph(f);
}

static bool broadcast(forest *f, void *owned, void *ghosts) {
    return PetscSFBcastBegin(f->sf, f->type, owned, ghosts, MPI_REPLACE) == 0 &&
           PetscSFBcastEnd(f->sf, f->type, owned, ghosts, MPI_REPLACE) == 0;
}

static bool run_forest(method *m, int direction) {
    forest *f = (forest *)m;
    const sparse *w = m->workload;
    if (direction == FORWARD) {
        return broadcast(f, w->owned[FORWARD], w->ghosts[FORWARD]);
    }
    bool ok =
        PetscSFReduceBegin(f->sf, f->type, w->ghosts[ADJOINT], w->owned[ADJOINT], MPI_SUM) == 0 &&
        PetscSFReduceEnd(f->sf, f->type, w->ghosts[ADJOINT], w->owned[ADJOINT], MPI_SUM) == 0;
    if (w->halo) {
        memset(w->ghosts[ADJOINT], 0, w->ghost_bytes);
    }
    return ok;
}

static void close_forest(method *m) {
    forest *f = (forest *)m;
    const sparse *w = m->workload;
    PetscSFDestroy(&f->sf);
    if (w->width > 1) {
        MPI_Type_free(&f->type);
    }
    free(f->roots);
    free(f);
}

static void put_roots(forest *f, const int32_t *rank, const int64_t *root) {
    const sparse *w = f->base.workload;
    for (int64_t k = 0; k < w->nghosts; k++) {
        f->roots[k] = (PetscSFNode){.rank = rank[k], .index = (PetscInt)root[k]};
    }
}

static forest *open_pairs(const sparse *w) {
    MPI_Datatype element = w->dtype == LIERNE_DTYPE_F64 ? MPI_DOUBLE : MPI_FLOAT;
    if (w->dtype != (sizeof(PetscReal) == 8 ? LIERNE_DTYPE_F64 : LIERNE_DTYPE_F32)) {
        return NULL;
    }
    forest *f = (forest *)take(sizeof *f);
    f->base = (method){.workload = w, .run = run_forest, .checked = true};
    f->roots = (PetscSFNode *)take((size_t)w->nghosts * sizeof *f->roots);
    put_roots(f, w->rank, w->root);
    /* A type that MPI was asked for cannot be added, unless PETSc sees several numbers in it. */
    f->type = element;
    if (w->width > 1) {
        MPI_Type_contiguous((int)w->width, element, &f->type);
        MPI_Type_commit(&f->type);
    }
    return f;
}

static method *open_forest(const void *of) {
    forest *f = open_pairs(of);
    if (!f) {
        return NULL;
    }
    CHECK(create(f), "PetscSF cannot be set up");
    return &f->base;
}

static void before_plan(method *m, int direction) {
    if (direction == FORWARD) {
        PetscSFDestroy(&((forest *)m)->sf);
    }
}

static bool run_plan(method *m, int direction) {
    return direction == FORWARD ? create((forest *)m) : set_graph((forest *)m);
}

static void after_plan(method *m, int direction) {
    const sparse *w = m->workload;
    (void)direction;
    broadcast((forest *)m, w->owned[FORWARD], w->ghosts[FORWARD]);
}

static method *open_plan(const void *of) {
    forest *f = open_pairs(of);
    if (!f) {
        return NULL;
    }
    f->base.before = before_plan;
    f->base.run = run_plan;
    f->base.after = after_plan;
    return &f->base;
}

/* PETSc has no function for what comes before. */
static bool run_edges(method *m, int direction) {
    forest *f = (forest *)m;
    lists g = {0};
    sparse_find_ghosts(m->workload, &g);
    sparse_find_edges(m->workload, &g);
    put_roots(f, g.rank, g.root);
    lists_free(&g);
    return run_plan(m, direction);
}

static method *open_edges(const void *of) {
    method *m = open_plan(of);
    if (m) {
        m->run = run_edges;
    }
    return m;
}

#else

void petsc_start(void) {
}

void petsc_stop(void) {
}

static method *open_forest(const void *of) {
    (void)of;
    return NULL;
}

#define open_edges   open_forest
#define open_plan    open_forest
#define close_forest NULL

#endif

const method_kind petsc_graph = {"PetscSF basic", open_forest, close_forest};
const method_kind petsc_halo = {"PetscSF basic, one round", open_forest, close_forest};
const method_kind plan_petsc_edges = {"PetscSF from edges", open_edges, close_forest};
const method_kind plan_petsc_pairs = {"PetscSF from references", open_plan, close_forest};
