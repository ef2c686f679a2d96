/* Structs of callers that were compiled against other headers than this library.
 *
 * Specs and reports grow at their end only, so a struct of another size has the fields that both
 * know at the same place. A size that no version can have is most likely not set: reading so many
 * bytes would leave the caller's struct. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

#define MOST 4096 /* bytes of a spec of any version */

lierne_status lierne_spec_read_size(size_t *given, const void *spec, size_t size,
                                    const char *name) {
    if (!spec) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID, "%s is NULL", name);
    }
    memcpy(given, spec, sizeof *given);
    if (*given < sizeof *given || *given > MOST || *given % sizeof *given != 0) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "%s->size is %zu, must be sizeof the struct (%zu in this library): set "
                           "it first",
                           name, *given, size);
    }
    return LIERNE_OK;
}

lierne_status lierne_spec_take(void *out, size_t size, const void *spec, const char *name) {
    const unsigned char *bytes = spec;
    size_t given = 0;
    memset(out, 0, size);
    LIERNE_TRY(lierne_spec_read_size(&given, spec, size, name));
    for (size_t i = size; i < given; i++) {
        if (bytes[i]) {
            return LIERNE_FAIL(LIERNE_ERR_INVALID,
                               "%s->size is %zu, and byte %zu is not zero, but this library knows "
                               "%zu bytes: set no field that is newer than the library",
                               name, given, i, size);
        }
    }
    memcpy(out, spec, given < size ? given : size);
    memcpy(out, &size, sizeof size);
    return LIERNE_OK;
}

lierne_status lierne_spec_take_at(void *out, size_t size, const void *spec, int rank) {
    char name[32];
    snprintf(name, sizeof name, "rank %d: spec", rank);
    return lierne_spec_take(out, size, spec, name);
}

lierne_status lierne_spec_give(void *to, const void *from, size_t size, const char *name) {
    size_t given = 0;
    LIERNE_TRY(lierne_spec_read_size(&given, to, size, name));
    size_t known = given < size ? given : size;
    memcpy((char *)to + sizeof given, (const char *)from + sizeof given, known - sizeof given);
    memset((char *)to + known, 0, given - known);
    return LIERNE_OK;
}
