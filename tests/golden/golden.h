/* The golden runner: compares lierne's public API with expected values. A case passes or fails as a
 * whole; its first error is printed. */
#ifndef LIERNE_TESTS_GOLDEN_H
#define LIERNE_TESTS_GOLDEN_H

#include "lierne.h"
#include "numbers.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

typedef struct golden_case {
    const cJSON *item;
    bool failed;
    char why[800];
} golden_case;

/* One function per list of a file: checks a case. */
typedef void golden_check(golden_case *c);
golden_check golden_grids, golden_bridges, golden_bridge_tensors, golden_noncolocated;
golden_check golden_graph, golden_graph_invalid, golden_partition, golden_halo, golden_halo_invalid;
golden_check golden_dtensor_case, golden_dtensor_pair;
golden_check golden_all_gather, golden_reduce_scatter, golden_all_reduce, golden_order_sensitive;
golden_check golden_uneven, golden_two_shot_partition;
golden_check golden_isolation, golden_composition, golden_schedules_agree, golden_launch_order;
golden_check golden_overlap_gate;
golden_check golden_samples, golden_sample_tensor;
golden_check golden_packed_layout, golden_packed_move, golden_packed_invalid;
golden_check golden_dense_halo, golden_dense_halo_order, golden_dense_halo_invalid;
golden_check golden_dense_halo_helper;
golden_check golden_set_boxes;
golden_check golden_packed_bridge, golden_packed_runs, golden_few_peers;
/* golden_halo_invalid in a world of n ranks: the case's own number, or any if that is 1. */
void golden_halo_reject(golden_case *c, int n);

/* Records the first failure of a case; returns ok. */
bool golden_expect(golden_case *c, bool ok, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* status must be wanted. */
bool golden_expect_status(golden_case *c, const char *what, lierne_status status,
                          lierne_status wanted);

/* Reads a file. Numbers that are not written as integers come as strings, because cJSON would make
 * 2 of 2.0 and lierne must be told of them; so do those of more than 15 digits, which a double may
 * not have. NULL, with *why, if that fails. */
cJSON *golden_read(const char *path, const char **why);

/* Integer of a number, and at a key; fallback if there is none. Saturates. */
int64_t golden_to_int(const cJSON *item, int64_t fallback);
int64_t golden_int(const cJSON *item, const char *key, int64_t fallback);
/* A number, which golden_read makes a string where it has a fraction. */
double golden_to_double(const cJSON *item);
/* String at key, "" if there is none. */
const char *golden_string(const cJSON *item, const char *key);
const cJSON *golden_get(const cJSON *item, const char *key);

enum { GOLDEN_MAX_DIMS = 64 };

/* Names: a string is one, a list is many. Entries that are no string are NULL. */
typedef struct golden_names {
    int n;
    const char *at[GOLDEN_MAX_DIMS];
} golden_names;
golden_names golden_read_names(const cJSON *item);

/* Names and sizes for lierne, which takes one number for both: where their numbers differ, or a
 * size is no integer, what is too much is NULL or 0 and lierne must reject it. */
typedef struct golden_dims {
    int n;
    const char *names[GOLDEN_MAX_DIMS];
    int64_t sizes[GOLDEN_MAX_DIMS];
} golden_dims;
golden_dims golden_read_dims(const cJSON *shape, const cJSON *names);

/* A grid of {"shape", "dim_names", "rank_offset"}. */
lierne_status golden_grid(lierne_grid **out, const cJSON *item, int64_t world);

/* Whether a JSON list equals n integers or ranks; whether a list of lists equals groups. */
bool golden_same_ints(const cJSON *list, const int64_t *values, int64_t n);
bool golden_same_ranks(const cJSON *list, const int *ranks, int n);
bool golden_same_groups(const cJSON *list, const int *ranks, int ngroups, int group_size);

/* A list of numbers, or of lists of such, as one array of *n values, to be freed. */
double *golden_read_values(const cJSON *list, int64_t *n);
int64_t *golden_read_ints(const cJSON *list, int64_t *n);
/* Whether values equal the list; says which does not. */
void golden_expect_list(golden_case *c, const char *what, const cJSON *list, const double *values,
                        int64_t n);
void golden_expect_ints(golden_case *c, const char *what, const cJSON *list, const int64_t *values,
                        int64_t n);

/* Zeroed memory for n and one more; ends the program where there is none. */
void *golden_alloc(int64_t n, size_t size);

/* The status by which lierne names the condition of a reference's error; OK if the text is not one
 * that the runner knows: then any error is accepted. */
lierne_status golden_condition(const cJSON *error);

#endif
