"""Classes with the interface of Megatron-LM's HyperCommGrid, ColocatedBridgeCommunicator and
BridgeCommunicator (as of September 2026, with destination cp), over lierne: replace the imports and keep
the code. docs/start-megatron.md lists every member.

What differs: tensors do not travel over the process groups of a bridge, which are there for callers; a
pair of grids whose dp ranks do not line up is served correctly; BridgeCommunicator moves tensors between
disjoint grids only, and from every rank of a boundary stage. Messages of errors begin as Megatron-LM's do.
What lierne can beyond is behind keywords that Megatron-LM does not have."""
from lierne.megatron.bridge import BridgeCommunicator, CommRole, RankCommInfo
from lierne.megatron.colocated import BridgeDirection, ColocatedBridgeCommunicator, SliceInfo
from lierne.megatron.grid import HyperCommGrid

__all__ = ["BridgeCommunicator", "BridgeDirection", "ColocatedBridgeCommunicator", "CommRole",
           "HyperCommGrid", "RankCommInfo", "SliceInfo"]
