"""lierne.megatron's call against lierne.torch's and against the reference's own recipe over gloo, on the
same ranks and in turns (A B A B), forward and backward through autograd.

    PYTHONPATH=build/python torchrun --nproc-per-node 8 tests/bench/megatron.py [ROUNDS]

The recipe is Megatron-LM's: an all-gather over the gather group where the source has more dp ranks, its
transpose where the destination has, and before that a sum of the gradient over cp. Prints medians in
milliseconds of the slowest rank, and the median over the rounds of the ratio of two neighbours: above
1 the drop-in is faster."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import lierne.torch
from lierne.megatron import BridgeDirection, ColocatedBridgeCommunicator, HyperCommGrid

DIMS = ["tp", "cp", "pp", "dp"]
PAIRS = {  # source and destination: tp, cp, pp, dp
    8: {"fan-in": ([2, 1, 1, 4], [4, 1, 1, 2]), "fan-out": ([4, 1, 1, 2], [2, 1, 1, 4]),
        "fan-in cp2": ([2, 1, 1, 4], [2, 2, 1, 2]), "fan-out cp2": ([4, 1, 1, 2], [1, 2, 1, 4]),
        "equal cp2": ([4, 1, 1, 2], [2, 2, 1, 2])},
    4: {"fan-in": ([1, 1, 1, 4], [2, 1, 1, 2]), "fan-out": ([2, 1, 1, 2], [1, 1, 1, 4]),
        "fan-in cp2": ([1, 1, 1, 4], [1, 2, 1, 2]), "fan-out cp2": ([4, 1, 1, 1], [1, 2, 1, 2])},
}
SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26]  # bytes of the larger dp side's input, f32
SEQUENCE, HIDDEN = 8, 8


class Recipe(torch.autograd.Function):
    @staticmethod
    def gathered(tensor, group):
        out = tensor.new_empty((tensor.shape[0] * group.size(), *tensor.shape[1:]))
        dist.all_gather_into_tensor(out, tensor.contiguous(), group=group)
        return out

    @staticmethod
    def narrowed(bridge, tensor):
        part = bridge.get_slice_info(tensor.shape[0])
        return tensor.narrow(0, part.start, part.size).contiguous()

    @staticmethod
    def forward(ctx, tensor, bridge):
        ctx.bridge = bridge
        if bridge.is_fan_in():
            return Recipe.gathered(tensor, bridge.gather_pg)
        return Recipe.narrowed(bridge, tensor) if bridge.is_fan_out() else tensor.contiguous()

    @staticmethod
    def backward(ctx, gradient):
        bridge = ctx.bridge
        if bridge.dest_cp_pg is not None:
            gradient = gradient.contiguous().clone()
            dist.all_reduce(gradient, group=bridge.dest_cp_pg)
        if bridge.direction is BridgeDirection.EQUAL:
            return gradient.contiguous(), None
        if bridge.is_fan_out():
            return Recipe.gathered(gradient, bridge.gather_pg), None
        return Recipe.narrowed(bridge, gradient), None


def timed(call, x, g):
    x = x.detach().requires_grad_()
    dist.barrier()
    start = time.perf_counter()
    call(x).backward(g)
    return time.perf_counter() - start


def rounds(ways, x, g, n):
    """Times of every way, in turns; the slowest rank's."""
    times = torch.zeros(n, len(ways), dtype=torch.float64)
    for i in range(-2, n):
        for k, way in enumerate(ways):
            took = timed(way, x, g)
            times[max(i, 0), k] = took
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


def measure(pair, size, n):
    grids = [HyperCommGrid(shape, DIMS) for shape in pair]
    if grids[1].shape[1] > 1:
        grids[1].create_pg("cp")
    bridge = ColocatedBridgeCommunicator(*grids)
    few = max(2, bridge.scale) * (bridge.scale if bridge.is_fan_out() else 1)
    row = SEQUENCE * HIDDEN * 4
    batch = max(few, size // row // few * few)
    hidden = HIDDEN if batch * row >= size else size // (batch * SEQUENCE * 4)
    x = torch.randn(batch, SEQUENCE, hidden)
    whole = (batch * bridge.src_dp_size, SEQUENCE, hidden)
    with lierne.torch.context(timeout=60) as context:
        own = lierne.torch.Bridge(context, grids[0].grid, grids[1].grid, whole, torch.float32)
        g = torch.randn(own.shapes()[1])
        drop_in = bridge.communicate
        times = rounds((drop_in, lambda t: Recipe.apply(t, bridge), drop_in, own), x, g, n)
    bridge.destroy()
    columns = list(zip(*times))
    return ([1e3 * statistics.median(c) for c in (columns[0], columns[3], columns[1])],
            statistics.median(a / b for a, _, _, b in times),
            statistics.median(b / a for a, b, _, _ in times))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    first = dist.get_rank() == 0
    if first:
        print("pair            bytes   drop-in  lierne.torch   recipe  drop-in/torch  recipe/drop-in")
    ratios = []
    for name, pair in PAIRS[dist.get_world_size()].items():
        for size in SIZES:
            (ours, own, recipe), over, gain = measure(pair, size, n if size < 1 << 24 else max(5, n // 3))
            ratios.append((over, gain))
            if first:
                print(f"{name:12s} {size:8d} {ours:9.3f} {own:13.3f} {recipe:8.3f} {over:14.2f} {gain:15.2f}",
                      flush=True)
    if first:
        print("median ratios:", *(f"{statistics.median(r):.2f}" for r in zip(*ratios)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
