/* What planning a tensor set costs: the weights of a mixture-of-experts model of 1T parameters,
 * from 256 ranks that train it to 128 other ones that serve it. Nothing is moved: routes are made
 * of each rank, and counted.
 *
 *   sets [quick]
 *
 * quick takes 4 layers of the model's 61. The shapes are those of Kimi-K2-Instruct's config.json
 * (huggingface.co/moonshotai/Kimi-K2-Instruct: hidden_size 7168, num_hidden_layers 61,
 * n_routed_experts 384, moe_intermediate_size 2048, intermediate_size 18432, first_k_dense_replace
 * 1, n_shared_experts 1, num_attention_heads 64, q_lora_rank 1536, kv_lora_rank 512,
 * qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128, vocab_size 163840), all in bf16. The
 * trainer has tp 8 and 32 replicas, and ep 64 with 4 replicas of each expert; the engine tp 8 and
 * 16 replicas, and ep 128.
 *
 * Checks what does not depend on the machine: bytes at their minimum, both ends alike, and the
 * busiest sender within 1.05 of the average. Times are printed only. */
#include "bench/checks.h"
#include "lierne.h"

#include <pthread.h>

enum {
    HIDDEN = 7168,
    LAYERS = 61,
    EXPERTS = 384,
    EXPERT = 2048,
    DENSE = 18432,
    HEADS = 64,
    Q_RANK = 1536,
    KV_RANK = 512,
    NOPE = 128,
    ROPE = 64,
    VALUE = 128,
    VOCABULARY = 163840,
    TP = 8,
    MOST_TENSORS = 70000,
    MOST_LAYOUTS = 4096,
    MOST_RANKS = 512
};

/* How a tensor is cut over tp. */
typedef enum cut { WHOLE, ROWS, COLUMNS } cut;

/* One of the two jobs. */
typedef struct job {
    lierne_grid *grid;
    int ranks;
    int ep;
} job;

/* A layout that several tensors share. */
typedef struct shared_layout {
    int64_t shape[2];
    int how; /* a cut, or 3 + the expert's place */
    lierne_layout *layouts[2];
} shared_layout;

typedef struct model {
    job jobs[2]; /* trainer, engine */
    int world;
    int64_t ntensors;
    const lierne_layout *tensors[2][MOST_TENSORS];
    shared_layout shared[MOST_LAYOUTS];
    int nshared;
    int last;   /* the one that was found last: layers repeat, so the next one is often wanted */
    int expert; /* whose tensors are added, or -1 */
} model;

static void open_job(job *j, int world, int offset, int ranks, int ep) {
    static const char *const dense[] = {"tp", "dp"}, *const expert[] = {"ep", "edp"};
    const int64_t sizes[] = {TP, ranks / TP}, expert_sizes[] = {ep, ranks / ep};
    const lierne_grid_spec spec = {.size = sizeof spec,
                                   .ndims = 2,
                                   .names = dense,
                                   .sizes = sizes,
                                   .rank_offset = offset,
                                   .world_size = world};
    const lierne_view_spec view = {
        .size = sizeof view, .name = "expert", .ndims = 2, .names = expert, .sizes = expert_sizes};
    *j = (job){.ranks = ranks, .ep = ep};
    check(lierne_grid_create(&j->grid, &spec) == LIERNE_OK, "a grid");
    check(lierne_grid_add_view(j->grid, &view) == LIERNE_OK, "a view");
}

static lierne_layout *layout_of(const job *j, const int64_t *shape, cut how, int expert) {
    lierne_placement placements[2] = {{.kind = how == WHOLE ? LIERNE_PLACEMENT_REPLICATE
                                                            : LIERNE_PLACEMENT_SHARD,
                                       .axis = how == COLUMNS ? 1 : 0},
                                      {.kind = LIERNE_PLACEMENT_REPLICATE}};
    if (expert >= 0) {
        placements[0] =
            (lierne_placement){.kind = LIERNE_PLACEMENT_AT, .at = expert / (EXPERTS / j->ep)};
    }
    const lierne_layout_spec spec = {.size = sizeof spec,
                                     .grid = j->grid,
                                     .view = expert >= 0 ? "expert" : NULL,
                                     .naxes = 2,
                                     .shape = shape,
                                     .dtype = LIERNE_DTYPE_BF16,
                                     .placements = placements};
    lierne_layout *layout = NULL;
    check(lierne_layout_create(&layout, &spec) == LIERNE_OK, "a layout");
    return layout;
}

