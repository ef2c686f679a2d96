"""fairchem's graph-parallel all-to-all over lierne: the names of fairchem.core.common.parallelism's
graph_parallel_a2a, graph_partition and symm_halo, with the same arguments, fields and orders.

    from lierne.torch.fairchem import all_to_all_collect, build_gp_context, compute_a2a_partition, use
    use(lierne.torch.context(group=group, members=dist.get_process_group_ranks(group)))
    owner, mine = compute_a2a_partition(pos, len(pos), pos.device, size, rank, PartitionStrategy.SPATIAL)
    gp_ctx = build_gp_context(edge_index, owner, rank, size, node_partition=mine)
    x_full = torch.cat([x, all_to_all_collect(x, gp_ctx)])    # edge_index_local indexes it

Which ranks: those of the keyword `context`, else of use(), else of fairchem's own graph-parallel group
where that is set up. Ranks are numbered within them. Where there are none, build_gp_context plans alone,
as fairchem's does: nothing is sent, and nothing can be collected. Planning happens in host memory."""
from __future__ import annotations

import dataclasses
import enum
import math
import sys
import typing

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.weak import WeakTensorKeyDictionary

import lierne
import lierne.torch
from lierne._arrays import dtype_name
from lierne.torch._agree import largest

if typing.TYPE_CHECKING:
    from lierne.context import Context

__all__ = ["AllToAllCollect", "GPContext", "PartitionStrategy", "SymmHaloPlan", "all_to_all_collect",
           "build_gp_context", "build_symm_plan", "close", "compute_a2a_partition", "partition_atoms_index_split",
           "partition_atoms_spatial", "prepare_symm_plan", "register_plan", "symm_all_to_all_collect",
           "symm_halo_collect", "use"]


class PartitionStrategy(enum.Enum):
    """How rows are shared among ranks."""
    INDEX_SPLIT = "index_split"
    SPATIAL = "spatial"


@dataclasses.dataclass
class GPContext:
    """What a rank sends and receives per layer. Tensors are int64, on the device of rank_assignments."""
    rank: int  # in the graph-parallel group, as all ranks here
    world_size: int
    total_local_atoms: int
    send_indices: torch.Tensor  # own rows, by receiver, and then by their number in the graph
    send_counts: torch.Tensor  # rows to each rank
    recv_counts: torch.Tensor  # rows from each rank
    edge_index_local: torch.Tensor  # (2, edges): own rows, then total_local_atoms + received row
    send_splits: list  # the counts as ints
    recv_splits: list
    total_recv: int
    local_edge_idx: torch.Tensor  # edges whose source is an own row
    remote_edge_idx: torch.Tensor  # the others
    rank_assignments: torch.Tensor  # the rank that owns each row, as given
    symm_plan: "SymmHaloPlan" = None  # of prepare_symm_plan


@dataclasses.dataclass
class SymmHaloPlan:
    """Where this rank's rows lie in every rank's buffers. Offsets and capacities are in rows; the same
    capacities on all ranks. lierne needs none of it."""
    world_size: int
    send_counts: list
    recv_counts: list
    fwd_write_offsets: list  # in the buffer of what each rank receives
    bwd_write_offsets: list  # in that of the gradients of what each rank sends
    total_send: int
    total_recv: int
    fwd_capacity: int
    bwd_capacity: int
    plan_id: int = -1  # of register_plan


_used, _groups = [None], {}
_exchanges = WeakTensorKeyDictionary()  # of the send_indices that build_gp_context made


def use(context: Context) -> None:
    """Sets the lierne.torch.context of callers that name none, None for none; returns the one before."""
    before, _used[0] = _used[0], context
    return before


def close() -> None:
    """Closes the contexts that this module made for process groups. Collective over each of them."""
    while _groups:
        _groups.popitem()[1].close()


def _current(group=None):
    """The context of a process group; without one that of use(), or of fairchem's own group; or None."""
    if group is None and _used[0] is not None:
        return _used[0]
    utils = sys.modules.get("fairchem.core.common.gp_utils")
    if group is None and utils is not None and utils.initialized():
        group = utils.get_gp_group()
    if group is None:
        return None
    if group not in _groups:
        ranks = dist.get_process_group_ranks(group)
        if ranks != sorted(ranks):
            raise ValueError(f"the process group has its ranks in the order {ranks}, must be ascending")
        _groups[group] = lierne.torch.context(group=group, members=ranks)
    return _groups[group]


