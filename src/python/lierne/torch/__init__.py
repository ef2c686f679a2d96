"""lierne for PyTorch: plans as differentiable operations, under torchrun.

    import torch.distributed as dist, lierne, lierne.torch
    dist.init_process_group("gloo")
    context = lierne.torch.context()
    bridge = lierne.torch.Bridge(context, encoder_mesh, llm_mesh, (8, 1024, 1024), torch.float32)
    hidden = bridge(activations)       # backward: the plan's adjoint

Two ways to move data, chosen with the context. over="distributed": the plan's public route, executed
with torch.distributed's point-to-point operations (gloo on CPUs, NCCL on GPUs), on any number of nodes;
planning goes over the job's store. over="node": lierne's own transports between the processes of one
node, in host memory, or with `device` in that of CUDA devices, on the current stream. Neither loads MPI.

All ranks call every operation, forward and backward, also ranks without data: a rank whose result is
empty calls backward() on it too (`result.sum().backward()`), or the others wait for it."""
from __future__ import annotations

import typing
import zlib

import torch

import lierne
from lierne._arrays import NOWHERE, name_of, stream_of
from lierne._library import call, ffi, lib
from lierne._types import DType, DeviceMesh, Direction, Shape, Shapes
from lierne.context import Dropped
from lierne.plan import direction_of
from lierne.torch._autograd import Begin, End, Flight, moved, register
from lierne.torch._context import context
from lierne.torch._program import Program, writes_all
from lierne.torch._route import TURNS, Execution

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Grid
    from lierne.plan import Plan

__all__ = ["Bridge", "DenseHalo", "Graph", "Halo", "HaloConv", "Margins", "Migration", "Operation", "Packed",
           "PackedBridge", "Redistribute", "References", "Samples", "TensorSet", "WeightSync", "Window", "Work", "context",
           "grid", "halo_exchange", "halo_windows"]


def grid(mesh_or_grid: typing.Union[Grid, DeviceMesh]) -> lierne.Grid:
    """A lierne.Grid as it is; that of a DeviceMesh otherwise (its dims turned round). Raises TypeError,
    and as lierne.Grid.from_device_mesh."""
    if isinstance(mesh_or_grid, lierne.Grid):
        return mesh_or_grid
    return lierne.Grid.from_device_mesh(mesh_or_grid)


RETYPED = 16  # of one operation on rows, those last used


def _tag_of(plan, context):
    """An even tag for the messages of an operation, the same on all its ranks: it tells exchanges in
    flight apart. Direction, execution and stage are added to it. Operations of a context are made in one
    order; routes without one are their spec."""
    if context is None:
        name = repr(plan.identity)
    else:
        context.operations = getattr(context, "operations", 0) + 1
        name = f"{getattr(context, 'prefix', '')}/{context.operations}"
    return zlib.crc32(name.encode()) >> 2 << 1


class Work:
    """A differentiable execution in flight; the operation's input must not change before wait(). One
    that is dropped instead is ended by the next call of its context that may wait."""

    def __init__(self, flight: typing.Any, token: typing.Any) -> None:
        self._flight, self._token, self._result = flight, token, None

    def wait(self) -> torch.Tensor:
        """Waits and returns the result, as every further call does. Its backward starts the adjoint, and the
        backward of begin() waits for it: what autograd computes between the two overlaps with the exchange. Works of
        one context are waited for in the order in which they were begun, the same on all ranks."""
        if self._flight is not None:
            self._result = End.apply(self._token, self._flight)
            self._flight = self._token = None
        return self._result


