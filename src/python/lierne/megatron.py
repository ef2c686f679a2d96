"""Classes with the interface of Megatron-LM's HyperCommGrid, ColocatedBridgeCommunicator and
BridgeCommunicator (as of August 2026), over lierne: replace the imports and keep the code.

What differs: a bridge creates no communicator of its own for tensors, so its attributes all_gather_pg
and fan_out_gather_pg are lists of ranks, not process groups; a pair of grids whose dp ranks do not line
up is served correctly; src_grid and dest_grid of BridgeCommunicator must be disjoint."""
import dataclasses
import enum
import os

import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne._arrays import dtype_name
from lierne._library import Spec, call, ffi, lib, make

__all__ = ["BridgeCommunicator", "ColocatedBridgeCommunicator", "CommRole", "HyperCommGrid",
           "RankCommInfo", "SliceInfo"]


def _world_size():
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    if dist.is_initialized():
        return dist.get_world_size()
    raise RuntimeError("the world size is unknown: WORLD_SIZE is not set and torch.distributed is "
                       "not initialised")


def _dims(shape, names, what):
    """name -> size; rejects what a dict would hide."""
    if len(shape) != len(names):
        raise ValueError(f"{what}: len(shape) {shape} != len(dim_names) {names}")
    if len(set(names)) != len(names):
        raise ValueError(f"{what} has duplicate dim_names: {names}")
    if any(int(size) != size or size <= 0 for size in shape):
        raise ValueError(f"{what}: shape must be positive ints, got {shape}")
    return {name: int(size) for name, size in zip(names, shape)}


class HyperCommGrid:
    """A grid and the process groups made from it. shape, dim_names: fastest first; rank_offset: the
    first rank; backend: of the groups, None for the default one."""

    def __init__(self, shape, dim_names, rank_offset=0, backend=None):
        if len(shape) != len(dim_names):
            raise ValueError(f"len(shape) {shape} != len(dim_names) {dim_names}")
        world = _world_size()
        if rank_offset < 0:
            raise ValueError(f"rank_offset must be non-negative, got {rank_offset}")
        dims = _dims(shape, dim_names, "grid")
        try:
            self.grid = lierne.Grid(dims, rank_offset, world)
        except (lierne.errors.OversizedError, lierne.errors.OverflowError) as error:
            raise RuntimeError(f"grid of shape {shape} is over sized: {error}") from error
        except lierne.Error as error:
            raise ValueError(str(error)) from error
        self.shape, self.dim_names = list(shape), list(dim_names)
        self.rank_offset, self.backend, self.size = rank_offset, backend, self.grid.size
        self._pgs = {}

    def register_view(self, name, shape, dim_names, shared_dims=None):
        """Adds another factorisation of the grid's ranks. shared_dims form the same groups as the
        base dims of these names. Raises ValueError."""
        dims, shared = _dims(shape, dim_names, f"view {name!r}"), list(shared_dims or [])
        if name in self.grid.views:
            raise ValueError(f"view {name!r} is already registered")
        try:
            self.grid.add_view(name, dims, shared)
        except lierne.Error as error:
            raise ValueError(str(error)) from error

    def _query(self, function, dims, view, **options):
        """A question to the grid, with the exceptions of Megatron's: KeyError for a view that is not
        there, ValueError for a dim."""
        names = [dims] if isinstance(dims, str) else dims
        view = view or "base"
        if view not in self.grid.views:
            raise KeyError(f"view {view!r} is not registered; registered views: {self.grid.views}")
        if not isinstance(names, list):
            raise ValueError(f"{names!r} is not in view {view!r}: give a name or a list of names")
        try:
            return function(*names, view=view, **options)
        except lierne.Error as error:
            raise ValueError(f"{dims!r} is not in view {view!r} with dim_names "
                             f"{list(self.grid.dims(view))}, each once: {error}") from error

    def get_rank_enum(self, dims, *, view=None):
        """The groups of ranks that create_pg makes for these dims."""
        return self._query(self.grid.groups, dims, view)

    def _gen_rank_enum(self, dims):
        """The same of the base view, with the first dim named varying slowest inside a group."""
        return self._query(self.grid.groups, list(dims), None, ordered=True)

    def create_pg(self, dims, *, view=None, **kwargs):
        """Creates the process groups of these dims, once, and returns this rank's. Collective over
        the world. kwargs: of torch.distributed.new_subgroups_by_enumeration."""
        key = self._query(self.grid.key, dims, view)
        if key in self._pgs:
            raise KeyError(f"process group {dims} has already been created")
        ranks = self.get_rank_enum(dims, view=view)
        self._pgs[key], _ = dist.new_subgroups_by_enumeration(ranks, backend=self.backend, **kwargs)
        return self._pgs[key]

    def get_pg(self, dims, *, view=None):
        """The process group that create_pg made for these dims. Raises KeyError; creates nothing."""
        key = self._query(self.grid.key, dims, view)
        if key not in self._pgs:
            raise KeyError(f"process group for {key} hasn't been created; call create_pg first")
        return self._pgs[key]

    def destroy(self):
        """Destroys the process groups that this grid created and the rank is in."""
        outside = dist.GroupMember.NON_GROUP_MEMBER
        for group in {id(g): g for g in self._pgs.values()}.values():
            if group is not None and group is not outside:
                dist.destroy_process_group(group)
        self._pgs.clear()

    def is_current_rank_in_grid(self):
        """Whether this process is in the grid."""
        return self.rank_offset <= dist.get_rank() < self.rank_offset + self.size


