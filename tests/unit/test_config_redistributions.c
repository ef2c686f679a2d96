/* Redistributions of a configuration: what a file gives is what a program would write; and every
 * byte that is missing gives an error or another valid file, and nothing leaks. */
#include "unit/config_case.h"

#include "base/base.h"

#include <stdlib.h>

static const char moves[] =
    "{\"world_size\": 9, \"grids\": {\n"
    "  \"field\": {\"order\": [\"sx\", \"sy\"], \"shape\": {\"sx\": 2, \"sy\": 2}},\n"
    "  \"late\": {\"order\": [\"a\", \"pp\"], \"shape\": {\"a\": 4, \"pp\": 2},\n"
    "    \"rank_offset\": 1, \"views\": {\"flat\": {\"order\": [\"n\"], \"shape\": {\"n\": "
    "8}}}}},\n"
    " \"redistributions\": [\n"
    "  {\"name\": \"margins\", \"src\": \"field\", \"dst\": \"field\", \"max_peers\": 3,\n"
    "   \"tensor\": {\"axes\": [\"y\", \"x\", \"c\"], \"shape\": {\"x\": 8, \"c\": 3, \"y\": 12},\n"
    "     \"dtype\": \"bf16\"},\n"
    "   \"placements\": {\"src\": {\"sx\": {\"zigzag\": \"x\"}, \"sy\": {\"shard\": \"y\"}},\n"
    "     \"dst\": {\"sy\": {\"shard\": \"x\"}, \"sx\": {\"at\": 1}}},\n"
    "   \"halo\": {\"src\": {\"axes\": {\"x\": {\"lo\": 1, \"boundary\": \"keep\"}}, \"comment\": "
    "1},\n"
    "     \"dst\": {\"axes\": {\"comment\": 2, \"x\": {\"lo\": 2, \"hi\": 1, \"boundary\": "
    "\"mirror\",\n"
    "       \"segments\": [0, 3, 8]}, \"y\": {\"hi\": 4}}, \"stencil\": \"star\",\n"
    "       \"storage\": \"margins\"}}},\n"
    "  {\"name\": \"outputs\", \"src\": \"late\", \"src_view\": \"flat\", \"dst\": \"late\",\n"
    "   \"tensor\": {\"axes\": [\"t\"], \"shape\": {\"t\": 16}, \"dtype\": \"i64\"},\n"
    "   \"placements\": {\"src\": {\"n\": {\"shard\": \"t\"}}, \"dst\": {\"a\": {\"shard\": "
    "\"t\"}}},\n"
    "   \"halo\": {\"dst\": {\"axes\": {\"t\": {\"lo\": 1, \"hi\": 1, \"stride\": 2, \"outputs\": "
    "8,\n"
    "     \"boundary\": \"zero\"}}}}}]}";