class Operation:
    """A plan as a differentiable function of tensors. Its backward is the plan's adjoint, whose
    backward is the plan's forward. Works under torch.compile and torch.export.

    plan: any plan of lierne whose context lierne.torch.context made; for host tensors, of any other
    context; or BridgeRoutes, GraphRoutes or TensorSetRoutes, which move over torch.distributed in the process group
    `group` (as in context).

    A plan with shared_output="forward" (over="node") gives tensors over memory that ranks of the node
    share: not to be written, and overwritten by this rank's next forward. A backward that still needs
    one then raises RuntimeError, as after any change in place. "adjoint" is a ValueError: autograd
    adds to gradients in place.

    Over torch.distributed an operation keeps the memory of its last result of each direction, where that is on the
    host and has at most 1 MiB, for a call that finds no other reference to it."""

    def __init__(self, plan: typing.Union[Plan, lierne.BridgeRoutes, lierne.GraphRoutes, lierne.TensorSetRoutes],
                 group: typing.Any = None) -> None:
        self.plan: typing.Any = plan
        self._context = context = getattr(plan, "context", None)
        self._owner = Dropped() if context is None else context
        self.routed = context is None or getattr(context, "routed", False)
        self._shares, self._version = _shares_forward(plan, self.routed), None
        self.group = getattr(context, "group", group)
        self._tag = self._first_tag = _tag_of(plan, context)
        self.dtype, self._shapes, self._programs, self._writes_all = plan.dtype, {}, {}, {}
        self._retyped, self._row_shape = {}, _row_shape_of(plan) if context is not None else None
        self.fill: float = 0  # what the forward's output holds where the plan writes nothing
        self.blocks: typing.Any = None  # of outputs of a plan that writes all of them, both ways, on the host
        self._begun = [0, 0]  # calls per direction, where this package counts them
        self.id = register(self)

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """The forward of a tensor of shapes()[0]. All ranks call. Operations on rows (Graph, References,
        Migration, Halo) take rows of any dtype and shape, the same on all ranks: see retyped."""
        return moved(checked(tensor), self._typed(tensor), False)

    def adjoint(self, gradient: torch.Tensor) -> torch.Tensor:
        """The adjoint of a tensor of shapes("adjoint")[0]. All ranks call. Otherwise as a call."""
        return moved(checked(gradient), self._typed(gradient), True)

    def begin(self, tensor: torch.Tensor, direction: Direction = "forward") -> Work:
        """Starts an execution and returns a Work."""
        flight = Flight(self._typed(checked(tensor)), bool(direction_of(direction)))
        return Work(flight, Begin.apply(tensor, flight))

    def retyped(self, dtype: DType, row_shape: Shape = ()) -> Operation:
        """The Operation that moves the same rows as rows of another dtype and shape, made without planning
        again at its first use, by all ranks. The RETYPED ones last used are kept."""
        key = name_of(dtype), tuple(row_shape)
        made = self._retyped.pop(key, None) or Operation(self.plan.retyped(*key))
        self._retyped[key] = made
        while len(self._retyped) > RETYPED:
            del self._retyped[next(iter(self._retyped))]
        return made

    def _typed(self, tensor):
        """This operation, or the one for rows as the tensor has them."""
        if self._row_shape is None or tensor.ndim == 0:
            return self
        if tensor.shape[1:] == self._row_shape and name_of(tensor.dtype) == self.dtype:
            return self
        return self._make_typed(tensor)

    @torch.compiler.disable
    def _make_typed(self, tensor):
        return self.retyped(tensor.dtype, tensor.shape[1:])

    def shapes(self, direction: Direction = "forward") -> Shapes:
        """The shapes of this rank's input and output in a direction."""
        key = direction_of(direction)
        if key not in self._shapes:
            self._shapes[key] = self.plan.shapes(key)
        return self._shapes[key]

    def updated(self) -> None:
        """Forgets shapes and routes: to be called after the plan was updated."""
        self._shapes, self._programs, self._retyped = {}, {}, {}
        self._writes_all = {0: False, 1: False}  # to find out takes longer than to fill what is updated often
        described = getattr(self.plan, "described", None)
        if described is not None:  # messages of another description are never taken for these
            self._tag = zlib.crc32(repr((self._first_tag, described)).encode()) >> 2 << 1

    def _execute(self, tensor, adjoint):
        """As _start, and waits. Over lierne's transports this is one call of C, which checks what _start does."""
        if self.routed and not self._owner.flying:
            return self._finish_routed(self._begin_routed(*self._prepare(tensor, adjoint), int(adjoint)))
        if self.routed or self._shares and not adjoint:
            return self._start(tensor, adjoint)()
        source, shape = self._source(tensor, adjoint)
        out, stream = self._new_output(source, shape, adjoint), self._stream(source)
        function = lib.lierne_plan_adjoint if adjoint else lib.lierne_plan_forward
        try:
            self._owner._call(function, *self._addresses(source, out.data_ptr() or NOWHERE), stream_of(stream))
        except lierne.Error:
            self._owner._keep_borrowed((source, out))
            raise
        return out

    def _prepare(self, tensor, adjoint):
        """What an execution reads, and the shape of its output, after what was dropped has ended."""
        self._check_usable()
        if self._owner._dropped:
            self._owner._end_dropped()
        return self._source(tensor, adjoint)

    def _source(self, tensor, adjoint):
        shapes = self._shapes.get(adjoint) or self.shapes(int(adjoint))
        check_input(tensor, self.dtype, shapes[0])
        return (tensor.detach() if tensor.requires_grad else tensor).contiguous(), shapes[1]

    def _start(self, tensor, adjoint):
        """Begins to execute; returns a _Started."""
        source, shape = self._prepare(tensor, adjoint)
        if self._shares and not adjoint:
            return _Started(self._owner, self._start_shared(source, shape), None)
        if self.routed:
            return self._start_routed(source, shape, int(adjoint))
        out = self._new_output(source, shape, adjoint)
        return _Started(self._owner, self._start_own(source, out, adjoint),
                        None if source.is_cuda else out)

    def _new_output(self, source, shape, adjoint):
        if self.blocks is not None and not source.is_cuda:
            return self.blocks.new_empty(shape, source.dtype)
        direction = int(adjoint)
        if direction not in self._writes_all:
            self._writes_all[direction] = writes_all(self.plan.route(direction))
        if self._writes_all[direction]:
            return source.new_empty(shape)
        return source.new_full(shape, 0 if adjoint else self.fill)

    def _check_usable(self):
        """Raises where the context is closed, or dead."""
        if self._context is not None:
            self.plan._alive()
            self._context._check_usable()
            call(lib.lierne_context_get_status, self._context._handle)

    def _begin_routed(self, source, shape, direction):
        """An Execution of the route, begun."""
        program = self._programs.get(direction)
        if program is None:
            program = self._programs[direction] = Program(self.plan.route(direction), self.group)
        number = self._begun[direction]
        self._begun[direction] += 1
        self._owner.begun += 1
        return Execution(lambda: self._name_call(direction, number), program, source,
                         program.new_output(source, shape, 0 if direction else self.fill),
                         self._tag + direction + 2 * (number % TURNS))

    def _start_routed(self, source, shape, direction):
        execution = self._begin_routed(source, shape, direction)
        number = self._owner.begun
        self._owner.flying[number] = lambda: self._finish_routed(execution)

        def finish():
            """First all that was begun before, dropped or not: the other ranks end it in that order."""
            self._check_usable()
            flying = self._owner.flying
            for older in sorted(n for n in flying if n <= number):
                flying.pop(older)()
            return execution.target

        return _Started(self._owner, finish, execution.target)

    def _finish_routed(self, execution):
        try:
            return execution.finish(self._context and self._context.timeout)
        except lierne.Error as error:
            self._give_up(error, execution)
            raise

    def _name_call(self, direction, number):
        """Names a call as lierne does: "forward 6 of plan 3"; routes alone have no plan."""
        name = f"{('forward', 'adjoint')[direction]} {number}"
        return name if self._context is None else f"{name} of plan {self.plan.number}"

    def _give_up(self, error, execution):
        """No call may take the messages of an execution that failed for its own."""
        if self._context is not None:
            self._context.abort(error, error.status)
            self._context._keep = self._context._keep, execution  # its buffers may still be written

    def _start_own(self, source, out, adjoint):
        finish = self._begin_own(source, out.data_ptr() or NOWHERE, adjoint)
        return lambda: finish() or out

    def _start_shared(self, source, shape):
        """The result is a tensor over the plan's memory. What was made of the last one is now stale,
        which autograd sees in the version of the tensor."""
        finish = self._begin_own(source, 0, False)
        if self._version is not None:
            torch.autograd.graph.increment_version(self._version)
        self._version = None

        def finish_shared():
            finish()
            block = self.plan._shared_block(direction_of("forward"))
            if block is None:
                return source.new_zeros(shape)
            memory = torch.frombuffer(block, dtype=source.dtype).untyped_storage()
            out = source.new_empty(0).set_(memory, 0, shape)  # no view: its error would be another
            self._version = out.detach()
            self._version.data = source.new_empty(0)  # the version stays, the memory is let go
            return out
        return finish_shared

    def _stream(self, source):
        """The stream of a call on a device; None on the host."""
        kind = "cuda" if source.device.type == "cuda" else "host"
        if source.device.type not in ("cpu", "cuda") or kind != self.plan.context._memory:
            raise TypeError(f"the input is on {source.device}; this context moves {self.plan.context._memory} memory "
                            "(lierne.torch.context(over='distributed') moves any)")
        return torch.cuda.current_stream(source.device) if kind == "cuda" else None

    def _addresses(self, source, target):
        """The plan, out and in, as the functions of C take them."""
        return (self.plan._alive(), ffi.cast("void *", target), ffi.cast("void *", source.data_ptr() or NOWHERE))

    def _begin_own(self, source, target, adjoint):
        """Begins to execute over lierne's transports; returns a function that waits."""
        stream = self._stream(source)
        function = lib.lierne_plan_adjoint_begin if adjoint else lib.lierne_plan_forward_begin
        request = ffi.new("lierne_request **")
        self.plan.context._call(function, request, *self._addresses(source, target), stream_of(stream))

        def finish():
            self.plan.context._call(lib.lierne_request_end, request[0])
            if stream is not None:  # what the caller does next may be on another one
                torch.cuda.current_stream(source.device).wait_stream(stream)

        finish.borrowed = source  # until the request has ended
        return finish


