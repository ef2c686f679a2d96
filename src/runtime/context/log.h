/* The log of a context: lines about what it does, where LIERNE_LOG or the spec asks for
 * them. */
#ifndef LIERNE_LOG_H
#define LIERNE_LOG_H

#include "base/base.h"
#include "lierne/context.h"

#include <stdbool.h>

typedef struct lierne_log {
    lierne_log_level level; /* the higher one of these two */
    lierne_log_level file_level, call_level;
    int file;
    bool owned; /* else it is the standard error */
    void (*call)(lierne_log_level level, const char *line, void *user);
    void *user;
} lierne_log;

struct lierne_context;
/* Reads LIERNE_LOG, LIERNE_LOG_FILE and the spec's function for the log of a context whose rank is
 * known. Errors: INVALID (another level, an unknown % in the name, a level without a function), IO.
 */
lierne_status lierne_log_open(struct lierne_context *context, const lierne_context_spec *spec);
void lierne_log_close(lierne_log *log);
/* Writes a line with the level, process and rank, at once: lines of ranks do not mix. The spec's
 * function gets it without level and process. */
void lierne_log_write(const struct lierne_context *context, lierne_log_level level,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Writes text as it is, at once, whatever the level: what other variables than LIERNE_LOG ask for.
 */
void lierne_log_text(const struct lierne_context *context, const lierne_text *text);
#define LIERNE_LOG(context, at, ...)                                                               \
    ((context)->log.level >= (at) ? lierne_log_write(context, at, __VA_ARGS__) : (void)0)
/* What the context found: version, ranks, transports with their peers, and those that it
 * does not use. */
LIERNE_PRIVATE void lierne_log_context(const struct lierne_context *context);

#endif
