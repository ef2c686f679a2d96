/* The flight recorder: what it records, as JSON and as a file; files that are damaged in any way;
 * and dumps of hangs that are made here, entry by entry. Seeded hangs of whole jobs: tests/hang. */
#include "base/base.h"
#include "collectives.h"
#include "diagnose/hang_view.h"
#include "lierne.h"
#include "lierne/sim.h"
#include "runtime/context/context.h"
#include "runtime/recorder/dump.h"
#include "unit/expect.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 2 };

typedef struct world {
    lierne_sim *sim;
    lierne_context *contexts[RANKS];
    lierne_plan *plans[RANKS];
    int32_t in[COUNT], out[RANKS][COUNT * RANKS];
    char folder[64];
} world;

/* With files, where file is true. */
static void open_world(world *w, bool file) {
    const lierne_context_spec spec = {.size = sizeof spec, .timeout = 0.2};
    const lierne_all_gather_spec gather = all_gather_of(COUNT, LIERNE_DTYPE_I32);
    memset(w, 0, sizeof *w);
    w->in[0] = 5;
    if (file) {
        strcpy(w->folder, "/tmp/lierne-hang-XXXXXX");
        cr_assert(mkdtemp(w->folder));
        setenv("LIERNE_DUMP_DIR", w->folder, 1);
    }
    assert_ok(lierne_sim_create(&w->sim, RANKS, &spec));
    for (int r = 0; r < RANKS; r++) {
        w->contexts[r] = lierne_sim_get_context(w->sim, r);
        assert_ok(lierne_plan_create_all_gather(&w->plans[r], w->contexts[r], &gather));
    }
    unsetenv("LIERNE_DUMP_DIR");
}

static void clean(const char *folder) {
    char path[512];
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(directory);
    rmdir(folder);
}

static void close_world(world *w) {
    assert_ok(lierne_sim_destroy_all(w->sim));
    if (*w->folder) {
        clean(w->folder);
    }
}

static void gather(world *w) {
    lierne_request *requests[RANKS];
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_plan_forward_begin(&requests[r], w->plans[r], w->out[r], w->in, NULL));
    }
    for (int r = 0; r < RANKS; r++) {
        assert_ok(lierne_request_end(requests[r]));
    }
}

static cJSON *json_of(lierne_status (*write)(char **, const lierne_context *),
                      const lierne_context *context) {
    char *text;
    cr_assert_eq(write(&text, context), LIERNE_OK, "%s", lierne_last_error());
    cJSON *json = cJSON_Parse(text);
    cr_assert(json, "%s", text);
    lierne_text_destroy(text);
    return json;
}

static double number(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(json, name);
    cr_assert(cJSON_IsNumber(item), "%s", name);
    return item->valuedouble;
}

static const char *string(const cJSON *json, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(json, name);
    cr_assert(cJSON_IsString(item), "%s", name);
    return item->valuestring;
}

