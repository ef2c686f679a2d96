"""Samples as differentiable operations: lierne.Samples whose tensors are torch's.

    samples = lierne.torch.Samples(context, dispatch=[(1176, torch.float32), (3, torch.int64, "segments")],
                                   ret=[(64, torch.float32)], max_items=32, max_rows=8192)
    samples.update(costs, rows, returned_rows=merged)        # this rank's items; host numbers
    pixels, grids = samples.dispatch(pixels, grids)
    embeddings = samples.ret(encoder(pixels, grids, samples.cu_seqlens()))
"""
from __future__ import annotations

import math
import typing

import torch

import lierne
from lierne._library import arguments
from lierne._types import Integers, Mode, Place, Report
from lierne.torch import Operation, before_update, check_input, checked
from lierne.torch._autograd import moved
from lierne.torch._memory import Blocks

if typing.TYPE_CHECKING:
    from lierne.context import Context

__all__ = ["Samples"]


class Samples:
    """Samples that are assigned anew in every step, so that all ranks compute as much.

    dispatch and ret: tensors [rows, ...] as (width, dtype), width a number or the shape of one row; a
    third entry "segments" for one row per segment. Capacities and the rest as lierne.Samples. Collective:
    all ranks call, forward and backward, also ranks without items. A backward comes before the next update.

    With a context over="distributed" rows move by torch.distributed's operations, on any device, and the
    numbers of an update over the job's store, which suits a few ranks."""

    def __init__(self, context: Context, dispatch: typing.Sequence[typing.Tuple[typing.Any, ...]],
                 ret: typing.Sequence[typing.Tuple[typing.Any, ...]] = (), *, max_rows: int, max_items: int = 0,
                 max_segments: int = 0, max_returned_rows: int = 0, costs: int = 1, caller: bool = False,
                 max_inflight: int = 1) -> None:
        capacities = arguments(locals(), "context", "dispatch", "ret")
        self.context, self.step = context, 0
        entries = [*dispatch, *ret]
        self._rows = [(entry[0],) if isinstance(entry[0], int) else tuple(entry[0]) for entry in entries]
        flat = [(math.prod(rows), *entry[1:]) for rows, entry in zip(self._rows, entries)]
        self._samples = lierne.Samples(context, flat[:len(dispatch)], flat[len(dispatch):], **capacities)
        self._operations = [Operation(plan) for plan in self._samples.plans]
        for operation in self._operations:
            operation.blocks = Blocks()  # every row has one place on either side
        self._ndispatch = len(dispatch)
        self._coalesces = max_items > 0 and not self._operations[0].routed

    def update(self, costs: Integers, rows: typing.Optional[Integers] = None,
               segments: typing.Optional[Integers] = None, returned_rows: typing.Optional[Integers] = None,
               mode: Mode = "shed", destination: typing.Optional[typing.Mapping[str, typing.Any]] = None, *,
               cost: int = 0, tolerance: typing.Optional[int] = None, max_items: int = 0, max_rows: int = 0,
               min_items: int = 0, equal_items: bool = False, nodes: typing.Optional[Integers] = None,
               assignment: typing.Optional[Integers] = None) -> None:
        """The next step: this rank's items, as lierne.Samples.update. Tensors of numbers are on the host."""
        self._samples.update(**arguments(locals()))
        self.step += 1
        for operation in self._operations:
            operation.updated()

    def _move(self, first, last, tensors):
        if len(tensors) != last - first:
            raise ValueError(f"{len(tensors)} tensors are given, must be {last - first}")
        flat = []
        for i, tensor in zip(range(first, last), tensors):
            if tuple(checked(tensor).shape[1:]) != self._rows[i]:
                raise ValueError(f"tensor {i - first} has shape {tuple(tensor.shape)}, must be [rows, "
                                 f"{', '.join(map(str, self._rows[i]))}]")
            flat.append(tensor.reshape(tensor.shape[0], math.prod(self._rows[i])))
        if len(flat) > 1 and self._coalesces:
            results = _Together.apply(self, first, last, *flat)
        else:
            works = [operation.begin(x) for operation, x in zip(self._operations[first:last], flat)]
            results = [work.wait() for work in works]
        results = tuple(before_update(result, self).reshape(-1, *rows)
                        for result, rows in zip(results, self._rows[first:last]))
        return results[0] if len(results) == 1 else results

    def _exchange(self, first, last, tensors):
        """The forward of several tensors in one message per pair of ranks."""
        operations, outs = self._operations[first:last], []
        operations[0]._check_usable()
        self.context._end_dropped()
        for operation, tensor in zip(operations, tensors):
            shapes = operation.shapes(0)
            check_input(tensor, operation.dtype, shapes[0])
            outs.append(operation._new_output(tensor, shapes[1], False))
        together = self._samples._together(self._samples._dispatch if last == self._ndispatch else self._samples._ret)
        stream = torch.cuda.current_stream(tensors[0].device) if tensors[0].is_cuda else None
        together.begin([tensor.detach().contiguous() for tensor in tensors], outs, stream=stream)
        return tuple(together.wait())

    def dispatch(self, *tensors: torch.Tensor) -> typing.Any:
        """Rows of this rank's items to the ranks that compute them: all tensors of `dispatch` at once, over="node"
        in one message per pair of ranks. A tensor, or a tuple of them. Backward brings gradients home."""
        return self._move(0, self._ndispatch, tensors)

    def ret(self, *tensors: torch.Tensor) -> typing.Any:
        """Rows that were computed, to their destination: all tensors of `ret` at once."""
        return self._move(self._ndispatch, len(self._rows), tensors)

    def lists(self, place: Place = "dispatched") -> lierne.SamplesLists:
        """As lierne.Samples.lists: numpy arrays."""
        return self._samples.lists(place)

    def cu_seqlens(self, place: Place = "dispatched", device: typing.Any = None) -> torch.Tensor:
        """The cu_seqlens of a place as an int32 tensor, as attention kernels take them."""
        return torch.from_numpy(self._samples.cu_seqlens(place)).to(device)

    @property
    def report(self) -> Report:
        """What the last update balances and moves: a dict."""
        return self._samples.report

    def close(self) -> None:
        """Frees the samples. Not collective."""
        self._samples.close()


class _Together(torch.autograd.Function):
    """Several tensors in one message per pair of ranks. Gradients come back one by one, because some tensors,
    such as grid sizes, have none."""

    @staticmethod
    def forward(ctx, samples, first, last, *tensors):
        ctx.operations = samples._operations[first:last]
        ctx.set_materialize_grads(False)
        results = samples._exchange(first, last, tensors)
        ctx.mark_non_differentiable(*(out for out, needed in zip(results, ctx.needs_input_grad[3:]) if not needed))
        return results

    @staticmethod
    def backward(ctx, *gradients):
        return None, None, None, *(None if gradient is None else moved(gradient, operation, True)
                                   for gradient, operation in zip(gradients, ctx.operations))
