"""Host memory of outputs, used again once no tensor refers to it: a system that hands out fresh pages takes
longer for them than a plan for what it writes there."""
import math

import numpy as np
import torch

LEAST = 1 << 18  # bytes: shorter ones come from what malloc keeps
KEPT = 2  # free blocks


class _Lease(np.ndarray):
    """A block that tensors refer to. It is free when the last of them lets it go."""
    free = None

    def __del__(self):
        if self.free is not None:
            self.free.append(self.base)
            del self.free[:-KEPT]


class Blocks:
    """The blocks of one kind of output, such as the results of an operation."""

    def __init__(self):
        self._free, self._most = [], 0

    def new_empty(self, shape, dtype):
        """As torch.empty."""
        count = math.prod(shape)
        nbytes = count * dtype.itemsize
        if nbytes < LEAST:
            return torch.empty(shape, dtype=dtype)
        self._most = max(self._most, nbytes)
        block = self._free.pop() if self._free else None
        if block is None or len(block) < nbytes:
            block = torch.empty(self._most, dtype=torch.uint8).numpy()
        lease = block.view(_Lease)
        lease.free = self._free
        memory = torch.frombuffer(lease, dtype=dtype, count=count).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(memory, 0, shape)  # no view, which nobody may change in place
