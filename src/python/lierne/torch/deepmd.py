"""deepmd-kit's border op over lierne: ghost atoms' features in LAMMPS' swaps, differentiable."""
import ctypes

import numpy as np
import torch

import lierne
from lierne._arrays import dtype_name
from lierne.torch import Operation
from lierne.torch._agree import largest

_NEW_LISTS = 2  # a rank's news; 1: only dtype or width is new


def _lists(send_list, send_num):
    """The rows of each swap: given as tensors, or as LAMMPS has them, as addresses of int arrays."""
    if not isinstance(send_list, torch.Tensor):
        return [np.asarray(rows, np.int64) for rows in send_list]
    arrays = []
    for address, count in zip(send_list.tolist(), send_num.tolist()):
        rows = (ctypes.c_int * count).from_address(address) if count else ()
        arrays.append(np.array(rows, np.int64))
    return arrays


def border_op(send_list, send_proc, recv_proc, send_num, recv_num, features, communicator, nlocal,
              nghost):
    """Fills the ghost rows of features: arguments and results as torch.ops.deepmd.border_op.

    send_list: int64 tensor with the address of each swap's int array, or a list of row lists. The
    other tensors are on the CPU. features: (nlocal + nghost, width). communicator: a Context of
    lierne.torch.context in place of MPI's communicator. Returns [features with ghosts]; the gradient
    of a ghost is added to the row that it copies. Collective. The plan of the latest lists is kept
    with the context. Ranks tell each other in one element per call whether theirs are new: if any has
    new ones, all plan again. Raises as lierne.Halo."""
    lists = _lists(send_list, send_num)
    nlocal, nghost = int(nlocal), int(nghost)
    numbers = [t.tolist() for t in (send_proc, recv_proc, recv_num)]
    dtype, row_shape = features.dtype, tuple(features.shape[1:])
    signature = (nlocal, nghost, *map(tuple, numbers), *(rows.tobytes() for rows in lists))
    kept = communicator.__dict__.setdefault("border_plans", {})
    news = _NEW_LISTS if kept.get("signature") != signature else (dtype, row_shape) not in kept
    news = largest(communicator, news, features.device)
    if news == _NEW_LISTS:
        kept.clear()
        kept["signature"] = signature
    if news:
        kept[dtype, row_shape] = Operation(lierne.Halo(
            communicator, nlocal, nghost, numbers[0], numbers[1], lists, numbers[2],
            dtype_name(dtype), row_shape=row_shape))
    return [kept[dtype, row_shape](features)]
