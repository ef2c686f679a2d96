"""Bridges: what lierne.planners says of the planners holds for these, too."""
from __future__ import annotations

import typing

import numpy as np

from lierne._arrays import dtype_name, dtype_number
from lierne._library import Spec, arguments, call, choice, ffi, handle, lib, make, numbers, sized, text
from lierne._types import (DType, Direction, Integers, MegatronAlgorithm, Output, Owner, Routing, RowOrder, Shape,
                           Shapes, SharedOutput, Storage)
from lierne.plan import ADJOINT, FORWARD, Plan, direction_of, read_route

if typing.TYPE_CHECKING:
    from lierne.config import Config
    from lierne.context import Context
    from lierne.grid import Grid, Placement
    from lierne.plan import Route
    from lierne.schedules import ContextGroup

_OWNERS = {"partial": lib.LIERNE_GRADIENT_OWNER_PARTIAL, "zigzag": lib.LIERNE_GRADIENT_OWNER_ZIGZAG,
           "contiguous": lib.LIERNE_GRADIENT_OWNER_CONTIGUOUS, "rows": lib.LIERNE_GRADIENT_OWNER_ROWS}
_STORAGES = {"full": lib.LIERNE_STORAGE_FULL, "compact": lib.LIERNE_STORAGE_COMPACT}
_OUTPUTS = {"whole": lib.LIERNE_BRIDGE_OUTPUT_WHOLE, "sharded": lib.LIERNE_BRIDGE_OUTPUT_SHARDED}
_ROW_ORDERS = {"sample": lib.LIERNE_ROW_ORDER_SAMPLE_MAJOR, "sequence": lib.LIERNE_ROW_ORDER_SEQUENCE_MAJOR}
ROUTINGS = {"auto": lib.LIERNE_ROUTING_AUTO, "direct": lib.LIERNE_ROUTING_DIRECT,
             "balanced": lib.LIERNE_ROUTING_BALANCED}
SHARINGS = {"none": lib.LIERNE_SHARING_NONE, "forward": lib.LIERNE_SHARING_FORWARD,
            "adjoint": lib.LIERNE_SHARING_ADJOINT, "both": lib.LIERNE_SHARING_BOTH}
_REJECTION = {number: name.removeprefix("LIERNE_MEGATRON_REJECTION_").lower()
              for number, name in ffi.typeof("lierne_megatron_rejection").elements.items()}
_MEGATRON = {"collective": lib.LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, "leader": lib.LIERNE_MEGATRON_ALGORITHM_LEADER}


def group_handle(group: typing.Optional[ContextGroup]) -> typing.Any:
    return None if group is None else handle(group, "group")


def _placements(grid, view, placements):
    if placements is None:
        return None
    from lierne.grid import Replicate
    dims = grid.dims(view or "base")
    unknown = set(placements) - set(dims)
    if unknown:
        raise KeyError(f"the grid has no dim {sorted(unknown)[0]!r} (dims: {', '.join(dims)})")
    return [placements.get(name, Replicate()) for name in dims]


def bridge_spec(src: Grid, dst: Grid, shape: Shape, dtype: DType, *, batch_axis: int = 0,
                sequence_axis: typing.Optional[int] = None, src_counts: typing.Optional[Integers] = None,
                dst_counts: typing.Optional[Integers] = None, owner: Owner = "partial", storage: Storage = "full",
                row_owner: typing.Optional[Integers] = None, require_divisible: bool = False, max_inflight: int = 1,
                src_view: typing.Optional[str] = None, dst_view: typing.Optional[str] = None,
                src_placements: typing.Optional[typing.Mapping[str, Placement]] = None,
                dst_placements: typing.Optional[typing.Mapping[str, Placement]] = None, output: Output = "whole",
                rows_per_sample: int = 0, row_order: RowOrder = "sample", variable_rows: bool = False,
                routing: Routing = "auto", shared_output: SharedOutput = "none",
                group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
                name: typing.Optional[str] = None) -> Spec:
    """The C spec of a bridge; arguments as lierne.Bridge."""
    for grid in (src, dst):
        handle(grid, "grid")
    lanes = [grid.dims(view or "base").get("dp", 0)
             for grid, view in ((src, src_view), (dst, dst_view))]
    if row_owner is not None:
        for axis in (batch_axis, sequence_axis):
            if axis is not None and not -1 <= axis < len(shape):
                raise ValueError(f"the shape {tuple(shape)} has no axis {axis}")
        rows = _map_size(shape, batch_axis, sequence_axis)
        row_owner = sized("row_owner", np.asarray(row_owner), rows).reshape(-1)
    return Spec("lierne_bridge_spec", src=handle(src, "grid"), dst=handle(dst, "grid"), naxes=len(shape),
                shape=list(shape), dtype=dtype_number(dtype), batch_axis=batch_axis,
                sequence_axis=-1 if sequence_axis is None else sequence_axis,
                src_counts=sized("src_counts", src_counts, lanes[0]),
                dst_counts=sized("dst_counts", dst_counts, lanes[1]),
                gradient_owner=choice("owner", owner, _OWNERS),
                gradient_storage=choice("storage", storage, _STORAGES),
                row_owner=row_owner,
                require_divisible=require_divisible, max_inflight=max_inflight, src_view=src_view,
                dst_view=dst_view, src_placements=_placements(src, src_view, src_placements),
                dst_placements=_placements(dst, dst_view, dst_placements),
                output=choice("output", output, _OUTPUTS), rows_per_sample=rows_per_sample,
                row_order=choice("row_order", row_order, _ROW_ORDERS),
                variable_rows=variable_rows, routing=choice("routing", routing, ROUTINGS),
                shared_output=choice("shared_output", shared_output, SHARINGS), group=group_handle(group),
                max_peers=max_peers, name=name)


