"""The planners. Every one is collective over its context: all ranks call with the same arguments
(what is a rank's own is said so), and an error of one rank is the same error on all.

group, an argument of all: None, or this rank's ContextGroup (lierne.schedules.create_groups), whose order
domain the plan is in (lierne/group.h). A plan keeps its group: closing that first is errors.BusyError.

name, an argument of all: of the plan, for messages, traces and summaries (lierne/plan.h, Names)."""
from __future__ import annotations

import dataclasses
import itertools
import typing

import numpy as np
import numpy.typing as npt

from lierne._arrays import dtype_number
from lierne._library import ERRORS, Spec, call, choice, copied, ffi, handle, lib, make, sized
from lierne._types import (Array, DType, Direction, GraphAlgorithm, Integers, Report, Routing, Shape, Shapes,
                           SharedOutput, Side)
from lierne.bridges import ROUTINGS, SHARINGS, group_handle
from lierne.packing import read_runs, update_segments
from lierne.plan import ADJOINT, FORWARD, Coalesced, Plan, direction_of, read_route

if typing.TYPE_CHECKING:
    from lierne.config import Config
    from lierne.context import Context
    from lierne.grid import Layout
    from lierne.packing import Packing
    from lierne.plan import Route
    from lierne.schedules import ContextGroup

_GRAPHS = {"auto": lib.LIERNE_GRAPH_ALGORITHM_AUTO, "direct": lib.LIERNE_GRAPH_ALGORITHM_DIRECT,
           "all_gather": lib.LIERNE_GRAPH_ALGORITHM_ALL_GATHER}


class Redistribute(Plan):
    """Moves a tensor from layout src to layout dst, and gradients back: lierne/redistribute.h.

    adjoint_src, adjoint_dst: layouts of the gradients, both or neither. routing, shared_output: as
    Bridge. max_segments, max_rows: capacities of a plan whose segments change (update). max_peers: the most
    ranks that any rank exchanges messages with, by way of others where it needs more; 0: any number.
    accumulate: of a dst with margin storage: adjoint adds to `out`. Raises errors.InvalidError,
    UnsupportedError (a PARTIAL dim in dst), MismatchError and others."""

    def __init__(self, context: Context, src: Layout, dst: Layout, adjoint_src: typing.Optional[Layout] = None,
                 adjoint_dst: typing.Optional[Layout] = None, max_inflight: int = 1, routing: Routing = "auto",
                 shared_output: SharedOutput = "none", group: typing.Optional[ContextGroup] = None,
                 max_segments: int = 0, max_rows: int = 0, max_peers: int = 0,
                 accumulate: bool = False, name: typing.Optional[str] = None) -> None:
        gradient = [layout and handle(layout, "layout") for layout in (adjoint_src, adjoint_dst)]
        spec = Spec("lierne_redistribute_spec", src=handle(src, "layout"), dst=handle(dst, "layout"),
                    adjoint_src=gradient[0], adjoint_dst=gradient[1], max_inflight=max_inflight,
                    routing=choice("routing", routing, ROUTINGS),
                    shared_output=choice("shared_output", shared_output, SHARINGS), group=group_handle(group),
                    name=name,
                    max_segments=max_segments, max_rows=max_rows, max_peers=max_peers, accumulate=accumulate)
        super().__init__(context, lib.lierne_plan_create_redistribute, handle(context, "context"), spec.at)

    @classmethod
    def from_config(cls, context: Context, config: Config, name: str) -> Redistribute:
        """The redistribution of a configuration file (lierne.Config)."""
        spec = lib.lierne_config_get_redistribution(config._handle, name.encode())
        if not spec:
            raise KeyError(f"the file has no redistribution {name!r} (it has {', '.join(config.redistributions)})")
        plan = cls.__new__(cls)
        Plan.__init__(plan, context, lib.lierne_plan_create_redistribute, handle(context, "context"), spec)
        return plan

    def update(self, src: typing.Optional[Packing] = None, dst: typing.Optional[Packing] = None) -> None:
        """The next segments (max_segments): how src and dst pack them, None for a layout without a packing.
        Local: all ranks give the same between the same two calls. Raises errors.CapacityError,
        InvalidError and others; the plan then keeps the old ones."""
        update_segments(self, src, dst)


