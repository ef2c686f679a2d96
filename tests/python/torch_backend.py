"""The backend of torch.distributed on 1 to 4 ranks of torchrun: every collective and message beside what it must
give, by numbers, and training by torch's own wrappers in equal bits from run to run."""
import datetime
import functools
import os
import socket
import threading
import time
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import lierne
import lierne.torch.backend
from torch_harness import main, raised, raises, same, test

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8]
MOVED = [*DTYPES, torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn]


@functools.lru_cache
def group():
    return dist.new_group(backend="lierne", timeout=datetime.timedelta(seconds=60))


def rank():
    return dist.get_rank()


def world():
    return dist.get_world_size()


def values(owner, count, dtype):
    """Other numbers on each rank, small enough for sums in every dtype."""
    return ((torch.arange(count) * 7 + owner * 3) % 11 + owner).to(torch.int32).to(dtype)


def everywhere(function):
    """A test for every number of ranks; all members of a world run it."""
    return test(function, world_of_torchrun())


def world_of_torchrun():
    return int(os.environ["WORLD_SIZE"])


@everywhere
def reductions():
    folds = {"SUM": lambda a, b: a + b, "MAX": torch.maximum, "MIN": torch.minimum, "PRODUCT": lambda a, b: a * b,
             "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    for dtype in DTYPES:
        for name, fold in folds.items():
            if name[0] == "B" and dtype.is_floating_point:
                continue
            everyone = [values(r, 12 * world(), dtype) for r in range(world())]
            if name == "PRODUCT":
                everyone = [(v % 3).to(dtype) for v in everyone]
            total, op = functools.reduce(fold, everyone), getattr(dist.ReduceOp, name)
            mine = everyone[rank()].clone()
            dist.all_reduce(mine, op, group())
            same(mine, total, (dtype, name))
            out = torch.full((12,), 9).to(dtype)
            dist.reduce_scatter_tensor(out, everyone[rank()], op, group())
            same(out, total[12 * rank():12 * rank() + 12], (dtype, name))
            root, mine = world() - 1, everyone[rank()].clone()
            dist.reduce(mine, root, op, group())
            same(mine, total if rank() == root else everyone[rank()], (dtype, name))


@everywhere
def more_reductions():
    average = torch.arange(5.) * (rank() + 1)
    dist.all_reduce(average, dist.ReduceOp.AVG, group())
    same(average, torch.arange(5.) * (world() + 1) / 2)
    truth = torch.tensor([True, rank() == 0, False])
    for op, expected in ((dist.ReduceOp.MIN, [True, world() == 1, False]), (dist.ReduceOp.MAX, [True, True, False]),
                         (dist.ReduceOp.SUM, [True, True, False])):
        mine = truth.clone()
        dist.all_reduce(mine, op, group())
        assert mine.tolist() == expected, (op, mine)
    numbers = torch.tensor([1 + 2j, rank() * 1j])
    dist.all_reduce(numbers, group=group())
    assert numbers.tolist() == [world() * (1 + 2j), sum(range(world())) * 1j]
    halves = torch.full((2 * world(),), 1 + 1j)
    out = torch.zeros(2, dtype=torch.complex64)
    dist.reduce_scatter_tensor(out, halves, group=group())
    assert out.tolist() == [world() * (1 + 1j)] * 2
    long = torch.arange((4 << 20) + 6, dtype=torch.int32)[1:] * (rank() + 1)  # in parts, the last one short
    dist.all_reduce(long, group=group())
    assert torch.equal(long, torch.arange(1, (4 << 20) + 6, dtype=torch.int32) * sum(range(world() + 1)))
    crossed = torch.arange(6.).reshape(2, 3).t()  # not contiguous
    dist.all_reduce(crossed, group=group())
    same(crossed, torch.arange(6.).reshape(2, 3).t() * world())
    parameter = torch.nn.Parameter(torch.ones(3))
    dist.all_reduce(parameter.data, group=group())
    same(parameter.data, [float(world())] * 3)
    raises(ValueError, "PREMUL_SUM", dist.all_reduce, torch.ones(2), dist._make_nccl_premul_sum(2.0), group())
    dist.all_reduce(torch.empty(0), group=group())


@everywhere
def moves():
    n, me = world(), rank()
    for dtype in MOVED:
        mine, all_of = values(me, 5, dtype), [values(r, 5, dtype) for r in range(n)]
        for root in {0, n - 1}:
            got = mine.clone()
            dist.broadcast(got, root, group())
            same(got.view(torch.uint8), all_of[root].view(torch.uint8), dtype)
            outs = [torch.zeros_like(mine) for _ in range(n)] if me == root else None
            dist.gather(mine, outs, root, group())
            for out, expected in zip(outs or [], all_of):
                same(out.view(torch.uint8), expected.view(torch.uint8), dtype)
            got = torch.zeros_like(mine)
            dist.scatter(got, all_of if me == root else None, root, group())
            same(got.view(torch.uint8), mine.view(torch.uint8), dtype)
        outs = [torch.zeros_like(mine) for _ in range(n)]
        dist.all_gather(outs, mine, group())
        same(torch.stack(outs).view(torch.uint8), torch.stack(all_of).view(torch.uint8), dtype)
        joined = torch.zeros(n * 5, dtype=torch.uint8).view(torch.uint8).to(dtype)
        dist.all_gather(list(joined.chunk(n)), mine, group())
        same(joined.view(torch.uint8), torch.cat(all_of).view(torch.uint8), dtype)
        out, sent = torch.zeros_like(joined), torch.cat([mine.view(torch.uint8)] * n).view(dtype)
        dist.all_to_all_single(out, sent, group=group())
        same(out.view(torch.uint8), joined.view(torch.uint8), dtype)
    whole = torch.cat([values(r if r == me else 50, 4, torch.int64) for r in range(n)])
    parts = list(whole.chunk(n))
    dist.all_gather_into_tensor(whole, parts[me], group())  # in place
    same(whole, torch.cat([values(r, 4, torch.int64) for r in range(n)]))
    dist.reduce_scatter_tensor(parts[me], whole, group=group())
    same(parts[me], values(me, 4, torch.int64) * n)
    dist.scatter(parts[me], parts if me == 0 else None, 0, group())
    same(parts[me], values(me, 4, torch.int64) * (n if me == 0 else 1))
    uneven = [torch.zeros(r + 1) for r in range(n)]
    dist.all_gather(uneven, torch.full((me + 1,), float(me)), group())
    assert [part.tolist() for part in uneven] == [[float(r)] * (r + 1) for r in range(n)]
    out = torch.zeros(2, 3)
    dist.reduce_scatter(out, [torch.full((2, 3), float(r + me)) for r in range(n)], group=group())
    same(out, torch.full((2, 3), float(n * me + sum(range(n)))))


@everywhere
def uneven_all_to_all():
    n, me = world(), rank()
    for step in range(6):  # in some steps ranks send nothing; step 5 repeats step 2
        counts = [[(r * 5 + to * 3 + step % 3) % 4 for to in range(n)] for r in range(n)]
        send, receive = counts[me], [counts[r][me] for r in range(n)]
        data = torch.cat([torch.full((c, 2), float(10 * me + to)) for to, c in enumerate(send)])
        expected = torch.cat([torch.full((c, 2), float(10 * r + me)) for r, c in enumerate(receive)])
        out = torch.full((sum(receive), 2), -1.0)
        dist.all_to_all_single(out, data, receive, send, group())
        same(out, expected)
        outs = [torch.full((c, 2), -1.0) for c in receive]
        dist.all_to_all(outs, list(data.split(send)), group())
        same(torch.cat(outs), expected)


@everywhere
def several_in_flight():
    parts = [torch.full((1000,), float(i + rank())) for i in range(9)]
    works = [dist.all_reduce(part, async_op=True, group=group()) for part in parts]
    last = torch.ones(3)
    dist.all_reduce(last, group=group())  # after those before it
    future = works[3].get_future()
    for i, work in enumerate(works):
        assert work.wait() and work.get_future().done()
        same(parts[i], torch.full((1000,), float(world() * i + sum(range(world())))))
    same(future.wait()[0], parts[3])
    with dist._coalescing_manager(group(), async_ops=True) as manager:
        for i in range(3):
            dist.all_reduce(parts[i].fill_(i), group=group())
    manager.wait()
    assert [part[0].item() for part in parts[:3]] == [0, world(), 2 * world()]


@everywhere
def messages():
    n, me = world(), rank()
    if n == 1:
        return
    right, left = (me + 1) % n, (me - 1) % n
    threads = None
    for count in (0, 1, 70000):
        out = torch.full((count,), -1, dtype=torch.int64)
        ops = [dist.P2POp(dist.isend, torch.arange(count) + me, right, group()), dist.P2POp(dist.irecv, out, left, group())]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        same(out, torch.arange(count) + left)
        assert threads in (None, threading.active_count())  # a call adds none to those of its lines
        threads = threading.active_count()
    first, second = torch.zeros(3), torch.zeros(4)  # by tags in the other order
    sent = [dist.isend(torch.full((3 + tag,), float(tag)), right, group(), tag) for tag in (0, 1)]
    dist.recv(second, left, group(), 1)
    dist.recv(first, left, group(), 0)
    for work in sent:
        work.wait()
    assert first.tolist() == [0.0] * 3 and second.tolist() == [1.0] * 4
    raises(RuntimeError, "give src", dist.recv, torch.zeros(1), None, group())


@everywhere
def a_barrier_waits_and_names_who_is_missing():
    dist.barrier(group())
    start = time.time()
    if rank() == world() - 1:
        time.sleep(0.3)
    dist.barrier(group())
    assert world() == 1 or time.time() - start > 0.25
    dist.monitored_barrier(group())
    if world() > 2:
        soon = datetime.timedelta(seconds=0.5)
        if rank() == 0:
            error = raised(RuntimeError, dist.monitored_barrier, group(), soon, True)
            assert "ranks 1, 2 did" in str(error), error
        elif rank() == 3:
            raised(RuntimeError, dist.monitored_barrier, group(), soon)


@everywhere
def groups_of_some_ranks():
    members = list(range(world()))[1:] or [0]
    some = dist.new_group(members, backend="lierne")
    if rank() in members:
        mine = torch.ones(3)
        dist.all_reduce(mine, group=some)
        same(mine, [float(len(members))] * 3)
        dist.broadcast(mine.fill_(rank()), members[-1], some)
        same(mine, [float(members[-1])] * 3)
        dist.destroy_process_group(some)


@everywhere
def ranks_of_several_hosts():
    """Over the store; hosts are names here."""
    with mock.patch.object(socket, "gethostname", lambda: f"host{rank() // 2}"):
        far = dist.new_group(backend="lierne")
    mine = values(rank(), 1000, torch.float32)
    dist.all_reduce(mine, group=far)
    same(mine, sum(values(r, 1000, torch.float32) for r in range(world())))
    if world() > 2:
        if rank() == 0:
            dist.send(torch.arange(5.), 2, far)
        if rank() == 2:
            dist.recv(mine[:5], 0, far)
            same(mine[:5], torch.arange(5.))
    dist.destroy_process_group(far)


@everywhere
def calls_that_differ_are_errors():
    if world() == 1:
        return
    other = dist.new_group(backend="lierne", timeout=datetime.timedelta(seconds=5))
    error = raised(lierne.errors.Error, dist.all_reduce, torch.ones(3 + (rank() == 1)), group=other)
    assert "count" in str(error), error
    dist.all_reduce(torch.ones(3), group=other)  # it lives: nothing was planned
    if rank() < 2:
        work = (dist.isend if rank() == 0 else dist.irecv)(torch.ones(2 + rank()), 1 - rank(), other)
        raised(lierne.errors.Error, work.wait)


@everywhere
def training_by_torchs_wrappers():
    """DDP, FSDP2 and DTensor: two runs have equal bits, and gloo's numbers to rounding."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def ddp(model, members):
        return torch.nn.parallel.DistributedDataParallel(model, process_group=members, bucket_cap_mb=0.001)

    def fsdp(model, members):
        mesh = DeviceMesh.from_group(members, "cpu", mesh_dim_names=("dp",))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    def tensor_parallel(model, members):
        mesh = DeviceMesh.from_group(members, "cpu", mesh_dim_names=("tp",))
        return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

    def losses(wrap, members):
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(16, 48), torch.nn.GELU(), torch.nn.Linear(48, 8))
        model = wrap(model, members)
        optimizer, out = torch.optim.AdamW(model.parameters(), 0.01), []
        for step in range(4):
            torch.manual_seed(step if wrap is tensor_parallel else 10 * step + rank())
            loss = model(torch.randn(6, 16)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            out.append(loss.detach())
        return torch.stack(out)

    for wrap in (ddp, fsdp, tensor_parallel):
        runs = [losses(wrap, group()) for _ in range(2)]
        assert torch.equal(*runs), wrap
        assert torch.allclose(runs[0], losses(wrap, None if wrap is ddp else dist.group.WORLD), rtol=1e-4), wrap


if __name__ == "__main__":
    main()