def _map_size(shape, batch_axis, sequence_axis):
    """Entries of a row map: one per sample and position; a 2-D tensor has the product as its batch."""
    return shape[batch_axis] * (1 if sequence_axis in (None, -1) else shape[sequence_axis])


class Bridge(Plan):
    """The bridge between an encoder's grid (src) and an LLM's (dst): lierne/bridge.h.

    shape: global, 2 or 3 axes; the batch axis counts the samples of all dp ranks. sequence_axis: an
    axis or None. src_counts, dst_counts: samples of each dp rank, balanced by default. owner: which
    cp rank of dst has the gradient of a row: "partial" (each has a contribution, they are summed),
    "zigzag", "contiguous", "rows" (row_owner: a cp coordinate for each (sample, position)). storage
    of an owned gradient: "full" or "compact". output: "whole" or "sharded". src_placements,
    dst_placements: dim name -> placement of axes beyond the batch. rows_per_sample, row_order: of a
    2-D tensor of rows. variable_rows: samples with up to shape[1] rows (update_counts). routing:
    "auto", "direct", or "balanced", which divides what one rank would send among all that hold it.
    shared_output: "none", or the directions, "forward", "adjoint" or "both", of which ranks of a node
    that need the same elements share one read-only result (lierne_sharing in lierne/plan.h); it needs
    max_inflight 1, no variable_rows, and routing "auto" or "direct". max_peers: as Redistribute; not with
    shared_output or variable_rows.

    Raises errors.InvalidError, IndivisibleError, UnsupportedError, MismatchError and others."""

    def __init__(self, context: Context, src: Grid, dst: Grid, shape: Shape, dtype: DType, *, batch_axis: int = 0,
                 sequence_axis: typing.Optional[int] = None, src_counts: typing.Optional[Integers] = None,
                 dst_counts: typing.Optional[Integers] = None, owner: Owner = "partial", storage: Storage = "full",
                 row_owner: typing.Optional[Integers] = None, require_divisible: bool = False, max_inflight: int = 1,
                 src_view: typing.Optional[str] = None, dst_view: typing.Optional[str] = None,
                 src_placements: typing.Optional[typing.Mapping[str, Placement]] = None,
                 dst_placements: typing.Optional[typing.Mapping[str, Placement]] = None, output: Output = "whole",
                 rows_per_sample: int = 0, row_order: RowOrder = "sample", variable_rows: bool = False,
                 routing: Routing = "auto", shared_output: SharedOutput = "none",
                 group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
                 name: typing.Optional[str] = None) -> None:
        spec = bridge_spec(**arguments(locals(), "context"))
        self._read_spec(spec.at)
        super().__init__(context, lib.lierne_plan_create_bridge, handle(context, "context"), spec.at)
        self._count_samples()

    def _read_spec(self, spec):
        self._flat_rows = spec.rows_per_sample > 0
        self._most_rows = spec.shape[1] if spec.variable_rows else 0
        self._map = _map_size(spec.shape, spec.batch_axis, spec.sequence_axis)

    def _count_samples(self):
        """After planning a sample has the most rows."""
        self._nsamples = self.shapes()[0][0] // self._most_rows if self._most_rows else 0

    @classmethod
    def from_config(cls, context: Context, config: Config, name: str) -> Bridge:
        """The bridge of a configuration file (lierne.Config), by the algorithm that it names."""
        plan = cls.__new__(cls)
        megatron = lib.lierne_config_get_megatron(config._handle, name.encode())
        bridge = lib.lierne_config_get_bridge(config._handle, name.encode())
        if not bridge:
            raise KeyError(f"the file has no bridge {name!r} (it has {', '.join(config.bridges)})")
        function = lib.lierne_plan_create_megatron if megatron else lib.lierne_plan_create_bridge
        plan._read_spec(ffi.addressof(megatron.bridge) if megatron else bridge)
        Plan.__init__(plan, context, function, handle(context, "context"), megatron or bridge)
        plan._count_samples()
        return plan

    def _take_from(self, old):
        self._flat_rows, self._most_rows, self._map = old._flat_rows, old._most_rows, old._map
        self._count_samples()

    def _user_shape(self, shape):
        return (shape[0] * shape[1], shape[2]) if self._flat_rows else shape

    def update_rows(self, row_owner: Integers) -> None:
        """Replaces the row map of owner "rows". Collective. Raises as update_shape."""
        self.context._check_unused("the plan", self)
        _, owner = numbers("int32_t", "row_owner", sized("row_owner", row_owner, self._map))
        self.context._call(lib.lierne_plan_update_rows, self._alive(),
                           ffi.cast("int32_t *", owner.ctypes.data))

    def update_counts(self, rows: typing.Optional[Integers]) -> None:
        """The rows of each sample of this rank's source dp rank (variable_rows); None on a rank that
        holds no source. Collective."""
        counts = None if rows is None else numbers("int64_t", "rows", rows)[1]
        if rows is not None:
            sized("rows", counts, self._nsamples)
        pointer = ffi.NULL if rows is None else ffi.cast("int64_t *", counts.ctypes.data)
        self.context._call(lib.lierne_plan_update_counts, self._alive(), pointer)


