"""ColocatedBridgeCommunicator: both modules on the same ranks."""
import dataclasses
import enum

import torch.distributed as dist

import lierne
import lierne.torch
from lierne._library import Spec, ffi, lib, make
from lierne.megatron.grid import destroy_group, groups_of


@dataclasses.dataclass
class SliceInfo:
    """A rank's part of a batch: first sample and number of samples."""
    start: int
    size: int


class BridgeDirection(str, enum.Enum):
    """Which side of a colocated bridge has more dp ranks."""
    FAN_IN = "fan_in"
    FAN_OUT = "fan_out"
    EQUAL = "equal"


class ColocatedBridgeCommunicator:
    """Moves tensors between two modules on the same ranks; differentiable.

    src_grid, dest_grid: with dims tp and dp; dim_mapping: axis of "b", and optionally "s" and "h" (by
    default 0, 1, 2). The input is equal over the source's tp. Construction is collective over the
    world: it makes gather_pg, the group of ranks whose samples one dp rank of the other side has.
    Raises ValueError for grids that Megatron-LM rejects."""

    def __init__(self, src_grid, dest_grid, src_module_name="src", dest_module_name="dest",
                 dim_mapping=None):
        self.src_grid, self.dest_grid = src_grid, dest_grid
        self.src_module_name, self.dest_module_name = src_module_name, dest_module_name
        self.dim_mapping = dim_mapping or {"b": 0, "s": 1, "h": 2}
        self.current_rank = dist.get_rank()
        self._validate_grids()
        sides = [dict(zip(g.dim_names, g.shape)) for g in (src_grid, dest_grid)]
        self.src_tp_size, self.src_dp_size = sides[0]["tp"], sides[0]["dp"]
        self.dest_tp_size, self.dest_dp_size = sides[1]["tp"], sides[1]["dp"]
        self.rank_to_src_pos = self._positions(src_grid)
        self.rank_to_dest_pos = self._positions(dest_grid)
        self._set_direction()
        self.gather_group_ranks, self.gather_pg = [], None
        if self.direction is not BridgeDirection.EQUAL:
            self._create_gather_groups()
        self._plans = {}

    def _validate_grids(self):
        src, dest = self.src_grid, self.dest_grid
        if src.size != dest.size:
            raise ValueError(f"Grids must span same number of ranks: src={src.size}, "
                             f"dest={dest.size}")
        if src.rank_offset != dest.rank_offset:
            raise ValueError(f"Grids must have same rank offset: src={src.rank_offset}, "
                             f"dest={dest.rank_offset}")
        for name, grid in (("src", src), ("dest", dest)):
            sizes = dict(zip(grid.dim_names, grid.shape))
            for dim in ("tp", "dp"):
                if dim not in sizes:
                    raise ValueError(f"{name} grid must have {dim!r} dimension, got "
                                     f"dim_names={grid.dim_names}")
            for dim in ("pp", "cp"):
                if sizes.get(dim, 1) != 1:
                    raise ValueError(f"{name} {dim.upper()} must be 1 for ColocatedBridgeCommunicator, "
                                     f"got {sizes[dim]}; lierne.torch.Bridge takes any")
        dps = [dict(zip(g.dim_names, g.shape))["dp"] for g in (src, dest)]
        if max(dps) % min(dps):
            raise ValueError(f"DP sizes must be evenly divisible: src_dp={dps[0]}, dest_dp={dps[1]}; "
                             "lierne.torch.Bridge takes any")

    @staticmethod
    def _positions(grid):
        """rank -> (number of its tp group, place in it), as Megatron-LM enumerates them."""
        return {rank: (dp_rank, place) for dp_rank, group in enumerate(grid.get_rank_enum(["tp"]))
                for place, rank in enumerate(group)}

    def _set_direction(self):
        src, dest = self.src_dp_size, self.dest_dp_size
        self.scale = max(src // dest, dest // src)
        self.direction = (BridgeDirection.FAN_IN if src > dest else
                          BridgeDirection.FAN_OUT if src < dest else BridgeDirection.EQUAL)

    def _create_gather_groups(self):
        spec = Spec("lierne_bridge_spec", src=self.src_grid.grid._handle,
                    dst=self.dest_grid.grid._handle)
        bridge_map = ffi.gc(make("lierne_megatron_map", lib.lierne_megatron_map_create, spec.at),
                            lib.lierne_megatron_map_destroy)
        self.gather_group_ranks = groups_of(lib.lierne_megatron_map_get_gather_groups, bridge_map)
        self.gather_pg, _ = dist.new_subgroups_by_enumeration(self.gather_group_ranks,
                                                              backend=self.src_grid.backend)

    def is_fan_in(self):
        """Whether the source has more dp ranks."""
        return self.direction is BridgeDirection.FAN_IN

    def is_fan_out(self):
        """Whether the destination has more dp ranks."""
        return self.direction is BridgeDirection.FAN_OUT

    def get_slice_info(self, batch_size):
        """This rank's part of the batch of one dp rank on the side that has fewer. Raises ValueError
        if scale, the dp ratio, does not divide it."""
        if batch_size % self.scale:
            raise ValueError(f"ColocatedBridgeCommunicator: batch dim size {batch_size} is not "
                             f"divisible by {self.direction.value} scale={self.scale}.")
        side = self.rank_to_src_pos if self.is_fan_in() else self.rank_to_dest_pos
        size = batch_size // self.scale
        return SliceInfo(start=side[self.current_rank][0] % self.scale * size, size=size)

    def communicate(self, tensor):
        """The destination's samples of this rank, from those of the source's dp rank. Differentiable.
        All ranks of the grids call. Raises ValueError as get_slice_info."""
        batch_axis = self.dim_mapping["b"]
        if self.is_fan_out():
            self.get_slice_info(tensor.shape[batch_axis])
        shape = list(tensor.shape)
        shape[batch_axis] *= self.src_dp_size
        key = tuple(shape), tensor.dtype
        if key not in self._plans:
            self._plans[key] = self._plan(shape, tensor.dtype, batch_axis)
        return self._plans[key](tensor)

    def _plan(self, shape, dtype, batch_axis):
        return lierne.torch.Operation(lierne.BridgeRoutes(
            self.current_rank, self.src_grid.grid, self.dest_grid.grid, shape, dtype,
            batch_axis=batch_axis))

    def destroy(self):
        """Frees the plans and this rank's gather_pg."""
        self._plans.clear()
        destroy_group(self.gather_pg)
        self.gather_pg = None
