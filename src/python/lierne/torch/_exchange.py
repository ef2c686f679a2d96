"""Plans that fill halos, of tensors as PyTorch has them: any mesh, any number of axes, kept by what they are
made from.

Axes that no dim cuts and no halo extends are merged with such neighbours where a tensor has more axes than
lierne's layouts: NCTHW of a video is N and C, T, H, W."""
from __future__ import annotations

import copy
import dataclasses
import math
import typing

import numpy as np
import torch

import lierne
from lierne._library import ERRORS, lib
from lierne.grid import Placement
from lierne.torch import Operation, checked
from lierne.torch._groups import default_context

MAX_AXES = lib.LIERNE_MAX_AXES
CUTS = {lib.LIERNE_PLACEMENT_SHARD, lib.LIERNE_PLACEMENT_SHARD_ZIGZAG, lib.LIERNE_PLACEMENT_SHARD_ROWS}
# Exchanges that a context keeps, those last used. Documents are others in every step, so few of these.
KEPT, KEPT_DOCUMENTS = 256, 16


def _frozen(placement):
    """A placement as a key; torch's are keys."""
    if not isinstance(placement, Placement):
        return placement
    lists = (None if x is None else tuple(np.asarray(x).tolist()) for x in (placement.counts, placement.rows))
    return dataclasses.replace(placement, counts=None, rows=None), *lists


class Side:
    """A mesh and one placement per dim of it: what cuts a tensor. mesh: a DeviceMesh, or a lierne.Grid.
    placements: a dict name -> placement (others replicate), or for a DeviceMesh one per dim in its order; of
    torch or of lierne."""

    def __init__(self, mesh, placements):
        self.mesh, self.is_grid = mesh, isinstance(mesh, lierne.Grid)
        if not self.is_grid and not hasattr(mesh, "mesh_dim_names"):
            raise TypeError(f"the mesh is a {type(mesh).__name__}, must be a DeviceMesh or a lierne.Grid")
        self.names = list(mesh.dims()) if self.is_grid else _dtensor().names_of(mesh)
        self.placements = tuple(self._ordered(placements))
        self.is_of_torch = not self.is_grid and not any(isinstance(p, Placement) for p in self.placements)
        ranks = (range(mesh.rank_offset, mesh.rank_offset + mesh.size) if self.is_grid else
                 mesh.mesh.flatten().tolist())
        shape = repr(mesh) if self.is_grid else tuple(mesh.mesh.shape)
        self.ranks = tuple(ranks)
        self.key = self.ranks, shape, tuple(self.names), tuple(map(_frozen, self.placements))

    def _ordered(self, placements):
        if hasattr(placements, "items"):
            unknown = [name for name in placements if name not in self.names]
            if unknown:
                raise KeyError(f"the mesh has no dim {unknown[0]!r} (dims: {', '.join(self.names)})")
            return [placements.get(name, lierne.Replicate()) for name in self.names]
        if placements is None or self.is_grid:
            raise TypeError(f"placements is a {type(placements).__name__}, must be a dict: name of a dim -> placement" +
                            ("" if self.is_grid else ", or a list with one per dim of the mesh"))
        if len(placements) != len(self.names):
            raise ValueError(f"placements has {len(placements)} entries, the mesh {len(self.names)} dims")
        return placements

    def grid(self):
        return self.mesh if self.is_grid else _dtensor().grid_of(self.mesh)

    def cuts(self, shape):
        """name -> placement of lierne, axes from 0."""
        placements = [self._from_0(p, name, len(shape)) for p, name in zip(self.placements, self.names)]
        if self.is_grid:
            return dict(zip(self.names, placements))
        return _dtensor().cuts(self.mesh, placements, shape)

    @staticmethod
    def _from_0(placement, name, naxes):
        field = "axis" if isinstance(placement, Placement) else "dim"
        axis = getattr(placement, field, 0)
        if not -naxes <= axis < naxes:
            raise ValueError(f"mesh dim {name!r} cuts axis {axis}; the tensor has {naxes} axes")
        if axis >= 0:
            return placement
        return dataclasses.replace(placement, axis=axis + naxes) if field == "axis" else type(placement)(axis + naxes)


def _dtensor():
    """Imported where it is needed: torch.distributed.tensor takes a second."""
    from lierne.torch import dtensor
    return dtensor


