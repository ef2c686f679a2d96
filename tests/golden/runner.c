/* golden DIR: runs every *.json of a folder against lierne. The name of a file gives its kind. An
 * unknown name or list, a list without cases and a folder without files are failures, because
 * expected values that are not compared prove nothing. */
#include "golden.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tally {
    int passed;
    int failed;
    int aside;
} tally;

/* Every list of a file that holds cases. Those without a check are set aside, and counted: they are
 * about the memory that ranks of a node share, which no part of lierne has, or what a reference
 * looks at or does otherwise. */
static const struct {
    const char *file;
    const char *list;
    golden_check *check;
} lists[] = {
    {"grids.json", "cases", golden_grids},
    {"bridges.json", "cases", golden_bridges},
    {"bridge_tensors.json", "cases", golden_bridge_tensors},
    {"noncolocated.json", "cases", golden_noncolocated},
    {"graph_a2a.json", "cases", golden_graph},
    {"graph_a2a.json", "partitions", golden_partition},
    {"graph_a2a.json", "invalid", golden_graph_invalid},
    {"halo.json", "cases", golden_halo},
    {"halo.json", "invalid", golden_halo_invalid},
    {"dtensor.json", "cases", golden_dtensor_case},
    {"dtensor.json", "pairs", golden_dtensor_pair},
    {"isolation.json", "cases", golden_isolation},
    {"isolation.json", "composition", golden_composition},
    {"isolation.json", "spmd_agreement", golden_schedules_agree},
    {"isolation.json", "launch_order", golden_launch_order},
    {"isolation.json", "overlap_gate", golden_overlap_gate},
    {"isolation.json", "upstream_scanned_kinds", NULL},
    {"dense_halo.json", "cases", golden_dense_halo},
    {"dense_halo.json", "order", golden_dense_halo_order},
    {"dense_halo.json", "helpers", golden_dense_halo_helper},
    {"dense_halo.json", "invalid", golden_dense_halo_invalid},
    {"packed.json", "layouts", golden_packed_layout},
    {"packed.json", "redistribute", golden_packed_move},
    {"packed.json", "invalid", golden_packed_invalid},
    {"packed.json", "bridges", golden_packed_bridge},
    {"packed.json", "runs", golden_packed_runs},
    {"packed.json", "few_peers", golden_few_peers},
    {"samples.json", "cases", golden_samples},
    {"samples.json", "tensors", golden_sample_tensor},
    {"samples.json", "references", NULL},
    {"set_boxes.json", "cases", golden_set_boxes},
    {"windows.json", "allgather", golden_all_gather},
    {"windows.json", "reduce_scatter", golden_reduce_scatter},
    {"windows.json", "allreduce", golden_all_reduce},
    {"windows.json", "order_sensitive", golden_order_sensitive},
    {"windows.json", "uneven", golden_uneven},
    {"windows.json", "twoshot_partition", golden_two_shot_partition},
    {"windows.json", "layout_proposed", NULL},
    {"windows.json", "layout_seed", NULL},
    {"windows.json", "epoch_wrap_compare", NULL},
    {"windows.json", "barrier_models", NULL},
};

/* The next list of a file after one, or the one of a name (NULL: any); its place, or -1. */
static int find_list(const char *file, const char *list, int after) {
    for (int i = after + 1; i < (int)(sizeof lists / sizeof lists[0]); i++) {
        if (strcmp(lists[i].file, file) == 0 && (!list || strcmp(lists[i].list, list) == 0)) {
            return i;
        }
    }
    return -1;
}

static void fail_file(const char *file, const char *why, const char *what, tally *t) {
    printf("FAIL %s: %s%s\n", file, why, what);
    t->failed++;
}

static void run_list(const char *file, const cJSON *root, int list, tally *t) {
    const cJSON *item, *cases = golden_get(root, lists[list].list);
    if (cJSON_GetArraySize(cases) < 1) {
        fail_file(file, "it has no ", lists[list].list, t);
    }
    if (!lists[list].check) {
        printf("%s: %s: %d set aside\n", file, lists[list].list, cJSON_GetArraySize(cases));
        t->aside += cJSON_GetArraySize(cases);
        return;
    }
    cJSON_ArrayForEach(item, cases) {
        golden_case c = {.item = item};
        lists[list].check(&c);
        if (c.failed) {
            printf("FAIL %s %s %s%s: %s\n", file, lists[list].list, golden_string(item, "id"),
                   golden_string(item, "name"), c.why);
        }
        t->passed += !c.failed;
        t->failed += c.failed;
    }
}

static void run_lists(const char *file, const cJSON *root, tally *t) {
    const cJSON *one;
    for (int i = find_list(file, NULL, -1); i >= 0; i = find_list(file, NULL, i)) {
        run_list(file, root, i, t);
    }
    cJSON_ArrayForEach(one, root) {
        if (cJSON_IsArray(one) && find_list(file, one->string, -1) < 0) {
            fail_file(file, "the runner does not know the list ", one->string, t);
        }
    }
}

static tally run_file(const char *dir, const char *file) {
    tally t = {0};
    char path[4096];
    const char *why;
    bool known = find_list(file, NULL, -1) >= 0;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    cJSON *root = known ? golden_read(path, &why) : NULL;
    if (root) {
        run_lists(file, root, &t);
    } else {
        fail_file(file, known ? why : "the runner does not know what this file holds", "", &t);
    }
    cJSON_Delete(root);
    printf("%s: %d passed, %d failed, %d set aside\n", file, t.passed, t.failed, t.aside);
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
        fail_file(argv[1], n < 0 ? "it cannot be opened" : "there is no *.json in it", "", &all);
    }
    printf("%d passed, %d failed\n", all.passed, all.failed);
    return all.failed ? 1 : 0;
}
