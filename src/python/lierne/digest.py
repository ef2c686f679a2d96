"""Digests: whether a tensor that was moved, by whatever means, has arrived as it was sent
(lierne/digest.h)."""
from __future__ import annotations

import typing

from lierne._arrays import borrow
from lierne._library import Spec, call, ffi, handle, lib
from lierne._types import Buffer
from lierne.planners import SetBox, set_fields

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Layout


def digest(layout: Layout, rank: int, data: typing.Optional[Buffer], key: int = 0, tensor: int = 0,
           peer_layout: typing.Optional[Layout] = None, peer: int = 0) -> typing.Tuple[int, int]:
    """(digest, elements): a number of 64 bits of the elements in a rank's buffer, and how many there are.

    data: the buffer of `rank` under `layout`, in host memory; None if that is empty. Without peer_layout
    of the elements that the rank has to count, so that the digests of all ranks of the world add up,
    modulo 2**64, to that of the tensor, the same in every layout. With it, of the elements that the
    rank owns under layout and `peer` under peer_layout: what the one had to give to the other. key: any
    number, the same on every rank; tensor: the number of the tensor; both below 2**64. Not collective.
    Raises ValueError and TypeError for a buffer that does not fit, errors.InvalidError and
    UnsupportedError (a PARTIAL dim)."""
    spec = Spec("lierne_digest_spec", layout=handle(layout, "layout"), rank=rank, key=key, tensor=tensor,
                peer=peer, peer_layout=peer_layout and handle(peer_layout, "layout"))
    found, elements = ffi.new("uint64_t *"), ffi.new("int64_t *")
    pointer, kept = borrow(data, layout.dtype, layout.shape(rank), False, "data")
    call(lib.lierne_digest_compute, found, elements, spec.at, pointer)
    del kept
    return found[0], elements[0]


def _borrow_all(what, arrays, layouts, rank):
    if len(arrays) != len(layouts):
        raise ValueError(f"{what} has {len(arrays)} arrays for {len(layouts)} tensors")
    return [borrow(array, layout.dtype, layout.shape(rank), False, f"{what}[{i}]")
            for i, (array, layout) in enumerate(zip(arrays, layouts))]


def check_digests(context: Context, src: typing.Sequence[Layout], dst: typing.Sequence[Layout],
                  out: typing.Collection[typing.Optional[Buffer]], data: typing.Collection[typing.Optional[Buffer]],
                  key: int = 0, boxes: typing.Optional[typing.Sequence[SetBox]] = None) -> None:
    """Checks that what every rank has in `out` is what the ranks of the source have in `data`.

    src, dst: the layouts of each tensor before and after. data, out: this rank's buffers of each tensor
    under src and dst, in host memory (TensorSet.views gives those of a set); None for an empty one. key:
    the same on every rank, below 2**64, another one for each step at best. boxes: those of a TensorSet, whose dst
    has tensors of its own; messages name these. Collective over the context;
    8 bytes per tensor and pair of ranks are sent. Raises, the same on every rank, errors.MismatchError,
    which names the tensor, the rank whose out is wrong and the rank whose part of it, and
    errors.InvalidError and others; on one rank alone ValueError and TypeError for a buffer that does
    not fit."""
    fields = set_fields(src, dst, boxes)
    sources = _borrow_all("data", data, src, context.rank)
    targets = _borrow_all("out", out, dst, context.rank)
    spec = Spec("lierne_digest_check_spec", key=key, **fields)
    pointers = [ffi.new("const void *[]", [pointer for pointer, _ in side]) for side in (targets, sources)]
    context._call(lib.lierne_digest_check, handle(context, "context"), spec.at, *pointers)
