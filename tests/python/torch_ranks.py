"""lierne.torch on ranks of torchrun: both ways to move data, against the golden files, each other and by
hand. 8 ranks: golden bridges and DTensors."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest.mock

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.tensor

import lierne
import lierne.torch
from cases import grid_of
from package import Bridges
from package_rows import Rows
from report import golden
from lierne.torch.checkpoint import list_tensors
from torch_harness import ENCODER, bridge, contexts, leaf, main, raises, same, test, test_on_8


def given(move, direction, data):
    """The input of a rank; an empty one where it holds nothing."""
    return np.zeros(move.shapes(direction)[0]) if data is None else data


@test_on_8
def golden_bridges():
    cases = [c for c in golden("bridge_tensors")["cases"] if c["world_size"] == dist.get_world_size()]
    assert len(cases) >= 20, len(cases)
    for context in contexts():
        for case in cases:
            plans = Bridges.bridge([context], dict(case, world_size=case["world_size"]))
            move = lierne.torch.Operation(plans[0])
            src, dst = (grid_of(case[side], case["world_size"]) for side in ("src", "dst"))
            x = leaf(given(move, "forward", Bridges.inputs(case, src, context.rank, "x")))
            y = move(x)
            g = given(move, "adjoint", Bridges.inputs(case, dst, context.rank, "g"))
            y.backward(torch.as_tensor(g))
            same(y.detach(), case["forward"].get(str(context.rank), []), case["id"])
            same(x.grad, case["input_grad"].get(str(context.rank), []), case["id"])


@test
def golden_graphs():
    file = golden("graph_a2a")
    cases = [c for c in file["cases"] if c["world"] == dist.get_world_size()]
    assert len(cases) >= 3, len(cases)
    for context in contexts():
        for case in cases:
            edges, owner = np.array(case["edges"]).reshape(2, -1), np.array(case["assignment"])
            mine = owner[edges[1]] == context.rank
            move = lierne.torch.Graph(context, owner, edges[0][mine], edges[1][mine], torch.float64,
                                      row_shape=(file["width"],))
            lists, expect = move.plan.lists(), case["ranks"][context.rank]
            x = leaf(Rows.f(lists["owned"], file["width"]))
            ghosts = move(x)
            ghosts.backward(torch.as_tensor(Rows.h(context.rank, lists["nghosts"], file["width"])))
            same(ghosts.detach(), np.ravel(expect["forward"]), case["id"])
            same(x.grad, np.ravel(expect["backward"]), case["id"])
            x = leaf(Rows.f(lists["owned"], file["width"]))
            rows = torch.cat([x, move(x)])[torch.as_tensor(lists["edge_source"])]
            sums = torch.zeros_like(x).index_add(0, torch.as_tensor(lists["edge_target"]), rows)
            sums.backward(torch.as_tensor(Rows.h(7, len(x), file["width"])))
            same(sums.detach(), np.ravel(expect["agg"]), case["id"])
            same(x.grad, np.ravel(expect["agg_backward"]), case["id"])


@test
def golden_halos():
    file = golden("halo")
    cases = [c for c in file["cases"] if c["world"] == dist.get_world_size() and c["nswap"]
             and not {"phantom", "null"} & set(c) and c.get("upstream") != "q"]
    assert len(cases) >= 2, len(cases)
    for context in contexts():
        for case in cases:
            part, width = case["ranks"][context.rank], file["width"]
            n, ghosts = part["nlocal"], part["nghost"]
            move = lierne.torch.Halo(context, n, ghosts, part["sendproc"], part["recvproc"],
                                     part["sendlist"], part["recvnum"], torch.float64,
                                     row_shape=(width,))
            x = leaf(np.concatenate([Rows.f(part["gid"][:n], width),
                                     np.full((ghosts, width), -9999.0)]))
            y = move(x)
            y.backward(torch.as_tensor(Rows.h(context.rank, n + ghosts, width)))
            same(y[n:].detach(), np.ravel(part["forward_ghost"]), case["id"])
            same(x.grad[:n], np.ravel(part["backward_local"]), case["id"])


@test
def random_floats_have_the_same_bits_on_both_ways():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        results = []
        for context in contexts():
            torch.manual_seed(dist.get_rank())
            move = bridge(context, dtype, shape=(16, 8, 5))
            x = torch.randn(move.shapes()[0]).to(dtype).requires_grad_()
            y = move(x)
            y.backward(torch.randn(y.shape).to(dtype))
            results.append((y.detach(), x.grad))
        for one, other in zip(*results):
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), dtype


@test
def what_no_rank_writes_is_zero():
    """A rank of cp 2 has half of the sequence, in memory for all of it; main() fills what is new with NaN."""
    for context in contexts():
        grids = [lierne.Grid(dims) for dims in ({"tp": 1, "dp": 4}, {"tp": 1, "cp": 2, "dp": 2})]
        move = lierne.torch.Bridge(context, *grids, (8, 4, 2), torch.float32, sequence_axis=1,
                                   owner="contiguous", output="sharded", storage="full")
        first, half = context.rank // 2 * 4, context.rank % 2 * 2
        whole = torch.arange(1., 65).reshape(8, 4, 2)
        expect = torch.zeros(4, 4, 2)
        expect[:, half:half + 2] = whole[first:first + 4, half:half + 2]
        y = move(whole[context.rank * 2:context.rank * 2 + 2].clone())
        assert y.shape == expect.shape, y.shape
        same(y, expect)


@test
def computed_nans_have_the_bits_of_the_library():
    """Sums of NaNs with payloads and signs, of one NaN and numbers, and of infinities."""
    for dtype, bits, canonical in ((torch.bfloat16, 16, 0x7fc0), (torch.float16, 16, 0x7e00),
                                   (torch.float32, 32, 0x7fc00000), (torch.float64, 64, 0x7ff8 << 48)):
        integer, sign = getattr(torch, f"int{bits}"), -1 << bits - 1
        for reduction in ("sum", "avg"):
            for context in contexts():
                rank = context.rank
                x = torch.full((4,), rank + 1.0, dtype=dtype)
                nan = torch.tensor(canonical + rank + 1 + (rank % 2) * sign, dtype=integer).view(dtype)
                x[0] = nan
                x[1] = nan if rank == 2 else x[1]
                x[2] = (float("inf"), 1, -float("inf"), 2)[rank]
                move = lierne.torch.Operation(lierne.all_reduce(context, 4, dtype, reduction=reduction))
                same(move(x).view(integer)[:3], [canonical] * 3, (dtype, reduction))


@test
def random_references_have_the_same_bits_on_both_ways():
    """Ghosts of few rows, many times: sums over index lists that name a row twice."""
    for options in ({}, {"combined": True}, {"accumulate": True}):
        for dtype in (torch.bfloat16, torch.float32):
            results = []
            for context in contexts():
                rng = np.random.default_rng(7 + context.rank)
                move = lierne.torch.References(
                    context, 3, rng.integers(0, 4, 40), rng.integers(0, 3, 40), dtype,
                    row_shape=(2,), algorithm="direct", **options)
                torch.manual_seed(dist.get_rank())
                x = torch.randn(move.shapes()[0]).to(dtype)
                y = move(x)
                results.append((y, move.adjoint(torch.randn(move.shapes(1)[0]).to(dtype))))
            for one, other in zip(*results):
                assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), (dtype, options)


@test
def swaps_may_send_a_row_twice():
    for dtype in (torch.float32, torch.bfloat16):
        for context in contexts():
            right, left = (context.rank + 1) % 4, (context.rank - 1) % 4
            move = lierne.torch.Halo(context, 2, 3, [right], [left], [[0, 0, 1]], [3], dtype)
            torch.manual_seed(1)
            every = torch.randn(4, 5).to(dtype)  # a row per rank
            g, back = every[context.rank], every[right][2:]
            expected = torch.stack([g[0] + back[0] + back[1], g[1] + back[2]])
            same(move.adjoint(g)[:2], expected, dtype)


@test
def reductions_of_collectives():
    for context in contexts():
        r, n = context.rank, context.world_size
        x = torch.arange(12, dtype=torch.float32) + 100 * r
        for name, expected in (("max", x - 100 * r + 100 * (n - 1)), ("min", x - 100 * r),
                               ("avg", x - 100 * r + 100 * (n - 1) / 2)):
            move = lierne.torch.Operation(lierne.all_reduce(context, 12, "f32", reduction=name))
            same(move(x), expected, name)
        product = lierne.all_reduce(context, 2, "i64", reduction="prod")
        same(lierne.torch.Operation(product)(torch.tensor([r + 1, 2])), [24, 16])


@test
def dot_of_forward_and_adjoint_is_exact():
    for context in contexts():
        move = lierne.torch.References(context, 5, [(context.rank + 1) % 4] * 7, [0, 1, 1, 4, 4, 4, 2],
                                       torch.int64, row_shape=(3,))
        rng = torch.Generator().manual_seed(context.rank)
        x = torch.randint(-99, 99, move.shapes()[0], generator=rng)
        y = torch.randint(-99, 99, move.shapes()[1], generator=rng)
        sums = torch.stack([(move(x) * y).sum(), (x * move.adjoint(y)).sum()])
        dist.all_reduce(sums)
        assert sums[0] == sums[1] != 0, sums


@test
def rows_of_any_type_through_one_graph():
    """Positions, species and charges; gradients of gradients; more types than are kept."""
    for context in contexts():
        right, n = (context.rank + 1) % 4, context.world_size
        move = lierne.torch.References(context, 3, [right, right], [2, 0], torch.float64, row_shape=(3,))
        numbers = []
        for dtype, row_shape in [(torch.float64, (3,)), (torch.int32, ()), (torch.float32, (2, 2)), (torch.int32, ())]:
            whole = torch.arange(n * 3 * int(np.prod(row_shape))).reshape(n * 3, *row_shape).to(dtype)
            x = whole[3 * context.rank:][:3].requires_grad_(dtype.is_floating_point)
            same(move(x).detach(), whole[[3 * right + 2, 3 * right]], (dtype, row_shape))
            same(move.begin(x).wait().detach(), whole[[3 * right + 2, 3 * right]], (dtype, row_shape))
            numbers.append(len(move._retyped))
            if x.requires_grad:
                weight = whole[:2] + 1
                (move(x) * weight).sum().backward()
                same(x.grad, torch.stack([weight[1], 0 * weight[0], weight[0]]), (dtype, row_shape))
                same(move.adjoint(weight).detach(), x.grad, (dtype, row_shape))
        assert numbers == [0, 1, 2, 2], numbers
        for width in range(1, lierne.torch.RETYPED + 3):
            same(move(torch.full((3, width), context.rank)), torch.full((2, width), right), width)
        assert len(move._retyped) == lierne.torch.RETYPED
        try:
            move(torch.zeros(4, 7))
            raise AssertionError("a tensor of four rows")
        except ValueError as error:
            assert "the plan needs (3, 7)" in str(error), error


@test
def rows_that_migrate():
    """Every rank keeps its first row, sends the second one to the next rank and ends the third one; then the reverse."""
    for context in contexts():
        me, left, right = context.rank, (context.rank + 3) % 4, (context.rank + 1) % 4
        move = lierne.torch.Migration(context, [me, right, -1], torch.float64, row_shape=(3,))
        whole = torch.arange(36, dtype=torch.float64).reshape(12, 3)
        kept = [3 * me, 3 * left + 1]
        order = kept[::-1] if left < me else kept
        x = whole[3 * me:][:3].requires_grad_()
        same(move(x).detach(), whole[order], "positions")
        same(move(torch.arange(12)[3 * me:][:3]), order, "numbers")
        weight = whole[order] + 1
        (move(x) * weight).sum().backward()
        same(x.grad, torch.cat([whole[3 * me:][:2] + 1, torch.zeros(1, 3)]), "gradients")
        move.plan.update([left, left])
        move.updated()
        same(move(torch.arange(8)[2 * me:][:2]), [2 * right, 2 * right + 1], "numbers of the next step")


@test
def layouts_of_another_type():
    """A redistribution of [4, 4, 2] whose last axis becomes another; a tensor that does not fit is no new plan."""
    for context in contexts():
        grid = lierne.Grid({"dp": 4})
        src, dst = (lierne.Layout(grid, (4, 4, 2), "f64", {"dp": lierne.Shard(axis)}) for axis in (0, 1))
        move = lierne.torch.Redistribute(context, src, dst).retyped(torch.int64, (3,))
        whole = torch.arange(48).reshape(4, 4, 3)
        same(move(whole[context.rank:][:1]), whole[:, context.rank:][:, :1], "other columns")
        same(move.adjoint(whole[:, context.rank:][:, :1]), whole[context.rank:][:1], "other rows")
        try:
            move(whole)
            raise AssertionError("the whole tensor")
        except ValueError as error:
            assert "the plan needs (1, 4, 3)" in str(error), error


@test
def works_overlap_and_equal_blocking_calls():
    for context in contexts():
        move = bridge(context, max_inflight=2)
        data = [torch.randn(move.shapes()[0], dtype=torch.float64) for _ in range(2)]
        plain = [x.clone().requires_grad_() for x in data]
        ahead = [x.clone().requires_grad_() for x in data]
        blocking = [move(x) for x in plain]
        works = [move.begin(x) for x in ahead]
        waited = [work.wait() for work in works]
        for one, other in zip(blocking, waited):
            assert torch.equal(one, other)
        scale = torch.arange(1, blocking[0].numel() + 1, dtype=torch.float64).reshape(blocking[0].shape)
        for pair in (blocking, waited):
            ((pair[0] * scale).sum() + (pair[1] * pair[1]).sum()).backward()
        for one, other in zip(plain, ahead):
            assert torch.equal(one.grad, other.grad) and one.grad.abs().sum() > 0


@test
def compile_export_and_opcheck():
    context = lierne.torch.context(over="distributed", timeout=60)
    move = bridge(context)
    x = torch.randn(move.shapes()[0], dtype=torch.float64, requires_grad=True)

    def loss(x):
        return (move(x * 2).sin() * 3).sum()

    expected, = torch.autograd.grad(loss(x), x)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got, = torch.autograd.grad(compiled(x), x)
    assert torch.equal(got, expected)

    class Module(torch.nn.Module):
        def forward(self, x):
            return move(x) + 1

    program = torch.export.export(Module(), (x.detach(),))
    assert "lierne.move" in str(program.graph), program.graph
    same(program.module()(x.detach()), (move(x) + 1).detach())
    torch.library.opcheck(torch.ops.lierne.move.default, (x, move.id, False))
    context.close()


@test
def the_backward_of_the_backward():
    for context in contexts():
        move = bridge(context)
        x = torch.randn(move.shapes()[0], dtype=torch.float64, requires_grad=True)
        y = move(x)
        g = torch.randn(y.shape, dtype=torch.float64, requires_grad=True)
        back, = torch.autograd.grad(y, x, g, create_graph=True)
        v = torch.randn(back.shape, dtype=torch.float64)
        twice, = torch.autograd.grad(back, g, v)
        assert torch.equal(twice, move(v))


@test
def device_meshes_are_grids():
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    grid = lierne.torch.grid(mesh)
    assert list(grid.dims().items()) == [("tp", 2), ("dp", 2)] and grid.world_size == 4
    for name in ("dp", "tp"):
        assert dist.get_process_group_ranks(mesh.get_group(name)) in grid.groups(name), name
        assert grid.coords(dist.get_rank())[name] == mesh.get_local_rank(name)


@test
def shapes_that_change():
    for context in contexts():
        move = bridge(context)
        move.plan.update_shape((4, 4, 3))
        move.updated()
        x = torch.full(move.shapes()[0], float(context.rank))
        y = move(x.double())
        assert y.shape == (2, 4, 3)
        first = 2 * (context.rank // 2)
        same(y[0], torch.full((4, 3), float(first)))
        same(y[1], torch.full((4, 3), float(first + 1)))


@test
def weights_from_a_trainer_to_an_engine():
    """Two trainer ranks (tp2) to two engine ranks (tp2, in another cut): bits, digests and gradients."""
    trainer, engine = lierne.Grid({"tp": 2}, 0, 4), lierne.Grid({"tp": 2}, 2, 4)
    rank, shapes = dist.get_rank(), [(6, 10), (7,), (5, 4, 2)] * 20
    for dtype in (torch.bfloat16, torch.float32):
        torch.manual_seed(7)
        whole = [torch.randn(shape).to(dtype) for shape in shapes]
        sides = [[lierne.Layout(grid, w.shape, dtype, {"tp": lierne.Shard((i + turn) % w.dim())})
                  for i, w in enumerate(whole)] for grid, turn in ((trainer, 0), (engine, 1))]

        def mine(i, turn):
            return torch.tensor_split(whole[i], 2, (i + turn) % whole[i].dim())[rank % 2]

        results = []
        for context in contexts():
            moves = [lierne.torch.TensorSet(context, *sides)]
            if getattr(context, "routed", False):
                moves.append(lierne.torch.Operation(lierne.TensorSetRoutes(rank, *sides)))
            for move in moves:
                trained = torch.zeros(move.shapes()[0], dtype=dtype)
                for i, view in enumerate(move.plan.views(trained) if rank < 2 else []):
                    view.copy_(mine(i, 0))
                trained.requires_grad_()
                served = move(trained)
                served.backward(served.detach())
                assert torch.equal(trained.grad, trained.detach())  # each element is needed once
                views = move.plan.views(served.detach(), "dst")
                for i, view in enumerate(views if rank > 1 else []):
                    assert torch.equal(view, mine(i, 1)), (i, view, mine(i, 1))
                given = move.plan.views(trained.detach())
                lierne.check_digests(context, *sides, views, given, key=3)
                if rank == 3:
                    views[4].view(torch.uint8).view(-1)[0] ^= 1
                try:
                    lierne.check_digests(context, *sides, views, given, key=3)
                    raise AssertionError("accepted")
                except lierne.errors.MismatchError as error:
                    assert "tensor 4" in str(error) and "rank 3" in str(error), error
                results.append(given)
            sent = moves[0].plan.report()["sent_messages"]
            assert sent <= 2, sent  # coalesced: one message for 60 tensors per peer
        assert len(results) == 3


class Lost(dict):
    """A state of copies: what is written into its tensors is lost."""

    def __getitem__(self, name):
        return super().__getitem__(name).clone()


@test
def weights_by_name():
    """Ranks 0 and 1 train, 2 and 3 serve: states of two dtypes, in other orders on other ranks; deltas and dense calls
    have the same bits, and what an engine overwrote, or a digest found, comes again."""
    rank = dist.get_rank()
    trainer, engine = lierne.Grid({"tp": 2}, 0, 4), lierne.Grid({"dp": 2}, 2, 4)
    shapes = {"w": ((60, 8), torch.bfloat16), "b": ((60,), torch.float32), "v": ((8, 60), torch.bfloat16)}
    names = sorted(shapes, reverse=bool(rank % 2))
    src = {name: lierne.Layout(trainer, *shapes[name], {"tp": lierne.Shard(0)}) for name in names}
    dst = {name: lierne.Layout(engine, *shapes[name], {}) for name in names}
    torch.manual_seed(3)
    whole = {name: torch.randn(shape).to(dtype) for name, (shape, dtype) in sorted(shapes.items())}
    held = {name: whole[name].chunk(2)[rank] for name in names} if rank < 2 else {}
    served = {name: torch.zeros(shapes[name][0], dtype=shapes[name][1]) for name in names} if rank > 1 else {}
    with lierne.torch.context(over="node", timeout=60) as context:
        for delta in (True, False):
            sync = lierne.torch.WeightSync(context, held, served, src, dst, delta=delta)
            for step in range(5):
                for name in whole:
                    whole[name].view(-1)[step::97] += 1
                if step == 3 and rank == 3:
                    served["w"].fill_(-1)
                sync.sync(check=step % 2 == 0)
                assert all(torch.equal(served[name], whole[name]) for name in served), (delta, step)
                sent, dense = sync.report["sent_bytes"], sync.report["dense_bytes"]
                assert dense == (2 * (480 + 480 + 2 * 60) if rank < 2 else 0), dense
                assert sent == dense if not delta else step == 0 or sent <= dense // 4, (step, sent, dense)
            whole["v"].view(-1)[0] += 1
            sync.engine_state = Lost(served) if rank == 3 else served
            raises(lierne.errors.MismatchError, "out of rank 3 differs from in of rank 0", sync.sync, check=True)
            raises(lierne.errors.MismatchError, "is 'v')", sync.sync, check=True)
            sync.engine_state = served
            sync.sync(check=True)
            assert not delta or rank > 1 or sync.report["sent_bytes"] >= 2 * 960, sync.report
            changed = {**held, "v": whole["v"].float()} if rank == 0 else held  # one rank's state fits no more
            sync.trainer_state = changed
            raises(*((ValueError, "trainer_state['v'] has shape (8, 60) and dtype torch.float32") if rank == 0 else
                     (lierne.errors.InvalidError, "a tensor of rank 0 does not fit its layout")), sync.sync)
            sync.trainer_state = held
            sync.sync(check=True)
            sync.close()
            raises(ValueError, "the WeightSync is closed", sync.sync)
            assert not any(sync.report.values()), sync.report
        box = lierne.SetBox("w", "u", (0, 0), (0, 0), (8, 60), (1, 0))  # transposed
        raises(KeyError, "boxes[0] names 'x', of which dst has no layout", lierne.torch.WeightSync, context, held, served,
               src, dst, [lierne.SetBox("w", "x", (0, 0), (0, 0), (60, 8))])
        raises(ValueError, "'b': 'b' is f32, 'b' is bf16", lierne.torch.WeightSync, context, held, served, src,
               {**dst, "b": lierne.Layout(engine, (60,), "bf16", {})})
        raises(KeyError, "'x' is in one of src and dst only", lierne.torch.WeightSync, context, held, served, src,
               {**dst, "x": dst["w"]})
        for other, kind, text in (({name: held.get(name) for name in "wv"}, KeyError,
                                   f"trainer_state has no 'b', of which rank {rank} holds shape (30,)"),
                                  ({**held, "w": whole["w"]}, ValueError,
                                   "trainer_state['w'] has shape (60, 8) and dtype torch.bfloat16"),
                                  ({**held, "w": whole["w"][:30].to("meta")}, ValueError, "on meta")):
            if rank > 1:
                kind, text = lierne.errors.InvalidError, "a tensor of rank 1 does not fit its layout"
            raises(kind, text, lierne.torch.WeightSync, context, other if rank < 2 else held, served, src, dst)
        one = {"w": src["w"]}, {"u": lierne.Layout(engine, (8, 60), torch.bfloat16, {})}
        served.update({"u": torch.zeros(8, 60, dtype=torch.bfloat16)} if rank > 1 else {})
        sync = lierne.torch.WeightSync(context, held, served, *one, boxes=[box])
        sync.sync(check=True)
        for step in range(2):  # an element that is wrong, of each rank of the engine; then the call that repairs it
            if rank == 2 + step:
                served["u"].view(-1)[7] += 1
            raises(lierne.errors.MismatchError, f"tensor 0: out of rank {2 + step} differs",
                   sync._groups[0].check, sync)
            sync.invalidate()
            sync.sync(check=True)
            assert not served or torch.equal(served["u"], whole["w"].t())
        sync.close()
        states_of_any_kind(context, rank)


def states_of_any_kind(context, rank):
    """A scalar, types that lierne moves as bits, parameters that require gradients, tensors that are not contiguous,
    and boxes from a generator."""
    trainer, engine = lierne.Grid({"tp": 1}, 0, 4), lierne.Grid({"dp": 1}, 2, 4)
    kinds = {"steps": torch.tensor(7), "mask": torch.tensor([True, False, True]),
             "scales": torch.linspace(-2, 2, 12).to(torch.float8_e4m3fn).view(4, 3).t(),
             "phases": torch.arange(4).to(torch.complex64), "bias": torch.arange(6.0)}
    layouts = [{name: lierne.Layout(grid, tuple(t.shape) or (1,), t.dtype, {}) for name, t in kinds.items()}
               for grid in (trainer, engine)]
    held = {**kinds, "bias": torch.nn.Parameter(kinds["bias"])} if rank == 0 else {}
    served = {name: torch.zeros_like(t) for name, t in kinds.items()} if rank == 2 else {}
    if served:
        served["bias"] = torch.nn.Parameter(served["bias"])
    boxes = (lierne.SetBox(name, name, [0] * len(shape), [0] * len(shape), shape)
             for name, shape in ((name, tuple(t.shape) or (1,)) for name, t in kinds.items()))
    sync = lierne.torch.WeightSync(context, held, served, *layouts, boxes=boxes)
    sync.sync(check=True)
    for name, tensor in served.items():
        assert tensor.dtype == kinds[name].dtype and tensor.shape == kinds[name].shape, name
        assert torch.equal(tensor.detach().reshape(-1).view(torch.uint8), kinds[name].reshape(-1).view(torch.uint8)), name
    assert not served or served["bias"].requires_grad and served["bias"].is_leaf
    sync.close()


@test
def tensors_of_a_checkpoint():
    """Every rank saves a part of its own; the list names whole tensors, and the command takes it."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
    whole = torch.arange(6.0 * 5 * ranks).reshape(6 * ranks, 5).to(torch.bfloat16)
    cut = torch.distributed.tensor.distribute_tensor(whole, mesh, [torch.distributed.tensor.Shard(0)])
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    torch.distributed.checkpoint.save({"layers.0.qkv": cut, "norm": torch.ones(7), "step": 3},
                                      checkpoint_id=folder[0])
    tensors = list_tensors(folder[0])
    assert tensors == [{"name": "layers.0.qkv", "dtype": "bf16", "shape": [6 * ranks, 5]},
                       {"name": "norm", "dtype": "f32", "shape": [7]}], tensors
    dist.barrier()
    if rank == 0:
        with open(folder[0] + "/set.json", "w") as file:
            json.dump({"world_size": ranks + 1, "src": {"dims": {"fsdp": ranks}},
                       "dst": {"dims": {"tp": 1}, "rank_offset": ranks}, "tensors": tensors,
                       "layouts": [{"names": "norm"}, {"names": "*", "src": {"fsdp": 0}}]}, file)
        command = [os.path.dirname(lierne.__file__) + "/../../lierne", "simulate", "--set", file.name, "--format", "json"]
        got = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert got["tensors"] == 2 and got["forward"]["wrong"] == got["adjoint"]["wrong"] == 0, got
        shutil.rmtree(folder[0])


