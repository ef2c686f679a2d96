"""lierne.torch where something is late, dropped, closed or gone, and functions of deepmd-kit's border op. 1
rank: wrong arguments."""
import datetime
import gc
import time

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne.torch.deepmd import border_op
from package_rows import Rows
from report import golden
from torch_harness import ENCODER, LLM, bridge, contexts, leaf, main, raised, same, test


@test
def deepmds_border_op():
    file = golden("halo")
    cases = [c for c in file["cases"] if c["world"] == dist.get_world_size() and c["nswap"]
             and not {"phantom", "null"} & set(c)]
    context = lierne.torch.context(timeout=60)
    inexact = 0
    for case in cases:
        part, width = case["ranks"][context.rank], file["width"]
        n, ghosts = part["nlocal"], part["nghost"]
        arrays = [np.array(rows, np.int32) for rows in part["sendlist"]]
        addresses = torch.tensor([rows.ctypes.data for rows in arrays])
        numbers = [torch.tensor(part[name], dtype=torch.int32)
                   for name in ("sendproc", "recvproc", "sendnum", "recvnum")]
        x = leaf(np.concatenate([Rows.f(part["gid"][:n], width), np.zeros((ghosts, width))]))
        y, = border_op(addresses, *numbers, x, context, torch.tensor(n), torch.tensor(ghosts))
        again, = border_op(part["sendlist"], *numbers, x, context, n, ghosts)
        assert torch.equal(y, again)
        i, c = np.ogrid[:n + ghosts, :width]
        exact = case.get("upstream") != "q"
        upstream = Rows.h(context.rank, n + ghosts, width) if exact else (
            1 / (3.0 + 7 * context.rank + 5 * i + c))
        y.backward(torch.as_tensor(upstream))
        if exact:
            same(y[n:].detach(), np.ravel(part["forward_ghost"]), case["id"])
            same(x.grad[:n], np.ravel(part["backward_local"]), case["id"])
        else:
            bits = [bytes.fromhex(text)[::-1] for text in np.ravel(part["backward_local_bits_f64"])]
            assert x.grad[:n].numpy().tobytes() == b"".join(bits), case["id"]
            inexact += 1
    assert len(cases) > inexact, (len(cases), inexact)
    context.close()


def new_group():
    """A process group of which messages may be lost."""
    return dist.new_group(timeout=datetime.timedelta(seconds=40))


def timed_out(begin):
    """Rank 0 does not call; the others call begin(operation) and get TIMEOUT, and so do later calls."""
    context = lierne.torch.context(group=new_group(), timeout=1)
    move = lierne.torch.Operation(lierne.all_reduce(context, 4, "f64"))
    start = time.monotonic()
    if context.rank == 0:
        dist.barrier()
        context.abort("this rank is late on purpose")
    else:
        error = raised(Exception, begin, move)
        seconds = time.monotonic() - start
        assert isinstance(error, lierne.errors.TimeoutError), repr(error)
        assert "after 1 s, with rank 0" in str(error), error
        assert 0.9 < seconds < 20, seconds
        start = time.monotonic()
        assert isinstance(raised(Exception, begin, move), lierne.errors.TimeoutError)
        assert time.monotonic() - start < 1
        dist.barrier()
    context.close()


@test
def a_rank_that_does_not_call_is_a_timeout():
    x = torch.zeros(4, dtype=torch.float64)
    timed_out(lambda move: move(x))
    timed_out(lambda move: move.adjoint(x))
    timed_out(lambda move: move.begin(x).wait())


@test
def a_timeout_names_the_call_and_the_plan():
    context = lierne.torch.context(group=new_group(), timeout=5)
    other, move = (lierne.torch.Operation(lierne.all_reduce(context, 4, "f64")) for _ in range(2))
    x = torch.zeros(4, dtype=torch.float64)
    for call in (other, move, move.adjoint, move, other):
        call(x)
    assert move.plan.number != other.plan.number
    dist.barrier()
    if context.rank:
        error = raised(Exception, move.adjoint, x)
        expected = f"rank {context.rank}: adjoint 1 of plan {move.plan.number}, stage "
        assert expected in str(error), (expected, error)
    dist.barrier()
    context.abort("the others had a timeout")
    context.close()


