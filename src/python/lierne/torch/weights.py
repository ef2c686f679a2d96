"""A trainer's weights in an inference engine after every step, by the names of tensors."""
from __future__ import annotations

import dataclasses
import re
import typing

import torch

import lierne
from lierne.torch._agree import largest
from lierne._types import Report

if typing.TYPE_CHECKING:
    from lierne.context import Context
    from lierne.grid import Layout

State = typing.Mapping[str, torch.Tensor]


_TORCH = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "bits8": torch.uint8, "bits16": torch.int16,
          "bits32": torch.int32, "bits64": torch.int64, "bits128": torch.complex128}


class _Group:
    """The tensors of one dtype: a set of its own."""

    def __init__(self, sync, src, dst, boxes):
        self.src, self.dst = list(src), list(dst)
        layouts = list(src.values()), list(dst.values())
        self.plan = lierne.TensorSet(sync.context, *layouts, boxes=boxes)
        self.delta = lierne.Delta(self.plan) if sync.delta else None
        self.layouts, self.boxes = layouts, boxes
        dtype = _TORCH[layouts[0][0].dtype]
        self.data, self.out = (torch.zeros(shape, dtype=dtype) for shape in self.plan.shapes())
        self.sources = dict(zip(self.src, self.plan.views(self.data)))
        self.targets = dict(zip(self.dst, self.plan.views(self.out, "dst")))

    def move(self, sync):
        for name, view in self.sources.items():
            if view.numel():
                view.copy_(_like(sync.trainer_state[name], view))
        (self.delta or self.plan).forward(self.data, out=self.out)
        for name, view in self.targets.items():
            if view.numel():
                tensor = sync.engine_state[name]
                tensor.copy_(view.view(tensor.dtype).reshape(tensor.shape))

    def check(self, sync):
        """Compares the digests of the tensors themselves, not of what was on its way between them."""
        out, data = ([_like(state[name], view).contiguous() if view.numel() else view for name, view in views.items()]
                     for state, views in ((sync.engine_state, self.targets), (sync.trainer_state, self.sources)))
        try:
            lierne.check_digests(sync.context, *self.layouts, out=out, data=data, key=sync._calls, boxes=self.boxes)
        except lierne.errors.MismatchError as error:
            number = re.search(r"tensor (\d+)", str(error))
            name = f" (tensor {number[1]} is {self.dst[int(number[1])]!r})" if number else ""
            raise lierne.errors.MismatchError(f"{error}{name}") from None

    def close(self):
        if self.delta is not None:
            self.delta.close()
        self.plan.close()


def _like(tensor, view):
    """A tensor of the state as one of the dtype and shape of a view of the set; a scalar has shape (1,) there."""
    return tensor.detach().view(view.dtype).reshape(view.shape)


def _held(layouts, rank):
    """Dtype and shape, by name, of what a rank holds: the same in every call."""
    shapes = {name: layout.shape(rank) for name, layout in layouts.items()}
    return {name: (layouts[name].dtype, shape) for name, shape in shapes.items() if 0 not in shape}


def _fits(tensor, wanted, shape):
    opaque = wanted.startswith("bits")
    dtype = f"bits{8 * tensor.element_size()}" == wanted if opaque else tensor.dtype == _TORCH[wanted]
    return dtype and (tuple(tensor.shape) or (1,)) == shape and tensor.device.type == "cpu"


def _check_state(what, state, held, rank):
    for name, (dtype, shape) in held.items():
        if name not in state:
            raise KeyError(f"{what} has no {name!r}, of which rank {rank} holds shape {shape}")
        tensor = state[name]
        if not _fits(tensor, dtype, shape):
            raise ValueError(f"{what}[{name!r}] has shape {tuple(tensor.shape)} and dtype {tensor.dtype} on "
                             f"{tensor.device}; its layout has shape {shape} and {dtype} on rank {rank}, in host memory")


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


class WeightSync:
    """Sends a trainer's weights to an inference engine, and only what changed since the last time.

        sync = lierne.torch.WeightSync(context, model.state_dict(), {}, src, dst)    # a trainer's rank
        sync = lierne.torch.WeightSync(context, {}, engine.state_dict(), src, dst)   # an engine's rank
        sync.sync()                                                                  # after every step, on all

    trainer_state, engine_state: the tensors that this rank holds, by name, in host memory; they are read and written
    in place in every call, also where they require gradients. A rank may have both, or neither. src, dst: a
    lierne.Layout per name, the same on every rank: of the trainer's tensors and of the engine's; a scalar has shape (1,)
    there, and types without arithmetic in lierne (fp8, bool, int16, complex) are "bits8" and so on. boxes:
    lierne.SetBoxes with names of tensors, where the two do not store the same ones; then every element of the engine's
    tensors must be in one box. Tensors of several dtypes are several sets. delta: False sends everything in every call,
    which is faster within a node.

    Collective, and so are its methods but `invalidate` and `close`. Memory: a copy of what the rank holds of either
    state, and with delta what lierne.Delta keeps. A state that does not fit its layouts, here or in a later call, raises
    KeyError or ValueError on its rank and errors.InvalidError on the others, before anything moves. Raises errors of
    lierne.TensorSet and lierne.Delta, the same on every rank."""

    def __init__(self, context: Context, trainer_state: State, engine_state: State,
                 src: typing.Mapping[str, Layout], dst: typing.Mapping[str, Layout],
                 boxes: typing.Optional[typing.Iterable[lierne.SetBox]] = None, delta: bool = True) -> None:
        boxes = None if boxes is None else list(boxes)
        _check_names(src, dst, boxes)
        self.context, self.trainer_state, self.engine_state, self.delta = context, trainer_state, engine_state, delta
        self._calls, self._groups, self._closed = 0, [], False
        self._held = [_held(layouts, context.rank) for layouts in (src, dst)]
        self._check_states()
        for dtype in sorted({layout.dtype for layout in dst.values()}):  # in one order on every rank, as names are
            sources, targets = ({name: side[name] for name in sorted(side) if side[name].dtype == dtype}
                                for side in (src, dst))
            numbered = None if boxes is None else _numbered(boxes, sources, targets)
            self._groups.append(_Group(self, sources, targets, numbered))

    def _check_states(self):
        """Raises on every rank where the state of one does not fit."""
        found, rank = None, self.context.rank
        try:
            _check_state("trainer_state", self.trainer_state, self._held[0], rank)
            _check_state("engine_state", self.engine_state, self._held[1], rank)
        except (KeyError, ValueError) as error:
            found = error
        wrong = largest(self.context, 0 if found is None else rank + 1)
        if found is not None:
            raise found
        if wrong:
            raise lierne.errors.InvalidError(f"rank {rank}: a tensor of rank {wrong - 1} does not fit its layout")

    @torch.no_grad()
    def sync(self, check: bool = False) -> None:
        """The engine's tensors become the trainer's. Blocking. check: digests of all tensors of both states are compared
        afterwards; raises errors.MismatchError, on every rank, with the tensor and the rank that differ, and the next
        call then sends everything. With boxes the tensor is the engine's; an element is looked up in the trainer's by
        its box."""
        if self._closed:
            raise ValueError("the WeightSync is closed")
        self._check_states()
        for group in self._groups:
            group.move(self)
        self._calls += 1
        try:
            for group in self._groups if check else ():
                group.check(self)
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
        self._groups, self._closed = [], True
