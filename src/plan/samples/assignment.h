/* What the modes of an assignment share. Internal. */
#ifndef LIERNE_PLAN_ASSIGNMENT_H
#define LIERNE_PLAN_ASSIGNMENT_H

#include "base/base.h"
#include "lierne/samples.h"

/* balance_memory.c. Zeroed memory for one assignment, then for the next. A block that was reserved
 * serves first; what does not fit is allocated, and the assignment has outgrown the block. */
typedef struct lierne_balance_memory {
    char *block;
    size_t capacity;
    size_t used; /* also of what did not fit */
    struct extra *extras;
} lierne_balance_memory;
lierne_status lierne_balance_take(lierne_balance_memory *memory, void *out, size_t count,
                                  size_t size);
bool lierne_balance_outgrown(const lierne_balance_memory *memory);
/* A block of so many bytes in place of all that the memory has; on failure it is unchanged. */
lierne_status lierne_balance_reserve(lierne_balance_memory *memory, size_t bytes);
/* Takes back what was given, and frees what is not in the block. */
void lierne_balance_reset(lierne_balance_memory *memory);
void lierne_balance_clear(lierne_balance_memory *memory);

/* What is to be assigned. Without caps, max_items and max_rows are larger than any number. */
typedef struct lierne_balance_task {
    lierne_balance_memory *memory; /* of all that is taken, also by the modes */
    int64_t n;
    int nranks;
    int64_t *cost, *rows; /* per item */
    int32_t *home;
    lierne_keyed *by_cost; /* items by ascending cost, then number */
    const int *nodes;      /* of the caller: per rank, or NULL */
    const int32_t *given;  /* of the caller: per item, or NULL */
    int64_t total_cost, max_cost;
    int64_t max_items, max_rows, min_items;
    bool equal_items;
    int64_t lower_bound, threshold;
} lierne_balance_task;

/* balance_task.c. Reads what was checked for its ranges. Errors: INVALID (counts), COUNT_RANGE,
 * OVERFLOW, INFEASIBLE, NO_MEMORY. */
lierne_status lierne_balance_task_fill(lierne_balance_task *task, lierne_balance_memory *memory,
                                       const lierne_items *items, const int64_t *counts, int nranks,
                                       const lierne_balance_spec *spec);

/* assignment.c. What lierne_assignment_create does, with memory of the caller: a rank per item, a
 * load per rank. Takes both structs as they are, of the library's size. */
lierne_status lierne_balance(int32_t *rank, int64_t *load, lierne_assignment_report *report,
                             lierne_balance_memory *memory, const lierne_items *items,
                             const int64_t *counts, int nranks, const lierne_balance_spec *spec);

/* Each mode writes a rank per item. Errors: INFEASIBLE, NO_MEMORY. */
lierne_status lierne_balance_lpt(int32_t *rank, const lierne_balance_task *task);
lierne_status lierne_balance_kk(int32_t *rank, const lierne_balance_task *task);
lierne_status lierne_balance_contiguous(int32_t *rank, const lierne_balance_task *task);
/* step: of the report. */
lierne_status lierne_balance_shed(int32_t *rank, int *step, const lierne_balance_task *task);

/* No assignment was found: item is the first without a rank, -1 where a rank lacks items. */
lierne_status lierne_balance_not_found(const lierne_balance_task *task, int64_t item);

/* Writes all items in descending order of `by`, which is at most `most`, then ascending number.
 * Both have space for n. */
void lierne_balance_descend(lierne_keyed *items, lierne_keyed *spare,
                            const lierne_balance_task *task, const int64_t *by, int64_t most);

/* load_order.c. Ranks by ascending load, then number: a sorted array, because a shift of a few
 * thousand bytes is faster than the levels of a heap, and the lowest ones are read in order. */
typedef struct lierne_load_order {
    int *ranks;
    int n;
} lierne_load_order;
/* Before load[rank] becomes to: moves the rank to its new place. */
void lierne_load_order_move(lierne_load_order *order, const int64_t *load, int rank, int64_t to);
/* The rank of the highest load, of equals the lowest number. */
int lierne_load_order_highest(const lierne_load_order *order, const int64_t *load);

#endif
