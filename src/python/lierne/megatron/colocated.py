"""ColocatedBridgeCommunicator: both modules on the same ranks."""
from __future__ import annotations

import dataclasses
import enum
import typing

import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne._library import Spec, ffi, lib, make
from lierne.megatron.colocated_moves import Moves
from lierne.megatron.colocated_packed import PackedMoves
from lierne.megatron.grid import destroy_group, grid_of, groups_of, sizes_of


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
    default 0, 1, 2). The input is equal over the source's tp. Where the destination has cp > 1, its group
    "cp" exists already (create_pg); every cp rank gets the whole sequence, and gradients are summed over
    cp. Construction is collective over the world: it makes gather_pg, the group of ranks whose samples
    one dp rank of the other side has. Raises ValueError for grids that Megatron-LM rejects, KeyError
    without the group.

    Beyond Megatron-LM. algorithm: "direct", or "collective": Megatron-LM's own, as a plan of lierne, with
    the same bits. extended: takes any two grids over the same ranks (source cp, pipeline stages, dims in
    any order, dp sizes of which neither divides the other), and the options that follow. gradient_owner:
    "partial", "zigzag", "contiguous" or "rows", as lierne.Bridge. src_placements: as lierne.Bridge; where
    the source has cp, by default zigzag chunks of the sequence. variable_rows: the batch axis has the rows
    of all samples of a dp rank, of which communicate gets the counts. A source with pipeline stages gives
    its tensor on the last, a destination gets it on the first; other ranks give None and get an empty one.
    packed: a mapping with hidden, dtype, max_segments, max_rows, max_runs (and partial, allow_unused, allow_repeat,
    max_peers) of lierne.torch.PackedBridge: image rows go to their tokens in packed sequences (THD), which the
    destination's cp cuts in zigzag chunks; update_packed describes each microbatch."""

    def __init__(self, src_grid: typing.Any, dest_grid: typing.Any, src_module_name: typing.Optional[str] = "src",
                 dest_module_name: typing.Optional[str] = "dest",
                 dim_mapping: typing.Optional[typing.Mapping[str, int]] = None, *, extended: bool = False,
                 algorithm: str = "direct", gradient_owner: str = "partial", src_placements: typing.Any = None,
                 variable_rows: bool = False,
                 packed: typing.Optional[typing.Mapping[str, typing.Any]] = None) -> None:
        self.src_grid, self.dest_grid = src_grid, dest_grid
        self.src_module_name, self.dest_module_name = src_module_name, dest_module_name
        self.dim_mapping = dim_mapping or {"b": 0, "s": 1, "h": 2}
        self.extended, self.algorithm, self.gradient_owner = extended, algorithm, gradient_owner
        self.current_rank = dist.get_rank()
        if not extended and (gradient_owner != "partial" or src_placements or variable_rows or packed):
            raise ValueError("ColocatedBridgeCommunicator: gradient_owner, src_placements, variable_rows and "
                             "packed need extended=True")
        if packed and (gradient_owner != "partial" or src_placements or variable_rows or algorithm != "direct"):
            raise ValueError("ColocatedBridgeCommunicator: packed goes with no other option: packed sequences "
                             "say themselves who has what")
        self._packed = bool(packed)
        self._validate_grids()
        self._read_sizes()
        self.rank_to_src_pos, self.rank_to_dest_coords = {}, {}
        self.rank_to_dest_pos = {}
        self._map_ranks()
        self._set_direction()
        self.gather_group_ranks, self.gather_pg = [], None
        if self.direction is not BridgeDirection.EQUAL:
            self._create_gather_groups()
        self._moves = PackedMoves(self, packed) if packed else Moves(self, src_placements, variable_rows)

    def _validate_grids(self):
        """Megatron-LM's checks, in its order."""
        sides = ("src", self.src_grid), ("dest", self.dest_grid)
        for name, grid in sides:
            for dim in ("tp", "dp"):
                if dim not in grid.dim_names:
                    raise ValueError(f"{name} grid must have {dim!r} dimension, got "
                                     f"dim_names={grid.dim_names}")
        src, dest = self.src_grid, self.dest_grid
        if src.size != dest.size:
            raise ValueError(f"Grids must span same number of ranks: src={src.size}, "
                             f"dest={dest.size}; BridgeCommunicator takes disjoint grids")
        if src.rank_offset != dest.rank_offset:
            raise ValueError(f"Grids must have same rank offset: src={src.rank_offset}, "
                             f"dest={dest.rank_offset}; BridgeCommunicator takes disjoint grids")
        if not self.extended:
            self._validate_sizes(sides)

    @staticmethod
    def _validate_sizes(sides):
        src, dest = (sizes_of(grid) for _, grid in sides)
        more = "; extended=True takes any"
        for name, sizes in (("src", src), ("dest", dest)):
            if sizes.get("pp", 1) != 1:
                raise ValueError(f"{name} PP must be 1 for ColocatedBridgeCommunicator, got "
                                 f"{sizes['pp']}{more}")
        if src.get("cp", 1) != 1:
            raise ValueError("Source CP must be 1 for ColocatedBridgeCommunicator, got "
                             f"{src['cp']}{more}")
        names = sides[1][1].dim_names
        if "cp" in names and names.index("cp") > names.index("dp"):
            raise ValueError("dest_grid dim_names must have 'cp' before 'dp' (e.g. "
                             f"['tp','cp','pp','dp']); got {names}{more}")
        dps = src["dp"], dest["dp"]
        if max(dps) % min(dps):
            raise ValueError(f"DP sizes must be evenly divisible: src_dp={dps[0]}, "
                             f"dest_dp={dps[1]}{more}")

    def _read_sizes(self):
        src, dest = sizes_of(self.src_grid), sizes_of(self.dest_grid)
        self.src_tp_size, self.src_dp_size = src["tp"], src["dp"]
        self.dest_tp_size, self.dest_dp_size = dest["tp"], dest["dp"]
        self.dest_cp_size, self.dest_cp_pg = dest.get("cp", 1), None
        if self.dest_cp_size > 1:
            try:
                self.dest_cp_pg = self.dest_grid.get_pg("cp")
            except KeyError:
                if not self.extended:
                    raise

    def _map_ranks(self):
        """Coordinates: of the source (dp, tp); of the destination (dp, tp, cp), and (dp, tp) of those with
        cp 0 on the first pipeline stage, one per copy of the tensor."""
        src, dest = grid_of(self.src_grid), grid_of(self.dest_grid)
        first = self.src_grid.rank_offset
        for rank in range(first, first + self.src_grid.size):
            at = src.coords(rank)
            self.rank_to_src_pos[rank] = at["dp"], at["tp"]
            at = dest.coords(rank)
            self.rank_to_dest_coords[rank] = at["dp"], at["tp"], at.get("cp", 0)
            if at.get("cp", 0) == at.get("pp", 0) == 0:
                self.rank_to_dest_pos[rank] = at["dp"], at["tp"]

    def _set_direction(self):
        src, dest = self.src_dp_size, self.dest_dp_size
        self.scale = 0 if max(src, dest) % min(src, dest) else max(src // dest, dest // src)
        self.direction = (BridgeDirection.FAN_IN if src > dest else
                          BridgeDirection.FAN_OUT if src < dest else BridgeDirection.EQUAL)

    def _create_gather_groups(self):
        """Megatron-LM's groups, for callers; none for a pair of grids that it rejects."""
        src, dest = grid_of(self.src_grid), grid_of(self.dest_grid)
        spec = Spec("lierne_bridge_spec", src=src._handle, dst=dest._handle)
        bridge_map = ffi.gc(make("lierne_megatron_map", lib.lierne_megatron_map_create, spec.at),
                            lib.lierne_megatron_map_destroy)
        self.gather_group_ranks = groups_of(lib.lierne_megatron_map_get_gather_groups, bridge_map)
        if self.gather_group_ranks:
            self.gather_pg, _ = dist.new_subgroups_by_enumeration(self.gather_group_ranks,
                                                                  backend=self.src_grid.backend)

    def is_fan_in(self) -> bool:
        """Whether the source has more dp ranks."""
        return self.direction is BridgeDirection.FAN_IN

    def is_fan_out(self) -> bool:
        """Whether the destination has more dp ranks."""
        return self.direction is BridgeDirection.FAN_OUT

    def get_slice_info(self, batch_size: int) -> typing.Any:
        """This rank's part of the batch of one dp rank on the side that has fewer. Raises ValueError
        if scale, the dp ratio, does not divide it; scale is 0 where neither dp size divides the other."""
        if self.scale == 0 or batch_size % self.scale:
            raise ValueError(f"ColocatedBridgeCommunicator: batch dim size {batch_size} is not "
                             f"divisible by {self.direction.value} scale={self.scale}.")
        side = self.rank_to_src_pos if self.is_fan_in() else self.rank_to_dest_coords
        size = batch_size // self.scale
        return SliceInfo(start=side[self.current_rank][0] % self.scale * size, size=size)

    def update_packed(self, packed_seq_params: typing.Any, images: typing.Any, image_owner: typing.Any = None,
                      segment_owner: typing.Any = None, *, runs: typing.Any = None, input_ids: typing.Any = None,
                      image_id: typing.Optional[int] = None) -> None:
        """The next microbatch of a bridge with packed, as lierne.torch.PackedBridge.update: local, and alike on
        all ranks. image_owner, segment_owner: source and destination dp rank of each."""
        if not self._packed:
            raise ValueError("ColocatedBridgeCommunicator: update_packed needs packed")
        self._moves.bridge.update(packed_seq_params, images, image_owner, segment_owner, runs=runs,
                                  input_ids=input_ids, image_id=image_id)

    def communicate(self, tensor: torch.Tensor, *, rows: typing.Any = None, row_owner: typing.Any = None,
                    into: typing.Optional[torch.Tensor] = None) -> torch.Tensor:
        """The destination's samples of this rank, from those of the source's dp rank. Differentiable.
        All ranks of the grids call, forward and backward. Raises ValueError as get_slice_info.

        rows (variable_rows): rows of each sample of this source dp rank; by default the tensor's attribute
        _mimo_bridge_split_sizes, Megatron-LM's own. Dp ranks of the destination share the samples, the
        first ones get one more. row_owner (gradient_owner "rows"): as lierne.Bridge, on all ranks alike.

        packed: tensor has this rank's image rows (None: none; its backward runs all the same), the result this rank's tokens; into: the embeddings whose text
        rows stay (None: zeros)."""
        if self._packed:
            if rows is not None or row_owner is not None:
                raise ValueError("communicate: rows and row_owner are not of packed sequences: update_packed")
            return self._moves.move(tensor, into)
        if into is not None:
            raise ValueError("communicate: into needs packed")
        if self.is_fan_out() and not self.extended:
            self.get_slice_info(tensor.shape[self.dim_mapping["b"]])
        return self._moves.move(tensor, rows, row_owner)

    def destroy(self) -> None:
        """Frees the plans and this rank's groups."""
        self._moves.destroy()
        destroy_group(self.gather_pg)
        self.gather_pg = None
