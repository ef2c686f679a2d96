/* What the readers share: grids and dims, whole numbers, files. */
#include "tool/import.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

import_grid *import_add_grid(import_world *world, const char *name) {
    if (world->ngrids == IMPORT_GRIDS) {
        tool_say(world->argv, "more than %d grids", IMPORT_GRIDS);
        return NULL;
    }
    import_grid *grid = &world->grids[world->ngrids++];
    snprintf(grid->name, sizeof grid->name, "%s", world->name ? world->name : name);
    return grid;
}

void import_add_dim(import_dims *dims, const char *name, int64_t size) {
    if (dims->n < IMPORT_DIMS) {
        snprintf(dims->at[dims->n].name, sizeof dims->at[dims->n].name, "%s", name);
        dims->at[dims->n++].size = size;
    }
}

/* Sizes are at most IMPORT_MOST, and so is their product so far: it cannot wrap. */
int64_t import_size(const import_dims *dims) {
    int64_t size = 1;
    for (int d = 0; d < dims->n && size <= IMPORT_MOST; d++) {
        size *= dims->at[d].size;
    }
    return size;
}

int import_number(const import_world *world, const char *what, const char *text, int64_t least,
                  int64_t *out) {
    size_t digits = strspn(text, "0123456789");
    int64_t number = digits > 0 && digits < 10 ? strtoll(text, NULL, 10) : -1;
    if (text[digits] || number < least || number > IMPORT_MOST) {
        return tool_usage(world->argv,
                          "%s is '%s', must be a whole number from %" PRId64 " to %d, in digits",
                          what, text, least, IMPORT_MOST);
    }
    *out = number;
    return -1;
}

/* A number that int64_t does not hold must not become one. */
bool import_whole(int64_t *to, const cJSON *item, int64_t least, int64_t most) {
    bool good = cJSON_IsNumber(item) && item->valuedouble >= (double)least &&
                item->valuedouble <= (double)most &&
                item->valuedouble == (double)(int64_t)item->valuedouble;
    *to = good ? (int64_t)item->valuedouble : 0;
    return good;
}

int import_share(const import_world *world, const char *what, int64_t size, int64_t by,
                 int64_t *out) {
    if (by < 1 || size % by != 0 || size < by) {
        tool_say(world->argv, "%s: %" PRId64 " ranks are not a multiple of %" PRId64, what, size,
                 by);
        return TOOL_INVALID;
    }
    *out = size / by;
    return -1;
}

void import_warn_default(const import_world *world, const char *path, const int64_t *sizes, int n,
                         const char *what) {
    for (int i = 0; i < n; i++) {
        if (sizes[i]) {
            return;
        }
    }
    tool_say(world->argv, "warning: %s has none %s: every size is 1, and dp the world's", path,
             what);
}

char *import_read(const import_world *world, const char *path) {
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    char *text = NULL;
    size_t length = 0;
    FILE *memory = file ? tool_open_text(&text, &length) : NULL;
    char part[4096];
    bool good = memory;
    for (size_t n; good && (n = fread(part, 1, sizeof part, file)) > 0;) {
        good = fwrite(part, 1, n, memory) == n; /* without memory, a pipe may never end */
    }
    int reason = !file || ferror(file) ? errno : ENOMEM;
    good = good && !ferror(file);
    if (file && !standard) {
        fclose(file);
    }
    good = memory && fclose(memory) == 0 && good;
    if (!good) {
        tool_say(world->argv, "cannot read %s: %s", path, strerror(reason));
        free(text);
        return NULL;
    }
    if (strlen(text) < length) { /* what is behind the byte would be passed over */
        tool_say(world->argv, "%s is no text: byte %zu is 0", path, strlen(text) + 1);
        free(text);
        return NULL;
    }
    return text;
}
