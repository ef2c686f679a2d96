"""Operations as autograd, torch.compile and torch.export see them."""
import weakref

import torch

_operations = weakref.WeakValueDictionary()  # by the number that graphs know them by
_next = 0


def register(operation):
    """The number of an Operation."""
    global _next
    number, _next = _next, _next + 1
    _operations[number] = operation
    return number


class Flight:
    """What Begin and End of one execution share, forward and then backward."""

    def __init__(self, operation, adjoint):
        self.operation, self.adjoint, self.finish, self.back = operation, adjoint, None, None


class Begin(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, flight):
        ctx.flight = flight
        flight.finish = flight.operation._start(tensor, flight.adjoint)
        return tensor.new_empty(0)

    @staticmethod
    def backward(ctx, _):
        finish, ctx.flight.back = ctx.flight.back, None
        return finish(), None


class End(torch.autograd.Function):
    @staticmethod
    def forward(ctx, token, flight):
        ctx.flight = flight
        return flight.finish()

    @staticmethod
    def backward(ctx, gradient):
        flight = ctx.flight
        if torch.is_grad_enabled():  # create_graph: the gradient is differentiated again
            result = moved(gradient, flight.operation, not flight.adjoint)
            flight.back = lambda: result
        else:
            flight.back = flight.operation._start(gradient, not flight.adjoint)
        return gradient.new_empty(0), None


def _operation(number):
    """The Operation that a graph of torch.compile or torch.export knows by its number."""
    if number not in _operations:
        raise RuntimeError(f"lierne::move: operation {number} is gone: keep the lierne.torch.Operation for "
                           "as long as a compiled or exported graph calls it")
    return _operations[number]


@torch.library.custom_op("lierne::move", mutates_args=(),
                         schema="(Tensor tensor, int operation, bool adjoint) -> Tensor")
def _move(tensor: torch.Tensor, operation: int, adjoint: bool) -> torch.Tensor:
    return _operation(operation)._execute(tensor, adjoint)


@_move.register_fake
def _(tensor, operation, adjoint):
    return tensor.new_empty(_operation(operation).shapes(int(adjoint))[1])


def _setup(ctx, inputs, output):
    _, ctx.operation, ctx.is_adjoint = inputs
    ctx.keep = _operation(ctx.operation)  # the caller may have dropped it when backward comes


def _backward(ctx, gradient):
    return torch.ops.lierne.move(gradient, ctx.operation, not ctx.is_adjoint), None, None


_move.register_autograd(_backward, setup_context=_setup)


class _Move(torch.autograd.Function):
    """lierne::move without a dispatcher's way there, which takes as long as a short message."""

    @staticmethod
    def forward(ctx, tensor, operation, adjoint):
        ctx.operation, ctx.is_adjoint = operation, adjoint
        return operation._execute(tensor, adjoint)

    @staticmethod
    def backward(ctx, gradient):
        return moved(gradient, ctx.operation, not ctx.is_adjoint), None, None


def moved(tensor, operation, adjoint):
    """The result of an operation. Graphs that are compiled, exported or traced get the operator. Where nothing
    differentiates or maps what is done with the tensor now, no Function is in the way."""
    if (torch.compiler.is_compiling() or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
            or torch._C._len_torch_dispatch_stack() > 0):
        return torch.ops.lierne.move(tensor, operation.id, adjoint)
    if (tensor.requires_grad and torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()
            or torch.autograd.forward_ad._current_level >= 0):
        return _Move.apply(tensor, operation, adjoint)
    return operation._execute(tensor, adjoint)