Test(hang, a_call_is_recorded_with_its_stage_and_end) {
    static const char *const events[] = {"call", "stage", "end"};
    size_t before = lierne_mem_live();
    world w;
    open_world(&w, false);
    gather(&w);
    gather(&w);
    cJSON *json = json_of(lierne_context_get_recorder_json, w.contexts[1]);
    const cJSON *entries = cJSON_GetObjectItem(json, "entries");
    int n = cJSON_GetArraySize(entries);
    cr_assert_eq(number(json, "rank"), 1);
    cr_assert_eq(number(json, "written"), n);
    cr_assert_geq(n, 6);
    double last = 0;
    for (int i = 0; i < 3; i++) {
        const cJSON *e = cJSON_GetArrayItem(entries, n - 3 + i);
        cr_assert_str_eq(string(e, "event"), events[i]);
        cr_assert_str_eq(string(e, "what"), "forward");
        cr_assert_eq(number(e, "number"), 1);
        cr_assert_geq(number(e, "time"), last);
        last = number(e, "time");
    }
    const cJSON *stage = cJSON_GetArrayItem(entries, n - 2);
    cr_assert_eq(number(stage, "bytes"), 4 * COUNT * 4, "two messages each way");
    cr_assert_eq(number(stage, "peer"), 2, "the first of them");
    cr_assert_eq(number(cJSON_GetArrayItem(entries, n - 3), "place"), 1);
    cr_assert_str_eq(string(cJSON_GetArrayItem(entries, n - 1), "status"), "LIERNE_OK");
    cJSON_Delete(json);
    close_world(&w);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(hang, times_are_those_of_the_calendar) {
    world w;
    struct timespec now;
    open_world(&w, false);
    gather(&w);
    cJSON *json = json_of(lierne_context_get_recorder_json, w.contexts[0]);
    const cJSON *entries = cJSON_GetObjectItem(json, "entries");
    const cJSON *last = cJSON_GetArrayItem(entries, cJSON_GetArraySize(entries) - 1);
    clock_gettime(CLOCK_REALTIME, &now);
    double ago = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - number(last, "time");
    cr_assert(ago > -0.01 && ago < 20, "%g s ago", ago);
    cJSON_Delete(json);
    close_world(&w);
}

Test(hang, a_status_says_what_is_in_flight_and_what_killed_it) {
    world w;
    lierne_request *request;
    open_world(&w, false);
    assert_ok(lierne_plan_forward_begin(&request, w.plans[0], w.out[0], w.in, NULL));
    cJSON *json = json_of(lierne_context_get_status_json, w.contexts[0]);
    const cJSON *calls = cJSON_GetObjectItem(json, "in_flight");
    cr_assert_eq(cJSON_GetArraySize(calls), 1);
    cr_assert_str_eq(string(cJSON_GetArrayItem(calls, 0), "what"), "forward");
    cr_assert_eq(number(json, "calls"), 1);
    cr_assert_eq(number(json, "plans"), 1);
    cr_assert_str_eq(string(json, "state"), "open");
    cJSON_Delete(json);
    cr_assert_eq(lierne_request_end(request), LIERNE_ERR_TIMEOUT);
    json = json_of(lierne_context_get_status_json, w.contexts[0]);
    cr_assert_str_eq(string(json, "state"), "dead");
    cr_assert_str_eq(string(json, "status"), "LIERNE_ERR_TIMEOUT");
    cr_assert(strstr(string(json, "message"), "messages missing"));
    const cJSON *waits =
        cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "in_flight"), 0),
                            "waits_for");
    cr_assert_eq(cJSON_GetArraySize(waits), 2);
    cr_assert_eq(cJSON_GetArrayItem(waits, 0)->valueint, 1);
    cJSON_Delete(json);
    close_world(&w);
}

Test(hang, the_ring_keeps_the_last_entries) {
    world w;
    open_world(&w, false);
    for (int i = 0; i < 100; i++) {
        gather(&w);
    }
    cJSON *json = json_of(lierne_context_get_recorder_json, w.contexts[2]);
    const cJSON *entries = cJSON_GetObjectItem(json, "entries");
    cr_assert_eq(cJSON_GetArraySize(entries), LIERNE_RECORDER_FEW_ENTRIES);
    cr_assert_geq(number(json, "written"), 300);
    const cJSON *last = cJSON_GetArrayItem(entries, LIERNE_RECORDER_FEW_ENTRIES - 1);
    cr_assert_eq(number(last, "number"), 99);
    cJSON_Delete(json);
    close_world(&w);
}

/* The bytes of the first file of a folder. */
static char *read_file(const char *folder, const char *begins, size_t *length, char *path) {
    DIR *directory = opendir(folder);
    char *data = NULL;
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        if (strncmp(entry->d_name, begins, strlen(begins)) == 0) {
            sprintf(path, "%s/%.200s", folder, entry->d_name);
            FILE *file = fopen(path, "rb");
            data = calloc(1, 1 << 20);
            *length = fread(data, 1, 1 << 20, file);
            fclose(file);
        }
    }
    closedir(directory);
    cr_assert(data);
    return data;
}

