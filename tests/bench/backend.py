"""The backend of torch.distributed beside gloo: medians of collectives, in turns, and their ratio.
Usage: torchrun --nproc-per-node N tests/bench/backend.py [ROUNDS]"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import lierne.torch.backend

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 21
SIZES = [1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]


def calls(nbytes, group):
    """name -> a call on nbytes of this rank's data."""
    n, count = dist.get_world_size(), nbytes // 4 // dist.get_world_size() * dist.get_world_size()
    data, part, out = torch.randn(count), torch.randn(count // n), torch.empty(count)
    return {"all_reduce": lambda: dist.all_reduce(data.fill_(1), group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(out, part, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, data, group=group),
            "all_to_all": lambda: dist.all_to_all_single(out, data, group=group)}


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def slowest(values, group):
    """Of each call, the time of the rank that took longest."""
    all_of_ranks = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(all_of_ranks, dist.ReduceOp.MAX, group)
    return all_of_ranks.tolist()


def main():
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "lierne": dist.new_group(backend="lierne")}
    if dist.get_rank() == 0:
        print("ranks,collective,bytes,gloo us,lierne us,ratio")
    for nbytes in SIZES:
        table = {name: calls(nbytes, group) for name, group in groups.items()}
        for what in table["gloo"]:
            times = {name: [] for name in groups}
            for i in range(ROUNDS + 2 if nbytes < 8 << 20 else ROUNDS // 3 + 2):
                for name in groups:
                    dist.barrier()
                    taken = seconds(table[name][what])
                    if i >= 2:
                        times[name].append(taken)
            medians = {name: statistics.median(slowest(t, groups["gloo"])) * 1e6 for name, t in times.items()}
            if dist.get_rank() == 0:
                print(dist.get_world_size(), what, nbytes, f"{medians['gloo']:.0f}", f"{medians['lierne']:.0f}",
                      f"{medians['gloo'] / medians['lierne']:.2f}", sep=",", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
