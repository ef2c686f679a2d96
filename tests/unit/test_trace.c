/* Traces of executing calls (lierne_context_get_trace) as a viewer reads them: calls of one plan
 * that are in flight together, and times that no double changes. */
#include "base/base.h"
#include "layouts.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/context/context.h"
#include "runtime/recorder/trace_file.h"
#include "unit/expect.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, COUNT = 4, CALLS = 3, BYTES = 2 * COUNT * 4 /* sent and received */ };

typedef struct world {
    lierne_sim *sim;
    lierne_context *contexts[RANKS];
    lierne_plan *plans[RANKS];
    lierne_request *requests[RANKS][CALLS];
    int32_t in[COUNT], out[RANKS][CALLS][RANKS * COUNT];
} world;

static void begin_all(world *w) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_I32,
                                         .max_inflight = CALLS};
    assert_ok(lierne_sim_create(&w->sim, RANKS, NULL));
    for (int r = 0; r < RANKS; r++) {
        w->contexts[r] = lierne_sim_get_context(w->sim, r);
        assert_ok(lierne_plan_create_all_gather(&w->plans[r], w->contexts[r], &spec));
    }
    for (int i = 0; i < CALLS * RANKS; i++) {
        int r = i % RANKS, call = i / RANKS;
        assert_ok(lierne_plan_forward_begin(&w->requests[r][call], w->plans[r], w->out[r][call],
                                            w->in, NULL));
    }
}

static void end_all(world *w) {
    for (int i = 0; i < CALLS * RANKS; i++) {
        assert_ok(lierne_request_end(w->requests[i % RANKS][i / RANKS]));
    }
}

static cJSON *read_events(const lierne_context *context) {
    char *text, *whole;
    assert_ok(lierne_context_get_trace(&text, context));
    cr_assert(asprintf(&whole, "[%s]", text) > 0);
    cJSON *events = cJSON_Parse(whole);
    cr_assert(events, "%s", whole);
    lierne_text_destroy(text);
    free(whole);
    return events;
}

/* Of an event or of its args. */
static double number(const cJSON *event, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(event, name);
    item = item ? item : cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), name);
    cr_assert(cJSON_IsNumber(item), "%s of %s", name, cJSON_PrintUnformatted(event));
    return item->valuedouble;
}

static const char *text_of(const cJSON *event, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItem(event, name));
}

/* Whether two bars of one track overlap, and neither lies in the other. Half a nanosecond is what
 * the sum of two doubles may differ by. */
static bool cross(const cJSON *a, const cJSON *b) {
    double begin = number(a, "ts"), end = begin + number(a, "dur");
    double first = number(b, "ts"), last = first + number(b, "dur"), least = 0.0005;
    return number(a, "tid") == number(b, "tid") && begin + least < first && first + least < end &&
           end + least < last;
}

Test(trace, calls_in_flight_together_have_tracks_of_their_own) {
    static const char *const names[] = {"plan 0: all_gather", "plan 0: all_gather (2)",
                                        "plan 0: all_gather (3)"};
    static world w;
    int bars = 0, tracks = 0, calls = 0;
    begin_all(&w);
    end_all(&w);
    cJSON *events = read_events(w.contexts[1]);
    for (const cJSON *a = events->child; a; a = a->next) {
        bool bar = strcmp(text_of(a, "ph"), "X") == 0;
        if (strcmp(text_of(a, "name"), "thread_name") == 0) {
            cr_assert_str_eq(text_of(cJSON_GetObjectItem(a, "args"), "name"), names[tracks++]);
        }
        if (bar && strcmp(text_of(a, "cat"), "call") == 0) {
            char name[32];
            snprintf(name, sizeof name, "forward %d of plan 0", calls);
            cr_assert_str_eq(text_of(a, "name"), name);
            cr_assert(number(a, "number") == calls++ && number(a, "plan") == 0);
            cr_assert_eq(number(a, "bytes"), BYTES);
        }
        bars += bar;
        for (const cJSON *b = events->child; bar && b; b = b->next) {
            cr_assert(strcmp(text_of(b, "ph"), "X") != 0 || !cross(a, b), "%s and %s",
                      cJSON_PrintUnformatted(a), cJSON_PrintUnformatted(b));
        }
    }
    cr_assert(bars == 2 * CALLS && calls == CALLS && tracks == CALLS, "%d, %d, %d", bars, calls,
              tracks);
    cJSON_Delete(events);
    assert_ok(lierne_sim_destroy_all(w.sim));
}

