"""Sample routing: which rank computes which sample (lierne/samples.h is the manual).

    a = Assignment(costs, counts)         # the items of all ranks, and how many of them each rank has
    mine = np.flatnonzero(a.ranks == context.rank)

    samples = Samples(context, dispatch=[(1176, "f32")], ret=[(64, "f32")], max_items=32, max_rows=8192)
    samples.update(costs, rows)           # every step, this rank's items; collective
    pixels = samples.dispatch(own_pixels)
    cu_seqlens = samples.cu_seqlens()     # of the segments in pixels, int32
    embeddings = samples.ret(computed)    # in the order of own_pixels
"""
from __future__ import annotations

import dataclasses
import typing

import numpy as np

from lierne._arrays import dtype_number
from lierne._library import (Error, Spec, arguments, call, choice, copied, ffi, handle, lib, make, not_copied,
                             numbers, sized)
from lierne._types import Array, Buffer, Integers, Mode, Place, Report
from lierne.plan import Coalesced, Plan

if typing.TYPE_CHECKING:
    from lierne.context import Context

_MODES = {"shed": lib.LIERNE_BALANCE_SHED, "lpt": lib.LIERNE_BALANCE_LPT, "kk": lib.LIERNE_BALANCE_KK,
          "contiguous": lib.LIERNE_BALANCE_CONTIGUOUS, "caller": lib.LIERNE_BALANCE_CALLER}
_PLACES = {"home": lib.LIERNE_SAMPLES_HOME, "dispatched": lib.LIERNE_SAMPLES_DISPATCHED,
           "computed": lib.LIERNE_SAMPLES_COMPUTED, "returned": lib.LIERNE_SAMPLES_RETURNED}
_DISPATCHES = {"rows": lib.LIERNE_SAMPLES_DISPATCH, "segments": lib.LIERNE_SAMPLES_SEGMENTS}


def _items(costs, ncosts, rows, segments, returned_rows=None):
    """The C items of costs [items] or [items, costs], and their number."""
    costs = np.asarray(costs)
    if costs.ndim not in (1, 2):
        raise ValueError(f"costs has shape {costs.shape}, must be [items] or [items, costs]")
    nitems = len(costs)
    nsegments = nitems if segments is None else int(np.abs(segments).sum())  # C names the one below 0
    return Spec("lierne_items", nitems=nitems, ncosts=costs.size // nitems if nitems else ncosts,
                cost=costs.reshape(-1) if nitems else None, rows=sized("rows", rows, nsegments),
                segments=sized("segments", segments, nitems),
                returned_rows=sized("returned_rows", returned_rows, nsegments)), nitems


def _report(function, owner):
    report = Spec("lierne_assignment_report")
    call(function, report.at, owner)
    return {name: getattr(report.at, name)
            for name, _ in ffi.typeof("lierne_assignment_report").fields if name != "size"}


class Assignment:
    """A rank for each item, so that all ranks compute as much. Pure: every rank that calls it with the
    same arguments has the same result.

    costs: [items], or [items, costs]; counts: the number of items of each rank, in the order of ranks.
    rows and segments as in lierne_items. mode: "shed", "lpt", "kk", "contiguous", or "caller" with
    `assignment`. Options: cost, tolerance, max_items, max_rows, min_items, equal_items, nodes.
    Raises errors.InfeasibleError where no assignment keeps the caps.

    `ranks` (int32) and `loads` (int64) are numpy arrays, `report` is a dict of the fields of
    lierne_assignment_report."""

    def __init__(self, costs: Integers, counts: Integers, rows: typing.Optional[Integers] = None,
                 segments: typing.Optional[Integers] = None, mode: Mode = "shed", *, cost: int = 0,
                 tolerance: typing.Optional[int] = None, max_items: int = 0, max_rows: int = 0, min_items: int = 0,
                 equal_items: bool = False, nodes: typing.Optional[Integers] = None,
                 assignment: typing.Optional[Integers] = None) -> None:
        options = arguments(locals(), "costs", "counts", "rows", "segments", "mode")
        mode = choice("mode", mode, _MODES)
        items, nitems = _items(costs, 1, rows, segments)
        at, counts = numbers("int64_t", "counts", counts)
        for name, count in (("nodes", len(counts)), ("assignment", nitems)):
            sized(name, options.get(name), count)
        spec = Spec("lierne_balance_spec", mode=mode, **options)
        out = ffi.new("lierne_assignment **")
        call(lib.lierne_assignment_create, out, items.at, at, len(counts), spec.at)
        made = ffi.gc(out[0], lib.lierne_assignment_destroy)
        self.ranks = copied(lib.lierne_assignment_get_ranks(made), nitems)
        self.loads = copied(lib.lierne_assignment_get_loads(made), len(counts))
        self.report = _report(lib.lierne_assignment_get_report, made)


