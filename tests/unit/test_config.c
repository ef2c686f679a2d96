/* Configurations: what is read, what is found, and that nothing breaks the reader. Single
 * diagnostics are compared file by file in tests/cli/test_bad.sh; here is what needs the API. */
#include "base/base.h"
#include "lierne/config.h"
#include "unit/config_case.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(config, reads_grids_and_views) {
    lierne_config *config = parse(full, LIERNE_OK);
    cr_expect_eq(lierne_config_get_world_size(config), 10);
    cr_expect_eq(lierne_config_get_ngrids(config), 2);
    cr_expect_str_eq(lierne_config_get_grid_name(config, 0), "vision");
    cr_expect_str_eq(lierne_config_get_grid_name(config, 1), "llm");
    const lierne_grid *vision = lierne_config_get_grid(config, "vision");
    const lierne_grid *llm = lierne_config_get_grid(config, "llm");
    cr_expect(lierne_grid_get_rank_offset(vision) == 2 && lierne_grid_get_size(vision) == 8);
    cr_expect(lierne_grid_get_rank_offset(llm) == 0 && lierne_grid_get_world_size(llm) == 10);
    cr_expect_eq(lierne_grid_get_ndims(llm, NULL), 3);
    cr_expect_str_eq(lierne_grid_get_dim_name(llm, NULL, 1), "cp");
    cr_expect_eq(lierne_grid_get_nviews(llm), 4);
    cr_expect_eq(lierne_grid_find_dim_size(llm, "fine", "edp"), 2);
    /* Shared with "expert": its key is that of the view it is shared with. */
    const char *edp = "edp";
    char key[64];
    assert_ok(lierne_grid_get_key(key, sizeof key, NULL, llm, "fine", &edp, 1));
    cr_expect_str_eq(key, "view:expert:edp");
    lierne_config_destroy(config);
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(config, reads_bridges) {
    lierne_config *config = parse(full, LIERNE_OK);
    const lierne_bridge_spec *packed = lierne_config_get_bridge(config, "packed");
    cr_expect_eq(packed->size, sizeof *packed);
    cr_expect(packed->src == lierne_config_get_grid(config, "vision"));
    cr_expect(packed->dst == lierne_config_get_grid(config, "llm"));
    cr_expect(packed->naxes == 3 && packed->batch_axis == 1 && packed->sequence_axis == 0);
    cr_expect(packed->shape[0] == 2 && packed->shape[1] == 4 && packed->shape[2] == 3);
    cr_expect(packed->dtype == LIERNE_DTYPE_F16);
    cr_expect_null(lierne_config_get_megatron(config, "packed"));
    cr_expect(packed->gradient_owner == LIERNE_GRADIENT_OWNER_ROWS);
    cr_expect(packed->gradient_storage == LIERNE_STORAGE_COMPACT && !packed->require_divisible);
    cr_expect(packed->src_counts[2] == 2 && packed->dst_counts[1] == 3);
    cr_expect(packed->row_owner[2] == 1 && packed->row_owner[3] == 0 && packed->max_inflight == 0);
    cr_expect_str_eq(lierne_config_get_bridge_src(config, "packed"), "vision");
    cr_expect_str_eq(lierne_config_get_bridge_dst(config, "packed"), "llm");
    cr_expect_str_eq(lierne_config_get_bridge_axis(config, "packed", 0), "s");
    cr_expect_null(lierne_config_get_bridge_axis(config, "packed", 3));
    const lierne_bridge_spec *plain = lierne_config_get_bridge(config, "plain");
    cr_expect(plain->naxes == 2 && plain->sequence_axis == -1 && plain->dtype == LIERNE_DTYPE_F32);
    cr_expect(plain->gradient_owner == LIERNE_GRADIENT_OWNER_PARTIAL && !plain->row_owner);
    const lierne_megatron_spec *megatron = lierne_config_get_megatron(config, "plain");
    cr_expect(megatron->algorithm == LIERNE_MEGATRON_ALGORITHM_COLLECTIVE &&
              megatron->bridge == plain);
    cr_expect(megatron->size == sizeof *megatron && plain->require_divisible);
    cr_expect(!plain->src_counts && !plain->dst_counts);
    cr_expect_str_eq(lierne_config_get_bridge_name(config, 1), "plain");
    cr_expect(!plain->src_view && !plain->src_placements && !plain->dst_placements);
    cr_expect(plain->output == LIERNE_BRIDGE_OUTPUT_WHOLE && plain->rows_per_sample == 0);
    lierne_config_destroy(config);
}

