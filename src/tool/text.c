/* Untrusted text: names, paths, and messages that repeat them. A terminal executes control
 * characters, also those from U+0080 to U+009F, and bidirectional marks change the order of what it
 * shows. They are printed as escapes, as are bytes that are not UTF-8. */
#include "tool.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

/* Lengths and least code points of the sequences, by their first byte. */
static int sequence(unsigned char first, int32_t *bits, int32_t *least) {
    static const struct {
        unsigned char mask, lead;
        int length;
        int32_t least;
    } kinds[] = {{0x80, 0x00, 1, 0},
                 {0xE0, 0xC0, 2, 0x80},
                 {0xF0, 0xE0, 3, 0x800},
                 {0xF8, 0xF0, 4, 0x10000}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if ((first & kinds[i].mask) == kinds[i].lead) {
            *bits = first & ~kinds[i].mask;
            *least = kinds[i].least;
            return kinds[i].length;
        }
    }
    return 0;
}

/* The code point at *text, which is passed; -1 for a byte that is not UTF-8. */
static int32_t next_point(const char **text) {
    const unsigned char *bytes = (const unsigned char *)*text;
    int32_t point = 0, least = 0;
    int length = sequence(bytes[0], &point, &least);
    for (int i = 1; i < length; i++) {
        if ((bytes[i] & 0xC0) != 0x80) {
            length = 0;
        } else {
            point = point << 6 | (bytes[i] & 0x3F);
        }
    }
    bool surrogate = point >= 0xD800 && point <= 0xDFFF;
    bool valid = length > 0 && point >= least && point <= 0x10FFFF && !surrogate;
    *text += valid ? length : 1;
    return valid ? point : -1;
}

/* Control characters, line separators and bidirectional marks. */
static bool is_control(int32_t point) {
    return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x61C || point == 0x200E ||
           point == 0x200F || (point >= 0x2028 && point <= 0x202E) ||
           (point >= 0x2066 && point <= 0x2069);
}

/* Writes the escape of the next character, or the character; returns its columns. */
static int next_piece(const char **text, char piece[16]) {
    const char *start = *text;
    int32_t point = next_point(text);
    if (point < 0) {
        return snprintf(piece, 16, "\\x%02X", (unsigned)(unsigned char)*start);
    }
    if (is_control(point)) {
        return snprintf(piece, 16, "\\u%04X", (unsigned)point);
    }
    snprintf(piece, 16, "%.*s", (int)(*text - start), start);
    return 1;
}

int tool_text_columns(const char *text) {
    char piece[16];
    int columns = 0;
    while (*text) {
        columns += next_piece(&text, piece);
    }
    return columns;
}

void tool_print_text(FILE *out, const char *text) {
    char piece[16];
    while (*text) {
        next_piece(&text, piece);
        fputs(piece, out);
    }
}

void tool_print_padded(const char *text, int width) {
    int pad = (width < 0 ? -width : width) - tool_text_columns(text);
    printf("%*s", width > 0 && pad > 0 ? pad : 0, "");
    tool_print_text(stdout, text);
    printf("%*s", width < 0 && pad > 0 ? pad : 0, "");
}

void tool_print_string(FILE *out, const char *text) {
    fputc('"', out);
    while (*text) {
        const char *start = text;
        int32_t point = next_point(&text);
        if (point < 0 || is_control(point)) {
            fprintf(out, "\\u%04X", point < 0 ? 0xFFFDu : (unsigned)point);
        } else if (point == '"' || point == '\\') {
            fprintf(out, "\\%c", (char)point);
        } else {
            fwrite(start, 1, (size_t)(text - start), out);
        }
    }
    fputc('"', out);
}

void tool_print_xml(FILE *out, const char *text) {
    char piece[16];
    while (*text) {
        next_piece(&text, piece);
        switch (*piece) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputs(piece, out);
        }
    }
}

void tool_say_all(char **argv, const char *format, va_list args) {
    char *text = NULL;
    tool_progress_end();
    fprintf(stderr, "%s: ", argv[0]);
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
    }
    tool_print_text(stderr, text ? text : format);
    fputc('\n', stderr);
    free(text);
}

void tool_say(char **argv, const char *format, ...) {
    va_list args;
    va_start(args, format);
    tool_say_all(argv, format, args);
    va_end(args);
}
