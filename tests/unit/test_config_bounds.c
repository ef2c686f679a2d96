/* Bounds of configurations: as many diagnostics, grids and bridges as there may be, and one more.
 */
#include "lierne/config.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static lierne_config *parse(const char *text, lierne_status expected) {
    lierne_config *config;
    lierne_status status = lierne_config_parse(&config, text, strlen(text));
    cr_assert_eq(status, expected, "%s: %s", lierne_status_name(status), lierne_last_error());
    return config;
}

/* n members "k0": 0, ... with keys of `width` further bytes. */
static char *many_keys(int n, int width) {
    char *text = malloc((size_t)n * ((size_t)width + 24) + 64), *p = text;
    p += sprintf(p, "{\"world_size\":1,\"grids\":{\"g\":{\"order\":[],\"shape\":{}}}");
    for (int i = 0; i < n; i++) {
        p += sprintf(p, ",\"k%d%0*d\":0", i, width, 0);
    }
    strcpy(p, "}");
    return text;
}

static void check_bounded(int n, int width, int expected, const char *last_code) {
    char *text = many_keys(n, width);
    lierne_config *config = parse(text, LIERNE_ERR_CONFIG);
    int found = lierne_config_get_ndiagnostics(config);
    cr_expect_eq(found, expected, "%d diagnostics", found);
    const lierne_diagnostic *last = lierne_config_get_diagnostic(config, found - 1);
    cr_expect_str_eq(last->code, last_code);
    lierne_config_destroy(config);
    free(text);
}

Test(config_bounds, diagnostics_are_bounded) {
    check_bounded(1000, 1, 1000, "LG021");
    check_bounded(1001, 1, 1001, "LG028");
    check_bounded(100000, 1, 1001, "LG028");
    /* 4 MiB of pointers and messages: keys of 60000 bytes, 70 of them. */
    check_bounded(90, 60000, 71, "LG028");
}

/* That there are more diagnostics is said last, wherever the first that is not listed stands. */
Test(config_bounds, more_diagnostics_are_said_last) {
    char *text = many_keys(1000, 1);
    text[14] = '0'; /* world_size */
    lierne_config *config = parse(text, LIERNE_ERR_CONFIG);
    cr_assert_eq(lierne_config_get_ndiagnostics(config), 1001);
    const lierne_diagnostic *last = lierne_config_get_diagnostic(config, 1000);
    cr_expect_str_eq(last->code, "LG028");
    cr_expect(last->line == 1 && last->column == 15 && strcmp(last->pointer, "") == 0);
    lierne_config_destroy(config);
    free(text);
}

/* n bridges that are each a warning (LG110), and then one that is not. */
static char *many_warnings(int n, const char *last) {
    char *text = malloc((size_t)n * 200 + 1000), *p = text;
    p += sprintf(p, "{\"world_size\":2,\"grids\":{\"g\":{\"order\":[\"tp\",\"dp\"],"
                    "\"shape\":{\"tp\":1,\"dp\":2}}},\"bridges\":[");
    for (int i = 0; i < n; i++) {
        p += sprintf(
            p,
            "{\"name\":\"b%d\",\"src\":\"g\",\"dst\":\"g\",\"tensor\":{\"axes\":[\"b\",\"h\"],"
            "\"shape\":{\"b\":1,\"h\":1},\"dtype\":\"u8\"},\"batch\":\"b\"}%s",
            i, i + 1 < n ? "," : "");
    }
    sprintf(p, "]%s}", last);
    return text;
}

static int count_code(const lierne_config *config, const char *code) {
    int n = 0;
    for (int i = 0; i < lierne_config_get_ndiagnostics(config); i++) {
        n += strcmp(lierne_config_get_diagnostic(config, i)->code, code) == 0;
    }
    return n;
}

/* Each bridge has two: nothing moves, and a dp rank without a sample. */
Test(config_bounds, many_warnings_are_no_error_and_hide_none) {
    char *text = many_warnings(600, "");
    lierne_config *config = parse(text, LIERNE_OK);
    int n = lierne_config_get_ndiagnostics(config);
    const lierne_diagnostic *last = lierne_config_get_diagnostic(config, n - 1);
    cr_expect(n == 1001 && strcmp(last->code, "LG111") == 0, "%d, %s", n, last->code);
    cr_expect_eq(last->severity, LIERNE_SEVERITY_WARNING);
    cr_expect_not_null(lierne_config_get_bridge(config, "b599"));
    lierne_config_destroy(config);
    free(text);
    text = many_warnings(600, ",\"unknown\":0");
    config = parse(text, LIERNE_ERR_CONFIG);
    cr_expect(count_code(config, "LG021") == 1 && count_code(config, "LG111") == 1 &&
              count_code(config, "LG028") == 0);
    lierne_config_destroy(config);
    free(text);
}