/* The layouts of a shape that is cut so; experts at the same places share them, too. */
static const shared_layout *share(model *m, int64_t rows, int64_t columns, cut how) {
    int places = m->jobs[0].ep > m->jobs[1].ep ? m->jobs[0].ep : m->jobs[1].ep;
    int key = m->expert < 0 ? (int)how : 3 + m->expert / (EXPERTS / places);
    for (int i = 0; i < m->nshared; i++) {
        int at = (m->last + i) % m->nshared;
        const shared_layout *s = &m->shared[at];
        if (s->shape[0] == rows && s->shape[1] == columns && s->how == key) {
            m->last = at;
            return s;
        }
    }
    shared_layout *s = &m->shared[m->nshared++];
    *s = (shared_layout){.shape = {rows, columns}, .how = key};
    for (int side = 0; side < 2; side++) {
        s->layouts[side] = layout_of(&m->jobs[side], s->shape, how, m->expert);
    }
    return s;
}

static void add(model *m, int64_t rows, int64_t columns, cut how) {
    const shared_layout *s = share(m, rows, columns, how);
    m->tensors[0][m->ntensors] = s->layouts[0];
    m->tensors[1][m->ntensors++] = s->layouts[1];
}

static void add_mlp(model *m, int64_t width) {
    add(m, width, HIDDEN, ROWS); /* gate */
    add(m, width, HIDDEN, ROWS); /* up */
    add(m, HIDDEN, width, COLUMNS);
}

static void add_attention(model *m) {
    add(m, 1, HIDDEN, WHOLE); /* norms */
    add(m, 1, HIDDEN, WHOLE);
    add(m, Q_RANK, HIDDEN, WHOLE);
    add(m, 1, Q_RANK, WHOLE);
    add(m, HEADS * (NOPE + ROPE), Q_RANK, ROWS);
    add(m, KV_RANK + ROPE, HIDDEN, WHOLE);
    add(m, 1, KV_RANK, WHOLE);
    add(m, HEADS * (NOPE + VALUE), KV_RANK, ROWS);
    add(m, HIDDEN, HEADS * VALUE, COLUMNS);
}

static void add_experts(model *m) {
    add(m, EXPERTS, HIDDEN, WHOLE); /* the gate, and its correction */
    add(m, 1, EXPERTS, WHOLE);
    add_mlp(m, EXPERT); /* the shared one */
    for (m->expert = 0; m->expert < EXPERTS; m->expert++) {
        add_mlp(m, EXPERT);
    }
    m->expert = -1;
}

static void open_model(model *m, int layers, int trainers, int trainer_ep) {
    m->ntensors = m->nshared = m->last = 0;
    m->expert = -1;
    m->world = trainers + 128;
    open_job(&m->jobs[0], m->world, 0, trainers, trainer_ep);
    open_job(&m->jobs[1], m->world, trainers, 128, 128);
    add(m, VOCABULARY, HIDDEN, ROWS);
    for (int layer = 0; layer < layers; layer++) {
        add_attention(m);
        layer == 0 ? add_mlp(m, DENSE) : add_experts(m);
    }
    add(m, 1, HIDDEN, WHOLE);
    add(m, VOCABULARY, HIDDEN, ROWS);
}

static void close_model(model *m) {
    for (int i = 0; i < m->nshared; i++) {
        lierne_layout_destroy(m->shared[i].layouts[0]);
        lierne_layout_destroy(m->shared[i].layouts[1]);
    }
    lierne_grid_destroy(m->jobs[0].grid);
    lierne_grid_destroy(m->jobs[1].grid);
}

/* What one rank's route is. */
typedef struct counts_of_rank {
    double seconds;
    int64_t sent, received, least;
    int64_t messages, blocks;
} counts_of_rank;