@dataclasses.dataclass(frozen=True)
class SamplesLists:
    """Who has what in a place: lierne_samples_lists, as numpy arrays. items, cu_seqlens: of this rank;
    ranks, permutation, first and loads: of all."""
    items: np.ndarray
    cu_seqlens: np.ndarray
    ranks: np.ndarray
    permutation: np.ndarray
    first: np.ndarray
    loads: np.ndarray


class _SamplesPlan(Plan):
    """A plan that belongs to its Samples, and is closed with them."""

    def __init__(self, samples, tensor):
        self.context, self._samples, self._shared, self._dtype = samples.context, samples, (), None
        self._handle = make("lierne_plan", lib.lierne_samples_get_plan, samples._alive(), tensor)

    def _alive(self):
        self._samples._alive()
        return self._handle

    def close(self):
        raise TypeError("the plan belongs to its Samples: close these")

    def __del__(self):
        pass

    def __repr__(self):
        return "<closed plan>" if self._samples._handle is None else super().__repr__()


class Samples:
    """Samples that are assigned anew in every step, so that all ranks compute as much.

    Collective over the context; all ranks give the same capacities. dispatch and ret: the tensors that go
    to the assigned ranks and that come back, a (width, dtype) each; a tensor is [rows, width]. A (width,
    dtype, "segments") of dispatch has one row per segment, in place of its rows.
    max_items, max_segments: the most items and segments at home on one rank (segments 0: an item is one);
    max_items 0: any number of both, and updates gather the counts before, one communication more.
    max_rows, max_returned_rows: the most rows of one rank, at home and where it computes. costs: of each
    item. caller: whether updates may have mode "caller". Raises NotImplementedError where the context's
    memory or transports cannot do this."""

    def __init__(self, context: Context, dispatch: typing.Sequence[typing.Tuple[typing.Any, ...]],
                 ret: typing.Sequence[typing.Tuple[typing.Any, ...]] = (), *, max_rows: int, max_items: int = 0,
                 max_segments: int = 0, max_returned_rows: int = 0, costs: int = 1, caller: bool = False,
                 max_inflight: int = 1, name: typing.Optional[str] = None) -> None:
        self.context, self._handle = context, None
        ways = [(choice("way", entry[2] if len(entry) > 2 else "rows", _DISPATCHES), *entry[:2]) for entry in dispatch]
        ways += [(lib.LIERNE_SAMPLES_RETURN, *entry) for entry in ret]
        tensors = [{"way": way, "dtype": dtype_number(dtype), "width": width} for way, width, dtype in ways]
        spec = Spec("lierne_samples_spec", max_local_items=max_items, max_local_segments=max_segments,
                    ncosts=costs, caller=bool(caller), max_rows=max_rows, max_returned_rows=max_returned_rows,
                    ntensors=len(tensors), tensors=tensors, max_inflight=max_inflight, name=name)
        out = ffi.new("lierne_samples **")
        self._costs, self._coalesced, self._coalesces = costs, {}, max_items > 0
        context._call(lib.lierne_samples_create, out, handle(context, "context"), spec.at)
        self._handle = out[0]
        plans = [_SamplesPlan(self, i) for i in range(len(tensors))]
        self._dispatch, self._ret = plans[:len(dispatch)], plans[len(dispatch):]

    __copy__ = __reduce_ex__ = not_copied

    def _alive(self):
        if self._handle is None or self.context._handle is None:
            raise ValueError("the samples are closed" if self._handle is None else
                             "the context of the samples is closed")
        return self._handle

    def close(self) -> None:
        """Frees the samples and their plans. Not collective. Raises errors.BusyError while a request is in
        flight."""
        if self._handle is not None and self.context._handle is not None:
            for coalesced in self._coalesced.values():
                coalesced.close()
            self._coalesced = {}
            self.context._call(lib.lierne_samples_destroy, self._handle)
        self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            for coalesced in self._coalesced.values():
                coalesced.__del__()
            self.context._discard(lib.lierne_samples_destroy, self._handle)

    def _balance(self, nitems, mode="shed", **options):
        for name, count in (("nodes", len(self.context.members)), ("assignment", nitems)):
            sized(name, options.get(name), count)
        return Spec("lierne_balance_spec", mode=choice("mode", mode, _MODES), **options)

    def update(self, costs: Integers, rows: typing.Optional[Integers] = None,
               segments: typing.Optional[Integers] = None, returned_rows: typing.Optional[Integers] = None,
               mode: Mode = "shed", destination: typing.Optional[typing.Mapping[str, typing.Any]] = None, *,
               cost: int = 0, tolerance: typing.Optional[int] = None, max_items: int = 0, max_rows: int = 0,
               min_items: int = 0, equal_items: bool = False, nodes: typing.Optional[Integers] = None,
               assignment: typing.Optional[Integers] = None) -> None:
        """The next step: this rank's items. Collective; one all-gather. Arguments as lierne_items:
        costs [items] or [items, costs], rows and returned_rows per segment, segments per item. mode and
        options say how they are assigned, as for Assignment, the same on all ranks; destination, None for
        home, is a dict of the same for where results go. On any rank's error every rank raises it, and
        the old routing stays."""
        options = arguments(locals(), "costs", "rows", "segments", "returned_rows", "mode", "destination")
        try:
            items, nitems = _items(costs, self._costs, rows, segments, returned_rows)
            balance = self._balance(nitems, mode, **options)
            to = ffi.NULL if destination is None else self._balance(nitems, **destination)
        except Exception as error:  # also what converting the caller's arrays raises, such as torch's RuntimeError
            self._reject(error)
        self.context._call(lib.lierne_samples_update, self._alive(), items.at, balance.at,
                           to.at if destination is not None else to)

    def _reject(self, error):
        """Raises an error of this rank's arguments, after the call that the others wait in: they get
        INVALID from it, because this rank has no items."""
        try:
            self.context._call(lib.lierne_samples_update, self._alive(), ffi.NULL, self._balance(0).at, ffi.NULL)
        except Error:
            raise error from None

    def _together(self, plans):
        """The Coalesced of the plans of dispatch, or of ret: made at its first use, by all ranks. None for one
        plan, and without max_items."""
        way = plans is self._dispatch
        if len(plans) > 1 and self._coalesces and way not in self._coalesced:
            self._coalesced[way] = Coalesced(plans)
        return self._coalesced.get(way)

    def _move(self, plans, direction, data):
        if len(data) != len(plans):
            raise ValueError(f"{len(data)} tensors are given, must be {len(plans)}")
        self._alive()
        together = self._together(plans)
        if together is not None:
            together.begin(data, direction=direction)
            return tuple(together.wait(direction))
        requests = [plan.begin(x, direction=direction) for plan, x in zip(plans, data)]
        results = tuple(request.wait() for request in requests)
        return results[0] if len(results) == 1 else results

    def dispatch(self, *data: typing.Optional[Buffer]) -> typing.Any:
        """Rows of this rank's items to the ranks that compute them: all tensors of `dispatch` at once, in one
        message per pair of ranks. Collective. Returns a new numpy array, or a tuple of them."""
        return self._move(self._dispatch, "forward", data)

    def dispatch_adjoint(self, *gradients: typing.Optional[Buffer]) -> typing.Any:
        """Gradients of what dispatch returned, to those of its arguments."""
        return self._move(self._dispatch, "adjoint", gradients)

    def ret(self, *data: typing.Optional[Buffer]) -> typing.Any:
        """Rows that were computed, to their destination: all tensors of `ret` at once. Collective."""
        return self._move(self._ret, "forward", data)

    def ret_adjoint(self, *gradients: typing.Optional[Buffer]) -> typing.Any:
        """Gradients of what ret returned, to those of its arguments."""
        return self._move(self._ret, "adjoint", gradients)

    @property
    def plans(self) -> typing.List[Plan]:
        """The Plans of all tensors, those of dispatch first. They are closed with the samples."""
        return self._dispatch + self._ret

    def lists(self, place: Place = "dispatched") -> SamplesLists:
        """The SamplesLists of "home", "dispatched", "computed" (returned rows where they are computed) or
        "returned"."""
        l = Spec("lierne_samples_lists")
        call(lib.lierne_samples_get_lists, l.at, self._alive(), choice("place", place, _PLACES))
        l, ranks = l.at, len(self.context.members)
        return SamplesLists(copied(l.items, l.nitems), copied(l.cu_seqlens, l.nsegments + 1),
                            copied(l.ranks, l.nitems_all), copied(l.permutation, l.nitems_all),
                            copied(l.first, ranks + 1), copied(l.loads, ranks))

    def cu_seqlens(self, place: Place = "dispatched") -> Array:
        """The cu_seqlens of a place as int32. Raises OverflowError where they do not fit."""
        out = ffi.new("const int32_t **")
        call(lib.lierne_samples_get_cu_seqlens_i32, out, self._alive(), choice("place", place, _PLACES))
        return copied(out[0], len(self.lists(place).cu_seqlens))

    @property
    def report(self) -> Report:
        """What the last update balances and moves: a dict of the fields of lierne_assignment_report."""
        return _report(lib.lierne_samples_get_report, self._alive())

    def __repr__(self) -> str:
        state = "closed samples" if self._handle is None else f"samples of {len(self.plans)} tensors"
        return f"<{state}>"
