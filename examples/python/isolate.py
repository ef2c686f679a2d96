# A graph of a layer of experts, whose all-to-alls share their process group with the all-gather of the
# next layer's parameters: they get a process group of their own, and so the two can overlap.
# torchrun --nproc-per-node 4 isolate.py
import torch
import torch.distributed as dist
import torch.fx

import lierne.torch.fx

c10d = torch.ops._c10d_functional


def layer(name: str, n: int) -> torch.fx.GraphModule:
    """The layer over a process group of n ranks, as a compiler has it: the all-gather is launched first
    and needed last."""
    def run(tokens: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
        gathered = c10d.all_gather_into_tensor.default(shard, n, name)
        arrived = c10d.all_to_all_single.default(tokens, [1] * n, [1] * n, name)
        experts = 2 * c10d.wait_tensor.default(arrived)
        returned = c10d.all_to_all_single.default(experts, [1] * n, [1] * n, name)
        return c10d.wait_tensor.default(returned) @ c10d.wait_tensor.default(gathered)
    return torch.fx.symbolic_trace(run)


dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
graph = layer(dist.group.WORLD.group_name, n)
tokens, shard = torch.full((n, n), rank + 1.0), torch.eye(n)[rank:rank + 1]

before = graph(tokens, shard)
lierne.torch.fx.isolate_ep_process_group_pass(graph)  # all ranks
after = graph(tokens, shard)
assert torch.equal(before, after) and torch.equal(after, 2 * tokens)

schedule = lierne.torch.fx.record(graph)
for operation in schedule.operations if rank == 0 else []:
    print(operation.kind, operation.name, f"in group {operation.group}" if operation.group else "")
print(f"rank {rank}: the result is the same, in {len(schedule.groups)} groups")
dist.barrier()
dist.destroy_process_group()
