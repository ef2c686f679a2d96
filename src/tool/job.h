/* What plan, simulate and run share: a bridge of a file, as the command line names it. */
#ifndef LIERNE_TOOL_JOB_H
#define LIERNE_TOOL_JOB_H

#include "tool.h"

#include "lierne/sim.h"

typedef enum tool_algorithm {
    TOOL_DIRECT = 0,
    TOOL_COLLECTIVE = LIERNE_MEGATRON_COLLECTIVE,
    TOOL_LEADER = LIERNE_MEGATRON_LEADER
} tool_algorithm;

typedef struct tool_job {
    const char *path;
    const char *bridge;
    const char *algorithm; /* as given; NULL: the file's */
    bool json;
    lierne_config *config;
    int world;
    lierne_bridge_spec spec;
    tool_algorithm method; /* what was given, or the file's */
} tool_job;

/* Parses the options that all have (--bridge, --algorithm, --format) and those of the subcommand.
 * Returns -1 to go on, or the exit status to end with. */
int tool_job_parse(tool_job *job, int argc, char **argv, const char *help,
                   const tool_option *options, int noptions);
/* Takes the bridge out of job->config, which the job owns from then on. Returns likewise. */
int tool_job_find(tool_job *job, char **argv);
/* Loads the file, findings to stderr, and finds the bridge. Returns likewise. */
int tool_job_load(tool_job *job, char **argv);
void tool_job_close(tool_job *job);

/* A number given as an option: returns -1, or TOOL_USAGE. *out is unchanged if text is NULL. */
int tool_job_number(char **argv, const char *option, const char *text, int least, int most,
                    int *out);

/* "direct", "collective", "leader"; "partial", "zigzag", "contiguous", "rows". */
const char *tool_job_algorithm(tool_algorithm algorithm);
const char *tool_job_owner(lierne_gradient_owner owner);

/* Plans a bridge by an algorithm. Collective. */
lierne_status tool_job_plan(lierne_plan **out, lierne_context *context,
                            const lierne_bridge_spec *spec, tool_algorithm algorithm);

/* A simulated world of as many ranks as the file has, on its nodes. NULL: failed, and said so. */
lierne_sim *tool_job_sim(const tool_job *job, char **argv);

#endif
