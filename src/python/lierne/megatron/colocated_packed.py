"""Packed sequences of a colocated bridge: one plan, whose segments and images are new in every microbatch."""
from __future__ import annotations

import typing

import torch
import torch.distributed as dist

import lierne.torch
from lierne.megatron.grid import destroy_group, grid_of, new_private_group
from lierne.torch._groups import timeout_of

_CAPACITIES = {"hidden", "dtype", "max_segments", "max_rows", "max_runs"}
_OPTIONS = {"partial", "allow_unused", "allow_repeat", "max_peers"}


class PackedMoves:
    """The packed bridge of a colocated bridge: `bridge`, a lierne.torch.PackedBridge."""

    def __init__(self, bridge: typing.Any, packed: typing.Mapping[str, typing.Any]) -> None:
        missing, unknown = _CAPACITIES - set(packed), set(packed) - _CAPACITIES - _OPTIONS
        if missing or unknown:
            raise ValueError(f"packed lacks {sorted(missing)}" if missing else
                             f"packed has {sorted(unknown)}, must be of {sorted(_CAPACITIES | _OPTIONS)}")
        grids = [grid_of(grid) for grid in (bridge.src_grid, bridge.dest_grid)]
        members = list(range(grids[0].rank_offset, grids[0].rank_offset + grids[0].size))
        self._group = new_private_group(members, bridge.src_grid.backend)
        timeout = timeout_of(dist.group.WORLD)
        options = {} if timeout is None else {"timeout": timeout.total_seconds()}
        self._context = lierne.torch.context(group=self._group, members=members, **options)
        self.bridge = lierne.torch.PackedBridge(self._context, *grids, **packed)
        self._hidden, self._dtype = packed["hidden"], packed["dtype"]

    def move(self, rows: typing.Optional[torch.Tensor], into: typing.Optional[torch.Tensor]) -> torch.Tensor:
        """The tokens of this rank. rows None: it has no images, and sends gradients to ranks that have."""
        if rows is None:
            rows = torch.empty((0, self._hidden), dtype=self._dtype, requires_grad=torch.is_grad_enabled(),
                               device=None if into is None else into.device)
        return self.bridge(rows, into)

    def destroy(self) -> None:
        """Frees the plan, its context and this rank's group."""
        self._context.close()
        destroy_group(self._group)