class PackedBridge(Plan):
    """Image rows of layout src to their tokens in layout dst, both with a Packing of one axis, and
    gradients back: lierne/packed_bridge.h. forward writes these tokens of `out` alone.

    runs: [n, 5], columns image, row, segment, position, length (lierne.find_image_runs makes them).
    partial_dims: names of dims of dst whose ranks each have a contribution to the gradient. max_segments,
    max_rows, max_runs: capacities, for update. max_peers: as Redistribute. Raises errors.OverlapError, CountError and others."""

    def __init__(self, context: Context, src: Layout, dst: Layout, runs: Integers = (), allow_unused: bool = False,
                 allow_repeat: bool = False, partial_dims: typing.Sequence[str] = (), max_inflight: int = 1,
                 routing: Routing = "auto", group: typing.Optional[ContextGroup] = None, max_segments: int = 0,
                 max_rows: int = 0, max_runs: int = 0, max_peers: int = 0, name: typing.Optional[str] = None) -> None:
        runs, names = read_runs(runs), list(dst.grid.dims())
        for name in partial_dims:
            if name not in names:
                raise ValueError(f"partial_dims has {name!r}, must be of the dims of dst: {', '.join(names)}")
        spec = Spec("lierne_packed_bridge_spec", src=handle(src, "layout"), dst=handle(dst, "layout"), runs=runs,
                    nruns=len(runs), allow_unused=bool(allow_unused), allow_repeat=bool(allow_repeat),
                    partial_dims=sum(1 << names.index(name) for name in partial_dims), max_inflight=max_inflight,
                    routing=choice("routing", routing, ROUTINGS), group=group_handle(group), name=name,
                    max_segments=max_segments, max_rows=max_rows, max_runs=max_runs, max_peers=max_peers)
        super().__init__(context, lib.lierne_plan_create_packed_bridge, handle(context, "context"), spec.at)

    @classmethod
    def from_config(cls, context: Context, config: Config, name: str) -> PackedBridge:
        """The packed bridge of a configuration file (lierne.Config), one with images."""
        bridge = lib.lierne_config_get_packed_bridge(config._handle, name.encode())
        if not bridge:
            raise KeyError(f"the file has no packed bridge {name!r} with images (it has "
                           f"{', '.join(config.packed_bridges)})")
        plan = cls.__new__(cls)
        Plan.__init__(plan, context, lib.lierne_plan_create_packed_bridge, handle(context, "context"), bridge)
        return plan

    def update(self, src: Packing, dst: Packing, runs: Integers) -> None:
        """The next images (src), segments (dst) and runs. Local: all ranks give the same between the same
        two calls. Raises as the constructor, and errors.CapacityError; the plan then keeps the old ones."""
        update_segments(self, src, dst, src, read_runs(runs))


@dataclasses.dataclass(frozen=True)
class SetBox:
    """A box of a source tensor that is a box of a destination tensor (lierne_set_box in
    lierne/redistribute.h): for tensors that one side stores fused, stacked, transposed or twice.

    src, dst: numbers of the tensors in the set, or their names in a lierne.torch.WeightSync. src_start,
    dst_start: the first index on each axis of the source and of the destination. sizes: on each axis of the
    destination. axes: per axis of the destination the source's axis that it is, -1 for none; by default the
    same one."""
    src: typing.Union[int, str]
    dst: typing.Union[int, str]
    src_start: typing.Sequence[int]
    dst_start: typing.Sequence[int]
    sizes: typing.Sequence[int]
    axes: typing.Optional[typing.Sequence[int]] = None


def _box(box, i, src, dst):
    """The fields of lierne_set_box."""
    for name, tensor, layouts in (("src", box.src, src), ("dst", box.dst, dst)):
        if not 0 <= tensor < len(layouts):
            raise ValueError(f"boxes[{i}].{name} is {tensor}, must be in 0 to {len(layouts) - 1}")
    for name, n in (("src_start", src[box.src].naxes), ("dst_start", dst[box.dst].naxes),
                    ("sizes", dst[box.dst].naxes), ("axes", dst[box.dst].naxes)):
        value = getattr(box, name)
        if value is not None and len(value) != n:
            raise ValueError(f"boxes[{i}].{name} has {len(value)} entries for a tensor of {n} axes")
    if box.axes is None and len(box.src_start) != len(box.dst_start):
        raise ValueError(f"boxes[{i}] has no axes, and its tensors have {len(box.src_start)} and "
                         f"{len(box.dst_start)}")
    return vars(box)


