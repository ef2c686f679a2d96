"""Windows: memory of the ranks of a node that all of them read and write directly, and a barrier.

    with Window(context, (64,), "f32") as window:        # once, on all ranks
        window.writable()[:] = mine                      # every round
        window.notify()
        window.wait()
        total = sum(window.readable(place) for place in range(window.size))

The C header lierne/window.h is the manual, and says what may be written and read when. Host memory."""
from __future__ import annotations

import typing

import types
import numpy as np

from lierne._arrays import dtype_name, numpy_dtype
from lierne._library import Spec, ffi, handle, lib, not_copied
from lierne._types import DType, Shape

if typing.TYPE_CHECKING:
    from lierne.context import Context


class Window:
    """A window of this node's ranks, whose buffers are arrays of one shape and dtype, the same on every
    rank. Collective over the context. Raises as lierne_window_create, the same error on all ranks.
    Destroyed with its context, or by close() (`with`), collectively: never by the collector."""

    def __init__(self, context: Context, shape: typing.Union[int, Shape], dtype: DType) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = dtype_name(dtype)
        self._numpy = numpy_dtype(self.dtype)
        if min(self.shape, default=1) < 1:
            raise ValueError(f"shape is {shape}, must have elements")
        nbytes = int(np.prod(self.shape, dtype=np.int64)) * self._numpy.itemsize
        spec = Spec("lierne_window_spec", bytes=nbytes)
        self.context, self._handle = context, None
        out = ffi.new("lierne_window **")
        context._call(lib.lierne_window_create, out, handle(context, "context"), spec.at)
        self._handle = out[0]

    __copy__ = __reduce_ex__ = not_copied

    def _alive(self):
        handle(self.context, "context")
        return handle(self, "window")

    @property
    def size(self) -> int:
        """Number of ranks of the node."""
        return lib.lierne_window_get_size(self._alive())

    @property
    def place(self) -> int:
        """This rank's place among them."""
        return lib.lierne_window_get_rank(self._alive())

    @property
    def ranks(self) -> typing.Tuple[int, ...]:
        """The ranks of the world, ascending: ranks[place] is the rank at a place."""
        own = self._alive()
        return tuple(lib.lierne_window_get_ranks(own)[0:lib.lierne_window_get_size(own)])

    def _array(self, address, place, what):
        if not 0 <= place < self.size:
            raise IndexError(f"place is {place}, must be 0 to {self.size - 1}")
        if not address:
            raise RuntimeError(f"no buffer is {what} now: " + (
                "a round ends with wait()" if what == "writable" else "call notify() and wait() first"))
        nbytes = lib.lierne_window_get_bytes(self._handle)
        block = self.context._export(int(ffi.cast("uintptr_t", address)), nbytes, self)
        return self._over(block, what == "writable")

    def _over(self, block, writable):
        view = memoryview(block) if writable else memoryview(block).toreadonly()
        return np.frombuffer(view, self._numpy).reshape(self.shape)

    def writable(self, place: typing.Optional[int] = None) -> typing.Any:
        """The buffer of the rank at a place (this rank's own by default) as an array to be written before
        the next notify(); not valid afterwards. RuntimeError between notify() and wait()."""
        place = self.place if place is None else place
        return self._array(lib.lierne_window_get_writable(self._alive(), place), place, "writable")

    def readable(self, place: int) -> typing.Any:
        """What was written into the buffer of the rank at a place, as a read-only array of that memory;
        valid until the next notify(), so copy what must outlive it. RuntimeError before the first
        wait(), and between notify() and wait()."""
        return self._array(lib.lierne_window_get_readable(self._alive(), place), place, "readable")

    def notify(self) -> None:
        """Tells the others that what this rank writes in this round is there. Does not wait."""
        self.context._call_at_once(lib.lierne_window_notify, self._alive(), ffi.NULL)

    def wait(self) -> None:
        """Waits until all ranks of the node have notified this round. Raises errors.TimeoutError, which
        names a rank that did not come, and as lierne_window_wait."""
        self.context._call(lib.lierne_window_wait, self._alive(), ffi.NULL)

    def close(self) -> None:
        """Destroys the window. Collective. BufferError while arrays of its buffers are alive."""
        if self._handle is not None and self.context._handle is not None:
            self.context._check_unused("the window", self)
            own, self._handle = self._handle, None
            self.context._call(lib.lierne_window_destroy, own)
        self._handle = None

    def __enter__(self) -> Window:
        return self

    def __exit__(self, kind: typing.Optional[typing.Type[BaseException]], error: typing.Optional[BaseException],
                 trace: typing.Optional[types.TracebackType]) -> None:
        if error is None:  # other ranks may not come here: it goes with the context
            self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "Window(closed)"
        return f"Window({self.shape}, {self.dtype}, place {self.place} of {self.size})"
