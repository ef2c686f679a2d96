"""A route (lierne/route.h) prepared for torch: what every execution of it needs is found out once, since a
short exchange takes less time than that.

Results have the bits that lierne itself gives: copies are copies, sums are taken in the route's order,
16-bit types in float32 with one rounding, and every NaN that is computed is the canonical one."""
import functools
import math
import sys

import numpy as np
import torch
import torch.distributed as dist

from lierne._library import lib

KEPT = 1 << 20  # bytes: an output up to this is used again
IN, OUT, SCRATCH = lib.LIERNE_BUFFER_IN, lib.LIERNE_BUFFER_OUT, lib.LIERNE_BUFFER_SCRATCH
_REDUCE = {lib.LIERNE_REDUCTION_SUM: torch.add, lib.LIERNE_REDUCTION_PROD: torch.mul,
           lib.LIERNE_REDUCTION_MAX: torch.maximum, lib.LIERNE_REDUCTION_MIN: torch.minimum}


def _run(block):
    """(offset, elements) of a block that is one piece of its buffer; None of another."""
    n = 1
    for count, stride in zip(reversed(block.count), reversed(block.stride)):
        if count != 1 and stride != n:
            return None
        n *= count
    return (block.offset, n) if block.rows is None else None


class _Piece:
    """A block of a buffer; run: as above."""

    def __init__(self, buffer, block):
        self.buffer, self.block, self.run = buffer, block, _run(block)
        self._indices = {}  # of rows, by device and part

    def flat(self, buffers):
        """The elements of one that is a run."""
        buffer, (offset, n) = buffers[self.buffer], self.run
        return buffer if n == buffer.numel() else buffer[offset:offset + n]

    def view(self, buffers):
        """Its elements without an index list; of one with a list, all rows that it could name."""
        flat, block = buffers[self.buffer], self.block
        if block.rows is None:
            return flat.as_strided(block.count, block.stride, flat.storage_offset() + block.offset)
        last = block.offset + (block.count[1] - 1) * block.stride[1]
        nrows = (flat.numel() - 1 - last) // block.stride[0] + 1
        return flat.as_strided((nrows, block.count[1]), block.stride, flat.storage_offset() + block.offset)

    def index(self, device, part=None):
        """The rows of the view that it names, or those of a part of it; None for all."""
        key = device, id(part)
        if key not in self._indices:
            rows = self.block.rows
            if rows is not None and part is not None:
                rows = rows[part]
            rows = part if rows is None else rows
            self._indices[key] = None if rows is None else torch.from_numpy(rows).to(device)
        return self._indices[key]

    def read(self, buffers, part=None):
        view = self.view(buffers)
        index = self.index(view.device, part)
        return view if index is None else view.index_select(0, index)

    def write(self, buffers, values, part=None):
        view = self.view(buffers)
        index = self.index(view.device, part)
        if index is None:
            view.copy_(values)
        else:
            view.index_copy_(0, index, values.expand(len(index), self.block.count[1]))


def _parts(block):
    """The iterations of an operation in parts that name no row twice, in the order of the list."""
    if block.rows is None or len(np.unique(block.rows)) == len(block.rows):
        return [None]
    seen, occurrence = {}, np.empty(len(block.rows), np.int64)
    for i, row in enumerate(block.rows.tolist()):
        occurrence[i] = seen[row] = seen.get(row, -1) + 1
    return [np.flatnonzero(occurrence == k) for k in range(occurrence.max() + 1)]


class _Operation:
    def __init__(self, op, accumulates):
        self.to, self._parts = _Piece(op.to.buffer, op.to.block), _parts(op.to.block)
        self._sources = [self.to] if accumulates and op.accumulate else []
        self._sources += [_Piece(place.buffer, place.block) for place in op.sources]
        self._reduce, self._divisor = _REDUCE[op.reduction], op.divisor
        self._copies = len(self._sources) == 1 and op.divisor <= 1
        runs = [piece.run for piece in (self.to, *self._sources)]
        self._apart = all(piece.buffer != self.to.buffer for piece in self._sources)
        self.is_flat = len(runs) > 1 and all(runs) and len({n for _, n in runs}) == 1

    def execute(self, buffers, to=None):
        """to: where it writes, if that is known."""
        if self.is_flat:
            if to is None:
                to = self.to.flat(buffers)
            if self._copies:
                to.copy_(self._sources[0].flat(buffers))
                return
            values = self._combine([piece.flat(buffers) for piece in self._sources], to)
            if values is not to:
                to.copy_(values)
            return
        for part in self._parts:
            values = [piece.read(buffers, part) for piece in self._sources]
            values = self._combine(values) if values else buffers[self.to.buffer].new_zeros(())
            self.to.write(buffers, values, part)

    def _combine(self, values, to=None):
        """The reduction of values, in `to` if that is of use and none of them."""
        if self._copies:
            return values[0]
        dtype = values[0].dtype
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        values = [value.to(wide) for value in values]
        total = to if wide is dtype and self._apart and to is not None else torch.empty_like(values[0])
        if len(values) == 1:
            total.copy_(values[0])
        for i, value in enumerate(values[1:]):
            self._reduce(total if i else values[0], value, out=total)
        if self._divisor > 1:
            total.div_(self._divisor)
        return _canonical(total.to(dtype))


