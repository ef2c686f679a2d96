"""Contexts: this rank among the others. Context.self, .node, .mpi and .oob make one; Context.sim makes
a world of them in this process.

A context and everything made from it is used by one thread at a time. Handles that Python collects are
freed by the next call of their context, in the thread that makes it, and not by the collector.

Arrays over memory of the library (Context.empty, shared outputs of plans) are counted: while one is
alive, closing what owns its memory is a BufferError, as it is with Python's own mmap."""
from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
import types
import typing
import warnings
import weakref

import numpy as np

from lierne import _library
from lierne._arrays import dtype_name, numpy_dtype
from lierne._library import (Spec, arguments, call, ffi, handle, last_error, lib, make, not_copied, sized,
                             text)
from lierne._types import Array, Communicator, DType, Integers, Report, Shape

if typing.TYPE_CHECKING:
    from lierne.oob import Calls

_Result = typing.TypeVar("_Result")


def _spec(options, world=None):
    """A lierne_context_spec; the number of members is that of the list. world: number of ranks; 0 or
    None where the library finds it."""
    members = options.get("members") or ()
    world = options.get("world_size") or world
    if world:
        sized("nodes", options.get("nodes"), world)
    name, logger = options.pop("context_name", None), options.pop("log", None)
    log = _log_fields(logger)
    spec = Spec("lierne_context_spec", nmembers=len(members), name=name, **log, **options)
    spec.kept.append(log)
    return spec


# Python's level of each level of lierne's log.
_LEVELS = {lib.LIERNE_LOG_LEVEL_ERROR: logging.ERROR, lib.LIERNE_LOG_LEVEL_WARN: logging.WARNING,
           lib.LIERNE_LOG_LEVEL_INFO: logging.INFO, lib.LIERNE_LOG_LEVEL_DEBUG: logging.DEBUG}


def _log_fields(logger):
    """The fields of a spec that give a logger its lines: those that it wants now."""
    if logger is None:
        return {}
    if not isinstance(logger, logging.Logger):
        raise TypeError(f"log is {logger!r}, must be a logging.Logger")
    level = max((own for own, its in _LEVELS.items() if logger.isEnabledFor(its)), default=0)
    call = ffi.callback("void(lierne_log_level, const char *, void *)",
                        lambda level, line, _: logger.log(_LEVELS[level], "%s", text(line)))
    return {"log": call, "log_level": level}


class Dropped:
    """Executions in flight that nobody will wait for. The other ranks count on them, and their buffers
    are in use: the next call of their context that may wait ends them."""

    def __init__(self) -> None:
        self._dropped, self._ending, self._keep = [], False, None
        self.flying, self.begun = {}, 0  # of torch.distributed: what ends an execution in flight, by its number

    def _is_dead(self):
        """Whether nothing ends any more, and buffers may still be written."""
        return False

    def _keep_borrowed(self, buffers):
        """Keeps buffers of an execution that failed, if they may still be written."""
        if self._is_dead():
            self._keep = self._keep, buffers

    def _drop(self, end):
        """Leaves an execution to the next call, which calls end(); safe in a finalizer."""
        self._dropped.append(end)

    def _end_dropped(self):
        """Ends them, not within one another, and without those that are dropped meanwhile. One that fails
        stays where its buffers may still be written."""
        if self._ending or self._is_dead():
            return
        self._ending = True
        try:
            for end in list(self._dropped):
                if self._is_dead():
                    break
                try:
                    end()
                finally:
                    if not self._is_dead():
                        self._dropped.remove(end)
        finally:
            self._ending = False


