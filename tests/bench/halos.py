"""Dense halos of lierne beside what frameworks do today over gloo: isend and irecv of slices, then cat; and an
all-gather, of which every rank keeps its part with margins. The adjoint sends the margins' gradients back and adds
them, or sums whole gradients and keeps the part.

    PYTHONPATH=build/python torchrun --nproc-per-node 4 tests/bench/halos.py

Methods take turns and are compared. Prints milliseconds of the slowest rank, medians over the rounds, of forward,
adjoint and both, as CSV. lierne works over shared memory, in memory of its context."""
import time

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch

ROUNDS = 15
WORKLOADS = {"field 512 x 512 x 64 f32": ((512, 512 * 64), 0), "image 1 x 128 x 512 x 512 f32": ((128, 512, 512), 1)}


class Recipe:
    """A part of an axis, one element of the neighbours on both sides, nothing beyond the axis."""

    def __init__(self, context, shape, axis):
        self.axis, self.rank, self.n = axis, dist.get_rank(), dist.get_world_size()
        self.loads, self.checks = "x", False
        self.size = shape[axis] // self.n
        self.below, self.above = self.rank > 0, self.rank + 1 < self.n

    def slice(self, x, start, length):
        return x.narrow(self.axis, start, length).contiguous()


class PointToPoint(Recipe):
    def swap(self, down, up):
        """Sends to the neighbours, and what they send."""
        got, works = [None, None], []
        for i, (peer, there, data) in enumerate(((self.rank - 1, self.below, down), (self.rank + 1, self.above, up))):
            if there:
                got[i] = torch.empty_like(data)
                works += [dist.isend(data, peer), dist.irecv(got[i], peer)]
        for work in works:
            work.wait()
        return got

    def forward(self, x):
        below, above = self.swap(self.slice(x, 0, 1), self.slice(x, self.size - 1, 1))
        return torch.cat([part for part in (below, x, above) if part is not None], self.axis)

    def adjoint(self, g):
        first = int(self.below)
        down = self.slice(g, 0, 1) if self.below else None
        up = self.slice(g, g.shape[self.axis] - 1, 1) if self.above else None
        x = g.narrow(self.axis, first, self.size).clone()
        below, above = self.swap(down, up)
        if below is not None:
            x.narrow(self.axis, 0, 1).add_(below)
        if above is not None:
            x.narrow(self.axis, self.size - 1, 1).add_(above)
        return x


class AllGather(Recipe):
    def window(self):
        start = self.rank * self.size - self.below
        return start, self.size + self.below + self.above

    def forward(self, x):
        parts = [torch.empty_like(x) for _ in range(self.n)]
        dist.all_gather(parts, x)
        return self.slice(torch.cat(parts, self.axis), *self.window())

    def adjoint(self, g):
        shape = list(g.shape)
        shape[self.axis] = self.size * self.n
        whole = g.new_zeros(shape)
        whole.narrow(self.axis, *self.window()).copy_(g)
        dist.all_reduce(whole)
        return self.slice(whole, self.rank * self.size, self.size)


class Lierne(Recipe):
    """Padded, out of place."""
    storage = "padded"

    def __init__(self, context, shape, axis):
        super().__init__(context, shape, axis)
        grid = lierne.Grid({"n": self.n})
        halo = lierne.DenseHalo(axis, lo=1, hi=1)
        cut = {"n": lierne.Shard(axis)}
        self.plain = lierne.Layout(grid, shape, "f32", cut)
        self.halo = lierne.Layout(grid, shape, "f32", cut, halos=[halo], halo_storage=self.storage)
        self.plan = lierne.Redistribute(context, *self.sides(), **self.options())
        (part, padded) = self.plan.shapes()
        self.part, self.padded = self.buffers(context, part, padded)

    def options(self):
        return {}

    def sides(self):
        return self.plain, self.halo

    def buffers(self, context, part, padded):
        return context.empty(part, "f32"), context.empty(padded, "f32")

    def load(self, x, g):
        self.part[...] = x.numpy().reshape(self.part.shape)
        self.padded[...] = g.numpy()

    def forward(self, x):
        self.plan.forward(self.part, self.padded)
        return torch.from_numpy(self.padded)

    def adjoint(self, g):
        self.plan.adjoint(self.padded, self.part)
        return torch.from_numpy(self.part)


