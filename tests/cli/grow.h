/* What grow.c counts with. */
#ifndef GROW_H
#define GROW_H

#include "all.h"

static int passed, failed;

static void expect(const char *name, lierne_status got, lierne_status want, const char *text) {
    bool ok = got == want && (!text || strstr(lierne_last_error(), text));
    ok ? passed++ : failed++;
    if (!ok) {
        printf("FAIL %s: %s, expected %s '%s': %s\n", name, lierne_status_name(got),
               lierne_status_name(want), text ? text : "", lierne_last_error());
    }
}

static void expect_true(const char *name, bool ok) {
    ok ? passed++ : failed++;
    if (!ok) {
        printf("FAIL %s\n", name);
    }
}

/* call reads the struct spec. With unknown fields it must fail and name both sizes. A smaller
 * struct must do what zeros in place of its last fields do: short_text, or success if NULL. */
#ifdef LARGER
static char sizes_text[64];
static const char *both(size_t given, size_t known) {
    snprintf(sizes_text, sizeof sizes_text, "size is %zu, and byte %zu is not zero", given,
             known + sizeof(long long));
    return sizes_text;
}
#define TRY(name, spec, short_text, call)                                                          \
    do {                                                                                           \
        expect(name, call, LIERNE_OK, NULL);                                                       \
        (spec).grown[1] = 1;                                                                       \
        expect(name " with an unknown field", call, LIERNE_ERR_INVALID,                            \
               both(sizeof(spec), sizeof(spec) - sizeof((spec).grown)));                           \
        (spec).grown[1] = 0;                                                                       \
    } while (0)
#define UNTOUCHED(name, box)                                                                       \
    expect_true(name " is zero where the library knows nothing",                                   \
                (box).value.grown[0] == 0 && (box).value.grown[2] == 0)
#else
#define TRY(name, spec, short_text, call) expect(name, call, short_status(short_text), short_text)
#define UNTOUCHED(name, box)              (void)(box)
static lierne_status short_status(const char *text) {
    return !text                        ? LIERNE_OK
           : strstr(text, "world_size") ? LIERNE_ERR_WORLD_SIZE
                                        : LIERNE_ERR_INVALID;
}
#endif

/* A struct that the library fills, full of other values before, and memory that it must not touch.
 */
#define BOX(type)                                                                                  \
    struct {                                                                                       \
        type value;                                                                                \
        unsigned char after[64];                                                                   \
    }

#endif
