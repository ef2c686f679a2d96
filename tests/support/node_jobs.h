/* Jobs of one node whose ranks are processes (tests/node): each creates a context, moves a tensor
 * and destroys it. */
#ifndef LIERNE_TESTS_NODE_JOBS_H
#define LIERNE_TESTS_NODE_JOBS_H

#include "lierne.h"
#include "lierne/node.h"
#include "processes.h"

enum { MOST = 8, ENDED = 100 };

/* What a rank tells the test, in memory that all processes share. */
typedef struct job_report {
    volatile int step; /* 1: created, then one more per call; ENDED: it returned */
    volatile lierne_status status;
    volatile double seconds;
    char message[1024];
} job_report;
extern job_report *reports;
/* Makes them, 2 * MOST. To be called first. */
void open_reports(void);

/* A plan by which every rank gets everything of a tensor, and a call with it: element i is 3 i + 1
 * + round. Wrong data is IO, which no call returns. */
lierne_status job_plan(lierne_plan **plan, lierne_context *context, int world);
lierne_status job_move(lierne_plan *plan, int rank, int world, int round);

/* Starts a rank of a spec that moves a tensor `rounds` times; its report is number `at`. */
pid_t begin(int at, const lierne_node_spec *spec, int rounds);
lierne_node_spec spec_of(int rank, int world, const char *name, const lierne_context_spec *context);
/* Starts all ranks of a job, with reports from `at` on. */
void begin_job(pid_t *pids, int at, int world, const char *name, double timeout, int rounds);
/* Whether all have ended within a minute; kills those that have not. */
bool await(const pid_t *pids, int n);
/* A name of this process, another one in every call; in a static buffer. */
const char *job_name(const char *what);

#endif
