"""Train over lierne as the backend of torch.distributed: FSDP2, with sums that have the same bits in every run.

    torchrun --nproc-per-node 4 examples/python/backend.py
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import lierne.torch.backend


def train(steps: int = 5) -> torch.Tensor:
    """The weights after some steps, each rank with samples of its own."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(steps):
        samples = torch.randn(32, 64)
        loss = (model(samples) - samples).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.cat([parameter.full_tensor().detach().flatten() for parameter in model.parameters()])


dist.init_process_group("lierne")
first, second = train(), train()
assert torch.equal(first, second)
print(f"rank {dist.get_rank()}: two runs have equal bits in {len(first)} weights")
dist.destroy_process_group()
