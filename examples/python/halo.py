# A field on a ring of ranks, with one ghost cell on each side: swaps as in LAMMPS.
# torchrun --nproc-per-node 4 halo.py
import torch
import torch.distributed as dist

import lierne.torch

dist.init_process_group("gloo")
rank, world, n = dist.get_rank(), dist.get_world_size(), 5
left, right = (rank - 1) % world, (rank + 1) % world

with lierne.torch.context() as context:
    # First to the left, whose right ghost (row n) it is; then to the right.
    halo = lierne.torch.Halo(context, n, 2, [left, right], [right, left], [[0], [n - 1]], [1, 1],
                             torch.float64)
    x = torch.zeros(n + 2, dtype=torch.float64)
    x[:n] = torch.arange(n) + n * rank
    x.requires_grad_()
    y = halo(x)
    whole = torch.cat([y[n + 1:], y[:n], y[n:n + 1]])  # left ghost, own cells, right ghost
    laplacian = whole[:-2] - 2 * whole[1:-1] + whole[2:]
    (laplacian ** 2).sum().backward()
    assert y[n].item() == n * right and y[n + 1].item() == n * left + n - 1
    print(f"rank {rank}: ghosts {y[n + 1].item():.0f} and {y[n].item():.0f}, gradient "
          f"{x.grad[:n].tolist()}")
dist.destroy_process_group()
