/* Packed bridges of a configuration: what a file gives is what a program would write; and every
 * byte that is missing gives an error or another valid file, and nothing leaks. */
#include "unit/config_case.h"

#include "base/base.h"

#include <stdlib.h>

static const char packed[] =
    "{\"world_size\": 10, \"grids\": {\n"
    "  \"vision\": {\"order\": [\"dp\", \"pp\"], \"shape\": {\"dp\": 4, \"pp\": 2}},\n"
    "  \"llm\": {\"order\": [\"tp\", \"cp\", \"pp\"], \"shape\": {\"tp\": 2, \"cp\": 2, \"pp\": "
    "2},\n"
    "    \"rank_offset\": 2, \"views\": {\"flat\": {\"order\": [\"x\", \"cp\"],\n"
    "      \"shape\": {\"x\": 4, \"cp\": 2}}}}},\n"
    " \"packed_bridges\": [\n"
    "  {\"name\": \"images\", \"src\": \"vision\", \"dst\": \"llm\",\n"
    "   \"tensor\": {\"axes\": [\"h\", \"s\"], \"shape\": {\"h\": 6}, \"dtype\": \"f32\"},\n"
    "   \"segments\": {\"cu_seqlens\": [0, 6, 9, 16]}, \"images\": {\"cu_seqlens\": [0, 3, 5]},\n"
    "   \"runs\": [[0, 0, 0, 1, 2], [1, 0, 2, 3, 2], [1, 0, 0, 5, 1]],\n"
    "   \"packing\": {\"src\": {\"owner\": [0, 2], \"padding\": \"keep\"},\n"
    "     \"dst\": {\"cu_seqlens_padded\": [0, 8, 12, 24], \"lead\": [1, 0, 4],\n"
    "       \"order\": [2, 0, 1], \"store\": \"unpadded\"}},\n"
    "   \"placements\": {\"src\": {\"dp\": {\"shard_segments\": \"s\"}},\n"
    "     \"dst\": {\"cp\": {\"segment_zigzag\": \"s\"}, \"tp\": {\"shard\": \"h\"}}},\n"
    "   \"partial\": [], \"allow_unused\": true, \"allow_repeat\": true, \"max_peers\": 7},\n"
    "  {\"name\": \"move\", \"src\": \"llm\", \"src_view\": \"flat\", \"dst\": \"llm\",\n"
    "   \"tensor\": {\"axes\": [\"s\"], \"dtype\": \"i32\"},\n"
    "   \"segments\": {\"cu_seqlens\": [0, 6, 9]},\n"
    "   \"packing\": {\"src\": {\"align\": 6}, \"dst\": {\"align\": 6, \"row_order\": "
    "\"sequence\"}},\n"
    "   \"placements\": {\"src\": {\"cp\": {\"segment_shard\": \"s\"}, \"x\": {\"at\": 3}},\n"
    "     \"dst\": {\"cp\": {\"zigzag\": \"s\"}, \"pp\": {\"at\": 1}}}}]}";

static void expect_sides(const lierne_config *config) {
    const lierne_layout_spec *src = lierne_config_get_packed_layout(config, "images", 0),
                             *dst = lierne_config_get_packed_layout(config, "images", 1);
    cr_assert(src && dst && !lierne_config_get_packed_layout(config, "images", 2) &&
              !lierne_config_get_packed_layout(config, "none", 0));
    cr_expect(src->grid == lierne_config_get_grid(config, "vision") && src->packed_axis == 1 &&
              src->naxes == 2 && src->shape[0] == 6 && src->shape[1] == 5 && dst->shape[1] == 16);
    cr_expect(src->dtype == LIERNE_DTYPE_F32 && src->segments->nsegments == 2 &&
              dst->segments->cu_seqlens[2] == 9);
    cr_expect(src->placements[0].kind == LIERNE_PLACEMENT_SHARD_SEGMENTS &&
              src->placements[0].axis == 1 && src->placements[1].kind == LIERNE_PLACEMENT_AT &&
              src->placements[1].at == 1 && src->packing->owner[1] == 2);
    cr_expect(dst->placements[0].kind == LIERNE_PLACEMENT_SHARD && dst->placements[0].axis == 0 &&
              dst->placements[1].kind == LIERNE_PLACEMENT_SEGMENT_ZIGZAG &&
              dst->placements[2].kind == LIERNE_PLACEMENT_AT && dst->placements[2].at == 0);
    cr_expect(dst->packing->cu_seqlens_padded[3] == 24 && dst->packing->lead[2] == 4 &&
              dst->packing->order[0] == 2 && dst->packing->store == LIERNE_PACKING_STORE_UNPADDED &&
              src->packing->padding == LIERNE_PADDING_KEEP);
}

