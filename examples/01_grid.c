/* 01_grid: a grid, its groups, and a second view of the same ranks.
 *
 * Introduces lierne_grid_create, lierne_grid_get_groups, lierne_grid_add_view and
 * lierne_grid_get_key. Nothing here communicates: a launcher can call this before a job starts. */
#include <lierne.h>

#include <stdio.h>
#include <stdlib.h>

static void must(lierne_status status) {
    if (status != LIERNE_OK) {
        fprintf(stderr, "%s: %s\n", lierne_status_name(status), lierne_last_error());
        exit(1);
    }
}

static void print_groups(const lierne_grid *grid, const char *view, const char *const *dims,
                         int ndims) {
    int ranks[8], ngroups, size;
    char key[64];
    must(lierne_grid_get_key(key, sizeof key, NULL, grid, view, dims, ndims));
    must(lierne_grid_get_groups(ranks, &ngroups, &size, grid, view, dims, ndims));
    printf("%-14s", key);
    for (int g = 0; g < ngroups; g++) {
        for (int i = 0; i < size; i++) {
            printf("%s%d", i ? "," : " [", ranks[g * size + i]);
        }
        printf("]");
    }
    printf("\n");
}

int main(void) {
    /* An LLM on 8 ranks: tp2 x cp2 x dp2, tp fastest. */
    const char *names[] = {"tp", "cp", "pp", "dp"};
    const int64_t sizes[] = {2, 2, 1, 2};
    lierne_grid_spec spec = {
        .size = sizeof spec, .ndims = 4, .names = names, .sizes = sizes, .world_size = 8};
    lierne_grid *llm;
    must(lierne_grid_create(&llm, &spec));

    print_groups(llm, NULL, (const char *const[]){"tp"}, 1);
    print_groups(llm, NULL, (const char *const[]){"cp"}, 1);
    print_groups(llm, NULL, (const char *const[]){"dp", "cp"}, 2); /* gradients are summed here */

    /* The view of its experts has the same ranks as ep8, and shares the pipeline dim. */
    const char *expert_names[] = {"ep", "pp"}, *shared[] = {"pp"};
    const int64_t expert_sizes[] = {8, 1};
    lierne_view_spec expert = {.size = sizeof expert,
                               .name = "expert",
                               .ndims = 2,
                               .names = expert_names,
                               .sizes = expert_sizes,
                               .nshared = 1,
                               .shared = shared};
    must(lierne_grid_add_view(llm, &expert));
    print_groups(llm, "expert", (const char *const[]){"ep"}, 1);
    print_groups(llm, "expert", shared, 1); /* the key is the base view's: one communicator */

    /* An error message names the wrong value and the bound. */
    int ranks[8];
    lierne_status status =
        lierne_grid_get_groups(ranks, NULL, NULL, llm, NULL, (const char *const[]){"ep"}, 1);
    printf("%s: %s\n", lierne_status_name(status), lierne_last_error());
    lierne_grid_destroy(llm);
    return status == LIERNE_ERR_UNKNOWN_DIM ? 0 : 1;
}
