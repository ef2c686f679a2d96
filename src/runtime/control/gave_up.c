/* The error of a rank that gave up, for the ranks that wait for it. Each of them gives up in turn
 * with this error, so it may pass many ranks: the message stays that of the first one, which has
 * the cause, and names at most two ranks that passed it on. And the error of a rank that has left
 * without giving up. */
#include "runtime/control/control.h"

#include <stdio.h>
#include <string.h>

/* The message without the public functions that failed on the rank that gave up: its own, and, if
 * it aborted with the message of another call, that one. */
static const char *skip_calls(const char *message) {
    while (strncmp(message, "lierne_", 7) == 0 && strstr(message, ": ")) {
        message = strstr(message, ": ") + 2;
    }
    return message;
}

lierne_status lierne_control_gave_up(lierne_status status, int rank, const char *own) {
    const char *message = skip_calls(own);
    int first, second, end = 0;
    if (sscanf(message, "rank %d gave up: %n", &first, &end) != 1 || end == 0) {
        return LIERNE_FAIL(status, "rank %d gave up: %s", rank, own);
    }
    const char *reported = strstr(message, " (reported by rank");
    if (!reported) {
        return LIERNE_FAIL(status, "%s (reported by rank %d)", message, rank);
    }
    end = 0;
    if (sscanf(reported, " (reported by rank %d)%n", &second, &end) == 1 && end > 0) {
        return LIERNE_FAIL(status, "%.*s (reported by ranks %d and %d)", (int)(reported - message),
                           message, second, rank);
    }
    return LIERNE_FAIL(status, "%s", message);
}

lierne_status lierne_control_left(int own, int rank) {
    return LIERNE_FAIL(LIERNE_ERR_PEER_FAILED,
                       "rank %d: rank %d has destroyed its context, in which this rank still waits "
                       "for it: all ranks must destroy it after their last call",
                       own, rank);
}
