"""Packed sequences of lierne.torch beside the recipe of today over gloo, where Python lists every token:
rows are gathered by list, exchanged by all-to-all and scattered by list; of a bridge, every rank gathers all
image rows and keeps those of its tokens.

    PYTHONPATH=build/python torchrun --nproc-per-node 4 tests/bench/packed.py

Methods take turns. Prints milliseconds of the slowest rank, medians over the rounds, of the lists or the update
of a microbatch and of moving its rows forth and back, and the KiB that a rank receives from others."""
import time

import numpy as np
import torch
import torch.distributed as dist

import lierne.torch

ROUNDS, TOKENS, SEGMENTS, WIDTH, IMAGE = 15, 1 << 15, 64, 512, 9


def draw(seed, n):
    """Boundaries of segments whose lengths a zigzag of n ranks divides, and an id for each token."""
    random = np.random.default_rng(seed)
    unit = 2 * n
    cuts = np.sort(random.choice(np.arange(1, TOKENS // unit), SEGMENTS - 1, replace=False))
    ids = np.where(random.random(TOKENS) < 0.5, IMAGE, 1)
    return np.concatenate([[0], cuts, [TOKENS // unit]]) * unit, ids


def zigzag_owner(starts, n):
    token = np.arange(TOKENS)
    segment = np.searchsorted(starts, token, "right") - 1
    length = np.diff(starts)[segment]
    chunk = (token - starts[segment]) * 2 * n // length
    return np.minimum(chunk, 2 * n - 1 - chunk)


class Moves:
    """Lists for an all-to-all of rows whose owners before and after are given by token."""

    def __init__(self, before, after, rank, n):
        mine, got = np.flatnonzero(before == rank), np.flatnonzero(after == rank)
        self.gather = torch.from_numpy(np.argsort(after[mine], kind="stable"))
        self.scatter = torch.from_numpy(np.argsort(before[got], kind="stable"))
        self.sends = np.bincount(after[mine], minlength=n).tolist()
        self.receives = np.bincount(before[got], minlength=n).tolist()
        self.foreign = len(got) - self.receives[rank]

    def exchange(self, x, gather, scatter, sends, receives):
        packed, got = x.index_select(0, gather), x.new_empty(len(scatter), x.shape[1])
        dist.all_to_all_single(got, packed, receives, sends)
        return torch.empty_like(got).index_copy_(0, scatter, got)

    def forward(self, x):
        return self.exchange(x, self.gather, self.scatter, self.sends, self.receives)

    def back(self, y):
        return self.exchange(y, self.scatter, self.gather, self.receives, self.sends)


class RecipeMove:
    def __init__(self, _, n):
        self.n = n

    def update(self, starts, _):
        share = np.arange(TOKENS) * self.n // TOKENS
        self.moves = Moves(zigzag_owner(starts, self.n), share, dist.get_rank(), self.n)

    def forth_and_back(self, x):
        return self.moves.back(self.moves.forward(x))

    def received(self):
        return self.moves.foreign


class LierneMove:
    def __init__(self, context, n):
        self.move = lierne.torch.Packed(context, lierne.Grid({"cp": n}), "cp", "contiguous", (None, WIDTH),
                                        torch.float32, max_segments=SEGMENTS, max_rows=TOKENS)

    def update(self, starts, _):
        self.move.update(lierne.Packing(starts))

    def forth_and_back(self, x):
        return self.move.back(self.move(x))

    def received(self):
        return self.move._plans[0].report()["received_bytes"] // (4 * WIDTH)


class RecipeBridge:
    """Encoder rows in equal shares; every rank of cp gathers all of them."""

    def __init__(self, _, n):
        self.n = n

    def update(self, starts, ids):
        image = ids == IMAGE
        mine = np.flatnonzero(zigzag_owner(starts, self.n) == dist.get_rank())
        self.rows = torch.from_numpy((np.cumsum(image) - 1)[mine[image[mine]]])
        self.places = torch.from_numpy(np.flatnonzero(image[mine]))
        self.total, self.local = int(image.sum()), len(mine)
        share = -(-self.total // self.n)
        self.shares = [min(share, max(0, self.total - i * share)) for i in range(self.n)]

    def forth_and_back(self, x):
        share = max(self.shares)
        padded = x.new_zeros(share, WIDTH)
        padded[:len(x)] = x
        whole = x.new_empty(self.n * share, WIDTH)
        dist.all_gather_into_tensor(whole, padded)
        out = x.new_zeros(self.local, WIDTH).index_copy_(0, self.places, whole.index_select(0, self.rows))
        gradient = torch.zeros_like(whole).index_copy_(0, self.rows, out.index_select(0, self.places))
        dist.all_reduce(gradient)
        return gradient[dist.get_rank() * share:][:len(x)]

    def received(self):
        return (self.n - 1) * max(self.shares)


class LierneBridge:
    def __init__(self, context, n):
        self.bridge = lierne.torch.PackedBridge(context, lierne.Grid({"dp": n}), lierne.Grid({"cp": n}), WIDTH,
                                                torch.float32, max_segments=TOKENS, max_rows=TOKENS,
                                                max_runs=TOKENS)
        self.n = n

    def update(self, starts, ids):
        total = int((ids == IMAGE).sum())
        share = -(-total // self.n)
        images = np.minimum(np.arange(self.n + 1) * share, total)
        self.bridge.update({"cu_seqlens_q": starts}, images, np.arange(self.n), input_ids=ids, image_id=IMAGE)

    def forth_and_back(self, x):
        x = x.detach().requires_grad_()
        out = self.bridge(x)
        out.backward(out.detach())
        return x.grad

    def received(self):
        return self.bridge.plan.report()["received_bytes"] // (4 * WIDTH)


def slowest(call):
    dist.barrier()
    start = time.perf_counter()
    result = call()
    took = torch.tensor([time.perf_counter() - start])
    dist.all_reduce(took, dist.ReduceOp.MAX)
    return 1e3 * float(took), result


def measure(name, kinds, context, rows_of):
    n, rank = dist.get_world_size(), dist.get_rank()
    methods = [kind(context, n) for kind in kinds]
    times = [([], []) for _ in methods]
    for i in range(ROUNDS):
        starts, ids = draw(i, n)
        x = torch.from_numpy(np.random.default_rng(1000 + rank).normal(
            size=(rows_of(starts, ids, rank, n), WIDTH)).astype(np.float32))
        for method, (updates, moves) in zip(methods, times):
            updates.append(slowest(lambda: method.update(starts, ids))[0])
            took, result = slowest(lambda: method.forth_and_back(x))
            moves.append(took)
            assert torch.equal(result, x), type(method).__name__
    for method, (updates, moves) in zip(methods, times):
        if rank == 0:
            print(f"{n},{name},{type(method).__name__},{np.median(updates):.2f},{np.median(moves):.2f},"
                  f"{method.received() * WIDTH * 4 // 1024}", flush=True)


def zigzag_rows(starts, _, rank, n):
    return int((zigzag_owner(starts, n) == rank).sum())


def image_rows(_, ids, rank, n):
    total = int((ids == IMAGE).sum())
    share = -(-total // n)
    return min(share, max(0, total - rank * share))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if dist.get_rank() == 0:
        print("ranks,what,method,update ms,forth and back ms,KiB received by rank 0")
    with lierne.torch.context(over="node") as context:
        measure("zigzag to contiguous", (RecipeMove, LierneMove), context, zigzag_rows)
        measure("images to tokens", (RecipeBridge, LierneBridge), context, image_rows)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
