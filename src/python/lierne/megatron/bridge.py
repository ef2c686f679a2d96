"""BridgeCommunicator: the modules on disjoint ranks.

Every rank of a boundary stage carries its part, directly to the ranks that need it: no leader, no
broadcast. A rank plans from what it knows: the samples of its own dp rank and of those that it exchanges
with. That is enough, because who sends what to whom follows from the grids and the samples of the two."""
from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import typing
import zlib

import torch
import torch.distributed as dist

import lierne
import lierne.torch
from lierne._library import Spec, ffi, lib, make
from lierne.megatron.grid import grid_of, groups_of, new_private_group, ranks_of, sizes_of
from lierne.megatron.peers import Headers, Peers
from lierne.torch._program import Program
from lierne.torch._route import Execution

_SIDES = ("source", "destination")


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


@dataclasses.dataclass
class _Data:
    """What one direction of a call moves here: per peer the shape of its part, the dtype, and the tensor
    where this rank sends."""
    shapes: list
    dtype: torch.dtype
    tensor: torch.Tensor = None


def _leaders(grid):
    """lierne_megatron_leaders of a grid. To leaders cp is a dim as any other, but the library, which has
    Megatron-LM's first form, rejects it by its name."""
    dims = {("cp ranks" if name == "cp" else name): size for name, size in sizes_of(grid).items()}
    plain = lierne.Grid(dims, grid.rank_offset, grid_of(grid).world_size)
    spec = Spec("lierne_bridge_spec", src=plain._handle, dst=plain._handle)
    return ffi.gc(make("lierne_megatron_leaders", lib.lierne_megatron_leaders_create, spec.at),
                  lib.lierne_megatron_leaders_destroy)


def _side(grid, is_src):
    """The leaders of a side, and the groups of ranks that hold what their leader has."""
    leaders = _leaders(grid)
    side = lib.LIERNE_MEGATRON_SIDE_SRC if is_src else lib.LIERNE_MEGATRON_SIDE_DST
    return (ranks_of(lib.lierne_megatron_leaders_get_ranks, leaders, side),
            groups_of(lib.lierne_megatron_leaders_get_groups, leaders, side))


def _planned(grid):
    """(the grid of a plan, the rank of the job for each of its): gtp_remat, whose ranks have samples of
    their own, is part of dp, for which the two must be neighbours."""
    sizes = sizes_of(grid)
    order = list(sizes)
    if "gtp_remat" in sizes:
        first, second = sorted(("gtp_remat", "dp"), key=order.index)
        order.remove(second)
        order.insert(order.index(first) + 1, second)
    dims = {}
    for name in order:
        planned = "dp" if name == "gtp_remat" else name
        dims[planned] = dims.get(planned, 1) * sizes[name]
    whole = grid_of(grid)
    span = grid.rank_offset, whole.world_size
    apart = lierne.Grid({name: sizes[name] for name in order}, *span)
    ranks = range(grid.rank_offset, grid.rank_offset + grid.size)
    return lierne.Grid(dims, *span), {rank: whole.rank(apart.coords(rank)) for rank in ranks}


def _renumbered(route, ranks):
    """A route with the ranks of the job in place of those of its plan."""
    def of(messages):
        return [dataclasses.replace(message, peer=ranks[message.peer]) for message in messages]
    stages = [dataclasses.replace(stage, sends=of(stage.sends), recvs=of(stage.recvs)) for stage in route.stages]
    return dataclasses.replace(route, rank=ranks[route.rank], stages=stages)


