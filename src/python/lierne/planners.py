"""The planners. Every one is collective over its context: all ranks call with the same arguments
(what is a rank's own is said so), and an error of one rank is the same error on all.

group, an argument of all: None, or this rank's ContextGroup (lierne.schedules.create_groups), whose order
domain the plan is in (lierne/group.h). A plan keeps its group: closing that first is errors.BusyError."""
import itertools

import numpy as np

from lierne._arrays import dtype_name, dtype_number
from lierne._library import Spec, call, choice, copied, ffi, handle, lib, make, sized, text
from lierne.packing import read_runs, update_segments
from lierne.plan import ADJOINT, FORWARD, Plan, direction_of, read_route

_OWNERS = {"partial": lib.LIERNE_GRADIENT_OWNER_PARTIAL, "zigzag": lib.LIERNE_GRADIENT_OWNER_ZIGZAG,
           "contiguous": lib.LIERNE_GRADIENT_OWNER_CONTIGUOUS, "rows": lib.LIERNE_GRADIENT_OWNER_ROWS}
_STORAGES = {"full": lib.LIERNE_STORAGE_FULL, "compact": lib.LIERNE_STORAGE_COMPACT}
_OUTPUTS = {"whole": lib.LIERNE_BRIDGE_OUTPUT_WHOLE, "sharded": lib.LIERNE_BRIDGE_OUTPUT_SHARDED}
_ROW_ORDERS = {"sample": lib.LIERNE_ROW_ORDER_SAMPLE_MAJOR, "sequence": lib.LIERNE_ROW_ORDER_SEQUENCE_MAJOR}
_ROUTINGS = {"auto": lib.LIERNE_ROUTING_AUTO, "direct": lib.LIERNE_ROUTING_DIRECT,
             "balanced": lib.LIERNE_ROUTING_BALANCED}
_SHARING = {"none": lib.LIERNE_SHARING_NONE, "forward": lib.LIERNE_SHARING_FORWARD,
            "adjoint": lib.LIERNE_SHARING_ADJOINT, "both": lib.LIERNE_SHARING_BOTH}
_GRAPHS = {"auto": lib.LIERNE_GRAPH_ALGORITHM_AUTO, "direct": lib.LIERNE_GRAPH_ALGORITHM_DIRECT,
           "all_gather": lib.LIERNE_GRAPH_ALGORITHM_ALL_GATHER}
_REJECTION = {number: name.removeprefix("LIERNE_MEGATRON_REJECTION_").lower()
              for number, name in ffi.typeof("lierne_megatron_rejection").elements.items()}
_MEGATRON = {"collective": lib.LIERNE_MEGATRON_ALGORITHM_COLLECTIVE, "leader": lib.LIERNE_MEGATRON_ALGORITHM_LEADER}


def group_handle(group):
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


