/* The two ends of a message stand anywhere in a trace, because every rank writes its own events. So
 * they are collected and sorted by number, and then by time: a number is used again by the next
 * execution, and messages of one number arrive in the order in which they were sent. */
#include "messages.h"

#include <stdlib.h>

bool messages_add(messages *m, message_end end) {
    if ((m->nends & (m->nends - 1)) == 0) {
        message_end *ends = realloc(m->ends, (m->nends ? 2 * m->nends : 1) * sizeof *ends);
        if (!ends) {
            return false;
        }
        m->ends = ends;
    }
    m->ends[m->nends++] = end;
    return true;
}

static int by_number(const void *a, const void *b) {
    const message_end *x = a, *y = b;
    int order = (x->id > y->id) - (x->id < y->id);
    order = order ? order : x->receives - y->receives;
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Messages that took as long stand in the order of their ends, so that pictures do not differ. */
static int by_duration(const void *a, const void *b) {
    const message *x = a, *y = b;
    double dx = x->to.at - x->from.at, dy = y->to.at - y->from.at;
    int order = (dx < dy) - (dx > dy);
    order = order ? order : by_number(&x->from, &y->from);
    return order ? order : by_number(&x->to, &y->to);
}

bool messages_join(messages *m) {
    m->at = calloc(m->nends / 2 + 1, sizeof *m->at);
    if (!m->at) {
        return false;
    }
    if (m->nends > 1) {
        qsort(m->ends, m->nends, sizeof *m->ends, by_number);
    }
    for (size_t i = 0, next; i < m->nends; i = next) {
        size_t first = i; /* the first receive */
        for (next = i; next < m->nends && m->ends[next].id == m->ends[i].id; next++) {
            first += !m->ends[next].receives;
        }
        for (size_t k = 0; i + k < first && first + k < next; k++) {
            m->at[m->count++] = (message){m->ends[i + k], m->ends[first + k]};
        }
    }
    if (m->count > 1) {
        qsort(m->at, m->count, sizeof *m->at, by_duration);
    }
    return true;
}

void messages_free(messages *m) {
    free(m->ends);
    free(m->at);
}