/* Rank 0 has begun its calls, and rank 1 none. */
Test(trace, a_call_that_has_not_ended_keeps_its_track) {
    static world w;
    begin_all(&w);
    cJSON *events = read_events(w.contexts[0]);
    for (const cJSON *e = events->child; e; e = e->next) {
        cr_assert_str_neq(text_of(e, "ph"), "X");
    }
    cr_assert_eq(cJSON_GetArraySize(events), CALLS, "a name for each track");
    cJSON_Delete(events);
    end_all(&w);
    assert_ok(lierne_sim_destroy_all(w.sim));
}

/* The clock of some systems has long ticks: a call begins in the one in which the last one ended.
 */
Test(trace, a_call_that_begins_when_the_last_one_ends_has_its_track) {
    lierne_context *context;
    int tracks = 0, calls = 0;
    assert_ok(lierne_context_create_self(&context, NULL));
    const int64_t now = lierne_recorder_now(&context->recorder);
    for (int i = 0; i < 4; i++) {
        const lierne_entry e = {.kind = i % 2 ? LIERNE_RECORD_END : LIERNE_RECORD_CALL,
                                .number = i / 2,
                                .time = now + 1000 * ((i + 1) / 2)};
        lierne_recorder_add(&context->recorder, &e);
    }
    cJSON *events = read_events(context);
    for (const cJSON *e = events->child; e; e = e->next) {
        tracks += strcmp(text_of(e, "name"), "thread_name") == 0;
        calls += strcmp(text_of(e, "ph"), "X") == 0;
    }
    cr_expect(tracks == 1 && calls == 2, "%d, %d", tracks, calls);
    cJSON_Delete(events);
    assert_ok(lierne_context_destroy(context));
}

enum { N = 3, MOST_MESSAGES = 12, SHARD = 300000 /* too long to be packed with another */ };

static void take_numbers(double ids[2][MOST_MESSAGES], int count[2],
                         const lierne_context *context) {
    cJSON *events = read_events(context);
    for (const cJSON *e = events->child; e; e = e->next) {
        bool ends = strcmp(text_of(e, "ph"), "f") == 0;
        if (strcmp(text_of(e, "name"), "message") == 0) {
            cr_assert_lt(count[ends], MOST_MESSAGES);
            ids[ends][count[ends]++] = number(e, "id");
        }
    }
    cJSON_Delete(events);
}

/* A call of the plans of N ranks: each message has a number of its own, the same at both ends. */
static void check_numbers(lierne_sim *sim, lierne_plan *const *plans, int messages) {
    lierne_request *requests[N];
    char *in = calloc(2, SHARD), *out = calloc(2 * N * N, SHARD);
    double ids[2][MOST_MESSAGES];
    int count[2] = {0};
    for (int r = 0; r < N; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], plans[r], out + (size_t)r * 2 * N * SHARD,
                                            in, NULL));
    }
    for (int r = 0; r < N; r++) {
        assert_ok(lierne_request_end(requests[r]));
        take_numbers(ids, count, lierne_sim_get_context(sim, r));
    }
    cr_assert(count[0] == messages && count[1] == messages, "%d, %d", count[0], count[1]);
    for (int i = 0; i < messages * messages; i++) {
        int a = i / messages, b = i % messages, met = 0;
        cr_expect(a == b || ids[0][a] != ids[0][b]);
        for (int k = 0; k < messages; k++) {
            met += ids[0][a] == ids[1][k];
        }
        cr_expect_eq(met, 1);
    }
    free(in);
    free(out);
}