def bridge_spec(src, dst, shape, dtype, batch_axis=0, sequence_axis=None, src_counts=None,
                dst_counts=None, owner="partial", storage="full", row_owner=None,
                require_divisible=False, max_inflight=1, src_view=None, dst_view=None,
                src_placements=None, dst_placements=None, output="whole", rows_per_sample=0,
                row_order="sample", variable_rows=False, routing="auto", shared_output="none", group=None):
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
                variable_rows=variable_rows, routing=choice("routing", routing, _ROUTINGS),
                shared_output=choice("shared_output", shared_output, _SHARING), group=group_handle(group))


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
    max_inflight 1, no variable_rows, and routing "auto" or "direct".

    Raises errors.InvalidError, IndivisibleError, UnsupportedError, MismatchError and others."""

    def __init__(self, context, src, dst, shape, dtype, **options):
        spec = bridge_spec(src, dst, shape, dtype, **options)
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
    def from_config(cls, context, config, name):
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

    def _user_shape(self, shape):
        return (shape[0] * shape[1], shape[2]) if self._flat_rows else shape

    def update_rows(self, row_owner):
        """Replaces the row map of owner "rows". Collective. Raises as update_shape."""
        self.context._check_unused("the plan", self)
        owner = np.ascontiguousarray(sized("row_owner", row_owner, self._map), np.int32)
        self.context._call(lib.lierne_plan_update_rows, self._alive(),
                           ffi.cast("int32_t *", owner.ctypes.data))

    def update_counts(self, rows):
        """The rows of each sample of this rank's source dp rank (variable_rows); None on a rank that
        holds no source. Collective."""
        counts = None if rows is None else np.ascontiguousarray(rows, np.int64)
        if rows is not None:
            sized("rows", counts, self._nsamples)
        pointer = ffi.NULL if rows is None else ffi.cast("int64_t *", counts.ctypes.data)
        self.context._call(lib.lierne_plan_update_counts, self._alive(), pointer)


class BridgeRoutes:
    """What one rank does in a bridge, without a context: pure, not collective. For programs that
    execute routes themselves (lierne.torch.Operation does). Arguments as Bridge, and the rank; a shared
    output and a group need a context. Raises ValueError and as Bridge."""

    def __init__(self, rank, src, dst, shape, dtype, **options):
        if options.get("shared_output", "none") != "none":
            raise ValueError(f"shared_output is {options['shared_output']!r}, must be 'none': ranks share "
                             "memory through a context (lierne.Bridge)")
        if options.get("group") is not None:
            raise ValueError("group must be None: a group belongs to a context (lierne.Bridge)")
        spec = bridge_spec(src, dst, shape, dtype, **options)
        outs = [ffi.new("lierne_layout **") for _ in range(3)]
        call(lib.lierne_layout_create_bridge, *outs, spec.at)
        source, target, gradient = (ffi.gc(out[0], lib.lierne_layout_destroy) for out in outs)
        self.dtype = dtype_name(dtype)
        self.identity = (repr(src), repr(dst), tuple(shape), self.dtype, sorted(options.items()))
        self._pairs = {FORWARD: (source, target), ADJOINT: (gradient, source)}
        self._rank, self._naxes = rank, 3 if options.get("rows_per_sample") else len(shape)

    def shapes(self, direction="forward"):
        """The shapes of this rank's input and output; with rows_per_sample of 3 axes."""
        found = []
        for layout in self._pairs[direction_of(direction)]:
            sizes = ffi.new("int64_t[]", self._naxes)
            call(lib.lierne_layout_get_shape, sizes, layout, self._rank)
            found.append(tuple(sizes))
        return tuple(found)

    def route(self, direction="forward"):
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

    def __init__(self, context, src, dst, shape, dtype, algorithm="collective", **options):
        spec = Spec("lierne_megatron_spec", algorithm=choice("algorithm", algorithm, _MEGATRON),
                    bridge=bridge_spec(src, dst, shape, dtype, **options))
        super().__init__(context, lib.lierne_plan_create_megatron, handle(context, "context"), spec.at)

    @staticmethod
    def check(src, dst, shape, dtype, algorithm="collective", **options):
        """Raises what the constructor would, as far as that needs no context."""
        spec = Spec("lierne_megatron_spec", algorithm=choice("algorithm", algorithm, _MEGATRON),
                    bridge=bridge_spec(src, dst, shape, dtype, **options))
        call(lib.lierne_megatron_check, spec.at)

    @staticmethod
    def rejection(src, dst):
        """Why Megatron-LM rejects two grids: a name as "src_cp" and a line of text; or None."""
        spec = Spec("lierne_bridge_spec", src=handle(src, "grid"), dst=handle(dst, "grid"))
        call(lib.lierne_bridge_check_grids, spec.at)
        of = ffi.gc(make("lierne_megatron_map", lib.lierne_megatron_map_create, spec.at),
                    lib.lierne_megatron_map_destroy)
        code = lib.lierne_megatron_map_get_rejection_code(of)
        return (_REJECTION[code], text(lib.lierne_megatron_map_get_rejection(of))) if code else None


class Redistribute(Plan):
    """Moves a tensor from layout src to layout dst, and gradients back: lierne/redistribute.h.

    adjoint_src, adjoint_dst: layouts of the gradients, both or neither. routing, shared_output: as
    Bridge. max_segments, max_rows: capacities of a plan whose segments change (update). Raises errors.InvalidError, UnsupportedError (a PARTIAL dim in dst), MismatchError and
    others."""

    def __init__(self, context, src, dst, adjoint_src=None, adjoint_dst=None, max_inflight=1,
                 routing="auto", shared_output="none", group=None, max_segments=0, max_rows=0):
        gradient = [layout and handle(layout, "layout") for layout in (adjoint_src, adjoint_dst)]
        spec = Spec("lierne_redistribute_spec", src=handle(src, "layout"), dst=handle(dst, "layout"),
                    adjoint_src=gradient[0], adjoint_dst=gradient[1], max_inflight=max_inflight,
                    routing=choice("routing", routing, _ROUTINGS),
                    shared_output=choice("shared_output", shared_output, _SHARING), group=group_handle(group),
                    max_segments=max_segments, max_rows=max_rows)
        super().__init__(context, lib.lierne_plan_create_redistribute, handle(context, "context"), spec.at)

    def update(self, src=None, dst=None):
        """The next segments (max_segments): how src and dst pack them, None for a layout without a packing.
        Local: all ranks give the same between the same two calls. Raises errors.CapacityError,
        InvalidError and others; the plan then keeps the old ones."""
        update_segments(self, src, dst)


