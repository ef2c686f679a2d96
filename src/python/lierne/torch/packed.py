"""Packed sequences of PyTorch (lierne/packing.h), described anew in every microbatch, without communication.

    move = lierne.torch.Packed(context, mesh, zigzag="cp", to="contiguous", shape=(None, hidden),
                               dtype=torch.bfloat16, max_segments=4096, max_rows=65536)
    move.update(packed_seq_params)           # every microbatch, on all ranks
    y = move(x)                              # x: [rows, hidden] or [rows, 1, hidden]
    z = move.back(y)

    bridge = lierne.torch.PackedBridge(context, encoder_mesh, llm_mesh, hidden, torch.bfloat16,
                                       max_segments=4096, max_rows=65536, max_runs=8192)
    bridge.update(packed_seq_params, images=cu_image_rows, image_owner=owner, input_ids=ids, image_id=151655)
    embeddings = bridge(image_rows, into=text_embeddings)
"""
from __future__ import annotations

import math
import typing

import numpy as np
import torch

import lierne
from lierne._library import arguments
from lierne._types import DType, DeviceMesh, Integers
from lierne.packing import on_host
from lierne.torch import Operation, before_update, checked, grid
from lierne.torch._memory import Blocks

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Grid


def _field(params, name):
    value = params.get(name) if isinstance(params, dict) else getattr(params, name, None)
    return None if value is None else on_host(name, value)


def packing_of(params: typing.Any, total_tokens: typing.Optional[int] = None, *, align: int = 0,
               lead: typing.Optional[Integers] = None, owner: typing.Optional[Integers] = None,
               order: typing.Optional[Integers] = None, store: typing.Literal["padded", "unpadded"] = "padded",
               padding: typing.Literal["zero", "keep"] = "zero",
               row_order: typing.Literal["sample_major", "sequence_major"] = "sample_major") -> lierne.Packing:
    """The Packing of an object or a dict with the fields of Megatron-LM's PackedSeqParams: cu_seqlens_q,
    cu_seqlens_q_padded (None: no padding), cu_seqlens_kv and cu_seqlens_kv_padded (equal, or None),
    total_tokens (rows of the padded sequence; what is behind the last boundary is padding). Raises
    ValueError, and TypeError for fields on a GPU. options: of Packing."""
    options = arguments(locals(), "params", "total_tokens")
    tokens, padded = _field(params, "cu_seqlens_q"), _field(params, "cu_seqlens_q_padded")
    if tokens is None:
        raise ValueError("cu_seqlens_q is None")
    for name, own in (("cu_seqlens_kv", tokens), ("cu_seqlens_kv_padded", padded)):
        other = _field(params, name)
        if own is not None and other is not None and not np.array_equal(own, other):
            raise ValueError(f"{name} differs from that of q: cross attention is two layouts")
    total = _field(params, "total_tokens") if total_tokens is None else total_tokens
    if total is not None:
        padded = tokens if padded is None else padded
        if total < padded[-1]:
            raise ValueError(f"total_tokens is {int(total)}, must be at least the last boundary, {padded[-1]}")
        if total > padded[-1]:  # a segment without tokens
            tokens, padded = np.append(tokens, tokens[-1]), np.append(padded, total)
    return lierne.Packing(tokens, padded, **options)