Test(config_redistributions, reads_halos) {
    lierne_config *config = parse(moves, LIERNE_OK);
    const lierne_redistribute_spec *spec = lierne_config_get_redistribution(config, "margins");
    const lierne_layout_spec *src = lierne_config_get_redistribution_layout(config, "margins", 0),
                             *dst = lierne_config_get_redistribution_layout(config, "margins", 1);
    cr_assert(spec && src && dst && !lierne_config_get_redistribution_layout(config, "x", 0) &&
              !lierne_config_get_redistribution_layout(config, "margins", 2));
    cr_expect(spec->size == sizeof *spec && spec->src && spec->dst && spec->max_peers == 3);
    cr_expect_str_eq(spec->name, "margins");
    cr_expect(src->grid == lierne_config_get_grid(config, "field") && src->naxes == 3 &&
              src->shape[0] == 12 && src->shape[1] == 8 && src->shape[2] == 3 &&
              src->dtype == LIERNE_DTYPE_BF16);
    cr_expect(src->placements[0].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG &&
              src->placements[0].axis == 1 && src->placements[1].axis == 0 &&
              dst->placements[0].kind == LIERNE_PLACEMENT_AT && dst->placements[0].at == 1);
    cr_expect(src->nhalos == 1 && src->halos[0].axis == 1 && src->halos[0].lo == 1 &&
              src->halos[0].hi == 0 && src->halos[0].boundary == LIERNE_BOUNDARY_KEEP &&
              src->stencil == LIERNE_STENCIL_BOX);
    cr_expect(
        dst->nhalos == 2 && dst->halos[0].boundary == LIERNE_BOUNDARY_MIRROR &&
        dst->halos[0].nsegments == 2 && dst->halos[0].segments[1] == 3 && dst->halos[1].axis == 0 &&
        dst->halos[1].hi == 4 && dst->halos[1].boundary == LIERNE_BOUNDARY_NONE &&
        dst->stencil == LIERNE_STENCIL_STAR && dst->halo_storage == LIERNE_HALO_STORAGE_MARGINS);
    lierne_config_destroy(config);
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(config_redistributions, reads_outputs_and_names) {
    lierne_config *config = parse(moves, LIERNE_OK);
    const lierne_redistribute_spec *spec = lierne_config_get_redistribution(config, "outputs");
    const lierne_layout_spec *dst = lierne_config_get_redistribution_layout(config, "outputs", 1);
    int64_t rows;
    cr_assert(spec && dst && dst->halos[0].stride == 2 && dst->halos[0].outputs == 8);
    cr_expect(dst->placements[1].kind == LIERNE_PLACEMENT_AT && dst->placements[1].at == 0);
    assert_ok(lierne_layout_get_shape(&rows, spec->dst, 1));
    cr_expect_eq(rows, 5, "two outputs of stride 2 read 5 elements");
    cr_expect_eq(lierne_config_get_nredistributions(config), 2);
    cr_expect_str_eq(lierne_config_get_redistribution_name(config, 1), "outputs");
    cr_expect(!lierne_config_get_redistribution_name(config, 2) &&
              !lierne_config_get_redistribution_name(config, -1) &&
              lierne_config_get_nredistributions(NULL) == 0 &&
              !lierne_config_get_redistribution(config, NULL) &&
              !lierne_config_get_bridge(config, "outputs") &&
              !lierne_config_get_packed_move(config, "outputs"));
    cr_expect_str_eq(lierne_config_get_bridge_src(config, "outputs"), "late");
    cr_expect_str_eq(lierne_config_get_bridge_dst(config, "margins"), "field");
    cr_expect_str_eq(lierne_config_get_bridge_axis(config, "margins", 2), "c");
    cr_expect_null(lierne_config_get_bridge_axis(config, "margins", 3));
    cr_expect_null(lierne_config_get_bridge_axis(config, "none", 0));
    lierne_config_destroy(config);
}

Test(config_redistributions, bytes_that_are_missing) {
    size_t length = sizeof moves - 1;
    char *cut = malloc(length);
    int rejected = 0;
    for (size_t i = 0; i < length; i++) {
        lierne_config *config;
        memcpy(cut, moves, i);
        memcpy(cut + i, moves + i + 1, length - i - 1);
        rejected += lierne_config_parse(&config, cut, length - 1) != LIERNE_OK;
        cr_assert_not_null(config);
        lierne_config_destroy(config);
        cr_assert_eq(lierne_mem_live(), 0, "without byte %zu", i);
    }
    cr_expect_gt(rejected, 900, "%d of %zu", rejected, length);
    free(cut);
}

Test(config_redistributions, every_failed_allocation) {
    size_t k = 0;
    lierne_status status;
    do {
        lierne_config *config;
        lierne_mem_fail_at(++k);
        status = lierne_config_parse(&config, moves, sizeof moves - 1);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_ERR_NO_MEMORY ? !config : !!config, "allocation %zu", k);
        lierne_config_destroy(config);
        cr_assert_eq(lierne_mem_live(), 0, "allocation %zu", k);
    } while (status == LIERNE_ERR_NO_MEMORY);
    cr_expect(status == LIERNE_OK && k > 20);
}
