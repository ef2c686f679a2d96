/* A failed check ends the test, with what the library last said. */
#include "unit/ranks.h"
#include "unit/expect.h"

#include "base/base.h"
#include "oob_ranks.h"
#include "rank_threads.h"
#include "streams.h"
#include "transports.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

void ranks_run(int world, const lierne_context_spec *spec,
               void (*work)(lierne_context *context, void *shared), void *shared) {
    const char *contexts = getenv("LIERNE_TEST_CONTEXTS");
    lierne_sim *sim;
    size_t live = lierne_mem_live();
    if (contexts && (!spec || !spec->members)) {
        oob_ranks_run(strcmp(contexts, "node") == 0 ? OOB_NODE : OOB_CALLS, world, spec, work,
                      shared);
        cr_assert_eq(lierne_mem_live(), live, "%zu allocations are left", lierne_mem_live() - live);
        return;
    }
    assert_ok(lierne_sim_create(&sim, world, spec));
    int members = spec && spec->members ? spec->nmembers : world;
    test_transports *transports = test_transports_connect_asked(sim, members);
    test_streams *streams = test_streams_attach_asked(sim, world);
    rank_threads(sim, world, work, shared);
    assert_ok(lierne_sim_destroy(sim));
    test_transports_destroy(transports);
    test_streams_destroy(streams);
    cr_assert_eq(lierne_mem_live(), live, "%zu allocations are left", lierne_mem_live() - live);
}