Test(hang, the_file_is_as_documented) {
    world w;
    char path[512];
    size_t length;
    open_world(&w, true);
    gather(&w);
    char *data = read_file(w.folder, "rank2-", &length, path);
    lierne_recorder_header *h = (lierne_recorder_header *)(void *)data;
    cr_assert_eq(memcmp(data, "LIERNEFR", 8), 0);
    cr_assert_eq(offsetof(lierne_recorder_header, context), 24);
    cr_assert_eq(offsetof(lierne_recorder_header, space), 48);
    cr_assert_eq(offsetof(lierne_recorder_header, first_ticks), 80);
    cr_assert_eq(offsetof(lierne_recorder_header, written), 120);
    cr_assert_eq(offsetof(lierne_recorder_header, state), 136);
    cr_assert_eq(offsetof(lierne_recorder_header, host), 144);
    cr_assert_eq(offsetof(lierne_recorder_header, message), 272);
    cr_assert_eq(h->version, 1);
    cr_assert_eq(length, h->header_bytes + 32 * (size_t)LIERNE_RECORDER_ENTRIES);
    lierne_dump dump;
    assert_ok(lierne_dump_parse(&dump, data, length, "x"));
    uint64_t last[4], index = (uint64_t)dump.written - 1;
    lierne_dump_clear(&dump);
    memcpy(last, data + h->header_bytes + 32 * index, sizeof last);
    cr_assert_eq(last[1] & 0xFF, LIERNE_RECORD_END);
    cr_assert_eq(last[3], index, "status 0 above the low bits of the number");
    free(data);
    close_world(&w);
}

static bool exists(const char *folder) {
    struct stat info;
    return stat(folder, &info) == 0;
}

Test(hang, a_folder_that_cannot_be_written_is_an_error) {
    lierne_context *context;
    setenv("LIERNE_DUMP_DIR", "/nowhere/at/all", 1);
    assert_error(lierne_context_create_self(&context, NULL), LIERNE_ERR_IO,
                 "LIERNE_DUMP_DIR is '/nowhere/at/all'");
    cr_assert_null(context);
    unsetenv("LIERNE_DUMP_DIR");
    cr_assert_not(exists("/nowhere"));
}

static unsigned draw(unsigned *state, unsigned n) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

/* A file may be anything. Whatever is changed in it, it is read or rejected, and the folder judged.
 */
Test(hang, damaged_files_do_no_harm, .timeout = 300) {
    size_t before = lierne_mem_live(), length;
    world w;
    unsigned state = 7;
    int rejected = 0, taken = 0;
    char path[512], *text;
    lierne_request *request;
    open_world(&w, true);
    gather(&w);
    assert_ok(lierne_plan_forward_begin(&request, w.plans[0], w.out[0], w.in, NULL));
    cr_assert_eq(lierne_request_end(request), LIERNE_ERR_TIMEOUT);
    char *data = read_file(w.folder, "rank1-", &length, path);
    for (int i = 0; i < 2000; i++) {
        char *copy = malloc(length);
        size_t size = i % 4 ? length : draw(&state, (unsigned)length);
        memcpy(copy, data, length);
        for (unsigned k = draw(&state, 4); k-- > 0;) {
            size_t at = draw(&state, i % 2 ? 640 : (unsigned)length);
            copy[at] = (char)(i % 3 ? draw(&state, 256) : 0xFF);
        }
        FILE *file = fopen(path, "wb");
        fwrite(copy, 1, size, file);
        fclose(file);
        free(copy);
        lierne_status status = lierne_recorder_file_get_json(&text, path);
        cr_assert(status == LIERNE_OK || status == LIERNE_ERR_INVALID, "%s", lierne_last_error());
        cr_assert_eq(status == LIERNE_OK, text != NULL);
        if (text) {
            cJSON *json = cJSON_Parse(text);
            cr_assert(json, "%s", text);
            cJSON_Delete(json);
        }
        *(text ? &taken : &rejected) += 1;
        lierne_text_destroy(text);
        lierne_hang hang = {.size = sizeof hang};
        assert_ok(lierne_hang_find(&hang, &text, w.folder));
        cr_assert_eq(hang.ndumps + hang.ndamaged, RANKS);
        lierne_text_destroy(text);
    }
    cr_assert(rejected > 300 && taken > 300, "%d %d", rejected, taken);
    free(data);
    close_world(&w);
    cr_assert_eq(lierne_mem_live(), before);
}

Test(hang, an_entry_that_was_cut_off_is_left_out) {
    world w;
    lierne_dump dump;
    open_world(&w, false);
    gather(&w);
    lierne_recorder *r = &w.contexts[0]->recorder;
    uint64_t written = atomic_load(&r->header->written);
    atomic_fetch_xor(&r->entries[(written - 2) * 4 + 3], 1);
    assert_ok(lierne_dump_parse(&dump, r->header, r->bytes, "x"));
    cr_assert_eq(dump.records.count, written - 1);
    lierne_dump_clear(&dump);
    close_world(&w);
}

