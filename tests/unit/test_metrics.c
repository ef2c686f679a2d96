/* LIERNE_METRICS: the file of a rank, its format and numbers, and when it is written. */
#include "base/base.h"
#include "collectives.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "rank_threads.h"
#include "runtime/context/context.h"
#include "unit/expect.h"
#include "unit/plan_case.h"

#include <criterion/criterion.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 3 };
static char folder[] = "/tmp/lierne-metrics-XXXXXX";

static void ask(void) {
    cr_assert(mkdtemp(folder));
    setenv("LIERNE_METRICS", folder, 1);
}

static void path_of(char path[256], int rank, int n) {
    snprintf(path, 256, "%s/lierne-rank%d-%ld-%d.prom", folder, rank, (long)getpid(), n);
}

static const char *read_metrics(int rank, int n) {
    static char text[1 << 15];
    char path[256];
    path_of(path, rank, n);
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    return text;
}

static void forget(int ranks, int files) {
    char path[256];
    for (int r = 0; r < ranks; r++) {
        for (int n = 0; n < files; n++) {
            path_of(path, r, n);
            cr_expect_eq(remove(path), 0, "%s", path);
        }
    }
    cr_expect_eq(rmdir(folder), 0, "other files are left in %s", folder);
}

/* Every line is a comment or a sample as Prometheus reads them, no series is there twice, and a
 * family begins with its help and type. */
static void check_format(const char *text) {
    regex_t sample;
    char family[64] = "", *lines[200], *copy = strdup(text);
    int n = 0;
    cr_assert_eq(regcomp(&sample,
                         "^[a-z_]+\\{[a-z_]+=\"([^\"\\\\]|\\\\[\"\\\\n])*\""
                         "(,[a-z_]+=\"([^\"\\\\]|\\\\[\"\\\\n])*\")*\\} [0-9.e+-]+$",
                         REG_EXTENDED | REG_NOSUB),
                 0);
    for (char *line = strtok(copy, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# TYPE ", 7) == 0) {
            cr_assert_eq(sscanf(line, "# TYPE %63[a-z_] ", family), 1, "%s", line);
        } else if (strncmp(line, "# HELP ", 7) != 0) {
            size_t length = strlen(family);
            cr_expect(regexec(&sample, line, 0, NULL, 0) == 0, "no sample: %s", line);
            cr_expect(strncmp(line, family, length) == 0 && line[length] == '{', "of no family: %s",
                      line);
            *strrchr(line, ' ') = '\0';
            for (int i = 0; i < n; i++) {
                cr_expect_str_neq(lines[i], line, "twice");
            }
            cr_assert(n < 200);
            lines[n++] = line;
        }
    }
    cr_expect_gt(n, 5, "%s", text);
    free(copy);
    regfree(&sample);
}

/* The value of the sample whose line has the name and all words; -1: there is none. */
static double value_of(const char *text, const char *name, const char *words) {
    double value = -1;
    for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        char line[1024] = "";
        snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
        size_t length = strlen(name);
        if (strncmp(line, name, length) == 0 && line[length] == '{' && strstr(line, words)) {
            value = atof(strrchr(line, ' '));
        }
    }
    return value;
}

typedef struct world {
    lierne_sim *sim;
    lierne_context *contexts[RANKS];
    lierne_plan *plans[RANKS];
    lierne_request *requests[RANKS];
    int32_t in[RANKS], out[RANKS][RANKS];
} world;

static void open_world(world *w, double timeout) {
    const lierne_context_spec spec = {.size = sizeof spec,
                                      .timeout = timeout,
                                      .name = "a \"b\" \\c"};
    lierne_all_gather_spec gather = all_gather_of(1, LIERNE_DTYPE_I32);
    gather.name = "weights";
    gather.max_inflight = 2;
    assert_ok(lierne_sim_create(&w->sim, RANKS, &spec));
    for (int r = 0; r < RANKS; r++) {
        w->contexts[r] = lierne_sim_get_context(w->sim, r);
        assert_ok(lierne_plan_create_all_gather(&w->plans[r], w->contexts[r], &gather));
    }
}

