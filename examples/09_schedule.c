/* 09_schedule: one layer of a mixture of experts, recorded, isolated, checked, run and traced.
 *
 * Introduces lierne/schedule.h. While tokens go to their experts and back (all-to-alls), the
 * parameters of the next layer are gathered and the gradients of the last one are reduced. All of
 * them use the group of the grid's ranks, so the all-to-alls would wait for the all-gather;
 * isolation gives them a group of their own. The experts multiply by 3.
 *
 * Run with 8 ranks: mpirun -n 8 build/examples/09_schedule [GRIDS [TRACE]]. GRIDS is a file with a
 * grid "llm" (grids/encoder-llm-8.json); TRACE gets both timelines, for Perfetto. */
#include <lierne.h>
#include <lierne/mpi.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS = 256, SHARD = 1 << 16, MOST = 64, LAYER = 5 };
enum { GATHER, DISPATCH, EXPERTS, COMBINE, SCATTER };

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

typedef struct layer {
    int rank, n; /* n ranks in the group */
    lierne_plan *plans[LAYER];
    float *shard, *parameters, *tokens, *expert, *back, *sums;
    void *out[LAYER];
    const void *in[LAYER];
} layer;

static float *buffer(int n) {
    float *data = calloc((size_t)n, sizeof *data);
    if (!data) {
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return data;
}

static float token(int from, int to, int k) {
    return (float)(1000 * from + 100 * to + k % 50 + 1);
}

static void make(layer *l, lierne_context *context, const int *ranks) {
    lierne_all_gather_spec gather = {.size = sizeof gather,
                                     .ranks = ranks,
                                     .nranks = l->n,
                                     .count = SHARD};
    lierne_all_to_all_spec exchange = {.size = sizeof exchange,
                                       .ranks = ranks,
                                       .nranks = l->n,
                                       .count = TOKENS};
    lierne_reduce_scatter_spec scatter = {.size = sizeof scatter,
                                          .ranks = ranks,
                                          .nranks = l->n,
                                          .count = SHARD};
    gather.dtype = exchange.dtype = scatter.dtype = LIERNE_DTYPE_F32;
    must(lierne_plan_create_all_gather(&l->plans[GATHER], context, &gather));
    must(lierne_plan_create_all_to_all(&l->plans[DISPATCH], context, &exchange));
    must(lierne_plan_create_all_to_all(&l->plans[COMBINE], context, &exchange));
    must(lierne_plan_create_reduce_scatter(&l->plans[SCATTER], context, &scatter));
    l->in[GATHER] = l->shard = buffer(SHARD);
    l->parameters = l->out[GATHER] = buffer(SHARD * l->n);
    l->in[DISPATCH] = l->tokens = buffer(TOKENS * l->n);
    l->in[COMBINE] = l->expert = l->out[DISPATCH] = buffer(TOKENS * l->n);
    l->back = l->out[COMBINE] = buffer(TOKENS * l->n);
    l->in[SCATTER] = l->parameters; /* once gathered, their gradients: equal here */
    l->sums = l->out[SCATTER] = buffer(SHARD);
}

/* The operations in the order in which every rank launches them. */
static lierne_schedule *record(const layer *l, const lierne_group *group) {
    static const lierne_operation_kind kinds[LAYER] = {LIERNE_OPERATION_ALL_GATHER,
                                                       LIERNE_OPERATION_ALL_TO_ALL,
                                                       LIERNE_OPERATION_LOCAL,
                                                       LIERNE_OPERATION_ALL_TO_ALL,
                                                       LIERNE_OPERATION_REDUCE_SCATTER};
    lierne_schedule *s;
    lierne_schedule_group_spec g = {.size = sizeof g, .name = "llm"};
    int index, llm;
    g.uid = lierne_group_get_uid(group);
    g.ranks = lierne_group_get_ranks(group);
    g.nranks = lierne_group_get_size(group);
    must(lierne_schedule_create(&s, l->rank));
    must(lierne_schedule_add_group(&llm, s, &g));
    for (int i = 0; i < LAYER; i++) {
        lierne_operation_spec o = LIERNE_OPERATION_SPEC_INIT;
        const int before[1] = {i - 1};
        o.kind = kinds[i];
        o.group = i == EXPERTS ? -1 : llm;
        o.tag = i == GATHER || i == SCATTER ? "fsdp" : "ep";
        o.plan = l->plans[i];
        o.held = i == EXPERTS; /* this program computes */
        o.after = before;
        o.nafter = i == EXPERTS || i == COMBINE;
        must(lierne_schedule_add_operation(&index, s, &o));
    }
    must(lierne_schedule_freeze(s));
    return s;
}

static lierne_run_event event_of(const lierne_run *run, int operation) {
    lierne_run_event e = {.size = sizeof e};
    must(lierne_run_get_event(&e, run, operation));
    return e;
}

/* The experts: 2 ms of computation, during which the run is progressed. */
static void compute(layer *l, lierne_run *run) {
    const struct timespec slice = {.tv_nsec = 200000};
    int done;
    for (int i = 0; i < 10; i++) {
        nanosleep(&slice, NULL);
        must(lierne_run_test(&done, run));
    }
    for (int i = 0; i < TOKENS * l->n; i++) {
        l->expert[i] *= 3;
    }
    must(lierne_run_resume(run, EXPERTS));
}

static void step(layer *l, lierne_run *run) {
    bool computed = false;
    int done = 0;
    must(lierne_run_begin(run, l->out, l->in));
    while (!done) {
        must(lierne_run_test(&done, run));
        if (!computed && event_of(run, EXPERTS).begun > 0) {
            compute(l, run);
            computed = true;
        }
    }
    must(lierne_run_end(run));
}

static int count_wrong(const layer *l, int place) {
    int wrong = 0;
    for (int i = 0; i < TOKENS * l->n; i++) {
        wrong += l->back[i] != 3 * token(place, i / TOKENS, i % TOKENS);
    }
    for (int k = 0; k < SHARD; k++) {
        wrong += l->sums[k] != (float)(l->n * (place + k % 100 + 1));
    }
    return wrong;
}

/* Appends this rank's events, rank after rank, in processes of their own: "before" and "after". */
static void append_trace(const char *path, const lierne_run *run, int rank, bool first, bool last) {
    char *text;
    must(lierne_run_get_trace(&text, run));
    for (int r = 0, n = (MPI_Comm_size(MPI_COMM_WORLD, &n), n); r < n; r++) {
        FILE *file = r == rank ? fopen(path, first && r == 0 ? "w" : "a") : NULL;
        if (file) {
            fprintf(file, "%s%s%s", first && r == 0 ? "[\n" : ",\n", text,
                    last && r == n - 1 ? "\n]\n" : "");
            fclose(file);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    lierne_text_destroy(text);
}

/* Runs the schedule and prints what came of it. */
static void execute(const char *name, layer *l, lierne_context *context, const lierne_schedule *s,
                    const lierne_group *group, const char *trace) {
    lierne_run *run;
    int wrong, all, place = lierne_group_get_rank(group);
    bool isolated = lierne_schedule_get_ngroups(s) > 1;
    must(lierne_run_create(&run, context, s, NULL));
    for (int i = 0; i < TOKENS * l->n; i++) {
        l->tokens[i] = token(place, i / TOKENS, i % TOKENS);
    }
    for (int k = 0; k < SHARD; k++) {
        l->shard[k] = (float)(place + k % 100 + 1);
    }
    step(l, run);
    wrong = count_wrong(l, place);
    MPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (l->rank == 0) {
        bool one = event_of(run, GATHER).queue == event_of(run, DISPATCH).queue;
        printf("%s: all-gather and all-to-all in %s, %d wrong elements\n", name,
               one ? "one queue" : "two queues", all);
    }
    if (trace) {
        append_trace(trace, run, l->rank, !isolated, isolated);
    }
    must(lierne_run_destroy(run));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context *context;
    lierne_config *config;
    must(lierne_context_create_mpi(&context, MPI_COMM_WORLD, NULL));
    must(lierne_config_read(&config, argc > 1 ? argv[1] : "grids/encoder-llm-8.json"));

    /* All ranks of the language model: its experts, and its sharded parameters. */
    const char *dims[] = {"tp", "cp", "pp", "dp"};
    int ranks[MOST];
    lierne_group_spec spec = LIERNE_GROUP_SPEC_INIT;
    spec.purpose = "llm";
    spec.ranks = ranks;
    must(lierne_grid_get_groups(ranks, NULL, &spec.group_size,
                                lierne_config_get_grid(config, "llm"), NULL, dims, 4));
    lierne_group *group;
    must(lierne_group_create(&group, context, &spec));

    layer l = {.rank = lierne_context_get_rank(context), .n = spec.group_size};
    const lierne_isolation_spec ep = LIERNE_ISOLATION_SPEC_INIT;
    make(&l, context, ranks);
    lierne_schedule *recorded = record(&l, group), *isolated;
    must(lierne_schedule_isolate(&isolated, recorded, &ep));

    execute("as recorded", &l, context, recorded, group, argc > 2 ? argv[2] : NULL);
    execute("isolated", &l, context, isolated, group, argc > 2 ? argv[2] : NULL);

    lierne_schedule_destroy(recorded);
    lierne_schedule_destroy(isolated);
    must(lierne_group_destroy(group));
    must(lierne_context_destroy_all(context));
    lierne_config_destroy(config);
    free(l.shard), free(l.parameters), free(l.tokens), free(l.expert), free(l.back), free(l.sums);
    MPI_Finalize();
    return 0;
}
