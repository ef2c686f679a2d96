/* What is wrong in a set file, and where. A file is read by cJSON, which keeps no places, so they
 * are found when there is something to say: the text is then walked once. */
#include "tool/set_file.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 1200 };

static const char *skip_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at) {
    for (at++; *at && *at != '"'; at++) {
        at += *at == '\\' && at[1];
    }
    return at + (*at == '"');
}

/* Behind the value that begins here. */
static const char *skip_value(const char *at) {
    int depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        depth += (*at == '[' || *at == '{') - (*at == ']' || *at == '}');
        at++;
    } while (*at && (depth > 0 || !strchr(",]} \t\r\n", *at)));
    return at;
}

/* The next element of a list or object, behind its comma; NULL: there is none. */
static const char *next_element(const char *at) {
    at = skip_space(skip_value(at));
    return *at == ',' ? skip_space(at + 1) : NULL;
}

/* The value of a key of an object, NULL: it has none. */
static const char *find_key(const char *object, const char *key) {
    const char *at = *object == '{' ? skip_space(object + 1) : NULL;
    size_t n = strlen(key);
    while (at && *at == '"') {
        const char *value = skip_space(skip_space(skip_string(at)) + 1);
        if (strncmp(at + 1, key, n) == 0 && at[n + 1] == '"') {
            return value;
        }
        at = next_element(value);
    }
    return NULL;
}

static const char *find_place(const set_file *file) {
    const char *start = skip_space(file->text);
    const char *at = file->key ? find_key(start, file->key) : start;
    if (at && file->index >= 0 && *at == '[') {
        at = skip_space(at + 1);
        for (int64_t i = 0; at && i < file->index; i++) {
            at = next_element(at);
        }
    }
    return at ? at : start;
}

int set_file_say(const set_file *file, const char *format, ...) {
    char message[MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!file->text || (file->key && !*file->key)) {
        tool_say(file->argv, "%s: %s", file->path, message);
        return TOOL_INVALID;
    }
    int line = 1, column = 1;
    for (const char *at = file->text, *place = find_place(file); at < place; at++) {
        line += *at == '\n';
        column = *at == '\n' ? 1 : column + 1;
    }
    tool_say(file->argv, "%s:%d:%d: %s", file->path, line, column, message);
    return TOOL_INVALID;
}

const char *set_file_unknown_key(const cJSON *object, const char *const *keys) {
    const cJSON *item;
    cJSON_ArrayForEach(item, object) {
        int k = 0;
        while (keys[k] && strcmp(keys[k], item->string) != 0) {
            k++;
        }
        if (!keys[k]) {
            return item->string;
        }
    }
    return NULL;
}
