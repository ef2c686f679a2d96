"""deepmd-kit's operators over lierne: ghost atoms' features in LAMMPS' swaps, differentiable.

    import lierne.torch.deepmd as deepmd
    deepmd.register_operators()                      # in place of deepmd-kit's own library
    communicator = deepmd.communicator(context)      # where MPI's communicator stood
    out, = torch.ops.deepmd.border_op(*lists, features, communicator, nlocal, nghost)

The functions of this module are the operators without torch's dispatcher; a lierne.torch.context may
stand in place of the communicator's tensor. Those of deepmd_export are opaque to torch.compile,
torch.export and AOTInductor, and their results are no aliases of their inputs.

liblierne_torch (lierne/torch.h) has the same operators without Python: torch.ops.load_library(path) takes
the place of register_operators(), and communicator(context) names a context to both. They move data by
lierne's own transports: give them contexts over="node", or of MPI."""
from __future__ import annotations

import ctypes
import functools
import itertools
import typing
import weakref

import numpy as np
import torch

import lierne
from lierne._arrays import dtype_name
from lierne._library import call, ffi, handle, lib
from lierne.torch import Operation
from lierne.torch._agree import largest

__all__ = ["allreduce_min_int", "border_op", "border_op_backward", "communicator", "register_operators"]

_NEW_LISTS = 2  # a rank's news; 1: only dtype or width is new
_contexts, _numbers = weakref.WeakValueDictionary(), itertools.count(1)


def communicator(context: typing.Optional[lierne.Context]) -> torch.Tensor:
    """An int64 tensor of one element that names a context to the operators of this process, those of
    liblierne_torch included where that is loaded by now. The context stays the caller's: close it when no
    operator is to be called any more. The same for every call."""
    number = context.__dict__.get("communicator")
    if number is None:
        number = context.communicator = next(_numbers)
        _contexts[number] = context
    for path in torch.ops.loaded_libraries:
        bind = getattr(ctypes.CDLL(path), "lierne_torch_bind", None)
        if bind is not None:
            _bind(functools.partial(bind, ctypes.c_int64(number)), context)
    return torch.tensor([number])


def _bind(bind, context):
    """Binds the number in C, until the context is closed."""
    if "bound" in context.__dict__:
        return
    destroy, address = context._destroy, int(ffi.cast("intptr_t", handle(context, "context")))
    call(bind, ctypes.c_void_p(address))
    context.bound = True
    context._destroy = lambda own: bind(None) or (destroy(own) if destroy else lib.LIERNE_OK)


@functools.lru_cache(maxsize=None)
def _self_context():
    """This rank alone, on every device."""
    context = lierne.Context.self()
    context._destroy, context.routed = None, True  # lives as long as the process
    return context


def _context_of(given):
    if not isinstance(given, torch.Tensor):
        return given
    number = int(given.reshape(-1)[0]) if given.numel() else 0
    context = _contexts.get(number)
    if number and context is None:
        raise ValueError(f"border_op: the communicator is {number}, which is no context: pass "
                         "lierne.torch.deepmd.communicator(context), or zeros for this rank alone")
    return context if number else _self_context()


def _lists(send_list, send_num):
    """The rows of each swap: given as tensors, or as LAMMPS has them, as addresses of int arrays."""
    if not isinstance(send_list, torch.Tensor):
        return [np.asarray(rows, np.int64) for rows in send_list]
    arrays = []
    for address, count in zip(send_list.tolist(), send_num.tolist()):
        rows = (ctypes.c_int * count).from_address(address) if count else ()
        arrays.append(np.array(rows, np.int64))
    return arrays


def _operation(send_list, send_proc, recv_proc, send_num, recv_num, features, communicator, nlocal, nghost):
    """The Operation of the lists. That of the latest lists is kept with the context, for each dtype and
    shape of a row."""
    context, lists = _context_of(communicator), _lists(send_list, send_num)
    nlocal, nghost = int(nlocal), int(nghost)
    numbers = [t.tolist() for t in (send_proc, recv_proc, recv_num)]
    key = features.dtype, tuple(features.shape[1:])
    signature = (nlocal, nghost, *map(tuple, numbers), *(rows.tobytes() for rows in lists))
    kept = context.__dict__.setdefault("border_plans", {})
    news = _NEW_LISTS if kept.get("signature") != signature else key not in kept
    news = largest(context, news, features.device)
    if news == _NEW_LISTS:
        kept.clear()
        kept["signature"] = signature
    if news:
        kept[key] = Operation(lierne.Halo(context, nlocal, nghost, numbers[0], numbers[1], lists, numbers[2],
                                          dtype_name(key[0]), row_shape=key[1]))
    return kept[key]


class _Border(torch.autograd.Function):
    """Writes into the caller's tensor, unseen by autograd: rows that it writes have no gradient."""

    @staticmethod
    def forward(ctx, features, operation, nlocal):
        ctx.operation = operation
        features.data[nlocal:] = operation(features.detach())[nlocal:]
        return features

    @staticmethod
    def backward(ctx, gradient):
        return ctx.operation.adjoint(gradient), None, None


