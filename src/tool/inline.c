/* --src tp2,dp16 --dst tp4,cp2,dp4 --tensor b16,s4096,h3584: written as a configuration and read by
 * the library, so that all its checks hold here too. */
#include "inline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, WORD = 64 };

typedef struct sizes {
    int n;
    char name[MOST][WORD];
    int64_t size[MOST];
    int64_t offset; /* behind an @ */
} sizes;

/* tp2: the digits at the end are the size. */
static int read_size(char **argv, const char *option, sizes *s, const char *word) {
    size_t length = strlen(word), digits = 0;
    while (digits < length && strchr("0123456789", word[length - digits - 1])) {
        digits++;
    }
    if (digits == 0 || digits == length || digits > 15 || length - digits >= WORD || s->n == MOST) {
        return tool_usage(argv, "--%s: '%s' is not a name with its size, as tp2", option, word);
    }
    snprintf(s->name[s->n], WORD, "%.*s", (int)(length - digits), word);
    s->size[s->n++] = strtoll(word + length - digits, NULL, 10);
    return -1;
}

static int read_offset(char **argv, const char *option, sizes *s, char *text) {
    char *at = strchr(text, '@');
    if (!at) {
        return -1;
    }
    *at++ = '\0';
    if (!*at || strspn(at, "0123456789") != strlen(at) || strlen(at) > 9) {
        return tool_usage(argv, "--%s: '@%s' is not @ and the first rank", option, at);
    }
    s->offset = strtoll(at, NULL, 10);
    return -1;
}

static int read_sizes(char **argv, const char *option, const char *given, sizes *s) {
    char text[512], *rest;
    if (!given || strlen(given) >= sizeof text) {
        return tool_usage(argv, given ? "--%s is too long" : "--%s is missing", option);
    }
    strcpy(text, given);
    int status = read_offset(argv, option, s, text);
    for (char *word = strtok_r(text, ",", &rest); word && status < 0;
         word = strtok_r(NULL, ",", &rest)) {
        status = read_size(argv, option, s, word);
    }
    return status;
}

static void print_names(FILE *out, const char *key, const sizes *s) {
    fprintf(out, "\"%s\": [", key);
    for (int i = 0; i < s->n; i++) {
        fputs(i ? ", " : "", out);
        tool_print_string(out, s->name[i]);
    }
    fputs("], \"shape\": {", out);
    for (int i = 0; i < s->n; i++) {
        fputs(i ? ", " : "", out);
        tool_print_string(out, s->name[i]);
        fprintf(out, ": %" PRId64, s->size[i]);
    }
    fputs("}", out);
}

static int64_t end_of(const sizes *s) {
    int64_t size = 1;
    for (int i = 0; i < s->n; i++) {
        if (__builtin_mul_overflow(size, s->size[i], &size)) {
            return INT64_MAX / 2;
        }
    }
    return size + s->offset;
}

static void print_grid(FILE *out, const char *name, const sizes *s) {
    fprintf(out, "\"%s\": {", name);
    print_names(out, "order", s);
    fprintf(out, ", \"rank_offset\": %" PRId64 "}", s->offset);
}

static bool has(const sizes *s, const char *name) {
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->name[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void print(FILE *out, const sizes *src, const sizes *dst, const sizes *tensor,
                  const char *dtype) {
    int64_t world = end_of(src) > end_of(dst) ? end_of(src) : end_of(dst);
    fprintf(out, "{\"world_size\": %" PRId64 ", \"grids\": {", world);
    print_grid(out, "src", src);
    fputs(", ", out);
    print_grid(out, "dst", dst);
    fputs("}, \"bridges\": [{\"name\": \"src_to_dst\", \"src\": \"src\", \"dst\": \"dst\", "
          "\"tensor\": {",
          out);
    print_names(out, "axes", tensor);
    fputs(", \"dtype\": ", out);
    tool_print_string(out, dtype);
    fprintf(out, "}, \"batch\": \"b\"%s}]}\n", has(tensor, "s") ? ", \"sequence\": \"s\"" : "");
}

bool tool_inline_given(const tool_inline *given) {
    return given->src || given->dst || given->tensor || given->dtype;
}

int tool_inline_load(char **argv, const tool_inline *given, bool quiet, lierne_config **out) {
    sizes src = {0}, dst = {0}, tensor = {0};
    char *text;
    size_t length;
    *out = NULL;
    int status = read_sizes(argv, "src", given->src, &src);
    status = status < 0 ? read_sizes(argv, "dst", given->dst, &dst) : status;
    status = status < 0 ? read_sizes(argv, "tensor", given->tensor, &tensor) : status;
    if (status >= 0) {
        return status;
    }
    FILE *memory = tool_open_text(&text, &length);
    if (memory) {
        print(memory, &src, &dst, &tensor, given->dtype ? given->dtype : "bf16");
    }
    bool whole = memory && fclose(memory) == 0;
    status = whole ? tool_load_text(argv, text, length, quiet, out)
                   : tool_usage(argv, "no memory for the configuration");
    free(text);
    return status;
}
