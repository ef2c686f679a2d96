/* What is summed over which dim, and who has to divide: errors in it leave all shapes right. As
 * spmd_types annotations: a value that is equal on all ranks is R where the ranks' gradients are to
 * be added, and I where those are equal too. The output's cp is R, its tp is I. */
#include "form.h"
#include "plan.h"

#include <string.h>

enum { ANNOTATION = 8 };

typedef struct side {
    const char *name;
    const lierne_grid *grid;
    const char *view;
} side;

static side side_of(const tool_bridge *bridge, bool source) {
    return source ? (side){lierne_config_get_bridge_src(bridge->config, bridge->name),
                           bridge->spec.src, bridge->spec.src_view}
                  : (side){lierne_config_get_bridge_dst(bridge->config, bridge->name),
                           bridge->spec.dst, bridge->spec.dst_view};
}

/* Name of an axis of the tensor as it is planned. */
static const char *axis_name(const tool_bridge *bridge, int axis) {
    const lierne_bridge_spec *spec = &bridge->spec;
    place_axes axes = place_axes_of(spec);
    if (axis == axes.sequence) {
        return "s";
    }
    int given = !spec->rows_per_sample ? axis
                : axis == axes.batch   ? spec->batch_axis
                                       : 1 - spec->batch_axis;
    return lierne_config_get_bridge_axis(bridge->config, bridge->name, given);
}

static void write_cut(const tool_bridge *bridge, bool parts, int axis, char *annotation) {
    if (parts) {
        snprintf(annotation, ANNOTATION, "V");
    } else {
        snprintf(annotation, ANNOTATION, "S(%s)", axis_name(bridge, axis));
    }
}

/* The destination's cp: the owner of the gradient decides; of the output only if it is sharded. */
static void write_cp(const tool_bridge *bridge, form_tensor tensor, char *annotation) {
    const lierne_bridge_spec *spec = &bridge->spec;
    bool shares = spec->gradient_owner == LIERNE_GRADIENT_OWNER_CONTIGUOUS &&
                  spec->gradient_storage == LIERNE_STORAGE_COMPACT;
    if (tensor == FORM_OUTPUT && spec->output == LIERNE_BRIDGE_OUTPUT_WHOLE) {
        snprintf(annotation, ANNOTATION, "R");
    } else if (spec->gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL) {
        snprintf(annotation, ANNOTATION, "P");
    } else {
        write_cut(bridge, !shares, place_axes_of(spec).sequence, annotation);
    }
}

static void write_annotation(const tool_bridge *bridge, form_tensor tensor, const char *dim, int d,
                             char *annotation) {
    const lierne_bridge_spec *spec = &bridge->spec;
    bool source = tensor == FORM_INPUT || tensor == FORM_RESULT;
    const lierne_placement *given = source ? spec->src_placements : spec->dst_placements;
    if (strcmp(dim, "dp") == 0) {
        write_cut(bridge, false, place_axes_of(spec).batch, annotation);
    } else if (strcmp(dim, "pp") == 0) {
        snprintf(annotation, ANNOTATION, "V");
    } else if (!source && strcmp(dim, "cp") == 0) {
        write_cp(bridge, tensor, annotation);
    } else if (given && given[d].kind != LIERNE_PLACEMENT_REPLICATE) {
        write_cut(bridge, given[d].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG, given[d].axis,
                  annotation);
    } else {
        snprintf(annotation, ANNOTATION, "I");
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

/* One tensor's annotations, as text or as members of an object. */
static void print_annotations(const tool_bridge *bridge, const tensor_name *t) {
    side s = side_of(bridge, t->tensor == FORM_INPUT || t->tensor == FORM_RESULT);
    char annotation[ANNOTATION];
    for (int d = 0; d < lierne_grid_get_ndims(s.grid, s.view); d++) {
        const char *dim = lierne_grid_get_dim_name(s.grid, s.view, d);
        write_annotation(bridge, t->tensor, dim, d, annotation);
        printf("%s", d ? "," : "");
        if (bridge->json) {
            tool_print_string(stdout, dim);
            printf(":\"%s\"", annotation);
        } else {
            printf(" ");
            tool_print_text(stdout, dim);
            printf(" %s", annotation);
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

static void print_sum_json(const tool_bridge *bridge, const char *key, bool source) {
    const char *names[2];
    int ranks;
    side s = side_of(bridge, source);
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

void plan_semantics_json(const tool_bridge *bridge) {
    printf(",\"semantics\":{");
    for (int t = 0; t < FORM_TENSORS; t++) {
        printf("%s\"%s\":{", t ? "," : "", tensors[t].key);
        print_annotations(bridge, &tensors[t]);
        printf("}");
    }
    printf(",\"scaling\":\"none\"");
    print_sum_json(bridge, "tokens_summed_over", false);
    print_sum_json(bridge, "source_gradients_summed_over", true);
    printf("}");
}

static void print_sum_text(const tool_bridge *bridge, bool source) {
    const char *names[2];
    int ranks;
    side s = side_of(bridge, source);
    int count = sum_dims(&s, names, &ranks);
    for (int i = 0; i < count; i++) {
        printf("%s%s", i ? " x " : "", names[i]);
    }
    printf(" of ");
    tool_print_text(stdout, s.name);
    printf(" (%d rank%s)", ranks, ranks == 1 ? "" : "s");
}

void plan_semantics_text(const tool_bridge *bridge) {
    printf("\n");
    tool_print_painted(TOOL_HEAD, "Sums, as spmd_types annotations");
    printf("\n");
    for (int t = 0; t < FORM_TENSORS; t++) {
        printf("  %-18s", tensors[t].title);
        print_annotations(bridge, &tensors[t]);
        printf("\n");
    }
    printf("  I equal on all ranks, its gradient too; R equal, its gradients are to be\n"
           "  added; P partial, to be summed; S(a) a shard of axis a; V another part, or\n"
           "  nothing, per rank\n"
           "Nothing is scaled. Of a loss per token, numerator and tokens are both summed\n"
           "over ");
    print_sum_text(bridge, false);
    printf(",\nand every gradient is divided by those tokens, once.\n"
           "Gradients of the parameters of ");
    tool_print_text(stdout, side_of(bridge, true).name);
    printf(" are then summed over\n");
    print_sum_text(bridge, true);
    printf(" only.\nThese are sums: a mean over ranks is too small by their number.\n");
}
