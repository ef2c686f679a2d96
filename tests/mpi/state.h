/* What a process holds, for tests that nothing is left behind. MPI does not tell how many
 * communicators exist, so the calls that create and free them are counted through its profiling
 * interface: a program that links state.c counts. */
#ifndef TESTS_MPI_STATE_H
#define TESTS_MPI_STATE_H

#include <stddef.h>

typedef struct state {
    size_t allocations;
    int files;
    int threads;
    int communicators;
    long bytes; /* resident */
} state;

state state_now(void);
/* Checks that nothing was added to an earlier state but at most a mebibyte of resident memory. */
void state_check(const state *before, const char *what);

#endif
