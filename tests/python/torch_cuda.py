"""lierne.torch on the memory of a CUDA device, moved by torch.distributed over NCCL and by lierne's own transports, on
ranks of torchrun: the golden bridges and graphs, and random tensors of every kind of sum with the bits that the same
operation has on the host. Ranks share the devices in turn, which NCCL before 2.30 rejects. Without a device it says
so."""
import datetime
import os
import sys
import traceback

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from cases import grid_of
from package import Bridges
from package_rows import Rows
from report import golden
from torch_harness import bridge, same


def leaf(array, dtype=torch.float64):
    return torch.as_tensor(np.asarray(array), dtype=dtype).cuda().requires_grad_()


def given(move, direction, data):
    return np.zeros(move.shapes(direction)[0]) if data is None else data


def golden_bridges(context, host):
    cases = [c for c in golden("bridge_tensors")["cases"] if c["world_size"] == dist.get_world_size()]
    for case in cases:
        move = lierne.torch.Operation(Bridges.bridge([context], dict(case, world_size=case["world_size"]))[0])
        src, dst = (grid_of(case[side], case["world_size"]) for side in ("src", "dst"))
        x = leaf(given(move, "forward", Bridges.inputs(case, src, context.rank, "x")))
        y = move(x)
        y.backward(torch.as_tensor(given(move, "adjoint", Bridges.inputs(case, dst, context.rank, "g"))).cuda())
        same(y.detach().cpu(), case["forward"].get(str(context.rank), []), case["id"])
        same(x.grad.cpu(), case["input_grad"].get(str(context.rank), []), case["id"])
    return len(cases)


def golden_graphs(context, host):
    file = golden("graph_a2a")
    cases = [c for c in file["cases"] if c["world"] == dist.get_world_size()]
    for case in cases:
        edges, owner = np.array(case["edges"], np.int64).reshape(2, -1), np.array(case["assignment"])
        mine = owner[edges[1]] == context.rank
        move = lierne.torch.Graph(context, owner, edges[0][mine], edges[1][mine], torch.float64,
                                  row_shape=(file["width"],))
        lists, expect = move.plan.lists(), case["ranks"][context.rank]
        x = leaf(Rows.f(lists["owned"], file["width"]))
        ghosts = move(x)
        ghosts.backward(torch.as_tensor(Rows.h(context.rank, lists["nghosts"], file["width"])).cuda())
        same(ghosts.detach().cpu(), np.ravel(expect["forward"]), case["id"])
        same(x.grad.cpu(), np.ravel(expect["backward"]), case["id"])
    return len(cases)


def on_both(move, reference, direction, dtype):
    """Random bits through an operation on the device and on the host, where NaN may be: equal bits."""
    shape = move.shapes(direction)[0]
    generator = torch.Generator().manual_seed(100 * dist.get_rank() + len(shape))
    x = torch.randn(shape, generator=generator).to(dtype)
    if x.numel() > 3 and dtype.is_floating_point:
        x.view(-1)[3] = float("nan")
    host, device = (call(y) if direction == "forward" else call.adjoint(y)
                    for call, y in ((reference, x), (move, x.cuda())))
    assert device.is_cuda and device.shape == host.shape
    assert torch.equal(host.reshape(-1).view(torch.uint8), device.cpu().reshape(-1).view(torch.uint8)), (dtype, direction)


def bits_of_the_host(context, host):
    count, n = 0, context.world_size
    rng = np.random.default_rng(7)
    owner, edges = rng.integers(0, n, 200), rng.integers(0, 200, (2, 1000))
    mine = owner[edges[1]] == context.rank
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        moves = [[lierne.torch.Graph(c, owner, edges[0][mine], edges[1][mine], dtype, row_shape=(5,))
                  for c in (context, host)]]
        if n == 4:
            moves.append([bridge(c, dtype) for c in (context, host)])
        for move, reference in moves:
            for direction in ("forward", "adjoint"):
                on_both(move, reference, direction, dtype)
                count += 1
    return count


def in_flight(context, host):
    """Two executions begun before either is waited for, between other work of the stream; the second wait is on
    another stream."""
    owner = np.arange(64) % context.world_size
    mine = np.flatnonzero(owner == context.rank)
    move = lierne.torch.Graph(context, owner, np.arange(64), np.full(64, mine[0]), torch.float32, max_inflight=2)
    xs = [torch.full((len(mine),), float(k + 1), device="cuda", requires_grad=True) for k in range(2)]
    works = [move.begin(x) for x in xs]
    torch.matmul(torch.ones(2048, 2048, device="cuda"), torch.ones(2048, 2048, device="cuda"))
    for work, stream in zip(works, (torch.cuda.current_stream(), torch.cuda.Stream())):
        with torch.cuda.stream(stream):
            y = work.wait()
            assert torch.all(y == 1 + works.index(work))
            (3 * y).sum().backward()
    torch.cuda.synchronize()
    for x in xs:
        same(x.grad.cpu(), [3.0 * (context.world_size - 1)] * len(mine))
    return 2


def main():
    if not torch.cuda.is_available():
        print("skipped: there is no CUDA device\n0 passed, 0 failed")
        return
    dist.init_process_group("cpu:gloo,cuda:nccl", timeout=datetime.timedelta(seconds=60))
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    counts = {}
    with lierne.torch.context(timeout=60) as host, \
            lierne.torch.context(over="node", timeout=60, device="cuda") as windows:
        for over, context in (("distributed", host), ("node", windows)):
            for function in (golden_bridges, golden_graphs, bits_of_the_host, in_flight):
                try:
                    counts[function.__name__, over] = function(context, host)
                    torch.cuda.synchronize()
                except BaseException:
                    traceback.print_exc()
                    print(f"FAIL {function.__name__} over {over} on rank {dist.get_rank()}", flush=True)
                    os._exit(1)
    if dist.get_rank() == 0:
        print(counts)
        print(f"{sum(counts.values())} passed, 0 failed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