static bool placed(const lierne_placement *p, lierne_placement_kind kind, int axis) {
    return p->kind == kind && p->axis == axis && !p->counts;
}

/* Placements name the axes that the tensor is planned with: of [h, s b] those of [h, s, b]. */
Test(config, reads_placements_and_rows) {
    lierne_config *config = parse(full, LIERNE_OK);
    const lierne_bridge_spec *flat = lierne_config_get_bridge(config, "flat");
    cr_expect(flat->naxes == 2 && flat->batch_axis == 1 && flat->sequence_axis == -1);
    cr_expect(flat->rows_per_sample == 4 && flat->row_order == LIERNE_ROW_ORDER_SEQUENCE_MAJOR);
    cr_expect(!flat->src_view && strcmp(flat->dst_view, "joined") == 0);
    cr_expect(placed(&flat->src_placements[0], LIERNE_PLACEMENT_SHARD, 1));
    cr_expect(placed(&flat->src_placements[1], LIERNE_PLACEMENT_REPLICATE, 0));
    cr_expect(placed(&flat->dst_placements[0], LIERNE_PLACEMENT_SHARD_ZIGZAG, 0));
    cr_expect_eq(flat->output, LIERNE_BRIDGE_OUTPUT_WHOLE);
    const lierne_bridge_spec *own = lierne_config_get_bridge(config, "own");
    cr_expect(strcmp(own->src_view, "base") == 0 && !own->dst_view && !own->dst_placements);
    cr_expect(placed(&own->src_placements[0], LIERNE_PLACEMENT_SHARD, 2));
    cr_expect(placed(&own->src_placements[1], LIERNE_PLACEMENT_SHARD_ZIGZAG, 1));
    cr_expect(own->output == LIERNE_BRIDGE_OUTPUT_SHARDED &&
              own->row_order == LIERNE_ROW_ORDER_SAMPLE_MAJOR);
    lierne_config_destroy(config);
}

