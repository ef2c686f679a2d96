"""A trainer's weights in an inference engine after every step, by the names of tensors."""
from __future__ import annotations

import dataclasses
import typing

import torch

import lierne
from lierne._types import Report

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Layout

State = typing.Mapping[str, torch.Tensor]


class _Group:
    """The tensors of one dtype: a set of its own."""

    def __init__(self, sync, src, dst, boxes):
        self.src, self.dst = list(src), list(dst)
        layouts = list(src.values()), list(dst.values())
        self.plan = lierne.TensorSet(sync.context, *layouts, boxes=boxes)
        self.delta = lierne.Delta(self.plan) if sync.delta else None
        self.layouts, self.boxes = layouts, boxes
        dtype = getattr(torch, _TORCH[layouts[0][0].dtype])
        self.data, self.out = (torch.zeros(shape, dtype=dtype) for shape in self.plan.shapes())
        self.sources = dict(zip(self.src, self.plan.views(self.data)))
        self.targets = dict(zip(self.dst, self.plan.views(self.out, "dst")))

    def move(self, sync):
        for name, view in self.sources.items():
            if view.numel():
                view.copy_(sync.trainer_state[name])
        (self.delta or self.plan).forward(self.data, out=self.out)
        for name, view in self.targets.items():
            if view.numel():
                sync.engine_state[name].copy_(view)

    def close(self):
        if self.delta is not None:
            self.delta.close()
        self.plan.close()


_TORCH = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i64": "int64", "i32": "int32",
          "i8": "int8", "u8": "uint8"}


def _check_state(what, state, layouts, rank):
    for name, layout in layouts.items():
        shape = layout.shape(rank)
        if 0 in shape:
            continue
        if name not in state:
            raise KeyError(f"{what} has no {name!r}, of which rank {rank} holds shape {shape}")
        if tuple(state[name].shape) != shape or state[name].dtype != getattr(torch, _TORCH[layout.dtype]):
            raise ValueError(f"{what}[{name!r}] has shape {tuple(state[name].shape)} and dtype {state[name].dtype}; its "
                             f"layout has shape {shape} and {layout.dtype} on rank {rank}")


def _numbered(boxes, src, dst):
    """The boxes between these tensors, whose names become numbers."""
    places = [{name: i for i, name in enumerate(side)} for side in (src, dst)]
    return [dataclasses.replace(box, src=places[0][box.src], dst=places[1][box.dst]) for box in boxes
            if box.src in src and box.dst in dst]


def _check_names(src, dst, boxes):
    if boxes is None and set(src) != set(dst):
        raise KeyError(f"{sorted(set(src) ^ set(dst))[0]!r} is in one of src and dst only: give boxes")
    pairs = [(f"{name!r}", name, name) for name in src] if boxes is None else [
        (f"boxes[{i}]", box.src, box.dst) for i, box in enumerate(boxes)]
    for where, source, target in pairs:
        for what, name, layouts in (("src", source, src), ("dst", target, dst)):
            if name not in layouts:
                raise KeyError(f"{where} names {name!r}, of which {what} has no layout")
        if src[source].dtype != dst[target].dtype:
            raise ValueError(f"{where}: {source!r} is {src[source].dtype}, {target!r} is {dst[target].dtype}; lierne "
                             "converts no dtypes")
    for name, layout in (*src.items(), *dst.items()):
        if layout.dtype not in _TORCH:
            raise ValueError(f"{name!r} has dtype {layout.dtype}, must be one of {', '.join(_TORCH)}")


class WeightSync:
    """Sends a trainer's weights to an inference engine, and only what changed since the last time.

        sync = lierne.torch.WeightSync(context, model.state_dict(), {}, src, dst)    # a trainer's rank
        sync = lierne.torch.WeightSync(context, {}, engine.state_dict(), src, dst)   # an engine's rank
        sync.sync()                                                                  # after every step, on all

    trainer_state, engine_state: the tensors that this rank holds, by name, in host memory; they are read and written
    in place in every call. A rank may have both, or neither. src, dst: a lierne.Layout per name, the same on every rank:
    of the trainer's tensors and of the engine's. boxes: lierne.SetBoxes with names of tensors, where the two do not
    store the same ones; then every element of the engine's tensors must be in one box. Tensors of several dtypes are
    several sets. delta: False sends everything in every call, which is faster within a node.

    Collective, and so are its methods but `invalidate`. Memory: a copy of what the rank holds of either state, and
    with delta what lierne.Delta keeps. Raises KeyError and ValueError on one rank alone for a state that does not fit
    its layouts, and errors of lierne.TensorSet and lierne.Delta, the same on every rank."""

    def __init__(self, context: Context, trainer_state: State, engine_state: State,
                 src: typing.Mapping[str, Layout], dst: typing.Mapping[str, Layout],
                 boxes: typing.Optional[typing.Sequence[lierne.SetBox]] = None, delta: bool = True) -> None:
        _check_names(src, dst, boxes)
        _check_state("trainer_state", trainer_state, src, context.rank)
        _check_state("engine_state", engine_state, dst, context.rank)
        self.context, self.trainer_state, self.engine_state, self.delta = context, trainer_state, engine_state, delta
        self._calls, self._groups = 0, []
        for dtype in sorted({layout.dtype for layout in dst.values()}):  # in one order on every rank, as names are
            sources, targets = ({name: side[name] for name in sorted(side) if side[name].dtype == dtype}
                                for side in (src, dst))
            numbered = None if boxes is None else _numbered(boxes, sources, targets)
            self._groups.append(_Group(self, sources, targets, numbered))

    def sync(self, check: bool = False) -> None:
        """The engine's tensors become the trainer's. Blocking. check: digests of all tensors are compared afterwards;
        raises errors.MismatchError, on every rank, with the tensor and the rank that differ, and the next call then
        sends everything. With boxes the tensor is the engine's; an element is looked up in the trainer's by its
        box."""
        for group in self._groups:
            group.move(self)
        self._calls += 1
        for group in self._groups if check else ():
            self._check(group)

    def _check(self, group):
        try:
            lierne.check_digests(self.context, *group.layouts, out=list(group.targets.values()),
                                 data=list(group.sources.values()), key=self._calls, boxes=group.boxes)
        except lierne.errors.MismatchError:
            self.invalidate()
            raise

    def invalidate(self) -> None:
        """The next call brings all of this rank's part, as after a restart of the engine. Local."""
        for group in self._groups:
            if group.delta is not None:
                group.delta.invalidate()

    @property
    def report(self) -> Report:
        """What the last call sent from this rank: a dict of sent_bytes, dense_bytes (of a call that sends everything)
        and memory_bytes (kept beside the plans)."""
        reports = [group.delta.report for group in self._groups if group.delta is not None]
        dense = sum(group.plan.report()["sent_bytes"] for group in self._groups)
        return {"sent_bytes": sum(r["sent_bytes"] for r in reports) if reports else dense, "dense_bytes": dense,
                "memory_bytes": sum(r["memory_bytes"] for r in reports) +
                sum(t.nbytes for group in self._groups for t in (group.data, group.out))}

    def close(self) -> None:
        """Frees the plans. Not collective."""
        for group in self._groups:
            group.close()
        self._groups = []
