/* Control messages in closed form, for tests of the sparse exchange. Sender, receiver, length and
 * contents in a round are mixed hashes of the round and the ranks, so that a receiver can compute
 * what it must have received. */
#ifndef LIERNE_TESTS_CONTROL_MESSAGES_H
#define LIERNE_TESTS_CONTROL_MESSAGES_H

#include "runtime/context/context.h"

#include <stdlib.h>

typedef enum pattern {
    NO_MESSAGES,
    ALL_TO_ALL, /* itself included */
    TO_FIRST,
    FROM_LAST,
    RING,   /* to the next rank only */
    SPARSE, /* some pairs of ranks, some messages empty */
    PATTERNS
} pattern;

static inline uint64_t message_word(int round, int from, int to, size_t i) {
    uint64_t x = (uint64_t)round * 1000003 + (uint64_t)from * 1009 + (uint64_t)to * 31 + i + 1;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 32)) * 0x94d049bb133111ebu;
    return x ^ (x >> 30);
}

static inline bool message_exists(pattern p, int round, int from, int to, int world) {
    switch (p) {
    case ALL_TO_ALL:
        return true;
    case TO_FIRST:
        return to == 0;
    case FROM_LAST:
        return from == world - 1;
    case RING:
        return to == (from + 1) % world;
    case SPARSE:
        return message_word(round, from, to, 77) % 3 == 0;
    default:
        return false;
    }
}

/* The number of words of a message, at most `most`. */
static inline size_t message_count(int round, int from, int to, size_t most) {
    return (size_t)(message_word(round, from, to, 99) % (most + 1));
}

/* What a rank sends: returns the number of messages; the array has space for world of them. */
static inline size_t messages_create(lierne_control_message *messages, pattern p, int round,
                                     int from, int world, size_t most) {
    size_t n = 0;
    for (int to = world - 1; to >= 0; to--) {
        if (message_exists(p, round, from, to, world)) {
            size_t count = message_count(round, from, to, most);
            lierne_control_message l = {.peer = to, .count = count, .words = malloc(count * 8 + 8)};
            for (size_t i = 0; i < count; i++) {
                l.words[i] = (int64_t)message_word(round, from, to, i);
            }
            messages[n++] = l;
        }
    }
    return n;
}

static inline void messages_destroy(const lierne_control_message *messages, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(messages[i].words);
    }
}

/* The number of received messages and words that are wrong, missing, unexpected or out of order. */
static inline size_t messages_wrong(const lierne_control_messages *received, pattern p, int round,
                                    int to, int world, size_t most) {
    size_t wrong = 0, at = 0;
    for (int from = 0; from < world; from++) {
        if (message_exists(p, round, from, to, world)) {
            const lierne_control_message *l = at < received->count ? &received->at[at++] : NULL;
            size_t count = message_count(round, from, to, most);
            if (!l || l->peer != from || l->count != count) {
                wrong++;
                continue;
            }
            for (size_t i = 0; i < count; i++) {
                wrong += l->words[i] != (int64_t)message_word(round, from, to, i);
            }
        }
    }
    return wrong + received->count - at;
}

#endif
