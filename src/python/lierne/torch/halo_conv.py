"""Convolutions and pooling of tensors that ranks have parts of (lierne/dense_halo.h, strided windows).

    conv = lierne.torch.HaloConv.wrap(torch.nn.Conv2d(8, 8, 3, stride=2, padding=1), mesh, [Shard(2), Shard(3)])
    out = conv(x)                    # DTensor in, DTensor out

Placements cut outputs as they cut inputs, so a rank has its share of both, and modules can follow each other. A
rank runs the kernel on its windows, without padding. A transposed convolution is the adjoint of that: it runs on
the rank's inputs, and what it adds to the outputs of other ranks is added there.

Every autograd node that communicates is there on every rank, also on one without outputs: all ranks begin
exchanges in one order."""
from __future__ import annotations

import copy
import math
import typing

import torch
import torch.nn.functional as F

from lierne._types import DeviceMesh, Shape
from lierne.torch._convolve import (AVERAGES, CALLER, CONVOLUTIONS, MAXIMA, TRANSPOSED, Convolve, Part, Shared, axes_of,
                                    kind_of)
from lierne.torch._exchange import Side, context_of, kept, local_of
from lierne.torch.dense_halo import DenseHalo, Placements, halo_exchange

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Grid

_DIMS = {**CONVOLUTIONS, **TRANSPOSED, **MAXIMA, **AVERAGES}


class HaloConv(torch.nn.Module):
    """A module of torch on tensors that a mesh cuts. Made by wrap."""

    def __init__(self, module: torch.nn.Module, mesh: typing.Union[Grid, DeviceMesh], placements: Placements,
                 context: typing.Optional[Context] = None) -> None:
        super().__init__()
        self._kind = kind_of(module)
        if self._kind is None:
            raise TypeError(f"{CALLER}: the module is a {type(module).__name__}, must have the forward of one of "
                            "torch's Conv, ConvTranspose, MaxPool and AvgPool classes of 1 to 3 dims")
        if getattr(module, "return_indices", False):
            raise ValueError(f"{CALLER}: the module has return_indices=True, must not: indices would be a rank's")
        for name, parameter in module.named_parameters():
            if hasattr(parameter, "device_mesh"):
                raise TypeError(f"{CALLER}: parameter {name!r} is a DTensor, must be a tensor that every rank has")
        self.module, self._side = module, Side(mesh, placements)
        self._context = context_of(context, self._side)
        _check_hooks(module)

    @classmethod
    def wrap(cls, module: torch.nn.Module, mesh: typing.Union[Grid, DeviceMesh], placements: Placements,
             context: typing.Optional[Context] = None) -> HaloConv:
        """The module on tensors that the mesh cuts: nn.Conv1d to Conv3d and ConvTranspose1d to 3d, with any stride,
        dilation, padding, padding mode and groups; nn.MaxPool1d to 3d and AvgPool1d to 3d. Its outputs and
        gradients are those of the undivided module.

        placements: of inputs and outputs alike, as halo_exchange's; they may cut the batch and the axes behind
        the channels, and of pooling also the channels. context: as halo_exchange's. Every rank has all
        parameters, with equal values; their gradients are summed over the dims that cut tensors, so no other
        sum over these is to follow. Raises TypeError and ValueError."""
        return cls(module, mesh, placements, context)

    def __deepcopy__(self, memo: typing.Any) -> HaloConv:
        """A copy with parameters of its own, in the same context."""
        made = memo[id(self)] = type(self).__new__(type(self))
        for shared in (self._side, self._context):
            memo[id(shared)] = shared
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def output_shape(self, shape: Shape) -> typing.Tuple[int, ...]:
        """The whole output's shape, of an input of this shape."""
        axes = axes_of(self.module, _DIMS[self._kind], shape[2:])
        return (shape[0], getattr(self.module, "out_channels", shape[1]), *(axis.outputs for axis in axes))

    @torch.compiler.disable
    def forward(self, x: torch.Tensor, shape: typing.Optional[Shape] = None) -> torch.Tensor:
        """This rank's share of the outputs. All ranks call, also those without any. x: [batch, channels, ...], a
        DTensor of any placements, and the result is a DTensor of the module's; or this rank's share of a
        tensor of the global shape `shape`, and the result is its share of output_shape(shape). Interior
        outputs of a convolution are computed while the exchange is in flight. The first call with a shape, dtype
        and placements is collective."""
        _check_hooks(self.module)
        n, side = _DIMS[self._kind], self._side
        local, src, shape, is_dtensor = local_of(x, side, shape, CALLER)
        if len(shape) != n + 2:
            raise ValueError(f"{CALLER}: the input has {len(shape)} axes, must have {n + 2}: batch, channels and {n} "
                             "more")
        if is_dtensor and not side.is_of_torch:
            raise TypeError(f"{CALLER}: the input is a DTensor, but the module's placements are lierne's: give the "
                            "local tensor, and shape")
        if is_dtensor and self._kind in TRANSPOSED and src.key != side.key:
            local, src = halo_exchange(x, side.mesh, DenseHalo({}), side.placements, context=self._context), side
        out, whole = self._computed(local, src, shape)
        if not is_dtensor or side.mesh.get_coordinate() is None:
            return out
        from torch.distributed.tensor import DTensor
        strides = torch.empty(whole, device="meta").stride()
        return DTensor.from_local(out, side.mesh, side.placements, run_check=False, shape=torch.Size(whole),
                                  stride=strides)

    def _computed(self, x, src, shape):
        """(this rank's share of the outputs, the whole output's shape)"""
        pools = self._kind in MAXIMA or self._kind in AVERAGES
        parameters = () if pools else (self.module.weight, self.module.bias)
        x, *parameters = _lowered(x, *parameters) if parameters else (x,)
        part = self._part(src, shape, x.dtype)
        if parameters:
            given = [parameter for parameter in parameters if parameter is not None]
            shared = Shared.apply(part.total, *given)
            parameters = [*shared, None][:2]
        if self._kind in CONVOLUTIONS:
            out, _ = Convolve.apply(part.exchange.input(x, CALLER), part, self.module.groups, *parameters)
        elif self._kind in TRANSPOSED:
            out = part.transpose(x, self.module.groups, *parameters)
        else:
            padded = part.exchange.output(part.exchange.operation(part.exchange.input(x, CALLER)))
            out = part.join([self._pool(part, *piece) for piece in zip(part.combinations(), part.cut(padded, 0))], 1)
        return out, part.shape

    def _part(self, src, shape, dtype):
        module, n, context, dst = self.module, _DIMS[self._kind], self._context, self._side
        key = (self._kind, tuple(axes_of(module, n, shape[2:])), getattr(module, "padding_mode", None),
               getattr(module, "in_channels", None), getattr(module, "out_channels", None),
               sum(p.numel() for p in module.parameters()), src.key, dst.key, shape, dtype)
        return kept(context, key, lambda: Part(module, n, context, src, dst, shape, dtype))

    def _pool(self, part, windows, x):
        """Pools one window per axis."""
        if self._kind in AVERAGES:
            return _average(self.module, part, windows, x)
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[part.n - 1]
        return pool(x, [axis.kernel for axis in part.axes], [axis.stride for axis in part.axes], part.padding(),
                    [axis.dilation for axis in part.axes])


