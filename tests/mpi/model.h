/* A small model to train: an encoder whose rows an LLM merges into its sequences. Its weights are
 * split over tp, samples over dp and the LLM's sequences over cp; what must be summed over ranks is
 * summed by MPI calls of its own. Only the bridge between the two modules is the library's. */
#ifndef TESTS_MPI_MODEL_H
#define TESTS_MPI_MODEL_H

#include "mpi/common.h"

enum {
    PIXELS = 3, /* width of an image row, of a row on the bridge, of a result */
    HIDDEN = 4,
    CLASSES = 2,
    WIDE = 8,    /* width inside either module, split over tp */
    TOKENS = 16, /* of a sample, image rows among them, split over cp */
    ROWS = 6     /* image rows of a sample where there is text beside them */
};

/* What the LLM does with image rows. */
typedef enum use {
    PLAIN,  /* its sequence is the encoder's */
    MERGED, /* they stand at places among text that differ per sample */
    CROSS   /* and every token also sees one of them, whichever cp rank the token is on */
} use;

typedef struct problem {
    use use;
    int64_t samples;
    bool absolute; /* all contributions positive: no sum, in whichever order, has a larger number */
} problem;

/* Image rows of a sample, and the cp coordinate that has row r of sample g in its sequence. */
int problem_rows(const problem *p);
int problem_row_owner(const problem *p, int ncp, int64_t g, int r);

/* A rank's place in a layout. */
typedef struct place {
    int tp, cp, dp;
    int ntp, ncp, ndp;
    MPI_Comm over_tp, over_dp, over_data; /* data: dp x cp */
} place;

/* Two matrices: row e of both lies at e * (in + out), and a tp rank has `wide` such rows. */
typedef struct module {
    place at;
    int in, out, wide;
    double *weight;
    double *gradient; /* of half the squared error, summed over all tokens: an integer at first */
    double moved;     /* how far descent has moved a weight, at most */
} module;
int64_t module_size(const module *m);
/* The greatest magnitude among values. */
double largest(const double *values, int64_t n);

typedef struct run {
    const problem *of;
    module encoder, llm;
    const bridge_case *bridge; /* NULL: both modules have the same dp, and cp is 1 */
    lierne_plan *plan;
    double loss[2];  /* squared error, summed over all tokens that count, and their number */
    double greatest; /* number that was on either side of the bridge */
} run;

/* The model on this rank alone; with both modules on one mesh; with a bridge between two. The last
 * two are collective, and problem and case must outlive the run. */
run run_alone(const problem *p);
run run_equal(const problem *p, const mesh *m);
run run_bridged(const problem *p, const bridge_case *c, lierne_context *context);
void run_free(run *r);

/* Forward, backward, and the gradients summed over the data ranks of each module. */
void run_step(run *r);
/* Moves the weights down the mean loss per token. */
void run_descend(run *r);

/* A mistake that runs with a bridge make; "" for none. */
extern const char *model_fault;
extern const char *const model_faults[]; /* all of them, then NULL */

#endif
