"""Executes a route (lierne/route.h) with point-to-point operations of torch.distributed: gloo on CPUs,
NCCL on GPUs, whatever the tensors' device is. Nothing of lierne's transports takes part.

Results have the bits that lierne itself gives: copies are copies, sums are taken in the route's order,
16-bit types in float32 with one rounding, and every NaN that is computed is the canonical one."""
import datetime
import math
import time

import numpy as np
import torch
import torch.distributed as dist

from lierne._library import ERRORS, lib

_TIMEOUT, _TRANSPORT = ERRORS[lib.LIERNE_ERR_TIMEOUT], ERRORS[lib.LIERNE_ERR_TRANSPORT]
IN, OUT, SCRATCH = lib.LIERNE_BUFFER_IN, lib.LIERNE_BUFFER_OUT, lib.LIERNE_BUFFER_SCRATCH
_REDUCE = {lib.LIERNE_REDUCTION_SUM: torch.Tensor.add_, lib.LIERNE_REDUCTION_PROD: torch.Tensor.mul_,
           lib.LIERNE_REDUCTION_MAX: lambda a, b: torch.maximum(a, b, out=a),
           lib.LIERNE_REDUCTION_MIN: lambda a, b: torch.minimum(a, b, out=a)}


def _view(flat, block):
    """The elements of a block without an index list; of one with a list, all rows that it could name."""
    if block.rows is None:
        return flat.as_strided(block.count, block.stride, flat.storage_offset() + block.offset)
    last = block.offset + (block.count[1] - 1) * block.stride[1]
    nrows = (flat.numel() - 1 - last) // block.stride[0] + 1
    return flat.as_strided((nrows, block.count[1]), block.stride,
                           flat.storage_offset() + block.offset)


def _contiguous(block):
    """The elements of a block that are one piece of its buffer; None of another."""
    n = 1
    for count, stride in zip(reversed(block.count), reversed(block.stride)):
        if count != 1 and stride != n:
            return None
        n *= count
    return n if block.rows is None else None


def _rows(block, device, part=None):
    rows = block.rows if part is None else block.rows[part]
    return torch.from_numpy(rows).to(device, non_blocking=True)


def _read(buffers, place, part=None):
    """The elements of a place; `part`: only these iterations of the first loop."""
    view = _view(buffers[place.buffer], place.block)
    if place.block.rows is not None:
        return view.index_select(0, _rows(place.block, view.device, part))
    return view if part is None else view[torch.from_numpy(part).to(view.device)]


def _write(buffers, place, values, part=None):
    view = _view(buffers[place.buffer], place.block)
    if place.block.rows is not None:
        view.index_copy_(0, _rows(place.block, view.device, part), values)
    elif part is None:
        view.copy_(values)
    else:
        view[torch.from_numpy(part).to(view.device)] = values


def _rounds(block):
    """The iterations of an operation in parts that name no row twice, in the order of the list."""
    if block.rows is None or len(np.unique(block.rows)) == len(block.rows):
        return [None]
    seen, occurrence = {}, np.empty(len(block.rows), np.int64)
    for i, row in enumerate(block.rows.tolist()):
        occurrence[i] = seen[row] = seen.get(row, -1) + 1
    return [np.flatnonzero(occurrence == k) for k in range(occurrence.max() + 1)]


def _combine(buffers, op, accumulate, part):
    places = ([op.to] if accumulate else []) + list(op.sources)
    dtype = buffers[op.to.buffer].dtype
    if len(places) == 1 and op.divisor <= 1:
        return _read(buffers, places[0], part)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if not places:
        return torch.zeros((), dtype=dtype, device=buffers[op.to.buffer].device)
    total = _read(buffers, places[0], part).to(wide, copy=True)
    for place in places[1:]:
        _REDUCE[op.reduction](total, _read(buffers, place, part).to(wide))
    if op.divisor > 1:
        total.div_(op.divisor)
    total = total.to(dtype)
    return total.masked_fill_(total.isnan(), float("nan")) if dtype.is_floating_point else total


def _operate(buffers, op, accumulates):
    for part in _rounds(op.to.block):
        values = _combine(buffers, op, accumulates and op.accumulate, part)
        if op.to.block.rows is not None and values.dim() == 0:
            n = len(op.to.block.rows) if part is None else len(part)
            values = values.expand(n, op.to.block.count[1])
        _write(buffers, op.to, values, part)


def _wait_until(work, deadline):
    if deadline == math.inf:
        work.wait()
    else:  # a timeout of 0 ms would be none
        work.wait(datetime.timedelta(seconds=max(deadline - time.monotonic(), 0) + 1e-3))


def _ended(work):
    try:
        _wait_until(work, 0)
    except RuntimeError:
        return False
    return True