static counts_of_rank count(const model *m, int rank) {
    const lierne_set_spec spec = {.size = sizeof spec,
                                  .ntensors = m->ntensors,
                                  .src = m->tensors[0],
                                  .dst = m->tensors[1]};
    lierne_route *route = NULL;
    counts_of_rank c = {0};
    double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    lierne_status status = lierne_route_create_set(&route, &c.least, &spec, rank);
    c.seconds = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
    if (status != LIERNE_OK) {
        return (counts_of_rank){.least = -1};
    }
    for (size_t i = 0; i < route->stages.count; i++) {
        const lierne_messages *both[2] = {&route->stages.at[i].sends, &route->stages.at[i].recvs};
        for (int d = 0; d < 2; d++) {
            for (size_t k = 0; k < both[d]->count; k++) {
                *(d ? &c.received : &c.sent) += both[d]->at[k].elements;
                c.blocks += (int64_t)both[d]->at[k].blocks.count;
            }
            c.messages += (int64_t)both[d]->count;
        }
    }
    lierne_route_destroy(route);
    return c;
}

/* Half of the world: every other rank. */
typedef struct half {
    const model *m;
    int first;
    counts_of_rank *ranks;
} half;

static void *count_half(void *at) {
    const half *h = at;
    for (int rank = h->first; rank < h->m->world; rank += 2) {
        h->ranks[rank] = count(h->m, rank);
    }
    return NULL;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static void report(const model *m, const counts_of_rank *ranks, double seconds) {
    double slowest = 0, most = 0, sum = 0, senders = m->jobs[0].ranks;
    int64_t received = 0, least = 0, messages = 0, blocks = 0;
    for (int r = 0; r < m->world; r++) {
        slowest = larger(slowest, ranks[r].seconds);
        most = larger(most, (double)ranks[r].sent);
        sum += (double)ranks[r].sent;
        received += ranks[r].received;
        least += ranks[r].least;
        messages = ranks[r].messages > messages ? ranks[r].messages : messages;
        blocks = ranks[r].blocks > blocks ? ranks[r].blocks : blocks;
    }
    check(received == least && sum == (double)received, "bytes are at their minimum");
    check(most <= 1.05 * sum / senders, "the busiest sender is within 1.05 of the average");
    printf("%7d %7d %8lld %10.1f %10.3f %10lld %10lld %9.1f %9.2f\n", m->jobs[0].ranks,
           m->jobs[1].ranks, (long long)m->ntensors, 2e-9 * (double)received,
           most / (sum / senders), (long long)messages, (long long)blocks, 1e3 * slowest, seconds);
}

/* The routes of all ranks, in two threads. */
static void run(const model *m) {
    static counts_of_rank ranks[MOST_RANKS];
    half halves[2] = {{m, 0, ranks}, {m, 1, ranks}};
    pthread_t thread;
    double start = seconds_of(CLOCK_MONOTONIC);
    check(pthread_create(&thread, NULL, count_half, &halves[1]) == 0, "a thread");
    count_half(&halves[0]);
    pthread_join(thread, NULL);
    report(m, ranks, seconds_of(CLOCK_MONOTONIC) - start);
}

int main(int argc, char **argv) {
    static model m;
    int layers = argc > 1 && argv[1][0] == 'q' ? 4 : LAYERS;
    printf("%7s %7s %8s %10s %10s %10s %10s %9s %9s\n", "trainer", "engine", "tensors", "GB",
           "sent, max", "messages", "blocks", "rank, ms", "world, s");
    open_model(&m, layers, 256, 64);
    run(&m);
    close_model(&m);
    /* 64 ranks have gone, one replica of all experts: layouts and a rank's route are made anew. */
    double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    open_model(&m, layers, 192, 64);
    check(count(&m, 191).least >= 0, "a route");
    double again = seconds_of(CLOCK_THREAD_CPUTIME_ID) - start;
    run(&m);
    printf("layouts and route of a rank after a change of membership: %.1f ms\n", 1e3 * again);
    close_model(&m);
    return close_counts();
}