class Context(Dropped):
    """This rank in a world of ranks. Close it when done (`with`, or close()): closing is collective
    except over self and sim.

    Options of every way in, by keyword: timeout (seconds that any wait may take; 60), nodes (node of
    each rank), check (compare every call with those of all other ranks), max_groups, members and
    world_size (a context over some ranks of a larger world). They are the fields of
    lierne_context_spec, whose name is context_name here. log: a logger that gets the lines of lierne's
    log, whatever LIERNE_LOG says, up to the level that it has when the context is made."""

    def __init__(self, handle: typing.Any, destroy: typing.Any, keep: typing.Any = ()) -> None:
        super().__init__()
        self._handle = handle
        self._destroy = destroy
        self._keep = keep
        self._libraries, self._memory = (), "host"  # that the context calls; where buffers of its plans are
        self._process = os.getpid()
        self._doomed = []
        self._lock = threading.RLock()
        self._exports = weakref.WeakValueDictionary()  # by id: buffers are not hashable

    @classmethod
    def self(cls, *, timeout: typing.Optional[float] = None, nodes: typing.Optional[Integers] = None,
             check: bool = False, max_groups: int = 0, members: typing.Optional[typing.Sequence[int]] = None,
             world_size: typing.Optional[int] = None,
             context_name: typing.Optional[str] = None,
             log: typing.Optional[logging.Logger] = None) -> Context:
        """A world of one rank. Not collective."""
        spec = _spec(arguments(locals(), "cls"), 1)
        return cls(make("lierne_context", lib.lierne_context_create_self, spec.at),
                   lib.lierne_context_destroy_all, spec)

    @classmethod
    def node(cls, rank: int = 0, world: int = 0, name: typing.Optional[str] = None, *,
             timeout: typing.Optional[float] = None, nodes: typing.Optional[Integers] = None, check: bool = False,
             max_groups: int = 0, members: typing.Optional[typing.Sequence[int]] = None,
             world_size: typing.Optional[int] = None,
             context_name: typing.Optional[str] = None,
             log: typing.Optional[logging.Logger] = None) -> Context:
        """The processes of one node, without MPI. Collective. world 0: rank, world and name come from
        the launcher's environment (torchrun, mpirun, srun); name is then added to the launcher's."""
        own = _spec(arguments(locals(), "cls", "rank", "world", "name"), world)
        spec = Spec("lierne_node_spec", rank=rank, world=world, name=name, context=own)
        return cls(make("lierne_context", lib.lierne_context_create_node, spec.at),
                   lib.lierne_context_destroy_all, spec)

    @classmethod
    def mpi(cls, comm: Communicator, *, timeout: typing.Optional[float] = None,
            nodes: typing.Optional[Integers] = None, check: bool = False, max_groups: int = 0,
            members: typing.Optional[typing.Sequence[int]] = None,
            world_size: typing.Optional[int] = None,
            context_name: typing.Optional[str] = None,
            log: typing.Optional[logging.Logger] = None) -> Context:
        """The ranks of an MPI communicator of mpi4py. Collective. Loads liblierne_mpi, and with it
        MPI; nothing else in this package does. Raises OSError if the package has no liblierne_mpi."""
        options = arguments(locals(), "cls", "comm")
        if not hasattr(comm, "py2f"):
            raise TypeError(f"comm is {comm!r}, must be a communicator of mpi4py")
        mpi = _library.load("liblierne_mpi.so.0")
        spec = _spec(options, getattr(comm, "Get_size", int)())
        return cls(make("lierne_context", mpi.lierne_context_create_mpi_fortran, comm.py2f(),
                        spec.at), lib.lierne_context_destroy_all, (spec, mpi, comm))

    @classmethod
    def oob(cls, rank: int, nranks: int, calls: Calls, *, timeout: typing.Optional[float] = None,
            nodes: typing.Optional[Integers] = None, check: bool = False, max_groups: int = 0,
            members: typing.Optional[typing.Sequence[int]] = None,
            world_size: typing.Optional[int] = None,
            context_name: typing.Optional[str] = None,
            log: typing.Optional[logging.Logger] = None) -> Context:
        """Ranks that communicate through the caller's functions (see lierne.oob.Calls). Collective."""
        options = arguments(locals(), "cls", "rank", "nranks", "calls")
        from lierne.oob import Calls, bind
        if not isinstance(calls, Calls):
            raise TypeError(f"calls is {calls!r}, must be a lierne.oob.Calls")
        bound = bind(calls)
        spec = Spec("lierne_oob_spec", rank=rank, nranks=nranks, calls=bound.struct,
                    context=_spec(options, nranks))
        try:
            handle = make("lierne_context", lib.lierne_context_create_oob, spec.at)
        except _library.Error as error:
            raise error from bound.error
        return cls(handle, lib.lierne_context_destroy_all, (spec, bound))

    def shrink(self, *, timeout: typing.Optional[float] = None, check: bool = False,
               max_groups: int = 0, log: typing.Optional[logging.Logger] = None) -> Context:
        """The context of the ranks that are left, of this one, which is dead because others have
        died. Collective over the ranks whose processes run; all get it, or all the same error. Ranks
        are counted anew; former_ranks has those of before. Close this context too."""
        spec = _spec(arguments(locals(), "self"))
        out = ffi.new("lierne_context **")
        self._call(lib.lierne_context_shrink, out, self._handle, spec.at)
        return Context(out[0], lib.lierne_context_destroy_all, spec)

    def use_cuda(self) -> None:
        """Makes the context one for memory of the current CUDA device (lierne/cuda.h): its plans take buffers
        there, and a stream in every call. Collective, before the first plan and group. Loads liblierne_cuda,
        which the package has where it was built with CUDA: OSError. Raises errors.UnsupportedError (no
        device) and others."""
        cuda = _library.load("liblierne_cuda.so.0")
        self._call(cuda.lierne_context_use_cuda, self._handle)
        self._libraries, self._memory = (cuda, self._libraries), "cuda"

    def use_nccl(self, comm: typing.Optional[int] = None) -> None:
        """Moves the messages of a context for CUDA memory over NCCL (lierne/nccl.h), which is the one that this
        process has loaded. comm: the address of an ncclComm_t of the context's ranks; None for one of
        lierne's. Collective, before the first plan. Otherwise as use_cuda."""
        nccl = _library.load("liblierne_nccl.so.0")
        self._call(nccl.lierne_context_use_nccl, self._handle, ffi.cast("struct ncclComm *", comm or 0))
        self._libraries = nccl, self._libraries

    @staticmethod
    def sim(nranks: int, *, timeout: typing.Optional[float] = None, nodes: typing.Optional[Integers] = None,
            check: bool = False, max_groups: int = 0, members: typing.Optional[typing.Sequence[int]] = None,
            world_size: typing.Optional[int] = None,
            context_name: typing.Optional[str] = None,
            log: typing.Optional[logging.Logger] = None) -> World:
        """A World: all ranks of a world in this process, for tests and offline planning."""
        return World(**arguments(locals()))

    def _call(self, function, *arguments):
        """A call on this context that may wait: it ends and frees what was dropped."""
        with self._lock:
            self._check_usable()
            if self._dropped:
                self._end_dropped()
            if self._doomed:
                self._free_collected()
            call(function, *arguments)

    def _call_at_once(self, function, *arguments):
        """A call that never waits: it frees what was collected, and excludes other threads."""
        with self._lock:
            self._check_usable()
            self._free_collected()
            call(function, *arguments)

    def _check_usable(self):
        if self._handle is None:
            handle(self, "context")
        if os.getpid() != self._process:
            raise RuntimeError(f"the context was made in process {self._process}; process {os.getpid()}, "
                               "a fork of it, needs one of its own")

    def _is_dead(self):
        return self._handle is not None and lib.lierne_context_get_status(self._handle) != lib.LIERNE_OK

    def _free_collected(self):
        """What is still held by something that will be collected later is left for the next call."""
        for _ in range(len(self._doomed)):
            function, arguments = self._doomed.pop(0)
            status = function(*arguments)
            if status == lib.LIERNE_ERR_BUSY:
                self._discard(function, *arguments)
            elif status:
                raise last_error(status)

    def _discard(self, function, *arguments):
        """Frees a handle at the next call of this context; safe in a finalizer."""
        if self._handle is not None:
            self._doomed.append((function, arguments))

    def _export(self, address, nbytes, owner):
        """Memory of the library as a buffer, which keeps its owner while an array is made of it."""
        block = (ctypes.c_char * nbytes).from_address(address)
        block.owner = owner
        self._exports[id(block)] = block
        return block

    def _check_unused(self, what, owner=None):
        """Raises BufferError while an array is alive over memory of the context, or of one owner."""
        n = sum(owner is None or block.owner is owner for block in self._exports.values())
        if n:
            raise BufferError(f"{what} cannot be closed or updated: {n} "
                              f"{'array uses' if n == 1 else 'arrays use'} its memory (context.empty, "
                              "or a shared output); delete them first")

    @property
    def rank(self) -> int:
        """This rank, of the larger world where the context has members."""
        return lib.lierne_context_get_rank(handle(self, "context"))

    @property
    def world_size(self) -> int:
        """Number of ranks, of the larger world where the context has members."""
        return lib.lierne_context_get_world_size(handle(self, "context"))

    @property
    def timeout(self) -> float:
        """The seconds that any wait may take."""
        return lib.lierne_context_get_timeout(self._handle or handle(self, "context"))

    @property
    def name(self) -> typing.Optional[str]:
        """The name that the context was given (context_name), or None."""
        return text(lib.lierne_context_get_name(handle(self, "context")))

    @property
    def members(self) -> typing.List[int]:
        """The ranks of the context, ascending."""
        n = lib.lierne_context_get_nmembers(handle(self, "context"))
        return [lib.lierne_context_get_member(self._handle, i) for i in range(n)]

    @property
    def former_ranks(self) -> typing.List[int]:
        """Of a context that was shrunk: the rank that each of its ranks had before; else empty."""
        n = lib.lierne_context_get_nmembers(handle(self, "context"))
        ranks = [lib.lierne_context_get_former_rank(self._handle, i) for i in range(n)]
        return ranks if ranks[0] >= 0 else []

    def find_member(self, rank: int) -> typing.Optional[int]:
        """The place of a rank among the members, or None."""
        index = lib.lierne_context_find_member(handle(self, "context"), rank)
        return None if index < 0 else index

    @property
    def ngroups(self) -> int:
        """Number of groups alive on this rank, those that plans share included."""
        return lib.lierne_context_get_ngroups(handle(self, "context"))

    @property
    def max_groups(self) -> int:
        """The most groups that may be alive on this rank."""
        return lib.lierne_context_get_max_groups(handle(self, "context"))

    def empty(self, shape: typing.Union[int, Shape], dtype: DType) -> Array:
        """A numpy array of zeros in memory that other ranks of the node read in place; as a buffer of
        a call it saves a copy. Freed with the array, which must be gone when the context is closed."""
        dtype = numpy_dtype(dtype_name(dtype))
        if np.size(shape) and np.min(shape) < 0:
            raise ValueError(f"shape is {shape}, must not be negative")
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        out = ffi.new("void **")
        self._call_at_once(lib.lierne_context_alloc, out, self._handle, nbytes)
        own = self._handle
        free = lambda p: self._discard(lib.lierne_context_dealloc, own, p)  # noqa: E731
        memory = ffi.gc(out[0], free)
        block = self._export(int(ffi.cast("uintptr_t", memory)), nbytes, memory)
        return np.ndarray(shape, dtype, block)

    def progress(self) -> None:
        """Progresses everything in flight, without waiting."""
        self._call_at_once(lib.lierne_context_progress, self._handle)

    def abort(self, reason: object, status: int = -63) -> None:
        """Kills the context; ranks that wait for this one get `status` and the reason at once."""
        line = " ".join(str(reason).split()) or type(reason).__name__
        self._call_at_once(lib.lierne_context_abort, self._handle, status, line.encode())

    def dump(self) -> str:
        """What this rank was doing: calls in flight, ranks waited for, the last calls."""
        out = ffi.new("char[]", 1 << 16)
        self._call_at_once(lib.lierne_context_dump, out, len(out), self._handle)
        return text(out)

    def summary(self) -> Report:
        """What this rank's calls took so far, as a dict: that of lierne_context_get_summary_json."""
        return json.loads(self._text(self._call_at_once, lib.lierne_context_get_summary_json))

    def summary_table(self) -> str:
        """The same as a table (lierne/summary.h)."""
        return self._text(self._call_at_once, lib.lierne_context_get_summary)

    def reduce_summary(self) -> str:
        """The table of all ranks, the same on each. Collective."""
        return self._text(self._call, lib.lierne_context_reduce_summary)

    def _text(self, call, function):
        out = ffi.new("char **")
        call(function, out, self._handle)
        try:
            return text(out[0])
        finally:
            lib.lierne_text_destroy(out[0])

    def close(self) -> None:
        """Destroys the context with all that was made from it. Collective, unless it is dead. Raises
        BufferError while arrays over its memory are alive (empty, shared outputs)."""
        with self._lock:
            if self._handle is not None:
                self._check_usable()
                self._end_dropped()
                self._check_unused("the context")
                self._free_collected()
                if self._destroy:
                    call(self._destroy, self._handle)
                self._handle = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: typing.Optional[typing.Type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        if error is not None and self._handle is not None:
            self.abort(error)
            if self._exports:  # the traceback keeps arrays alive: the dead context stays as well
                return
        self.close()

    __copy__ = __reduce_ex__ = not_copied

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and self._destroy and os.getpid() == self._process:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)

    def __repr__(self) -> str:
        if self._handle is None:
            return "Context(closed)"
        return f"Context(rank {self.rank} of {self.world_size})"


