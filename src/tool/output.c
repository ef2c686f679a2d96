/* Reading a configuration for a subcommand, and printing: findings as compilers print them, and
 * the pieces of JSON. */
#include "tool.h"

#include <string.h>

int tool_load(char **argv, const char *path, lierne_config **out) {
    lierne_config_read(out, strcmp(path, "-") == 0 ? "/dev/stdin" : path);
    return *out ? -1 : tool_failed(argv);
}

int tool_load_valid(char **argv, const char *path, lierne_config **out) {
    bool valid = true;
    int status = tool_load(argv, path, out);
    for (int i = 0; i < lierne_config_nfindings(*out); i++) {
        const lierne_finding *finding = lierne_config_finding(*out, i);
        tool_print_finding(stderr, path, finding, false);
        valid = valid && finding->severity != LIERNE_ERROR;
    }
    if (status < 0 && !valid) {
        lierne_config_free(*out);
        *out = NULL;
        return TOOL_FINDINGS;
    }
    return status;
}

void tool_print_finding(FILE *out, const char *path, const lierne_finding *finding, bool color) {
    bool error = finding->severity == LIERNE_ERROR;
    const char *on = !color ? "" : error ? "\033[1;31m" : "\033[1;35m";
    fprintf(out, "%s:%d:%d: %s%s:%s [%s] %s%s%s\n", path, finding->line, finding->column, on,
            error ? "error" : "warning", color ? "\033[0m" : "", finding->code, finding->message,
            *finding->hint ? "; " : "", finding->hint);
}

/* Bytes of the UTF-8 sequence at text, 0 if it is none. */
static int utf8_length(const unsigned char *text) {
    int length = *text < 0x80                     ? 1
                 : *text >= 0xC2 && *text <= 0xDF ? 2
                 : *text >= 0xE0 && *text <= 0xEF ? 3
                 : *text >= 0xF0 && *text <= 0xF4 ? 4
                                                  : 0;
    for (int i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

void tool_print_string(FILE *out, const char *text) {
    fputc('"', out);
    while (*text) {
        int length = utf8_length((const unsigned char *)text);
        if (length == 0) {
            fputs("\\uFFFD", out);
            length = 1;
        } else if (*text == '"' || *text == '\\') {
            fprintf(out, "\\%c", *text);
        } else if ((unsigned char)*text < 0x20 || *text == 0x7F) {
            fprintf(out, "\\u%04X", (unsigned)*text);
        } else {
            fwrite(text, 1, (size_t)length, out);
        }
        text += length;
    }
    fputc('"', out);
}

void tool_print_ints(FILE *out, const int *values, int count) {
    for (int i = 0; i < count; i++) {
        fprintf(out, "%c%d", i ? ',' : '[', values[i]);
    }
    fputs(count ? "]" : "[]", out);
}