def set_fields(src: typing.Sequence[Layout], dst: typing.Sequence[Layout],
               boxes: typing.Optional[typing.Iterable[SetBox]]) -> typing.Dict[str, typing.Any]:
    """The fields of a spec that has the tensors and boxes of a set."""
    boxes = None if boxes is None else list(boxes)
    fields: typing.Dict[str, typing.Any] = {"ntensors": len(src), "src": [handle(layout, "layout") for layout in src],
                                            "dst": [handle(layout, "layout") for layout in dst]}
    if boxes is None and len(dst) != len(src):
        raise ValueError(f"src has {len(src)} layouts, dst {len(dst)}: one per tensor each")
    if boxes is not None:
        fields.update(boxes=[_box(box, i, src, dst) for i, box in enumerate(boxes)], nboxes=len(boxes), ndst=len(dst))
    return fields


def _set_spec(src, dst, src_offsets=None, dst_offsets=None, boxes=None, **fields):
    return Spec("lierne_set_spec", **set_fields(src, dst, boxes),
                src_offsets=sized("src_offsets", src_offsets, len(src)),
                dst_offsets=sized("dst_offsets", dst_offsets, len(dst)), **fields)


def check_set(src: typing.Sequence[Layout], dst: typing.Sequence[Layout],
              boxes: typing.Optional[typing.Sequence[SetBox]] = None) -> None:
    """Whether these tensors and boxes can be a TensorSet (lierne_set_check): that every element of every
    destination is in one box. Pure. Raises errors.InvalidError, which names the tensor and the box that is
    missing or there twice, and UnsupportedError."""
    spec = _set_spec(src, dst, boxes=boxes)  # keeps what its fields point to
    call(lib.lierne_set_check, spec.at)


class _Set:
    """The places of tensors in the buffers of a set."""

    def _place(self, rank, *sides):
        """sides: layouts and offsets of the input, and of the output."""
        self._places = {}
        for name, (layouts, offsets) in zip(("src", "dst"), sides):
            shapes, at = [layout.shape(rank) for layout in layouts], 0
            sizes = [int(np.prod(shape, dtype=np.int64)) for shape in shapes]
            if offsets is None:
                offsets = [0, *itertools.accumulate(sizes)]
            self._places[name] = [(int(at), n, shape) for at, n, shape in zip(offsets, sizes, shapes)]

    def views(self, buffer: typing.Any, side: Side = "src") -> typing.List[typing.Any]:
        """The tensors of a buffer of the set, as a list of views in their order, empty ones for those
        that the rank does not hold. buffer: one axis, an input (side "src") or an output ("dst") of the
        forward; a numpy array or a torch tensor. Raises ValueError."""
        if side not in self._places:
            raise ValueError(f"side is {side!r}, must be 'src' or 'dst'")
        end = max((at + n for at, n, _ in self._places[side] if n), default=0)
        if tuple(buffer.shape) != (end,):
            raise ValueError(f"the buffer has shape {tuple(buffer.shape)}; that of {side} has {(end,)}")
        return [buffer[at:at + n].reshape(shape) if n else buffer[:0].reshape(shape)
                for at, n, shape in self._places[side]]


class TensorSet(_Set, Plan):
    """Moves many tensors together, tensor i from layout src[i] to layout dst[i]: the weights of a
    trainer to an inference engine (lierne_set_spec in lierne/redistribute.h).

    A rank's input and output are one array each, of one axis, in which tensor i begins at element
    src_offsets[i] and dst_offsets[i]; by default tensors follow one another. All have one dtype. Give
    the same Layout object for equal tensors: planning is faster. boxes: SetBoxes, where tensors of src and of dst
    are not the same ones: fused, stacked, transposed or repeated. Raises errors.InvalidError,
    UnsupportedError (a PARTIAL dim), MismatchError and others."""

    def __init__(self, context: Context, src: typing.Sequence[Layout], dst: typing.Sequence[Layout],
                 src_offsets: typing.Optional[Integers] = None, dst_offsets: typing.Optional[Integers] = None,
                 max_inflight: int = 1, group: typing.Optional[ContextGroup] = None,
                 name: typing.Optional[str] = None,
                 boxes: typing.Optional[typing.Sequence[SetBox]] = None) -> None:
        spec = _set_spec(src, dst, src_offsets, dst_offsets, boxes, max_inflight=max_inflight,
                         group=group_handle(group), name=name)
        super().__init__(context, lib.lierne_plan_create_set, handle(context, "context"), spec.at)
        self._place(context.rank, (src, src_offsets), (dst, dst_offsets))