def partition_atoms_index_split(total_atoms: int, num_ranks: int, device: typing.Any) -> torch.Tensor:
    """The rank of each row, in contiguous shares: an int64 tensor on the device."""
    return torch.from_numpy(lierne.partition_split(total_atoms, num_ranks)).to(device, torch.int64)


def partition_atoms_spatial(pos: torch.Tensor, num_ranks: int, num_iters: int = 10) -> torch.Tensor:
    """The rank of each row along a Morton curve: an int64 tensor on the device of pos, (rows, 3). Rows of
    one cell are in row order on every device. Cells of 16-bit positions are computed in float32.
    num_iters has no effect, as in fairchem. Raises errors.InvalidError (a position that is not finite)."""
    del num_iters
    wide = pos.detach().to("cpu", pos.dtype if pos.element_size() > 2 else torch.float32)
    return torch.from_numpy(lierne.partition_morton(wide.numpy(), num_ranks)).to(pos.device, torch.int64)


def compute_a2a_partition(pos: torch.Tensor, total_atoms: int, device: typing.Any, world_size: int, rank: int,
                          strategy: typing.Any) -> typing.Any:
    """(the rank of each row, the rows of this rank in ascending order). strategy: a PartitionStrategy,
    this one or fairchem's. Pure. Raises ValueError and as the partitions."""
    if PartitionStrategy(getattr(strategy, "value", strategy)) is PartitionStrategy.SPATIAL:
        owner = partition_atoms_spatial(pos, world_size)
    else:
        owner = partition_atoms_index_split(total_atoms, world_size, device)
    return owner, (owner == rank).nonzero(as_tuple=True)[0]


class _Exchange:
    """Own rows -> received rows, of any dtype and shape. operation: of rows of one byte, which are direct
    because wider ones are faster so. order: None, or
    the local row of each own row of its plan, whose own rows are in ascending order."""

    def __init__(self, operation, context, shape, order=None):
        self._operation, self.context, self._shape, self._order = operation, context, shape, order

    def __call__(self, x):
        nlocal, received = self._shape
        if x.shape[0] != nlocal:
            raise ValueError(f"x has {x.shape[0]} rows; the context has {nlocal} rows of this rank")
        if x.is_complex():
            return torch.view_as_complex(self(torch.view_as_real(x)))
        row_shape = tuple(x.shape[1:])
        if 0 in row_shape:
            return x.new_empty((received, *row_shape))
        if dtype_name(x.dtype).startswith("bits"):  # has no sum, and no gradient
            rows = self(x.reshape(nlocal, math.prod(row_shape)).contiguous().view(torch.uint8))
            return rows.view(x.dtype).reshape(received, *row_shape)
        return self._operation(x if self._order is None else x[self._order])


def _array(tensor):
    return tensor.detach().cpu().numpy()


def _fault(owner, edges, rank, world_size, order, context):
    """What is wrong with this rank's arguments beyond what the planner finds; or None."""
    if edges.ndim != 2 or len(edges) != 2:
        return f"edge_index has shape {edges.shape}, must be (2, edges)"
    if order is not None and not np.array_equal(np.sort(order), np.flatnonzero(owner == rank)):
        return f"node_partition is not the list of the rows that rank_assignments gives to rank {rank}"
    if context is not None:
        members = context.members
        if (rank, world_size) != (members.index(context.rank), len(members)):
            return (f"rank is {rank} of {world_size}; the context has this rank as "
                    f"{members.index(context.rank)} of {len(members)}")
    return None


def _numbered(members, owner):
    """Owners as ranks of the world; those that are no rank of the group stay no rank."""
    inside = (owner >= 0) & (owner < len(members))
    return np.where(inside, np.asarray(members)[np.where(inside, owner, 0)], np.where(owner < 0, owner, -1))


def _plan_alone(rank, world_size, owner, edges):
    every = np.full(edges.shape[1], rank)
    return lierne.GraphRoutes(rank, world_size, owner, *edges, torch.uint8, edge_rank=every,
                              remote_targets=True).lists()