class Execution:
    """One execution of a route in flight. Its constructor posts the first stage; finish() does the
    rest. Executions of one group are begun in one order and finished in that order, on all ranks.
    name: for messages."""

    def __init__(self, name, route, source, target, group, tag):
        scratch = source.new_empty(route.elements[SCRATCH])
        self.buffers = {IN: source.reshape(-1), OUT: target.reshape(-1), SCRATCH: scratch}
        self.name, self.route, self.target, self.group, self.tag = name, route, target, group, tag
        self.stage = 0
        self._post()

    def _post(self):
        """Posts the messages of the current stage, then makes its copies while they are in flight."""
        self.works, self.arriving = [], []
        if self.stage == len(self.route.stages):
            return
        stage, receives = self.route.stages[self.stage], []
        for message in stage.recvs:
            tensor, direct = self._landing(message)
            receives.append(tensor)
            if not direct:
                self.arriving.append((message, tensor))
        self.peers = [message.peer for message in (*stage.recvs, *stage.sends)]
        self.posted = receives, [self._packed(message) for message in stage.sends]  # kept until they end
        self.works = self._begin(*self.posted, (self.tag + 2 * self.stage) % 2**31) if self.peers else []
        for op in stage.copies:
            _operate(self.buffers, op, self.route.accumulates)

    def _begin(self, receives, sends, tag):
        """Posts the messages. On the host one by one, without what torch does to find out that these need
        no batch: half of a short exchange."""
        group, n = self.group or dist.group.WORLD, len(receives)
        if self.target.device.type != "cpu":
            ops = [dist.P2POp(dist.irecv, tensor, peer, self.group, tag)
                   for tensor, peer in zip(receives, self.peers)]
            ops += [dist.P2POp(dist.isend, tensor, peer, self.group, tag)
                    for tensor, peer in zip(sends, self.peers[n:])]
            return dist.batch_isend_irecv(ops)
        places = [dist.get_group_rank(group, peer) for peer in self.peers]
        return ([group.recv([tensor], place, tag) for tensor, place in zip(receives, places)] +
                [group.send([tensor], place, tag) for tensor, place in zip(sends, places[n:])])

    def _one_view(self, message):
        """The message's memory, where it is contiguous."""
        block = message.blocks[0] if len(message.blocks) == 1 else None
        if block is None or _contiguous(block) is None:
            return None
        return self.buffers[message.buffer].narrow(0, block.offset, message.elements)

    def _landing(self, message):
        view = self._one_view(message)
        if view is not None:
            return view, True
        return self.buffers[message.buffer].new_empty(message.elements), False

    def _packed(self, message):
        view = self._one_view(message)
        if view is not None:
            return view
        flat = self.buffers[message.buffer]
        parts = [_view(flat, b) if b.rows is None else
                 _view(flat, b).index_select(0, _rows(b, flat.device)) for b in message.blocks]
        return torch.cat([part.reshape(-1) for part in parts])

    def _unpack(self, message, tensor):
        start, flat = 0, self.buffers[message.buffer]
        for block in message.blocks:
            n = int(np.prod(block.count))
            values, view = tensor[start:start + n].reshape(block.count), _view(flat, block)
            if block.rows is None:
                view.copy_(values)
            else:
                view.index_copy_(0, _rows(block, flat.device), values)
            start += n

    def _wait(self, timeout):
        """Waits for the messages of the current stage. timeout: seconds, or None."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        for i, work in enumerate(self.works):
            try:
                _wait_until(work, deadline)
            except RuntimeError as error:
                late = time.monotonic() >= deadline
                raise (self._timeout_error(i, timeout) if late else
                       _TRANSPORT(f"{self._where()}: {error}")) from error

    def _where(self):
        return (f"lierne.torch.Operation: rank {self.route.rank}: {self.name}, stage {self.stage} of "
                f"{len(self.route.stages)}")

    def _timeout_error(self, first, timeout):
        missing = [i for i in range(first, len(self.works)) if i == first or not _ended(self.works[i])]
        peers = sorted({self.peers[i] for i in missing})
        return _TIMEOUT(f"{self._where()}: {len(missing)} of {len(self.works)} messages missing after "
                        f"{timeout:g} s, with rank {', '.join(map(str, peers[:8]))}")

    def finish(self, timeout):
        """Waits for all stages and returns the output. timeout: seconds that a stage may take, for
        tensors on the host; those on devices, and None, have that of the process group, which ends what
        hangs on a stream. Raises errors.TimeoutError, and errors.TransportError for what
        torch.distributed raises."""
        while self.stage < len(self.route.stages):
            self._wait(timeout if self.target.device.type == "cpu" else None)
            for message, tensor in self.arriving:
                self._unpack(message, tensor)
            for op in self.route.stages[self.stage].sums:
                _operate(self.buffers, op, self.route.accumulates)
            self.stage += 1
            self._post()
        return self.target
