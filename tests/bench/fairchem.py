"""lierne.torch.fairchem's call against fairchem's own recipe over gloo, on the same ranks and in turns (A B
A B), forward and backward through autograd.

    PYTHONPATH=build/python torchrun --nproc-per-node 8 tests/bench/fairchem.py [ROUNDS]

The recipe is fairchem's where the backend is not NCCL: rows are gathered, sent and received pair by pair,
and gradients come back the same way and are added. The graph is a lattice, its partition along a Morton
curve; bytes are those of a rank's own rows, f32. Prints medians in milliseconds of the slowest rank, and
the median over the rounds of the ratio of two neighbours: above 1 lierne is faster."""
import statistics
import sys
import time

import torch
import torch.distributed as dist

import lierne.torch
from lierne.torch.fairchem import PartitionStrategy, all_to_all_collect, build_gp_context, compute_a2a_partition

SIDE, SIZES = 8, [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22]


def exchanged(tensor, sends, receives):
    """Rows by rank, as the counts say; a pair that has none either way is left out."""
    out = tensor.new_empty((sum(receives), *tensor.shape[1:]))
    ops = []
    for peer, (given, got) in enumerate(zip(tensor.split(sends), out.split(receives))):
        if peer != dist.get_rank() and len(given) + len(got):
            ops += [dist.P2POp(dist.isend, given, peer), dist.P2POp(dist.irecv, got, peer)]
    for work in dist.batch_isend_irecv(ops) if ops else ():
        work.wait()
    return out


class Recipe(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lists):
        ctx.lists, ctx.rows = lists, len(x)
        return exchanged(x[lists.send_indices].contiguous(), lists.send_splits, lists.recv_splits)

    @staticmethod
    def backward(ctx, gradient):
        lists = ctx.lists
        back = exchanged(gradient.contiguous(), lists.recv_splits, lists.send_splits)
        zeros = gradient.new_zeros((ctx.rows, *gradient.shape[1:]))
        return zeros.index_add_(0, lists.send_indices, back), None


def lattice():
    """(positions, edges between neighbours)"""
    at = torch.cartesian_prod(*[torch.arange(SIDE)] * 3)
    number = torch.arange(SIDE ** 3).reshape(SIDE, SIDE, SIDE)
    near = [number.roll(step, axis).reshape(-1) for axis in range(3) for step in (1, -1)]
    return at.double(), torch.stack([torch.cat(near), number.reshape(-1).repeat(6)])


def timed(call, x, g):
    x = x.detach().requires_grad_()
    dist.barrier()
    start = time.perf_counter()
    call(x).backward(g)
    return time.perf_counter() - start


def measure(lists, nbytes, rounds):
    """Medians of both, and of their ratio."""
    x = torch.randn(lists.total_local_atoms, max(1, nbytes // 4 // lists.total_local_atoms))
    g = torch.randn(lists.total_recv, x.shape[1])
    ways = (lambda t: all_to_all_collect(t, lists)), (lambda t: Recipe.apply(t, lists))
    assert torch.equal(ways[0](x), ways[1](x))
    times = torch.tensor([[timed(way, x, g) for way in ways] for _ in range(rounds + 2)])[2:]
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    ours, theirs = zip(*times.tolist())
    return statistics.median(ours), statistics.median(theirs), statistics.median(b / a for a, b in zip(ours, theirs))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rounds, rank, size = int(sys.argv[1]) if len(sys.argv) > 1 else 15, dist.get_rank(), dist.get_world_size()
    at, edges = lattice()
    owner, _ = compute_a2a_partition(at, len(at), at.device, size, rank, PartitionStrategy.SPATIAL)
    with lierne.torch.context(timeout=60) as context:
        lists = build_gp_context(edges[:, owner[edges[1]] == rank], owner, rank, size, context=context)
        if rank == 0:
            print(f"{len(at)} rows on {size} ranks, {lists.total_recv} received by the first\n"
                  "     bytes    lierne    recipe  recipe/lierne")
        ratios = []
        for nbytes in SIZES:
            ours, theirs, ratio = measure(lists, nbytes, rounds if nbytes < 1 << 20 else max(5, rounds // 3))
            ratios.append(ratio)
            if rank == 0:
                print(f"{nbytes:10d} {1e3 * ours:9.3f} {1e3 * theirs:9.3f} {ratio:14.2f}", flush=True)
        if rank == 0:
            print(f"median ratio: {statistics.median(ratios):.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
