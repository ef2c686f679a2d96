"""Contexts over functions of the caller (lierne/oob.h): an all-gather, and optionally messages."""
from __future__ import annotations

import typing

from lierne._library import ffi


class Calls:
    """What Context.oob needs; a subclass implements it. Every method starts something and returns at
    once: a request, which is any object (None: it has ended already). They must not wait.

    A method that raises kills the context; the exception is the cause of the error of the call."""

    messages = False  # True: send and receive are implemented

    def allgather(self, mine: bytes, everyone: typing.Any) -> typing.Any:
        """Gathers `mine` (bytes) of all ranks into everyone (a writable buffer), in their order."""
        raise NotImplementedError

    def send(self, data: bytes, to: int, tag: int) -> typing.Any:
        """Sends bytes; messages of two ranks with one tag arrive in the order of their sending."""
        raise NotImplementedError

    def receive(self, buffer: typing.Any, source: int, tag: int) -> typing.Any:
        """Receives into a writable buffer, of as many bytes as are sent."""
        raise NotImplementedError

    def test(self, request: typing.Any) -> bool:
        """Whether a request has ended; progresses everything in flight."""
        raise NotImplementedError


class bind:
    """The C table of a Calls object; `error` is the exception that a method raised."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.error, self.requests, self.next = calls, None, {}, 0
        self.kept = {
            "allgather": ffi.callback("int(void **, const void *, void *, size_t, void *)",
                                      self._guard(self._allgather)),
            "send": ffi.callback("int(void **, const void *, size_t, int, int, void *)",
                                 self._guard(self._send)),
            "receive": ffi.callback("int(void **, void *, size_t, int, int, void *)",
                                    self._guard(self._receive)),
            "test": ffi.callback("int(void *, void *)", self._guard(self._test)),
            "free_request": ffi.callback("int(void *, void *)", self._guard(self._free))}
        if not calls.messages:
            del self.kept["send"], self.kept["receive"]
        self.struct = self.kept

    def _guard(self, function):
        def guarded(*arguments):
            try:
                return function(*arguments)
            except BaseException as error:  # C cannot pass it on
                self.error = error
                return 2
        return guarded

    def _start(self, out, request):
        if request is not None:
            self.next += 1
            self.requests[self.next] = request
            out[0] = ffi.cast("void *", self.next)
        return 0

    def _allgather(self, out, mine, everyone, size, _):
        world = self.calls.nranks
        return self._start(out, self.calls.allgather(bytes(ffi.buffer(mine, size)),
                                                     ffi.buffer(everyone, size * world)))

    def _send(self, out, data, size, to, tag, _):
        return self._start(out, self.calls.send(bytes(ffi.buffer(data, size)) if size else b"",
                                                to, tag))

    def _receive(self, out, data, size, source, tag, _):
        buffer = ffi.buffer(data, size) if size else bytearray()
        return self._start(out, self.calls.receive(buffer, source, tag))

    def _test(self, request, _):
        return 0 if self.calls.test(self.requests[_number(request)]) else 1

    def _free(self, request, _):
        self.requests.pop(_number(request), None)
        return 0


def _number(request):
    return int(ffi.cast("uintptr_t", request))
