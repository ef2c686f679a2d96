"""What a call costs in Python beside the same call of C, and over torch.distributed beside the messages themselves:

    torchrun --standalone --nproc-per-node 2 tests/bench/calls.py [--csv]

Two ranks gather each other's halves. The methods of a group take turns, 200 calls each; of a turn the median call
counts, since one that the system keeps waiting takes as long as twenty, and of 41 turns the median, of the slower rank.
The process time of a turn stands beside it, over its calls. lierne.torch allocates its output, the others write into one
that is there."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne._library import ffi, lib

TURNS, CALLS, SIZES = 41, 200, {"1 KiB": 1 << 8, "64 KiB": 1 << 14, "1 MiB": 1 << 18}


def layouts(elements):
    grid = lierne.Grid({"dp": 2})
    return (lierne.Layout(grid, (elements,), "f32", {"dp": lierne.Shard(0)}), lierne.Layout(grid, (elements,), "f32", {}))


def messages(rank, half, whole):
    """What both transports move, by hand: the own half is copied, the other one received."""
    own, other = whole.chunk(2)[rank], whole.chunk(2)[1 - rank]

    def call():
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, half, 1 - rank),
                                        dist.P2POp(dist.irecv, other, 1 - rank)])
        own.copy_(half)
        for work in works:
            work.wait()
    return call


def methods(elements, contexts):
    """{group: {name: call}}, the first of each group what the others are beside."""
    rank = dist.get_rank()
    half = torch.arange(elements // 2, dtype=torch.float32) + rank * (elements // 2)
    whole = torch.empty(elements)
    node, routed = contexts
    plan = lierne.Redistribute(node, *layouts(elements))
    out, data = ffi.cast("void *", whole.data_ptr()), ffi.cast("void *", half.data_ptr())
    moves = [lierne.torch.Redistribute(context, *layouts(elements)) for context in contexts]
    arrays = half.numpy(), whole.numpy()
    for move in moves:
        assert torch.equal(move(half), torch.arange(elements, dtype=torch.float32))
    return {"over the node": {"C": lambda: lib.lierne_plan_forward(plan._handle, out, data, ffi.NULL),
                              "numpy arrays": lambda: plan.forward(arrays[0], arrays[1]),
                              "tensors": lambda: plan.forward(half, whole),
                              "lierne.torch": lambda: moves[0](half)},
            "over torch.distributed": {"batch_isend_irecv": messages(rank, half, whole),
                                       "lierne.torch": lambda: moves[1](half)}}


def turn(call):
    """(seconds, process seconds) of a call, of the slower rank."""
    dist.barrier()
    times, busy = [time.perf_counter()], time.process_time()
    for _ in range(CALLS):
        call()
        times.append(time.perf_counter())
    usual = statistics.median(after - before for before, after in zip(times, times[1:]))
    taken = torch.tensor([usual, (time.process_time() - busy) / CALLS], dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return taken.tolist()


def measure(calls):
    """Medians of each method of a group, in microseconds."""
    taken = {name: [] for name in calls}
    for call in calls.values():
        turn(call)
    for _ in range(TURNS):
        for name, call in calls.items():
            taken[name].append(turn(call))
    return {name: [1e6 * statistics.median(column) for column in zip(*rows)] for name, rows in taken.items()}


def show(size, way, found, csv):
    """A line per method; how much longer it takes than the first one."""
    base = next(iter(found.values()))[0]
    for name, (wall, cpu) in found.items():
        print(f"{size},{way},{name},{wall:.1f},{cpu:.1f},{wall - base:.1f}" if csv else
              f"{size:7} {way:23} {name:18} {wall:9.1f} us, {cpu:9.1f} of a core, {wall - base:+9.1f} us", flush=True)


def main():
    dist.init_process_group("gloo")
    csv, first = "--csv" in sys.argv, dist.get_rank() == 0
    torch.set_num_threads(1)
    if csv and first:
        print("size,way,method,microseconds,cpu_microseconds,more_than_first")
    with lierne.torch.context(over="node") as node, lierne.torch.context() as routed:
        for size, elements in SIZES.items():
            for way, calls in methods(elements, (node, routed)).items():
                found = measure(calls)
                if first:
                    show(size, way, found, csv)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