@test
def shared_outputs():
    grids = lierne.Grid(ENCODER), lierne.Grid({"tp": 4, "dp": 1})
    with lierne.torch.context(over="node", timeout=60) as context:
        for dtype in (torch.bfloat16, torch.float32):
            torch.manual_seed(dist.get_rank())
            plain, shared = (lierne.torch.Bridge(context, *grids, (8, 3), dtype, shared_output=sharing)
                             for sharing in ("none", "forward"))
            x = torch.randn(2, 3).to(dtype).requires_grad_()
            grads = []
            for move in (plain, shared):
                y = move(x)
                grads.append(torch.autograd.grad((y * y).sum(), x)[0])
                same(move.begin(x).wait().detach().float(), plain(x).detach().float())
            assert torch.equal(*grads) and grads[0].any(), grads
            loss = (shared(x) ** 2).sum()
            y = shared(2 * x)  # overwrites what the loss needs
            try:
                loss.backward()
                raise AssertionError("accepted")
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error), error
            dist.barrier()
            if context.rank == 3:
                y.detach()[0, 0] = 77  # one memory, although nobody should write there
            dist.barrier()
            assert y[0, 0] == 77
            dist.barrier()
            del y, loss
        try:
            lierne.torch.Bridge(context, *grids, (8, 3), dtype, shared_output="both")
            raise AssertionError("accepted")
        except ValueError as error:
            assert "shared_output='forward'" in str(error), error
    with lierne.torch.context(timeout=60) as context:
        try:
            lierne.torch.Bridge(context, *grids, (8, 3), torch.float32, shared_output="forward")
            raise AssertionError("accepted")
        except ValueError as error:
            assert "over='node'" in str(error), error


