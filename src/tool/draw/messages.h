/* Messages of a trace: an event where a rank sends and one where another has received, which have
 * one number. */
#ifndef LIERNE_TOOL_MESSAGES_H
#define LIERNE_TOOL_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>

typedef struct message_end {
    double id; /* a whole number below 2^53 */
    bool receives;
    int rank, queue;
    double at; /* microseconds */
} message_end;

typedef struct message {
    message_end from, to;
} message;

/* All zero: none. */
typedef struct messages {
    message_end *ends;
    size_t nends;
    message *at; /* after messages_join, those that took longest first */
    size_t count;
} messages;

/* False: no memory. */
bool messages_add(messages *m, message_end end);
/* Joins the ends. Of ends with one number, as every execution of a run has, the first send belongs
 * to the first receive, and so on. False: no memory. */
bool messages_join(messages *m);
void messages_free(messages *m);

#endif
