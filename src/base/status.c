/* Names and paragraphs of the status table, and the message of the last failure.
 *
 * The message is thread-local and of fixed size, because it must also report that there is no
 * memory. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[LIERNE_MESSAGE_SIZE];
static _Thread_local size_t name_length; /* of last_error: "lierne_plan_forward: " */
_Thread_local const char *lierne_call_name;

const char *lierne_status_name(int status) {
    switch (status) {
#define LIERNE_STATUS_NAME(name, number, text)                                                     \
    case number:                                                                                   \
        return #name;
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

lierne_status lierne_check_set(const void *value, const char *name) {
    return value ? LIERNE_OK : LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", name);
}

const char *lierne_error_text(void) {
    return last_error + name_length;
}

lierne_status lierne_fail(lierne_status status, const char *format, ...) {
    char text[LIERNE_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    /* An argument may point into last_error, so the text is formatted elsewhere first. */
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    name_length = 0;
    if (lierne_call_name) {
        name_length = (size_t)snprintf(last_error, sizeof last_error, "%s: ", lierne_call_name);
    }
    snprintf(last_error + name_length, sizeof last_error - name_length, "%s", text);
    return status;
}

void lierne_set_error(const char *text) {
    (void)lierne_fail(LIERNE_OK, "%s", text);
}