def _lowered(*tensors):
    """What a convolution computes with under autocast."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device) or tensors[0].dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return tensors
    return [None if tensor is None else tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors]


def _average(module, part, windows, x):
    """Average pooling of one window per axis, where every output is divided as torch divides it."""
    divisor = getattr(module, "divisor_override", None)
    if divisor is None:
        counts = [_counts(axis, window, module.count_include_pad) for axis, window in zip(part.axes, windows)]
        if all(min(count) == max(count) for count in counts):
            divisor = math.prod(count[0] for count in counts)
    if divisor is not None:
        return _summed(part, x, divisor)
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    sums, divisors = _summed(part, wide, 1), torch.ones((), dtype=wide.dtype, device=x.device)
    for count in counts:
        divisors = divisors.unsqueeze(-1) * torch.tensor(count, dtype=wide.dtype, device=x.device)
    return (sums / divisors).to(x.dtype)


def _counts(axis, window, includes_padding):
    """What the sum at each output of a window is divided by."""
    starts = [number * axis.stride - axis.lo for number in range(window.first, window.first + window.outputs)]
    if includes_padding:
        return [min(axis.kernel, axis.size + axis.lo - start) for start in starts]
    return [min(start + axis.kernel, axis.size) - max(start, 0) for start in starts]


def _summed(part, x, divisor):
    """Sums over windows, divided. Of one axis as of two: torch takes no divisor there."""
    kernel, stride, padding = [axis.kernel for axis in part.axes], [axis.stride for axis in part.axes], part.padding()
    if part.n == 3:
        return F.avg_pool3d(x, kernel, stride, padding, divisor_override=divisor)
    if part.n == 2:
        return F.avg_pool2d(x, kernel, stride, padding, divisor_override=divisor)
    out = F.avg_pool2d(x.unsqueeze(-2), [1, *kernel], [1, *stride], [0, *padding], divisor_override=divisor)
    return out.squeeze(-2)


def _check_hooks(module):
    if module._forward_pre_hooks or module._forward_hooks:
        raise ValueError(f"{CALLER}: the module has forward hooks, which would not run")
