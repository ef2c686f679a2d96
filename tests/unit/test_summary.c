/* Summaries: numbers of one rank and of all, who waits, and what LIERNE_SUMMARY writes. */
#include "base/base.h"
#include "collectives.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "lierne/summary.h"
#include "unit/expect.h"
#include "unit/ranks.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, CALLS = 3, COUNT = 1024, LATE_MS = 60 };

typedef struct job {
    int wrong[RANKS];
    char json[RANKS][2048], own[RANKS][2048], all[RANKS][2048];
    int64_t bytes[RANKS];
    double seconds; /* that all ranks took */
} job;

static void sleep_ms(long ms) {
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

/* Bytes of messages, both ways, that a call of a plan has here. */
static int64_t bytes_of(const lierne_plan *plan) {
    lierne_report report = {.size = sizeof report};
    return lierne_plan_get_report(&report, plan, LIERNE_DIRECTION_FORWARD) == LIERNE_OK
               ? report.sent_bytes + report.received_bytes
               : -1;
}

static int keep(char to[2048], lierne_status status, char *text) {
    snprintf(to, 2048, "%s", text ? text : "");
    lierne_text_destroy(text);
    return status != LIERNE_OK;
}

/* Calls of a plan with a name, both ways, the last rank late in each, then of two without one. */
static void run_job(lierne_context *context, void *shared) {
    job *j = shared;
    int r = lierne_context_get_rank(context);
    static int32_t in[RANKS][COUNT], out[RANKS][RANKS * COUNT];
    lierne_all_gather_spec spec = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    lierne_plan *plans[3] = {NULL, NULL, NULL};
    spec.name = "weights";
    j->wrong[r] += lierne_plan_create_all_gather(&plans[0], context, &spec) != LIERNE_OK;
    spec.name = NULL;
    j->wrong[r] += lierne_plan_create_all_gather(&plans[1], context, &spec) != LIERNE_OK;
    j->wrong[r] += lierne_plan_create_all_gather(&plans[2], context, &spec) != LIERNE_OK;
    j->bytes[r] = bytes_of(plans[0]);
    for (int i = 0; i < CALLS; i++) {
        sleep_ms(r == RANKS - 1 ? LATE_MS : 0);
        j->wrong[r] += lierne_plan_forward(plans[0], out[r], in[r], NULL) != LIERNE_OK;
    }
    sleep_ms(r == RANKS - 1 ? LATE_MS : 0);
    j->wrong[r] += lierne_plan_adjoint(plans[0], in[r], out[r], NULL) != LIERNE_OK;
    for (int p = 1; p < 3; p++) {
        j->wrong[r] += lierne_plan_forward(plans[p], out[r], in[r], NULL) != LIERNE_OK;
        j->wrong[r] += lierne_plan_forward(plans[p], NULL, in[r], NULL) != LIERNE_ERR_INVALID;
    }
    for (int p = 0; p < 3; p++) {
        j->wrong[r] += lierne_plan_destroy(plans[p]) != LIERNE_OK;
    }
    char *text;
    lierne_status status = lierne_context_get_summary_json(&text, context);
    j->wrong[r] += keep(j->json[r], status, text);
    status = lierne_context_get_summary(&text, context);
    j->wrong[r] += keep(j->own[r], status, text);
    status = lierne_context_reduce_summary(&text, context);
    j->wrong[r] += keep(j->all[r], status, text);
}

static double number(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(json, name);
    cr_assert(cJSON_IsNumber(item), "%s", name);
    return item->valuedouble;
}

static void check_row(const cJSON *row, const char *name, int plans, int calls, double bytes) {
    const cJSON *forward = cJSON_GetObjectItem(row, "forward");
    cr_expect_str_eq(cJSON_GetObjectItem(row, "name")->valuestring, name);
    cr_expect_str_eq(cJSON_GetObjectItem(row, "kind")->valuestring, "all_gather");
    cr_expect_eq(number(row, "plans"), plans);
    cr_expect_eq(number(forward, "calls"), calls);
    cr_expect_eq(number(forward, "bytes"), bytes * calls);
    cr_expect_eq(number(cJSON_GetObjectItem(row, "adjoint"), "calls"), *name ? 1 : 0);
    cr_expect_leq(number(forward, "waiting"), number(forward, "seconds"));
    cr_expect_leq(number(forward, "longest"), number(forward, "seconds"));
    cr_expect_geq(calls * number(forward, "longest"), number(forward, "seconds"));
}

/* The late rank comes last and waits for nobody; the others wait for it. */
static void check_json(const job *j, int r) {
    cJSON *json = cJSON_Parse(j->json[r]);
    cr_assert(json, "%s", j->json[r]);
    const cJSON *plans = cJSON_GetObjectItem(json, "plans");
    cr_assert_eq(cJSON_GetArraySize(plans), 2, "%s", j->json[r]);
    check_row(cJSON_GetArrayItem(plans, 0), "weights", 1, CALLS, (double)j->bytes[r]);
    check_row(cJSON_GetArrayItem(plans, 1), "", 2, 2, (double)j->bytes[r]);
    double waiting =
        number(cJSON_GetObjectItem(cJSON_GetArrayItem(plans, 0), "forward"), "waiting");
    double late = 1e-3 * LATE_MS * CALLS;
    cr_expect(r == RANKS - 1 ? waiting < late / 2 : waiting > late / 2, "rank %d waits for %g s", r,
              waiting);
    double seconds = number(json, "seconds");
    cr_expect(seconds >= late && seconds < j->seconds + 0.1, "%g of %g s", seconds, j->seconds);
    cr_expect_eq(number(json, "rank"), r);
    cJSON_Delete(json);
}

/* Lines of at most 80 characters. */
static void check_width(const char *text) {
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        cr_expect_leq(end - at, 80, "%s", text);
    }
}

