"""Collectives, and partitions of rows. As the planners, every plan is collective over its context."""
from __future__ import annotations

import typing

import numpy as np
import numpy.typing as npt

from lierne._arrays import dtype_number
from lierne._library import Spec, call, choice, ffi, handle, lib, numbers, sized
from lierne._types import Array, CollectiveAlgorithm, DType, Integers, Reduction
from lierne.bridges import group_handle
from lierne.plan import Plan, reduction_of

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.schedules import ContextGroup

_COLLECTIVES = {"auto": lib.LIERNE_COLLECTIVE_ALGORITHM_AUTO, "one_shot": lib.LIERNE_COLLECTIVE_ALGORITHM_ONE_SHOT,
                "two_shot": lib.LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT}


def _collective(kind, context, dtype=None, ranks=None, group=None, **fields):
    if kind != "barrier":
        fields["dtype"] = dtype_number(dtype)
    spec = Spec(f"lierne_{kind}_spec", ranks=ranks, nranks=len(ranks or ()), group=group_handle(group), **fields)
    return Plan(context, getattr(lib, f"lierne_plan_create_{kind}"), handle(context, "context"), spec.at)


def _ranks_of(context, ranks):
    handle(context, "context")
    return len(ranks if ranks is not None and len(ranks) else context.members)


def _counts(context, count, ranks):
    if np.ndim(count) == 0:
        return {"count": count}
    return {"counts": sized("count", count, _ranks_of(context, ranks))}


def all_gather(context: Context, count: typing.Union[int, Integers], dtype: DType,
               ranks: typing.Optional[typing.Sequence[int]] = None, max_inflight: int = 1,
               group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> Plan:
    """A plan that gathers every rank's elements on all ranks. count: elements of each rank, a number
    or a list with one per rank of `ranks` (all by default). Its adjoint is a reduce-scatter."""
    return _collective("all_gather", context, dtype, ranks, group, name=name, max_inflight=max_inflight,
                       **_counts(context, count, ranks))


def reduce_scatter(context: Context, count: typing.Union[int, Integers], dtype: DType,
                   ranks: typing.Optional[typing.Sequence[int]] = None, reduction: Reduction = "sum",
                   max_inflight: int = 1, group: typing.Optional[ContextGroup] = None,
                   name: typing.Optional[str] = None) -> Plan:
    """A plan that reduces all ranks' elements and gives each rank its part. count: as all_gather.
    reduction: "sum", "avg", "max", "min", "prod"; the last three have no adjoint."""
    return _collective("reduce_scatter", context, dtype, ranks, group, name=name, max_inflight=max_inflight,
                       reduction=reduction_of(reduction), **_counts(context, count, ranks))


def all_reduce(context: Context, count: int, dtype: DType, ranks: typing.Optional[typing.Sequence[int]] = None,
               reduction: Reduction = "sum", algorithm: CollectiveAlgorithm = "auto", max_inflight: int = 1,
               group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> Plan:
    """A plan that reduces `count` elements over all ranks, with the same bits on each."""
    return _collective("all_reduce", context, dtype, ranks, group, name=name, count=count,
                       reduction=reduction_of(reduction), max_inflight=max_inflight,
                       algorithm=choice("algorithm", algorithm, _COLLECTIVES))


def broadcast(context: Context, count: int, dtype: DType, root: int,
              ranks: typing.Optional[typing.Sequence[int]] = None, algorithm: CollectiveAlgorithm = "auto",
              max_inflight: int = 1, group: typing.Optional[ContextGroup] = None,
              name: typing.Optional[str] = None) -> Plan:
    """A plan that copies the root's `count` elements to all ranks; its adjoint sums at the root."""
    return _collective("broadcast", context, dtype, ranks, group, name=name, root=root, count=count,
                       max_inflight=max_inflight,
                       algorithm=choice("algorithm", algorithm, _COLLECTIVES))


def all_to_all(context: Context, count: typing.Union[int, Integers], dtype: DType,
               ranks: typing.Optional[typing.Sequence[int]] = None, receive: typing.Optional[Integers] = None,
               max_inflight: int = 1, group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
               name: typing.Optional[str] = None) -> Plan:
    """A plan that sends each rank a part. count: elements per pair, or this rank's list of elements
    to each rank; receive: what it expects from each, to be compared, or None. max_peers: as
    lierne.Redistribute."""
    lists = {"count": count}
    if np.ndim(count):
        n = _ranks_of(context, ranks)
        lists = {"send_counts": sized("count", count, n), "recv_counts": sized("receive", receive, n)}
    return _collective("all_to_all", context, dtype, ranks, group, name=name, max_inflight=max_inflight,
                       max_peers=max_peers,
                       **lists)


def barrier(context: Context, ranks: typing.Optional[typing.Sequence[int]] = None,
            group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> Plan:
    """A plan whose execution is complete when all ranks have begun it: forward(None)."""
    return _collective("barrier", context, None, ranks, group, name=name)


def partition_split(nrows: int, world: int) -> Array:
    """Owners in contiguous shares: a numpy array of nrows ranks."""
    owner = np.zeros(nrows, np.int32)
    call(lib.lierne_partition_split, ffi.cast("int32_t *", owner.ctypes.data), nrows, world)
    return owner


def _along_morton(function, positions, out, *arguments):
    positions = np.ascontiguousarray(positions)
    sized("positions", positions, 3 * len(positions))
    values = np.zeros(len(positions), out)
    call(function, ffi.cast(f"{out}_t *", values.ctypes.data), ffi.cast("void *", positions.ctypes.data),
         dtype_number(positions.dtype), len(positions), *arguments)
    return values


def partition_morton(positions: npt.ArrayLike, world: int) -> Array:
    """Owners along a Morton curve. positions: (nrows, 3), float32 or float64."""
    return _along_morton(lib.lierne_partition_morton, positions, "int32", world)


def partition_bisect(positions: npt.ArrayLike, world: int, costs: typing.Optional[Integers] = None) -> Array:
    """Owners by recursive coordinate bisection, mostly with fewer ghosts than along the curve. positions:
    (nrows, 3), float32 or float64. costs: None for equally many rows, or a number of at least 0 for each, of
    which every rank gets as much as a row allows."""
    if costs is not None:
        _, costs = numbers("int64_t", "costs", sized("costs", costs, len(positions)))
    at = ffi.NULL if costs is None else ffi.cast("int64_t *", costs.ctypes.data)
    positions = np.ascontiguousarray(positions)
    sized("positions", positions, 3 * len(positions))
    owner = np.zeros(len(positions), np.int32)
    call(lib.lierne_partition_bisect, ffi.cast("int32_t *", owner.ctypes.data),
         ffi.cast("void *", positions.ctypes.data), dtype_number(positions.dtype), at, len(positions), world)
    return owner


def partition_morton_codes(positions: npt.ArrayLike) -> Array:
    """The code of each row along that curve: a numpy array of uint32, 10 bits per axis."""
    return _along_morton(lib.lierne_partition_morton_codes, positions, "uint32")
