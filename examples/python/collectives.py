# An all-gather and the reduce-scatter that is its adjoint, in a window of the node's memory.
# torchrun --nproc-per-node 4 collectives.py
import torch
import torch.distributed as dist

import lierne
import lierne.torch

dist.init_process_group("gloo")
with lierne.torch.context(over="node") as context:
    rank, n, count = context.rank, context.world_size, 6
    gather = lierne.torch.Operation(lierne.all_gather(context, count, torch.float64))
    x = (100.0 * rank + torch.arange(count).double()).requires_grad_()  # element i of rank r: 100 r + i
    everyone = gather(x)
    gradient = (rank + 1.0) * (1 + torch.arange(n * count).double())  # (r + 1) (1 + j) for element j
    everyone.backward(gradient)  # a reduce-scatter: the sum over r for each of this rank's elements

    i = torch.arange(count).double()
    assert torch.equal(everyone.detach().reshape(n, count), 100 * torch.arange(n)[:, None] + i)
    assert torch.equal(x.grad, n * (n + 1) / 2 * (1 + rank * count + i))
    scatter = lierne.torch.Operation(lierne.reduce_scatter(context, count, torch.float64))
    assert torch.equal(scatter(gradient), x.grad)
    print(f"rank {rank}: gathered {everyone.numel()} elements, its share of the sums is {x.grad.tolist()}")
dist.destroy_process_group()