class Packed:
    """Moves [rows, ...] between two cuts of packed sequences over one dim of a mesh, both ways,
    differentiable. zigzag: the dim. to: "contiguous" (the padded sequence in equal shares) or "segments"
    (a share of each segment). shape: (None, sizes of the other axes). max_peers: as lierne.Redistribute.
    Construction is collective over the context; update is local, with equal arguments on all ranks between the same two calls. A gradient must
    not come after the next update: RuntimeError."""

    _TO = {"contiguous": lambda: lierne.Shard(0), "segments": lambda: lierne.SegmentShard(0)}

    def __init__(self, context: Context, mesh: typing.Union[Grid, DeviceMesh], zigzag: str,
                 to: typing.Literal["contiguous", "segments"], shape: typing.Sequence[typing.Optional[int]],
                 dtype: DType, max_segments: int, max_rows: int, max_peers: int = 0) -> None:
        if to not in self._TO:
            raise ValueError(f"to is {to!r}, must be one of {', '.join(self._TO)}")
        if tuple(shape[:1]) != (None,):
            raise ValueError(f"shape is {tuple(shape)}, must begin with None: rows are new in every microbatch")
        own, empty, self._rest = grid(mesh), lierne.Packing([0]), tuple(shape[1:])
        src, dst = (lierne.Layout(own, (0, *self._rest), dtype, {zigzag: placement}, packing=empty)
                    for placement in (lierne.SegmentZigzag(0), self._TO[to]()))
        capacity = {"max_segments": max_segments, "max_rows": max_rows, "max_peers": max_peers}
        self._plans = [lierne.Redistribute(context, *pair, **capacity) for pair in ((src, dst), (dst, src))]
        self._moves = [Operation(plan) for plan in self._plans]
        for move in self._moves:
            move.blocks = Blocks()  # every row of a buffer is written: padding is zero
        self.step = 0

    def update(self, params: typing.Any, total_tokens: typing.Optional[int] = None, *, align: int = 0,
               lead: typing.Optional[Integers] = None, owner: typing.Optional[Integers] = None,
               order: typing.Optional[Integers] = None, store: typing.Literal["padded", "unpadded"] = "padded",
               padding: typing.Literal["zero", "keep"] = "zero",
               row_order: typing.Literal["sample_major", "sequence_major"] = "sample_major") -> None:
        """The segments of the next microbatch: an object like PackedSeqParams (packing_of), or a Packing, which
        says all of these options itself."""
        options, packing = arguments(locals(), "params"), params
        if not isinstance(params, lierne.Packing):
            packing = packing_of(params, **options)
        elif any(value is not packing_of.__kwdefaults__.get(name) for name, value in options.items()):
            raise ValueError("params is a Packing: give the options to it")
        for plan, move in zip(self._plans, self._moves):
            plan.update(packing, packing)  # both take it, or the first one rejects it
            move.updated()
        self.step += 1

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x of the zigzag cut in the other one. All ranks call."""
        return self._apply(x, 0)

    def back(self, y: torch.Tensor) -> torch.Tensor:
        """y of the other cut in the zigzag one. All ranks call."""
        return self._apply(y, 1)

    def _apply(self, tensor, which):
        checked(tensor)
        shape = self._moves[which].shapes()[0]
        if tensor.numel() != math.prod(shape) or len(tensor) != shape[0]:
            raise ValueError(f"the input has shape {tuple(tensor.shape)}; the plan needs {tuple(shape)} on this rank")
        moved = before_update(self._moves[which](tensor.reshape(shape)), self)
        return moved.reshape(moved.shape[0], *tensor.shape[1:])


class PackedBridge:
    """Image rows of an encoder to their tokens in an LLM's packed sequence, which its dims cut; gradients
    back. src, dst: meshes or grids; images lie on the encoder's dim src_dim by image_owner, segments on the
    LLM's dst_dim by segment_owner, and each segment is cut in zigzag chunks over cut. A dim that is not there,
    or of size 1, needs no owner. Of pipeline stages (dim pp) the encoder's last has the images, the LLM's first gets
    them. partial: names of dims of dst whose ranks each have a contribution to the
    gradient (as tensor parallelism without a sum). max_peers: as lierne.Redistribute. Construction is collective over the context; update is
    local, with equal arguments on all ranks between the same two calls. After it, `tokens` is the number of the
    token in each row of this rank's output, -1 for padding (to cut labels and positions alike), and `mask` says
    which rows are image rows."""

    tokens: torch.Tensor
    mask: torch.Tensor

    def __init__(self, context: Context, src: typing.Union[Grid, DeviceMesh], dst: typing.Union[Grid, DeviceMesh],
                 hidden: int, dtype: DType, max_segments: int, max_rows: int, max_runs: int, src_dim: str = "dp",
                 dst_dim: str = "dp", cut: str = "cp", partial: typing.Sequence[str] = (),
                 allow_unused: bool = False, allow_repeat: bool = False, max_peers: int = 0) -> None:
        self._grid, self._rank, self._hidden, self._dtype = grid(dst), context.rank, hidden, dtype
        own = grid(src)
        self._cuts = [{src_dim: lierne.ShardSegments(0)} if own.dims().get(src_dim, 1) > 1 else {}, {}]
        if self._grid.dims().get(dst_dim, 1) > 1:
            self._cuts[1][dst_dim] = lierne.ShardSegments(0)
        if cut in self._grid.dims():
            self._cuts[1][cut] = lierne.SegmentZigzag(0)
        for side, (mesh, stage) in enumerate(((own, -1), (self._grid, 0))):
            stages = mesh.dims().get("pp", 1)
            if stages > 1:  # the last stage of the encoder, the first of the LLM
                self._cuts[side]["pp"] = lierne.At(stage % stages)
        layouts = [self._layout(mesh, cuts, lierne.Packing([0], owner=[] if self._owned(side) else None))
                   for side, (mesh, cuts) in enumerate(zip((own, self._grid), self._cuts))]
        self.plan = lierne.PackedBridge(context, *layouts, allow_unused=allow_unused, allow_repeat=allow_repeat,
                                        partial_dims=partial, max_segments=max_segments, max_rows=max_rows,
                                        max_runs=max_runs, max_peers=max_peers)
        self._operation, self.step = Operation(self.plan), 0

    def _owned(self, side):
        return any(cut.kind == lierne.ShardSegments(0).kind for cut in self._cuts[side].values())

    def _layout(self, mesh, cuts, packing):
        return lierne.Layout(mesh, (packing.tokens, self._hidden), self._dtype, cuts, packing=packing)

    def update(self, params: typing.Any, images: Integers, image_owner: typing.Optional[Integers] = None,
               segment_owner: typing.Optional[Integers] = None, *, runs: typing.Optional[Integers] = None,
               input_ids: typing.Optional[Integers] = None, image_id: typing.Optional[int] = None) -> None:
        """The next microbatch. params: an object like PackedSeqParams (packing_of); images: boundaries of the rows of each image; runs as
        lierne.PackedBridge, or input_ids, of all tokens, in which image_id stands for a row."""
        if (runs is None) == (input_ids is None):
            raise ValueError("give runs, or input_ids and image_id")
        src = lierne.Packing(images, owner=image_owner)
        dst = packing_of(params, owner=segment_owner)
        boundaries = _field(params, "cu_seqlens_q")
        if runs is None:
            runs = lierne.find_image_runs(boundaries, images, on_host("input_ids", input_ids), image_id)
        self.plan.update(src, dst, runs)
        self._operation.updated()
        self.step += 1
        self._mark(dst, boundaries, on_host("runs", runs).reshape(-1, 5))

    def _mark(self, packing, boundaries, runs):
        """tokens: of each row of this rank's output, -1 for padding. mask: which rows are image rows."""
        first = on_host("cu_seqlens", boundaries)[runs[:, 2]] + runs[:, 3]
        named = np.bincount(first, minlength=packing.tokens + 1)
        named -= np.bincount(first + runs[:, 4], minlength=packing.tokens + 1)
        named = np.cumsum(named[:-1]) > 0  # no token is in two runs
        tokens = np.full(self._operation.shapes()[1][0], -1)
        for (start, _), (size, _), (local, _) in self._layout(self._grid, self._cuts[1], packing).boxes(self._rank):
            tokens[local:local + size] = np.arange(start, start + size)
        self.tokens = torch.from_numpy(tokens)
        self.mask = torch.from_numpy(np.append(named, False)[tokens])

    def __call__(self, rows: torch.Tensor, into: typing.Optional[torch.Tensor] = None) -> torch.Tensor:
        """The output of this rank: image rows where runs name tokens, elsewhere the rows of `into` (None:
        zeros). Differentiable in both. All ranks call."""
        shape = self._operation.shapes()[0]
        if shape == (0, 0) and tuple(checked(rows).shape) == (0, self._hidden):
            rows = rows.reshape(shape)  # a rank outside of the encoder's grid
        moved = before_update(self._operation(rows), self)
        moved = moved.reshape(moved.shape[0], self._hidden)
        if into is None:
            return moved
        if checked(into).shape[:1] + into.shape[-1:] != moved.shape or into.numel() != moved.numel():
            raise ValueError(f"into has shape {tuple(into.shape)}, must have {tuple(moved.shape)} on this rank")
        if into.dtype != moved.dtype:
            raise TypeError(f"into has dtype {into.dtype}, must have that of the plan, {moved.dtype}")
        moved = moved.reshape(into.shape)
        mask = self.mask.to(moved.device).reshape(-1, *[1] * (into.ndim - 1))
        return torch.where(mask, moved, into)