/* In every place that b and h can have, and both orders of rows. */
Test(config, rows_of_samples_are_planned_where_the_library_puts_them) {
    static const struct {
        const char *axes, *order;
        int s, h;
    } cases[] = {
        {"\"b\",\"h\"", "sample", 1, 2},
        {"\"b\",\"h\"", "sequence", 0, 2},
        {"\"h\",\"b\"", "sample", 2, 0},
        {"\"h\",\"b\"", "sequence", 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[700];
        snprintf(
            text, sizeof text,
            "{\"world_size\":8,\"grids\":{\"g\":{\"order\":[\"tp\",\"cp\",\"dp\"],\"shape\":"
            "{\"tp\":2,\"cp\":2,\"dp\":2}}},\"bridges\":[{\"name\":\"n\",\"src\":\"g\",\"dst\":"
            "\"g\",\"tensor\":{\"axes\":[%s],\"shape\":{\"b\":16,\"h\":2},\"dtype\":\"i8\","
            "\"rows_per_sample\":8,\"row_order\":\"%s\"},\"batch\":\"b\",\"placements\":"
            "{\"src\":{\"tp\":{\"shard\":\"h\"},\"cp\":{\"shard\":\"s\"}}}}]}",
            cases[i].axes, cases[i].order);
        lierne_config *config = parse(text, LIERNE_OK);
        const lierne_placement *p = lierne_config_get_bridge(config, "n")->src_placements;
        cr_expect(placed(&p[0], LIERNE_PLACEMENT_SHARD, cases[i].h), "case %zu: h %d", i,
                  p[0].axis);
        cr_expect(placed(&p[1], LIERNE_PLACEMENT_SHARD, cases[i].s), "case %zu: s %d", i,
                  p[1].axis);
        lierne_config_destroy(config);
    }
}

Test(config, reads_nodes) {
    const char *text =
        "{\"world_size\":5,\"nodes\":2,\"grids\":{\"g\":{\"order\":[],\"shape\":{}}}}";
    lierne_config *config = parse(full, LIERNE_OK);
    const int *nodes = lierne_config_get_nodes(config);
    cr_expect(nodes[0] == 0 && nodes[4] == 0 && nodes[5] == 1 && nodes[9] == 1);
    lierne_config_destroy(config);
    config = parse(text, LIERNE_OK);
    nodes = lierne_config_get_nodes(config);
    cr_expect(nodes[0] == 0 && nodes[1] == 0 && nodes[2] == 1 && nodes[3] == 1 && nodes[4] == 2);
    cr_expect_eq(lierne_grid_get_size(lierne_config_get_grid(config, "g")), 1);
    lierne_config_destroy(config);
}

Test(config, reads_links) {
    lierne_config *config =
        parse("{\"world_size\":1,\"links\":{\"node_megabytes_per_second\":5,\"other_node\":{"
              "\"latency_ns\":3,\"megabytes_per_second\":4},\"same_node\":{"
              "\"megabytes_per_second\":2,\"latency_ns\":1}},\"grids\":{\"g\":{\"order\":[],"
              "\"shape\":{}}}}",
              LIERNE_OK);
    const lierne_links *l = lierne_config_get_links(config);
    cr_assert(l && l->same_node.latency_ns == 1 && l->same_node.megabytes_per_second == 2);
    cr_expect(l->other_node.latency_ns == 3 && l->other_node.megabytes_per_second == 4);
    cr_expect_eq(l->node_megabytes_per_second, 5);
    lierne_config_destroy(config);
    config = parse(full, LIERNE_OK);
    cr_expect_null(lierne_config_get_links(config));
    lierne_config_destroy(config);
}

Test(config, rejects_bad_arguments) {
    lierne_config *config = (lierne_config *)&config;
    cr_expect_eq(lierne_config_parse(NULL, "{}", 2), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_config_parse(&config, NULL, 0), LIERNE_ERR_INVALID);
    cr_expect_null(config);
    cr_expect_eq(lierne_config_read(&config, NULL), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_config_read(NULL, "x"), LIERNE_ERR_INVALID);
    cr_expect_eq(lierne_config_read(&config, "/nonexistent/x.json"), LIERNE_ERR_IO);
    cr_expect_null(config);
    expect_says("/nonexistent/x.json: No such file");
    cr_expect_eq(lierne_config_read(&config, "/"), LIERNE_ERR_IO);
    cr_expect_null(config);
    lierne_config_destroy(NULL);
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(config, answers_questions_about_nothing) {
    lierne_config *config = parse("{}", LIERNE_ERR_CONFIG);
    cr_expect_eq(lierne_config_get_ngrids(config), 0);
    cr_expect_null(lierne_config_get_grid_name(config, 0));
    cr_expect_null(lierne_config_get_grid(config, "x"));
    cr_expect_null(lierne_config_get_grid(config, NULL));
    cr_expect_null(lierne_config_get_bridge_name(config, -1));
    cr_expect_null(lierne_config_get_bridge(config, "x"));
    cr_expect_null(lierne_config_get_bridge_src(config, "x"));
    cr_expect_null(lierne_config_get_nodes(config));
    cr_expect_null(lierne_config_get_links(config));
    cr_expect_null(lierne_config_get_diagnostic(config, 2));
    cr_expect_null(lierne_config_get_diagnostic(config, -1));
    lierne_config_destroy(config);
    cr_expect_eq(lierne_config_get_ndiagnostics(NULL), 0);
    cr_expect_null(lierne_config_get_diagnostic(NULL, 0));
    cr_expect_eq(lierne_config_get_world_size(NULL), 0);
}

Test(config, diagnostics_come_in_file_order) {
    lierne_config *config =
        parse("{\"bridges\": 1,\n \"world_size\": 0, \"grids\": {}}\n", LIERNE_ERR_CONFIG);
    static const struct {
        const char *code, *pointer;
        int line, column;
    } wanted[] = {{"LG020", "/bridges", 1, 13},
                  {"LG024", "/world_size", 2, 16},
                  {"LG027", "/grids", 2, 28}};
    cr_assert_eq(lierne_config_get_ndiagnostics(config), 3);
    for (int i = 0; i < 3; i++) {
        const lierne_diagnostic *f = lierne_config_get_diagnostic(config, i);
        cr_expect_str_eq(f->code, wanted[i].code);
        cr_expect_str_eq(f->pointer, wanted[i].pointer);
        cr_expect(f->line == wanted[i].line && f->column == wanted[i].column);
        cr_expect(f->severity == LIERNE_SEVERITY_ERROR && f->hint && *f->message);
    }
    expect_says("3 errors, the first at 1:13: [LG020]");
    lierne_config_destroy(config);
}

Test(config, text_that_is_not_json_has_diagnostics_of_the_text_only) {
    lierne_config *config = parse("{\"world_size\": 0, \"world_size\": 0}", LIERNE_ERR_SYNTAX);
    cr_assert_eq(lierne_config_get_ndiagnostics(config), 1);
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->code, "LG014");
    cr_expect_eq(lierne_config_get_diagnostic(config, 0)->column, 19);
    lierne_config_destroy(config);
}

/* Control characters, quotes and length of what a file holds never break a message's line. */
Test(config, messages_are_one_line) {
    char text[1000] = "{\"a\\nb\\u007f\": 1, \"";
    memset(text + strlen(text), 'k', 300);
    strcat(text, "\xc3\xa9\": 2}");
    lierne_config *config = parse(text, LIERNE_ERR_CONFIG);
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        const lierne_diagnostic *f = lierne_config_get_diagnostic(config, i);
        cr_expect(!strpbrk(f->message, "\n\r\x7f") && strlen(f->message) < 200, "%s", f->message);
    }
    cr_expect(strstr(lierne_config_get_diagnostic(config, 2)->message, "'a\\u000Ab\\u007F'"));
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 2)->pointer, "/a\nb\x7f");
    lierne_config_destroy(config);
    config =
        parse("{\"world_size\":2,\"grids\":{\"l\\nm\":{\"order\":[\"dp\"],\"shape\":{\"dp\":2}}},"
              "\"bridges\":[{\"name\":\"b\",\"src\":\"vit\",\"dst\":\"vit\"}]}",
              LIERNE_ERR_CONFIG);
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 3)->hint, "grids: l\\u000Am");
    lierne_config_destroy(config);
}

