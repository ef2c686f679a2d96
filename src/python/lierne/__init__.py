"""lierne: moves tensors between parallel layouts that share the same ranks, forward and backward,
exactly.

    context = lierne.Context.node()                       # under torchrun, mpirun or srun
    encoder = lierne.Grid({"tp": 2, "dp": 4})             # the first dim varies fastest
    llm = lierne.Grid({"tp": 2, "cp": 2, "dp": 2})
    bridge = lierne.Bridge(context, encoder, llm, (8, 1024, 1024), "f32", sequence_axis=1)
    out = bridge.forward(activations)                     # every step
    gradient = bridge.adjoint(gradient_of_out)

Everything is planned and executed by the C library; its headers are the manual. Errors are exceptions
with the C message (lierne.errors). For PyTorch there is lierne.torch."""
from lierne._binding import VERSION as __version__
from lierne._library import Error, lib, text
from lierne import errors, hangs, schedules
from lierne.bridges import Bridge, BridgeRoutes, Megatron
from lierne.collectives import (all_gather, all_reduce, all_to_all, barrier, broadcast, partition_bisect,
                                partition_morton,
                                partition_morton_codes, partition_split, reduce_scatter)
from lierne.config import Config, Diagnostic, check
from lierne.context import Context, World
from lierne.deltas import Delta
from lierne.digest import check_digests, digest
from lierne.graph_routes import GraphRoutes
from lierne.grid import (At, DenseHalo, Grid, Layout, Partial, Placement, Replicate, SegmentShard, SegmentZigzag,
                         Shard, ShardRows, ShardSegments, ShardZigzag)
from lierne.packing import Packing, find_image_runs
from lierne.plan import Coalesced, Plan, Request, Route, check_plans
from lierne.planners import (Graph, Halo, Migration, PackedBridge, Redistribute, References, SetBox, TensorSet,
                             TensorSetRoutes, check_set)
from lierne.samples import Assignment, Samples, SamplesLists
from lierne.simulate import simulate
from lierne.window import Window

# The declarations were made from the headers of this version; another library is another ABI.
if text(lib.lierne_version()) != __version__:
    raise ImportError(f"the package is of lierne {__version__}, the library that it loaded of "
                      f"{text(lib.lierne_version())}")

__all__ = ["Assignment", "At", "Bridge", "BridgeRoutes", "Coalesced", "Config", "Context", "Delta", "DenseHalo", "Diagnostic",
           "Error", "Graph", "GraphRoutes", "Grid", "Halo", "Layout", "Megatron", "Migration", "PackedBridge",
           "Packing",
           "Partial", "Placement", "Plan", "Redistribute", "References", "Replicate", "Request", "Route",
           "Samples", "SamplesLists", "SegmentShard", "SegmentZigzag", "SetBox", "Shard", "ShardRows", "ShardSegments",
           "ShardZigzag", "TensorSet", "TensorSetRoutes", "Window", "World", "all_gather", "all_reduce",
           "all_to_all", "barrier", "broadcast", "check", "check_digests", "check_plans", "check_set", "digest", "errors",
           "find_image_runs", "hangs", "partition_bisect", "partition_morton", "partition_morton_codes",
           "partition_split", "reduce_scatter", "schedules", "simulate"]
