/* Each byte of a configuration that is missing is found, harmless, or changes what the file says.
 */
#include "base/base.h"
#include "unit/config_case.h"

#include <stdlib.h>

/* Everything that a config says of the job, a line for each fact. */
static void dump_dims(lierne_text *out, const lierne_grid *grid, const char *view) {
    for (int d = 0; d < lierne_grid_get_ndims(grid, view); d++) {
        lierne_text_add(out, "  %s %s %d\n", view, lierne_grid_get_dim_name(grid, view, d),
                        lierne_grid_get_dim_size(grid, view, d));
    }
}

static void dump_placements(lierne_text *out, const lierne_grid *grid, const char *view,
                            const lierne_placement *placements) {
    for (int d = 0; placements && d < lierne_grid_get_ndims(grid, view); d++) {
        lierne_text_add(out, "  placed %d %d\n", (int)placements[d].kind, placements[d].axis);
    }
}

static void dump_bridge(lierne_text *out, const lierne_config *config, const char *name) {
    const lierne_bridge_spec *s = lierne_config_get_bridge(config, name);
    const lierne_megatron_spec *megatron = lierne_config_get_megatron(config, name);
    lierne_text_add(out, "bridge %s\n src %s\n dst %s\n dtype %d\n batch %d\n sequence %d\n", name,
                    lierne_config_get_bridge_src(config, name),
                    lierne_config_get_bridge_dst(config, name), (int)s->dtype, s->batch_axis,
                    s->sequence_axis);
    lierne_text_add(out, " owner %d\n storage %d\n algorithm %d\n divisible %d\n",
                    (int)s->gradient_owner, (int)s->gradient_storage,
                    megatron ? (int)megatron->algorithm : 0, s->require_divisible);
    for (int a = 0; a < s->naxes; a++) {
        lierne_text_add(out, " axis %s %lld\n", lierne_config_get_bridge_axis(config, name, a),
                        (long long)s->shape[a]);
    }
    lierne_text_add(out, " views %s %s\n deliver %d\n rows %lld %d\n",
                    s->src_view ? s->src_view : "-", s->dst_view ? s->dst_view : "-",
                    (int)s->output, (long long)s->rows_per_sample, (int)s->row_order);
    dump_placements(out, s->src, s->src_view, s->src_placements);
    dump_placements(out, s->dst, s->dst_view, s->dst_placements);
    for (int i = 0; s->src_counts && i < lierne_grid_find_dim_size(s->src, NULL, "dp"); i++) {
        lierne_text_add(out, " src %lld\n", (long long)s->src_counts[i]);
    }
    for (int i = 0; s->dst_counts && i < lierne_grid_find_dim_size(s->dst, NULL, "dp"); i++) {
        lierne_text_add(out, " dst %lld\n", (long long)s->dst_counts[i]);
    }
    int64_t rows = s->row_owner ? s->shape[s->batch_axis] * s->shape[s->sequence_axis] : 0;
    for (int64_t i = 0; i < rows; i++) {
        lierne_text_add(out, " row %d\n", s->row_owner[i]);
    }
}

static char *dump(const lierne_config *config) {
    lierne_text out = {0};
    char *text;
    lierne_text_add(&out, "world %d\n", lierne_config_get_world_size(config));
    for (int i = 0; i < lierne_config_get_ngrids(config); i++) {
        const char *name = lierne_config_get_grid_name(config, i);
        const lierne_grid *grid = lierne_config_get_grid(config, name);
        lierne_text_add(&out, "grid %s\n offset %d\n", name, lierne_grid_get_rank_offset(grid));
        for (int v = 0; v < lierne_grid_get_nviews(grid); v++) {
            dump_dims(&out, grid, lierne_grid_get_view_name(grid, v));
        }
    }
    for (int i = 0; i < lierne_config_get_nbridges(config); i++) {
        dump_bridge(&out, config, lierne_config_get_bridge_name(config, i));
    }
    for (int i = 0; lierne_config_get_nodes(config) && i < lierne_config_get_world_size(config);
         i++) {
        lierne_text_add(&out, "node %d\n", lierne_config_get_nodes(config)[i]);
    }
    assert_ok(lierne_text_take(&out, &text));
    return text;
}

/* Whether the byte at i of text stands in a number, or between quotes. */
static bool in_value(const char *text, size_t i) {
    bool quoted = false;
    for (size_t j = 0; j < i; j++) {
        quoted ^= text[j] == '"' && (j == 0 || text[j - 1] != '\\');
    }
    return (quoted && text[i] != '"') || (text[i] >= '0' && text[i] <= '9');
}

/* Without byte i a file has diagnostics, or says the same; or the byte stood in a name or a number,
 * and then what it says differs: the change is to be seen, not swallowed. */
static void check_deletion(const char *text, size_t length, size_t i, const char *said, int *seen) {
    char *cut = malloc(length);
    memcpy(cut, text, i);
    memcpy(cut + i, text + i + 1, length - i - 1);
    lierne_config *config;
    lierne_status status = lierne_config_parse(&config, cut, length - 1);
    cr_assert_not_null(config);
    if (status != LIERNE_OK) {
        const lierne_diagnostic *f = lierne_config_get_diagnostic(config, 0);
        cr_expect(f && f->line >= 1 && f->column >= 1, "without byte %zu", i);
        seen[0]++;
    } else {
        char *says = dump(config);
        bool same = strcmp(says, said) == 0;
        cr_expect(same || in_value(text, i), "byte %zu ('%c') changes the grid unseen: %s", i,
                  text[i], says);
        seen[same ? 1 : 2]++;
        lierne_mem_free(says);
    }
    lierne_config_destroy(config);
    free(cut);
}

Test(config, single_byte_deletions_are_found_or_harmless) {
    size_t length = strlen(full);
    int seen[3] = {0};
    lierne_config *config = parse(full, LIERNE_OK);
    char *said = dump(config);
    lierne_config_destroy(config);
    for (size_t i = 0; i < length; i++) {
        check_deletion(full, length, i, said, seen);
    }
    lierne_mem_free(said);
    cr_expect(seen[0] > 800 && seen[1] > 100 && seen[2] > 5, "%d rejected, %d equal, %d other",
              seen[0], seen[1], seen[2]);
    cr_expect_eq(lierne_mem_live(), 0);
}
