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
#define LINE_SIZE 2048

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

/* The function of the caller's, and how much it gets. */
static lierne_status take_call(lierne_log *log, const lierne_context_spec *spec) {
    int level = (int)spec->log_level;
    if (level < LIERNE_LOG_LEVEL_OFF || level > LIERNE_LOG_LEVEL_DEBUG) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "log_level is %d, must be %d (off) to %d (debug)",
                           level, LIERNE_LOG_LEVEL_OFF, LIERNE_LOG_LEVEL_DEBUG);
    }
    if (!spec->log && level != LIERNE_LOG_LEVEL_OFF) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "log is NULL, but log_level is %d (%s)", level,
                           names[level]);
    }
    log->call = spec->log;
    log->user = spec->log_user;
    log->call_level = spec->log_level;
    return LIERNE_OK;
}

lierne_status lierne_log_open(lierne_context *context, const lierne_context_spec *spec) {
    const char *name = getenv("LIERNE_LOG_FILE");
    lierne_log log = {.file = STDERR_FILENO};
    char path[PATH_SIZE] = "";
    LIERNE_TRY(take_call(&log, spec));
    LIERNE_TRY(read_level(&log.file_level));
    log.level = log.file_level > log.call_level ? log.file_level : log.call_level;
    if ((log.file_level != LIERNE_LOG_LEVEL_OFF || context->summary) && name && *name) {
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

/* A log that cannot be written must not end a call that succeeded. */
static void write_line(const lierne_log *log, lierne_log_level level, const char *text) {
    char host[HOST_SIZE], line[LINE_SIZE + 2 * HOST_SIZE];
    find_host(host);
    int n = snprintf(line, sizeof line, "lierne %s %s:%ld %s\n", names[level], host, (long)getpid(),
                     text);
    ssize_t written = write(log->file, line, (size_t)n);
    (void)written;
}

void lierne_log_write(const lierne_context *context, lierne_log_level level, const char *format,
                      ...) {
    const lierne_log *log = &context->log;
    char line[LINE_SIZE];
    va_list args;
    int head = snprintf(line, sizeof line, "rank %d%s%s: ", context->rank,
                        context->name ? " of " : "", context->name ? context->name : "");
    va_start(args, format);
    vsnprintf(line + head, sizeof line - (size_t)head, format, args);
    va_end(args);
    for (char *c = line; *c; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    if (level <= log->file_level) {
        write_line(log, level, line);
    }
    if (level <= log->call_level) {
        log->call(level, line, log->user);
    }
}

void lierne_log_text(const lierne_context *context, const lierne_text *text) {
    if (!text->failed && text->length > 0) {
        ssize_t written = write(context->log.file, text->data, text->length);
        (void)written;
    }
}

/* Whether a carrier would take the messages to a peer: it is the first one that reaches it. */
static bool serves(const lierne_context *context, int carrier, int peer) {
    int first = 0;
    while (first < context->ncarriers &&
           !context->carriers[first].transport->reaches(context->carriers[first].self, peer)) {
        first++;
    }
    return first == carrier && peer != context->index;
}

/* Adds ", 3" or ", 3 to 7" to a list of ranks, as long as there is room. */
static void add_ranks(char *list, size_t size, const lierne_context *context, int from, int to) {
    size_t used = strlen(list);
    int first = lierne_members_rank(&context->members, from);
    int last = lierne_members_rank(&context->members, to);
    if (used + sizeof ", 2147483647 to 2147483647, ..." > size) {
        snprintf(list + used, size - used, "%s", used && list[used - 1] == '.' ? "" : ", ...");
    } else if (first == last) {
        snprintf(list + used, size - used, "%s%d", used ? ", " : "", first);
    } else {
        snprintf(list + used, size - used, "%s%d to %d", used ? ", " : "", first, last);
    }
}

/* The number of peers that a carrier serves, and their ranks. */
static int list_peers(char *list, size_t size, const lierne_context *context, int carrier) {
    int count = 0;
    list[0] = '\0';
    for (int peer = 0, end; peer < context->members.count; peer = end + 1) {
        for (end = peer; end < context->members.count && serves(context, carrier, end);) {
            end++;
        }
        if (end > peer) {
            add_ranks(list, size, context, peer, end - 1);
        }
        count += end - peer;
    }
    return count;
}

void lierne_log_context(const lierne_context *context) {
    const lierne_members *m = &context->members;
    if (context->log.level < LIERNE_LOG_LEVEL_INFO) {
        return;
    }
    lierne_log_write(context, LIERNE_LOG_LEVEL_INFO,
                     "lierne %s: a context of %d of %d ranks, timeout %g s%s", lierne_version(),
                     m->count, m->world, context->timeout,
                     context->check ? ", which compares every call" : "");
    for (int i = 0; i < context->ncarriers; i++) {
        char ranks[LINE_SIZE / 4];
        int count = list_peers(ranks, sizeof ranks, context, i);
        lierne_log_write(context, LIERNE_LOG_LEVEL_INFO, "transport %s: to %d peers%s%s",
                         context->carriers[i].transport->name, count, count ? ": " : "", ranks);
    }
    for (int i = 0; i < LIERNE_MAX_TRANSPORTS; i++) {
        if (context->unused[i].transport) {
            lierne_log_write(context, LIERNE_LOG_LEVEL_INFO, "transport %s is not used: %s",
                             context->unused[i].transport, context->unused[i].why);
        }
    }
}