class TensorSetRoutes(_Set):
    """What one rank does in a set, without a context: pure, not collective. For programs that execute
    routes themselves (lierne.torch.Operation does). Arguments as TensorSet, and the rank. Raises
    errors.UnsupportedError for a halo: gradients of margins are added, which only a TensorSet's plan does."""

    def __init__(self, rank: int, src: typing.Sequence[Layout], dst: typing.Sequence[Layout],
                 src_offsets: typing.Optional[Integers] = None,
                 dst_offsets: typing.Optional[Integers] = None) -> None:
        for name, layouts in (("src", src), ("dst", dst)):
            for i, layout in enumerate(layouts):
                if layout._has_halos:
                    raise ERRORS[lib.LIERNE_ERR_UNSUPPORTED](
                        f"{name}[{i}] has a halo: its gradients are sums, which TensorSet plans")
        self._routes = {FORWARD: self._read(rank, src, dst, src_offsets, dst_offsets),
                        ADJOINT: self._read(rank, dst, src, dst_offsets, src_offsets)}
        self.dtype = src[0].dtype
        names = {id(layout): repr(layout) for layout in (*src, *dst)}
        self.identity = "set", [(names[id(a)], names[id(b)]) for a, b in zip(src, dst)]
        self._place(rank, (src, src_offsets), (dst, dst_offsets))

    @staticmethod
    def _read(rank, *arguments):
        spec = _set_spec(*arguments)
        route = make("lierne_route", lib.lierne_route_create_set, ffi.NULL, spec.at, rank)
        try:
            return read_route(route)
        finally:
            lib.lierne_route_destroy(route)

    def shapes(self, direction: Direction = "forward") -> Shapes:
        """The shapes of this rank's input and output: one axis each."""
        elements = self.route(direction).elements
        return (elements[lib.LIERNE_BUFFER_IN],), (elements[lib.LIERNE_BUFFER_OUT],)

    def route(self, direction: Direction = "forward") -> Route:
        """The Route of a direction."""
        return self._routes[direction_of(direction)]


class _Rows(Plan):
    """What graphs, references and migrations have in common. row_shape: the shape of a row, () for one element;
    buffers have the shape (rows, *row_shape)."""

    def _plan(self, context, function, kind, row_shape, algorithm, dtype, **fields):
        self.row_shape = tuple(row_shape)
        if algorithm is not None:
            fields["algorithm"] = choice("algorithm", algorithm, _GRAPHS)
        spec = Spec(kind, dtype=dtype_number(dtype), width=int(np.prod(self.row_shape, dtype=np.int64)), **fields)
        super().__init__(context, function, handle(context, "context"), spec.at)

    def lists(self) -> Report:
        """What planning found, as a dict of the fields of lierne_graph_lists: numbers, and numpy
        arrays (owned, ghosts, sender_ranks, edge_source, local_edges, ...)."""
        spec = Spec("lierne_graph_lists")
        call(lib.lierne_plan_get_graph_lists, spec.at, self._alive())
        at = spec.at
        lengths = {"owned": at.nowned, "ghosts": at.nghosts, "sender_ranks": at.nsenders,
                   "sender_counts": at.nsenders, "receiver_ranks": at.nreceivers,
                   "receiver_counts": at.nreceivers,
                   "receiver_rows": sum(at.receiver_counts[0:at.nreceivers])
                   if at.nreceivers else 0,
                   "edge_source": at.nedges, "edge_target": at.nedges,
                   "local_edges": at.nlocal_edges, "remote_edges": at.nremote_edges}
        lists = {name: getattr(at, name) for name, _ in ffi.typeof("lierne_graph_lists").fields
                 if name != "size" and name not in lengths}
        return {**lists, **{name: copied(getattr(at, name), n) for name, n in lengths.items()}}


