/* Runs a fuzz target over files, where there is no libFuzzer. Usage: replay FILE...; prints the
 * number of files. */
#include "fuzz/must.h"

static int replay(const char *path) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, capacity = 0;
    if (!file) {
        return 0;
    }
    do {
        capacity = capacity ? 2 * capacity : 4096;
        uint8_t *grown = realloc(data, capacity);
        if (!grown) {
            free(data);
            fclose(file);
            return 0;
        }
        data = grown;
        size += fread(data + size, 1, capacity - size, file);
    } while (size == capacity);
    fclose(file);
    /* A copy of exactly this size: a sanitizer then sees a read beyond it. */
    data = realloc(data, size ? size : 1);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

int main(int argc, char **argv) {
    int n = 0;
    for (int i = 1; i < argc; i++) {
        n += replay(argv[i]);
    }
    printf("%d files\n", n);
    return n != argc - 1;
}
