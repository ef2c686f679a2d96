"""Plans: made once by a planner, executed any number of times, forward and adjoint.

Execution is collective over the plan's context: all ranks call, also ranks without data. Buffers are
numpy arrays or export DLPack (host memory, contiguous); results are numpy arrays, which export DLPack
too. In a context with memory of a device (Context.use_cuda) buffers export DLPack of that memory, the caller
gives out, and every call takes a stream: it enqueues its work and returns, and buffers are borrowed until the
stream has passed it. Where the plan owns the output of a direction (shared_output of Bridge and Redistribute), results
are read-only arrays over memory that ranks of the node share, and are overwritten when this rank begins
the plan's next call of that direction: copy what must stay."""
from __future__ import annotations

import dataclasses
import functools
import typing

import numpy as np

from lierne._arrays import borrow, dtype_number, stream_of, dtype_of_number, numpy_dtype
from lierne._library import Error, Spec, call, choice, ffi, handle, lib, make, not_copied, text
from lierne._types import Buffer, DType, Direction, Integers, Reduction, Report, Shape, Shapes, Stream
from lierne.packing import on_host

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.schedules import ContextGroup
    from lierne.grid import Grid

FORWARD, ADJOINT = lib.LIERNE_DIRECTION_FORWARD, lib.LIERNE_DIRECTION_ADJOINT
_SIZES = ffi.typeof(f"int64_t[{2 * lib.LIERNE_MAX_AXES}]")
_NAMES = {"forward": FORWARD, "adjoint": ADJOINT, FORWARD: FORWARD, ADJOINT: ADJOINT}
_REDUCTIONS = {"sum": lib.LIERNE_REDUCTION_SUM, "max": lib.LIERNE_REDUCTION_MAX, "min": lib.LIERNE_REDUCTION_MIN,
               "prod": lib.LIERNE_REDUCTION_PROD, "avg": lib.LIERNE_REDUCTION_AVG}


def direction_of(name: typing.Union[Direction, int]) -> int:
    """lierne_direction of "forward", "adjoint" or such a number."""
    if not isinstance(name, (str, int)) or name not in _NAMES:
        raise ValueError(f"direction is {name!r}, must be 'forward' or 'adjoint'")
    return _NAMES[name]


def reduction_of(name: Reduction) -> int:
    """lierne_reduction of "sum", "max", "min", "prod" or "avg"."""
    return choice("reduction", name, _REDUCTIONS)


