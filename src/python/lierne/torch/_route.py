"""Executes a route (lierne/route.h) with point-to-point operations of torch.distributed: gloo on CPUs,
NCCL on GPUs, whatever the tensors' device is. Nothing of lierne's transports takes part."""
import datetime
import itertools
import math
import time

import torch.distributed as dist

from lierne._library import ERRORS, lib
from lierne.torch._program import IN, OUT, SCRATCH

# Executions of one operation and direction whose messages have tags of their own. Stages are counted in these,
# since a rank may have fewer of them than another.
TURNS = 64
_UNKNOWN = itertools.repeat(None)
_NONE = datetime.timedelta(0)
_TIMEOUT, _TRANSPORT = ERRORS[lib.LIERNE_ERR_TIMEOUT], ERRORS[lib.LIERNE_ERR_TRANSPORT]


def _left(deadline):
    """The timeout of a wait until a deadline; one of 0 ms is none."""
    return _NONE if deadline == math.inf else datetime.timedelta(seconds=max(deadline - time.monotonic(), 0) + 1e-3)


def _ended(work):
    try:
        work.wait(_left(0))
    except RuntimeError:
        return False
    return True


class Execution:
    """One execution of a Program in flight. Its constructor posts the first stage; finish() does the
    rest. Executions of one group are begun in one order and finished in that order, on all ranks.
    name: a function that gives it, for messages. output: an Output of the program."""

    def __init__(self, name, program, source, output, tag):
        self.buffers = {IN: source if source.dim() == 1 else source.reshape(-1), OUT: output.flat}
        self.name, self.program, self.output, self.tag = name, program, output, tag
        self.on_host, self.stage, self.works = source.is_cpu, 0, ()
        if program.scratch:
            self.buffers[SCRATCH] = source.new_empty(program.scratch)
        if program.stages:
            self._post(program.stages[0], output.landings, output.copies)
        self.target = output.result()

    def _post(self, stage, landings, copies):
        """Posts the messages of the current stage, then makes its copies while all is in flight. On the host one by
        one, without what torch does to find out that these need no batch; receives first: a message that a receive
        is later for takes two more turns of gloo's threads. landings, copies: as Output has them."""
        program, buffers = self.program, self.buffers
        stage_tag = (self.tag + 2 * TURNS * self.stage) % 2**31
        self.receives = [message.landing(buffers) if landing is None else landing
                         for landing, message in zip(landings, stage.recvs)]
        self.sends = sends = []  # kept until they end
        if self.on_host:
            self.works = works = []
            receive, send = program.host
            for tensor, message in zip(self.receives, stage.recvs):
                works.append(receive([tensor], message.place, stage_tag))
            for message in stage.sends:
                tensor = message.packed(buffers)
                sends.append(tensor)
                works.append(send([tensor], message.place, stage_tag))
        elif stage.peers:
            sends += [message.packed(buffers) for message in stage.sends]
            self.works = dist.batch_isend_irecv([
                dist.P2POp(kind, tensor, message.peer, program.group, stage_tag)
                for kind, tensors, messages in ((dist.irecv, self.receives, stage.recvs),
                                                (dist.isend, sends, stage.sends))
                for tensor, message in zip(tensors, messages)])
        for op, to in zip(stage.copies, copies):
            op.execute(buffers, to)

    def _wait(self, timeout):
        """Waits for the messages of the current stage, those that it receives first: they end last, and one wait
        that sleeps is shorter than two. timeout: seconds, or None."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        for i, work in enumerate(self.works):
            try:
                work.wait(_left(deadline))
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
        stages = self.program.stages
        for stage in stages[self.stage:]:
            self._wait(timeout if self.on_host else None)
            for message, tensor in zip(stage.recvs, self.receives):
                if not message.in_place:
                    message.unpack(self.buffers, tensor)
            for op in stage.sums:
                op.execute(self.buffers)
            self.stage += 1
            if self.stage < len(stages):
                self._post(stages[self.stage], _UNKNOWN, _UNKNOWN)
        self.program.keep(self.output)
        return self.target
