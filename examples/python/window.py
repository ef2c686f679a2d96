# An all-gather and a reduce-scatter of your own, in a window of the node's memory: no messages, one
# barrier a round. torchrun --nproc-per-node 4 window.py
import numpy as np

import lierne

with lierne.Context.node() as context:
    rank, n, count = context.rank, context.world_size, 6
    j = np.arange(n * count)
    with lierne.Window(context, n * count, "f64") as window:
        for step in range(100):  # two buffers take turns, so no rank waits before it writes
            window.writable()[:] = 100 * rank + j + step  # element j of rank r: 100 r + j + step
            window.notify()
            window.wait()
            everyone = np.concatenate([window.readable(r)[:count] for r in range(n)])
            mine = slice(rank * count, (rank + 1) * count)
            total = sum(window.readable(r)[mine] for r in range(n))  # in the order of the ranks

            assert np.array_equal(everyone, 100 * (j // count) + j % count + step)
            assert np.array_equal(total, n * (j[mine] + step) + 50 * n * (n - 1))
    print(f"rank {rank}: gathered {everyone.size} elements, its share of the sums is {total.tolist()}")
