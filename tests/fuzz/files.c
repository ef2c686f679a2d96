/* Fuzzing of the files that only the command reads, a libFuzzer target. The first byte of the input
 * says which reader gets the rest: those of lierne import, of tensor sets with their lists and
 * safetensors headers, of samples to balance, of traces to draw. For any bytes: an exit status,
 * soon, and nothing is left behind. replay.c runs the same target over files. */
#include "base/base.h"
#include "fuzz/must.h"
#include "tool/balance_input.h"
#include "tool/set_file.h"

#include <getopt.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATH 40

static void call(int (*command)(int argc, char **argv), const char *name, const char *format,
                 const char *operand) {
    char *argv[] = {(char *)name, (char *)(format ? format : operand),
                    (char *)(format ? operand : NULL), NULL};
    optind = 0; /* getopt begins anew */
    int status = command(format ? 3 : 2, argv);
    MUST(status >= TOOL_VALID && status <= TOOL_USAGE, "exit status");
}

/* An operand holds no zero byte. */
static void call_text(const char *format, const uint8_t *data, size_t size) {
    char *text = strndup((const char *)data, size);
    if (text[0] != '-') {
        call(tool_import, "lierne import", format, text);
    }
    free(text);
}

static void read_set(const char *path) {
    char *argv[] = {(char *)"lierne plan", NULL};
    set_file file = {0};
    int status = set_file_read(&file, path, argv);
    for (int d = LIERNE_DTYPE_F64; d <= LIERNE_DTYPE_BITS128 && status < 0; d++) {
        set_selection selection;
        status = set_select(&selection, &file, (lierne_dtype)d);
        set_selection_free(&selection);
    }
    MUST(status <= TOOL_USAGE, "exit status");
    set_file_close(&file);
}

/* A set whose tensors are in another file, the input. */
static void read_set_of(const char *path, const char *key) {
    char text[300], own[PATH];
    int length = snprintf(text, sizeof text,
                          "{\"world_size\": 4,"
                          " \"src\": {\"order\": [\"tp\"], \"shape\": {\"tp\": 4}},"
                          " \"dst\": {\"order\": [\"tp\"], \"shape\": {\"tp\": 4}}, %s}",
                          key);
    char *at = strstr(text, "PATH"), whole[sizeof text + PATH];
    length = snprintf(whole, sizeof whole, "%.*s%s%s", (int)(at - text), text, path, at + 4);
    int set = memfd_create("set", 0);
    MUST(write(set, whole, (size_t)length) == length, "memory of the test");
    snprintf(own, sizeof own, "/proc/self/fd/%d", set);
    read_set(own);
    close(set);
}

static void read_samples(const char *path) {
    char *argv[] = {(char *)"lierne balance", NULL};
    balance_table table = {0};
    MUST(balance_read(&table, argv, path) <= TOOL_USAGE, "exit status");
    free(table.at);
}

static void draw_trace(const char *path) {
    char *argv[] = {(char *)"lierne draw", (char *)"timeline", (char *)path, NULL};
    optind = 0;
    MUST(tool_draw(3, argv) <= TOOL_USAGE, "exit status");
}

static void read_with(uint8_t reader, const char *path, const uint8_t *data, size_t size) {
    switch (reader % 10) {
    case 0:
        call(tool_import, "lierne import", "megatron", path);
        break;
    case 1:
        call(tool_import, "lierne import", "torchtitan", path);
        break;
    case 2:
        call(tool_import, "lierne import", "m2n", path);
        break;
    case 3:
        call_text("component", data, size);
        break;
    case 4:
        call_text("devicemesh", data, size);
        break;
    case 5:
        read_set(path);
        break;
    case 6:
        read_set_of(path, "\"safetensors\": [\"PATH\"]");
        break;
    case 7:
        read_set_of(path, "\"tensors\": \"PATH\"");
        break;
    case 8:
        read_samples(path);
        break;
    case 9:
        draw_trace(path);
        break;
    }
}

static void run(const uint8_t *data, size_t size) {
    size_t before = lierne_mem_live();
    FILE *out = stdout, *err = stderr;
    char path[PATH];
    int file = memfd_create("input", 0);
    MUST(write(file, data + 1, size - 1) == (ssize_t)size - 1, "memory of the test");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    stdout = stderr = fopen("/dev/null", "w");
    read_with(data[0], path, data + 1, size - 1);
    fclose(stdout);
    stdout = out;
    stderr = err;
    close(file);
    MUST(lierne_mem_live() == before, "memory left behind");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 0) {
        run_timed(run, data, size);
    }
    return 0;
}
