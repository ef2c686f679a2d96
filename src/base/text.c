/* Growing text, UTF-8, the clock and deadlines. Text records a failed allocation instead of
 * returning it, so that a function that adds many lines checks once, at its end. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static bool reserve_text(lierne_text *text, size_t extra) {
    size_t wanted = text->length + extra + 1;
    if (text->failed) {
        return false;
    }
    if (wanted > text->capacity) {
        size_t capacity = wanted > text->capacity * 2 ? wanted : text->capacity * 2;
        if (lierne_realloc(&text->data, capacity, 1) != LIERNE_OK) {
            text->failed = true;
            return false;
        }
        text->capacity = capacity;
    }
    return true;
}

void lierne_text_add(lierne_text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !reserve_text(text, (size_t)length)) {
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->length, (size_t)length + 1, format, args);
    va_end(args);
    text->length += (size_t)length;
}

void lierne_text_microseconds(lierne_text *text, int64_t nanoseconds) {
    uint64_t size = nanoseconds < 0 ? 0 - (uint64_t)nanoseconds : (uint64_t)nanoseconds;
    lierne_text_add(text, "%s%llu.%03llu", nanoseconds < 0 ? "-" : "",
                    (unsigned long long)size / 1000, (unsigned long long)size % 1000);
}

void lierne_text_numbers(lierne_text *text, const int64_t *numbers, int64_t n) {
    lierne_text_add(text, "[");
    for (int64_t i = 0; i < n; i++) {
        lierne_text_add(text, i ? ",%lld" : "%lld", (long long)numbers[i]);
    }
    lierne_text_add(text, "]");
}

lierne_status lierne_text_take(lierne_text *text, char **out) {
    *out = NULL;
    lierne_text_add(text, "%s", "");
    if (text->failed) {
        size_t length = text->length;
        lierne_text_clear(text);
        return LIERNE_FAIL(LIERNE_ERR_NO_MEMORY, "no memory for a text of more than %zu bytes",
                           length);
    }
    *out = text->data;
    *text = (lierne_text){0};
    return LIERNE_OK;
}

void lierne_text_clear(lierne_text *text) {
    lierne_mem_free(text->data);
    *text = (lierne_text){0};
}

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

int lierne_utf8_length(const char *text) {
    unsigned char first = (unsigned char)text[0];
    unsigned char second = first ? (unsigned char)text[1] : 0;
    if (first < 0x80) {
        return first ? 1 : 0;
    }
    if (first < 0xC2 || first > 0xF4 || !is_continuation(text[1])) {
        return 0;
    }
    if (first < 0xE0) {
        return 2;
    }
    /* The second byte shows overlong forms, surrogates and code points past U+10FFFF. */
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
        return 0;
    }
    if (!is_continuation(text[2])) {
        return 0;
    }
    if (first < 0xF0) {
        return 3;
    }
    return is_continuation(text[3]) ? 4 : 0;
}

/* Deadlines and dumps need only the coarse clock, which costs a fifth of the precise one. */
#ifdef CLOCK_MONOTONIC_COARSE
#define CLOCK CLOCK_MONOTONIC_COARSE
#else
#define CLOCK CLOCK_MONOTONIC
#endif

double lierne_now(void) {
    struct timespec t;
    clock_gettime(CLOCK, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void lierne_deadline_start(lierne_deadline *deadline, double timeout, double now) {
    *deadline = (lierne_deadline){.timeout = timeout, .at = now + timeout, .last_check = now};
}

bool lierne_deadline_passed(lierne_deadline *deadline, double now) {
    double gap = now - deadline->last_check;
    deadline->last_check = now;
    if (now > deadline->at && gap > deadline->timeout / 2 && !deadline->extended) {
        deadline->at = now + deadline->timeout / 2;
        deadline->extended = true;
    }
    return now > deadline->at;
}

lierne_status lierne_check_name(const char *name) {
    size_t length = 0;
    int n = 1;
    while (name && name[length] && n > 0 && length <= LIERNE_MAX_NAME) {
        unsigned char c = (unsigned char)name[length];
        n = c < 0x20 || c == 0x7F ? 0 : lierne_utf8_length(name + length);
        length += (size_t)n;
    }
    return !name || (length > 0 && length <= LIERNE_MAX_NAME && n > 0)
               ? LIERNE_OK
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "name is '%.40s', must be 1 to %d bytes of UTF-8 without control "
                             "characters",
                             name, LIERNE_MAX_NAME);
}