/* The sends of a rank and the receives of its peers are listed in other orders. */
Test(trace, both_ends_of_a_message_have_one_number) {
    const lierne_all_gather_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_I32};
    lierne_sim *sim;
    lierne_plan *plans[N];
    assert_ok(lierne_sim_create(&sim, N, NULL));
    for (int r = 0; r < N; r++) {
        assert_ok(lierne_plan_create_all_gather(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    check_numbers(sim, plans, N * (N - 1));
    assert_ok(lierne_sim_destroy_all(sim));
}

/* Each of two tensors is a message of its own from a rank to another. */
Test(trace, messages_to_one_rank_have_numbers_of_their_own) {
    const mesh dp = {.ndims = 1, .names = {"dp"}, .sizes = {N}};
    const int64_t shape[] = {N * SHARD};
    const lierne_placement cut = {.kind = LIERNE_PLACEMENT_SHARD},
                           whole = {.kind = LIERNE_PLACEMENT_REPLICATE};
    lierne_layout *from = layout_over(&dp, N, LIERNE_DTYPE_U8, 1, shape, &cut);
    lierne_layout *to = layout_over(&dp, N, LIERNE_DTYPE_U8, 1, shape, &whole);
    const lierne_layout *src[] = {from, from}, *dst[] = {to, to};
    const lierne_set_spec spec = {.size = sizeof spec, .ntensors = 2, .src = src, .dst = dst};
    lierne_sim *sim;
    lierne_plan *plans[N];
    assert_ok(lierne_sim_create(&sim, N, NULL));
    for (int r = 0; r < N; r++) {
        assert_ok(lierne_plan_create_set(&plans[r], lierne_sim_get_context(sim, r), &spec));
    }
    check_numbers(sim, plans, 2 * N * (N - 1));
    assert_ok(lierne_sim_destroy_all(sim));
    lierne_layout_destroy(from);
    lierne_layout_destroy(to);
}

static char folder[] = "/tmp/lierne-trace-XXXXXX";

static void ask(void) {
    cr_assert(mkdtemp(folder));
    setenv("LIERNE_TRACE", folder, 1);
}

/* The events of the file of this host, which is then removed with its folder. */
static cJSON *read_folder(void) {
    static char text[1 << 16];
    char path[256], host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/calls-%s.json", folder, host);
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    size_t length = fread(text, 1, sizeof text - 4, file);
    fclose(file);
    strcpy(text + length, "{}]");
    cJSON *events = cJSON_Parse(text);
    cr_assert(events, "%s", text);
    cr_expect(remove(path) == 0 && rmdir(folder) == 0, "other files are left in %s", folder);
    return events;
}

/* How many events have a phase and, in args or else in the event, a number or text. */
static int count(const cJSON *events, const char *phase, const char *field, const char *value) {
    int n = 0;
    for (const cJSON *e = events->child; e; e = e->next) {
        const char *own = text_of(e, field);
        n += text_of(e, "ph") && strcmp(text_of(e, "ph"), phase) == 0 &&
             (!field[0] || (own && strcmp(own, value) == 0));
    }
    return n;
}

/* Each rank's plan is destroyed, rank 0's by itself. Every call is there once, with its arrows. */
Test(trace, a_folder_gets_the_calls_of_plans) {
    static world w;
    ask();
    begin_all(&w);
    end_all(&w);
    assert_ok(lierne_plan_destroy(w.plans[0]));
    assert_ok(lierne_sim_destroy_all(w.sim));
    cJSON *events = read_folder();
    for (int i = 0; i < CALLS; i++) {
        char name[32];
        snprintf(name, sizeof name, "forward %d of plan 0", i);
        cr_expect_eq(count(events, "X", "name", name), RANKS, "%s", name);
    }
    cr_expect_eq(count(events, "X", "cat", "stage"), RANKS * CALLS);
    cr_expect_eq(count(events, "s", "", ""), RANKS * CALLS);
    cr_expect_eq(count(events, "f", "", ""), RANKS * CALLS);
    for (const cJSON *a = events->child; a; a = a->next) {
        for (const cJSON *b = a->next; b && cJSON_HasObjectItem(a, "dur"); b = b->next) {
            cr_expect(!cJSON_HasObjectItem(b, "dur") || number(a, "pid") != number(b, "pid") ||
                          !cross(a, b),
                      "%s and %s", cJSON_PrintUnformatted(a), cJSON_PrintUnformatted(b));
        }
    }
    cJSON_Delete(events);
}

/* A plan that gets another number, coalesced plans, and a context that dies. */
Test(trace, a_folder_gets_calls_before_what_they_belong_to_is_gone) {
    static const int32_t owner[] = {0, 0};
    static const int64_t edge[] = {1};
    const lierne_graph_spec spec = {.size = sizeof spec,
                                    .nrows = 2,
                                    .owner = owner,
                                    .nedges = 1,
                                    .source = edge,
                                    .target = edge,
                                    .dtype = LIERNE_DTYPE_F32,
                                    .width = 1};
    lierne_context *context;
    lierne_plan *plan;
    lierne_coalesced *together;
    char name[48];
    float in[2] = {1, 2}, out[2];
    ask();
    assert_ok(lierne_context_create_self(&context, NULL));
    assert_ok(lierne_plan_create_graph(&plan, context, &spec));
    int first = lierne_plan_get_number(plan);
    assert_ok(lierne_plan_forward(plan, out, in, NULL));
    assert_ok(lierne_plan_update_graph(plan, &spec));
    assert_ok(lierne_plan_adjoint(plan, in, out, NULL));
    assert_ok(lierne_coalesced_create(&together, &plan, 1));
    assert_ok(lierne_coalesced_begin(together, LIERNE_DIRECTION_FORWARD, (void *[]){out},
                                     (const void *[]){in}, NULL));
    assert_ok(lierne_coalesced_end(together, LIERNE_DIRECTION_FORWARD));
    assert_ok(lierne_context_abort(context, LIERNE_ERR_IO, "the disk is full"));
    cr_expect_eq(lierne_context_get_status(context), LIERNE_ERR_IO);
    expect_says("the disk is full");
    assert_ok(lierne_context_destroy_all(context));
    cJSON *events = read_folder();
    snprintf(name, sizeof name, "forward 0 of plan %d", first);
    cr_expect_eq(count(events, "X", "cat", "call"), 3);
    cr_expect_eq(count(events, "X", "name", name), 1);
    cJSON_Delete(events);
    cr_expect_eq(lierne_mem_live(), 0);
}

Test(trace, a_file_gets_no_calls) {
    static world w;
    char path[64];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/runs.json", folder);
    setenv("LIERNE_TRACE", path, 1);
    begin_all(&w);
    end_all(&w);
    assert_ok(lierne_sim_destroy_all(w.sim));
    cr_expect_eq(rmdir(folder), 0, "a file was written");
}

Test(trace, a_folder_that_is_not_there_is_an_error) {
    lierne_context *context;
    char path[64];
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/missing", folder);
    setenv("LIERNE_TRACE", path, 1);
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_IO,
                 "a folder that is not there");
    cr_expect_eq(lierne_mem_live(), 0);
    cr_expect_eq(rmdir(folder), 0, "a file was written");
}

static lierne_status write_event(lierne_text *lines, const void *self, int64_t created) {
    (void)self, (void)created;
    lierne_text_add(lines, "{}");
    return LIERNE_OK;
}

/* As a pipe does. No descriptor stays open. */
Test(trace, a_file_without_a_first_line_gets_events) {
    char path[64], text[128] = "";
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/runs.json", folder);
    FILE *file = fopen(path, "w+");
    cr_assert(file);
    setenv("LIERNE_TRACE", path, 1);
    int lowest = dup(0);
    close(lowest);
    assert_ok(lierne_trace_append(write_event, NULL, "runs", 3, 7));
    cr_expect_eq(dup(0), lowest, "a descriptor is left open");
    cr_expect(fgets(text, sizeof text, file));
    cr_expect_str_eq(text, "{},\n");
    cr_expect(fgets(text, sizeof text, file));
    cr_expect(strstr(text, "\"process_name\"") && strstr(text, "\"pid\":3") &&
              strstr(text, "rank 3"));
    fclose(file);
    cr_expect(remove(path) == 0 && rmdir(folder) == 0);
}

/* What such a path begins with may be the path of another file. */
Test(trace, a_path_that_is_too_long_is_an_error) {
    enum { MOST = 4096 }; /* with the NUL */
    char path[MOST + 8];
    cr_assert(mkdtemp(folder));
    memset(path, '/', sizeof path);
    memcpy(path, folder, strlen(folder));
    strcpy(path + MOST - 4, "run");
    FILE *file = fopen(path, "w+");
    cr_assert(file);
    strcpy(path + MOST - 4, "runs.json");
    setenv("LIERNE_TRACE", path, 1);
    cr_expect_eq(lierne_trace_append(write_event, NULL, "runs", 3, 7), LIERNE_ERR_IO);
    cr_expect_eq(fgetc(file), EOF, "the event is in another file");
    fclose(file);
    path[MOST - 1] = '\0';
    cr_expect(remove(path) == 0 && rmdir(folder) == 0);
}

Test(trace, microseconds_have_all_their_decimals) {
    static const struct {
        int64_t nanoseconds;
        const char *text;
    } cases[] = {{0, "0.000"},
                 {7, "0.007"},
                 {-3021, "-3.021"},
                 {1795521083140368251, "1795521083140368.251"},
                 {INT64_MIN, "-9223372036854775.808"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lierne_text text = {0};
        lierne_text_microseconds(&text, cases[i].nanoseconds);
        cr_assert_str_eq(text.data, cases[i].text);
        lierne_text_clear(&text);
    }
}