/* On ranks first to end - 1. */
static void begin(world *w, int first, int end) {
    for (int r = first; r < end; r++) {
        assert_ok(
            lierne_plan_forward_begin(&w->requests[r], w->plans[r], w->out[r], &w->in[r], NULL));
    }
}

static void gather(world *w) {
    begin(w, 0, RANKS);
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(w->requests[r]));
    }
}

Test(metrics, count_calls) {
    world w = {0};
    ask();
    open_world(&w, 5);
    gather(&w);
    gather(&w);
    cr_expect_str_eq(read_metrics(1, 0), "", "written at once");
    assert_ok(lierne_sim_destroy_all(w.sim));
    const char *text = read_metrics(1, 0);
    check_format(text);
    const char *forward = "plan=\"weights\",collective=\"forward\",kind=\"all_gather\"}";
    cr_expect_eq(value_of(text, "lierne_calls_total", forward), 2, "%s", text);
    cr_expect_eq(value_of(text, "lierne_message_bytes_total", forward), 2 * 4 * 4, "%s", text);
    cr_expect_eq(value_of(text, "lierne_calls_total", "collective=\"adjoint\""), 0);
    cr_expect_gt(value_of(text, "lierne_call_seconds_total", forward), 0);
    cr_expect_geq(value_of(text, "lierne_wait_seconds_total", forward), 0);
    cr_expect_eq(value_of(text, "lierne_context_dead", "status=\"LIERNE_OK\""), 0);
    cr_expect_eq(value_of(text, "lierne_in_flight_seconds", ""), -1);
    cr_expect(strstr(text, ",comm_name=\"a \\\"b\\\" \\\\c\",hostname=\"") &&
                  strstr(text, "\",rank=\"1\",n_ranks=\"3\",pid=\""),
              "%s", text);
    forget(RANKS, 1);
    cr_expect_eq(lierne_mem_live(), 0);
}

/* Samples of 3 rows each, then of 1. */
static void forward_of_rows(lierne_context *context, void *spec) {
    lierne_plan *plan;
    float in[32] = {0}, out[64];
    assert_ok(lierne_plan_create_bridge(&plan, context, spec));
    for (int64_t rows = 3; rows > 0; rows -= 2) {
        assert_ok(lierne_plan_update_counts(plan, (int64_t[]){rows, rows, rows, rows}));
        assert_ok(lierne_plan_forward(plan, out, in, NULL));
    }
    assert_ok(lierne_plan_destroy(plan));
}

/* Each of two ranks has half of 8 samples, and gets all of them: rows of 2 floats. An update sends
 * 4 counts, and receives 4. */
Test(metrics, count_the_bytes_of_updated_rows) {
    lierne_grid *src = grid(2, 1, 1, 2), *dst = grid(2, 2, 1, 1);
    lierne_bridge_spec spec = spec_of(src, dst);
    spec.variable_rows = 1;
    spec.name = "rows";
    ask();
    lierne_sim *sim = sim_of(2, 5);
    rank_threads(sim, 2, forward_of_rows, &spec);
    assert_ok(lierne_sim_destroy(sim));
    for (int r = 0; r < 2; r++) {
        const char *text = read_metrics(r, 0);
        cr_expect_eq(value_of(text, "lierne_message_bytes_total",
                              "plan=\"rows\",collective=\"forward\""),
                     (3 + 1) * 2 * 4 * 2 * 4 + 2 * 2 * 4 * 8, "%s", text);
    }
    lierne_grid_destroy(src), lierne_grid_destroy(dst);
    forget(2, 1);
}

