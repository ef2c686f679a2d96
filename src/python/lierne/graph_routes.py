"""What one rank does in a graph exchange, without a context. The library's own planner runs in a
simulated world of this process, so that routes and lists are those of lierne.Graph."""
from __future__ import annotations

import typing
import zlib

import numpy as np

from lierne._arrays import dtype_name
from lierne._library import numbers
from lierne._types import DType, Direction, Integers, Report, Shape, Shapes
from lierne.context import World
from lierne.plan import ADJOINT, FORWARD, direction_of
from lierne.planners import Graph

if typing.TYPE_CHECKING:
    from lierne.plan import Route


class GraphRoutes:
    """The routes of one rank: pure, not collective. For programs that execute routes themselves
    (lierne.torch.Operation does), and to plan offline.

    rank, nranks: of the world. owner: the rank that owns each row of the graph. source, target: global
    rows of the edges of all ranks, the same on every rank. edge_rank: the rank that has each edge, by
    default the owner of its target. row_shape, remote_targets: as lierne.Graph. The forward is direct.
    Raises ValueError, and as lierne.Graph for edges of this rank."""

    def __init__(self, rank: int, nranks: int, owner: Integers, source: Integers, target: Integers, dtype: DType,
                 row_shape: Shape = (), edge_rank: typing.Optional[Integers] = None,
                 remote_targets: bool = False) -> None:
        if not 0 <= rank < nranks:
            raise ValueError(f"rank is {rank}, must be in 0 to {nranks - 1}")
        owner, source, target = (numbers("int64_t", name, rows)[1] for name, rows in
                                 (("owner", owner), ("source", source), ("target", target)))
        if edge_rank is None:
            edge_rank = _owners(owner, target, rank)
        edge_rank = numbers("int64_t", "edge_rank", edge_rank)[1]
        edges = self._edges(rank, nranks, owner, source, target, edge_rank)
        with World(nranks) as world:
            def plan(context):
                graph = Graph(context, owner, *edges[context.rank], dtype, row_shape, "direct",
                              remote_targets=remote_targets or context.rank != rank)
                return graph if context.rank == rank else None

            self._keep(world.run(plan)[rank])
        self.dtype, self.rank, self.nranks = dtype_name(dtype), rank, nranks
        arrays = zlib.crc32(b"".join(a.tobytes() for a in (owner, source, target, edge_rank)))
        self.identity = "graph", arrays, tuple(row_shape), self.dtype

    @staticmethod
    def _edges(rank, nranks, owner, source, target, edge_rank):
        """Of each rank. Of another one only edges that read rows of this rank, and as their targets
        those rows: where it sums does not matter here."""
        edges = []
        for other in range(nranks):
            mine = edge_rank == other
            if other != rank:
                rows = np.unique(source[mine & (_owners(owner, source, -1) == rank)])
                edges.append((rows, rows))
            else:
                edges.append((source[mine], target[mine]))
        return edges

    def _keep(self, plan):
        directions = FORWARD, ADJOINT
        self._lists = plan.lists()
        self._routes = {direction: plan.route(direction) for direction in directions}
        self._shapes = {direction: plan.shapes(direction) for direction in directions}
        self._reports = {direction: plan.report(direction) for direction in directions}

    def lists(self) -> Report:
        """As Graph.lists."""
        return self._lists

    def shapes(self, direction: Direction = "forward") -> Shapes:
        """The shapes of this rank's input and output."""
        return self._shapes[direction_of(direction)]

    def route(self, direction: Direction = "forward") -> Route:
        """The Route of a direction."""
        return self._routes[direction_of(direction)]

    def report(self, direction: Direction = "forward") -> Report:
        """The cost of one execution on this rank, as Plan.report."""
        return self._reports[direction_of(direction)]


def _owners(owner, rows, otherwise):
    """The owners of rows; `otherwise` for rows that the graph does not have."""
    inside = (rows >= 0) & (rows < len(owner))
    found = np.full(len(rows), otherwise, np.int64)
    found[inside] = owner[rows[inside]]
    return found
