"""What changed, only: a plan's forward of an input that differs little from call to call (lierne/delta.h is the
manual).

    weights = lierne.TensorSet(context, src, dst)
    delta = lierne.Delta(weights)
    delta.forward(trained, out=served)    # after every step; the first call sends everything
"""
from __future__ import annotations

import typing

from lierne._arrays import borrow, stream_of
from lierne._library import Error, Spec, call, ffi, handle, lib, not_copied
from lierne._types import Buffer, Report, Stream
from lierne.plan import FORWARD, Plan


class Delta:
    """Moves what a plan's forward moves, with the same bits, but only what changed since the last call.

    Each rank keeps what it sent and got last. copy False: the caller keeps what it sent, and gives it to each call as
    previous, in another buffer than data; memory_bytes of the report is less then. Collective over the plan's context;
    the plan can be neither closed nor updated while the delta lives. Raises errors.UnsupportedError for plans that sum
    or take several stages."""

    def __init__(self, plan: Plan, copy: bool = True) -> None:
        self.context, self._plan, self._handle, self._flight = plan.context, plan, None, None
        out = ffi.new("lierne_delta **")
        self.context._call(lib.lierne_delta_create, out, handle(plan, "plan"))
        self._handle, self._copies = out[0], copy
        if not copy:
            call(lib.lierne_delta_set_previous, self._handle, ffi.NULL)

    __copy__ = __reduce_ex__ = not_copied

    def _give(self, previous, stream):
        """Gives the next call its stream, and what data was; returns what must live until it has begun."""
        call(lib.lierne_delta_set_stream, handle(self, "delta"), stream_of(stream))
        if self._copies and previous is None:
            return None
        if self._copies:
            raise ValueError("previous is given, and this delta keeps a copy: create it with copy=False")
        source, kept = ffi.NULL, None
        if previous is not None:
            source, kept = borrow(previous, self._plan.dtype, self._plan.shapes()[0], False, "previous")
        call(lib.lierne_delta_set_previous, handle(self, "delta"), source)
        return kept

    def forward(self, data: typing.Optional[Buffer], out: typing.Optional[Buffer] = None,
                previous: typing.Optional[Buffer] = None, stream: Stream = None) -> typing.Any:
        """out = F data, as Plan.forward. previous: with copy=False, what data was in the last call; None: everything is
        sent. stream: of memory of a device; the call waits for it. Collective; blocking."""
        own = handle(self, "delta")
        before = self._give(previous, stream)
        out, target, source, kept = self._plan._buffers(FORWARD, data, out)
        try:
            self.context._call(lib.lierne_delta_forward, own, target, source)
        except Error:
            self.context._keep_borrowed((*kept, before))
            raise
        return out

    def begin(self, data: typing.Optional[Buffer], out: typing.Optional[Buffer] = None,
              previous: typing.Optional[Buffer] = None, stream: Stream = None) -> None:
        """Starts a forward, which end() ends: waits for other ranks to begin, not for what they send. data and previous
        may change at once. Collective."""
        own = handle(self, "delta")
        before = self._give(previous, stream)
        out, target, source, kept = self._plan._buffers(FORWARD, data, out)
        try:
            self.context._call(lib.lierne_delta_forward_begin, own, target, source)
        except Error:
            self.context._keep_borrowed((*kept, before))
            raise
        self._flight = out, kept

    def end(self) -> typing.Any:
        """The output of what begin() started. Collective; blocking. Raises errors.InvalidError where nothing is in
        flight."""
        own = handle(self, "delta")
        out, kept = self._flight or (None, None)
        self._flight = None
        try:
            self.context._call(lib.lierne_delta_forward_end, own)
        except Error:
            self.context._keep_borrowed(kept)
            raise
        return out

    def invalidate(self) -> None:
        """The next call brings all of this rank's part, as after a digest that differs. Local."""
        call(lib.lierne_delta_invalidate, handle(self, "delta"))

    @property
    def report(self) -> Report:
        """What the last call did on this rank: a dict of the fields of lierne_delta_report."""
        spec = Spec("lierne_delta_report")
        call(lib.lierne_delta_get_report, spec.at, handle(self, "delta"))
        return {name: getattr(spec.at, name) for name, _ in ffi.typeof("lierne_delta_report").fields if name != "size"}

    def close(self) -> None:
        """Frees the delta and releases the plan. Not collective."""
        if self._handle is not None and self.context._handle is not None:
            self.context._call(lib.lierne_delta_destroy, self._handle)
        self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.context._discard(lib.lierne_delta_destroy, self._handle)
