"""DTensors between different device meshes, which DTensor itself does not redistribute across."""
from __future__ import annotations

import types
import typing

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import lierne
from lierne.torch import Operation
from lierne._types import DType, Shape

if typing.TYPE_CHECKING:
    from lierne.context import Context


def names_of(mesh: typing.Any) -> typing.Sequence[str]:
    """The names of a mesh's dims; dim0, dim1 and so on where it has none."""
    return mesh.mesh_dim_names or [f"dim{i}" for i in range(mesh.mesh.ndim)]


def grid_of(mesh: typing.Any) -> lierne.Grid:
    """The lierne.Grid of a DeviceMesh, whose dims need no names."""
    return lierne.Grid.from_device_mesh(types.SimpleNamespace(mesh=mesh.mesh.cpu(), mesh_dim_names=names_of(mesh)))


def _along_0(placement):
    """The same placement of a list of indices."""
    if isinstance(placement, _StridedShard):
        return _StridedShard(0, split_factor=placement.split_factor)
    return Shard(0)


def _strided_owners(mesh, placements, axis, size):
    """The coordinate on each mesh dim that shards the axis, for every index of it: torch's own split
    of the indices, which is no nested cut where sizes do not divide."""
    owners = {d: torch.zeros(size, dtype=torch.int32) for d, p in enumerate(placements)
              if getattr(p, "dim", None) == axis}

    def split(indices, dims):
        if dims and len(indices):
            d, rest = dims[0], dims[1:]
            parts, _ = _along_0(placements[d])._split_tensor(indices, mesh.mesh.shape[d],
                                                             with_padding=False)
            for coordinate, part in enumerate(parts):
                owners[d][part] = coordinate
                split(part, rest)

    split(torch.arange(size), list(owners))
    return owners


def cuts(mesh: typing.Any, placements: typing.Sequence[typing.Any],
         shape: Shape) -> typing.Dict[str, lierne.grid.Placement]:
    """name -> placement of lierne, for DTensor's placements of a mesh (as layout), or lierne's own."""
    strided = {p.dim for p in placements if isinstance(p, _StridedShard)}
    owners = {axis: _strided_owners(mesh, placements, axis, shape[axis]) for axis in strided}
    found = {}
    for d, (name, placement) in enumerate(zip(names_of(mesh), placements)):
        axis = getattr(placement, "dim", None)
        if isinstance(placement, lierne.grid.Placement):
            found[name] = placement
        elif axis in strided:
            found[name] = lierne.ShardRows(axis, owners[axis][d].tolist())
        elif isinstance(placement, Shard):
            found[name] = lierne.Shard(axis, chunk=True)
        elif isinstance(placement, Partial) and placement.reduce_op == "sum":
            found[name] = lierne.Partial()
        elif not isinstance(placement, Replicate):
            raise ValueError(f"mesh dim {name!r} has placement {placement}; it must be Shard, "
                             "Replicate or Partial('sum')")
    return found


def layout(mesh: typing.Any, placements: typing.Sequence[typing.Any], shape: Shape, dtype: DType) -> lierne.Layout:
    """The lierne.Layout of a DTensor's placements: Shard (as torch.chunk cuts), Replicate, Partial (sum)
    and _StridedShard, one per dim of the mesh. Raises ValueError for another kind."""
    return lierne.Layout(grid_of(mesh), tuple(shape), dtype, cuts(mesh, placements, shape))


def _key(mesh, placements):
    return tuple(mesh.mesh.flatten().tolist()), tuple(mesh.mesh.shape), tuple(map(repr, placements))


def redistribute(tensor: typing.Any, mesh: typing.Any, placements: typing.Sequence[typing.Any],
                 context: Context) -> typing.Any:
    """A DTensor with the same elements on another mesh; differentiable.

    tensor: a DTensor; a rank outside its mesh has one without local elements, which gets no gradient.
    mesh: any ranks of the world, the same as the tensor's or others; a rank outside of it gets an empty
    tensor, no DTensor, on which it calls backward() when the others do. placements: one per dim, not
    Partial. context: of lierne.torch.context. Collective over the context. The plan is kept with the
    context. Raises ValueError, errors.UnsupportedError (a Partial destination) and as
    lierne.Redistribute."""
    plans = context.__dict__.setdefault("dtensor_plans", {})
    key = (tuple(tensor.shape), tensor.dtype, _key(tensor.device_mesh, tensor.placements),
           _key(mesh, placements))
    if key not in plans:
        src = layout(tensor.device_mesh, tensor.placements, tensor.shape, tensor.dtype)
        dst = layout(mesh, placements, tensor.shape, tensor.dtype)
        plans[key] = Operation(lierne.Redistribute(context, src, dst))
    move = plans[key]
    if tensor.device_mesh.get_coordinate() is None:
        local = torch.empty(move.shapes()[0], dtype=tensor.dtype, device=tensor.device,
                            requires_grad=tensor.requires_grad)
    else:
        local = tensor.to_local().reshape(move.shapes()[0])
    out = move(local)
    if mesh.get_coordinate() is None:
        return out
    return DTensor.from_local(out, mesh, placements, run_check=False, shape=tensor.shape,
                              stride=tensor.stride())