/* As it was written before there were names: the entries begin where they would. */
Test(hang, a_file_without_names_has_none) {
    const lierne_recorded_name name = {.used = 1, .name = "an entry"};
    world w;
    lierne_dump dump;
    open_world(&w, false);
    lierne_recorder *r = &w.contexts[0]->recorder;
    char *data = malloc(r->bytes);
    memcpy(data, r->header, r->bytes);
    lierne_recorder_header *h = (lierne_recorder_header *)(void *)data;
    h->header_bytes = (uint32_t)lierne_recorder_names_at((size_t)h->listed);
    memcpy(data + h->header_bytes, &name, sizeof name);
    assert_ok(lierne_dump_parse(&dump, data, r->bytes, "x"));
    cr_assert_eq(dump.names.count, 0);
    lierne_dump_clear(&dump);
    free(data);
    close_world(&w);
}

Test(hang, a_time_that_is_no_number_is_zero) {
    world w;
    lierne_dump dump;
    lierne_text text = {0};
    open_world(&w, false);
    const lierne_recorder *r = &w.contexts[0]->recorder;
    assert_ok(lierne_dump_parse(&dump, r->header, r->bytes, "x"));
    dump.ticks = INFINITY;
    lierne_dump_write(&text, &dump);
    cJSON *json = cJSON_Parse(text.data);
    cr_assert(json, "%s", text.data);
    const cJSON *entry = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "entries"), 0);
    cr_assert_eq(number(entry, "time"), 0);
    cJSON_Delete(json);
    lierne_text_clear(&text);
    lierne_dump_clear(&dump);
    close_world(&w);
}

Test(hang, a_world_that_is_well_has_no_culprit) {
    world w;
    char *text;
    lierne_hang hang = {.size = sizeof hang};
    open_world(&w, true);
    gather(&w);
    assert_ok(lierne_hang_find(&hang, &text, w.folder));
    cr_assert_eq(hang.kind, LIERNE_HANG_NONE);
    cr_assert_eq(hang.rank, -1);
    cr_assert_eq(hang.ndumps, RANKS);
    lierne_text_destroy(text);
    close_world(&w);
}

/* A rank that gives up by itself is the culprit, not those that wait for it. */
Test(hang, a_rank_that_gave_up_by_itself_is_named) {
    world w;
    char *text;
    lierne_hang hang = {.size = sizeof hang};
    open_world(&w, true);
    gather(&w);
    lierne_context_abort(w.contexts[2], LIERNE_ERR_INVALID, "the loss is \"NaN\"");
    cr_assert_neq(lierne_plan_forward(w.plans[0], w.out[0], w.in, NULL), LIERNE_OK);
    assert_ok(lierne_hang_find(&hang, &text, w.folder));
    cr_assert_eq(hang.kind, LIERNE_HANG_FAILED);
    cr_assert_eq(hang.rank, 2);
    cr_assert(strstr(text, "the loss is \"NaN\""), "%s", text);
    lierne_text_destroy(text);
    close_world(&w);
}

/* Two ranks wait for each other in one call, as dumps say; one of them has not run since. */
Test(hang, of_two_that_wait_the_silent_one_is_named) {
    char folder[] = "/tmp/lierne-hang-XXXXXX", *text;
    lierne_recorder recorders[2];
    lierne_hang hang = {.size = sizeof hang};
    cr_assert(mkdtemp(folder));
    setenv("LIERNE_DUMP_DIR", folder, 1);
    for (int r = 0; r < 2; r++) {
        const lierne_recorder_spec spec = {.rank = r, .world = 2, .members = 2, .capacity = 64};
        lierne_entry e = {.kind = LIERNE_RECORD_CALL, .plan = 3, .number = 4};
        assert_ok(lierne_recorder_open(&recorders[r], &spec));
        lierne_recorder_meet(&recorders[r], 77, lierne_recorder_calendar());
        lierne_recorder_add(&recorders[r], &e);
        e = (lierne_entry){.kind = LIERNE_RECORD_WAIT, .plan = 3, .number = 4, .peer = 1 - r};
        lierne_recorder_add(&recorders[r], &e);
        lierne_recorder_set_clock(&recorders[r]);
    }
    unsetenv("LIERNE_DUMP_DIR");
    usleep(300000);
    lierne_recorder_set_clock(&recorders[0]); /* of both, so that their ticks are converted alike */
    lierne_recorder_set_clock(&recorders[1]);
    lierne_recorder_die(&recorders[0], LIERNE_ERR_TIMEOUT, "in vain");
    assert_ok(lierne_hang_find(&hang, &text, folder));
    cr_assert(hang.kind == LIERNE_HANG_SILENT && hang.rank == 1 && hang.waiting == 0, "%s", text);
    cr_assert(hang.plan == 3 && hang.number == 4, "%s", text);
    lierne_text_destroy(text);
    lierne_recorder_close(&recorders[0]);
    lierne_recorder_close(&recorders[1]);
    clean(folder);
}

