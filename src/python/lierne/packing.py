"""Packed sequences: samples of different lengths along one axis, in layouts that change with every
microbatch (lierne/packing.h is the manual).

    packing = lierne.Packing(cu_seqlens, align=2 * cp)
    zigzag = lierne.Layout(grid, (T, hidden), "bf16", {"cp": lierne.SegmentZigzag(0)}, packing=packing)
    whole = lierne.Layout(grid, (T, hidden), "bf16", {"cp": lierne.Shard(0)}, packing=packing)
    plan = lierne.Redistribute(context, zigzag, whole, max_segments=4096, max_rows=65536)
    plan.update(next_packing, next_packing)      # every microbatch, on each rank alone
"""
from __future__ import annotations

import numbers
import typing
import zlib

import numpy as np

from lierne._library import Spec, call, choice, ffi, lib, sized
from lierne._types import Array, Integers

if typing.TYPE_CHECKING:
    from lierne.plan import Plan

_STORES = {"padded": lib.LIERNE_PACKING_STORE_PADDED, "unpadded": lib.LIERNE_PACKING_STORE_UNPADDED}
_PADDINGS = {"zero": lib.LIERNE_PADDING_ZERO, "keep": lib.LIERNE_PADDING_KEEP}
_ORDERS = {"sample_major": lib.LIERNE_ROW_ORDER_SAMPLE_MAJOR, "sequence_major": lib.LIERNE_ROW_ORDER_SEQUENCE_MAJOR}
_RUN = ("image", "row", "segment", "position", "length")


def on_host(what: str, values: typing.Any) -> Array:
    """Integers as an int64 array; other numbers, and those of a GPU, are a TypeError."""
    if getattr(getattr(values, "device", None), "type", "cpu") != "cpu":
        raise TypeError(f"{what} is on {values.device}, must be in memory of the host: a copy would wait for the "
                        "stream")
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} has dtype {array.dtype}, must have integers")
    return array.astype(np.int64, copy=False)


def _boundaries(what, values):
    array = on_host(what, values)
    if array.ndim != 1 or array.size < 1:
        raise ValueError(f"{what} has shape {array.shape}, must have one axis with at least one boundary")
    return array


def segments_of(cu_seqlens: Integers) -> Spec:
    """The C segments of boundaries."""
    boundaries = _boundaries("cu_seqlens", cu_seqlens)
    return Spec("lierne_segments", nsegments=len(boundaries) - 1, cu_seqlens=boundaries)


def _owners(owner, n):
    """Owners of no segments are a list, too: NULL says that no dim is ShardSegments."""
    return [0] if sized("owner", owner, n) is not None and n == 0 else owner


class Packing:
    """Segments, and how a layout packs them. cu_seqlens: boundaries of the tokens, 0 first;
    cu_seqlens_padded: of the padded sequence, or align: padded lengths are its multiples. lead, owner,
    order: as in lierne_packing, one entry per segment. store: "padded" or "unpadded"; padding: "zero" or
    "keep"; row_order: "sample_major" or "sequence_major". Arrays are read when a layout is made or a plan
    is updated, and must be in memory of the host."""

    def __init__(self, cu_seqlens: Integers, cu_seqlens_padded: typing.Optional[Integers] = None, align: int = 0,
                 lead: typing.Optional[Integers] = None, owner: typing.Optional[Integers] = None,
                 order: typing.Optional[Integers] = None, store: typing.Literal["padded", "unpadded"] = "padded",
                 padding: typing.Literal["zero", "keep"] = "zero",
                 row_order: typing.Literal["sample_major", "sequence_major"] = "sample_major") -> None:
        self._segments = segments_of(cu_seqlens)
        n = self._segments.at.nsegments
        if cu_seqlens_padded is not None:
            cu_seqlens_padded = sized("cu_seqlens_padded", _boundaries("cu_seqlens_padded", cu_seqlens_padded),
                                      n + 1)
        self._packing = Spec("lierne_packing", cu_seqlens_padded=cu_seqlens_padded, align=align,
                             lead=sized("lead", lead, n), owner=_owners(owner, n),
                             order=sized("order", order, n), store=choice("store", store, _STORES),
                             padding=choice("padding", padding, _PADDINGS),
                             row_order=choice("row_order", row_order, _ORDERS))

    @property
    def nsegments(self) -> int:
        return self._segments.at.nsegments

    @property
    def tokens(self) -> int:
        """The number of tokens of all segments."""
        return self._segments.at.cu_seqlens[self.nsegments]

    def __repr__(self) -> str:
        return f"<Packing of {self.nsegments} segments, {self.tokens} tokens>"


