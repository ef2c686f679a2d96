/* Changes texts of JSON for libFuzzer as a person would: another number, a value put in the place
 * of another one, removed, doubled or exchanged, the same number changed on all ranks. Bytes that
 * change by chance mostly end at the parser; these reach what is behind it. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MOST_BYTES 4096

typedef struct text {
    uint8_t *at;
    size_t size, capacity;
    uint64_t state; /* of chance */
} text;

typedef struct part {
    size_t begin, end;
} part;

/* Of libFuzzer, which is not there where inputs are only replayed. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t capacity) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed);

static size_t choose(text *t, size_t n) {
    t->state ^= t->state << 13, t->state ^= t->state >> 7, t->state ^= t->state << 17;
    return n ? (size_t)(t->state >> 16) % n : 0;
}

static bool in_number(uint8_t c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '.';
}

static size_t end_of_string(const text *t, size_t at) {
    for (at++; at < t->size && t->at[at] != '"'; at++) {
        at += t->at[at] == '\\';
    }
    return at < t->size ? at + 1 : t->size;
}

static size_t end_of_brackets(const text *t, size_t at) {
    int depth = 0;
    do {
        uint8_t c = t->at[at];
        depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
        at = c == '"' ? end_of_string(t, at) : at + 1;
    } while (at < t->size && depth > 0);
    return at;
}

static size_t end_of_number(const text *t, size_t at) {
    while (at < t->size && in_number(t->at[at])) {
        at++;
    }
    return at;
}

/* The first number, string, array or object that begins at or behind `at`; empty at the end. */
static part value_from(const text *t, size_t at) {
    for (; at < t->size; at++) {
        uint8_t c = t->at[at];
        if (c == '"') {
            return (part){at, end_of_string(t, at)};
        } else if (c == '[' || c == '{') {
            return (part){at, end_of_brackets(t, at)};
        } else if (in_number(c)) {
            return (part){at, end_of_number(t, at)};
        }
    }
    return (part){t->size, t->size};
}

static part any_value(text *t) {
    return value_from(t, choose(t, t->size));
}

static void replace(text *t, part p, const void *bytes, size_t n) {
    if (t->size - (p.end - p.begin) + n <= t->capacity) {
        memmove(t->at + p.begin + n, t->at + p.end, t->size - p.end);
        memcpy(t->at + p.begin, bytes, n);
        t->size = t->size - (p.end - p.begin) + n;
    }
}

static size_t new_number(text *t, part p, char out[24]) {
    static const long long edges[] = {0,  1,    -1,    2,       3,          5,           8,
                                      16, 1024, 65536, 1 << 30, 2147483647, 2147483648LL};
    long long was = 0;
    char digits[20] = {0};
    memcpy(digits, t->at + p.begin, p.end - p.begin < 19 ? p.end - p.begin : 19);
    sscanf(digits, "%lld", &was);
    was = was > 1LL << 60 || was < -(1LL << 60) ? 1 : was;
    long long by = 1 + (long long)choose(t, 3);
    long long numbers[] = {was + by, was - by, 2 * was, was / 2,
                           edges[choose(t, sizeof edges / sizeof *edges)]};
    return (size_t)snprintf(out, 24, "%lld", numbers[choose(t, 5)]);
}

static void change_number(text *t, bool everywhere) {
    char was[20], number[24];
    part p = any_value(t);
    size_t length = p.end - p.begin;
    if (length == 0 || length > sizeof was || !in_number(t->at[p.begin])) {
        return;
    }
    memcpy(was, t->at + p.begin, length);
    size_t n = new_number(t, p, number);
    if (!everywhere) {
        replace(t, p, number, n);
        return;
    }
    for (size_t at = 0; at < t->size; at++) {
        size_t end = end_of_number(t, at);
        if (end - at == length && memcmp(t->at + at, was, length) == 0) {
            replace(t, (part){at, end}, number, n);
            end = at + n;
        }
        at = end > at ? end : at;
    }
}

static void copy_value(text *t, bool exchange) {
    uint8_t one[MOST_BYTES], two[MOST_BYTES];
    part a = any_value(t), b = any_value(t);
    size_t n = a.end - a.begin, m = b.end - b.begin;
    if (n > MOST_BYTES || m > MOST_BYTES || (exchange && a.end > b.begin)) {
        return;
    }
    memcpy(one, t->at + a.begin, n), memcpy(two, t->at + b.begin, m);
    if (exchange) {
        replace(t, b, one, n);
    }
    replace(t, a, two, m);
}

static void remove_value(text *t) {
    part p = any_value(t);
    if (p.end < t->size && t->at[p.end] == ',') {
        p.end++;
    } else if (p.begin > 0 && t->at[p.begin - 1] == ',') {
        p.begin--;
    }
    replace(t, p, "", 0);
}

static void double_value(text *t) {
    uint8_t again[MOST_BYTES + 1];
    part p = any_value(t);
    size_t n = p.end - p.begin;
    if (n > 0 && n <= MOST_BYTES) {
        again[0] = ',';
        memcpy(again + 1, t->at + p.begin, n);
        replace(t, (part){p.end, p.end}, again, n + 1);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t capacity, unsigned seed) {
    text t = {data, size, capacity, seed * 0x9e3779b97f4a7c15u + 1};
    if (choose(&t, 3) == 0) {
        return LLVMFuzzerMutate(data, size, capacity);
    }
    for (size_t i = 1 + choose(&t, 3); i > 0; i--) {
        switch (choose(&t, 6)) {
        case 0:
            change_number(&t, false);
            break;
        case 1:
            change_number(&t, true);
            break;
        case 2:
            copy_value(&t, false);
            break;
        case 3:
            copy_value(&t, true);
            break;
        case 4:
            remove_value(&t);
            break;
        default:
            double_value(&t);
            break;
        }
    }
    return t.size;
}
