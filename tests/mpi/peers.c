/* One of four ranks that execute until something fails, for tests/cli/test_death.sh, which kills or
 * stops one of them. Not run by run.sh: it ends only when a peer does.
 *
 * peers FOLDER [shared]: writes its process number to FOLDER/pid.R, executes for at most a minute,
 * and on a failure writes the status, the seconds that the failing call took, the message and the
 * dump to FOLDER/end.R. Then it waits to be killed: MPI_Finalize would wait for the dead, and
 * mpirun kills the others, which may still have to write, when one exits without it. shared: the
 * forward's output is one for all ranks. */
#include "bridge_plan.h"
#include "lierne.h"
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
    for (;;) {
        pause();
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 1};
    lierne_context *context;
    lierne_plan *plan;
    char pid[32];
    const int64_t shape[] = {4, 64, 256};
    lierne_grid *src = grid_of(1, 1, 4, 4), *dst = grid_of(1, 4, 1, 4);
    lierne_bridge_spec bridge = bridge_spec_of(src, dst, shape);
    folder = argc > 1 ? argv[1] : ".";
    bool shared = argc > 2 && strcmp(argv[2], "shared") == 0;
    bridge.shared_output = shared ? LIERNE_SHARING_FORWARD : LIERNE_SHARING_NONE;
    if (lierne_context_create_mpi(&context, MPI_COMM_WORLD, &spec) != LIERNE_OK ||
        lierne_plan_create_bridge(&plan, context, &bridge) != LIERNE_OK) {
        return 1;
    }
    rank = lierne_context_get_rank(context);
    float *x = calloc(64 * 256, 4), *y = calloc(4 * 64 * 256, 4), *gx = calloc(64 * 256, 4);
    snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    write_file("pid", pid);
    for (double end = now() + 60; now() < end;) {
        double start = now();
        lierne_status status = lierne_plan_forward(plan, shared ? NULL : y, x, NULL);
        if (status == LIERNE_OK) {
            start = now();
            status = lierne_plan_adjoint(plan, gx, y, NULL);
        }
        if (status != LIERNE_OK) {
            finish(context, status, now() - start);
        }
    }
    finish(context, LIERNE_OK, 0);
}
