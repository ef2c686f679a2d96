"""Samples of lierne.torch beside the recipe of the encoder balancing of today, over gloo: counts and lengths
are gathered, the longest go first to the lowest load, rows move by all-to-all, and results back.

    PYTHONPATH=build/python torchrun --nproc-per-node 4 tests/bench/samples.py [--csv]

Methods take turns. Prints milliseconds of the slowest rank, medians over the rounds: of the assignment, of a whole
step (assignment, dispatch, return and the backward of both, nothing computed in between), and how many times as long
the recipe takes. Both move with the same assignment (lpt); a third line moves only what must move."""
import sys
import time

import numpy as np
import torch
import torch.distributed as dist

import lierne.torch

ROUNDS, ITEMS, WIDTH = 31, 30, 256


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, sends, receives):
        ctx.counts = sends, receives
        out = rows.new_empty(sum(receives), rows.shape[1])
        dist.all_to_all_single(out, rows, receives, sends)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sends, receives = ctx.counts
        out = gradient.new_empty(sum(sends), gradient.shape[1])
        dist.all_to_all_single(out, gradient.contiguous(), sends, receives)
        return out, None, None


class Recipe:
    """A step by hand."""

    def __init__(self, _):
        self.rank, self.n = dist.get_rank(), dist.get_world_size()

    def assign(self, lengths):
        self.parts = self.find_parts(lengths)

    def find_parts(self, lengths):
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.n)]
        dist.all_gather(counts, torch.tensor([len(lengths)]))
        gathered = [torch.zeros(int(c), dtype=torch.int64) for c in counts]
        dist.all_gather(gathered, torch.as_tensor(lengths))
        table = [(int(rows), home, i) for home, own in enumerate(gathered) for i, rows in enumerate(own)]
        loads, parts = [0] * self.n, [[] for _ in range(self.n)]
        for entry in sorted(table, key=lambda e: -e[0]):
            to = loads.index(min(loads))
            loads[to] += entry[0]
            parts[to].append(entry)
        return parts

    def move(self, x, lengths):
        parts = self.parts
        pieces = x.split([int(n) for n in lengths])
        mine = [[e for e in part if e[1] == self.rank] for part in parts]
        sends = [sum(e[0] for e in part) for part in mine]
        receives = [sum(e[0] for e in parts[self.rank] if e[1] == home) for home in range(self.n)]
        moved = Exchange.apply(torch.cat([pieces[e[2]] for part in mine for e in part]), sends, receives)
        back = Exchange.apply(moved, receives, sends)
        order = [e for part in mine for e in part]
        chunks = dict(zip((e[2] for e in order), back.split([e[0] for e in order])))
        return torch.cat([chunks[i] for i in range(len(lengths))])


class Samples:
    mode = "lpt"

    def __init__(self, context):
        self.samples = lierne.torch.Samples(context, [(WIDTH, torch.float32)], [(WIDTH, torch.float32)],
                                            max_items=ITEMS, max_rows=40 * 500 * dist.get_world_size())

    def assign(self, lengths):
        self.samples.update(lengths, lengths, mode=self.mode)

    def move(self, x, _):
        return self.samples.ret(self.samples.dispatch(x))


class Shed(Samples):
    mode = "shed"


def slowest(seconds):
    took = torch.tensor(seconds)
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return took.tolist()


def run_step(method, x, lengths, gradient):
    """Seconds of the assignment, and of the whole step."""
    x.grad = None
    dist.barrier()
    start = time.perf_counter()
    method.assign(lengths)
    assigned = time.perf_counter() - start
    out = method.move(x, lengths)
    out.backward(gradient)
    times = slowest([assigned, time.perf_counter() - start])
    assert torch.equal(out, x) and torch.equal(x.grad, gradient)
    return times


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    generator = np.random.default_rng(dist.get_rank())
    lengths = np.clip(np.exp(generator.normal(6, 0.7, ITEMS)), 1, 2000).astype(np.int64)
    x, gradient = (torch.from_numpy(generator.normal(size=(lengths.sum(), WIDTH)).astype(np.float32)) for _ in range(2))
    x.requires_grad_()
    with lierne.torch.context(over="node") as context:
        names = "recipe over gloo, lpt", "lierne, lpt", "lierne, shed"
        methods = [kind(context) for kind in (Recipe, Samples, Shed)]
        times = [[run_step(method, x, lengths, gradient) for method in methods] for _ in range(ROUNDS + 2)]
    medians = 1e3 * np.median(np.array(times[2:]), axis=0)
    csv = "--csv" in sys.argv[1:]
    for name, (assigned, step) in zip(names, medians):
        if dist.get_rank() == 0:
            print(f"{dist.get_world_size()},\"{name}\",{assigned:.2f},{step:.2f},{medians[0][1] / step:.2f}" if csv else
                  f"{name:24} {assigned:9.2f} ms {step:9.2f} ms {medians[0][1] / step:6.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