class InPlace(Lierne):
    def sides(self):
        return self.halo, self.halo

    def buffers(self, context, part, padded):
        buffer = context.empty(padded, "f32")
        return buffer, buffer

    def core(self):
        return torch.from_numpy(self.padded).narrow(self.axis, int(self.below), self.size)

    def load(self, x, g):
        self.padded[...] = g.numpy()
        if self.loads == "x":
            self.padded[...] = -1
            self.core().copy_(x)

    def adjoint(self, g):
        self.plan.adjoint(self.padded, self.part)
        return self.core()


class Margins(Lierne):
    """Margins alone; their gradients are added to the part's."""
    storage = "margins"

    def options(self):
        return {"accumulate": True}

    def load(self, x, g):
        first = int(self.below)
        self.part[...] = (x if self.loads == "x" else self.slice(g, first, self.size)).numpy()
        ends = [self.slice(g, i, 1) for i, there in ((0, self.below), (g.shape[self.axis] - 1, self.above)) if there]
        self.padded[...] = torch.cat([end.reshape(-1) for end in ends]).numpy().reshape(self.padded.shape)

    def forward(self, x):
        self.plan.forward(self.part, self.padded)
        ends = torch.from_numpy(self.padded).reshape(-1).chunk(self.below + self.above)
        shape = list(x.shape)
        shape[self.axis] = 1
        ends = [end.reshape(shape) for end in ends]
        return torch.cat(ends[:self.below] + [x] + ends[self.below:], self.axis) if self.checks else None


def slowest(call, *arguments):
    dist.barrier()
    start = time.perf_counter()
    result = call(*arguments)
    took = torch.tensor([time.perf_counter() - start])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return 1e3 * float(took), result


def check(method, x, g, wanted):
    for loads, call, data, right in (("x", method.forward, x, wanted[0]), ("g", method.adjoint, g, wanted[1])):
        method.loads, method.checks = loads, True
        if hasattr(method, "load"):
            method.load(x, g)
        assert torch.equal(call(data).reshape(right.shape), right), (type(method).__name__, loads)
    method.checks = False


def measure(name, shape, axis, context):
    n, rank = dist.get_world_size(), dist.get_rank()
    methods = [kind(context, shape, axis) for kind in (PointToPoint, AllGather, Lierne, InPlace, Margins)]
    local = list(shape)
    local[axis] //= n
    random = np.random.default_rng(rank)
    x = torch.from_numpy(random.integers(0, 99, local).astype(np.float32))
    wanted = methods[0].forward(x)
    g = torch.from_numpy(random.integers(0, 99, wanted.shape).astype(np.float32))
    wanted = wanted, methods[0].adjoint(g)
    times = [([], []) for _ in methods]
    for method in methods:
        check(method, x, g, wanted)
    for _ in range(ROUNDS):
        for method, (forward, adjoint) in zip(methods, times):
            forward.append(slowest(method.forward, x)[0])
            adjoint.append(slowest(method.adjoint, g)[0])
    for method, (forward, adjoint) in zip(methods, times):
        if rank == 0:
            print(f"{n},{name},{type(method).__name__},{np.median(forward):.3f},{np.median(adjoint):.3f},"
                  f"{np.median(np.add(forward, adjoint)):.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if dist.get_rank() == 0:
        print("ranks,what,method,forward ms,adjoint ms,both ms")
    with lierne.torch.context(over="node") as context:
        for name, (shape, axis) in WORKLOADS.items():
            measure(name, shape, axis, context)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
