"""lierne.schedules for tensors and process groups of PyTorch.

    schedule = Schedule(dist.get_rank())
    schedule.add_group(group_of(process_group))              # or any Group
    schedule.add_operation(Operation("all_gather", process_group.group_name, plan=gather))
    schedule.add_operation(Operation("all_to_all", process_group.group_name, tag="ep", plan=tokens))
    with Run(context, isolate(schedule)) as own:             # once, on all ranks
        own.begin([shard, to_experts])                       # every step: tensors
        parameters, at_experts = own.wait()

Plans are those of a context of lierne.torch.context, of any way to move tensors. All but Run, run and
group_of is lierne.schedules itself. lierne.torch.fx records graphs."""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import time
import typing
import zlib
from concurrent import futures

import torch.distributed as dist

import lierne
from lierne import schedules
from lierne._library import ERRORS, arguments, ffi, lib
from lierne.schedules import (KINDS, Event, Group, Operation, Order, Schedule, check, create_groups,
                              isolate, launch_order, read, trace)
from lierne.torch import check_input, checked
from lierne.torch._groups import group_of, isolated_groups, process_group_of
from lierne.torch._program import Output, Program
from lierne.torch._route import Execution

if typing.TYPE_CHECKING:
    from lierne.context import Context

__all__ = ["KINDS", "Event", "Group", "Operation", "Order", "Run", "Schedule", "check", "create_groups",
           "group_of", "isolate", "launch_order", "read", "run", "trace"]

_INVALID, _UNSUPPORTED = ERRORS[lib.LIERNE_ERR_INVALID], ERRORS[lib.LIERNE_ERR_UNSUPPORTED]
_POLL = 2e-4  # seconds between looks at a run that waits for the caller


class Run(schedules.Run):
    """lierne.schedules.Run for tensors: begin(data) and wait() take and return tensors, one per
    operation, an empty one where a rank has nothing, and None for operations without a plan. No
    gradients: lierne.torch.Operation has them.

    over="node": lierne's transports move host tensors. over="distributed": a thread per queue executes
    routes with torch.distributed, on the process group of the operation's group where group_of made the
    group, on that of the context elsewhere; groups that passes made get process groups of their own.
    There progress_thread is UNSUPPORTED: what has begun progresses in its thread."""

    def __new__(cls, context: Context, *_: typing.Any, **__: typing.Any) -> typing.Any:
        return super().__new__(_RoutedRun if getattr(context, "routed", False) else cls)

    def _buffers(self, plan, direction, data, out):
        out = _output(plan, direction, data, out)
        return plan._buffers(direction, data.detach().contiguous(), out)


def _output(plan, direction, data, out):
    """The tensor for a result: out, if it fits, or a new one. Raises as lierne.torch.Operation."""
    if plan._shared:
        raise ValueError("the plan has a shared output: a run of tensors takes none (Operation does)")
    shapes = plan.shapes(direction)
    check_input(checked(data), plan.dtype, shapes[0])
    if out is None:
        return data.new_zeros(shapes[1])
    check_input(checked(out), plan.dtype, shapes[1])
    if not out.is_contiguous():
        raise ValueError("out is not contiguous (row-major)")
    return out


