/* The log of a context: lines about what it does, where LIERNE_LOG asks for them. */
#ifndef LIERNE_LOG_H
#define LIERNE_LOG_H

#include "base/base.h"

#include <stdbool.h>

typedef enum lierne_log_level {
    LIERNE_LOG_OFF,
    LIERNE_LOG_ERROR, /* why a context died */
    LIERNE_LOG_WARN,  /* calls that took long */
    LIERNE_LOG_INFO,  /* contexts and plans */
    LIERNE_LOG_DEBUG  /* every call */
} lierne_log_level;

typedef struct lierne_log {
    lierne_log_level level;
    int file;
    bool owned; /* else it is the standard error */
} lierne_log;

struct lierne_context;
/* Reads LIERNE_LOG and LIERNE_LOG_FILE for the log of a context whose rank is known. Errors:
 * INVALID (another level, an unknown % in the name), IO. */
lierne_status lierne_log_open(struct lierne_context *context);
void lierne_log_close(lierne_log *log);
/* Writes a line with the level, process and rank, at once: lines of ranks do not mix. */
void lierne_log_write(const struct lierne_context *context, lierne_log_level level,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Writes text as it is, at once, whatever the level: what other variables than LIERNE_LOG ask for.
 */
void lierne_log_text(const struct lierne_context *context, const lierne_text *text);
#define LIERNE_LOG(context, at, ...)                                                               \
    ((context)->log.level >= (at) ? lierne_log_write(context, at, __VA_ARGS__) : (void)0)
/* What the context found: version, ranks, transports with the number of peers, and those that it
 * does not use. */
LIERNE_PRIVATE void lierne_log_context(const struct lierne_context *context);

#endif
