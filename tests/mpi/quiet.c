/* An update of segments tells no other rank anything: what MPI is asked to send meanwhile is
 * counted, in its profiling interface. A call afterwards sends, which shows that the count counts,
 * and over few peers to no more ranks than it may, the message of the ring included. */
#include "layouts.h"
#include "mpi/common.h"
#include "routing.h"

#include <stdlib.h>

enum { SEGMENTS = 5, MOST_ROWS = 512, WIDTH = 2, UPDATES = 20, MOST_RANKS = 64 };

static int sends;
static bool met[MOST_RANKS];

static void count_send(int to) {
    sends++;
    if (to >= 0 && to < MOST_RANKS) {
        met[to] = true;
    }
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
    count_send(to);
    return PMPI_Isend(data, n, type, to, tag, comm, request);
}
int MPI_Issend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request *request) {
    count_send(to);
    return PMPI_Issend(data, n, type, to, tag, comm, request);
}
int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request) {
    sends++;
    return PMPI_Iallreduce(in, out, n, type, op, comm, request);
}
int MPI_Iallgather(const void *in, int n, MPI_Datatype type, void *out, int nout,
                   MPI_Datatype type_out, MPI_Comm comm, MPI_Request *request) {
    sends++;
    return PMPI_Iallgather(in, n, type, out, nout, type_out, comm, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    sends++;
    return PMPI_Ibarrier(comm, request);
}

/* cp ranks by zigzag to one contiguous share each. */
static lierne_plan *plan_of(lierne_context *context, const lierne_segments *segments,
                            const lierne_packing *packing, int max_peers) {
    lierne_grid *grid =
        grid_named((const char *const[]){"cp", NULL}, (const int64_t[]){test_world}, 0, test_world);
    lierne_layout *src =
        layout_packed(grid, segments, packing, LIERNE_PLACEMENT_SEGMENT_ZIGZAG, WIDTH);
    lierne_layout *dst = layout_packed(grid, segments, packing, LIERNE_PLACEMENT_SHARD, WIDTH);
    const lierne_redistribute_spec spec = {.size = sizeof spec,
                                           .src = src,
                                           .dst = dst,
                                           .max_segments = SEGMENTS,
                                           .max_rows = MOST_ROWS,
                                           .max_peers = max_peers};
    lierne_plan *plan = NULL;
    CHECK_OK(lierne_plan_create_redistribute(&plan, context, &spec));
    lierne_layout_destroy(src);
    lierne_layout_destroy(dst);
    lierne_grid_destroy(grid);
    return plan;
}

static void update(lierne_plan *plan, int round) {
    int64_t cu[SEGMENTS + 1] = {0};
    for (int i = 0; i < SEGMENTS; i++) {
        cu[i + 1] = cu[i] + (round * 11 + i * 7) % 29;
    }
    const lierne_segments segments = {.size = sizeof segments,
                                      .nsegments = SEGMENTS,
                                      .cu_seqlens = cu};
    const lierne_packing packing = {.size = sizeof packing, .align = 2 * test_world};
    const lierne_segments_update u = {.size = sizeof u,
                                      .segments = &segments,
                                      .src = &packing,
                                      .dst = &packing};
    int before = sends;
    CHECK_OK(lierne_plan_update_segments(plan, &u));
    CHECK(sends == before, "update %d sends %d messages", round, sends - before);
}

/* Those of one direction, whose ring goes one way. */
static void expect_peers(int most) {
    int peers = 0;
    for (int rank = 0; rank < test_world; rank++) {
        peers += met[rank];
        met[rank] = false;
    }
    CHECK(peers <= most, "a call sends to %d ranks, may send to %d", peers, most);
}

static void run_plan(lierne_context *context, int max_peers) {
    static int64_t in[MOST_ROWS * WIDTH], out[MOST_ROWS * WIDTH];
    const int64_t cu[SEGMENTS + 1] = {0};
    const lierne_segments none = {.size = sizeof none, .nsegments = SEGMENTS, .cu_seqlens = cu};
    const lierne_packing packing = {.size = sizeof packing, .align = 2 * test_world};
    lierne_plan *plan = plan_of(context, &none, &packing, max_peers);
    int most = max_peers > 0 ? max_peers : test_world - 1;
    for (int round = 0; round < UPDATES; round++) {
        update(plan, round);
        update(plan, round + 1); /* before a call, and after one */
        int before = sends;
        memset(met, 0, sizeof met);
        CHECK_OK(lierne_plan_forward(plan, out, in, NULL));
        CHECK(test_world == 1 || sends > before, "a call sends nothing, as far as is counted");
        expect_peers(most);
        CHECK_OK(lierne_plan_adjoint(plan, in, out, NULL));
        expect_peers(most);
    }
    CHECK_OK(lierne_plan_destroy(plan));
}

static void run(lierne_context *context) {
    run_plan(context, 0);
    if (test_world > 3) {
        run_plan(context, fewest_peers(test_world));
    }
}

int main(int argc, char **argv) {
    setenv("LIERNE_TRANSPORTS", "mpi", 1);
    return test_main(&argc, &argv, run);
}