Test(summary, of_a_rank_and_of_all) {
    static job j;
    char line[128];
    double start = lierne_now();
    ranks_run(RANKS, NULL, run_job, &j);
    j.seconds = lierne_now() - start;
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(j.wrong[r], 0, "rank %d", r);
        check_json(&j, r);
        check_width(j.own[r]);
        cr_expect_str_eq(strchr(j.all[r], '\n'), strchr(j.all[0], '\n'));
        snprintf(line, sizeof line, "rank %d of %d, ", r, RANKS);
        cr_expect(strstr(j.own[r], line), "%s", j.own[r]);
    }
    int calls = 0;
    double mib = 0, least = 0, most = 0, ratio = 0, wait = 0;
    const char *row = strstr(j.all[0], "weights (all_gather)");
    cr_assert(row && sscanf(row, "weights (all_gather) forward %d %lf %lf %lf %lf %lf%%", &calls,
                            &mib, &least, &most, &ratio, &wait) == 6,
              "%s", j.all[0]);
    check_width(j.all[0]);
    cr_expect(strstr(j.all[0], ": 4 ranks, "), "%s", j.all[0]);
    cr_expect_eq(calls, CALLS);
    cr_expect_float_eq(mib, (double)(CALLS * j.bytes[0]) / (1 << 20), 1e-3);
    cr_expect(least < most / 2 && most > 1e-3 * LATE_MS * CALLS / 2, "%s", row);
    cr_expect(wait > 50 && wait <= 100 && ratio > 2, "%s", row);
    row = strstr(row, " adjoint ");
    cr_assert(row &&
              sscanf(row, " adjoint %d %lf %lf %lf %lf", &calls, &mib, &least, &most, &ratio) == 5);
    cr_expect(calls == 1 && ratio > 2, "%s", row);
}

static void run_bad(lierne_context *context, void *shared) {
    int r = lierne_context_get_rank(context);
    char *text = NULL;
    lierne_status status = lierne_context_reduce_summary(r == 1 ? NULL : &text, context);
    ((int *)shared)[r] = status == LIERNE_ERR_INVALID && !text &&
                         strstr(lierne_last_error(), "text is NULL") != NULL;
}

Test(summary, a_bad_argument_is_the_same_error_on_every_rank) {
    int right[RANKS] = {0};
    ranks_run(RANKS, NULL, run_bad, right);
    for (int r = 0; r < RANKS; r++) {
        cr_expect(right[r], "rank %d", r);
    }
}

static char folder[] = "/tmp/lierne-summary-XXXXXX";

static char *read_file(const char *name) {
    static char text[1 << 14];
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = '\0';
    if (file) {
        fclose(file);
        remove(path);
    }
    return text;
}

static void call_once(const char *name, bool kill) {
    const lierne_context_spec spec = {.size = sizeof spec, .name = "training"};
    lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_I32);
    lierne_context *context;
    lierne_plan *plan;
    int32_t in = 1, out = 0;
    gather.name = name;
    assert_ok(lierne_context_create_self(&context, &spec));
    assert_ok(lierne_plan_create_all_gather(&plan, context, &gather));
    assert_ok(lierne_plan_forward(plan, &out, &in, NULL));
    if (kill) {
        assert_ok(lierne_context_abort(context, LIERNE_ERR_IO, "the disk is full"));
    }
    assert_ok(lierne_context_destroy_all(context));
}

Test(summary, is_written_where_somebody_asks) {
    char path[256], longest[100];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    setenv("LIERNE_LOG_FILE", path, 1);
    call_once("quiet", false);
    cr_expect_str_eq(read_file("log"), "");
    setenv("LIERNE_SUMMARY", "1", 1);
    call_once("weights", false);
    const char *text = read_file("log");
    cr_expect(strstr(text, "rank 0 of 1 of 'training', ") && strstr(text, "weights (all_gather)"),
              "%s", text);
    call_once(longest, true);
    text = read_file("log");
    cr_expect(strstr(text, ", dead: LIERNE_ERR_IO\n") && strstr(text, "x (all_gather)\n  "), "%s",
              text);
    cr_expect_null(strstr(strstr(text, "dead") + 1, "rank 0 of"), "written twice: %s", text);
    setenv("LIERNE_SUMMARY", "2", 1);
    lierne_context *context;
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_INVALID,
                 "LIERNE_SUMMARY is '2', must be 0 or 1");
    cr_expect_eq(rmdir(folder), 0);
    cr_expect_eq(lierne_mem_live(), 0);
}
