"""The planners, as operations on tensors: arguments are those of lierne's."""
from __future__ import annotations

import typing

import lierne
from lierne._library import arguments
from lierne._types import (DType, DeviceMesh, GraphAlgorithm, Integers, Output, Owner, Routing, RowOrder, Shape,
                           SharedOutput, Storage)
from lierne.torch import Operation, grid

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Grid, Layout, Placement
    from lierne.schedules import ContextGroup


def Bridge(context: Context, src: typing.Union[Grid, DeviceMesh], dst: typing.Union[Grid, DeviceMesh], shape: Shape,
           dtype: DType, *, batch_axis: int = 0, sequence_axis: typing.Optional[int] = None,
           src_counts: typing.Optional[Integers] = None, dst_counts: typing.Optional[Integers] = None,
           owner: Owner = "partial", storage: Storage = "full", row_owner: typing.Optional[Integers] = None,
           require_divisible: bool = False, max_inflight: int = 1, src_view: typing.Optional[str] = None,
           dst_view: typing.Optional[str] = None,
           src_placements: typing.Optional[typing.Mapping[str, Placement]] = None,
           dst_placements: typing.Optional[typing.Mapping[str, Placement]] = None, output: Output = "whole",
           rows_per_sample: int = 0, row_order: RowOrder = "sample", variable_rows: bool = False,
           routing: Routing = "auto", shared_output: SharedOutput = "none",
           group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
           name: typing.Optional[str] = None) -> Operation:
    """The Operation of a lierne.Bridge. src and dst: grids or DeviceMeshes whose dims are named tp, dp,
    cp and so on; the rest as lierne.Bridge."""
    src, dst = grid(src), grid(dst)
    return Operation(lierne.Bridge(**arguments(locals())))


def Redistribute(context: Context, src: Layout, dst: Layout, adjoint_src: typing.Optional[Layout] = None,
                 adjoint_dst: typing.Optional[Layout] = None, max_inflight: int = 1, routing: Routing = "auto",
                 shared_output: SharedOutput = "none", group: typing.Optional[ContextGroup] = None,
                 max_segments: int = 0, max_rows: int = 0, max_peers: int = 0,
                 accumulate: bool = False, name: typing.Optional[str] = None) -> Operation:
    """The Operation of a lierne.Redistribute between two lierne.Layouts."""
    return Operation(lierne.Redistribute(**arguments(locals())))


def TensorSet(context: Context, src: typing.Sequence[Layout], dst: typing.Sequence[Layout],
              src_offsets: typing.Optional[Integers] = None, dst_offsets: typing.Optional[Integers] = None,
              max_inflight: int = 1, group: typing.Optional[ContextGroup] = None,
              name: typing.Optional[str] = None,
              boxes: typing.Optional[typing.Sequence[lierne.SetBox]] = None) -> Operation:
    """The Operation of a lierne.TensorSet: many tensors, of which the messages between two ranks travel
    together. Its input and output are tensors of one axis; plan.views(tensor, "src" or "dst") are the
    tensors in them."""
    return Operation(lierne.TensorSet(**arguments(locals())))


def Graph(context: Context, owner: Integers, source: Integers, target: Integers, dtype: DType, row_shape: Shape = (),
          algorithm: GraphAlgorithm = "auto", accumulate: bool = False, combined: bool = False,
          keep_ghosts: bool = False, max_inflight: int = 1, remote_targets: bool = False,
          group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> Operation:
    """The Operation of a lierne.Graph: own rows -> ghosts."""
    return Operation(lierne.Graph(**arguments(locals())))


def References(context: Context, nowned: int, rank: Integers, row: Integers, dtype: DType, row_shape: Shape = (),
               algorithm: GraphAlgorithm = "auto", accumulate: bool = False, combined: bool = False,
               keep_ghosts: bool = False, max_inflight: int = 1,
               group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> Operation:
    """The Operation of a lierne.References."""
    return Operation(lierne.References(**arguments(locals())))


def Migration(context: Context, owner: Integers, dtype: DType, row_shape: Shape = (), max_inflight: int = 1,
              group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> Operation:
    """The Operation of a lierne.Migration. After plan.update(owner) call updated()."""
    return Operation(lierne.Migration(**arguments(locals())))


def Halo(context: Context, nlocal: int, nghost: int, sendproc: typing.Sequence[int], recvproc: typing.Sequence[int],
         sendlists: typing.Sequence[Integers], recvnum: typing.Sequence[int], dtype: DType, row_shape: Shape = (),
         keep_ghosts: bool = False, max_inflight: int = 1, group: typing.Optional[ContextGroup] = None,
         name: typing.Optional[str] = None) -> Operation:
    """The Operation of a lierne.Halo."""
    return Operation(lierne.Halo(**arguments(locals())))
