"""The exceptions: Error, and a subclass for each status of the C library (InvalidError, ...)."""
from __future__ import annotations

import typing

from lierne._library import ERRORS, Error

if typing.TYPE_CHECKING:
    def __getattr__(name: str) -> typing.Type[Error]: ...

globals().update({kind.__name__: kind for kind in ERRORS.values()})
__all__ = ["Error", *(kind.__name__ for kind in ERRORS.values())]
