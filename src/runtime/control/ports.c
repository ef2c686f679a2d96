#include "runtime/control/ports.h"
#include "runtime/control/reach.h"

#include <stdlib.h>
#include <unistd.h>

static lierne_status reserve(lierne_ports *ports, int world) {
    LIERNE_TRY(lierne_alloc(&ports->addresses, (size_t)world, sizeof *ports->addresses));
    LIERNE_TRY(lierne_alloc(&ports->check, 1, sizeof *ports->check));
    ports->check->world = world;
    return lierne_reach_open(ports->check);
}

lierne_status lierne_ports_open(lierne_ports *ports, lierne_address *own, int world) {
    const char *text = getenv("LIERNE_ADDRESS");
    lierne_status status = LIERNE_OK;
    *ports = (lierne_ports){.listener = -1};
    *own = (lierne_address){0};
    if (text && *text) {
        LIERNE_TRY(reserve(ports, world));
        ports->listener = lierne_port_listen(own, text, &status);
    }
    return status;
}

void lierne_ports_close(lierne_ports *ports) {
    if (ports->listener >= 0) {
        close(ports->listener);
    }
    if (ports->check) {
        lierne_reach_close(ports->check);
    }
    lierne_mem_free(ports->check);
    lierne_mem_free(ports->addresses);
    *ports = (lierne_ports){.listener = -1};
}

/* Who connects to a rank to find out whether it is reached: the next one of another node. */
static int checker_of(const lierne_rank_info *infos, int rank, int world) {
    int checker = (rank + 1) % world;
    while (infos[checker].node == infos[rank].node) {
        checker = (checker + 1) % world;
    }
    return checker;
}

static bool all_done(const lierne_reach *reach) {
    for (int r = 0; r < reach->world; r++) {
        if (!lierne_reach_done(reach, r)) {
            return false;
        }
    }
    return true;
}

/* A rank that ends meanwhile is found by whoever waits for it next. */
static bool check_port(const lierne_ports *ports, const lierne_ports_ranks *ranks) {
    lierne_reach *reach = ports->check;
    int checker = checker_of(ranks->infos, ranks->rank, ranks->world);
    lierne_deadline deadline;
    lierne_deadline_start(&deadline, ranks->timeout / 2, lierne_now());
    bool good = true, ended = false;
    reach->listener = ports->listener;
    reach->addresses = ports->addresses;
    reach->rank = ranks->rank;
    reach->purpose = LIERNE_REACH_CHECK;
    for (int r = 0; r < ranks->world; r++) {
        reach->peers[r].to =
            r != ranks->rank && checker_of(ranks->infos, r, ranks->world) == ranks->rank;
        reach->peers[r].from = r == checker;
    }
    while (good && !ended && !all_done(reach) && !lierne_deadline_passed(&deadline, lierne_now())) {
        good = lierne_reach_step(reach, 10) == LIERNE_OK;
        ended = ranks->alive(ranks->state, checker) != LIERNE_OK;
    }
    return good && (ended || reach->peers[checker].in >= 0);
}

lierne_status lierne_ports_meet(lierne_ports *ports, const lierne_ports_ranks *ranks,
                                bool *reached) {
    const lierne_rank_info *infos = ranks->infos;
    int count = 0, without = -1, world = ranks->world;
    bool one_node = true;
    for (int r = 0; r < world; r++) {
        count += infos[r].address.port != 0;
        without = without < 0 && infos[r].address.port == 0 ? r : without;
        one_node = one_node && infos[r].node == infos[0].node;
    }
    *reached = true;
    if (count == 0) {
        return LIERNE_OK;
    }
    if (count < world) {
        return LIERNE_FAIL(LIERNE_ERR_INVALID,
                           "LIERNE_ADDRESS is set on %d of %d ranks, not on rank %d: set it on all "
                           "or on none",
                           count, world, without);
    }
    for (int r = 0; r < world; r++) {
        ports->addresses[r] = infos[r].address;
    }
    *reached = one_node || check_port(ports, ranks);
    lierne_reach_close(ports->check);
    lierne_mem_free(ports->check);
    ports->check = NULL;
    return LIERNE_OK;
}

lierne_status lierne_ports_not_reached(int rank, bool reached) {
    return reached
               ? LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: another rank is not reached at its LIERNE_ADDRESS from "
                             "another node: it has the reason",
                             rank)
               : LIERNE_FAIL(LIERNE_ERR_INVALID,
                             "rank %d: no rank of another node reaches it at its LIERNE_ADDRESS, "
                             "%.60s: set it to one that they reach, or do not set it",
                             rank, getenv("LIERNE_ADDRESS"));
}