class BridgeRoutes:
    """What one rank does in a bridge, without a context: pure, not collective. For programs that
    execute routes themselves (lierne.torch.Operation does). Arguments as Bridge, and the rank; a shared
    output and a group need a context. Raises ValueError and as Bridge."""

    def __init__(self, rank: int, src: Grid, dst: Grid, shape: Shape, dtype: DType, *, batch_axis: int = 0,
                 sequence_axis: typing.Optional[int] = None, src_counts: typing.Optional[Integers] = None,
                 dst_counts: typing.Optional[Integers] = None, owner: Owner = "partial", storage: Storage = "full",
                 row_owner: typing.Optional[Integers] = None, require_divisible: bool = False, max_inflight: int = 1,
                 src_view: typing.Optional[str] = None, dst_view: typing.Optional[str] = None,
                 src_placements: typing.Optional[typing.Mapping[str, Placement]] = None,
                 dst_placements: typing.Optional[typing.Mapping[str, Placement]] = None, output: Output = "whole",
                 rows_per_sample: int = 0, row_order: RowOrder = "sample", variable_rows: bool = False,
                 routing: Routing = "auto", shared_output: SharedOutput = "none",
                 group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
                 name: typing.Optional[str] = None) -> None:
        options = arguments(locals(), "rank")
        if shared_output != "none":
            raise ValueError(f"shared_output is {shared_output!r}, must be 'none': ranks share "
                             "memory through a context (lierne.Bridge)")
        if group is not None:
            raise ValueError("group must be None: a group belongs to a context (lierne.Bridge)")
        if max_peers:
            raise ValueError(f"max_peers is {max_peers}, must be 0: routes are direct (lierne.Bridge)")
        spec = bridge_spec(**options)
        outs = [ffi.new("lierne_layout **") for _ in range(3)]
        call(lib.lierne_layout_create_bridge, *outs, spec.at)
        source, target, gradient = (ffi.gc(out[0], lib.lierne_layout_destroy) for out in outs)
        self.dtype = dtype_name(dtype)
        own = {name: value for name, value in options.items() if name not in ("src", "dst", "shape", "dtype")}
        self.identity = (repr(src), repr(dst), tuple(shape), self.dtype, sorted(own.items()))
        self._pairs = {FORWARD: (source, target), ADJOINT: (gradient, source)}
        self._rank, self._naxes = rank, 3 if rows_per_sample else len(shape)

    def shapes(self, direction: Direction = "forward") -> Shapes:
        """The shapes of this rank's input and output; with rows_per_sample of 3 axes."""
        found = []
        for layout in self._pairs[direction_of(direction)]:
            sizes = ffi.new("int64_t[]", self._naxes)
            call(lib.lierne_layout_get_shape, sizes, layout, self._rank)
            found.append(tuple(sizes))
        return tuple(found)

    def route(self, direction: Direction = "forward") -> Route:
        """The Route of a direction."""
        route = make("lierne_route", lib.lierne_route_create_redistribute, ffi.NULL,
                     *self._pairs[direction_of(direction)], self._rank, ffi.NULL)
        try:
            return read_route(route)
        finally:
            lib.lierne_route_destroy(route)