class BridgeCommunicator(Peers):
    """Moves tensors between two modules on disjoint ranks, for pipeline schedules.

    Construction is collective over the world. dim_mapping: axes of "s", "b" and "h" (1, 0, 2), of tensors
    with tensor_ndim 3; of 2-D ones the batch axis is 0. Where the destination has cp > 1, every cp rank
    gets the whole sequence, and gradients are summed over cp. skip_shape_exchange: a receiver gives the
    shape of what it gets (recv_shape, forward_shape), of dtype comm_dtype, and gradients have the shapes
    that were sent; not where the source has more dp ranks. requires_backward False: nothing is sent back,
    and calls for it do nothing. microbatch_id and the like are for messages of errors. Each operation
    first tells the shapes; a rank plans when they are new. Shapes and tensors wait as long as the
    default process group does. Raises AssertionError (cp, dim_mapping), ValueError (dp sizes).

    Beyond Megatron-LM: dp ranks of one receiver may send different numbers of samples, and get back the
    gradients of their own. output "sharded": a cp rank gets, and its gradient has, the rows that
    gradient_owner ("zigzag", "contiguous") gives to it, and nothing else travels; with "whole", rows of
    the gradient that another cp rank owns are not read."""

    _broadcast_pg_cache = {}
    _bridge_pg_cache = {}
    _made = itertools.count()

    def __init__(self, src_grid: typing.Any, dest_grid: typing.Any,
                 dim_mapping: typing.Optional[typing.Mapping[str, int]] = None,
                 comm_dtype: typing.Optional[torch.dtype] = None, src_module_name: typing.Optional[str] = None,
                 dest_module_name: typing.Optional[str] = None, tensor_ndim: int = 3,
                 skip_shape_exchange: bool = False, requires_backward: bool = True, *,
                 gradient_owner: str = "partial", output: str = "whole") -> None:
        self.src_grid, self.dest_grid, self.comm_dtype = src_grid, dest_grid, comm_dtype
        self.src_module_name, self.dest_module_name = src_module_name, dest_module_name
        self.skip_shape_exchange, self.requires_backward = skip_shape_exchange, requires_backward
        assert tensor_ndim in (2, 3), f"tensor_ndim must be 2 or 3, got {tensor_ndim}"
        self.tensor_ndim, self.gradient_owner, self.output = tensor_ndim, gradient_owner, output
        cp = sizes_of(src_grid).get("cp", 1)
        assert cp == 1, f"Source grid CP size must be 1, got {cp}"
        self.dim_mapping = dim_mapping or {"s": 1, "b": 0, "h": 2}
        assert set(self.dim_mapping) == {"s", "b", "h"}, (
            f"dim_mapping must have keys 's', 'b', 'h', got {set(dim_mapping)}")
        assert set(self.dim_mapping.values()) <= {0, 1, 2}, (
            f"dim_mapping values must be 0, 1, or 2, got {list(dim_mapping.values())}")
        if not requires_backward and sizes_of(src_grid).get("pp", 1) > 1:
            raise ValueError("BridgeCommunicator: requires_backward=False needs a source with one pipeline "
                             f"stage, got {sizes_of(src_grid)['pp']}")
        self.current_rank, self.comm_map = dist.get_rank(), {}
        self._groups = [self.get_boundary_pp_stage_ranks(grid, is_src)
                        for grid, is_src in ((src_grid, True), (dest_grid, False))]
        self.src_grid_broadcast_ranks, self.dest_grid_broadcast_ranks = map(self._mine, self._groups)
        self.src_tp_leaders, self.src_local_leader_rank = self.get_leader_rank(src_grid, True)
        self.dest_tp_leaders, self.dest_local_leader_rank = self.get_leader_rank(dest_grid, False)
        if skip_shape_exchange and len(self.src_tp_leaders) > len(self.dest_tp_leaders):
            raise NotImplementedError("skipping bridge shape exchange does not yet support fan-in: without "
                                      "it, a receiver cannot know what each source dp rank sends")
        self.build_comm_map(self.src_tp_leaders, self.dest_tp_leaders)
        self._create_groups()
        self._read_cp()
        self._plans, self._sent, self._received = {}, collections.deque(), collections.deque()

    def _create_groups(self):
        backend = self.src_grid.backend
        self.src_grid_broadcast_pg = self._get_or_create_broadcast_pg(self._groups[0], backend)
        self.dest_grid_broadcast_pg = self._get_or_create_broadcast_pg(self._groups[1],
                                                                       self.dest_grid.backend)
        self.bridge_pg = self._get_or_create_bridge_pg(
            sorted({*self.src_tp_leaders, *self.dest_tp_leaders}), backend)
        sides = [set(itertools.chain(*groups)) for groups in self._groups]
        self._sides, members = sides, sorted(sides[0] | sides[1])
        self._data_pg = self._get_or_create_bridge_pg(members, backend, "data")
        self._group = self._get_or_create_bridge_pg(members, "gloo", "shapes")  # shapes only
        number = next(BridgeCommunicator._made)  # the same on all ranks: construction is collective
        self._tag = zlib.crc32(f"lierne/bridge/{number}".encode()) & 0x3fffff00

    def _read_cp(self):
        """dest_cp_reduce_pg: the group in which Megatron-LM sums the gradient; here the plan does."""
        self.dest_cp_size, self.dest_cp_reduce_pg = sizes_of(self.dest_grid).get("cp", 1), None
        if self.dest_cp_size > 1 and self.is_current_rank_in_grid(self.dest_grid):
            if grid_of(self.dest_grid).coords(self.current_rank).get("tp", 0) == 0:
                self.dest_cp_reduce_pg = self.dest_grid._pgs.get("cp")

    @classmethod
    def _get_or_create_broadcast_pg(cls, ranks_list, backend=None):
        """The groups of these ranks, of which bridges share one set."""
        key = str(sorted(map(tuple, ranks_list))), backend
        if key not in cls._broadcast_pg_cache:
            cls._broadcast_pg_cache[key], _ = dist.new_subgroups_by_enumeration(ranks_list, backend=backend)
        return cls._broadcast_pg_cache[key]

    @classmethod
    def _get_or_create_bridge_pg(cls, ranks, backend=None, purpose=None):
        """The group of these ranks for a purpose, which bridges share."""
        key = str(sorted(ranks)), backend, purpose
        if key not in cls._bridge_pg_cache:
            cls._bridge_pg_cache[key] = new_private_group(sorted(ranks), backend)
        return cls._bridge_pg_cache[key]

    @classmethod
    def destroy_broadcast_pgs(cls) -> None:
        """Destroys the broadcast groups of all bridges that the rank is in."""
        _destroy_all(cls._broadcast_pg_cache)

    @classmethod
    def destroy_bridge_pgs(cls) -> None:
        """Destroys the groups over which bridges move data and shapes, and bridge_pg. Ends all bridges."""
        _destroy_all(cls._bridge_pg_cache)

    def get_leader_rank(self, grid: typing.Any, is_src: bool) -> typing.List[int]:
        """The leader of each dp rank of a grid, as source or destination, and this rank's (None: it is
        not in the grid)."""
        leaders, _ = _side(grid, is_src)
        inside = [name for name in grid.dim_names if name not in ("dp", "gtp_remat")]
        mine = (leader for leader in leaders for ranks in grid._gen_rank_enum(inside)
                if leader in ranks and self.current_rank in ranks)
        return leaders, next(mine, None)

    def get_boundary_pp_stage_ranks(self, grid: typing.Any, is_src: bool) -> typing.Any:
        """The ranks of each dp rank in the last pipeline stage of a source, the first of a destination."""
        groups = _side(grid, is_src)[1]
        if sizes_of(grid).get("cp", 1) > 1:  # Megatron-LM lists tp as the slower one
            whole = grid_of(grid)
            for group in groups:
                group.sort(key=lambda rank: [whole.coords(rank)[name] for name in ("tp", "cp")])
        return groups

    def _mine(self, groups):
        return next((group for group in groups if self.current_rank in group), [])

    def is_current_rank_in_grid(self, grid: typing.Any) -> bool:
        """Whether this process is in a grid."""
        return grid.rank_offset <= self.current_rank < grid.rank_offset + grid.size

    def build_comm_map(self, src_tp_leaders: typing.List[int], dest_tp_leaders: typing.List[int]) -> None:
        """Sets comm_map: the role and the peers of every rank of the grids. Raises ValueError if neither
        number of leaders divides the other."""
        sides = src_tp_leaders, dest_tp_leaders
        counts = [len(side) for side in sides]
        if max(counts) % min(counts):
            raise ValueError(f"Source TP leaders count ({counts[0]}) and destination TP leaders count "
                             f"({counts[1]}) must be evenly divisible. One must be a multiple of the other.")
        for grid in (self.src_grid, self.dest_grid):
            for rank in range(grid.rank_offset, grid.rank_offset + grid.size):
                self.comm_map[rank] = RankCommInfo()
        peers = [[list(side[j] for j in _peers(i, counts[1 - k], counts[k])) for i in range(counts[1 - k])]
                 for k, side in enumerate(sides)]
        for leader, others in zip(dest_tp_leaders, peers[0]):
            self.comm_map[leader] = RankCommInfo(CommRole.RECEIVER, recv_from_ranks=others)
        for leader, others in zip(src_tp_leaders, peers[1]):
            if self.comm_map[leader].role is CommRole.MEMBER:
                self.comm_map[leader] = RankCommInfo(CommRole.SENDER, send_to_ranks=others)

    def send_forward(self, tensor_to_send: torch.Tensor, expect_backward: typing.Optional[bool] = True, *,
                     microbatch_id: typing.Optional[int] = None) -> typing.Any:
        """Sends activations. Called by the source's ranks. expect_backward False: no gradient of them
        will be received."""
        self._require(0, "send_forward")
        self._transfer({0: tensor_to_send}, (0,), ids=(microbatch_id,), remember=expect_backward)

    def recv_forward(self, recv_shape: typing.Any = None, *,
                     microbatch_id: typing.Optional[int] = None) -> torch.Tensor:
        """Receives activations, which require a gradient. Called by the destination's ranks."""
        self._require(1, "receive_forward")
        return self._transfer({}, (0,), recv_shape, (microbatch_id,))[0]

    def send_backward(self, grad_tensor: torch.Tensor, *, microbatch_id: typing.Optional[int] = None) -> typing.Any:
        """Sends gradients. Called by the destination's ranks."""
        self._require(1, "send_backward")
        self._transfer({1: grad_tensor}, (1,), ids=(microbatch_id,))

    def recv_backward(self, *, microbatch_id: typing.Optional[int] = None) -> torch.Tensor:
        """Receives gradients. Called by the source's ranks."""
        self._require(0, "receive_backward")
        return self._transfer({}, (1,), ids=(microbatch_id,))[1]

    def send_forward_recv_backward(self, input_tensor: torch.Tensor, grad_shape: typing.Any = None, *,
                                   forward_microbatch_id: typing.Optional[int] = None,
                                   backward_microbatch_id: typing.Optional[int] = None) -> typing.Any:
        """Both at once; the other side calls send_backward_recv_forward. Returns the gradient. grad_shape:
        as Megatron-LM, not needed."""
        self._require(0, "send_forward_recv_backward")
        return self._transfer({0: input_tensor}, (0, 1),
                              ids=(forward_microbatch_id, backward_microbatch_id))[1]

    def send_backward_recv_forward(self, grad_tensor: torch.Tensor, forward_shape: typing.Any = None, *,
                                   forward_microbatch_id: typing.Optional[int] = None,
                                   backward_microbatch_id: typing.Optional[int] = None) -> typing.Any:
        """Both at once; the other side calls send_forward_recv_backward. Returns the activations.
        forward_shape: of these, for skip_shape_exchange."""
        self._require(1, "send_backward_recv_forward")
        return self._transfer({1: grad_tensor}, (0, 1), forward_shape,
                              (forward_microbatch_id, backward_microbatch_id))[0]

    def _require(self, side, function):
        grid, rank = (self.src_grid, self.dest_grid)[side], self.current_rank
        if not self.is_current_rank_in_grid(grid):
            where = "" if "_recv_" in function else f"[Bridge Communicator] [{function}] "
            only = f"{function} is only allowed on {('src', 'dest')[side]} grid" if not where else "It has these"
            raise ValueError(f"{where}Rank {rank} is not in the {_SIDES[side]} grid. {only}: ranks "
                             f"{grid.rank_offset} to {grid.rank_offset + grid.size - 1}, not rank {rank}")

    def _transfer(self, given, directions, recv_shape=None, ids=(None, None), remember=True):
        """Executes the directions together (0 forward, 1 backward); what this rank receives, by direction.
        given: tensors by direction."""
        ids = dict(zip(directions, ids))
        if not self.requires_backward:
            directions = [d for d in directions if d == 0]
        if not directions or self.current_rank not in self._sides[0] | self._sides[1]:
            return {0: None, 1: None}
        side = self._side_of_rank()
        data = self._tell(side, given, directions, recv_shape, remember)
        flights = [(d, self._start(side, d, data[d], ids[d])) for d in directions]
        results = {0: None, 1: None, **{d: flight.finish(None) for d, flight in flights}}
        if side == 1 and 0 in directions:
            results[0].requires_grad_()
        return results

    def _side_of_rank(self):
        both = self._sides[0] & self._sides[1]
        if both:
            raise ValueError(f"BridgeCommunicator: both grids have ranks {sorted(both)}, must be disjoint; "
                             "ColocatedBridgeCommunicator moves tensors between grids of the same ranks")
        return int(self.current_rank in self._sides[1])

    def _tell(self, side, given, directions, recv_shape, remember):
        """What is known of each direction, after the shapes have been told."""
        headers, data, arriving = Headers(self._group, self._tag), {}, {}
        for d in directions:
            if d == side:
                data[d] = self._give(side, given[d], headers)
            elif self.skip_shape_exchange:
                data[d] = self._expect(d, recv_shape)
            else:
                arriving[d] = [headers.receive(group[self._place(side) % len(group)], d)
                               for group in self._peer_groups(side)]
        if side == 0 and 0 in data and self.skip_shape_exchange and remember and self.requires_backward:
            self._sent.append(_Data(data[0].shapes, data[0].dtype))
        headers.wait()
        for d, reads in arriving.items():
            shapes, dtypes = zip(*(read() for read in reads))
            data[d] = _Data(list(shapes), dtypes[0])
        if side == 1 and 0 in arriving and len(data[0].shapes) > 1 and torch.is_grad_enabled():
            self._received.append(self._counts(data[0]))
        return data

    def _give(self, side, tensor, headers):
        """The parts of a tensor that this rank's dp rank sends; tells their shapes."""
        if tensor is None:
            raise ValueError(f"BridgeCommunicator: rank {self.current_rank} of the {_SIDES[side]} has given "
                             "no tensor")
        if side == 0 and not self.requires_backward and tensor.requires_grad:
            raise ValueError("BridgeCommunicator: the tensor requires a gradient, which a bridge with "
                             "requires_backward=False does not bring: detach it")
        groups, shapes = self._peer_groups(side), []
        axis, whole = self._axis_of(tensor.dim()), self._whole_sequence(side, tensor.shape)
        for size, group in zip(self._sizes_to_send(side, tensor, len(groups)), groups):
            shapes.append((*whole[:axis], size, *whole[axis + 1:]))
            if not self.skip_shape_exchange:
                own = self._groups[side][self._dp_rank(side)]
                headers.send(shapes[-1], tensor.dtype, [peer for i, peer in enumerate(group) if
                                                        i % len(own) == self._place(side)], side)
        return _Data(shapes, tensor.dtype, tensor)

    def _sizes_to_send(self, side, tensor, npeers):
        """Of a gradient, what the source dp ranks sent, if this fits."""
        if side == 1 and self._received and not hasattr(tensor, "_mimo_bridge_split_sizes"):
            sizes = self._received.popleft()
            if sum(sizes) == tensor.shape[self._axis_of(tensor.dim())]:
                return sizes
        return self._split_sizes(tensor, npeers)

    def _expect(self, direction, recv_shape):
        """What comes, where no shapes are told. Raises ValueError, RuntimeError."""
        if direction == 1:
            if not self._sent:
                raise RuntimeError("no recorded forward shape for backward receive: send_forward with "
                                   "expect_backward comes first")
            return self._sent.popleft()
        if recv_shape is None or len(recv_shape) != self.tensor_ndim or min(recv_shape) < 0:
            raise ValueError(f"expected {self.tensor_ndim} non-negative receive dimensions, got {recv_shape}")
        return _Data([self._whole_sequence(1, recv_shape)], self.comm_dtype or torch.get_default_dtype())

    def _whole_sequence(self, side, shape):
        """The shape with the sequence that a rank of this side has a part of."""
        shape = list(shape)
        if side == 1 and self.output == "sharded":
            shape[self.dim_mapping["s"]] *= self.dest_cp_size
        return tuple(shape)

    def _counts(self, data):
        axis = self._axis_of(len(data.shapes[0]))
        return [shape[axis] for shape in data.shapes]

    def _dp_rank(self, side):
        return next(i for i, group in enumerate(self._groups[side]) if self.current_rank in group)

    def _place(self, side):
        return self._groups[side][self._dp_rank(side)].index(self.current_rank)

    def _peer_groups(self, side):
        """The dp ranks that this rank's exchanges with, as lists of ranks."""
        return [self._groups[1 - side][j] for j in self._peer_dp_ranks(side)]

    def _peer_dp_ranks(self, side):
        return _peers(self._dp_rank(side), len(self._groups[side]), len(self._groups[1 - side]))

    def _start(self, side, direction, data, microbatch):
        """Begins to move what is known; returns an Execution."""
        shapes, program = self._plan(side, data, direction)
        tensor = data.tensor
        if tensor is None:
            tensor = torch.empty(shapes[0], dtype=data.dtype, device=self._device())
        if tuple(tensor.shape) != tuple(shapes[0]):
            raise ValueError(f"BridgeCommunicator: the tensor has shape {tuple(tensor.shape)}; the bridge "
                             f"moves {tuple(shapes[0])} on this rank")
        name = ("forward", "backward")[direction] + (f" of microbatch {microbatch}" if microbatch is not None
                                                     else "")
        with torch.no_grad():
            source = tensor.detach().contiguous()
            return Execution(lambda: f"{name} of the bridge from {self.src_module_name} to {self.dest_module_name}",
                             program, source, program.new_output(source, shapes[1], 0),
                             self._tag + 64 + direction)

    @staticmethod
    def _device():
        nccl = dist.get_backend() == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def _plan(self, side, data, direction):
        """(shapes, Program) of a direction for what this rank knows: to it, dp ranks of the others are empty."""
        counts, peers = self._counts(data), list(self._peer_dp_ranks(side))
        key = data.shapes[0], data.dtype, tuple(counts), direction
        if key not in self._plans:
            axis, shape = self._axis_of(len(data.shapes[0])), list(data.shapes[0])
            shape[axis] = sum(counts)
            lists = [[0] * len(groups) for groups in self._groups]
            lists[side][self._dp_rank(side)] = shape[axis]
            for peer, count in zip(peers, counts):
                lists[1 - side][peer] = count
            (src, ranks), (dst, others) = map(_planned, (self.src_grid, self.dest_grid))
            ranks.update(others)
            routes = lierne.BridgeRoutes(
                next(own for own, rank in ranks.items() if rank == self.current_rank), src, dst, shape, data.dtype,
                batch_axis=axis, src_counts=lists[0], dst_counts=lists[1], **self._options())
            route = _renumbered(routes.route(direction), ranks)
            self._plans[key] = routes.shapes(direction), Program(route, self._data_pg)
        return self._plans[key]

    def _options(self):
        if self.gradient_owner == "partial" and self.output == "whole":
            return {}
        return {"sequence_axis": self.dim_mapping["s"], "owner": self.gradient_owner, "output": self.output,
                "storage": "compact" if self.output == "sharded" else "full"}

    def destroy(self) -> None:
        """Frees the plans. The groups are other bridges', too: destroy_bridge_pgs, destroy_broadcast_pgs."""
        self._plans.clear()
        self.src_grid_broadcast_pg = self.dest_grid_broadcast_pg = self.bridge_pg = None
        self._data_pg = self._group = None


def _peers(i, own, other):
    """The dp ranks of the other side with which dp rank i of `own` exchanges."""
    k = max(other // own, 1)
    return range(i * k, (i + 1) * k) if other >= own else range(i * other // own, i * other // own + 1)


def _destroy_all(cache):
    for group in cache.values():
        if group is not None and group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)
    cache.clear()
