/* The log of a context.
 *
 * Each context has its own, so that nothing global changes and ranks of one process differ. A line
 * is one write: to the standard error, or at the end of a file, which several processes may share.
 */
#include "runtime/context/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_SIZE 4096
#define HOST_SIZE 256

static const char *const names[] = {"off", "error", "warn", "info", "debug"};

static lierne_status read_level(lierne_log_level *level) {
    const char *text = getenv("LIERNE_LOG");
    for (size_t i = 0; text && *text && i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) == 0) {
            *level = (lierne_log_level)i;
            return LIERNE_OK;
        }
    }
    return !text || !*text
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "LIERNE_LOG is '%.40s', must be error, warn, info, debug or off",
                             text);
}

static void find_host(char host[HOST_SIZE]) {
    if (gethostname(host, HOST_SIZE) != 0) {
        snprintf(host, HOST_SIZE, "unknown");
    }
    host[HOST_SIZE - 1] = '\0';
}

/* Writes what stands for %h, %p, %r or %% to text. Returns whether there is such a letter. */
static bool expand(char text[HOST_SIZE], char letter, int rank) {
    switch (letter) {
    case 'h':
        find_host(text);
        return true;
    case 'p':
        snprintf(text, HOST_SIZE, "%ld", (long)getpid());
        return true;
    case 'r':
        snprintf(text, HOST_SIZE, "%d", rank);
        return true;
    case '%':
        snprintf(text, HOST_SIZE, "%%");
        return true;
    default:
        return false;
    }
}

static lierne_status name_file(char path[PATH_SIZE], const char *name, int rank) {
    size_t used = 0;
    for (const char *c = name; *c; c++) {
        char text[HOST_SIZE] = {*c, '\0'};
        if (*c == '%' && !expand(text, *++c, rank)) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "LIERNE_LOG_FILE is '%.200s', which has a %% before neither h (host), p "
                "(process), r (rank) nor %%",
                name);
        }
        size_t length = strlen(text);
        if (used + length >= PATH_SIZE) {
            return LIERNE_FAIL(
                LIERNE_ERR_INVALID,
                "LIERNE_LOG_FILE is longer than %d bytes with its host, process and rank",
                PATH_SIZE - 1);
        }
        memcpy(path + used, text, length + 1);
        used += length;
    }
    return LIERNE_OK;
}

lierne_status lierne_log_open(lierne_context *context) {
    const char *name = getenv("LIERNE_LOG_FILE");
    lierne_log log = {.file = STDERR_FILENO};
    char path[PATH_SIZE] = "";
    LIERNE_TRY(read_level(&log.level));
    if ((log.level != LIERNE_LOG_OFF || context->summary) && name && *name) {
        LIERNE_TRY(name_file(path, name, context->rank));
        log.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        log.owned = log.file >= 0;
        if (!log.owned) {
            return LIERNE_FAIL(LIERNE_ERR_IO, "LIERNE_LOG_FILE: cannot write to '%.400s': %s", path,
                               strerror(errno));
        }
    }
    context->log = log;
    return LIERNE_OK;
}

void lierne_log_close(lierne_log *log) {
    if (log->owned) {
        close(log->file);
    }
    *log = (lierne_log){0};
}

void lierne_log_write(const lierne_context *context, lierne_log_level level, const char *format,
                      ...) {
    char host[HOST_SIZE], line[LIERNE_MESSAGE_SIZE + 2 * HOST_SIZE];
    va_list args;
    find_host(host);
    int head = snprintf(line, sizeof line, "lierne %s %s:%ld rank %d%s%s: ", names[level], host,
                        (long)getpid(), context->rank, context->name ? " of " : "",
                        context->name ? context->name : "");
    va_start(args, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head, format, args);
    va_end(args);
    size_t end = (size_t)head + (body > 0 ? (size_t)body : 0);
    end = end < sizeof line - 1 ? end : sizeof line - 2;
    for (size_t i = 0; i < end; i++) {
        line[i] = (unsigned char)line[i] < ' ' ? ' ' : line[i];
    }
    line[end] = '\n';
    /* A log that cannot be written must not end a call that succeeded. */
    ssize_t written = write(context->log.file, line, end + 1);
    (void)written;
}

void lierne_log_text(const lierne_context *context, const lierne_text *text) {
    if (!text->failed && text->length > 0) {
        ssize_t written = write(context->log.file, text->data, text->length);
        (void)written;
    }
}

/* The peers whose messages a carrier would take: that of the first one that reaches them. */
static int count_peers(const lierne_context *context, int carrier) {
    int count = 0;
    for (int peer = 0; peer < context->members.count; peer++) {
        int first = 0;
        while (first < context->ncarriers &&
               !context->carriers[first].transport->reaches(context->carriers[first].self, peer)) {
            first++;
        }
        count += first == carrier && peer != context->index;
    }
    return count;
}

void lierne_log_context(const lierne_context *context) {
    const lierne_members *m = &context->members;
    if (context->log.level < LIERNE_LOG_INFO) {
        return;
    }
    lierne_log_write(context, LIERNE_LOG_INFO,
                     "lierne %s: a context of %d of %d ranks, timeout %g s%s", lierne_version(),
                     m->count, m->world, context->timeout,
                     context->check ? ", which compares every call" : "");
    for (int i = 0; i < context->ncarriers; i++) {
        lierne_log_write(context, LIERNE_LOG_INFO, "transport %s: to %d peers",
                         context->carriers[i].transport->name, count_peers(context, i));
    }
    for (int i = 0; i < LIERNE_MAX_TRANSPORTS; i++) {
        if (context->unused[i].transport) {
            lierne_log_write(context, LIERNE_LOG_INFO, "transport %s is not used: %s",
                             context->unused[i].transport, context->unused[i].why);
        }
    }
}
