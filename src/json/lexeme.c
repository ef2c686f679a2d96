/* Strings and numbers of JSON, byte by byte.
 *
 * This file applies the rules of RFC 8259, because cJSON accepts bad UTF-8, raw control characters,
 * \u0000, 007 and 1e999. The text ends with a zero byte, which is part of no string and no number,
 * so reading one byte ahead is always safe. Numbers are never converted to floating point: lierne's
 * formats have integers only, and strtod depends on the locale. */
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

#define MAX_EXPONENT 308

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static int hex_digit(char c) {
    if (is_digit(c)) {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The value of the four hexadecimal digits at text; -1 if they are missing. */
static int32_t hex_point(const char *text) {
    int32_t point = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0) {
            return -1;
        }
        point = point * 16 + digit;
    }
    return point;
}

static bool is_high(int32_t point) {
    return point >= 0xD800 && point <= 0xDBFF;
}

static bool is_low(int32_t point) {
    return point >= 0xDC00 && point <= 0xDFFF;
}

/* Scans the escape whose backslash is at *at. */
static int scan_escape(const char **at) {
    const char *p = *at;
    if (p[1] != 'u') {
        if (!p[1] || !strchr("\"\\/bfnrt", p[1])) {
            return LIERNE_DIAGNOSTIC_ESCAPE;
        }
        *at += 2;
        return 0;
    }
    int32_t point = hex_point(p + 2);
    if (point < 0) {
        return LIERNE_DIAGNOSTIC_ESCAPE;
    }
    if (point == 0) {
        return LIERNE_DIAGNOSTIC_NUL;
    }
    bool paired = is_high(point) && p[6] == '\\' && p[7] == 'u' && is_low(hex_point(p + 8));
    if ((is_high(point) && !paired) || is_low(point)) {
        return LIERNE_DIAGNOSTIC_SURROGATE;
    }
    *at += paired ? 12 : 6;
    return 0;
}

int lierne_json_scan_string(const char **at, const char *end) {
    const char *start = *at;
    while (**at != '"') {
        int number = 0;
        int length = lierne_utf8_length(*at);
        if (*at == end) {
            number = LIERNE_DIAGNOSTIC_SYNTAX;
        } else if ((unsigned char)**at < 0x20) {
            number = LIERNE_DIAGNOSTIC_CONTROL;
        } else if (length == 0) {
            number = LIERNE_DIAGNOSTIC_UTF8;
        } else if (**at == '\\') {
            number = scan_escape(at);
        } else {
            *at += length;
        }
        if (number) {
            return number;
        }
    }
    if (*at - start > LIERNE_JSON_MAX_STRING) {
        *at = start - 1;
        return LIERNE_DIAGNOSTIC_LENGTH;
    }
    ++*at;
    return 0;
}

static int32_t escaped_point(const char **text) {
    static const char escapes[] = "bfnrt", meaning[] = "\b\f\n\r\t";
    const char *p = *text;
    if (p[1] == 'u') {
        int32_t point = hex_point(p + 2);
        *text += is_high(point) ? 12 : 6;
        return is_high(point) ? 0x10000 + ((point - 0xD800) << 10) + (hex_point(p + 8) - 0xDC00)
                              : point;
    }
    *text += 2;
    const char *escape = strchr(escapes, p[1]);
    return escape ? meaning[escape - escapes] : p[1];
}

int32_t lierne_json_point(const char **text) {
    static const int32_t first_bits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    const unsigned char *p = (const unsigned char *)*text;
    if (*p == '"') {
        return -1;
    }
    if (*p == '\\') {
        return escaped_point(text);
    }
    int length = lierne_utf8_length(*text);
    int32_t point = p[0] & first_bits[length];
    for (int i = 1; i < length; i++) {
        point = point << 6 | (p[i] & 0x3F);
    }
    *text += length;
    return point;
}

static const char *skip_digits(const char *p) {
    while (is_digit(*p)) {
        p++;
    }
    return p;
}

/* The power of ten of the first nonzero digit in [p, end). */
static long leading_power(const char *p, const char *end) {
    const char *point = memchr(p, '.', (size_t)(end - p));
    const char *digit = p;
    while (digit < end && (*digit == '0' || *digit == '.')) {
        digit++;
    }
    if (digit == end) {
        return -(long)LIERNE_JSON_MAX_SIZE;
    }
    point = point ? point : end;
    return digit < point ? (long)(point - digit) - 1 : (long)(point - digit);
}

/* Reads the exponent whose 'e' is at *at; saturates far outside of the bounds. */
static const char *scan_exponent(const char **at, long *power) {
    const long bound = 4 * (long)LIERNE_JSON_MAX_SIZE;
    const char *p = *at + 1;
    bool negative = *p == '-';
    long exponent = 0;
    p += *p == '-' || *p == '+';
    if (!is_digit(*p)) {
        return "number has no digit in its exponent";
    }
    for (; is_digit(*p); p++) {
        exponent = exponent < bound ? exponent * 10 + (*p - '0') : exponent;
    }
    *power += negative ? -exponent : exponent;
    *at = p;
    return NULL;
}

static bool read_integer(const char *p, const char *end, int64_t *value) {
    bool negative = *p == '-';
    *value = 0;
    for (p += negative; p < end; p++) {
        int digit = *p - '0';
        if (!lierne_mul_i64(*value, 10, value) ||
            !lierne_add_i64(*value, negative ? -digit : digit, value)) {
            return false;
        }
    }
    return true;
}

const char *lierne_json_scan_number(const char **at, bool *integer, int64_t *value) {
    const char *start = *at;
    const char *digits = start + (*start == '-');
    const char *p = skip_digits(digits);
    *at = p;
    if (p == digits) {
        return "number has no digit before the point";
    }
    if (*digits == '0' && p > digits + 1) {
        return "number has a leading zero";
    }
    if (*p == '.') {
        p = skip_digits(p + 1);
        if (!is_digit(p[-1])) {
            return "number has no digit after the point";
        }
    }
    long power = leading_power(digits, p);
    *integer = p == *at && *p != 'e' && *p != 'E' && read_integer(start, p, value);
    if (*p == 'e' || *p == 'E') {
        const char *wrong = scan_exponent(&p, &power);
        if (wrong) {
            return wrong;
        }
    }
    *at = p;
    return power >= MAX_EXPONENT ? "number is 1e308 or more in magnitude" : NULL;
}
