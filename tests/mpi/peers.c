/* One of four ranks that execute until something fails, for tests/cli/test_death.sh, which kills or
 * stops one of them. Not run by run.sh: it ends only when a peer does.
 *
 * peers FOLDER [shared|delta]: writes its process number to FOLDER/pid.R, executes for at most a
 * minute, and on a failure writes the status, the seconds that the failing call took, the message
 * and the dump to FOLDER/end.R. Then it waits to be killed: MPI_Finalize would wait for the dead,
 * and mpirun kills the others, which may still have to write, when one exits without it. shared:
 * the forward's output is one for all ranks. delta: changes move forward, and every output is
 * compared.
 */
#include "bridge_plan.h"
#include "lierne.h"
#include "lierne/delta.h"
#include "lierne/mpi.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *folder;
static int rank;

static double now(void) {
    return MPI_Wtime();
}

static void wait_to_be_killed(void) {
    for (;;) {
        pause();
    }
}

/* Written under another name first, so that a file that is there is complete. */
static void write_file(const char *kind, const char *text) {
    char name[512], hidden[540];
    snprintf(name, sizeof name, "%s/%s.%d", folder, kind, rank);
    snprintf(hidden, sizeof hidden, "%s.part", name);
    FILE *file = fopen(hidden, "w");
    if (file) {
        fputs(text, file);
        fclose(file);
        rename(hidden, name);
    }
}

static void finish(lierne_context *context, lierne_status status, double seconds) {
    char text[8192], dump[4096] = "";
    lierne_context_dump(dump, sizeof dump, context);
    snprintf(text, sizeof text, "%s %.3f\n%s\n%s", lierne_status_name(status), seconds,
             lierne_last_error(), dump);
    /* The context is dead for good: it answers at once. */
    double start = now();
    lierne_plan *plan;
    lierne_bridge_spec empty = {0};
    if (status != LIERNE_OK &&
        (lierne_plan_create_bridge(&plan, context, &empty) != status || now() - start > 0.5)) {
        snprintf(text, sizeof text, "NOT_DEAD 0\n");
    }
    write_file("end", text);
    wait_to_be_killed();
}

enum { RANKS = 4, OWN = 64 * 256, PERIOD = 50 };
static float x[OWN], gx[OWN], y[RANKS * OWN];

/* Forward and adjoint; *start: when the call began that returned. */
static lierne_status move_all(lierne_plan *plan, bool shared, double *start) {
    lierne_status status = lierne_plan_forward(plan, shared ? NULL : y, x, NULL);
    if (status == LIERNE_OK) {
        *start = now();
        status = lierne_plan_adjoint(plan, gx, y, NULL);
    }
    return status;
}

/* What element i of the whole has in a version: one of PERIOD changes from version to version. */
static float element_of(int version, int i) {
    return (float)(i + 1000 * ((version + i) / PERIOD));
}

static lierne_status move_changes(lierne_delta *delta, int version) {
    for (int i = 0; i < OWN; i++) {
        x[i] = element_of(version, rank * OWN + i);
    }
    lierne_status status = lierne_delta_forward(delta, y, x);
    for (int i = 0; status == LIERNE_OK && i < RANKS * OWN; i++) {
        if (y[i] != element_of(version, i)) {
            write_file("end", "WRONG 0\n");
            wait_to_be_killed();
        }
    }
    return status;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 1};
    lierne_context *context;
    lierne_plan *plan;
    lierne_delta *delta = NULL;
    char pid[32];
    const int64_t shape[] = {RANKS, 64, 256};
    lierne_grid *src = grid_of(1, 1, 4, 4), *dst = grid_of(1, 4, 1, 4);
    lierne_bridge_spec bridge = bridge_spec_of(src, dst, shape);
    folder = argc > 1 ? argv[1] : ".";
    const char *what = argc > 2 ? argv[2] : "";
    bool shared = strcmp(what, "shared") == 0, changes = strcmp(what, "delta") == 0;
    bridge.shared_output = shared ? LIERNE_SHARING_FORWARD : LIERNE_SHARING_NONE;
    if (lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec) != LIERNE_OK ||
        lierne_plan_create_bridge(&plan, context, &bridge) != LIERNE_OK ||
        (changes && lierne_delta_create(&delta, plan) != LIERNE_OK)) {
        return 1;
    }
    rank = lierne_context_get_rank(context);
    snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    write_file("pid", pid);
    int version = 0;
    for (double end = now() + 60; now() < end; version++) {
        double start = now();
        lierne_status status =
            changes ? move_changes(delta, version) : move_all(plan, shared, &start);
        if (status != LIERNE_OK) {
            finish(context, status, now() - start);
        }
    }
    finish(context, LIERNE_OK, 0);
}