def border_op(send_list: torch.Tensor, send_proc: torch.Tensor, recv_proc: torch.Tensor, send_num: torch.Tensor,
              recv_num: torch.Tensor, features: torch.Tensor, communicator: torch.Tensor, nlocal: torch.Tensor,
              nghost: torch.Tensor) -> typing.Any:
    """Fills the ghost rows of features: arguments and results as torch.ops.deepmd.border_op.

    send_list: int64 tensor with the address of each swap's int array, or a list of row lists. The
    other tensors are on the CPU. features: (nlocal + nghost, ...), of any dtype, strides and device that
    the context moves; its ghost rows are written. communicator: the tensor of communicator(context), or
    a context; zeros: this rank alone. Returns [features]; the gradient of a ghost is added to the row that
    it copies, and is then zero. Collective. Ranks tell each other in one element per call whether their
    lists are new: if any has new ones, all plan again. Raises ValueError, and as lierne.Halo."""
    operation = _operation(send_list, send_proc, recv_proc, send_num, recv_num, features, communicator,
                           nlocal, nghost)
    return [_Border.apply(features, operation, int(nlocal))]


def border_op_backward(send_list: torch.Tensor, send_proc: torch.Tensor, recv_proc: torch.Tensor,
                       send_num: torch.Tensor, recv_num: torch.Tensor, gradient: torch.Tensor,
                       communicator: torch.Tensor, nlocal: torch.Tensor, nghost: torch.Tensor) -> typing.Any:
    """The adjoint of border_op with the same lists: a new tensor; gradient is not written. Its own
    derivative is the forward. Otherwise as border_op."""
    return _operation(send_list, send_proc, recv_proc, send_num, recv_num, gradient, communicator, nlocal,
                      nghost).adjoint(gradient)


def allreduce_min_int(value: typing.Any, communicator: torch.Tensor) -> typing.Any:
    """The smallest of all ranks' integers, element by element: a new tensor. Collective."""
    context = _context_of(communicator)
    kept = context.__dict__.setdefault("minimum_plans", {})
    key = value.dtype, value.numel()
    if key not in kept:
        kept[key] = Operation(lierne.all_reduce(context, key[1], key[0], reduction="min"))
    return kept[key](value.reshape(-1)).reshape(value.shape).clone()


def _border_op_export(*arguments):
    return _operation(*arguments)(arguments[5])


def _backward_of_export(ctx, gradient):
    lists = ctx.saved_tensors
    back = torch.ops.deepmd_export.border_op_backward(*lists[:5], gradient, *lists[5:])
    return (None,) * 5 + (back,) + (None,) * 3


def _forward_of_export(ctx, gradient):
    lists = ctx.saved_tensors
    forth = torch.ops.deepmd_export.border_op(*lists[:5], gradient, *lists[5:])
    return (None,) * 5 + (forth,) + (None,) * 3


def _keep_lists(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:5], *inputs[6:])


_ARGUMENTS = ("Tensor sendlist, Tensor sendproc, Tensor recvproc, Tensor sendnum, Tensor recvnum, Tensor {}, "
              "Tensor communicator, Tensor nlocal, Tensor nghost")
_libraries = []


def register_operators() -> None:
    """Registers torch.ops.deepmd.border_op and border_op_backward, and torch.ops.deepmd_export.border_op,
    border_op_backward and allreduce_min_int, under deepmd-kit's schemas. Later calls do nothing. Raises
    RuntimeError where another library has registered one of them."""
    if _libraries:
        return
    taken = [f"{space}::{name}" for space, names in _OPERATORS.items() for name in names
             if hasattr(getattr(torch.ops, space), name)]
    if taken:
        raise RuntimeError(f"register_operators: {taken[0]} is registered already, by deepmd-kit's own library or "
                           "by liblierne_torch: load neither of them where you call register_operators")
    for space, names in _OPERATORS.items():
        library = torch.library.Library(space, "FRAGMENT")
        _libraries.append(library)
        for name, (schema, function) in names.items():
            library.define(name + schema)
            for key in ("CompositeImplicitAutograd",) if space == "deepmd" else ("CPU", "CUDA"):
                library.impl(name, function, key)
    _describe_exports()


def _describe_exports():
    """What torch.export and autograd need of the opaque operators."""
    for name, backward in (("border_op", _backward_of_export), ("border_op_backward", _forward_of_export)):
        torch.library.register_fake(f"deepmd_export::{name}", lambda *arguments: torch.empty_like(arguments[5]))
        torch.library.register_autograd(f"deepmd_export::{name}", backward, setup_context=_keep_lists)
    torch.library.register_fake("deepmd_export::allreduce_min_int",
                                lambda value, communicator: torch.empty_like(value))


_OPERATORS = {
    "deepmd": {"border_op": (f"({_ARGUMENTS.format('g1')}) -> Tensor[]", border_op),
               "border_op_backward": (f"({_ARGUMENTS.format('grad_g1')}) -> Tensor", border_op_backward)},
    "deepmd_export": {
        "border_op": (f"({_ARGUMENTS.format('g1')}) -> Tensor", _border_op_export),
        "border_op_backward": (f"({_ARGUMENTS.format('grad_g1')}) -> Tensor", border_op_backward),
        "allreduce_min_int": ("(Tensor value, Tensor communicator) -> Tensor", allreduce_min_int)}}
