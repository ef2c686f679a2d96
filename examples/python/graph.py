# One layer of a graph network: sums over the neighbours of each node, wherever these live.
# torchrun --nproc-per-node 4 graph.py
import torch
import torch.distributed as dist

import lierne.torch

dist.init_process_group("gloo")
nodes, width = 12, 3  # a ring: node i hears i - 1 and i + 1
owner = torch.arange(nodes) * dist.get_world_size() // nodes
target = torch.arange(nodes).repeat(2)
source = torch.cat([torch.arange(nodes) - 1, torch.arange(nodes) + 1]) % nodes
mine = owner[target] == dist.get_rank()

with lierne.torch.context() as context:
    exchange = lierne.torch.Graph(context, owner, source[mine], target[mine], torch.float64,
                                  row_shape=(width,))
    lists = exchange.plan.lists()
    x = torch.as_tensor(lists["owned"]).double().reshape(-1, 1).repeat(1, width).requires_grad_()
    rows = torch.cat([x, exchange(x)])  # own rows, then ghosts
    heard = torch.zeros_like(x).index_add(0, torch.as_tensor(lists["edge_target"]),
                                          rows[torch.as_tensor(lists["edge_source"])])
    (heard * x.detach()).sum().backward()
    around = (torch.as_tensor(lists["owned"]) - 1) % nodes + (torch.as_tensor(lists["owned"]) + 1) % nodes
    assert heard[:, 0].tolist() == around.tolist() == x.grad[:, 0].tolist()
    print(f"rank {context.rank}: nodes {lists['owned'].tolist()} hear {heard[:, 0].tolist()}")
dist.destroy_process_group()