def _plan_together(context, owner, edges):
    """(lists, the Operation of rows of one byte)"""
    plan = lierne.Graph(context, owner, *edges, torch.uint8, algorithm="direct", remote_targets=True)
    return plan.lists(), lierne.torch.Operation(plan)


@torch.compiler.disable
def build_gp_context(edge_index: torch.Tensor, rank_assignments: torch.Tensor, rank: int, world_size: int,
                     node_partition: typing.Any = None, *,
                     context: typing.Optional[lierne.Context] = None) -> GPContext:
    """The GPContext of this rank's edges. Collective over the context (see above), without one pure.

    edge_index: (2, edges), source and target in rows of the graph. A target may belong to another rank
    if it is also a source: it is then the row that was received. rank_assignments: the rank that owns
    each row, the same on every rank. node_partition: the rows of this rank in the order of its features;
    ascending by default. context: a lierne.torch.context. Raises on every rank what one rank finds:
    errors.IndexRangeError, OwnerRangeError, EdgeTargetNotOwnedError, MismatchError; and ValueError for
    other arguments, errors.InvalidError on the ranks where they are right."""
    context = _current() if context is None else context
    owner, edges = _array(rank_assignments), _array(edge_index)
    order = None if node_partition is None else _array(node_partition)
    fault = _fault(owner, edges, rank, world_size, order, context)
    if context is not None and largest(context, fault is not None, rank_assignments.device) and not fault:
        raise lierne.errors.InvalidError("build_gp_context: another rank has wrong arguments")
    if fault is not None:
        raise ValueError(f"build_gp_context: rank {rank}: {fault}")
    operation, members = None, np.arange(world_size)
    if context is None:
        lists = _plan_alone(rank, world_size, owner, edges)
    else:
        members = np.asarray(context.members)
        lists, operation = _plan_together(context, _numbered(members, owner), edges)
    if order is not None:
        order = np.argsort(order)
        order = None if np.array_equal(order, np.arange(len(order))) else order
    made = _fields(lists, members, rank, rank_assignments, order)
    if operation is not None:
        _exchanges[made.send_indices] = _Exchange(
            operation, context, (made.total_local_atoms, made.total_recv),
            None if order is None else torch.from_numpy(order).to(rank_assignments.device))
    return made


def _fields(lists, members, rank, rank_assignments, order):
    device = rank_assignments.device

    def tensor(array):
        return torch.from_numpy(np.asarray(array, np.int64)).to(device)

    def dense(ranks, counts):
        found = np.zeros(len(members), np.int64)
        found[np.searchsorted(members, ranks)] = counts
        return found

    sends = dense(lists["receiver_ranks"], lists["receiver_counts"])
    receives = dense(lists["sender_ranks"], lists["sender_counts"])
    rows, edges = lists["receiver_rows"], np.stack([lists["edge_source"], lists["edge_target"]])
    if order is not None:
        rows = order[rows]
        edges = np.concatenate([order, np.arange(lists["nghosts"]) + len(order)])[edges]
    return GPContext(rank, len(members), lists["nowned"], tensor(rows), tensor(sends), tensor(receives),
                     tensor(edges), sends.tolist(), receives.tolist(), lists["nghosts"],
                     tensor(lists["local_edges"]), tensor(lists["remote_edges"]), rank_assignments)


def _exchange_of_lists(context, nlocal, send_indices, send_splits, recv_splits):
    """From lists that build_gp_context did not make: owners tell the receivers which rows they send."""
    tell = lierne.torch.Operation(lierne.all_to_all(context, send_splits, "i64", receive=recv_splits))
    rows, rank = _array(tell(send_indices)), np.repeat(np.asarray(context.members), recv_splits)
    operation = lierne.torch.References(context, nlocal, rank, rows, torch.uint8, algorithm="direct")
    return _Exchange(operation, context, (nlocal, len(rows)))


