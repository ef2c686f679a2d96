/* Letters in closed form, for tests of wires: who writes to whom in a round, how much and what is a
 * mixed hash of round and ranks, so that the receiver knows by itself what must have come. */
#ifndef LIERNE_TESTS_LETTERS_H
#define LIERNE_TESTS_LETTERS_H

#include "context/context.h"

#include <stdlib.h>

typedef enum pattern {
    NOBODY,
    EVERYBODY, /* to everybody, itself too */
    TO_FIRST,
    FROM_LAST,
    RING,   /* to the next rank only */
    SPARSE, /* here and there, also empty letters */
    PATTERNS
} pattern;

static inline uint64_t letter_hash(int round, int from, int to, size_t i) {
    uint64_t x = (uint64_t)round * 1000003 + (uint64_t)from * 1009 + (uint64_t)to * 31 + i + 1;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 32)) * 0x94d049bb133111ebu;
    return x ^ (x >> 30);
}

static inline bool letter_exists(pattern p, int round, int from, int to, int world) {
    switch (p) {
    case EVERYBODY:
        return true;
    case TO_FIRST:
        return to == 0;
    case FROM_LAST:
        return from == world - 1;
    case RING:
        return to == (from + 1) % world;
    case SPARSE:
        return letter_hash(round, from, to, 77) % 3 == 0;
    default:
        return false;
    }
}

/* Words of a letter, at most `most`. */
static inline size_t letter_count(int round, int from, int to, size_t most) {
    return (size_t)(letter_hash(round, from, to, 99) % (most + 1));
}

/* What a rank sends: returns how many letters; the array has room for world. */
static inline size_t letters_make(lierne_control_message *letters, pattern p, int round, int from,
                                  int world, size_t most) {
    size_t n = 0;
    for (int to = world - 1; to >= 0; to--) {
        if (letter_exists(p, round, from, to, world)) {
            size_t count = letter_count(round, from, to, most);
            lierne_control_message l = {.peer = to, .count = count, .words = malloc(count * 8 + 8)};
            for (size_t i = 0; i < count; i++) {
                l.words[i] = (int64_t)letter_hash(round, from, to, i);
            }
            letters[n++] = l;
        }
    }
    return n;
}

static inline void letters_drop(const lierne_control_message *letters, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(letters[i].words);
    }
}

/* How much of what a rank received is wrong, missing, too much or out of order. */
static inline size_t letters_wrong(const lierne_control_messages *received, pattern p, int round,
                                   int to, int world, size_t most) {
    size_t wrong = 0, at = 0;
    for (int from = 0; from < world; from++) {
        if (letter_exists(p, round, from, to, world)) {
            const lierne_control_message *l = at < received->count ? &received->at[at++] : NULL;
            size_t count = letter_count(round, from, to, most);
            if (!l || l->peer != from || l->count != count) {
                wrong++;
                continue;
            }
            for (size_t i = 0; i < count; i++) {
                wrong += l->words[i] != (int64_t)letter_hash(round, from, to, i);
            }
        }
    }
    return wrong + received->count - at;
}

#endif
