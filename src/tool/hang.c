/* lierne hang: reads what the ranks of a job have recorded, and names the one that did not come. */
#include "tool.h"

#include <string.h>

static const char help[] =
    "Usage: lierne hang [OPTION]... DIR\n"
    "Reads the dumps of all ranks in DIR, the folder that LIERNE_DUMP_DIR named when they ran\n"
    "(docs/hangs.md), and names the rank that the others wait for, the operation and the\n"
    "stage, while the job hangs or afterwards.\n"
    "\n"
    "      --format=FORMAT  text (default), json, or prometheus: metrics for a monitor\n"
    "  -h, --help           show this help\n"
    "\n"
    "Exit status: 0 no rank hangs, 1 one does, 2 usage or input error.\n";

static void print_lines(const char *text) {
    char line[1024];
    while (*text) {
        size_t length = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        tool_print_text(stdout, line);
        printf("\n");
        text += length + (text[length] == '\n');
    }
}

static const char *const kinds[] = {"none",   "absent",   "missing", "late",
                                    "silent", "mismatch", "ended",   "failed"};
static const char *const whats[] = {"forward",           "adjoint", "coalesced forward",
                                    "coalesced adjoint", "control", "round"};

static const char *what_of(const lierne_hang *hang) {
    return hang->waiting < 0 ? "" : whats[hang->what];
}

static void print_json(const lierne_hang *hang, const char *text) {
    printf("{\"kind\":\"%s\",\"rank\":%d,\"waiting\":%d,\"what\":\"%s\",\"plan\":%d,"
           "\"number\":%lld,\"stage\":%d,\"place\":%lld,\"seconds\":%.3f,\"dumps\":%d,"
           "\"damaged\":%d,\"text\":",
           kinds[hang->kind], hang->rank, hang->waiting, what_of(hang), hang->plan,
           (long long)hang->number, hang->stage, (long long)hang->place, hang->seconds,
           hang->ndumps, hang->ndamaged);
    tool_print_string(stdout, text);
    printf("}\n");
}

static void print_metrics(const lierne_hang *hang) {
    printf(
        "# HELP lierne_hang_seconds How long a rank has waited for the rank that is named, or had "
        "when the first one gave up.\n# TYPE lierne_hang_seconds gauge\n");
    if (hang->kind != LIERNE_HANG_NONE) {
        printf("lierne_hang_seconds{kind=\"%s\",rank=\"%d\",waiting=\"%d\",collective=\"%s\","
               "plan_number=\"%d\"} %.3f\n",
               kinds[hang->kind], hang->rank, hang->waiting, what_of(hang), hang->plan,
               hang->seconds);
    }
    printf("# HELP lierne_hang_dumps Files of ranks that were read.\n"
           "# TYPE lierne_hang_dumps gauge\nlierne_hang_dumps %d\n"
           "# HELP lierne_hang_damaged_dumps Files that are no dumps of ranks.\n"
           "# TYPE lierne_hang_damaged_dumps gauge\nlierne_hang_damaged_dumps %d\n",
           hang->ndumps, hang->ndamaged);
}

int tool_hang(int argc, char **argv) {
    static const char *const formats[] = {"text", "json", "prometheus", NULL};
    const char *format = NULL, *path;
    int form = 0;
    const tool_option options[] = {{"format", 0, &format, NULL, "text json prometheus"}};
    lierne_hang hang = {.size = sizeof hang};
    char *text;
    int status = tool_parse(argc, argv, help, options, 1);
    status = status < 0 ? tool_format(argv, format, formats, &form) : status;
    status = status < 0 ? tool_one_file(argc, argv, &path) : status;
    if (status >= 0) {
        return status;
    }
    if (lierne_hang_find(&hang, &text, path) != LIERNE_OK) {
        return tool_failed(argv);
    }
    if (hang.ndamaged > 0) {
        tool_say(argv, "damaged files, left out: %d", hang.ndamaged);
    }
    if (form == 2) {
        print_metrics(&hang);
    } else if (form == 1) {
        print_json(&hang, text);
    } else {
        print_lines(text);
    }
    lierne_text_destroy(text);
    return hang.kind == LIERNE_HANG_NONE ? TOOL_VALID : TOOL_INVALID;
}
