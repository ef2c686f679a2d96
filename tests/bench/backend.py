"""The backend of torch.distributed beside gloo: medians of collectives, in turns, and their ratio. In the same turns all
ranks copy as many bytes as their results have: no way to fill these takes less time once no cache holds them.
Usage: torchrun --nproc-per-node N tests/bench/backend.py [ROUNDS]"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import lierne.torch.backend

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 21
SIZES = [1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]


def calls(nbytes):
    """(this rank's data, method -> collective -> a call on so many bytes of it)"""
    n, count = dist.get_world_size(), nbytes // 4 // dist.get_world_size() * dist.get_world_size()
    data, part, out = torch.randn(count), torch.randn(count // n), torch.empty(count)

    def of(group):
        return {"all_reduce": lambda: dist.all_reduce(data, group=group),
                "all_gather": lambda: dist.all_gather_into_tensor(out, part, group=group),
                "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, data, group=group),
                "all_to_all": lambda: dist.all_to_all_single(out, data, group=group)}

    copies = dict.fromkeys(("all_reduce", "all_gather", "all_to_all"), lambda: out.copy_(data))
    copies["reduce_scatter"] = lambda: part.copy_(data[:count // n])
    return data, {"gloo": of(dist.group.WORLD), "lierne": of(OWN), "copy": copies}


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def slowest(values):
    """Of each call, the time of the rank that took longest."""
    all_of_ranks = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(all_of_ranks, dist.ReduceOp.MAX)
    return all_of_ranks.tolist()


def measure(data, table, what, rounds):
    """method -> median of its calls, in microseconds"""
    times = {name: [] for name in table}
    for i in range(rounds + 2):
        for name, its in table.items():
            data.fill_(1)  # an all-reduce would reach infinity
            dist.barrier()
            taken = seconds(its[what])
            if i >= 2:
                times[name].append(taken)
    return {name: 1e6 * statistics.median(slowest(t)) for name, t in times.items()}


def main():
    first = dist.get_rank() == 0
    if first:
        print("ranks,collective,bytes,gloo us,lierne us,copy us,ratio")
    for nbytes in SIZES:
        data, table = calls(nbytes)
        for what in table["gloo"]:
            found = measure(data, table, what, ROUNDS if nbytes < 8 << 20 else ROUNDS // 3)
            if first:
                print(dist.get_world_size(), what, nbytes, *(f"{found[name]:.0f}" for name in table),
                      f"{found['gloo'] / found['lierne']:.2f}", sep=",", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    OWN = dist.new_group(backend="lierne")
    main()
