/* The specification is copied out of the configuration, so that a subcommand may change the
 * algorithm or the sizes. */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMMON = 3, MAX_OPTIONS = 8 };

static const char *const algorithms[] = {"direct", "collective", "leader"}; /* as the enum */

static int find_algorithm(const char *name) {
    for (int a = 0; a <= TOOL_LEADER; a++) {
        if (strcmp(algorithms[a], name) == 0) {
            return a;
        }
    }
    return -1;
}

int tool_job_parse(tool_job *job, int argc, char **argv, const char *help,
                   const tool_option *options, int noptions) {
    const char *format = NULL;
    tool_option all[COMMON + MAX_OPTIONS] = {
        {"bridge", 'b', &job->bridge, NULL},
        {"algorithm", 'a', &job->algorithm, NULL},
        {"format", 0, &format, NULL},
    };
    for (int i = 0; i < noptions; i++) {
        all[COMMON + i] = options[i];
    }
    int status = tool_parse(argc, argv, help, all, COMMON + noptions);
    status = status < 0 ? tool_format(argv, format, &job->json) : status;
    status = status < 0 ? tool_one_file(argc, argv, &job->path) : status;
    if (status < 0 && !job->bridge) {
        return tool_usage(argv, "--bridge is missing");
    }
    if (status < 0 && job->algorithm && find_algorithm(job->algorithm) < 0) {
        return tool_usage(argv, "--algorithm is '%s', must be direct, collective or leader",
                          job->algorithm);
    }
    return status;
}

int tool_job_find(tool_job *job, char **argv) {
    const lierne_bridge_spec *spec = lierne_config_get_bridge(job->config, job->bridge);
    const lierne_megatron_spec *megatron = lierne_config_get_megatron(job->config, job->bridge);
    if (!spec) {
        return tool_usage(argv, "there is no bridge '%s' in %s", job->bridge, job->path);
    }
    job->spec = *spec;
    job->world = lierne_config_get_world_size(job->config);
    job->method = megatron ? (tool_algorithm)megatron->algorithm : TOOL_DIRECT;
    if (job->algorithm) {
        job->method = (tool_algorithm)find_algorithm(job->algorithm);
    }
    return -1;
}

int tool_job_load(tool_job *job, char **argv) {
    int status = tool_load_valid(argv, job->path, &job->config);
    return status < 0 ? tool_job_find(job, argv) : status;
}

void tool_job_close(tool_job *job) {
    lierne_config_destroy(job->config);
    job->config = NULL;
}

int tool_job_number(char **argv, const char *option, const char *text, int least, int most,
                    int *out) {
    char *end;
    if (!text) {
        return -1;
    }
    errno = 0;
    long number = strtol(text, &end, 10);
    bool digits = strspn(text, "0123456789") == strlen(text);
    if (errno || end == text || !digits || number < least || number > most) {
        return tool_usage(argv, "%s is '%s', must be a number from %d to %d, in digits only",
                          option, text, least, most);
    }
    *out = (int)number;
    return -1;
}

const char *tool_job_algorithm(tool_algorithm algorithm) {
    return algorithms[algorithm];
}

const char *tool_job_owner(lierne_gradient_owner owner) {
    static const char *const names[] = {"partial", "zigzag", "contiguous", "rows"};
    return names[owner];
}

lierne_status tool_job_plan(lierne_plan **out, lierne_context *context,
                            const lierne_bridge_spec *spec, tool_algorithm algorithm) {
    const lierne_megatron_spec megatron = {.size = sizeof megatron,
                                           .algorithm = (lierne_megatron_algorithm)algorithm,
                                           .bridge = spec};
    return algorithm == TOOL_DIRECT ? lierne_plan_create_bridge(out, context, spec)
                                    : lierne_plan_create_megatron(out, context, &megatron);
}

lierne_sim *tool_job_sim(const tool_job *job, char **argv) {
    lierne_sim *sim;
    const lierne_context_spec spec = {.size = sizeof spec,
                                      .nodes = lierne_config_get_nodes(job->config)};
    if (lierne_sim_create(&sim, job->world, &spec) != LIERNE_OK) {
        tool_failed(argv);
    }
    return sim;
}
