/* golden DIR: runs every *.json of a folder against lierne. What a file holds follows from its
 * name; a name that is not known, a file without cases and a folder without files are failures,
 * because expected values that nobody looks at prove nothing. */
#include "golden.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    int passed;
    int failed;
} tally;

static const struct {
    const char *file;
    golden_check *check;
} files[] = {
    {"grids.json", golden_grids},
    {"bridges.json", golden_bridges},
    {"bridge_tensors.json", golden_bridge_tensors},
    {"noncolocated.json", golden_noncolocated},
};

static golden_check *find_check(const char *file) {
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(files[i].file, file) == 0) {
            return files[i].check;
        }
    }
    return NULL;
}

static void fail_file(const char *file, const char *why, tally *t) {
    printf("FAIL %s: %s\n", file, why);
    t->failed++;
}

static void run_cases(const char *file, const cJSON *root, golden_check *check, tally *t) {
    const cJSON *item, *cases = golden_get(root, "cases");
    if (cJSON_GetArraySize(cases) < 1) {
        fail_file(file, "it has no cases", t);
    }
    cJSON_ArrayForEach(item, cases) {
        golden_case c = {.item = item};
        check(&c);
        if (c.failed) {
            printf("FAIL %s %s: %s\n", file, golden_string(item, "id"), c.why);
        }
        t->passed += !c.failed;
        t->failed += c.failed;
    }
}

static tally run_file(const char *dir, const char *file) {
    tally t = {0};
    char path[4096];
    const char *why;
    golden_check *check = find_check(file);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    cJSON *root = check ? golden_read(path, &why) : NULL;
    if (root) {
        run_cases(file, root, check, &t);
    } else {
        fail_file(file, check ? why : "the runner does not know what this file holds", &t);
    }
    cJSON_Delete(root);
    printf("%s: %d passed, %d failed\n", file, t.passed, t.failed);
    return t;
}

static int is_json(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

int main(int argc, char **argv) {
    struct dirent **entries;
    tally all = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    int n = scandir(argv[1], &entries, is_json, alphasort);
    for (int i = 0; i < n; i++) {
        tally t = run_file(argv[1], entries[i]->d_name);
        all.passed += t.passed;
        all.failed += t.failed;
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
    if (n <= 0) {
        fail_file(argv[1], n < 0 ? "it cannot be opened" : "there is no *.json in it", &all);
    }
    printf("%d passed, %d failed\n", all.passed, all.failed);
    return all.failed ? 1 : 0;
}