@test
def what_does_not_fit_is_rejected_before_anything_moves():
    for context in contexts():
        move = bridge(context)
        x = torch.zeros(move.shapes()[0], dtype=torch.float64)
        for bad, kind, text in ((x.float(), TypeError, "dtype torch.float32; the plan's is f64"),
                                (x[:1], ValueError, "the plan needs (2, 4, 3)")):
            try:
                move(bad)
                raise AssertionError("accepted")
            except kind as error:
                assert text in str(error), error


@test
def tensors_enter_plans_without_a_call_of_python_each():
    def never(*_, **__):
        raise AssertionError("asked for a capsule")

    x, out = torch.arange(4.0), torch.zeros(4)
    with lierne.Context.self() as context:
        plan, complex_plan = (lierne.all_gather(context, 4, dtype) for dtype in ("f32", "bits64"))
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            with unittest.mock.patch.object(torch.Tensor, "__dlpack__", never):
                plan.forward(x, out)
        else:
            plan.forward(x, out)
        assert torch.equal(out, x)
        for bad, move in ((x.clone().requires_grad_(), plan), (torch.zeros(4, dtype=torch.complex64).conj(), complex_plan)):
            raises((BufferError, RuntimeError), "Can't export tensors", move.forward, bad)


@test
def what_is_differentiated_or_mapped_is_no_plain_call():
    for context in contexts():
        move = bridge(context)
        x = torch.zeros(move.shapes()[0], dtype=torch.float64)
        assert not move(x).requires_grad and move(x.clone().requires_grad_()).requires_grad
        raises(RuntimeError, "", torch.func.jvp, move, (x,), (x,))
        raises(RuntimeError, "", torch.func.vmap(move), x[None])
        with torch.autograd.forward_ad.dual_level():
            raises(RuntimeError, "", move, torch.autograd.forward_ad.make_dual(x, x))


