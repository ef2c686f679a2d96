"""What the programs of the package share: grids of golden files, calls that overlap, ranks of a node."""
import os
import threading

import lierne


def grid_of(case, world):
    return lierne.Grid(dict(zip(case["dim_names"], case["shape"])), case["rank_offset"], world)


def begin_all(plans, data, direction="forward"):
    requests = [plan.begin(x, direction=direction) for plan, x in zip(plans, data)]
    return [request.wait() for request in requests]


def on_node(n, function):
    """Calls function(context) on n ranks of this node, in threads that meet as processes do."""
    on_node.number = getattr(on_node, "number", 0) + 1
    name, results, errors = f"lierne-python-{os.getpid()}-{on_node.number}", [None] * n, []

    def rank(r):
        try:
            with lierne.Context.node(r, n, name, timeout=30) as context:
                results[r] = function(context)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
