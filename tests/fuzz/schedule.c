/* Fuzzing of the texts of schedules, a libFuzzer target. For any bytes: they are read or rejected,
 * soon, and nothing is left behind. Schedules that are read are checked and isolated, and each is
 * written as a text that gives the same schedule again. replay.c runs the same target over files.
 */
#include "base/base.h"
#include "fuzz/must.h"
#include "lierne.h"

#include <stdlib.h>
#include <string.h>

static void write_one(const lierne_schedule *schedule) {
    lierne_schedule **again;
    char *text, *same;
    int n;
    MUST(lierne_schedule_serialize(&text, schedule) == LIERNE_OK, "writing a schedule");
    MUST(lierne_schedule_deserialize(&again, &n, text, strlen(text)) == LIERNE_OK && n == 1,
         "reading it again");
    MUST(lierne_schedule_serialize(&same, again[0]) == LIERNE_OK, "writing it again");
    MUST(strcmp(text, same) == 0, "a schedule that was read is another one");
    lierne_text_destroy(text);
    lierne_text_destroy(same);
    lierne_schedule_destroy_all(again, n);
}

static void isolate(const lierne_schedule *schedule) {
    const lierne_isolation_spec specs[] = {LIERNE_ISOLATION_SPEC_SPLIT_ALL_GATHER,
                                           LIERNE_ISOLATION_SPEC_INIT};
    for (int i = 0; i < 2; i++) {
        lierne_schedule *isolated;
        MUST(lierne_schedule_isolate(&isolated, schedule, &specs[i]) == LIERNE_OK, "isolating");
        MUST(lierne_schedule_get_noperations(isolated) == lierne_schedule_get_noperations(schedule),
             "operations of an isolated schedule");
        write_one(isolated);
        lierne_schedule_destroy(isolated);
    }
}

/* cycle has every size once in a while. */
static void check(lierne_schedule **schedules, int n, size_t size) {
    lierne_schedule_order order = {.size = sizeof order};
    size_t bytes = size % 300;
    char *cycle = malloc(bytes ? bytes : 1);
    lierne_status status = lierne_schedule_check(&order, bytes ? cycle : NULL, bytes,
                                                 (const lierne_schedule *const *)schedules, n);
    MUST(status == LIERNE_OK || status == LIERNE_ERR_MISMATCH || status == LIERNE_ERR_INVALID,
         "checking schedules");
    MUST(status != LIERNE_OK || order.safe_concurrent || !order.safe_serialised,
         "an order that is safe one by one is safe with queues");
    free(cycle);
}

static void run(const uint8_t *data, size_t size) {
    size_t before = lierne_mem_live();
    lierne_schedule **schedules;
    int n;
    char *copy = malloc(size ? size : 1); /* no longer than the input */
    memcpy(copy, data, size);
    lierne_status status = lierne_schedule_deserialize(&schedules, &n, copy, size);
    MUST(status == LIERNE_OK || (status != LIERNE_ERR_TIMEOUT && !schedules), "status of a text");
    free(copy);
    if (status == LIERNE_OK) {
        check(schedules, n, size);
        for (int i = 0; i < n; i++) {
            write_one(schedules[i]);
            isolate(schedules[i]);
        }
        lierne_schedule_destroy_all(schedules, n);
    }
    MUST(lierne_mem_live() == before, "memory left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    run_timed(run, data, size);
    return 0;
}
