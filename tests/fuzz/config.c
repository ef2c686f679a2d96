/* Fuzzing of configuration files, a libFuzzer target. For any bytes: reading them neither crashes
 * nor leaks, all diagnostics can be read, and a file without diagnostics is valid: its grids can be
 * queried, and where a bridge is small, every rank can plan it, and the ranks' routes match and can
 * be executed. A missing rule of the reader shows here as a bridge that cannot be planned. replay.c
 * runs the same target over files, without a fuzzer. */
#include "base/base.h"
#include "fuzz/must.h"
#include "lierne.h"
#include "lierne/sim.h"

#include <stdlib.h>
#include <string.h>

#define MAX_WORLD    8
#define MAX_MAP      1024 /* ranks: a map costs memory and time in proportion */
#define MAX_ELEMENTS 4096

/* Every text of a diagnostic is there and on one line, and its place is in the file. */
static void read_findings(const lierne_config *config, lierne_status status) {
    int errors = 0;
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        const lierne_diagnostic *f = lierne_config_get_diagnostic(config, i);
        MUST(f->line >= 1 && f->column >= 1, "place of a diagnostic");
        MUST(f->pointer[0] == '\0' || f->pointer[0] == '/', "pointer of a diagnostic");
        MUST(f->message[0] && !strchr(f->message, '\n') && !strchr(f->hint, '\n'), "a diagnostic");
        errors += f->severity == LIERNE_SEVERITY_ERROR;
    }
    MUST((errors > 0) == (status != LIERNE_OK), "status beside the diagnostics");
}

static void map(const lierne_bridge_spec *spec) {
    lierne_megatron_map *m;
    const int *ranks;
    int n, size;
    MUST(lierne_megatron_map_create(&m, spec) == LIERNE_OK, "map of a valid bridge");
    MUST(lierne_megatron_map_get_rejection(m), "rejection");
    MUST(lierne_megatron_map_get_gather_groups(&ranks, &n, &size, m) == LIERNE_OK, "gather groups");
    for (int i = 0; i < n * size; i++) {
        MUST(ranks[i] >= 0 && ranks[i] < lierne_grid_get_world_size(spec->src),
             "rank of a gather group");
    }
    MUST(lierne_megatron_map_get_cp_groups(&ranks, &n, &size, m) == LIERNE_OK, "cp groups");
    MUST(lierne_megatron_map_get_misaligned(&ranks, &n, m) == LIERNE_OK, "misaligned ranks");
    lierne_megatron_map_destroy(m);
}

static void *buffer(lierne_plan *plan, lierne_direction direction, bool out, lierne_dtype dtype) {
    int64_t n, m;
    MUST(lierne_plan_get_elements(&n, &m, plan, direction) == LIERNE_OK, "elements of a plan");
    void *memory = calloc((size_t)(out ? m : n), lierne_dtype_size(dtype));
    MUST(memory || n == 0 || m == 0, "memory of the test");
    return memory;
}

/* Moves zeros: a sanitizer sees whether they stay inside the buffers. */
static void execute(lierne_plan **plans, int world, lierne_direction direction,
                    lierne_dtype dtype) {
    lierne_request *requests[MAX_WORLD];
    void *in[MAX_WORLD], *out[MAX_WORLD];
    for (int r = 0; r < world; r++) {
        in[r] = buffer(plans[r], direction, false, dtype);
        out[r] = buffer(plans[r], direction, true, dtype);
        lierne_status status =
            direction == LIERNE_DIRECTION_FORWARD
                ? lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL)
                : lierne_plan_adjoint_begin(&requests[r], plans[r], out[r], in[r], NULL);
        MUST(status == LIERNE_OK, "beginning");
    }
    for (int r = 0; r < world; r++) {
        MUST(lierne_request_end(requests[r]) == LIERNE_OK, "ending");
    }
    for (int r = 0; r < world; r++) {
        free(in[r]);
        free(out[r]);
    }
}