class Megatron(Plan):
    """The same bridge by an algorithm of Megatron-LM: "collective" or "leader" (lierne/megatron.h).
    Arguments as Bridge."""

    def __init__(self, context: Context, src: Grid, dst: Grid, shape: Shape, dtype: DType,
                 algorithm: MegatronAlgorithm = "collective", *, batch_axis: int = 0,
                 sequence_axis: typing.Optional[int] = None, src_counts: typing.Optional[Integers] = None,
                 dst_counts: typing.Optional[Integers] = None, owner: Owner = "partial", storage: Storage = "full",
                 row_owner: typing.Optional[Integers] = None, require_divisible: bool = False, max_inflight: int = 1,
                 src_view: typing.Optional[str] = None, dst_view: typing.Optional[str] = None,
                 src_placements: typing.Optional[typing.Mapping[str, Placement]] = None,
                 dst_placements: typing.Optional[typing.Mapping[str, Placement]] = None, output: Output = "whole",
                 rows_per_sample: int = 0, row_order: RowOrder = "sample", variable_rows: bool = False,
                 routing: Routing = "auto", shared_output: SharedOutput = "none",
                 group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
                 name: typing.Optional[str] = None) -> None:
        bridge = bridge_spec(**arguments(locals(), "context", "algorithm"))
        spec = Spec("lierne_megatron_spec", algorithm=choice("algorithm", algorithm, _MEGATRON), bridge=bridge)
        super().__init__(context, lib.lierne_plan_create_megatron, handle(context, "context"), spec.at)

    @staticmethod
    def check(src: Grid, dst: Grid, shape: Shape, dtype: DType, algorithm: MegatronAlgorithm = "collective", *,
              batch_axis: int = 0, sequence_axis: typing.Optional[int] = None,
              src_counts: typing.Optional[Integers] = None, dst_counts: typing.Optional[Integers] = None,
              owner: Owner = "partial", storage: Storage = "full", row_owner: typing.Optional[Integers] = None,
              require_divisible: bool = False, max_inflight: int = 1, src_view: typing.Optional[str] = None,
              dst_view: typing.Optional[str] = None,
              src_placements: typing.Optional[typing.Mapping[str, Placement]] = None,
              dst_placements: typing.Optional[typing.Mapping[str, Placement]] = None, output: Output = "whole",
              rows_per_sample: int = 0, row_order: RowOrder = "sample", variable_rows: bool = False,
              routing: Routing = "auto", shared_output: SharedOutput = "none",
              group: typing.Optional[ContextGroup] = None, max_peers: int = 0,
              name: typing.Optional[str] = None) -> None:
        """Raises what the constructor would, as far as that needs no context."""
        bridge = bridge_spec(**arguments(locals(), "algorithm"))
        spec = Spec("lierne_megatron_spec", algorithm=choice("algorithm", algorithm, _MEGATRON), bridge=bridge)
        call(lib.lierne_megatron_check, spec.at)

    @staticmethod
    def rejection(src: Grid, dst: Grid) -> typing.Optional[typing.Tuple[str, str]]:
        """Why Megatron-LM rejects two grids: a name as "src_cp" and a line of text; or None."""
        spec = Spec("lierne_bridge_spec", src=handle(src, "grid"), dst=handle(dst, "grid"))
        call(lib.lierne_bridge_check_grids, spec.at)
        of = ffi.gc(make("lierne_megatron_map", lib.lierne_megatron_map_create, spec.at),
                    lib.lierne_megatron_map_destroy)
        code = lib.lierne_megatron_map_get_rejection_code(of)
        return (_REJECTION[code], text(lib.lierne_megatron_map_get_rejection(of))) if code else None