class Graph(_Rows):
    """Remote rows of a graph: lierne/sparse.h. Forward copies the rows that this rank's edges read and
    other ranks own (ghosts); the adjoint sums their gradients at the owners.

    owner: the rank that owns each row of the graph, the same on every rank. source, target: global
    rows of this rank's edges, whose targets it owns; with remote_targets a target may also be a ghost.
    row_shape: of one row. combined: owned rows and ghosts share a buffer.
    Raises errors.OwnerRangeError, EdgeTargetNotOwnedError and others."""

    def __init__(self, context: Context, owner: Integers, source: Integers, target: Integers, dtype: DType,
                 row_shape: Shape = (), algorithm: GraphAlgorithm = "auto", accumulate: bool = False,
                 combined: bool = False, keep_ghosts: bool = False, max_inflight: int = 1,
                 remote_targets: bool = False, group: typing.Optional[ContextGroup] = None,
                 name: typing.Optional[str] = None) -> None:
        self._options = dict(dtype=dtype, row_shape=row_shape, algorithm=algorithm,
                             accumulate=accumulate, combined=combined, keep_ghosts=keep_ghosts,
                             max_inflight=max_inflight, remote_targets=remote_targets, group=group_handle(group),
                             name=name)
        self._plan(context, lib.lierne_plan_create_graph, "lierne_graph_spec", **self._options,
                   **self._edges(owner, source, target))

    @staticmethod
    def _edges(owner, source, target):
        if len(source) != len(target):
            raise ValueError(f"source has {len(source)} edges and target has {len(target)}")
        return dict(nrows=len(owner), owner=owner, nedges=len(source), source=source, target=target)

    def update(self, owner: Integers, source: Integers, target: Integers) -> None:
        """Gives the plan another graph. Collective."""
        fields = dict(self._options, dtype=dtype_number(self._options["dtype"]),
                      algorithm=_GRAPHS[self._options["algorithm"]],
                      width=int(np.prod(self.row_shape, dtype=np.int64)))
        del fields["row_shape"]
        spec = Spec("lierne_graph_spec", **fields, **self._edges(owner, source, target))
        self.context._call(lib.lierne_plan_update_graph, self._alive(), spec.at)