/* A damaged file must not make every entry look through all operations: one that began 257
 * operations back gets no more entries. */
Test(hang, an_entry_belongs_to_one_of_the_last_operations) {
    for (int later = 255; later <= 256; later++) {
        const lierne_recorder_spec spec = {.world = 1, .members = 1, .capacity = 512};
        lierne_recorder r;
        lierne_hang_view view = {0};
        assert_ok(lierne_recorder_open(&r, &spec));
        for (int i = 0; i <= later; i++) {
            lierne_recorder_add(&r, &(lierne_entry){.kind = LIERNE_RECORD_CALL, .number = i});
        }
        lierne_recorder_add(&r, &(lierne_entry){.kind = LIERNE_RECORD_END, .number = 0});
        assert_ok(lierne_dump_parse(&view.dump, r.header, r.bytes, "the recorder"));
        assert_ok(lierne_hang_view_fill(&view));
        cr_expect_eq(view.operations.count, (size_t)later + 1);
        cr_expect_eq(isinf(view.operations.at[0].ended) != 0, later == 256, "%d later", later);
        lierne_mem_free(view.operations.at);
        lierne_dump_clear(&view.dump);
        lierne_recorder_close(&r);
    }
}

static void add_numbered(const lierne_recorder *r, lierne_record_kind kind, int n,
                         int64_t *number) {
    for (int i = 0; i < n; i++) {
        lierne_recorder_add(r, &(lierne_entry){.kind = (int)kind, .number = (*number)++});
    }
}

/* What the file has of all that was recorded: at most a ring, up to the last one. */
static void expect_dump(const char *path, int64_t written, size_t records) {
    lierne_dump dump;
    assert_ok(lierne_dump_read(&dump, path));
    cr_expect_eq(dump.written, written, "%d of %d", (int)dump.written, (int)written);
    cr_expect_eq(dump.records.count, records, "%zu of %zu", dump.records.count, records);
    cr_expect_eq(dump.records.at[dump.records.count - 1].number, written - 1);
    lierne_dump_clear(&dump);
}

/* Whoever truncates or removes the file of a rank that runs costs it nothing; the next sign of life
 * makes it whole. In between the file has every entry as soon as something ended. */
Test(hang, a_truncated_file_does_not_end_its_rank) {
    char folder[] = "/tmp/lierne-cut-XXXXXX", path[64];
    const lierne_recorder_spec spec = {.world = 1, .members = 1, .process = 5, .capacity = 64};
    lierne_recorder r;
    int64_t n = 0;
    cr_assert(mkdtemp(folder));
    setenv("LIERNE_DUMP_DIR", folder, 1);
    assert_ok(lierne_recorder_open(&r, &spec));
    unsetenv("LIERNE_DUMP_DIR");
    snprintf(path, sizeof path, "%s/rank0-5-0.lierne", folder);
    add_numbered(&r, LIERNE_RECORD_END, 10, &n);
    expect_dump(path, 10, 10);
    cr_assert_eq(truncate(path, 0), 0);
    add_numbered(&r, LIERNE_RECORD_END, 10, &n);
    lierne_recorder_beat(&r);
    expect_dump(path, 20, 20);
    add_numbered(&r, LIERNE_RECORD_END, 1000, &n);
    expect_dump(path, 1020, 64);
    add_numbered(&r, LIERNE_RECORD_CALL, 3, &n);
    lierne_recorder_flush(&r);
    expect_dump(path, 1023, 64);
    cr_assert_eq(truncate(path, 100), 0);
    lierne_recorder_close(&r);
    expect_dump(path, 1023, 64);
    unlink(path), rmdir(folder);
}
