"""What a convolution or pooling does on one rank's part of a tensor: its exchange, and where windows and outputs
are in buffers."""
from __future__ import annotations

import itertools
import math
import typing

import torch
from torch import nn

import lierne
from lierne._library import lib
from lierne.torch import Operation
from lierne.torch._exchange import CUTS, Exchange

CALLER = "lierne.torch.HaloConv"
CONVOLUTIONS = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}
TRANSPOSED = {nn.ConvTranspose1d: 1, nn.ConvTranspose2d: 2, nn.ConvTranspose3d: 3}
MAXIMA = {nn.MaxPool1d: 1, nn.MaxPool2d: 2, nn.MaxPool3d: 3}
AVERAGES = {nn.AvgPool1d: 1, nn.AvgPool2d: 2, nn.AvgPool3d: 3}
_BOUNDARIES = {"zeros": "zero", "circular": "periodic", "reflect": "mirror", "replicate": "replicate"}


def kind_of(module):
    """The class of torch whose forward a module has, or None."""
    return next((kind for kind in (*CONVOLUTIONS, *TRANSPOSED, *MAXIMA, *AVERAGES)
                 if isinstance(module, kind) and type(module).forward is kind.forward), None)


class Axis(typing.NamedTuple):
    """What a module does along one axis."""
    size: int
    outputs: int
    kernel: int
    stride: int
    dilation: int
    lo: int  # padding
    hi: int
    extra: int  # output_padding

    @property
    def reach(self):
        return self.dilation * (self.kernel - 1)


def _each(module, name, n, default):
    value = getattr(module, name, default)
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * n