class World:
    """A simulated world: world[rank] is the Context of a rank. Close it when done (`with`)."""

    def __init__(self, nranks: int, *, timeout: typing.Optional[float] = None,
                 nodes: typing.Optional[Integers] = None, check: bool = False, max_groups: int = 0,
                 members: typing.Optional[typing.Sequence[int]] = None,
                 world_size: typing.Optional[int] = None,
                 context_name: typing.Optional[str] = None,
                 log: typing.Optional[logging.Logger] = None) -> None:
        self._handle = None
        spec = _spec(arguments(locals(), "nranks"), nranks)
        self._handle = make("lierne_sim", lib.lierne_sim_create, nranks, spec.at)
        self._keep = spec
        self._contexts = {}
        self._nranks = nranks

    __copy__ = __reduce_ex__ = not_copied

    def __len__(self) -> int:
        return self._nranks

    def __getitem__(self, rank: int) -> Context:
        if self._handle is None:
            raise ValueError("the world is closed")
        if rank not in self._contexts:
            context = lib.lierne_sim_get_context(self._handle, rank)
            if not context:
                raise IndexError(f"the world of {self._nranks} ranks has no rank {rank}")
            self._contexts[rank] = Context(context, None, self)
        return self._contexts[rank]

    def run(self, function: typing.Callable[[Context], _Result]) -> typing.List[_Result]:
        """Calls function(context) for every rank, each in a thread of its own, and returns their
        results in order of the ranks. Raises the first rank's error."""
        results, errors = [None] * len(self), [None] * len(self)

        def call_rank(rank):
            try:
                results[rank] = function(self[rank])
            except BaseException as error:  # handed to the caller's thread
                errors[rank] = error
                self._contexts[rank].abort(error)

        threads = [threading.Thread(target=call_rank, args=(r,)) for r in range(len(self))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            if error is not None:
                raise error
        return results

    def close(self) -> None:
        """Destroys the world with everything that was made from its contexts. Raises BufferError as
        Context.close."""
        if self._handle is not None:
            for context in self._contexts.values():
                context._check_unused(f"rank {context.rank} of the world")
            for context in self._contexts.values():
                context.close()
            call(lib.lierne_sim_destroy_all, self._handle)
            self._handle = None

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: typing.Optional[typing.Type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        if error is not None:  # requests may be in flight, which would keep the world
            for context in self._contexts.values():
                context.abort(error)
            if any(context._exports for context in self._contexts.values()):
                return
        self.close()
