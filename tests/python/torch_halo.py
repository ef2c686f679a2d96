"""Halos of lierne.torch on ranks of torchrun, over both ways to move data: golden cases, and torch's own padding
of the whole tensor with its autograd, cut into windows here."""
import json
import os
import unittest.mock

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import lierne
import lierne.torch
from lierne.torch import DenseHalo, halo_exchange, halo_windows
from torch_harness import WAYS, contexts, main, raises, same, test

GOLDEN = os.path.join(os.path.dirname(__file__), "..", "golden", "dense_halo.json")
MODES = {"zero": "constant", "periodic": "circular", "mirror": "reflect", "replicate": "replicate"}


def upstream(shape, rank):
    """The gradient of a rank's buffer that the golden file names."""
    n = int(np.prod(shape))
    return ((53 * rank + 29 * torch.arange(n) + 13) % 127 - 63).double().reshape(tuple(shape))


def placement_of(entry):
    if isinstance(entry, str):
        return {"replicate": lierne.Replicate, "partial": lierne.Partial}[entry]()
    if "shard" in entry:
        return lierne.Shard(entry["shard"], entry.get("counts"), entry.get("share") == "chunk",
                            entry.get("cut_order", 0))
    if "zigzag" in entry:
        return lierne.ShardZigzag(entry["zigzag"], entry.get("cut_order", 0))
    if "rows" in entry:
        return lierne.ShardRows(entry["rows"], entry["owner"], entry.get("axis2", -1))
    return lierne.At(entry["at"])


def side_of(layout, world):
    """(grid, name -> placement)"""
    names = [f"d{i}" for i in range(len(layout["placements"]))]
    own = lierne.Grid(dict(zip(names, layout["grid"]["sizes"])), layout["grid"].get("offset", 0), world)
    return own, dict(zip(names, map(placement_of, layout["placements"])))


def spec_of(dst):
    halos = {halo["axis"]: halo for halo in dst["halo"]}
    segments = {axis: halo["segments"] for axis, halo in halos.items() if "segments" in halo}
    return DenseHalo({axis: (halo["lo"], halo["hi"]) for axis, halo in halos.items()},
                     {axis: halo.get("boundary", "none") for axis, halo in halos.items()}, dst.get("stencil", "box"),
                     dst.get("storage", "padded"), segments or None,
                     -9999. if any(halo.get("boundary") == "keep" for halo in halos.values()) else None)


def is_plain(case):
    """Whether halo_exchange alone can state it: one cut, a window of lo and hi on each axis."""
    same_cut = all(case["dst"].get(key) == entry for key, entry in case["src"].items())
    return (same_cut and "halo" not in case["src"] and case["dst"].get("halo") and
            "partial" not in case["src"]["placements"] and
            all(isinstance(rank["forward"], list) for rank in case["expect"]["ranks"]) and
            not any("stride" in halo or "starts" in halo for halo in case["dst"]["halo"]))


def run_golden(case, context):
    rank, expect = dist.get_rank(), case["expect"]["ranks"][dist.get_rank()]
    world = len(context.members)
    grid, placements = side_of(case["src"], dist.get_world_size())
    part = lierne.Layout(grid, case["shape"], "f64", placements)
    x = torch.zeros(part.shape(rank), dtype=torch.float64)
    whole = torch.arange(1, 1 + np.prod(case["shape"]), dtype=torch.float64).reshape(case["shape"])
    for start, size, local in part.boxes(rank):
        box = tuple(slice(a, a + n) for a, n in zip(start, size))
        x[tuple(slice(a, a + n) for a, n in zip(local, size))] = whole[box]
    x.requires_grad_()
    spec = spec_of(case["dst"])
    y = halo_exchange(x, grid, spec, placements, case["shape"], context)
    if spec.storage == "margins":
        assert sum(box.numel() for _, box in y.boxes) == y.buffer.numel(), case["id"]
        y = y.buffer
    else:
        assert list(y.shape) == expect["shape"], (case["id"], y.shape)
        windows = halo_windows(grid, spec, placements, case["shape"])
        for axis, found in expect["windows"].items():
            assert [list(w[:3]) for w in windows[int(axis)]] == found, (case["id"], windows, found)
    same(y.detach(), expect["forward"], case["id"])
    y.backward(upstream(y.shape, rank))
    same(x.grad, expect["adjoint"], case["id"])
    assert world == case["world"]