class PackedBridge(Plan):
    """Image rows of layout src to their tokens in layout dst, both with a Packing of one axis, and
    gradients back: lierne/packed_bridge.h. forward writes these tokens of `out` alone.

    runs: [n, 5], columns image, row, segment, position, length (lierne.find_image_runs makes them).
    partial_dims: names of dims of dst whose ranks each have a contribution to the gradient. max_segments,
    max_rows, max_runs: capacities, for update. Raises errors.OverlapError, CountError and others."""

    def __init__(self, context, src, dst, runs=(), allow_unused=False, allow_repeat=False, partial_dims=(),
                 max_inflight=1, routing="auto", group=None, max_segments=0, max_rows=0, max_runs=0):
        runs, names = read_runs(runs), list(dst.grid.dims())
        for name in partial_dims:
            if name not in names:
                raise ValueError(f"partial_dims has {name!r}, must be of the dims of dst: {', '.join(names)}")
        spec = Spec("lierne_packed_bridge_spec", src=handle(src, "layout"), dst=handle(dst, "layout"), runs=runs,
                    nruns=len(runs), allow_unused=bool(allow_unused), allow_repeat=bool(allow_repeat),
                    partial_dims=sum(1 << names.index(name) for name in partial_dims), max_inflight=max_inflight,
                    routing=choice("routing", routing, _ROUTINGS), group=group_handle(group),
                    max_segments=max_segments, max_rows=max_rows, max_runs=max_runs)
        super().__init__(context, lib.lierne_plan_create_packed_bridge, handle(context, "context"), spec.at)

    def update(self, src, dst, runs):
        """The next images (src), segments (dst) and runs. Local: all ranks give the same between the same
        two calls. Raises as the constructor, and errors.CapacityError; the plan then keeps the old ones."""
        update_segments(self, src, dst, src, read_runs(runs))


def _set_spec(src, dst, src_offsets, dst_offsets, **fields):
    n = len(src)
    if len(dst) != n:
        raise ValueError(f"src has {n} layouts, dst {len(dst)}: one per tensor each")
    return Spec("lierne_set_spec", ntensors=n, src=[handle(layout, "layout") for layout in src],
                dst=[handle(layout, "layout") for layout in dst],
                src_offsets=sized("src_offsets", src_offsets, n),
                dst_offsets=sized("dst_offsets", dst_offsets, n), **fields)


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

    def views(self, buffer, side="src"):
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
    the same Layout object for equal tensors: planning is faster. Raises errors.InvalidError,
    UnsupportedError (a PARTIAL dim), MismatchError and others."""

    def __init__(self, context, src, dst, src_offsets=None, dst_offsets=None, max_inflight=1, group=None):
        spec = _set_spec(src, dst, src_offsets, dst_offsets, max_inflight=max_inflight, group=group_handle(group))
        super().__init__(context, lib.lierne_plan_create_set, handle(context, "context"), spec.at)
        self._place(context.rank, (src, src_offsets), (dst, dst_offsets))


class TensorSetRoutes(_Set):
    """What one rank does in a set, without a context: pure, not collective. For programs that execute
    routes themselves (lierne.torch.Operation does). Arguments as TensorSet, and the rank."""

    def __init__(self, rank, src, dst, src_offsets=None, dst_offsets=None):
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

    def shapes(self, direction="forward"):
        """The shapes of this rank's input and output: one axis each."""
        elements = self.route(direction).elements
        return (elements[lib.LIERNE_BUFFER_IN],), (elements[lib.LIERNE_BUFFER_OUT],)

    def route(self, direction="forward"):
        """The Route of a direction."""
        return self._routes[direction_of(direction)]


