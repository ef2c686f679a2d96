/* The items of lierne balance, read from lines, from JSON, or drawn by a formula; and what is done
 * with an assignment of them. */
#ifndef LIERNE_TOOL_BALANCE_INPUT_H
#define LIERNE_TOOL_BALANCE_INPUT_H

#include "tool/tool.h"

/* An item of the file. */
typedef struct balance_entry {
    int64_t rank, cost, rows;
    int64_t line; /* the item's number among those of the file, which its rank is printed by */
} balance_entry;

typedef struct balance_table {
    balance_entry *at;
    int64_t n, capacity, highest; /* highest: rank, -1 without items */
    int64_t nranks;               /* as the file has it; 0: it has not */
} balance_table;

/* Reads a file, "-" from standard input. Returns -1 to go on, or the exit status; at is freed by
 * the caller in any case. */
int balance_read(balance_table *table, char **argv, const char *path);
/* A number of the command line. False: it is none, or below 0. */
bool balance_parse_number(int64_t *to, const char *text);

/* The loads of all ranks at home and under an assignment, and the rows between ranks, as a picture
 * on standard output. nodes: of each rank, or NULL. False: no memory. */
bool balance_draw(const lierne_items *items, const int64_t *counts, int nranks, const int *nodes,
                  const lierne_assignment *assignment, const char *title);

/* Moves the rows of an assignment and their gradients in a simulated world, and prints whether
 * every row is right. Returns the exit status. */
int balance_simulate(char **argv, const lierne_items *items, const int64_t *counts, int nranks,
                     const lierne_assignment *assignment, const char *title, bool json);

#endif
