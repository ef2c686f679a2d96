"""Executes a route (lierne/route.h) with point-to-point operations of torch.distributed: gloo on CPUs,
NCCL on GPUs, whatever the tensors' device is. Nothing of lierne's transports takes part."""
import datetime
import math
import time

import torch.distributed as dist

from lierne._library import ERRORS, lib
from lierne.torch._program import IN, OUT, SCRATCH

# Executions of one operation and direction whose messages have tags of their own. Stages are counted in these,
# since a rank may have fewer of them than another.
TURNS = 64
_TIMEOUT, _TRANSPORT = ERRORS[lib.LIERNE_ERR_TIMEOUT], ERRORS[lib.LIERNE_ERR_TRANSPORT]


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
    """One execution of a Program in flight. Its constructor posts the first stage; finish() does the
    rest. Executions of one group are begun in one order and finished in that order, on all ranks.
    name: a function that gives it, for messages."""

    def __init__(self, name, program, source, target, tag):
        self.buffers = {IN: source if source.dim() == 1 else source.reshape(-1),
                        OUT: target if target.dim() == 1 else target.reshape(-1)}
        if program.scratch:
            self.buffers[SCRATCH] = source.new_empty(program.scratch)
        self.name, self.program, self.target, self.tag = name, program, target, tag
        self.stage = 0
        self._post()

    def _post(self):
        """Posts the messages of the current stage, then makes its copies while they are in flight."""
        if self.stage == len(self.program.stages):
            return
        stage = self.program.stages[self.stage]
        # Both kept until they end.
        self.receives = [message.landing(self.buffers) for message in stage.recvs]
        self.sends = [message.packed(self.buffers) for message in stage.sends]
        self.works = self._begin(stage, (self.tag + 2 * TURNS * self.stage) % 2**31) if stage.peers else ()
        for op in stage.copies:
            op.execute(self.buffers)

    def _begin(self, stage, tag):
        """Posts the messages. On the host one by one, without what torch does to find out that these need
        no batch: half of a short exchange."""
        group, n = self.program.group, len(self.receives)
        if self.target.device.type != "cpu":
            ops = [dist.P2POp(dist.irecv, tensor, peer, group, tag)
                   for tensor, peer in zip(self.receives, stage.peers)]
            ops += [dist.P2POp(dist.isend, tensor, peer, group, tag)
                    for tensor, peer in zip(self.sends, stage.peers[n:])]
            return dist.batch_isend_irecv(ops)
        group = group or dist.group.WORLD
        return ([group.recv([tensor], place, tag) for tensor, place in zip(self.receives, stage.places)] +
                [group.send([tensor], place, tag) for tensor, place in zip(self.sends, stage.places[n:])])

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
        return (f"lierne.torch.Operation: rank {self.program.rank}: {self.name()}, stage {self.stage} of "
                f"{len(self.program.stages)}")

    def _timeout_error(self, first, timeout):
        missing = [i for i in range(first, len(self.works)) if i == first or not _ended(self.works[i])]
        peers = sorted({self.program.stages[self.stage].peers[i] for i in missing})
        return _TIMEOUT(f"{self._where()}: {len(missing)} of {len(self.works)} messages missing after "
                        f"{timeout:g} s, with rank {', '.join(map(str, peers[:8]))}")

    def finish(self, timeout):
        """Waits for all stages and returns the output. timeout: seconds that a stage may take, for
        tensors on the host; those on devices, and None, have that of the process group, which ends what
        hangs on a stream. Raises errors.TimeoutError, and errors.TransportError for what
        torch.distributed raises."""
        while self.stage < len(self.program.stages):
            self._wait(timeout if self.target.device.type == "cpu" else None)
            stage = self.program.stages[self.stage]
            for message, tensor in zip(stage.recvs, self.receives):
                if not message.in_place:
                    message.unpack(self.buffers, tensor)
            for op in stage.sums:
                op.execute(self.buffers)
            self.stage += 1
            self._post()
        return self.target
