"""The plans of a colocated bridge, one per shape: made when a tensor of a new shape comes.

Every rank computes its part of a plan from the shape alone. Ranks tell each other only what a rank cannot
know: the rows of other dp ranks' samples, and the shape of a tensor on another pipeline stage."""
from __future__ import annotations

import typing

import numpy as np
import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne.megatron.grid import destroy_group, grid_of, new_private_group, share, sizes_of
from lierne.torch._groups import timeout_of

_ALGORITHMS = ("direct", "collective")


class _Same(torch.autograd.Function):
    """A forward that leaves every rank what it has: no copy, as Megatron-LM makes none."""

    @staticmethod
    def forward(ctx, tensor, operation):
        ctx.operation = operation
        return tensor.contiguous()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.operation.adjoint(gradient.contiguous()), None


class Moves:
    """The operations of a bridge, by what they were planned for."""

    def __init__(self, bridge: typing.Any, src_placements: typing.Any, variable_rows: bool) -> None:
        if bridge.algorithm not in _ALGORITHMS:
            raise ValueError(f"algorithm is {bridge.algorithm!r}, must be 'direct' or 'collective'")
        self._rank, self._variable = bridge.current_rank, variable_rows
        self._src, self._dest = grid_of(bridge.src_grid), grid_of(bridge.dest_grid)
        self._axes, self._owner = bridge.dim_mapping, bridge.gradient_owner
        self._collective, self._context = bridge.algorithm == "collective", None
        sizes = sizes_of(bridge.src_grid)
        self._src_dp, self._dest_dp = bridge.src_dp_size, bridge.dest_dp_size
        self._flat = self._owner == "rows" and "s" not in self._axes  # each row is its own sample
        self._cut = sizes.get("cp", 1) if src_placements is None else 1
        if self._cut > 1:
            src_placements = {"cp": lierne.ShardZigzag(self._axis_of_sequence())}
        self._placements = src_placements
        self._members = list(range(self._src.rank_offset, self._src.rank_offset + self._src.size))
        self._group = new_private_group(self._members, bridge.src_grid.backend)
        self._tells = variable_rows or sizes.get("pp", 1) > 1
        self._told = new_private_group(self._members, "gloo") if self._tells else None
        self._operations = {}
        self._same = not bridge.extended and all(self._src.coords(rank)["dp"] == self._dest.coords(rank)["dp"]
                                                 for rank in self._members)

    def _axis_of_sequence(self):
        if self._flat:
            return self._axes["b"] + 1
        if "s" not in self._axes:
            raise ValueError(f"dim_mapping {self._axes} has no 's': source cp and an owner of the gradient "
                             "need the axis of the sequence")
        return self._axes["s"]

    def move(self, tensor: torch.Tensor, rows: typing.Any, row_owner: typing.Any) -> typing.Any:
        """The result of a tensor, which is None on a rank that holds no source."""
        if self._tells:
            shape, dtype, counts = self._tell(tensor, rows)
        else:
            shape, dtype, counts = self._whole(tensor.shape), tensor.dtype, None
        key = shape, dtype, counts, None if row_owner is None else bytes(_map(row_owner))
        if key not in self._operations:
            self._operations[key] = self._plan(shape, dtype, counts, row_owner)
        operation = self._operations[key]
        if self._same:
            return _Same.apply(tensor, operation)
        if tensor is None:
            tensor = torch.empty(operation.shapes()[0], dtype=dtype, device=self._device(),
                                 requires_grad=torch.is_grad_enabled())
        elif self._flat:
            tensor = tensor.unsqueeze(self._axes["b"] + 1)
        result = operation(tensor)
        return result.squeeze(self._axes["b"] + 1) if self._flat else result

    @staticmethod
    def _device():
        nccl = dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def _whole(self, local):
        """The global shape of a dp rank's tensor."""
        shape = list(local)
        shape[self._axes["b"]] *= self._src_dp
        if self._cut > 1:
            shape[self._axes["s"]] *= self._cut
        return tuple(shape)

    def _tell(self, tensor, rows):
        """(global shape, dtype, rows of the dp ranks of both sides) from what all ranks have."""
        if tensor is not None and rows is None and self._variable:
            rows = getattr(tensor, "_mimo_bridge_split_sizes", None)
            if rows is None:
                raise ValueError("communicate: variable_rows needs the rows of each sample: give rows")
        mine = None if tensor is None else (tuple(tensor.shape), tensor.dtype,
                                            rows and [int(n) for n in rows])
        given = [None] * len(self._members)
        dist.all_gather_object(given, mine, group=self._told)
        held = [None] * self._src_dp
        for rank, entry in zip(self._members, given):
            if entry is not None:
                held[self._src.coords(rank)["dp"]] = entry
        if None in held:
            raise ValueError(f"communicate: no rank of source dp rank {held.index(None)} gave a tensor")
        shape, dtype, _ = held[0]
        if not self._variable:
            return self._whole(shape), dtype, None
        return self._count(held)

    def _count(self, held):
        """As _tell, where samples have rows of their own."""
        axis, samples = self._axes["b"], [entry[2] for entry in held]
        for dp_rank, (shape, _, rows) in enumerate(held):
            if sum(rows) != shape[axis]:
                raise ValueError(f"communicate: the rows of source dp rank {dp_rank} are {sum(rows)} in all; "
                                 f"its tensor has {shape[axis]}")
        every = [n for rows in samples for n in rows]
        src, dest, first = tuple(map(sum, samples)), [], 0
        for n in share(len(every), self._dest_dp):
            dest.append(sum(every[first:first + n]))
            first += n
        shape = list(held[0][0])
        shape[axis] = sum(every)
        return tuple(shape), held[0][1], (src, tuple(dest))

    def _plan(self, shape, dtype, counts, row_owner):
        if self._flat:
            shape = (*shape[:self._axes["b"] + 1], 1, *shape[self._axes["b"] + 1:])
        options = {"batch_axis": self._axes["b"], "owner": self._owner}
        if self._owner != "partial" or self._cut > 1:
            options["sequence_axis"] = self._axis_of_sequence()
        if counts is not None:
            options["src_counts"], options["dst_counts"] = map(list, counts)
        if self._placements:
            options["src_placements"] = self._placements
        if row_owner is not None:
            options["row_owner"] = _map(row_owner)
        if self._collective:
            return lierne.torch.Operation(lierne.Megatron(self._made_context(), self._src, self._dest, shape,
                                                          dtype, **options))
        return lierne.torch.Operation(lierne.BridgeRoutes(self._rank, self._src, self._dest, shape, dtype,
                                                          **options), self._group)

    def _made_context(self):
        """Megatron-LM's algorithm is planned by all ranks together."""
        if self._context is None:
            timeout = timeout_of(dist.group.WORLD)
            options = {} if timeout is None else {"timeout": timeout.total_seconds()}
            self._context = lierne.torch.context(group=self._group, members=self._members, **options)
        return self._context

    def destroy(self) -> None:
        self._operations.clear()
        if self._context is not None:
            self._context.close()
        for group in (self._group, self._told):
            destroy_group(group)
        self._context = self._group = self._told = None


def _map(row_owner):
    return np.ascontiguousarray(row_owner, np.int32)
