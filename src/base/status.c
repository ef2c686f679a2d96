/* Names and paragraphs of the status table, and the message of the last failure.
 *
 * The message is thread-local and of fixed size, because it must also report that there is no
 * memory. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[LIERNE_MESSAGE_SIZE];

const char *lierne_status_name(int status) {
    switch (status) {
#define LIERNE_STATUS_NAME(name, number, text)                                                     \
    case number:                                                                                   \
        return "LIERNE_" #name;
        LIERNE_STATUS_TABLE(LIERNE_STATUS_NAME)
#undef LIERNE_STATUS_NAME
    default:
        return "unknown status";
    }
}

const char *lierne_status_text(int status) {
    switch (status) {
#define LIERNE_STATUS_PARAGRAPH(name, number, text)                                                \
    case number:                                                                                   \
        return text;
        LIERNE_STATUS_TABLE(LIERNE_STATUS_PARAGRAPH)
#undef LIERNE_STATUS_PARAGRAPH
    default:
        return "unknown status";
    }
}

const char *lierne_last_error(void) {
    return last_error;
}

const char *lierne_version(void) {
    return LIERNE_VERSION_STRING;
}

void lierne_set_error(const char *message) {
    /* message may be last_error itself. */
    memmove(last_error, message, strnlen(message, sizeof last_error - 1) + 1);
    last_error[sizeof last_error - 1] = '\0';
}

lierne_status lierne_fail_in(lierne_status status, const char *func) {
    const char *text = strstr(last_error, ": ");
    return status == LIERNE_OK || !text ? status : lierne_fail(status, func, "%s", text + 2);
}

lierne_status lierne_fail(lierne_status status, const char *func, const char *format, ...) {
    char text[LIERNE_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    /* An argument may point into last_error, so the text is formatted elsewhere first. */
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(last_error, sizeof last_error, "%s: %.*s", func,
             (int)(sizeof last_error - strlen(func) - 3), text);
    return status;
}