@dataclasses.dataclass(frozen=True)
class Block:
    """Elements of a buffer: nested loops, see lierne/route.h. rows: an index list or None."""
    offset: int
    count: typing.Tuple[int, ...]
    stride: typing.Tuple[int, ...]
    rows: typing.Optional[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Place:
    """A block of a buffer: 0 in, 1 out, 2 scratch."""
    buffer: int
    block: Block


@dataclasses.dataclass(frozen=True)
class Message:
    """Blocks of one buffer, to or from the rank `peer`."""
    peer: int
    buffer: int
    elements: int
    blocks: typing.List[Block]


@dataclasses.dataclass(frozen=True)
class Operation:
    """to = the reduction of sources, in their order."""
    to: Place
    accumulate: bool
    reduction: int
    divisor: int
    sources: typing.List[Place]


@dataclasses.dataclass(frozen=True)
class Stage:
    """What may be in flight at once: messages and copies, then the sums in their order."""
    sends: typing.List[Message]
    recvs: typing.List[Message]
    copies: typing.List[Operation]
    sums: typing.List[Operation]


@dataclasses.dataclass(frozen=True)
class Route:
    """What one rank does in a direction; lierne/route.h says how to execute it."""
    rank: int
    dtype: str
    accumulates: bool
    elements: typing.Tuple[int, ...]
    stages: typing.List[Stage]


def _block(block):
    n = block.ndims
    rows = None
    if block.rows:
        rows = np.frombuffer(ffi.buffer(block.rows, 8 * block.count[0]), np.int64).copy()
    return Block(block.offset, tuple(block.count)[:n], tuple(block.stride)[:n], rows)


def _place(place):
    return Place(place.buffer, _block(place.block))


def _message(message):
    return Message(message.peer, message.buffer, message.elements,
                   [_block(message.blocks.at[i]) for i in range(message.blocks.count)])


def _operation(op):
    sources = getattr(op, "from")
    return Operation(_place(op.to), op.accumulate, op.reduction, op.divisor,
                     [_place(sources.at[i]) for i in range(sources.count)])


def _messages(messages):
    """Those with elements: a plan whose segments change has others, to every rank that may be a peer."""
    return [_message(messages.at[i]) for i in range(messages.count) if messages.at[i].elements]


def _stage(stage):
    return Stage(_messages(stage.sends), _messages(stage.recvs),
                 [_operation(stage.copies.at[i]) for i in range(stage.copies.count)],
                 [_operation(stage.sums.at[i]) for i in range(stage.sums.count)])


def read_route(route: typing.Any) -> Route:
    """The Route of a C route."""
    return Route(route.rank, dtype_of_number(route.dtype), bool(route.accumulates),
                 tuple(route.elements),
                 [_stage(route.stages.at[i]) for i in range(route.stages.count)])


class Request:
    """An execution in flight. It borrows both buffers until wait() has returned. One that is dropped
    instead is ended by the next call of its context that may wait."""

    def __init__(self, plan: Plan, handle: typing.Any, out: typing.Any, kept: typing.Any) -> None:
        self._plan, self._handle, self._out, self._kept = plan, handle, out, kept

    def test(self) -> bool:
        """Whether wait() would return at once. Progresses everything in flight."""
        done = ffi.new("int *", 1)
        self._plan._alive()
        if self._handle is not None:
            self._plan.context._call_at_once(lib.lierne_request_test, done, self._handle)
        return bool(done[0])

    def wait(self) -> typing.Any:
        """Waits until the execution is complete and returns its output, as every further call does. All
        ranks must call."""
        self._plan._alive()
        if self._handle is not None:
            self._plan.context._call(lib.lierne_request_end, self._handle)
            self._handle = None
        return self._out

    def __del__(self) -> None:
        if self._handle is not None:
            self._plan.context._drop(functools.partial(_end, self._plan, self._handle, self._kept))


def _end(plan, own, kept):
    """Ends a request that was dropped; until then it keeps its plan and its buffers."""
    call(lib.lierne_request_end, own)


class Plan:
    """A plan of any kind; made by the planners (lierne.Bridge, lierne.Graph, ...).

    context: the Context that it was made in. Freed when it is collected, or by close()."""

    row_shape = None  # of plans of rows: the shape of one row, where the caller gave it

    def __init__(self, context: Context, function: typing.Any, *arguments: typing.Any) -> None:
        self.context = context
        self._handle = self._dtype = None
        self._shared = ()  # the directions of which the plan owns the output
        out = ffi.new("lierne_plan **")
        context._call(function, out, *arguments)
        self._handle = out[0]
        where = ffi.new("const void **")
        self._shared = tuple(d for d in (FORWARD, ADJOINT) if
                             lib.lierne_plan_get_shared_output(where, self._handle, d) == 0)

    __copy__ = __reduce_ex__ = not_copied

    def _alive(self):
        """The handle, which is gone with the plan and with its context."""
        if self._handle is None or self.context._handle is None:
            raise ValueError(f"the {'plan' if self._handle is None else 'context of the plan'} is closed")
        return self._handle

    @classmethod
    def _derived(cls, context, function, *arguments):
        plan = Plan.__new__(Plan)
        Plan.__init__(plan, context, function, *arguments)
        return plan

    def close(self) -> None:
        """Frees the plan. Not collective. Raises errors.BusyError while a request is in flight, and
        BufferError while an array over its shared output is alive."""
        if self._handle is not None and self.context._handle is not None:
            self.context._check_unused("the plan", self)
            self.context._call(lib.lierne_plan_destroy, self._handle)
        self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.context._discard(lib.lierne_plan_destroy, self._handle)

    @property
    def kind(self) -> str:
        """What made it: "bridge", "graph", "halo" and so on."""
        return text(lib.lierne_plan_get_kind(self._alive()))

    @property
    def dtype(self) -> str:
        """lierne's name of the dtype of its buffers, as "bf16"."""
        own = self._alive()
        if self._dtype is None:
            out = ffi.new("lierne_dtype *")
            call(lib.lierne_plan_get_dtype, out, own)
            self._dtype = dtype_of_number(out[0])
        return self._dtype

    @property
    def number(self) -> int:
        """The number by which messages, dumps and traces name it, the same on every rank."""
        return lib.lierne_plan_get_number(self._alive())

    @property
    def memory_kind(self) -> str:
        """The memory that its buffers are in: "host" or "cuda"."""
        return text(lib.lierne_plan_get_memory_kind(self._alive()))

    def shapes(self, direction: Direction = "forward") -> Shapes:
        """The shapes of this rank's input and output buffers in a direction, in elements."""
        n, sizes = ffi.new("int *"), ffi.new(_SIZES)
        direction = direction_of(direction)
        call(lib.lierne_plan_get_shape, n, sizes, sizes + lib.LIERNE_MAX_AXES, self._alive(),
             direction)
        return (self._user_shape(tuple(ffi.unpack(sizes, n[0]))),
                self._user_shape(tuple(ffi.unpack(sizes + lib.LIERNE_MAX_AXES, n[0]))))

    def _user_shape(self, shape):
        if self.row_shape is None:
            return shape
        return (*shape[:-1], *self.row_shape)

    def _buffers(self, direction, data, out):
        shapes, dtype = self.shapes(direction), self.dtype
        source, keep_in = borrow(data, dtype, shapes[0], False, "the input", self.context._memory)
        if out is None and (direction in self._shared or self.context._memory != "host" and 0 in shapes[1]):
            return None, ffi.NULL, source, (keep_in,)
        if out is None and self.context._memory != "host":
            raise TypeError(f"out is None; the caller allocates outputs in {self.context._memory} memory")
        if out is None:
            out = np.zeros(shapes[1], numpy_dtype(dtype))
        target, keep_out = borrow(out, dtype, shapes[1], True, "out", self.context._memory)
        return out, target, source, (keep_in, keep_out)

    def _execute(self, function, direction, data, out, stream, *first):
        out, target, source, kept = self._buffers(direction, data, out)
        try:
            self.context._call(function, self._alive(), *first, target, source, stream_of(stream))
        except Error:
            self.context._keep_borrowed(kept)
            raise
        return self._shared_array(direction) if direction in self._shared and out is None else out

    def _shared_block(self, direction):
        """The memory of the last call's output as a buffer; None where this rank has no output."""
        where = ffi.new("const void **")
        call(lib.lierne_plan_get_shared_output, where, self._alive(), direction)
        elements = int(np.prod(self.shapes(direction)[1], dtype=np.int64))
        nbytes = elements * numpy_dtype(self.dtype).itemsize
        if not where[0] or not nbytes:
            return None
        return self.context._export(int(ffi.cast("uintptr_t", where[0])), nbytes, self)

    def _shared_array(self, direction):
        block, shape = self._shared_block(direction), self.shapes(direction)[1]
        dtype = numpy_dtype(self.dtype)
        if block is None:
            return np.zeros(shape, dtype)
        return np.frombuffer(memoryview(block).toreadonly(), dtype).reshape(shape)

    def forward(self, data: typing.Optional[Buffer], out: typing.Optional[Buffer] = None,
                stream: Stream = None) -> typing.Any:
        """out = F data. Collective; blocking, but on a stream (see above). data: of shapes()[0]; None if that is empty. Returns
        out, a new numpy array unless one is given; with shared_output the read-only array of the node,
        valid until the next call of that direction, and out must not be given. Raises ValueError and
        TypeError for buffers that do not fit, before anything starts; otherwise as lierne_plan_forward
        (lierne/plan.h). stream: of memory of a device; its address, or a stream of torch or cupy."""
        return self._execute(lib.lierne_plan_forward, FORWARD, data, out, stream)

    def adjoint(self, gradient: typing.Optional[Buffer], out: typing.Optional[Buffer] = None,
                stream: Stream = None) -> typing.Any:
        """out = F* gradient, the exact adjoint. Otherwise as forward."""
        return self._execute(lib.lierne_plan_adjoint, ADJOINT, gradient, out, stream)

    def begin(self, data: typing.Optional[Buffer], out: typing.Optional[Buffer] = None,
              direction: Direction = "forward", stream: Stream = None) -> Request:
        """Starts an execution and returns its Request. Otherwise as forward and adjoint."""
        direction = direction_of(direction)
        function = lib.lierne_plan_forward_begin if direction == FORWARD else lib.lierne_plan_adjoint_begin
        out, target, source, kept = self._buffers(direction, data, out)
        request = ffi.new("lierne_request **")
        self.context._call(function, request, self._alive(), target, source, stream_of(stream))
        if out is None and direction in self._shared:
            out = self._shared_array(direction)
        return Request(self, request[0], out, kept)

    def reduce(self, data: typing.Optional[Buffer], reduction: Reduction,
               out: typing.Optional[Buffer] = None, stream: Stream = None) -> typing.Any:
        """As adjoint, with "max" or "min" in place of the sum; plans of rows only."""
        return self._execute(lib.lierne_plan_reduce, ADJOINT, data, out, stream, reduction_of(reduction))

    def report(self, direction: Direction = "forward") -> Report:
        """The cost of one execution on this rank, as a dict: the fields of lierne_report, bytes."""
        spec = Spec("lierne_report")
        call(lib.lierne_plan_get_report, spec.at, self._alive(), direction_of(direction))
        names = [name for name, _ in ffi.typeof("lierne_report").fields if name != "size"]
        values = {name: getattr(spec.at, name) for name in names}
        return {name: value if isinstance(value, int) else text(value)
                for name, value in values.items()}

    def text(self, direction: Direction = "forward") -> str:
        """The route of a direction as text, a line per message and operation."""
        out = make("char", lib.lierne_plan_print, self._alive(), direction_of(direction))
        try:
            return text(out)
        finally:
            lib.lierne_text_destroy(out)

    def route(self, direction: Direction = "forward") -> Route:
        """The Route of this rank: read-only data, to count or to execute over another transport."""
        out = ffi.new("const lierne_route **")
        call(lib.lierne_plan_get_route, out, self._alive(), direction_of(direction))
        return read_route(out[0])

    def alias(self, direction: Direction = "forward") -> typing.Optional[int]:
        """The element of the input at which this rank's result lies unchanged; None if it does not."""
        out = ffi.new("int64_t *")
        call(lib.lierne_plan_get_alias, out, self._alive(), direction_of(direction))
        return None if out[0] < 0 else out[0]

    def transposed(self) -> Plan:
        """The plan whose forward is this plan's adjoint, and the reverse. Collective."""
        return self._derived(self.context, lib.lierne_plan_create_transposed, self._alive())

    @property
    def name(self) -> typing.Optional[str]:
        """The name that the plan was given, or None."""
        return text(lib.lierne_plan_get_name(self._alive()))

    def retyped(self, dtype: DType, row_shape: Shape = (), max_inflight: int = 0,
                name: typing.Optional[str] = None) -> Plan:
        """The plan that moves the same rows as rows of another dtype and shape, without planning again
        (lierne_plan_create_retyped). For plans of rows, and for redistributions and bridges that divide no
        index of the last axis, which becomes row_shape. max_inflight: 0 for that of this plan. Collective.
        Raises errors.InvalidError and others."""
        row_shape = tuple(row_shape)
        spec = Spec("lierne_retyped_spec", dtype=dtype_number(dtype), max_inflight=max_inflight, name=name,
                    width=int(np.prod(row_shape, dtype=np.int64)))
        plan = self._derived(self.context, lib.lierne_plan_create_retyped, self._alive(), spec.at)
        plan.row_shape = row_shape
        return plan

    def update_retyped(self, like: Plan) -> None:
        """Gives a retyped plan the rows that `like` has now, after that was updated. Collective."""
        self.context._call(lib.lierne_plan_update_retyped, self._alive(), _alive(like))

    def fetch_and_add(self, dtype: DType, row_shape: Shape = (), max_inflight: int = 1,
                      name: typing.Optional[str] = None) -> Plan:
        """A plan whose forward adds what the ghosts of this plan, a graph or references, give to the rows that
        they refer to, and fetches the value that each row had before, in a stated order
        (lierne_plan_create_fetch_and_add). Its buffers have the owned rows and then the ghosts. Collective.
        Raises errors.InvalidError and others."""
        row_shape = tuple(row_shape)
        spec = Spec("lierne_fetch_and_add_spec", dtype=dtype_number(dtype), max_inflight=max_inflight, name=name,
                    width=int(np.prod(row_shape, dtype=np.int64)))
        plan = self._derived(self.context, lib.lierne_plan_create_fetch_and_add, self._alive(), spec.at)
        plan.row_shape = row_shape
        return plan

    def then(self, second: Plan) -> Plan:
        """The plan that executes this one and then `second`. Collective."""
        return self._derived(self.context, lib.lierne_plan_create_composed, self._alive(),
                             _alive(second))

    def update_shape(self, shape: Shape) -> None:
        """Gives a bridge or redistribution another global shape. Collective. Raises BufferError while
        an array over its shared output is alive, and errors.InvalidError and others."""
        self.context._check_unused("the plan", self)
        sizes = ffi.new("int64_t[]", [int(size) for size in shape])
        self.context._call(lib.lierne_plan_update_shape, self._alive(), sizes)

    def recreate(self, context: Context, src: Grid, dst: Grid, src_view: str = "base", dst_view: str = "base",
                 group: typing.Optional[ContextGroup] = None) -> Plan:
        """A plan that does the same in another context, such as that of the ranks that are left
        (Context.shrink), between other grids, whose views have dims as the old ones, of any size: of a bridge or
        a redistribution. Collective. This plan is not changed. A process without an old plan makes a
        new one with equal arguments instead. Raises errors.UnsupportedError (another kind), InvalidError
        (counts, coordinates or owners of dims that changed) and others."""
        spec = Spec("lierne_recreate_spec", src=handle(src, "grid"), dst=handle(dst, "grid"), src_view=src_view,
                    dst_view=dst_view, group=group and handle(group, "group"))
        plan = type(self).__new__(type(self))
        Plan.__init__(plan, context, lib.lierne_plan_recreate, handle(context, "context"), self._alive(), spec.at)
        plan._take_from(self)
        return plan

    def _take_from(self, old):
        """What a class of plans keeps beside the handle, from the plan that this one was made of."""

    def update_documents(self, axis: int, segments: Integers) -> None:
        """Gives the halos of a redistribution other documents on an axis that has some: their offsets, as
        cu_seqlens. Collective. Raises errors.InvalidError and others."""
        self.context._check_unused("the plan", self)
        offsets = ffi.new("int64_t[]", on_host("segments", segments).reshape(-1).tolist())
        self.context._call(lib.lierne_plan_update_documents, self._alive(), axis, len(offsets) - 1, offsets)

    def check(self) -> None:
        """Checks this rank's routes without executing them; raises errors.InvalidError."""
        check_plans([self])

    def __repr__(self) -> str:
        if self._handle is None or self.context._handle is None:
            return "<closed plan>"
        return f"<{self.kind} {self.shapes()[0]} -> {self.shapes()[1]} {self.dtype}>"


def _alive(plan):
    handle(plan, "plan")
    return plan._alive()


def check_plans(plans: typing.Iterable[Plan]) -> None:
    """Checks the plans of all ranks of a world, in order, against each other; or one alone."""
    handles = ffi.new("lierne_plan *[]", [_alive(plan) for plan in plans])
    call(lib.lierne_plan_check, handles, len(plans))


class Coalesced:
    """Several plans of one context executed together, with one message per pair of ranks.

    Collective. The plans can be neither closed nor updated while it lives, but those of packings and samples may
    be updated between its calls (lierne/plan.h)."""

    def __init__(self, plans: typing.Iterable[Plan]) -> None:
        self._plans, self._handle = list(plans), None
        if not self._plans:
            raise ValueError("plans is empty, must have at least one plan")
        _alive(self._plans[0])
        self.context = self._plans[0].context
        handles = ffi.new("lierne_plan *[]", [_alive(plan) for plan in self._plans])
        out = ffi.new("lierne_coalesced **")
        self.context._call(lib.lierne_coalesced_create, out, handles, len(self._plans))
        self._handle, self._flying = out[0], {}

    __copy__ = __reduce_ex__ = not_copied

    def begin(self, data: typing.Sequence[typing.Optional[Buffer]],
              outs: typing.Optional[typing.Sequence[typing.Optional[Buffer]]] = None,
              direction: Direction = "forward", stream: Stream = None) -> None:
        """Starts all plans in one direction: data has the input of each plan."""
        direction = direction_of(direction)
        outs = [None] * len(self._plans) if outs is None else outs
        for what, given in (("data", data), ("outs", outs)):
            if len(given) != len(self._plans):
                raise ValueError(f"{what} has {len(given)} entries for {len(self._plans)} plans")
        filled = [plan._buffers(direction, x, out)
                  for plan, x, out in zip(self._plans, data, outs)]
        targets = ffi.new("void *[]", [entry[1] for entry in filled])
        sources = ffi.new("const void *[]", [entry[2] for entry in filled])
        self.context._call(lib.lierne_coalesced_begin, handle(self, "coalesced"), direction, targets, sources,
                           stream_of(stream))
        self._flying[direction] = filled

    def wait(self, direction: Direction = "forward") -> typing.List[typing.Any]:
        """Waits until the execution of a direction is complete; returns the outputs."""
        direction = direction_of(direction)
        self.context._call(lib.lierne_coalesced_end, handle(self, "coalesced"), direction)
        return [entry[0] for entry in self._flying.pop(direction)]

    def messages(self, direction: Direction = "forward") -> typing.Tuple[int, int]:
        """The numbers of messages that this rank sends and receives in one execution."""
        counts = ffi.new("int64_t[2]")
        call(lib.lierne_coalesced_get_messages, counts, counts + 1, handle(self, "coalesced"),
             direction_of(direction))
        return counts[0], counts[1]

    def close(self) -> None:
        """Releases the plans. Not collective."""
        if self._handle is not None and self.context._handle is not None:
            self.context._call(lib.lierne_coalesced_destroy, self._handle)
        self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.context._discard(lib.lierne_coalesced_destroy, self._handle)
        self._handle = None