def read_runs(runs: Integers) -> Array:
    """Runs as [n, 5], the fields of lierne_image_run: from such an array or a list of rows. There may be
    thousands in every microbatch, so that no run becomes an object of Python."""
    rows = on_host("runs", runs)
    if rows.size and (rows.ndim != 2 or rows.shape[1] != len(_RUN)):
        raise ValueError(f"runs have shape {rows.shape}, must have 5 columns: {', '.join(_RUN)}")
    return rows.reshape(-1, len(_RUN))


def find_image_runs(cu_seqlens: Integers, cu_image_rows: Integers, ids: Integers, image_id: int) -> Array:
    """The runs of token ids, int64 [n, 5] (image, row, segment, position, length): rows of all images fill
    the tokens whose id is image_id, in order (lierne_image_runs_find). Pure. Raises errors.CountError if
    there are more or fewer such tokens than rows."""
    segments, images = segments_of(cu_seqlens), segments_of(cu_image_rows)
    ids = np.ascontiguousarray(on_host("ids", ids))
    if ids.ndim != 1:
        raise ValueError(f"ids have shape {ids.shape}, must have one axis")
    if not isinstance(image_id, numbers.Integral):
        raise TypeError(f"image_id is {image_id!r}, must be an integer")
    sized("ids", ids, segments.at.cu_seqlens[segments.at.nsegments])
    most = int((ids == image_id).sum())
    runs, count = np.empty((max(most, 1), len(_RUN)), np.int64), ffi.new("size_t *")
    call(lib.lierne_image_runs_find, ffi.cast("lierne_image_run *", runs.ctypes.data), most, count, segments.at,
         images.at, ffi.cast("int64_t *", ids.ctypes.data), image_id)
    return runs[:count[0]].copy()


def update_segments(plan: Plan, src: typing.Optional[Packing], dst: typing.Optional[Packing],
                    images: typing.Optional[Packing] = None, runs: typing.Any = None) -> None:
    """lierne_plan_update_segments of packings."""
    plan.context._check_unused("the plan", plan)
    described = dst if dst is not None else src
    if not isinstance(described, Packing):
        raise TypeError(f"{described!r} is no Packing: give src, dst or both")
    fields = {} if runs is None else {"images": images._segments, "runs": runs, "nruns": len(runs)}
    update = Spec("lierne_segments_update", segments=described._segments, src=src and src._packing,
                  dst=dst and dst._packing, **fields)
    plan.context._call(lib.lierne_plan_update_segments, plan._alive(), update.at)
    packings = [packing._packing for packing in (src, dst) if packing]
    plan.described = _checksum([packing.at.align for packing in packings], update, described._segments, *packings,
                               *([] if images is None else [images._segments]))


def _checksum(numbers, *specs):
    """A number of a description, equal where all its numbers are."""
    kept = [entry for spec in specs for entry in spec.kept if not isinstance(entry, Spec)]
    parts = [entry.tobytes() if isinstance(entry, np.ndarray) else bytes(ffi.buffer(entry)) for entry in kept]
    return zlib.crc32(repr([numbers, *map(zlib.crc32, parts)]).encode())