/* megatron: NULL where the file has none. */
static void plan(const lierne_bridge_spec *spec, const lierne_megatron_spec *megatron, int world,
                 const int *nodes) {
    lierne_context_spec context = {.size = sizeof context, .nodes = nodes};
    lierne_plan *plans[MAX_WORLD];
    lierne_sim *sim;
    MUST(lierne_sim_create(&sim, world, &context) == LIERNE_OK, "sim");
    for (int r = 0; r < world; r++) {
        lierne_context *rank = lierne_sim_get_context(sim, r);
        MUST((megatron ? lierne_plan_create_megatron(&plans[r], rank, megatron)
                       : lierne_plan_create_bridge(&plans[r], rank, spec)) == LIERNE_OK,
             "planning a valid bridge");
    }
    MUST(lierne_plan_check((const lierne_plan *const *)plans, world) == LIERNE_OK,
         "plans of a valid bridge");
    execute(plans, world, LIERNE_DIRECTION_FORWARD, spec->dtype);
    execute(plans, world, LIERNE_DIRECTION_ADJOINT, spec->dtype);
    for (int r = 0; r < world; r++) {
        MUST(lierne_plan_destroy(plans[r]) == LIERNE_OK, "freeing a plan");
    }
    MUST(lierne_sim_destroy(sim) == LIERNE_OK, "freeing the sim");
}

static bool small(const lierne_bridge_spec *spec, int world) {
    int64_t elements = 1;
    for (int a = 0; a < spec->naxes; a++) {
        if (!lierne_mul_i64(elements, spec->shape[a], &elements)) {
            return false;
        }
    }
    return world <= MAX_WORLD && elements <= MAX_ELEMENTS;
}

static void use_bridges(const lierne_config *config) {
    int world = lierne_config_get_world_size(config);
    for (int i = 0; i < lierne_config_get_nbridges(config); i++) {
        const char *name = lierne_config_get_bridge_name(config, i);
        const lierne_bridge_spec *spec = lierne_config_get_bridge(config, name);
        MUST(spec && lierne_config_get_bridge_src(config, name), "bridge by name");
        if (world <= MAX_MAP) {
            map(spec);
        }
        if (small(spec, world)) {
            plan(spec, lierne_config_get_megatron(config, name), world,
                 lierne_config_get_nodes(config));
        }
    }
}

static void use_packed(const lierne_config *config) {
    int world = lierne_config_get_world_size(config);
    for (int i = 0; i < lierne_config_get_npacked_bridges(config); i++) {
        const char *name = lierne_config_get_packed_bridge_name(config, i);
        const lierne_packed_bridge_spec *images = lierne_config_get_packed_bridge(config, name);
        const lierne_redistribute_spec *move = lierne_config_get_packed_move(config, name);
        MUST(!images != !move && lierne_config_get_packed_layout(config, name, 1),
             "a packed bridge by name");
        MUST(!images || lierne_packed_bridge_check(images) == LIERNE_OK, "runs of a valid bridge");
        int64_t shape[2], stored, owned;
        const lierne_layout *layout = images ? images->dst : move->dst;
        for (int r = 0; r < world && world <= MAX_WORLD; r++) {
            MUST(lierne_layout_get_shape(shape, layout, r) == LIERNE_OK &&
                     lierne_layout_get_elements(&stored, &owned, layout, r) == LIERNE_OK,
                 "rows of a rank");
            MUST(owned <= stored, "a rank owns more than it has");
        }
    }
}

static void run(const uint8_t *data, size_t size) {
    size_t before = lierne_mem_live();
    lierne_config *config;
    lierne_status status = lierne_config_parse(&config, (const char *)data, size);
    MUST(config &&
             (status == LIERNE_OK || status == LIERNE_ERR_SYNTAX || status == LIERNE_ERR_CONFIG),
         "status of a text");
    read_findings(config, status);
    if (status == LIERNE_OK) {
        use_bridges(config);
        use_packed(config);
    }
    lierne_config_destroy(config);
    MUST(lierne_mem_live() == before, "memory left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    run_timed(run, data, size);
    return 0;
}
