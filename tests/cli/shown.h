/* What blocks of C in README.md and docs/ use without defining it: a reader's own variables and
 * functions. For test_docs.sh, which compiles each block as the body of a function behind these. */
#include <lierne.h>
#include <lierne/cuda.h>
#include <lierne/mpi.h>
#include <lierne/nccl.h>

#include <dlfcn.h>

extern MPI_Comm comm, world;
extern MPI_Group everyone, group;
extern lierne_context *context;
extern lierne_plan *plan, *places, *positions, *species;
extern lierne_coalesced *all;
extern lierne_request *request;
extern const lierne_plan *graph;
extern const lierne_grid *grid, *const *grids;
extern const lierne_layout *rows, *columns;
extern lierne_layout *layout;
extern lierne_schedule *schedule, *isolated;
extern lierne_run *run;
extern const lierne_placement placements[2];
extern const lierne_retyped_spec of_species;
extern lierne_bridge_spec spec;

extern void *activations_llm, *activations_encoder, *gradient_encoder, *gradient_llm, *activations,
    *field;
extern void *out_on_device, *in_on_device, *stream, *compute, *counts, **out;
extern const void **in, *output;
extern double *x, *f;
extern int64_t shape[3];
extern int64_t number, nlocal, nghost;
extern const int32_t *owner;
extern const int *sendproc, *recvproc;
extern const int64_t *sendnum, *recvnum, *const *sendlist;
extern int nswap, n, capacity, members[512];

lierne_schedule *record_step(void);
void launch_layer(void *stream);
void compute_layer(void);
void compute_interior(void *field);
void compute_border(void *field);