static void check_gaps(const char *grids, const char *message) {
    char text[500];
    snprintf(text, sizeof text, "{\"world_size\":10,\"cover_world\":true,\"grids\":{%s}}", grids);
    lierne_config *config = parse(text, message ? LIERNE_ERR_CONFIG : LIERNE_OK);
    cr_assert_eq(lierne_config_get_ndiagnostics(config), message ? 1 : 0);
    if (message) {
        cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->message, message);
    }
    lierne_config_destroy(config);
}

Test(config, uncovered_ranks_are_named) {
    check_gaps("\"a\":{\"order\":[\"dp\"],\"shape\":{\"dp\":2},\"rank_offset\":7},"
               "\"b\":{\"order\":[\"dp\"],\"shape\":{\"dp\":3},\"rank_offset\":1}",
               "ranks 0, 4 to 6, 9 of 10 are in no grid");
    /* A grid inside another, and behind it in the file. */
    check_gaps("\"a\":{\"order\":[\"dp\"],\"shape\":{\"dp\":10}},"
               "\"b\":{\"order\":[\"dp\"],\"shape\":{\"dp\":2},\"rank_offset\":3}",
               NULL);
}

/* A dim of size 1 may stand anywhere. */
Test(config, dims_of_size_1_do_not_reverse_an_order) {
    check_gaps("\"a\":{\"order\":[\"dp\",\"tp\"],\"shape\":{\"dp\":1,\"tp\":10}}", NULL);
}

/* What the file says on purpose gives no diagnostic: empty dp ranks by counts, dp sizes where
 * either divides the other. */
Test(config, sound_bridges_have_no_diagnostics) {
    static const struct {
        int batch;
        const char *text;
    } rests[] = {
        {1, "\"counts\":{\"src\":[0,1],\"dst\":[0,0,1,0]}"},
        {8, "\"require_divisible\":true"},
        {8, "\"algorithm\":\"collective\",\"require_divisible\":true"},
        {7, "\"sequence\":\"s\",\"gradient\":{\"owner\":\"zigzag\",\"storage\":\"compact\"}"},
        {7, "\"counts\":{}"},
        {6, "\"sequence\":\"s\",\"placements\":{\"src\":{\"tp\":{\"shard\":\"s\"}},\"dst\":{}}"},
        {5, "\"sequence\":\"s\",\"output\":\"sharded\",\"gradient\":{\"owner\":\"contiguous\"},"
            "\"placements\":{\"dst\":{\"tp\":{\"shard\":\"s\"}}}"},
        {4, "\"output\":\"whole\",\"src_view\":\"base\",\"placements\":{}"},
    };
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        char text[700];
        snprintf(text, sizeof text,
                 "{\"world_size\":8,\"grids\":{\"u\":{\"order\":[\"tp\",\"dp\"],\"shape\":"
                 "{\"tp\":4,\"dp\":2}},\"v\":{\"order\":[\"tp\",\"dp\"],\"shape\":{\"tp\":2,"
                 "\"dp\":4}}},\"bridges\":[{\"name\":\"n\",\"src\":\"u\",\"dst\":\"v\",\"tensor\":"
                 "{\"axes\":[\"b\",\"s\"],\"shape\":{\"b\":%d,\"s\":2},\"dtype\":\"i8\"},"
                 "\"batch\":\"b\",%s}]}",
                 rests[i].batch, rests[i].text);
        lierne_config *config = parse(text, LIERNE_OK);
        cr_expect_eq(lierne_config_get_ndiagnostics(config), 0, "%s: %s", rests[i].text,
                     lierne_config_get_diagnostic(config, 0)->message);
        lierne_config_destroy(config);
    }
}

