# Sends a trainer's weights to an inference engine, and checks that they have arrived.
# torchrun --nproc-per-node 4 weights.py
import torch
import torch.distributed as dist

import lierne.torch

dist.init_process_group("gloo")
rank = dist.get_rank()
trainer = lierne.Grid({"tp": 2}, 0, world_size=4)           # ranks 0 and 1
engine = lierne.Grid({"tp": 1, "dp": 2}, 2, world_size=4)   # ranks 2 and 3, each the whole model
shapes = {"wq": (8, 6), "wo": (6, 8), "norm": (6,)}
cuts = {"wq": lierne.Shard(0), "wo": lierne.Shard(1), "norm": lierne.Replicate()}
src = [lierne.Layout(trainer, shapes[name], "f32", {"tp": cuts[name]}) for name in shapes]
dst = [lierne.Layout(engine, shapes[name], "f32", {}) for name in shapes]

with lierne.torch.context() as context:
    transfer = lierne.torch.TensorSet(context, src, dst)            # once
    trained = torch.ones(transfer.shapes()[0])                      # all weights of this rank
    parameters = dict(zip(shapes, transfer.plan.views(trained)))    # views, to train in place
    parameters["wq"].fill_(10 * (rank + 1))
    served = transfer(trained)                                      # every update of the engine
    weights = dict(zip(shapes, transfer.plan.views(served, "dst")))
    lierne.check_digests(context, src, dst, weights.values(), parameters.values(), key=1)
    if rank >= 2:
        assert weights["wq"][:, 0].tolist() == [10] * 4 + [20] * 4
    print(f"rank {rank}: {trained.numel()} weights trained, {served.numel()} served")
dist.destroy_process_group()
