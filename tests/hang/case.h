/* Seeded hangs: what a rank of a job does that hangs, and whether the culprit is found. The ranks
 * execute one program of calls; one of them departs from it. */
#ifndef HANG_CASE_H
#define HANG_CASE_H

#include "lierne.h"

#include <stdbool.h>

enum { HANG_STEPS = 12, HANG_MOST_RANKS = 8, HANG_PLANS = 3 };

typedef enum hang_fault {
    FAULT_MISSING, /* it makes no further call */
    FAULT_SLOW,    /* it comes after the deadline */
    FAULT_SKIPPED, /* it leaves a call out */
    FAULT_ORDER,   /* it makes two calls in the other order */
    FAULT_PLAN,    /* it calls another plan */
    FAULT_STOPPED, /* it stops after a begin, and goes on after the deadline */
    FAULT_KILLED,  /* it ends after a begin */
    FAULT_ABSENT,  /* it never has a context */
    HANG_FAULTS
} hang_fault;

typedef struct hang_case {
    unsigned seed;
    hang_fault fault;
    int world;
    int culprit;
    int step;                /* at which it departs */
    int program[HANG_STEPS]; /* 2 x plan + direction; no two neighbours are equal */
    double timeout;
} hang_case;

/* The case of a seed, with faults below nfaults. */
hang_case hang_case_draw(unsigned seed, int nfaults, double timeout);
const char *hang_case_name(const hang_case *c);
/* How a rank stops for so many seconds; how a context gets the deadline of the case once everything
 * is planned, NULL: it has it. */
typedef struct hang_ways {
    void (*stop)(double seconds);
    void (*hurry)(lierne_context *context, double seconds);
} hang_ways;
/* One rank's part. Returns the seconds that the call took which failed, or 0. */
double hang_case_run(const hang_case *c, lierne_context *context, hang_ways ways);
void hang_case_sleep(double seconds);
/* Whether the dumps in a folder name the culprit, and, where only one answer is right, the
 * operation; why: else. */
bool hang_case_judge(const hang_case *c, const char *folder, char *why, size_t size);
/* Removes the files in a folder, and the folder. */
void hang_case_clean(const char *folder);

#endif