@test
def every_rank_gets_a_planning_error():
    for context in contexts():
        try:
            bridge(context, shape=(8, 4, 3 + dist.get_rank() // 3))
            raise AssertionError("accepted")
        except lierne.errors.MismatchError as error:
            assert "shape" in str(error), error


@test
def a_rank_that_is_no_member_says_so():
    other = (dist.get_rank() + 1) % dist.get_world_size()
    for way in ("distributed", "node"):
        raises(ValueError, f"rank {dist.get_rank()} is none of the 1 members", lierne.torch.context, way, members=[other])


@test_on_8
def golden_dtensors_across_meshes():
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
    from lierne.torch.dtensor import redistribute

    def placements(side):
        return [Replicate() if p == "replicate" else Shard(p["shard"]) if "shard" in p else
                _StridedShard(p["strided_shard"], split_factor=p["split_factor"])
                for p in side["placements"]]

    def mesh(side):
        n = int(np.prod(side["mesh"]))
        ranks = torch.arange(side["rank_offset"], side["rank_offset"] + n)
        return dist.device_mesh.DeviceMesh("cpu", ranks.reshape(side["mesh"]))

    def part(whole, axes):
        return whole[np.ix_(*axes)] if axes and all(axes) else None

    pairs = [p for p in golden("dtensor")["pairs"] if p["world_size"] <= dist.get_world_size()]
    assert len(pairs) >= 20, len(pairs)
    context, compared = lierne.torch.context(timeout=60), 0
    for case in pairs[:24]:
        shape, rank = case["src"].get("shape", case.get("shape")), dist.get_rank()
        whole = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        sides = {side: (mesh(case[side]), placements(case[side])) for side in ("src", "dst")}

        def held(side, lists):
            i = rank - case[side]["rank_offset"]
            inside = 0 <= i < np.prod(case[side]["mesh"])
            return part(whole, lists[i]["axes"]) if inside else None

        local = held("src", case["src"]["holds"])
        local = torch.zeros([0] * len(shape)).double() if local is None else torch.from_numpy(local)
        local.requires_grad_()
        given = DTensor.from_local(local, *sides["src"], run_check=False, shape=torch.Size(shape),
                                   stride=torch.from_numpy(whole).stride())
        got = redistribute(given, *sides["dst"], context)
        expected = held("dst", case["expect"])
        if expected is not None:
            assert tuple(got.placements) == tuple(sides["dst"][1]), case["id"]
            same(got.to_local().detach(), expected, case["id"])
            compared += 1
        mine = got.to_local() if isinstance(got, DTensor) else got
        mine.backward(torch.full_like(mine, 3.0))
        if given.device_mesh.get_coordinate() is None:
            continue
        same(local.grad, torch.full_like(local, 3.0), case["id"])
    total = torch.tensor([compared])
    dist.all_reduce(total)
    assert total >= 10, total
    context.close()


@test
def windows_of_tensors():
    """An all-gather and a reduce-scatter in rounds: out[r] = 10 r + k, and sums 4 (place + k) + 60."""
    with lierne.torch.context(over="node") as context:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            window = lierne.torch.Window(context, (4, 3), dtype)
            for k in range(20):
                window.writable()[:] = 10 * context.rank + torch.arange(4).reshape(4, 1) + k
                window.notify()
                window.wait()
                parts = [window.readable(place) for place in range(4)]
                assert all(part.dtype == dtype and part.shape == (4, 3) for part in parts)
                same(torch.stack([part[0] for part in parts]), np.repeat(10 * np.arange(4) + k, 3))
                same(sum(part[window.place] for part in parts), [4 * (window.place + k) + 60] * 3)
            raises(BufferError, "the window", window.close)
            del parts
            window.close()


@test
def no_mpi_in_the_process():
    with open("/proc/self/maps") as maps:
        assert "libmpi" not in maps.read()


if __name__ == "__main__":
    main()
