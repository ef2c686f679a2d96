"""Configuration files: checked as a whole, then grids and bridges by name."""
from __future__ import annotations

import dataclasses
import os
import typing

from lierne._library import ERRORS, ffi, last_error, lib, text
from lierne.grid import Grid


@dataclasses.dataclass(frozen=True)
class Diagnostic:
    """What is wrong with a file, where: line and column from 1, pointer as RFC 6901."""
    severity: str
    code: str
    line: int
    column: int
    pointer: str
    message: str
    hint: str

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.line}:{self.column}: {self.severity}: [{self.code}] {self.message}{hint}"


def _diagnostics(handle):
    found = []
    for i in range(lib.lierne_config_get_ndiagnostics(handle)):
        d = lib.lierne_config_get_diagnostic(handle, i)
        severity = "error" if d.severity == lib.LIERNE_SEVERITY_ERROR else "warning"
        found.append(Diagnostic(severity, text(d.code), d.line, d.column, text(d.pointer),
                                text(d.message), text(d.hint)))
    return found


def _read(path):
    """(status, handle, its error) of a file; raises where there is no handle."""
    out = ffi.new("lierne_config **")
    status = lib.lierne_config_read(out, os.fspath(path).encode())
    error = last_error(status) if status else None
    if not out[0]:
        raise error
    return ffi.gc(out[0], lib.lierne_config_destroy), error


def check(path: typing.Union[str, os.PathLike[str]]) -> typing.List[Diagnostic]:
    """All diagnostics of a file, in the order of their place; [] if it is clean. Raises errors.IoError
    if it cannot be read."""
    return _diagnostics(_read(path)[0])


class Config:
    """A configuration file: `grids`, `bridges`, `packed_bridges` and `redistributions` by name, `world_size`, `nodes`,
    `diagnostics` (its warnings). Raises errors.SyntaxError or ConfigError, with every diagnostic in the message and in
    the exception's `diagnostics`."""

    def __init__(self, path: typing.Union[str, os.PathLike[str]]) -> None:
        self._handle, error = _read(path)
        self.diagnostics = _diagnostics(self._handle)
        if error is not None:
            lines = "".join(f"\n{path}:{d}" for d in self.diagnostics)
            failure = ERRORS[error.status](f"{error}{lines}")
            failure.diagnostics = self.diagnostics
            raise failure
        self.world_size = lib.lierne_config_get_world_size(self._handle)
        self.grids = {}
        for i in range(lib.lierne_config_get_ngrids(self._handle)):
            name = lib.lierne_config_get_grid_name(self._handle, i)
            grid = lib.lierne_config_get_grid(self._handle, name)
            self.grids[text(name)] = Grid._borrowed(grid, self)
        self.bridges = [text(lib.lierne_config_get_bridge_name(self._handle, i))
                        for i in range(lib.lierne_config_get_nbridges(self._handle))]
        self.packed_bridges = [text(lib.lierne_config_get_packed_bridge_name(self._handle, i))
                               for i in range(lib.lierne_config_get_npacked_bridges(self._handle))]
        self.redistributions = [text(lib.lierne_config_get_redistribution_name(self._handle, i))
                                for i in range(lib.lierne_config_get_nredistributions(self._handle))]
        nodes = lib.lierne_config_get_nodes(self._handle)
        self.nodes = list(nodes[0:self.world_size]) if nodes else None
        links = lib.lierne_config_get_links(self._handle)
        self.links = ((links.same_node.latency_ns, links.same_node.megabytes_per_second),
                      (links.other_node.latency_ns, links.other_node.megabytes_per_second)) if links else None
        self.node_megabytes_per_second = links.node_megabytes_per_second if links else None
