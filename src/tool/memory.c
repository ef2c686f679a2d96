/* Memory that the command lacks. What prints as it goes does not stop for it: the command says at
 * its end that something is missing. */
#include "tool.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static bool lacking;

void tool_lack_memory(void) {
    lacking = true;
}

bool tool_lacks_memory(void) {
    return lacking;
}

static void *allocate(size_t bytes) {
    void *block = malloc(bytes);
    if (!block) {
        tool_lack_memory();
    }
    return block;
}

void tool_watch_json(void) {
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate, .free_fn = free});
}

typedef struct growing {
    char **text;
    size_t *length;
} growing;

static ssize_t grow(void *cookie, const char *bytes, size_t n) {
    const growing *g = cookie;
    char *text = realloc(*g->text, *g->length + n + 1);
    if (!text) {
        tool_lack_memory();
        return 0;
    }
    memcpy(text + *g->length, bytes, n);
    *g->text = text;
    *g->length += n;
    text[*g->length] = '\0';
    return (ssize_t)n;
}

static int stop_growing(void *cookie) {
    free(cookie);
    return 0;
}

/* Not open_memstream: where that has no memory for what is printed, no error of the stream says so.
 */
FILE *tool_open_text(char **text, size_t *length) {
    const cookie_io_functions_t calls = {.write = grow, .close = stop_growing};
    growing *g = malloc(sizeof *g);
    *text = calloc(1, 1);
    *length = 0;
    FILE *memory = NULL;
    if (g && *text) {
        *g = (growing){text, length};
        memory = fopencookie(g, "w", calls);
    }
    if (!memory) {
        tool_lack_memory();
        free(*text);
        *text = NULL;
        free(g);
    }
    return memory;
}
