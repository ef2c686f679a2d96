/* Ranks that are threads: all of them are in this process, so results need no messages to be
 * combined. */
#include "rank_threads.h"
#include "row_case.h"
#include "streams.h"
#include "transports.h"

lierne_status golden_ranks_start(golden_world *world) {
    lierne_context_spec spec = {.size = sizeof spec, .timeout = 120};
    world->here = world->n;
    lierne_status status = lierne_sim_create(&world->sim, world->n, &spec);
    if (status == LIERNE_OK) {
        world->transports = test_transports_connect_asked(world->sim, world->n);
        world->streams = test_streams_attach_asked(world->sim, world->n);
    }
    return status;
}

lierne_status golden_ranks_end(golden_world *world) {
    lierne_status status = lierne_sim_destroy(world->sim);
    test_streams_destroy(world->streams);
    bool empty = test_transports_destroy(world->transports);
    return empty ? status : LIERNE_ERR_TRANSPORT;
}

void golden_ranks_run(const golden_world *world,
                      void (*work)(lierne_context *context, void *shared), void *shared) {
    rank_threads(world->sim, world->n, work, shared);
}