class Axes:
    """Which axes of a tensor are one axis of its layouts. cuts: of every layout."""

    def __init__(self, shape, cuts, halos, caller):
        fixed = {halo.axis for halo in halos}.union(
            *((p.axis, p.axis2) for of_one in cuts for p in of_one.values() if p.kind in CUTS))
        self.shape, self.groups = tuple(shape), [[axis] for axis in range(len(shape))]
        if len(shape) > MAX_AXES:
            self.groups = self._merged(fixed)
        if len(self.groups) > MAX_AXES:
            raise ERRORS[lib.LIERNE_ERR_UNSUPPORTED](
                f"{caller}: the tensor has {len(shape)} axes, and {len(self.groups)} where neighbours that no dim cuts "
                f"and no halo extends count as one ({', '.join(map(str, sorted(fixed - {-1})))} are cut or extended), "
                f"must have at most {MAX_AXES}")
        self.of = {axis: i for i, group in enumerate(self.groups) for axis in group}
        self.are_merged = len(self.groups) < len(shape)

    def _merged(self, fixed):
        groups = []
        for axis in range(len(self.shape)):
            if groups and axis not in fixed and groups[-1][-1] not in fixed:
                groups[-1].append(axis)
            else:
                groups.append([axis])
        return groups

    def split(self, local):
        """The shape of all axes of a rank's buffer; zeros where the rank holds nothing of what is there."""
        held = any(local) or 0 in self.shape
        return tuple(size for group, n in zip(self.groups, local) for size in
                     ([n] if len(group) == 1 else [self.shape[axis] if held else 0 for axis in group]))

    def layout(self, side, cuts, dtype, halos=(), **storage):
        """The layout of a side. cuts, halos: of axes of the tensor."""
        placements = {name: dataclasses.replace(p, axis=self.of[p.axis], axis2=self.of.get(p.axis2, -1))
                      if p.kind in CUTS else p for name, p in cuts.items()}
        halos = [copy.copy(halo) for halo in halos]
        for halo in halos:
            halo.axis = self.of[halo.axis]
        shape = [math.prod(self.shape[axis] for axis in group) for group in self.groups]
        return lierne.Layout(side.grid(), shape, dtype, placements, halos=halos, **storage)


class Exchange:
    """The Operation from a tensor cut as src to one cut as dst with halos, and where things are in it. halos: of
    axes of the tensor; cut: the sizes that dst's placements cut. fill: what positions hold that are not
    written."""

    def __init__(self, context, src, dst, shape, dtype, halos, caller, cut=None, fill=None, **storage):
        cuts = src.cuts(shape), dst.cuts(cut or shape)
        self.axes, self.context = Axes(shape, cuts, halos, caller), context
        self.src = self.axes.layout(src, cuts[0], dtype)
        self.dst = self.axes.layout(dst, cuts[1], dtype, halos, **storage)
        self.operation = Operation(lierne.Redistribute(context, self.src, self.dst))
        self.operation.fill = 0 if fill is None else fill
        self.local = [self.axes.split(layout.shape(context.rank)) for layout in (self.src, self.dst)]

    def input(self, x, caller):
        """x as the operation takes it."""
        if checked(x).numel() == 0 and 0 in self.local[0]:
            return x.reshape(self.operation.shapes()[0])
        if tuple(x.shape) != self.local[0]:
            raise ValueError(f"{caller}: the input has shape {tuple(x.shape)}, must have {self.local[0]} on this rank")
        return self._reshaped(x, self.operation.shapes()[0])

    def output(self, y):
        """What the operation gives, as a tensor of the caller's axes."""
        return self._reshaped(y, self.local[1])

    def gradient(self, y):
        """The reverse of output."""
        return self._reshaped(y, self.operation.shapes()[1])

    def origin(self, x):
        """The reverse of input."""
        return self._reshaped(x, self.local[0])

    def _reshaped(self, tensor, shape):
        return tensor.reshape(shape) if self.axes.are_merged else tensor

    def margins(self):
        """The boxes of margin storage: (start, size, offset)."""
        return [(tuple(s for group, n in zip(self.axes.groups, start) for s in [n] + [0] * (len(group) - 1)),
                 self.axes.split(size), offset) for start, size, offset in self.dst.margins(self.context.rank)]


def context_of(context, *sides):
    """The context that was given, or the default one of the ranks of these sides."""
    return default_context(sorted(set().union(*(side.ranks for side in sides)))) if context is None else context


def kept(context, key, make, documents=False):
    """The exchange of a key, made by make() at its first use, by all ranks of the context."""
    exchanges = context.__dict__.setdefault("halo_documents" if documents else "halo_exchanges", {})
    made = exchanges.pop(key, None)
    made = make() if made is None else made
    exchanges[key] = made
    while len(exchanges) > (KEPT_DOCUMENTS if documents else KEPT):
        del exchanges[next(iter(exchanges))]
    return made


def local_of(x, side, shape, caller):
    """(local tensor, its Side, global shape, is a DTensor) of x: a DTensor, or what a rank has under side."""
    from torch.distributed.tensor import DTensor, Partial, Replicate
    if not isinstance(checked(x), DTensor):
        if shape is None:
            raise ValueError(f"{caller}: shape is None, must be the global shape of a tensor that is no DTensor")
        return x, side, tuple(int(size) for size in shape), False
    if shape is not None and tuple(shape) != tuple(x.shape):
        raise ValueError(f"{caller}: shape is {tuple(shape)}, the DTensor has {tuple(x.shape)}")
    gradient = [Replicate() if isinstance(p, Partial) else p for p in x.placements]
    return x.to_local(grad_placements=gradient), Side(x.device_mesh, x.placements), tuple(x.shape), True
