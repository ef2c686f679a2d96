/* Fuzzing of the dumps of flight recorders, a libFuzzer target. For any bytes: a dump is read or
 * rejected as INVALID, soon, and nothing is left behind. What is read becomes valid JSON, and is
 * judged as the only dump of its context. replay.c runs the same target over files. */
#include "diagnose/hang_view.h"
#include "fuzz/must.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static void write_json(const lierne_dump *dump) {
    lierne_text own = {0};
    char *text;
    lierne_dump_write(&own, dump);
    MUST(lierne_text_take(&own, &text) == LIERNE_OK, "JSON");
    cJSON *json = cJSON_Parse(text);
    MUST(json, "the JSON is valid");
    cJSON_Delete(json);
    lierne_mem_free(text);
}

static void judge(lierne_hang_view *view, bool gave_up) {
    const lierne_hang_view *views[] = {view};
    const lierne_hang_context c = {views, 1, gave_up ? view->gave_up : view->dump.alive, gave_up};
    lierne_hang hang = {.size = sizeof hang, .rank = -1, .waiting = -1, .number = -1, .place = -1};
    lierne_text text = {0};
    double waits;
    MUST(lierne_hang_judge(&hang, &waits, &c) == LIERNE_OK, "a judgement");
    if (hang.kind != LIERNE_HANG_NONE) {
        MUST(lierne_dump_find(&view->dump, hang.rank) >= 0, "the culprit is a member");
        lierne_hang_report(&text, &hang, &c);
    }
    lierne_text_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t before = lierne_mem_live();
    lierne_hang_view view = {0};
    void *copy = malloc(size ? size : 1); /* aligned, and no longer than the input */
    memcpy(copy, data, size);
    lierne_status status = lierne_dump_parse(&view.dump, copy, size, "the input");
    MUST(status == LIERNE_OK || status == LIERNE_ERR_INVALID, "a dump is read or INVALID");
    if (status == LIERNE_OK) {
        write_json(&view.dump);
        MUST(lierne_hang_view_fill(&view) == LIERNE_OK, "operations");
        judge(&view, false);
        judge(&view, true);
    }
    lierne_dump_clear(&view.dump);
    lierne_mem_free(view.operations.at);
    free(copy);
    MUST(lierne_mem_live() == before, "nothing is left");
    return 0;
}