Test(config_bounds, text_bounds_have_diagnostics) {
    char *text = malloc((size_t)17 << 20);
    memset(text, ' ', (size_t)17 << 20);
    lierne_config *config;
    cr_assert_eq(lierne_config_parse(&config, text, (size_t)17 << 20), LIERNE_ERR_SYNTAX);
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->code, "LG011");
    lierne_config_destroy(config);
    char *p = text;
    p += sprintf(p, "{\"comment\":[0");
    for (int i = 0; i < 1000000; i++) {
        p += sprintf(p, ",0");
    }
    cr_assert_eq(lierne_config_parse(&config, text, (size_t)(p - text)), LIERNE_ERR_SYNTAX);
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->code, "LG012");
    lierne_config_destroy(config);
    free(text);
}

/* ngrids grids, and nbridges bridges from the one before the last to the last. */
static char *many_parts(int ngrids, int nbridges) {
    char *text = malloc((size_t)1 << 20), *p = text;
    p += sprintf(p, "{\"world_size\":8,\"grids\":{");
    for (int i = 0; i < ngrids; i++) {
        p += sprintf(p, "%s\"g%d\":{\"order\":[\"tp\",\"dp\"],\"shape\":{\"tp\":2,\"dp\":4}}",
                     i ? "," : "", i);
    }
    p += sprintf(p, "},\"bridges\":[");
    for (int i = 0; i < nbridges; i++) {
        p += sprintf(p,
                     "%s{\"name\":\"b%d\",\"src\":\"g%d\",\"dst\":\"g%d\",\"batch\":\"b\","
                     "\"tensor\":{\"axes\":[\"b\",\"h\"],\"shape\":{\"b\":8,\"h\":1},"
                     "\"dtype\":\"u8\"}}",
                     i ? "," : "", i, ngrids - 2, ngrids - 1);
    }
    strcpy(p, "]}");
    return text;
}

static void check_limit(int ngrids, int nbridges, const char *pointer) {
    char *text = many_parts(ngrids, nbridges);
    lierne_config *config = parse(text, LIERNE_ERR_CONFIG);
    cr_assert_eq(lierne_config_get_ndiagnostics(config), 1);
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->code, "LG027");
    cr_expect_str_eq(lierne_config_get_diagnostic(config, 0)->pointer, pointer);
    lierne_config_destroy(config);
    free(text);
}

/* As many grids and bridges as there may be take no time to speak of. */
Test(config_bounds, large_files_take_linear_time, .timeout = 200) {
    char *text = many_parts(256, 1024);
    lierne_config *config = parse(text, LIERNE_OK);
    cr_expect_eq(lierne_config_get_nbridges(config), 1024);
    cr_expect_not_null(lierne_config_get_bridge(config, "b1023"));
    lierne_config_destroy(config);
    free(text);
    check_limit(257, 0, "/grids");
    check_limit(256, 1025, "/bridges");
}

/* 1,024 bridges of every algorithm on 2^24 ranks: a check whose work grew with the ranks would take
 * seconds for each. */
static char *bridges_of_a_large_world(void) {
    static const char *const algorithms[] = {"direct", "collective", "leader"};
    char *text = malloc((size_t)1 << 20), *p = text;
    p += sprintf(p, "{\"world_size\":16777216,\"grids\":{"
                    "\"g0\":{\"order\":[\"tp\",\"dp\"],\"shape\":{\"tp\":2,\"dp\":8388608}},"
                    "\"g1\":{\"order\":[\"dp\",\"tp\"],\"shape\":{\"tp\":2,\"dp\":8388608}},"
                    "\"g2\":{\"order\":[\"tp\",\"cp\",\"dp\"],"
                    "\"shape\":{\"tp\":2,\"cp\":2,\"dp\":4194304}}},\"bridges\":[");
    for (int i = 0; i < 1024; i++) {
        p += sprintf(p,
                     "%s{\"name\":\"b%d\",\"src\":\"g%d\",\"dst\":\"g%d\",\"tensor\":{\"axes\":"
                     "[\"b\",\"h\"],\"shape\":{\"b\":8388608,\"h\":1},\"dtype\":\"i8\"},"
                     "\"batch\":\"b\",\"algorithm\":\"%s\"}",
                     i ? "," : "", i, i % 2, (i / 2 + 1) % 3, algorithms[i / 6 % 3]);
    }
    strcpy(p, "]}");
    return text;
}

/* A hundred times the processor time that it needs; being over it ends this process. */
Test(config_bounds, bridges_of_a_large_world_take_no_time) {
    cr_assert_eq(setrlimit(RLIMIT_CPU, &(struct rlimit){20, 20}), 0);
    char *text = bridges_of_a_large_world();
    lierne_config *config = parse(text, LIERNE_ERR_CONFIG);
    const lierne_diagnostic *found =
        lierne_config_get_diagnostic(config, 1); /* after that of g1's order */
    cr_expect_str_eq(found->code, "LG104");
    cr_expect_str_eq(found->message,
                     "Megatron-LM would deliver another dp rank's samples to ranks 1, "
                     "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and "
                     "16777198 more");
    lierne_config_destroy(config);
    free(text);
}
