# Moves an encoder's output to an LLM's layout and its gradient back.
# torchrun --nproc-per-node 4 bridge.py
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import lierne.torch

dist.init_process_group("gloo")
encoder = init_device_mesh("cpu", (4, 1), mesh_dim_names=("dp", "tp"))
llm = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=("dp", "cp", "tp"))
batch, sequence, hidden = 8, 16, 4

with lierne.torch.context() as context:
    bridge = lierne.torch.Bridge(context, encoder, llm, (batch, sequence, hidden), torch.float32,
                                 sequence_axis=1)
    samples = torch.arange(2) + 2 * context.rank  # each encoder dp rank has 2 of the 8 samples
    x = samples.float().reshape(2, 1, 1).expand(2, sequence, hidden).clone().requires_grad_()
    y = bridge(x)  # each LLM dp rank gets 4
    mine = torch.zeros(sequence).reshape(2, -1)  # this cp rank's half of the sequence
    mine[llm.get_local_rank("cp")] = 1
    (y * mine.reshape(1, -1, 1)).sum().backward()  # the plan's adjoint
    first = 4 * llm.get_local_rank("dp")
    assert y[:, 0, 0].tolist() == [first, first + 1, first + 2, first + 3]
    assert torch.equal(x.grad, torch.ones_like(x))  # the halves of both cp ranks, each counted once
    print(f"rank {context.rank}: samples {samples.tolist()} -> {y[:, 0, 0].tolist()}")
dist.destroy_process_group()