@test
def golden_cases():
    with open(GOLDEN) as file:
        cases = [case for case in json.load(file)["cases"] if case["world"] <= 4 and is_plain(case)]
    assert len(cases) > 70, len(cases)
    for way in WAYS:
        for world in range(1, 5):
            if dist.get_rank() < world:
                with lierne.torch.context(over=way, timeout=60, members=range(world)) as context:
                    for case in cases:
                        if case["world"] == world:
                            run_golden(case, context)


def padded(x, axis, lo, hi, mode):
    """torch's padding of one axis."""
    moved = x.movedim(axis, -1)
    flat = F.pad(moved.reshape(1, -1, moved.shape[-1]), (lo, hi), mode)
    return flat.reshape(*moved.shape[:-1], flat.shape[-1]).movedim(-1, axis)


def shares(size, n, chunk):
    """The first index of each of n shares, and the end."""
    if chunk:
        return [min(size, -(-size // n) * c) for c in range(n + 1)]
    return [c * (size // n) + min(c, size % n) for c in range(n + 1)]


class Drawn:
    """A random halo on a mesh of 2 x 2 or 4, as torch can compute it."""

    def __init__(self, seed, most=4):
        r = self.r = np.random.default_rng(seed)
        naxes = int(r.integers(1, most + 1))
        self.shape = tuple(int(n) for n in r.integers(4, 8, naxes))
        self.mesh = {"a": 2, "b": 2} if naxes > 1 and r.random() < 0.6 else {"a": 4}
        axes = r.permutation(naxes)
        self.cut = dict(zip(self.mesh, (int(axis) for axis in axes)))  # name -> axis
        self.chunk = bool(r.random() < 0.5)
        self.extended = sorted({*self.cut.values(), *(int(a) for a in axes if r.random() < 0.3)})
        self.boundary = {axis: str(r.choice(list(MODES))) for axis in self.extended}
        self.width = {axis: tuple(int(n) for n in r.integers(0, 4, 2)) for axis in self.extended}

    def span(self, rank, axis):
        """[first, end) of what a rank has of an axis."""
        coordinates = {"a": rank, "b": 0} if len(self.mesh) == 1 else {"a": rank // 2, "b": rank % 2}
        for name, cut in self.cut.items():
            if cut == axis:
                edges = shares(self.shape[axis], self.mesh[name], self.chunk)
                return edges[coordinates[name]], edges[coordinates[name] + 1]
        return 0, self.shape[axis]

    def part(self, whole, rank):
        return whole[tuple(slice(*self.span(rank, axis)) for axis in range(len(self.shape)))]

    def window(self, whole, rank):
        """What a rank has with its margins, by torch alone."""
        for axis in self.extended:
            whole = padded(whole, axis, *self.width[axis], MODES[self.boundary[axis]])
        spans = [self.span(rank, axis) for axis in range(len(self.shape))]
        ends = [end + sum(self.width.get(axis, (0, 0))) if end > first or axis not in self.width else first
                for axis, (first, end) in enumerate(spans)]
        return whole[tuple(slice(first, end) for (first, _), end in zip(spans, ends))]

    def placements(self, device_mesh):
        if self.chunk and device_mesh:
            return [Shard(axis) for axis in self.cut.values()][:len(self.mesh)]
        return {name: lierne.Shard(axis, chunk=self.chunk) for name, axis in self.cut.items()}

    def spec(self):
        return DenseHalo(self.width, self.boundary)


def whole_of(shape, dtype=torch.float64):
    """Small whole numbers, whose sums and products every dtype has exactly."""
    n = int(np.prod(shape))
    return (torch.arange(n) * 7 % 5 - 2).reshape(shape).to(dtype)


def every_context():
    """The default one too."""
    yield None
    yield from contexts()


@test
def random_configurations():
    """Forward, backward and double backward are torch's of the whole tensor."""
    rank, meshes = dist.get_rank(), {}
    for seed in range(40):
        drawn = Drawn(seed)
        if len(drawn.mesh) > len(drawn.shape):
            continue
        dtype = (torch.float64, torch.float32, torch.bfloat16, torch.float16)[seed % 4]
        names = tuple(drawn.mesh)
        if names not in meshes:
            meshes[names] = init_device_mesh("cpu", tuple(drawn.mesh.values()), mesh_dim_names=names)
        whole = whole_of(drawn.shape, dtype).requires_grad_()
        weights = [whole_of(drawn.window(whole, r).shape, dtype) + r % 2 for r in range(4)]
        ys = [drawn.window(whole, r) for r in range(4)]
        first, = torch.autograd.grad(sum((y * y * w).sum() / 2 for y, w in zip(ys, weights)), whole, create_graph=True)
        (first.double() ** 2).sum().div(2).backward()
        for context in every_context() if seed % 8 == 0 else (None,):
            x = drawn.part(whole.detach(), rank).clone().requires_grad_()
            y = halo_exchange(x, meshes[names], drawn.spec(), drawn.placements(True), drawn.shape, context)
            same(y.detach(), ys[rank].detach(), (seed, "forward"))
            got, = torch.autograd.grad((y * y * weights[rank]).sum() / 2, x, create_graph=True)
            if dtype in (torch.float64, torch.float32):
                same(got.detach(), drawn.part(first.detach(), rank), (seed, "backward"))
                (got.double() ** 2).sum().div(2).backward()
                same(x.grad, drawn.part(whole.grad, rank), (seed, "double backward"))
            elif got.numel():
                torch.testing.assert_close(got.detach(), drawn.part(first.detach(), rank), rtol=2e-2, atol=0.5)


def distributed(whole, mesh, placements):
    """A DTensor of whole, without communication."""
    return distribute_tensor(whole, mesh, placements, src_data_rank=None).requires_grad_()


@test
def dtensors():
    """A DTensor of any mesh and placements, PARTIAL too, is moved and extended in one exchange."""
    rank, whole = dist.get_rank(), whole_of((6, 9, 5))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("y", "x"))
    line = init_device_mesh("cpu", (4,), mesh_dim_names=("all",))
    spec = DenseHalo({0: (1, 2), -1: (2, 0)}, {0: "keep", -1: "mirror"}, fill=7.5)
    rows, columns = [[0, 3], [3, 6]][rank // 2], [[0, 3], [3, 5]][rank % 2]
    reference = whole.clone().requires_grad_()
    outer = F.pad(padded(reference, 2, 2, 0, "reflect"), (0, 0, 0, 0, 1, 2), "constant", 7.5)
    pieces = [outer[a:b + 3, :, c:d + 2] for a, b in ([0, 3], [3, 6]) for c, d in ([0, 3], [3, 5])]
    sum((piece * (r + 2)).sum() for r, piece in enumerate(pieces)).backward()
    for placements in [Shard(1)], [Shard(2)], [Replicate()]:
        x = distributed(whole, line, placements)
        y = halo_exchange(x, square, spec, [Shard(0), Shard(2)])
        assert type(y) is torch.Tensor
        same(y.detach(), outer[rows[0]:rows[1] + 3, :, columns[0]:columns[1] + 2].detach(), placements)
        (y * (rank + 2)).sum().backward()
        same(x.grad.full_tensor(), reference.grad, placements)
    x = DTensor.from_local((whole * [1, 2, -3, 1][rank]).requires_grad_(), line, [Partial()], run_check=False)
    x.retain_grad()
    y = halo_exchange(x, square, spec, [Shard(0), Shard(2)])
    same(y.detach(), pieces[rank].detach(), "the contributions add up to the tensor")
    (y * (rank + 2)).sum().backward()
    same(x.grad.full_tensor(), reference.grad, "every contribution has the whole gradient, once")
    x = distributed(whole, line, [Shard(0)])
    same(halo_exchange(x, line, DenseHalo({0: (1, 0)})).detach(), whole[max(min(2 * rank, 6) - 1, 0):2 * rank + 2]
         if rank < 3 else whole[:0], "its own cut by default, with an empty part")
    raises(ValueError, "the DTensor has (6, 9, 5)", lambda: halo_exchange(x, line, spec, shape=(6, 9, 4)))


@test
def many_axes():
    """Neighbours that are neither cut nor extended count as one axis, and the output has all of them."""
    rank, shape = dist.get_rank(), (2, 3, 2, 8, 3, 1)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("h",))
    whole = whole_of(shape)
    for storage in "padded", "margins":
        spec = DenseHalo({3: (2, 1)}, "periodic", storage=storage)
        x = whole[:, :, :, 2 * rank:2 * rank + 2].clone().requires_grad_()
        y = halo_exchange(x, mesh, spec, [Shard(3)], shape)
        outer = whole.roll(2 - 2 * rank, 3)[:, :, :, :5]
        if storage == "margins":
            assert [start for start, _ in y.boxes] == [(0, 0, 0, 2 * rank + at, 0, 0) for at in (-2, 2)]
            y = torch.cat([y.boxes[0][1], x.detach(), y.boxes[1][1]], 3)
        same(y.detach(), outer)
        assert y.shape == outer.shape
        y.sum().backward()
        counts = torch.tensor([3., 2.] if storage == "padded" else [2., 1.], dtype=torch.float64)
        same(x.grad, counts.reshape(1, 1, 1, 2, 1, 1).expand_as(x))
    raises(lierne.errors.UnsupportedError, "the tensor has 6 axes, and 5 where neighbours",
           lambda: halo_exchange(x, mesh, DenseHalo({1: (1, 1)}, "zero"), [Shard(3)], shape))


@test
def plans_are_kept():
    """One plan per mesh, placements, shape, dtype and spec; the last ones with documents."""
    made, n, redistribute = [], 16, lierne.Redistribute
    counted = lambda *arguments: made.append(arguments) or redistribute(*arguments)  # noqa: E731
    with lierne.torch.context(timeout=60) as context, unittest.mock.patch("lierne.Redistribute", counted):
        def new(x, segments=None, lo=1, chunk=False):
            """How many plans the call makes."""
            spec, before = DenseHalo({0: (lo, 0)}, "zero", segments=segments), len(made)
            halo_exchange(x, lierne.Grid({"x": 4}), spec, {"x": lierne.Shard(0, chunk=chunk)}, (n, *x.shape[1:]),
                          context)
            return len(made) - before

        x = torch.ones(4, dtype=torch.float64)
        assert [new(x), new(x), new(2 * x)] == [1, 0, 0]
        assert [new(x.float()), new(x, lo=2), new(x, chunk=True), new(torch.ones(4, 1).double())] == [1] * 4
        assert [new(x, [0, 5, n]), new(x, torch.tensor([0, 5, n])), new(x, [0, 6, n]), new(x)] == [1, 0, 1, 0]
        for k in range(16):
            assert new(x, [0, 7, 7 + k % 9, 7 + k % 9 + k // 9, n]) == 1
        assert [new(x, [0, 7, 15, 16, n]), new(x, [0, 5, n]), new(x)] == [1, 1, 0]


@test
def compiled():
    """torch.compile breaks the graph at an exchange, and computes around it."""
    rank, whole, mesh = dist.get_rank(), whole_of((8, 3)), init_device_mesh("cpu", (4,), mesh_dim_names=("x",))
    spec = DenseHalo({0: (1, 1)}, "periodic")
    function = torch.compile(lambda x: halo_exchange(2 * x, mesh, spec, [Shard(0)], (8, 3)) + 1, backend="eager")
    x = whole[2 * rank:2 * rank + 2].clone().requires_grad_()
    y = function(x)
    same(y.detach(), 2 * whole.roll(1 - 2 * rank, 0)[:4] + 1)
    y.sum().backward()
    same(x.grad, torch.full_like(x, 4))


@test
def meshes_of_some_ranks():
    """Without a context, the mesh's ranks alone call."""
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))["sp"]
    x = torch.tensor([10. * (rank // 2) + rank % 2], requires_grad=True)
    y = halo_exchange(x, mesh, DenseHalo({0: (1, 0)}, "periodic"), [Shard(0)], (2,))
    same(y.detach(), [10. * (rank // 2) + (rank + 1) % 2, 10. * (rank // 2) + rank % 2])
    (y[0] * 3 + y[1]).backward()
    same(x.grad, [4.])


@test
def bad_arguments():
    """One of each kind; all ranks get the same error, and the context stays."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("x",))
    x, shape, own, cut = torch.ones(2, 3), (8, 3), DenseHalo({0: (1, 1)}, "zero"), [Shard(0)]
    bad = [
        (TypeError, "margins is [1, 1], must be a dict", lambda: DenseHalo([1, 1])),
        (TypeError, "margins of axis 0 is 1, must be (lo, hi)", lambda: DenseHalo({0: 1})),
        (TypeError, "margins of axis 0 is (1, 0.5)", lambda: DenseHalo({0: (1, 0.5)})),
        (ValueError, "boundary is 'circular'", lambda: DenseHalo({0: (1, 1)}, "circular")),
        (ValueError, "boundary names axis 1, which has no margins", lambda: DenseHalo({0: (1, 1)}, {1: "zero"})),
        (ValueError, "segments names axis 1", lambda: DenseHalo({0: (1, 1)}, segments={1: [0, 8]})),
        (ValueError, "stencil is 'cross'", lambda: DenseHalo({0: (1, 1)}, stencil="cross")),
        (ValueError, "storage is 'none'", lambda: DenseHalo({0: (1, 1)}, storage="none")),
        (ValueError, "boundary 'keep' needs fill", lambda: DenseHalo({0: (1, 1)}, "keep")),
        (ValueError, "fill is 0.0, which only boundary 'keep' takes", lambda: DenseHalo({0: (1, 1)}, fill=0.)),
        (TypeError, "spec is a dict, must be a lierne.torch.DenseHalo",
         lambda: halo_exchange(x, mesh, {0: (1, 1)}, cut, shape)),
        (TypeError, "the mesh is a int", lambda: halo_exchange(x, 4, own, cut, shape)),
        (TypeError, "the input is a builtins.list", lambda: halo_exchange([1.], mesh, own, cut, shape)),
        (TypeError, "placements is a NoneType", lambda: halo_exchange(x, mesh, own, shape=shape)),
        (TypeError, "must be a dict", lambda: halo_exchange(x, lierne.Grid({"x": 4}), own, cut, shape)),
        (ValueError, "placements has 2 entries, the mesh 1 dims", lambda: halo_exchange(x, mesh, own, cut * 2, shape)),
        (KeyError, "the mesh has no dim 'y'", lambda: halo_exchange(x, mesh, own, {"y": Shard(0)}, shape)),
        (ValueError, "mesh dim 'x' cuts axis 2; the tensor has 2 axes",
         lambda: halo_exchange(x, mesh, own, [Shard(2)], shape)),
        (ValueError, "mesh dim 'x' has placement P(max)",
         lambda: halo_exchange(x, mesh, own, [Partial("max")], shape)),
        (ValueError, "shape is None", lambda: halo_exchange(x, mesh, own, cut)),
        (ValueError, "margins has axis 2; the tensor has 2 axes",
         lambda: halo_exchange(x, mesh, DenseHalo({2: (1, 1)}), cut, shape)),
        (ValueError, "margins has axis 1 twice",
         lambda: halo_exchange(x, mesh, DenseHalo({-1: (1, 1), 1: (1, 1)}), cut, shape)),
        (ValueError, "the input has shape (2, 3), must have (3, 3) on this rank" if dist.get_rank() < 3 else "(0, 3)",
         lambda: halo_exchange(x, mesh, own, cut, (9, 3))),
        (lierne.errors.InvalidError, "lo", lambda: halo_exchange(x, mesh, DenseHalo({0: (1, -2)}), cut, shape)),
        (lierne.errors.InvalidError, "segments",
         lambda: halo_exchange(x, mesh, DenseHalo({0: (1, 0)}, segments=[0, 7]), cut, shape)),
        (lierne.errors.UnsupportedError, "PARTIAL", lambda: halo_exchange(x, mesh, own, [Partial()], shape)),
        (lierne.errors.MismatchError, "dst.halo[0].lo", lambda: halo_exchange(
            x, mesh, DenseHalo({0: (1 + (dist.get_rank() == 2), 1)}, "zero"), cut, shape)),
    ]
    for kind, text, call in bad:
        raises(kind, text, call)
    same(halo_exchange(x, mesh, own, cut, shape).sum(), 12. - 3 * (dist.get_rank() in (0, 3)))


if __name__ == "__main__":
    main()
