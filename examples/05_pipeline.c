/* 05_pipeline: a whole training step across a bridge into a pipelined LLM.
 *
 * Introduces max_inflight, lierne_plan_forward_begin and lierne_request_end, and a destination with
 * pp. One encoder pass over the full batch; the LLM runs it in M microbatches, one forward one
 * backward (1F1B). The activations of a microbatch are sent while the one before is computed; the
 * gradients are collected in one buffer, and one adjoint sends them all back.
 *
 * The batch is [microbatch, sample, features]: a microbatch is a slice along the leading axis, on
 * both sides, so one plan serves all microbatches, and a second plan with one more axis serves the
 * whole batch. Run with 8 ranks: mpirun -n 8 build/examples/05_pipeline */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdio.h>
#include <stdlib.h>

enum { M = 4, SAMPLES = 8, F = 16, DP_SAMPLES = SAMPLES / 2, OWN = SAMPLES / 4, STAGES = 2 };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static lierne_grid *grid(int n, const char *const *names, const int64_t *sizes) {
    lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = n, .names = names, .sizes = sizes, .world_size = 8};
    lierne_grid *g;
    must(lierne_grid_create(&g, &spec));
    return g;
}

/* The model: the encoder gives x; stage 0 of the LLM computes a = 3 y, stage 1 the loss, the sum of
 * w a, whose gradient with respect to a is w. So the gradient of x is 3 w. */
static float x_of(int microbatch, int sample, int f) {
    return (float)(1000 * microbatch + 50 * sample + f);
}
static float w_of(int microbatch, int sample, int f) {
    return (float)(7 * microbatch + 3 * sample + f % 5 + 1);
}

typedef struct step {
    lierne_plan *microbatch;
    const float *x;                    /* [M, OWN, F] of this rank's encoder dp rank */
    float y[M][DP_SAMPLES * F];        /* what stage 0 received */
    float gradient[M][DP_SAMPLES * F]; /* of y, on stage 0 */
    lierne_request *requests[M];
    int stage, dp, partner; /* partner: the rank of the other stage */
    int wrong;
} step;

/* Every rank of the encoder sends; only stage 0 receives. */
static void fetch(step *s, int m) {
    if (m < M) {
        must(lierne_plan_forward_begin(&s->requests[m], s->microbatch,
                                       s->stage == 0 ? s->y[m] : NULL, s->x + m * OWN * F, NULL));
    }
}

static void forward(step *s, int m) {
    float a[DP_SAMPLES * F];
    must(lierne_request_end(s->requests[m]));
    for (int i = 0; i < DP_SAMPLES * F && s->stage == 0; i++) {
        s->wrong += s->y[m][i] != x_of(m, s->dp * DP_SAMPLES + i / F, i % F);
        a[i] = 3 * s->y[m][i];
    }
    if (s->stage == 0) {
        MPI_Send(a, DP_SAMPLES * F, MPI_FLOAT, s->partner, m, MPI_COMM_WORLD);
    } else {
        MPI_Recv(a, DP_SAMPLES * F, MPI_FLOAT, s->partner, m, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void backward(step *s, int m) {
    float w[DP_SAMPLES * F];
    for (int i = 0; i < DP_SAMPLES * F; i++) {
        w[i] = w_of(m, s->dp * DP_SAMPLES + i / F, i % F);
    }
    if (s->stage == STAGES - 1) {
        MPI_Send(w, DP_SAMPLES * F, MPI_FLOAT, s->partner, M + m, MPI_COMM_WORLD);
        return;
    }
    MPI_Recv(w, DP_SAMPLES * F, MPI_FLOAT, s->partner, M + m, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < DP_SAMPLES * F; i++) {
        s->gradient[m][i] = 3 * w[i];
    }
}

/* Stage 0 is one microbatch ahead; one more request is always in flight. */
static void run_1f1b(step *s) {
    int ahead = STAGES - 1 - s->stage;
    fetch(s, 0);
    for (int m = 0; m < M + ahead; m++) {
        fetch(s, m + 1);
        if (m < M) {
            forward(s, m);
        }
        if (m >= ahead) {
            backward(s, m - ahead);
        }
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    int rank = lierne_context_get_rank(context), all;

    const char *en[] = {"tp", "dp"}, *ln[] = {"tp", "pp", "dp"};
    lierne_grid *encoder = grid(2, en, (const int64_t[]){2, 4});
    lierne_grid *llm = grid(3, ln, (const int64_t[]){2, STAGES, 2});

    /* One microbatch, up to two of them in flight; and the whole batch, for the adjoint. */
    const int64_t one[] = {SAMPLES, F}, whole[] = {M, SAMPLES, F};
    lierne_bridge_spec spec = {.size = sizeof spec,
                               .src = encoder,
                               .dst = llm,
                               .naxes = 2,
                               .shape = one,
                               .dtype = LIERNE_DTYPE_F32,
                               .sequence_axis = -1,
                               .max_inflight = 2};
    lierne_plan *home;
    step s = {.stage = rank / 2 % STAGES, .dp = rank / 4};
    s.partner = s.stage == 0 ? rank + 2 : rank - 2;
    must(lierne_plan_create_bridge(&s.microbatch, context, &spec));
    spec.naxes = 3, spec.shape = whole, spec.batch_axis = 1;
    must(lierne_plan_create_bridge(&home, context, &spec));

    float x[M * OWN * F], gx[M * OWN * F];
    int first = rank / 2 * OWN; /* sample of the encoder's dp rank */
    for (int i = 0; i < M * OWN * F; i++) {
        x[i] = x_of(i / (OWN * F), first + i / F % OWN, i % F);
    }
    s.x = x;
    run_1f1b(&s);
    must(lierne_plan_adjoint(home, gx, s.stage == 0 ? s.gradient : NULL, NULL));
    for (int i = 0; i < M * OWN * F; i++) {
        s.wrong += gx[i] != 3 * w_of(i / (OWN * F), first + i / F % OWN, i % F);
    }

    MPI_Reduce(&s.wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("tp2 dp4 -> tp2 pp2 dp2, %d microbatches: %d wrong elements\n", M, all);
    }
    must(lierne_plan_destroy(s.microbatch));
    must(lierne_plan_destroy(home));
    must(lierne_context_destroy(context));
    lierne_grid_destroy(encoder);
    lierne_grid_destroy(llm);
    MPI_Finalize();
    return rank == 0 && all != 0;
}
