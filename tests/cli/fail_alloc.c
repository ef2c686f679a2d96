/* For test_memory.sh, which preloads it: of the places in a program and its libraries that
 * allocate, number LIERNE_TEST_PLACE fails once, the first time that it does; places count from 1
 * on, in the order in which they allocate first. LIERNE_TEST_PLACES names a file that gets how many
 * there are.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Those of glibc, under the names that are not replaced here. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

enum { MOST = 4096 };
static void *places[MOST]; /* return addresses, by their hash */
static long count, failing = -1;

static bool must_fail(void *place) {
    size_t i = (uintptr_t)place / 4 % MOST;
    while (places[i] && places[i] != place) {
        i = (i + 1) % MOST;
    }
    if (places[i] || count == MOST / 2) {
        return false;
    }
    if (failing < 0) {
        const char *text = getenv("LIERNE_TEST_PLACE");
        failing = text ? strtol(text, NULL, 10) : 0;
    }
    places[i] = place;
    return ++count == failing;
}

void *malloc(size_t bytes) {
    return must_fail(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    return must_fail(__builtin_return_address(0)) ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
    return must_fail(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}

__attribute__((destructor)) static void write_count(void) {
    const char *path = getenv("LIERNE_TEST_PLACES");
    char text[24];
    int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (file >= 0) {
        (void)!write(file, text, (size_t)snprintf(text, sizeof text, "%ld\n", count));
        close(file);
    }
}
