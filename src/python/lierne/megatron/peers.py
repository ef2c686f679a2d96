"""What BridgeCommunicator sends to the dp ranks of the other side: parts of a tensor and their shapes."""
from __future__ import annotations

import typing

import torch
import torch.distributed as dist

from lierne._arrays import dtype_name, dtype_number, dtype_of_number
from lierne.megatron.grid import share

_TORCH = {dtype_name(getattr(torch, name)): getattr(torch, name)
          for name in ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int8", "uint8")}
_AXES = 3  # of a header: [dtype, number of axes, sizes]


class Peers:
    """The parts of tensors that dp ranks give each other. Its members have Megatron-LM's names."""

    @property
    def _batch_dim(self):
        """The axis that is divided among dp ranks."""
        return 0 if self.tensor_ndim == 2 else self.dim_mapping["b"]

    def _axis_of(self, ndim):
        """The same of a tensor with ndim axes, whatever the constructor was given."""
        return 0 if ndim == 2 else self.dim_mapping["b"]

    @staticmethod
    def _as_per_peer_tensors(tensors, expected_count):
        """One tensor per peer, of one for all or a list. Raises ValueError."""
        if isinstance(tensors, torch.Tensor):
            return [tensors] * expected_count
        if len(tensors) != expected_count:
            raise ValueError(f"expected {expected_count} tensors for shape communication, got "
                             f"{len(tensors)}")
        return list(tensors)

    def _split_sizes(self, tensor, num_splits):
        """The sizes of the parts: those of the tensor's attribute _mimo_bridge_split_sizes, per part or per
        sample, if it has one; else torch.tensor_split's. Raises ValueError."""
        if num_splits <= 0:
            raise ValueError(f"num_splits must be positive, got {num_splits}")
        batch = tensor.shape[self._axis_of(tensor.dim())]
        sizes = getattr(tensor, "_mimo_bridge_split_sizes", None)
        if sizes is None or num_splits == 1:
            return share(batch, num_splits)
        sizes = [int(size) for size in sizes]
        if len(sizes) % num_splits:
            raise ValueError(f"bridge split metadata has {len(sizes)} entries, but communication requires "
                             f"{num_splits} splits")
        if sum(sizes) != batch:
            raise ValueError(f"bridge split metadata sums to {sum(sizes)}, but tensor batch dimension is "
                             f"{batch}")
        samples = len(sizes) // num_splits
        return [sum(sizes[i * samples:(i + 1) * samples]) for i in range(num_splits)]

    def _split_tensor_at_batch_dim(self, aggregated_tensor, num_splits):
        """The parts of a tensor for num_splits peers, contiguous. Raises ValueError."""
        sizes = self._split_sizes(aggregated_tensor, num_splits)
        parts = torch.split(aggregated_tensor, sizes, dim=self._axis_of(aggregated_tensor.dim()))
        return [part.contiguous() for part in parts]

    def _run_batched_payload_p2p(self, tensors, peers, *, op):
        """Sends or receives (op "send", "recv") one tensor per peer in bridge_pg, in one batch, and waits.
        For callers: this class executes routes. Raises ValueError."""
        if len(tensors) != len(peers):
            raise ValueError(f"expected one payload tensor per peer, got {len(tensors)} tensors for "
                             f"{len(peers)} peers")
        if op not in ("send", "recv"):
            raise ValueError(f"unsupported bridge P2P operation: {op}")
        operation = dist.isend if op == "send" else dist.irecv
        ops = [dist.P2POp(operation, tensor, peer, self.bridge_pg) for tensor, peer in zip(tensors, peers)]
        for work in dist.batch_isend_irecv(ops) if ops else ():
            work.wait()


class Headers:
    """Shapes and dtypes in flight between dp ranks, each from one rank of a dp rank to all of another: what
    a rank needs to know to plan, in one small message, of which no sender waits for an answer."""

    def __init__(self, group: typing.Any, tag: int) -> None:
        self._group, self._tag, self._sent, self._works = group, tag, [], []

    def _post(self, function, header, peer, direction):
        self._works.append(function(header, peer, group=self._group, tag=self._tag + direction))

    def send(self, shape: typing.Sequence[int], dtype: torch.dtype, peers: typing.Any,
             direction: typing.Any) -> typing.Any:
        sizes = list(shape) + [0] * (_AXES - len(shape))
        header = torch.tensor([dtype_number(dtype), len(shape), *sizes])
        self._sent.append(header)
        for peer in peers:
            self._post(dist.isend, header, peer, direction)

    def receive(self, peer: typing.Any, direction: typing.Any) -> typing.Any:
        """A function that gives (shape, dtype) once wait() has returned."""
        header = torch.empty(2 + _AXES, dtype=torch.int64)
        self._post(dist.irecv, header, peer, direction)

        def read():
            number, ndim, *sizes = header.tolist()
            return tuple(sizes[:ndim]), _TORCH[dtype_of_number(number)]
        return read

    def wait(self) -> None:
        for work in self._works:
            work.wait()
