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
    name: a function that gives it, for messages. target: memory for the output."""

    def __init__(self, name, program, source, target, tag):
        self.buffers = {IN: source if source.dim() == 1 else source.reshape(-1),
                        OUT: target if target.dim() == 1 else target.reshape(-1)}
        self.name, self.program, self.target, self.tag = name, program, target, tag
        self.on_host, self.stage, self.works = source.is_cpu, 0, []
        if program.scratch:
            self.buffers[SCRATCH] = source.new_empty(program.scratch)
        if program.stages:
            self._post()

    def _post(self):
        """Posts the messages of the current stage, then makes its copies while all is in flight. On the host one by
        one, without what torch does to find out that these need no batch; receives first: a message that a receive
        is later for takes two more turns of gloo's threads."""
        program, buffers = self.program, self.buffers
        stage = program.stages[self.stage]
        stage_tag = (self.tag + 2 * TURNS * self.stage) % 2**31
        self.sends = [message.packed(buffers) for message in stage.sends]  # kept until they end
        self.receives = [message.landing(buffers) for message in stage.recvs]
        if self.on_host:
            host = program.host
            receives = [host.recv([tensor], message.place, stage_tag)
                        for tensor, message in zip(self.receives, stage.recvs)]
            self.works = [host.send([tensor], message.place, stage_tag)
                          for tensor, message in zip(self.sends, stage.sends)] + receives
        elif stage.peers:
            self.works = dist.batch_isend_irecv([
                dist.P2POp(kind, tensor, message.peer, program.group, stage_tag)
                for kind, tensors, messages in ((dist.isend, self.sends, stage.sends),
                                                (dist.irecv, self.receives, stage.recvs))
                for tensor, message in zip(tensors, messages)])
        for op in stage.copies:
            op.execute(buffers)

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
            self._wait(timeout if self.on_host else None)
            stage = self.program.stages[self.stage]
            for message, tensor in zip(stage.recvs, self.receives):
                if not message.in_place:
                    message.unpack(self.buffers, tensor)
            for op in stage.sums:
                op.execute(self.buffers)
            self.stage += 1
            if self.stage < len(self.program.stages):
                self._post()
        return self.target
