/* A failed check ends the test, with what the library last said. */
#include "unit/ranks.h"

#include "base/base.h"
#include "rank_threads.h"
#include "streams.h"
#include "transports.h"

#include <criterion/criterion.h>

void ranks_run(int world, const lierne_context_spec *spec,
               void (*work)(lierne_context *context, void *shared), void *shared) {
    lierne_sim *sim;
    size_t live = lierne_mem_live();
    cr_assert_eq(lierne_sim_create(&sim, world, spec), LIERNE_OK, "%s", lierne_last_error());
    test_transports *transports = test_transports_attach_asked(sim, world);
    test_streams *streams = test_streams_attach_asked(sim, world);
    rank_threads(sim, world, work, shared);
    cr_assert_eq(lierne_sim_destroy(sim), LIERNE_OK, "%s", lierne_last_error());
    test_transports_destroy(transports);
    test_streams_destroy(streams);
    cr_assert_eq(lierne_mem_live(), live, "%zu allocations are left", lierne_mem_live() - live);
}