def _row_shape_of(plan):
    """The shape of a row of a plan whose buffers are rows; None of another, whose last axes may be one."""
    shape = getattr(plan, "row_shape", None)
    return shape if shape is not None and len(plan.shapes()[0]) == 1 + len(shape) else None


def _shares_forward(plan, routed):
    """Whether the forward of a plan has a shared output; a ValueError where an Operation cannot."""
    shared = getattr(plan, "_shared", ())
    if shared and routed:
        raise ValueError("the plan has a shared output, which only lierne's own transports write: make "
                         "its context with lierne.torch.context(over='node')")
    if direction_of("adjoint") in shared:
        raise ValueError("the plan's adjoint has a shared output, to which autograd would add in place; "
                         "an Operation takes shared_output='forward'")
    return bool(shared)


def check_input(tensor: torch.Tensor, dtype: str, shape: Shape) -> None:
    """Raises TypeError and ValueError for what a plan of this dtype and shape does not take."""
    if name_of(tensor.dtype) != dtype and not dtype.startswith("bits"):
        raise TypeError(f"the input has dtype {tensor.dtype}; the plan's is {dtype}")
    if tensor.shape != tuple(shape):
        raise ValueError(f"the input has shape {tuple(tensor.shape)}; the plan needs {tuple(shape)} on "
                         "this rank")


