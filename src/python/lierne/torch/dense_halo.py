"""Halos of cut tensors (lierne/dense_halo.h) as functions of autograd.

    spec = lierne.torch.DenseHalo({2: (1, 1), 3: (1, 1)}, boundary={2: "zero", 3: "periodic"})
    y = lierne.torch.halo_exchange(x, mesh, spec, [Shard(2), Shard(3)], shape)
    loss(y).backward()           # x.grad: the gradients of margins are added at their owners
"""
from __future__ import annotations

import operator
import typing

import torch
import torch.distributed as dist

import lierne
from lierne._library import choice
from lierne._types import DeviceMesh, Integers, Shape
from lierne.grid import _BOUNDARIES, _STENCILS, _STORAGES, Boundary
from lierne.packing import on_host
from lierne.torch._exchange import Axes, Exchange, Side, context_of, kept, local_of

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Grid, Placement

Placements = typing.Union[typing.Sequence[typing.Any], typing.Mapping[str, "Placement"]]


def _per_axis(name, given, axes, default):
    """axis -> value, of one value for all axes or a dict of some."""
    if not hasattr(given, "items"):
        return {axis: given for axis in axes}
    unknown = [axis for axis in given if axis not in axes]
    if unknown:
        raise ValueError(f"{name} names axis {unknown[0]}, which has no margins (axes: {', '.join(map(str, axes))})")
    return {axis: given.get(axis, default) for axis in axes}


class DenseHalo:
    """Margins of a tensor's parts. margins: axis -> (lo, hi), elements below and above. boundary: what positions
    outside of the tensor show, of all axes or axis -> boundary; "none" where it is not named. stencil: "box", or
    "star" without corners. storage: "padded" parts, or "margins" alone. segments: offsets of documents, as
    cu_seqlens, of the one axis or axis -> offsets. fill: the value of positions of boundary "keep", which
    alone needs it; they get no gradient. Axes may count from the end. Raises ValueError and TypeError."""

    def __init__(self, margins: typing.Mapping[int, typing.Tuple[int, int]],
                 boundary: typing.Union[Boundary, typing.Mapping[int, Boundary]] = "none",
                 stencil: typing.Literal["box", "star"] = "box",
                 storage: typing.Literal["padded", "margins"] = "padded",
                 segments: typing.Union[Integers, typing.Mapping[int, Integers], None] = None,
                 fill: typing.Optional[float] = None) -> None:
        if not hasattr(margins, "items"):
            raise TypeError(f"margins is {margins!r}, must be a dict: axis -> (lo, hi)")
        axes = [operator.index(axis) for axis in margins]
        self._widths = {axis: _pair(axis, width) for axis, width in zip(axes, margins.values())}
        self._boundary = _per_axis("boundary", boundary, axes, "none")
        for word in self._boundary.values():
            choice("boundary", word, _BOUNDARIES)
        choice("stencil", stencil, _STENCILS)
        choice("storage", storage, _STORAGES)
        self.stencil, self.storage, self.fill = stencil, storage, fill
        self._segments = {axis: None if offsets is None else tuple(on_host("segments", offsets).tolist())
                          for axis, offsets in _per_axis("segments", segments, axes, None).items()}
        keeps = "keep" in self._boundary.values()
        if keeps != (fill is not None):
            raise ValueError("boundary 'keep' needs fill, the value of positions that are not written" if keeps else
                             f"fill is {fill!r}, which only boundary 'keep' takes")
        self._key = (tuple(self._widths.items()), tuple(self._boundary.items()), stencil, storage,
                     tuple(self._segments.items()), fill)

    @property
    def has_segments(self) -> bool:
        """Whether any axis has documents."""
        return any(offsets is not None for offsets in self._segments.values())

    def halos(self, naxes: int) -> typing.List[lierne.DenseHalo]:
        """A lierne.DenseHalo per axis, of a tensor of naxes axes."""
        made: typing.Dict[int, lierne.DenseHalo] = {}
        for axis, (lo, hi) in self._widths.items():
            own = axis + naxes if axis < 0 else axis
            if not 0 <= own < naxes or own in made:
                raise ValueError(f"margins has axis {axis}" + (" twice" if own in made else "") +
                                 f"; the tensor has {naxes} axes")
            made[own] = lierne.DenseHalo(own, lo, hi, self._boundary[axis], segments=self._segments[axis])
        return list(made.values())