def _canonical(total):
    """With one bit pattern for NaN. To look first costs less on the host, and is a wait on a device."""
    if total.dtype.is_floating_point and (total.device.type != "cpu" or total.sum().isnan()):
        total.masked_fill_(total.isnan(), float("nan"))
    return total


def writes_all(route):
    """Whether an execution of a route writes every element of the output, whatever was there before."""
    written = torch.zeros(route.elements[OUT], dtype=torch.bool)
    for stage in route.stages:
        blocks = [(message.buffer, block) for message in stage.recvs for block in message.blocks]
        blocks += [(op.to.buffer, op.to.block) for op in (*stage.copies, *stage.sums)]
        for buffer, block in blocks:
            if buffer == OUT:
                _Piece(buffer, block).write({OUT: written}, torch.ones((), dtype=torch.bool))
    return not route.accumulates and bool(written.all())


class _Message:
    def __init__(self, message, group):
        self.peer, self.buffer, self._elements = message.peer, message.buffer, message.elements
        self.place = dist.get_group_rank(group, message.peer)
        self.pieces = [_Piece(message.buffer, block) for block in message.blocks]
        self.in_place = len(self.pieces) == 1 and self.pieces[0].run is not None

    def landing(self, buffers):
        """Memory to receive into: its place, or some to unpack from."""
        if self.in_place:
            return self.pieces[0].flat(buffers)
        return buffers[self.buffer].new_empty(self._elements)

    def packed(self, buffers):
        if self.in_place:
            return self.pieces[0].flat(buffers)
        return torch.cat([piece.read(buffers).reshape(-1) for piece in self.pieces])

    def unpack(self, buffers, tensor):
        start = 0
        for piece in self.pieces:
            n = math.prod(piece.block.count)
            piece.write(buffers, tensor[start:start + n].reshape(piece.block.count))
            start += n


class _Stage:
    def __init__(self, stage, accumulates, group):
        self.recvs = [_Message(message, group) for message in stage.recvs]
        self.sends = [_Message(message, group) for message in stage.sends]
        self.copies, self.sums = ([_Operation(op, accumulates) for op in operations]
                                  for operations in (stage.copies, stage.sums))
        self.peers = [message.peer for message in (*self.recvs, *self.sends)]


class Output:
    """Memory for an output, its elements in order, and the pieces of it that the first stage writes; None for one that
    it finds as it goes. again: it is to be used again once nobody else refers to it."""

    def __init__(self, target, program, again=False):
        self._target, self.flat, self.again = target, target if target.dim() == 1 else target.reshape(-1), again
        first, buffers = program.stages[:1], {OUT: self.flat}
        self.landings = [message.landing(buffers) if message.in_place and message.buffer == OUT else None
                         for stage in first for message in stage.recvs]
        self.copies = [op.to.flat(buffers) if op.is_flat and op.to.buffer == OUT else None
                       for stage in first for op in stage.copies]
        if again:
            self._storage = target.untyped_storage()
            self._own = self._references()

    def _references(self):
        """Of tensors to the memory, and of Python to its storage."""
        return torch._C._storage_Use_Count(self._storage._cdata), sys.getrefcount(self._storage)

    def result(self):
        return self._target.detach() if self.again else self._target

    def fits(self, source, shape):
        """Whether it may be used again: nobody else refers to its memory any more."""
        return (self._references() == self._own and self._target.shape == shape and self._target.dtype is source.dtype
                and source.is_cpu)


class Program:
    """A prepared route; group: the process group that moves it, None for the default one."""

    def __init__(self, route, group):
        self.rank, self.group, self.scratch = route.rank, group or dist.group.WORLD, route.elements[SCRATCH]
        self.stages = [_Stage(stage, route.accumulates, self.group) for stage in route.stages]
        self._writes_all, self._kept = writes_all(route), None

    @functools.cached_property
    def host(self):
        """What receives and sends tensors on the host: known here, a message saves torch's way to find it, a tenth of
        the time of a short one."""
        backend = self.group._get_backend(torch.device("cpu"))
        return backend.recv, backend.send

    def new_output(self, source, shape, fill):
        """An Output, which holds `fill` where the route writes nothing. A short one that is written as a whole is
        used again: to make it takes longer than to post its messages."""
        kept, self._kept = self._kept, None  # taken: another thread may call
        if kept is not None and kept.fits(source, shape):
            return kept
        if not self._writes_all:
            return Output(source.new_full(shape, fill), self)
        target = source.new_empty(shape)
        return Output(target, self, source.is_cpu and target.nbytes <= KEPT and not target.is_inference())

    def keep(self, output):
        """Of an execution that ended well: nothing writes there any more."""
        if output.again:
            self._kept = output
