/* What is summed over which dim, and who has to divide: the part of a bridge that no test of shapes
 * can see when it is wrong. Letters are those of spmd_types. A value that is equal on all ranks is
 * R where the ranks' gradients are to be added, and I where those are equal too; this is the
 * difference between the output's cp and its tp. */
#include "form.h"
#include "plan.h"

#include <string.h>

enum { LETTER = 8 };

typedef struct side {
    const char *name;
    const lierne_grid *grid;
    const char *view;
} side;

static side side_of(const tool_job *job, bool source) {
    return source ? (side){lierne_config_get_bridge_src(job->config, job->bridge), job->spec.src,
                           job->spec.src_view}
                  : (side){lierne_config_get_bridge_dst(job->config, job->bridge), job->spec.dst,
                           job->spec.dst_view};
}

/* Name of an axis of the tensor as it is planned. */
static const char *axis_name(const tool_job *job, int axis) {
    const lierne_bridge_spec *spec = &job->spec;
    place_axes axes = place_axes_of(spec);
    if (axis == axes.sequence) {
        return "s";
    }
    int given = !spec->rows_per_sample ? axis
                : axis == axes.batch   ? spec->batch_axis
                                       : 1 - spec->batch_axis;
    return lierne_config_get_bridge_axis(job->config, job->bridge, given);
}

static void write_cut(const tool_job *job, bool parts, int axis, char *letter) {
    if (parts) {
        snprintf(letter, LETTER, "V");
    } else {
        snprintf(letter, LETTER, "S(%s)", axis_name(job, axis));
    }
}

/* The destination's cp: the owner of the gradient decides, of the output only if own rows are
 * delivered. */
static void write_cp(const tool_job *job, form_tensor tensor, char *letter) {
    const lierne_bridge_spec *spec = &job->spec;
    bool shares = spec->gradient_owner == LIERNE_GRADIENT_CONTIGUOUS &&
                  spec->gradient_storage == LIERNE_COMPACT;
    if (tensor == FORM_OUTPUT && spec->output == LIERNE_OUTPUT_WHOLE) {
        snprintf(letter, LETTER, "R");
    } else if (spec->gradient_owner == LIERNE_GRADIENT_PARTIAL) {
        snprintf(letter, LETTER, "P");
    } else {
        write_cut(job, !shares, place_axes_of(spec).sequence, letter);
    }
}

static void write_letter(const tool_job *job, form_tensor tensor, const char *dim, int d,
                         char *letter) {
    const lierne_bridge_spec *spec = &job->spec;
    bool source = tensor == FORM_INPUT || tensor == FORM_RESULT;
    const lierne_placement *given = source ? spec->src_placements : spec->dst_placements;
    if (strcmp(dim, "dp") == 0) {
        write_cut(job, false, place_axes_of(spec).batch, letter);
    } else if (strcmp(dim, "pp") == 0) {
        snprintf(letter, LETTER, "V");
    } else if (!source && strcmp(dim, "cp") == 0) {
        write_cp(job, tensor, letter);
    } else if (given && given[d].kind != LIERNE_REPLICATE) {
        write_cut(job, given[d].kind == LIERNE_SHARD_ZIGZAG, given[d].axis, letter);
    } else {
        snprintf(letter, LETTER, "I");
    }
}

typedef struct tensor_name {
    form_tensor tensor;
    const char *key;
    const char *title;
} tensor_name;

static const tensor_name tensors[FORM_TENSORS] = {
    {FORM_INPUT, "input", "input"},
    {FORM_OUTPUT, "output", "output"},
    {FORM_GRADIENT, "output_gradient", "gradient of output"},
    {FORM_RESULT, "input_gradient", "gradient of input"},
};

/* One tensor's letters, as text or as members of an object. */
static void print_letters(const tool_job *job, const tensor_name *t) {
    side s = side_of(job, t->tensor == FORM_INPUT || t->tensor == FORM_RESULT);
    char letter[LETTER];
    for (int d = 0; d < lierne_grid_get_ndims(s.grid, s.view); d++) {
        const char *dim = lierne_grid_get_dim_name(s.grid, s.view, d);
        write_letter(job, t->tensor, dim, d, letter);
        printf("%s", d ? "," : "");
        if (job->json) {
            tool_print_string(stdout, dim);
            printf(":\"%s\"", letter);
        } else {
            printf(" ");
            tool_print_text(stdout, dim);
            printf(" %s", letter);
        }
    }
}

/* The dims that a sum of gradients or tokens runs over: dp, and cp where it cuts. */
static int sum_dims(const side *s, const char **names, int *ranks) {
    static const char *const dims[] = {"dp", "cp"};
    int count = 0;
    *ranks = 1;
    for (int i = 0; i < 2; i++) {
        int size = lierne_grid_find_dim_size(s->grid, s->view, dims[i]);
        if (i == 0 || size > 1) {
            names[count++] = dims[i];
            *ranks *= size;
        }
    }
    return count;
}

static void print_sum_json(const tool_job *job, const char *key, bool source) {
    const char *names[2];
    int ranks;
    side s = side_of(job, source);
    int count = sum_dims(&s, names, &ranks);
    printf(",\"%s\":{\"grid\":", key);
    tool_print_string(stdout, s.name);
    printf(",\"view\":");
    tool_print_string(stdout, s.view ? s.view : "base");
    printf(",\"dims\":[");
    for (int i = 0; i < count; i++) {
        printf("%s\"%s\"", i ? "," : "", names[i]);
    }
    printf("],\"ranks\":%d}", ranks);
}

void plan_semantics_json(const tool_job *job) {
    printf(",\"semantics\":{");
    for (int t = 0; t < FORM_TENSORS; t++) {
        printf("%s\"%s\":{", t ? "," : "", tensors[t].key);
        print_letters(job, &tensors[t]);
        printf("}");
    }
    printf(",\"scaling\":\"none\"");
    print_sum_json(job, "tokens_summed_over", false);
    print_sum_json(job, "source_gradients_summed_over", true);
    printf("}");
}

static void print_sum_text(const tool_job *job, bool source) {
    const char *names[2];
    int ranks;
    side s = side_of(job, source);
    int count = sum_dims(&s, names, &ranks);
    for (int i = 0; i < count; i++) {
        printf("%s%s", i ? " x " : "", names[i]);
    }
    printf(" of ");
    tool_print_text(stdout, s.name);
    printf(" (%d rank%s)", ranks, ranks == 1 ? "" : "s");
}

void plan_semantics_text(const tool_job *job) {
    printf("\nSums, in the letters of spmd_types\n");
    for (int t = 0; t < FORM_TENSORS; t++) {
        printf("  %-18s", tensors[t].title);
        print_letters(job, &tensors[t]);
        printf("\n");
    }
    printf("  I equal on all ranks, its gradient too; R equal, its gradients are to be added;\n"
           "  P a summand; S(a) a share of axis a; V another part, or nothing, on each rank\n"
           "Nothing is scaled. Of a loss per token, numerator and tokens are both summed over\n  ");
    print_sum_text(job, false);
    printf(", and every gradient is divided by those tokens, once.\n"
           "  Gradients of the parameters of ");
    tool_print_text(stdout, side_of(job, true).name);
    printf(" are then summed over\n  ");
    print_sum_text(job, true);
    printf(" only. These are sums: a mean over ranks is too small by their number.\n");
}