/* Fails every allocation once; status and diagnostics must not depend on how far it came. */
static size_t check_every_allocation(const char *text, lierne_status expected) {
    size_t k = 0;
    lierne_status status;
    do {
        lierne_config *config;
        lierne_mem_fail_at(++k);
        status = lierne_config_parse(&config, text, strlen(text));
        lierne_mem_fail_at(0);
        cr_assert(status == LIERNE_ERR_NO_MEMORY ? !config : !!config, "allocation %zu", k);
        lierne_config_destroy(config);
        cr_assert_eq(lierne_mem_live(), 0, "allocation %zu leaks", k);
    } while (status == LIERNE_ERR_NO_MEMORY && k < 10000);
    cr_expect_eq(status, expected, "%s", lierne_status_name(status));
    return k;
}

Test(config, every_failed_allocation_is_reported) {
    cr_expect_gt(check_every_allocation(full, LIERNE_OK), 50);
    cr_expect_gt(check_every_allocation(
                     "{\"world_size\":8,\"cover_world\":true,\"x\":1,\"grids\":{\"g\":{\"order\":"
                     "[\"tp\",\"dp\"],\"shape\":{\"tp\":2,\"dp\":2},\"views\":{\"a\":{\"order\":"
                     "[\"e\"],\"shape\":{\"e\":4}},\"b\":{\"order\":[\"d\",\"e\"],\"shape\":"
                     "{\"d\":2,\"e\":2},\"shared\":[\"e\"],\"with\":\"a\"}}},\"h\":{\"order\":"
                     "[\"dp\",\"tp\"],\"shape\":{\"tp\":2,\"dp\":2}}},\"bridges\":[{\"name\":"
                     "\"n\",\"src\":\"g\",\"dst\":\"h\",\"tensor\":{\"axes\":[\"b\",\"h\"],"
                     "\"shape\":{\"b\":1,\"h\":1},\"dtype\":\"f32\"},\"batch\":\"b\"}],"
                     "\"nodes\":\"x\"}",
                     LIERNE_ERR_CONFIG),
                 30);
    cr_expect_gt(check_every_allocation("{\"a\":1,\"a\":2,\"a\":}", LIERNE_ERR_SYNTAX), 5);
}

/* One byte more than a text may have shows that there are too many. */
Test(config, a_long_file_is_not_read_to_its_end) {
    char path[] = "/tmp/lierne-config-XXXXXX";
    int fd = mkstemp(path);
    lierne_config *config;
    cr_assert_eq(ftruncate(fd, 20 << 20), 0);
    lierne_mem_fail_at(8); /* the last buffer: each is 4 times as long as the one before */
    cr_expect_eq(lierne_config_read(&config, path), LIERNE_ERR_NO_MEMORY);
    expect_says("no memory for 16777217 items of 1 bytes");
    lierne_mem_fail_at(0);
    close(fd);
    remove(path);
}

/* A file that is read is read as a text is. */
Test(config, reads_files) {
    char path[] = "/tmp/lierne-config-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "wb");
    fwrite(full, 1, strlen(full), file);
    fclose(file);
    lierne_config *config;
    expect_ok(lierne_config_read(&config, path));
    cr_expect_eq(lierne_config_get_nbridges(config), 4);
    lierne_config_destroy(config);
    file = fopen(path, "ab");
    for (int i = 0; i < 20000; i++) {
        fputs("          ", file);
    }
    fputs("}", file);
    fclose(file);
    cr_expect_eq(lierne_config_read(&config, path), LIERNE_ERR_SYNTAX);
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->code, "LG002");
    lierne_config_destroy(config);
    remove(path);
    cr_expect_eq(lierne_mem_live(), 0);
}
