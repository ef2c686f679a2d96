/* Jobs of one node whose ranks know themselves from the variables of a launcher alone: of every one
 * that is known, restarted, with two contexts at once, and with variables that are wrong. Ends with
 * "N passed, N failed". */
#include "node_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct setting {
    const char *name, *value;
} setting;

static void clear_variables(void) {
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        unsetenv(names[i]);
    }
}

/* A rank that only the environment describes. */
static pid_t begin_launched(int at, const setting *settings, int n, int rank, const char *rank_name,
                            int rounds, const char *name) {
    char text[16];
    lierne_context_spec context = {.size = sizeof context, .timeout = 3};
    lierne_node_spec spec = {.size = sizeof spec, .context = &context, .name = name};
    snprintf(text, sizeof text, "%d", rank);
    clear_variables();
    for (int i = 0; i < n; i++) {
        setenv(settings[i].name, settings[i].value, 1);
    }
    setenv(rank_name, text, 1);
    return begin(at, &spec, rounds);
}

static void launched_by(const setting *settings, int n, const char *rank_name) {
    pid_t pids[3];
    for (int r = 0; r < 3; r++) {
        pids[r] = begin_launched(r, settings, n, r, rank_name, 3, NULL);
    }
    CHECK(await(pids, 3), "%s: a rank hangs", rank_name);
    for (int r = 0; r < 3; r++) {
        CHECK(reports[r].status == LIERNE_OK, "%s: rank %d: %s", rank_name, r, reports[r].message);
    }
}

static void launchers(void) {
    const char *id = job_name("launched");
    const setting torch[] = {{"WORLD_SIZE", "3"},
                             {"LOCAL_WORLD_SIZE", "3"},
                             {"TORCHELASTIC_RUN_ID", id},
                             {"TORCHELASTIC_RESTART_COUNT", "0"}};
    const setting ompi[] = {{"OMPI_COMM_WORLD_SIZE", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                            {"PMIX_NAMESPACE", id}};
    const setting pmi[] = {{"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}};
    const setting slurm[] = {{"SLURM_NTASKS", "3"},
                             {"SLURM_STEP_NUM_NODES", "1"},
                             {"SLURM_JOB_ID", id}};
    launched_by(torch, 4, "RANK");
    launched_by(ompi, 3, "OMPI_COMM_WORLD_RANK");
    launched_by(pmi, 2, "PMI_RANK");
    launched_by(slurm, 3, "SLURM_PROCID");
}

/* A job that waits for a rank that died, and the same job started again. */
static void restarted(void) {
    const char *id = job_name("restarted");
    const setting before[] = {{"WORLD_SIZE", "3"},
                              {"TORCHELASTIC_RUN_ID", id},
                              {"TORCHELASTIC_RESTART_COUNT", "0"}};
    setting after[3];
    pid_t old[2], pids[3];
    memcpy(after, before, sizeof after);
    after[2].value = "1";
    for (int r = 0; r < 2; r++) {
        old[r] = begin_launched(4 + r, before, 3, r, "RANK", 3, NULL);
    }
    for (int r = 0; r < 3; r++) {
        pids[r] = begin_launched(r, after, 3, r, "RANK", 3, NULL);
    }
    CHECK(await(pids, 3), "a rank hangs");
    for (int r = 0; r < 3; r++) {
        CHECK(reports[r].status == LIERNE_OK, "rank %d: %s", r, reports[r].message);
    }
    CHECK(await(old, 2), "an old rank hangs");
    CHECK(reports[4].status == LIERNE_ERR_TIMEOUT || reports[5].status == LIERNE_ERR_TIMEOUT,
          "%s, %s", reports[4].message, reports[5].message);
}

/* Two contexts of one job at once, or of two. */
static void two_at_once(bool jobs) {
    char id[2][64];
    pid_t pids[4];
    for (int i = 0; i < 2; i++) {
        snprintf(id[i], sizeof id[i], "%s", job_name(jobs && i ? "another" : "one"));
    }
    for (int i = 0; i < 4; i++) {
        const setting settings[] = {{"WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", id[i / 2]}};
        const char *name = jobs || i < 2 ? "vision" : "audio";
        pids[i] = begin_launched(i, settings, 2, i % 2, "RANK", 3, name);
    }
    CHECK(await(pids, 4), "a rank hangs");
    for (int i = 0; i < 4; i++) {
        CHECK(reports[i].status == LIERNE_OK, "%s", reports[i].message);
    }
}

static void rejected(const setting *settings, int n, const char *words) {
    pid_t pid = begin_launched(0, settings, n, 0, "RANK", 1, NULL);
    CHECK(await(&pid, 1) && reports[0].status == LIERNE_ERR_INVALID &&
              strstr(reports[0].message, words),
          "'%s' is not in: %s", words, reports[0].message);
}

static void bad_variables(void) {
    const setting larger[] = {{"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}};
    const setting word[] = {{"WORLD_SIZE", "many"}};
    const setting low[] = {{"WORLD_SIZE", "0"}};
    rejected(larger, 2, "the world is larger than this node; use lierne_context_create_oob");
    rejected(word, 1, "WORLD_SIZE is 'many', must be a whole number");
    rejected(low, 1, "rank is 0 of a world of 0");
    rejected(NULL, 0, "no launcher has set its variables");
}

int main(void) {
    open_reports();
    launchers();
    restarted();
    two_at_once(false);
    two_at_once(true);
    bad_variables();
    return process_counts();
}
