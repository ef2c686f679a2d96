"""Calls of the backend of torch.distributed: each is a work of c10d, runs in a line of calls, and uses the context
and the plans of an endpoint."""
import collections
import datetime
import sys
import threading
import uuid

import torch
from torch._C._distributed_c10d import Work

import lierne
from lierne._arrays import NOWHERE
from lierne._library import ffi, lib
from lierne.torch._store import StoreCalls

PLANS = 64  # of one endpoint, those last used
PART = 16 << 20  # bytes that are reduced at once: a plan keeps about as much memory
ONE_SHOT = 256 << 10  # bytes that a rank reads of others before two shots are faster


class Pending(Work):
    """A call that may still run. torch asks a work in Python for wait and get_future only: whether it has ended
    is get_future().done(), not is_completed()."""

    def __init__(self, function, outputs):
        super().__init__()
        self._function, self._outputs, self._error, self._future = function, outputs, None, None
        self._ended, self._done = False, None  # an event, where another thread runs it

    def queue(self):
        self._done, self._lock = threading.Event(), threading.Lock()

    def run(self):
        try:
            self._function()
        except BaseException as error:  # belongs to the thread that waits
            self._error = error
        self._function, self._ended = None, True
        if self._done is None:
            return
        with self._lock:
            self._done.set()
            future = self._future
        if future:
            self._complete(future)

    def _complete(self, future):
        if self._error:
            future.set_exception(self._error)
        else:
            future.set_result(self._outputs)

    def wait(self, timeout=datetime.timedelta(0)):
        if not self._ended:
            seconds = timeout.total_seconds()
            if not self._done.wait(seconds if seconds > 0 else None):
                raise RuntimeError(f"wait: the call has not ended within {seconds} seconds")
        if self._error:
            raise self._error
        return True

    def get_future(self):
        if self._done is None:
            return self._new_future()
        with self._lock:
            if self._future is None and not self._done.is_set():
                self._future = torch.futures.Future()
            return self._future or self._new_future()

    def _new_future(self):
        """Of a call that has ended."""
        future = torch.futures.Future()
        self._complete(future)
        return future


class Together(Work):
    """Calls of any lines, as one that has ended when all have."""

    def __init__(self, works):
        super().__init__()
        self._works = works

    def wait(self, timeout=datetime.timedelta(0)):
        return all([work.wait(timeout) for work in self._works])

    def get_future(self):
        ended = torch.futures.collect_all([work.get_future() for work in self._works])
        return ended.then(lambda all_of: [future.value() for future in all_of.value()])


class Line:
    """Runs calls one after another."""

    def __init__(self, name):
        self._name, self._waiting, self._busy, self._thread = name, collections.deque(), False, None
        self._lock = threading.Lock()  # entered without a call of Python, unlike a condition
        self._changed = threading.Condition(self._lock)

    def submit(self, work, now):
        """now: the caller waits for it, so its own thread may run it."""
        with self._lock:
            now = now and not self._busy and not self._waiting
            if now:
                self._busy = True
            else:
                work.queue()
                self._waiting.append(work)
                self._start()
        if now:
            work.run()
            self._free()
        return work

    def _start(self):
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify()

    def _free(self):
        with self._lock:
            self._busy = False
            if self._thread is not None:
                self._changed.notify()

    def _work(self):
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._waiting and not self._busy)
                work, self._busy = self._waiting.popleft(), True
            if work is None:
                return
            work.run()
            del work
            self._free()

    def close(self):
        """Ends the thread after what was submitted."""
        if self._thread is not None:
            with self._lock:
                self._waiting.append(None)
                self._changed.notify()
            self._thread.join()


class Endpoint:
    """A context over some ranks of the job, its plans and its line of calls."""

    def __init__(self, store, rank, nranks, timeout, hosts):
        options = {"timeout": timeout.total_seconds(), "context_name": "torch.distributed"}
        if rank == 0:
            store.set("name", uuid.uuid4().hex)
        name = "lierne/" + store.get("name").decode()
        self._most, self._one_shot = PART, ONE_SHOT // max(nranks - 1, 1)
        if len(set(hosts)) == 1:
            self.context = lierne.Context.node(rank, nranks, name, **options)
        else:
            nodes = [hosts.index(host) for host in hosts]
            self._most = sys.maxsize  # a call over the store takes longer than its bytes
            self.context = lierne.Context.oob(rank, nranks, StoreCalls(store, rank, nranks), nodes=nodes, **options)
        self.line, self._plans = Line(name), collections.OrderedDict()

    def plan(self, planner, key, *arguments, **options):
        """The plan of a planner with these arguments. key: what all ranks know of them; None: all of them."""
        key = planner, *(arguments + tuple(options.values()) if key is None else key)
        if key not in self._plans:
            if len(self._plans) == PLANS:
                self._plans.popitem(last=False)[1].close()
            self._plans[key] = planner(self.context, *arguments, **options)
        self._plans.move_to_end(key)
        return self._plans[key]

    def execute(self, plan, out, data):
        """out: None of a rank whose output is its input."""
        if out is not None and _overlap(out, data):  # as c10d allows where a part is the whole's
            data = data.clone()
        self._forward(plan, out, data)

    def _forward(self, plan, out, data):
        self.context._call(lib.lierne_plan_forward, plan._alive(), _address(out), _address(data), ffi.NULL)

    def reduce(self, flat, reduction):
        """Reduces a tensor of all ranks in place, a long one in parts."""
        count, most = flat.numel(), self._most // flat.element_size()
        for first in range(0, count, most):
            part = flat if count <= most else flat[first:first + most]
            length = part.numel()
            shots = "one_shot" if length * flat.element_size() <= self._one_shot else "two_shot"
            plan = self.plan(lierne.all_reduce, None, length, flat.dtype, None, reduction, shots)
            self._forward(plan, part, part)

    def close(self):
        self.line.close()
        self.context.close()


def _overlap(one, other):
    """Whether two flat tensors share memory, which in and out of a plan must not."""
    first, second = (one, other) if one.data_ptr() <= other.data_ptr() else (other, one)
    return second.numel() > 0 and second.data_ptr() < first.data_ptr() + first.numel() * first.element_size()


def _address(tensor):
    if tensor is None:
        return ffi.NULL
    return ffi.cast("void *", tensor.data_ptr()) if tensor.numel() else NOWHERE