class References(_Rows):
    """Remote rows by reference: ghost k is a copy of local row `row[k]` of rank `rank[k]`. nowned: of
    this rank. Otherwise as Graph."""

    def __init__(self, context: Context, nowned: int, rank: Integers, row: Integers, dtype: DType,
                 row_shape: Shape = (), algorithm: GraphAlgorithm = "auto", accumulate: bool = False,
                 combined: bool = False, keep_ghosts: bool = False, max_inflight: int = 1,
                 group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> None:
        if len(rank) != len(row):
            raise ValueError(f"rank has {len(rank)} entries and row has {len(row)}")
        self._plan(context, lib.lierne_plan_create_references, "lierne_references_spec", row_shape,
                   algorithm, dtype, nowned=nowned, nghosts=len(rank), rank=rank, row=row,
                   accumulate=accumulate, combined=combined, keep_ghosts=keep_ghosts,
                   max_inflight=max_inflight, group=group_handle(group), name=name)


class Migration(_Rows):
    """Rows that change their owner: lierne/sparse.h. owner: of each row of this rank, the rank that gets it; -1: the
    row ends here. Forward takes the rows that this rank has and gives those that it has afterwards, by ascending rank
    that they come from, those of one rank in their order; the adjoint is the way back. Other fields of the rows move
    by retyped plans. Raises errors.OwnerRangeError and others."""

    def __init__(self, context: Context, owner: Integers, dtype: DType, row_shape: Shape = (), max_inflight: int = 1,
                 group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> None:
        self._fields = dict(dtype=dtype_number(dtype), max_inflight=max_inflight)
        self._plan(context, lib.lierne_plan_create_migration, "lierne_migration_spec", row_shape, None, dtype,
                   nrows=len(owner), owner=owner, max_inflight=max_inflight, group=group_handle(group), name=name)

    def update(self, owner: Integers, coalesced: typing.Optional[Coalesced] = None) -> None:
        """The next step: other rows, and where they go. Its retyped plans follow by update_retyped; or at once, where
        coalesced is a Coalesced of this plan and of those, and nothing else can be updated. Collective."""
        spec = Spec("lierne_migration_spec", nrows=len(owner), owner=owner,
                    width=int(np.prod(self.row_shape, dtype=np.int64)), **self._fields)
        if coalesced is None:
            self.context._call(lib.lierne_plan_update_migration, self._alive(), spec.at)
        else:
            self.context._call(lib.lierne_coalesced_update_migration, handle(coalesced, "coalesced"), spec.at)


class Halo(Plan):
    """Ghost rows in swaps, as LAMMPS has them: lierne/halo.h. All lists are this rank's.

    nlocal, nghost: rows. sendlists[s]: the local rows that swap s sends to rank sendproc[s];
    recvnum[s] rows come from rank recvproc[s]. Buffers have the shape (nlocal + nghost, *row_shape).
    Raises errors.GhostCountError, RowNotYetFilledError, PeerCountError and others."""

    def __init__(self, context: Context, nlocal: int, nghost: int, sendproc: typing.Sequence[int],
                 recvproc: typing.Sequence[int], sendlists: typing.Sequence[Integers], recvnum: typing.Sequence[int],
                 dtype: DType, row_shape: Shape = (), keep_ghosts: bool = False, max_inflight: int = 1,
                 group: typing.Optional[ContextGroup] = None, name: typing.Optional[str] = None) -> None:
        swaps = {len(sendproc), len(recvproc), len(sendlists), len(recvnum)}
        if len(swaps) != 1:
            raise ValueError(f"the lists of swaps have different lengths: {sorted(swaps)}")
        self.row_shape = tuple(row_shape)
        spec = Spec("lierne_halo_spec", nlocal=nlocal, nghost=nghost, nswap=len(sendproc),
                    sendproc=sendproc, recvproc=recvproc, sendnum=[len(x) for x in sendlists],
                    recvnum=recvnum, sendlist=list(sendlists), dtype=dtype_number(dtype),
                    width=int(np.prod(self.row_shape, dtype=np.int64)), keep_ghosts=keep_ghosts,
                    max_inflight=max_inflight, group=group_handle(group), name=name)
        super().__init__(context, lib.lierne_plan_create_halo, handle(context, "context"), spec.at)

    def swaps(self) -> Report:
        """What the plan was made with: a dict of nlocal, nghost, sendproc, recvproc, sendlists and
        recvnum."""
        spec = Spec("lierne_halo_spec")
        call(lib.lierne_plan_get_halo_spec, spec.at, self._alive())
        at, n = spec.at, spec.at.nswap
        return {"nlocal": at.nlocal, "nghost": at.nghost, "sendproc": list(at.sendproc[0:n]),
                "recvproc": list(at.recvproc[0:n]), "recvnum": list(at.recvnum[0:n]),
                "sendlists": [list(at.sendlist[s][0:at.sendnum[s]]) for s in range(n)]}

    def roots(self) -> typing.Tuple[Array, Array]:
        """The owner of each ghost, and the ghost's row there: two numpy arrays."""
        nghost = self.swaps()["nghost"]
        rank, row = np.zeros(nghost, np.int32), np.zeros(nghost, np.int64)
        call(lib.lierne_plan_get_halo_roots, ffi.cast("int32_t *", rank.ctypes.data),
             ffi.cast("int64_t *", row.ctypes.data), self._alive())
        return rank, row

    def flattened(self, separate: bool = False) -> Plan:
        """The same exchange in one round, straight from the owners. Collective."""
        plan = self._derived(self.context, lib.lierne_plan_create_flattened, self._alive(), separate)
        plan.row_shape = self.row_shape
        return plan

    def restricted(self, keep: npt.ArrayLike) -> Plan:
        """The same exchange without the rows whose entry of keep is zero. Collective."""
        mask = np.ascontiguousarray(np.asarray(keep) != 0, np.uint8)
        sized("keep", mask, self.shapes()[0][0])
        plan = self._derived(self.context, lib.lierne_plan_create_restricted, self._alive(),
                             ffi.cast("uint8_t *", mask.ctypes.data))
        plan.row_shape = self.row_shape
        return plan
