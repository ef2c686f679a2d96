/* LIERNE_LOG and LIERNE_LOG_FILE: which lines each level has and that they are true, names of
 * files, and what is rejected. */
#include "bridge_plan.h"
#include "unit/expect.h"

#include <criterion/criterion.h>
#include <lierne.h>
#include <lierne/sim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 8, ELEMENTS = 8 * 6 * 4 };
static char folder[] = "/tmp/lierne-log-XXXXXX";
static char text[1 << 16];

static void ask(const char *level, const char *file) {
    static bool made; /* by chance a name ends with X, too */
    char path[200];
    cr_assert(made || mkdtemp(folder));
    made = true;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    setenv("LIERNE_LOG", level, 1);
    setenv("LIERNE_LOG_FILE", path, 1);
}

/* The log in a file of the folder, "" without one; it is then removed. */
static const char *read_log(const char *file) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *log = fopen(path, "r");
    size_t n = log ? fread(text, 1, sizeof text - 1, log) : 0;
    text[n] = '\0';
    if (log) {
        fclose(log);
        cr_assert_eq(remove(path), 0);
    }
    return text;
}

static size_t count_lines(const char *log, const char *words) {
    size_t count = 0;
    for (const char *at = log; (at = strstr(at, words)); at++) {
        count++;
    }
    return count;
}

/* A bridge on all ranks of a world, executed once; the reports of rank 3, with texts that outlive
 * its plan. */
static void move_with(const lierne_context_spec *context, lierne_report reports[2], bool kill) {
    static char transports[2][64];
    static const int64_t shape[3] = {8, 6, 4};
    static float in[RANKS][ELEMENTS], out[RANKS][ELEMENTS];
    lierne_grid *src = grid_of(8, 1, 1, RANKS), *dst = grid_of(1, 4, 2, RANKS);
    const lierne_bridge_spec spec = bridge_spec_of(src, dst, shape);
    lierne_sim *sim;
    lierne_plan *plans[RANKS];
    lierne_request *requests[RANKS];
    assert_ok(lierne_sim_create(&sim, RANKS, context));
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_create_bridge(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    for (int r = 0; r < RANKS; r++) {
        in[r][0] = 1.0F + (float)r;
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out[r], in[r], NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
    for (int d = 0; d < 2 && reports; d++) {
        reports[d].size = sizeof *reports;
        assert_ok(lierne_plan_get_report(&reports[d], plans[3], (lierne_direction)d));
        snprintf(transports[d], sizeof transports[d], "%s", reports[d].transports);
        reports[d].transports = transports[d];
    }
    if (kill) {
        assert_ok(
            lierne_context_abort(lierne_sim_get_context(sim, 5), LIERNE_ERR_IO, "disk\nfull"));
    }
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_grid_destroy(src);
    lierne_grid_destroy(dst);
}

static void move(lierne_report reports[2], bool kill) {
    move_with(NULL, reports, kill);
}

Test(log, nothing_by_default) {
    ask("info", "log");
    unsetenv("LIERNE_LOG");
    move(NULL, true);
    cr_expect_str_eq(read_log("log"), "");
    ask("off", "log");
    move(NULL, true);
    cr_expect_str_eq(read_log("log"), "");
    rmdir(folder);
}

Test(log, contexts_and_plans) {
    lierne_report reports[2];
    char line[400];
    ask("info", "log");
    move(reports, false);
    const char *log = read_log("log");
    cr_assert_gt(reports[1].sent_bytes, 0);
    for (int d = 0; d < 2; d++) {
        const lierne_report *r = &reports[d];
        snprintf(
            line, sizeof line,
            "rank 3: plan 0: %s of bridge, %s: %lld bytes sent in %lld messages, %lld received in "
            "%lld, %lld stages, over %s;",
            d ? "adjoint" : "forward", r->algorithm, (long long)r->sent_bytes,
            (long long)r->sent_messages, (long long)r->received_bytes,
            (long long)r->received_messages, (long long)r->stages,
            r->transports[0] ? r->transports : "none");
        cr_expect_eq(count_lines(log, line), 1, "no line \"%s\" in\n%s", line, log);
    }
    snprintf(line, sizeof line, "lierne %s: a context of 8 of 8 ranks, timeout 60 s\n",
             lierne_version());
    cr_expect_eq(count_lines(log, line), RANKS, "%s", log);
    cr_expect_eq(count_lines(log, "transport sim: to 7 peers: "), RANKS, "%s", log);
    cr_expect_eq(count_lines(log, "rank 0: transport sim: to 7 peers: 1 to 7\n"), 1, "%s", log);
    cr_expect_eq(count_lines(log, "rank 1: transport sim: to 7 peers: 0, 2 to 7\n"), 1, "%s", log);
    cr_expect_eq(count_lines(log, ": plan 0: lierne_plan_create_bridge: src.ndims 3, "
                                  "src.dim[0].name 'tp', src.dim[0].size 8, "),
                 RANKS, "%s", log);
    cr_expect_eq(count_lines(log, "\n"), 5 * RANKS, "%s", log);
    rmdir(folder);
}

Test(log, levels) {
    ask("debug", "log");
    move(NULL, false);
    const char *log = read_log("log");
    cr_expect_eq(count_lines(log, ": forward 0 of plan 0: LIERNE_OK after "), RANKS, "%s", log);
    ask("warn", "log");
    move(NULL, false);
    cr_expect_str_eq(read_log("log"), "");
    ask("error", "log");
    move(NULL, true);
    log = read_log("log");
    cr_expect_geq(count_lines(log, "lierne error "), 1, "%s", log);
    cr_expect_eq(count_lines(log, "rank 5: LIERNE_ERR_IO: lierne_context_abort: "), 1, "%s", log);
    cr_expect_eq(count_lines(log, "disk full"), count_lines(log, "\n"), "%s", log);
    rmdir(folder);
}

typedef struct heard {
    lierne_log_level highest;
    char all[1 << 16];
} heard;

static void hear(lierne_log_level level, const char *line, void *user) {
    heard *h = user;
    size_t used = strlen(h->all);
    h->highest = level > h->highest ? level : h->highest;
    cr_expect_null(strchr(line, '\n'));
    snprintf(h->all + used, sizeof h->all - used, "%d %s\n", (int)level, line);
}

/* A function gets the lines up to its own level, whatever the environment's is, and with the same
 * text behind the process. */
Test(log, lines_for_a_function) {
    static heard h;
    lierne_context_spec spec = {.size = sizeof spec, .name = "sea", .log = hear, .log_user = &h};
    char line[100];
    for (int level = LIERNE_LOG_LEVEL_OFF; level <= LIERNE_LOG_LEVEL_DEBUG; level++) {
        memset(&h, 0, sizeof h);
        spec.log_level = (lierne_log_level)level;
        ask("warn", "log");
        move_with(&spec, NULL, true);
        cr_expect_eq((int)h.highest,
                     level == LIERNE_LOG_LEVEL_WARN ? LIERNE_LOG_LEVEL_ERROR : level);
        const char *log = read_log("log");
        cr_expect_eq(count_lines(log, "lierne error "), count_lines(log, "\n"), "%s", log);
        cr_expect_geq(count_lines(log, "\n"), 1);
        cr_expect_eq(count_lines(h.all, "1 rank 5 of sea: LIERNE_ERR_IO: lierne_context_abort: "),
                     level >= LIERNE_LOG_LEVEL_ERROR, "%s", h.all);
        cr_expect_eq(count_lines(h.all, "4 rank 3 of sea: forward 0 of plan 0: LIERNE_OK after "),
                     level == LIERNE_LOG_LEVEL_DEBUG, "%s", h.all);
        snprintf(line, sizeof line, "lierne %s: a context of 8 of 8 ranks", lierne_version());
        cr_expect_eq(count_lines(h.all, line), level >= LIERNE_LOG_LEVEL_INFO ? RANKS : 0, "%s",
                     h.all);
    }
    memset(&h, 0, sizeof h);
    unsetenv("LIERNE_LOG");
    move_with(&spec, NULL, true);
    cr_expect_eq((int)h.highest, LIERNE_LOG_LEVEL_DEBUG);
    cr_expect_str_eq(read_log("log"), "");
    rmdir(folder);
}

Test(log, what_a_spec_leaves_out) {
    const int64_t counts[] = {4};
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .counts = counts,
                                         .dtype = LIERNE_DTYPE_F32};
    lierne_context *context;
    lierne_plan *plan;
    ask("info", "log");
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_all_gather(&plan, context, &spec));
    assert_ok(lierne_context_destroy_all(context));
    const char *log = read_log("log");
    cr_expect_eq(count_lines(log, "counts 1 entries"), 1);
    cr_expect_eq(count_lines(log, "send_counts"), 0, "%s", log);
    rmdir(folder);
}

