/* The file of LIERNE_TRACE: ranks append their events to one that those of a host share.
 *
 * The file begins with "[", and each rank adds its events with one write at the end, so that
 * nothing is lost where ranks write at the same time. The list is never closed, because no rank
 * knows that it is the last; the trace format allows that. The first rank must not write behind the
 * events of another one: so the beginning is made in a file of its own, which takes the name only
 * if no other has.
 *
 * Several contexts may write to one file. Times therefore count from when the one was created that
 * wrote first; the first line says when that was. */
#include "runtime/recorder/trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_SIZE 4096

static lierne_status reject_trace(const char *path, const char *what) {
    return LIERNE_FAIL(LIERNE_ERR_IO, "LIERNE_TRACE is '%s', which cannot be %s: %s", path, what,
                       strerror(errno));
}

static lierne_status write_file(const char *path, const char *text, int file) {
    size_t length = strlen(text);
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

static lierne_status begin_file(const char *path, int64_t created) {
    static atomic_int files; /* of this process, whose threads may be ranks */
    char own[PATH_SIZE + 64], text[160];
    if (access(path, F_OK) == 0) {
        return LIERNE_OK;
    }
    int n =
        snprintf(own, sizeof own, "%s.%ld.%d", path, (long)getpid(), atomic_fetch_add(&files, 1));
    if (n < 0 || (size_t)n >= sizeof own) {
        errno = ENAMETOOLONG;
        return reject_trace(path, "opened");
    }
    snprintf(text, sizeof text, BEGIN "%lld\"}},\n", (long long)created);
    LIERNE_TRY(write_file(own, text, lierne_file_create(own)));
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

static bool has_folder(void) {
    const char *path = getenv("LIERNE_TRACE");
    struct stat info;
    return path && *path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A folder that is missing would be a file for runs, and calls would leave no trace of them. */
lierne_status lierne_trace_find_folder(bool *folder) {
    const char *path = getenv("LIERNE_TRACE"), *slash = path ? strrchr(path, '/') : NULL;
    *folder = has_folder();
    if (!path || !*path || *folder || access(path, F_OK) == 0 ||
        strchr(slash ? slash : path, '.')) {
        return LIERNE_OK;
    }
    return LIERNE_FAIL(LIERNE_ERR_IO,
                       "LIERNE_TRACE is '%s', a folder that is not there; a file for runs of "
                       "schedules needs an ending, such as .json",
                       path);
}

/* A name in a folder is lierne's, so nobody else may say where it leads; a file that the user names
 * may be a link or a pipe. */
static lierne_status append_file(const char *path, const char *text) {
    bool own = has_folder();
    return write_file(path, text,
                      own ? lierne_file_append(path) : open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
}

/* *path is "" where nobody asks. */
static lierne_status find_path(char path[PATH_SIZE], const char *name) {
    const char *asked = getenv("LIERNE_TRACE");
    char host[64] = "";
    int n = snprintf(path, PATH_SIZE, "%s", asked ? asked : "");
    if (has_folder()) {
        gethostname(host, sizeof host - 1);
        n = snprintf(path, PATH_SIZE, "%s/%s-%s.json", asked, name, host);
    }
    if (n < 0 || n >= PATH_SIZE) {
        errno = ENAMETOOLONG;
        return reject_trace(path, "opened");
    }
    return LIERNE_OK;
}

lierne_status lierne_trace_append(lierne_trace_writer *write, const void *self, const char *name,
                                  int rank, int64_t created) {
    char path[PATH_SIZE];
    lierne_text lines = {0};
    LIERNE_TRY(find_path(path, name));
    if (!*path) {
        return LIERNE_OK;
    }
    LIERNE_TRY(begin_file(path, created));
    LIERNE_TRY(read_begin(&created, path));
    lierne_status status = write(&lines, self, created);
    if (status == LIERNE_OK && lines.length > 0) {
        char *text = NULL;
        lierne_text_add(&lines,
                        ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
                        "\"args\":{\"name\":\"rank %d\"}},\n",
                        rank, rank);
        status = lierne_text_take(&lines, &text);
        status = status == LIERNE_OK ? append_file(path, text) : status;
        lierne_mem_free(text);
    }
    lierne_text_clear(&lines);
    return status;
}
