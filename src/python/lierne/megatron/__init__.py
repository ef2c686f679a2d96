"""Classes with the interface of Megatron-LM's HyperCommGrid, ColocatedBridgeCommunicator and
BridgeCommunicator (as of August 2026), over lierne: replace the imports and keep the code.

What differs: tensors do not travel over the process groups of a bridge, which are there for callers;
a pair of grids whose dp ranks do not line up is served correctly; BridgeCommunicator moves tensors
between disjoint grids only. Messages of errors begin as Megatron-LM's do."""
from lierne.megatron.bridge import BridgeCommunicator, CommRole, RankCommInfo
from lierne.megatron.colocated import BridgeDirection, ColocatedBridgeCommunicator, SliceInfo
from lierne.megatron.grid import HyperCommGrid

__all__ = ["BridgeCommunicator", "BridgeDirection", "ColocatedBridgeCommunicator", "CommRole",
           "HyperCommGrid", "RankCommInfo", "SliceInfo"]