def _pair(axis, width):
    try:
        lo, hi = map(operator.index, width)
    except (TypeError, ValueError):
        raise TypeError(f"margins of axis {axis} is {width!r}, must be (lo, hi), two whole numbers") from None
    return lo, hi


class Margins(typing.NamedTuple):
    """The margins alone. buffer: all of them, of one axis. boxes: (start, tensor), where start is a position per
    axis (0 on those without margins), and the tensor a view of buffer. A rank whose buffer is empty calls
    `buffer.sum().backward()` too."""
    buffer: torch.Tensor
    boxes: typing.List[typing.Tuple[typing.Tuple[int, ...], torch.Tensor]]


def halo_exchange(x: torch.Tensor, mesh: typing.Union[Grid, DeviceMesh], spec: DenseHalo,
                  placements: typing.Optional[Placements] = None, shape: typing.Optional[Shape] = None,
                  context: typing.Optional[Context] = None) -> typing.Any:
    """This rank's part of x with its margins, a tensor; with storage "margins" a Margins. Differentiable, also
    twice: the backward adds the gradients of margins at the elements that they show.

    placements: how the mesh cuts the tensor, one per dim of a DeviceMesh, or name -> placement; torch's (Shard as
    torch.chunk cuts) or lierne's. shape: of the whole tensor. x: what this rank has of it; or a DTensor of
    any mesh and placements, which is moved in the same exchange: placements and shape are then by default its
    own. context: of lierne.torch.context; by default one of the mesh's ranks over torch.distributed. The first
    call with the same mesh, placements, shape, dtype and spec is collective over the context, which keeps
    the plan. Raises ValueError, TypeError and KeyError; errors.UnsupportedError (more than 4 axes where
    neighbours that are neither cut nor extended count as one), and as lierne.Layout and lierne.Redistribute."""
    return _extended(x, mesh, spec, placements, shape, context)


def halo_windows(mesh: typing.Union[Grid, DeviceMesh], spec: DenseHalo, placements: Placements, shape: Shape,
                 rank: typing.Optional[int] = None) -> typing.Dict[int, typing.List[typing.Tuple[int, ...]]]:
    """Where the windows of a rank, by default this one, are: axis -> a list of (start, size, local, core_start,
    core_size). The positions from start on are at `local` of the axis of a padded tensor, and those from core_start
    on are the part's. Other arguments as halo_exchange's. Local."""
    side, halos = Side(mesh, placements), spec.halos(len(shape))
    cuts = side.cuts(shape)
    axes = Axes(shape, [cuts], halos, "lierne.torch.halo_windows")
    layout = axes.layout(side, cuts, "u8", halos)
    rank = dist.get_rank() if rank is None else rank
    return {halo.axis: layout.windows(rank, axes.of[halo.axis]) for halo in halos}


@torch.compiler.disable
def _extended(x, mesh, spec, placements, shape, context):
    if not isinstance(spec, DenseHalo):
        raise TypeError(f"spec is a {type(spec).__name__}, must be a lierne.torch.DenseHalo")
    if placements is None:
        placements = getattr(x, "placements", None)
    dst = Side(mesh, placements)
    x, src, shape, _ = local_of(x, dst, shape, "lierne.torch.halo_exchange")
    exchange = _exchange(context_of(context, src, dst), src, dst, shape, x.dtype, spec)
    y = exchange.operation(exchange.input(x, "lierne.torch.halo_exchange"))
    if spec.storage == "padded":
        return exchange.output(y)
    y = y.reshape(-1)
    return Margins(y, [(start, y[offset:offset + torch.Size(size).numel()].view(size))
                       for start, size, offset in exchange.margins()])


def _exchange(context, src, dst, shape, dtype, spec):
    return kept(context, (src.key, dst.key, shape, dtype, spec._key),
                lambda: Exchange(context, src, dst, shape, dtype, spec.halos(len(shape)), "lierne.torch.halo_exchange",
                                 fill=spec.fill, stencil=spec.stencil, halo_storage=spec.storage),
                spec.has_segments)