@test
def shapes_of_megatrons_bridge_wait_as_long_as_its_tensors():
    from lierne.megatron import BridgeCommunicator, HyperCommGrid
    names = ["tp", "cp", "pp", "dp"]
    communicator = BridgeCommunicator(HyperCommGrid([1, 1, 1, 2], names),
                                      HyperCommGrid([2, 1, 1, 1], names, rank_offset=2))
    cpu = torch.device("cpu")
    waits = [group._get_backend(cpu).options._timeout for group in (communicator._group, dist.group.WORLD)]
    assert waits == [datetime.timedelta(seconds=60)] * 2, waits
    communicator.destroy()


@test
def a_rank_that_does_not_call_backward_is_a_timeout():
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    context = lierne.torch.context(group=new_group(), timeout=1)
    move = lierne.torch.Operation(lierne.all_reduce(context, 4, "f64"))
    sums = move(x).sum(), move.begin(x).wait().sum()
    dist.barrier()
    for loss in sums if context.rank else ():
        assert isinstance(raised(Exception, loss.backward), lierne.errors.TimeoutError)
    dist.barrier()
    context.abort("the others had a timeout")
    context.close()


@test
def a_work_that_is_dropped_ends():
    for context in contexts():
        move, other = bridge(context), bridge(context)
        x = torch.randn(move.shapes()[0], dtype=torch.float64, requires_grad=True)
        expected = move(x).detach()
        for dropping in ({0, 1, 2, 3}, {1}, {0, 2, 3}):
            for direction in ("forward", "adjoint"):
                works = [m.begin(torch.randn(m.shapes(direction)[0], dtype=torch.float64), direction)
                         for m in (move, other)]
                if context.rank in dropping:
                    del works
                else:
                    [work.wait() for work in works]
                assert torch.equal(move(x), expected), (direction, dropping)
        work = move.begin(x)
        y = work.wait()
        assert work.wait() is y and torch.equal(y, expected)
        y.sum().backward()
        work = move.begin(x)
        del work  # the context is closed all the same
    move = lierne.torch.Operation(lierne.BridgeRoutes(
        dist.get_rank(), lierne.Grid(ENCODER), lierne.Grid(LLM), (8, 4, 3), "f64", sequence_axis=1))
    move.begin(x)
    assert torch.equal(move(x), expected)


@test
def many_works_that_are_dropped_end():
    with lierne.torch.context(over="node") as context:
        halos = [lierne.torch.Halo(context, 1, 1, [(context.rank + 1) % 4], [(context.rank - 1) % 4], [[0]], [1],
                                   torch.float32) for _ in range(300)]
        works = [halo.begin(torch.ones(2)) for halo in halos]
        del works
        same(halos[0](torch.ones(2)), [1, 1])


@test
def works_that_are_collected_later_on_one_rank_end_in_their_order():
    with lierne.torch.context(over="distributed", timeout=60) as context:
        move = lierne.torch.Operation(lierne.all_reduce(context, 64, "f32", algorithm="two_shot"))
        assert len(move.plan.route("forward").stages) > 1
        gc.disable()
        for collecting in ({0}, {1, 2}, {0, 1, 2, 3}, set()):
            first, cycle, third = move.begin(torch.ones(64)), [move.begin(torch.full((64,), 100.0))], None
            cycle.append(cycle)
            del cycle
            if context.rank in collecting:
                gc.collect()
            third = move.begin(torch.full((64,), 5.0))
            same(first.wait(), [4.0] * 64, collecting)
            same(third.wait(), [20.0] * 64, collecting)
        gc.enable()


@test
def dropped_works_end_in_the_order_in_which_they_were_begun():
    for context in contexts():
        rank, right, left = context.rank, (context.rank + 1) % 4, (context.rank - 1) % 4
        moves = [lierne.torch.Halo(context, 1, 2, [right, left], [left, right], [[0], [1]], [1, 1],
                                   torch.float32) for _ in range(3)]
        x = torch.tensor([rank + 1.0, 0, 0])
        for kept in (None, 0, 1, 2):
            works = [move.begin(x) for move in moves]
            if rank == 1:
                for i in (1, 2, 0):
                    works[i] = works[i] if i == kept else None
            [work.wait() for work in works if work]
            same(moves[0](x), [rank + 1, left + 1, rank + 1], kept)