class AllToAllCollect:
    """all_to_all_collect from the lists of a GPContext. In fairchem a torch.autograd.Function; here the
    result has the same gradient."""

    @staticmethod
    def apply(x_local: torch.Tensor, send_indices: typing.Any, send_counts: typing.Any, recv_counts: typing.Any,
              gp_group: typing.Any, rank: int, world_size: int, precomputed_send_splits: typing.Any = None,
              precomputed_recv_splits: typing.Any = None, precomputed_total_recv: typing.Any = None) -> torch.Tensor:
        """The received rows of x_local. Collective. gp_group: a process group, a lierne.torch.context, or
        None as build_gp_context has it. Lists that build_gp_context did not make are planned at their
        first use. Raises ValueError, RuntimeError (no ranks), and as lierne.References."""
        exchange = _exchanges.get(send_indices)
        if exchange is None:
            splits = [given if given is not None else counts.tolist() for given, counts in
                      ((precomputed_send_splits, send_counts), (precomputed_recv_splits, recv_counts))]
            context = gp_group if isinstance(gp_group, lierne.Context) else _current(gp_group)
            if context is None:
                return _collect_alone(x_local, *splits)
            exchange = _exchange_of_lists(context, x_local.shape[0], send_indices, *splits)
            _exchanges[send_indices] = exchange
        return exchange(x_local)


def _collect_alone(x, send_splits, recv_splits):
    if any(send_splits) or any(recv_splits):
        raise RuntimeError(f"the context was built without other ranks, and needs {sum(recv_splits)} rows of "
                           "them: name the ranks with use(context) before build_gp_context")
    return x.new_empty((0, *x.shape[1:]))


def all_to_all_collect(x_local: torch.Tensor, gp_ctx: GPContext) -> torch.Tensor:
    """The rows that this rank's edges read and other ranks own, (total_recv, *features), in the order of
    edge_index_local. Collective. x_local: this rank's rows, of any dtype and shape of a row; the gradient
    of a received row is added at its owner, in one documented order (lierne/sparse.h)."""
    return AllToAllCollect.apply(x_local, gp_ctx.send_indices, gp_ctx.send_counts, gp_ctx.recv_counts, None,
                                 gp_ctx.rank, gp_ctx.world_size, gp_ctx.send_splits, gp_ctx.recv_splits,
                                 gp_ctx.total_recv)


_plans = {}  # of symm_halo_collect, by slot


def register_plan(plan: typing.Any, slot: typing.Any = 0) -> typing.Any:
    """Gives a SymmHaloPlan a number for symm_halo_collect."""
    _plans[slot] = plan
    return slot


@torch.compiler.disable
def build_symm_plan(send_counts: typing.Any, group: typing.Any) -> typing.Any:
    """The SymmHaloPlan of all ranks' counts. Collective. group: as AllToAllCollect's gp_group."""
    context = group if isinstance(group, lierne.Context) else _current(group)
    if context is None:
        raise RuntimeError("build_symm_plan: there is no process group, and no context of use()")
    rank, n = context.find_member(context.rank), len(context.members)
    gather = lierne.torch.Operation(lierne.all_gather(context, n, "i64"))
    counts = _array(gather(send_counts.to(torch.int64))).reshape(n, n)
    sent, received = counts.sum(1), counts.sum(0)
    return SymmHaloPlan(n, counts[rank].tolist(), counts[:, rank].tolist(), counts[:rank].sum(0).tolist(),
                        counts[:, :rank].sum(1).tolist(), int(sent[rank]), int(received[rank]),
                        int(received.max()), int(sent.max()))


def prepare_symm_plan(gp_ctx: GPContext) -> typing.Any:
    """Sets symm_plan of a GPContext. Collective."""
    exchange = _exchanges.get(gp_ctx.send_indices)
    gp_ctx.symm_plan = build_symm_plan(gp_ctx.send_counts, exchange and exchange.context)
    gp_ctx.symm_plan.plan_id = register_plan(gp_ctx.symm_plan)


def symm_halo_collect(x_local: torch.Tensor, send_indices: typing.Any, plan_id: typing.Any) -> torch.Tensor:
    """all_to_all_collect by the number of a SymmHaloPlan. Collective."""
    plan = _plans[int(plan_id)]
    return AllToAllCollect.apply(x_local, send_indices, None, None, None, None, plan.world_size, plan.send_counts,
                                 plan.recv_counts, plan.total_recv)


def symm_all_to_all_collect(x_local: torch.Tensor, gp_ctx: GPContext) -> torch.Tensor:
    """all_to_all_collect; sets symm_plan where it is None. Collective."""
    if gp_ctx.symm_plan is None:
        prepare_symm_plan(gp_ctx)
    return all_to_all_collect(x_local, gp_ctx)
