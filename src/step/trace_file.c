/* LIERNE_TRACE: every execution appends its events to a file that all ranks share.
 *
 * The file begins with "[", and each rank adds its events with one write at the end, so that
 * nothing is lost where ranks write at the same time. The list is never closed, because no rank
 * knows that it is the last; the trace format allows that. The first rank must not write behind the
 * events of another one: so the beginning is made in a file of its own, which takes the name only
 * if no other has.
 *
 * Several contexts may write to one file. Times therefore count from when the one was created that
 * wrote first; the first line says when that was. */
#include "step/schedule_run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lierne_status reject_trace(const char *path, const char *what) {
    return LIERNE_FAIL(LIERNE_ERR_IO, "LIERNE_TRACE is '%s', which cannot be %s: %s", path, what,
                       strerror(errno));
}

static lierne_status append_file(const char *path, const char *text, int flags) {
    size_t length = strlen(text);
    int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0666);
    if (file < 0) {
        return reject_trace(path, "opened");
    }
    ssize_t written = write(file, text, length);
    lierne_status status =
        written == (ssize_t)length ? LIERNE_OK : reject_trace(path, "written as a whole");
    close(file);
    return status;
}

#define BEGIN                                                                                      \
    "[\n{\"name\":\"job_begin\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"calendar_ns\":\""

static lierne_status begin_file(const char *path, int rank, int64_t created) {
    char own[4096], text[160];
    if (access(path, F_OK) == 0) {
        return LIERNE_OK;
    }
    int n = snprintf(own, sizeof own, "%s.%ld.%d", path, (long)getpid(), rank);
    if (n < 0 || (size_t)n >= sizeof own) {
        errno = ENAMETOOLONG;
        return reject_trace(path, "opened");
    }
    snprintf(text, sizeof text, BEGIN "%lld\"}},\n", (long long)created);
    LIERNE_TRY(append_file(own, text, O_CREAT | O_TRUNC));
    bool taken = link(own, path) == 0 || errno == EEXIST;
    lierne_status status = taken ? LIERNE_OK : reject_trace(path, "created");
    unlink(own);
    return status;
}

/* *created: what the first line of the file says; it stays where another program wrote that. */
static lierne_status read_begin(int64_t *created, const char *path) {
    char text[160] = "";
    struct stat info;
    /* A pipe has no first line to read, and waits for whoever writes it. */
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool regular = file >= 0 && fstat(file, &info) == 0 && S_ISREG(info.st_mode);
    ssize_t n = file < 0 ? -1 : regular ? read(file, text, sizeof text - 1) : 0;
    lierne_status status = n < 0 ? reject_trace(path, "read") : LIERNE_OK;
    if (n > 0 && strncmp(text, BEGIN, sizeof BEGIN - 1) == 0) {
        *created = strtoll(text + sizeof BEGIN - 1, NULL, 10);
    }
    if (file >= 0) {
        close(file);
    }
    return status;
}

lierne_status lierne_run_append_trace(const lierne_run *run) {
    const char *path = getenv("LIERNE_TRACE");
    int64_t created = run->context->recorder.created;
    lierne_text lines = {0};
    char *text;
    if (!path || !*path) {
        return LIERNE_OK;
    }
    LIERNE_TRY(begin_file(path, run->schedule->rank, created));
    LIERNE_TRY(read_begin(&created, path));
    lierne_run_write_trace(&lines, run, created);
    lierne_text_add(&lines, ",\n");
    LIERNE_TRY(lierne_text_take(&lines, &text));
    lierne_status status = append_file(path, text, 0);
    lierne_mem_free(text);
    return status;
}