@dataclasses.dataclass
class SliceInfo:
    """A rank's part of a batch: first sample and number of samples."""
    start: int
    size: int


def _flat_groups(ranks, ngroups, size):
    flat = list(ranks[0][0:ngroups[0] * size[0]]) if ngroups[0] else []
    return [flat[i * size[0]:(i + 1) * size[0]] for i in range(ngroups[0])]


def _groups(function, *arguments):
    out, ngroups, size = ffi.new("const int **"), ffi.new("int *"), ffi.new("int *")
    call(function, out, ngroups, size, *arguments)
    return _flat_groups(out, ngroups, size)


class ColocatedBridgeCommunicator:
    """Moves tensors between two modules on the same ranks; differentiable.

    src_grid, dest_grid: with dims tp and dp; dim_mapping: axis of "b", and optionally "s" and "h" (by
    default 0, 1, 2). The input is equal over the source's tp. Raises ValueError for grids that
    Megatron-LM rejects. Neither construction nor planning communicates."""

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
        self.fan_in_scale = max(self.src_dp_size // self.dest_dp_size, 1)
        self.fan_out_scale = max(self.dest_dp_size // self.src_dp_size, 1)
        self.rank_to_src_pos = self._positions(src_grid)
        self.rank_to_dest_pos = self._positions(dest_grid)
        self._build_gather_groups()
        self._plans = {}

    def _validate_grids(self):
        pairs = (("src", self.src_grid), ("dest", self.dest_grid))
        for name, grid in pairs:
            for dim in ("tp", "dp"):
                if dim not in grid.dim_names:
                    raise ValueError(f"{name} grid must have '{dim}' dimension (dims: "
                                     f"{grid.dim_names})")
        if self.src_grid.size != self.dest_grid.size:
            raise ValueError("the grids must span same number of ranks, not "
                             f"{self.src_grid.size} and {self.dest_grid.size}")
        if self.src_grid.rank_offset != self.dest_grid.rank_offset:
            raise ValueError("the grids must have the same rank offset, not "
                             f"{self.src_grid.rank_offset} and {self.dest_grid.rank_offset}")
        for dim in ("pp", "cp"):
            for name, grid in pairs:
                size = dict(zip(grid.dim_names, grid.shape)).get(dim, 1)
                if size != 1:
                    raise ValueError(f"{name} {dim.upper()} must be 1, is {size}; lierne.torch.Bridge "
                                     "has no such restriction")
        dps = [dict(zip(g.dim_names, g.shape))["dp"] for _, g in pairs]
        if max(dps) % min(dps):
            raise ValueError(f"dp sizes must be evenly divisible, are {dps[0]} and {dps[1]}; "
                             "lierne.torch.Bridge has no such restriction")

    @staticmethod
    def _positions(grid):
        """rank -> (number of its tp group, place in it), as Megatron-LM enumerates them."""
        return {rank: (dp_rank, place) for dp_rank, group in enumerate(grid.get_rank_enum(["tp"]))
                for place, rank in enumerate(group)}

    def _build_gather_groups(self):
        spec = Spec("lierne_bridge_spec", src=self.src_grid.grid._handle,
                    dst=self.dest_grid.grid._handle)
        bridge_map = ffi.gc(make("lierne_megatron_map", lib.lierne_megatron_map_create, spec.at),
                            lib.lierne_megatron_map_destroy)
        groups = _groups(lib.lierne_megatron_map_get_gather_groups, bridge_map)
        mine = next((g for g in groups if self.current_rank in g), None)
        self.all_gather_group_ranks = groups if self.is_fan_in() else []
        self.fan_out_gather_group_ranks = groups if self.is_fan_out() else []
        self.all_gather_pg = mine if self.is_fan_in() else None
        self.fan_out_gather_pg = mine if self.is_fan_out() else None

    def is_fan_in(self):
        """Whether the source has more dp ranks."""
        return self.src_dp_size > self.dest_dp_size

    def is_fan_out(self):
        """Whether the destination has more dp ranks."""
        return self.src_dp_size < self.dest_dp_size

    def get_slice_info(self, batch_size):
        """This rank's part of the batch of one dp rank on the side that has fewer. Raises ValueError
        if the dp ratio does not divide it."""
        scale = max(self.fan_in_scale, self.fan_out_scale)
        if batch_size % scale:
            raise ValueError(f"batch dim size {batch_size} is not divisible by the dp ratio {scale}")
        side = self.rank_to_src_pos if self.is_fan_in() else self.rank_to_dest_pos
        size = batch_size // scale
        return SliceInfo(start=side[self.current_rank][0] % scale * size, size=size)

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
        """Frees the plans. Not collective."""
        self._plans.clear()
        self.all_gather_pg = self.fan_out_gather_pg = None


class CommRole(enum.Enum):
    """What a rank does in Megatron-LM's algorithm; here all ranks of the boundary stages carry data."""
    SENDER = "SENDER"
    RECEIVER = "RECEIVER"
    MEMBER = "MEMBER"


@dataclasses.dataclass
class RankCommInfo:
    """A rank's role, and the leaders that it would send to and receive from."""
    role: CommRole = CommRole.MEMBER
    send_to_ranks: list = dataclasses.field(default_factory=list)
    recv_from_ranks: list = dataclasses.field(default_factory=list)


def _split(size, parts):
    """Sizes of torch.tensor_split: equal, the first ones one more."""
    return [size // parts + (i < size % parts) for i in range(parts)]


def _counts_across(counts, dp_ranks):
    """Samples of the dp ranks of the other side: parts of one dp rank here, or the sum of several."""
    if len(counts) >= dp_ranks:
        k = len(counts) // dp_ranks
        return [sum(counts[i * k:(i + 1) * k]) for i in range(dp_ranks)]
    return [part for count in counts for part in _split(count, dp_ranks // len(counts))]


class BridgeCommunicator:
    """Moves tensors between two modules on disjoint ranks, for pipeline schedules.

    Construction is collective over the world. dim_mapping: axes of "s", "b" and "h" (1, 0, 2), of 3-D
    tensors; of 2-D ones the batch axis is 0. Each operation first tells all boundary ranks the shapes,
    then each plans by itself if they are new. Raises AssertionError (cp, dim_mapping), ValueError (dp sizes)."""

    def __init__(self, src_grid, dest_grid, dim_mapping=None, comm_dtype=None, src_module_name=None,
                 dest_module_name=None):
        self.src_grid, self.dest_grid, self.comm_dtype = src_grid, dest_grid, comm_dtype
        self.src_module_name, self.dest_module_name = src_module_name, dest_module_name
        for name, grid in (("Source", src_grid), ("Destination", dest_grid)):
            cp = dict(zip(grid.dim_names, grid.shape)).get("cp", 1)
            assert cp == 1, f"{name} grid CP size must be 1, got {cp}"
        self.dim_mapping = dim_mapping or {"s": 1, "b": 0, "h": 2}
        assert set(self.dim_mapping) == {"s", "b", "h"}, f"keys are s, b, h, not {set(dim_mapping)}"
        assert set(self.dim_mapping.values()) <= {0, 1, 2}, f"axes are 0, 1, 2, not {dim_mapping}"
        self.current_rank = dist.get_rank()
        self._read_leaders()
        self._sides = [[rank for group in groups for rank in group]
                       for groups in (self._src_groups, self._dest_groups)]
        members = sorted({*self._sides[0], *self._sides[1]})
        self._members, self._plans = members, {}
        self._group = dist.new_group(members, backend="gloo")  # shapes only

    def _read_leaders(self):
        spec = Spec("lierne_bridge_spec", src=self.src_grid.grid._handle,
                    dst=self.dest_grid.grid._handle)
        try:
            handle = make("lierne_megatron_leaders", lib.lierne_megatron_leaders_create, spec.at)
        except lierne.errors.IndivisibleError as error:
            raise ValueError(f"numbers of leaders must be evenly divisible: {error}") from error
        handle = ffi.gc(handle, lib.lierne_megatron_leaders_destroy)
        sides = lib.LIERNE_MEGATRON_SRC, lib.LIERNE_MEGATRON_DST
        self.src_tp_leaders, self.dest_tp_leaders = (
            _ranks(lib.lierne_megatron_leaders_get_ranks, handle, side) for side in sides)
        self._src_groups, self._dest_groups = (
            _groups(lib.lierne_megatron_leaders_get_groups, handle, side) for side in sides)
        self.src_grid_broadcast_ranks = self._mine(self._src_groups)
        self.dest_grid_broadcast_ranks = self._mine(self._dest_groups)
        self.comm_map = {}
        for grid in (self.src_grid, self.dest_grid):
            for rank in range(grid.rank_offset, grid.rank_offset + grid.size):
                self.comm_map[rank] = self._info(handle, rank)

    def _mine(self, groups):
        return next((group for group in groups if self.current_rank in group), [])

    @staticmethod
    def _info(handle, rank):
        send, nsends = ffi.new("const int **"), ffi.new("int *")
        recv, nrecvs = ffi.new("const int **"), ffi.new("int *")
        call(lib.lierne_megatron_leaders_get_peers, send, nsends, recv, nrecvs, handle, rank)
        to = list(send[0][0:nsends[0]]) if nsends[0] else []
        source = list(recv[0][0:nrecvs[0]]) if nrecvs[0] else []
        role = CommRole.SENDER if to else CommRole.RECEIVER if source else CommRole.MEMBER
        return RankCommInfo(role, to, source)

    def is_current_rank_in_grid(self, grid):
        """Whether this process is in a grid."""
        return grid.rank_offset <= self.current_rank < grid.rank_offset + grid.size

    def _require(self, grid, side, function):
        if not self.is_current_rank_in_grid(grid):
            raise ValueError(f"{function}: rank {self.current_rank} is not in the {side} grid")

    def send_forward(self, tensor):
        """Sends activations. Called by the source's ranks."""
        self._require(self.src_grid, "source", "send_forward")
        self._exchange(forward=tensor, directions=(0,))

    def recv_forward(self):
        """Receives activations, which require a gradient. Called by the destination's ranks."""
        self._require(self.dest_grid, "destination", "recv_forward")
        return self._exchange(directions=(0,))[0]

    def send_backward(self, gradient):
        """Sends gradients. Called by the destination's ranks."""
        self._require(self.dest_grid, "destination", "send_backward")
        self._exchange(backward=gradient, directions=(1,))

    def recv_backward(self):
        """Receives gradients. Called by the source's ranks."""
        self._require(self.src_grid, "source", "recv_backward")
        return self._exchange(directions=(1,))[0]

    def send_forward_recv_backward(self, tensor):
        """Both at once; the other side calls send_backward_recv_forward. Returns the gradient."""
        self._require(self.src_grid, "source", "send_forward_recv_backward")
        return self._exchange(forward=tensor, directions=(0, 1))[1]

    def send_backward_recv_forward(self, gradient):
        """Both at once; the other side calls send_forward_recv_backward. Returns the activations."""
        self._require(self.dest_grid, "destination", "send_backward_recv_forward")
        return self._exchange(backward=gradient, directions=(0, 1))[0]

    def _exchange(self, forward=None, backward=None, directions=(0,)):
        """Executes the directions together; the results of those that this rank receives."""
        if self.current_rank not in self._members:
            return [None] * len(directions)
        given = (forward, backward)
        shapes = [None] * dist.get_world_size(self._group)
        mine = [None if t is None else (tuple(t.shape), t.dtype) for t in given]
        dist.all_gather_object(shapes, mine, group=self._group)
        flights = []
        for direction in directions:
            move = self._plan(direction, [entry[direction] for entry in shapes])
            data, device = given[direction], self._device(given)
            if data is None:
                size = move.shapes(direction)[0]
                data = torch.empty(size, dtype=getattr(torch, _TORCH[move.dtype]), device=device)
            with torch.no_grad():
                flights.append(move._start(data, bool(direction)))
        results = [finish() for finish in flights]
        for direction, result in zip(directions, results):
            result.requires_grad_(direction == 0 and self.current_rank in self._sides[1])
        return results

    def _device(self, given):
        for tensor in given:
            if tensor is not None:
                return tensor.device
        nccl = dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def _plan(self, direction, shapes):
        """The plan for what the ranks of the sending side have given, by place in _members."""
        groups = (self._src_groups, self._dest_groups)[direction]
        dp_ranks = [shapes[self._members.index(group[0])] for group in groups]
        if None in dp_ranks:
            raise ValueError("a sending rank has given no tensor")
        shape, dtype = list(dp_ranks[0][0]), dp_ranks[0][1]
        axis = 0 if len(shape) == 2 else self.dim_mapping["b"]
        counts = [entry[0][axis] for entry in dp_ranks]
        other = _counts_across(counts, len((self._dest_groups, self._src_groups)[direction]))
        src, dst = (counts, other) if direction == 0 else (other, counts)
        shape[axis] = sum(counts)
        key = tuple(shape), dtype, tuple(src), tuple(dst)
        if key not in self._plans:
            self._plans[key] = lierne.torch.Operation(lierne.BridgeRoutes(
                self.current_rank, self.src_grid.grid, self.dest_grid.grid, shape, dtype,
                batch_axis=axis, src_counts=src, dst_counts=dst))
        return self._plans[key]

    def destroy(self):
        """Frees the plans. Not collective."""
        self._plans.clear()


_TORCH = {dtype_name(getattr(torch, name)): name
          for name in ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int8", "uint8")}


def _ranks(function, *arguments):
    out, count = ffi.new("const int **"), ffi.new("int *")
    call(function, out, count, *arguments)
    return list(out[0][0:count[0]]) if count[0] else []