class _Rows(Plan):
    """What graphs and references have in common. row_shape: the shape of a row, () for one element;
    buffers have the shape (rows, *row_shape)."""

    def _plan(self, context, function, kind, row_shape, algorithm, dtype, **fields):
        self.row_shape = tuple(row_shape)
        spec = Spec(kind, dtype=dtype_number(dtype), algorithm=choice("algorithm", algorithm, _GRAPHS),
                    width=int(np.prod(self.row_shape, dtype=np.int64)), **fields)
        super().__init__(context, function, handle(context, "context"), spec.at)

    def lists(self):
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
    row_shape: of one row. combined: owned rows and ghosts share a buffer. Raises errors.OwnerRangeError, EdgeTargetNotOwnedError and others."""

    def __init__(self, context, owner, source, target, dtype, row_shape=(), algorithm="auto",
                 accumulate=False, combined=False, keep_ghosts=False, max_inflight=1,
                 remote_targets=False, group=None):
        self._options = dict(dtype=dtype, row_shape=row_shape, algorithm=algorithm,
                             accumulate=accumulate, combined=combined, keep_ghosts=keep_ghosts,
                             max_inflight=max_inflight, remote_targets=remote_targets, group=group_handle(group))
        self._plan(context, lib.lierne_plan_create_graph, "lierne_graph_spec", **self._options,
                   **self._edges(owner, source, target))

    @staticmethod
    def _edges(owner, source, target):
        if len(source) != len(target):
            raise ValueError(f"source has {len(source)} edges and target has {len(target)}")
        return dict(nrows=len(owner), owner=owner, nedges=len(source), source=source, target=target)

    def update(self, owner, source, target):
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

    def __init__(self, context, nowned, rank, row, dtype, row_shape=(), algorithm="auto",
                 accumulate=False, combined=False, keep_ghosts=False, max_inflight=1, group=None):
        if len(rank) != len(row):
            raise ValueError(f"rank has {len(rank)} entries and row has {len(row)}")
        self._plan(context, lib.lierne_plan_create_references, "lierne_references_spec", row_shape,
                   algorithm, dtype, nowned=nowned, nghosts=len(rank), rank=rank, row=row,
                   accumulate=accumulate, combined=combined, keep_ghosts=keep_ghosts,
                   max_inflight=max_inflight, group=group_handle(group))


class Halo(Plan):
    """Ghost rows in swaps, as LAMMPS has them: lierne/halo.h. All lists are this rank's.

    nlocal, nghost: rows. sendlists[s]: the local rows that swap s sends to rank sendproc[s];
    recvnum[s] rows come from rank recvproc[s]. Buffers have the shape (nlocal + nghost, *row_shape).
    Raises errors.GhostCountError, RowNotYetFilledError, PeerCountError and others."""

    def __init__(self, context, nlocal, nghost, sendproc, recvproc, sendlists, recvnum, dtype,
                 row_shape=(), keep_ghosts=False, max_inflight=1, group=None):
        swaps = {len(sendproc), len(recvproc), len(sendlists), len(recvnum)}
        if len(swaps) != 1:
            raise ValueError(f"the lists of swaps have different lengths: {sorted(swaps)}")
        self.row_shape = tuple(row_shape)
        spec = Spec("lierne_halo_spec", nlocal=nlocal, nghost=nghost, nswap=len(sendproc),
                    sendproc=sendproc, recvproc=recvproc, sendnum=[len(x) for x in sendlists],
                    recvnum=recvnum, sendlist=list(sendlists), dtype=dtype_number(dtype),
                    width=int(np.prod(self.row_shape, dtype=np.int64)), keep_ghosts=keep_ghosts,
                    max_inflight=max_inflight, group=group_handle(group))
        super().__init__(context, lib.lierne_plan_create_halo, handle(context, "context"), spec.at)

    def swaps(self):
        """What the plan was made with: a dict of nlocal, nghost, sendproc, recvproc, sendlists and
        recvnum."""
        spec = Spec("lierne_halo_spec")
        call(lib.lierne_plan_get_halo_spec, spec.at, self._alive())
        at, n = spec.at, spec.at.nswap
        return {"nlocal": at.nlocal, "nghost": at.nghost, "sendproc": list(at.sendproc[0:n]),
                "recvproc": list(at.recvproc[0:n]), "recvnum": list(at.recvnum[0:n]),
                "sendlists": [list(at.sendlist[s][0:at.sendnum[s]]) for s in range(n)]}

    def roots(self):
        """The owner of each ghost, and the ghost's row there: two numpy arrays."""
        nghost = self.swaps()["nghost"]
        rank, row = np.zeros(nghost, np.int32), np.zeros(nghost, np.int64)
        call(lib.lierne_plan_get_halo_roots, ffi.cast("int32_t *", rank.ctypes.data),
             ffi.cast("int64_t *", row.ctypes.data), self._alive())
        return rank, row

    def flattened(self, separate=False):
        """The same exchange in one round, straight from the owners. Collective."""
        plan = self._derived(self.context, lib.lierne_plan_create_flattened, self._alive(), separate)
        plan.row_shape = self.row_shape
        return plan

    def restricted(self, keep):
        """The same exchange without the rows whose entry of keep is zero. Collective."""
        mask = np.ascontiguousarray(np.asarray(keep) != 0, np.uint8)
        sized("keep", mask, self.shapes()[0][0])
        plan = self._derived(self.context, lib.lierne_plan_create_restricted, self._alive(),
                             ffi.cast("uint8_t *", mask.ctypes.data))
        plan.row_shape = self.row_shape
        return plan