@test
def a_backward_keeps_what_it_needs():
    from lierne.megatron import ColocatedBridgeCommunicator, HyperCommGrid
    for context in contexts():
        def halo(x):
            right, left = (context.rank + 1) % 4, (context.rank - 1) % 4
            return lierne.torch.Halo(context, 2, 1, [right], [left], [[0]], [1], x.dtype, row_shape=(2,))(x)

        def begun(x):
            return bridge(context, shape=(12, 2)).begin(x).wait()

        leaves = [leaf(np.ones((3, 2))) for _ in range(2)]
        for function, x in zip((halo, begun), leaves):
            y = function(x)
            gc.collect()
            y.sum().backward()
            assert x.grad.any(), function
    names = ["tp", "cp", "pp", "dp"]
    communicator = ColocatedBridgeCommunicator(HyperCommGrid([1, 1, 1, 4], names), HyperCommGrid([2, 1, 1, 2], names))
    x = leaf(np.ones((2, 3, 2)))
    y = communicator.communicate(x)
    communicator.destroy()
    gc.collect()
    y.sum().backward()
    same(x.grad, np.ones((2, 3, 2)))


@test
def results_that_somebody_has_are_not_written_again():
    """Over torch.distributed short results have the memory of earlier ones that are gone."""
    n, holders = dist.get_world_size(), (lambda y: y, lambda y: y[1:], torch.Tensor.numpy, torch.Tensor.untyped_storage,
                                         torch.utils.dlpack.to_dlpack, lambda y: (y.requires_grad_() * y).grad_fn)
    grid = lierne.Grid({"dp": n})
    layouts = [lierne.Layout(grid, (4 * n,), "f32", {"dp": placement})
               for placement in (lierne.Shard(0), lierne.Replicate())]
    with lierne.torch.context() as context:
        move = lierne.torch.Redistribute(context, *layouts)
        for k, hold in enumerate(holders):
            mine = torch.arange(4.) + 4 * context.rank + k
            place = move(mine).data_ptr()
            result = move(mine)
            assert result.data_ptr() == place, hold
            result.note = k
            held = hold(result)
            del result
            other = move(mine + 1)
            assert other.data_ptr() != place and not hasattr(other, "note"), k
            same(other, np.arange(4. * n) + k + 1)
            del held
        works = [move.begin(mine + i) for i in range(3)]
        for i, work in enumerate(works):
            same(work.wait(), np.arange(4. * n) + k + i)


@test
def an_operation_that_is_gone_is_named():
    with lierne.torch.context() as context:
        move = bridge(context)
        x, number = torch.zeros(move.shapes()[0], dtype=torch.float64), move.id
        del move
        gc.collect()
        error = raised(Exception, torch.ops.lierne.move, x, number, False)
        assert f"operation {number} is gone" in str(error), repr(error)


def closed_is_rejected():
    for over in ("distributed", "node"):
        context = lierne.torch.context(over=over)
        n = context.world_size
        grid = lierne.Grid({"tp": 1, "dp": n})
        move = lierne.torch.Bridge(context, grid, grid, (n, 2), torch.float32)
        x = torch.zeros(1, 2, requires_grad=True)
        y = move(x)
        context.close()
        for call in (lambda: move(x), lambda: move.begin(x), lambda: move.adjoint(x), y.sum().backward,
                     lambda: lierne.torch.Bridge(context, grid, grid, (n, 2), torch.float32)):
            error = raised(Exception, call)
            assert isinstance(error, ValueError) and "closed" in str(error), (over, repr(error))


test(closed_is_rejected)


def wrong_arguments_on_one_rank():
    closed_is_rejected()
    grid = lierne.Grid({"tp": 1, "dp": 1})
    with lierne.torch.context() as context:
        for bad in ("tp1,dp1", None, 3, np.zeros((1000, 2))):
            error = raised(Exception, lierne.torch.Bridge, context, bad, grid, (2, 2), torch.float32)
            assert isinstance(error, TypeError) and "is no DeviceMesh and no grid" in str(error), repr(error)
            assert len(str(error)) < 200, error
        move = lierne.torch.Bridge(context, grid, grid, (2, 2), torch.float32)
        array = np.zeros((2, 2), np.float32)
        for call in (move, move.adjoint, move.begin):
            error = raised(Exception, call, array)
            assert isinstance(error, TypeError), repr(error)
            assert "the input is a numpy.ndarray, must be a torch.Tensor" in str(error), error
            assert "[" not in str(error), error


test(wrong_arguments_on_one_rank, 1)


if __name__ == "__main__":
    main()
