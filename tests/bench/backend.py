"""The backend of torch.distributed beside gloo: the time of a call, of the slowest rank, and their ratio. A turn makes
as many calls one after another as take gloo about 4 ms, at least one, and counts its time over them; gloo and lierne
take turns, and the median turn counts. Two bounds take part, in which no rank waits for another: "by hand", the system
copies what a rank needs out of the others' memory (process_vm_readv) and torch adds it, and "copy", all ranks copy half
as many bytes as they must read and write at least. gloo's time over such a bound is the most that a ratio can be.
Usage: torchrun --nproc-per-node N tests/bench/backend.py [ROUNDS [MEBIBYTES,...]]"""
import ctypes
import functools
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import lierne.torch.backend

TURN = 20e-3  # seconds
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 21
SIZES = [1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
if len(sys.argv) > 2:
    SIZES = [int(float(size) * (1 << 20)) for size in sys.argv[2].split(",")]


class Run(ctypes.Structure):
    """struct iovec"""
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def pull(process, address, to):
    """A call that reads a tensor from an address of another process."""
    read, nbytes = ctypes.CDLL(None, use_errno=True).process_vm_readv, to.numel() * to.element_size()
    read.restype = ctypes.c_ssize_t
    arguments = process, ctypes.byref(Run(to.data_ptr(), nbytes)), 1, ctypes.byref(Run(address, nbytes)), 1, 0

    def call():
        if read(*arguments) != nbytes:
            raise OSError(ctypes.get_errno(), "process_vm_readv")
    return call


def by_hand(data, part, out):
    """collective -> a call that moves its bytes, whoever is ready"""
    n, rank = dist.get_world_size(), dist.get_rank()
    size, everyone = part.numel() * part.element_size(), [None] * n
    dist.all_gather_object(everyone, (os.getpid(), data.data_ptr(), part.data_ptr()))
    peers = [peer for peer in range(n) if peer != rank]
    whole, mine, scratch = out.view(n, -1), data.view(n, -1), torch.zeros(n, part.numel())
    theirs = {peer: everyone[peer][1] + rank * size for peer in peers}
    gathers = [pull(everyone[peer][0], everyone[peer][2], whole[peer]) for peer in peers]
    exchanges = [pull(everyone[peer][0], theirs[peer], whole[peer]) for peer in peers]
    contributions = [pull(everyone[peer][0], theirs[peer], scratch[peer]) for peer in peers]
    results = [pull(everyone[peer][0], everyone[peer][1] + peer * size, mine[peer]) for peer in peers]

    def run(pulls, to, source, total=None):
        to.copy_(source)
        for each in pulls:
            each()
        if total is not None:
            torch.sum(scratch, 0, out=total)

    def all_reduce():
        run(contributions, scratch[rank], mine[rank], mine[rank])
        for each in results:
            each()
    return {"all_reduce": all_reduce, "all_gather": lambda: run(gathers, whole[rank], part),
            "reduce_scatter": lambda: run(contributions, scratch[rank], mine[rank], part),
            "all_to_all": lambda: run(exchanges, whole[rank], mine[rank])}


def calls(nbytes):
    """method -> collective -> a call on so many bytes"""
    n, count = dist.get_world_size(), nbytes // 4 // dist.get_world_size() * dist.get_world_size()
    # Zeros: their sum over many calls stays what it is.
    data, part, out = (torch.empty(size).fill_(0) for size in (count, count // n, count))

    def of(group):
        return {"all_reduce": lambda: dist.all_reduce(data, group=group),
                "all_gather": lambda: dist.all_gather_into_tensor(out, part, group=group),
                "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, data, group=group),
                "all_to_all": lambda: dist.all_to_all_single(out, data, group=group)}

    # Read and written, of the whole: all parts of one's own and one's own of all; then the others' parts.
    moved = {"all_reduce": (1 + 1 / n) + 2 * (n - 1) / n, "all_gather": 2, "reduce_scatter": 1 + 1 / n, "all_to_all": 2}
    bounds = {}
    for what, times in moved.items():
        source, target = (torch.empty(int(count * times / 2)).fill_(1) for _ in range(2))
        bounds[what] = functools.partial(target.copy_, source)
    return {"gloo": of(dist.group.WORLD), "lierne": of(OWN), "by hand": by_hand(data, part, out), "copy": bounds}


def seconds(call, times):
    """Of a call, where so many run one after another."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def slowest(values):
    """Of each value, that of the rank where it is largest."""
    all_of_ranks = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(all_of_ranks, dist.ReduceOp.MAX)
    return all_of_ranks.tolist()


def number(call, least):
    """How many calls fill a turn: as many on every rank."""
    seconds(call, 2)  # a first call plans
    return max(least, int(TURN / slowest([seconds(call, 5)])[0]))


def measure(table, what, rounds, least):
    """method -> median of its turns, in microseconds"""
    methods = [(its[what], number(its[what], least)) for its in table.values()]
    taken = [[seconds(*method) for method in methods] for _ in range(rounds)]
    return {name: 1e6 * statistics.median(slowest(t)) for name, t in zip(table, zip(*taken))}


def main():
    first = dist.get_rank() == 0
    if first:
        print("ranks,collective,bytes,gloo us,lierne us,by hand us,copy us,ratio,most by hand,most by copy")
    for nbytes in SIZES:
        table = calls(nbytes)
        for what in table["gloo"]:
            found = measure(table, what, *((ROUNDS, 5) if nbytes < 8 << 20 else (max(3, ROUNDS // 3), 1)))
            if first:
                print(dist.get_world_size(), what, nbytes, *(f"{found[name]:.0f}" for name in table),
                      *(f"{found['gloo'] / found[other]:.2f}" for other in ("lierne", "by hand", "copy")), sep=",", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    OWN = dist.new_group(backend="lierne")
    main()