Test(config_packed, reads_images) {
    lierne_config *config = parse(packed, LIERNE_OK);
    const lierne_packed_bridge_spec *spec = lierne_config_get_packed_bridge(config, "images");
    cr_assert_not_null(spec);
    cr_expect(spec->size == sizeof *spec && spec->nruns == 3 && spec->allow_unused &&
              spec->allow_repeat && spec->max_peers == 7 && spec->partial_dims == 0);
    cr_expect(spec->runs[2].image == 1 && spec->runs[1].segment == 2 &&
              spec->runs[1].position == 3 && spec->runs[0].length == 2 && spec->runs[2].row == 0);
    cr_expect_null(lierne_config_get_packed_move(config, "images"));
    cr_expect_null(lierne_config_get_bridge(config, "images"));
    cr_expect_str_eq(lierne_config_get_bridge_src(config, "images"), "vision");
    cr_expect_str_eq(lierne_config_get_bridge_dst(config, "images"), "llm");
    expect_sides(config);
    lierne_config_destroy(config);
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(config_packed, reads_moves_and_names) {
    lierne_config *config = parse(packed, LIERNE_OK);
    const lierne_redistribute_spec *spec = lierne_config_get_packed_move(config, "move");
    const lierne_layout_spec *src = lierne_config_get_packed_layout(config, "move", 0),
                             *dst = lierne_config_get_packed_layout(config, "move", 1);
    int64_t rows;
    cr_assert(spec && spec->size == sizeof *spec && spec->max_peers == 0);
    cr_expect_str_eq(src->view, "flat");
    cr_expect(src->naxes == 1 && src->packing->align == 6 && src->placements[0].at == 3 &&
              src->placements[1].kind == LIERNE_PLACEMENT_SEGMENT_SHARD);
    cr_expect(dst->packing->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR &&
              dst->placements[1].kind == LIERNE_PLACEMENT_SHARD_ZIGZAG &&
              dst->placements[2].at == 1);
    assert_ok(lierne_layout_get_shape(&rows, spec->src, 9));
    cr_expect_eq(rows, 6, "of two segments of 6 one half each");
    cr_expect_null(lierne_config_get_packed_bridge(config, "move"));
    cr_expect_eq(lierne_config_get_npacked_bridges(config), 2);
    cr_expect_str_eq(lierne_config_get_packed_bridge_name(config, 1), "move");
    cr_expect(!lierne_config_get_packed_bridge_name(config, 2) &&
              !lierne_config_get_packed_bridge_name(config, -1) &&
              !lierne_config_get_packed_bridge_name(NULL, 0) &&
              lierne_config_get_npacked_bridges(NULL) == 0 &&
              !lierne_config_get_packed_bridge(config, NULL) &&
              !lierne_config_get_packed_move(NULL, "move"));
    lierne_config_destroy(config);
}

/* As many errors as there are, at their places, with the whole text of the library. */
Test(config_packed, says_what_a_program_would_be_told) {
    char text[sizeof packed];
    memcpy(text, packed, sizeof packed);
    char *at = strstr(text, "\"order\": [2, 0, 1]");
    memcpy(at, "\"order\": [2, 0, 2]", strlen("\"order\": [2, 0, 2]"));
    lierne_config *config = parse(text, LIERNE_ERR_CONFIG);
    const lierne_diagnostic *d = lierne_config_get_diagnostic(config, 0);
    cr_expect_eq(lierne_config_get_ndiagnostics(config), 1);
    cr_expect_str_eq(d->code, "LIERNE_ERR_INVALID");
    cr_expect_str_eq(d->pointer, "/packed_bridges/0/packing/dst/order/2");
    cr_expect_str_eq(d->message, "order[2] is 2, as order[0] is: it must be a permutation");
    lierne_config_destroy(config);
}

Test(config_packed, bytes_that_are_missing) {
    size_t length = sizeof packed - 1;
    char *cut = malloc(length);
    int rejected = 0;
    for (size_t i = 0; i < length; i++) {
        lierne_config *config;
        memcpy(cut, packed, i);
        memcpy(cut + i, packed + i + 1, length - i - 1);
        rejected += lierne_config_parse(&config, cut, length - 1) != LIERNE_OK;
        cr_assert_not_null(config);
        lierne_config_destroy(config);
        cr_assert_eq(lierne_mem_live(), 0, "without byte %zu", i);
    }
    cr_expect_gt(rejected, 1000);
    free(cut);
}

Test(config_packed, every_failed_allocation) {
    size_t k = 0;
    lierne_status status;
    do {
        lierne_config *config;
        lierne_mem_fail_at(++k);
        status = lierne_config_parse(&config, packed, sizeof packed - 1);
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_ERR_NO_MEMORY ? !config : !!config, "allocation %zu", k);
        lierne_config_destroy(config);
        cr_assert_eq(lierne_mem_live(), 0, "allocation %zu leaks", k);
    } while (status == LIERNE_ERR_NO_MEMORY && k < 10000);
    cr_expect(status == LIERNE_OK && k > 60, "%s at %zu", lierne_status_name(status), k);
}