Test(log, names_of_files) {
    char host[100], name[200];
    lierne_context *context;
    ask("info", "%h.%p.%r.100%%");
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_context_destroy(context));
    cr_assert_eq(gethostname(host, sizeof host), 0);
    snprintf(name, sizeof name, "%s.%ld.0.100%%", host, (long)getpid());
    cr_expect_eq(count_lines(read_log(name), "a context of 1 of 1 ranks"), 1);
    rmdir(folder);
}

Test(log, what_is_rejected) {
    lierne_context *context;
    lierne_context_spec spec = {.size = sizeof spec, .log_level = LIERNE_LOG_LEVEL_INFO};
    assert_error(lierne_context_create_self(&context, &spec), LIERNE_ERR_INVALID,
                 "log is NULL, but log_level is 3 (info)");
    spec.log = hear;
    spec.log_level = (lierne_log_level)5;
    assert_error(lierne_context_create_self(&context, &spec), LIERNE_ERR_INVALID,
                 "log_level is 5, must be 0 (off) to 4 (debug)");
    ask("loud", "log");
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_INVALID,
                 "LIERNE_LOG is 'loud', must be error, warn, info, debug or off");
    ask("info", "log.%x");
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_INVALID,
                 "which has a % before neither h (host), p (process), r (rank) nor %");
    ask("info", "log.%");
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_INVALID, "before neither");
    ask("info", "none/log");
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_IO,
                 "none/log': No such file");
    rmdir(folder);
}