def checked(tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"the input is a {type(tensor).__module__}.{type(tensor).__name__}, must be a "
                        "torch.Tensor")
    return tensor


def before_update(result: torch.Tensor, owner: typing.Any) -> torch.Tensor:
    """A result of an owner whose updates count its `step`: its backward needs the routes of this step, and is a
    RuntimeError after the next update. A hook, and no Function of its own: its result would be a view, which
    nobody may change in place."""
    step = owner.step

    def check(_):
        if owner.step != step:
            raise RuntimeError(f"backward of step {step} in step {owner.step}: call backward before update, or have "
                               f"one {type(owner).__name__} per microbatch in flight")

    if result.requires_grad:
        result.register_hook(check)
    return result


class _Started:
    """An execution in flight: a call waits and gives the result. It is called once, or dropped. target: the
    result's memory, where what comes from this rank is already; None of a shared result, and on a stream, which
    may begin later."""

    def __init__(self, owner, finish, target):
        self._owner, self._finish, self.target = owner, finish, target

    def __call__(self):
        # A graph keeps this, and a result its graph: a result kept here would live until the next collection.
        finish, self._finish, self.target = self._finish, None, None
        if finish is None:
            raise RuntimeError("the execution has ended already, with an error")
        try:
            return finish()
        except lierne.Error:
            self._owner._keep_borrowed(finish)
            raise

    def __del__(self):
        if self._finish is not None:
            self._owner._drop(self._finish)


class Window(lierne.Window):
    """A lierne.Window, of a context over="node", whose buffers are tensors of a dtype of torch. Those of
    readable() are not to be written; torch has no tensor that forbids it."""

    def __init__(self, context: Context, shape: typing.Union[int, Shape], dtype: DType) -> None:
        super().__init__(context, shape, dtype)
        self._torch = dtype

    def _over(self, block, writable):
        return torch.frombuffer(block, dtype=self._torch).reshape(self.shape)


from lierne.torch.dense_halo import (DenseHalo, Margins, halo_exchange,  # noqa: E402, of Operation, above
                                     halo_windows)
from lierne.torch.halo_conv import HaloConv  # noqa: E402, of Operation, above
from lierne.torch.packed import Packed, PackedBridge  # noqa: E402, of Operation, above
from lierne.torch.planners import (Bridge, Graph, Halo, Migration, Redistribute, References,  # noqa: E402, of Operation, above
                                   TensorSet)
from lierne.torch.samples import Samples  # noqa: E402, of Operation, above
from lierne.torch.weights import WeightSync  # noqa: E402, of the package, above