def axes_of(module, n, sizes):
    """An Axis for each of the n last ones."""
    kernel, stride, dilation, extra, padding = (_each(module, name, n, default) for name, default in (
        ("kernel_size", 1), ("stride", 1), ("dilation", 1), ("output_padding", 0), ("padding", 0)))
    axes = []
    for i, size in enumerate(sizes):
        reach = dilation[i] * (kernel[i] - 1)
        lo, hi = {"same": (reach // 2, reach - reach // 2), "valid": (0, 0)}.get(padding[i], (padding[i], padding[i]))
        if kind_of(module) in TRANSPOSED:
            outputs = (size - 1) * stride[i] - 2 * lo + reach + 1 + extra[i]
        else:
            outputs = (size + lo + hi - reach - 1) // stride[i] + 1
        if getattr(module, "ceil_mode", False) and (size + lo + hi - reach - 1) % stride[i]:
            # One more window, unless it begins beyond the tensor and the padding below.
            outputs += outputs * stride[i] < size + lo
            hi = max(hi, (outputs - 1) * stride[i] + reach + 1 - size - lo)
        axes.append(Axis(size, outputs, kernel[i], stride[i], dilation[i], lo, hi, extra[i]))
    return axes


class _Window(typing.NamedTuple):
    """Where a window is in the rank's input of the kernel, where in its output, and the first output's number."""
    at: int
    size: int
    output_at: int
    outputs: int
    first: int


class Part:
    """A module on a tensor of one shape and dtype, as src has it and dst cuts it. The exchange of a transposed
    convolution is that of the convolution of which it is the adjoint."""

    def __init__(self, module, n, context, src, dst, shape, dtype):
        kind = kind_of(module)
        self.n, self.is_transposed, pools = n, kind in TRANSPOSED, kind in MAXIMA or kind in AVERAGES
        self.axes = axes_of(module, n, shape[2:])
        cuts = dst.cuts(shape)
        cut = {axis for p in cuts.values() if p.kind in CUTS for axis in (p.axis, p.axis2)}
        if not pools:
            self._check_channels(module, shape, cut)
        self.shape = (shape[0], shape[1] if pools else module.out_channels, *(axis.outputs for axis in self.axes))
        boundary = "keep" if kind in MAXIMA else _BOUNDARIES[getattr(module, "padding_mode", "zeros")]
        # Where the kernel can pad by itself, no window does.
        self.inner = [axis.lo if 2 + i not in cut and axis.lo == axis.hi and boundary in ("zero", "keep") else None
                      for i, axis in enumerate(self.axes)]
        halos = [self._halo(2 + i, axis, boundary) for i, axis in enumerate(self.axes) if self.inner[i] is None]
        low = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
        self.exchange = Exchange(context, dst if self.is_transposed else src, dst,
                                 self.shape if self.is_transposed else shape, dtype, halos, CALLER,
                                 cut=shape if self.is_transposed else self.shape, fill=low if kind in MAXIMA else None)
        self.windows = [self._windows(context.rank, i) for i in range(n)]
        self._place(module, pools)
        self.interior, self.border = self._split(context.rank, halos) if kind in CONVOLUTIONS else ((), ())
        self.total = None if pools else Total(context, dst, cuts, dtype, sum(p.numel() for p in module.parameters()))

    @staticmethod
    def _check_channels(module, shape, cut):
        if 1 in cut:
            raise ValueError(f"{CALLER}: placements cut axis 1, the channels, of which a convolution needs all")
        if shape[1] != module.in_channels:
            raise ValueError(f"{CALLER}: the input has {shape[1]} channels, must have {module.in_channels}")

    def _halo(self, number, axis, boundary):
        if self.is_transposed:
            return lierne.DenseHalo(number, axis.lo, axis.reach - axis.lo, boundary, axis.stride, axis.size)
        return lierne.DenseHalo.convolution(number, axis.size, axis.kernel, axis.stride, axis.dilation, axis.lo,
                                            axis.hi, boundary)

    def _windows(self, rank, i):
        axis, exchange, at = self.axes[i], self.exchange, 0
        if self.inner[i] is not None:
            return [_Window(0, axis.size, 0, axis.outputs, 0)]
        windows = []
        for _, size, local, first, outputs in exchange.dst.windows(rank, exchange.axes.of[2 + i]):
            windows.append(_Window(at, outputs, local, size, first) if self.is_transposed else
                           _Window(local, size, at, outputs, first))
            at += outputs
        return windows

    def _place(self, module, pools):
        """The shapes of this rank's input and output of the kernel."""
        held = self.exchange.local[1]
        channels = [held[1]] * 2 if pools else [held[1] and module.in_channels, held[1] and module.out_channels]
        sizes = [[sum(w[k] for w in windows) if any(held) else 0 for windows in self.windows] for k in (1, 3)]
        self.local = [(held[0], channels[k], *sizes[k]) for k in range(2)]
        # Without outputs, or channels of a pooling, the kernel runs on a batch of none.
        self._none = None
        if 0 in self.local[1][1:]:
            windows = [_Window(0, axis.size, 0, axis.outputs, 0) if inner is not None else
                       _Window(0, 1 + axis.reach, 0, 1, 0) for axis, inner in zip(self.axes, self.inner)]
            channels = (self.shape[1],) * 2 if pools else (module.in_channels, module.out_channels)
            self._none = [(0, channels[k // 2], *(w[k] for w in windows)) for k in (1, 3)]
            self.windows = [[window] for window in windows]

    def _split(self, rank, halos):
        """The boxes of outputs that need nothing from other ranks, and the other ones: each as slices of the
        kernel's input and output."""
        boxes = [], []
        if self._none is None and not halos:
            boxes[1].append(((slice(None),) * (2 + self.n),) * 2)
        for start, size, is_interior in self.exchange.dst.split(self.exchange.src, rank) if halos else ():
            places = [self._place_of(i, start, size) for i in range(self.n)]
            boxes[not is_interior].append([(slice(None), slice(None), *slices) for slices in zip(*places)])
        return boxes

    def _place_of(self, i, start, size):
        """The slices of an axis that a box reads and writes."""
        axis = self.axes[i]
        if self.inner[i] is not None:
            return slice(None), slice(None)
        number = self.exchange.axes.of[2 + i]
        first, count = start[number], size[number]
        window = next(w for w in self.windows[i] if w.output_at <= first < w.output_at + w.outputs)
        at = window.at + (first - window.output_at) * axis.stride
        return slice(at, at + (count - 1) * axis.stride + axis.reach + 1), slice(first, first + count)

    def combinations(self):
        """The windows of each piece."""
        return list(itertools.product(*self.windows))

    def cut(self, tensor, side):
        """The input (side 0) or output (1) of the kernel, in pieces of one window per axis."""
        if self._none is not None:
            return [tensor.reshape(self._none[side])]
        pieces = []
        for windows in self.combinations():
            piece = tensor
            for i, window in enumerate(windows):
                at, size = window[2 * side:2 * side + 2]
                piece = piece if size == piece.shape[2 + i] else piece.narrow(2 + i, at, size)
            pieces.append(piece)
        return pieces

    def join(self, pieces, side):
        """The reverse of cut."""
        if self._none is not None:
            return pieces[0].reshape(self.local[side])
        for i in reversed(range(self.n)):
            k = len(self.windows[i])
            pieces = [torch.cat(pieces[j:j + k], 2 + i) if k > 1 else pieces[j] for j in range(0, len(pieces), k)]
        return pieces[0]

    def transpose(self, x, groups, weight, bias):
        """A transposed convolution of this rank's inputs, of which it gets its share of the outputs."""
        if tuple(x.shape) != self.local[0]:
            raise ValueError(f"{CALLER}: the input has shape {tuple(x.shape)}, must have {self.local[0]} on this rank")
        extra = [axis.extra if inner is not None else 0 for axis, inner in zip(self.axes, self.inner)]
        pieces = [torch.convolution(piece, weight, None, *self.fields(), True, extra, groups)
                  for piece in self.cut(x, 0)]
        exchange = self.exchange
        out = exchange.origin(exchange.operation.adjoint(exchange.gradient(self.join(pieces, 1))))
        return out if bias is None else out + bias.reshape(-1, *[1] * self.n)

    def padding(self):
        """What the kernel pads by itself, per axis."""
        return [inner or 0 for inner in self.inner]

    def fields(self):
        """The last arguments of torch.convolution but groups, without output_padding."""
        return [axis.stride for axis in self.axes], self.padding(), [axis.dilation for axis in self.axes]


class Total:
    """Sums gradients of parameters over the dims that cut a tensor, with a stated order: every rank has the whole
    gradient, as DTensor's parameters would."""

    def __init__(self, context, side, cuts, dtype, count):
        grid = side.grid()
        kinds = CUTS | {lib.LIERNE_PLACEMENT_AT}
        dims = [name for name, p in cuts.items() if p.kind in kinds and grid.dims()[name] > 1]
        self._operation = None
        if dims:
            src = lierne.Layout(grid, (count,), dtype, {name: lierne.Partial() for name in dims})
            self._operation = Operation(lierne.Redistribute(context, src, lierne.Layout(grid, (count,), dtype, {})))

    def __call__(self, tensors):
        if self._operation is None:
            return list(tensors)
        flat = self._operation(torch.cat([tensor.reshape(-1) for tensor in tensors]))
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.reshape(tensor.shape) for part, tensor in zip(parts, tensors)]


class Shared(torch.autograd.Function):
    """Parameters whose gradients are summed."""

    @staticmethod
    def forward(ctx, total, *parameters):
        ctx.total = total
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx, *gradients):
        return None, *ctx.total(gradients)


class Convolve(torch.autograd.Function):
    """A convolution: (this rank's outputs, its padded input). The interior is computed while the exchange is in
    flight. The padded input is a result, so that a second derivative knows what it depends on."""

    @staticmethod
    def forward(ctx, x, part, groups, weight, bias):
        ctx.part, ctx.groups = part, groups
        exchange = part.exchange
        out = x.new_empty(part.local[1])

        def compute(padded, boxes):
            for inputs, outputs in boxes:
                out[outputs] = torch.convolution(padded[inputs], weight, bias, *part.fields(), False, [0] * part.n,
                                                 groups)

        started = exchange.operation._start(x, False)
        early = [] if started.target is None else part.interior
        if early:
            compute(exchange.output(started.target), early)
        padded = exchange.output(started())
        compute(padded, part.border if early else part.interior + part.border)
        ctx.save_for_backward(weight, padded)
        ctx.set_materialize_grads(False)
        return out, padded

    @staticmethod
    def backward(ctx, gradient, of_padded):
        """The adjoint is in flight while the gradients of parameters are computed."""
        part, (weight, padded) = ctx.part, ctx.saved_tensors
        if gradient is None:
            gradient = padded.new_zeros(part.local[1])
        pairs = list(zip(part.cut(gradient, 1), part.cut(padded, 0)))

        def derivatives(mask):
            return [torch.ops.aten.convolution_backward(*pair, weight, [weight.shape[0]], *part.fields(), False,
                                                        [0] * part.n, ctx.groups, mask) for pair in pairs]

        work = None
        if ctx.needs_input_grad[0]:
            total = part.join([found[0] for found in derivatives([True, False, False])], 0)
            total = total if of_padded is None else total + of_padded
            work = part.exchange.operation.begin(part.exchange.gradient(total), "adjoint")
        mask = [False, *ctx.needs_input_grad[3:]]
        found = derivatives(mask) if any(mask) else []
        of_parameters = [sum(one[k] for one in found) if mask[k] else None for k in (1, 2)]
        return None if work is None else work.wait(), None, None, *of_parameters
