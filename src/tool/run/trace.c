/* lierne run --trace: one file of all ranks, a process each. The ranks write one after the other,
 * with a decision of all between, so that no lock is needed and a failure is everybody's. */
#include "tool/run.h"

#include <errno.h>
#include <string.h>

/* Returns the name of what failed, or NULL. */
static const char *append_suffix(const run_state *run, const char *text) {
    bool first = run->rank == 0, last = run->rank == run->ranks - 1;
    FILE *file = fopen(run->trace, first ? "w" : "a");
    if (!file) {
        return strerror(errno);
    }
    fprintf(file,
            "%s{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}"
            "%s%s%s",
            first ? "[\n" : ",\n", run->rank, run->rank, *text ? ",\n" : "", text,
            last ? "\n]\n" : "");
    bool wrong = ferror(file) != 0;
    wrong |= fclose(file) != 0;
    return wrong ? strerror(errno) : NULL;
}

static int write_own(const run_state *run) {
    char *text;
    if (lierne_context_get_trace(&text, run->context) != LIERNE_OK) {
        return tool_failed(run->argv);
    }
    const char *reason = append_suffix(run, text);
    lierne_text_destroy(text);
    if (reason) {
        tool_say(run->argv, "rank %d: %s: %s", run->rank, run->trace, reason);
    }
    return reason ? TOOL_USAGE : -1;
}

int run_write_trace(const run_state *run) {
    int status = -1;
    for (int r = 0; run->trace && r < run->ranks && status < 0; r++) {
        status = run_worst(run, r == run->rank ? write_own(run) : -1);
    }
    return status;
}