/* Two calls of one plan in flight are one series. */
Test(metrics, tell_who_is_waited_for) {
    world w = {0};
    ask();
    open_world(&w, 0.4);
    double begun = lierne_now();
    begin(&w, 1, 2);
    begin(&w, 1, 2);
    cr_assert_eq(lierne_request_end(w.requests[1]), LIERNE_ERR_TIMEOUT);
    const char *text = read_metrics(1, 0);
    check_format(text);
    const char *forward = "plan=\"weights\",collective=\"forward\"}";
    double seconds[] = {value_of(text, "lierne_in_flight_seconds", forward),
                        value_of(text, "lierne_waits_for_seconds", "peer=\"0\"}"),
                        value_of(text, "lierne_waits_for_seconds", "peer=\"2\"}")};
    for (int i = 0; i < 3; i++) { /* since the call began; by another clock */
        cr_expect(seconds[i] > 0.3 && seconds[i] < lierne_now() - begun + 1, "%g: %s", seconds[i],
                  text);
    }
    cr_expect_eq(value_of(text, "lierne_context_dead", "status=\"LIERNE_ERR_TIMEOUT\""), 1);
    assert_ok(lierne_sim_destroy_all(w.sim));
    forget(RANKS, 1);
}

/* Two calls of plan 0 that wait for rank 2 are what is left at the beginning of a full ring. */
Test(metrics, a_ring_may_begin_with_calls_in_flight) {
    world w = {0};
    ask();
    open_world(&w, 5);
    const lierne_recorder *r = &w.contexts[1]->recorder;
    for (int i = 0; i < 2; i++) {
        lierne_entry e = {.kind = LIERNE_RECORD_CALL, .number = i};
        lierne_recorder_add(r, &e);
        e.kind = LIERNE_RECORD_WAIT, e.peer = 2;
        lierne_recorder_add(r, &e);
    }
    for (uint32_t i = 4; i < r->header->capacity; i++) {
        lierne_recorder_add(r, &(lierne_entry){.kind = LIERNE_RECORD_OPERATED});
    }
    lierne_metrics_write(w.contexts[1]);
    const char *text = read_metrics(1, 0);
    check_format(text);
    cr_expect_geq(value_of(text, "lierne_in_flight_seconds", "plan=\"weights\""), 0, "%s", text);
    cr_expect_geq(value_of(text, "lierne_waits_for_seconds", "peer=\"2\"}"), 0, "%s", text);
    assert_ok(lierne_sim_destroy_all(w.sim));
    forget(RANKS, 1);
}

Test(metrics, are_written_while_a_rank_waits) {
    world w = {0};
    char path[256];
    struct stat info;
    ask();
    open_world(&w, 30);
    path_of(path, 0, 0);
    begin(&w, 0, 1);
    for (int done = 0, i = 0; i < 3000; i++) {
        assert_ok(lierne_request_test(&done, w.requests[0]));
        cr_assert(!done);
        if (stat(path, &info) == 0 && info.st_size > 0) {
            break;
        }
        usleep(1000);
    }
    const char *text = read_metrics(0, 0);
    cr_expect(value_of(text, "lierne_waits_for_seconds", "peer=\"1\"}") > 0.9, "%s", text);
    cr_expect_eq(value_of(text, "lierne_context_dead", "status=\"LIERNE_OK\""), 0);
    assert_ok(lierne_context_abort(w.contexts[0], LIERNE_ERR_IO, "the test is over"));
    assert_ok(lierne_sim_destroy_all(w.sim));
    forget(RANKS, 1);
}

Test(metrics, a_file_that_a_killed_process_left_is_replaced) {
    lierne_context *context;
    char path[256 + 8];
    ask();
    path_of(path, 0, 0);
    strcat(path, ".new");
    FILE *left = fopen(path, "w");
    cr_assert(left);
    fclose(left);
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_context_destroy(context));
    cr_expect_neq(*read_metrics(0, 0), '\0');
    forget(1, 1);
}

Test(metrics, contexts_have_files_of_their_own) {
    lierne_context *contexts[2];
    ask();
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_context_create_self(&contexts[i], NULL));
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(lierne_context_destroy(contexts[i]));
    }
    forget(1, 2);
    setenv("LIERNE_METRICS", "/nonexistent/folder", 1);
    assert_error(
        lierne_context_create_self(&contexts[0], NULL), LIERNE_ERR_IO,
        "LIERNE_METRICS is '/nonexistent/folder', where no file can be made: No such file");
    cr_expect_eq(lierne_mem_live(), 0);
}