class _RoutedRun(Run):
    """A run whose operations threads execute. A second run, of local operations in the same queues with
    the same dependencies, says which operation may begin, and is told which has ended."""

    def __init__(self, context, schedule, concurrent=False, progress_thread=False, external=False, stream=None):
        if stream is not None:
            raise _UNSUPPORTED("Run: stream is not available over torch.distributed, whose operations take the "
                               "current stream")
        if progress_thread:
            raise _UNSUPPORTED("Run: progress_thread is not available over torch.distributed, where every "
                               "queue has a thread of its own")
        super().__init__(context, schedule, concurrent=concurrent, external=True)
        self._operations, self._turns = schedule.operations, None
        self._moving, self._started = {}, {}  # futures, and times, by operation
        if not external:
            groups = self._process_groups()
            self._programs = {i: Program(plan.route(direction), groups[self._operations[i].group])
                              for i, (plan, direction) in self._plans.items()}
            self._turns = schedules.Run(context, _local(schedule), concurrent=True)
            self._pool = futures.ThreadPoolExecutor(len(schedule.groups) or 1)

    def _process_groups(self):
        """By the names of groups."""
        usual = self.context.group or dist.group.WORLD
        found = {group.name: process_group_of(group.uid) or usual for group in self.schedule.groups}
        sources = {group.uid: found[group.name] for group in self.schedule.groups if group.uid}
        return {**found, **isolated_groups(self.context).commit(self, sources)}

    def _buffers(self, plan, direction, data, out):
        out = _output(plan, direction, data, out)
        return out, None, None, data.detach().contiguous()

    def _launch(self, filled):
        n = len(filled)
        if self._turns is None:
            return super()._launch([(None, ffi.NULL, ffi.NULL, None)] * n)
        self._turns.begin([None] * n)
        self._buffer, self._started, self._queues = filled, {}, collections.defaultdict(collections.deque)
        self._free = {i for i, entry in enumerate(self._operations) if not entry.held}
        for i in sorted(self._plans):
            self._queues[self._turns.event(i).queue].append(i)
        self._advance()

    def _advance(self):
        """Ends what has moved, and starts what may begin. Returns whether all is complete."""
        for i in [i for i, future in self._moving.items() if future.done()]:
            self._moving.pop(i).result()
            self._turns.resume(i)
        done = self._turns.test()
        for queue in self._queues.values():
            while queue and queue[0] in self._free and self._turns.event(queue[0]).begun:
                i = queue.popleft()
                self._started[i] = time.monotonic()
                self._moving[i] = self._pool.submit(self._move, i)
        return done

    def _move(self, i):
        """In a thread of the pool. The two ends of a message count the plans of a context alike."""
        plan, direction = self._plans[i]
        tag = zlib.crc32(f"{self.context.prefix}/run/{plan.number}".encode()) >> 2 << 1
        target, _, _, source = self._buffer[i]
        entry = self._operations[i]
        name = f"operation {i} {entry.name!r} ({entry.kind} of group {entry.group!r})"
        program = self._programs[i]
        Execution(lambda: name, program, source, Output(target, program), tag + direction).finish(self.context.timeout)

    def test(self):
        if self._turns is None or self._filled is None:
            return super().test()
        try:
            return self._advance()
        except lierne.Error as error:
            raise self._give_up(error) from error

    def _give_up(self, error):
        """The error of an operation in flight rather than that of the run, which waits for it. Nothing
        may take the messages of what failed for its own."""
        futures.wait(self._moving.values())
        errors = [future.exception() for future in self._moving.values() if future.exception()]
        error = errors[0] if errors else error
        if not self.context._is_dead():
            self.context.abort(error, error.status)
        self.context._keep = self.context._keep, self._buffer  # may still be written
        return error

    def _end(self):
        if self._turns is None or self._filled is None:
            return super()._end()
        try:
            while not self.test():
                futures.wait(self._moving.values(), _POLL, futures.FIRST_COMPLETED)
                time.sleep(0 if self._moving else _POLL)
        except lierne.Error:
            with contextlib.suppress(lierne.Error):
                self._turns.wait()
            raise
        self._turns.wait()

    def resume(self, index):
        if self._turns is None or self._filled is None:
            return super().resume(index)
        if index not in self._plans:
            return self._turns.resume(index)
        if not self._operations[index].held:
            raise _INVALID(f"resume: operation {index} is not held")
        self._free.add(index)

    def event(self, index):
        if self._turns is None:
            return super().event(index)
        event, started = self._turns.event(index), self._started.get(index, 0)
        if index not in self._plans:
            return event
        plan, direction = self._plans[index]
        return dataclasses.replace(event, resumed=started, bytes=plan.report(direction)["sent_bytes"])

    def trace(self):
        if self._turns is None:
            return super().trace()
        events = json.loads(f"[{self._turns.trace()}]")
        for event in events:
            if event["ph"] == "X":
                i = event["args"]["operation"]
                event["name"] = " ".join(filter(None, (self._operations[i].kind, self._operations[i].tag)))
                event["args"]["bytes"] = self.event(i).bytes
        return ",\n".join(map(json.dumps, events))

    def close(self):
        if self._turns is not None:
            self._turns.close()
            self._pool.shutdown()
        super().close()


def _local(schedule):
    """The schedule with a local operation, held until it was executed, in place of every other one."""
    made = json.loads(schedule.text())
    for entry in made["operations"]:
        if entry["kind"] != "local":
            kept = {key: entry[key] for key in ("group", "tag", "after", "name") if key in entry}
            entry.clear()
            entry.update(kept, kind="local", held=True)
    return read(json.dumps(made))[0]


def run(context: Context, schedule: Schedule, data: typing.Iterable[typing.Any], *, concurrent: bool = False,
        progress_thread: bool = False, external: bool = False,
        stream: typing.Optional[int] = None) -> typing.List[typing.Any]:
    """Commits a schedule, executes it once, and returns its results. Collective; options as Run."""
    return Run.once(**arguments(locals()))
