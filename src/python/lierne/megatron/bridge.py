"""BridgeCommunicator: the modules on disjoint ranks."""
import dataclasses
import enum

import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne._arrays import dtype_name
from lierne._library import Spec, call, ffi, lib, make
from lierne.megatron.grid import destroy_group, groups_of, ranks_of

_TORCH = {dtype_name(getattr(torch, name)): name
          for name in ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int8", "uint8")}


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


def _replicas(grid):
    """The ranks of each dp rank."""
    return grid._gen_rank_enum([name for name in grid.dim_names if name != "dp"])


def _leaders(src, dest):
    """lierne_megatron_leaders of a pair of grids."""
    spec = Spec("lierne_bridge_spec", src=src.grid._handle, dst=dest.grid._handle)
    try:
        handle = make("lierne_megatron_leaders", lib.lierne_megatron_leaders_create, spec.at)
    except lierne.errors.IndivisibleError as error:
        counts = len(_replicas(src)), len(_replicas(dest))
        raise ValueError(f"Source TP leaders count ({counts[0]}) and destination TP leaders count "
                         f"({counts[1]}) must be evenly divisible. {error}") from error
    return ffi.gc(handle, lib.lierne_megatron_leaders_destroy)


def _timeout_of(group):
    """How long the calls of a process group may take. None, torch's default: its backend does not say."""
    try:
        return group._get_backend(group._device_types[0]).options._timeout
    except (AttributeError, RuntimeError):
        return None


def _side(leaders, is_src):
    """The leaders of a side, and the groups of ranks that hold what their leader has."""
    side = lib.LIERNE_MEGATRON_SIDE_SRC if is_src else lib.LIERNE_MEGATRON_SIDE_DST
    return (ranks_of(lib.lierne_megatron_leaders_get_ranks, leaders, side),
            groups_of(lib.lierne_megatron_leaders_get_groups, leaders, side))


class BridgeCommunicator:
    """Moves tensors between two modules on disjoint ranks, for pipeline schedules.

    Construction is collective over the world. dim_mapping: axes of "s", "b" and "h" (1, 0, 2), of 3-D
    tensors; of 2-D ones the batch axis is 0. Each operation first tells all boundary ranks the shapes,
    then each plans by itself if they are new. Shapes and tensors wait as long as the default process
    group does. Raises AssertionError (cp, dim_mapping), ValueError (dp sizes)."""

    def __init__(self, src_grid, dest_grid, dim_mapping=None, comm_dtype=None, src_module_name=None,
                 dest_module_name=None):
        self.src_grid, self.dest_grid, self.comm_dtype = src_grid, dest_grid, comm_dtype
        self.src_module_name, self.dest_module_name = src_module_name, dest_module_name
        for name, grid in (("Source", src_grid), ("Destination", dest_grid)):
            cp = dict(zip(grid.dim_names, grid.shape)).get("cp", 1)
            assert cp == 1, f"{name} grid CP size must be 1, got {cp}"
        self.dim_mapping = dim_mapping or {"s": 1, "b": 0, "h": 2}
        assert set(self.dim_mapping) == {"s", "b", "h"}, (
            f"dim_mapping must have keys 's', 'b', 'h', got {set(dim_mapping)}")
        assert set(self.dim_mapping.values()) <= {0, 1, 2}, (
            f"dim_mapping values must be 0, 1, or 2, got {list(dim_mapping.values())}")
        self.current_rank = dist.get_rank()
        self._read_leaders()
        self._sides = [[rank for group in groups for rank in group]
                       for groups in (self._src_groups, self._dest_groups)]
        members = sorted({*self._sides[0], *self._sides[1]})
        self._members, self._plans = members, {}
        self.src_grid_broadcast_pg, _ = dist.new_subgroups_by_enumeration(
            self._src_groups, backend=src_grid.backend)
        self.dest_grid_broadcast_pg, _ = dist.new_subgroups_by_enumeration(
            self._dest_groups, backend=dest_grid.backend)
        self._group = dist.new_group(members, backend="gloo",
                                     timeout=_timeout_of(dist.group.WORLD))  # shapes only

    def _read_leaders(self):
        handle = _leaders(self.src_grid, self.dest_grid)
        self.src_tp_leaders, self._src_groups = _side(handle, True)
        self.dest_tp_leaders, self._dest_groups = _side(handle, False)
        self.src_local_leader_rank = self.get_leader_rank(self.src_grid, True)[1]
        self.dest_local_leader_rank = self.get_leader_rank(self.dest_grid, False)[1]
        self.src_grid_broadcast_ranks = self._mine(self._src_groups)
        self.dest_grid_broadcast_ranks = self._mine(self._dest_groups)
        self.comm_map = {}
        for grid in (self.src_grid, self.dest_grid):
            for rank in range(grid.rank_offset, grid.rank_offset + grid.size):
                self.comm_map[rank] = self._info(handle, rank)

    def get_leader_rank(self, grid, is_src):
        """The leader of each dp rank of a grid, as source or destination, and this rank's (None: it is
        not in the grid)."""
        leaders, _ = _side(_leaders(grid, grid), is_src)
        replicas = _replicas(grid)
        mine = next((leaders[i] for i, ranks in enumerate(replicas) if self.current_rank in ranks), None)
        return leaders, mine

    def get_boundary_pp_stage_ranks(self, grid, is_src):
        """The ranks of each dp rank in the last pipeline stage of a source, the first of a destination."""
        return _side(_leaders(grid, grid), is_src)[1]

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
        """Frees the plans and this rank's groups."""
        self._plans.clear()
        for group in (self.src_grid_broadcast_pg, self.dest_grid_broadcast_pg, self._group):
            destroy_group(group)
        self.src_grid_broadcast_pg = self.dest_grid_broadcast_pg = self._group = None
